// widen.cc: see widen.h.
#include "analysis/io/widen.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "analysis/io/message.h"
#include "formats/minifloat.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

template <float (*Widen)(std::uint16_t)>
void widen_run(const unsigned char* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = Widen(bits);
  }
}

void widen_fp8(const MinifloatSpec& spec, const unsigned char* in, std::size_t count, float* out) {
  std::array<float, 256> values;
  for (std::uint32_t code = 0; code < 256; ++code) values[code] = decode<Lane<1>>(spec, code);
  for (std::size_t i = 0; i < count; ++i) out[i] = values[in[i]];
}

}  // namespace

void require_widenable(const TensorInfo& tensor) {
  if (is_real(tensor.dtype) && tensor.dtype != DType::kF64) return;
  throw Error(
      ErrorKind::kUnsupported,
      fmt::format("{}: tensor {} is {}, expected F32, F16, BF16 or FP8", printable(tensor.file),
                  in_quotes(tensor.name), printable(tensor.dtype_text)));
}

void widen_elements(const TensorInfo& tensor, const unsigned char* stored, std::size_t count,
                    float* out) {
  require_widenable(tensor);
  switch (tensor.dtype) {
    case DType::kF16:
      return widen_run<widen_f16>(stored, count, out);
    case DType::kBF16:
      return widen_run<widen_bf16>(stored, count, out);
    case DType::kF8E4M3:
      return widen_fp8(kE4M3, stored, count, out);
    case DType::kF8E5M2:
      return widen_fp8(kE5M2, stored, count, out);
    default:
      if (count != 0) std::memcpy(out, stored, count * sizeof(float));
  }
}

}  // namespace fp4scope
