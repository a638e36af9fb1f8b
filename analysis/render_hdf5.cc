// render_hdf5.cc: the report as the image of an HDF5 file, made in memory. Names are the keys of
// the JSON report; render.h has the layout. The same report gives the same bytes: no object has a
// time, and members are created in a fixed order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "analysis/io/hdf5_library.h"
#include "analysis/render.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kLayoutVersion = 1;
// Maps from this size on are stored in packed chunks.
constexpr std::int64_t kPackFrom = 4096;  // bytes
constexpr hsize_t kChunkRows = 256, kChunkCols = 1024;

[[noreturn]] void fail() {
  throw Error(ErrorKind::kData, "cannot make the HDF5 report: " + hdf5_error());
}
Hid checked(hid_t id) {
  if (id < 0) fail();
  return Hid(id);
}
void check(herr_t status) {
  if (status < 0) fail();
}

// Text as h5py writes it. A variable-length string ends at a NUL, which a name may hold: such a
// text has a fixed length.
Hid string_type(std::size_t bytes) {
  Hid type = checked(H5Tcopy(H5T_C_S1));
  check(H5Tset_size(type.get(), bytes));
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  if (bytes != H5T_VARIABLE) check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  return type;
}
Hid bool_type() {
  Hid type = checked(H5Tenum_create(H5T_STD_I8LE));
  const signed char no = 0, yes = 1;
  check(H5Tenum_insert(type.get(), "FALSE", &no));
  check(H5Tenum_insert(type.get(), "TRUE", &yes));
  return type;
}

// A group of the report with its members.
class Group {
 public:
  explicit Group(Hid id) : id_(std::move(id)) {}

  Group group(const std::string& name) const {
    const Hid properties = checked(H5Pcreate(H5P_GROUP_CREATE));
    check(H5Pset_obj_track_times(properties.get(), false));
    // All attributes in the header of the object, where they take least space.
    check(H5Pset_attr_phase_change(properties.get(), 1000, 0));
    return Group(
        checked(H5Gcreate2(id_.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT)));
  }
  // Members "0000", "0001", ...
  template <class T, class Fill>
  void list(const std::string& name, const std::vector<T>& items, const Fill& fill) const {
    const Group all = group(name);
    const std::size_t digits = std::max<std::size_t>(std::to_string(items.size()).size(), 4);
    for (std::size_t i = 0; i < items.size(); ++i) {
      fill(all.group(fmt::format("{:0{}}", i, digits)), items[i]);
    }
  }

