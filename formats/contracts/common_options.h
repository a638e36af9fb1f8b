// common_options.h: choices that several families share, and the row type of a contract list.
#pragma once
#include <string_view>

#include "formats/spec.h"

namespace fp4scope {

// Rounding of an element.
enum class Rounding : std::uint8_t {
  kEven,       // RNE
  kAway,       // RNA: nearest, ties away from zero
  kZero,       // RHZ: nearest, ties toward zero
  kTrunc,      // RTZ
  kStochastic  // SR: the random byte is added to the discarded fraction
};

// Confidence of a contract's rules (spec/scalars.md section 0).
enum class Evidence : std::uint8_t { kVerified, kRead, kInferred };

enum class Ragged : std::uint8_t {
  kPad,    // the last partial block is padded with +0 and never counted
  kError,  // a row length that is no multiple of the block is refused
  kFlat    // blocks run over the flattened tensor and cross row ends
};

enum class NegZero : std::uint8_t { kKeep, kDrop };  // code of an input -0: with its sign, or +0

// The table behind rcp~, the approximate reciprocal of the hardware (spec/scalars.md section 9).
enum class Rcp : std::uint8_t {
  kH200,  // measured on an H200 (sm_90)
  kRn,    // correctly rounded
  kUser   // a file given with --rcp-table
};

// `tensor / python_number` of torch (spec/scalars.md section 8).
enum class ScalarDiv : std::uint8_t {
  kExact,  // CPU: a division
  kRcp     // CUDA: a product with fl(1/number)
};

// The type whose arithmetic a torch expression is evaluated in: each operation is rounded to
// binary32 and then to this type.
enum class DType16 : std::uint8_t { kF32, kBf16, kF16 };

// Random Hadamard transform of x along K before anything else (spec/nvfp4.md section 3.5).
enum class RhtSum : std::uint8_t {
  kMmaF32,  // exact sum of the products, one rounding to binary32, then to the input type
  kSeq      // binary32 sum in element order, then the factor, then the input type
};
struct RhtOptions {
  std::uint32_t size = 0;  // 0 (none), 16, 32, 64 or 128
  // 0: the published vector of size 16; 1: all +1; N + 2: drawn with the seed N.
  std::uint64_t signs = 0;
  RhtSum sum = RhtSum::kMmaF32;
  constexpr bool operator==(const RhtOptions&) const = default;
};

// Stochastic rounding of the elements (spec/scalars.md sections 2.3 and 2.4).
enum class SrStream : std::uint8_t {
  // fp4scope's own: byte i%16 of the Philox call with key = seed and counter = {i/16 low, i/16
  // high, tensor low, tensor high}, i = element index in the tensor, row-major.
  kIndex,
  kTe  // TransformerEngine's tuned 1D kernel, row-wise words
};
struct SrOptions {
  bool enabled = false;  // round=sr
  SrStream stream = SrStream::kIndex;
  std::uint64_t seed = 0;
  constexpr bool operator==(const SrOptions&) const = default;
};

// Order of bytes in a source's own files; no code or scale byte depends on it (spec/layouts.md).
// The functions are in sim/layouts.
enum class Nibbles : std::uint8_t { kLowFirst, kHighFirst, kSplit8, kSplit16 };
enum class ScaleLayout : std::uint8_t { kLinear, k128x4, k8x4 };
enum class LevelBits : std::uint8_t { kLsb, kMsb };
enum class Carrier : std::uint8_t { kU32, kBytes, kF32, kA6 };
enum class IntPack : std::uint8_t { kCt, kTwos, kAwq, kGptq };
struct NativeLayout {
  Nibbles nibbles = Nibbles::kLowFirst;
  ScaleLayout scales = ScaleLayout::kLinear;
  LevelBits bits = LevelBits::kLsb;
  Carrier carrier = Carrier::kBytes;
  IntPack pack = IntPack::kCt;
  constexpr bool operator==(const NativeLayout&) const = default;
};

// One row of a contract list.
template <class Options>
struct Contract {
  std::string_view name;
  Options options;
  Ragged source_ragged;     // what the source itself does with a ragged row; only a note
  std::string_view source;  // project, commit, file
  Evidence evidence;
  std::string_view vectors;       // files under data/golden or shared/vectors that pin it
  std::string_view formats = "";  // names of the formats that have it, separated by blanks; "": all
  std::string_view alias = "";    // another accepted name
  std::string_view note = "";     // printed with every report: what a user must know
  NativeLayout native = {};       // how the source stores the result
};

// Whether a contract belongs to a format; user-defined formats (custom:) have all of their family.
template <class Options>
constexpr bool applies_to(const Contract<Options>& row, std::string_view format) {
  if (row.formats.empty() || format == "custom") return true;
  std::string_view rest = row.formats;
  while (!rest.empty()) {
    const std::size_t blank = rest.find(' ');
    if (rest.substr(0, blank) == format) return true;
    rest = blank == std::string_view::npos ? std::string_view{} : rest.substr(blank + 1);
  }
  return false;
}

}  // namespace fp4scope
