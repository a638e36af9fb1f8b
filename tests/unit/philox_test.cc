// philox_test.cc: our Philox4x32-10 against Random123 (Debian librandom123-dev), in every lane
// width.
#include "formats/philox.h"

#include <Random123/philox.h>
#include <doctest/doctest.h>

namespace fp4scope {
namespace {

struct Words {
  std::uint32_t counter[4], key[2];
};

// Corner words and an integer sequence, so that every carry of the 32x32-bit product occurs.
Words input(std::uint32_t i) {
  const std::uint32_t corners[] = {0u,          1u,          0xffffu,    0x10000u,
                                   0x7fffffffu, 0x80000000u, 0xffffffffu};
  Words w{};
  std::uint64_t state = i * 0x9e3779b97f4a7c15ull + 1;
  const auto next = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto r = static_cast<std::uint32_t>(state >> 32);
    return i % 3 == 0 ? corners[r % 7] : r;
  };
  for (std::uint32_t& c : w.counter) c = next();
  for (std::uint32_t& k : w.key) k = next();
  return w;
}

template <int W>
int differences(std::uint32_t first) {
  using L = Lane<W>;
  typename L::U counter[4]{}, key[2]{}, out[4]{};
  for (int l = 0; l < W; ++l) {
    const Words w = input(first + static_cast<std::uint32_t>(l));
    for (int i = 0; i < 4; ++i) counter[i][l] = w.counter[i];
    for (int i = 0; i < 2; ++i) key[i][l] = w.key[i];
  }
  philox4x32_10<L>(counter, key, out);
  int differing = 0;
  for (int l = 0; l < W; ++l) {
    const Words w = input(first + static_cast<std::uint32_t>(l));
    const r123::Philox4x32::ctr_type c = {{w.counter[0], w.counter[1], w.counter[2], w.counter[3]}};
    const r123::Philox4x32::key_type k = {{w.key[0], w.key[1]}};
    const auto want = r123::Philox4x32()(c, k);
    for (std::size_t i = 0; i < 4; ++i) differing += out[i][l] != want[i];
  }
  return differing;
}

TEST_CASE("Philox equals Random123 on 48000 counters and keys, in lanes of 8 and 16") {
  int differing = 0;
  for (std::uint32_t i = 0; i < 48000; i += 16) differing += differences<16>(i);
  for (std::uint32_t i = 0; i < 48000; i += 8) differing += differences<8>(i);
  CHECK(differing == 0);
}

TEST_CASE("Philox as a scalar equals Random123") {
  int differing = 0;
  for (std::uint32_t i = 0; i < 48000; ++i) {
    const Words w = input(i);
    std::uint32_t out[4];
    philox4x32_10<Lane<1>>(w.counter, w.key, out);
    const r123::Philox4x32::ctr_type c = {{w.counter[0], w.counter[1], w.counter[2], w.counter[3]}};
    const r123::Philox4x32::key_type k = {{w.key[0], w.key[1]}};
    const auto want = r123::Philox4x32()(c, k);
    for (std::size_t j = 0; j < 4; ++j) differing += out[j] != want[j];
  }
  CHECK(differing == 0);
}

}  // namespace
}  // namespace fp4scope
