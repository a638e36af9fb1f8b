// verify_flips_test.cc: no single bit of the stored planes can change unnoticed: each bit of codes,
// scales, choices and outer scales of a small tensor is flipped alone, and the element, block or
// scale that verify names is the one whose bit it was.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::job_of;
using test::stored_case;
using test::tensors_of;
using test::verified;

struct FlipCase {
  const char* recipe;
  std::int64_t rows, cols;
};
// One per family, and the settings with planes of their own. Ragged, an odd number of columns where
// that leaves a nibble over.
constexpr FlipCase kCases[] = {{"mxfp4", 3, 71},
                               {"mxfp8e4m3", 2, 40},
                               {"mxfp6e2m3", 2, 40},
                               {"mxint8", 2, 40},
                               {"nvfp4", 3, 39},
                               {"nvfp4:select=mse", 3, 39},
                               {"nvfp4:scale=row,select=mae", 3, 32},
                               {"nvfp4:block=2d", 17, 21},
                               {"nvfp4:contract=modelopt", 2, 40},
                               {"nvint4", 2, 40},
                               {"if4", 3, 39},
                               {"hif4", 2, 131},
                               {"int4", 2, 70},
                               {"fp8", 2, 130},
                               {"fp8:gran=tensor", 2, 40},
                               {"bf16", 2, 9}};

struct Counts {
  std::int64_t flips = 0, unnoticed = 0, misplaced = 0;
};

class Flipper {
 public:
  explicit Flipper(const FlipCase& c)
      : rows_(c.rows),
        cols_(c.cols),
        case_(stored_case(c.recipe, test::some_values(c.rows * c.cols, 21), c.rows, c.cols)),
        tensors_(tensors_of(case_)) {
    parts_ = "codes scales";
    if (case_.recipe.format.scale_bytes == 0) parts_ = "codes";
    if (case_.recipe.has_outer()) parts_ += " outer amax";
    if (case_.recipe.chooses()) parts_ += " choice";
    const VerifyResult good = verified(path(), tensors_, job_of(path(), c.recipe, parts_));
    REQUIRE_MESSAGE(good.agrees(), c.recipe, ": ", summary_of(good));
  }

  Counts run() {
    each_bit("codes", [&](std::int64_t bit, const VerifyResult& r) { return code_named(bit, r); });
    if (case_.recipe.format.scale_bytes > 0) {
      each_bit("scales", [&](std::int64_t bit, const VerifyResult& r) {
        return r.scales_differing == 1 && r.elements_differing == 0 && r.padding_differing == 0 &&
               block_named(bit / 8 / case_.recipe.format.scale_bytes, r);
      });
    }
    if (case_.recipe.chooses()) {
      each_bit("choice", [&](std::int64_t bit, const VerifyResult& r) {
        return r.choices_differing == 1 && r.scales_differing == 0 && r.elements_differing == 0 &&
               block_named(bit / 8, r);
      });
    }
    if (case_.recipe.has_outer()) {
      // A wrong amax changes g as well, which then differs from the stored one.
      for (const char* name : {"outer", "amax"}) {
        each_bit(name, [&](std::int64_t bit, const VerifyResult& r) {
          const std::string row = "row " + std::to_string(bit / 32);
          const bool is_named = !case_.recipe.scales_rows() ||
                                (!r.notes.empty() && r.notes[0].find(row) != std::string::npos);
          return r.outer_scales_differing >= 1 && is_named;
        });
      }
    }
    return counts_;
  }

 private:
  std::string path() const { return dir_.file("x.safetensors"); }

  template <class Named>
  void each_bit(const char* name, const Named& named) {
    const std::size_t bits = test::data_named(tensors_, name).size() * 8;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      std::string& data = test::data_named(tensors_, name);
      const char before = data[bit / 8];
      data[bit / 8] = static_cast<char>(before ^ 1 << bit % 8);
      ++counts_.flips;
      std::string what;
      try {
        VerifyOptions options;
        options.threads = 1;
        options.probes_layouts = false;
        const VerifyResult r =
            verified(path(), tensors_, job_of(path(), case_.recipe.text, parts_), options);
        if (r.agrees()) {
          ++counts_.unnoticed;
          what = "is not noticed";
        } else if (!named(static_cast<std::int64_t>(bit), r)) {
          ++counts_.misplaced;
          what = "is reported as " + summary_of(r);
        }
      } catch (const Error& e) {
        // Bytes that are no codes, and outer scales that no tensor can have, are refused.
        if (std::string(e.what()).find("x.safetensors") == std::string::npos) {
          ++counts_.misplaced;
          what = std::string("is refused without its file: ") + e.what();
        }
      }
      if (!what.empty() && ++shown_ <= 4) {
        std::printf("%s: bit %zu of byte %zu of %s %s\n", case_.recipe.text.c_str(), bit % 8,
                    bit / 8, name, what.c_str());
      }
      test::data_named(tensors_, name)[bit / 8] = before;
    }
  }

  bool block_named(std::int64_t index, const VerifyResult& r) const {
    return r.blocks_differing == 1 && r.first.size() == 1 &&
           r.first[0].row == index / case_.blocks() && r.first[0].block == index % case_.blocks();
  }
  bool code_named(std::int64_t bit, const VerifyResult& r) const {
    const std::int64_t width = tensors_[1].shape.back() * 8, row = bit / width;
    const int code_bits = case_.recipe.packs_nibbles() ? 4 : 8 * case_.recipe.code_bytes();
    const std::int64_t col = bit % width / code_bits, block = case_.recipe.format.block;
    if (col >= cols_) return r.padding_differing == 1 && r.elements_differing == 0;
    return r.elements_differing == 1 && r.scales_differing == 0 && r.padding_differing == 0 &&
           block_named(row * case_.blocks() + col / block, r) &&
           r.first[0].elements == std::vector<int>{static_cast<int>(col % block)};
  }

  test::TempDir dir_;
  std::int64_t rows_, cols_;
  test::StoredCase case_;
  std::vector<test::FileTensor> tensors_;
  std::string parts_;
  Counts counts_;
  int shown_ = 0;
};

TEST_CASE("every single bit flip is noticed and named") {
  std::int64_t flips = 0;
  for (const FlipCase& c : kCases) {
    const Counts counts = Flipper(c).run();
    CHECK_MESSAGE(counts.unnoticed == 0, c.recipe);
    CHECK_MESSAGE(counts.misplaced == 0, c.recipe);
    flips += counts.flips;
  }
  std::printf("bit flips: %lld\n", static_cast<long long>(flips));
  CHECK(flips > 10000);
}

}  // namespace
}  // namespace fp4scope
