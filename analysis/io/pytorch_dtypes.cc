// pytorch_dtypes.cc: tables after torch 2.15 (torch/_utils.py, torch/storage.py) and numpy's array
// interface. float4_e2m1fn_x2 counts pairs of codes, so its elements are bytes here.
#include "analysis/io/pytorch_dtypes.h"

#include <fmt/format.h>

#include <charconv>

namespace fp4scope {
namespace {

const StoredDType kTorch[] = {
    {DType::kF64, "float64", 8, 8},
    {DType::kF64, "double", 8, 8},
    {DType::kF32, "float32", 4, 4},
    {DType::kF32, "float", 4, 4},
    {DType::kF16, "float16", 2, 2},
    {DType::kF16, "half", 2, 2},
    {DType::kBF16, "bfloat16", 2, 2},
    {DType::kF8E4M3, "float8_e4m3fn", 1, 1},
    {DType::kF8E5M2, "float8_e5m2", 1, 1},
    {DType::kOther, "float8_e4m3fnuz", 1, 1},
    {DType::kOther, "float8_e5m2fnuz", 1, 1},
    {DType::kF8E8M0, "float8_e8m0fnu", 1, 1},
    {DType::kU8, "float4_e2m1fn_x2", 1, 1},
    {DType::kU8, "uint8", 1, 1},
    {DType::kI8, "int8", 1, 1},
    {DType::kOther, "int16", 2, 2},
    {DType::kOther, "short", 2, 2},
    {DType::kOther, "int32", 4, 4},
    {DType::kOther, "int", 4, 4},
    {DType::kOther, "int64", 8, 8},
    {DType::kOther, "long", 8, 8},
    {DType::kOther, "uint16", 2, 2},
    {DType::kOther, "uint32", 4, 4},
    {DType::kOther, "uint64", 8, 8},
    {DType::kOther, "bool", 1, 1},
    {DType::kOther, "complex32", 4, 2},
    {DType::kOther, "chalf", 4, 2},
    {DType::kOther, "complex64", 8, 4},
    {DType::kOther, "cfloat", 8, 4},
    {DType::kOther, "complex128", 16, 8},
    {DType::kOther, "cdouble", 16, 8},
    {DType::kOther, "bcomplex32", 4, 2},
    {DType::kI8, "qint8", 1, 1},
    {DType::kU8, "quint8", 1, 1},
    {DType::kOther, "qint32", 4, 4},
    {DType::kOther, "quint4x2", 0, 1},  // several elements share a byte
    {DType::kOther, "quint2x4", 0, 1},
    {DType::kOther, "bits8", 1, 1},
    {DType::kOther, "bits16", 2, 2},
    {DType::kOther, "bits1x8", 1, 1},
    {DType::kOther, "bits2x4", 1, 1},
    {DType::kOther, "bits4x2", 1, 1},
};

struct StorageClass {
  std::string_view name;
  std::string_view dtype;
};
constexpr StorageClass kStorages[] = {
    {"DoubleStorage", "float64"},
    {"FloatStorage", "float32"},
    {"HalfStorage", "float16"},
    {"BFloat16Storage", "bfloat16"},
    {"ByteStorage", "uint8"},
    {"CharStorage", "int8"},
    {"ShortStorage", "int16"},
    {"IntStorage", "int32"},
    {"LongStorage", "int64"},
    {"BoolStorage", "bool"},
    {"ComplexFloatStorage", "complex64"},
    {"ComplexDoubleStorage", "complex128"},
    {"QInt8Storage", "qint8"},
    {"QUInt8Storage", "quint8"},
    {"QInt32Storage", "qint32"},
    {"QUInt4x2Storage", "quint4x2"},
    {"QUInt2x4Storage", "quint2x4"},
    {"UntypedStorage", "uint8"},
};

DType numpy_kind(char kind, int bytes) {
  if (kind == 'f' && bytes == 8) return DType::kF64;
  if (kind == 'f' && bytes == 4) return DType::kF32;
  if (kind == 'f' && bytes == 2) return DType::kF16;
  if (kind == 'u' && bytes == 1) return DType::kU8;
  if (kind == 'i' && bytes == 1) return DType::kI8;
  return DType::kOther;
}

}  // namespace

const StoredDType* torch_dtype(std::string_view name) {
  for (const StoredDType& entry : kTorch) {
    if (entry.text == name) return &entry;
  }
  return nullptr;
}

const StoredDType* torch_storage_dtype(std::string_view name) {
  for (const StorageClass& entry : kStorages) {
    if (entry.name == name) return torch_dtype(entry.dtype);
  }
  return nullptr;
}

StoredDType numpy_dtype(std::string_view type, char order, bool& big_endian) {
  StoredDType result;
  big_endian = false;
  if (type.empty() || type[0] == 'O') {
    result.text = "|O";
    return result;
  }
  const char kind = type[0];
  int count = 0;
  const auto [stop, error] = std::from_chars(type.data() + 1, type.data() + type.size(), count);
  constexpr int kMostBytes = 1 << 26;  // so that the bits of an element fit an int
  const bool plain = error == std::errc() && stop == type.data() + type.size() && count > 0 &&
                     count <= kMostBytes / 4;
  if (!plain || std::string_view("biufcSaUVMm").find(kind) == std::string_view::npos) {
    result.text = std::string(type);
    return result;
  }
  result.bytes = kind == 'U' ? 4 * count : count;
  result.unit = kind == 'U'                                 ? 4
                : kind == 'c'                               ? count / 2
                : kind == 'S' || kind == 'a' || kind == 'V' ? 1
                                                            : count;
  result.dtype = numpy_kind(kind, count);
  // numpy's own spelling of the byte order; '=' and a missing one are those of the machine that
  // reads, which is little-endian.
  const bool has_order = result.unit > 1;
  big_endian = has_order && order == '>';
  result.text = fmt::format("{}{}", !has_order ? '|' : big_endian ? '>' : '<', type);
  return result;
}

}  // namespace fp4scope
