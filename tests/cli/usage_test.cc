// What a person sees without doing any work: help, version, formats, info, and wrong usage.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

std::size_t line_count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("--version names version and git revision") {
  const Result result = run({"--version"});
  CHECK(result.code == 0);
  CHECK(result.out.starts_with("fp4scope 0."));
  CHECK(contains(result.out, "("));
  CHECK(line_count(result.out) == 1);
}

TEST_CASE("every command explains itself with an example that works") {
  CHECK(run({"--help"}).code == 0);
  for (const std::string command : {"formats", "info", "analyze", "agree", "verify", "identify",
                                    "explain", "golden", "gen", "quantize", "dequantize"}) {
    CAPTURE(command);
    const Result result = run({command, "--help"});
    CHECK(result.code == 0);
    CHECK(contains(run({"--help"}).out, command));
    const auto at = result.out.find("Example:\n");
    REQUIRE(at != std::string::npos);
    // The lines of the example, run in a folder of their own through links to program and data.
    TempDir folder;
    std::filesystem::create_symlink(FP4SCOPE_BINARY, folder.path() / "fp4scope");
    std::filesystem::create_directory_symlink(data_dir(), folder.path() / "data");
    std::istringstream lines(result.out.substr(at + 9));
    int examples = 0;
    for (std::string line; std::getline(lines, line) && line.starts_with("  fp4scope ");) {
      ++examples;
      // A line that ends with a backslash goes on.
      for (std::string more; line.ends_with('\\') && std::getline(lines, more);) {
        line.pop_back();
        line += more;
      }
      CAPTURE(line);
      const std::string shell =
          "cd '" + folder.path().string() + "' && PATH=.:$PATH " + line + " >/dev/null";
      CHECK(std::system(shell.c_str()) == 0);
    }
    CHECK(examples >= 1);
  }
}

TEST_CASE("formats e2m1 prints the code book of the OCP MX specification") {
  const Result result = run({"formats", "e2m1"});
  CHECK(result.code == 0);
  CHECK(result.out ==
        "e2m1: 4 bits, 1 sign, 2 exponent, 1 fraction, bias 1\n"
        "source: OCP MX v1.0 FP4\n"
        "largest 6 (0x7), smallest positive 0.5 (0x1), 15 finite levels\n"
        "zero 0x0 0x8, Inf none, NaN none\n"
        "\n"
        "code  bits    value\n"
        "0x0   0'00'0      0\n"
        "0x1   0'00'1    0.5\n"
        "0x2   0'01'0      1\n"
        "0x3   0'01'1    1.5\n"
        "0x4   0'10'0      2\n"
        "0x5   0'10'1      3\n"
        "0x6   0'11'0      4\n"
        "0x7   0'11'1      6\n"
        "0x8   1'00'0     -0\n"
        "0x9   1'00'1   -0.5\n"
        "0xa   1'01'0     -1\n"
        "0xb   1'01'1   -1.5\n"
        "0xc   1'10'0     -2\n"
        "0xd   1'10'1     -3\n"
        "0xe   1'11'0     -4\n"
        "0xf   1'11'1     -6\n");
}

TEST_CASE("formats NAME states the limits of the specification's table") {
  struct Case {
    const char* name;
    const char* want;
  };
  for (const Case& c : {
           Case{"e4m3", "largest 448 (0x7e), smallest positive 2^-9 (0x01)"},
           Case{"e5m2", "largest 57344 (0x7b), smallest positive 2^-16 (0x01)"},
           Case{"e6m2", "largest 49152 (0xfe), smallest positive 2^-48 (0x00)"},
           Case{"e8m0", "largest 2^127 (0xfe), smallest positive 2^-127 (0x00)"},
           Case{"fp16", "largest 65504 (0x7bff), smallest positive 2^-24 (0x0001)"},
           Case{"bf16", "smallest positive 2^-133 (0x0001)"},
           Case{"E2M3", "largest 7.5 (0x1f), smallest positive 0.125 (0x01)"},
           Case{"e4m3", "NaN 0x7f 0xff"},
           Case{"e5m2", "Inf 0x7c 0xfc, NaN 0x7d..0x7f 0xfd..0xff"},
           Case{"e6m2", "zero none, Inf none, NaN 0xff"},
           Case{"nvfp4", "4.5 bits per value, and 32 bits per tensor or row"},
           Case{"mxfp4", "4.25 bits per value"},
           Case{"HIF4", "4.5 bits per value"},
           Case{"ocp_floor_rne", "OCP MX v1.0 section 6.3"},
       }) {
    CAPTURE(c.name);
    const Result result = run({"formats", c.name});
    CHECK(result.code == 0);
    CAPTURE(result.out);
    CHECK(contains(result.out, c.want));
  }
}

