// compare_test.cc: agree, verify and identify as their users call them: exit codes, tables, JSON
// and JUnit, and what they say when something is wrong.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

const std::string kX = kSample + ":layers.1.attn_out.X";

// A packed file of the sample, and operands in it.
struct Packed {
  TempDir folder;
  std::string path;
  explicit Packed(const std::string& recipe) : path(folder.file("packed.safetensors")) {
    const Result result = run({"quantize", kSample, path, "-r", recipe});
    REQUIRE_MESSAGE(result.code == 0, result.err);
  }
  std::string plane(const std::string& suffix) const {
    return path + ":layers.1.attn_out.X." + suffix;
  }
  // Flips a bit of a plane: byte `at` of the tensor's data.
  void flip(const std::string& suffix, std::int64_t at, int bit) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), 8);
    std::string header(length, ' ');
    file.read(header.data(), static_cast<std::streamsize>(length));
    const json entry = json::parse(header)["layers.1.attn_out.X." + suffix];
    const auto offset =
        static_cast<std::streamoff>(8 + length + entry["data_offsets"][0].get<std::uint64_t>() +
                                    static_cast<std::uint64_t>(at));
    file.seekg(offset);
    char byte = 0;
    file.read(&byte, 1);
    byte = static_cast<char>(byte ^ (1 << bit));
    file.seekp(offset);
    file.write(&byte, 1);
    REQUIRE(file.good());
  }
};

std::vector<std::string> verify_args(const Packed& packed, const std::string& recipe,
                                     std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"verify",
                                   "-r",
                                   recipe,
                                   "--input",
                                   kX,
                                   "--codes",
                                   packed.plane("codes"),
                                   "--scales",
                                   packed.plane("scales")};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("verify: equal bytes give 0, a flipped bit gives 1 and names element and block") {
  const Packed packed("nvfp4:select=mae");
  const Result equal = run(verify_args(packed, "nvfp4:select=mae"));
  CHECK(equal.code == 0);
  CHECK(contains(equal.out, "equal"));
  CHECK(equal.err.empty());
  // Rows have 512 elements in 256 bytes: byte 3 * 256 + 40, high half = row 3, column 81.
  packed.flip("codes", 3 * 256 + 40, 6);
  const Result one = run(verify_args(packed, "nvfp4:select=mae"));
  CHECK(one.code == 1);
  CHECK(contains(one.out, "DIFFERENT"));
  CHECK(contains(one.out, "row 3, block 5 (columns 80-95)"));
  CHECK(contains(one.out, "element 1:"));
  CHECK(contains(one.out, "fp4scope explain -r nvfp4:select=mae " + kX + "@3,5"));
  const json j = json::parse(run(verify_args(packed, "nvfp4:select=mae", {"--json"})).out);
  const json& row = j["results"][0];
  CHECK(row["equal"] == false);
  CHECK(row["elements"] == 96 * 512);
  CHECK(row["elements_differing"] == 1);
  CHECK(row["scales"] == 96 * 32);
  CHECK(row["scales_differing"] == 0);
  CHECK(row["blocks_differing"] == 1);
  CHECK(row["classes"].size() == 1);
  CHECK(row["first"][0]["row"] == 3);
  CHECK(row["first"][0]["block"] == 5);
  CHECK(row["first"][0]["elements"] == json::array({1}));
  packed.flip("codes", 3 * 256 + 40, 6);
  // Every other plane.
  for (const auto& [suffix, option] : std::vector<std::pair<std::string, std::string>>{
           {"choice", "--choice"}, {"outer_scale", "--outer-scale"}, {"amax", "--amax"}}) {
    CAPTURE(suffix);
    CHECK(run(verify_args(packed, "nvfp4:select=mae", {option, packed.plane(suffix)})).code == 0);
    packed.flip(suffix, 0, 0);
    CHECK(run(verify_args(packed, "nvfp4:select=mae", {option, packed.plane(suffix)})).code == 1);
    packed.flip(suffix, 0, 0);
  }
}

