// format_file.cc: see format_file.h.
#include "sim/format_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>

#include "sim/error.h"
#include "sim/recipe_keys.h"

// toml++ 3.3 meets texts such as "[[{" with a failed assertion, or with undefined behaviour where
// NDEBUG is set. Here a failed one is an error of the file.
namespace fp4scope {
namespace {
struct TomlAssertion {};
constexpr void require_toml(bool holds) {
  if (!holds) throw TomlAssertion();
}
}  // namespace
}  // namespace fp4scope
#undef NDEBUG
#define TOML_ASSERT(expression) ::fp4scope::require_toml(static_cast<bool>(expression))
#include <toml++/toml.h>

namespace fp4scope {
namespace {

// Other characters can stand in comments only, as every word of these files is ASCII; toml++ 3.3
// has undefined behaviour where one of them stands in place of a key.
std::string ascii_of(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; },
      '?');
  return ascii;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  std::shared_ptr<const FormatLibrary> read() {
    std::ifstream file(path_, std::ios::binary);
    std::string text;
    try {
      text.assign(std::istreambuf_iterator<char>(file), {});
    } catch (const std::ios_base::failure&) {  // a folder
      file.setstate(std::ios_base::badbit);
    }
    if (!file.is_open() || file.bad()) {
      throw Error(ErrorKind::kData,
                  fmt::format("cannot read the format file {}: {}", path_, std::strerror(errno)));
    }
    toml::table root;
    try {
      root = toml::parse(ascii_of(text), path_);
    } catch (const toml::parse_error& e) {
      fail(e.source().begin.line, std::string(e.description()));
    } catch (const TomlAssertion&) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} is not valid TOML, in a way that the TOML library cannot locate; "
                              "look for '[[' or '[' without a name behind it",
                              path_));
    }
    allow(root, {"element", "lut", "format"});
    each(root, "element", [&](const toml::table& t) { add_element(t); });
    each(root, "lut", [&](const toml::table& t) { add_lut(t); });
    each(root, "format", [&](const toml::table& t) { add_format(t); });
    // A format is checked where it stands, not when it is used.
    for (const NamedShape& shape : library_.shapes) {
      try {
        (void)custom_recipe(shape.name, library_);
      } catch (const Error& e) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("{}: format {}: {}", path_, shape.name, e.what()));
      }
    }
    library_.hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
    return std::make_shared<const FormatLibrary>(std::move(library_));
  }

 private:
  [[noreturn]] void fail(toml::source_index line, const std::string& what) const {
    throw Error(ErrorKind::kUsage, fmt::format("{}:{}: {}", path_, line, what));
  }

  void allow(const toml::table& table, std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, node] : table) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      std::string legal;
      for (const std::string_view k : keys) legal += (legal.empty() ? "" : ", ") + std::string(k);
      fail(node.source().begin.line,
           fmt::format("unknown field {}; expected one of {}", key.str(), legal));
    }
  }

  template <class Add>
  void each(const toml::table& root, std::string_view name, const Add& add) const {
    const toml::node* node = root.get(name);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr || !list->is_homogeneous<toml::table>()) {
      fail(node->source().begin.line, fmt::format("{} has to be written as [[{}]]", name, name));
    }
    for (const toml::node& entry : *list) add(*entry.as_table());
  }

  // Names are words of a recipe: case and _ do not matter, and no character means something else.
  std::string name_of(const toml::table& table) const {
    const auto text = table["name"].value<std::string>();
    if (!text || text->empty())
      fail(table.source().begin.line, "a name is missing, expected name = \"...\"");
    const std::string name = normalized(*text);
    for (const char c : name) {
      const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
      if (!word) {
        fail(table.source().begin.line,
             fmt::format("name \"{}\": expected letters, digits, '-' and '.'", *text));
      }
    }
    // A shape must not mean something else without the file.
    if (is_built_in(name))
      fail(table.source().begin.line,
           fmt::format("the name {} is built in, expected another one", name));
    for (const NamedElement& e : library_.elements) used(table, name, e.name);
    for (const NamedLut& l : library_.luts) used(table, name, l.name);
    for (const NamedShape& s : library_.shapes) used(table, name, s.name);
    return name;
  }
  static bool is_built_in(const std::string& name) {
    for (const NamedLut& known : built_in_luts())
      if (known.name == name) return true;
    try {
      (void)custom_recipe(name + "/16:e4m3");
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  void used(const toml::table& table, const std::string& name, const std::string& other) const {
    if (name == other) {
      fail(table.source().begin.line, fmt::format("the name {} is given twice", name));
    }
  }

  int integer(const toml::table& table, std::string_view key, int least, int most) const {
    const auto n = table[key].value_exact<std::int64_t>();
    if (!n || *n < least || *n > most) {
      fail(table.source().begin.line,
           fmt::format("{}: expected an integer from {} to {}", key, least, most));
    }
    return static_cast<int>(*n);
  }

  void add_element(const toml::table& table) {
    allow(table, {"name", "exponent-bits", "mantissa-bits", "bias", "special"});
    const std::string name = name_of(table);
    const int e = integer(table, "exponent-bits", 1, 6);
    const int m = integer(table, "mantissa-bits", 0, 6);
    const int bias = integer(table, "bias", -64, 64);
    if (1 + e + m > 8) {
      fail(
          table.source().begin.line,
          fmt::format("element {} has {} bits with its sign, expected at most 8", name, 1 + e + m));
    }
    const auto given = table["special"].value<std::string>();
    const std::string special = given ? *given : table.contains("special") ? "no text" : "none";
    constexpr struct {
      std::string_view name;
      Special special;
    } kSpecials[] = {{"none", Special::kNone},
                     {"nan", Special::kNanAllOnes},
                     {"ieee", Special::kIeee},
                     {"fnuz", Special::kFnuz}};
    for (const auto& known : kSpecials) {
      if (known.name != special) continue;
      const MinifloatSpec spec{e, m, bias, true, true, known.special};
      if (spec.max_finite_code() == 0) {
        fail(table.source().begin.line,
             fmt::format("element {} has no finite number but zero", name));
      }
      library_.elements.push_back({name, spec});
      return;
    }
    fail(table.source().begin.line,
         fmt::format("special: expected none, nan, ieee or fnuz, found {}", special));
  }

  void add_lut(const toml::table& table) {
    allow(table, {"name", "values"});
    const std::string name = name_of(table);
    const toml::array* values = table["values"].as_array();
    const std::size_t count = values == nullptr ? 0 : values->size();
    if (count < 2 || count > kMaxLutValues) {
      fail(table.source().begin.line,
           fmt::format("lut {}: expected 2 to {} values, found {}", name, kMaxLutValues, count));
    }
    auto lut = std::make_shared<Lut>();
    lut->count = static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto v = (*values)[i].value<double>();
      const float f = v ? static_cast<float>(*v) : 0.0f;
      if (!v || !std::isfinite(f)) {
        fail(table.source().begin.line,
             fmt::format("lut {}: value {} is no finite number", name, i));
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (lut->value[j] == f) {
          fail(table.source().begin.line,
               fmt::format("lut {}: the values {} and {} are equal", name, j, i));
        }
      }
      lut->value[i] = f;
    }
    library_.luts.push_back({name, lut});
  }

  void add_format(const toml::table& table) {
    allow(table, {"name", "element", "scales"});
    const std::string name = name_of(table);
    const auto element = table["element"].value<std::string>();
    if (!element) fail(table.source().begin.line, fmt::format("format {} has no element", name));
    std::string shape = *element;
    const toml::array* scales = table["scales"].as_array();
    if (scales == nullptr || scales->empty()) {
      fail(table.source().begin.line, fmt::format("format {} has no scales", name));
    }
    for (const toml::node& node : *scales) {
      const toml::table* scale = node.as_table();
      if (scale == nullptr) {
        fail(node.source().begin.line, "a scale is {group = ..., type = \"...\"}");
      }
      allow(*scale, {"group", "type"});
      const auto type = (*scale)["type"].value<std::string>();
      const auto number = (*scale)["group"].value_exact<std::int64_t>();
      const auto word = (*scale)["group"].value<std::string>();
      if (!type || (!number && !word)) {
        fail(node.source().begin.line, "a scale is {group = ..., type = \"...\"}");
      }
      shape += fmt::format("/{}:{}", number ? std::to_string(*number) : *word, *type);
    }
    library_.shapes.push_back({name, normalized(shape)});
  }

  std::string path_;
  FormatLibrary library_;
};

}  // namespace

std::shared_ptr<const FormatLibrary> load_format_file(const std::string& path) {
  return Reader(path).read();
}

}  // namespace fp4scope