  void set(const char* name, const std::string& text) const {
    if (text.find('\0') == std::string::npos) {
      const char* pointer = text.c_str();
      attribute(name, string_type(H5T_VARIABLE), {}, &pointer);
    } else {
      attribute(name, string_type(text.size()), {}, text.data());
    }
  }
  void set(const char* name, const std::vector<std::string>& texts) const {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    attribute(name, string_type(H5T_VARIABLE), {texts.size()}, pointers.data());
  }
  void set(const char* name, std::int64_t value) const {
    attribute(name, checked(H5Tcopy(H5T_STD_I64LE)), {}, &value);
  }
  void set(const char* name, const std::vector<std::int64_t>& values) const {
    attribute(name, checked(H5Tcopy(H5T_STD_I64LE)), {values.size()}, values.data());
  }
  void set(const char* name, double value) const {
    attribute(name, checked(H5Tcopy(H5T_IEEE_F64LE)), {}, &value);
  }
  void set(const char* name, bool value) const {
    const signed char byte = value ? 1 : 0;
    attribute(name, bool_type(), {}, &byte);
  }
  // An undefined figure has a null space.
  void set(const char* name, std::monostate) const {
    const Hid space = checked(H5Screate(H5S_NULL));
    (void)checked(
        H5Acreate2(id_.get(), name, H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  }
  void set(const char* name, const Value& value) const {
    std::visit([&](const auto& v) { set(name, v); }, value);
  }

  void data(const char* name, const std::vector<std::int64_t>& values,
            const std::vector<hsize_t>& shape) const {
    dataset(name, H5T_STD_I64LE, shape, values.data());
  }
  void data(const char* name, const std::vector<double>& values,
            const std::vector<hsize_t>& shape) const {
    dataset(name, H5T_IEEE_F64LE, shape, values.data());
  }

 private:
  // `data` is laid out as `type` says, also in memory.
  void attribute(const char* name, const Hid& type, const std::vector<hsize_t>& shape,
                 const void* data) const {
    const Hid space =
        checked(shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, shape.data(), nullptr));
    const Hid attribute =
        checked(H5Acreate2(id_.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
    if (shape.empty() || shape[0] > 0) check(H5Awrite(attribute.get(), type.get(), data));
  }
  void dataset(const char* name, hid_t type, const std::vector<hsize_t>& shape,
               const void* data) const {
    const auto rank = static_cast<int>(shape.size());
    const Hid space = checked(H5Screate_simple(rank, shape.data(), nullptr));
    const Hid properties = checked(H5Pcreate(H5P_DATASET_CREATE));
    check(H5Pset_obj_track_times(properties.get(), false));
    std::int64_t bytes = 8;  // per element of both types
    for (const hsize_t extent : shape) bytes *= static_cast<std::int64_t>(extent);
    if (rank == 2 && bytes >= kPackFrom) {
      const std::array<hsize_t, 2> chunk = {std::min(shape[0], kChunkRows),
                                            std::min(shape[1], kChunkCols)};
      check(H5Pset_chunk(properties.get(), rank, chunk.data()));
      check(H5Pset_shuffle(properties.get()));
      check(H5Pset_deflate(properties.get(), 6));
    }
    const Hid dataset = checked(
        H5Dcreate2(id_.get(), name, type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT));
    if (bytes > 0) check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
  }

  Hid id_;
};

void add_figures(const Row& row, const Group& out) {
  for (std::size_t i = 0; i < columns().size() && i < row.figures.size(); ++i) {
    out.set(std::string(columns()[i].key).c_str(), row.figures[i]);
  }
}

void add_percentiles(const char* name, const std::vector<std::pair<double, Value>>& percentiles,
                     const Group& out) {
  std::vector<double> flat;
  for (const auto& [percent, value] : percentiles) {
    flat.push_back(percent);
    const auto* number = std::get_if<double>(&value);
    const auto* count = std::get_if<std::int64_t>(&value);
    flat.push_back(number != nullptr  ? *number
                   : count != nullptr ? static_cast<double>(*count)
                                      : std::numeric_limits<double>::quiet_NaN());
  }
  out.data(name, flat, {percentiles.size(), 2});
}

void add_maps(const Maps& maps, const Group& out) {
  out.set("grid_rows", maps.grid_rows);
  out.set("grid_cols", maps.grid_cols);
  out.set("rows_per_cell", maps.rows_per_cell);
  out.set("cols_per_cell", maps.cols_per_cell);
  const std::vector<hsize_t> grid = {static_cast<hsize_t>(maps.grid_rows),
                                     static_cast<hsize_t>(maps.grid_cols)};
  const auto add = [&](const char* name, const auto& cells) {
    if (cells.size() != grid[0] * grid[1]) {
      throw Error(ErrorKind::kData, fmt::format("cannot make the HDF5 report: map {} has {} cells, "
                                                "expected {} x {}",
                                                name, cells.size(), grid[0], grid[1]));
    }
    out.data(name, cells, grid);
  };
  add("elements", maps.elements);
  add("underflow", maps.underflow);
  add("saturated", maps.saturated);
  add("squared_error", maps.squared_error);
  add("scale_code_sum", maps.scale_code_sum);
  add("blocks", maps.blocks);
}

void add_distributions(const Row& row, const Group& out) {
  if (!row.percentiles.sample.empty()) {
    const Group group = out.group("percentiles");
    group.set("sample", row.percentiles.sample);
    add_percentiles("absolute_error", row.percentiles.absolute_error, group);
    add_percentiles("relative_error", row.percentiles.relative_error, group);
  }
  if (!row.code_histogram.empty()) {
    out.data("code_histogram", row.code_histogram, {row.code_histogram.size()});
  }
  if (!row.scale_histogram.empty()) {
    out.data("scale_histogram", row.scale_histogram, {row.scale_histogram.size()});
  }
  if (!row.amax_exponents.empty()) {
    std::vector<std::int64_t> flat;
    for (const auto& [exponent, count] : row.amax_exponents) {
      flat.push_back(exponent);
      flat.push_back(count);
    }
    out.data("amax_exponents", flat, {row.amax_exponents.size(), 2});
  }
  if (row.maps.grid_rows > 0) add_maps(row.maps, out.group("maps"));
}

void add_recipe(const Row& row, const Group& out) {
  out.set("recipe", row.recipe);
  out.set("recipe_canonical", row.recipe_canonical);
  out.set("recipe_full", row.recipe_full);
}

// Each only where it is known, as in JSON.
void add_fields(const Row& row, const Group& out) {
  for (std::size_t i = 0; i < row.fields.size(); ++i) {
    if (std::holds_alternative<std::monostate>(row.fields[i])) continue;
    out.set(std::string(kNameFields[i]).c_str(), row.fields[i]);
  }
}

void add_result(const Group& out, const Row& row) {
  out.set("file", row.file);
  out.set("tensor", row.tensor);
  out.set("dtype", row.dtype);
  out.set("shape", row.shape);
  out.set("source_hash", row.source_hash);
  add_recipe(row, out);
  out.set("backend", row.backend);
  out.set("notes", row.notes);
  add_fields(row, out);
  add_figures(row, out);
  add_distributions(row, out);
}

void add_aggregate(const Group& out, const Row& row) {
  out.set("group", row.group);
  out.set("tensors", row.tensors);
  add_recipe(row, out);
  out.set("notes", row.notes);
  add_fields(row, out);
  add_figures(row, out);
  add_distributions(row, out);
}

void add_error(const Group& out, const ErrorRecord& error) {
  out.set("file", error.file);
  out.set("tensor", error.tensor);
  out.set("message", error.message);
  out.set("exit_code", std::int64_t{error.exit_code});
}

void add_source(const Group& out, const Report::Source& source) {
  out.set("file", source.path);
  out.set("container", source.container);
  out.set("bytes", source.bytes);
}

// The memory of the file, which the library grows, and hands back with its final size and content
// when the file is closed. (H5Fget_file_image() of 1.10 leaves a wrong checksum in the superblock.)
struct Memory {
  std::string image;
  std::size_t size = 0;
  bool complete = false;
};
void* grow(void* old, std::size_t size, H5FD_file_image_op_t, void* memory) {
  void* grown = std::realloc(old, size);
  if (grown != nullptr) static_cast<Memory*>(memory)->size = size;
  return grown;
}
herr_t hand_back(void* data, H5FD_file_image_op_t, void* memory) {
  auto& out = *static_cast<Memory*>(memory);
  try {
    out.image.assign(static_cast<const char*>(data), out.size);
    out.complete = true;
  } catch (...) {  // std::bad_alloc must not pass through the library
  }
  std::free(data);
  return 0;
}
void* keep(void* memory) {
  return memory;
}
herr_t release(void*) {
  return 0;
}

Hid create_file(Memory& memory) {
  const Hid creation = checked(H5Pcreate(H5P_FILE_CREATE));
  check(H5Pset_obj_track_times(creation.get(), false));
  const Hid access = checked(H5Pcreate(H5P_FILE_ACCESS));
  check(H5Pset_fapl_core(access.get(), std::size_t{1} << 20, false));
  H5FD_file_image_callbacks_t callbacks{nullptr, nullptr, grow, hand_back, keep, release, &memory};
  check(H5Pset_file_image_callbacks(access.get(), &callbacks));
  // Attributes above 64 KiB, as a long command line, exist since 1.8.
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18));
  return checked(H5Fcreate("report", H5F_ACC_TRUNC, creation.get(), access.get()));
}

// Errors of the library become sentences of ours; it prints nothing meanwhile.
class QuietErrors {
 public:
  QuietErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace

std::string render_hdf5(const Report& report, const Provenance& provenance) {
  const QuietErrors quiet;
  Memory memory;
  Hid file = create_file(memory);
  {
    const Group root(checked(H5Gopen2(file.get(), "/", H5P_DEFAULT)));
    root.set("layout_version", kLayoutVersion);
    root.set("interrupted", report.interrupted);
    const Group program = root.group("fp4scope");
    program.set("version", provenance.version);
    program.set("git", provenance.git);
    program.set("command", provenance.command);
    program.set("threads", std::int64_t{report.threads});
    root.list("results", report.results, add_result);
    root.list("aggregates", report.aggregates, add_aggregate);
    root.list("errors", report.errors, add_error);
    root.list("skipped", report.skipped, add_error);
    root.list("sources", report.sources, add_source);
  }
  file = Hid();
  if (!memory.complete) fail();
  // The memory grows by whole MiB. Version 2 of the superblock has the end of the file at byte 28
  // (HDF5 File Format 3.0, II.A).
  constexpr std::size_t kEndOfFile = 28;
  std::uint64_t end = 0;
  if (memory.image.size() >= kEndOfFile + sizeof end) {
    std::memcpy(&end, memory.image.data() + kEndOfFile, sizeof end);
  }
  if (end > 0 && end < memory.image.size()) memory.image.resize(end);
  return std::move(memory.image);
}

}  // namespace fp4scope
