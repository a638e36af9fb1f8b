// inputs_test.cc: which files and tensors operands name: dump trees, links, indexes, patterns,
// hostile names, more files than may be open.
#include "analysis/inputs.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "analysis/analyze.h"
#include "analysis/io/container_files.h"
#include "analysis/io/pooled_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/support/zip_bytes.h"

namespace fp4scope {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

std::string npy(float value) {
  return test::npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n",
                         test::bytes_of<float>({value}));
}
std::string safetensors(const std::string& name, float value) {
  return test::safetensors_bytes(
      "{\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      test::bytes_of<float>({value}));
}
void write(const TempDir& dir, const std::string& name, const std::string& bytes) {
  fs::create_directories((dir.path() / name).parent_path());
  test::write_file(dir.file(name), bytes);
}
// The paths below the folder.
std::vector<std::string> below(const TempDir& dir, const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) out.push_back(path.substr(dir.path().string().size() + 1));
  return out;
}
std::vector<std::string> files_of(const TempDir& dir, bool follow_links = false) {
  return below(dir, find_containers(dir.path().string(), follow_links).files);
}
std::vector<std::string> skipped_of(const TempDir& dir) {
  std::vector<std::string> out;
  for (const auto& note : find_containers(dir.path().string()).skipped) out.push_back(note.path);
  return below(dir, out);
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool accept_all(const std::string&) {
  return true;
}
Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(ErrorKind::kUsage, "");
}

using Names = std::vector<std::string>;

TEST_CASE("a tree gives its container files in natural order, without the hidden and the others") {
  const TempDir dir;
  for (const char* name : {"rank_10/iter_2/a.pt", "rank_2/iter_10/a.npz", "rank_2/iter_9/b.h5",
                           "rank_2/iter_9/a10.pth", "rank_2/iter_9/a9.ckpt", "z.gguf", "a.hdf5",
                           "m.npy", "x.safetensors", ".hidden.npy", ".git/x.npy", "notes.txt",
                           "npy", ".npy", "a.NPY", "x.npy.tmp", "empty/readme"}) {
    write(dir, name, "?");
  }
  CHECK(files_of(dir) == Names{"a.hdf5", "m.npy", "rank_2/iter_9/a9.ckpt", "rank_2/iter_9/a10.pth",
                               "rank_2/iter_9/b.h5", "rank_2/iter_10/a.npz", "rank_10/iter_2/a.pt",
                               "x.safetensors", "z.gguf"});
  CHECK(skipped_of(dir).empty());
  // A '/' at the end changes nothing.
  CHECK(container_files(dir.path().string() + "/").front() == dir.file("a.hdf5"));
}

TEST_CASE("the content of a .bin file decides, and another one is said to be skipped") {
  const TempDir dir;
  write(dir, "zip.bin", "PK\x03\x04....");
  write(dir, "pickle.bin", "\x80\x02}q");
  write(dir, "other.bin", "TFL3....");
  write(dir, "tiny.bin", "\x80");
  write(dir, "empty.bin", "");
  CHECK(files_of(dir) == Names{"pickle.bin", "zip.bin"});
  CHECK(skipped_of(dir) == Names{"empty.bin", "other.bin", "tiny.bin"});
  CHECK(contains(find_containers(dir.path().string()).skipped[1].message,
                 "other.bin: not read, its content is no container"));
}

TEST_CASE("an index stands for its folder and what is below, also in a nested folder") {
  const TempDir dir;
  write(dir, "a/model.safetensors.index.json",
        R"({"weight_map":{"w1":"s1.safetensors","w2":"./deep//s2.safetensors","w3":"odd.name"}})");
  write(dir, "a/s1.safetensors", safetensors("w1", 1));
  write(dir, "a/deep/s2.safetensors", safetensors("w2", 2));
  write(dir, "a/odd.name", safetensors("w3", 3));
  write(dir, "a/consolidated.safetensors", safetensors("w1", 4));
  write(dir, "a/original/c.00.pth", "?");
  write(dir, "a/pytorch_model.bin.index.json", R"({"weight_map":{"w1":"p.bin"}})");
  write(dir, "b.npy", npy(5));
  CHECK(files_of(dir) == Names{"a/model.safetensors.index.json", "b.npy"});
  CHECK(skipped_of(dir) == Names{"a/consolidated.safetensors", "a/original/c.00.pth",
                                 "a/pytorch_model.bin.index.json"});
  const InputTensors inputs = open_inputs({dir.path().string()}, {}, accept_all);
  REQUIRE(inputs.tensors.size() == 4);
  CHECK(inputs.errors.empty());
  CHECK(inputs.skipped.size() == 3);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& entry = inputs.tensors[i];
    float value = 0;
    entry.source->read_f32(*entry.tensor, 0, 1, 0, 1, &value);
    CHECK(value == std::vector<float>{1, 2, 3, 5}[i]);
  }
}

