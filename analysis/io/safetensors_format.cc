// safetensors_format.cc: dtype table of the safetensors format. Names without a DType of ours are
// listed with their width, so that sizes are checked and raw bytes can be read.
#include "analysis/io/safetensors_format.h"

#include <array>

namespace fp4scope {
namespace {

constexpr std::array kDTypes = {
    SafetensorsDType{"F64", DType::kF64, 64},
    SafetensorsDType{"F32", DType::kF32, 32},
    SafetensorsDType{"F16", DType::kF16, 16},
    SafetensorsDType{"BF16", DType::kBF16, 16},
    SafetensorsDType{"F8_E4M3", DType::kF8E4M3, 8},
    SafetensorsDType{"F8_E5M2", DType::kF8E5M2, 8},
    SafetensorsDType{"F8_E8M0", DType::kF8E8M0, 8},
    SafetensorsDType{"U8", DType::kU8, 8},
    SafetensorsDType{"I8", DType::kI8, 8},
    SafetensorsDType{"BOOL", DType::kOther, 8},
    SafetensorsDType{"F4", DType::kOther, 4},
    SafetensorsDType{"F6_E2M3", DType::kOther, 6},
    SafetensorsDType{"F6_E3M2", DType::kOther, 6},
    SafetensorsDType{"F8_E4M3FNUZ", DType::kOther, 8},
    SafetensorsDType{"F8_E5M2FNUZ", DType::kOther, 8},
    SafetensorsDType{"I16", DType::kOther, 16},
    SafetensorsDType{"U16", DType::kOther, 16},
    SafetensorsDType{"I32", DType::kOther, 32},
    SafetensorsDType{"U32", DType::kOther, 32},
    SafetensorsDType{"I64", DType::kOther, 64},
    SafetensorsDType{"U64", DType::kOther, 64},
    SafetensorsDType{"C64", DType::kOther, 64},
};

}  // namespace

SafetensorsDType safetensors_dtype(std::string_view name) {
  for (const SafetensorsDType& row : kDTypes) {
    if (row.name == name) return row;
  }
  return {};
}

std::string_view safetensors_name(DType dtype) {
  if (dtype == DType::kOther) return {};
  for (const SafetensorsDType& row : kDTypes) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

}  // namespace fp4scope
