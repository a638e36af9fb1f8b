// fused_test.cc: run_tile() of every backend against the same work step by step on "reference":
// packed codes, scales, decoded values, code counts and every figure of every block, bit for bit,
// from binary32, BF16 and binary16 input.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "formats/minifloat.h"
#include "sim/error.h"
#include "sim/run_tile.h"
#include "tests/cross/hard_blocks.h"
#include "tests/cross/recipes.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// Keeps what it is given. Some strips are asked for their values, as for percentiles.
class Kept final : public FigureSink {
 public:
  Kept(const Recipe& recipe, std::int64_t cols) : recipe_(recipe), cols_(cols) {}
  bool wants_values(std::int64_t first) const override { return first / kStripBlocks % 3 == 0; }
  void add(const StripFigures& s) override {
    REQUIRE(s.first == next_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.count); ++i) {
      const std::int64_t block = s.first + static_cast<std::int64_t>(i);
      for (const std::int32_t n :
           {s.elements[i], s.finite[i], s.counted[i], s.zeros[i], s.inexact[i], s.underflow[i],
            s.underflow_code[i], s.saturated[i], std::int32_t{s.is_map4[i]}}) {
        all.push_back(n);
      }
      for (const double d : {s.amax[i], s.max_error[i], s.squared_error[i], s.absolute_error[i],
                             s.error[i], s.signal[i], s.value[i], s.product[i], s.energy[i]}) {
        // Sums of nothing but zeros of either sign are zero.
        all.push_back(bit_cast<std::int64_t>(d == 0 ? 0.0 : d));
      }
      const int bytes = recipe_.format.scale_bytes;
      for (int k = 0; k < bytes; ++k) {
        all.push_back(s.scales[static_cast<std::int64_t>(i) * bytes + k]);
      }
      if (!wants_values(s.first)) continue;
      const std::int64_t width = recipe_.format.block, across = (cols_ + width - 1) / width;
      const std::int64_t n = std::min(width, cols_ - block % across * width);
      for (std::int64_t k = 0; k < n; ++k) {
        const float v = s.values[i][k];
        all.push_back(v != v ? kQuietNanBits : bit_cast<std::uint32_t>(v));
      }
    }
    next_ += s.count;
  }
  std::vector<std::int64_t> all;

 private:
  const Recipe& recipe_;
  std::int64_t cols_, next_ = 0;
};
std::int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    n += !both_nan && bit_cast<std::uint32_t>(a[i]) != bit_cast<std::uint32_t>(b[i]);
  }
  return n;
}
template <class T>
std::int64_t differing(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return std::max<std::int64_t>(std::ssize(a), std::ssize(b));
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += a[i] != b[i];
  return n;
}

struct Results {
  std::vector<std::uint8_t> packed, scales;
  std::vector<float> values;
  std::vector<std::int64_t> code_counts = std::vector<std::int64_t>(256);
  std::vector<std::int64_t> all, few;
};

constexpr std::int64_t kSlack = 5;  // strides are longer than rows

// Room for `count` entries from the beginning of a line of the caches on.
template <class T>
T* aligned(std::vector<T>& storage, std::int64_t count, T fill) {
  storage.assign(static_cast<std::size_t>(count) + 64 / sizeof(T), fill);
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(T);
}

// How many entries of `got`, rows one behind the other, differ from `want` with its stride.
template <class T>
std::int64_t differing_rows(const std::vector<T>& want, std::int64_t want_stride, const T* got,
                            std::int64_t rows, std::int64_t cols) {
  std::int64_t n = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto first = want.begin() + row * want_stride;
    n += differing(std::vector<T>(first, first + cols),
                   std::vector<T>(got + row * cols, got + (row + 1) * cols));
  }
  return n;
}

