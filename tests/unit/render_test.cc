// Renderers on a report made by hand: what a reader of the JSON, CSV or table relies on.
#include "analysis/render.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/text_table.h"

using namespace fp4scope;
using nlohmann::json;

namespace {

const Provenance kProvenance{"1.2.3", "abc1234", {"analyze", "x.safetensors", "-r", "mxfp4"}};

Row row_of(const std::string& tensor, const std::string& recipe) {
  Row row;
  row.file = "x.safetensors";
  row.tensor = tensor;
  row.dtype = "bf16";
  row.shape = {96, 512};
  row.recipe = recipe;
  row.recipe_full = recipe + ":everything=spelled-out";
  row.backend = "reference";
  row.source_hash = "0123456789abcdef";
  row.figures.resize(columns().size());
  return row;
}

Value& figure(Row& row, std::string_view key) {
  const int index = column_index(key);
  REQUIRE(index >= 0);
  return row.figures[static_cast<std::size_t>(index)];
}

Report small_report() {
  Report report;
  report.results = {row_of("layers.1.attn_out.X", "mxfp4"), row_of("layers.1.attn_out.X", "nvfp4"),
                    row_of("layers.1.mlp_down.X", "mxfp4")};
  for (Row& row : report.results) {
    figure(row, "elements") = std::int64_t{49152};
    figure(row, "mse") = 0.1;
    figure(row, "sqnr_db") = 18.749;
    figure(row, "exact") = false;
    figure(row, "underflow_share") = 0.08765;
  }
  report.sources = {{"x.safetensors", "safetensors", 541344}};
  report.threads = 3;
  return report;
}

// Fields of RFC 4180 text, by the grammar of its section 2.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& field = rows.back().back();
    if (inside) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        inside = false;
      }
    } else if (c == '"') {
      inside = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      rows.push_back({""});
    } else {
      field += c;
    }
  }
  rows.pop_back();  // after the last line end
  return rows;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("doubles print in their shortest form that reads back") {
  struct Case {
    double in;
    const char* want;
  };
  for (const Case& c : {
           Case{0.0, "0.0"},
           Case{-0.0, "-0.0"},
           Case{1.0, "1.0"},
           Case{0.1, "0.1"},
           Case{0.1 + 0.2, "0.30000000000000004"},  // the classic
           Case{1.0 / 3, "0.3333333333333333"},
           Case{5e-324, "5e-324"},                                    // smallest subnormal
           Case{2.2250738585072014e-308, "2.2250738585072014e-308"},  // smallest normal
           Case{1.7976931348623157e308, "1.7976931348623157e+308"},
           Case{5e-5, "5e-05"},
       }) {
    CAPTURE(c.want);
    CHECK(shortest(c.in) == c.want);
  }
}

TEST_CASE("the JSON report has the documented shape") {
  Report report = small_report();
  report.aggregates.push_back(row_of("", "mxfp4"));
  report.aggregates.back().tensors = 2;
  report.errors.push_back({"y.npy", "t", "y.npy: too short", 3});
  const std::string text = render_json(report, kProvenance);
  const json out = json::parse(text);
  CHECK(out["fp4scope"]["version"] == "1.2.3");
  CHECK(out["fp4scope"]["git"] == "abc1234");
  CHECK(out["fp4scope"]["command"] == json({"analyze", "x.safetensors", "-r", "mxfp4"}));
  CHECK(out["fp4scope"]["threads"] == 3);
  REQUIRE(out["results"].size() == 3);
  const json& first = out["results"][0];
  CHECK(first["file"] == "x.safetensors");
  CHECK(first["tensor"] == "layers.1.attn_out.X");
  CHECK(first["dtype"] == "bf16");
  CHECK(first["shape"] == json({96, 512}));
  CHECK(first["recipe"] == "mxfp4");
  CHECK(first["recipe_full"] == "mxfp4:everything=spelled-out");
  CHECK(first["backend"] == "reference");
  CHECK(first["source_hash"] == "0123456789abcdef");
  CHECK(first["elements"].is_number_integer());
  CHECK(first["elements"] == 49152);
  CHECK(first["mse"].get<double>() == 0.1);
  CHECK(first["exact"] == false);
  CHECK(first["max_abs_err"].is_null());  // never set
  for (const Column& column : columns()) CHECK(first.contains(std::string(column.key)));
  REQUIRE(out["aggregates"].size() == 1);
  CHECK(out["aggregates"][0]["tensors"] == 2);
  CHECK(out["errors"] == json::parse(R"([{"file": "y.npy", "tensor": "t",
                                          "message": "y.npy: too short", "exit_code": 3}])"));
  CHECK(out["sources"][0]["bytes"] == 541344);
  CHECK(out["interrupted"] == false);
}

