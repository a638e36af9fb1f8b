// zip_directory.h: what the directory of a zip archive lists, and where the bytes of each member
// lie. libzip reads the directory; what it takes on trust is checked here. Source: APPNOTE.TXT 6.3.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/io/mmap.h"

namespace fp4scope {

struct ZipMember {
  std::string name;         // the bytes of the directory, whatever their encoding
  std::int64_t size = 0;    // unpacked
  std::int64_t packed = 0;  // in the archive, at `offset`
  std::int64_t offset = 0;  // in the archive, of the first byte of the data
  std::uint32_t crc = 0;    // of the unpacked bytes, as the directory says
  bool stored = false;      // not compressed; else deflated
};

// In the order of the directory, without folders. Names are unique and hold no NUL; they may be
// absolute or hold "..", which does no harm, since nothing is ever written by name. No two members
// share a byte, and each lies before the directory. Throws Error(kData) for a malformed archive
// and Error(kUnsupported) for encrypted members, several disks and compression methods other than
// deflate.
std::vector<ZipMember> read_zip_directory(const MappedFile& file);

}  // namespace fp4scope
