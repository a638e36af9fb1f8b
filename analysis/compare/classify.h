// classify.h: what kind of difference there is between the expected and the found bytes of a block.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analysis/compare/verify.h"

namespace fp4scope {

struct BlockVerdict {
  int elements = 0;  // that differ and count
  int scales = 0;    // 0 or 1
  int choices = 0;   // 0 or 1
  int padding = 0;   // elements and scales beyond the input
  int accepted = 0;
  int one_above = 0;  // the found scale is the next code above the expected one
  std::array<int, kDifferenceClasses> classes{};
  bool differs() const { return elements + scales + choices + padding > 0; }
  std::string what() const;  // "choice flipped, 5 elements follow the scale"
};

// The result of another program for a tile. `values` instead of codes with --fake.
struct FoundTile {
  const QuantizedTile* tile = nullptr;  // codes and scales; either may be empty
  const std::uint8_t* choices = nullptr;
  const float* values = nullptr;
  DType dtype = DType::kF32;  // of the stored values, which expected ones are rounded to
  // One stored scale per 2-D block: a difference counts on the first row of a band alone.
  bool scales_are_shared = false;
};

// The decoded value as a tensor of that dtype holds it (BF16 and FP16; others as it is).
float rounded_to(DType dtype, float v);

class BlockClassifier {
 public:
  // `inside`: the shape of the input; what lies beyond it is padding.
  BlockClassifier(const Recipe& recipe, const Backend& backend, AcceptedDifferences accept,
                  StoredShape inside)
      : recipe_(recipe), backend_(backend), accept_(accept), inside_(inside) {}

  // `x`: the tile as the recipe sees it. `row`, `block`: of the tile; `span`: its place.
  BlockVerdict classify(const Tile& x, const TileSpan& span, const Side& expected,
                        const FoundTile& found, std::int64_t row, std::int64_t block) const;

 private:
  struct Block;
  DifferenceClass class_of_scale(const Block& b) const;
  DifferenceClass class_of_code(const Block& b, int i, std::uint32_t expected) const;
  // The code of element i under the scale that was found; nothing where the rule is not known.
  std::optional<std::uint32_t> code_under_found(const Block& b, int i) const;
  // Whether the found scale is that of the other candidate.
  bool is_other_candidate(const Block& b) const;
  void classify_codes(const Block& b, BlockVerdict& verdict) const;
  void classify_values(const Block& b, BlockVerdict& verdict) const;
  void count(DifferenceClass c, bool is_inside, BlockVerdict& verdict) const;

  const Recipe& recipe_;
  const Backend& backend_;
  AcceptedDifferences accept_;
  StoredShape inside_;
};

}  // namespace fp4scope
