// bug_cases_files_test.cc: the cases of ../shared/cases/bugs.md that concern readers (C18, C23 to
// C29) and the figures of a report (C09, C10, C13, C14, C20, C23, C34). Files are written byte by
// byte from the definition of their format.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include "analysis/analyze.h"
#include "formats/minifloat.h"
#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope {
namespace {

using test::bytes_of;
using test::npy_bytes;
using test::safetensors_bytes;
using test::TempDir;
using test::write_file;

std::string npy_header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

int exit_code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(std::strlen(error.what()) > 0);
    return error.exit_code();
  }
  return 0;
}

// The report on one npy array of type T under `recipes`.
template <class T>
Report report_on(const TempDir& dir, const std::string& descr, const std::string& shape,
                 const std::vector<T>& values, const std::vector<std::string>& recipes,
                 const std::string& backend = "auto") {
  const std::string path = dir.file("x.npy");
  write_file(path, npy_bytes(1, npy_header(descr, shape), bytes_of(values)));
  AnalyzeOptions options;
  options.threads = 1;
  options.backend = backend;
  for (const std::string& r : recipes) options.recipes.push_back(parse_recipe(r));
  return analyze({path}, options);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend* b : test::backends_and_oracle()) names.push_back(test::name_of(*b));
  return names;
}

std::int64_t count(const Row& row, const char* key) {
  return std::get<std::int64_t>(row.figure(key));
}
double number(const Row& row, const char* key) {
  return std::get<double>(row.figure(key));
}
bool is_null(const Row& row, const char* key) {
  return std::holds_alternative<std::monostate>(row.figure(key));
}

TEST_CASE("C09 saturated scales and elements are counted, no NaN byte is stored") {
  const TempDir dir;
  std::vector<float> x(48, 0.0f);
  for (std::size_t i = 16; i < 48; ++i) x[i] = i < 32 ? 1.0f : 1.2f;
  for (const std::string& backend : backend_names()) {
    const Report report = report_on(dir, "<f4", "(1, 48)", x, {"nvfp4:amax=0x3f800000"}, backend);
    REQUIRE(report.results.size() == 1);
    const Row& row = report.results[0];
    CHECK(count(row, "scale_max_blocks") == 2);
    CHECK(count(row, "scale_nan_blocks") == 0);
    CHECK(count(row, "saturated") == 16);  // 1.2 / (448 / 2688) = 7.2; 1.0 is exact
    CHECK(count(row, "nonfinite_out") == 0);
    CHECK(row.scale_histogram[0x00] == 1);
    CHECK(row.scale_histogram[0x7E] == 2);
  }
}

TEST_CASE("C10 the figures of a zero tensor are zero or null") {
  const TempDir dir;
  const Report report =
      report_on(dir, "<f4", "(2, 32)", std::vector<float>(64, 0.0f), {"nvfp4", "nvfp4:scale=row"});
  REQUIRE(report.results.size() == 2);
  for (const Row& row : report.results) {
    CHECK(number(row, "mse") == 0);
    CHECK(is_null(row, "sqnr_db"));
    CHECK(count(row, "underflow") == 0);
    CHECK(is_null(row, "underflow_share"));
    CHECK(number(row, "underflow_share_all") == 0);
    CHECK(count(row, "scale_nan_blocks") == 0);
  }
}

TEST_CASE("C13 underflows of the dead zone and lost blocks are counted apart") {
  const TempDir dir;
  const float next = std::nextafter(1.0f, 2.0f);
  std::vector<float> x(16, 0.0f);
  x[0] = 24, x[1] = 1, x[2] = next, x[3] = 0.99f;
  const Report a = report_on(dir, "<f4", "(1, 16)", x, {"nvfp4:scale=none"});
  CHECK(count(a.results.at(0), "underflow") == 2);
  CHECK(count(a.results.at(0), "underflow_code") == 2);
  CHECK(count(a.results.at(0), "lost_blocks") == 0);
  x.assign(48, 0.0f);
  x[0] = 458752, x[16] = 1, x[32] = next;
  const Report b = report_on(dir, "<f4", "(1, 48)", x, {"nvfp4"});
  CHECK(count(b.results.at(0), "underflow") == 1);
  CHECK(count(b.results.at(0), "underflow_scale") == 1);
  CHECK(count(b.results.at(0), "lost_blocks") == 1);
}

