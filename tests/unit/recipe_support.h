// recipe_support.h: comparing recipes and refusals in the tests of recipe text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/recipe.h"

namespace fp4scope::test {

// Two geometries that a codec cannot tell apart.
inline bool same_format(const BlockFormat& a, const BlockFormat& b) {
  bool same = a.element == b.element && a.block == b.block && a.num_levels == b.num_levels &&
              a.scale_bytes == b.scale_bytes && a.block_rows == b.block_rows && a.lut == b.lut;
  for (std::size_t i = 0; same && i < static_cast<std::size_t>(a.num_levels); ++i) {
    same = a.levels[i].kind == b.levels[i].kind && a.levels[i].spec == b.levels[i].spec &&
           a.levels[i].group == b.levels[i].group;
  }
  return same;
}
// Everything that can change a bit or a byte order; `text` may differ between two spellings.
inline bool same_bits(const Recipe& a, const Recipe& b) {
  return a.contract == b.contract && a.family == b.family && a.format.name == b.format.name &&
         same_format(a.format, b.format) && a.shape == b.shape && a.mx == b.mx &&
         a.nvfp4 == b.nvfp4 && a.hif4 == b.hif4 && a.int4 == b.int4 && a.fp8 == b.fp8 &&
         a.rht == b.rht && a.sr == b.sr && a.native == b.native &&
         a.source_refuses_ragged == b.source_refuses_ragged && a.note == b.note;
}

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// The sentence of a usage error; empty when the recipe is legal. Other errors pass.
inline std::string refusal(std::string_view typed,
                           std::shared_ptr<const FormatLibrary> library = nullptr) {
  try {
    (void)parse_recipe(typed, std::move(library));
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;
    return error.what();
  }
}

}  // namespace fp4scope::test
