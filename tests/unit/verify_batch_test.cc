// verify_batch_test.cc: many comparisons in one process: lists of cases with their errors, the
// cases of a golden file, JUnit XML.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "analysis/compare/verify_cases.h"
#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::has;
using test::stored_case;
using test::tensors_of;

std::vector<VerifyCase> cases_from(const test::TempDir& dir, const std::string& text,
                                   const VerifyCase& defaults = {}) {
  test::write_file(dir.file("cases.jsonl"), text);
  return read_cases(dir.file("cases.jsonl"), defaults);
}

TEST_CASE("a list of cases: every key, defaults, files relative to the list") {
  const test::TempDir dir;
  VerifyCase defaults;
  defaults.recipe = "mxfp4";
  defaults.layout = "128x4";
  const auto cases = cases_from(
      dir,
      "{\"input\": \"a.safetensors:x\", \"codes\": \"a.safetensors:c\"}\n"
      "\n"
      "  \t\r\n"
      "{\"name\": \"second\", \"recipe\": \"nvfp4\", \"input\": \"/abs/b.npy\", \"codes\": "
      "\"sub/c\", \"scales\": \"s\", \"choice\": \"ch\", \"fake\": \"f\", \"outer_scale\": \"o\", "
      "\"amax\": \"am\", \"layout\": \"linear\", \"nibbles\": \"high-first\", \"axis\": 0}\r\n"
      "{\"input\": \"z\"}",
      defaults);
  REQUIRE(cases.size() == 3);
  CHECK(cases[0].recipe == "mxfp4");
  CHECK(cases[0].layout == "128x4");
  CHECK(cases[0].input == dir.file("a.safetensors:x"));
  CHECK(cases[0].codes == dir.file("a.safetensors:c"));
  CHECK(cases[0].scales.empty());
  CHECK(cases[0].axis == -1);
  CHECK(!cases[0].name.empty());
  const VerifyCase& b = cases[1];
  CHECK(b.name == "second");
  CHECK(b.recipe == "nvfp4");
  CHECK(b.input == "/abs/b.npy");
  CHECK(b.codes == dir.file("sub/c"));
  CHECK(b.scales == dir.file("s"));
  CHECK(b.choice == dir.file("ch"));
  CHECK(b.fake == dir.file("f"));
  CHECK(b.outer_scale == dir.file("o"));
  CHECK(b.amax == dir.file("am"));
  CHECK(b.layout == "linear");
  CHECK(b.nibbles == "high-first");
  CHECK(b.axis == 0);
  CHECK(cases[2].input == dir.file("z"));
}

TEST_CASE("a malformed list names the line and what was expected") {
  const test::TempDir dir;
  const std::string good = "{\"recipe\": \"mxfp4\", \"input\": \"x\"}\n";
  struct Bad {
    std::string text, where, what;
  };
  const Bad bad[] = {
      {good + "{\"recipe\": \"mxfp4\", \"input\": \"x\"\n", "line 2", "JSON"},
      {"[1, 2]\n", "line 1", "object"},
      {"\n\n\"text\"\n", "line 3", "object"},
      {good + good + "{} trailing\n", "line 3", "JSON"},
      {good + "{\"input\": \"x\"}\n", "line 2", "recipe"},
      {"{\"recipe\": \"mxfp4\"}\n", "line 1", "input"},
      {"{}\n", "line 1", "recipe"},
      {"{\"recipe\": \"mxfp4\", \"inputs\": \"x\"}\n", "line 1", "inputs"},
      {"{\"recipe\": \"mxfp4\", \"input\": 3}\n", "line 1", "input"},
      {"{\"recipe\": \"mxfp4\", \"input\": null}\n", "line 1", "input"},
      {"{\"recipe\": \"mxfp4\", \"input\": \"x\", \"axis\": \"0\"}\n", "line 1", "axis"},
      {"{\"recipe\": \"mxfp4\", \"input\": \"x\", \"axis\": 0.5}\n", "line 1", "axis"},
      {"{\"recipe\": \"mxfp4\", \"input\": \"x\", \"axis\": 99999999999}\n", "line 1", "axis"},
      {"", "cases.jsonl", "no case"},
      {"\n \n", "cases.jsonl", "no case"}};
  for (const Bad& b : bad) {
    try {
      cases_from(dir, b.text);
      FAIL_CHECK("accepted: ", b.text);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::kData);
      const std::string message = e.what();
      CHECK_MESSAGE(has(message, b.where), message);
      CHECK_MESSAGE(has(message, b.what), message);
      CHECK(!has(message, "\n"));
    }
  }
  CHECK_THROWS_AS(read_cases(dir.file("absent.jsonl"), {}), Error);
  // The legal keys are listed.
  try {
    cases_from(dir, "{\"code\": \"x\"}\n");
    FAIL("accepted");
  } catch (const Error& e) {
    for (const char* key : {"name", "recipe", "input", "codes", "scales", "choice", "fake",
                            "outer_scale", "amax", "layout", "nibbles", "axis"}) {
      CHECK(has(e.what(), key));
    }
  }
}

