// Runs that end before they are done: Ctrl-C and other signals, and input files that are cut while
// they are read. Nothing half-written stays.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Waits until a megabyte of the mapped `path` has been touched, so that its header was read and
// its values are being read; false after two minutes.
bool wait_until_read(pid_t pid, const std::string& path) {
  for (int i = 0; i < 12000; ++i, sleep_ms(10)) {
    const std::string maps = read_file("/proc/" + std::to_string(pid) + "/smaps");
    const std::size_t mapping = maps.find(path);
    if (mapping == std::string::npos) continue;
    const std::size_t rss = maps.find("\nRss:", mapping);
    if (rss != std::string::npos && std::stoll(maps.substr(rss + 5)) >= 1024) return true;
  }
  return false;
}

// The reader finds the file shorter than it was, or a page that is not there any more.
bool says_that_it_was_cut(const std::string& text, const std::string& file,
                          const std::string& bytes) {
  const std::string start = "fp4scope: " + file + " was cut ";
  return text == start + "from " + bytes + " to 4096 bytes while it was being read\n" ||
         text == start + "short or could not be read while it was being read\n";
}

}  // namespace

TEST_CASE("Ctrl-C, SIGTERM and SIGHUP end the run soon and leave no part of a file") {
  TempDir folder;
  write_sparse_npy(folder.file("huge.npy"), 1 << 17, 1 << 15);
  std::filesystem::create_directory(folder.path() / "out");
  const std::vector<std::vector<std::string>> commands = {
      {"analyze", folder.file("huge.npy"), "--backend", "reference", "--threads", "1", "--out",
       folder.file("out/r.json")},
      {"quantize", folder.file("huge.npy"), folder.file("out/q.safetensors"), "-r", "nvfp4",
       "--backend", "reference", "--threads", "1"}};
  for (const auto& command : commands) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      CAPTURE(command[0]);
      auto sent = std::chrono::steady_clock::now();
      const Result result = run(command, {.meanwhile = [&](pid_t pid) {
                                  sleep_ms(700);
                                  sent = std::chrono::steady_clock::now();
                                  ::kill(pid, signal);
                                }});
      CAPTURE(result.err);
      CHECK(result.code == 128 + signal);
      CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(10));
      CHECK(names_in(folder.path() / "out").empty());
    }
  }
}

TEST_CASE("a second Ctrl-C ends the run at once") {
  TempDir folder;
  // The exact oracle takes about a second for a tile of a million elements, and the first signal
  // alone waits for the end of a tile.
  write_sparse_npy(folder.file("x.npy"), 4096, 1024);
  {
    std::fstream data(folder.file("x.npy"), std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(128);
    std::vector<float> row(1024);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i % 97) * 0.37f;
    for (int r = 0; r < 4096; ++r) {
      data.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(4 * 1024));
    }
  }
  // On a busy machine the tile may end between the two signals, or both arrive as one.
  bool at_once = false;
  for (int attempt = 0; attempt < 5 && !at_once; ++attempt) {
    const Result result = run({"quantize", folder.file("x.npy"), folder.file("q.safetensors"), "-r",
                               "hif4", "--backend", "oracle", "--threads", "1"},
                              {.meanwhile = [&](pid_t pid) {
                                sleep_ms(400);
                                ::kill(pid, SIGINT);
                                sleep_ms(50);
                                ::kill(pid, SIGINT);
                              }});
    CHECK(result.code == 130);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"x.npy"});
    at_once = result.err.empty();  // the orderly end after one signal says that it was interrupted
  }
  CHECK(at_once);
}

