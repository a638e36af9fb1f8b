// zip_bytes.cc: see zip_bytes.h. Layout: PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3.
#include "tests/fuzz/zip_bytes.h"

#include <zlib.h>

#include <array>

#include "tests/support/container_bytes.h"

namespace fp4scope::fuzz {
namespace {

using test::little_endian;

constexpr std::size_t kMostUnpacked = 1 << 20;
constexpr std::size_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22;
constexpr int kStored = 0, kDeflated = 8;
constexpr std::uint64_t kIn64 = 0xFFFFFFFF;  // "the value is in the ZIP64 field"

std::string deflate_raw(std::string_view content) {
  z_stream stream{};
  // Negative window bits: no zlib header.
  if (deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::optional<std::string> inflate_raw(std::string_view packed) {
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return std::nullopt;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string out;
  std::array<char, 4096> piece;
  int status = Z_OK;
  while (status == Z_OK && out.size() <= kMostUnpacked) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = piece.size();
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END || out.size() > kMostUnpacked) return std::nullopt;
  return out;
}

std::uint64_t number(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

}  // namespace

std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipForm& form) {
  std::string out = form.prefix;
  std::string directory;
  for (const ZipPart& part : parts) {
    const std::string packed = part.deflated ? deflate_raw(part.content) : part.content;
    const std::uint32_t crc =
        static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(part.content.data()),
                                         static_cast<uInt>(part.content.size())));
    const std::uint64_t offset = out.size() - form.prefix.size();
    const int flags = form.descriptors ? 8 : 0;
    const std::string common = little_endian(form.zip64 ? 45 : 20, 2) + little_endian(flags, 2) +
                               little_endian(part.deflated ? kDeflated : kStored, 2) +
                               little_endian(0x00210000, 4);
    const std::string sizes64 =
        little_endian(part.content.size(), 8) + little_endian(packed.size(), 8);
    const std::string sizes =
        form.zip64 ? little_endian(kIn64, 4) + little_endian(kIn64, 4)
                   : little_endian(packed.size(), 4) + little_endian(part.content.size(), 4);
    const std::string extra =
        form.zip64 ? little_endian(1, 2) + little_endian(16, 2) + sizes64 : std::string();
    out += "PK\x03\x04" + common +
           (form.descriptors ? std::string(12, '\0') : little_endian(crc, 4) + sizes) +
           little_endian(part.name.size(), 2) +
           little_endian(form.descriptors ? 0 : extra.size(), 2) + part.name +
           (form.descriptors ? std::string() : extra) + packed;
    if (form.descriptors) {
      out += "PK\x07\x08" + little_endian(crc, 4) + little_endian(packed.size(), 4) +
             little_endian(part.content.size(), 4);
    }
    directory += "PK\x01\x02" + little_endian(form.zip64 ? 45 : 20, 2) + common +
                 little_endian(crc, 4) + sizes + little_endian(part.name.size(), 2) +
                 little_endian(extra.size(), 2) + std::string(10, '\0') + std::string(2, '\0') +
                 little_endian(offset, 4) + part.name + extra;
  }
  const std::uint64_t start = out.size() - form.prefix.size();
  out += directory;
  if (form.zip64) {
    const std::uint64_t end64 = out.size() - form.prefix.size();
    out += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
           std::string(8, '\0') + little_endian(parts.size(), 8) + little_endian(parts.size(), 8) +
           little_endian(directory.size(), 8) + little_endian(start, 8);
    out += "PK\x06\x07" + std::string(4, '\0') + little_endian(end64, 8) + little_endian(1, 4);
  }
  return out + "PK\x05\x06" + std::string(4, '\0') + little_endian(parts.size(), 2) +
         little_endian(parts.size(), 2) + little_endian(directory.size(), 4) +
         little_endian(start, 4) + little_endian(form.comment.size(), 2) + form.comment;
}

std::optional<std::vector<ZipPart>> zip_parts(std::string_view bytes) {
  const std::size_t end = bytes.rfind("PK\x05\x06");
  if (end == std::string_view::npos || bytes.size() - end < kEndBytes) return std::nullopt;
  const std::uint64_t count = number(bytes, end + 10, 2);
  const std::uint64_t directory_size = number(bytes, end + 12, 4);
  const std::uint64_t directory_start = number(bytes, end + 16, 4);
  // With ZIP64 the record of the directory lies between; its signature is looked for instead.
  std::size_t at = bytes.find("PK\x01\x02");
  if (directory_start < bytes.size() && directory_start + directory_size <= end &&
      bytes.substr(directory_start).starts_with("PK\x01\x02")) {
    at = directory_start;
  }
  std::vector<ZipPart> parts;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at > bytes.size() || bytes.size() - at < kDirectoryBytes ||
        !bytes.substr(at).starts_with("PK\x01\x02")) {
      return std::nullopt;
    }
    const std::uint64_t method = number(bytes, at + 10, 2);
    std::uint64_t packed = number(bytes, at + 20, 4);
    const std::uint64_t name_bytes = number(bytes, at + 28, 2);
    const std::uint64_t extra_bytes = number(bytes, at + 30, 2);
    const std::uint64_t comment_bytes = number(bytes, at + 32, 2);
    const std::uint64_t local = number(bytes, at + 42, 4);
    if (bytes.size() - at - kDirectoryBytes < name_bytes + extra_bytes) return std::nullopt;
    ZipPart part{
        std::string(bytes.substr(at + kDirectoryBytes, name_bytes)), {}, method == kDeflated};
    const std::size_t extra = at + kDirectoryBytes + name_bytes;
    if (packed == kIn64 && extra_bytes >= 20 && number(bytes, extra, 2) == 1) {
      packed = number(bytes, extra + 12, 8);
    }
    if (local > bytes.size() || bytes.size() - local < kLocalBytes) return std::nullopt;
    const std::size_t data =
        local + kLocalBytes + number(bytes, local + 26, 2) + number(bytes, local + 28, 2);
    if (data > bytes.size() || packed > bytes.size() - data || packed > kMostUnpacked) {
      return std::nullopt;
    }
    if (method == kDeflated) {
      std::optional<std::string> content = inflate_raw(bytes.substr(data, packed));
      if (!content) return std::nullopt;
      part.content = std::move(*content);
    } else {
      part.content = bytes.substr(data, packed);
    }
    parts.push_back(std::move(part));
    at += kDirectoryBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return parts;
}

}  // namespace fp4scope::fuzz
