// reference_stats_test.cc: every row of ../shared/tensors/reference_stats.csv (169 real tensors,
// statistics of an independent NumPy model; conventions in design/data.md section 3) reproduced by
// the program `fp4scope analyze` within 0.3 percentage points of underflow and 0.1 dB of SQNR.
#include <cmath>
#include <map>
#include <sstream>

#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  std::string cell;
  while (std::getline(stream, cell, ',')) cells.push_back(cell);
  return cells;
}

nlohmann::json run_analyze(const std::string& file) {
  const std::string command = std::string("'") + FP4SCOPE_PROGRAM + "' analyze '" + file +
                              "' -r mxfp4:contract=ocp-floor-rne -r nvfp4 -r hif4 --json";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  CHECK(::pclose(pipe) == 0);
  return nlohmann::json::parse(text);
}

TEST_CASE("analyze reproduces every row of reference_stats.csv") {
  if (!test::have_shared("tensors/reference_stats.csv")) return;
  std::ifstream in(test::shared_dir() / "tensors/reference_stats.csv");
  std::string line;
  REQUIRE(std::getline(in, line));
  std::map<std::string, std::size_t> column;
  const auto heading = split(line);
  for (std::size_t i = 0; i < heading.size(); ++i) column[heading[i]] = i;

  std::map<std::string, std::vector<std::vector<std::string>>> by_file;
  int rows = 0;
  while (std::getline(in, line)) {
    by_file[split(line)[0]].push_back(split(line));
    ++rows;
  }
  CHECK(rows == 169);
  double worst_points = 0, worst_db = 0;
  int compared = 0;
  for (const auto& [file, list] : by_file) {
    const auto report = run_analyze((test::shared_dir() / "tensors" / file).string());
    for (const auto& row : list) {
      const std::string tensor = row[column["tensor"]];
      const std::pair<std::string, std::string> formats[] = {
          {"mxfp4:contract=ocp-floor-rne", "mxfp4"}, {"nvfp4", "nvfp4"}, {"hif4", "hif4"}};
      for (const auto& [recipe, prefix] : formats) {
        const nlohmann::json* found = nullptr;
        for (const auto& r : report["results"]) {
          if (r["tensor"] == tensor && r["recipe"] == recipe) found = &r;
        }
        REQUIRE_MESSAGE(found != nullptr, file, " ", tensor, " ", recipe);
        const std::string underflow = row[column[prefix + "_underflow"]];
        const std::string sqnr = row[column[prefix + "_sqnr_db"]];
        const double points =
            100 * std::fabs((*found)["underflow_share"].get<double>() - std::stod(underflow));
        const double db = std::fabs((*found)["sqnr_db"].get<double>() - std::stod(sqnr));
        worst_points = std::max(worst_points, points);
        worst_db = std::max(worst_db, db);
        CHECK_MESSAGE(points <= 0.3, file, " ", tensor, " ", recipe, ": underflow off by ", points);
        CHECK_MESSAGE(db <= 0.1, file, " ", tensor, " ", recipe, ": SQNR off by ", db);
        const std::int64_t elements = (*found)["elements"];
        CHECK(elements == std::stoll(row[column["rows"]]) * std::stoll(row[column["cols"]]));
        ++compared;
      }
    }
  }
  CHECK(compared == 3 * 169);
  std::printf("%d tensors, %d comparisons: largest deviation %.4f percentage points, %.4f dB\n",
              rows, compared, worst_points, worst_db);
}

}  // namespace
}  // namespace fp4scope
