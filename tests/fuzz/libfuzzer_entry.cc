// libfuzzer_entry.cc: libFuzzer's entry to one target, whose function FP4SCOPE_FUZZ_RUN names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fp4scope::fuzz::FP4SCOPE_FUZZ_RUN({reinterpret_cast<const char*>(data), size});
  return 0;
}
