// npz_test.cc: npz archives by numpy itself (data/containers) and by hand: names, dtypes, members
// that are no arrays, and archives above 4 GiB. tests/unit/containers_expected_test.cc compares all
// bytes of the files by numpy.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/zip_bytes.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

using Shape = std::vector<std::int64_t>;

const TensorInfo& tensor_of(const TensorSource& source, const std::string& name) {
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name == name) return tensor;
  }
  FAIL("there is no tensor " << name);
  std::abort();
}

std::vector<float> floats_of(const TensorSource& source, const std::string& name) {
  const TensorInfo& tensor = tensor_of(source, name);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  source.read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
  return values;
}

std::vector<std::string> names_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : source.tensors()) names.push_back(tensor.name);
  return names;
}

std::string container(const std::string& name) {
  return (data_dir() / "containers" / name).string();
}

std::string npy(const std::string& descr, const std::string& shape, std::string_view data,
                const char* fortran = "False") {
  return npy_bytes(
      1, "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + "}",
      data);
}
const std::string kOne = npy("'<f4'", "(1,)", std::string("\0\0\x80\x3F", 4));

std::string message_of(const std::string& path, int exit_code, const OpenOptions& options = {}) {
  try {
    open_source(path, options);
  } catch (const Error& error) {
    CHECK(error.exit_code() == exit_code);
    return error.what();
  }
  FAIL_CHECK("the file was accepted");
  return {};
}

}  // namespace

TEST_CASE("case C28: compressed arrays with ZIP64 fields load by name, in any order") {
  // numpy 2.4.6: savez_compressed(a=arange(32, dtype='f4'), b=zeros((2, 16), 'f2')).
  static constexpr char kFile[] =
      "\x50\x4b\x03\x04\x2d\x00\x00\x00\x08\x00\x00\x00\x21\x00\xff\x5f\x16\x81\xff\xff\xff\xff"
      "\xff\xff\xff\xff\x05\x00\x14\x00\x61\x2e\x6e\x70\x79\x01\x00\x10\x00\x00\x01\x00\x00\x00"
      "\x00\x00\x00\x98\x00\x00\x00\x00\x00\x00\x00\x9b\xec\x17\xea\x1b\x10\xc9\xc8\x50\xc6\x50"
      "\xad\x9e\x92\x5a\x9c\x5c\xa4\x6e\xa5\xa0\x6e\x93\x66\xa2\xae\xa3\xa0\x9e\x96\x5f\x54\x52"
      "\x94\x98\x17\x9f\x5f\x94\x92\x0a\x12\x77\x4b\xcc\x29\x4e\x05\x8a\x17\x67\x24\x16\xa4\x02"
      "\xf9\x1a\xc6\x46\x3a\x9a\x3a\x0a\xb5\x0a\xe4\x03\x2e\x06\x30\x68\xb0\x07\x12\x0e\x40\x04"
      "\xc4\x0d\x40\xbc\x00\x88\x0f\x00\xf1\x03\x20\x66\x70\x64\x60\x10\x00\x62\x05\x20\x36\x00"
      "\x62\x07\x20\x0e\x00\xe2\x04\x20\x2e\x00\xe2\x06\x20\xee\x00\xe2\x09\x40\x3c\x03\x88\x17"
      "\x00\xf1\x0a\x20\xde\x00\xc4\x3b\x80\xf8\x00\x10\x9f\x00\xe2\x0b\x40\x7c\x03\x88\x1f\x00"
      "\xf1\x0b\x20\xfe\x00\xc4\x3f\x1c\x01\x50\x4b\x03\x04\x2d\x00\x00\x00\x08\x00\x00\x00\x21"
      "\x00\x32\xea\x75\xe3\xff\xff\xff\xff\xff\xff\xff\xff\x05\x00\x14\x00\x62\x2e\x6e\x70\x79"
      "\x01\x00\x10\x00\xc0\x00\x00\x00\x00\x00\x00\x00\x4a\x00\x00\x00\x00\x00\x00\x00\x9b\xec"
      "\x17\xea\x1b\x10\xc9\xc8\x50\xc6\x50\xad\x9e\x92\x5a\x9c\x5c\xa4\x6e\xa5\xa0\x6e\x93\x66"
      "\xa4\xae\xa3\xa0\x9e\x96\x5f\x54\x52\x94\x98\x17\x9f\x5f\x94\x92\x0a\x12\x77\x4b\xcc\x29"
      "\x4e\x05\x8a\x17\x67\x24\x16\xa4\x02\xf9\x1a\x46\x3a\x0a\x86\x66\x9a\x3a\x0a\xb5\x0a\xe4"
      "\x02\x2e\x06\x0a\x01\x00\x50\x4b\x01\x02\x2d\x03\x2d\x00\x00\x00\x08\x00\x00\x00\x21\x00"
      "\xff\x5f\x16\x81\x98\x00\x00\x00\x00\x01\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x80\x01\x00\x00\x00\x00\x61\x2e\x6e\x70\x79\x50\x4b\x01\x02\x2d\x03\x2d\x00\x00"
      "\x00\x08\x00\x00\x00\x21\x00\x32\xea\x75\xe3\x4a\x00\x00\x00\xc0\x00\x00\x00\x05\x00\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\xcf\x00\x00\x00\x62\x2e\x6e\x70\x79\x50\x4b"
      "\x05\x06\x00\x00\x00\x00\x02\x00\x02\x00\x66\x00\x00\x00\x50\x01\x00\x00\x00\x00";
  const TempDir dir;
  write_file(dir.file("c28.npz"), {kFile, sizeof kFile - 1});
  const auto source = open_source(dir.file("c28.npz"));
  CHECK(source->info().container == "npz");
  CHECK(source->info().bytes == std::ssize(kFile) - 1);
  CHECK(names_of(*source) == std::vector<std::string>{"a", "b"});
  CHECK(tensor_of(*source, "b").dtype == DType::kF16);
  CHECK(tensor_of(*source, "b").shape == Shape{2, 16});
  CHECK(floats_of(*source, "b") == std::vector<float>(32, 0.0f));
  std::vector<float> want;
  for (int i = 0; i < 32; ++i) want.push_back(static_cast<float>(i));
  CHECK(floats_of(*source, "a") == want);
}

