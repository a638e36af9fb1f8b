// The main job on data/sample: shape of the output, gates, and the same bytes for any number of
// threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

json analyze_json(std::vector<std::string> args) {
  args.insert(args.begin(), "analyze");
  args.push_back("--json");
  const Result result = run(args);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err == "");
  CHECK(result.out.find("NaN") == std::string::npos);
  CHECK(result.out.find("Infinity") == std::string::npos);
  return json::parse(result.out);
}

// The results and everything after them; threads and the typed command come before.
std::string without_provenance(const std::string& text) {
  const auto at = text.find("\"results\"");
  REQUIRE(at != std::string::npos);
  return text.substr(at);
}

// BF16 values of a tensor of the sample, read without the library.
std::vector<float> bf16_values(const std::string& tensor) {
  const std::string bytes = read_file(source_dir() / kSample);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const json offsets = json::parse(bytes.substr(8, length))[tensor]["data_offsets"];
  std::vector<float> values;
  for (std::size_t at = offsets[0]; at < offsets[1].get<std::size_t>(); at += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 8 + length + at, 2);
    const std::uint32_t bits = std::uint32_t{half} << 16;
    float value = 0;
    std::memcpy(&value, &bits, 4);
    values.push_back(value);
  }
  return values;
}

}  // namespace

TEST_CASE("without -r the three four-bit formats are compared, tensor by tensor") {
  const json out = analyze_json({kSample});
  REQUIRE(out["results"].size() == 12);
  const char* tensors[] = {"layers.1.attn_out.X", "layers.1.attn_out.W", "layers.1.mlp_down.X",
                           "layers.1.attn_out.W.f32"};
  const char* recipes[] = {"mxfp4", "nvfp4", "hif4"};
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(out["results"][i]["tensor"] == tensors[i / 3]);
    CHECK(out["results"][i]["recipe"] == recipes[i % 3]);
    CHECK(out["results"][i]["recipe_full"].get<std::string>().find("contract=") !=
          std::string::npos);
  }
  CHECK(out["aggregates"].size() == 3);
  CHECK(out["aggregates"][0]["elements"] == 262144);
  CHECK(out["aggregates"][0]["tensors"] == 4);
  CHECK(out["errors"].empty());
  CHECK(out["sources"][0]["bytes"] == 541344);
}

TEST_CASE("the JSON has the keys that the product description names") {
  const json row = analyze_json({kSample, "-r", "mxfp4"})["results"][0];
  for (const char* key : {"file",
                          "tensor",
                          "dtype",
                          "shape",
                          "elements",
                          "recipe",
                          "recipe_full",
                          "backend",
                          "mse",
                          "nmse",
                          "sqnr_db",
                          "mae",
                          "max_abs_err",
                          "cosine",
                          "exact",
                          "bias",
                          "effective_bits",
                          "zeros",
                          "nonzero",
                          "underflow",
                          "underflow_share",
                          "underflow_share_all",
                          "underflow_code",
                          "underflow_scale",
                          "saturated",
                          "nonfinite_in",
                          "blocks"}) {
    CAPTURE(key);
    CHECK(row.contains(key));
  }
}

TEST_CASE("counts agree with the bytes of the file") {
  const std::string tensor = "layers.1.mlp_down.X";
  const std::vector<float> values = bf16_values(tensor);
  REQUIRE(values.size() == 73728);
  std::int64_t zeros = 0;
  double amax = 0;
  for (const float v : values) {
    zeros += v == 0;
    amax = std::max(amax, static_cast<double>(std::fabs(v)));
  }
  const json out = analyze_json({kSample + ":" + tensor});
  REQUIRE(out["results"].size() == 3);
  const std::int64_t block[] = {32, 16, 64};
  for (std::size_t i = 0; i < 3; ++i) {
    const json& row = out["results"][i];
    CHECK(row["elements"] == 73728);
    CHECK(row["zeros"] == zeros);
    CHECK(row["nonzero"] == 73728 - zeros);
    CHECK(row["nonfinite_in"] == 0);
    CHECK(row["amax"] == amax);
    CHECK(row["blocks"] == 73728 / block[i]);
    CHECK(row["underflow"].get<std::int64_t>() ==
          row["underflow_code"].get<std::int64_t>() + row["underflow_scale"].get<std::int64_t>());
    CHECK(row["underflow_share"].get<double>() ==
          row["underflow"].get<double>() / static_cast<double>(73728 - zeros));
    std::int64_t codes = 0;
    for (const json& count : row["code_histogram"]) codes += count.get<std::int64_t>();
    CHECK(codes == 73728);
  }
}

