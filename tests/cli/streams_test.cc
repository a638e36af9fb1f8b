// Inputs that can be read only once, as a shell gives them: pipes, FIFOs, "-", process
// substitution.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "tests/cli/process.h"

using namespace fp4scope::test;

namespace {

// bash, since process substitution is none of sh.
Result shell(const std::string& line) {
  TempDir folder;
  write_file(folder.file("line"), "cd '" + source_dir().string() + "'\nfp4scope() { '" +
                                      FP4SCOPE_BINARY + "' \"$@\"; }\n" + line + "\n");
  const std::string command = "bash '" + folder.file("line") + "' > '" + folder.file("out") +
                              "' 2> '" + folder.file("err") + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder.file("out")),
          read_file(folder.file("err"))};
}

// The table without its first line, which names the input.
std::string numbers(const std::string& text) {
  return text.substr(text.find('\n') + 1);
}

}  // namespace

TEST_CASE("a pipe gives what the file gives") {
  const Result file = run({"info", kSample});
  REQUIRE(file.code == 0);
  const std::string lines[] = {
      "cat " + kSample + " | fp4scope info -", "fp4scope info - < " + kSample,
      "cat " + kSample + " | fp4scope info /dev/stdin", "fp4scope info <(cat " + kSample + ")"};
  for (const std::string& line : lines) {
    CAPTURE(line);
    const Result result = shell(line);
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(numbers(result.out) == numbers(file.out));
    CHECK(result.err.empty());
  }
  const Result json = shell("cat " + kSample + " | fp4scope analyze - -r mxfp4 --json");
  CAPTURE(json.err);
  CHECK(json.code == 0);
  CHECK(json.out.find("\"standard input\"") != std::string::npos);
}

TEST_CASE("advice for what comes through a pipe names no file that is not there") {
  TempDir folder;
  REQUIRE(run({"gen", folder.file("x.npy"), "--shape", "2x32", "--dtype", "f32"}).code == 0);
  const Result packed = shell("gzip -c '" + folder.file("x.npy") + "' | fp4scope info -");
  CHECK(packed.code == 4);
  CHECK(packed.err ==
        "fp4scope: standard input is compressed with gzip, expected a container of tensors: pipe "
        "it through gzip -dc\n");
  const Result codes = shell("head -c 64 /dev/zero | fp4scope verify -r mxfp4 --input '" +
                             folder.file("x.npy") + "' --codes - --quiet");
  CHECK(codes.code == 3);
  CHECK(codes.err.find("np.fromfile(FILE, np.uint8)") != std::string::npos);
}

TEST_CASE("streams without an end, without a begin and without room") {
  TempDir folder;
  const struct {
    std::string line, fragment;
  } cases[] = {
      {"fp4scope info /dev/zero", "cannot read /dev/zero: it is a device"},
      {"fp4scope info - < /dev/null", "cannot read standard input: it is a device"},
      {"true | fp4scope info -", "cannot read standard input: nothing came out of it"},
      // Closed streams are opened on /dev/null at the start, so that no other file takes their
      // number.
      {"fp4scope info - <&-", "cannot read standard input: it is a device"},
      {"echo text, longer than eight bytes | fp4scope info -", "standard input is no container"},
      {"cat " + kSample + " | TMPDIR=/does/not/exist fp4scope info -",
       "in /does/not/exist: No such file or directory (TMPDIR names another folder)"},
      {"cat " + kSample + " | (ulimit -f 8; TMPDIR='" + folder.path().string() +
           "' fp4scope info -)",
       "in " + folder.path().string() + ": File too large (TMPDIR names another folder)"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.line);
    const Result result = shell(c.line);
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(result.err.find(c.fragment) != std::string::npos);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("Ctrl-C ends the wait for a FIFO whose writer never comes") {
  TempDir folder;
  const std::string fifo = folder.file("fifo.npy");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const std::vector<std::vector<std::string>> commands = {
      {"info", fifo},
      {"analyze", fifo},
      {"quantize", fifo, folder.file("q.safetensors"), "-r", "mxfp4"},
      {"dequantize", fifo, folder.file("q.safetensors")}};
  for (const auto& command : commands) {
    CAPTURE(command[0]);
    auto sent = std::chrono::steady_clock::now();
    const Result result = run(command, {.meanwhile = [&](pid_t pid) {
                                std::this_thread::sleep_for(std::chrono::milliseconds(400));
                                sent = std::chrono::steady_clock::now();
                                ::kill(pid, SIGINT);
                              }});
    CAPTURE(result.err);
    CHECK(result.code == 130);
    CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(5));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"fifo.npy"});
  }
}

TEST_CASE("looking whether --out would replace an input does not use up a FIFO") {
  TempDir folder;
  const std::string fifo = folder.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const Result result =
      shell("touch '" + folder.file("r.json") + "'; cat " + kSample + " > '" + fifo +
            "' & fp4scope analyze '" + fifo + "' -r mxfp4 --out '" + folder.file("r.json") + "'");
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(read_file(folder.file("r.json")).find("\"results\"") != std::string::npos);
}
