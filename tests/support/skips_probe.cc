// skips_probe.cc: passes, says that it cannot run, or fails, by test case. skips.sh runs it and
// looks at what main and ctest make of each mixture.
#include <doctest/doctest.h>

#include "tests/support/paths.h"

TEST_CASE("passes") {
  CHECK(1 + 1 == 2);
}
TEST_CASE("skips") {
  if (!fp4scope::test::have_shared("a file that nobody has")) return;
  FAIL("the file is there");
}
TEST_CASE("fails") {
  CHECK(1 + 1 == 3);
}
TEST_CASE("throws") {
  throw 1;
}