TEST_CASE("reports are the same bytes for 1, 2 and 7 threads") {
  const std::vector<std::string> args = {
      "analyze", kSample, "--percentiles",   "full", "--map-size", "16",         "-r",
      "mxfp4",   "-r",    "nvfp4:scale=row", "-r",   "hif4",       "--group-by", "attn|mlp"};
  const auto with = [&](const std::string& threads, const std::string& form) {
    std::vector<std::string> all = args;
    all.insert(all.end(), {"--threads", threads, form});
    const Result result = run(all);
    CHECK(result.code == 0);
    return result.out;
  };
  const std::string json_text = without_provenance(with("1", "--json"));
  CHECK(json_text.find("\"maps\"") != std::string::npos);
  CHECK(without_provenance(with("2", "--json")) == json_text);
  CHECK(without_provenance(with("7", "--json")) == json_text);
  const std::string csv = with("1", "--csv");
  CHECK(with("2", "--csv") == csv);
  CHECK(with("7", "--csv") == csv);
  CHECK(json::parse(with("7", "--json"))["fp4scope"]["threads"] == 7);
}

TEST_CASE("every backend of this machine gives the same figures") {
  const json formats = json::parse(run({"formats", "--json"}).out);
  std::string expected;
  int compared = 0;
  for (const json& row : formats["results"]) {
    if (row["kind"] != "backend" || row["available"] == false) continue;
    json out = analyze_json({kSample + ":layers.1.attn_out.W.f32", "--backend", row["name"]});
    for (json& result : out["results"]) {
      CHECK(result["backend"] == row["name"]);
      result.erase("backend");
    }
    const std::string text = out["results"].dump();
    if (expected.empty()) expected = text;
    CAPTURE(row["name"].get<std::string>());
    CHECK(text == expected);
    ++compared;
  }
  CHECK(compared >= 2);
}

TEST_CASE("--out writes the same JSON and CSV that stdout would get, in one run") {
  TempDir folder;
  const std::string json_path = folder.file("r.json"), csv_path = folder.file("r.csv");
  const Result result =
      run({"analyze", kSample, "-r", "mxfp4", "--out", json_path, "--out", csv_path});
  CHECK(result.code == 0);
  CHECK(result.out.find("SQNR") != std::string::npos);  // the table is still there
  const Result direct = run({"analyze", kSample, "-r", "mxfp4", "--json"});
  CHECK(without_provenance(read_file(json_path)) == without_provenance(direct.out));
  CHECK(read_file(csv_path) == run({"analyze", kSample, "-r", "mxfp4", "--csv"}).out);
  CHECK(names_in(folder.path()).size() == 2);  // no temporary file is left
}

