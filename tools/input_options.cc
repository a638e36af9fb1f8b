// input_options.cc: how the files of a command are to be read: --dtype, --shape, --offset and
// --follow-links; and what their names say, --name-pattern.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "analysis/io/mapped_source.h"
#include "analysis/text_table.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

using DTypeName = std::pair<std::string_view, DType>;
constexpr std::array<DTypeName, 9> kRawDTypes = {{{"f64", DType::kF64},
                                                  {"f32", DType::kF32},
                                                  {"f16", DType::kF16},
                                                  {"bf16", DType::kBF16},
                                                  {"e4m3", DType::kF8E4M3},
                                                  {"e5m2", DType::kF8E5M2},
                                                  {"e8m0", DType::kF8E8M0},
                                                  {"u8", DType::kU8},
                                                  {"i8", DType::kI8}}};
constexpr std::array<std::string_view, 5> kHints = {"bf16", "e4m3", "e5m2", "e8m0", "raw"};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kUsage, what);
}

// "96x512" or "96,512"; one extent of -1 is what the size of the file leaves.
std::vector<std::int64_t> parse_raw_shape(const std::string& text) {
  constexpr std::size_t kMostDimensions = 32;
  std::vector<std::int64_t> shape;
  const auto fail = [&](const char* why) {
    refuse(
        fmt::format("--shape {}: {}, expected numbers with x or commas between them, as in "
                    "96x512; one of them may be -1",
                    text, why));
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("x,", at), text.size());
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (error == std::errc::result_out_of_range) fail("a number exceeds 63 bits");
    if (error != std::errc{} || stop != text.data() + end) fail("this is no shape");
    if (extent < -1) fail("a number is negative");
    if (shape.size() == kMostDimensions) fail("there are more than 32 dimensions");
    shape.push_back(extent);
    at = end + 1;
  }
  if (std::count(shape.begin(), shape.end(), -1) > 1) fail("two numbers are -1");
  std::vector<std::int64_t> known = shape;
  std::replace(known.begin(), known.end(), std::int64_t{-1}, std::int64_t{1});
  const auto elements = checked_product(known);
  constexpr std::int64_t kMostBytes = 8;
  std::int64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, kMostBytes, &bytes)) {
    fail("the product exceeds 63 bits");
  }
  return shape;
}

std::int64_t parse_offset(const std::string& text) {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const char *first = text.data() + (is_hex ? 2 : 0), *last = text.data() + text.size();
  std::int64_t offset = 0;
  const auto [stop, error] = std::from_chars(first, last, offset, is_hex ? 16 : 10);
  if (error == std::errc{} && stop == last && offset >= 0) return offset;
  refuse(fmt::format("--offset {}: expected a number of bytes from 0 to 2^63 - 1", text));
}

template <class Names>
std::string list_of(const Names& names) {
  std::string list;
  for (const auto& name : names) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  return list;
}

std::string raw_dtype_list(bool only_real = false) {
  std::vector<std::string_view> names;
  for (const auto& [name, dtype] : kRawDTypes) {
    if (!only_real || is_real(dtype)) names.push_back(name);
  }
  return list_of(names);
}

// Once all options are there.
void resolve(CommonOptions& options) {
  const CommonOptions::InputOptions& input = options.input;
  if (input.shape.empty()) {
    if (!input.offset.empty()) refuse("--offset needs --shape and --dtype");
    const bool is_hint = std::find(kHints.begin(), kHints.end(), input.dtype) != kHints.end();
    if (!input.dtype.empty() && !is_hint) {
      refuse(
          fmt::format("--dtype {}: expected one of {}; {} need --shape, for a file without a "
                      "header",
                      input.dtype, list_of(kHints), raw_dtype_list()));
    }
    options.open.dtype_hint = input.dtype;
    return;
  }
  if (input.dtype.empty()) {
    refuse(fmt::format("--shape needs --dtype, one of {}", raw_dtype_list()));
  }
  const auto found = std::find_if(kRawDTypes.begin(), kRawDTypes.end(),
                                  [&](const DTypeName& d) { return d.first == input.dtype; });
  if (found == kRawDTypes.end()) {
    refuse(
        fmt::format("--dtype {} with --shape: expected one of {}", input.dtype, raw_dtype_list()));
  }
  RawLayout raw;
  raw.dtype = found->second;
  raw.shape = parse_raw_shape(input.shape);
  if (!input.offset.empty()) {
    raw.offset = parse_offset(input.offset);
    // One piece of a file; without an offset all of it is meant.
    raw.ends_file = false;
  }
  options.open.raw = raw;
}

}  // namespace

void add_input_options(CLI::App& app, CommonOptions& options, bool takes_integers) {
  app.add_option("--dtype", options.input.dtype,
                 fmt::format("type of npy files whose header names none: {}; with --shape: {}",
                             list_of(kHints), raw_dtype_list(!takes_integers)))
      ->type_name("TYPE");
  app.add_option("--shape", options.input.shape,
                 "read a file without a header: little-endian elements of --dtype in row-major "
                 "order, as in 96x512; one extent may be -1")
      ->type_name("RxC");
  app.add_option(
         "--offset", options.input.offset,
         "with --shape: bytes before the first element; what follows the last one is then no "
         "error")
      ->type_name("BYTES");
  app.add_flag("--follow-links", options.open.follow_links,
               "also read what symbolic links in a directory lead to outside of it");
  app.parse_complete_callback([&options] { resolve(options); });
}

void add_name_pattern(CLI::App& app, CommonOptions& options) {
  app.add_option("--name-pattern", options.name_patterns,
                 "take fields from DIRECTORY/PATH:TENSOR, by groups (?P<layer>...), step, rank, "
                 "expert or role; repeatable, the first that has a field gives it, then built-in "
                 "rules for the dumps of TransformerEngine, SGLang, Megatron and transformers")
      ->type_name("REGEX")
      ->allow_extra_args(false);
}

std::string input_options_text(const OpenOptions& options) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : " ") + text; };
  if (options.raw) {
    for (const auto& [name, dtype] : kRawDTypes) {
      if (dtype == options.raw->dtype) add(fmt::format("--dtype {}", name));
    }
    // One word: a shape that begins with -1 would look like an option.
    add("--shape=" + dimensions(options.raw->shape));
    if (!options.raw->ends_file) add(fmt::format("--offset {}", options.raw->offset));
  } else if (!options.dtype_hint.empty()) {
    add("--dtype " + options.dtype_hint);
  }
  if (options.follow_links) add("--follow-links");
  return out;
}

}  // namespace fp4scope::tools
