// vector_backends_test.cc: what a green run on this machine did not run. The other tests here go
// over the backends that the processor has; a backend that it lacks is a skipped test of its own.
#include <doctest/doctest.h>

#include "tests/support/backends.h"
#include "tests/support/paths.h"
#include "tests/support/quantized.h"

using namespace fp4scope;

TEST_CASE("every CPU backend of this build runs on this machine") {
  const Recipe recipe = parse_recipe("mxfp4");
  const std::vector<float> x(64, 1.25f);
  const auto want = test::quantized(*cpu_backends().back(), recipe, x, 2, 32).values;
  for (const Backend* backend : cpu_backends()) {
    if (const Support support = backend->available(); !support.ok) {
      test::skip("backend " + test::name_of(*backend) + ": " + support.reason);
    } else {
      CHECK(test::quantized(*backend, recipe, x, 2, 32).values == want);
    }
  }
}
