// format_file_test.cc: definitions of formats in TOML (sim/format_file.h): what a good file means,
// a shape from it through parse_recipe and back, and every refusal with file, line and field.
#include "sim/format_file.h"

#include <doctest/doctest.h>

#include "formats/scalars.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

const char* const kGood = R"(# two elements, a table, three formats
[[element]]
name = "Tiny_E3"
exponent-bits = 3
mantissa-bits = 0
bias = 2

[[element]]
name = "f8"
exponent-bits = 4
mantissa-bits = 3
bias = 7
special = "nan"

[[lut]]
name = "quarter"
values = [-1, -0.25, 0, 0.5, 2.0]

[[format]]
name = "pot"
element = "tiny-e3"
scales = [{group = 16, type = "e4m3"}, {group = "tensor", type = "f32"}]

[[format]]
name = "hi"
element = "s1p2"
scales = [{group = 4, type = "micro"}, {group = 8, type = "micro"}, {group = 64, type = "e6m2"}]

[[format]]
name = "table"
element = "lut:quarter"
scales = [{group = 64, type = "f32"}]
)";

std::shared_ptr<const FormatLibrary> load(const std::string& text) {
  TempDir dir;
  const std::string path = dir.file("formats.toml");
  write_file(path, text);
  return load_format_file(path);
}
// The sentence of a bad file without its folder; "" when it is accepted.
std::string sentence(const std::string& text) {
  TempDir dir;
  const std::string path = dir.file("f.toml");
  write_file(path, text);
  try {
    (void)load_format_file(path);
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUsage);
    const std::string message = error.what();
    const std::size_t at = message.find("f.toml");
    CHECK(at != std::string::npos);
    return at == std::string::npos ? message : message.substr(at);
  }
}

std::string element(const std::string& rest) {
  return "[[element]]\nname = \"x\"\n" + rest;
}
std::string lut(const std::string& values) {
  return "[[lut]]\nname = \"t\"\nvalues = " + values + "\n";
}
std::string format(const std::string& rest) {
  return "[[format]]\nname = \"f\"\n" + rest;
}
const std::string kBits = "exponent-bits = 2\nmantissa-bits = 1\nbias = 1\n";

