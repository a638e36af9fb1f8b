// layouts_checkpoints_test.cc: conventions of checkpoints by tensor name, geometry and bytes
// (spec/layouts.md section 4, spec/more.md 2.5), NaN bytes of scale planes, and the registry.
#include <cmath>
#include <limits>
#include <set>

#include "sim/layouts/checkpoints.h"
#include "sim/layouts/e8m0_scales.h"
#include "sim/layouts/registry.h"
#include "tests/unit/layouts_support.h"

namespace fp4scope {
namespace {

using test::Bytes;
using test::kind_of;

TEST_CASE("checkpoints: the name decides about an outer scale") {
  CHECK(outer_scale_convention("model.layers.0.mlp.up_proj.weight_scale_2") ==
        ScaleConvention::kDecode);
  CHECK(outer_scale_convention("a.input_scale") == ScaleConvention::kDecode);
  CHECK(outer_scale_convention("a.per_tensor_scale") == ScaleConvention::kDecode);
  CHECK(outer_scale_convention("a.weight_global_scale") == ScaleConvention::kEncode);
  CHECK(outer_scale_convention("input_global_scale") == ScaleConvention::kEncode);
  CHECK(outer_scale_convention("experts.gate_up_proj_weight_scale_2") == ScaleConvention::kDecode);
  for (const char* name : {"a.weight_scale", "a.scale", "a.global_scale", "a.myinput_scale", ""}) {
    CHECK(kind_of([&] { outer_scale_convention(name); }) == ErrorKind::kUnsupported);
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, -0.0f, -1.0f, kInf, -kInf, std::nanf("")}) {
    CHECK(kind_of([&] { checked_outer_scale("a.weight_scale_2", bad); }) == ErrorKind::kData);
  }
  CHECK(checked_outer_scale("a.weight_scale_2", 0x1p-149f) == 0x1p-149f);
  // amax 1: 2688 encodes, 1/2688 decodes; x = e2m1 * fl(scale op outer).
  CHECK(checkpoint_value(ScaleConvention::kEncode, 6.0f, 448.0f, 2688.0f) == 6.0f * (1.0f / 6.0f));
  CHECK(checkpoint_value(ScaleConvention::kDecode, 6.0f, 448.0f, 0.25f) == 672.0f);
  std::set<std::pair<std::string_view, std::string_view>> rows;
  for (const CheckpointTensor& row : checkpoint_tensors()) rows.emplace(row.format, row.suffix);
  CHECK(rows.size() == checkpoint_tensors().size());
}

TEST_CASE("checkpoints: gpt-oss bytes and DeepSeek-V4 geometry") {
  CHECK(gpt_oss_value(7, 127) == 6.0f);
  CHECK(gpt_oss_value(1, 0) == 0x1p-128f);
  CHECK(std::signbit(gpt_oss_value(8, 127)));
  CHECK(std::isinf(gpt_oss_value(1, 255)));
  CHECK(std::isnan(gpt_oss_value(0, 255)));
  CHECK(deepseek_v4_weight("I8", 256, 512, 256, 32) == DeepSeekWeight::kFp4);
  CHECK(deepseek_v4_weight("F8_E4M3", 256, 1024, 2, 8) == DeepSeekWeight::kFp8Block128);
  CHECK(deepseek_v4_weight("F8_E4M3", 200, 1000, 7, 32) == DeepSeekWeight::kFp8Block32);
  CHECK(kind_of([] { deepseek_v4_weight("I8", 256, 1024, 2, 8); }) == ErrorKind::kUnsupported);
  CHECK(kind_of([] { deepseek_v4_weight("F8_E4M3", 256, 512, 256, 32); }) ==
        ErrorKind::kUnsupported);
}

TEST_CASE("NaN bytes of scale planes are found") {
  const Bytes plane = {0x00, 0x7e, 0x7f, 0xfe, 0xff, 0x7f};
  const NanScales e4m3 = find_nan_scales(ScaleByte::kE4m3, plane);
  CHECK((e4m3.count == 3 && e4m3.first == 2));
  const NanScales e8m0 = find_nan_scales(ScaleByte::kE8m0, plane);
  CHECK((e8m0.count == 1 && e8m0.first == 4));
  CHECK(find_nan_scales(ScaleByte::kE6m2, plane).first == 4);
  CHECK(find_nan_scales(ScaleByte::kE8m0, {}).first == -1);
}

TEST_CASE("the registry names every layout once, and every value of a layout key") {
  std::set<std::pair<std::string_view, std::string_view>> rows;
  for (const LayoutInfo& row : all_layouts()) {
    CHECK((!row.formula.empty() && !row.users.empty()));
    rows.emplace(row.kind, row.name);
  }
  CHECK(rows.size() == all_layouts().size());
  const std::pair<std::string_view, std::vector<std::string_view>> keys[] = {
      {"nibbles", {"low-first", "high-first", "split8", "split16"}},
      {"layout", {"linear", "128x4", "8x4"}},
      {"carrier", {"u32", "bytes", "f32", "a6"}},
      {"pack", {"ct", "twos", "awq", "gptq"}}};
  for (const auto& [key, values] : keys) {
    for (const std::string_view value : values) CHECK(rows.count({key, value}) == 1);
  }
}

}  // namespace
}  // namespace fp4scope