TEST_CASE("an index that cannot be used, and two of them, do not hide the rest of the tree") {
  const TempDir dir;
  write(dir, "a/model.safetensors.index.json", R"({"weight_map":{"w":"s.safetensors"}})");
  write(dir, "b/x.safetensors.index.json", "{}");
  write(dir, "b/y.safetensors.index.json", "{}");
  write(dir, "b/z.npy", npy(1));
  write(dir, "c/w.npy", npy(2));
  write(dir, "d/self.safetensors.index.json",
        R"({"weight_map":{"w":"self.safetensors.index.json"}})");
  const InputTensors inputs = open_inputs({dir.path().string()}, {}, accept_all);
  REQUIRE(inputs.tensors.size() == 1);
  CHECK(inputs.tensors[0].operand == dir.file("c/w.npy") + ":w");
  REQUIRE(inputs.errors.size() == 3);
  CHECK(contains(inputs.errors[0].message, "b holds 2 index files"));
  CHECK(contains(inputs.errors[1].message, "but there is no such file"));
  CHECK(contains(inputs.errors[2].message, "expected a shard in safetensors or PyTorch's format"));
}

TEST_CASE("missing and broken shards of an index are said, the tensors of the others are read") {
  const TempDir dir;
  const std::string index = dir.file("model.safetensors.index.json");
  test::write_file(index,
                   R"({"weight_map":{"gone.0":"1.safetensors","a":"2.safetensors",)"
                   R"("gone.1":"1.safetensors","bad":"3.safetensors","lost":"2.safetensors"}})");
  write(dir, "2.safetensors", safetensors("a", 2));
  write(dir, "3.safetensors", safetensors("bad", 3).substr(0, 60));
  for (const std::string& operand : {index, dir.path().string()}) {
    const InputTensors inputs = open_inputs({operand}, {}, accept_all);
    REQUIRE(inputs.tensors.size() == 1);
    float value = 0;
    inputs.tensors[0].source->read_f32(*inputs.tensors[0].tensor, 0, 1, 0, 1, &value);
    CHECK(value == 2);
    REQUIRE(inputs.errors.size() == 3);
    CHECK(inputs.errors[0].file == dir.file("1.safetensors"));
    CHECK(inputs.errors[0].message ==
          index + ": tensor \"gone.0\" is said to be in " + dir.file("1.safetensors") +
              ", but there is no such file; 2 tensors of the index " + index + " left out");
    CHECK(contains(inputs.errors[1].message, dir.file("3.safetensors")));
    CHECK(contains(inputs.errors[1].message, "; 1 tensor of the index " + index + " left out"));
    CHECK(contains(inputs.errors[2].message, "that file does not hold it; 1 tensor of"));
    for (const ErrorRecord& error : inputs.errors) CHECK(error.exit_code == 3);
  }
  // Only what is asked for counts.
  CHECK(open_inputs({index + ":a"}, {}, accept_all).errors.empty());
  for (const std::string& operand : {index, dir.path().string()}) {
    const InputTensors lost = open_inputs({operand + ":gone.1"}, {}, accept_all);
    REQUIRE(lost.errors.size() == 1);
    CHECK(contains(lost.errors[0].message, "no such file"));
  }
  CHECK(
      open_inputs({index}, {}, [](const std::string& name) { return name == "a"; }).errors.empty());
  // Who needs all of them gets none.
  CHECK(contains(error_of([&] { (void)open_source(index); }).what(), "but there is no such file"));
}

