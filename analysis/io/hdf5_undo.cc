// hdf5_undo.cc: see hdf5_undo.h. Formats: RFC 1950 for gzip; HDF5 File Format for shuffle (byte k
// of all elements together) and fletcher32 (4 bytes behind the data); liblzf for LZF.
#include "analysis/io/hdf5_undo.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

namespace fp4scope {
namespace {

using Bytes = std::vector<unsigned char>;

std::string inflate_chunk(std::size_t most, Bytes& data) {
  Bytes out(most);
  z_stream stream{};
  stream.next_in = data.data();
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  if (::inflateInit(&stream) != Z_OK) return "zlib cannot start";
  const int end = ::inflate(&stream, Z_FINISH);
  const std::size_t size = stream.total_out;
  const std::string reason = stream.msg != nullptr ? stream.msg : "";
  ::inflateEnd(&stream);
  if (end != Z_STREAM_END) {
    if (!reason.empty()) return "zlib: " + reason;
    return stream.avail_out == 0 ? fmt::format("it unpacks to more than {} bytes", most)
                                 : std::string("its compressed bytes end too early");
  }
  out.resize(size);
  data.swap(out);
  return "";
}

// A byte below 32 is followed by so many literals and one more. Otherwise its upper 3 bits are a
// length less 2 (7: plus the next byte), its lower 5 with the next byte a distance less 1.
std::string undo_lzf(std::size_t most, Bytes& data) {
  Bytes out;
  out.reserve(most);
  const std::string ends = "its LZF bytes end too early";
  for (std::size_t i = 0; i < data.size();) {
    const unsigned control = data[i++];
    if (control < 32) {
      const std::size_t count = control + 1;
      if (count > data.size() - i) return ends;
      if (count > most - out.size()) return fmt::format("it unpacks to more than {} bytes", most);
      out.insert(out.end(), data.begin() + static_cast<std::ptrdiff_t>(i),
                 data.begin() + static_cast<std::ptrdiff_t>(i + count));
      i += count;
      continue;
    }
    std::size_t count = control >> 5;
    if (count == 7) {
      if (i == data.size()) return ends;
      count += data[i++];
    }
    count += 2;
    if (i == data.size()) return ends;
    const std::size_t distance = ((control & 31u) << 8 | data[i++]) + 1;
    if (distance > out.size()) return "its LZF bytes refer to what is before the chunk";
    if (count > most - out.size()) return fmt::format("it unpacks to more than {} bytes", most);
    // Byte by byte: the copy may overlap what it writes.
    for (std::size_t k = 0; k < count; ++k) out.push_back(out[out.size() - distance]);
  }
  data.swap(out);
  return "";
}

void undo_shuffle(std::size_t element, Bytes& data) {
  if (element < 2) return;
  const std::size_t count = data.size() / element;
  Bytes out(data.size());
  for (std::size_t k = 0; k < element; ++k) {
    const unsigned char* from = data.data() + k * count;
    for (std::size_t i = 0; i < count; ++i) out[i * element + k] = from[i];
  }
  std::copy(data.begin() + static_cast<std::ptrdiff_t>(count * element), data.end(),
            out.begin() + static_cast<std::ptrdiff_t>(count * element));
  data.swap(out);
}

// Sums of big-endian 16-bit words modulo 65535, an odd last byte as the upper half of a word.
std::uint32_t fletcher32(const unsigned char* data, std::size_t size) {
  std::uint64_t sum1 = 0, sum2 = 0;
  const auto reduce = [](std::uint64_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
  };
  for (std::size_t i = 0; i < size; i += 2) {
    sum1 += static_cast<std::uint64_t>(data[i]) << 8 | (i + 1 < size ? data[i + 1] : 0);
    sum2 += sum1;
    if ((i & 0xFFF) == 0xFFE) {
      sum1 = reduce(sum1);
      sum2 = reduce(sum2);
    }
  }
  return static_cast<std::uint32_t>(reduce(sum2) << 16 | reduce(sum1));
}

std::string undo_fletcher32(Bytes& data) {
  if (data.size() < 4) return "it is too short for its checksum";
  std::uint32_t stored = 0;
  std::memcpy(&stored, data.data() + data.size() - 4, 4);
  data.resize(data.size() - 4);
  const std::uint32_t sum = fletcher32(data.data(), data.size());
  // Versions before 1.6.3 swapped the bytes of each half.
  const std::uint32_t old = (sum & 0x00FF00FF) << 8 | (sum >> 8 & 0x00FF00FF);
  return stored == sum || stored == old ? "" : "its fletcher32 checksum does not match";
}

}  // namespace

bool can_undo(const std::vector<Hdf5Filter>& filters) {
  return std::all_of(filters.begin(), filters.end(), [](const Hdf5Filter& filter) {
    return filter.number == H5Z_FILTER_DEFLATE || filter.number == H5Z_FILTER_FLETCHER32 ||
           filter.number == kLzfFilter ||
           (filter.number == kBitshuffleFilter && can_undo_bitshuffle(filter.values)) ||
           (filter.number == H5Z_FILTER_SHUFFLE && !filter.values.empty());
  });
}

std::string undo_filters(const std::vector<Hdf5Filter>& filters, std::uint32_t mask,
                         std::size_t bytes, std::vector<unsigned char>& data) {
  // A checksum inside adds 4 bytes each.
  const std::size_t most = bytes + 4 * filters.size();
  for (std::size_t i = filters.size(); i-- > 0;) {
    if (i < 32 && (mask >> i & 1) != 0) continue;
    std::string failure;
    if (filters[i].number == H5Z_FILTER_DEFLATE) {
      failure = inflate_chunk(most, data);
    } else if (filters[i].number == kLzfFilter) {
      failure = undo_lzf(most, data);
    } else if (filters[i].number == kBitshuffleFilter && can_undo_bitshuffle(filters[i].values)) {
      failure = undo_bitshuffle(filters[i].values, most, data);
    } else if (filters[i].number == H5Z_FILTER_FLETCHER32) {
      failure = undo_fletcher32(data);
    } else if (filters[i].number == H5Z_FILTER_SHUFFLE && !filters[i].values.empty()) {
      undo_shuffle(filters[i].values[0], data);
    } else {
      failure = "its filter is unknown";
    }
    if (!failure.empty()) return failure;
  }
  if (data.size() == bytes) return "";
  return fmt::format("it has {} bytes, expected {}", data.size(), bytes);
}

}  // namespace fp4scope