struct BadFile {
  std::string text, part;  // of the sentence, with the line
};
const BadFile kBadFiles[] = {
    // Not TOML.
    {"[[element]\n", "f.toml:1: "},
    {"[[{", "f.toml is not valid TOML"},  // an assertion of the library
    {"\xc9\x8c = [\n", "f.toml:1: "},     // undefined behaviour of the library
    {"[[lut]]\nname = \"t\"\nvalues = [1, 2\n", "f.toml:3: "},
    {"name = \n", "f.toml:1: "},
    {"[[lut]]\nname = \"t\"\nname = \"u\"\n", "f.toml:3: "},
    // Unknown fields and wrong types.
    {"\n[[elements]]\nname = \"x\"\n",
     "f.toml:2: unknown field elements; expected one of element, lut, format"},
    {element(kBits + "signed = true\n"),
     "f.toml:6: unknown field signed; expected one of name, exponent-bits, mantissa-bits, bias, "
     "special"},
    {lut("[1, 2]") + "scale = 2\n", "f.toml:4: unknown field scale; expected one of name, values"},
    {format("element = \"e2m1\"\nscale = []\n"),
     "unknown field scale; expected one of name, element, scales"},
    {format("element = \"e2m1\"\nscales = [{group = 16, type = \"e4m3\", bias = 7}]\n"),
     "f.toml:4: unknown field bias; expected one of group, type"},
    {"[element]\nname = \"x\"\n", "element has to be written as [[element]]"},
    {"lut = 3\n", "f.toml:1: lut has to be written as [[lut]]"},
    {"format = []\n", "f.toml:1: format has to be written as [[format]]"},
    {"lut = [1, 2]\n", "lut has to be written as [[lut]]"},
    // Names.
    {"[[element]]\n" + kBits, "f.toml:1: a name is missing, expected name = \"...\""},
    {"[[element]]\nname = 3\n" + kBits, "f.toml:1: a name is missing, expected name = \"...\""},
    {"[[element]]\nname = \"\"\n" + kBits, "f.toml:1: a name is missing, expected name = \"...\""},
    {"[[element]]\nname = \"a/b\"\n" + kBits,
     "name \"a/b\": expected letters, digits, '-' and '.'"},
    {"[[element]]\nname = \"a,b\"\n" + kBits, "name \"a,b\": expected letters"},
    {"[[element]]\nname = \"a:b\"\n" + kBits, "name \"a:b\": expected letters"},
    {element(kBits) + element(kBits), "f.toml:6: the name x is given twice"},
    {element(kBits) + "[[lut]]\nname = \"X\"\nvalues = [1, 2]\n",
     "f.toml:6: the name x is given twice"},
    // A name that a shape without the file has with another meaning.
    {"[[element]]\nname = \"e2m1\"\n" + kBits,
     "f.toml:1: the name e2m1 is built in, expected another one"},
    {"[[element]]\nname = \"S1P2\"\n" + kBits,
     "f.toml:1: the name s1p2 is built in, expected another one"},
    {"[[element]]\nname = \"int4\"\n" + kBits,
     "f.toml:1: the name int4 is built in, expected another one"},
    {"[[lut]]\nname = \"nf4\"\nvalues = [1, 2]\n",
     "f.toml:1: the name nf4 is built in, expected another one"},
    // Elements.
    {element("mantissa-bits = 1\nbias = 1\n"),
     "f.toml:1: exponent-bits: expected an integer from 1 to 6"},
    {element("exponent-bits = 0\nmantissa-bits = 1\nbias = 1\n"),
     "exponent-bits: expected an integer from 1 to 6"},
    {element("exponent-bits = 7\nmantissa-bits = 0\nbias = 1\n"),
     "exponent-bits: expected an integer from 1 to 6"},
    {element("exponent-bits = 2.0\nmantissa-bits = 1\nbias = 1\n"),
     "exponent-bits: expected an integer"},
    {element("exponent-bits = \"2\"\nmantissa-bits = 1\nbias = 1\n"),
     "exponent-bits: expected an integer"},
    {element("exponent-bits = 2\nmantissa-bits = -1\nbias = 1\n"),
     "mantissa-bits: expected an integer from 0 to 6"},
    {element("exponent-bits = 2\nmantissa-bits = 1\n"), "bias: expected an integer from -64 to 64"},
    {element("exponent-bits = 2\nmantissa-bits = 1\nbias = 65\n"),
     "bias: expected an integer from -64 to 64"},
    {element("exponent-bits = 5\nmantissa-bits = 3\nbias = 1\n"),
     "f.toml:1: element x has 9 bits with its sign, expected at most 8"},
    {element(kBits + "special = \"inf\"\n"),
     "special: expected none, nan, ieee or fnuz, found inf"},
    {element(kBits + "special = 1\n"), "special: expected none, nan, ieee or fnuz, found no text"},
    {element("exponent-bits = 1\nmantissa-bits = 0\nbias = 1\nspecial = \"nan\"\n"),
     "element x has no finite number but zero"},
    // Tables of values.
    {"[[lut]]\nname = \"t\"\n", "f.toml:1: lut t: expected 2 to 256 values, found 0"},
    {lut("[]"), "expected 2 to 256 values, found 0"},
    {lut("[1]"), "expected 2 to 256 values, found 1"},
    {lut("3"), "expected 2 to 256 values, found 0"},
    {lut("[1, nan]"), "lut t: value 1 is no finite number"},
    {lut("[inf, 1]"), "lut t: value 0 is no finite number"},
    {lut("[1, 1e39]"), "lut t: value 1 is no finite number"},
    {lut("[1, \"2\"]"), "lut t: value 1 is no finite number"},
    {lut("[1, true]"), "lut t: value 1 is no finite number"},
    {lut("[1, 2, 1.0]"), "lut t: the values 0 and 2 are equal"},
    {lut("[0.0, -0.0]"), "lut t: the values 0 and 1 are equal"},
    {lut("[1, 1.00000001]"), "lut t: the values 0 and 1 are equal"},  // as binary32
    // Formats.
    {format("scales = [{group = 16, type = \"e4m3\"}]\n"), "f.toml:1: format f has no element"},
    {format("element = 4\nscales = [{group = 16, type = \"e4m3\"}]\n"), "format f has no element"},
    {format("element = \"e2m1\"\n"), "f.toml:1: format f has no scales"},
    {format("element = \"e2m1\"\nscales = []\n"), "format f has no scales"},
    {format("element = \"e2m1\"\nscales = \"16:e4m3\"\n"), "format f has no scales"},
    {format("element = \"e2m1\"\nscales = [16]\n"),
     "f.toml:4: a scale is {group = ..., type = \"...\"}"},
    {format("element = \"e2m1\"\nscales = [{group = 16}]\n"), "a scale is {group"},
    {format("element = \"e2m1\"\nscales = [{type = \"e4m3\"}]\n"), "a scale is {group"},
    {format("element = \"e2m1\"\nscales = [{group = 16.0, type = \"e4m3\"}]\n"),
     "a scale is {group"},
    {format("element = \"e2m1\"\nscales = [{group = 16, type = 8}]\n"), "a scale is {group"},
    {format("element = \"e9m9\"\nscales = [{group = 16, type = \"e4m3\"}]\n"),
     "f.toml: format f: element e9m9: expected"},
    {format("element = \"y\"\nscales = [{group = 16, type = \"e4m3\"}]\n"),
     "f.toml: format f: element \"y\" is unknown"},
    {format("element = \"f\"\nscales = [{group = 16, type = \"e4m3\"}]\n"),
     "f.toml: format f: element \"f\" is unknown"},
    {format("element = \"lut:t\"\nscales = [{group = 16, type = \"e4m3\"}]\n"),
     "format f: element lut:t: no such table"},
    {format("element = \"e2m1\"\nscales = [{group = 257, type = \"e4m3\"}]\n"),
     "expected a group of 1 to 256"},
    {format("element = \"e2m1\"\nscales = [{group = -1, type = \"e4m3\"}]\n"),
     "expected a group of 1 to 256"},
    {format("element = \"e2m1\"\nscales = [{group = 16, type = \"e5m2\"}]\n"),
     "16:e5m2: unknown scale type"},
    {format("element = \"e2m1\"\nscales = [{group = \"tensor\", type = \"f32\"}, {group = 16, type "
            "= \"e4m3\"}]\n"),
     "comes after the tensor or row scale"},
};

}  // namespace

