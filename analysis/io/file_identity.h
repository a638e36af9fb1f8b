// file_identity.h: whether a path still names the same, unchanged file, for those that open it a
// second time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace fp4scope {

struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  std::int64_t size = 0, seconds = 0, nanoseconds = 0;  // time of the last change of the content
  bool operator==(const FileIdentity&) const = default;
};
// Nothing for what is no regular file, or is not there.
std::optional<FileIdentity> identify_file(const std::string& path);

}  // namespace fp4scope
