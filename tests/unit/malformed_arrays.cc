// malformed_arrays.cc: see malformed_table.h.
#include "tests/unit/malformed_table.h"

namespace fp4scope::test {
namespace {

MalformedCase npy_case(const char* name, std::string_view header, std::size_t data_bytes,
                       const std::string& hint = "") {
  OpenOptions options;
  options.dtype_hint = hint;
  return file_case(std::string("npy: ") + name, npy_bytes(1, header, std::string(data_bytes, '\0')),
                   options);
}

MalformedCase raw_case(const char* name, const RawLayout& layout, std::size_t data_bytes) {
  OpenOptions options;
  options.raw = layout;
  return file_case(std::string("raw: ") + name, std::string(data_bytes, '\0'), options);
}

}  // namespace

MalformedCases malformed_arrays() {
  constexpr auto kMost = std::int64_t{1} << 62;
  return {
      file_case("npy: version 4", npy_bytes(4, "{}", "")),
      file_case("npy: header length 65535 in 90 bytes",
                std::string("\x93NUMPY\x01\0\xFF\xFF", 10) + std::string(80, ' ')),
      file_case("npy: cut in the header length", std::string("\x93NUMPY\x02\0\x10\0", 10)),
      npy_case("header is a list", "[1, 2]", 0),
      npy_case("no shape", "{'descr': '<f4', 'fortran_order': False}", 4),
      npy_case("unknown key", "{'descr': '<f4', 'order': 'C'}", 4),
      npy_case("a key twice", "{'shape': (1,), 'shape': (1,)}", 4),
      npy_case("the order is a number", "{'descr': '<f4', 'fortran_order': 1}", 4),
      npy_case("unclosed text", "{'descr': '<f4, ", 0),
      npy_case("text behind the header",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} import os", 4),
      npy_case("negative extent", "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4),
      npy_case("extent above 2^63",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", 4),
      npy_case("shape overflows 64 bits",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 4)}", 16),
      npy_case("a call in the shape",
               "{'descr': '<f4', 'fortran_order': False, 'shape': (exit(),)}", 4),
      npy_case("cut in the data", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 12),
      npy_case("bytes behind the data", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}",
               17),
      npy_case("objects", "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8),
      npy_case("structured dtype",
               "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4),
      npy_case("complex numbers", "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8),
      npy_case("V2 without a hint", "{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}", 2),
      npy_case("V2 with the hint e4m3", "{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}",
               2, "e4m3"),
      raw_case("file too short", {DType::kF32, {2, 3}, 0, true}, 20),
      raw_case("file too long", {DType::kF32, {2, 3}, 0, true}, 32),
      raw_case("offset behind the end", {DType::kF32, {1}, 64, false}, 32),
      raw_case("negative extent", {DType::kF32, {-2, 3}, 0, true}, 24),
      raw_case("shape overflows 64 bits", {DType::kF32, {kMost, 8}, 0, true}, 24),
      raw_case("no whole rows for -1", {DType::kBF16, {-1, 5}, 0, true}, 24),
  };
}

}  // namespace fp4scope::test
