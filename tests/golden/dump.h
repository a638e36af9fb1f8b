// dump.h: the dump of another program, and what verify and identify say about it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "analysis/compare/identify.h"
#include "tests/support/explains.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope::test {

// `values`, then zeros up to `n`.
inline std::vector<float> padded(std::vector<float> values, std::size_t n) {
  values.resize(n, 0.0f);
  return values;
}
// Codes of one row, low nibble first.
inline std::string packed(const std::vector<int>& codes, std::size_t n) {
  std::string out(n / 2, '\0');
  for (std::size_t i = 0; i < codes.size(); ++i) {
    out[i / 2] = static_cast<char>(out[i / 2] | codes[i] << (i % 2 == 0 ? 0 : 4));
  }
  return out;
}
inline std::vector<FileTensor> dump(const std::vector<float>& x, const std::vector<int>& codes,
                                    const std::string& scales) {
  const auto n = std::ssize(x);
  return {{"x", "F32", {1, n}, bytes_of(x)},
          {"codes", "U8", {1, n / 2}, packed(codes, x.size())},
          {"scales", "U8", {1, std::ssize(scales)}, scales}};
}

struct Dump {
  TempDir dir;
  std::string path() const { return dir.file("dump.safetensors"); }
  VerifyResult verify(const std::vector<FileTensor>& tensors, const std::string& recipe,
                      std::string_view parts = "codes scales", const char* layout = "") const {
    VerifyCase job = job_of(path(), recipe, parts);
    job.layout = layout;
    return verified(path(), tensors, job);
  }
  IdentifyResult identify(const std::vector<FileTensor>& tensors, const std::string& format,
                          std::string_view parts = "codes scales") const {
    write_tensors(path(), tensors);
    IdentifyOptions options;
    options.job = job_of(path(), "", parts);
    options.format = format;
    options.separations = 0;
    SourceCache sources;
    return fp4scope::identify(options, sources);
  }
};

// `recipe` is in the set that explains everything.
inline bool explains(const IdentifyResult& result, const char* recipe) {
  return explains(result, parse_recipe(recipe));
}
inline bool explains(const IdentifyResult& result, const std::string& recipe) {
  return explains(result, recipe.c_str());
}

}  // namespace fp4scope::test
