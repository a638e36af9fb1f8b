// npy_test.cc: well-formed npy files of every version, order and dtype give the right tensors and
// values, for any rectangle and any axis. The bytes are written by the test from the definition of
// the format; expected values follow from them by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "analysis/io/axis_view.h"
#include "analysis/io/tensor_source.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/readers_support.h"

using namespace fp4scope;
using test::all_f32;
using test::all_raw;
using test::exit_code_of;
using test::npy_header;
using test::open_bytes;
using test::TempDir;

TEST_CASE("npy files of all versions, orders and dtypes give the right values") {
  const TempDir dir;
  const std::string f4_123456 = test::bytes_of<float>({1, 2, 3, 4, 5, 6});
  const std::string f2 = test::bytes_of<std::uint16_t>({0x3C00, 0xC000});
  std::string wide = npy_header("<f4", false, "(2, 3)");
  wide.insert(wide.size() - 1, 70000 - wide.size(), ' ');
  std::string big;
  for (std::size_t i = 0; i < 6; ++i) {
    big += std::string(f4_123456.rbegin() + static_cast<std::ptrdiff_t>(20 - 4 * i),
                       f4_123456.rbegin() + static_cast<std::ptrdiff_t>(24 - 4 * i));
  }
  const struct {
    const char* name;
    std::string bytes;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  } cases[] = {
      {"v1",
       test::npy_bytes(1, npy_header("<f4", false, "(2, 3)"), f4_123456),
       {2, 3},
       {1, 2, 3, 4, 5, 6}},
      {"v2 with a header of 70000 bytes",
       test::npy_bytes(2, wide, f4_123456),
       {2, 3},
       {1, 2, 3, 4, 5, 6}},
      {"v3",
       test::npy_bytes(3, npy_header("<f4", false, "(2,3)"), f4_123456),
       {2, 3},
       {1, 2, 3, 4, 5, 6}},
      {"Fortran order",
       test::npy_bytes(1, npy_header("<f4", true, "(2, 3)"), f4_123456),
       {2, 3},
       {1, 3, 5, 2, 4, 6}},
      {"big endian",
       test::npy_bytes(1, npy_header(">f4", false, "(2, 3)"), big),
       {2, 3},
       {1, 2, 3, 4, 5, 6}},
      {"big endian and Fortran order",
       test::npy_bytes(1, npy_header(">f4", true, "(2, 3)"), big),
       {2, 3},
       {1, 3, 5, 2, 4, 6}},
      {"big-endian half precision",
       test::npy_bytes(1, npy_header(">f2", false, "(2,)"), std::string("\x3C\x00\xC0\x00", 4)),
       {2},
       {1, -2}},
      {"half precision",
       test::npy_bytes(1, npy_header("<f2", false, "(1, 2)"), f2),
       {1, 2},
       {1, -2}},
      {"half precision in Fortran order",
       test::npy_bytes(1, npy_header("<f2", true, "(2, 1)"), f2),
       {2, 1},
       {1, -2}},
      {"0-d",
       test::npy_bytes(1, npy_header("<f4", false, "()"), test::bytes_of<float>({1.5f})),
       {},
       {1.5f}},
      {"empty", test::npy_bytes(1, npy_header("<f4", false, "(0, 32)"), ""), {0, 32}, {}},
      {"empty in Fortran order",
       test::npy_bytes(1, npy_header("<f4", true, "(3, 0)"), ""),
       {3, 0},
       {}},
      {"Python 2 integers, double quotes, other key order",
       test::npy_bytes(1, "{\"shape\": (3L, 2L), \"fortran_order\": False, \"descr\": \"<f4\"}",
                       f4_123456),
       {3, 2},
       {1, 2, 3, 4, 5, 6}},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    const auto source = open_bytes(dir, "array.npy", c.bytes);
    REQUIRE(source->tensors().size() == 1);
    const TensorInfo& tensor = source->tensors()[0];
    CHECK(source->info().container == "npy");
    CHECK(tensor.name == "array");
    CHECK(tensor.shape == c.shape);
    CHECK(all_f32(*source, tensor) == c.values);
  }
}

TEST_CASE("the spaces of a tuple do not matter to the shape of an npy file") {
  const TempDir dir;
  const std::string data(2 * 621 * 4, '\0');
  for (const char* shape : {"(2,621)", "(2, 621)", "( 2 ,621 , )"}) {
    const auto source =
        open_bytes(dir, "a.npy", test::npy_bytes(1, npy_header("<f4", false, shape), data));
    CHECK(source->tensors()[0].shape == std::vector<std::int64_t>{2, 621});
  }
}