TEST_CASE("names of arrays, and members that are no arrays") {
  CHECK(names_of(*open_source(container("positional.npz"))) ==
        std::vector<std::string>{"arr_0", "arr_1"});
  CHECK(names_of(*open_source(container("extra_member.npz"))) == std::vector<std::string>{"a"});
  const auto empty = open_source(container("no_arrays.npz"));
  CHECK(empty->info().container == "npz");
  CHECK(empty->tensors().empty());

  const TempDir dir;
  const std::string path = dir.file("x.npz");
  // Of the members "x" and "x.npy", both of which numpy would call "x", the later one gets a
  // number.
  write_file(path, zip_bytes({stored_part("notes.txt", "no array"), stored_part("x", kOne),
                              stored_part("x.npy", kOne), stored_part("x.npy.npy", kOne),
                              stored_part("../up.npy", kOne), stored_part(".npy", kOne)}));
  const auto source = open_source(path);
  CHECK(names_of(*source) == std::vector<std::string>{"x", "x#2", "x.npy", "../up", ""});
  for (const std::string& name : names_of(*source)) {
    CHECK(floats_of(*source, name) == std::vector<float>{1});
    CHECK(tensor_of(*source, name).file == path);
  }
}

TEST_CASE("object arrays are listed but never loaded, and the other arrays are read") {
  const auto source = open_source(container("objects.npz"));
  CHECK(floats_of(*source, "plain").size() == 2);
  const TensorInfo& objects = tensor_of(*source, "objects");
  CHECK(objects.dtype == DType::kOther);
  CHECK(objects.dtype_text == "|O");
  CHECK(objects.shape == Shape{3});
  std::vector<char> raw(static_cast<std::size_t>(objects.bytes));
  CHECK_THROWS_WITH_AS(
      source->read_raw(objects, 0, 1, 0, 3, raw.data()),
      doctest::Contains("tensor \"objects\" has the dtype \"|O\", which cannot be read"), Error);
  // Nothing else in the file: then it is an error to open it.
  CHECK(message_of(container("malicious/npz_objects.npz"), 4).find("never loaded") !=
        std::string::npos);
}