TEST_CASE("C14 saturation and rounding are separate counters") {
  const TempDir dir;
  std::vector<float> x(16, 0.0f);
  x[0] = 5000, x[1] = 2500, x[2] = -1250;
  for (const std::string& backend : backend_names()) {
    const Report report = report_on(dir, "<f4", "(1, 16)", x, {"nvfp4:scale=none"}, backend);
    CHECK(count(report.results.at(0), "scale_max_blocks") == 1);
    CHECK(count(report.results.at(0), "saturated") == 1);
    CHECK(number(report.results.at(0), "max_abs_err") == 5000 - 2688);
  }
}

TEST_CASE("C18 FP64 files are rounded once and their errors are those of the FP64 values") {
  const TempDir dir;
  std::vector<double> x(32, 0.0);
  x[0] = 6;
  x[1] = 2.5 + 0x1p-40;
  const std::vector<std::string> recipes = {"mxfp4:contract=ocp-floor-rne", "nvfp4:scale=none"};
  const std::string safetensors = dir.file("x.safetensors");
  write_file(safetensors,
             safetensors_bytes(R"({"x":{"dtype":"F64","shape":[1,32],"data_offsets":[0,256]}})",
                               bytes_of(x)));
  for (const std::string& backend : backend_names()) {
    AnalyzeOptions options;
    options.threads = 1;
    options.backend = backend;
    for (const std::string& r : recipes) options.recipes.push_back(parse_recipe(r));
    const Report reports[] = {report_on(dir, "<f8", "(1, 32)", x, recipes, backend),
                              analyze({safetensors}, options)};
    for (const Report& report : reports) {
      REQUIRE(report.results.size() == 2);
      const Row &mx = report.results[0], &nv = report.results[1];
      // MXFP4 decodes 3.0, NVFP4 2.0 (the binary32 value 2.5 is a tie); both errors are exact.
      const double mx_error = 0.5 - 0x1p-40, nv_error = 0.5 + 0x1p-40;
      CHECK(mx.code_histogram[5] == 1);
      CHECK(nv.code_histogram[4] == 1);
      CHECK(number(mx, "max_abs_err") == mx_error);
      CHECK(number(nv, "max_abs_err") == nv_error);
      CHECK(number(mx, "bias") == mx_error / 32);
      CHECK(number(nv, "bias") == -nv_error / 32);
      CHECK(number(mx, "mse") == mx_error * mx_error / 32);
      CHECK(number(nv, "mse") == nv_error * nv_error / 32);
    }
  }
}

TEST_CASE("C20 an input -0 counts as zero, -0.1 as underflow") {
  const TempDir dir;
  std::vector<float> x(32, 0.0f);
  const float start[] = {-0.0f, 1, -0.0f, 2, -0.1f, 6, 0, 0};
  std::copy(std::begin(start), std::end(start), x.begin());
  const Report report = report_on(dir, "<f4", "(1, 32)", x, {"mxfp4:contract=ocp-floor-rne"});
  const Row& row = report.results.at(0);
  CHECK(count(row, "zeros") == 32 - 4);
  CHECK(count(row, "nonzero") == 4);
  CHECK(count(row, "underflow") == 1);
  CHECK(row.code_histogram[8] == 3);
}

TEST_CASE("C23 ragged rows count their own elements, and ragged=error refuses them") {
  const TempDir dir;
  std::vector<float> x(80, 0.01f);
  std::fill(x.begin() + 40, x.end(), 100.0f);
  const Report report = report_on(dir, "<f4", "(2, 40)", x,
                                  {"nvfp4", "mxfp4", "nvfp4:ragged=error", "mxfp4:ragged=error"});
  REQUIRE(report.results.size() == 2);
  for (const Row& row : report.results) {
    CHECK(count(row, "elements") == 80);
    CHECK(count(row, "zeros") == 0);
    CHECK(count(row, "blocks") == (row.recipe == "nvfp4" ? 6 : 4));
    // Every block has amax 0.01 (2^-7) or 100 (2^6), none mixes rows.
    const std::int64_t half = count(row, "blocks") / 2;
    CHECK(row.amax_exponents == std::vector<std::pair<int, std::int64_t>>{{-7, half}, {6, half}});
    // 0.01 keeps its value under its own scale: both contracts stay within a quarter of it.
    CHECK(count(row, "underflow") == 0);
    bool note = false;
    for (const std::string& n : row.notes)
      note = note || n.find("the source refuses this shape") != std::string::npos;
    CHECK_MESSAGE(note, row.recipe);
  }
  REQUIRE(report.errors.size() == 2);
  for (const ErrorRecord& e : report.errors) CHECK(e.exit_code == 3);
}

