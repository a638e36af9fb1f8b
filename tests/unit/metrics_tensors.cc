// metrics_tensors.cc: see metrics_tensors.h. The roundings and bits of each dtype follow from the
// definition of its numbers; only the container is written by the library.
#include "tests/unit/metrics_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "analysis/io/sinks.h"

namespace fp4scope::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Nearest even to `fraction_bits` stored bits, smallest exponent `e_min`, largest finite `max`.
double round_value(double v, int fraction_bits, int e_min, double max) {
  if (!std::isfinite(v) || v == 0) return v;
  const int e = std::max(std::ilogb(v), e_min);
  const double quantum = std::ldexp(1.0, e - fraction_bits);
  const double r = std::nearbyint(v / quantum) * quantum;
  return std::fabs(r) > max ? std::copysign(kInf, v) : std::copysign(r, v);
}

double round_to_dtype(double v, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return v;
    case DType::kF32:
      return static_cast<double>(static_cast<float>(v));
    case DType::kBF16:
      return round_value(v, 7, -126, std::ldexp(255.0, 120));
    case DType::kF16:
      return round_value(v, 10, -14, 65504);
    default:
      throw std::logic_error("no real dtype");
  }
}

std::uint16_t f16_bits(double v) {
  const std::uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return 0x7E00;
  if (std::isinf(v)) return sign | 0x7C00;
  const double a = std::fabs(v);
  if (a < 0x1p-14) return sign | static_cast<std::uint16_t>(a * 0x1p24);
  const int e = std::ilogb(a);
  return static_cast<std::uint16_t>(sign | ((e + 15) << 10) |
                                    static_cast<int>((std::ldexp(a, -e) - 1) * 1024));
}

std::string stored_bytes(const TestTensor& t) {
  std::string out;
  for (const double v : t.x) {
    char raw[8];
    std::size_t n = 0;
    if (t.dtype == DType::kF64) {
      std::memcpy(raw, &v, n = 8);
    } else if (t.dtype == DType::kF16) {
      const std::uint16_t h = f16_bits(v);
      std::memcpy(raw, &h, n = 2);
    } else {
      const float f = static_cast<float>(v);
      std::uint32_t bits;
      std::memcpy(&bits, &f, 4);
      if (t.dtype == DType::kBF16) bits >>= 16;
      std::memcpy(raw, &bits, n = t.dtype == DType::kBF16 ? 2 : 4);
    }
    out.append(raw, n);
  }
  return out;
}

}  // namespace

std::int64_t TestTensor::rows() const {
  std::int64_t n = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

TestTensor TestTensor::transposed() const {
  TestTensor t = *this;
  t.shape = {shape[1], shape[0]};
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      t.x[static_cast<std::size_t>(c * shape[0] + r)] =
          x[static_cast<std::size_t>(r * shape[1] + c)];
    }
  }
  return t;
}

TestTensor make_tensor(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                       const std::function<double(std::int64_t)>& value) {
  TestTensor t{name, dtype, std::move(shape), {}};
  const std::int64_t n = t.rows() * t.cols();
  for (std::int64_t i = 0; i < n; ++i) t.x.push_back(round_to_dtype(value(i), dtype));
  return t;
}

void write_tensors(const std::string& path, const std::vector<TestTensor>& tensors) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const TestTensor& t : tensors) entries.push_back({t.name, t.dtype, t.shape});
  SafetensorsWriter writer(path, entries, {});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string bytes = stored_bytes(tensors[i]);
    writer.write(i, 0, bytes.data(), bytes.size());
  }
  writer.commit();
}

const TestTensor& tensor_named(const std::vector<TestTensor>& tensors, const std::string& name) {
  for (const TestTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw std::logic_error("no test tensor " + name);
}

std::uint64_t Numbers::bits() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
double Numbers::uniform() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}
double Numbers::bell() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

}  // namespace fp4scope::test
