// explain.cc: see explain.h.
#include "analysis/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "analysis/io/axis_view.h"
#include "analysis/io/flat_view.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
#include "analysis/text_table.h"
#include "analysis/tiles.h"
#include "formats/amax.h"
#include "formats/rounding.h"
#include "sim/amax.h"
#include "sim/error.h"
#include "sim/rcp_table.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

const Backend& reference() {
  return *cpu_backends().back();
}
const char* source_name(SourceType source) {
  switch (source) {
    case SourceType::kBf16:
      return "bf16";
    case SourceType::kF16:
      return "f16";
    case SourceType::kF64:
      return "f64";
    case SourceType::kF32:
      break;
  }
  return "f32";
}
float rounded_to(SourceType source, float v) {
  if (source == SourceType::kBf16) return round_to_bf16<Lane<1>>(v);
  if (source == SourceType::kF16) return round_to_f16<Lane<1>>(v);
  return v;
}

[[noreturn]] void refuse(ErrorKind kind, const std::string& what) {
  throw Error(kind, what);
}
std::string where(const TensorInfo& tensor) {
  return fmt::format("{}: tensor {}", printable(tensor.file), in_quotes(tensor.name));
}

void require_no_outer_override(const Recipe& recipe, const OuterOverride& given) {
  const bool is_one = recipe.family == Family::kNvfp4 && recipe.nvfp4.scale == OuterScale::kNone;
  if (given.amax && recipe.has_outer() && !recipe.needs_amax()) {
    refuse(ErrorKind::kUsage,
           fmt::format("--amax: recipe {} measures no maximum", to_string(recipe)));
  }
  if (is_one && given.outer_scale) {
    refuse(ErrorKind::kUsage,
           fmt::format("--outer-scale: recipe {} has the outer scale 1", to_string(recipe)));
  }
  if (recipe.has_outer() || (!given.amax && !given.outer_scale)) return;
  refuse(ErrorKind::kUsage, fmt::format("recipe {} has no outer scale, so --amax and --outer-scale "
                                        "mean nothing for it",
                                        to_string(recipe)));
}
// The outer scale that an amax gives, with what comes from outside in its place.
OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t marked_amax,
                         const OuterOverride& given) {
  const std::uint32_t bits =
      given.amax ? bit_cast<std::uint32_t>(*given.amax) : amax_of(recipe, marked_amax);
  if ((bits & kSignBit) != 0 || (bits > kInfBits && !propagates_nan(recipe))) {
    refuse(ErrorKind::kUsage, fmt::format("--amax {}: expected a magnitude, zero or positive",
                                          float_text(*given.amax)));
  }
  OuterScale32 outer = reference().outer_scale(recipe, bits);
  if (given.outer_scale) outer.g = *given.outer_scale;
  return outer;
}

// Elements along K that a piece of a tensor must hold whole: a block and a group of the transform.
std::int64_t whole_cols(const Recipe& recipe) {
  const std::int64_t group = recipe.rht.size == 0 ? 1 : recipe.rht.size;
  return std::lcm<std::int64_t>(recipe.format.block, group);
}

}  // namespace

Explanation explain_block(const Recipe& recipe, const Tile& tile,
                          std::span<const OuterScale32> outer, std::int64_t row, std::int64_t block,
                          Explanation place) {
  place.recipe = recipe;
  if (const std::string table = rcp_table_note(recipe); !table.empty()) {
    place.notes.push_back(table);
  }
  place.trace = trace_block(recipe, tile, outer, row, block);
  place.row = tile.first_row + row;
  place.block = tile.first_col / recipe.format.block + block;
  place.first_col = tile.first_col + place.trace.first_col;
  return place;
}

// --- values ---

float parse_number(std::string_view text, const char* option) {
  const std::string_view given = text;
  const auto bad = [&](const char* expected) {
    refuse(ErrorKind::kUsage, fmt::format("{} '{}': expected {}", option, given, expected));
  };
  if (text.starts_with("0x") || text.starts_with("0X")) {
    std::uint32_t bits = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    if (error != std::errc{} || end != text.data() + text.size() || text.size() != 10)
      bad("the 8 hexadecimal digits of a binary32 pattern after 0x");
    return bit_cast<float>(bits);
  }
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) bad("a number within the range of binary32");
  if (error != std::errc{} || end != text.data() + text.size())
    bad("a decimal number, inf, nan, or a binary32 pattern such as 0x3f800000");
  return value;
}