TEST_CASE("npy dtypes without a meaning need a hint, which gives them one") {
  const TempDir dir;
  const std::string v2("\x80\x3F\x00\xC0\x80\x7F\xC1\x7F", 8);
  for (const char* descr : {"|V2", "<V2"}) {
    const std::string bytes = test::npy_bytes(1, npy_header(descr, false, "(4,)"), v2);
    CHECK(exit_code_of([&] { open_bytes(dir, "v2.npy", bytes); }) == 4);
    CHECK(exit_code_of([&] { open_bytes(dir, "v2.npy", bytes, "e4m3"); }) == 4);
    const auto source = open_bytes(dir, "v2.npy", bytes, "bf16");
    CHECK(source->tensors()[0].dtype == DType::kBF16);
    const std::vector<float> values = all_f32(*source, source->tensors()[0]);
    CHECK(values[0] == 1.0f);
    CHECK(values[1] == -2.0f);
    CHECK(values[2] == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(values[3]));
    const auto raw = open_bytes(dir, "v2.npy", bytes, "raw");
    CHECK(raw->tensors()[0].dtype == DType::kOther);
    CHECK(all_raw(*raw, raw->tensors()[0])[7] == 0x7F);
  }
  for (const char* descr : {"|V1", "<f1"}) {
    const std::string bytes = test::npy_bytes(1, npy_header(descr, false, "(1,)"), "\x3C");
    CHECK(exit_code_of([&] { open_bytes(dir, "v1.npy", bytes); }) == 4);
    CHECK(exit_code_of([&] { open_bytes(dir, "v1.npy", bytes, "bf16"); }) == 4);
    CHECK(open_bytes(dir, "v1.npy", bytes, "e4m3")->tensors()[0].dtype == DType::kF8E4M3);
    CHECK(open_bytes(dir, "v1.npy", bytes, "e5m2")->tensors()[0].dtype == DType::kF8E5M2);
    CHECK(open_bytes(dir, "v1.npy", bytes, "raw")->tensors()[0].dtype == DType::kU8);
  }
  // A hint does not change a dtype that the file states.
  const auto typed =
      open_bytes(dir, "f2.npy", test::npy_bytes(1, npy_header("<f2", false, "(4,)"), v2), "bf16");
  CHECK(typed->tensors()[0].dtype == DType::kF16);
  CHECK(all_f32(*typed, typed->tensors()[0])[0] == 1.875f);
  CHECK(exit_code_of([&] { open_source(dir.file("f2.npy"), OpenOptions{"bf61"}); }) == 2);
}

TEST_CASE("Fortran order of rank 3 is gathered in logical order for any rectangle") {
  const TempDir dir;
  constexpr std::int64_t kA = 5, kB = 31, kC = 7;  // 155 flattened rows: several gather blocks
  std::vector<double> stored(kA * kB * kC);
  for (std::int64_t a = 0; a < kA; ++a) {
    for (std::int64_t b = 0; b < kB; ++b) {
      for (std::int64_t c = 0; c < kC; ++c) {
        stored[static_cast<std::size_t>(a + kA * (b + kB * c))] =
            static_cast<double>(10000 * a + 100 * b + c);
      }
    }
  }
  const auto source =
      open_bytes(dir, "f.npy",
                 test::npy_bytes(1, npy_header("<f8", true, "(5, 31, 7)"), test::bytes_of(stored)));
  const TensorInfo& tensor = source->tensors()[0];
  REQUIRE(tensor.rows() == kA * kB);
  const std::int64_t row = 17, rows = 120, col = 2, cols = 4;
  std::vector<double> got(static_cast<std::size_t>(rows * cols));
  source->read_f64(tensor, row, rows, col, cols, got.data());
  bool equal = true;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t a = (row + r) / kB, b = (row + r) % kB;
      equal &= got[static_cast<std::size_t>(r * cols + c)] ==
               static_cast<double>(10000 * a + 100 * b + col + c);
    }
  }
  CHECK(equal);
}

TEST_CASE("an axis view shows any axis last, for any rectangle") {
  const TempDir dir;
  const std::vector<std::int64_t> shape{3, 5, 4, 6};
  std::vector<float> stored(3 * 5 * 4 * 6);
  std::iota(stored.begin(), stored.end(), 0.0f);
  const auto source = open_bytes(
      dir, "a.npy",
      test::npy_bytes(1, npy_header("<f4", false, "(3, 5, 4, 6)"), test::bytes_of(stored)));
  for (int axis = -4; axis < 4; ++axis) {
    CAPTURE(axis);
    const std::size_t moved = static_cast<std::size_t>(axis < 0 ? axis + 4 : axis);
    const AxisView view(*source, axis);
    const TensorInfo& tensor = view.tensors()[0];
    std::vector<std::size_t> order;  // view dimension -> stored dimension
    for (std::size_t d = 0; d < 4; ++d) {
      if (d != moved) order.push_back(d);
    }
    order.push_back(moved);
    for (std::size_t d = 0; d < 4; ++d) CHECK(tensor.shape[d] == shape[order[d]]);
    const std::int64_t rows = tensor.rows() - 3, cols = tensor.cols() - 1;
    std::vector<float> got(static_cast<std::size_t>(rows * cols));
    std::vector<std::uint8_t> raw(got.size() * 4);
    view.read_f32(tensor, 2, rows, 1, cols, got.data());
    view.read_raw(tensor, 2, rows, 1, cols, raw.data());
    CHECK(std::memcmp(raw.data(), got.data(), raw.size()) == 0);
    std::vector<double> wide(got.size());
    view.read_f64(tensor, 2, rows, 1, cols, wide.data());
    CHECK(std::equal(wide.begin(), wide.end(), got.begin()));
    bool equal = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        std::int64_t index[4], rest = r + 2, element = 0;
        index[order[3]] = c + 1;
        for (std::size_t d = 3; d-- > 0;) {
          index[order[d]] = rest % shape[order[d]];
          rest /= shape[order[d]];
        }
        for (std::size_t d = 0; d < 4; ++d) element = element * shape[d] + index[d];
        equal &= got[static_cast<std::size_t>(r * cols + c)] == static_cast<float>(element);
      }
    }
    CHECK(equal);
    CHECK(exit_code_of([&] { view.read_f32(tensor, 4, tensor.rows(), 0, 1, got.data()); }) == 3);
  }
  const AxisView none(*source, 4);
  float out = 0;
  CHECK(exit_code_of([&] { none.read_f32(none.tensors()[0], 0, 1, 0, 1, &out); }) == 3);
}
