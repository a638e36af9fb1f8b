// fuzz_gguf.cc: a GGUF file.
#include "tests/fuzz/read_everything.h"

namespace fp4scope::fuzz {

void run_gguf(std::string_view bytes) {
  open_and_read(bytes, append_gguf);
}

}  // namespace fp4scope::fuzz
