// cpu_backend.cc: the CPU backends avx512, avx2 and reference: walk a tile band by band through the
// kernels of a family (cpu_kernels.h).
#include <array>
#include <optional>

#include "sim/cpu_kernels.h"
#include "sim/error.h"
#include "sim/fused_task.h"

namespace fp4scope {
namespace {

FamilyKernels kernels_of(Isa isa, const Recipe& recipe) {
  switch (recipe.family) {
    case Family::kMx:
      return mx_kernels(isa, recipe);
    case Family::kNvfp4:
      return nvfp4_kernels(isa, recipe);
    case Family::kHif4:
      return hif4_kernels(isa, recipe);
    case Family::kInt4:
      return int4_kernels(isa, recipe);
    case Family::kFp8:
      return fp8_kernels(isa, recipe);
    case Family::kPass:
      return pass_kernels(isa, recipe);
  }
  return {};
}

FusedFn fused_of(Isa isa, const Recipe& recipe, const Tile& tile) {
#if defined(__x86_64__)  // sim/fused_task.h
  if (isa == Isa::kReference || tile.f64 != nullptr) return nullptr;
  switch (recipe.family) {
    case Family::kMx:
      return mx_fused(isa, recipe, tile);
    case Family::kNvfp4:
      return nvfp4_fused(isa, recipe, tile);
    case Family::kHif4:
      return hif4_fused(isa, recipe, tile);
    default:
      break;
  }
#else
  (void)isa, (void)recipe, (void)tile;
#endif
  return nullptr;
}

bool always() {
  return true;
}
#if defined(__x86_64__)
// The level names cover all that arch=x86-64-v3 and -v4 allow; clang 14 knows feature names only,
// and not that of F16C, which every processor with AVX2 has.
bool has_avx2() {
#ifdef __clang__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
  return __builtin_cpu_supports("x86-64-v3");
#endif
}
bool has_avx512() {
#ifdef __clang__
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
#else
  return __builtin_cpu_supports("x86-64-v4");
#endif
}
#endif

struct CpuIsa {
  Isa isa;
  std::string_view name;
  bool (*available)();
  std::string_view missing;  // reason when not available
};
constexpr CpuIsa kIsas[] = {
#if defined(__x86_64__)
    {Isa::kAvx512, "avx512", has_avx512, "this processor has no AVX-512 (F, BW, DQ, VL, CD)"},
    {Isa::kAvx2, "avx2", has_avx2, "this processor has no AVX2, FMA and BMI2"},
#elif defined(__aarch64__)
    {Isa::kNeon, "neon", always, ""},
#endif
    {Isa::kReference, "reference", always, ""},
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuIsa& isa) : isa_(isa) {}

  std::string_view name() const override { return isa_.name; }
  Support available() const override {
    if (isa_.available()) return {};
    return {false, std::string(isa_.missing)};
  }
  Support supports(const Recipe&) const override { return available(); }

  OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const override {
    return rules_of(recipe.family).outer(recipe, amax_bits);
  }

  void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                QuantizedTile& out) const override {
    require_outer(recipe, tile.rows, outer.size());
    resize(out, recipe, tile.rows, tile.cols);
    const FamilyKernels kernels = kernels_of(isa_.isa, recipe);
    const std::int64_t band = recipe.format.block_rows;
    for (std::int64_t r = 0; r < tile.rows; r += band) {
      QuantizeTask task{recipe, tile, outer, out, r, std::min(band, tile.rows - r)};
      kernels.quantize(task);
      if (task.refused_row >= 0) throw RefusedInput(task.refused_row, task.refusal);
    }
  }

  bool run_fused(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                 const TileOutput& out, TileScratch&) const override {
    const FusedFn run = fused_of(isa_.isa, recipe, tile);
    if (run == nullptr) return false;
    require_outer(recipe, tile.rows, outer.size());
    run({recipe, tile, outer, out});
    return true;
  }

  void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                  std::span<const OuterScale32> outer, float* values,
                  std::int64_t stride) const override {
    require_outer(recipe, tile.rows, outer.size());
    const FamilyKernels kernels = kernels_of(isa_.isa, recipe);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      kernels.decode({recipe, tile, outer_of_row(recipe, outer, r), r, values + r * stride});
    }
  }

 private:
  const CpuIsa& isa_;
};

}  // namespace

FamilyRules rules_of(Family family) {
  switch (family) {
    case Family::kMx:
      return mx_rules();
    case Family::kNvfp4:
      return nvfp4_rules();
    case Family::kHif4:
      return hif4_rules();
    case Family::kInt4:
      return int4_rules();
    case Family::kFp8:
      return fp8_rules();
    case Family::kPass:
      return pass_rules();
  }
  return {};
}

double scaled_magnitude(const Recipe& recipe, const OuterScale32& outer, const std::uint8_t* scale,
                        bool choice, int index, double value, const SourceBlock& source) {
  return rules_of(recipe.family)
      .scaled_magnitude({recipe, outer, scale, choice, index, value, source});
}
SaturationLimit element_limit(const Recipe& recipe) {
  if (recipe.format.lut != nullptr) return {1.0, false};
  return saturation_limit(recipe.format.element, recipe.element_ties());
}

Isa isa_of(const Backend& backend) {
  for (std::size_t i = 0; i < std::size(kIsas); ++i) {
    if (cpu_backends()[i] == &backend) return kIsas[i].isa;
  }
  return Isa::kReference;
}
bool is_available(Isa isa) {
  const auto* found = std::find_if(std::begin(kIsas), std::end(kIsas),
                                   [&](const CpuIsa& one) { return one.isa == isa; });
  return found != std::end(kIsas) && found->available();
}
Isa widest_isa() {
  static const Isa widest = std::find_if(std::begin(kIsas), std::end(kIsas), [](const CpuIsa& one) {
                              return one.available();
                            })->isa;
  return widest;
}

std::span<const Backend* const> cpu_backends() {
  static const auto list_of_all = [] {
    constexpr std::size_t kCount = std::size(kIsas);
    static std::array<std::optional<CpuBackend>, kCount> backends;
    std::array<const Backend*, kCount> list{};
    for (std::size_t i = 0; i < kCount; ++i) list[i] = &backends[i].emplace(kIsas[i]);
    return list;
  }();
  return list_of_all;
}

}  // namespace fp4scope
