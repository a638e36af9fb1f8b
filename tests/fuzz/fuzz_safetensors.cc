// fuzz_safetensors.cc: a safetensors file.
#include "tests/fuzz/read_everything.h"

namespace fp4scope::fuzz {

void run_safetensors(std::string_view bytes) {
  if (bytes.size() <= 8) return;  // the kind of such a file is not found out
  open_and_read(bytes, append_safetensors);
}

}  // namespace fp4scope::fuzz
