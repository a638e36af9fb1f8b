// hif4_carrier.cc: see hif4_carrier.h.
#include "sim/layouts/hif4_carrier.h"

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

void require_carrier(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups,
                     std::size_t from, std::size_t to) {
  require_shape(lines, groups, "HiF4 scales");
  if (bits == LevelBits::kMsb && carrier != Carrier::kBytes) {
    throw Error(ErrorKind::kUsage, "bits=msb exists with carrier=bytes only");
  }
  if (carrier == Carrier::kA6) require_multiple(lines, 16, "lines of carrier=a6");
  const std::int64_t bytes =
      checked_product(checked_product(lines, groups, "HiF4 scales"), 4, "HiF4 scales");
  require_entries(from, bytes, "bytes of HiF4 scales");
  require_entries(to, bytes, "bytes of HiF4 scales");
}

// Calls f(byte in fp4scope's order, byte in the carrier, whether its bits are reversed).
template <class F>
void each_byte(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups, F&& f) {
  for (std::int64_t line = 0; line < lines; ++line) {
    for (std::int64_t group = 0; group < groups; ++group) {
      for (std::int64_t b = 0; b < 4; ++b) {
        f(static_cast<std::size_t>((line * groups + group) * 4 + b),
          static_cast<std::size_t>(hif4_scale_offset(carrier, groups, line, group, b)),
          bits == LevelBits::kMsb && b > 0);
      }
    }
  }
}

}  // namespace

void store_hif4_scales(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups,
                       std::span<const std::uint8_t> scales, std::span<std::uint8_t> stored) {
  require_carrier(carrier, bits, lines, groups, scales.size(), stored.size());
  each_byte(carrier, bits, lines, groups, [&](std::size_t own, std::size_t there, bool reverse) {
    stored[there] = reverse ? reversed_bits(scales[own]) : scales[own];
  });
}

void load_hif4_scales(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups,
                      std::span<const std::uint8_t> stored, std::span<std::uint8_t> scales) {
  require_carrier(carrier, bits, lines, groups, stored.size(), scales.size());
  each_byte(carrier, bits, lines, groups, [&](std::size_t own, std::size_t there, bool reverse) {
    scales[own] = reverse ? reversed_bits(stored[there]) : stored[there];
  });
}

void store_hif4_level1(std::int64_t lines, std::int64_t groups,
                       std::span<const std::uint8_t> scales, std::span<std::uint16_t> level1) {
  require_shape(lines, groups, "HiF4 scales");
  const std::int64_t entries = checked_product(lines, groups, "HiF4 scales");
  require_entries(scales.size(), checked_product(entries, 4, "HiF4 scales"),
                  "bytes of HiF4 scales");
  require_entries(level1.size(), entries, "level-1 scales");
  for (std::size_t i = 0; i < level1.size(); ++i) level1[i] = scales[4 * i];
}

}  // namespace fp4scope