// Everything at once, or nothing: the recipe refuses the input.
std::optional<Results> results(const Backend& backend, const Recipe& recipe, const Tile& tile,
                               std::span<const OuterScale32> outer, bool by_steps) {
  Results r;
  const std::int64_t width = recipe.format.block, across = (tile.cols + width - 1) / width;
  TileOutput out;
  out.packed_stride = across * width / 2 + kSlack;
  out.scales_stride = across * recipe.format.scale_bytes + kSlack;
  out.values_stride = tile.cols + kSlack;
  if (recipe.packs_nibbles()) {
    r.packed.assign(static_cast<std::size_t>(tile.rows * out.packed_stride), 0x5a);
    out.packed = r.packed.data();
  }
  r.scales.assign(static_cast<std::size_t>(tile.rows * out.scales_stride), 0x5a);
  out.scales = r.scales.data();
  r.values.assign(static_cast<std::size_t>(tile.rows * out.values_stride), -77.0f);
  out.values = r.values.data();
  out.code_counts = r.code_counts.data();
  Kept kept(recipe, tile.cols);
  out.figures = &kept;
  TileScratch scratch;
  const auto run = by_steps ? run_tile_by_steps : run_tile;
  try {
    run(backend, recipe, tile, outer, out, scratch);
    r.all = std::move(kept.all);
    // Codes and values alone go another way.
    TileOutput kept_alone = out;
    kept_alone.figures = nullptr;
    kept_alone.code_counts = nullptr;
    const Results first = r;
    std::fill(r.packed.begin(), r.packed.end(), std::uint8_t{0x5a});
    std::fill(r.scales.begin(), r.scales.end(), std::uint8_t{0x5a});
    std::fill(r.values.begin(), r.values.end(), -77.0f);
    run(backend, recipe, tile, outer, kept_alone, scratch);
    r.few.push_back(differing(first.packed, r.packed) + differing(first.scales, r.scales) +
                    differing(first.values, r.values));
    // Rows of output one behind the other, where non-temporal stores are possible, too; codes and
    // values alone, with statistics, and with all figures.
    for (int way = 0; way < 6; ++way) {
      const std::int64_t packed_row = out.packed_stride - kSlack;
      const std::int64_t scales_row = out.scales_stride - kSlack;
      std::vector<std::uint8_t> packed, scales;
      std::vector<float> values;
      Statistics statistics;
      Kept again(recipe, tile.cols);
      TileOutput dense;
      if (out.packed != nullptr) {
        dense.packed = aligned(packed, tile.rows * packed_row, std::uint8_t{0x5a});
      }
      dense.scales = aligned(scales, tile.rows * scales_row, std::uint8_t{0x5a});
      dense.values = aligned(values, tile.rows * tile.cols, -77.0f);
      dense.packed_stride = packed_row;
      dense.scales_stride = scales_row;
      dense.values_stride = tile.cols;
      dense.bypass_caches = way % 2 == 1;
      if (way / 2 == 1) dense.statistics = &statistics;
      if (way / 2 == 2) dense.figures = &again;
      run(backend, recipe, tile, outer, dense, scratch);
      if (out.packed != nullptr) {
        r.few.push_back(
            differing_rows(first.packed, out.packed_stride, dense.packed, tile.rows, packed_row));
      }
      r.few.push_back(
          differing_rows(first.scales, out.scales_stride, dense.scales, tile.rows, scales_row));
      r.few.push_back(
          differing_rows(first.values, out.values_stride, dense.values, tile.rows, tile.cols));
      r.few.push_back(bit_cast<std::int64_t>(statistics.squared_error));
      if (way / 2 == 2) r.few.push_back(differing(first.all, again.all));
    }
    // Statistics go another way, alone and beside codes and values.
    for (const bool alone : {true, false}) {
      Statistics statistics;
      TileOutput few = alone ? TileOutput{} : out;
      few.code_counts = nullptr;
      few.figures = nullptr;
      few.statistics = &statistics;
      if (!alone) std::fill(r.values.begin(), r.values.end(), -77.0f);
      run(backend, recipe, tile, outer, few, scratch);
      r.few.insert(r.few.end(), {statistics.elements, statistics.underflow, statistics.saturated,
                                 statistics.blocks, statistics.map4,
                                 bit_cast<std::int64_t>(statistics.squared_error),
                                 bit_cast<std::int64_t>(statistics.absolute_error)});
      r.few.insert(r.few.end(), statistics.scales.begin(), statistics.scales.end());
    }
  } catch (const RefusedInput&) {
    return std::nullopt;
  }
  return r;
}