TEST_CASE("verify: another recipe differs, and --suggest names the one that fits") {
  const Packed packed("mxfp4:contract=torchao-even");
  const Result other =
      run(verify_args(packed, "mxfp4:contract=torchao-floor", {"--suggest", "--first", "0"}));
  CHECK(other.code == 1);
  CHECK(contains(other.out, "scale off by one"));
  CHECK(contains(other.out, "mxfp4:contract=torchao-even"));
  // The bytes read in a wrong order.
  const Result order = run(verify_args(packed, "mxfp4:contract=torchao-even",
                                       {"--nibbles", "high-first", "--first", "0"}));
  CHECK(order.code == 1);
  CHECK(contains(order.out, "all codes agree when they are read with --nibbles low-first"));
}

TEST_CASE("verify: lists of cases, JUnit and JSON files") {
  const Packed packed("nvfp4");
  const std::string list = packed.folder.file("cases.jsonl");
  const std::string root = data_dir().parent_path().string() + "/";
  std::ofstream(list) << json{{"name", "good"},
                              {"recipe", "nvfp4"},
                              {"input", root + kX},
                              {"codes", "packed.safetensors:layers.1.attn_out.X.codes"},
                              {"scales", "packed.safetensors:layers.1.attn_out.X.scales"}}
                      << "\n\n"
                      << json{{"name", "bad & <worse>"},
                              {"recipe", "nvfp4:scale=none"},
                              {"input", root + kX},
                              {"scales", "packed.safetensors:layers.1.attn_out.X.scales"}}
                      << "\n"
                      << json{{"name", "no such"},
                              {"recipe", "nvfp4"},
                              {"input", root + kX},
                              {"codes", "packed.safetensors:nothing"}}
                      << "\n";
  const std::string junit = packed.folder.file("out.xml"), report = packed.folder.file("out.json");
  const Result result = run({"verify", "--cases", list, "--junit", junit, "--out", report});
  CHECK(result.code == 3);  // the highest code counts
  CHECK(contains(result.out, "3 cases: 1 equal, 1 different, 1 errors"));
  CHECK(contains(result.err, "no such: "));
  CHECK(contains(result.err, "holds no tensor \"nothing\""));
  const std::string xml = read_file(junit);
  CHECK(contains(xml, "tests=\"3\" failures=\"1\" errors=\"1\""));
  CHECK(contains(xml, "name=\"bad &amp; &lt;worse&gt;\""));
  CHECK(json::parse(read_file(report))["results"].size() == 2);
  CHECK(json::parse(read_file(report))["errors"].size() == 1);
  // The same bytes for one and for two threads.
  const auto text = [&](const char* threads) {
    return run({"verify", "--cases", list, "--threads", threads}).out;
  };
  CHECK(text("1") == text("2"));
}

// Not "t" + std::to_string(i): GCC 12 warns of an overlap there that cannot be.
std::string case_name(int i) {
  std::string name(1, 't');
  name += std::to_string(i);
  return name;
}

TEST_CASE("10,000 small cases in one process, all equal but the one that was changed") {
  // One tensor of 10,000 rows is 10,000 tensors of a row under a scale per row: their operands are
  // tensors of one file each.
  TempDir folder;
  const std::string x = folder.file("x.safetensors"), q = folder.file("q.safetensors");
  std::vector<std::string> gen = {"gen", x, "--dist", "normal", "--shape", "2x48"};
  constexpr int kCases = 10000;
  for (int i = 0; i < kCases; ++i) {
    gen.push_back("--name");
    gen.push_back(case_name(i));
  }
  gen.push_back("--quiet");
  REQUIRE(run(gen).code == 0);
  REQUIRE(run({"quantize", x, q, "-r", "nvfp4"}).code == 0);
  const std::string list = folder.file("cases.jsonl");
  std::ofstream out(list);
  for (int i = 0; i < kCases; ++i) {
    const std::string name = case_name(i);
    out << json{{"name", name},
                // One case is compared with another contract, whose zero blocks store another byte.
                {"recipe", i == 777 ? "nvfp4:contract=modelopt,scale=none" : "nvfp4"},
                {"input", "x.safetensors:" + name},
                {"codes", "q.safetensors:" + name + ".codes"},
                {"scales", "q.safetensors:" + name + ".scales"}}
        << "\n";
  }
  out.close();
  const auto start = std::chrono::steady_clock::now();
  const Result result = run({"verify", "--cases", list, "--threads", "2"});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("verify: %d cases in one process, %.2f s on two threads\n", kCases, seconds);
  CHECK(result.code == 1);
  CHECK(contains(result.out, "10000 cases: 9999 equal, 1 different, 0 errors"));
  CHECK(contains(result.out, "t777: DIFFERENT"));
}