TEST_CASE("--fail-if turns a report into a gate") {
  struct Case {
    const char* condition;
    int code;
  };
  // Shares lie in [0, 1]; every tensor of the sample has 8192 or more elements.
  for (const Case& c :
       {Case{"underflow_share>=0", 1}, Case{"underflow_share>1", 0}, Case{"elements<8192", 0},
        Case{"elements<=8192", 1}, Case{"elements > 131071", 1}, Case{"elements>131072", 0},
        Case{"exact>0", 0}, Case{"exact<1", 1}, Case{"nonfinite_in>0", 0}}) {
    CAPTURE(c.condition);
    const Result result = run({"analyze", kSample, "-r", "mxfp4", "--fail-if", c.condition});
    CHECK(result.code == c.code);
    CHECK(result.out.find("SQNR") != std::string::npos);
    CHECK(result.err.empty() == (c.code == 0));
  }
  // Any of several conditions is enough; the message names the row.
  const Result result = run({"analyze", kSample, "-r", "mxfp4", "--fail-if", "underflow_share>1",
                             "--fail-if", "elements<=8192"});
  CHECK(result.code == 1);
  CHECK(result.err.find("layers.1.attn_out.W.f32") != std::string::npos);
  CHECK(result.err.find("8192") != std::string::npos);
}

TEST_CASE("an undefined figure fails a gate where something may be lost") {
  TempDir folder;
  // 64 NaNs: no element is left for any figure of error.
  write_sparse_npy(folder.file("nan.npy"), 1, 64);
  std::string bytes = read_file(folder.file("nan.npy"));
  for (std::size_t at = 128; at < bytes.size(); at += 4) bytes.replace(at, 4, "\0\0\xC0\x7F", 4);
  write_file(folder.file("nan.npy"), bytes);
  for (const char* metric : {"sqnr_db", "underflow_share", "mse"}) {
    for (const char* limit : {"<0", ">1000"}) {
      const Result result = run({"analyze", folder.file("nan.npy"), "-r", "mxfp4", "--fail-if",
                                 std::string(metric) + limit});
      CAPTURE(result.err);
      CHECK(result.code == 1);
      CHECK(result.err == "fp4scope: " + std::string(metric) + " is undefined for " +
                              folder.file("nan.npy") + ":nan with mxfp4\n");
      CHECK(result.out.find("SQNR") != std::string::npos);
    }
  }
  // A count is always defined.
  CHECK(run({"analyze", folder.file("nan.npy"), "-r", "mxfp4", "--fail-if", "nonfinite_in<64"})
            .code == 0);
}

TEST_CASE("an undefined figure fails no gate where nothing was lost or nothing was there") {
  TempDir folder;
  write_sparse_npy(folder.file("empty.npy"), 0, 64);
  write_sparse_npy(folder.file("zeros.npy"), 4, 64);
  const std::vector<std::string> args = {"analyze", folder.file("zeros.npy"), "-r", "mxfp4"};
  for (const char* condition : {"sqnr_db<1000", "underflow_share>=0", "sqnr_db>-1000"}) {
    std::vector<std::string> all = args;
    all.insert(all.end(), {"--fail-if", condition});
    CHECK(run(all).code == 0);
    all[1] = folder.file("empty.npy");
    CHECK(run(all).code == 0);
  }
}

TEST_CASE("--verbose says what a recipe means, on stderr") {
  const Result result = run({"analyze", kSample, "-r", "NVFP4:Scale=Row", "--verbose", "--json"});
  CHECK(result.code == 0);
  CHECK(result.err.find("nvfp4:scale=row") != std::string::npos);
  CHECK(result.err.find("contract=te") != std::string::npos);
  CHECK(json::parse(result.out)["results"][0]["recipe"] == "NVFP4:Scale=Row");
}

TEST_CASE("--memory takes suffixes and changes no figure") {
  const std::string usual = without_provenance(run({"analyze", kSample, "--json"}).out);
  for (const char* memory : {"24M", "64m", "2G", "2GiB", "300000K", "25165824"}) {
    CAPTURE(memory);
    CHECK(without_provenance(run({"analyze", kSample, "--json", "--memory", memory}).out) == usual);
  }
}

TEST_CASE("--memory allows one thread for every 24 MiB") {
  const auto threads = [](const char* memory) {
    return analyze_json({kSample, "--memory", memory, "--threads", "3"})["fp4scope"]["threads"];
  };
  CHECK(threads("24M") == 1);
  CHECK(threads("49151K") == 1);
  CHECK(threads("48M") == 2);
  CHECK(threads("1G") == 3);
}