bool same(const Results& want, const Results& got, const std::string& where) {
  const std::int64_t n[] = {
      differing(want.packed, got.packed), differing(want.scales, got.scales),
      differing(want.values, got.values), differing(want.code_counts, got.code_counts),
      differing(want.all, got.all),       differing(want.few, got.few)};
  const bool equal = std::all_of(std::begin(n), std::end(n), [](std::int64_t d) { return d == 0; });
  if (!equal) {
    std::printf(
        "DIFFERS %s: packed %lld scales %lld values %lld code counts %lld figures %lld "
        "statistics %lld\n",
        where.c_str(), static_cast<long long>(n[0]), static_cast<long long>(n[1]),
        static_cast<long long>(n[2]), static_cast<long long>(n[3]), static_cast<long long>(n[4]),
        static_cast<long long>(n[5]));
  }
  return equal;
}

enum class Input { kF32, kBf16, kF16 };

// Data whose values all of the input type have.
std::vector<float> narrowed(std::vector<float> x, Input input) {
  for (float& v : x) {
    if (input == Input::kBf16) v = bit_cast<float>(bit_cast<std::uint32_t>(v) & 0xffff0000u);
    if (input == Input::kF16) {
      const CastPolicy policy{Rounding::kEven, Overflow::kSpecial, {0x7fffu, NanRule::Sign::kDrop}};
      v = decode<Lane<1>>(kFP16, cast<Lane<1>>(kFP16, policy, v));
    }
  }
  return x;
}
std::vector<std::uint16_t> words_of(const std::vector<float>& x, Input input) {
  std::vector<std::uint16_t> words;
  for (const float v : x) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(v);
    const std::uint32_t nan = 0x7e00u;
    words.push_back(static_cast<std::uint16_t>(
        input == Input::kBf16 ? bits >> 16
        : v != v              ? nan
                              : cast<Lane<1>>(
                       kFP16,
                       {Rounding::kEven, Overflow::kSpecial, {0x7fffu, NanRule::Sign::kDrop}}, v)));
  }
  return words;
}

// HiF4 groups whose products with the reciprocal of their scale fall on midpoints, on thresholds of
// level bits and on the saturation limit when they are rounded to binary32, and beside them.
void fill_beside_midpoints(BlockSource& source, std::span<float> group) {
  // The four fractions of E6M2 and the BF16 reciprocals of 4..7 times 1/4 (spec/scalars.md 6).
  constexpr float kScales[] = {1.0f, 1.25f, 1.5f, 1.75f};
  constexpr float kReciprocals[] = {1.0f, 0.80078125f, 0.66796875f, 0.5703125f};
  const std::uint32_t which = source.below(4);
  for (float& v : group) {
    const std::uint32_t eighths = 1 + source.below(15);
    const float target =
        std::ldexp(static_cast<float>(eighths) / 8, static_cast<int>(source.below(3)));
    const auto bits = bit_cast<std::uint32_t>(target / kReciprocals[which]);
    v = bit_cast<float>(bits + source.below(5) - 2u);
    if (source.coin()) v = -v;
  }
  group[source.below(64)] = 7.0f * kScales[which];
}

