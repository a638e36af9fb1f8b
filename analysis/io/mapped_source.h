// mapped_source.h: the one TensorSource over mapped files. The parsers of containers only fill
// `Contents`: which tensors there are and where and how each is stored.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/io/mmap.h"
#include "analysis/io/tensor_source.h"

namespace fp4scope {

// Where the elements of a tensor lie.
struct Storage {
  std::size_t file = 0;     // index into Contents::files
  std::int64_t offset = 0;  // first byte of the data
  int bits = 0;             // per element; 0: unknown dtype, cannot be read
  bool fortran = false;     // first index fastest
  bool big_endian = false;
};

struct Contents {
  SourceInfo info;
  std::vector<std::shared_ptr<MappedFile>> files;
  std::vector<TensorInfo> tensors;
  std::vector<Storage> storage;  // parallel to tensors
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Each appends the tensors of one file. Throw Error(kData) or Error(kUnsupported).
void append_safetensors(const std::shared_ptr<MappedFile>& file, Contents& contents);
void append_safetensors_index(const MappedFile& index, Contents& contents);
void append_npy(const std::shared_ptr<MappedFile>& file, const std::string& dtype_hint,
                Contents& contents);

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
  // Index of the tensor; checks the rectangle and that the file still has its length.
  std::size_t prepare(const TensorInfo& tensor, const Rect& rect) const;
  // Copies the stored bytes into `out` in logical order, little-endian.
  void gather(std::size_t index, const Rect& rect, unsigned char* out) const;
  void gather_fortran(std::size_t index, const Rect& rect, unsigned char* out) const;
  void widen_rows(std::size_t index, const Rect& rect, float* out) const;

  Contents contents_;
  std::unordered_map<std::string, std::size_t> index_;  // file NUL name
};

}  // namespace fp4scope
