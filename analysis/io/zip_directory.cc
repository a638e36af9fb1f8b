// zip_directory.cc: see zip_directory.h. libzip tells neither where its directory lies nor where
// the data of a member begins, so the source that it reads from notes which positions it asks for.
#include "analysis/io/zip_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kEndBytes = 22;            // of the end record without its comment
constexpr std::int64_t kMostComment = 65535;      // behind the end record
constexpr std::int64_t kLocatorBytes = 20;        // of the ZIP64 locator
constexpr std::int64_t kEnd64Bytes = 56;          // of the ZIP64 end record
constexpr std::int64_t kLocalBytes = 30;          // of a local header without name and extra field
constexpr std::int64_t kDirectoryBytes = 46;      // of the shortest entry of the directory
constexpr unsigned kAes = 99;                     // stands for a compression method
constexpr std::int64_t kDeflateMostRatio = 1100;  // deflate reaches 1032

[[noreturn]] void refuse(const MappedFile& file, const std::string& what,
                         ErrorKind kind = ErrorKind::kData) {
  throw Error(kind, fmt::format("{}: the zip archive {}", printable(file.path()), what));
}

// Little-endian, of at most 8 bytes.
std::uint64_t number(const MappedFile& file, std::int64_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | file.data()[at + i];
  return value;
}

struct EndRecord {
  std::uint64_t members = 0;
  std::int64_t directory = 0;  // offset
  bool zip64 = false;
  bool empty = false;  // the directory has no bytes
};

bool has_magic(const MappedFile& file, std::int64_t at, std::string_view magic) {
  return file.text(at, std::ssize(magic)) == magic;
}

// The end record whose comment ends with the file, else the last one.
std::int64_t find_end_record(const MappedFile& file) {
  const std::int64_t last = file.size() - kEndBytes;
  std::optional<std::int64_t> whole, cut;
  for (std::int64_t at = last; at >= std::max<std::int64_t>(0, last - kMostComment); --at) {
    if (!has_magic(file, at, "PK\x05\x06")) continue;
    const std::int64_t end = at + kEndBytes + static_cast<std::int64_t>(number(file, at + 20, 2));
    if (end > file.size()) continue;
    if (end < file.size()) {
      if (!cut) cut = at;
      continue;
    }
    if (whole) refuse(file, "has two end records, expected one");
    whole = at;
  }
  if (!whole && !cut) refuse(file, "has no end record (truncated?)");
  return whole ? *whole : *cut;
}

// Also bounds what libzip allocates, which believes the number of members.
EndRecord read_end_record(const MappedFile& file) {
  std::int64_t at = find_end_record(file);
  const auto check_disks = [&](std::uint64_t disk, std::uint64_t directory_disk) {
    if (disk == 0 && directory_disk == 0) return;
    refuse(file, "is one of several disks, expected a whole archive", ErrorKind::kUnsupported);
  };
  EndRecord record;
  const std::int64_t locator = at - kLocatorBytes;
  record.zip64 = locator >= 0 && has_magic(file, locator, "PK\x06\x07");
  std::uint64_t here = 0, bytes = 0, offset = 0;
  if (record.zip64) {
    check_disks(number(file, locator + 4, 4), 0);
    const std::uint64_t end64 = number(file, locator + 8, 8);
    if (locator < kEnd64Bytes || end64 > static_cast<std::uint64_t>(locator - kEnd64Bytes) ||
        !has_magic(file, static_cast<std::int64_t>(end64), "PK\x06\x06")) {
      refuse(file, fmt::format("has no ZIP64 end record at byte {}", end64));
    }
    at = static_cast<std::int64_t>(end64);
    check_disks(number(file, at + 16, 4), number(file, at + 20, 4));
    here = number(file, at + 24, 8);
    record.members = number(file, at + 32, 8);
    bytes = number(file, at + 40, 8);
    offset = number(file, at + 48, 8);
  } else {
    check_disks(number(file, at + 4, 2), number(file, at + 6, 2));
    here = number(file, at + 8, 2);
    record.members = number(file, at + 10, 2);
    bytes = number(file, at + 12, 4);
    offset = number(file, at + 16, 4);
  }
  const auto end = static_cast<std::uint64_t>(at);
  if (offset > end || bytes > end - offset) {
    refuse(file, fmt::format("claims a directory of {} bytes at byte {}, but its end record is at "
                             "byte {}",
                             bytes, offset, at));
  }
  if (here != record.members || record.members > bytes / kDirectoryBytes) {
    refuse(file,
           fmt::format("claims {} members in a directory of {} bytes", record.members, bytes));
  }
  record.directory = static_cast<std::int64_t>(offset);
  record.empty = bytes == 0;
  return record;
}