TEST_CASE("C24 F4 tensors have logical shapes and byte-aligned rows") {
  const TempDir dir;
  const std::string path = dir.file("f4.safetensors");
  write_file(path,
             safetensors_bytes(R"({"w":{"dtype":"F4","shape":[2,32],"data_offsets":[0,32]},)"
                               R"("s":{"dtype":"F8_E8M0","shape":[2,1],"data_offsets":[32,34]}})",
                               std::string(34, '\x21')));
  const auto source = open_source(path);
  const TensorInfo& w = source->tensors().at(0);
  CHECK(w.shape == std::vector<std::int64_t>{2, 32});
  CHECK(w.elements == 64);
  CHECK(w.bytes == 32);  // 16 per row
  CHECK(source->tensors().at(1).shape == std::vector<std::int64_t>{2, 1});

  write_file(path, safetensors_bytes(R"({"w":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})",
                                     std::string(3, '\0')));
  CHECK(exit_code_of([&] { open_source(path); }) == 3);
  write_file(path, safetensors_bytes(R"({"w":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})",
                                     std::string(3, '\0')));
  CHECK(open_source(path)->tensors().at(0).shape == std::vector<std::int64_t>{3, 2});
}

TEST_CASE("C25 element 2147483648 of a sparse file is row 65536, column 0") {
  const TempDir dir;
  const std::string path = dir.file("sparse.npy");
  const std::int64_t rows = 65537, cols = 32768;
  for (const char* descr : {"|u1", "<f4"}) {
    const std::int64_t size = descr[1] == 'u' ? 1 : 4;
    const std::string start = npy_bytes(1, npy_header(descr, "(65537, 32768)"), "");
    write_file(path, start);
    std::error_code error;
    std::filesystem::resize_file(
        path, start.size() + static_cast<std::uintmax_t>(rows * cols * size), error);
    REQUIRE_MESSAGE(!error, "the temporary folder cannot hold a sparse file of 8 GiB");
    std::vector<float> last(static_cast<std::size_t>(cols));
    for (std::size_t i = 0; i < last.size(); ++i) last[i] = static_cast<float>(i % 251) + 1;
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(start.size()) + (rows - 1) * cols * size);
      std::string bytes;
      if (size == 1) {
        for (const float v : last) bytes += static_cast<char>(static_cast<unsigned char>(v));
      } else {
        bytes = bytes_of(last);
      }
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    const auto source = open_source(path);
    const TensorInfo& t = source->tensors().at(0);
    CHECK(t.elements == 2147516416);
    CHECK(t.bytes == 2147516416 * size);
    CHECK(t.elements - cols == 2147483648);
    if (size == 1) {
      std::vector<std::uint8_t> row(last.size());
      source->read_raw(t, rows - 1, 1, 0, cols, row.data());
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (row[i] != i % 251 + 1) FAIL("byte ", i, " of the last row is ", int{row[i]});
      }
    } else {
      std::vector<float> row(last.size());
      source->read_f32(t, rows - 1, 1, 0, cols, row.data());
      CHECK(row == last);
      source->read_f32(t, rows - 2, 1, 0, cols, row.data());
      CHECK(row == std::vector<float>(last.size(), 0.0f));
    }
  }
  const std::string flat = npy_bytes(1, npy_header("|u1", "(3000000000,)"), "");
  write_file(path, flat);
  std::filesystem::resize_file(path, flat.size() + 3000000000u);
  CHECK(open_source(path)->tensors().at(0).elements == 3000000000);
}

