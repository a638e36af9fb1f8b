// hdf5_filters.cc: where the data of a dataset lie and what they went through: chunks and filters.
// Numbers and names of filters: https://github.com/HDFGroup/hdf5_plugins, registered filters.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "analysis/io/hdf5_dataset.h"
#include "analysis/io/message.h"

namespace fp4scope {
namespace {

// Deflate packs at best 1032 bytes into one; what claims more in a chunk that is large is damaged.
constexpr std::int64_t kMostPacked = 1100;
constexpr std::int64_t kLargeChunk = std::int64_t{16} << 20;
// A filtered chunk is unpacked whole.
constexpr std::int64_t kLargestChunk = std::int64_t{1} << 30;

struct KnownFilter {
  H5Z_filter_t number;
  const char* name;
  const char* package;  // of Debian 12; null: none has it
};
constexpr std::array<KnownFilter, 16> kFilters = {{
    {H5Z_FILTER_DEFLATE, "gzip", nullptr},
    {H5Z_FILTER_SHUFFLE, "shuffle", nullptr},
    {H5Z_FILTER_FLETCHER32, "fletcher32", nullptr},
    {H5Z_FILTER_SZIP, "szip", nullptr},
    {H5Z_FILTER_NBIT, "nbit", nullptr},
    {H5Z_FILTER_SCALEOFFSET, "scaleoffset", nullptr},
    {307, "bzip2", "hdf5-filter-plugin"},
    {kLzfFilter, "lzf", nullptr},
    {32001, "blosc", "hdf5-filter-plugin-blosc-serial"},
    {32004, "lz4", "hdf5-filter-plugin"},
    {kBitshuffleFilter, "bitshuffle", nullptr},
    {32013, "zfp", "hdf5-filter-plugin-zfp-serial"},
    {32015, "zstd", nullptr},
    {32017, "sz", nullptr},
    {32024, "sz3", nullptr},
    {32026, "blosc2", nullptr},
}};

// A plug-in is a file. Outside this object's life no file can be opened here (hdf5_worker.cc), so
// that nothing in a data file leads to another file.
class FilesAllowed {
 public:
  FilesAllowed() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit raised{std::min<rlim_t>(256, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
  }
  ~FilesAllowed() { setrlimit(RLIMIT_NOFILE, &before_); }
  FilesAllowed(const FilesAllowed&) = delete;
  FilesAllowed& operator=(const FilesAllowed&) = delete;

 private:
  rlimit before_{};
};

// Where `number` was looked for in vain, as part of a sentence; `name` is how the file calls it.
std::string missing_text(H5Z_filter_t number, const char* name) {
  const auto known = std::find_if(kFilters.begin(), kFilters.end(),
                                  [&](const KnownFilter& f) { return f.number == number; });
  std::string text = known != kFilters.end() ? known->name
                     : *name != '\0'         ? in_quotes(name, 60)
                                             : std::string("without a name");
  text += " (number " + std::to_string(number) + ", ";
  if (number < 256) return text + "which this build of the library left out)";
  if (known != kFilters.end() && known->package != nullptr) {
    text += std::string("Debian package ") + known->package + ", or ";
  }
  text += "a plug-in in a folder that HDF5_PLUGIN_PATH names";
  // hdf5plugin.PLUGIN_PATH is such a folder.
  return text + (known != kFilters.end() ? ", as the Python package hdf5plugin has it)" : ")");
}

void describe_filters(hid_t properties, Hdf5Layout& out) {
  const int count = H5Pget_nfilters(properties);
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    std::array<unsigned, 64> values{};
    std::size_t size = values.size();
    std::array<char, 128> name{};
    const H5Z_filter_t number =
        H5Pget_filter2(properties, static_cast<unsigned>(i), &flags, &size, values.data(),
                       name.size() - 1, name.data(), nullptr);
    if (number < 0) {
      out.refusal = Hdf5Status::kData;
      out.reason = "has filters that cannot be read: " + hdf5_error();
      return;
    }
    size = std::min(size, values.size());
    out.filters.push_back({number, {values.begin(), values.begin() + size}});
    names.emplace_back(name.data());
  }
  if (can_undo(out.filters)) return;
  for (std::size_t i = 0; i < out.filters.size(); ++i) {
    const FilesAllowed files;
    if (H5Zfilter_avail(out.filters[i].number) > 0) continue;
    H5Eclear2(H5E_DEFAULT);
    if (!out.missing_filters.empty()) out.missing_filters += " and ";
    out.missing_filters += missing_text(out.filters[i].number, names[i].c_str());
  }
}

void describe_chunks(hid_t properties, std::int64_t element_bytes, std::int64_t file_bytes,
                     Hdf5Layout& out) {
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int rank = H5Pget_chunk(properties, H5S_MAX_RANK, extents.data());
  std::int64_t bytes = std::max<std::int64_t>(element_bytes, 1);
  bool fits = rank > 0 && rank <= H5S_MAX_RANK;
  for (int d = 0; fits && d < rank; ++d) {
    const hsize_t extent = extents[static_cast<std::size_t>(d)];
    fits = extent > 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    out.chunk.push_back(static_cast<std::int64_t>(extent));
  }
  out.chunked = true;
  unsigned options = 0;
  if (H5Pget_chunk_opts(properties, &options) < 0) {
    out.refusal = Hdf5Status::kData;
    out.reason = "has chunks that cannot be described: " + hdf5_error();
    return;
  }
  out.plain_edges = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
  if (!fits) {
    out.refusal = Hdf5Status::kData;
    out.reason = "has chunks without a size";
    return;
  }
  out.chunk_bytes = bytes;
  if (out.filters.empty() || bytes <= kLargeChunk) return;
  if (bytes / kMostPacked > file_bytes) {
    out.refusal = Hdf5Status::kData;
    out.reason = "has chunks of " + std::to_string(bytes) + " bytes, which cannot come out of " +
                 std::to_string(file_bytes) + " bytes of file";
  } else if (bytes > kLargestChunk) {
    out.refusal = Hdf5Status::kUnsupported;
    out.reason = "has filtered chunks of " + std::to_string(bytes) + " bytes, expected at most " +
                 std::to_string(kLargestChunk) + " (rewrite it with smaller ones: h5repack -l)";
  }
}

// The library reads a dataset without chunks beyond its data where a damaged header gives it a
// larger shape, and not twice the same.
void check_extent(hid_t dataset, std::int64_t element_bytes, Hdf5Layout& out) {
  const hsize_t stored = H5Dget_storage_size(dataset);
  const Hid space(H5Dget_space(dataset));
  const hssize_t elements = space ? H5Sget_simple_extent_npoints(space.get()) : -1;
  H5Eclear2(H5E_DEFAULT);
  hsize_t needed = 0;
  // Nothing is stored of what was never written.
  if (stored == 0 || elements < 0) return;
  if (!__builtin_mul_overflow(static_cast<hsize_t>(elements), static_cast<hsize_t>(element_bytes),
                              &needed) &&
      needed <= stored) {
    return;
  }
  out.refusal = Hdf5Status::kData;
  out.reason = fmt::format("has a shape of {} elements of {} bytes, but {} bytes of data", elements,
                           element_bytes, stored);
}

}  // namespace

Hdf5Layout describe_layout(hid_t dataset, std::int64_t element_bytes, std::int64_t file_bytes) {
  Hdf5Layout out;
  const Hid properties(H5Dget_create_plist(dataset));
  const H5D_layout_t layout = properties ? H5Pget_layout(properties.get()) : H5D_LAYOUT_ERROR;
  if (layout == H5D_LAYOUT_ERROR) {
    out.refusal = Hdf5Status::kData;
    out.reason = "has a layout that cannot be read: " + hdf5_error();
    return out;
  }
  if (layout == H5D_VIRTUAL) {
    out.refusal = Hdf5Status::kUnsupported;
    out.reason =
        "is a virtual dataset, put together from other datasets or files, which is not "
        "followed (h5repack -l CONTI makes a plain one)";
    return out;
  }
  const int external = H5Pget_external_count(properties.get());
  if (external != 0) {
    out.refusal = Hdf5Status::kUnsupported;
    out.reason =
        "has its data in another file, which is not followed (h5repack copies them into "
        "one file)";
    H5Eclear2(H5E_DEFAULT);
    return out;
  }
  describe_filters(properties.get(), out);
  if (out.refusal == Hdf5Status::kOk && layout == H5D_CHUNKED) {
    describe_chunks(properties.get(), element_bytes, file_bytes, out);
  } else if (out.refusal == Hdf5Status::kOk && element_bytes > 0) {
    check_extent(dataset, element_bytes, out);
  }
  return out;
}

}  // namespace fp4scope
