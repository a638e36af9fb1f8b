// npz_source.cc: what a zip archive is, and NumPy's npz (numpy.savez): members that are npy files.
// As numpy.load does it, a member is an array when it starts with the magic of npy, and the name of
// the array is that of the member without ".npy"; other members are left out.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "analysis/io/message.h"
#include "analysis/io/zip_archive.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kNpyEnding = ".npy";
constexpr std::string_view kNpyMagic = "\x93NUMPY";
// Most headers are shorter; a longer one is read again.
constexpr std::int64_t kFirstRead = 1024;
constexpr std::int64_t kMostHeader = std::int64_t{16} << 20;

// Of PyTorch files: data.pkl lies in the one folder of the archive.
bool is_pickle(std::string_view name) {
  return name == "data.pkl" || name.ends_with("/data.pkl");
}

[[noreturn]] void refuse_content(const ZipArchive& archive, const MappedFile& file) {
  constexpr std::size_t kShown = 3;
  const std::vector<ZipMember>& members = archive.members();
  std::string names;
  for (std::size_t i = 0; i < std::min(members.size(), kShown); ++i) {
    names += (i == 0 ? "" : ", ") + in_quotes(members[i].name, 60);
  }
  if (members.size() > kShown) names += fmt::format(" and {} more", members.size() - kShown);
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{} is a zip archive, but neither npz (*.npy) nor PyTorch (data.pkl): it "
                          "holds {}",
                          printable(file.path()), names));
}

// Two members may come down to one name, "x" and "x.npy"; the later one gets "#2".
std::string array_name(std::string name, std::unordered_set<std::string>& names) {
  if (name.ends_with(kNpyEnding)) name.resize(name.size() - kNpyEnding.size());
  std::string found = name;
  for (int i = 2; !names.insert(found).second; ++i) found = fmt::format("{}#{}", name, i);
  return found;
}

// The npy header and what follows in the same read; nothing when the member is no npy file.
std::optional<std::string> npy_start(const ZipArchive& archive, std::size_t member,
                                     const std::string& place) {
  const std::int64_t size = archive.members()[member].size;
  std::string start = archive.read_start(member, kFirstRead);
  if (!start.starts_with(kNpyMagic)) return std::nullopt;
  const std::int64_t end = npy_header_end(start, size, place);
  if (end > kMostHeader) {
    throw Error(ErrorKind::kData, fmt::format("{}: the npy header has {} bytes, at most {}",
                                              printable(place), end, kMostHeader));
  }
  if (end > std::ssize(start)) start = archive.read_start(member, end);
  return start;
}

}  // namespace

void append_zip(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                Contents& contents) {
  const ZipArchive archive(file, options);
  const std::vector<ZipMember>& members = archive.members();
  std::optional<std::size_t> pickle;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!is_pickle(members[i].name)) continue;
    if (pickle) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: the zip archive holds {} and {}, expected one data.pkl",
                              printable(file->path()), in_quotes(members[*pickle].name),
                              in_quotes(members[i].name)));
    }
    pickle = i;
  }
  if (pickle) {
    contents.info.container = "pytorch";
    append_pytorch_zip(archive, *pickle, file, options, contents);
    return;
  }
  contents.info.container = "npz";
  append_npz(archive, file, options, contents);
}

void append_npz(const ZipArchive& archive, const std::shared_ptr<MappedFile>& file,
                const OpenOptions& options, Contents& contents) {
  const std::vector<ZipMember>& members = archive.members();
  const std::size_t first = contents.storage.size();
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ZipMember& member = members[i];
    TensorInfo tensor;
    // Errors of the npy parser name this.
    tensor.file = fmt::format("{}: member {}", file->path(), in_quotes(member.name));
    const std::optional<std::string> start = npy_start(archive, i, tensor.file);
    if (!start) {
      if (!member.name.ends_with(kNpyEnding)) continue;
      throw Error(ErrorKind::kData, fmt::format("{} is no npy file, expected one by its name",
                                                printable(tensor.file)));
    }
    tensor.name = array_name(member.name, names);
    const ZipArchive::Data data = archive.data(i, true);
    contents.files.push_back(data.store);
    Storage storage;
    storage.file = contents.files.size() - 1;
    storage.offset = data.offset;
    append_npy_array(*start, member.size, std::move(tensor), std::move(storage), options.dtype_hint,
                     NpyOther::kList, contents);
    contents.tensors.back().file = file->path();
  }
  contents.info.bytes += file->size();
  const bool any_array = contents.storage.size() > first;
  if (!any_array && !members.empty()) refuse_content(archive, *file);
  const auto is_readable = [](const Storage& storage) { return storage.bits > 0; };
  if (any_array && std::none_of(contents.storage.begin() + static_cast<std::ptrdiff_t>(first),
                                contents.storage.end(), is_readable)) {
    const TensorInfo& tensor = contents.tensors[contents.tensors.size() - 1];
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format("{}: no array can be read: {} has the dtype {}, whose elements are {}",
                    printable(file->path()), in_quotes(tensor.name), in_quotes(tensor.dtype_text),
                    tensor.dtype_text.find('O') != std::string::npos
                        ? "pickled Python objects, which are never loaded"
                        : "no numbers"));
  }
}

}  // namespace fp4scope
