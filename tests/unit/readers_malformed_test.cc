// readers_malformed_test.cc: files that break a rule of their format end in Error with the right
// exit code and one sentence that names the file and the fault; truncated and corrupted copies of
// valid files never crash (the sanitizer build runs this too). Rules: spec/layouts.md section 6.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/allocations.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using fp4scope::test::npy_bytes;
using fp4scope::test::safetensors_bytes;
using fp4scope::test::TempDir;

namespace {

constexpr std::size_t kMostAllocated = 256 * 1024;

struct Case {
  const char* name;
  std::string bytes;
  int exit_code;
  const char* fragment;  // of the sentence
  std::string hint = {};
};

// Opens and reads every tensor to the end.
void read_all(const std::string& path, const std::string& hint = {}) {
  const auto source = open_source(path, OpenOptions{hint});
  for (const TensorInfo& tensor : source->tensors()) {
    if (is_real(tensor.dtype)) {
      std::vector<double> values(static_cast<std::size_t>(tensor.elements));
      source->read_f64(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
    }
    // The claimed bytes are those of the file, checked at open.
    std::vector<std::uint8_t> raw(static_cast<std::size_t>(tensor.bytes));
    source->read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), raw.data());
  }
}

void check_case(const std::string& path, const Case& c) {
  CAPTURE(std::string(c.name));
  test::write_file(path, c.bytes);
  try {
    test::reset_allocations();
    open_source(path, OpenOptions{c.hint});
    FAIL_CHECK("the file was accepted");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(test::largest_allocation < kMostAllocated);
    CAPTURE(text);
    CHECK(error.exit_code() == c.exit_code);
    CHECK(text.find(c.fragment) != std::string::npos);
    CHECK(text.find(path) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find('\0') == std::string::npos);
    CHECK(text.size() < path.size() + 400);
  }
}

std::string one(const char* fields, std::size_t data_bytes) {
  return safetensors_bytes(std::string("{\"w\":{") + fields + "}}", std::string(data_bytes, 'd'));
}

std::string npy(const char* header, std::size_t data_bytes) {
  return npy_bytes(1, header, std::string(data_bytes, '\0'));
}

std::string nested(const char* before, const char* open, std::size_t depth) {
  std::string header = before;
  for (std::size_t i = 0; i < depth; ++i) header += open;
  return header;
}

}  // namespace

