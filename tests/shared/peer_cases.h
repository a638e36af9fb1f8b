// peer_cases.h: the recorded outputs of ../shared/vectors/peers that are blocks (not scalar casts),
// with the recipe that ../shared/vectors/README.md section 6 gives for each.
#pragma once
#include <string>
#include <vector>

#include "analysis/compare/verify.h"
#include "tests/support/vectors.h"

namespace fp4scope::test {

// `path`: the peers file, or a copy of it.
inline std::vector<VerifyCase> peer_cases(const std::string& path) {
  std::vector<VerifyCase> cases;
  const auto add = [&](const std::string& name, const std::string& recipe) -> VerifyCase& {
    VerifyCase job;
    job.name = name;
    job.recipe = recipe;
    job.input = path + ":x_bf16";
    cases.push_back(job);
    return cases.back();
  };
  const auto key = [&](const std::string& name) { return path + ":" + name; };
  for (const std::string width : {"3", "4", "5"}) {
    for (const std::string entry : {"bf16", "f32"}) {
      const std::string name = "hifx" + width + "_cuda_" + entry;
      add(name, "hif4:contract=gcc,neg-zero=keep,width=" + width).fake = key(name);
    }
  }
  const std::pair<const char*, const char*> elements[] = {
      {"e2m1", "mxfp4"}, {"e4m3", "mxfp8e4m3"}, {"e5m2", "mxfp8e5m2"}};
  const std::pair<const char*, const char*> modes[] = {
      {"FLOOR", "floor"}, {"CEIL", "ceil"}, {"EVEN", "even"}, {"RCEIL", "rceil"}};
  for (const auto& [element, format] : elements) {
    for (const auto& [mode, rule] : modes) {
      const std::string name = std::string("ao_mx_") + element + "_" + mode;
      VerifyCase& job = add(name, std::string(format) + ":contract=torchao-" + rule);
      job.codes = key(name + "_q");
      job.scales = key(name + "_scale");
    }
  }
  for (const std::string name : {"ao_nvfp4_none", "ao_nvfp4_pt"}) {
    const bool has_scale = name == "ao_nvfp4_pt";
    VerifyCase& job = add(name, has_scale ? "nvfp4:contract=torchao,scale=tensor,scalar-div=exact"
                                          : "nvfp4:contract=torchao,scale=none");
    job.codes = key(name + "_q");
    job.scales = key(name + "_scale");
    if (has_scale) job.outer_scale = key(name);
  }
  const std::pair<const char*, const char*> microx[] = {
      {"fp4_e2m1", "mxfp4"},     {"fp6_e2m3", "mxfp6e2m3"}, {"fp6_e3m2", "mxfp6e3m2"},
      {"fp8_e4m3", "mxfp8e4m3"}, {"fp8_e5m2", "mxfp8e5m2"}, {"int8", "mxint8"},
      {"int4", "mxint4"}};
  const std::pair<const char*, const char*> roundings[] = {
      {"nearest", "away"}, {"even", "even"}, {"floor", "trunc"}};
  for (const auto& [element, format] : microx) {
    for (const auto& [rounding, ties] : roundings) {
      const std::string name = std::string("mxc_") + element + "_" + rounding;
      add(name, std::string(format) + ":contract=microx-torch,ties=" + ties).fake = key(name);
    }
  }
  const std::pair<const char*, const char*> selects[] = {{"static_6", "static6"},
                                                         {"static_4", "static4"},
                                                         {"mse", "mse"},
                                                         {"mae", "mae"},
                                                         {"abs_max", "absmax"}};
  const auto add_f46 = [&](const std::string& name, const std::string& recipe, const char* layout) {
    VerifyCase& job = add(name, recipe);
    job.codes = key(name + "_values");
    job.scales = key(name + "_scales");
    job.layout = layout;
    // The dequantizer of the MX formats is no reference for values.
    if (name.find("mxfp4") != std::string::npos) return;
    job.amax = key(name + "_amax");
    job.fake = key(name + "_deq");
  };
  for (const std::string block : {"1d", "2d"}) {
    for (const auto& [name, select] : selects) {
      const std::string keys = std::string("select=") + select + ",block=" + block;
      add_f46(std::string("f46_nvfp4_") + name + "_" + block,
              "nvfp4:contract=fouroversix,scalar-div=rcp," + keys, "128x4");
      if (std::string(select).starts_with("static")) continue;
      add_f46(std::string("f46_if4_") + name + "_" + block, "if4:scalar-div=rcp," + keys, "linear");
    }
    add_f46("f46_nvint4_static_6_" + block, "nvint4:scalar-div=rcp,block=" + block, "linear");
    for (const std::string target : {"6", "4"}) {
      add_f46("f46_mxfp4_static_" + target + "_" + block,
              "mxfp4:contract=fos-static" + target + (block == "2d" ? ",block=2d" : ""), "128x4");
    }
  }
  return cases;
}

}  // namespace fp4scope::test
