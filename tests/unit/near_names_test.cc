// near_names_test.cc: the names that are proposed for one that no tensor has.
#include "analysis/io/near_names.h"

#include <doctest/doctest.h>

using namespace fp4scope;

TEST_CASE("equal names, as in the files of a directory, are told once") {
  std::vector<TensorInfo> tensors;
  for (const char* name : {"layer.w", "layer.w", "layer.w", "layer.b", "layer.w", "layers.w"}) {
    tensors.emplace_back().name = name;
  }
  CHECK(near_names(tensors, "layer.v") == R"(; near it: "layer.w", "layer.b")");
  CHECK(near_names({tensors[0], tensors[1]}, "w") == R"(; near it: "layer.w")");
}

TEST_CASE("of many long names only the first are compared") {
  const std::string wanted(200, 'x');
  std::vector<TensorInfo> tensors(1001);
  for (TensorInfo& tensor : tensors) tensor.name = std::string(200, 'y');
  const std::string near = std::string(199, 'x') + "z";
  tensors[400].name = near;
  CHECK(near_names(tensors, wanted).starts_with("; near it: \"xxx"));
  std::swap(tensors[400].name, tensors[1000].name);
  CHECK(near_names(tensors, wanted) == "");
}