TEST_CASE("verify: an output never replaces an input, whoever names it") {
  const Packed packed("nvfp4");
  const std::string list = packed.folder.file("cases.json");
  const std::string root = data_dir().parent_path().string() + "/";
  std::ofstream(list) << json{{"recipe", "nvfp4"},
                              {"input", root + kX},
                              {"codes", "packed.safetensors:layers.1.attn_out.X.codes"}}
                      << "\n";
  const std::string before = read_file(packed.path), lines = read_file(list);
  for (const std::string& victim : {packed.path, list}) {
    const Result result = run({"verify", "--cases", list, "--junit", victim});
    CHECK(result.code == 2);
    CHECK(contains(result.err, "--junit"));
    CHECK(contains(result.err, "would replace the input file"));
  }
  CHECK(run({"verify", "--cases", list, "--out", list}).code == 2);
  CHECK(read_file(packed.path) == before);
  CHECK(read_file(list) == lines);
  const std::string both = packed.folder.file("both.json");
  CHECK(run({"verify", "--cases", list, "--out", both, "--junit", both}).code == 2);
  // A full disk loses the file and nothing else.
  const Result full =
      run({"verify", "--cases", list, "--out", packed.folder.file("o.json")}, {.file_limit = 64});
  CHECK(full.code == 3);
  CHECK(contains(full.out, "equal"));
  CHECK(!std::filesystem::exists(packed.folder.file("o.json")));
}

TEST_CASE("identify: what the first blocks cannot tell apart, later ones do") {
  // Ones but for the rows from 140 to 249, which no band of the first sample holds.
  TempDir folder;
  const std::string x = folder.file("x.safetensors"), q = folder.file("q.safetensors");
  constexpr std::int64_t kRows = 1024, kCols = 512;
  std::string values(static_cast<std::size_t>(2 * kRows * kCols), '\0');
  std::uint32_t random = 1;
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    random = random * 1664525u + 1013904223u;
    const std::int64_t row = i / kCols;
    // BF16 1.0, or a number from 0.5 to 2 with a random sign.
    const std::uint32_t bits =
        row < 140 || row >= 250 ? 0x3f80u : (random >> 16 & 0x8000u) | (0x3f00u + (random >> 24));
    values[static_cast<std::size_t>(2 * i)] = static_cast<char>(bits & 255u);
    values[static_cast<std::size_t>(2 * i + 1)] = static_cast<char>(bits >> 8);
  }
  const std::string header =
      R"({"x":{"dtype":"BF16","shape":[1024,512],"data_offsets":[0,1048576]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  write_file(x, file + header + values);
  REQUIRE(run({"quantize", x, q, "-r", "nvfp4:contract=fouroversix,select=mse"}).code == 0);
  // The same bytes with the nibbles of every byte exchanged.
  std::string swapped = read_file(q);
  std::uint64_t length = 0;
  std::copy_n(swapped.data(), 8, reinterpret_cast<char*>(&length));
  const json offsets = json::parse(swapped.substr(8, length))["x.codes"]["data_offsets"];
  for (std::size_t i = offsets[0]; i < offsets[1].get<std::size_t>(); ++i) {
    const auto byte = static_cast<unsigned char>(swapped[8 + length + i]);
    swapped[8 + length + i] = static_cast<char>(byte >> 4 | byte << 4);
  }
  write_file(folder.file("s.safetensors"), swapped);
  for (const auto& [name, order] :
       {std::pair{"q.safetensors", "low-first"}, std::pair{"s.safetensors", "high-first"}}) {
    CAPTURE(name);
    const Result result =
        run({"identify", "--input", x + ":x", "--codes", folder.file(name) + ":x.codes", "--scales",
             folder.file(name) + ":x.scales", "--json"});
    CHECK(result.code == 0);
    bool found = false;
    const json answer = json::parse(result.out)["results"][0];
    for (const json& e : answer["explaining"]) {
      if (e["recipe"] != "nvfp4:contract=fouroversix,select=mse") continue;
      found = true;
      CHECK(e["nibbles"] == order);
      CHECK(e["layout"] == "linear");
      CHECK(e["other_nibbles"].empty());
    }
    CHECK(found);
  }
}