std::vector<std::vector<float>> parse_values(std::string_view text, SourceType source) {
  std::vector<std::vector<float>> rows;
  while (true) {
    const std::size_t end = std::min(text.find(';'), text.size());
    std::string_view row = text.substr(0, end);
    rows.emplace_back();
    while (true) {
      const std::size_t comma = std::min(row.find(','), row.size());
      std::string_view item = row.substr(0, comma);
      while (item.starts_with(' ')) item.remove_prefix(1);
      while (item.ends_with(' ')) item.remove_suffix(1);
      const float v = parse_number(item, "--values");
      const float rounded = rounded_to(source, v);
      if (v == v && bit_cast<std::uint32_t>(v) != bit_cast<std::uint32_t>(rounded)) {
        refuse(ErrorKind::kUsage,
               fmt::format("--values '{}': no {} number, the nearest is {}; write that, or leave "
                           "out --source-dtype",
                           item, source_name(source), float_text(rounded)));
      }
      rows.back().push_back(v);
      if (comma == row.size()) break;
      row.remove_prefix(comma + 1);
    }
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  return rows;
}

Explanation explain_values(const Recipe& recipe, const std::vector<std::vector<float>>& rows,
                           SourceType source, const OuterOverride& given) {
  require_no_outer_override(recipe, given);
  const std::int64_t cols = whole_cols(recipe), height = recipe.format.block_rows;
  if (std::ssize(rows) > height) {
    refuse(ErrorKind::kUsage, fmt::format("--values: {} rows, but a block of {} has {}",
                                          rows.size(), to_string(recipe), height));
  }
  std::size_t most = 0;
  std::vector<float> x(static_cast<std::size_t>(height * cols), 0.0f);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    most = std::max(most, rows[r].size());
    if (std::ssize(rows[r]) > cols) {
      refuse(ErrorKind::kUsage,
             fmt::format("--values: {} values in a row, but {} of {} has {} elements",
                         rows[r].size(), cols == recipe.format.block ? "a block" : "a transform",
                         to_string(recipe), cols));
    }
    std::copy(rows[r].begin(), rows[r].end(), x.begin() + static_cast<std::ptrdiff_t>(r) * cols);
  }
  Explanation e;
  e.dtype = source_name(source);
  e.shape = {std::ssize(rows), static_cast<std::int64_t>(most)};
  const bool is_padded =
      std::ssize(rows) < height ||
      std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return std::ssize(r) < cols; });
  if (is_padded) {
    e.notes.push_back(height > 1
                          ? fmt::format("The block of {} x {} elements is filled up with +0.",
                                        height, recipe.format.block)
                          : fmt::format("Filled up with +0 to {} elements.", cols));
  }
  Tile tile{x.data(), nullptr, height, cols, cols, source};
  tile.tensor_cols = std::lcm<std::int64_t>(cols, 32);  // what sr-stream=te takes
  if (recipe.sr.enabled && recipe.sr.stream == SrStream::kTe && source != SourceType::kBf16) {
    refuse(ErrorKind::kUsage,
           "the kernel of sr-stream=te takes BF16 tensors only; add --source-dtype bf16");
  }
  std::vector<float> storage;
  tile = transformed_tile(recipe, tile, storage);
  std::vector<OuterScale32> outer;
  std::uint32_t tensor_amax = 0;
  for (std::int64_t r = 0; r < height; ++r) {
    const std::uint32_t row_amax = vector_amax_bits(tile.f32 + r * cols, cols);
    tensor_amax = merged_amax_bits(tensor_amax, row_amax);
    if (recipe.scales_rows()) outer.push_back(outer_scale(recipe, row_amax, given));
  }
  if (!recipe.scales_rows()) outer.push_back(outer_scale(recipe, tensor_amax, given));
  if (recipe.needs_amax() && !given.amax && !given.outer_scale) {
    e.notes.push_back(
        fmt::format("The outer scale is that of a {} of these values alone; --amax "
                    "says otherwise.",
                    recipe.scales_rows() ? "row" : "tensor"));
  }
  try {
    return explain_block(recipe, tile, outer, 0, 0, std::move(e));
  } catch (const RefusedInput& refused) {
    refuse(ErrorKind::kData, fmt::format("--values: row {}: {}", refused.row(), refused.what()));
  }
}

