// metrics_tensors.h: the tensors that reports are tested on, with their exact values in memory and
// as files, and the repeatable numbers that fill them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope::test {

struct TestTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<double> x;  // what is stored, exactly; row-major
  std::int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  std::int64_t rows() const;
  TestTensor transposed() const;  // rank 2
};
// Values are rounded to the dtype: to nearest even.
TestTensor make_tensor(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                       const std::function<double(std::int64_t)>& value);
void write_tensors(const std::string& path, const std::vector<TestTensor>& tensors);

// The order of tensors in a file is the writer's business.
const TestTensor& tensor_named(const std::vector<TestTensor>& tensors, const std::string& name);

// Repeatable numbers: splitmix64, and a bell-shaped sum of twelve uniforms.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  double uniform();  // [0, 1)
  double bell();     // mean 0, variance 1
 private:
  std::uint64_t state_;
};

}  // namespace fp4scope::test