TEST_CASE("no NaN or Infinity token reaches JSON or CSV") {
  Report report = small_report();
  figure(report.results[0], "mse") = std::numeric_limits<double>::quiet_NaN();
  figure(report.results[0], "mae") = std::numeric_limits<double>::infinity();
  figure(report.results[0], "bias") = -std::numeric_limits<double>::infinity();
  const std::string text = render_json(report, kProvenance);
  const json row = json::parse(text)["results"][0];
  CHECK(row["mse"].is_null());
  CHECK(row["mae"].is_null());
  CHECK(row["bias"].is_null());
  const auto csv = parse_csv(render_csv(report, kProvenance));
  for (std::size_t i = 0; i < csv[0].size(); ++i) {
    if (csv[0][i] == "mse" || csv[0][i] == "mae" || csv[0][i] == "bias") CHECK(csv[1][i] == "");
  }
}

TEST_CASE("histograms, percentiles and maps are arrays, and absent when not computed") {
  Report report = small_report();
  Row& row = report.results[0];
  row.code_histogram = {5, 0, 7};
  row.scale_histogram = {1, 2};
  row.amax_exponents = {{-3, 10}, {0, 4}};
  row.percentiles.sample = "all elements";
  row.percentiles.absolute_error = {{50.0, 0.25}, {99.9, Value{}}};
  row.maps = {1, 2, 64, 32, {2048, 2048}, {3, 0}, {0, 1}, {0.5, 0.0}, {100, 90}, {64, 64}};
  const json out = json::parse(render_json(report, kProvenance))["results"];
  CHECK(out[0]["code_histogram"] == json({5, 0, 7}));
  CHECK(out[0]["scale_histogram"] == json({1, 2}));
  CHECK(out[0]["amax_exponents"] == json::parse("[[-3, 10], [0, 4]]"));
  CHECK(out[0]["percentiles"]["sample"] == "all elements");
  CHECK(out[0]["percentiles"]["absolute_error"] == json::parse("[[50.0, 0.25], [99.9, null]]"));
  CHECK(out[0]["percentiles"]["relative_error"] == json::array());
  CHECK(out[0]["maps"]["grid_cols"] == 2);
  CHECK(out[0]["maps"]["underflow"] == json({3, 0}));
  CHECK(out[0]["maps"]["squared_error"] == json({0.5, 0.0}));
  CHECK(out[0]["maps"]["blocks"] == json({64, 64}));
  for (const char* key : {"code_histogram", "percentiles", "maps"}) {
    CHECK_FALSE(out[1].contains(key));
  }
}

TEST_CASE("malformed UTF-8 and control characters in names break no renderer") {
  // Lone continuation byte, overlong slash, surrogate, cut sequence, escape sequence.
  for (const char* name : {"a\x80", "a\xc0\xaf", "a\xed\xa0\x80", "a\xe2\x82", "a\x1b[31m\n"}) {
    Report report = small_report();
    report.results[0].tensor = name;
    const json out = json::parse(render_json(report, kProvenance));  // throws on malformed UTF-8
    CHECK(out["results"][0]["tensor"].get<std::string>().starts_with("a"));
    const std::string text = render_text(report, kProvenance);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\x80') == std::string::npos);
    CHECK(text.find("a\\x") != std::string::npos);
  }
}

TEST_CASE("CSV fields come back as they were") {
  Report report = small_report();
  const std::string nasty = "a,\"b\"\r\nc";
  report.results[1].tensor = nasty;
  report.results[1].notes = {"first, note", "second"};
  report.aggregates.push_back(row_of("", "mxfp4"));
  const auto csv = parse_csv(render_csv(report, kProvenance));
  REQUIRE(csv.size() == 4);  // a header and the results, no aggregates
  const auto field = [&](std::size_t row, std::string_view key) {
    const auto at = std::find(csv[0].begin(), csv[0].end(), key);
    REQUIRE(at != csv[0].end());
    return csv[row].at(static_cast<std::size_t>(at - csv[0].begin()));
  };
  for (const auto& row : csv) CHECK(row.size() == csv[0].size());
  for (const Column& column : columns()) {
    CHECK(std::count(csv[0].begin(), csv[0].end(), column.key) == 1);
  }
  CHECK(field(1, "tensor") == "layers.1.attn_out.X");
  CHECK(field(2, "tensor") == nasty);
  CHECK(field(2, "notes") == "first, note; second");
  CHECK(field(1, "shape") == "96x512");
  CHECK(field(1, "elements") == "49152");
  CHECK(field(1, "mse") == "0.1");
  CHECK(field(1, "exact") == "false");
  CHECK(field(1, "max_abs_err") == "");
  CHECK(field(1, "version") == "1.2.3");
}