TEST_CASE("verify: what cannot be compared is one sentence") {
  const Packed packed("nvfp4");
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* want;
  };
  const std::string codes = packed.plane("codes"), scales = packed.plane("scales");
  const std::vector<Case> cases = {
      {{"verify", "--input", kX, "--codes", codes}, 2, "expected a recipe"},
      {{"verify", "-r", "nvfp4", "--codes", codes}, 2, "--input, --cases and --golden"},
      {{"verify", "-r", "nvfp4", "--input", kX}, 2, "nothing to compare"},
      {{"verify", "-r", "nvfp5", "--input", kX, "--codes", codes}, 2, "nvfp4"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", scales}, 3, "expected the codes of"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--scales", codes}, 3, "expected 3072"},
      {{"verify", "-r", "nvfp4", "--input", kSample, "--codes", codes}, 2, "expected FILE:TENSOR"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", "none.safetensors:a"},
       3,
       "none.safetensors"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", codes, "--nibbles", "middle"},
       2,
       "low-first"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--scales", scales, "--layout", "64x64"},
       2,
       "128x4"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", codes, "--accept", "everything"},
       2,
       "sign-of-zero"},
      {{"verify", "-r", "mxfp4", "--input", kX, "--codes", codes, "--outer-scale",
        packed.plane("outer_scale")},
       2,
       "no outer scale"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", codes, "--choice", scales},
       2,
       "does not choose"},
      {{"verify", "--cases", kSample}, 3, "expected a JSON object"},
      {{"verify", "--golden", kSample}, 3, "states no recipe"},
      {{"verify", "-r", "nvfp4", "--input", kX, "--codes", codes, "--junit", packed.path},
       2,
       "would replace the input"},
      {{"identify", "--input", kX}, 2, "nothing to identify"},
      {{"identify", "--input", kX, "--codes", codes, "--format", "nvfp5"}, 2, "mxfp4"},
      {{"agree", "nvfp4", "nvfp5", kX}, 2, "nvfp5"},
      {{"agree", "nvfp4", "mxfp4", kX, "--fail-if", "agreement<1"}, 2, "choice_agreement"},
      {{"agree", "nvfp4", "mxfp4", "none.safetensors"}, 3, "none.safetensors"}};
  for (const Case& c : cases) {
    CAPTURE(c.want);
    const Result result = run(c.args);
    CHECK_MESSAGE(result.code == c.code, result.err);
    CHECK_MESSAGE(contains(result.err, c.want), result.err);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(read_file(packed.path).size() > 0);
}

TEST_CASE("identify: exit code 0 when a recipe explains everything, 1 when none does") {
  const Packed packed("hif4:contract=amct");
  const std::vector<std::string> args = {"identify",
                                         "--input",
                                         kX,
                                         "--codes",
                                         packed.plane("codes"),
                                         "--scales",
                                         packed.plane("scales"),
                                         "--json"};
  const Result result = run(args);
  CHECK(result.code == 0);
  const json j = json::parse(result.out)["results"][0];
  CHECK(j["explained"] == true);
  bool found = false;
  for (const json& e : j["explaining"]) found |= e["recipe"] == "hif4:contract=amct";
  CHECK(found);
  CHECK(j["tried"].get<int>() > 20);
  packed.flip("scales", 4 * 11, 0);  // the E6M2 byte of group 11
  const Result one = run(args);
  CHECK(one.code == 1);
  const json k = json::parse(one.out)["results"][0];
  CHECK(k["explained"] == false);
  CHECK(k["best"][0]["recipe"] == "hif4:contract=amct");
  CHECK(contains(k["best"][0]["remainder"], "scale off by one in 1 of 768 blocks"));
}

