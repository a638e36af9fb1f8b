// code_counts_test.cc: counts of nibbles against a plain loop, at every length and place.
#include "sim/code_counts.h"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "tests/support/backends.h"

using namespace fp4scope;

TEST_CASE("nibbles are counted at every length and place") {
  // Longer than some groups of the widest words, of 256 bytes.
  constexpr std::size_t kMost = 1100;
  std::vector<std::uint8_t> bytes(kMost + 8);
  std::uint32_t state = 1;
  for (std::uint8_t& b : bytes) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::uint8_t>(state >> 24);
  }
  for (std::size_t length = 0; length <= kMost; length += length < 300 ? 1 : 37) {
    for (const std::size_t at : {0u, 1u, 3u}) {
      std::array<std::int64_t, 16> before, want, got;
      for (std::size_t c = 0; c < 16; ++c) before[c] = static_cast<std::int64_t>(100 * c);
      want = got = before;
      for (std::size_t i = 0; i < length; ++i) {
        ++want[bytes[at + i] % 16];
        ++want[bytes[at + i] / 16];
      }
      count_nibbles(bytes.data() + at, length, got.data());
      REQUIRE_MESSAGE(got == want, length << " bytes at " << at);
      for (const Backend* backend : test::available_backends()) {
        got = before;
        count_nibbles(*backend, bytes.data() + at, length, got.data());
        REQUIRE_MESSAGE(got == want, length << " bytes at " << at << ", " << backend->name());
      }
    }
  }
}

TEST_CASE("one code alone") {
  for (std::size_t code = 0; code < 16; ++code) {
    const std::vector<std::uint8_t> bytes(515, static_cast<std::uint8_t>(code * 17));
    std::array<std::int64_t, 16> want{}, got{};
    want[code] = 1030;
    count_nibbles(bytes.data(), bytes.size(), got.data());
    CHECK(got == want);
  }
}
