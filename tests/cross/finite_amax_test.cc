// finite_amax_test.cc: sglang-online takes an infinite tensor maximum for the largest finite number
// of BF16 (nan_to_num, spec/more.md 3), measured or given with the key amax, in every backend and
// in the oracle; the contract whose arithmetic it shares does not.
#include <doctest/doctest.h>

#include "sim/backend.h"
#include "tests/support/backends.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u, kBf16Max = 0x7f7f0000u;
std::uint32_t bits(float v) {
  return bit_cast<std::uint32_t>(v);
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("sglang-online: an infinite maximum is the largest BF16 number wherever it comes from") {
  const std::string sglang = "nvfp4:contract=sglang-online";
  int compared = 0;
  for (const std::string keys :
       {"", ",scale=row", ",scale=none", ",scale=given,g=0x3f800000", ",g-rule=inv-div"}) {
    const Recipe recipe = parse_recipe(sglang + keys);
    for (const Backend* backend : backends_and_oracle()) {
      CAPTURE(keys);
      CAPTURE(name_of(*backend));
      const OuterScale32 infinite = backend->outer_scale(recipe, kInfinity);
      const OuterScale32 finite = backend->outer_scale(recipe, kBf16Max);
      CHECK(bits(infinite.amax) == kBf16Max);
      CHECK(bits(infinite.g) == bits(finite.g));
      // Neighbours stay what they are.
      CHECK(bits(backend->outer_scale(recipe, 0x7f7fffffu).amax) == 0x7f7fffffu);
      ++compared;
    }
  }
  const Recipe given = parse_recipe(sglang + ",amax=0x7f800000");
  const Recipe flashinfer = parse_recipe("nvfp4:contract=flashinfer,g-rule=inv-mul");
  for (const Backend* backend : backends_and_oracle()) {
    CAPTURE(name_of(*backend));
    const OuterScale32 finite = backend->outer_scale(parse_recipe(sglang), kBf16Max);
    CHECK(bits(backend->outer_scale(given, 0).amax) == kBf16Max);
    CHECK(bits(backend->outer_scale(given, 0).g) == bits(finite.g));
    CHECK(bits(backend->outer_scale(flashinfer, kInfinity).amax) == kInfinity);
    ++compared;
  }
  CHECK(compared >= 12);
}

TEST_SUITE_END();