// Mostly what data look like; with `hard`, blocks of every kind in between.
std::vector<float> data(BlockSource& source, const Recipe& recipe, std::int64_t n, bool hard) {
  const std::int64_t size = recipe.format.block;
  std::vector<float> x(static_cast<std::size_t>((n + size - 1) / size * size));
  for (std::int64_t at = 0; at < std::ssize(x); at += size) {
    const auto block =
        std::span(x).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
    const std::uint32_t dice = source.below(hard ? 8 : 40);
    if (dice == 0 && hard) {
      fill_block(source, static_cast<Kind>(source.below(kKinds)), recipe, 1.0f, block);
      continue;
    }
    if (dice == 2 && size == 64) {
      fill_beside_midpoints(source, block);
      continue;
    }
    // Sums of uniform numbers, some zero, some far out; whole blocks of zeros, too.
    for (float& v : block) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) sum += static_cast<float>(source.below(1u << 16)) - 32767.5f;
      v = sum * 0x1p-16f;
      const std::uint32_t special = source.below(64);
      if (special == 0 || dice == 1) v = source.coin() ? 0.0f : -0.0f;
      if (special == 1) v *= 16.0f;
      if (special == 2) v *= 0x1p-9f;
    }
  }
  x.resize(static_cast<std::size_t>(n));
  return x;
}

struct Tally {
  std::int64_t tiles = 0, fused = 0, refused = 0, wrong = 0;
};

void check_tile(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                const std::string& where, Tally& tally) {
  const Backend& reference = *cpu_backends().back();
  const std::optional<Results> want = results(reference, recipe, tile, outer, true);
  for (const Backend* backend : backends_for(recipe)) {
    const std::optional<Results> got = results(*backend, recipe, tile, outer, false);
    ++tally.tiles;
    tally.refused += !want.has_value();
    if (want.has_value() != got.has_value()) {
      std::printf("DIFFERS %s on %s: one of them refuses\n", where.c_str(),
                  name_of(*backend).c_str());
      ++tally.wrong;
    } else if (want.has_value()) {
      tally.wrong += !same(*want, *got, where + " on " + name_of(*backend));
    }
  }
}

// Recipes with fused kernels on some backend, and others, which go step by step.
std::vector<std::string> recipes() {
  std::vector<std::string> list = contract_recipes();
  const std::vector<std::string> options = option_recipes();
  list.insert(list.end(), options.begin(), options.end());
  for (const char* more :
       {"nvfp4:scale=given,g=0x43e00000", "nvfp4:scale=given,g=0x47e00000",
        "nvfp4:scale=given,g=0x3f000000", "nvfp4:select=mse,scale=given,g=0x45000000",
        "nvfp4:select=mae,metric=fast,scale=row", "nvfp4:select=mse,metric=fast", "nvfp4:scale=row",
        "nvfp4:neg-zero=drop", "mxfp4:contract=ocp-floor-rne", "mxfp4:scale-rule=even",
        "mxfp4:scale-rule=ceil", "hif4:contract=a6,ties=up", "hif4:contract=amct,ties=even",
        "hif4:ties=even"}) {
    try {
      (void)parse_recipe(more);
      list.emplace_back(more);
    } catch (const Error& error) {
      FAIL_CHECK(more << ": " << error.what());
    }
  }
  return list;
}

// Every place in a panel, in a pair of panels and at the edges of strips.
std::vector<std::int64_t> block_counts() {
  std::vector<std::int64_t> counts(34);
  std::iota(counts.begin(), counts.end(), 0);
  counts.insert(counts.end(), {63, 64, 65, 130});
  return counts;
}