TEST_CASE("every malformed safetensors file is refused with its own sentence") {
  const TempDir dir;
  using test::little_endian;
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string y = R"("y":{"dtype":"F32","shape":[1],"data_offsets":)";
  const std::string four(4, 'd'), eight(8, 'd');
  const Case cases[] = {
      {"header length 2^63", little_endian(std::uint64_t{1} << 63, 8) + "{}", 3,
       "claims 9223372036854775808 bytes, at most 100000000"},
      {"header length 100000001", little_endian(100000001, 8) + "{}", 3,
       "claims 100000001 bytes, at most"},
      {"header length beyond the file", little_endian(1000, 8) + "{}", 3,
       "claims 1000 bytes, but only 2 follow"},
      {"header length 0", little_endian(0, 8) + "{}", 3, "does not start with '{'"},
      {"header starts with a space", safetensors_bytes(" {}", ""), 3, "does not start with '{'"},
      {"header is an array", safetensors_bytes("[]", ""), 3, "does not start with '{'"},
      {"header cut short", safetensors_bytes(R"({"x":)", ""), 3, "not valid JSON (byte 6"},
      {"text after the object", safetensors_bytes("{} x", ""), 3, "not valid JSON"},
      {"NUL bytes behind the object", safetensors_bytes(std::string("{}\0\0", 4), ""), 3,
       "not valid JSON (byte 3"},
      {"ill-formed UTF-8 in a name", safetensors_bytes("{\"\xFF\":{}}", ""), 3, "not valid JSON"},
      {"a comma too many", safetensors_bytes("{" + x + ",}", four), 3, "not valid JSON"},
      {"deep nesting, unclosed", safetensors_bytes(nested("{\"a\":{\"b\":", "[", 40000), ""), 3,
       "not valid JSON"},
      {"deep nesting in shape", safetensors_bytes(nested("{\"a\":{\"shape\":", "[", 40000), ""), 3,
       "tensor \"a\" of the safetensors header has an array in its shape"},
      {"duplicate tensor", safetensors_bytes("{" + x + "," + x + "}", four), 3,
       "has the key \"x\" twice"},
      {"duplicate tensor, escaped",
       safetensors_bytes("{" + x + R"(,"\u0078":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                         four),
       3, "has the key \"x\" twice"},
      {"duplicate metadata", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", ""), 3,
       "has the key \"__metadata__\" twice"},
      {"duplicate metadata key", safetensors_bytes(R"({"__metadata__":{"a":"1","a":"2"}})", ""), 3,
       "__metadata__ has \"a\" twice"},
      {"duplicate field", one(R"("dtype":"F32","dtype":"F32")", 0), 3,
       "has the key \"dtype\" twice"},
      {"metadata value is a number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), 3,
       "__metadata__ gives a number for \"a\""},
      {"metadata value is an object", safetensors_bytes(R"({"__metadata__":{"a":{}}})", ""), 3,
       "__metadata__ gives an object for \"a\""},
      {"metadata is a string", safetensors_bytes(R"({"__metadata__":"a"})", ""), 3,
       "gives a string for \"__metadata__\""},
      {"tensor is null", safetensors_bytes(R"({"w":null})", ""), 3, "gives null for \"w\""},
      {"tensor is an array", safetensors_bytes(R"({"w":[1]})", ""), 3, "gives an array for \"w\""},
      {"no dtype", one(R"("shape":[1],"data_offsets":[0,4])", 4), 3, "has no dtype"},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,4])", 4), 3, "has no shape"},
      {"no offsets", one(R"("dtype":"F32","shape":[1])", 4), 3, "has no data_offsets"},
      {"dtype is a number", one(R"("dtype":32,"shape":[1],"data_offsets":[0,4])", 4), 3,
       "has a number as dtype"},
      {"shape is a number", one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])", 4), 3,
       "has a number as shape"},
      {"offsets are an object", one(R"("dtype":"F32","shape":[1],"data_offsets":{})", 4), 3,
       "has an object as data_offsets"},
      {"negative extent", one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4), 3,
       "a negative number in its shape"},
      {"fractional extent", one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", 4), 3,
       "no 64-bit integer in its shape"},
      {"extent 2^63", one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])", 4),
       3, "above 2^63-1 in its shape"},
      {"shape product overflows",
       one(R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4])", 4), 3,
       "exceeds 64 bits"},
      {"shape product wraps to the right size",
       one(R"("dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16])", 16), 3,
       "exceeds 64 bits"},
      {"empty tensor whose rows overflow",
       one(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])", 0), 3,
       "exceeds 64 bits"},
      {"65 dimensions",
       one(("\"dtype\":\"U8\",\"shape\":[1" +
            [] {
              std::string ones;
              for (int i = 0; i < 64; ++i) ones += ",1";
              return ones;
            }() +
            "],\"data_offsets\":[0,1]")
               .c_str(),
           1),
       3, "more than 64 dimensions"},
      {"one offset", one(R"("dtype":"F32","shape":[1],"data_offsets":[0])", 4), 3,
       "has 1 data_offsets"},
      {"three offsets", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])", 4), 3,
       "more than two data_offsets"},
      {"negative offset", one(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])", 4), 3,
       "a negative number in data_offsets"},
      {"reversed offsets", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4), 3,
       "reversed data_offsets [4, 0]"},
      {"offset 2^64-1",
       one(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615])", 4), 3,
       "ends at byte 18446744073709551615"},
      {"offset 2^64",
       one(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616])", 4), 3,
       "no 64-bit integer in data_offsets"},
      {"data too short", one(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])", 8), 3,
       "ends at byte 12 of the data, but the file holds only 8"},
      {"size does not fit the shape", one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8),
       3, "tensor \"w\" is F32 [3], expected 12 bytes of data, found 8"},
      {"trailing byte", safetensors_bytes("{" + x + "}", four + "t"), 3, "1 trailing bytes"},
      {"data without tensors", safetensors_bytes("{}", four), 3, "4 trailing bytes"},
      {"hole between tensors",
       safetensors_bytes("{" + x + "," + y + "[12,16]}}", four + eight + four), 3,
       "hole before the data of tensor \"y\", which starts at byte 12 where 4"},
      {"hole at the start", safetensors_bytes("{" + y + "[4,8]}}", eight), 3,
       "hole before the data of tensor \"y\""},
      {"overlap", safetensors_bytes("{" + x + "," + y + "[2,6]}}", four + "dd"), 3,
       "overlap before the data of tensor \"y\""},
      {"same range twice", safetensors_bytes("{" + x + "," + y + "[0,4]}}", four), 3, "overlap"},
      {"F4 with odd rows", one(R"("dtype":"F4","shape":[2,3],"data_offsets":[0,3])", 3), 3,
       "a row of 12 bits does not end at a whole byte"},
      {"F6 row of 6 bits", one(R"("dtype":"F6_E2M3","shape":[4,1],"data_offsets":[0,3])", 3), 3,
       "a row of 6 bits"},
      {"name with control characters",
       safetensors_bytes(R"({"a\n\u0000\u001b[2J":{"dtype":"F32","shape":[1],)"
                         R"("data_offsets":[0,9]}})",
                         four),
       3, "tensor \"a\\x0a\\x00\\x1b[2J\""},
  };
  for (const Case& c : cases) check_case(dir.file("bad.bin"), c);
}

