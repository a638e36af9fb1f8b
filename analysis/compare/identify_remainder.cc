// identify_remainder.cc: what a candidate leaves unexplained, in words.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "analysis/compare/identify.h"
#include "analysis/text_table.h"

namespace fp4scope {

std::string remainder_of(const VerifyResult& r) {
  std::vector<std::string> parts;
  for (int i = 0; i < kDifferenceClasses; ++i) {
    const std::int64_t n = r.classes[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    const auto c = static_cast<DifferenceClass>(i);
    const bool of_scales = c == DifferenceClass::kScaleOffByOne ||
                           c == DifferenceClass::kOtherScale ||
                           c == DifferenceClass::kChoiceFlipped ||
                           c == DifferenceClass::kLevelBits || c == DifferenceClass::kNanScale;
    const std::int64_t of = of_scales ? (r.scales > 0 ? r.scales : r.blocks)
                            : c == DifferenceClass::kOuterScale ? r.outer_scales
                                                                : r.elements;
    std::string text = fmt::format("{} in {} of {} {}", meaning_of(c), n, of,
                                   of_scales                           ? "blocks"
                                   : c == DifferenceClass::kOuterScale ? "outer scales"
                                                                       : "elements");
    if (c == DifferenceClass::kScaleOffByOne) {
      text += fmt::format(" (found one above {}, one below {})", r.scales_one_above,
                          n - r.scales_one_above);
    }
    parts.push_back(std::move(text));
  }
  return joined(parts, "; ");
}

}  // namespace fp4scope
