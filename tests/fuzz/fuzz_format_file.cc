// fuzz_format_file.cc: a TOML file of user-defined formats, and every format in it as a recipe.
#include "sim/format_file.h"
#include "sim/recipe.h"
#include "tests/fuzz/target.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::fuzz {

void run_format_file(std::string_view bytes) {
  static const test::TempDir dir;
  static const std::string path = dir.file("formats.toml");
  test::write_file(path, bytes);
  const auto all = [] {
    const std::shared_ptr<const FormatLibrary> library = load_format_file(path);
    for (const NamedShape& shape : library->shapes) {
      (void)accepts(
          [&] {
            const Recipe recipe = parse_recipe("custom:" + shape.name, library);
            const std::string canonical = to_string(recipe);
            require(to_string(parse_recipe(canonical, library)) == canonical,
                    "the canonical form of a recipe is read as another one");
          },
          Sentence::kEscapedLater);
    }
  };
  (void)accepts(all, Sentence::kEscapedLater);
}

}  // namespace fp4scope::fuzz
