// stored.cc: see stored.h.
#include "analysis/compare/stored.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "sim/error.h"
#include "sim/layouts/hif4_carrier.h"
#include "sim/layouts/nibbles.h"

namespace fp4scope {
namespace {

constexpr std::pair<CodePacking, std::string_view> kPackings[] = {
    {CodePacking::kLowFirst, "low-first"},
    {CodePacking::kHighFirst, "high-first"},
    {CodePacking::kSplit8, "split8"},
    {CodePacking::kSplit16, "split16"},
    {CodePacking::kCt, "ct"},
    {CodePacking::kBytes, "bytes"}};
constexpr std::pair<ScaleStorage, std::string_view> kStorages[] = {
    {ScaleStorage::kLinear, "linear"},
    {ScaleStorage::k128x4, "128x4"},
    {ScaleStorage::k8x4, "8x4"},
    {ScaleStorage::kTePadded, "te-padded"},
    {ScaleStorage::kDeepGemm, "deepgemm"},
    {ScaleStorage::kMMajor, "m-major"},
    {ScaleStorage::kTrtllmPage, "trtllm-page"},
    {ScaleStorage::kBlocks, "blocks"},
    {ScaleStorage::kHif4Msb, "msb"},
    {ScaleStorage::kHif4A6, "a6"}};

Nibbles order_of(CodePacking packing) {
  switch (packing) {
    case CodePacking::kHighFirst:
      return Nibbles::kHighFirst;
    case CodePacking::kSplit8:
      return Nibbles::kSplit8;
    case CodePacking::kSplit16:
      return Nibbles::kSplit16;
    default:
      return Nibbles::kLowFirst;
  }
}

std::optional<ScaleOrder> order_of(ScaleStorage storage) {
  switch (storage) {
    case ScaleStorage::kLinear:
    case ScaleStorage::kHif4Msb:
      return ScaleOrder::kLinear;
    case ScaleStorage::k128x4:
      return ScaleOrder::k128x4;
    case ScaleStorage::k8x4:
      return ScaleOrder::k8x4;
    case ScaleStorage::kTePadded:
      return ScaleOrder::kTePadded;
    case ScaleStorage::kDeepGemm:
      return ScaleOrder::kDeepGemm;
    case ScaleStorage::kMMajor:
      return ScaleOrder::kMMajor;
    case ScaleStorage::kTrtllmPage:
      return ScaleOrder::kTrtllmPage;
    case ScaleStorage::kBlocks:
    case ScaleStorage::kHif4A6:
      break;
  }
  return std::nullopt;
}

CodePacking native_packing(const Recipe& recipe) {
  if (!recipe.packs_nibbles()) return CodePacking::kBytes;
  if (recipe.family == Family::kInt4) {
    return recipe.native.pack == IntPack::kCt ? CodePacking::kCt : CodePacking::kLowFirst;
  }
  switch (recipe.native.nibbles) {
    case Nibbles::kLowFirst:
      return CodePacking::kLowFirst;
    case Nibbles::kHighFirst:
      return CodePacking::kHighFirst;
    case Nibbles::kSplit8:
      return CodePacking::kSplit8;
    case Nibbles::kSplit16:
      return CodePacking::kSplit16;
  }
  return CodePacking::kLowFirst;
}

ScaleStorage native_storage(const Recipe& recipe) {
  if (recipe.family == Family::kHif4) {
    if (recipe.native.carrier == Carrier::kA6) return ScaleStorage::kHif4A6;
    return recipe.native.carrier == Carrier::kBytes && recipe.native.bits == LevelBits::kMsb
               ? ScaleStorage::kHif4Msb
               : ScaleStorage::kLinear;
  }
  // Weights of 128x128 blocks have one scale each.
  if (recipe.family == Family::kFp8 && recipe.is_2d()) return ScaleStorage::kBlocks;
  if (recipe.native.scales == ScaleLayout::k128x4) return ScaleStorage::k128x4;
  return recipe.native.scales == ScaleLayout::k8x4 ? ScaleStorage::k8x4 : ScaleStorage::kLinear;
}

void stop_if_asked(const std::atomic<bool>* stop) {
  if (stop != nullptr && *stop) throw Error(ErrorKind::kData, "interrupted");
}

// Whether a tensor whose rows are to have `row_bytes` bytes has such a shape: flat, or trailing
// dimensions of that size. Without it [16, 64] would be taken for [64, 16].
bool has_rows_of(const TensorInfo& tensor, std::int64_t row_bytes) {
  const auto long_dimensions = std::count_if(tensor.shape.begin(), tensor.shape.end(),
                                             [](std::int64_t d) { return d != 1; });
  if (long_dimensions < 2 || tensor.elements == 0) return true;
  std::int64_t trailing = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0;) {
    trailing *= tensor.shape[d];
    const std::int64_t bytes = tensor.bytes * trailing / tensor.elements;
    if (bytes == row_bytes) return true;
    if (bytes > row_bytes) break;
  }
  return false;
}

template <class T>
std::string names_of(const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.emplace_back(name_of(value));
  return joined(names, ", ");
}

template <class T>
T parse_one(const char* option, const std::string& text, const std::vector<T>& legal, T native) {
  if (text.empty()) return legal.front();
  if (text == "native") return native;
  for (const T value : legal) {
    if (name_of(value) == text) return value;
  }
  throw Error(ErrorKind::kUsage, fmt::format("{} {}: expected native or one of {} for this recipe",
                                             option, text, names_of(legal)));
}

// Codes and scales are bytes of the container; what a reader makes out of blocks is not.
void require_stored(const TensorInfo& tensor) {
  if (!tensor.decoded) return;
  throw Error(
      ErrorKind::kData,
      fmt::format("{}: tensor {} is read as the numbers of its {} blocks, expected stored "
                  "codes or scales{}",
                  printable(tensor.file), in_quotes(tensor.name), printable(tensor.dtype_text),
                  tensor.dtype_text.ends_with("FP4")
                      ? "; name " + in_quotes(tensor.name + ".codes") + " or " +
                            in_quotes(tensor.name + ".scales")
                      : ""));
}

}  // namespace

