// oracle_runs.h: what the tests of the exact oracle share: recorded vectors below ../shared, a
// tensor through the oracle, and comparisons of whole planes of scales, codes or values.
#pragma once
#include <doctest/doctest.h>

#include <span>
#include <string>
#include <vector>

#include "sim/backend.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope::test {

inline nlohmann::json load_shared(const std::string& name) {
  return load_json(shared_dir() / "vectors" / name);
}
inline std::string at(const std::string& what, std::size_t i) {
  return what + " " + std::to_string(i);
}

// A tile through the oracle, with the errors of a choice; decoded when `with_values`.
inline Quantized oracle_run(const Recipe& recipe, const Tile& tile,
                            std::span<const OuterScale32> outer, bool with_values) {
  if (with_values) return quantized(oracle_backend(), recipe, tile, outer);
  Quantized q;
  q.tile.wants_errors = recipe.chooses();
  oracle_backend().quantize(recipe, tile, outer, q.tile);
  return q;
}
// With the outer scales that the recipe measures.
inline Quantized oracle_run(const Recipe& recipe, const std::vector<float>& x, std::int64_t rows) {
  return quantized(oracle_backend(), recipe, x, rows, std::ssize(x) / rows);
}
inline Quantized oracle_run(const std::string& text, const std::vector<float>& x,
                            std::int64_t rows = 1) {
  return oracle_run(parse_recipe(text), x, rows);
}

inline std::vector<std::uint32_t> words(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
// Two codes a byte, the even element in the low nibble.
inline std::vector<std::uint32_t> packed_words(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint32_t> packed;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    packed.push_back(codes[i] | static_cast<std::uint32_t>(codes[i + 1]) << 4);
  }
  return packed;
}
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values, std::size_t first = 0,
                                          std::size_t step = 1) {
  std::vector<std::uint32_t> bits;
  for (std::size_t i = first; i < values.size(); i += step) {
    bits.push_back(bit_cast<std::uint32_t>(values[i]));
  }
  return bits;
}

inline void compare_words(Diff& diff, const std::vector<std::uint32_t>& got,
                          const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < got.size(); ++i) {
    diff.compare(got[i], want[i], got[i] == want[i] ? std::string() : at(where, i));
  }
}
// NaN as NaN, -0 and +0 as different.
inline void compare_floats(Diff& diff, const std::vector<std::uint32_t>& got,
                           const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < got.size(); ++i) {
    diff.compare_float(got[i], want[i], same_float(got[i], want[i]) ? std::string() : at(where, i));
  }
}

}  // namespace fp4scope::test
