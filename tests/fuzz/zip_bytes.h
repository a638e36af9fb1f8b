// zip_bytes.h: zip archives taken apart and put together again, without the library that the reader
// uses. What the mutator changes inside an archive would otherwise end at a checksum.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp4scope::fuzz {

struct ZipPart {
  std::string name;
  std::string content;    // unpacked
  bool deflated = false;  // how it is to be stored
};
struct ZipForm {
  bool zip64 = false;        // ZIP64 fields although nothing needs them, as NumPy writes them
  bool descriptors = false;  // sizes and checksum behind the data, as PyTorch writes them
  std::string prefix = {};   // in front of the archive
  std::string comment = {};  // at its end
};
std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipForm& form = {});
// The parts that the directory of an archive names; nothing where it cannot be followed, or where
// a part is larger than 1 MiB.
std::optional<std::vector<ZipPart>> zip_parts(std::string_view bytes);

}  // namespace fp4scope::fuzz