TEST_CASE("the table is aligned, at most 100 columns wide and ends with the errors") {
  Report report = small_report();
  report.results[0].notes = {"the source refuses this shape"};
  report.results[2].notes = {"the source refuses this shape", "another"};
  report.aggregates.push_back(row_of("", "mxfp4"));
  report.aggregates.back().tensors = 2;
  report.errors.push_back({"y.npy", "", "y.npy: expected 10 bytes, found 3", 3});
  const std::string text = render_text(report, kProvenance);
  CAPTURE(text);
  const auto lines = lines_of(text);
  for (const std::string& line : lines) {
    CHECK(line.size() <= 100);
    CHECK_FALSE(line.ends_with(' '));
  }
  CHECK(lines.back() == "  y.npy: expected 10 bytes, found 3");
  CHECK(text.find("all, 2 tensors") != std::string::npos);
  CHECK(text.find("[1] the source refuses this shape\n[2] another\n") != std::string::npos);
  CHECK(text.find("mxfp4 = mxfp4:everything=spelled-out [reference]") != std::string::npos);
  CHECK(text.find("x.safetensors (safetensors, 541344 bytes)") != std::string::npos);
  CHECK(text.find("fp4scope 1.2.3 (abc1234), 3 threads") != std::string::npos);
  CHECK(text.find("8.77%") != std::string::npos);  // 0.08765
  CHECK(text.find("18.75") != std::string::npos);  // 18.749 dB
  CHECK(lines[1] == "layers.1.attn_out.X, bf16 96x512, xxh3 0123456789abcdef");
  CHECK(lines[2].starts_with("  mxfp4 "));
  CHECK(lines[3].starts_with("  nvfp4 "));
  CHECK(lines[4].starts_with("layers.1.mlp_down.X, bf16 96x512"));
  // The figures of a column end where its heading does.
  const std::size_t end = lines[0].find("SQNR dB") + 7;
  for (const std::size_t i : {2, 3, 5}) CHECK(lines[i].substr(end - 6, 6) == " 18.75");
}

TEST_CASE("long names that differ in one character only stay different") {
  Report report = small_report();
  const std::string stem(120, 'x');
  report.results[0].tensor = stem + "a" + stem;
  report.results[1].tensor = stem + "b" + stem;
  const std::string text = render_text(report, kProvenance);
  CHECK(text.find("\n" + stem + "a" + stem + ", ") != std::string::npos);
  CHECK(text.find("\n" + stem + "b" + stem + ", ") != std::string::npos);
}

TEST_CASE("a share is rounded to 0 or 100 % only when it is 0 or 1") {
  struct Case {
    double share;
    const char* want;
  };
  for (const Case& c : {Case{0.0, " 0.00%"}, Case{1e-9, " <0.01%"}, Case{0.00005, " 0.01%"},
                        Case{0.99999999, " >99.99%"}, Case{1.0, " 100.00%"}}) {
    Report report = small_report();
    report.results.resize(1);
    figure(report.results[0], "underflow_share") = c.share;
    CAPTURE(c.want);
    CHECK(render_text(report, kProvenance).find(c.want) != std::string::npos);
  }
}

TEST_CASE("with several files every tensor is named with its file") {
  Report report = small_report();
  report.sources.push_back({"y.npy", "npy", 10});
  report.results.push_back(row_of("layers.1.mlp_down.X", "mxfp4"));
  report.results.back().file = "y.npy";
  const std::string text = render_text(report, kProvenance);
  CHECK(text.find("\nx.safetensors:layers.1.mlp_down.X, bf16") != std::string::npos);
  CHECK(text.find("\ny.npy:layers.1.mlp_down.X, bf16") != std::string::npos);
}

TEST_CASE("tensors that were left out are named with the reason") {
  Report report = small_report();
  report.skipped.push_back({"x.safetensors", "ids", "x.safetensors: 'ids' holds i64", 4});
  CHECK(
      render_text(report, kProvenance).ends_with("\nskipped\n  x.safetensors: 'ids' holds i64\n"));
  const json skipped = json::parse(render_json(report, kProvenance))["skipped"];
  REQUIRE(skipped.size() == 1);
  CHECK(skipped[0]["tensor"] == "ids");
}

TEST_CASE("an empty report renders") {
  const Report report;
  const json out = json::parse(render_json(report, kProvenance));
  CHECK(out["results"] == json::array());
  CHECK(parse_csv(render_csv(report, kProvenance)).size() == 1);
  CHECK(render_text(report, kProvenance) == "fp4scope 1.2.3 (abc1234), 1 thread\n");
}
