// fuzz_npy.cc: an npy file, without a hint and with those that give a type to plain bytes.
#include "tests/fuzz/read_everything.h"

namespace fp4scope::fuzz {

void run_npy(std::string_view bytes) {
  if (!bytes.starts_with("\x93NUMPY")) return;
  for (const char* hint : {"", "bf16", "e4m3", "raw"}) {
    open_and_read(bytes, [&](const std::shared_ptr<MappedFile>& file, Contents& contents) {
      append_npy(file, hint, contents);
    });
  }
}

}  // namespace fp4scope::fuzz
