// compare.cc: see the header.
#include "tests/cross/compare.h"

#include <algorithm>
#include <cstdio>

#include "tests/support/floats.h"

namespace fp4scope::test {
namespace {

int printed = 0;
constexpr int kMostPrinted = 12;

void print_hex(const char* label, const std::uint8_t* bytes, std::int64_t n) {
  std::printf("  %-12s", label);
  for (std::int64_t i = 0; i < n; ++i) std::printf(" %02x", bytes[i]);
  std::printf("\n");
}

}  // namespace

Differences compare(const Backend& backend, const Recipe& recipe, const Tile& tile,
                    const Quantized& want, const Quantized& got, Print print) {
  Differences d;
  const QuantizedTile& w = want.tile;
  const QuantizedTile& g = got.tile;
  if (w.rows != g.rows || w.cols != g.cols || w.blocks_per_row != g.blocks_per_row ||
      w.padded_cols != g.padded_cols || w.codes.size() != g.codes.size() ||
      w.scales.size() != g.scales.size() || w.choices.size() != g.choices.size() ||
      w.errors.size() != g.errors.size()) {
    std::printf("DIFFERS %s on %s: shape\n", recipe.text.c_str(),
                std::string(backend.name()).c_str());
    d.codes = 1;
    return d;
  }
  const std::int64_t size = recipe.format.block;
  const std::int64_t width = recipe.code_bytes();
  const std::int64_t scale_bytes = recipe.format.scale_bytes;
  for (std::int64_t row = 0; row < w.rows; ++row) {
    for (std::int64_t b = 0; b < w.blocks_per_row; ++b) {
      ++d.blocks;
      const std::int64_t scale_at = (row * w.blocks_per_row + b) * scale_bytes;
      const std::int64_t code_at = (row * w.padded_cols + b * size) * width;
      const std::int64_t inside = std::min(size, w.cols - b * size);
      Differences here;
      for (std::int64_t i = 0; i < scale_bytes; ++i) {
        const auto at = static_cast<std::size_t>(scale_at + i);
        here.scales += w.scales[at] != g.scales[at];
      }
      for (std::int64_t i = 0; i < size * width; ++i) {
        const auto at = static_cast<std::size_t>(code_at + i);
        here.codes += w.codes[at] != g.codes[at];
      }
      const auto block = static_cast<std::size_t>(row * w.blocks_per_row + b);
      if (!w.choices.empty()) here.choices += w.choices[block] != g.choices[block];
      for (std::size_t e = 2 * block; !w.errors.empty() && e < 2 * block + 2; ++e) {
        here.choices += !same_float(w.errors[e], g.errors[e]);
      }
      for (std::int64_t i = 0; i < inside; ++i) {
        const auto at = static_cast<std::size_t>(row * w.cols + b * size + i);
        here.values += !same_float(want.values[at], got.values[at]);
      }
      d += here;
      if (here.total() == 0 || print == Print::kNothing || printed++ >= kMostPrinted) continue;
      std::printf("DIFFERS %s on %s, row %lld, block %lld (%s)\n", recipe.text.c_str(),
                  std::string(backend.name()).c_str(), static_cast<long long>(row),
                  static_cast<long long>(b), tile.f64 != nullptr ? "binary64" : "binary32");
      std::printf("  input       ");
      for (std::int64_t i = 0; i < inside; ++i) {
        const std::int64_t at = row * tile.stride + b * size + i;
        if (tile.f64 != nullptr) {
          std::printf(" %a", tile.f64[at]);
        } else {
          std::printf(" %08x", bit_cast<std::uint32_t>(tile.f32[at]));
        }
      }
      std::printf("\n");
      if (!w.errors.empty()) {
        const auto bits = [](float v) { return bit_cast<std::uint32_t>(v); };
        std::printf("  choice      want %d (err4 %08x, err6 %08x), got %d (%08x, %08x)\n",
                    w.choices[block], bits(w.errors[2 * block]), bits(w.errors[2 * block + 1]),
                    g.choices[block], bits(g.errors[2 * block]), bits(g.errors[2 * block + 1]));
      }
      print_hex("want scale", w.scales.data() + scale_at, scale_bytes);
      print_hex("got scale", g.scales.data() + scale_at, scale_bytes);
      print_hex("want codes", &w.codes[static_cast<std::size_t>(code_at)], size);
      print_hex("got codes", &g.codes[static_cast<std::size_t>(code_at)], size);
      for (std::int64_t i = 0; i < inside; ++i) {
        const auto at = static_cast<std::size_t>(row * w.cols + b * size + i);
        if (same_float(want.values[at], got.values[at])) continue;
        std::printf("  value %lld: want %08x, got %08x\n", static_cast<long long>(i),
                    bit_cast<std::uint32_t>(want.values[at]),
                    bit_cast<std::uint32_t>(got.values[at]));
        break;
      }
    }
  }
  return d;
}

}  // namespace fp4scope::test