std::string_view name_of(CodePacking packing) {
  for (const auto& [value, name] : kPackings) {
    if (value == packing) return name;
  }
  return "";
}
std::string_view name_of(ScaleStorage storage) {
  for (const auto& [value, name] : kStorages) {
    if (value == storage) return name;
  }
  return "";
}

std::vector<CodePacking> packings_of(const Recipe& recipe) {
  if (!recipe.packs_nibbles()) return {CodePacking::kBytes};
  std::vector<CodePacking> out = {CodePacking::kLowFirst, CodePacking::kHighFirst,
                                  CodePacking::kSplit8, CodePacking::kSplit16, CodePacking::kBytes};
  if (recipe.format.element.is_twos_complement()) out.push_back(CodePacking::kCt);
  return out;
}

std::vector<ScaleStorage> storages_of(const Recipe& recipe) {
  if (recipe.family == Family::kHif4 && recipe.format.scale_bytes == 4) {
    std::vector<ScaleStorage> out = {ScaleStorage::kLinear, ScaleStorage::kHif4Msb,
                                     ScaleStorage::kHif4A6};
    if (recipe.is_2d()) out.push_back(ScaleStorage::kBlocks);
    return out;
  }
  std::vector<ScaleStorage> out = {ScaleStorage::kLinear, ScaleStorage::k128x4, ScaleStorage::k8x4,
                                   ScaleStorage::kTePadded};
  if (recipe.format.scale_bytes == 1) {
    out.insert(out.end(), {ScaleStorage::kDeepGemm, ScaleStorage::kTrtllmPage});
  } else {
    out.push_back(ScaleStorage::kMMajor);
  }
  if (recipe.is_2d()) out.push_back(ScaleStorage::kBlocks);
  return out;
}

CodePacking parse_packing(const std::string& text, const Recipe& recipe) {
  return parse_one("--nibbles", text, packings_of(recipe), native_packing(recipe));
}
ScaleStorage parse_storage(const std::string& text, const Recipe& recipe) {
  return parse_one("--layout", text, storages_of(recipe), native_storage(recipe));
}