TEST_CASE("a PyTorch index reads its shards") {
  const TempDir dir;
  // A shard by content: what is named .bin may hold safetensors.
  write(dir, "pytorch_model.bin.index.json",
        R"({"metadata":{},"weight_map":{"b":"pytorch_model-2.bin","a":"pytorch_model-1.bin"}})");
  fs::copy_file(test::data_dir() / "containers" / "dumps" / "per_iteration" / "rank_1" /
                    "iter_000005" / "decoder.layers.0.mlp.fc1_activation.pt",
                dir.path() / "x.pt");
  write(dir, "pytorch_model-1.bin", safetensors("a", 1));
  write(dir, "pytorch_model-2.bin", safetensors("b", 2));
  const auto source = open_source(dir.path().string());
  REQUIRE(source->tensors().size() == 2);
  CHECK(source->tensors()[0].name == "b");
  test::write_file(dir.file("pytorch_model.bin.index.json"),
                   R"({"weight_map":{"high_precision":"x.pt"}})");
  const auto torch = open_source(dir.path().string());
  CHECK(torch->info().container == "pytorch index");
  REQUIRE(torch->tensors().size() == 1);
  CHECK(torch->tensors()[0].shape == std::vector<std::int64_t>{16, 32});
  std::vector<float> values(16 * 32);
  torch->read_f32(torch->tensors()[0], 0, 16, 0, 32, values.data());
}

TEST_CASE("links inside give each file once, links that leave are skipped, loops end") {
  const TempDir dir, outside;
  test::write_file(outside.file("secret.npy"), npy(1));
  write(dir, "real/a.npy", npy(2));
  write(dir, ".store/b", npy(3));
  write(dir, ".store/folder/c.npy", npy(4));
  fs::create_symlink("real", dir.path() / "latest");
  fs::create_symlink("a.npy", dir.path() / "real" / "again.npy");
  fs::create_symlink("..", dir.path() / "real" / "up");
  fs::create_symlink("loop.npy", dir.path() / "loop.npy");
  fs::create_symlink("../.store/b", dir.path() / "real" / "b.npy");
  fs::create_symlink(".store/folder", dir.path() / "folder");
  fs::create_symlink(outside.file("secret.npy"), dir.path() / "out.npy");
  fs::create_symlink(outside.path(), dir.path() / "out_folder");
  fs::create_symlink(outside.file("secret.npy"), dir.path() / "notes.txt");
  fs::create_symlink("nowhere", dir.path() / "dangling.npy");
  CHECK(files_of(dir) == Names{"folder/c.npy", "real/a.npy", "real/b.npy"});
  CHECK(skipped_of(dir) == Names{"out.npy", "out_folder"});
  const ContainerFiles found = find_containers(dir.path().string());
  CHECK(contains(found.skipped[0].message, "leads out of the directory (--follow-links"));
  REQUIRE(found.errors.size() == 2);
  CHECK(contains(found.errors[0].message, "dangling.npy: the link leads nowhere"));
  CHECK(contains(found.errors[1].message, "loop.npy: the link leads nowhere"));
  // Followed on request, once each.
  CHECK(files_of(dir, true) == Names{"folder/c.npy", "out.npy", "real/a.npy", "real/b.npy"});
  // The directory itself may be named through a link.
  fs::create_symlink(dir.path() / "real", outside.path() / "named");
  CHECK(find_containers(outside.file("named")).files == Names{outside.file("named/a.npy")});
  fs::create_symlink(dir.path(), dir.path() / "real" / "self");
  CHECK(files_of(dir) == Names{"folder/c.npy", "real/a.npy", "real/b.npy"});
}

