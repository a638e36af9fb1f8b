// outcome.cc: see the header.
#include "analysis/compare/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "analysis/compare/compare.h"
#include "analysis/tiles.h"
#include "formats/amax.h"
#include "sim/amax.h"
#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

Tile tile_of(const SmallTensor& tensor) {
  Tile tile;
  tile.f32 = tensor.x.data();
  tile.rows = tensor.rows;
  tile.cols = tile.stride = tensor.cols;
  tile.source = tensor.source;
  tile.tensor_id = tensor.tensor_id;
  return tile;
}

AmaxResult measured(const Tile& tile, bool per_row) {
  AmaxResult amax;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::uint32_t row = vector_amax_bits(tile.f32 + r * tile.stride, tile.cols);
    amax.tensor = merged_amax_bits(amax.tensor, row);
    if (per_row) amax.rows.push_back(row);
  }
  return amax;
}

std::string hex(const std::uint8_t* bytes, std::int64_t count) {
  std::string text = "0x";
  for (std::int64_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

// One block of two outcomes of the same shape.
class BlockPair {
 public:
  BlockPair(const Recipe& a, const Outcome& qa, const Outcome& qb, const ComparedPlanes& planes)
      : a_(a), qa_(qa), qb_(qb), planes_(planes), cols_(qa.tile.cols) {}
  std::optional<std::string> difference(std::int64_t row, std::int64_t block) const {
    if (qa_.has_codes && qb_.has_codes) {
      if (auto what = planes_.scales ? scales(row, block) : std::nullopt) return what;
      if (auto what = planes_.codes ? codes(row, block) : std::nullopt) return what;
    }
    return planes_.values ? values(row, block) : std::nullopt;
  }

 private:
  std::int64_t elements(std::int64_t block) const {
    return std::min<std::int64_t>(a_.format.block, cols_ - block * a_.format.block);
  }
  std::optional<std::string> scales(std::int64_t row, std::int64_t block) const {
    const std::int64_t bytes = a_.format.scale_bytes;
    const std::int64_t at = (row * qa_.tile.blocks_per_row + block) * bytes;
    const std::uint8_t *sa = qa_.tile.scales.data() + at, *sb = qb_.tile.scales.data() + at;
    if (std::equal(sa, sa + bytes, sb)) return std::nullopt;
    return fmt::format("scale {} {} and {}", bytes == 1 ? "byte" : "bytes", hex(sa, bytes),
                       hex(sb, bytes));
  }
  std::optional<std::string> codes(std::int64_t row, std::int64_t block) const {
    const std::int64_t bytes = a_.code_bytes(), block_size = a_.format.block;
    const std::int64_t at = (row * qa_.tile.padded_cols + block * block_size) * bytes;
    const std::uint8_t *ca = qa_.tile.codes.data() + at, *cb = qb_.tile.codes.data() + at;
    for (std::int64_t i = 0; i < elements(block); ++i) {
      if (std::equal(ca + i * bytes, ca + (i + 1) * bytes, cb + i * bytes)) continue;
      if (bytes == 1) return fmt::format("code {} and {} of element {}", ca[i], cb[i], i);
      return fmt::format("code {} and {} of element {}", hex(ca + i * bytes, bytes),
                         hex(cb + i * bytes, bytes), i);
    }
    return std::nullopt;
  }
  std::optional<std::string> values(std::int64_t row, std::int64_t block) const {
    const std::int64_t at = row * cols_ + block * a_.format.block;
    for (std::int64_t i = 0; i < elements(block); ++i) {
      const float va = qa_.values[static_cast<std::size_t>(at + i)];
      const float vb = qb_.values[static_cast<std::size_t>(at + i)];
      if (same_pattern(va, vb)) continue;
      return fmt::format("value 0x{:08x} and 0x{:08x} of element {}",
                         std::bit_cast<std::uint32_t>(va), std::bit_cast<std::uint32_t>(vb), i);
    }
    return std::nullopt;
  }

  const Recipe& a_;
  const Outcome &qa_, &qb_;
  const ComparedPlanes& planes_;
  std::int64_t cols_;
};

}  // namespace

Outcome outcome_of(const Backend& backend, const Recipe& recipe, const SmallTensor& tensor,
                   bool wants_values) {
  Outcome out;
  const Tile source = tile_of(tensor);
  const bool is_ragged = tensor.cols % recipe.format.block != 0;
  if (is_ragged && recipe.ragged() == Ragged::kError) {
    out.refusal = fmt::format("rows of {} elements are no multiple of the block of {}", tensor.cols,
                              recipe.format.block);
    return out;
  }
  const auto is_nan = [](float v) { return v != v; };
  out.has_codes =
      !(is_ragged && recipe.ragged() == Ragged::kFlat) &&
      !(recipe.keeps_nan_elements() && std::any_of(tensor.x.begin(), tensor.x.end(), is_nan));
  try {
    if (!out.has_codes) {
      out.values = fake_quantize(source, recipe, backend);
      out.tile.rows = tensor.rows;
      out.tile.cols = tensor.cols;
      out.tile.blocks_per_row = (tensor.cols + recipe.format.block - 1) / recipe.format.block;
      return out;
    }
    require_random_shape(recipe, tensor.rows, tensor.cols, tensor.source);
    std::vector<float> storage;
    const Tile tile = transformed_tile(recipe, source, storage);
    out.outer = outer_scales(backend, recipe, measured(tile, recipe.scales_rows()));
    backend.quantize(recipe, tile, out.outer, out.tile);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData) throw;
    out.refusal = e.what();
    return out;
  }
  if (wants_values) {
    out.values.resize(tensor.x.size());
    backend.dequantize(recipe, out.tile, out.outer, out.values.data(), tensor.cols);
  }
  return out;
}

std::string shape_difference(const Recipe& a, const Recipe& b) {
  const BlockFormat &fa = a.format, &fb = b.format;
  if (fa.block != fb.block) return fmt::format("blocks of {} and {}", fa.block, fb.block);
  const auto bits = [](const Recipe& r) { return r.format.element.storage_bits(); };
  if (bits(a) != bits(b)) return fmt::format("codes of {} and {} bits", bits(a), bits(b));
  if (fa.scale_bytes != fb.scale_bytes)
    return fmt::format("scales of {} and {} bytes", fa.scale_bytes, fb.scale_bytes);
  return "";
}

std::optional<Difference> first_difference(const Recipe& a, const Outcome& qa, const Recipe& b,
                                           const Outcome& qb, const ComparedPlanes& planes) {
  if (qa.is_refused() && qb.is_refused()) return std::nullopt;
  if (qa.is_refused() || qb.is_refused()) {
    const Recipe& who = qa.is_refused() ? a : b;
    return Difference{0, 0, fmt::format("input that {} refuses", to_string(who))};
  }
  const bool has_outer = planes.outer && (a.has_outer() || b.has_outer());
  const bool both = qa.has_codes && qb.has_codes;
  const BlockPair pair(a, qa, qb, planes);
  for (std::int64_t row = 0; row < qa.tile.rows; ++row) {
    if (has_outer && both) {
      const float ga = outer_of_row(a, qa.outer, row).g, gb = outer_of_row(b, qb.outer, row).g;
      if (!same_pattern(ga, gb)) return Difference{row, 0, "outer scale"};
    }
    for (std::int64_t block = 0; block < qa.tile.blocks_per_row; ++block) {
      if (auto what = pair.difference(row, block)) return Difference{row, block, std::move(*what)};
    }
  }
  return std::nullopt;
}

}  // namespace fp4scope
