// code_order.h: the codes of an element in the order of their values.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/lut.h"
#include "sim/recipe.h"

namespace fp4scope {

struct CodeOrder {
  std::vector<int> rank;  // by code: place of its value; +0 and -0 share one, NaN and Inf have -1
  int ranks = 0;          // different finite values
};

// `is_int4`: the other elements of if4 (choice bit 1). Not for bf16.
inline CodeOrder code_order(const Recipe& recipe, bool is_int4 = false) {
  const MinifloatSpec element = is_int4 ? kInt4 : recipe.format.element;
  const Lut* lut = recipe.format.lut;
  std::vector<float> values;
  const std::uint32_t codes =
      lut != nullptr ? static_cast<std::uint32_t>(lut->count) : element.code_count();
  for (std::uint32_t c = 0; c < codes; ++c)
    values.push_back(lut != nullptr ? lut->value[c] : decode<Lane<1>>(element, c));
  std::vector<float> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](float v) { return std::isfinite(v); });
  std::sort(finite.begin(), finite.end());
  finite.erase(std::unique(finite.begin(), finite.end()), finite.end());
  CodeOrder order;
  order.ranks = static_cast<int>(finite.size());
  for (const float v : values) {
    const auto at = std::lower_bound(finite.begin(), finite.end(), v);
    order.rank.push_back(std::isfinite(v) ? static_cast<int>(at - finite.begin()) : -1);
  }
  return order;
}

}  // namespace fp4scope