TEST_CASE("shards that are links stay in the folder, but for the Hugging Face cache") {
  const TempDir dir;
  const std::string index = R"({"weight_map":{"w":"s.safetensors"}})";
  write(dir, "else/s", safetensors("w", 1));
  write(dir, "model/model.safetensors.index.json", index);
  fs::create_symlink("../else/s", dir.path() / "model" / "s.safetensors");
  CHECK(contains(error_of([&] { open_source(dir.file("model")); }).what(),
                 "which is a link out of the folder"));
  OpenOptions follow;
  follow.follow_links = true;
  CHECK(open_source(dir.file("model"), follow)->tensors().size() == 1);
  // models--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH
  write(dir, "hub/blobs/1", index);
  write(dir, "hub/blobs/2", safetensors("w", 2));
  fs::create_directories(dir.path() / "hub/snapshots/r");
  fs::create_symlink("../../blobs/1", dir.path() / "hub/snapshots/r/model.safetensors.index.json");
  fs::create_symlink("../../blobs/2", dir.path() / "hub/snapshots/r/s.safetensors");
  for (const char* operand : {"hub", "hub/snapshots", "hub/snapshots/r"}) {
    CAPTURE(operand);
    const auto source = open_source(dir.file(operand));
    REQUIRE(source->tensors().size() == 1);
    CHECK(source->info().container == "safetensors index");
  }
}

TEST_CASE("pipes in a folder and folders that cannot be read are said, the rest is read") {
  const TempDir dir;
  write(dir, "a.npy", npy(1));
  REQUIRE(::mkfifo(dir.file("pipe.npy").c_str(), 0600) == 0);
  CHECK(skipped_of(dir) == Names{"pipe.npy"});
  // A path that is too long to be opened, made step by step.
  const std::string name(200, 'd');
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  for (int i = 0; i < 25; ++i) {
    fs::create_directory(name);
    fs::current_path(name);
  }
  fs::current_path(before);
  const ContainerFiles found = find_containers(dir.path().string());
  CHECK(below(dir, found.files) == Names{"a.npy"});
  REQUIRE(found.errors.size() == 1);
  CHECK(contains(found.errors[0].message, "cannot read the directory"));
  const InputTensors inputs = open_inputs({dir.path().string()}, {}, accept_all);
  CHECK(inputs.tensors.size() == 1);
  REQUIRE(inputs.errors.size() == 1);
  CHECK(inputs.errors[0].exit_code == 3);
  CHECK(contains(error_of([&] { open_source(dir.path().string()); }).what(),
                 "cannot read the directory"));
}

TEST_CASE("a folder without permission is said, and the others are read") {
  const TempDir dir;
  write(dir, "a.npy", npy(1));
  write(dir, "closed/b.npy", npy(2));
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir.path() / "closed", fs::perms::none);
  // Root may read everything.
  const uid_t user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(65534) == 0);
  const ContainerFiles found = find_containers(dir.path().string());
  if (user == 0) REQUIRE(::seteuid(0) == 0);
  fs::permissions(dir.path() / "closed", fs::perms::all);
  CHECK(below(dir, found.files) == Names{"a.npy"});
  REQUIRE(found.errors.size() == 1);
  CHECK(contains(found.errors[0].message, "closed: Permission denied"));
}

