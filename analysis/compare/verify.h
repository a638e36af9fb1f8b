// verify.h: codes and scales (or decoded values) that another program made, bit by bit against a
// recipe. The expected bytes come from a backend of this program; with --backend oracle from the
// exact one.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/compare/compare.h"
#include "analysis/compare/source_cache.h"
#include "analysis/compare/stored.h"

namespace fp4scope {

// What kind of difference. Counted in elements, the scale classes in stored scales.
enum class DifferenceClass : std::uint8_t {
  // Elements, under equal scales or measured against the code under the scale that was found:
  kSignOfZero,    // +0 and -0
  kNanCode,       // the input is NaN
  kTie,           // the scaled value lies exactly between the two codes
  kAdjacentCode,  // neighbouring codes, no tie
  kOtherCode,
  kFollowsScale,  // what the element is under the scale that was found
  kValue,         // --fake: another value
  // Stored scales:
  kScaleOffByOne,  // the next code above or below
  kChoiceFlipped,  // the scale of the other 4/6 candidate
  kLevelBits,      // HiF4: equal E6M2 byte, other level bits
  kNanScale,       // one of the two is the NaN code
  kOtherScale,
  kChoiceBit,   // the plane of choices alone
  kOuterScale,  // tensor or row scale, or its amax
  kPadding      // beyond the shape of the input
};
inline constexpr int kDifferenceClasses = 15;
std::string_view name_of(DifferenceClass c);  // JSON key
// In words, for the text report.
std::string_view meaning_of(DifferenceClass c);

struct AcceptedDifferences {
  bool sign_of_zero = false, nan_code = false, padding = false;
};
// "sign-of-zero,nan-code,padding"; throws Error(kUsage).
AcceptedDifferences parse_accept(const std::string& text);

// Operands are FILE or FILE:TENSOR; a file with one tensor needs no name. Empty: not given.
struct VerifyCase {
  std::string name;  // for JUnit; empty: the input
  std::string recipe;
  std::string input, codes, scales, choice, fake, outer_scale, amax;
  std::string layout, nibbles;  // texts of the options
  std::string stream;           // name of the tensor whose random bits are meant; empty: its own
  int axis = -1;
  bool is_golden = false;        // planes that the recipe does not have are no error
  bool expects_refusal = false;  // nothing was stored: the recipe has to refuse the input
};

struct VerifyOptions {
  std::string backend = "auto";
  int threads = 0;
  AcceptedDifferences accept;
  std::size_t first = 3;  // differing blocks to describe
  bool explains = false;  // fills DifferingBlock::explanation
  bool probes_layouts = true;
  bool hashes = true;  // VerifyResult::source_hash
  OpenOptions open;
  std::shared_ptr<const FormatLibrary> library;
  std::shared_ptr<const RcpTable> user_rcp;
  std::string explain_options;  // appended to the commands that explain a block
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct VerifyResult {
  VerifyCase inputs;
  std::string name;
  Recipe recipe;
  std::string file, tensor, dtype, backend;
  std::vector<std::int64_t> shape;
  std::string source_hash;  // of the input, XXH3-64 as analyze states it
  StoredShape stored;       // of codes and scales, with padding
  std::string layout, nibbles;
  std::int64_t elements = 0, elements_differing = 0;
  std::int64_t scales = 0, scales_differing = 0;  // stored scales of blocks
  // Of the input; a difference of any kind, per row. Padding is counted apart.
  std::int64_t blocks = 0, blocks_differing = 0;
  std::int64_t outer_scales = 0, outer_scales_differing = 0;
  std::int64_t choices_differing = 0;
  std::int64_t padding_differing = 0;
  std::array<std::int64_t, kDifferenceClasses> classes{};  // of differences that count
  std::int64_t scales_one_above = 0;  // of kScaleOffByOne: the found code is the larger one
  std::int64_t accepted = 0;          // differences that --accept forgives
  std::vector<DifferingBlock> first;
  // Another order under which all codes, or all scales, are as expected; empty: none, or not tried.
  std::string nibbles_found, layout_found;
  std::vector<std::string> warnings;  // the golden says little: all zeros, one scale, ...
  std::vector<std::string> notes;
  bool refusal_missing = false;  // expects_refusal, and the recipe takes the input
  bool agrees() const {
    return !refusal_missing && elements_differing == 0 && scales_differing == 0 &&
           outer_scales_differing == 0 && choices_differing == 0 && padding_differing == 0;
  }
};

// Throws Error for what cannot be compared at all (shapes, recipes, unreadable files).
VerifyResult verify(const VerifyCase& job, const VerifyOptions& options, SourceCache& sources);

// One sentence for a person and a JUnit message: "3 of 96 elements and 1 of 6 scales differ: ...".
std::string summary_of(const VerifyResult& result);

}  // namespace fp4scope