TEST_CASE("the keys of formats NAME fit a terminal of 80 columns") {
  for (const char* name : {"mxfp4", "nvfp4", "hif4", "int4", "fp8", "bf16"}) {
    CAPTURE(name);
    const std::string out = run({"formats", name}).out;
    const std::size_t first = out.find("\nkeys\n"), last = out.find("\ndefaults\n");
    REQUIRE(first < last);
    REQUIRE(last != std::string::npos);
    std::istringstream lines(out.substr(first, last - first));
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
  }
}

TEST_CASE("every name that formats lists can be looked up") {
  const json out = json::parse(run({"formats", "--json"}).out);
  int names = 0;
  for (const json& row : out["results"]) {
    if (row["kind"] == "backend") continue;
    const std::string name = row["name"];
    CAPTURE(name);
    CHECK(run({"formats", name}).code == 0);
    ++names;
  }
  CHECK(names > 100);
  CHECK(run({"formats", "lut:nf4"}).code == 0);
}

TEST_CASE("formats lists formats, contracts, scalars and backends, also as JSON") {
  const Result text = run({"formats"});
  CHECK(text.code == 0);
  const json out = json::parse(run({"formats", "--json"}).out);
  std::size_t formats = 0, contracts = 0, scalars = 0, backends = 0;
  for (const json& row : out["results"]) {
    CHECK(contains(text.out, row["name"].get<std::string>()));
    formats += row["kind"] == "format";
    contracts += row["kind"] == "contract";
    scalars += row["kind"] == "scalar";
    backends += row["kind"] == "backend";
    if (row["kind"] == "contract") {
      CHECK((row["evidence"] == "verified" || row["evidence"] == "read" ||
             row["evidence"] == "inferred"));
      CHECK_FALSE(row["source"].get<std::string>().empty());
    }
  }
  CHECK(formats >= 3);
  CHECK(contracts >= 9);  // ocp-floor-rne, four of torchao, te, gcc, amct, a6
  CHECK(scalars >= 11);   // those of the specification's table, E8M0 among them
  CHECK(backends >= 2);   // reference and oracle
}

TEST_CASE("info prints names, dtypes, shapes and bytes as the file's header has them") {
  const Result result = run({"info", kSample});
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK(result.out ==
        "data/sample/use_lite_slice.safetensors (safetensors, 541344 bytes, 4 metadata entries)\n"
        "tensor                   dtype  shape    elements   bytes\n"
        "layers.1.attn_out.X      bf16   96x512      49152   98304\n"
        "layers.1.attn_out.W      bf16   256x512    131072  262144\n"
        "layers.1.mlp_down.X      bf16   48x1536     73728  147456\n"
        "layers.1.attn_out.W.f32  f32    16x512       8192   32768\n"
        "---------------------------------------------------------\n"
        "4 tensors                                  262144  540672\n");
}

TEST_CASE("info chooses tensors and speaks JSON") {
  const Result result =
      run({"info", kSample, "--include", "attn", "--exclude", "f32$", "--exclude", "X", "--json"});
  CHECK(result.code == 0);
  const json out = json::parse(result.out);
  REQUIRE(out["results"].size() == 1);
  CHECK(out["results"][0] == json::parse(R"({"file": "data/sample/use_lite_slice.safetensors",
                        "tensor": "layers.1.attn_out.W", "dtype": "bf16", "shape": [256, 512],
                        "elements": 131072, "bytes": 262144, "layer": 1})"));
  CHECK(out["totals"]["bytes"] == 262144);
  CHECK(out["sources"][0]["container"] == "safetensors");
  CHECK(json::parse(run({"info", kSample + ":layers.1.mlp_down.X", "--json"}).out)["results"]
            .size() == 1);
}

