// fuzz_hdf5.cc: an HDF5 file, through the process that the library runs in. Its crashes end there.
#include "analysis/io/hdf5_source.h"
#include "tests/fuzz/read_everything.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::fuzz {

void run_hdf5(std::string_view bytes) {
  if (bytes.empty()) return;
  static const test::TempDir dir;
  static const std::string path = dir.file("file.h5");
  test::write_file(path, bytes);
  (void)accepts([] {
    const auto source = open_hdf5(path, std::make_shared<MappedFile>(path));
    read_everything(*source);
  });
}

}  // namespace fp4scope::fuzz
