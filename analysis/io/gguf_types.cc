// gguf_types.cc: see gguf_types.h.
#include "analysis/io/gguf_types.h"

#include <fmt/format.h>

#include <iterator>

namespace fp4scope {
namespace {

constexpr GgufType plain(std::uint32_t number, std::string_view name, DType dtype, int bytes) {
  return {number, name, 1, bytes, dtype, 8 * bytes, nullptr};
}
constexpr GgufType decoded(std::uint32_t number, std::string_view name, int elements, int bytes,
                           const GgufCodecs& codecs) {
  return {number, name, elements, bytes, DType::kF32, 32, &codecs};
}
constexpr GgufType listed(std::uint32_t number, std::string_view name, int elements, int bytes) {
  return {number, name, elements, bytes, DType::kOther, 0, nullptr};
}
constexpr GgufType removed(std::uint32_t number, std::string_view name) {
  return listed(number, name, 1, 0);
}

constexpr GgufType kTypes[] = {
    plain(0, "F32", DType::kF32, 4),
    plain(1, "F16", DType::kF16, 2),
    decoded(2, "Q4_0", 32, 18, kGgufQ4_0),
    decoded(3, "Q4_1", 32, 20, kGgufQ4_1),
    removed(4, "Q4_2"),
    removed(5, "Q4_3"),
    decoded(6, "Q5_0", 32, 22, kGgufQ5_0),
    decoded(7, "Q5_1", 32, 24, kGgufQ5_1),
    decoded(8, "Q8_0", 32, 34, kGgufQ8_0),
    listed(9, "Q8_1", 32, 36),  // both scales FP16; the gguf package still says 40 bytes
    listed(10, "Q2_K", 256, 84),
    listed(11, "Q3_K", 256, 110),
    listed(12, "Q4_K", 256, 144),
    listed(13, "Q5_K", 256, 176),
    decoded(14, "Q6_K", 256, 210, kGgufQ6K),
    listed(15, "Q8_K", 256, 292),
    listed(16, "IQ2_XXS", 256, 66),
    listed(17, "IQ2_XS", 256, 74),
    listed(18, "IQ3_XXS", 256, 98),
    listed(19, "IQ1_S", 256, 50),
    listed(20, "IQ4_NL", 32, 18),
    listed(21, "IQ3_S", 256, 110),
    listed(22, "IQ2_S", 256, 82),
    listed(23, "IQ4_XS", 256, 136),
    plain(24, "I8", DType::kI8, 1),
    plain(25, "I16", DType::kOther, 2),
    plain(26, "I32", DType::kOther, 4),
    plain(27, "I64", DType::kOther, 8),
    plain(28, "F64", DType::kF64, 8),
    listed(29, "IQ1_M", 256, 56),
    plain(30, "BF16", DType::kBF16, 2),
    removed(31, "Q4_0_4_4"),
    removed(32, "Q4_0_4_8"),
    removed(33, "Q4_0_8_8"),
    listed(34, "TQ1_0", 256, 54),
    listed(35, "TQ2_0", 256, 66),
    removed(36, "IQ4_NL_4_4"),
    removed(37, "IQ4_NL_4_8"),
    removed(38, "IQ4_NL_8_8"),
    decoded(39, "MXFP4", 32, 17, kGgufMxfp4),
    decoded(40, "NVFP4", 64, 36, kGgufNvfp4),
    listed(41, "Q1_0", 128, 18),
};

constexpr bool numbers_are_positions() {
  for (std::uint32_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].number != i) return false;
  }
  return true;
}
static_assert(numbers_are_positions());

}  // namespace

const GgufType* find_gguf_type(std::uint32_t number) {
  return number < std::size(kTypes) ? &kTypes[number] : nullptr;
}

std::string gguf_type_name(std::uint32_t number) {
  const GgufType* type = find_gguf_type(number);
  return type == nullptr ? fmt::format("type {}", number) : std::string(type->name);
}

}  // namespace fp4scope