TEST_CASE("operands: colons in names, patterns, standard input") {
  const TempDir dir;
  write(dir, "a.npy", npy(1));
  write(dir, "a:b.npy", npy(2));
  write(dir, "s.safetensors", safetensors("x:y:z", 3));
  write(dir, "x2.npy", npy(4));
  write(dir, "x10.npy", npy(5));
  write(dir, "q[1].npy", npy(6));
  write(dir, "q1.npy", npy(7));
  const auto texts = [&](const std::string& operand) {
    Names out;
    for (const Operand& o : expand_operand(operand == "-" ? operand : dir.file(operand))) {
      out.push_back(fs::path(o.file).filename().string() +
                    (o.tensor.empty() ? "" : "|" + o.tensor));
    }
    return out;
  };
  CHECK(texts("a.npy") == Names{"a.npy"});
  CHECK(texts("a:b.npy") == Names{"a:b.npy"});
  CHECK(texts("a:b.npy:t") == Names{"a:b.npy|t"});
  CHECK(texts("s.safetensors:x:y:z") == Names{"s.safetensors|x:y:z"});
  CHECK(texts("missing.npy:t") == Names{"missing.npy:t"});
  CHECK(texts("x*.npy") == Names{"x2.npy", "x10.npy"});
  CHECK(texts("x*.npy:t:u") == Names{"x2.npy|t:u", "x10.npy|t:u"});
  CHECK(texts("x?.npy") == Names{"x2.npy"});
  CHECK(texts("a*") == Names{"a.npy", "a:b.npy"});
  // A file of that name comes before the pattern.
  CHECK(texts("q[1].npy") == Names{"q[1].npy"});
  CHECK(texts("q[1].npy:w[0]") == Names{"q[1].npy|w[0]"});
  CHECK(texts("s.safetensors:w*") == Names{"s.safetensors|w*"});
  CHECK(texts("-") == Names{"-"});
  CHECK(expand_operand("-:t").front().tensor == "t");
  const Error none = error_of([&] { (void)expand_operand(dir.file("y*.npy")); });
  CHECK(none.exit_code() == 3);
  CHECK(contains(none.what(), "no file matches it"));
  const Error several = error_of([&] { (void)split_operand(dir.file("x*.npy")); });
  CHECK(several.exit_code() == 2);
  CHECK(contains(several.what(), "matches 2 files, expected one"));
  CHECK(split_operand(dir.file("x?.npy")).file == dir.file("x2.npy"));
  CHECK(error_of([&] { (void)find_inputs({"-", "-:x"}, {}); }).exit_code() == 2);
  const InputTensors inputs =
      open_inputs({dir.file("y*"), dir.file("x*:x2"), dir.file("s*:x:y:z")}, {}, accept_all);
  REQUIRE(inputs.tensors.size() == 2);
  CHECK(inputs.tensors[1].tensor->name == "x:y:z");
  CHECK(inputs.errors.size() == 2);  // no file y*; x10.npy has no tensor x2
}

