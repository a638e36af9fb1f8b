// tensor_source.cc: dtype names, and which reader takes a path. The kind of a file follows from its
// first bytes; file name endings only choose among the files of a directory (container_files.cc).
#include "analysis/io/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "analysis/io/composite_source.h"
#include "analysis/io/hdf5_source.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/pooled_source.h"
#include "analysis/io/pytorch_dtypes.h"
#include "analysis/io/safetensors_format.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

enum class Kind { kSafetensors, kHalfSafetensors, kIndex, kNpy, kZip, kPickle, kGguf, kHdf5 };

bool starts_with_hdf5(const MappedFile& file) {
  // The signature stands at byte 0, 512, 1024, 2048, ... (a user block may lie before it).
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  const std::int64_t last = file.size() - std::ssize(kSignature);
  for (std::int64_t at = 0; at <= last; at = at == 0 ? 512 : 2 * at) {
    if (file.text(at, std::ssize(kSignature)) == kSignature) return true;
  }
  return false;
}

void refuse_compressed(const MappedFile& file, std::string_view start, bool is_stream) {
  struct Compression {
    std::string_view magic, name;  // of the program, too
  };
  static constexpr std::array<Compression, 4> kKnown = {{{"\x1f\x8b\x08", "gzip"},
                                                         {"\xfd"
                                                          "7zXZ",
                                                          "xz"},
                                                         {"\x28\xb5\x2f\xfd", "zstd"},
                                                         {"BZh", "bzip2"}}};
  for (const auto& [magic, name] : kKnown) {
    if (!start.starts_with(magic)) continue;
    const std::string advice =
        is_stream ? fmt::format("pipe it through {} -dc", name)
                  : fmt::format("unpack it first ({} -dc {} > NEW)", name, shell_word(file.path()));
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{} is compressed with {}, expected a container of tensors: {}",
                            printable(file.path()), name, printable(advice)));
  }
}

[[noreturn]] void refuse_kind(const MappedFile& file, const std::string& what) {
  throw Error(ErrorKind::kUnsupported, fmt::format("{} is {}", printable(file.path()), what));
}

// PyTorch before its own format: a tar archive of these members.
void refuse_tar(const MappedFile& file) {
  constexpr std::int64_t kMagic = 257, kBlock = 512;
  if (file.size() < kBlock || file.text(kMagic, 5) != "ustar") return;
  const std::string_view name(reinterpret_cast<const char*>(file.data()),
                              ::strnlen(reinterpret_cast<const char*>(file.data()), 100));
  static constexpr std::array<std::string_view, 4> kMembers = {"sys_info", "pickle", "storages",
                                                               "tensors"};
  if (std::find(kMembers.begin(), kMembers.end(), name) != kMembers.end()) {
    refuse_kind(file,
                "an old tar-format torch file, which this program does not read; load it with "
                "PyTorch and save it again");
  }
  refuse_kind(file, "a tar archive; unpack it first");
}

// The start of the rest of a pickle of protocol 0 or 1 behind an object: it is put into the memo,
// under a number in decimal digits or one byte.
bool puts_first(std::string_view rest) {
  return rest.starts_with("p0\n") || rest.starts_with("p1\n") ||
         rest.starts_with(std::string_view("q\0", 2)) || rest.starts_with("q\x01");
}

// Pickles of protocols 0 and 1 have no number, and much text begins as they do: they are told by
// their first objects (dict, list, a global name) with what follows it and by their last byte. What
// follows the magic number of old PyTorch files are bytes of storages.
void refuse_text_pickle(const MappedFile& file) {
  constexpr std::int64_t kShown = 512;
  const std::string_view start = file.text(0, std::min(file.size(), kShown));
  const bool is_torch = start.starts_with("L119547037146038801333356L\n.");
  const bool is_container =
      ((start.starts_with("(d") || start.starts_with("(l")) && puts_first(start.substr(2))) ||
      ((start[0] == '}' || start[0] == ']') && puts_first(start.substr(1)));
  // GLOBAL: a module and a name, a line each.
  const auto is_name = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '.';
    });
  };
  const std::size_t module_end = start.find('\n');
  const std::size_t name_end =
      module_end == std::string_view::npos ? module_end : start.find('\n', module_end + 1);
  const bool is_global =
      start.starts_with('c') && name_end != std::string_view::npos &&
      is_name(start.substr(1, module_end - 1)) &&
      is_name(start.substr(module_end + 1, name_end - module_end - 1)) &&
      (puts_first(start.substr(name_end + 1)) || start.substr(name_end + 1).starts_with('('));
  const bool has_end = file.text(file.size() - 1, 1) == ".";
  if (!is_torch && !(has_end && (is_container || is_global))) return;
  refuse_kind(file,
              "a pickle of protocol 0 or 1, expected protocol 2 or later: save it again with a "
              "later one, or as npy or safetensors");
}

