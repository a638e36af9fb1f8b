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
};
// Nothing for what is no regular file, or is not there.
std::optional<FileIdentity> identify_file(const std::string& path);
// Whether it is `before`, which was there, that is there `now`, with the same content.
bool is_unchanged(const std::optional<FileIdentity>& before,
                  const std::optional<FileIdentity>& now);
// Whether the content is that of `before` by the two times of its last change. A time that was only
// cut, to whole seconds or other units, as network file systems do some time after a write, says no
// more than before: whoever writes sets a later one.
bool is_same_time(std::int64_t seconds_before, std::int64_t nanoseconds_before,
                  std::int64_t seconds_now, std::int64_t nanoseconds_now);

}  // namespace fp4scope