TEST_CASE("C26 npy types without a meaning are refused until a hint gives them one") {
  const TempDir dir;
  const std::string path = dir.file("x.npy");
  const std::string data = "\x80\x3F" + std::string("\x00\xC0", 2) + "\x80\x7F\xC1\x7F";
  write_file(path, npy_bytes(1, npy_header("|V2", "(4,)"), data));
  try {
    open_source(path);
    FAIL("|V2 was read without a hint");
  } catch (const Error& error) {
    CHECK(error.exit_code() == 4);
    CHECK(std::string(error.what()).find("bf16") != std::string::npos);
    CHECK(std::string(error.what()).find("raw") != std::string::npos);
  }
  const auto source = open_source(path, OpenOptions{"bf16"});
  float v[4];
  source->read_f32(source->tensors().at(0), 0, 1, 0, 4, v);
  CHECK(v[0] == 1.0f);
  CHECK(v[1] == -2.0f);
  CHECK(v[2] == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(v[3]));

  for (const char* descr : {"|V1", "<f1"}) {
    write_file(path, npy_bytes(1, npy_header(descr, "(1,)"), "\x3C"));
    CHECK(exit_code_of([&] { open_source(path); }) == 4);
    for (const char* hint : {"e5m2", "e4m3"}) {
      const auto hinted = open_source(path, OpenOptions{hint});
      const TensorInfo& t = hinted->tensors().at(0);
      CHECK(t.dtype == (std::string(hint) == "e5m2" ? DType::kF8E5M2 : DType::kF8E4M3));
      std::uint8_t byte = 0;
      hinted->read_raw(t, 0, 1, 0, 1, &byte);
      const MinifloatSpec spec = std::string(hint) == "e5m2" ? kE5M2 : kE4M3;
      CHECK(decode<Lane<1>>(spec, byte) == (std::string(hint) == "e5m2" ? 1.0f : 1.5f));
    }
  }
}

TEST_CASE("C27 npy versions, 0-d, empty, and headers that promise more than the file holds") {
  const TempDir dir;
  const std::string path = dir.file("x.npy");
  const auto open = [&](const std::string& bytes) {
    write_file(path, bytes);
    return open_source(path);
  };
  {  // Version 2 with a header of 70000 bytes.
    std::string header = npy_header("<f4", "(2,)");
    header.pop_back();
    header.resize(69999, ' ');
    header += '\n';
    const auto source = open(npy_bytes(2, header, bytes_of(std::vector<float>{3, 4})));
    float v[2];
    source->read_f32(source->tensors().at(0), 0, 1, 0, 2, v);
    CHECK(v[0] == 3.0f);
    CHECK(v[1] == 4.0f);
  }
  {
    const auto source =
        open(npy_bytes(1, npy_header("<f4", "()"), bytes_of(std::vector<float>{1.5f})));
    CHECK(source->tensors().at(0).elements == 1);
    CHECK(source->tensors().at(0).shape.empty());
    float v = 0;
    source->read_f32(source->tensors().at(0), 0, 1, 0, 1, &v);
    CHECK(v == 1.5f);
  }
  CHECK(open(npy_bytes(1, npy_header("<f4", "(0, 32)"), ""))->tensors().at(0).elements == 0);
  const Report empty = report_on(dir, "<f4", "(0, 32)", std::vector<float>{}, {"nvfp4"});
  REQUIRE(empty.results.size() == 1);
  CHECK(count(empty.results[0], "elements") == 0);
  CHECK(exit_code_of([&] {
          open(npy_bytes(1, npy_header("<f4", "(4,)"), bytes_of(std::vector<float>{1, 2, 3})));
        }) == 3);
  for (const char* shape : {"(2,621)", "(2, 621)"}) {
    const auto source =
        open(npy_bytes(1, npy_header("<f4", shape), std::string(2 * 621 * 4, '\0')));
    CHECK(source->tensors().at(0).shape == std::vector<std::int64_t>{2, 621});
  }
  std::string cut = std::string("\x93NUMPY\x01") + '\0' + "\xFF\xFF" + npy_header("<f4", "(2,)");
  cut.resize(90, ' ');
  CHECK(exit_code_of([&] { open(cut); }) == 3);
}

