// peers.h: outputs of the real projects on one tensor, ../shared/vectors/peers/peers.safetensors
// (../shared/vectors/README.md section 6). Only where have_shared(kPeers).
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "tests/support/vectors.h"

namespace fp4scope::test {

inline constexpr const char* kPeers = "vectors/peers/peers.safetensors";

class Peers {
 public:
  Peers() : source_(open_source((shared_dir() / kPeers).string())) {}
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
  // The stored elements, whose size is that of T.
  template <class T>
  std::vector<T> raw(const std::string& name) const {
    const TensorInfo& t = info(name);
    std::vector<T> v(static_cast<std::size_t>(t.elements));
    REQUIRE(static_cast<std::size_t>(t.bytes) == v.size() * sizeof(T));
    source_->read_raw(t, 0, t.rows(), 0, t.cols(), v.data());
    return v;
  }
  std::vector<std::uint8_t> bytes(const std::string& name) const { return raw<std::uint8_t>(name); }

 private:
  std::unique_ptr<TensorSource> source_;
};

}  // namespace fp4scope::test
