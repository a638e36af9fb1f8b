// fuzz_zip.cc: a zip archive: npz, or a PyTorch file.
#include <filesystem>

#include "tests/fuzz/read_everything.h"

namespace fp4scope::fuzz {

void run_zip(std::string_view bytes) {
  OpenOptions options;
  options.scratch_folder = std::filesystem::temp_directory_path();
  open_and_read(bytes, [&](const std::shared_ptr<MappedFile>& file, Contents& contents) {
    append_zip(file, options, contents);
  });
}

}  // namespace fp4scope::fuzz
