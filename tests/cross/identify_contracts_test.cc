// identify_contracts_test.cc: every recipe of the catalog that can be stored is found again from
// its own bytes: what the exact backend makes of a real tensor and of a tensor on the midpoints of
// its codes is written to a file, and the recipe has to be in the set that identify reports.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "analysis/compare/catalog.h"
#include "analysis/compare/identify.h"
#include "sim/error.h"
#include "tests/cross/hard_blocks.h"
#include "tests/support/explains.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::stored_case;
using test::tensors_of;

struct Shape {
  std::int64_t rows, cols;
};
constexpr Shape kReal{24, 512}, kTies{16, 256};

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t h = 1469598103934665603u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

// A cut of a weight tensor, BF16.
std::vector<float> real_tensor() {
  const auto source =
      open_source((test::data_dir() / "sample/use_lite_slice.safetensors").string());
  std::vector<float> x(static_cast<std::size_t>(kReal.rows * kReal.cols));
  for (const TensorInfo& t : source->tensors()) {
    if (t.name == "layers.1.attn_out.W")
      source->read_f32(t, 32, kReal.rows, 0, kReal.cols, x.data());
  }
  CHECK(std::count(x.begin(), x.end(), 0.0f) < std::ssize(x) / 2);
  return x;
}

// Blocks on midpoints under several scales; every row has the same amax, so that the encode scale
// that the midpoints were made for is the one that they meet.
std::vector<float> tie_aligned(const Recipe& recipe, const Backend& backend) {
  test::BlockSource source(hash_of(to_full_string(recipe)));
  constexpr float kAmax = 100.25f;
  float encode = 1;
  if (recipe.family == Family::kNvfp4 && recipe.has_outer()) {
    const float g = backend.outer_scale(recipe, bit_cast<std::uint32_t>(kAmax)).g;
    encode = g < 1 ? 1 / g : g;  // a decode scale is far below 1 here, an encode scale above
  }
  std::vector<float> x(static_cast<std::size_t>(kTies.rows * kTies.cols));
  const std::int64_t block = std::min<std::int64_t>(recipe.format.block, kTies.cols);
  for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(block)) {
    test::fill_block(source, test::Kind::kTieAligned, recipe, encode,
                     std::span(x).subspan(at, static_cast<std::size_t>(block)));
  }
  if (recipe.has_outer()) {
    for (float& v : x) v = std::fmin(std::fmax(v, -kAmax), kAmax);
    for (std::int64_t r = 0; r < kTies.rows; ++r) {
      x[static_cast<std::size_t>(r * kTies.cols + r)] = kAmax;
    }
  }
  return x;
}

bool can_be_stored(const Recipe& recipe) {
  return !recipe.keeps_nan_elements() && recipe.ragged() != Ragged::kFlat;
}

struct Sets {
  std::int64_t recipes = 0, refused = 0, lost = 0, single = 0;
  std::size_t largest = 0;
  std::string largest_of;
  std::map<std::string, std::int64_t> lost_of;  // by format and contract
};

void find_again(const test::TempDir& dir, const Recipe& recipe, std::vector<float> x, Shape shape,
                SourceType type, Sets& sets) {
  const Backend& backend =
      oracle_backend().supports(recipe).ok ? oracle_backend() : *cpu_backends().back();
  std::optional<test::StoredCase> c;
  try {
    c = stored_case(backend, recipe, std::move(x), shape.rows, shape.cols, type);
  } catch (const RefusedInput&) {
    ++sets.refused;
    return;
  }
  const std::string path = dir.file("x.safetensors");
  auto tensors = tensors_of(*c);
  tensors.pop_back();  // values
  test::write_tensors(path, tensors);
  // g = 1 is stored by nobody.
  const bool is_one = recipe.family == Family::kNvfp4 && recipe.nvfp4.scale == OuterScale::kNone;
  std::string parts = "codes";
  if (recipe.format.scale_bytes > 0) parts += " scales";
  if (recipe.has_outer() && !is_one) parts += " outer";
  IdentifyOptions options;
  options.job = test::job_of(path, "", parts);
  options.separations = 0;
  options.verify.threads = 1;
  SourceCache sources;
  const IdentifyResult result = identify(options, sources);
  ++sets.recipes;
  const std::size_t size = result.explaining.size();
  sets.single += size == 1 ? 1 : 0;
  if (size > sets.largest) {
    sets.largest = size;
    sets.largest_of = recipe.text;
  }
  if (test::explains(result, recipe)) return;
  ++sets.lost;
  if (++sets.lost_of[std::string(recipe.format.name) + ":" + recipe.contract] <= 3) {
    std::printf("LOST %s: %zu sets", to_string(recipe).c_str(), size);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, size); ++i) {
      std::printf("; %s", to_string(result.explaining[i].recipe).c_str());
    }
    for (std::size_t i = 0; size == 0 && i < result.best.size() && i < 1; ++i) {
      std::printf("; best %s: %s", to_string(result.best[i].recipe).c_str(),
                  remainder_of(result.best[i].check).c_str());
    }
    std::printf("\n");
  }
}

void report(const char* name, const Sets& sets, double seconds) {
  std::printf(
      "%s: %lld recipes stored and looked for in %.1f s (%lld refuse the input), %lld lost; %lld "
      "sets of one contract, the largest has %zu (%s)\n",
      name, static_cast<long long>(sets.recipes), seconds, static_cast<long long>(sets.refused),
      static_cast<long long>(sets.lost), static_cast<long long>(sets.single), sets.largest,
      sets.largest_of.c_str());
  CHECK(sets.lost == 0);
  CHECK(sets.recipes > 300);
}

template <class Input>
void all_recipes(const char* name, Shape shape, SourceType type, const Input& input) {
  const test::TempDir dir;
  Sets sets;
  const auto start = std::chrono::steady_clock::now();
  for (const Recipe& recipe : contract_catalog()) {
    if (!can_be_stored(recipe)) continue;
    const Backend& backend = *cpu_backends().back();
    find_again(dir, recipe, input(recipe, backend), shape, type, sets);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  report(name, sets, time.count());
}

TEST_CASE("every recipe of the catalog is found again from a real tensor") {
  const std::vector<float> x = real_tensor();
  all_recipes("real tensor", kReal, SourceType::kBf16,
              [&](const Recipe&, const Backend&) { return x; });
}

TEST_CASE("every recipe of the catalog is found again from tie-aligned blocks") {
  all_recipes("tie-aligned", kTies, SourceType::kF32, tie_aligned);
}

}  // namespace
}  // namespace fp4scope
