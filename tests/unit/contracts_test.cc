// contracts_test.cc: every contract that a recipe can name has evidence: recorded vectors that
// exist, or the exact oracle. A named file that does not exist is a fault in either case.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "sim/backend.h"
#include "tests/support/paths.h"
#include "tests/support/required_keys.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// The folders of ../shared/vectors, for machines that do not have it.
const char* const kVectorFolders[] = {"hif4", "layouts", "more", "mx", "nvfp4", "peers", "scalars"};

// Files named in ContractInfo::vectors; other words are remarks.
std::vector<std::string> files_in(std::string_view vectors) {
  std::vector<std::string> files;
  std::istringstream words{std::string(vectors)};
  for (std::string word; words >> word;) {
    if (word.ends_with(".json") || word.ends_with(".safetensors")) files.push_back(word);
  }
  return files;
}

bool exists(const std::string& file) {
  if (std::filesystem::exists(data_dir() / "golden" / file)) return true;
  if (std::filesystem::exists(shared_dir() / "vectors")) {
    return std::filesystem::exists(shared_dir() / "vectors" / file);
  }
  for (const std::string folder : kVectorFolders) {
    if (file.starts_with(folder + "/")) return true;
  }
  return false;
}

std::string text_of(const std::string& file) {
  for (const std::filesystem::path& path :
       {data_dir() / "golden" / file, shared_dir() / "vectors" / file}) {
    std::ifstream stream(path, std::ios::binary);
    if (stream) return {std::istreambuf_iterator<char>(stream), {}};
  }
  return "";
}

// A JSON file of recipes that names its rows by `contract=` has to name this one. Files that are
// followed by a remark in parentheses pin it in another way, which the remark says.
std::string unpinned(std::string_view vectors, std::string_view contract) {
  std::istringstream words{std::string(vectors)};
  std::vector<std::string> files;
  for (std::string word; words >> word;) {
    if (word.starts_with("(") && !files.empty()) files.pop_back();
    if (word.ends_with(".json")) files.push_back(word);
  }
  for (const std::string& file : files) {
    const std::string text = text_of(file), name = "contract=" + std::string(contract);
    if (text.find("contract=") == std::string::npos) continue;  // not a file of recipes
    if (text.find(name + '"') != std::string::npos || text.find(name + ',') != std::string::npos)
      continue;
    return "names " + file + ", which has no result of it";
  }
  return "";
}

// What is wrong with the evidence of a contract; empty when nothing is.
std::string fault(std::string_view vectors, const Support& oracle) {
  const std::vector<std::string> files = files_in(vectors);
  for (const std::string& file : files) {
    if (!exists(file)) return "names " + file + ", which does not exist";
  }
  if (files.empty() && !oracle.ok) return "has neither vectors nor the oracle";
  return "";
}

}  // namespace

TEST_CASE("every contract of every format has vectors that exist, or the oracle") {
  int contracts = 0;
  for (const FormatRow& row : all_formats()) {
    REQUIRE(!contracts_of(row.family, row.format.name).empty());
    for (const ContractInfo& info : contracts_of(row.family, row.format.name)) {
      const std::string text =
          required_keys(std::string(row.format.name) + ":contract=" + std::string(info.name));
      const std::string what = fault(info.vectors, oracle_backend().supports(parse_recipe(text)));
      CHECK_MESSAGE(what == "", text << " " << what);
      const std::string recorded = unpinned(info.vectors, info.name);
      CHECK_MESSAGE(recorded == "", text << " " << recorded);
      // "Verified" says that outputs of the source were compared with: they are on record.
      if (info.evidence == Evidence::kVerified) {
        CHECK_MESSAGE(!files_in(info.vectors).empty(), text << " is verified by no file");
      }
      ++contracts;
    }
  }
  CHECK(contracts > 0);
}

TEST_CASE("a contract without evidence is noticed") {
  CHECK(unpinned("mx/mxfp4_blocks.json", "torchao-floor") == "");
  CHECK(unpinned("mx/mxfp4_blocks.json", "no-such") ==
        "names mx/mxfp4_blocks.json, which has no result of it");
  CHECK(unpinned("mx/mxfp4_blocks.json (as torchao-floor)", "no-such") == "");
  CHECK(unpinned("mx/mxfp4_blocks.json (of another) nvfp4/cases.json (its g)", "te") == "");
  CHECK(unpinned("peers/peers.safetensors mx/mxint8_blocks.json", "microx-torch") ==
        "names mx/mxint8_blocks.json, which has no result of it");
  const Support yes, no{false, "not written"};
  CHECK(fault("", yes) == "");
  CHECK(fault("mx/mxfp4_blocks.json", no) == "");
  CHECK(fault("mx/mxfp4_blocks.json (as torchao-floor)", no) == "");
  CHECK(fault("peers/peers.safetensors", no) == "");
  CHECK(fault("", no) == "has neither vectors nor the oracle");
  CHECK(fault("see the paper", no) == "has neither vectors nor the oracle");
  CHECK(fault("elsewhere/blocks.json", yes) == "names elsewhere/blocks.json, which does not exist");
  CHECK(fault("mx/mxfp4_blocks.json elsewhere/x.safetensors", yes) ==
        "names elsewhere/x.safetensors, which does not exist");
}