TEST_CASE("--dtype types the codes of npy files whose header names no type") {
  TempDir folder;
  // Two codes; numpy saves arrays of ml_dtypes types as void.
  std::string dict = "{'descr': '|V1', 'fortran_order': False, 'shape': (2, 1), }";
  dict.resize(117, ' ');
  const std::string path = folder.file("codes.npy");
  write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + "\n\x7f\x80");
  for (const auto& [dtype, name] : std::vector<std::pair<std::string, std::string>>{
           {"e8m0", "f8_e8m0"}, {"e4m3", "f8_e4m3"}, {"e5m2", "f8_e5m2"}}) {
    const Result result = run({"info", path, "--dtype", dtype, "--json"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    CHECK(json::parse(result.out)["results"][0]["dtype"] == name);
  }
  // A scale is no tensor value: analyze says which dtype it found.
  const Result result = run({"analyze", path, "--dtype", "e8m0"});
  CHECK(result.code == 4);
  CHECK(contains(result.err, "e8m0"));
}

TEST_CASE("info reads the header only: a file of 64 GiB takes no time") {
  TempDir folder;
  write_sparse_npy(folder.file("big.npy"), 1 << 17, 1 << 17);
  const auto start = std::chrono::steady_clock::now();
  const Result result = run({"info", folder.file("big.npy"), "--json"});
  CHECK(std::chrono::steady_clock::now() - start <
        std::chrono::seconds(5 * FP4SCOPE_TIMEOUT_FACTOR));
  CHECK(result.code == 0);
  CHECK(json::parse(result.out)["totals"]["bytes"] == std::int64_t{1} << 36);
}

TEST_CASE("wrong usage is one sentence on stderr and exit code 2") {
  struct Case {
    std::vector<std::string> args;
    const char* want;  // in the message
  };
  for (const Case& c : std::vector<Case>{
           {{},
            "formats, info, analyze, agree, verify, identify, explain, golden, gen, bench, "
            "quantize"},
           {{"analyse"}, "unknown command 'analyse'; the commands are formats, info, analyze"},
           {{"analyze"}, "FILE is required"},
           {{"analyze", kSample, "--frobnicate"}, "--frobnicate"},
           {{"analyze", kSample, "-r", "nvfp5"}, "nvfp4"},              // lists what there is
           {{"analyze", kSample, "-r", "nvfp4:scael=row"}, "scale"},    // lists the legal keys
           {{"analyze", kSample, "-r", "nvfp4:scale=rows"}, "tensor"},  // lists the legal values
           {{"analyze", kSample, "-r", "hif4:scale=row"}, "search"},    // a key of another format
           {{"analyze", kSample, "-r"}, "-r"},
           {{"analyze", kSample, "--include", "("}, "--include"},
           {{"analyze", kSample, "--group-by", "["}, "--group-by"},
           {{"analyze", kSample, "--backend", "abacus"}, "abacus"},
           {{"analyze", kSample, "--threads", "-2"}, "--threads"},
           {{"analyze", kSample, "--memory", "lots"}, "--memory"},
           {{"analyze", kSample, "--memory", "0"}, "the least is 24M"},
           {{"analyze", kSample, "--memory", "25165823"}, "the least is 24M"},
           {{"analyze", kSample, "--memory", "23M"}, "the least is 24M"},
           {{"analyze", kSample, "--memory", "-1"}, "the least is 24M"},
           {{"analyze", kSample, "--memory", "-1G"}, "the least is 24M"},
           {{"analyze", kSample, "--memory", "1.5G"}, "expected a whole number"},
           {{"analyze", kSample, "--memory", "G"}, "expected a whole number"},
           {{"analyze", kSample, "--memory", ""}, "expected a whole number"},
           {{"analyze", kSample, "--memory", "1 G B"}, "expected a whole number"},
           {{"analyze", kSample, "--memory", "99999999999T"}, "exceeds 64 bits"},
           {{"analyze", kSample, "--dtype", "fp4"}, "e8m0"},  // lists what there is
           {{"analyze", kSample + ":"}, "the tensor name after the colon is empty"},
           {{"info", kSample + ":"}, "the tensor name after the colon is empty"},
           {{"quantize", kSample + ":", "out.safetensors", "-r", "mxfp4"},
            "the tensor name after the colon is empty"},
           {{"dequantize", kSample + ":", "out.safetensors"},
            "the tensor name after the colon is empty"},
           {{"analyze", kSample, "--percentiles", "some"}, "--percentiles"},
           {{"analyze", kSample, "--json", "--csv"}, "--out"},
           {{"analyze", kSample, "--out", "report.html"}, "cannot write .html reports yet"},
           {{"analyze", kSample, "--out", "report"}, ".json, .csv or .h5"},
           {{"analyze", kSample, "--fail-if", "mse"}, "METRIC>VALUE"},
           {{"analyze", kSample, "--fail-if", "mse>"}, "is not a number"},
           {{"analyze", kSample, "--fail-if", "mse>1%"}, "is not a number"},
           {{"analyze", kSample, "--fail-if", "mse>nan"}, "is not a number"},
           {{"analyze", kSample, "--fail-if", "loss>1"}, "underflow_share"},  // lists the keys
           {{"analyze", kSample, "--include", "no such name"}, "--include"},
           {{"formats", "fp5"}, "fp5"},
           {{"quantize", kSample, "out.safetensors"}, "--recipe"},
           {{"quantize", kSample, kSample, "-r", "mxfp4"}, "would replace the input"},
       }) {
    const Result result = run(c.args);
    CAPTURE(c.args.size());
    CAPTURE(c.want);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(result.err.starts_with("fp4scope: "));
    CHECK(line_count(result.err) == 1);
    CHECK(contains(result.err, c.want));
  }
}

TEST_CASE("-r does not swallow the file after it, and a negative axis is a value") {
  const Result result =
      run({"analyze", "-r", "mxfp4", kSample + ":layers.1.attn_out.W", "--axis", "-1", "--json"});
  CHECK(result.code == 0);
  const Result columns =
      run({"analyze", "-r", "mxfp4", kSample + ":layers.1.attn_out.W", "--axis", "-2", "--json"});
  CHECK(columns.code == 0);
  // 256x512: 16 blocks in each of 256 rows, or 8 in each of 512 columns.
  CHECK(json::parse(result.out)["results"][0]["mse"] !=
        json::parse(columns.out)["results"][0]["mse"]);
}
