// recipe_keys_test.cc: keys that the other keys of a recipe leave without a use are refused by name
// and are absent from its full form (spec/scalars.md 0).
#include <doctest/doctest.h>

#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Unused {
  std::string recipe;  // legal
  std::string key;     // not used in it
  std::vector<std::string> values;
};
const Unused kUnused[] = {
    // One scale per tensor: the kernel ends at FLT_MAX whatever the input type (more.md 2.1).
    {"fp8:contract=te,gran=tensor", "dtype", {"bf16", "f16", "f32"}},
    {"custom:e4m3/tensor:f32,contract=te", "dtype", {"bf16", "f16", "f32"}},
    // Only Algorithm 1 has thresholds (hif4.md 2 and 3).
    {"hif4:search=level1", "thr", {"exact", "fp32", "bf16"}},
    {"hif4:search=level1-3.5", "thr", {"exact", "bf16"}},
    {"hif4:contract=a6,search=mse", "thr", {"exact", "bf16"}},
    {"custom:e2m1/16:e4m3,contract=onednn", "scale", {"none"}},
};
// The same key is used next to these.
const std::string kUsed[] = {
    "fp8:contract=te,gran=row,dtype=f16",
    "fp8:contract=te,gran=128x128,dtype=bf16",
    "fp8:contract=vllm-torch-tensor,dtype=f16",
    "custom:e4m3/row:f32,contract=te,dtype=f32",
    "hif4:search=greedy,thr=bf16",
    "custom:e1m2/4:micro/8:micro/64:e6m2,thr=fp32",
};

}  // namespace

TEST_CASE("a key without a use is refused in either order and not printed") {
  for (const Unused& unused : kUnused) {
    CAPTURE(unused.recipe);
    const std::string full = to_full_string(parse_recipe(unused.recipe));
    CAPTURE(full);
    CHECK(full.find("," + unused.key + "=") == std::string::npos);
    CHECK(same_bits(parse_recipe(full), parse_recipe(unused.recipe)));
    for (const std::string& value : unused.values) {
      const std::string item = unused.key + "=" + value;
      const std::size_t first =
          unused.recipe.find_first_of(unused.recipe[0] == 'c' ? "," : ":") + 1;
      for (const std::string& typed :
           {unused.recipe + "," + item,
            unused.recipe.substr(0, first) + item + "," + unused.recipe.substr(first)}) {
        CAPTURE(typed);
        const std::string message = refusal(typed);
        CAPTURE(message);
        CHECK(message.find("key " + unused.key + " (") != std::string::npos);
        CHECK(message.find("does not go with contract") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a key with a use is printed with its value") {
  for (const std::string& typed : kUsed) {
    CAPTURE(typed);
    REQUIRE(refusal(typed) == "");
    const std::string item = typed.substr(typed.rfind(',') + 1);
    CHECK(to_full_string(parse_recipe(typed)).find("," + item) != std::string::npos);
  }
}