Kind kind_of(const MappedFile& file, bool is_stream) {
  const std::int64_t shown = std::min<std::int64_t>(file.size(), 64);
  const std::string_view start = file.text(0, shown);
  if (start.starts_with("\x93NUMPY")) return Kind::kNpy;
  if (start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06")) return Kind::kZip;
  if (start.starts_with("GGUF")) return Kind::kGguf;
  // Before the pickles: a header of 640 bytes begins as one of protocol 2 does.
  constexpr std::size_t kLengthBytes = 8;
  const bool has_length =
      start.size() > kLengthBytes && read_header_length(file) <= kMaxSafetensorsHeader;
  const bool has_object = start.size() > kLengthBytes && start[kLengthBytes] == '{';
  if (has_length && has_object) return Kind::kSafetensors;
  refuse_compressed(file, start, is_stream);
  // Protocols 2 to 5 begin with their number.
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) {
    return Kind::kPickle;
  }
  // Before what has half of a safetensors header: a user block of zeros begins with a length.
  if (start.starts_with("\x89HDF") || starts_with_hdf5(file)) return Kind::kHdf5;
  if (has_length || has_object) return Kind::kHalfSafetensors;
  const std::size_t text = start.find_first_not_of(" \t\r\n");
  if (text != std::string_view::npos && start[text] == '{' && start.size() > kLengthBytes) {
    return Kind::kIndex;
  }
  if (start.size() <= kLengthBytes) {
    throw UnknownContainer(ErrorKind::kData, fmt::format("{} has {} bytes, too few for any "
                                                         "container (truncated?)",
                                                         printable(file.path()), file.size()));
  }
  refuse_tar(file);
  refuse_text_pickle(file);
  throw UnknownContainer(
      ErrorKind::kData,
      fmt::format("{} is no container that this program knows (safetensors, npy, npz, "
                  "PyTorch, GGUF, HDF5): it starts with {}",
                  printable(file.path()), in_quotes(start.substr(0, 8))));
}

// False for HDF5, which is left alone: its reader is one of its own.
bool append_container(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                      bool is_stream, Contents& contents) {
  const auto fill = [&](const char* container, const auto& append) {
    append();
    contents.info.container = container;
  };
  switch (kind_of(*file, is_stream)) {
    case Kind::kNpy:
      fill("npy", [&] { append_npy(file, options.dtype_hint, contents); });
      break;
    case Kind::kIndex:
      append_index(*file, options, contents);
      break;
    case Kind::kSafetensors:
      fill("safetensors", [&] { append_safetensors(file, contents); });
      break;
    case Kind::kHalfSafetensors:
      try {
        fill("safetensors", [&] { append_safetensors(file, contents); });
      } catch (const Error& e) {
        throw UnknownContainer(e.kind(), e.what());
      }
      break;
    case Kind::kZip:
      append_zip(file, options, contents);
      break;
    case Kind::kPickle:
      fill("pytorch legacy", [&] { append_pytorch_legacy(file, options, contents); });
      break;
    case Kind::kGguf:
      fill("gguf", [&] { append_gguf(file, contents); });
      break;
    case Kind::kHdf5:
      return false;
  }
  return true;
}

std::unique_ptr<TensorSource> open_file(const std::string& path, const OpenOptions& options) {
  const bool streamed = is_stream(path);
  const auto file = streamed ? spool_stream(path, options.scratch_folder, options.stop)
                             : std::make_shared<MappedFile>(path);
  Contents contents;
  contents.info.path = path;
  if (options.raw) {
    append_raw(file, *options.raw, contents);
    contents.info.container = "raw";
  } else if (!append_container(file, options, streamed, contents)) {
    return open_hdf5(path, file, options);
  }
  // A page of the header that could not be read was parsed as zeros.
  file->check();
  return std::make_unique<MappedSource>(std::move(contents));
}

}  // namespace