TEST_CASE("a good file defines elements, tables and shapes") {
  const auto library = load(kGood);
  REQUIRE(library->elements.size() == 2);
  CHECK(library->elements[0].name == "tiny-e3");
  CHECK(library->elements[0].spec == MinifloatSpec{3, 0, 2, true, true, Special::kNone});
  CHECK(library->elements[1].spec == kE4M3);
  REQUIRE(library->luts.size() == 1);
  CHECK(library->luts[0].lut->count == 5);
  CHECK(library->luts[0].lut->value[1] == -0.25f);
  REQUIRE(library->shapes.size() == 3);
  CHECK(library->shapes[0].shape == "tiny-e3/16:e4m3/tensor:f32");
  CHECK(load("")->shapes.empty());
}

TEST_CASE("a shape of a file goes through parse_recipe and back") {
  const auto library = load(kGood);
  struct Named {
    std::string typed, canonical;
    double bits;
  };
  const Named named[] = {
      {"custom:pot", "custom:tiny-e3/16:e4m3/tensor:f32", 4.5},
      {"Custom:POT,neg-zero=drop", "custom:tiny-e3/16:e4m3/tensor:f32,neg-zero=drop", 4.5},
      {"custom:hi,contract=a6", "custom:e1m2/4:micro/8:micro/64:e6m2,contract=a6", 4.5},
      {"custom:table", "custom:lut:quarter/64:f32", 3.5},  // five values take three bits
      {"custom:f8/32:e8m0", "custom:f8/32:e8m0", 8.25},
      {"custom:lut:quarter/16:e4m3", "custom:lut:quarter/16:e4m3", 3.5},
  };
  for (const Named& n : named) {
    CAPTURE(n.typed);
    const Recipe recipe = parse_recipe(n.typed, library);
    CHECK(to_string(recipe) == n.canonical);
    CHECK(recipe.format.bits_per_element() == n.bits);
    CHECK(recipe.library == library);
    CHECK(same_bits(parse_recipe(n.canonical, library), recipe));
    CHECK(same_bits(parse_recipe(to_full_string(recipe), library), recipe));
  }
  CHECK(same_format(parse_recipe("custom:hi", library).format, parse_recipe("hif4").format));
  // The recipe keeps the table alive.
  Recipe table;
  {
    const auto other = load(kGood);
    table = parse_recipe("custom:table", other);
  }
  CHECK(table.format.lut->value[4] == 2.0f);
  // Without the file the names are unknown.
  CHECK(refusal("custom:pot").find("element \"pot\" is unknown") != std::string::npos);
  CHECK(refusal("custom:lut:quarter/64:f32").find("no such table; expected one of nf4") !=
        std::string::npos);
  CHECK(refusal("custom:lut:other/64:f32", library).find("expected one of quarter, nf4") !=
        std::string::npos);
}