std::int64_t packed_bytes(CodePacking packing, const Recipe& recipe, std::int64_t cols) {
  if (packing == CodePacking::kBytes) return cols * recipe.code_bytes();
  return packed_row_bytes(order_of(packing), cols);
}

std::optional<std::int64_t> scale_bytes(ScaleStorage storage, const Recipe& recipe,
                                        std::int64_t rows, std::int64_t blocks) {
  const std::int64_t entry = recipe.format.scale_bytes;
  const std::optional<ScaleOrder> order = order_of(storage);
  if (storage == ScaleStorage::kBlocks) {
    return divide_up(rows, recipe.format.block_rows) * blocks * entry;
  }
  if (!order) return rows % 16 == 0 ? std::optional(rows * blocks * entry) : std::nullopt;
  if (*order == ScaleOrder::kTrtllmPage && (rows % 4 != 0 || blocks % 4 != 0)) return std::nullopt;
  return scale_buffer_entries(*order, rows, blocks) * entry;
}

// --- bytes of a tensor ---

TensorBytes::TensorBytes(const TensorSource& source, const TensorInfo& tensor)
    : source_(source),
      tensor_(tensor),
      bits_(tensor.elements > 0 ? tensor.bytes * 8 / tensor.elements : 8) {
  require_stored(tensor);
}

void TensorBytes::read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const {
  const std::int64_t row_bytes = tensor_.cols() * bits_ / 8;
  std::vector<std::uint8_t> piece;
  while (count > 0) {
    const std::int64_t row = offset / row_bytes, at = offset % row_bytes;
    // Whole elements: the first and the last may be wanted in part only.
    const std::int64_t unit = std::max<std::int64_t>(1, bits_ / 8);
    const std::int64_t first = at / unit * unit;
    const std::int64_t last =
        std::min(row_bytes, (at + std::min(count, row_bytes - at) + unit - 1) / unit * unit);
    const std::int64_t take = std::min(count, last - at);
    const std::int64_t col = first * 8 / bits_, cols = (last - first) * 8 / bits_;
    if (first == at && take == last - first) {
      source_.read_raw(tensor_, row, 1, col, cols, out);
    } else {
      piece.resize(static_cast<std::size_t>(last - first));
      source_.read_raw(tensor_, row, 1, col, cols, piece.data());
      std::copy_n(piece.data() + (at - first), take, out);
    }
    out += take;
    offset += take;
    count -= take;
  }
}

// --- codes ---

StoredShape shape_of_codes(const TensorInfo& codes, const Recipe& recipe, CodePacking packing,
                           std::int64_t rows, std::int64_t cols) {
  require_stored(codes);
  const std::int64_t exact = packed_bytes(packing, recipe, cols);
  std::vector<StoredShape> fitting;
  for (const std::int64_t r : {rows, round_up(rows, 128)}) {
    for (const std::int64_t unit : {std::int64_t{1}, std::int64_t{recipe.format.block},
                                    std::int64_t{64}, std::int64_t{128}}) {
      const StoredShape shape{r, round_up(cols, unit)};
      const std::int64_t row_bytes = packed_bytes(packing, recipe, shape.cols);
      std::int64_t bytes = 0;
      if (__builtin_mul_overflow(r, row_bytes, &bytes) || bytes != codes.bytes) continue;
      // A flattened tensor (ragged=flat) has no rows.
      if (rows != 1 && !has_rows_of(codes, row_bytes)) continue;
      fitting.push_back(shape);
    }
  }
  if (!fitting.empty()) return fitting.front();
  throw Error(ErrorKind::kData,
              fmt::format("{}: tensor {} is {} {} ({} bytes), expected the codes of [{}, {}] in "
                          "order {}: [{}, {}] bytes, or rows padded to {} or columns to a multiple "
                          "of {}, 64 or 128",
                          printable(codes.file), in_quotes(codes.name), printable(codes.dtype_text),
                          shape_text(codes.shape), codes.bytes, rows, cols, name_of(packing), rows,
                          exact, round_up(rows, 128), recipe.format.block));
}

