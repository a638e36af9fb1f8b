// zip_archive.cc: see zip_archive.h. Deflated members are unpacked from the mapping by zlib, front
// to back, and never further than the size that the directory gives.
#include "analysis/io/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "analysis/io/message.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

[[noreturn]] void refuse(const MappedFile& file, const ZipMember& member, const std::string& what) {
  throw Error(ErrorKind::kData, fmt::format("{}: member {} of the zip archive {}",
                                            printable(file.path()), in_quotes(member.name), what));
}

void stop_if_asked(const std::atomic<bool>* stop) {
  if (stop != nullptr && *stop) throw Error(ErrorKind::kData, "interrupted");
}

void check_crc(const MappedFile& file, const ZipMember& member, unsigned long found) {
  if (found == member.crc) return;
  // A page that could not be read counts as zeros.
  file.check();
  refuse(file, member,
         fmt::format("is damaged: CRC-32 {:08x}, expected {:08x}", found, member.crc));
}

// Unpacks the first `bytes` of a deflated member piece by piece into sink(data, bytes).
template <class Sink>
void inflate_member(const MappedFile& file, const ZipMember& member, std::int64_t bytes,
                    const std::atomic<bool>* stop, Sink&& sink) {
  struct Stream {
    Stream() {
      // No zlib header: negative.
      if (inflateInit2(&z, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    }
    ~Stream() { inflateEnd(&z); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    z_stream z{};
  } stream;
  z_stream& z = stream.z;
  // One byte more than there is shows that the member does not end there.
  const bool whole = bytes >= member.size;
  std::int64_t wanted = whole ? member.size + 1 : bytes;
  std::vector<unsigned char> piece(static_cast<std::size_t>(std::min(wanted, kPieceBytes)));
  std::int64_t taken = 0;
  unsigned long crc = crc32(0, nullptr, 0);
  int status = Z_OK;
  while (wanted > 0 && status != Z_STREAM_END) {
    stop_if_asked(stop);
    z.next_out = piece.data();
    z.avail_out = static_cast<uInt>(std::min(wanted, std::ssize(piece)));
    const uInt room = z.avail_out;
    while (z.avail_out > 0 && status != Z_STREAM_END) {
      const std::int64_t offered = std::min(member.packed - taken, kPieceBytes);
      // zlib does not write to its input.
      z.next_in = const_cast<unsigned char*>(file.data()) + member.offset + taken;
      z.avail_in = static_cast<uInt>(offered);
      status = inflate(&z, Z_NO_FLUSH);
      const std::int64_t used = offered - z.avail_in;
      taken += used;
      file.note_read(used);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_BUF_ERROR || (status == Z_OK && z.avail_out > 0 && taken == member.packed)) {
        file.check();
        refuse(file, member, "ends in the middle of its compressed data (truncated?)");
      }
      if (status != Z_OK && status != Z_STREAM_END) {
        file.check();
        refuse(
            file, member,
            fmt::format("has malformed compressed data: {}", z.msg != nullptr ? z.msg : "unknown"));
      }
    }
    const uInt got = room - z.avail_out;
    wanted -= got;
    if (whole && wanted == 0) {
      refuse(file, member,
             fmt::format("unpacks to more than the {} bytes that it claims", member.size));
    }
    crc = crc32(crc, piece.data(), got);
    sink(piece.data(), static_cast<std::size_t>(got));
  }
  if (wanted == 0) return;  // the start was asked for
  const std::int64_t found = (whole ? member.size + 1 : bytes) - wanted;
  if (found != member.size) {
    refuse(file, member, fmt::format("claims {} bytes, but unpacks to {}", member.size, found));
  }
  check_crc(file, member, crc);
}

unsigned long stored_crc(const MappedFile& file, const ZipMember& member,
                         const std::atomic<bool>* stop) {
  unsigned long crc = crc32(0, nullptr, 0);
  for (std::int64_t done = 0; done < member.size;) {
    stop_if_asked(stop);
    const std::int64_t count = std::min(member.size - done, kPieceBytes);
    crc = crc32(crc, file.data() + member.offset + done, static_cast<uInt>(count));
    file.note_read(count);
    done += count;
  }
  return crc;
}

}  // namespace

struct ZipArchive::Impl {
  std::shared_ptr<const MappedFile> file;
  std::string scratch_folder;
  const std::atomic<bool>* stop;
  std::vector<ZipMember> members;
  std::unordered_map<std::string_view, std::size_t> index;

  std::shared_ptr<const MappedFile> unpacked(std::size_t member) const;

 private:
  std::shared_ptr<const MappedFile> find_unpacked(std::size_t member) const;

  struct Unpacked {
    std::size_t member;
    std::shared_ptr<const MappedFile> bytes;
  };
  mutable std::mutex unpacking_;  // one member at a time; taken before list_
  mutable std::mutex list_;
  mutable std::vector<Unpacked> recent_;  // the most recently used one last
};

std::shared_ptr<const MappedFile> ZipArchive::Impl::find_unpacked(std::size_t member) const {
  const std::lock_guard lock(list_);
  const auto found = std::find_if(recent_.begin(), recent_.end(),
                                  [&](const Unpacked& u) { return u.member == member; });
  if (found == recent_.end()) return nullptr;
  std::rotate(found, found + 1, recent_.end());
  return recent_.back().bytes;
}

std::shared_ptr<const MappedFile> ZipArchive::Impl::unpacked(std::size_t member) const {
  if (auto bytes = find_unpacked(member)) return bytes;
  const std::lock_guard lock(unpacking_);
  if (auto bytes = find_unpacked(member)) return bytes;
  const ZipMember& entry = members[member];
  const std::string name =
      fmt::format("member {} of {}", in_quotes(entry.name), printable(file->path()));
  ScratchFile scratch(scratch_folder, name);
  inflate_member(*file, entry, entry.size, stop,
                 [&](const void* data, std::size_t bytes) { scratch.write(data, bytes); });
  file->check();
  std::shared_ptr<const MappedFile> bytes = scratch.finish(name);
  const std::lock_guard list_lock(list_);
  if (recent_.size() == kUnpackedMembers) recent_.erase(recent_.begin());
  recent_.push_back({member, bytes});
  return bytes;
}

namespace {

class StoredMember final : public ByteStore {
 public:
  StoredMember(std::shared_ptr<const ZipArchive::Impl> archive, std::size_t member, bool checks_crc)
      : archive_(std::move(archive)), member_(member), checked_(!checks_crc) {}

  std::shared_ptr<const MappedFile> bytes() const override {
    const std::lock_guard lock(mutex_);
    if (!checked_) {
      const ZipMember& member = archive_->members[member_];
      if (!crc_) crc_ = stored_crc(*archive_->file, member, archive_->stop);
      check_crc(*archive_->file, member, *crc_);
      archive_->file->check();
      checked_ = true;
    }
    return archive_->file;
  }

 private:
  std::shared_ptr<const ZipArchive::Impl> archive_;
  std::size_t member_;
  mutable std::mutex mutex_;
  mutable bool checked_;
  mutable std::optional<unsigned long> crc_;
};

class DeflatedMember final : public ByteStore {
 public:
  DeflatedMember(std::shared_ptr<const ZipArchive::Impl> archive, std::size_t member)
      : archive_(std::move(archive)), member_(member) {}
  std::shared_ptr<const MappedFile> bytes() const override { return archive_->unpacked(member_); }

 private:
  std::shared_ptr<const ZipArchive::Impl> archive_;
  std::size_t member_;
};

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->members = read_zip_directory(*file);
  file->check();
  impl->file = std::move(file);
  impl->scratch_folder = options.scratch_folder;
  impl->stop = options.stop;
  for (std::size_t i = 0; i < impl->members.size(); ++i) {
    impl->index.emplace(impl->members[i].name, i);
  }
  impl_ = std::move(impl);
}

ZipArchive::~ZipArchive() = default;

const std::vector<ZipMember>& ZipArchive::members() const {
  return impl_->members;
}

std::optional<std::size_t> ZipArchive::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  if (found == impl_->index.end()) return std::nullopt;
  return found->second;
}

std::string ZipArchive::read_start(std::size_t member, std::int64_t bytes) const {
  const ZipMember& entry = impl_->members[member];
  const MappedFile& file = *impl_->file;
  std::string out;
  if (entry.stored) {
    if (bytes >= entry.size) check_crc(file, entry, stored_crc(file, entry, impl_->stop));
    out = file.text(entry.offset, std::min(bytes, entry.size));
  } else {
    inflate_member(file, entry, bytes, impl_->stop, [&](const void* data, std::size_t count) {
      out.append(static_cast<const char*>(data), count);
    });
  }
  file.check();
  return out;
}

ZipArchive::Data ZipArchive::data(std::size_t member, bool checks_crc) const {
  const ZipMember& entry = impl_->members[member];
  if (entry.stored) {
    return {std::make_shared<StoredMember>(impl_, member, checks_crc), entry.offset};
  }
  // Nothing to unpack, and no file of no bytes can be mapped.
  if (entry.size == 0) {
    return {std::make_shared<StoredMember>(impl_, member, false), entry.offset};
  }
  return {std::make_shared<DeflatedMember>(impl_, member), 0};
}

}  // namespace fp4scope