TEST_CASE("agree: shares, ties and the first differing blocks") {
  const std::string a = "nvfp4:select=mae", b = "nvfp4:select=mae,metric=fast";
  const Result same = run({"agree", a, a, kX, "--json"});
  CHECK(same.code == 0);
  const json one = json::parse(same.out)["results"][0];
  for (const char* key :
       {"scale_agreement", "choice_agreement", "code_agreement", "value_agreement"}) {
    CHECK(one[key] == 1.0);
  }
  CHECK(one["blocks"] == 96 * 32);
  CHECK(one["first"].empty());
  const Result fast = run({"agree", a, b, kSample, "--json", "--threads", "1"});
  CHECK(fast.code == 0);
  CHECK(run({"agree", a, b, kSample}).out == run({"agree", a, b, kSample, "--threads", "1"}).out);
  const json j = json::parse(fast.out);
  CHECK(j["results"].size() == 4);
  CHECK(j["aggregates"][0]["tensors"] == 4);
  std::int64_t blocks = 0, differing = 0;
  for (const json& row : j["results"]) {
    blocks += row["blocks"].get<std::int64_t>();
    differing += row["scales_differing"].get<std::int64_t>();
    const json& t = row["choice_table"];
    const auto at = [&](const char* key) { return t[key].get<std::int64_t>(); };
    CHECK(at("a6_b4") + at("a4_b6") == row["choices_differing"]);
    CHECK(at("a6_b4") + at("a4_b6") + at("a6_b6") + at("a4_b4") == row["live_blocks"]);
  }
  CHECK(j["aggregates"][0]["blocks"] == blocks);
  CHECK(j["aggregates"][0]["scales_differing"] == differing);
  // Recipes of other geometry: what cannot be compared is null, not a number.
  const json other = json::parse(run({"agree", "nvfp4", "mxfp4", kX, "--json"}).out)["results"][0];
  CHECK(other["scale_agreement"].is_null());
  CHECK(other["choice_agreement"].is_null());
  CHECK(other["ties"].is_null());
  CHECK(other["code_agreement"].is_number());
  CHECK(other["value_agreement"].is_number());
  // A tensor without rows has nothing to differ; a filter that takes nothing is no success.
  TempDir folder;
  const std::string empty = folder.file("empty.safetensors");
  std::string file(8, '\0');
  const std::string header = R"({"e":{"dtype":"F32","shape":[0,64],"data_offsets":[0,0]}})";
  file[0] = static_cast<char>(header.size());
  write_file(empty, file + header);
  const Result none = run({"agree", "nvfp4:scale=row", "nvfp4:scale=row", empty, "--fail-if",
                           "value_agreement<1", "--json"});
  CHECK(none.code == 0);
  CHECK(json::parse(none.out)["results"][0]["value_agreement"].is_null());
  CHECK(run({"agree", a, b, kSample, "--include", "zzz", "--fail-if", "value_agreement<1"}).code ==
        2);
  // A gate.
  CHECK(run({"agree", a, b, kX, "--fail-if", "scale_agreement<0.999"}).code == 0);
  CHECK(run({"agree", "nvfp4", "mxfp4", kX, "--fail-if", "value_agreement<0.999"}).code == 1);
  CHECK(run({"agree", "nvfp4", "mxfp4", kX, "--fail-if", "choice_agreement<0.1"}).code == 1);
}

// ../shared/spec/numbers.md 3.1: row scale, ceiling 256, BF16 N(0,1): 9839 of 44,040,192 scale
// bytes differ for MAE and 3037 for MSE between the exact and the fast metric (another generator).
// Of 2^20 blocks that is 234 and 72; five standard deviations of a count are 77 and 43. The whole
// table: tools/fast_path_agreement.sh.
TEST_CASE("agree: the published agreement of the fast Four-over-Six path, on 2^20 blocks") {
  TempDir folder;
  const std::string x = folder.file("n01.safetensors");
  REQUIRE(run({"gen", x, "--dist", "normal", "--shape", "4096x4096", "--dtype", "bf16", "--seed",
               "7", "--quiet"})
              .code == 0);
  for (const auto& [select, expected, spread] :
       {std::tuple{"mae", 234, 77}, std::tuple{"mse", 72, 43}}) {
    const std::string recipe = std::string("nvfp4:scale=row,select=") + select;
    const json row =
        json::parse(run({"agree", recipe, recipe + ",metric=fast", x, "--json"}).out)["results"][0];
    CHECK(row["blocks"] == 1 << 20);
    const auto differing = row["scales_differing"].get<std::int64_t>();
    std::printf("row/256/%s: %lld of 1048576 scale bytes differ\n", select,
                static_cast<long long>(differing));
    CHECK(differing > expected - spread);
    CHECK(differing < expected + spread);
    CHECK(row["choices_differing"] == differing);
  }
}