TEST_CASE("every malformed npy file is refused with its own sentence") {
  const TempDir dir;
  const Case cases[] = {
      {"version 4", npy_bytes(4, "{}", ""), 3, "npy version 4.0"},
      {"version 0", npy_bytes(0, "{}", ""), 3, "npy version 0.0"},
      {"header length 0xFFFF in a file of 90 bytes",
       std::string("\x93NUMPY\x01\0\xFF\xFF", 10) + std::string(80, ' '), 3,
       "claims 65535 bytes, but only 80 follow"},
      {"header length 2^32-1",
       std::string("\x93NUMPY\x02\0\xFF\xFF\xFF\xFF", 12) + std::string(80, ' '), 3,
       "claims 4294967295 bytes"},
      {"version 2 cut in its length", std::string("\x93NUMPY\x02\0\x10\0", 10), 3, "too few"},
      {"empty header", npy("", 0), 3, "malformed at byte 0, expected '{', found the end"},
      {"not a dict", npy("[1, 2]", 0), 3, "expected '{'"},
      {"four floats declared, three there",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 12), 3,
       "npy shape [4] of \"<f4\" needs 16 bytes of data, found 12 (truncated?)"},
      {"trailing bytes", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 17), 3,
       "needs 16 bytes of data, found 17"},
      {"0-d without data", npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 0), 3,
       "npy shape [] of \"<f4\" needs 4 bytes"},
      {"huge shape",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}", 4), 3,
       "exceeds 64 bits"},
      {"product wraps to 4",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 4)}", 16), 3,
       "exceeds 64 bits"},
      {"extent above 2^63",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", 4), 3,
       "an extent above 2^63-1"},
      {"negative extent", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4), 3,
       "expected an integer from 0 to 2^63-1 in the shape, found \"-1,)}\""},
      {"fractional extent", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", 4), 3,
       "expected ',' in the shape"},
      {"extents without comma", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", 24),
       3, "expected ',' in the shape"},
      {"a number in place of a tuple",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 12), 3,
       "expected ',' in the shape"},
      {"a list in place of a tuple",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': [3]}", 12), 3, "expected '('"},
      {"unclosed tuple", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,", 12), 3,
       "found the end"},
      {"unclosed string", npy("{'descr': '<f4, ", 0), 3, "a closed string"},
      {"no descr", npy("{'fortran_order': False, 'shape': (1,)}", 4), 3, "has no descr"},
      {"no order", npy("{'descr': '<f4', 'shape': (1,)}", 4), 3, "has no fortran_order"},
      {"no shape", npy("{'descr': '<f4', 'fortran_order': False}", 4), 3, "has no shape"},
      {"key twice", npy("{'shape': (1,), 'shape': (1,)}", 4), 3, "has the key \"shape\" twice"},
      {"unknown key", npy("{'descr': '<f4', 'order': 'C'}", 4), 3, "has the unknown key \"order\""},
      {"order is a number", npy("{'descr': '<f4', 'fortran_order': 1}", 4), 3, "True or False"},
      {"descr is a number", npy("{'descr': 4}", 4), 3, "expected descr in quotes"},
      {"text after the dict", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4),
       3, "expected the end of the header, found \"x\""},
      {"NUL in the header",
       npy_bytes(1, std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\0", 56),
                 "dddd"),
       3, "expected the end of the header, found \"\\x00\""},
      {"structured dtype",
       npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4), 4,
       "structured dtype"},
      {"object dtype", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8), 4,
       "npy dtype \"|O\" stands for pickled Python objects"},
      {"text dtype", npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", 12), 4,
       "npy dtype \"<U3\" stands for text, expected real numbers"},
      {"complex dtype", npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8), 4,
       "npy dtype \"<c8\" stands for complex numbers, expected real numbers"},
      {"float of 128 bits", npy("{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", 16), 4,
       "unknown npy dtype \"<f16\""},
      {"nonsense dtype", npy("{'descr': '?', 'fortran_order': False, 'shape': (1,)}", 1), 4,
       "unknown npy dtype \"?\""},
      {"V2 without a hint", npy("{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}", 2), 4,
       "give the dtype (--dtype) as bf16 or raw"},
      {"f1 without a hint", npy("{'descr': '<f1', 'fortran_order': False, 'shape': (1,)}", 1), 4,
       "give the dtype (--dtype) as e4m3, e5m2, e8m0 or raw"},
      {"V2 as e4m3", npy("{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}", 2), 4,
       "cannot be \"e4m3\"", "e4m3"},
      {"V2 with a hint, data missing",
       npy("{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}", 2), 3, "found 2", "bf16"},
  };
  for (const Case& c : cases) check_case(dir.file("bad.npy"), c);
}

