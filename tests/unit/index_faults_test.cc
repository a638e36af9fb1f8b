// index_faults_test.cc: what is said of an index whose shards are not all there.
#include <doctest/doctest.h>

#include <filesystem>

#include "analysis/io/source_faults.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using test::TempDir;
using Faults = std::vector<SourceFault>;

namespace {

const auto every = [](const std::string&) { return true; };

// An index of `shards` shards with two tensors each, "t0.a", "t0.b", "t1.a", ...
std::string index_of(std::size_t shards) {
  std::string map;
  for (std::size_t i = 0; i < shards; ++i) {
    const std::string n = std::to_string(i);
    for (const char* part : {".a", ".b"}) {
      map += (map.empty() ? "\"t" : ",\"t") + n + part + "\":\"s" + n + ".safetensors\"";
    }
  }
  return "{\"weight_map\":{" + map + "}}";
}

Faults faults_of(const std::string& path) {
  return open_source(path, {.parts = true})->info().faults;
}

}  // namespace

TEST_CASE("shards that are all missing are told in one sentence") {
  const TempDir dir;
  const std::string index = dir.file("model.safetensors.index.json");
  test::write_file(index, index_of(200));
  const Faults all = faults_of(index);
  CHECK(all.size() == 200);
  const std::string first =
      index + ": tensor \"t0.a\" is said to be in " + dir.file("s0.safetensors") +
      ", but there is no such file; 2 tensors of the index " + index + " left out";
  const Faults told = wanted_faults(all, every);
  REQUIRE(told.size() == 1);
  CHECK(told[0].message == first + "; 199 more shards are missing, with 398 tensors");
  CHECK(told[0].exit_code == 3);
  CHECK(told[0].tensors.size() == 400);
  // Who asks for one tensor hears of its shard.
  const Faults one = wanted_faults(all, [](const std::string& name) { return name == "t7.b"; });
  REQUIRE(one.size() == 1);
  CHECK(one[0].file == dir.file("s7.safetensors"));
  CHECK(one[0].message.ends_with(" left out"));
  const auto two_shards = [](const std::string& name) { return name == "t0.b" || name == "t1.b"; };
  CHECK(wanted_faults(all, two_shards).at(0).message ==
        first + "; 1 more shard is missing, with 2 tensors");
  CHECK(wanted_faults(all, [](const std::string&) { return false; }).empty());
}

TEST_CASE("of broken shards two are told, and other causes are told apart") {
  const TempDir dir, outside;
  const std::string index = dir.file("model.safetensors.index.json");
  test::write_file(index, index_of(8));
  for (const char* name :
       {"s1.safetensors", "s3.safetensors", "s4.safetensors", "s6.safetensors"}) {
    test::write_file(dir.file(name), "no tensors in here");
  }
  test::write_file(outside.file("x"), "no tensors in here");
  for (const char* name : {"s2.safetensors", "s5.safetensors"}) {
    std::filesystem::create_symlink(outside.file("x"), dir.file(name));
  }
  const Faults told = wanted_faults(faults_of(index), every);
  REQUIRE(told.size() == 4);
  const auto ends = [&](std::size_t i, const std::string& shard, const std::string& end) {
    CAPTURE(told[i].message);
    CHECK(told[i].file == dir.file(shard));
    CHECK(told[i].message.ends_with("2 tensors of the index " + index + " left out" + end));
  };
  ends(0, "s0.safetensors", "; 1 more shard is missing, with 2 tensors");
  ends(1, "s1.safetensors", "");
  ends(2, "s2.safetensors", "; 1 more shard is a link out of the folder, with 2 tensors");
  ends(3, "s3.safetensors", "; 2 more shards are broken or lack tensors, with 4 tensors");
}

TEST_CASE("an index without a shard is called by its name") {
  const TempDir dir;
  for (const char* name : {"model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    test::write_file(dir.file(name), index_of(1));
    const auto source = open_source(dir.file(name), {.parts = true});
    CHECK(source->tensors().empty());
    CHECK(source->info().container == (name[0] == 'p' ? "pytorch index" : "safetensors index"));
  }
}

TEST_CASE("a directory has the faults of the indexes in it") {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "a");
  test::write_file(dir.file("a/model.safetensors.index.json"), index_of(1));
  test::write_file(dir.file("b.npy"),
                   test::npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
                                   test::bytes_of<float>({1})));
  const auto source = open_source(dir.path().string(), {.parts = true});
  CHECK(source->info().container == "directory");
  CHECK(source->tensors().size() == 1);
  REQUIRE(source->info().faults.size() == 1);
  CHECK(source->info().faults[0].tensors == std::vector<std::string>{"t0.a", "t0.b"});
}
