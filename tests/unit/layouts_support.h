// layouts_support.h: what the tests of sim/layouts share.
#pragma once
#include <doctest/doctest.h>

#include <random>
#include <string_view>
#include <vector>

#include "sim/error.h"

namespace fp4scope::test {

using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint32_t>;

inline std::size_t size_of(std::int64_t n) {
  return static_cast<std::size_t>(n);
}
inline Bytes random_bytes(std::int64_t n, unsigned below, std::mt19937& random) {
  Bytes out(size_of(n));
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(random() % below);
  return out;
}
// The kind of the one Error that f throws.
template <class F>
ErrorKind kind_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).size() > 10);
    return error.kind();
  }
  FAIL("nothing was refused");
  return {};
}

}  // namespace fp4scope::test