TEST_CASE("every malformed index is refused with its own sentence") {
  const TempDir dir;
  const std::string good =
      safetensors_bytes(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "dddd");
  test::write_file(dir.file("good.safetensors"), good);
  test::write_file(dir.file("cut.safetensors"), std::string_view(good).substr(0, good.size() - 1));
  test::write_file(dir.file("array.npy"), "\x93NUMPY");
  std::filesystem::create_directory(dir.path() / "folder");
  const Case cases[] = {
      {"no weight_map", R"({"metadata":{}})", 3, "has no weight_map"},
      {"empty object", "{}         ", 3, "has no weight_map"},
      {"weight_map is a string", R"({"weight_map":"x"})", 3, "weight_map is a string"},
      {"weight_map is an array", R"({"weight_map":["x"]})", 3, "weight_map is an array"},
      {"shard is a number", R"({"weight_map":{"x":1}})", 3, "gives a number for \"x\""},
      {"shard is an object", R"({"weight_map":{"x":{}}})", 3, "gives an object for \"x\""},
      {"two weight_maps", R"({"weight_map":{},"weight_map":{}})", 3, "\"weight_map\" twice"},
      {"tensor twice", R"({"weight_map":{"x":"good.safetensors","x":"good.safetensors"}})", 3,
       "\"x\" twice"},
      {"cut JSON", R"({"weight_map":{"x":"good.safe)", 3, "not valid JSON"},
      {"deep nesting", nested("{\"metadata\":", "[", 40000), 3, "not valid JSON"},
      {"missing shard", R"({"weight_map":{"x":"none.safetensors"}})", 3, "there is no such file"},
      {"tensor not in its shard", R"({"weight_map":{"z":"good.safetensors"}})", 3,
       "tensor \"z\" is said to be in \"good.safetensors\", but that file does not hold it"},
      {"shard above the folder", R"({"weight_map":{"x":"../good.safetensors"}})", 3,
       "expected a file in the folder of the index"},
      {"shard above the folder, hidden", R"({"weight_map":{"x":"folder/../../g.safetensors"}})", 3,
       "expected a file in the folder of the index"},
      {"absolute shard", R"({"weight_map":{"x":"/etc/passwd"}})", 3,
       "expected a file in the folder of the index"},
      {"empty shard name", R"({"weight_map":{"x":""}})", 3,
       "expected a file in the folder of the index"},
      {"shard name with NUL", R"({"weight_map":{"x":"good\u0000.safetensors"}})", 3,
       "\"good\\x00.safetensors\""},
  };
  for (const Case& c : cases) check_case(dir.file("model.safetensors.index.json"), c);

  // Faults of a shard name the shard.
  const struct {
    const char* shard;
    const char* fragment;
  } shards[] = {{"cut.safetensors", "cut.safetensors: tensor \"x\" ends at byte 4"},
                {"folder", "folder: it is a directory"},
                {"array.npy", "array.npy: expected a shard in safetensors or PyTorch's format"}};
  const std::string index = dir.file("model.safetensors.index.json");
  for (const auto& c : shards) {
    test::write_file(index, std::string(R"({"weight_map":{"x":")") + c.shard + "\"}}");
    try {
      open_source(index);
      FAIL_CHECK("the index was accepted");
    } catch (const Error& error) {
      CHECK(error.exit_code() == 3);
      CHECK(std::string(error.what()).find(c.fragment) != std::string::npos);
    }
  }
}