void append_shard(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                  Contents& contents) {
  const Kind kind = kind_of(*file, false);
  // An index would open others without end.
  if (kind != Kind::kSafetensors && kind != Kind::kHalfSafetensors && kind != Kind::kZip &&
      kind != Kind::kPickle) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: expected a shard in safetensors or PyTorch's format, found "
                            "another container",
                            printable(file->path())));
  }
  (void)append_container(file, options, false, contents);
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kF8E5M2:
      return "f8_e5m2";
    case DType::kF8E8M0:
      return "f8_e8m0";
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kOther:
      return "other";
  }
  return "other";
}

std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kOther:
      return 0;
  }
  return 0;
}

bool is_real(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16 || dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

std::string dtype_label(const TensorInfo& tensor) {
  // A raw npy descr such as |V1 says less than the hint that typed it.
  const bool hinted = tensor.dtype != DType::kOther && !tensor.decoded &&
                      tensor.dtype_text.find_first_of("VS") != std::string::npos;
  if (hinted) return std::string(dtype_name(tensor.dtype));
  return printable(tensor.dtype_text) +
         (tensor.dtype_text.ends_with(kNegatedView) ? ": save x.resolve_neg() instead" : "");
}

// |V1 and |V2 are what npy writes for numbers that numpy itself does not have.
std::string dtype_advice(const TensorInfo& tensor) {
  if (tensor.dtype != DType::kOther) return "";
  if (tensor.dtype_text == "|V2") return ", which only says its size (--dtype bf16?)";
  if (tensor.dtype_text != "|V1") return "";
  return ", which only says its size (--dtype e4m3, e5m2 or e8m0?)";
}

std::optional<Error> damage_of(const TensorInfo& tensor) {
  if (tensor.damage.empty()) return std::nullopt;
  return Error(tensor.damage_kind, fmt::format("{}: tensor {} {}", printable(tensor.file),
                                               in_quotes(tensor.name), printable(tensor.damage)));
}
void refuse_damaged(const TensorInfo& tensor) {
  if (const auto damage = damage_of(tensor)) throw *damage;
}

std::string shown_dtype(const TensorInfo& tensor) {
  if (tensor.decoded || tensor.dtype == DType::kOther) return printable(tensor.dtype_text);
  return std::string(dtype_name(tensor.dtype));
}

void check_rectangle(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                     std::int64_t col, std::int64_t cols) {
  const bool inside = row >= 0 && rows >= 0 && col >= 0 && cols >= 0 && rows <= tensor.rows() &&
                      row <= tensor.rows() - rows && cols <= tensor.cols() &&
                      col <= tensor.cols() - cols;
  if (inside) return;
  throw Error(ErrorKind::kData,
              fmt::format("{}: tensor {} has {} rows and {} columns, found a request for {} rows "
                          "from {} and {} columns from {}",
                          printable(tensor.file), in_quotes(tensor.name), tensor.rows(),
                          tensor.cols(), rows, row, cols, col));
}

// The readers have checked that the product of the nonzero extents fits.
std::int64_t TensorInfo::rows() const {
  std::int64_t product = 1;
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) product *= shape[d];
  return product;
}

std::int64_t TensorInfo::cols() const {
  return shape.empty() ? 1 : shape.back();
}

std::unique_ptr<TensorSource> open_source(const std::string& path, const OpenOptions& options) {
  if (path.empty()) {
    throw Error(ErrorKind::kData, "the file name is empty, expected a file or directory");
  }
  static constexpr std::array<std::string_view, 6> kHints = {"",     "bf16", "e4m3",
                                                             "e5m2", "e8m0", "raw"};
  if (std::find(kHints.begin(), kHints.end(), options.dtype_hint) == kHints.end()) {
    throw Error(ErrorKind::kUsage, fmt::format("unknown dtype {}, expected bf16, e4m3, e5m2, e8m0 "
                                               "or raw",
                                               in_quotes(options.dtype_hint)));
  }
  const std::vector<std::string> files = container_files(path, options.follow_links);
  if (files.size() == 1) return open_file(files.front(), options);
  SourcePool pool(options);
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (const std::string& file : files) sources.push_back(pool.open(file));
  return std::make_unique<CompositeSource>(path, std::move(sources));
}

std::vector<std::string> source_files(const TensorSource& source) {
  std::vector<std::string> files = container_files(source.info().path);
  std::unordered_set<std::string> seen(files.begin(), files.end());
  for (const TensorInfo& tensor : source.tensors()) {
    if (seen.insert(tensor.file).second) files.push_back(tensor.file);
  }
  return files;
}

}  // namespace fp4scope