StoredCodes::StoredCodes(TensorBytes bytes, const Recipe& recipe, CodePacking packing,
                         StoredShape shape)
    : bytes_(bytes),
      recipe_(recipe),
      packing_(packing),
      shape_(shape),
      row_bytes_(packed_bytes(packing, recipe, shape.cols)) {}

void StoredCodes::read(const TileSpan& span, std::int64_t padded_cols, std::uint8_t* codes) const {
  const std::int64_t width = recipe_.code_bytes();
  std::fill_n(codes, span.rows * padded_cols * width, std::uint8_t{0});
  // Columns of a tile start at a multiple of 128, which every unit of packing divides.
  const std::int64_t first = packed_bytes(packing_, recipe_, span.col);
  const std::int64_t count = packed_bytes(packing_, recipe_, span.cols);
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(count));
  for (std::int64_t r = 0; r < span.rows; ++r) {
    bytes_.read((span.row + r) * row_bytes_ + first, count, packed.data());
    std::uint8_t* to = codes + r * padded_cols * width;
    if (packing_ == CodePacking::kBytes) {
      std::copy_n(packed.data(), count, to);
    } else {
      unpack_nibbles(order_of(packing_), 1, span.cols, packed,
                     std::span(to, static_cast<std::size_t>(span.cols)));
      if (packing_ == CodePacking::kCt) {
        for (std::int64_t c = 0; c < span.cols; ++c) to[c] ^= 8u;
      }
    }
  }
}

PaddingFault StoredCodes::padding(const std::atomic<bool>* stop) const {
  PaddingFault fault;
  if (packing_ == CodePacking::kBytes || shape_.cols == 0) return fault;
  const std::int64_t unit = nibble_unit(order_of(packing_));
  const std::int64_t full = shape_.cols / unit * unit;
  if (full == shape_.cols) return fault;
  const std::int64_t first = packed_bytes(packing_, recipe_, full), count = row_bytes_ - first;
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(count));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(unit));
  for (std::int64_t r = 0; r < shape_.rows; ++r) {
    stop_if_asked(stop);
    bytes_.read(r * row_bytes_ + first, count, packed.data());
    unpack_nibbles(order_of(packing_), 1, unit, packed, codes);
    for (std::int64_t i = shape_.cols - full; i < unit; ++i) {
      if (codes[static_cast<std::size_t>(i)] == 0) continue;
      ++fault.count;
      // Of split8 and split16 a later element may lie in an earlier byte.
      const std::int64_t byte = r * row_bytes_ + first + nibble_place(order_of(packing_), i).byte;
      if (fault.first_byte < 0 || byte < fault.first_byte) fault.first_byte = byte;
    }
  }
  return fault;
}

// --- scales ---

StoredScales::StoredScales(TensorBytes bytes, const Recipe& recipe, ScaleStorage storage,
                           StoredShape shape)
    : bytes_(bytes),
      recipe_(recipe),
      storage_(storage),
      rows_(shape.rows),
      blocks_(divide_up(shape.cols, recipe.format.block)),
      entry_bytes_(recipe.format.scale_bytes) {
  const auto want = scale_bytes(storage, recipe, rows_, blocks_);
  // Swizzled buffers have any shape; what has rows shows it.
  const bool has_rows = storage == ScaleStorage::kLinear || storage == ScaleStorage::kHif4Msb ||
                        storage == ScaleStorage::kBlocks;
  const bool fits = !has_rows || rows_ == 1 || has_rows_of(bytes.tensor(), blocks_ * entry_bytes_);
  if (want == bytes_.size() && fits) return;
  if (want == bytes_.size()) {
    const TensorInfo& t = bytes_.tensor();
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: tensor {} is {} {}, expected the shape [{}, {}] of {} scales of {} "
                    "byte{}; another order has to be named with --layout",
                    printable(t.file), in_quotes(t.name), printable(t.dtype_text),
                    shape_text(t.shape), rows_, blocks_, name_of(storage), entry_bytes_,
                    entry_bytes_ == 1 ? "" : "s"));
  }
  std::vector<std::string> fitting;
  for (const ScaleStorage other : storages_of(recipe)) {
    if (other != storage && scale_bytes(other, recipe, rows_, blocks_) == bytes_.size()) {
      fitting.emplace_back(name_of(other));
    }
  }
  const TensorInfo& tensor = bytes_.tensor();
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: tensor {} is {} {} ({} bytes), expected {} for the {} scales of [{}, {}] blocks of "
          "{} byte{} each{}",
          printable(tensor.file), in_quotes(tensor.name), printable(tensor.dtype_text),
          shape_text(tensor.shape), tensor.bytes, want ? std::to_string(*want) : "another shape",
          name_of(storage), rows_, blocks_, entry_bytes_, entry_bytes_ == 1 ? "" : "s",
          fitting.empty() ? "" : "; the size fits --layout " + joined(fitting, " or ")));
}