// A compression method with the name that APPNOTE.TXT 4.4.5 gives it.
std::string method_text(unsigned method) {
  static constexpr std::pair<unsigned, const char*> kNames[] = {
      {1, "shrink"}, {6, "implode"},   {9, "deflate64"},  {10, "IBM TERSE"}, {12, "bzip2"},
      {14, "LZMA"},  {19, "IBM LZ77"}, {20, "Zstandard"}, {93, "Zstandard"}, {94, "MP3"},
      {95, "xz"},    {96, "JPEG"},     {97, "WavPack"},   {98, "PPMd"}};
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& entry) { return entry.first == method; });
  if (found == std::end(kNames)) return std::to_string(method);
  return fmt::format("{} ({})", method, found->second);
}

[[noreturn]] void refuse_encryption(const MappedFile& file, std::string_view name, bool aes) {
  throw Error(
      ErrorKind::kUnsupported,
      fmt::format("{}: member {} of the zip archive is encrypted{}, which this program does "
                  "not read; unpack it first",
                  printable(file.path()), in_quotes(name),
                  aes ? fmt::format(" (AES, method {})", kAes) : ""));
}
[[noreturn]] void refuse_method(const MappedFile& file, std::string_view name, unsigned method) {
  throw Error(
      ErrorKind::kUnsupported,
      fmt::format("{}: member {} of the zip archive has the compression method {}, expected "
                  "0 (stored) or 8 (deflate)",
                  printable(file.path()), in_quotes(name), method_text(method)));
}

// libzip calls some archives inconsistent that only hold what it does not know.
void refuse_unknown_members(const MappedFile& file, const EndRecord& end) {
  std::int64_t at = end.directory;
  for (std::uint64_t i = 0; i < end.members; ++i) {
    if (at > file.size() - kDirectoryBytes || !has_magic(file, at, "PK\x01\x02")) return;
    const auto name_bytes = static_cast<std::int64_t>(number(file, at + 28, 2));
    if (name_bytes > file.size() - at - kDirectoryBytes) return;
    const std::string_view name = file.text(at + kDirectoryBytes, name_bytes);
    const auto method = static_cast<unsigned>(number(file, at + 10, 2));
    if (method == kAes || (number(file, at + 8, 2) & 1) != 0) {
      refuse_encryption(file, name, method == kAes);
    }
    if (method != 0 && method != 8) refuse_method(file, name, method);
    at += kDirectoryBytes + name_bytes + static_cast<std::int64_t>(number(file, at + 30, 2)) +
          static_cast<std::int64_t>(number(file, at + 32, 2));
  }
}

