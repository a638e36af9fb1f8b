// malformed_gguf.cc: see malformed_table.h.
#include "tests/support/gguf_bytes.h"
#include "tests/unit/malformed_table.h"

namespace fp4scope::test {
namespace {

MalformedCase gguf_case(const char* name, std::string bytes) {
  return file_case(std::string("GGUF: ") + name, std::move(bytes));
}
std::string with_value(std::string_view key, std::uint32_t type, std::string_view value) {
  return GgufBytes().metadata(key, type, value).file("");
}
std::string with_tensor(const std::vector<std::uint64_t>& extents, std::uint32_t type,
                        std::uint64_t offset, std::size_t data) {
  return GgufBytes().tensor("w", extents, type, offset).file(std::string(data, 'd'));
}
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

}  // namespace

MalformedCases malformed_gguf() {
  const GgufBytes b;
  const auto n = [&](std::uint64_t value, int bytes) { return b.number(value, bytes); };
  const auto start = [&](std::uint32_t version, std::uint64_t tensors, std::uint64_t metadata) {
    return joined({"GGUF", n(version, 4), n(tensors, 8), n(metadata, 8)});
  };
  std::string nested;
  for (int i = 0; i < 5; ++i) nested += joined({n(kGgufArray, 4), n(1, 8)});
  return {
      gguf_case("cut in the start", start(3, 0, 0).substr(0, 20)),
      gguf_case("version 1", start(1, 0, 0)),
      gguf_case("version 0", start(0, 0, 0)),
      gguf_case("2^63 tensors", start(3, UINT64_C(1) << 63, 0)),
      gguf_case("more metadata than bytes", start(3, 0, 1000)),
      gguf_case("a key beyond the end", joined({start(3, 0, 1), n(100, 8), "general.archite"})),
      gguf_case("a text beyond the end",
                GgufBytes().metadata("key", kGgufString, joined({n(9, 8), "12345678"})).header()),
      gguf_case("unknown value type", with_value("key", 13, "x")),
      gguf_case("an array of 2^61 numbers",
                with_value("key", kGgufArray, joined({n(kGgufU64, 4), n(1ull << 61, 8)}))),
      gguf_case("arrays five deep",
                with_value("key", kGgufArray, joined({nested, n(0, 4), n(0, 8)}))),
      gguf_case("a key twice",
                GgufBytes().metadata("k", kGgufU8, "1").metadata("k", kGgufU8, "2").file("")),
      gguf_case("alignment 12", with_value("general.alignment", kGgufValueU32, n(12, 4))),
      gguf_case("alignment of another type", with_value("general.alignment", kGgufU64, n(32, 8))),
      gguf_case("a tensor twice", GgufBytes()
                                      .tensor("w", {1}, kGgmlF32, 0)
                                      .tensor("w", {1}, kGgmlF32, 32)
                                      .file(std::string(36, 'd'))),
      gguf_case("five dimensions", with_tensor({1, 1, 1, 1, 1}, kGgmlF32, 0, 4)),
      gguf_case("shape overflows 64 bits",
                with_tensor({UINT64_C(1) << 32, UINT64_C(1) << 32}, kGgmlF32, 0, 4)),
      gguf_case("half a block", with_tensor({48, 2}, kGgmlQ4_0, 0, 54)),
      gguf_case("offset not aligned", with_tensor({1}, kGgmlF32, 4, 8)),
      gguf_case("cut in the data", with_tensor({256, 2}, kGgmlQ4_K, 0, 287)),
      gguf_case("tensors overlap", GgufBytes()
                                       .tensor("a", {16}, kGgmlF32, 0)
                                       .tensor("b", {1}, kGgmlF32, 32)
                                       .file(std::string(64, 'd'))),
      gguf_case("a type that is not decoded", with_tensor({256, 2}, kGgmlQ4_K, 0, 288)),
      gguf_case("a type that ggml does not have", with_tensor({8}, 99, 0, 32)),
  };
}

}  // namespace fp4scope::test
