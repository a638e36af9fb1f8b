// stored_support.h: bytes in memory as a stored tensor, and refusals, for the tests of
// analysis/compare/stored.h.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "analysis/compare/stored.h"
#include "sim/error.h"
#include "tests/support/stored_files.h"

namespace fp4scope::test {

// Bytes in memory as a tensor [n] of U8.
class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(std::move(bytes)), tensors_(1) {
    TensorInfo& t = tensors_[0];
    t.name.assign(1, 't');
    t.dtype = DType::kU8;
    t.dtype_text = std::string("U8");
    t.elements = t.bytes = std::ssize(bytes_);
    t.shape = {t.bytes};
    t.file = std::string("memory");
  }
  Bytes& bytes() { return bytes_; }
  TensorInfo& tensor() { return tensors_[0]; }
  TensorBytes all() const { return {*this, tensors_[0]}; }

  const SourceInfo& info() const override { return info_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                float*) const override {
    FAIL("bytes are no numbers");
  }
  void read_f64(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                double*) const override {
    FAIL("bytes are no numbers");
  }
  void read_raw(const TensorInfo& t, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override {
    REQUIRE((row >= 0 && rows >= 0 && col >= 0 && cols >= 0 && row + rows <= t.rows() &&
             col + cols <= t.cols()));
    auto* to = static_cast<std::uint8_t*>(out);
    for (std::int64_t r = row; r < row + rows; ++r) {
      to = std::copy_n(bytes_.data() + r * t.cols() + col, cols, to);
    }
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }

 private:
  Bytes bytes_;
  SourceInfo info_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// Deterministic bytes below `limit`, none of them 0 where `nonzero`.
inline Bytes some_bytes(std::int64_t n, int limit, bool nonzero, std::uint32_t seed) {
  Bytes out;
  std::uint32_t state = seed * 2654435761u + 1u;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const int low = nonzero ? 1 : 0;
    out.push_back(static_cast<std::uint8_t>(low + static_cast<int>(state >> 16) % (limit - low)));
  }
  return out;
}

template <class F>
std::string refusal(F&& f, ErrorKind kind = ErrorKind::kData) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  FAIL("nothing was refused");
  return {};
}

}  // namespace fp4scope::test
