// quantize_file_support.h: files with one tensor, values to put into them, what is in the files
// that come out, and the error of a run that is refused.
#pragma once
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"

namespace fp4scope::test {

using Shape = std::vector<std::int64_t>;

inline std::string shape_json(const Shape& shape) {
  return nlohmann::json(shape).dump();
}

inline std::string one_tensor(const std::string& name, const char* dtype, const Shape& shape,
                              const std::string& data) {
  return safetensors_bytes("{\"" + name + "\":{\"dtype\":\"" + dtype +
                               "\",\"shape\":" + shape_json(shape) + ",\"data_offsets\":[0," +
                               std::to_string(data.size()) + "]}}",
                           data);
}

// Values of both signs over many binades, with zeros; no library generator, same on every machine.
inline std::vector<float> sample_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    const std::uint32_t exponent = 118 + (state >> 28);
    value = std::bit_cast<float>((state & 0x80000000u) | exponent << 23 | (state >> 4 & 0x7FFFFF));
    if ((state & 0x3F00) == 0) value = 0;
  }
  return values;
}

inline QuantizeOptions options_for(const std::string& recipe) {
  QuantizeOptions options;
  if (!recipe.empty()) options.recipe = parse_recipe(recipe);
  return options;
}

inline const TensorInfo& find(const TensorSource& source, const std::string& name) {
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return source.tensors().front();
}

inline std::vector<std::uint8_t> bytes_of(const TensorSource& source, const std::string& name) {
  const TensorInfo& tensor = find(source, name);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(tensor.bytes));
  source.read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), out.data());
  return out;
}

inline std::vector<float> floats_of(const TensorSource& source, const std::string& name) {
  const TensorInfo& tensor = find(source, name);
  std::vector<float> out(static_cast<std::size_t>(tensor.elements));
  source.read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), out.data());
  return out;
}

inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kUsage, "no error");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace fp4scope::test
