// containers_formats_test.cc: the container fixtures of ../shared, which may not be committed.
#include "tests/support/expected_containers.h"

using namespace fp4scope;

TEST_CASE("every tensor of shared/tensors/formats has the bytes that its own reader finds") {
  if (!test::have_shared("tensors/formats")) return;
  test::check_folder("formats", test::shared_dir() / "tensors/formats");
}