// --- tensors ---

BlockPlace parse_block_place(const std::string& text) {
  const auto expected = [&]() {
    refuse(
        ErrorKind::kUsage,
        fmt::format("{}: expected FILE:TENSOR@ROW,BLOCK with two numbers, zero or positive", text));
  };
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos) expected();
  BlockPlace place;
  const char* const end = text.data() + text.size();
  const auto row = std::from_chars(text.data() + at + 1, end, place.row);
  if (row.ec != std::errc{} || row.ptr == end || *row.ptr != ',') expected();
  const auto block = std::from_chars(row.ptr + 1, end, place.block);
  if (block.ec != std::errc{} || block.ptr != end || place.row < 0 || place.block < 0) expected();
  place.operand = split_operand(text.substr(0, at));
  return place;
}

namespace {

std::size_t find_tensor(const TensorSource& source, const Operand& operand) {
  const std::vector<TensorInfo>& tensors = source.tensors();
  if (operand.tensor.empty() && tensors.size() == 1) return 0;
  if (operand.tensor.empty()) {
    refuse(ErrorKind::kUsage, fmt::format("{} holds {} tensors, expected FILE:TENSOR@ROW,BLOCK",
                                          printable(operand.file), tensors.size()));
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != operand.tensor) continue;
    if (found) {
      refuse(ErrorKind::kUsage,
             fmt::format("{} holds a tensor {} in {} and in {}, expected FILE:TENSOR of one file",
                         printable(operand.file), in_quotes(operand.tensor),
                         printable(tensors[*found].file), printable(tensors[i].file)));
    }
    found = i;
  }
  if (found) return *found;
  for (const SourceFault& fault : source.info().faults) {
    if (std::find(fault.tensors.begin(), fault.tensors.end(), operand.tensor) !=
        fault.tensors.end()) {
      refuse(fault.exit_code == 4 ? ErrorKind::kUnsupported : ErrorKind::kData, fault.message);
    }
  }
  refuse(ErrorKind::kData,
         fmt::format("{} holds no tensor {}; it has {}{}", printable(operand.file),
                     in_quotes(operand.tensor), counted(tensors.size(), "tensor"),
                     near_names(tensors, operand.tensor)));
}

void require_block(const Recipe& recipe, const TensorInfo& tensor, const BlockPlace& place,
                   const std::string& name) {
  const std::int64_t cols = tensor.cols(), n = recipe.format.block;
  if (tensor.elements == 0) refuse(ErrorKind::kData, name + " has no elements");
  if (place.row >= tensor.rows()) {
    refuse(ErrorKind::kUsage, fmt::format("{} has the rows 0 to {}, there is no row {}", name,
                                          tensor.rows() - 1, place.row));
  }
  const std::int64_t blocks = (cols + n - 1) / n;
  if (place.block >= blocks) {
    refuse(ErrorKind::kUsage,
           fmt::format("{} has the blocks 0 to {} of {} elements in each row, there is no block {}",
                       name, blocks - 1, n, place.block));
  }
}
void require_matrix(const Recipe& recipe, const TensorInfo& tensor, const std::string& name) {
  const std::int64_t cols = tensor.cols(), n = recipe.format.block;
  if (recipe.ragged() == Ragged::kError && cols % n != 0) {
    refuse(ErrorKind::kData,
           fmt::format("{} has rows of {} elements, expected a multiple of the block of {} because "
                       "the recipe says ragged=error",
                       name, cols, n));
  }
  try {
    require_shape(recipe, tensor);
  } catch (const Error& e) {
    refuse(e.kind(), fmt::format("{}: {}", name, e.what()));
  }
}

