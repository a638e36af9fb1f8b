// malformed_table_test.cc: every malformed file of tests/malformed.md gets the exit code and the
// whole sentence that a person wrote there. A case without a row fails, and a row without a case.
// In sentences the path of the temporary folder is left out, so that a file is called FILE.
#include "tests/unit/malformed_table.h"

#include <doctest/doctest.h>

#include <map>
#include <sstream>

#include "sim/error.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Row {
  std::string what, code, sentence;
};

// The text between bars, where \| is a bar.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::string cell;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cell += line[++i];
    } else if (line[i] == '|') {
      const std::size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}

// Rows by case. The sentence stands in backticks.
std::map<std::string, Row> read_table() {
  std::map<std::string, Row> rows;
  std::istringstream lines(read_file((source_dir() / "tests/malformed.md").string()));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| case |") || line.starts_with("| --- |")) {
      continue;
    }
    const std::vector<std::string> cells = cells_of(line);
    CAPTURE(line);
    REQUIRE(cells.size() == 4);
    const std::string& sentence = cells[3];
    REQUIRE(sentence.size() > 2);
    CHECK(sentence.front() == '`');
    CHECK(sentence.back() == '`');
    const bool fresh =
        rows.emplace(cells[0], Row{cells[1], cells[2], sentence.substr(1, sentence.size() - 2)})
            .second;
    CHECK(fresh);
  }
  return rows;
}

std::string without(std::string text, const std::string& part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
    text.erase(at, part.size());
  }
  return text;
}

MalformedCases all_cases() {
  MalformedCases all;
  for (const auto& part : {malformed_safetensors(), malformed_arrays(), malformed_gguf(),
                           malformed_archives(), malformed_places(), malformed_texts()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

TEST_CASE("every malformed file gets the sentence of tests/malformed.md") {
  std::map<std::string, Row> rows = read_table();
  CHECK(rows.size() >= 60);
  for (const MalformedCase& c : all_cases()) {
    CAPTURE(c.name);
    const TempDir dir;
    std::string code = "0", sentence = "accepted";
    try {
      c.run(dir);
    } catch (const Error& error) {
      code = std::to_string(error.exit_code());
      sentence = without(error.what(), dir.path().string() + "/");
    }
    const auto row = rows.find(c.name);
    if (row == rows.end()) {
      FAIL_CHECK("| ", c.name, " | | ", code, " | `", sentence, "` |");
      continue;
    }
    CHECK(!row->second.what.empty());
    CHECK(code == row->second.code);
    CHECK(sentence == row->second.sentence);
    rows.erase(row);
  }
  for (const auto& [name, row] : rows) FAIL_CHECK("no case is called ", name);
}
