// hdf5_bitshuffle.cc: the reverse of the bitshuffle filter (number 32008), plain and with LZ4,
// which no package of Debian 12 has. Source: kiyo-masui/bitshuffle, src/bshuf_h5filter.c and
// bitshuffle_core.c; LZ4 block format, lz4/doc/lz4_Block_format.md.
//
// n elements (a multiple of 8) of a block are a matrix of bits, stored transposed: row 8 b + k, of
// n / 8 bytes, holds bit k of byte b of all of them, that of element i in bit i % 8 of byte i / 8.
// Elements beyond the last multiple of 8 lie at the end as they are.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analysis/io/hdf5_undo.h"

namespace fp4scope {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr unsigned kLz4 = 2;
const char* const kEnds = "its bitshuffle bytes end too early";

std::uint64_t big_endian(const unsigned char* bytes, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

void transpose_block(const unsigned char* in, std::size_t elements, std::size_t bytes,
                     unsigned char* out) {
  const std::size_t row = elements / 8;
  for (std::size_t b = 0; b < bytes; ++b) {
    for (std::size_t group = 0; group < row; ++group) {
      unsigned char values[8] = {};
      for (unsigned k = 0; k < 8; ++k) {
        const unsigned bits = in[(8 * b + k) * row + group];
        for (unsigned i = 0; i < 8; ++i) {
          values[i] = static_cast<unsigned char>(values[i] | (bits >> i & 1u) << k);
        }
      }
      for (std::size_t i = 0; i < 8; ++i) out[(8 * group + i) * bytes + b] = values[i];
    }
  }
}

// A length of 15 goes on in bytes until one is below 255.
bool take_length(const unsigned char*& in, const unsigned char* end, std::size_t& length) {
  if (length != 15) return true;
  unsigned byte = 255;
  while (byte == 255) {
    if (in == end) return false;
    byte = *in++;
    length += byte;
  }
  return true;
}

// Exactly `size` bytes.
bool undo_lz4(const unsigned char* in, const unsigned char* end, unsigned char* out,
              std::size_t size) {
  std::size_t done = 0;
  while (in != end) {
    const unsigned token = *in++;
    std::size_t literals = token >> 4;
    if (!take_length(in, end, literals)) return false;
    if (literals > static_cast<std::size_t>(end - in) || literals > size - done) return false;
    std::copy_n(in, literals, out + done);
    in += literals;
    done += literals;
    if (in == end) break;  // the last sequence has no match
    if (end - in < 2) return false;
    const std::size_t distance = in[0] | static_cast<std::size_t>(in[1]) << 8;
    in += 2;
    std::size_t length = token & 15;
    if (!take_length(in, end, length)) return false;
    length += 4;
    if (distance == 0 || distance > done || length > size - done) return false;
    for (std::size_t i = 0; i < length; ++i, ++done) out[done] = out[done - distance];
  }
  return done == size;
}

}  // namespace

bool can_undo_bitshuffle(const std::vector<unsigned>& values) {
  return values.size() >= 3 && values[2] > 0 &&
         (values.size() < 5 || values[4] == 0 || values[4] == kLz4);
}

std::string undo_bitshuffle(const std::vector<unsigned>& values, std::size_t most, Bytes& data) {
  const std::size_t bytes = values[2];  // of an element
  std::size_t block = values.size() > 3 ? values[3] : 0, total = data.size(), at = 0;
  const bool packed = values.size() > 4 && values[4] == kLz4;
  if (packed) {
    if (data.size() < 12) return kEnds;
    total = big_endian(data.data(), 8);
    block = big_endian(data.data() + 8, 4) / bytes;
    at = 12;
  } else if (block == 0) {
    block = std::max<std::size_t>(8192 / bytes / 8 * 8, 128);
  }
  if (total > most) return fmt::format("it unpacks to more than {} bytes", most);
  if (block == 0 || block % 8 != 0)
    return fmt::format("its bitshuffle block has {} elements", block);
  Bytes out(total), unpacked;
  const std::size_t elements = total / bytes;
  for (std::size_t first = 0; first + 8 <= elements;) {
    const std::size_t count = std::min(block, (elements - first) / 8 * 8);
    const std::size_t size = count * bytes;
    const unsigned char* bits = data.data() + at;
    if (packed) {
      if (data.size() - at < 4) return kEnds;
      const std::size_t stored = big_endian(bits, 4);
      at += 4;
      if (stored > data.size() - at) return kEnds;
      unpacked.resize(size);
      if (!undo_lz4(data.data() + at, data.data() + at + stored, unpacked.data(), size)) {
        return "its LZ4 bytes are damaged";
      }
      bits = unpacked.data();
      at += stored;
    } else {
      if (size > data.size() - at) return kEnds;
      at += size;
    }
    transpose_block(bits, count, bytes, out.data() + first * bytes);
    first += count;
  }
  const std::size_t rest = total - elements / 8 * 8 * bytes;
  if (rest > data.size() - at) return kEnds;
  std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(at), rest,
              out.end() - static_cast<std::ptrdiff_t>(rest));
  data.swap(out);
  return "";
}

}  // namespace fp4scope
