// hdf5_dataset.h: one dataset of an HDF5 file: how its elements are stored, and rectangles of it.
// Runs in the process of hdf5_worker.h; the file is damaged until proven otherwise.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/io/hdf5_chunks.h"
#include "analysis/io/hdf5_library.h"
#include "analysis/io/hdf5_record.h"

namespace fp4scope {

// The type of the elements, as far as plain bytes can hold them.
struct Hdf5Type {
  DType dtype = DType::kOther;
  std::string text;                 // as expected.json of data/containers spells them
  bool known = true;                // false: a number format without a name here
  std::vector<std::int64_t> inner;  // dimensions of an array type
  std::int32_t bytes = 0;           // per element of these; 0: cannot be read
  std::int32_t swapped = 0;
  bool converts = false;  // an integer with padding bits, which the library has to widen
};
Hdf5Type describe_type(hid_t type);
// The type to ask for: the stored one, so that nothing is converted, or a plain integer.
Hid memory_type(hid_t stored, const Hdf5Type& described);

// Chunks, filters and storage in other files: what decides how, and whether, data can be read.
struct Hdf5Layout {
  bool chunked = false;
  std::vector<std::int64_t> chunk;  // extents, in elements
  std::int64_t chunk_bytes = 0;     // unpacked
  std::vector<Hdf5Filter> filters;  // in the order of writing
  bool plain_edges = false;         // chunks that reach over the end went through no filter
  std::string missing_filters;      // for a sentence; empty: all of them are here
  Hdf5Status refusal = Hdf5Status::kOk;
  std::string reason;
};
// `element_bytes` is the size of an element in the file; 0: of a type that cannot be read, whose
// size in memory may be another. `file_bytes` is the size of the file, against which chunks are
// weighed.
Hdf5Layout describe_layout(hid_t dataset, std::int64_t element_bytes, std::int64_t file_bytes);

// What the library says about a thing that it cannot open. Files of newer versions of HDF5 are
// well-formed, and not supported here.
struct Hdf5Failure {
  Hdf5Status status;
  std::string reason;
};
Hdf5Failure cannot_open();

// Extents of the data space; false for more than 63 bits of elements. A null space is [0].
bool read_shape(hid_t dataset, std::vector<std::int64_t>& shape);

// Everything for the listing but the name.
Hdf5Dataset describe_dataset(hid_t dataset, std::int64_t file_bytes);

// A dataset opened for reading.
class OpenDataset {
 public:
  // Check refusal() first.
  OpenDataset(hid_t file, const std::string& path, std::int64_t file_bytes);
  const Hdf5Layout& layout() const { return layout_; }
  std::int64_t element_bytes() const { return element_bytes_; }
  // Rows of the flattened dataset into `out`, which has room for kHdf5Window bytes. An empty
  // string, or the reason why not.
  std::string read(const Hdf5Request& rectangle, unsigned char* out);
  // As in Hdf5Reply: since the dataset was opened, and for the whole of it.
  std::int64_t unpacked_bytes() const { return chunks_ ? chunks_->unpacked_bytes() : 0; }
  std::int64_t columns_at_once() const;
  // Bytes that one read may need beside `out`: chunks, once packed and unpacked, and their cache.
  std::int64_t working_bytes() const { return cache_bytes_ + 4 * layout_.chunk_bytes; }

 private:
  // False: the library cannot; its error is pending.
  bool open(hid_t file, const std::string& path, std::int64_t file_bytes);
  std::string read_block(const Hdf5Block& block, unsigned char* out);

  Hid dataset_, memory_type_;
  std::vector<std::int64_t> shape_;
  std::int64_t element_bytes_ = 0;
  std::int64_t cache_bytes_ = 0;
  Hdf5Layout layout_;
  std::optional<ChunkReader> chunks_;  // nothing: the library reads the chunks
};

}  // namespace fp4scope