TEST_CASE("the words of a file are those of a recipe: case and _ do not matter") {
  const auto library = load(R"([[element]]
name = "My_E"
exponent-bits = 3
mantissa-bits = 0
bias = 2

[[lut]]
name = "My_T"
values = [-1, 0, 1]

[[format]]
name = "A"
element = "My_E"
scales = [{group = 16, type = "E4M3"}, {group = "Tensor", type = "F32"}]

[[format]]
name = "B"
element = "LUT:MY_T"
scales = [{group = 16, type = "UE4M3"}]
)");
  REQUIRE(library->shapes.size() == 2);
  CHECK(library->shapes[0].shape == "my-e/16:e4m3/tensor:f32");
  CHECK(to_string(parse_recipe("custom:a", library)) == "custom:my-e/16:e4m3/tensor:f32");
  CHECK(to_string(parse_recipe("custom:B", library)) == "custom:lut:my-t/16:e4m3");
}

TEST_CASE("two shapes that name each other are refused, not followed for ever") {
  const std::string text =
      "[[format]]\nname = \"a\"\nelement = \"b\"\nscales = [{group = 16, type = \"e4m3\"}]\n"
      "[[format]]\nname = \"b\"\nelement = \"a\"\nscales = [{group = 16, type = \"e4m3\"}]\n";
  CHECK(sentence(text).find("format a: element \"b\" is unknown") != std::string::npos);
}

TEST_CASE("a bad file is a usage error that names file, line and field") {
  for (const BadFile& bad : kBadFiles) {
    CAPTURE(bad.text);
    const std::string message = sentence(bad.text);
    CAPTURE(message);
    CAPTURE(bad.part);
    CHECK(message.find(bad.part) != std::string::npos);
  }
  std::string many = "[0";
  for (int i = 1; i < 257; ++i) many += ", " + std::to_string(i);
  CHECK(sentence(lut(many + "]")).find("expected 2 to 256 values, found 257") != std::string::npos);
  many.resize(many.rfind(','));
  CHECK(sentence(lut(many + "]")) == "");
}

TEST_CASE("a file that cannot be read is a data error") {
  TempDir dir;
  for (const std::string& path : {dir.file("missing.toml"), dir.path().string()}) {
    CAPTURE(path);
    try {
      (void)load_format_file(path);
      FAIL("accepted ", path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kData);
      CHECK(std::string(error.what()).find("cannot read the format file " + path) == 0);
    }
  }
}