TEST_CASE("files of other kinds and things that are no files are named") {
  const TempDir dir;
  const Case cases[] = {
      {"zip", "PK\x03\x04" + std::string(60, 'z'), 3, "has no end record (truncated?)"},
      {"HDF5", "\x89HDF\r\n\x1a\n" + std::string(60, '\xFF'), 3, "the HDF5 library cannot list it"},
      {"GGUF", "GGUF\x03" + std::string(60, '\xFF'), 4, "GGUF version 4294967043, expected 2 or 3"},
      {"pickle", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20" + std::string(60, '\xFF'), 3,
       "opcode 0xff at byte 14"},
      {"text", "layer,mse\n0,1\n", 3,
       "is no container that this program knows (safetensors, npy, npz, PyTorch, GGUF, HDF5): it "
       "starts with \"layer,ms\""},
      {"empty", "", 3, "the file is empty"},
      {"three bytes", "abc", 3, "has 3 bytes"},
  };
  for (const Case& c : cases) check_case(dir.file("other"), c);

  const std::string folder = dir.file("folder");
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink("nowhere", dir.path() / "dangling");
  const std::string two = dir.file("two");
  std::filesystem::create_directory(two);
  test::write_file(two + "/a.safetensors.index.json", "{}");
  test::write_file(two + "/b.safetensors.index.json", "{}");
  const struct {
    std::string path;
    const char* fragment;
  } paths[] = {
      {dir.file("missing"), "No such file or directory"},
      {dir.file("dangling"), "No such file or directory"},
      {folder, "holds no tensors"},
      {two, "holds 2 index files"},
      {"/dev/null", "it is a device, expected a file or pipe"},
      {"", "the file name is empty"},
      {std::string("a\0b", 3), "NUL byte"},
  };
  for (const auto& c : paths) {
    CAPTURE(std::string(c.fragment));
    try {
      open_source(c.path);
      FAIL_CHECK("the path was accepted");
    } catch (const Error& error) {
      CHECK(error.exit_code() == 3);
      CHECK(std::string(error.what()).find(c.fragment) != std::string::npos);
    }
  }
  if (::geteuid() != 0) {  // root may read everything
    test::write_file(dir.file("secret"), "x");
    ::chmod(dir.file("secret").c_str(), 0);
    CHECK_THROWS_WITH_AS(open_source(dir.file("secret")), doctest::Contains("Permission denied"),
                         Error);
  }
}