TEST_CASE("dtypes that are no numbers are listed with their bytes") {
  const TempDir dir;
  const std::string path = dir.file("x.npz");
  const struct {
    const char* name;
    std::string descr, data, dtype, bytes;  // "" for bytes: cannot be read
  } cases[] = {
      {"text", "'<U2'", std::string("a\0\0\0b\0\0\0", 8), "<U2", std::string("a\0\0\0b\0\0\0", 8)},
      {"big text", "'>U1'", std::string("\0\0\0a", 4), ">U1", ""},
      {"bytes", "'|S3'", "abc", "|S3", "abc"},
      {"time", "'<M8[ns]'", "01234567", "<M8[ns]", "01234567"},
      {"big time", "'>m8[25s]'", "01234567", ">m8[25s]", "76543210"},
      {"complex", "'<c8'", "01234567", "<c8", "01234567"},
      {"integer", "'>i4'", "0123", ">i4", "3210"},
      {"void", "'|V5'", "01234", "|V5", "01234"},
      {"bf16", "'<V2'", "01", "|V2", "01"},
      {"fields",
       "[('a', '<f4'), ('b', '<U1', (2,)), (('title', 'c'), [('d', '|u1')]), ('', '|V2')]",
       "0123456789abcde", "|V15", "0123456789abcde"},
      {"fields with objects", "[('a', '<f4'), ('b', '|O')]", "pickle", "|O", ""},
      {"unknown", "'<q4'", "0123", "<q4", ""},
  };
  std::vector<ZipPart> parts = {stored_part("f4.npy", kOne)};
  for (const auto& c : cases) {
    parts.push_back(deflated_part(c.name + std::string(".npy"), npy(c.descr, "(1,)", c.data)));
  }
  write_file(path, zip_bytes(parts));
  const auto source = open_source(path);
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    const TensorInfo& tensor = tensor_of(*source, c.name);
    CHECK(tensor.dtype == DType::kOther);
    CHECK(tensor.dtype_text == c.dtype);
    CHECK(tensor.known_dtype == (c.name != std::string("unknown")));
    std::string raw(static_cast<std::size_t>(tensor.bytes), '\0');
    if (c.bytes.empty()) {
      CHECK_THROWS_AS(source->read_raw(tensor, 0, 1, 0, 1, raw.data()), Error);
    } else {
      source->read_raw(tensor, 0, 1, 0, 1, raw.data());
      CHECK(raw == c.bytes);
    }
  }
  const auto hinted = open_source(path, OpenOptions{"bf16"});
  CHECK(tensor_of(*hinted, "bf16").dtype == DType::kBF16);
  CHECK(tensor_of(*hinted, "void").dtype == DType::kOther);
}