// What libzip reads from: the mapping, without a second open of the path.
struct Reader {
  explicit Reader(const MappedFile& mapped) : file(mapped) { zip_error_init(&error); }
  ~Reader() { zip_error_fini(&error); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const MappedFile& file;
  std::int64_t at = 0;
  std::int64_t first_read = -1, last_read = -1;  // positions since they were last reset
  zip_error_t error;
};

zip_int64_t serve(void* user, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
  auto& reader = *static_cast<Reader*>(user);
  switch (command) {
    case ZIP_SOURCE_OPEN:
      reader.at = 0;
      return 0;
    case ZIP_SOURCE_READ: {
      const auto rest = static_cast<zip_uint64_t>(reader.file.size() - reader.at);
      const zip_uint64_t count = std::min(bytes, rest);
      std::memcpy(data, reader.file.data() + reader.at, count);
      if (reader.first_read < 0) reader.first_read = reader.at;
      reader.last_read = reader.at;
      reader.at += static_cast<std::int64_t>(count);
      return static_cast<zip_int64_t>(count);
    }
    case ZIP_SOURCE_SEEK: {
      const zip_int64_t to = zip_source_seek_compute_offset(
          static_cast<zip_uint64_t>(reader.at), static_cast<zip_uint64_t>(reader.file.size()), data,
          bytes, &reader.error);
      if (to < 0) return -1;
      reader.at = to;
      return 0;
    }
    case ZIP_SOURCE_TELL:
      return reader.at;
    case ZIP_SOURCE_STAT: {
      auto* status = ZIP_SOURCE_GET_ARGS(zip_stat_t, data, bytes, &reader.error);
      if (status == nullptr) return -1;
      zip_stat_init(status);
      status->size = static_cast<zip_uint64_t>(reader.file.size());
      status->valid |= ZIP_STAT_SIZE;
      return sizeof(*status);
    }
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&reader.error, data, bytes);
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_SEEKABLE;
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
      return 0;
    default:
      zip_error_set(&reader.error, ZIP_ER_OPNOTSUPP, 0);
      return -1;
  }
}

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseFile {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

using Archive = std::unique_ptr<zip_t, Discard>;

Archive open_archive(Reader& reader, const EndRecord& end) {
  zip_error_t error;
  zip_error_init(&error);
  const auto fail = [&]() {
    const int code = zip_error_code_zip(&error);
    // libzip's text for an extra field that it misses is about files.
    const std::string text =
        code == ZIP_ER_NOENT ? "a ZIP64 field is missing" : zip_error_strerror(&error);
    zip_error_fini(&error);
    if (code == ZIP_ER_MEMORY) throw std::bad_alloc();
    refuse_unknown_members(reader.file, end);
    refuse(reader.file, fmt::format("has a malformed directory: {}", text),
           code == ZIP_ER_MULTIDISK ? ErrorKind::kUnsupported : ErrorKind::kData);
  };
  zip_source_t* source = zip_source_function_create(serve, &reader, &error);
  if (source == nullptr) fail();
  Archive archive(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (archive == nullptr) {
    zip_source_free(source);
    fail();
  }
  zip_error_fini(&error);
  return archive;
}

class DirectoryReader {
 public:
  DirectoryReader(const MappedFile& file, zip_t* archive, Reader& reader, const EndRecord& end)
      : file_(file), archive_(archive), reader_(reader), end_(end) {}

  std::vector<ZipMember> read() {
    const zip_int64_t count = zip_get_num_entries(archive_, ZIP_FL_UNCHANGED);
    const auto found = static_cast<std::uint64_t>(std::max<zip_int64_t>(count, 0));
    // Without ZIP64, some writers count modulo 65536, which libzip knows.
    if ((end_.zip64 ? found : found % 65536) != end_.members) {
      refuse(file_,
             fmt::format("has {} members where its end record counts {}", found, end_.members));
    }
    std::vector<ZipMember> members;
    members.reserve(found);
    std::vector<Extent> extents;
    extents.reserve(found);
    for (std::uint64_t i = 0; i < found; ++i) {
      ZipMember member = entry(i);
      // Folders have names that end so, and no bytes.
      if (member.name.ends_with('/') && member.size == 0) continue;
      const std::int64_t start = locate(i, member);
      if (member.packed > 0) {
        extents.push_back({start, member.offset + member.packed, members.size()});
      }
      members.push_back(std::move(member));
    }
    check_names(members);
    check_overlaps(members, extents);
    return members;
  }

 private:
  struct Extent {
    std::int64_t start, end;  // local header and data
    std::size_t member;
  };

  [[noreturn]] void refuse_member(const std::string& name, const std::string& what,
                                  ErrorKind kind = ErrorKind::kData) const {
    throw Error(kind, fmt::format("{}: member {} of the zip archive {}", printable(file_.path()),
                                  in_quotes(name), what));
  }

  ZipMember entry(std::uint64_t index) const {
    zip_stat_t status;
    const char* name = zip_get_name(archive_, index, ZIP_FL_UNCHANGED | ZIP_FL_ENC_RAW);
    if (name == nullptr || zip_stat_index(archive_, index, ZIP_FL_UNCHANGED, &status) != 0) {
      refuse(file_, fmt::format("has a malformed entry {} in its directory: {}", index,
                                zip_strerror(archive_)));
    }
    ZipMember member;
    member.name = name;
    constexpr zip_uint64_t kNeeded =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_CRC;
    // Before what it lacks: such a member may have no CRC-32.
    if ((status.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 &&
        status.encryption_method != ZIP_EM_NONE) {
      refuse_encryption(file_, member.name,
                        status.encryption_method != ZIP_EM_TRAD_PKWARE &&
                            status.encryption_method != ZIP_EM_UNKNOWN);
    }
    if ((status.valid & kNeeded) != kNeeded) refuse_member(member.name, "has no size");
    if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
      refuse_method(file_, member.name, status.comp_method);
    }
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    if (zip_file_get_external_attributes(archive_, index, ZIP_FL_UNCHANGED, &system, &attributes) ==
            0 &&
        system == ZIP_OPSYS_UNIX && S_ISLNK(attributes >> 16)) {
      refuse_member(member.name, "is a symbolic link, expected data");
    }
    member.stored = status.comp_method == ZIP_CM_STORE;
    const auto most = static_cast<std::uint64_t>(end_.directory);
    if (status.comp_size > most) {
      refuse_member(member.name,
                    fmt::format("claims {} bytes, but only {} lie before the directory",
                                status.comp_size, most));
    }
    if (member.stored && status.size != status.comp_size) {
      refuse_member(member.name, fmt::format("is stored, but with two sizes, {} and {} bytes",
                                             status.size, status.comp_size));
    }
    // comp_size is that of bytes in the file, so the product fits for any real file.
    if (status.size / kDeflateMostRatio > status.comp_size) {
      refuse_member(member.name, fmt::format("claims {} bytes from {} compressed ones, more than "
                                             "deflate can pack",
                                             status.size, status.comp_size));
    }
    member.size = static_cast<std::int64_t>(status.size);
    member.packed = static_cast<std::int64_t>(status.comp_size);
    member.crc = status.crc;
    return member;
  }

  // Sets member.offset; returns where the local header starts, 0 without data.
  std::int64_t locate(std::uint64_t index, ZipMember& member) const {
    reader_.first_read = -1;
    const std::unique_ptr<zip_file_t, CloseFile> opened(
        zip_fopen_index(archive_, index, ZIP_FL_UNCHANGED | ZIP_FL_COMPRESSED));
    if (opened == nullptr) {
      const int code = zip_error_code_zip(zip_get_error(archive_));
      if (code == ZIP_ER_MEMORY) throw std::bad_alloc();
      const bool behind =
          code == ZIP_ER_INVAL || code == ZIP_ER_SEEK || code == ZIP_ER_READ || code == ZIP_ER_EOF;
      refuse_member(member.name, behind ? "has its local header behind the end of the archive"
                                        : fmt::format("cannot be found in it: {}",
                                                      zip_error_strerror(zip_get_error(archive_))));
    }
    // libzip does not look for what has no bytes, and nothing will be read there.
    if (member.packed == 0) return 0;
    // libzip reads the lengths of name and extra field (bytes 26 to 30), or the whole header.
    const std::int64_t seen = reader_.first_read;
    std::int64_t header = -1;
    for (const std::int64_t start : {seen - 26, seen}) {
      if (header < 0 && start >= 0 && start <= end_.directory - kLocalBytes &&
          has_magic(file_, start, "PK\x03\x04")) {
        header = start;
      }
    }
    if (seen < 0 || header < 0) refuse_member(member.name, "has no local header where it should");
    const auto name_bytes = static_cast<std::int64_t>(number(file_, header + 26, 2));
    const auto extra_bytes = static_cast<std::int64_t>(number(file_, header + 28, 2));
    member.offset = header + kLocalBytes + name_bytes + extra_bytes;
    if (member.packed > end_.directory - member.offset) {
      refuse_member(member.name, fmt::format("has {} bytes from byte {}, but the directory begins "
                                             "at byte {}",
                                             member.packed, member.offset, end_.directory));
    }
    check_local(header, name_bytes, member);
    char byte = 0;
    if (zip_fread(opened.get(), &byte, 1) != 1 || reader_.last_read != member.offset) {
      refuse_member(member.name, "has no data where its local header says");
    }
    return header;
  }

  // The two headers of a member have to say the same; a data descriptor or ZIP64 leaves sizes out.
  void check_local(std::int64_t header, std::int64_t name_bytes, const ZipMember& member) const {
    if (file_.text(header + kLocalBytes, name_bytes) != member.name) {
      refuse_member(member.name,
                    fmt::format("has another name in its local header, {}",
                                in_quotes(file_.text(header + kLocalBytes, name_bytes))));
    }
    const std::uint64_t flags = number(file_, header + 6, 2), method = number(file_, header + 8, 2);
    if (method != (member.stored ? 0u : 8u) || (flags & 1) != 0) {
      refuse_member(member.name, "has another compression method in its local header");
    }
    constexpr std::uint64_t kDescriptor = 8, kElsewhere = 0xFFFFFFFF;
    const std::uint64_t packed = number(file_, header + 18, 4);
    const std::uint64_t size = number(file_, header + 22, 4);
    if ((flags & kDescriptor) != 0) return;
    if ((packed != kElsewhere && packed != static_cast<std::uint64_t>(member.packed)) ||
        (size != kElsewhere && size != static_cast<std::uint64_t>(member.size))) {
      refuse_member(member.name,
                    fmt::format("has {} and {} bytes in its local header, {} and {} in the "
                                "directory",
                                packed, size, member.packed, member.size));
    }
  }

  void check_names(const std::vector<ZipMember>& members) const {
    std::unordered_set<std::string_view> seen;
    for (const ZipMember& member : members) {
      if (!seen.insert(member.name).second) refuse_member(member.name, "is there twice");
    }
  }

  void check_overlaps(const std::vector<ZipMember>& members, std::vector<Extent>& extents) const {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.start < b.start; });
    for (std::size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].start >= extents[i - 1].end) continue;
      refuse_member(
          members[extents[i].member].name,
          fmt::format("lies inside member {}", in_quotes(members[extents[i - 1].member].name)));
    }
  }

  const MappedFile& file_;
  zip_t* archive_;
  Reader& reader_;
  EndRecord end_;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(const MappedFile& file) {
  const EndRecord end = read_end_record(file);
  if (end.empty) return {};
  Reader reader(file);
  const Archive archive = open_archive(reader, end);
  return DirectoryReader(file, archive.get(), reader, end).read();
}

}  // namespace fp4scope