TEST_CASE("an input file that is cut while it is read is one sentence, and exit code 3") {
  TempDir folder;
  std::filesystem::create_directory(folder.path() / "out");
  const std::string input = folder.file("x.npy");
  // Whether the reader's own check or the page fault comes first differs from try to try.
  for (int attempt = 0; attempt < 8; ++attempt) {
    write_sparse_npy(input, 1 << 17, 1 << 13);  // 4 GiB
    const bool quantizes = attempt % 2 == 1;
    const std::vector<std::string> command =
        quantizes ? std::vector<std::string>{"quantize", input,   folder.file("out/q.safetensors"),
                                             "-r",       "mxfp4", "--threads",
                                             "2"}
                  : std::vector<std::string>{"analyze", input, "-r", "mxfp4", "--threads", "2"};
    const Result result = run(command, {.meanwhile = [&](pid_t pid) {
                                CHECK(wait_until_read(pid, input));
                                sleep_ms(100);
                                std::filesystem::resize_file(input, 4096);
                              }});
    CAPTURE(result.code);
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(says_that_it_was_cut(result.err, input, "4294967424"));
    CHECK(names_in(folder.path() / "out").empty());
  }
}

TEST_CASE("a file of a directory that is cut while it is read does not take the others with it") {
  TempDir folder;
  std::filesystem::create_directory(folder.path() / "in");
  std::filesystem::create_directory(folder.path() / "out");
  write_sparse_npy(folder.file("in/a.npy"), 8, 64);
  write_sparse_npy(folder.file("in/c.npy"), 16, 32);
  const std::string input = folder.file("in/b.npy");
  for (int attempt = 0; attempt < 4; ++attempt) {
    write_sparse_npy(input, 1 << 17, 1 << 13);  // 4 GiB
    const bool resumes = attempt % 2 == 1;
    std::vector<std::string> command = {"analyze",   folder.file("in"),
                                        "-r",        "mxfp4",
                                        "-r",        "hif4",
                                        "--out",     folder.file("out/r.json"),
                                        "--out",     folder.file("out/r.csv"),
                                        "--threads", "2"};
    if (resumes) command.emplace_back("--resume");
    const Result result = run(command, {.meanwhile = [&](pid_t pid) {
                                CHECK(wait_until_read(pid, input));
                                sleep_ms(100);
                                std::filesystem::resize_file(input, 4096);
                              }});
    CAPTURE(result.code);
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(says_that_it_was_cut(result.err, input, "4294967424"));
    CHECK(result.out.find("all, 2 tensors") != std::string::npos);
    const json report = json::parse(read_file(folder.file("out/r.json")));
    std::vector<std::string> rows;
    for (const json& row : report["results"]) {
      rows.push_back(row["tensor"].get<std::string>() + " " + row["recipe"].get<std::string>());
    }
    CHECK(rows == std::vector<std::string>{"a mxfp4", "a hif4", "c mxfp4", "c hif4"});
    CHECK(report["interrupted"] == false);
    REQUIRE(report["errors"].size() == 1);
    CHECK(report["errors"][0]["file"] == input);
    const std::string csv = read_file(folder.file("out/r.csv"));
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 5);
    CHECK(names_in(folder.path() / "out").size() == 2);
  }
}

TEST_CASE("SIGBUS leaves no part of a file") {
  TempDir folder;
  write_sparse_npy(folder.file("huge.npy"), 1 << 17, 1 << 15);
  std::filesystem::create_directory(folder.path() / "out");
  std::vector<std::string> before;
  const Result result = run({"quantize", folder.file("huge.npy"), folder.file("out/q.safetensors"),
                             "-r", "nvfp4", "--backend", "reference", "--threads", "1"},
                            {.meanwhile = [&](pid_t pid) {
                              // Until the output file is begun.
                              for (int i = 0; i < 200 && before.empty(); ++i) {
                                sleep_ms(50);
                                before = names_in(folder.path() / "out");
                              }
                              ::kill(pid, SIGBUS);
                            }});
  CHECK(before.size() == 1);
  CHECK(result.code == 3);
  // A signal that another process sends has no address and so no file.
  CHECK(result.err ==
        "fp4scope: an input file was cut short or could not be read while it was being read\n");
  CHECK(names_in(folder.path() / "out").empty());
}