TEST_CASE("the cases of a golden file") {
  const test::TempDir dir;
  const std::string path = dir.file("golden.safetensors");
  std::vector<test::FileTensor> all;
  const auto add = [&](const std::string& name, std::uint32_t seed) {
    const auto c = stored_case("nvfp4:select=mse", test::some_values(4 * 64, seed), 4, 64);
    const auto tensors = tensors_of(c);
    for (test::FileTensor t : tensors) {
      t.name = name + "." + (t.name == "outer" ? "outer_scale" : t.name);
      all.push_back(t);
    }
  };
  add("ties", 3);
  add("specials.a", 4);
  test::write_tensors(path, all);
  VerifyCase defaults;
  {
    SourceCache plain;
    CHECK_THROWS_AS(golden_cases(path, defaults, plain), Error);  // states no recipe
    defaults.recipe = "nvfp4:select=mse";
    CHECK_THROWS_AS(golden_cases(path, defaults, plain), Error);  // lists no cases
  }
  // The list of what there is, as golden writes it: a file without one of these planes is cut.
  const nlohmann::json listed = {{"ties", {{"rows", 4}}}, {"specials.a", {{"rows", 4}}}};
  const nlohmann::json metadata = {{"recipe", "nvfp4:select=mse"}, {"cases", listed.dump()}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<test::FileTensor> fewer = all;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    test::write_tensors(path, fewer, metadata);
    SourceCache cut;
    CHECK_THROWS_AS(golden_cases(path, defaults, cut), Error);
  }
  test::write_tensors(path, all, metadata);
  SourceCache sources;
  auto cases = golden_cases(path, defaults, sources);
  REQUIRE(cases.size() == 2);
  for (const VerifyCase& job : cases) {
    CHECK((job.name == "ties" || job.name == "specials.a"));
    CHECK(job.input == path + ":" + job.name + ".x");
    CHECK(job.codes == path + ":" + job.name + ".codes");
    CHECK(job.scales == path + ":" + job.name + ".scales");
    CHECK(job.choice == path + ":" + job.name + ".choice");
    CHECK(job.amax == path + ":" + job.name + ".amax");
    CHECK(job.outer_scale == path + ":" + job.name + ".outer_scale");
    CHECK(job.fake == path + ":" + job.name + ".values");
  }
  for (const VerifyOutcome& o : verify_all(cases, {}, sources)) {
    REQUIRE(o.result);
    CHECK_MESSAGE(o.result->agrees(), summary_of(*o.result));
  }
  test::write_tensors(path, {{"y", "U8", {1}, "x"}});
  SourceCache other;
  CHECK_THROWS_AS(golden_cases(path, defaults, other), Error);
}

// --- JUnit ---

// Elements with their nesting checked: every tag closed in order, attributes quoted, no bare & or <
// and no character that XML 1.0 lacks. Returns the number of elements of a name.
struct Xml {
  std::vector<std::pair<std::string, std::string>> elements;  // name, attributes
  std::string text;
  std::int64_t count(const std::string& name) const {
    return std::count_if(elements.begin(), elements.end(),
                         [&](const auto& e) { return e.first == name; });
  }
};
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    REQUIRE(text[i] != '<');
    if (text[i] != '&') {
      out += text[i];
      continue;
    }
    const std::size_t end = text.find(';', i);
    REQUIRE(end != std::string::npos);
    const std::string name = text.substr(i + 1, end - i - 1);
    const std::pair<const char*, char> known[] = {{"amp", '&'},  {"lt", '<'},    {"gt", '>'},
                                                  {"quot", '"'}, {"apos", '\''}, {"#10", '\n'}};
    const auto* found = std::find_if(std::begin(known), std::end(known),
                                     [&](const auto& k) { return name == k.first; });
    REQUIRE_MESSAGE(found != std::end(known), name);
    out += found->second;
    i = end;
  }
  return out;
}
Xml parsed(std::string xml) {
  Xml out;
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    REQUIRE((byte >= 0x20 || c == '\n' || c == '\t'));
  }
  REQUIRE(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"));
  xml.erase(0, xml.find("?>") + 2);
  std::vector<std::string> open;
  std::size_t at = 0;
  while (at < xml.size()) {
    const std::size_t tag = std::min(xml.find('<', at), xml.size());
    out.text += unescaped(xml.substr(at, tag - at));
    if (tag == xml.size()) break;
    // A > inside quotes would be legal; this writer escapes it.
    const std::size_t end = xml.find('>', tag);
    REQUIRE(end != std::string::npos);
    std::string body = xml.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (body.front() == '/') {
      REQUIRE(!open.empty());
      REQUIRE(open.back() == body.substr(1));
      open.pop_back();
      continue;
    }
    const bool is_empty = body.back() == '/';
    if (is_empty) body.pop_back();
    const std::size_t blank = std::min(body.find(' '), body.size());
    const std::string name = body.substr(0, blank), attributes = body.substr(blank);
    REQUIRE(std::count(attributes.begin(), attributes.end(), '"') % 2 == 0);
    out.elements.emplace_back(name, unescaped(attributes));
    if (!is_empty) open.push_back(name);
  }
  REQUIRE(open.empty());
  REQUIRE(out.count("testsuites") == 1);
  return out;
}

