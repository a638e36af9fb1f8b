// The start-up check notices what other libraries may have done to the floating-point environment.
#include "tools/float_environment.h"

#include <doctest/doctest.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

using fp4scope::float_environment_fault;

TEST_CASE("the default environment is accepted") {
  CHECK(float_environment_fault() == "");
}

TEST_CASE("every other rounding mode is refused") {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    const std::string fault = float_environment_fault();
    std::fesetround(FE_TONEAREST);
    CHECK(fault.find("rounding mode") != std::string::npos);
  }
}

#if defined(__SSE__)
TEST_CASE("flush-to-zero and denormals-are-zero are refused") {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8000);  // FTZ
  const std::string flushed = float_environment_fault();
  _mm_setcsr(saved | 0x0040);  // DAZ
  const std::string zeroed = float_environment_fault();
  _mm_setcsr(saved);
  CHECK(flushed.find("results") != std::string::npos);
  CHECK(zeroed.find("operands") != std::string::npos);
}
#endif
