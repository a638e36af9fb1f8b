// zip_archive.h: members of a zip archive, through libzip over the mapped file. Stored members are
// read where they lie; compressed ones are unpacked into a scratch file when they are first needed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/mapped_source.h"

namespace fp4scope {

struct ZipMember {
  std::string name;
  std::int64_t size = 0;  // unpacked
  bool stored = false;    // not compressed
};

class ZipArchive {
 public:
  // Throws Error(kData) for a malformed directory, Error(kUnsupported) for an encrypted member or a
  // compression method that libzip lacks.
  ZipArchive(std::shared_ptr<MappedFile> file, std::string scratch_folder);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  // In the order of the directory; names are unique, and no folder is listed.
  const std::vector<ZipMember>& members() const;
  std::optional<std::size_t> find(std::string_view name) const;
  // The first `bytes` of a member, or all of it where it is shorter.
  std::string read_start(std::size_t member, std::int64_t bytes) const;
  // Where the bytes of a member lie: a store, which outlives this object, and an offset into it.
  // `checks_crc`: whether a stored member is compared with its CRC-32 when it is first read (a
  // compressed one always is).
  struct Data {
    std::shared_ptr<const ByteStore> store;
    std::int64_t offset = 0;
  };
  Data data(std::size_t member, bool checks_crc) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// The two kinds of archive; append_zip() chooses.
void append_npz(const ZipArchive& archive, const std::shared_ptr<MappedFile>& file,
                const OpenOptions& options, Contents& contents);
// `pickle` is the member data.pkl, in whose folder the storages lie.
void append_pytorch_zip(const ZipArchive& archive, std::size_t pickle,
                        const std::shared_ptr<MappedFile>& file, Contents& contents);

}  // namespace fp4scope
