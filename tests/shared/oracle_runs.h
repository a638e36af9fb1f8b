// oracle_runs.h: what the tests of the exact oracle share: recorded vectors and outputs of the real
// projects below ../shared, and a tensor through the oracle as plain words.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sim/backend.h"
#include "tests/shared/peers.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope::test {

inline nlohmann::json load_shared(const std::string& name) {
  return load_json(shared_dir() / "vectors" / name);
}
inline std::string at(const std::string& what, std::size_t i) {
  return what + " " + std::to_string(i);
}
inline std::vector<std::uint32_t> words(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
inline std::vector<float> bf16_floats(const std::string& text) {
  std::vector<float> x;
  for (const std::uint32_t w : hex_words(text, 4)) x.push_back(bit_cast<float>(w << 16));
  return x;
}
inline void compare_all(Diff& diff, const std::vector<std::uint32_t>& got,
                        const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < got.size(); ++i) diff.compare(got[i], want[i], at(where, i));
}
// Decoded values: bit for bit, any NaN equals any NaN, -0 is not +0.
inline void compare_values(Diff& diff, const std::vector<float>& got,
                           const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < got.size(); ++i) {
    diff.compare_float(bit_cast<std::uint32_t>(got[i]), want[i], at(where, i));
  }
}

inline Quantized oracle_run(const Recipe& recipe, const std::vector<float>& x, std::int64_t rows) {
  return quantized(oracle_backend(), recipe, x, rows, std::ssize(x) / rows);
}

}  // namespace fp4scope::test
