// fuzz_recipe.cc: a recipe string. What is accepted has a canonical form that means the same.
#include "sim/recipe.h"
#include "tests/fuzz/target.h"

namespace fp4scope::fuzz {

void run_recipe(std::string_view bytes) {
  const auto round_trip = [&] {
    const Recipe recipe = parse_recipe(bytes);
    const std::string canonical = to_string(recipe);
    const std::string full = to_full_string(recipe);
    const auto again = [&](const std::string& text, const char* what) {
      Recipe second;
      require(accepts([&] { second = parse_recipe(text); }, Sentence::kEscapedLater), what);
      require(to_string(second) == canonical, "the canonical form is read as another recipe");
      require(to_full_string(second) == full, "the canonical form loses a key");
    };
    again(canonical, "the canonical form is refused");
    again(full, "the full form is refused");
    (void)recipe.needs_amax();
    (void)recipe.element_ties();
    (void)rcp_of(recipe);
  };
  (void)accepts(round_trip, Sentence::kEscapedLater);
}

}  // namespace fp4scope::fuzz
