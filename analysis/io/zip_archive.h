// zip_archive.h: the bytes of the members of a zip archive. Stored members are read where they lie;
// compressed ones are unpacked into a scratch file when they are first needed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/mapped_source.h"
#include "analysis/io/zip_directory.h"

namespace fp4scope {

// Thread-safe.
class ZipArchive {
 public:
  // Throws as read_zip_directory() does. Of the options, the scratch folder and the stop flag
  // matter.
  ZipArchive(std::shared_ptr<const MappedFile> file, const OpenOptions& options);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::vector<ZipMember>& members() const;
  std::optional<std::size_t> find(std::string_view name) const;
  // The first `bytes` of a member, or all of it where it is shorter; then they are also compared
  // with its CRC-32. Throws Error(kData).
  std::string read_start(std::size_t member, std::int64_t bytes) const;
  // Where the bytes of a member lie: a store, which outlives this object, and an offset into it.
  // `checks_crc`: whether a stored member is compared with its CRC-32 when it is first read (a
  // compressed one always is). At most kUnpackedMembers of an archive lie unpacked at a time, and
  // those that are being read.
  struct Data {
    std::shared_ptr<const ByteStore> store;
    std::int64_t offset = 0;
  };
  Data data(std::size_t member, bool checks_crc) const;
  static constexpr std::size_t kUnpackedMembers = 4;

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

// The two kinds of archive; append_zip() chooses.
void append_npz(const ZipArchive& archive, const std::shared_ptr<MappedFile>& file,
                const OpenOptions& options, Contents& contents);
// `pickle` is the member data.pkl, in whose folder the storages lie.
void append_pytorch_zip(const ZipArchive& archive, std::size_t pickle,
                        const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                        Contents& contents);

}  // namespace fp4scope
