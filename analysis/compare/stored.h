// stored.h: codes and scales that another program stored, read tile by tile in logical order. The
// shape is that of the input, or of the input padded with zeros as the other program stored it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/tile_grid.h"
#include "sim/layouts/scale_layout.h"
#include "sim/recipe.h"

namespace fp4scope {

// How the codes of a row are packed (spec/layouts.md section 1, spec/more.md 1.3).
enum class CodePacking : std::uint8_t {
  kLowFirst,
  kHighFirst,
  kSplit8,
  kSplit16,
  kCt,    // low-first with the code q + 8 (compressed-tensors, four-bit integers)
  kBytes  // a byte per code
};
// Where the scales are (spec/layouts.md sections 2 and 5).
enum class ScaleStorage : std::uint8_t {
  kLinear,
  k128x4,
  k8x4,
  kTePadded,
  kDeepGemm,
  kMMajor,
  kTrtllmPage,
  kBlocks,   // one entry per 2-D block: [ceil(rows/block rows), blocks]
  kHif4Msb,  // AMCT: bits of the level bytes reversed
  kHif4A6    // Ascend A6 cells
};
std::string_view name_of(CodePacking packing);
std::string_view name_of(ScaleStorage storage);
// Legal values for a recipe, its own first: what --nibbles and --layout take, and what identify
// tries. Elements of more than four bits have kBytes alone.
std::vector<CodePacking> packings_of(const Recipe& recipe);
std::vector<ScaleStorage> storages_of(const Recipe& recipe);
// From the text of an option; "" is fp4scope's own layout, "native" that of the recipe's contract.
// Throws Error(kUsage) with the legal values.
CodePacking parse_packing(const std::string& text, const Recipe& recipe);
ScaleStorage parse_storage(const std::string& text, const Recipe& recipe);

// Bytes of a row of codes.
std::int64_t packed_bytes(CodePacking packing, const Recipe& recipe, std::int64_t cols);
// Bytes of all scales of a [rows, blocks] matrix; nothing where the storage has no such shape.
std::optional<std::int64_t> scale_bytes(ScaleStorage storage, const Recipe& recipe,
                                        std::int64_t rows, std::int64_t blocks);

// The bytes of a tensor of any dtype in row-major order. Both have to outlive the reader.
class TensorBytes {
 public:
  TensorBytes(const TensorSource& source, const TensorInfo& tensor);
  std::int64_t size() const { return tensor_.bytes; }
  const TensorInfo& tensor() const { return tensor_; }
  void read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const;  // thread-safe

 private:
  const TensorSource& source_;
  const TensorInfo& tensor_;
  std::int64_t bits_;  // per element
};

// Shape that codes were stored with.
struct StoredShape {
  std::int64_t rows = 0, cols = 0;
  bool operator==(const StoredShape&) const = default;
};
// The shape of the stored codes of an input of [rows, cols]: the input's own, or rows padded up to
// a multiple of 128 and columns up to one of 128 (fouroversix and TransformerEngine pad before they
// quantize). Throws Error(kData) with what was expected.
StoredShape shape_of_codes(const TensorInfo& codes, const Recipe& recipe, CodePacking packing,
                           std::int64_t rows, std::int64_t cols);

// Bytes or parts of bytes that a layout keeps for nothing and writes as zero.
struct PaddingFault {
  std::int64_t count = 0;        // entries that are not zero
  std::int64_t first_byte = -1;  // offset in the tensor
};

class StoredCodes {
 public:
  StoredCodes(TensorBytes bytes, const Recipe& recipe, CodePacking packing, StoredShape shape);
  // One byte per code (bf16: two), [span.rows, padded_cols]; padding of the last block as code 0. A
  // byte beyond the codes of the element is left as it is.
  void read(const TileSpan& span, std::int64_t padded_cols, std::uint8_t* codes) const;
  // Nibbles beyond the last column. `stop` ends it with Error(kData).
  PaddingFault padding(const std::atomic<bool>* stop = nullptr) const;

 private:
  TensorBytes bytes_;
  const Recipe& recipe_;
  CodePacking packing_;
  StoredShape shape_;
  std::int64_t row_bytes_;
};

class StoredScales {
 public:
  // Throws Error(kData) where the size is not that of the storage, naming those that fit.
  StoredScales(TensorBytes bytes, const Recipe& recipe, ScaleStorage storage, StoredShape shape);
  // [span.rows, blocks of the span, scale_bytes]
  void read(const TileSpan& span, std::uint8_t* scales) const;
  PaddingFault padding(const std::atomic<bool>* stop = nullptr) const;
  // One stored entry for all rows of a 2-D block.
  bool are_shared() const { return storage_ == ScaleStorage::kBlocks; }

 private:
  // Offset of byte `b` of an entry.
  std::int64_t offset(std::int64_t row, std::int64_t block, std::int64_t b) const;

  TensorBytes bytes_;
  const Recipe& recipe_;
  ScaleStorage storage_;
  std::int64_t rows_, blocks_, entry_bytes_;
};

}  // namespace fp4scope
