// near_names.cc: see near_names.h.
#include "analysis/io/near_names.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "analysis/io/message.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMostNames = 3;
// Longer names are compared by their ends only.
constexpr std::size_t kMostLength = 256;
// Steps of all comparisons together; what comes later in a file of 10^6 names is left out.
constexpr std::int64_t kMostSteps = 20'000'000;

// Insertions, deletions and replacements (Levenshtein) from a to b.
std::size_t edit_distance(std::string_view a, std::string_view b, std::vector<std::size_t>& row) {
  row.resize(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Whole parts of a longer name, as "weight" and "w.weight".
bool is_end_of(std::string_view end, std::string_view name) {
  if (end.empty() || end.size() >= name.size() || !name.ends_with(end)) return false;
  const char before = name[name.size() - end.size() - 1];
  return before == '.' || before == '/';
}

}  // namespace

std::string near_names(const std::vector<TensorInfo>& tensors, std::string_view wanted) {
  struct Near {
    std::size_t distance;
    const std::string* name;
  };
  std::vector<Near> near;
  std::vector<std::size_t> row;
  const std::size_t most = std::max<std::size_t>(1, wanted.size() / 4);
  std::int64_t steps = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::string& name = tensor.name;
    if (is_end_of(wanted, name) || is_end_of(name, wanted)) {
      near.push_back({0, &name});
      continue;
    }
    const std::size_t longer = std::max(name.size(), wanted.size());
    if (longer - std::min(name.size(), wanted.size()) > most || longer > kMostLength) continue;
    steps += static_cast<std::int64_t>(name.size() * wanted.size());
    if (steps > kMostSteps) break;
    const std::size_t distance = edit_distance(name, wanted, row);
    if (distance <= most) near.push_back({distance, &name});
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.distance < b.distance; });
  std::string text;
  // The files of a directory may hold tensors of equal names.
  std::vector<std::string_view> told;
  for (const Near& candidate : near) {
    if (std::find(told.begin(), told.end(), *candidate.name) != told.end()) continue;
    text += (told.empty() ? "; near it: " : ", ") + in_quotes(*candidate.name);
    told.emplace_back(*candidate.name);
    if (told.size() == kMostNames) break;
  }
  return text;
}

}  // namespace fp4scope
