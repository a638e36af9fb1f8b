// malformed_safetensors.cc: see malformed_table.h.
#include "tests/unit/malformed_table.h"

namespace fp4scope::test {
namespace {

std::string one(std::string_view fields, std::size_t data_bytes) {
  std::string header = "{\"w\":{";
  header += fields;
  header += "}}";
  return safetensors_bytes(header, std::string(data_bytes, 'd'));
}

MalformedCase tensor_case(const char* name, std::string_view fields, std::size_t data_bytes) {
  return file_case(std::string("safetensors: ") + name, one(fields, data_bytes));
}
MalformedCase header_case(const char* name, std::string_view header, std::string_view data = "") {
  return file_case(std::string("safetensors: ") + name, safetensors_bytes(header, data));
}

// An index beside the shard good.safetensors, which holds x.
MalformedCase index_case(const char* name, const std::string& index) {
  return {std::string("index: ") + name, [index](const TempDir& dir) {
            write_file(dir.file("good.safetensors"),
                       one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 4));
            write_file(dir.file("FILE"), index);
            open_and_read(dir.file("FILE"));
          }};
}

}  // namespace

MalformedCases malformed_safetensors() {
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string y = R"("y":{"dtype":"F32","shape":[1],"data_offsets":)";
  return {
      file_case("safetensors: header length 2^63",
                little_endian(std::uint64_t{1} << 63, 8) + "{\"w\":{}}"),
      file_case("safetensors: header longer than the file", little_endian(1000, 8) + "{\"w\":{}}"),
      file_case("safetensors: cut in the header",
                one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 4).substr(0, 40)),
      header_case("header is an array", "[1,2,3]"),
      header_case("header is no JSON", R"({"w":{"dtype":"F32",})"),
      header_case("NUL bytes behind the header", std::string_view("{}\0\0", 4)),
      header_case("a tensor twice", "{" + x + "," + x + "}", "dddd"),
      header_case("a metadata value is a number", R"({"__metadata__":{"step":1}})"),
      header_case("a tensor is null", R"({"w":null})"),
      tensor_case("no dtype", R"("shape":[1],"data_offsets":[0,4])", 4),
      tensor_case("no offsets", R"("dtype":"F32","shape":[1])", 4),
      tensor_case("shape is a number", R"("dtype":"F32","shape":1,"data_offsets":[0,4])", 4),
      tensor_case("negative extent", R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4),
      tensor_case("shape overflows 64 bits",
                  R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4),
      tensor_case("one offset", R"("dtype":"F32","shape":[1],"data_offsets":[0])", 4),
      tensor_case("offsets reversed", R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4),
      tensor_case("cut in the data", R"("dtype":"F32","shape":[3],"data_offsets":[0,12])", 8),
      tensor_case("size does not fit the shape",
                  R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8),
      tensor_case("unknown dtype", R"("dtype":"F3_E1M1","shape":[8],"data_offsets":[0,3])", 3),
      tensor_case("F4 row of half a byte", R"("dtype":"F4","shape":[2,3],"data_offsets":[0,3])", 3),
      header_case("bytes behind the last tensor", "{" + x + "}", "ddddt"),
      header_case("a hole between tensors", "{" + x + "," + y + "[8,12]}}", "dddddddddddd"),
      header_case("tensors overlap", "{" + x + "," + y + "[2,6]}}", "dddddd"),
      header_case("a name that steers the terminal",
                  R"({"a\n\u001b[2J":{"dtype":"F32","shape":[1],"data_offsets":[0,9]}})", "dddd"),
      index_case("no weight_map", R"({"metadata":{"total_size":4}})"),
      index_case("weight_map is an array", R"({"weight_map":["x"]})"),
      index_case("cut in the JSON", R"({"weight_map":{"x":"good.safe)"),
      index_case("a tensor twice",
                 R"({"weight_map":{"x":"good.safetensors","x":"good.safetensors"}})"),
      index_case("the shard is missing", R"({"weight_map":{"x":"model-00001.safetensors"}})"),
      index_case("the shard does not hold the tensor",
                 R"({"weight_map":{"z":"good.safetensors"}})"),
      index_case("the shard lies above the folder",
                 R"({"weight_map":{"x":"../good.safetensors"}})"),
      index_case("the shard is absolute", R"({"weight_map":{"x":"/etc/passwd"}})"),
      index_case("the shard is no safetensors file", R"({"weight_map":{"x":"FILE"}})"),
  };
}

}  // namespace fp4scope::test