bool has_fused(const Backend& backend, const Recipe& recipe, SourceType source) {
  float x[64];
  std::fill_n(x, 64, 1.0f);  // contracts may refuse zeros
  std::uint16_t halves[64];
  std::fill_n(halves, 64, std::uint16_t{0x3c00});
  Tile tile{x, nullptr, 1, 64, 64};
  if (source != SourceType::kF32) {
    tile.f32 = nullptr;
    tile.f16 = halves;
    tile.source = source;
  }
  const std::vector<OuterScale32> outer(1);
  TileScratch scratch;
  return backend.run_fused(recipe, tile, outer, {}, scratch);
}
bool has_fused(const Recipe& recipe) {
  const std::vector<const Backend*> backends = backends_for(recipe);
  return std::any_of(backends.begin(), backends.end(), [&](const Backend* backend) {
    return has_fused(*backend, recipe, SourceType::kF32);
  });
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("fused kernels give the bits and figures of the steps") {
  Tally tally;
  std::set<std::string> fused;
  for (const std::string& text : recipes()) {
    const Recipe recipe = parse_recipe(text);
    if (!has_fused(recipe)) continue;
    fused.insert(text);
    BlockSource source(seed_of(text));
    const std::int64_t size = recipe.format.block;
    for (const std::int64_t count : block_counts()) {
      const std::int64_t shapes[][2] = {{1, count * size},
                                        {count % 20, size},
                                        {count % 7, size * 3 + 1},
                                        {3, std::max<std::int64_t>(count * size - 1, 0)},
                                        {2, count},
                                        {count % 5, 40 * size - size / 2}};
      for (const auto& [rows, cols] : shapes) {
        const Input input = static_cast<Input>(source.below(3));
        const bool hard = source.coin(), contiguous = source.coin();
        const std::int64_t stride = contiguous ? cols : cols + 3;
        // One element further in: not aligned to anything.
        const std::vector<float> x = narrowed(data(source, recipe, rows * stride + 1, hard), input);
        const std::vector<std::uint16_t> words = words_of(x, input);
        Tile tile{x.data() + 1, nullptr, rows, cols, stride};
        const std::vector<OuterScale32> outer =
            measured_scales(*cpu_backends().back(), recipe, tile);
        const std::string where = text + " " + std::to_string(rows) + "x" + std::to_string(cols) +
                                  (hard ? " hard" : "") + " input " +
                                  std::to_string(static_cast<int>(input));
        tile.source = input == Input::kF32    ? SourceType::kF32
                      : input == Input::kBf16 ? SourceType::kBf16
                                              : SourceType::kF16;
        check_tile(recipe, tile, outer, where, tally);
        if (input == Input::kF32) continue;
        tile.f32 = nullptr;
        tile.f16 = words.data() + 1;
        check_tile(recipe, tile, outer, where + " as stored", tally);
      }
    }
  }
  // A large tile, whose counts of pairs of codes and strips go round many times.
  for (const char* text : {"nvfp4", "nvfp4:select=mse", "mxfp4", "hif4"}) {
    const Recipe recipe = parse_recipe(text);
    BlockSource source(3);
    const std::vector<float> x = data(source, recipe, std::int64_t{4099} * 64, false);
    const Tile tile{x.data(), nullptr, 1, std::ssize(x), std::ssize(x)};
    check_tile(recipe, tile, measured_scales(*cpu_backends().back(), recipe, tile), text, tally);
  }
  std::printf(
      "fused kernels of %zu recipes: %lld tiles compared, %lld refused by all, %lld differ\n",
      fused.size(), static_cast<long long>(tally.tiles), static_cast<long long>(tally.refused),
      static_cast<long long>(tally.wrong));
  CHECK(tally.wrong == 0);
}

// Without its kernel a recipe gives the same bits, only slower.
TEST_CASE("the recipes that are to be fast have a fused kernel on every vector backend") {
  int checked = 0;
  for (const Backend* backend : available_backends()) {
    if (backend->name() != "avx512" && backend->name() != "avx2") continue;
    for (const char* text :
         {"nvfp4", "nvfp4:contract=flashinfer", "nvfp4:scale=row", "nvfp4:scale=given,g=0x44a80000",
          "nvfp4:select=mse", "nvfp4:select=mae", "nvfp4:select=mse,metric=fast",
          "nvfp4:select=mae,metric=fast", "nvfp4:select=mse,scale=row", "mxfp4",
          "mxfp4:contract=ocp-floor-rne", "mxfp4:scale-rule=ceil", "mxfp4:scale-rule=even",
          "hif4:contract=gcc", "hif4:contract=amct", "hif4:contract=a6"}) {
      const Recipe recipe = parse_recipe(text);
      for (const SourceType source : {SourceType::kF32, SourceType::kBf16, SourceType::kF16}) {
        CHECK_MESSAGE(has_fused(*backend, recipe, source), name_of(*backend), " ", text, " input ",
                      static_cast<int>(source));
        ++checked;
      }
    }
  }
  std::printf("fused kernels that must be there: %d checked\n", checked);
}

TEST_SUITE_END();