std::int64_t StoredScales::offset(std::int64_t row, std::int64_t block, std::int64_t b) const {
  const std::optional<ScaleOrder> order = order_of(storage_);
  if (storage_ == ScaleStorage::kBlocks) {
    return (row / recipe_.format.block_rows * blocks_ + block) * entry_bytes_ + b;
  }
  if (!order) return hif4_scale_offset(Carrier::kA6, blocks_, row, block, b);
  return scale_offset(*order, rows_, blocks_, row, block) * entry_bytes_ + b;
}

void StoredScales::read(const TileSpan& span, std::uint8_t* scales) const {
  const std::int64_t first = span.col / recipe_.format.block;
  const std::int64_t count = divide_up(span.cols, recipe_.format.block);
  const std::int64_t row_bytes = count * entry_bytes_;
  for (std::int64_t r = 0; r < span.rows; ++r) {
    std::uint8_t* to = scales + r * row_bytes;
    const std::int64_t row = span.row + r;
    // Runs that lie together: whole rows, else what the offsets say.
    for (std::int64_t i = 0; i < row_bytes;) {
      const auto place = [&](std::int64_t k) {
        return offset(row, first + k / entry_bytes_, k % entry_bytes_);
      };
      const std::int64_t start = place(i);
      std::int64_t run = 1;
      while (i + run < row_bytes && place(i + run) == start + run) ++run;
      bytes_.read(start, run, to + i);
      i += run;
    }
    if (storage_ != ScaleStorage::kHif4Msb) continue;
    for (std::int64_t k = 0; k < row_bytes; ++k) {
      if (k % 4 != 0) to[k] = reversed_bits(to[k]);
    }
  }
}

PaddingFault StoredScales::padding(const std::atomic<bool>* stop) const {
  PaddingFault fault;
  const std::optional<ScaleOrder> order = order_of(storage_);
  if (!order) return fault;
  std::int64_t rows = rows_, cols = blocks_;
  switch (*order) {
    case ScaleOrder::k128x4:
    case ScaleOrder::kTePadded:
      rows = round_up(rows_, 128);
      cols = round_up(blocks_, 4);
      break;
    case ScaleOrder::k8x4:
      rows = round_up(rows_, 8);
      cols = round_up(blocks_, 4);
      break;
    case ScaleOrder::kDeepGemm:
      rows = round_up(rows_, 4);
      cols = round_up(blocks_, 4);
      break;
    case ScaleOrder::kMMajor:
      rows = round_up(rows_, 4);
      break;
    default:
      return fault;
  }
  std::array<std::uint8_t, 4> entry{};
  for (std::int64_t r = 0; r < rows; ++r) {
    stop_if_asked(stop);
    for (std::int64_t c = r < rows_ ? blocks_ : 0; c < cols; ++c) {
      const std::int64_t at = scale_offset(*order, rows_, blocks_, r, c) * entry_bytes_;
      bytes_.read(at, entry_bytes_, entry.data());
      if (std::all_of(entry.begin(), entry.begin() + entry_bytes_, [](auto v) { return v == 0; })) {
        continue;
      }
      ++fault.count;
      if (fault.first_byte < 0 || at < fault.first_byte) fault.first_byte = at;
    }
  }
  return fault;
}

}  // namespace fp4scope
