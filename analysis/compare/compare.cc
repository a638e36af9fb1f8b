// compare.cc: see compare.h.
#include "analysis/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "formats/lane.h"
#include "formats/lut.h"
#include "formats/scalars.h"

namespace fp4scope {

bool same_blocks(const Recipe& a, const Recipe& b) {
  const BlockFormat &f = a.format, &g = b.format;
  if (f.block != g.block || f.scale_bytes != g.scale_bytes || f.scale_bytes == 0) return false;
  if (a.nvfp4.int4_candidate != b.nvfp4.int4_candidate) return false;  // bit 7 says INT4
  // The stored levels, innermost last; an outer scale has group 0.
  std::vector<ScaleLevel> stored_f, stored_g;
  for (int i = 0; i < f.num_levels; ++i) stored_f.push_back(f.levels[static_cast<std::size_t>(i)]);
  for (int i = 0; i < g.num_levels; ++i) stored_g.push_back(g.levels[static_cast<std::size_t>(i)]);
  std::erase_if(stored_f, [](const ScaleLevel& l) { return l.group == 0; });
  std::erase_if(stored_g, [](const ScaleLevel& l) { return l.group == 0; });
  if (stored_f.size() != stored_g.size()) return false;
  for (std::size_t i = 0; i < stored_f.size(); ++i) {
    if (stored_f[i].kind != stored_g[i].kind || !(stored_f[i].spec == stored_g[i].spec) ||
        stored_f[i].group != stored_g[i].group) {
      return false;
    }
  }
  return true;
}

namespace {

bool same_table(const Lut* a, const Lut* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->count == b->count && std::equal(a->value, a->value + a->count, b->value);
}

}  // namespace

bool same_elements(const Recipe& a, const Recipe& b) {
  return a.format.element == b.format.element && a.nvfp4.int4_candidate == b.nvfp4.int4_candidate &&
         same_table(a.format.lut, b.format.lut) && a.code_bytes() == b.code_bytes();
}

bool same_values(const Recipe& a, const Recipe& b) {
  return a.rht == b.rht;
}

void keep_nan_elements(const Recipe& recipe, const Tile& x, float* values) {
  if (!recipe.keeps_nan_elements()) return;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const float v = x.f32[r * x.stride + c];
      if (v != v) values[r * x.cols + c] = v;
    }
  }
}

MinifloatSpec element_of(const Recipe& recipe, bool choice) {
  return choice && recipe.nvfp4.int4_candidate ? kInt4 : recipe.format.element;
}

int ordinal_of_code(const MinifloatSpec& element, std::uint32_t code) {
  if (element.is_twos_complement()) {
    const auto half = static_cast<int>(element.code_count() / 2);
    const int q = static_cast<int>(code);
    return q >= half ? q - 2 * half : q;
  }
  const int magnitude = static_cast<int>(code & element.magnitude_mask());
  return element.is_signed && (code & element.sign_mask()) != 0 ? -magnitude : magnitude;
}

bool is_zero_code(const MinifloatSpec& element, std::uint32_t code) {
  return ordinal_of_code(element, code) == 0;
}

bool is_live_block(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t block) {
  const std::int64_t height = recipe.format.block_rows, first = row / height * height;
  const std::int64_t last = std::min(tile.rows, first + height);
  const std::int64_t begin = block * recipe.format.block;
  const std::int64_t end = std::min<std::int64_t>(tile.cols, begin + recipe.format.block);
  for (std::int64_t r = first; r < last; ++r) {
    const float* x = tile.f32 + r * tile.stride;
    std::uint32_t any = 0;
    for (std::int64_t c = begin; c < end; ++c) {
      const std::uint32_t magnitude = bit_cast<std::uint32_t>(x[c]) & kMagnitudeMask;
      any |= magnitude <= kInfBits ? magnitude : 0u;
    }
    if (any != 0) return true;
  }
  return false;
}

