// posix_file.h: system calls on open files, repeated where a signal interrupts them. Errors come
// back as errno values; callers know the file and make the sentence.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4scope {

// Fills `bytes`, which gets shorter only where the file ends. Returns errno, or 0.
int read_at(int fd, std::int64_t offset, std::string& bytes);
// Writes all of `bytes`. Returns errno, or 0.
int write_at(int fd, std::int64_t offset, std::string_view bytes);
// Returns errno, or 0.
int sync_file(int fd);       // with its size and times
int sync_file_data(int fd);  // what is needed to read it again
// Makes new, renamed and removed names of the folder of `path` durable, on file systems that can.
void sync_folder_of(const std::string& path);

// For files that one process at a time works on; the lock ends with the last descriptor.
enum class Lock { kTaken, kHeldByOther, kNone };  // kNone: this file system has no locks
Lock try_lock(int fd);
// Whether `path` is (still) the name of the open file.
bool is_name_of(int fd, const std::string& path);

}  // namespace fp4scope