std::vector<OuterScale32> outer_of_rows(const TensorSource& source, const TensorInfo& tensor,
                                        const Recipe& recipe, const TileSpan& span,
                                        const ExplainOptions& options) {
  const OuterOverride& given = options.given;
  const auto rows = static_cast<std::size_t>(recipe.scales_rows() ? span.rows : 1);
  AmaxResult amax;
  if (recipe.needs_amax() && !given.amax) {
    amax = measure_amax(source, tensor, recipe.scales_rows(), thread_count(options.threads),
                        options.stop, &recipe);
    if (!amax.complete) refuse(ErrorKind::kData, "interrupted");
  }
  std::vector<OuterScale32> outer;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t row = static_cast<std::size_t>(span.row) + i;
    outer.push_back(
        outer_scale(recipe, row < amax.rows.size() ? amax.rows[row] : amax.tensor, given));
  }
  return outer;
}

// The rows that share scales with the place, and whole groups of columns around its block.
TileSpan span_of(const Recipe& recipe, const TensorInfo& tensor, const BlockPlace& place) {
  const std::int64_t band = recipe.format.block_rows, cols = whole_cols(recipe);
  const std::int64_t row = place.row / band * band;
  const std::int64_t col = place.block * recipe.format.block / cols * cols;
  return {row, std::min(band, tensor.rows() - row), col, std::min(cols, tensor.cols() - col)};
}

}  // namespace

Explanation explain_tensor(const Recipe& recipe, const BlockPlace& place,
                           const ExplainOptions& options) {
  require_no_outer_override(recipe, options.given);
  // Of an index only the shard of the tensor has to be there.
  OpenOptions open = options.open;
  open.parts = !place.operand.tensor.empty();
  const std::unique_ptr<TensorSource> file = open_source(place.operand.file, open);
  const std::size_t index = find_tensor(*file, place.operand);
  const TensorInfo& stored = file->tensors()[index];
  const std::string name = where(stored);
  refuse_damaged(stored);
  if (!is_real(stored.dtype)) {
    refuse(ErrorKind::kUnsupported,
           fmt::format("{}: {} is not F64, F32, F16, BF16 or FP8", name,
                       printable(dtype_label(stored)) + dtype_advice(stored)));
  }
  const int axis = resolve_axis(stored, options.axis);
  const AxisView moved(*file, options.axis);
  const FlatView flat(moved, moved.tensors()[index]);
  Explanation e;
  e.file = stored.file;
  e.tensor = stored.name;
  e.dtype = dtype_name(stored.dtype);
  e.shape = stored.shape;
  if (axis + 1 < std::ssize(stored.shape)) {
    e.notes.push_back(
        fmt::format("Blocks run along axis {} of {}.", axis, dimensions(stored.shape)));
  }
  const TensorInfo& matrix = moved.tensors()[index];
  const bool is_flat = recipe.ragged() == Ragged::kFlat && matrix.cols() % recipe.format.block != 0;
  if (is_flat) e.notes.emplace_back("Blocks run over the flattened tensor (ragged=flat).");
  const TensorSource& source = is_flat ? static_cast<const TensorSource&>(flat) : moved;
  const TensorInfo& tensor = is_flat ? flat.tensors()[0] : matrix;
  require_block(recipe, tensor, place, name);
  require_matrix(recipe, matrix, name);
  const TileSpan span = span_of(recipe, tensor, place);
  const std::vector<OuterScale32> outer = outer_of_rows(source, tensor, recipe, span, options);
  TileBuffer buffer;
  buffer.read(source, tensor, span, &recipe);
  try {
    return explain_block(recipe, buffer.tile, outer, place.row - span.row,
                         place.block - span.col / recipe.format.block, std::move(e));
  } catch (const RefusedInput& refused) {
    refuse(ErrorKind::kData,
           fmt::format("{}: row {}: {}", name, span.row + refused.row(), refused.what()));
  }
}

}  // namespace fp4scope
