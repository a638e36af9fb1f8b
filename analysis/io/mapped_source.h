// mapped_source.h: the one TensorSource over mapped files. The parsers of containers only fill
// `Contents`: which tensors there are and where and how each is stored.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/io/mmap.h"
#include "analysis/io/tensor_source.h"

namespace fp4scope {

// Elements stored in blocks of several with shared fields, as GGUF has them. Blocks run along the
// last dimension, whose extent is a multiple of `elements`.
struct BlockCodec {
  int elements = 0;   // per block, at most kMostBlockElements
  int bytes = 0;      // stored, per block
  int out_bytes = 0;  // of one element that decode() writes
  void (*decode)(const unsigned char* block, unsigned char* out) = nullptr;
};
inline constexpr int kMostBlockElements = 256;

// Where the elements of a tensor lie.
struct Storage {
  std::size_t file = 0;     // index into Contents::files
  std::int64_t offset = 0;  // first byte of the data
  int bits = 0;             // per element that a reader gets; 0: unknown dtype, cannot be read
  bool big_endian = false;
  // Elements from one index to the next, per dimension, 0 or more; empty: row-major without gaps.
  // Only for whole bytes. The reader of the container has checked that all elements lie inside.
  std::vector<std::int64_t> strides;
  const BlockCodec* codec = nullptr;  // null: elements lie as they are
};

// The bytes of a file, or of a member of an archive that is unpacked when it is first needed.
class ByteStore {
 public:
  virtual ~ByteStore() = default;
  // Throws Error(kData). Thread-safe; the mapping lives as long as the pointer.
  virtual std::shared_ptr<const MappedFile> bytes() const = 0;
};

struct Contents {
  SourceInfo info;
  std::vector<std::shared_ptr<const ByteStore>> files;
  std::vector<TensorInfo> tensors;
  std::vector<Storage> storage;  // parallel to tensors
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Each appends the tensors of one file. Throw Error(kData) or Error(kUnsupported).
void append_safetensors(const std::shared_ptr<MappedFile>& file, Contents& contents);
// *.safetensors.index.json and PyTorch's *.bin.index.json, with the shards that it names; sets
// info.container.
void append_index(const MappedFile& index, const OpenOptions& options, Contents& contents);
// The shards of an index, each once, in order of appearance: names below its folder. Throws
// Error(kData).
std::vector<std::string> index_shards(const MappedFile& index);
// One of these shards, a safetensors or PyTorch file; sets info.container.
void append_shard(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                  Contents& contents);
void append_npy(const std::shared_ptr<MappedFile>& file, const std::string& dtype_hint,
                Contents& contents);
// Bytes from the start of an npy file to its data: `start` holds at least the first 12 bytes (or
// all of them), `size` is that of the whole file.
std::int64_t npy_header_end(std::string_view start, std::int64_t size, const std::string& path);
// An npy file of `size` bytes inside something else: `start` reaches to the data at least, `tensor`
// has its file and name, `storage` its file and the offset of the npy file there. `others` is what
// becomes of text, objects, complex numbers, structures and the like: an error, or a tensor of the
// dtype kOther, whose bytes can be read unless it holds objects (Storage::bits is 0 then).
enum class NpyOther { kRefuse, kList };
void append_npy_array(std::string_view start, std::int64_t size, TensorInfo tensor, Storage storage,
                      const std::string& dtype_hint, NpyOther others, Contents& contents);
// An npz archive or a PyTorch file, which its members tell apart; sets info.container.
void append_zip(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                Contents& contents);
void append_pytorch_legacy(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                           Contents& contents);
void append_gguf(const std::shared_ptr<MappedFile>& file, Contents& contents);
void append_raw(const std::shared_ptr<MappedFile>& file, const RawLayout& layout,
                Contents& contents);

// A whole file as a store, whose index in contents.files it returns.
std::size_t add_file(const std::shared_ptr<const MappedFile>& file, Contents& contents);

// Elements from the first to behind the last one of a strided view, 0 for an empty one; nothing for
// a negative extent or stride and where the number exceeds 63 bits.
std::optional<std::int64_t> strided_extent(const std::vector<std::int64_t>& shape,
                                           const std::vector<std::int64_t>& strides);
// Strides of an array whose first index is the fastest.
std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& shape);

// Product of the dimensions, or nothing when the product of the nonzero ones exceeds 63 bits (so
// that rows() and cols() of an empty tensor cannot overflow either).
std::optional<std::int64_t> checked_product(const std::vector<std::int64_t>& shape);

class MappedSource final : public TensorSource {
 public:
  explicit MappedSource(Contents contents);
  const SourceInfo& info() const override { return contents_.info; }
  const std::vector<TensorInfo>& tensors() const override { return contents_.tensors; }
  void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override;
  void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override;
  void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override;
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return contents_.metadata;
  }

 private:
  struct Rect {
    std::int64_t row, rows, col, cols;
  };
  // One read: the tensor, and its file for as long as the read takes.
  struct Place {
    const TensorInfo& tensor;
    const Storage& storage;
    std::shared_ptr<const MappedFile> file;
    const unsigned char* data() const { return file->data() + storage.offset; }
  };
  // Checks the rectangle and that the file still has its length.
  Place prepare(const TensorInfo& tensor, const Rect& rect) const;
  // Copies the stored bytes into `out` in logical order, little-endian.
  static void gather(const Place& place, const Rect& rect, unsigned char* out);
  static void gather_rows(const Place& place, const Rect& rect, unsigned char* out);
  static void gather_strided(const Place& place, const Rect& rect, unsigned char* out);
  static void gather_blocks(const Place& place, const Rect& rect, unsigned char* out);
  // Of an empty rectangle, which may have 2^60 rows or columns, nothing is gone through.
  static Rect work_of(const Rect& rect);
  static void widen_rows(const Place& place, const Rect& rect, float* out);

  Contents contents_;
  std::unordered_map<std::string, std::size_t> index_;  // file NUL name
};

}  // namespace fp4scope
