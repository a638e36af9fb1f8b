// zip_bytes.h: zip archives put together record by record from APPNOTE.TXT 6.3, with every field
// that a test wants to be wrong. No library has a part in it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/container_bytes.h"

namespace fp4scope::test {

inline std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// A deflate stream of blocks that are not compressed, each of at most 65535 bytes.
inline std::string deflate_blocks(std::string_view bytes) {
  std::string out;
  do {
    const std::string_view block = bytes.substr(0, 65535);
    bytes.remove_prefix(block.size());
    out += static_cast<char>(bytes.empty() ? 1 : 0);
    out += little_endian(block.size(), 2) + little_endian(~block.size() & 0xFFFF, 2);
    out += block;
  } while (!bytes.empty());
  return out;
}

struct ZipPart {
  std::string name;
  std::string packed;  // as it lies in the archive
  int method = 0;      // 0 stored, 8 deflated
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  int flags = 0;
  std::uint32_t attributes = 0;  // external; the upper half is the mode of Unix
  bool descriptor = false;       // sizes behind the data, zeros in the local header
  bool zip64 = false;            // sizes and offset in extra fields
  std::string local_extra = {}, extra = {};
  // Instead of what follows from the rest.
  std::optional<std::string> local_name = {};
  std::optional<int> local_method = {};
  std::optional<std::uint64_t> local_size = {}, packed_size = {}, offset = {};
};

inline ZipPart stored_part(std::string name, std::string bytes) {
  ZipPart part{.name = std::move(name), .packed = std::move(bytes)};
  part.size = part.packed.size();
  part.crc = crc32_of(part.packed);
  return part;
}
inline ZipPart deflated_part(std::string name, std::string_view bytes) {
  return {.name = std::move(name),
          .packed = deflate_blocks(bytes),
          .method = 8,
          .size = bytes.size(),
          .crc = crc32_of(bytes)};
}

struct ZipEnd {
  bool zip64 = false;
  std::string comment = {};
  int disk = 0;
  std::optional<std::uint64_t> members = {}, bytes = {}, offset = {}, end64 = {};
};

// 0xFFFFFFFF says that the number is in the ZIP64 field.
inline std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  constexpr std::uint64_t kElsewhere = 0xFFFFFFFF;
  const auto n = [](std::uint64_t value, int bytes) { return little_endian(value, bytes); };
  std::string out, directory;
  for (const ZipPart& part : parts) {
    const std::uint64_t offset = part.offset.value_or(out.size());
    const std::uint64_t packed = part.packed_size.value_or(part.packed.size());
    const std::uint64_t local_size = part.local_size.value_or(part.size);
    const int flags = part.flags | (part.descriptor ? 8 : 0);
    const std::string name = part.local_name.value_or(part.name);
    const int local_method = part.local_method.value_or(part.method);
    std::string local_extra = part.local_extra, extra = part.extra;
    if (part.zip64) {
      local_extra += n(1, 2) + n(16, 2) + n(local_size, 8) + n(packed, 8);
      extra += n(1, 2) + n(24, 2) + n(part.size, 8) + n(packed, 8) + n(offset, 8);
    }
    const auto shown = [&](std::uint64_t value) { return part.zip64 ? kElsewhere : value; };
    const std::string times = n(0, 2) + n(0x21, 2);
    out += "PK\x03\x04" + n(part.zip64 ? 45 : 20, 2) + n(flags, 2) + n(local_method, 2) + times;
    out += part.descriptor ? std::string(12, '\0')
                           : n(part.crc, 4) + n(shown(packed), 4) + n(shown(local_size), 4);
    out += n(name.size(), 2) + n(local_extra.size(), 2) + name + local_extra + part.packed;
    if (part.descriptor) out += "PK\x07\x08" + n(part.crc, 4) + n(packed, 4) + n(part.size, 4);
    directory += "PK\x01\x02" + n(0x0314, 2) + n(part.zip64 ? 45 : 20, 2) + n(flags, 2) +
                 n(part.method, 2) + times + n(part.crc, 4) + n(shown(packed), 4) +
                 n(shown(part.size), 4) + n(part.name.size(), 2) + n(extra.size(), 2) + n(0, 6) +
                 n(part.attributes, 4) + n(shown(offset), 4) + part.name + extra;
  }
  const std::uint64_t start = out.size();
  const std::uint64_t members = end.members.value_or(parts.size());
  const std::uint64_t bytes = end.bytes.value_or(directory.size());
  const std::uint64_t offset = end.offset.value_or(start);
  out += directory;
  if (end.zip64) {
    const std::uint64_t at = end.end64.value_or(out.size());
    out += "PK\x06\x06" + n(44, 8) + n(45, 2) + n(45, 2) + n(end.disk, 4) + n(end.disk, 4) +
           n(members, 8) + n(members, 8) + n(bytes, 8) + n(offset, 8);
    out += "PK\x06\x07" + n(0, 4) + n(at, 8) + n(1, 4);
    return out + "PK\x05\x06" + n(0, 4) + n(0xFFFF, 2) + n(0xFFFF, 2) + n(kElsewhere, 4) +
           n(kElsewhere, 4) + n(end.comment.size(), 2) + end.comment;
  }
  return out + "PK\x05\x06" + n(end.disk, 2) + n(end.disk, 2) + n(members, 2) + n(members, 2) +
         n(bytes, 4) + n(offset, 4) + n(end.comment.size(), 2) + end.comment;
}

}  // namespace fp4scope::test
