// oracle_runs.h: what the tests of the exact oracle share: recorded vectors and outputs of the real
// projects below ../shared, and a tensor through the oracle as plain words.
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
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

// ../shared/vectors/peers/peers.safetensors.
inline constexpr const char* kPeersFile = "vectors/peers/peers.safetensors";
class Peers {
 public:
  Peers() : source_(open_source((shared_dir() / kPeersFile).string())) {}
  const TensorInfo& info(const std::string& name) const {
    for (const TensorInfo& t : source_->tensors()) {
      if (t.name == name) return t;
    }
    FAIL("no tensor ", name);
    return source_->tensors().front();
  }
  std::vector<float> floats(const std::string& name) const {
    const TensorInfo& t = info(name);
    std::vector<float> v(static_cast<std::size_t>(t.elements));
    source_->read_f32(t, 0, t.rows(), 0, t.cols(), v.data());
    return v;
  }
  std::vector<std::uint8_t> bytes(const std::string& name) const {
    const TensorInfo& t = info(name);
    std::vector<std::uint8_t> v(static_cast<std::size_t>(t.bytes));
    source_->read_raw(t, 0, t.rows(), 0, t.cols(), v.data());
    return v;
  }

 private:
  std::unique_ptr<TensorSource> source_;
};

}  // namespace fp4scope::test
