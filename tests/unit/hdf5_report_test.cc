// The HDF5 report, read back through the C API of the library: every field of a report made by
// hand.
#include <doctest/doctest.h>

#include <limits>

#include "analysis/io/hdf5_library.h"
#include "analysis/render.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

class Opened {
 public:
  explicit Opened(const std::string& image) {
    test::write_file(folder_.file("r.h5"), image);
    file_ = Hid(H5Fopen(folder_.file("r.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    REQUIRE(file_);
  }

  Hid attribute(const std::string& object, const std::string& name) const {
    Hid id(H5Aopen_by_name(file_.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
    CAPTURE(object);
    CAPTURE(name);
    REQUIRE(id);
    return id;
  }
  H5S_class_t space_class(const std::string& object, const std::string& name) const {
    const Hid space(H5Aget_space(attribute(object, name).get()));
    return H5Sget_simple_extent_type(space.get());
  }
  hsize_t count(const std::string& object, const std::string& name) const {
    const Hid space(H5Aget_space(attribute(object, name).get()));
    return static_cast<hsize_t>(H5Sget_simple_extent_npoints(space.get()));
  }
  std::vector<std::string> texts(const std::string& object, const std::string& name) const {
    const Hid id = attribute(object, name);
    std::vector<std::string> out;
    const Hid type(H5Aget_type(id.get()));
    REQUIRE(H5Tget_class(type.get()) == H5T_STRING);
    CHECK(H5Tget_cset(type.get()) == H5T_CSET_UTF8);
    if (H5Tis_variable_str(type.get()) == 0) {
      out.emplace_back(H5Tget_size(type.get()), '?');
      REQUIRE(H5Aread(id.get(), type.get(), out[0].data()) >= 0);
      return out;
    }
    std::vector<char*> pointers(count(object, name));
    if (pointers.empty()) return out;
    REQUIRE(H5Aread(id.get(), type.get(), pointers.data()) >= 0);
    for (char* text : pointers) {
      out.emplace_back(text);
      H5free_memory(text);
    }
    return out;
  }
  std::string text(const std::string& object, const std::string& name) const {
    const auto all = texts(object, name);
    REQUIRE(all.size() == 1);
    return all[0];
  }
  template <class T>
  T number(const std::string& object, const std::string& name, hid_t type) const {
    T value{};
    REQUIRE(H5Aread(attribute(object, name).get(), type, &value) >= 0);
    return value;
  }
  std::int64_t integer(const std::string& object, const std::string& name) const {
    return number<std::int64_t>(object, name, H5T_NATIVE_INT64);
  }

  std::vector<hsize_t> shape(const std::string& name) const {
    const Hid data(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
    CAPTURE(name);
    REQUIRE(data);
    const Hid space(H5Dget_space(data.get()));
    std::vector<hsize_t> extents(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    return extents;
  }
  template <class T>
  std::vector<T> data(const std::string& name, hid_t type) const {
    hsize_t elements = 1;
    for (const hsize_t extent : shape(name)) elements *= extent;
    std::vector<T> values(elements);
    const Hid data(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
    REQUIRE(H5Dread(data.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    return values;
  }
  std::vector<std::int64_t> integers(const std::string& name) const {
    return data<std::int64_t>(name, H5T_NATIVE_INT64);
  }
  bool exists(const std::string& name) const {
    return H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) > 0;
  }
  bool is_packed(const std::string& name) const {
    const Hid data(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
    const Hid properties(H5Dget_create_plist(data.get()));
    return H5Pget_nfilters(properties.get()) == 2;
  }

 private:
  test::TempDir folder_;
  Hid file_;
};

Value& figure(Row& row, std::string_view key) {
  return row.figures[static_cast<std::size_t>(column_index(key))];
}

Report small_report() {
  Row row;
  row.file = "x.safetensors";
  row.tensor = "größe\x01";
  row.dtype = "bf16";
  row.shape = {96, 512};
  row.source_hash = "0123456789abcdef";
  row.recipe = "mxfp4";
  row.recipe_canonical = "mxfp4";
  row.recipe_full = "mxfp4:everything";
  row.backend = "reference";
  row.notes = {"first", "", "third"};
  row.figures.resize(columns().size());
  figure(row, "elements") = std::int64_t{1} << 60;
  figure(row, "underflow") = std::int64_t{0};
  figure(row, "mse") = 0.1;
  figure(row, "nmse") = 0.0;
  figure(row, "exact") = true;
  row.code_histogram = {1, 2, 3};
  row.scale_histogram = {4, 5};
  row.amax_exponents = {{-3, 7}, {4, 9}};
  row.percentiles.sample = "all elements";
  row.percentiles.absolute_error = {{50, 0.25}, {99, std::monostate{}}};
  row.maps.grid_rows = 2;
  row.maps.grid_cols = 3;
  row.maps.rows_per_cell = 48;
  row.maps.cols_per_cell = 192;
  for (auto* map : {&row.maps.elements, &row.maps.underflow, &row.maps.saturated,
                    &row.maps.scale_code_sum, &row.maps.blocks}) {
    for (std::int64_t i = 0; i < 6; ++i) map->push_back(10 * (map - &row.maps.elements) + i);
  }
  row.maps.squared_error = {0, 0.5, 1, 1.5, 2, 2.5};
  Report report;
  Row plain = row;
  plain.shape = {};
  plain.notes = {};
  plain.code_histogram = plain.scale_histogram = {};
  plain.amax_exponents = {};
  plain.percentiles = {};
  plain.maps = {};
  report.results = {row, plain};
  Row all = plain;
  all.group = "layers.1";
  all.tensors = 2;
  report.aggregates = {all};
  report.errors = {{"y.npy", "y", "y.npy: broken", 4}};
  report.skipped = {{"z.npy", "z", "codes", 4}};
  report.sources = {{"x.safetensors", "safetensors", 541344}};
  report.threads = 3;
  return report;
}

const Provenance kProvenance{"1.2.3", "abc1234", {"analyze", "x.safetensors", ""}};

}  // namespace

TEST_CASE("an HDF5 report holds every field") {
  const Report report = small_report();
  const Opened file(render_hdf5(report, kProvenance));
  CHECK(file.integer("/", "layout_version") == 1);
  CHECK(file.text("/fp4scope", "version") == "1.2.3");
  CHECK(file.text("/fp4scope", "git") == "abc1234");
  CHECK(file.texts("/fp4scope", "command") == kProvenance.command);
  CHECK(file.integer("/fp4scope", "threads") == 3);

  const std::string row = "/results/0000";
  CHECK(file.text(row, "file") == "x.safetensors");
  CHECK(file.text(row, "tensor") == "größe\x01");
  CHECK(file.text(row, "dtype") == "bf16");
  CHECK(file.text(row, "source_hash") == "0123456789abcdef");
  CHECK(file.text(row, "recipe") == "mxfp4");
  CHECK(file.text(row, "recipe_canonical") == "mxfp4");
  CHECK(file.text(row, "recipe_full") == "mxfp4:everything");
  CHECK(file.text(row, "backend") == "reference");
  CHECK(file.texts(row, "notes") == report.results[0].notes);
  CHECK(file.count(row, "shape") == 2);
  CHECK(file.integer(row, "elements") == std::int64_t{1} << 60);
  CHECK(file.number<double>(row, "mse", H5T_NATIVE_DOUBLE) == 0.1);
  for (const Column& column : columns()) (void)file.attribute(row, std::string(column.key));

  CHECK(file.integers(row + "/code_histogram") == std::vector<std::int64_t>{1, 2, 3});
  CHECK(file.integers(row + "/scale_histogram") == std::vector<std::int64_t>{4, 5});
  CHECK(file.shape(row + "/amax_exponents") == std::vector<hsize_t>{2, 2});
  CHECK(file.integers(row + "/amax_exponents") == std::vector<std::int64_t>{-3, 7, 4, 9});
  CHECK(file.text(row + "/percentiles", "sample") == "all elements");
  const auto percentiles =
      file.data<double>(row + "/percentiles/absolute_error", H5T_NATIVE_DOUBLE);
  REQUIRE(percentiles.size() == 4);
  CHECK(percentiles[0] == 50);
  CHECK(percentiles[1] == 0.25);
  CHECK(percentiles[2] == 99);
  CHECK(percentiles[3] != percentiles[3]);
  CHECK(file.shape(row + "/percentiles/relative_error") == std::vector<hsize_t>{0, 2});
  CHECK(file.integer(row + "/maps", "rows_per_cell") == 48);
  CHECK(file.integer(row + "/maps", "cols_per_cell") == 192);
  for (const char* map :
       {"elements", "underflow", "saturated", "squared_error", "scale_code_sum", "blocks"}) {
    CHECK(file.shape(row + "/maps/" + map) == std::vector<hsize_t>{2, 3});
  }
  CHECK(file.integers(row + "/maps/underflow") == report.results[0].maps.underflow);
  CHECK(file.integers(row + "/maps/blocks") == report.results[0].maps.blocks);
  CHECK(file.data<double>(row + "/maps/squared_error", H5T_NATIVE_DOUBLE) ==
        report.results[0].maps.squared_error);

  CHECK(file.count("/results/0001", "shape") == 0);
  CHECK(file.texts("/results/0001", "notes").empty());
  CHECK_FALSE(file.exists("/results/0001/code_histogram"));
  CHECK_FALSE(file.exists("/results/0001/maps"));
  CHECK_FALSE(file.exists("/results/0002"));
  CHECK(file.text("/aggregates/0000", "group") == "layers.1");
  CHECK(file.integer("/aggregates/0000", "tensors") == 2);
  CHECK(file.text("/errors/0000", "message") == "y.npy: broken");
  CHECK(file.integer("/errors/0000", "exit_code") == 4);
  CHECK(file.text("/skipped/0000", "tensor") == "z");
  CHECK(file.text("/sources/0000", "container") == "safetensors");
  CHECK(file.integer("/sources/0000", "bytes") == 541344);
}

TEST_CASE("an undefined figure is told from zero, and flags from counts") {
  const Opened file(render_hdf5(small_report(), kProvenance));
  const std::string row = "/results/0000";
  CHECK(file.space_class(row, "sqnr_db") == H5S_NULL);
  CHECK(file.space_class(row, "nmse") == H5S_SCALAR);
  CHECK(file.number<double>(row, "nmse", H5T_NATIVE_DOUBLE) == 0);
  CHECK(file.space_class(row, "underflow") == H5S_SCALAR);
  const Hid count(H5Aget_type(file.attribute(row, "underflow").get()));
  CHECK(H5Tequal(count.get(), H5T_STD_I64LE) > 0);
  const Hid flag(H5Aget_type(file.attribute(row, "exact").get()));
  CHECK(H5Tget_class(flag.get()) == H5T_ENUM);
  signed char value = 0;
  REQUIRE(H5Aread(file.attribute(row, "exact").get(), flag.get(), &value) >= 0);
  CHECK(value == 1);
}

TEST_CASE("the same report has the same bytes, whatever was in memory before") {
  const std::string first = render_hdf5(small_report(), kProvenance);
  std::vector<std::string> dirt;
  for (int i = 0; i < 200; ++i) dirt.emplace_back(static_cast<std::size_t>(1) << i % 16, '\xA5');
  dirt.clear();
  CHECK(render_hdf5(small_report(), kProvenance) == first);
  Report other = small_report();
  figure(other.results[1], "mse") = 0.2;
  CHECK(render_hdf5(other, kProvenance) != first);
}

TEST_CASE("long texts, texts with NUL and large maps keep what they hold") {
  Report report = small_report();
  report.results.resize(1);
  Row& row = report.results[0];
  row.tensor = std::string("a\0b\0", 4);
  row.notes.assign(10'000, "note");  // more than 64 KiB in one attribute
  row.recipe_full.assign(200'000, 'r');
  row.maps.grid_rows = 300;
  row.maps.grid_cols = 1100;
  for (auto* map : {&row.maps.elements, &row.maps.underflow, &row.maps.saturated,
                    &row.maps.scale_code_sum, &row.maps.blocks}) {
    map->resize(330'000);
    for (std::size_t i = 0; i < map->size(); ++i) (*map)[i] = static_cast<std::int64_t>(i % 977);
  }
  row.maps.squared_error.assign(330'000, 1e-300);
  const std::string image = render_hdf5(report, kProvenance);
  CHECK(image.size() < 4'000'000);  // 16 MB unpacked
  const Opened file(image);
  CHECK(file.text("/results/0000", "tensor") == row.tensor);
  CHECK(file.texts("/results/0000", "notes") == row.notes);
  CHECK(file.text("/results/0000", "recipe_full") == row.recipe_full);
  CHECK(file.is_packed("/results/0000/maps/elements"));
  CHECK(file.integers("/results/0000/maps/elements") == row.maps.elements);
  CHECK(file.data<double>("/results/0000/maps/squared_error", H5T_NATIVE_DOUBLE) ==
        row.maps.squared_error);
  row.maps.blocks.pop_back();
  CHECK_THROWS_AS((void)render_hdf5(report, kProvenance), Error);
}

TEST_CASE("an empty report is a file") {
  const std::string image = render_hdf5({}, {});
  CHECK(image.size() < 20'000);
  const Opened file(image);
  CHECK(file.exists("/results"));
  CHECK_FALSE(file.exists("/results/0000"));
  CHECK(file.text("/fp4scope", "version").empty());
  CHECK(file.texts("/fp4scope", "command").empty());
}