TEST_CASE("a name that no tensor has gives the count and up to three names near it") {
  const TempDir dir;
  std::string header;
  for (const char* name : {"model.layers.0.w", "model.layers.1.w", "bias", "other", "x.0.w"}) {
    header += (header.empty() ? "\"" : ",\"") + std::string(name) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string file = dir.file("m.safetensors");
  test::write_file(file, test::safetensors_bytes("{" + header + "}", ""));
  const auto message = [&](const std::string& name) {
    const InputTensors inputs = open_inputs({file + ":" + name}, {}, accept_all);
    REQUIRE(inputs.errors.size() == 1);
    return inputs.errors[0].message;
  };
  const auto start = [&](const std::string& name) {
    return file + ": no tensor is named '" + name + "'; found 5 tensors";
  };
  // The ends come first, then what is few edits away.
  CHECK(message("0.w") == start("0.w") + R"(; near it: "model.layers.0.w", "x.0.w")");
  CHECK(message("model.layer.0.w") ==
        start("model.layer.0.w") + R"(; near it: "model.layers.0.w", "model.layers.1.w")");
  CHECK(message("bais") == start("bais"));
  CHECK(message("bia") == start("bia") + R"(; near it: "bias")");
  CHECK(message("nothing.like.it") == start("nothing.like.it"));
}

TEST_CASE("arrays that only say their size get a hint at --dtype, also from npz") {
  const TempDir dir;
  const auto array = [](const std::string& descr, const std::string& bytes) {
    return test::npy_bytes(
        1, "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1,), }\n", bytes);
  };
  write(dir, "a.npz",
        test::zip_bytes({test::stored_part("two.npy", array("|V2", "ab")),
                         test::stored_part("one.npy", array("|V1", "a")),
                         test::stored_part("complex.npy", array(">c8", "abcdefgh"))}));
  const InputTensors inputs = open_inputs({dir.file("a.npz")}, {}, accept_all);
  REQUIRE(inputs.skipped.size() == 3);
  CHECK(inputs.skipped[0].message.ends_with(
      "found dtype |V2, which only says its size (--dtype bf16?)"));
  CHECK(inputs.skipped[1].message.ends_with(
      "found dtype |V1, which only says its size (--dtype e4m3, e5m2 or e8m0?)"));
  CHECK(inputs.skipped[2].message.ends_with("found dtype >c8"));
  CHECK(open_inputs({dir.file("a.npz")}, OpenOptions{"bf16"}, accept_all).tensors.size() == 1);
}

TEST_CASE("DIRECTORY:TENSOR is that tensor of every file that holds it") {
  const TempDir dir;
  write(dir, "rank_0/iter_2.safetensors", safetensors("w", 1));
  write(dir, "rank_0/iter_10.safetensors", safetensors("w", 2));
  write(dir, "rank_1/iter_2.safetensors", safetensors("v", 3));
  const std::string root = dir.path().string();
  const InputTensors inputs = open_inputs({root + ":w"}, {}, accept_all);
  CHECK(inputs.errors.empty());
  CHECK(inputs.sources.size() == 2);
  REQUIRE(inputs.tensors.size() == 2);
  CHECK(name_fields_text(inputs.tensors[0].fields) == "step 2, rank 0");
  CHECK(name_fields_text(inputs.tensors[1].fields) == "step 10, rank 0");
  const InputTensors none = open_inputs({root + ":u"}, {}, accept_all);
  REQUIRE(none.errors.size() == 1);
  CHECK(none.errors[0].message ==
        root + ": no file of this directory that can be read holds a tensor 'u'");
}

TEST_CASE("names with newlines and bytes that are no text are files like others") {
  const TempDir dir;
  const std::string hostile = "a\n\xff\x1b[2J.npy";
  write(dir, hostile, npy(1));
  write(dir, "b\n/c.bin", "no container");
  const ContainerFiles found = find_containers(dir.path().string());
  CHECK(below(dir, found.files) == Names{hostile});
  REQUIRE(found.skipped.size() == 1);
  CHECK(contains(found.skipped[0].message, "b\\x0a/c.bin: not read"));
  const InputTensors inputs = open_inputs({dir.path().string()}, {}, accept_all);
  REQUIRE(inputs.tensors.size() == 1);
  CHECK(inputs.tensors[0].tensor->name == hostile.substr(0, hostile.size() - 4));
}

TEST_CASE("a pool closes readers and opens them again, and sees files that changed") {
  const TempDir dir;
  constexpr int kFiles = 40;
  SourcePool pool({}, 3);
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = dir.file(std::to_string(i) + ".npy");
    test::write_file(path, npy(static_cast<float>(i)));
    sources.push_back(pool.open(path));
  }
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{});
  };
  const auto read = [&](int i) {
    float value = -1;
    const TensorSource& source = *sources[static_cast<std::size_t>(i)];
    source.read_f32(source.tensors()[0], 0, 1, 0, 1, &value);
    return value;
  };
  CHECK(open_files() < 20);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kFiles; ++i) {
        const int file = (i * 7 + t * 11) % kFiles;
        if (read(file) != static_cast<float>(file)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(open_files() < 20);
  for (int i = 0; i < 10; ++i) CHECK(read(i) == static_cast<float>(i));
  test::write_file(dir.file("0.npy"), npy(99) + ' ');
  CHECK(contains(error_of([&] { read(0); }).what(), "0.npy was changed, replaced or removed"));
  fs::remove(dir.file("1.npy"));
  CHECK(error_of([&] { read(1); }).exit_code() == 3);
  CHECK(read(2) == 2.0f);
}

TEST_CASE("an index of many shards keeps few of them open") {
  const TempDir dir;
  constexpr int kShards = 60;
  std::string map;
  for (int i = 0; i < kShards; ++i) {
    const std::string n = std::to_string(i);
    test::write_file(dir.file("s" + n), safetensors("w" + n, static_cast<float>(i)));
    map += (i == 0 ? "\"w" : ",\"w") + n + "\":\"s" + n + "\"";
  }
  test::write_file(dir.file("m.safetensors.index.json"), "{\"weight_map\":{" + map + "}}");
  const auto source = open_source(dir.path().string());
  CHECK(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{}) < 30);
  for (const int i : {0, 59, 30, 0}) {
    float value = -1;
    source->read_f32(source->tensors()[static_cast<std::size_t>(i)], 0, 1, 0, 1, &value);
    CHECK(value == static_cast<float>(i));
  }
  test::write_file(dir.file("s7"), safetensors("w7", 1) + "  ");
  float value = 0;
  CHECK(error_of([&] { source->read_f32(source->tensors()[7], 0, 1, 0, 1, &value); }).exit_code() ==
        3);
}

}  // namespace
}  // namespace fp4scope