namespace {

std::uint32_t code_at(const Side& side, std::int64_t row, std::int64_t col) {
  const std::uint8_t* line =
      side.tile.codes.data() + row * side.tile.padded_cols * side.recipe.code_bytes();
  if (side.recipe.code_bytes() == 1) return line[col];
  return line[2 * col] | static_cast<std::uint32_t>(line[2 * col + 1]) << 8;
}

DifferingBlock::Half half_of(const Side& side, std::int64_t row, std::int64_t first,
                             std::int64_t last) {
  DifferingBlock::Half half;
  const QuantizedTile& tile = side.tile;
  const std::int64_t block = first / side.recipe.format.block;
  const std::int64_t bytes = side.recipe.format.scale_bytes;
  const std::int64_t at = row * tile.blocks_per_row + block;
  if (!tile.scales.empty()) {
    const std::uint8_t* scale = tile.scales.data() + at * bytes;
    half.scale.assign(scale, scale + bytes);
  }
  for (std::int64_t c = first; c < last; ++c) {
    if (!tile.codes.empty()) half.codes.push_back(code_at(side, row, c));
    if (side.values != nullptr) half.values.push_back(side.values[row * tile.cols + c]);
  }
  const auto i = static_cast<std::size_t>(at);
  if (!tile.choices.empty()) half.four = tile.choices[i] != 0;
  if (!tile.errors.empty()) {
    half.error4 = tile.errors[2 * i];
    half.error6 = tile.errors[2 * i + 1];
  }
  return half;
}

}  // namespace

DifferingBlock differing_block(const Tile& x, const Side& a, const Side& b, std::int64_t row,
                               std::int64_t block, std::int64_t first_row,
                               std::int64_t first_block) {
  DifferingBlock d;
  const std::int64_t n = a.recipe.format.block;
  const std::int64_t first = block * n, last = std::min(x.cols, first + n);
  d.row = first_row + row;
  d.block = first_block + block;
  d.col = d.block * n;
  for (std::int64_t c = first; c < last; ++c) {
    const std::int64_t at = row * x.stride + c;
    d.x.push_back(x.f64 != nullptr ? x.f64[at] : double{x.f32[at]});
  }
  d.is_wide = x.f64 != nullptr;
  d.a = half_of(a, row, first, last);
  d.b = half_of(b, row, first, last);
  const bool by_codes =
      same_elements(a.recipe, b.recipe) && !d.a.codes.empty() && !d.b.codes.empty();
  for (std::size_t i = 0; i < d.x.size(); ++i) {
    const bool codes_differ = by_codes && d.a.codes[i] != d.b.codes[i];
    const bool values_differ =
        !d.a.values.empty() && !d.b.values.empty() && !same_pattern(d.a.values[i], d.b.values[i]);
    const bool differs = codes_differ || values_differ;
    if (differs) d.elements.push_back(static_cast<int>(i));
  }
  return d;
}

void keep_first(std::vector<DifferingBlock>& blocks, std::size_t most) {
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) {
    return a.row != b.row ? a.row < b.row : a.block < b.block;
  });
  if (blocks.size() > most) blocks.resize(most);
}

std::string scale_text(const Recipe& recipe, std::span<const std::uint8_t> scale) {
  if (scale.empty()) return "none";
  if (recipe.family == Family::kHif4) {
    std::string out = fmt::format("0x{:02x}", scale[0]);
    for (std::size_t i = 1; i < scale.size(); ++i) out += fmt::format(" {:02x}", scale[i]);
    return out;
  }
  std::uint32_t bits = 0;
  for (std::size_t i = scale.size(); i-- > 0;) bits = bits << 8 | scale[i];
  return fmt::format("0x{:0{}x}", bits, 2 * scale.size());
}

std::string codes_text(const Recipe& recipe, std::span<const std::uint32_t> codes) {
  // Bytes of another program may be no codes of the element.
  const bool is_wide = std::any_of(codes.begin(), codes.end(), [](auto code) { return code > 15; });
  const int digits = recipe.packs_nibbles() && !is_wide ? 1 : 2 * recipe.code_bytes();
  std::string out;
  for (const std::uint32_t code : codes) out += fmt::format("{:0{}x}", code, digits);
  return out;
}