TEST_CASE("every malformed npz file is refused with its own sentence") {
  const TempDir dir;
  const std::string path = dir.file("x.npz");
  std::string nested = "'<f4'";
  for (int i = 0; i < 1000; ++i) nested = std::string("[('a', ").append(nested) + ")]";
  std::string large_header = npy("'<f4'", "(1,)" + std::string(std::size_t{17} << 20, ' '), "0123");
  large_header[6] = 2;
  large_header = large_header.substr(0, 8) + little_endian(large_header.size() - 14, 4) +
                 large_header.substr(10);
  const struct {
    const char* name;
    ZipPart part;
    int exit_code;
    const char* fragment;
  } cases[] = {
      {"no array", stored_part("a", "text"), 4,
       "is a zip archive, but neither npz (*.npy) nor PyTorch (data.pkl): it holds \"a\""},
      {"npy by its name only", stored_part("a.npy", "text"), 3,
       "member \"a.npy\" is no npy file, expected one by its name"},
      {"empty member", stored_part("a.npy", ""), 3, "member \"a.npy\" is no npy file"},
      {"header cut", stored_part("a.npy", kOne.substr(0, 30)), 3,
       "member \"a.npy\": the npy header claims "},
      {"magic alone", stored_part("a.npy", "\x93NUMPY"), 3, "member \"a.npy\": the npy file has 6"},
      {"data cut", stored_part("a.npy", npy("'<f4'", "(2,)", "0123")), 3,
       "member \"a.npy\": npy shape [2] of \"<f4\" needs 8 bytes of data, found 4"},
      {"shape overflows", stored_part("a.npy", npy("'|V100'", "(92233720368547758,)", "")), 3,
       "exceeds 64 bits"},
      {"bits overflow", stored_part("a.npy", npy("'<f4'", "(288230376151711744,)", "")), 3,
       "exceeds 64 bits"},
      {"fields nested deeply", stored_part("a.npy", npy(nested, "(1,)", "0123")), 3,
       "is nested too deeply"},
      {"field overflows",
       stored_part("a.npy", npy("[('a', '<f8', (4611686018427387904, 1))]", "(1,)", "")), 3,
       "whose size exceeds 63 bits"},
      {"unknown field", stored_part("a.npy", npy("[('a', '<q8')]", "(1,)", "")), 3,
       "has the unknown dtype \"<q8\" in a structured one"},
      {"header above 16 MiB", deflated_part("a.npy", large_header), 3, "the npy header has 1782"},
      {"objects alone", stored_part("a.npy", npy("'|O'", "(1,)", "\x80\x04K\x01.")), 4,
       "no array can be read: \"a\" has the dtype \"|O\", whose elements are pickled Python"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    write_file(path, zip_bytes({c.part}));
    const std::string text = message_of(path, c.exit_code);
    CAPTURE(text);
    CHECK(text.find(c.fragment) != std::string::npos);
    CHECK(text.find(path) != std::string::npos);
  }
  // Bytes in front: no program writes such npz files, and numpy.load refuses them as well.
  write_file(path, "#!/bin/sh\n" + zip_bytes({stored_part("a.npy", kOne)}));
  CHECK(message_of(path, 3).find("is no container that this program knows") != std::string::npos);
}

TEST_CASE("a long npy header is read whole") {
  const TempDir dir;
  const std::string path = dir.file("x.npz");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
  header.resize(100'000, ' ');
  const std::string bytes = npy_bytes(2, header, std::string("\0\0\x80\x3F", 4));
  write_file(path, zip_bytes({deflated_part("a.npy", bytes), stored_part("b.npy", bytes)}));
  const auto source = open_source(path);
  CHECK(floats_of(*source, "a") == std::vector<float>{1});
  CHECK(floats_of(*source, "b") == std::vector<float>{1});
}

TEST_CASE("an npz file above 4 GiB with ZIP64 offsets is read at its end") {
  // Stored zeros of a sparse file, more than 2^31 elements of one byte, then a small array.
  constexpr std::int64_t kElements = (std::int64_t{1} << 32) + 12345;
  const std::string first =
      npy("'|u1'", std::string("(").append(std::to_string(kElements)) + ",)", std::string());
  ZipPart large = stored_part("large.npy", first);
  large.zip64 = true;
  large.size = *(large.packed_size = first.size() + kElements);
  ZipPart small =
      stored_part("small.npy", npy("'<f4'", "(2,)", std::string("\0\0\x80\x3F\0\0\0\x40", 8)));
  small.zip64 = true;
  // What the writer of records makes of it, with the zeros put in between.
  const std::string head = zip_bytes({large});
  const std::size_t head_bytes = head.find("PK\x01\x02");
  const std::uint64_t at = head_bytes + static_cast<std::uint64_t>(kElements);
  small.offset = at;
  std::string rest = zip_bytes({large, small}, {.zip64 = true});
  const std::size_t directory = rest.find("PK\x01\x02");
  const std::uint64_t end = static_cast<std::uint64_t>(kElements) + directory;
  const std::size_t end64 = rest.find("PK\x06\x06");
  rest = zip_bytes(
      {large, small},
      {.zip64 = true, .offset = end, .end64 = static_cast<std::uint64_t>(kElements) + end64});
  const TempDir dir;
  const std::string path = dir.file("large.npz");
  write_file(path, rest.substr(0, head_bytes));
  std::filesystem::resize_file(path, at);
  {
    std::ofstream out(path, std::ios::binary | std::ios::app);
    out << rest.substr(head_bytes);
  }
  REQUIRE(std::filesystem::file_size(path) > std::uintmax_t{1} << 32);
  const auto source = open_source(path);
  CHECK(floats_of(*source, "small") == std::vector<float>{1, 2});
  const TensorInfo& tensor = tensor_of(*source, "large");
  CHECK(tensor.elements == kElements);
  CHECK(tensor.dtype == DType::kU8);
  // Its CRC-32 is a lie, which takes a pass over 4 GiB of zeros to find: only the place is checked.
  CHECK(tensor.shape == Shape{kElements});
}
