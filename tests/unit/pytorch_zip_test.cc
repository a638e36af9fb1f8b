// pytorch_zip_test.cc: archives of torch.save and TorchScript put together by hand.
#include <doctest/doctest.h>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/zip_bytes.h"
#include "tests/unit/pytorch_support.h"

using namespace fp4scope;
using namespace fp4scope::test::torch;
using fp4scope::test::stored_part;
using fp4scope::test::TempDir;

namespace {

// As TorchScript writes it: five entries, the fields of a class without __dict__ parts.
std::string script_storage(const std::string& key, std::int64_t count) {
  return joined({tuple({text("storage"), global("torch", "FloatStorage"), text(key), text("cpu"),
                        number(count)}),
                 "Q"});
}

}  // namespace

TEST_CASE("TorchScript archives: the module's tensors and its constants") {
  const TempDir dir;
  const std::string path = dir.file("net.pt");
  const std::string module =
      joined({global("__torch__", "Net"), ")\x81",
              dict({text("training"), kTrue, text("weight"),
                    tensor(script_storage("0", 4), 0, {2, 2}, {1, 2}), text("list"),
                    call(global("torch.jit._pickle", "build_tensorlist"),
                         {list({tensor(script_storage("0", 4), 3, {}, {})})})}),
              "b"});
  const std::string constants = tuple({tensor(script_storage("0", 2), 0, {2}, {1})});
  test::write_file(path,
                   test::zip_bytes({stored_part("net/data.pkl", pickle(module)),
                                    stored_part("net/data/0", counting_floats(4)),
                                    stored_part("net/code/__torch__.py", "import os; os.abort()"),
                                    stored_part("net/constants.pkl", pickle(constants)),
                                    stored_part("net/constants/0", counting_floats(2)),
                                    stored_part("net/version", "3\n")}));
  const auto source = open_source(path);
  CHECK(source->info().container == "pytorch");
  REQUIRE(source->tensors().size() == 3);
  const struct {
    const char* name;
    std::vector<float> want;
  } cases[] = {{"weight", {0, 2, 1, 3}}, {"list.0", {3}}, {"constants.0", {0, 1}}};
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorInfo& info = source->tensors()[i];
    CHECK(info.name == cases[i].name);
    std::vector<float> found(static_cast<std::size_t>(info.elements));
    source->read_f32(info, 0, info.rows(), 0, info.cols(), found.data());
    CHECK(found == cases[i].want);
  }
}

TEST_CASE("archives: the byte order, storages that are absent or too short") {
  const TempDir dir;
  const std::string path = dir.file("file.pt");
  const auto archive = [&](const std::string& order, const std::string& storage) {
    const std::string body = dict({text("w"), tensor(script_storage("0", 2), 0, {2}, {1})});
    test::write_file(path, test::zip_bytes({stored_part("a/data.pkl", pickle(body)),
                                            stored_part("a/byteorder", order),
                                            stored_part("a/data/0", storage)}));
    return open_source(path);
  };
  const std::string big("\x3f\x80\x00\x00\xc0\x00\x00\x00", 8);  // 1, -2
  const auto source = archive("big", big);
  std::vector<float> found(2);
  source->read_f32(source->tensors()[0], 0, 1, 0, 2, found.data());
  CHECK(found == std::vector<float>{1, -2});
  CHECK_THROWS_WITH_AS(archive("middle", big),
                       doctest::Contains("the byteorder record says \"middle\", expected "
                                         "\"little\" or \"big\""),
                       Error);
  CHECK_THROWS_WITH_AS(archive("little", "1234567"),
                       doctest::Contains("gives the storage \"0\" 2 elements of float32, but its "
                                         "member has only 7 bytes (tensor \"w\")"),
                       Error);
}

TEST_CASE("negated views are listed and refused, other metadata is harmless") {
  const TempDir dir;
  const std::string path = dir.file("neg.pt");
  const auto view = [](const std::string& metadata) {
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                {storage_id("0", "FloatStorage", 4), number(0), numbers({4}), numbers({1}), kFalse,
                 hooks(), metadata});
  };
  const auto entries = [&](const std::string& last) {
    return dict({text("neg"), view(dict({text("neg"), kTrue})), text("plain"),
                 view(dict({text("neg"), kFalse, text("conj"), kFalse})), text("none"),
                 view(last)});
  };
  test::write_file(path, legacy_file(entries(kNone), {{"0", 4, counting_floats(4)}}));
  const auto source = open_source(path);
  REQUIRE(source->tensors().size() == 3);
  const TensorInfo& negated = source->tensors()[0];
  CHECK(negated.dtype == DType::kOther);
  CHECK(negated.dtype_text == "float32 (negated view)");
  CHECK_FALSE(negated.known_dtype);
  std::vector<float> out(4);
  try {
    source->read_raw(negated, 0, 1, 0, 4, out.data());
    FAIL_CHECK("read");
  } catch (const Error& error) {
    CHECK(error.exit_code() == 4);
    CHECK(std::string(error.what()).find("save x.resolve_neg()") != std::string::npos);
  }
  for (const std::size_t i : {1, 2}) {
    source->read_f32(source->tensors()[i], 0, 1, 0, 4, out.data());
    CHECK(out == std::vector<float>{0, 1, 2, 3});
  }
  test::write_file(path, legacy_file(entries(number(1)), {{"0", 4, counting_floats(4)}}));
  CHECK_THROWS_WITH_AS(open_source(path), doctest::Contains("an integer for the metadata"), Error);
}