namespace {

const char* choice_text(const Recipe& recipe, bool four) {
  if (recipe.nvfp4.int4_candidate) return four ? "INT4" : "E2M1";
  return four ? "map-to-4" : "map-to-6";
}

std::string bits_text(double v, bool is_wide) {
  return is_wide ? fmt::format("0x{:016x}", bit_cast<std::uint64_t>(v))
                 : fmt::format("0x{:08x}", bit_cast<std::uint32_t>(static_cast<float>(v)));
}

Json half_json(const DifferingBlock::Half& half, const Recipe& recipe) {
  Json out = {{"scale", half.scale.empty() ? Json(nullptr) : Json(scale_text(recipe, half.scale))},
              {"codes", half.codes.empty() ? Json(nullptr) : Json(codes_text(recipe, half.codes))}};
  if (half.four) out["choice"] = choice_text(recipe, *half.four);
  if (half.error4) {
    out["error4"] = double{*half.error4};
    out["error6"] = double{*half.error6};
  }
  if (!half.values.empty()) {
    out["values"] = Json::array();
    for (const float v : half.values) out["values"].push_back(double{v});
  }
  return out;
}

std::string half_text(const DifferingBlock::Half& half, const Recipe& recipe, const char* name) {
  if (half.scale.empty() && half.codes.empty()) return "";  // values alone
  std::string line = fmt::format("  {:<8} scale {}", name, scale_text(recipe, half.scale));
  if (half.four) line += fmt::format(", {}", choice_text(recipe, *half.four));
  if (half.error4) {
    const float e4 = *half.error4, e6 = *half.error6;
    line += fmt::format(", errors {:.9g} and {:.9g}{}", e4, e6, e4 == e6 ? ": a tie" : "");
  }
  std::string out = line + '\n';
  if (!half.codes.empty()) {
    const std::string codes = codes_text(recipe, half.codes);
    for (std::size_t at = 0; at < codes.size(); at += 64) {
      out += fmt::format("  {:<8} {} {}\n", "", at == 0 ? "codes" : "     ", codes.substr(at, 64));
    }
  }
  return out;
}

}  // namespace

Json to_json(const DifferingBlock& block, const Recipe& a, const Recipe& b,
             const SideNames& names) {
  Json out = {{"row", block.row}, {"block", block.block}, {"column", block.col}};
  out["x"] = Json::array();
  out["x_bits"] = Json::array();
  for (const double v : block.x) {
    out["x"].push_back(v);
    out["x_bits"].push_back(bits_text(v, block.is_wide));
  }
  out[names.a] = half_json(block.a, a);
  out[names.b] = half_json(block.b, b);
  out["elements"] = block.elements;
  if (!block.what.empty()) out["what"] = block.what;
  out["command"] = block.command;
  if (!block.explanation.empty()) out["explanation"] = block.explanation;
  return out;
}

std::string to_text(const DifferingBlock& block, const Recipe& a, const Recipe& b,
                    const SideNames& names) {
  std::string out = fmt::format("row {}, block {} (columns {}-{})", block.row, block.block,
                                block.col, block.col + std::ssize(block.x) - 1);
  out += block.what.empty() ? "\n" : ": " + block.what + "\n";
  out += half_text(block.a, a, names.a) + half_text(block.b, b, names.b);
  constexpr std::size_t kMost = 4;  // lines of elements
  const bool same = same_elements(a, b);
  for (std::size_t k = 0; k < block.elements.size() && k < kMost; ++k) {
    const auto i = static_cast<std::size_t>(block.elements[k]);
    out += fmt::format("  element {}: x {:.9g} ({})", i, block.x[i],
                       bits_text(block.x[i], block.is_wide));
    if (same && !block.a.codes.empty() && !block.b.codes.empty()) {
      out += fmt::format("  codes {:x} {:x}", block.a.codes[i], block.b.codes[i]);
    }
    if (!block.a.values.empty() && !block.b.values.empty()) {
      out += fmt::format("  values {:.6g} {:.6g}", block.a.values[i], block.b.values[i]);
    }
    out += '\n';
  }
  if (block.elements.size() > kMost) {
    out += fmt::format("  and {} more elements\n", block.elements.size() - kMost);
  }
  if (!block.command.empty()) out += fmt::format("  {}\n", block.command);
  if (!block.explanation.empty()) out += '\n' + block.explanation + '\n';
  return out;
}

std::string explain_command(const Recipe& recipe, const std::string& operand, std::int64_t row,
                            std::int64_t block, const std::string& more) {
  return fmt::format("fp4scope explain -r {} {}{}", shell_word(to_string(recipe)),
                     shell_word(fmt::format("{}@{},{}", operand, row, block)),
                     more.empty() ? "" : " " + more);
}

}  // namespace fp4scope
