// hdf5_chunks.cc: see hdf5_chunks.h.
#include "analysis/io/hdf5_chunks.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fp4scope {
namespace {

// Steps `at` through first..last, the last dimension fastest; false at the end. `dimensions` of
// them take part.
bool advance(const std::vector<hsize_t>& first, const std::vector<hsize_t>& last,
             std::size_t dimensions, std::vector<hsize_t>& at) {
  for (std::size_t d = dimensions; d-- > 0;) {
    if (++at[d] <= last[d]) return true;
    at[d] = first[d];
  }
  return false;
}

}  // namespace

ChunkReader::ChunkReader(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk,
                         std::vector<Hdf5Filter> filters, bool plain_edges,
                         std::int64_t element_bytes, std::int64_t chunk_bytes,
                         std::int64_t cache_bytes)
    : shape_(std::move(shape)),
      chunk_(std::move(chunk)),
      filters_(std::move(filters)),
      plain_edges_(plain_edges),
      element_bytes_(element_bytes),
      chunk_bytes_(chunk_bytes),
      cache_bytes_(cache_bytes) {}

const ChunkReader::Bytes* ChunkReader::chunk(hid_t dataset, const std::vector<hsize_t>& origin,
                                             std::string& failure) {
  std::int64_t index = 0;  // below the number of elements
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    const std::int64_t chunks = (shape_[d] - 1) / chunk_[d] + 1;
    index = index * chunks + static_cast<std::int64_t>(origin[d]) / chunk_[d];
  }
  if (const auto found = by_index_.find(index); found != by_index_.end()) {
    cache_.splice(cache_.begin(), cache_, found->second);
    return &cache_.front().bytes;
  }
  hsize_t stored = 0;
  if (H5Dget_chunk_storage_size(dataset, origin.data(), &stored) < 0 || stored == 0) {
    H5Eclear2(H5E_DEFAULT);
    return nullptr;
  }
  // Filters add little to what they cannot pack.
  const auto most = static_cast<hsize_t>(chunk_bytes_ + chunk_bytes_ / 8 + 4096);
  if (stored > most) {
    failure = "a chunk of " + std::to_string(chunk_bytes_) + " bytes is stored in " +
              std::to_string(stored);
    return nullptr;
  }
  while (!cache_.empty() &&
         static_cast<std::int64_t>(cache_.size() + 1) * chunk_bytes_ > cache_bytes_) {
    by_index_.erase(cache_.back().index);
    cache_.pop_back();
  }
  Bytes bytes(stored);
  std::uint32_t mask = 0;
  if (H5Dread_chunk(dataset, H5P_DEFAULT, origin.data(), &mask, bytes.data()) < 0) {
    failure = hdf5_error();
    return nullptr;
  }
  // The mask of such a chunk does not say so.
  if (plain_edges_) {
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (shape_[d] - static_cast<std::int64_t>(origin[d]) < chunk_[d]) mask = ~0u;
    }
  }
  failure = undo_filters(filters_, mask, static_cast<std::size_t>(chunk_bytes_), bytes);
  if (!failure.empty()) {
    std::string place;
    for (const hsize_t at : origin) place += (place.empty() ? "" : ", ") + std::to_string(at);
    failure = "the chunk at [" + place + "] is damaged: " + failure;
    return nullptr;
  }
  std::int64_t inside = element_bytes_;
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    inside *= std::min(chunk_[d], shape_[d] - static_cast<std::int64_t>(origin[d]));
  }
  unpacked_bytes_ += inside;
  cache_.push_front({index, std::move(bytes)});
  by_index_[index] = cache_.begin();
  return &cache_.front().bytes;
}

// The elements of `part`, which lies in `block` and in the chunk that starts at `origin`.
void ChunkReader::copy(const Bytes& chunk, const std::vector<hsize_t>& origin,
                       const Hdf5Block& part, const Hdf5Block& block, unsigned char* out) const {
  const std::size_t rank = shape_.size();
  std::vector<hsize_t> last(rank), at = part.start;
  for (std::size_t d = 0; d < rank; ++d) last[d] = part.start[d] + part.count[d] - 1;
  const std::size_t run = part.count.back() * static_cast<std::size_t>(element_bytes_);
  do {
    std::size_t from = 0, to = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      from = from * static_cast<std::size_t>(chunk_[d]) + (at[d] - origin[d]);
      to = to * block.count[d] + (at[d] - block.start[d]);
    }
    std::memcpy(out + to * static_cast<std::size_t>(element_bytes_),
                chunk.data() + from * static_cast<std::size_t>(element_bytes_), run);
  } while (advance(part.start, last, rank - 1, at));
}

std::string ChunkReader::read(hid_t dataset, hid_t memory_type, const Hdf5Block& block,
                              unsigned char* out) {
  const std::size_t rank = shape_.size();
  std::vector<hsize_t> first(rank), last(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const auto extent = static_cast<hsize_t>(chunk_[d]);
    first[d] = block.start[d] / extent;
    last[d] = (block.start[d] + block.count[d] - 1) / extent;
  }
  std::vector<hsize_t> at = first, origin(rank);
  do {
    Hdf5Block part{origin, origin};
    std::vector<hsize_t> inside(rank);  // where the part starts in the block
    for (std::size_t d = 0; d < rank; ++d) {
      const auto extent = static_cast<hsize_t>(chunk_[d]);
      origin[d] = at[d] * extent;
      part.start[d] = std::max(origin[d], block.start[d]);
      part.count[d] = std::min(origin[d] + extent, block.start[d] + block.count[d]) - part.start[d];
      inside[d] = part.start[d] - block.start[d];
    }
    std::string failure;
    if (const Bytes* bytes = chunk(dataset, origin, failure)) {
      copy(*bytes, origin, part, block, out);
      continue;
    }
    if (!failure.empty()) return failure;
    const Hid space(H5Dget_space(dataset));
    const Hid memory(H5Screate_simple(static_cast<int>(rank), block.count.data(), nullptr));
    if (!space || !memory ||
        H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, part.start.data(), nullptr,
                            part.count.data(), nullptr) < 0 ||
        H5Sselect_hyperslab(memory.get(), H5S_SELECT_SET, inside.data(), nullptr, part.count.data(),
                            nullptr) < 0 ||
        H5Dread(dataset, memory_type, memory.get(), space.get(), H5P_DEFAULT, out) < 0) {
      return hdf5_error();
    }
  } while (advance(first, last, rank, at));
  return "";
}

}  // namespace fp4scope
