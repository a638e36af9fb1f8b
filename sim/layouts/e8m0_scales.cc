// e8m0_scales.cc: see e8m0_scales.h.
#include "sim/layouts/e8m0_scales.h"

#include <fmt/format.h>

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

// Whether a positive power of two that a byte stands for.
bool is_e8m0(float scale) {
  const auto bits = bit_cast<std::uint32_t>(scale);
  const std::uint32_t field = bits >> 23, fraction = bits & 0x007fffffu;
  return field == 0 ? fraction == 0x00400000u : field <= 254 && fraction == 0;
}

}  // namespace

void e8m0_from_binary32(std::span<const float> scales, std::optional<E8m0Rule> rule,
                        std::span<std::uint8_t> bytes) {
  require_entries(bytes.size(), static_cast<std::int64_t>(scales.size()), "E8M0 bytes");
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (!rule && !is_e8m0(scales[i])) {
      throw Error(ErrorKind::kData,
                  fmt::format("scale {} is {}, no power of two from 2^-127 to 2^127: E8M0 needs a "
                              "rounding rule for it",
                              i, scales[i]));
    }
    bytes[i] =
        static_cast<std::uint8_t>(e8m0_encode<Lane<1>>(rule.value_or(E8m0Rule::kDown), scales[i]));
  }
}

NanScales find_nan_scales(ScaleByte kind, std::span<const std::uint8_t> plane) {
  NanScales found;
  for (std::size_t i = 0; i < plane.size(); ++i) {
    if (!is_nan_scale(kind, plane[i])) continue;
    if (found.count++ == 0) found.first = static_cast<std::int64_t>(i);
  }
  return found;
}

}  // namespace fp4scope
