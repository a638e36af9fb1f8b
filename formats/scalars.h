// scalars.h: one row per named format, each with its source. Values: spec/scalars.md section 1.
#pragma once
#include "formats/spec.h"

namespace fp4scope {

// Elements.
inline constexpr MinifloatSpec kE2M1{2, 1, 1, true, true, Special::kNone};        // OCP MX v1.0 FP4
inline constexpr MinifloatSpec kE1M2{1, 2, 1, true, true, Special::kNone};        // HiF4 S1P2
inline constexpr MinifloatSpec kE2M3{2, 3, 1, true, true, Special::kNone};        // OCP MX v1.0 FP6
inline constexpr MinifloatSpec kE3M2{3, 2, 3, true, true, Special::kNone};        // OCP MX v1.0 FP6
inline constexpr MinifloatSpec kE4M3{4, 3, 7, true, true, Special::kNanAllOnes};  // OCP OFP8
inline constexpr MinifloatSpec kE5M2{5, 2, 15, true, true, Special::kIeee};       // OCP OFP8
// HiFX widths 3 and 5: the element of the HiFloat4 simulator with another fraction length.
inline constexpr MinifloatSpec kE1M1{1, 1, 1, true, true, Special::kNone};
inline constexpr MinifloatSpec kE1M3{1, 3, 1, true, true, Special::kNone};
// Scales.
inline constexpr MinifloatSpec kUE4M3{4, 3, 7, false, true, Special::kNanAllOnes};   // NVFP4
inline constexpr MinifloatSpec kUE5M3{5, 3, 15, false, true, Special::kNanAllOnes};  // custom: only
inline constexpr MinifloatSpec kE6M2{6, 2, 48, false, false, Special::kNanAllOnes};  // HiF4 level 1
// Wide types.
inline constexpr MinifloatSpec kBF16{8, 7, 127, true, true, Special::kIeee};
inline constexpr MinifloatSpec kFP16{5, 10, 15, true, true, Special::kIeee};  // IEEE 754 binary16
// FP8 variants of other stacks (ml_dtypes names in the comments).
inline constexpr MinifloatSpec kE3M4{3, 4, 3, true, true, Special::kIeee};       // float8_e3m4
inline constexpr MinifloatSpec kE4M3Ieee{4, 3, 7, true, true, Special::kIeee};   // float8_e4m3
inline constexpr MinifloatSpec kE4M3B11{4, 3, 11, true, true, Special::kFnuz};   // ..e4m3b11fnuz
inline constexpr MinifloatSpec kE4M3Fnuz{4, 3, 8, true, true, Special::kFnuz};   // ..e4m3fnuz
inline constexpr MinifloatSpec kE5M2Fnuz{5, 2, 16, true, true, Special::kFnuz};  // ..e5m2fnuz

struct NamedSpec {
  std::string_view name;
  MinifloatSpec spec;
  std::string_view source;
};
// Every minifloat in one list; tests, `fp4scope formats` and the oracle iterate it. E8M0 is not a
// minifloat with subnormals or a zero and has functions of its own (formats/e8m0.h).
inline constexpr NamedSpec kScalars[] = {
    {"e2m1", kE2M1, "OCP MX v1.0 FP4"},
    {"e1m2", kE1M2, "HiF4 S1P2, arXiv 2602.11287 Table I"},
    {"e2m3", kE2M3, "OCP MX v1.0 FP6"},
    {"e3m2", kE3M2, "OCP MX v1.0 FP6"},
    {"e4m3", kE4M3, "OCP OFP8 E4M3 (finite, 'fn')"},
    {"e5m2", kE5M2, "OCP OFP8 E5M2"},
    {"e6m2", kE6M2, "HiF4 level-1 scale, arXiv 2602.11287 Table I"},
    {"bf16", kBF16, "bfloat16"},
    {"fp16", kFP16, "IEEE 754 binary16"},
    {"ue4m3", kUE4M3, "E4M3 with sign 0, the NVFP4 block scale"},
    {"ue5m3", kUE5M3, "scale type of user-defined formats (inferred)"},
    {"e1m1", kE1M1, "HiFX width 3, HiFloat4 simulator 6d937b6"},
    {"e1m3", kE1M3, "HiFX width 5, HiFloat4 simulator 6d937b6"},
    {"e3m4", kE3M4, "ml_dtypes float8_e3m4"},
    {"e4m3-ieee", kE4M3Ieee, "ml_dtypes float8_e4m3"},
    {"e4m3b11fnuz", kE4M3B11, "ml_dtypes float8_e4m3b11fnuz"},
    {"e4m3fnuz", kE4M3Fnuz, "ml_dtypes float8_e4m3fnuz"},
    {"e5m2fnuz", kE5M2Fnuz, "ml_dtypes float8_e5m2fnuz"},
};

// Block formats. Levels are listed outermost first.
constexpr BlockFormat mx_format(std::string_view name, MinifloatSpec element) {
  return {name, element, 32, {ScaleLevel{ScaleKind::kE8m0, {}, 32}}, 1, 1};
}
inline constexpr BlockFormat kMxfp4 = mx_format("mxfp4", kE2M1);
inline constexpr BlockFormat kMxfp6e2m3 = mx_format("mxfp6e2m3", kE2M3);
inline constexpr BlockFormat kMxfp6e3m2 = mx_format("mxfp6e3m2", kE3M2);
inline constexpr BlockFormat kMxfp8e4m3 = mx_format("mxfp8e4m3", kE4M3);
inline constexpr BlockFormat kMxfp8e5m2 = mx_format("mxfp8e5m2", kE5M2);
// MXINT8 (OCP MX v1.0) and the INT4 of microxcaling; the key int8-grid changes the sign code.
inline constexpr BlockFormat kMxint8 =
    mx_format("mxint8", integer_spec(8, -6, SignCode::kTwosComplement));
inline constexpr BlockFormat kMxint4 =
    mx_format("mxint4", integer_spec(4, -2, SignCode::kTwosComplement));
inline constexpr BlockFormat kNvfp4{
    "nvfp4",
    kE2M1,
    16,
    {ScaleLevel{ScaleKind::kBinary32, {}, 0}, ScaleLevel{ScaleKind::kMinifloat, kUE4M3, 16}},
    2,
    1};
// Siblings of fouroversix (spec/nvfp4.md 5.3). if4: a block has E2M1 or INT4 elements, bit 7 of its
// scale byte says which; the spec here is that of E2M1.
inline constexpr MinifloatSpec kInt4 = integer_spec(4, 0, SignCode::kTwosComplement);
constexpr BlockFormat nvfp4_sibling(std::string_view name, MinifloatSpec element) {
  BlockFormat format = kNvfp4;
  format.name = name;
  format.element = element;
  return format;
}
inline constexpr BlockFormat kIf4 = nvfp4_sibling("if4", kE2M1);
inline constexpr BlockFormat kNvint4 = nvfp4_sibling("nvint4", kInt4);
inline constexpr BlockFormat kHif4{
    "hif4",
    kE1M2,
    64,
    {ScaleLevel{ScaleKind::kMinifloat, kE6M2, 64}, ScaleLevel{ScaleKind::kMicroExponent, {}, 8},
     ScaleLevel{ScaleKind::kMicroExponent, {}, 4}},
    3,
    4};
// INT4 and FP8 as their default contracts have them; keys change element, block and scales.
inline constexpr BlockFormat kInt4Group{"int4", integer_spec(4, 0, SignCode::kTwosComplementFull),
                                        32,     {ScaleLevel{ScaleKind::kBfloat16, {}, 32}},
                                        1,      2};
inline constexpr BlockFormat kFp8{"fp8", kE4M3, 128, {ScaleLevel{ScaleKind::kBinary32, {}, 128}},
                                  1,     4};
// The pass-through recipe; sums and maps take 64 elements at a time.
inline constexpr BlockFormat kBf16Pass{"bf16", kBF16, 64, {}, 0, 0};
static_assert(kMxfp4.bits_per_element() == 4.25);
static_assert(kNvfp4.bits_per_element() == 4.5);
static_assert(kInt4Group.bits_per_element() == 4.5);
static_assert(kFp8.bits_per_element() == 8.25);
static_assert(kHif4.bits_per_element() == 4.5);  // 4 + (8 + 8 + 16) / 64
static_assert(kE2M1.max_exponent() == 2 && kE2M3.max_exponent() == 2 && kE3M2.max_exponent() == 4);
static_assert(kE4M3.max_exponent() == 8 && kE5M2.max_exponent() == 15);

}  // namespace fp4scope