namespace {

struct Sample {
  const char* name;
  std::string bytes, hint;
  std::size_t header_bytes;  // positions that are corrupted
};

std::vector<Sample> valid_samples() {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("q":{"dtype":"F4","shape":[2,4],"data_offsets":[32,36]},)"
      R"("b":{"dtype":"F16","shape":[4],"data_offsets":[24,32]}})";
  const std::string v1 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n";
  const std::string v2 = "{'descr': '>f8', 'fortran_order': True, 'shape': (3, 2), }\n";
  const std::string v3 = "{'descr': '|V2', 'fortran_order': False, 'shape': (5,), }\n";
  return {
      {"safetensors", safetensors_bytes(header, std::string(36, 'd')), "", 8 + header.size()},
      {"npy v1", npy_bytes(1, v1, std::string(24, 'd')), "", 10 + v1.size()},
      {"npy v2", npy_bytes(2, v2, std::string(48, 'd')), "", 12 + v2.size()},
      {"npy v3", npy_bytes(3, v3, std::string(10, 'd')), "bf16", 12 + v3.size()},
  };
}

}  // namespace

TEST_CASE("a valid file cut at any byte is refused with exit code 3") {
  const TempDir dir;
  const std::string path = dir.file("cut");
  for (const Sample& sample : valid_samples()) {
    CAPTURE(std::string(sample.name));
    test::write_file(path, sample.bytes);
    read_all(path, sample.hint);  // the whole file is fine
    for (std::size_t length = sample.bytes.size(); length-- > 0;) {
      CAPTURE(length);
      std::filesystem::resize_file(path, length);
      try {
        read_all(path, sample.hint);
        FAIL_CHECK("the file was accepted");
      } catch (const Error& error) {
        CHECK(error.exit_code() == 3);
      }
    }
  }
}

TEST_CASE("a header with one wrong byte is read or refused, but never crashes") {
  const TempDir dir;
  const std::string path = dir.file("corrupt");
  std::size_t read = 0, refused = 0;
  for (const Sample& sample : valid_samples()) {
    // Changed in place: truncating and writing the file anew is slow on some file systems.
    test::write_file(path, sample.bytes);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, char value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(value);
      file.flush();
    };
    for (std::size_t at = 0; at < sample.header_bytes; ++at) {
      std::string values = {'\0', '\xFF', '"', '{', '}', '[', ']', ',', '9', '-'};
      for (int bit = 0; bit < 8; ++bit) values += static_cast<char>(sample.bytes[at] ^ (1 << bit));
      for (const char value : values) {
        put(at, value);
        try {
          read_all(path, sample.hint);
          ++read;
        } catch (const Error& error) {
          ++refused;
          const bool one_line = std::string(error.what()).find('\n') == std::string::npos;
          if (!one_line || error.exit_code() < 3) FAIL_CHECK(error.what());
        }
      }
      put(at, sample.bytes[at]);
    }
  }
  // Letters of names may change and spaces may become others; most changes break a rule.
  CHECK(read > 50);
  CHECK(refused > 10 * read);
}
