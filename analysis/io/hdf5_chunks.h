// hdf5_chunks.h: rectangles of chunked datasets, from chunks that are taken out of the file as they
// are stored and unpacked by hdf5_undo.h.
#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/io/hdf5_library.h"
#include "analysis/io/hdf5_undo.h"

namespace fp4scope {

// A rectangle of a dataset: the first index and the extent of each dimension.
struct Hdf5Block {
  std::vector<hsize_t> start, count;
};

class ChunkReader {
 public:
  // Keeps unpacked chunks of at most `cache_bytes`, and at least one. `chunk_bytes` is what one
  // takes, at most 1 GiB. With `plain_edges`, chunks that reach over the end of the dataset went
  // through no filter.
  ChunkReader(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk,
              std::vector<Hdf5Filter> filters, bool plain_edges, std::int64_t element_bytes,
              std::int64_t chunk_bytes, std::int64_t cache_bytes);
  // Copies `block` into `out`, row-major. Chunks that were never written are read by the library,
  // which knows the fill value. An empty string, or the reason why not.
  std::string read(hid_t dataset, hid_t memory_type, const Hdf5Block& block, unsigned char* out);
  // Of all chunks so far that were taken out of the file, also again, without what lies outside of
  // the dataset.
  std::int64_t unpacked_bytes() const { return unpacked_bytes_; }

 private:
  using Bytes = std::vector<unsigned char>;
  struct Entry {
    std::int64_t index;
    Bytes bytes;
  };
  // Null with `failure` empty: the file has no such chunk.
  const Bytes* chunk(hid_t dataset, const std::vector<hsize_t>& origin, std::string& failure);
  void copy(const Bytes& chunk, const std::vector<hsize_t>& origin, const Hdf5Block& part,
            const Hdf5Block& block, unsigned char* out) const;

  std::vector<std::int64_t> shape_, chunk_;
  std::vector<Hdf5Filter> filters_;
  bool plain_edges_;
  std::int64_t element_bytes_, chunk_bytes_, cache_bytes_;
  std::int64_t unpacked_bytes_ = 0;
  std::list<Entry> cache_;  // the last used first
  std::unordered_map<std::int64_t, std::list<Entry>::iterator> by_index_;
};

}  // namespace fp4scope