TEST_CASE("batches keep their order, share threads, and JUnit counts them") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  auto tensors = tensors_of(stored_case("mxfp4", test::some_values(3 * 64), 3, 64));
  test::FileTensor wrong = test::tensor_named(tensors, "codes");
  wrong.name = "wrong";
  wrong.data[0] = static_cast<char>(wrong.data[0] ^ 1);
  tensors.push_back(wrong);
  test::write_tensors(path, tensors);
  std::vector<VerifyCase> cases;
  for (int i = 0; i < 12; ++i) {
    VerifyCase job = test::job_of(path, "mxfp4");
    job.name = "case <" + std::to_string(i) + "> & \"quoted\" \x01 '";
    if (i % 3 == 1) job.codes = path + ":wrong";
    if (i % 3 == 2) job.codes = path + ":absent<&>";
    cases.push_back(job);
  }
  std::string first_xml;
  for (const int threads : {1, 2, 3}) {
    VerifyOptions options;
    options.threads = threads;
    SourceCache sources;
    const auto outcomes = verify_all(cases, options, sources);
    REQUIRE(outcomes.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CHECK(outcomes[i].name == cases[i].name);
      CHECK(outcomes[i].result.has_value() == (i % 3 != 2));
      CHECK(outcomes[i].error.has_value() == (i % 3 == 2));
      if (i % 3 == 0) CHECK(outcomes[i].result->agrees());
      if (i % 3 == 1) CHECK(outcomes[i].result->elements_differing == 1);
      if (i % 3 == 2) CHECK(outcomes[i].error->exit_code == 3);
    }
    const std::string xml = junit_xml(outcomes);
    if (first_xml.empty()) first_xml = xml;
    CHECK(xml == first_xml);
  }
  const Xml xml = parsed(first_xml);
  CHECK(xml.count("testsuite") == 1);
  CHECK(xml.count("testcase") == 12);
  CHECK(xml.count("failure") == 4);
  CHECK(xml.count("error") == 4);
  for (const auto& [name, attributes] : xml.elements) {
    if (name == "testsuite") {
      CHECK(has(attributes, "tests=\"12\""));
      CHECK(has(attributes, "failures=\"4\""));
      CHECK(has(attributes, "errors=\"4\""));
    }
    if (name == "failure") CHECK(has(attributes, "1 of 192 elements"));
    if (name == "error") CHECK(has(attributes, "absent<&>"));
  }
  CHECK(has(xml.elements[2].second, "case <0> & \"quoted\""));
  CHECK(has(xml.text, "expected"));
  CHECK(parsed(junit_xml({})).count("testcase") == 0);
}

TEST_CASE("JUnit XML is read by another parser") {
  if (std::system("python3 -c 'import xml.etree' > /dev/null 2>&1") != 0) {
    std::printf("python3 is not there; only the checker of this file reads the XML\n");
    return;
  }
  // Names that are neither XML nor UTF-8, in the files and in what the report says about them.
  const test::TempDir dir;
  const std::string path = dir.file("a\x02 <b>&\"c\" \xC3\xA4 \xFE.safetensors");
  auto tensors = tensors_of(stored_case("mxfp4", test::some_values(2 * 64), 2, 64));
  test::poke(tensors, "scales", 0, 0xFF);
  test::write_tensors(path, tensors);
  std::vector<VerifyCase> cases(2, test::job_of(path, "mxfp4"));
  cases[1].codes = path + ":\xFF \x1F ]]> absent";
  SourceCache sources;
  const auto outcomes = verify_all(cases, {}, sources);
  REQUIRE((outcomes[0].result && outcomes[1].error));
  test::write_file(dir.file("j.xml"), junit_xml(outcomes));
  const std::string command =
      "python3 -c 'import sys, xml.etree.ElementTree as e; t = e.parse(sys.argv[1]).getroot(); "
      "sys.exit(len(t.findall(\".//testcase\")) != 2)' '" +
      dir.file("j.xml") + "'";
  CHECK_MESSAGE(std::system(command.c_str()) == 0, junit_xml(outcomes));
}

}  // namespace
}  // namespace fp4scope
