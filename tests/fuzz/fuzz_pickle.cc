// fuzz_pickle.cc: a PyTorch file, zip or legacy. What is neither is taken for the pickle of a zip
// file with a few storages.
#include <filesystem>

#include "tests/fuzz/read_everything.h"
#include "tests/fuzz/zip_bytes.h"

namespace fp4scope::fuzz {
namespace {

std::string around_pickle(std::string_view pickle) {
  std::vector<ZipPart> parts = {{"archive/data.pkl", std::string(pickle)},
                                {"archive/byteorder", "little"},
                                {"archive/version", "3\n"}};
  for (int i = 0; i < 4; ++i) {
    parts.push_back({"archive/data/" + std::to_string(i), std::string(24u << i, '\x3f')});
  }
  return zip_bytes(parts);
}

}  // namespace

void run_pickle(std::string_view bytes) {
  OpenOptions options;
  options.scratch_folder = std::filesystem::temp_directory_path();
  const auto zip = [&](const std::shared_ptr<MappedFile>& file, Contents& contents) {
    append_zip(file, options, contents);
  };
  if (bytes.starts_with("PK")) {
    open_and_read(bytes, zip);
    return;
  }
  open_and_read(bytes, [&](const std::shared_ptr<MappedFile>& file, Contents& contents) {
    append_pytorch_legacy(file, options, contents);
  });
  open_and_read(around_pickle(bytes), zip);
}

}  // namespace fp4scope::fuzz
