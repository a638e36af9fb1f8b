// vectors.h: reading the recorded vectors (hex conventions: data/golden/README.md) and counting
// differences with the first few printed.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/lane.h"
#include "formats/scalars.h"
#include "tests/support/floats.h"
#include "tests/support/paths.h"

namespace fp4scope::test {

inline nlohmann::json load_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), "cannot read ", path.string());
  return nlohmann::json::parse(in);
}
inline nlohmann::json load_golden(const std::string& name) {
  return load_json(data_dir() / "golden" / name);
}
// "0x3e800000", "3e800000", or NaN spelled out.
inline std::uint32_t hex_bits(const std::string& text) {
  if (text == "NaN" || text == "nan") return kQuietNanBits;
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}
inline float hex_float(const std::string& text) {
  return bit_cast<float>(hex_bits(text));
}
// Concatenated values of `digits` hex digits each.
inline std::vector<std::uint32_t> hex_words(const std::string& text, std::size_t digits) {
  REQUIRE(text.size() % digits == 0);
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    words.push_back(hex_bits(text.substr(i, digits)));
  }
  return words;
}
inline std::vector<float> hex_floats(const std::string& text) {
  std::vector<float> values;
  for (const std::uint32_t w : hex_words(text, 8)) values.push_back(bit_cast<float>(w));
  return values;
}
// BF16 values of 4 digits each, widened.
inline std::vector<float> bf16_floats(const std::string& text) {
  std::vector<float> values;
  for (const std::uint32_t w : hex_words(text, 4)) values.push_back(bit_cast<float>(w << 16));
  return values;
}
// A row of kScalars.
inline MinifloatSpec spec_named(const std::string& name) {
  for (const NamedSpec& s : kScalars) {
    if (s.name == name) return s.spec;
  }
  FAIL("no scalar format named ", name);
  return {};
}

// Counts comparisons and differences; prints the first ones.
class Diff {
 public:
  explicit Diff(std::string what) : what_(std::move(what)) {}
  void compare(std::uint32_t got, std::uint32_t want, const std::string& where) {
    ++compared_;
    if (got != want) report(got, want, where);
  }
  void compare_float(std::uint32_t got, std::uint32_t want, const std::string& where) {
    ++compared_;
    if (!same_float(got, want)) report(got, want, where);
  }
  std::int64_t compared() const { return compared_; }
  std::int64_t differing() const { return differing_; }
  // Ends a comparison: nothing differs and something was compared.
  void check() const {
    std::printf("%-60s %lld compared, %lld differ\n", what_.c_str(),
                static_cast<long long>(compared_), static_cast<long long>(differing_));
    CHECK_MESSAGE(compared_ > 0, what_);
    CHECK_MESSAGE(differing_ == 0, what_);
  }

 private:
  void report(std::uint32_t got, std::uint32_t want, const std::string& where) {
    if (++differing_ <= 5) {
      std::printf("DIFFERS %s %s: got %08x, want %08x\n", what_.c_str(), where.c_str(), got, want);
    }
  }
  std::string what_;
  std::int64_t compared_ = 0, differing_ = 0;
};

}  // namespace fp4scope::test