TEST_CASE("C29 abused safetensors headers are refused with distinct sentences") {
  const TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const std::string one = R"("x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const auto length = [](std::uint64_t n, const std::string& rest) {
    return test::little_endian(n, 8) + rest;
  };
  struct Case {
    const char* name;
    std::string bytes;
  };
  const Case refused[] = {
      {"a", length(std::uint64_t{1} << 63, "{}")},
      {"b", length(100000001, "{}")},
      {"c", safetensors_bytes("{" + one + "," + one + "}", "abcd")},
      {"d", safetensors_bytes(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "abcd")},
      {"e",
       safetensors_bytes("{" + one + R"(,"y":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})",
                         std::string(16, '\0'))},
      {"h", safetensors_bytes(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                              std::string(8, '\0'))},
      {"i", safetensors_bytes("{" + one + "}", "abcde")},
  };
  std::vector<std::string> sentences;
  for (const Case& c : refused) {
    write_file(path, c.bytes);
    CAPTURE(c.name);
    std::string sentence;
    CHECK(exit_code_of([&] {
            try {
              open_source(path);
            } catch (const Error& error) {
              sentence = error.what();
              throw;
            }
          }) == 3);
    for (const std::string& other : sentences) CHECK(other != sentence);
    sentences.push_back(sentence);
  }
  write_file(path, safetensors_bytes(R"({"__metadata__":{},)" + one + "}", "abcd"));
  CHECK(open_source(path)->tensors().size() == 1);
  write_file(path, safetensors_bytes(R"({"__metadata__":{"a":"b"}})", ""));
  CHECK(open_source(path)->tensors().empty());
}

TEST_CASE("C34 figures of exact, zero, large and empty tensors") {
  const TempDir dir;
  for (const std::string& backend : backend_names()) {
    CAPTURE(backend);
    {  // (a) one power of two per row is exact in MX.
      std::vector<float> x(64, 0.0f);
      x[0] = 1.0f;
      for (const std::string recipe : {"mxfp4", "mxfp8e4m3"}) {
        const Report r = report_on(dir, "<f4", "(1, 64)", x, {recipe}, backend);
        CHECK(number(r.results.at(0), "mse") == 0);
        CHECK(is_null(r.results.at(0), "sqnr_db"));
        CHECK(std::get<bool>(r.results.at(0).figure("exact")));
      }
    }
    {  // (b)
      const Report r = report_on(dir, "<f4", "(1, 64)", std::vector<float>(64, 0.0f),
                                 {"mxfp4", "nvfp4", "hif4"}, backend);
      for (const Row& row : r.results) {
        CHECK(number(row, "mse") == 0);
        CHECK(is_null(row, "sqnr_db"));
        CHECK(std::get<bool>(row.figure("exact")));
        CHECK(is_null(row, "underflow_share"));
      }
    }
    {  // (c) 60000 in FP16 is 0x7B53. A tensor amax of 59992 (0x476a5800) given from outside makes
       // NVFP4 decode every element to 59992: the scale is 448, the code 6, and
       // fl(6 * fl(fl(448 * 59992) * fl(1 / 2688))) = 59992 (computed with exact fractions).
      const Report r = report_on(dir, "<f2", "(4, 1024)", std::vector<std::uint16_t>(4096, 0x7B53),
                                 {"nvfp4:amax=0x476a5800"}, backend);
      const Row& row = r.results.at(0);
      CHECK(number(row, "amax") == 60000);
      CHECK(number(row, "max_abs_err") == 8);
      CHECK(number(row, "mse") == 64);
      CHECK(number(row, "mae") == 8);
      // Power from nmse = mse / power: binary32 sums inside a block, hence 1e-6.
      CHECK(64 / number(row, "nmse") == doctest::Approx(3.6e9).epsilon(1e-6));
      CHECK(number(row, "sqnr_db") == doctest::Approx(10 * std::log10(3.6e9 / 64)).epsilon(1e-6));
    }
    {  // (d)
      const Report r = report_on(dir, "<f4", "(0, 64)", std::vector<float>{}, {"hif4"}, backend);
      for (const Column& c : columns()) {
        if (c.kind == FigureKind::kCount) continue;
        CHECK_MESSAGE(is_null(r.results.at(0), std::string(c.key).c_str()), c.key);
      }
    }
  }
}

}  // namespace
}  // namespace fp4scope
