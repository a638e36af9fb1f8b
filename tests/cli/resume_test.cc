// analyze --resume: after Ctrl-C, a kill, a full disk or a changed file the same command goes on
// and writes the report of a run that was never interrupted. kill_runs.sh does it at random times.
#include <doctest/doctest.h>
#include <sys/file.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Four small tensors, and one that takes minutes where `slow`; older than any run.
struct Run {
  TempDir folder;
  std::string report = folder.file("out/r.json"), journal = report + ".resume";

  explicit Run(bool slow = false) {
    fs::create_directory(folder.path() / "in");
    fs::create_directory(folder.path() / "out");
    fs::copy_file(source_dir() / kSample, folder.file("in/a.safetensors"));
    if (slow) write_sparse_npy(folder.file("in/b.npy"), 1 << 17, 1 << 15);
    sleep_ms(30);
  }
  std::vector<std::string> command(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"analyze",  folder.file("in"), "-r",    "mxfp4",
                                      "-r",       "nvfp4",           "--out", report,
                                      "--resume", "--threads",       "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Until the four small ones are in the journal, more than 1000 bytes each, and the large one is
  // at work; at most a minute.
  void wait_for_journal() const {
    for (int i = 0; i < 1200; ++i, sleep_ms(50)) {
      std::error_code error;
      const std::uintmax_t size = fs::file_size(journal, error);
      if (!error && size > 6500) return sleep_ms(100);
    }
  }
  Setup stopped_by(int signal) const {
    return {.meanwhile = [this, signal](pid_t pid) {
      wait_for_journal();
      ::kill(pid, signal);
    }};
  }
  std::vector<std::string> outputs() const {
    std::vector<std::string> names = names_in(folder.path() / "out");
    std::sort(names.begin(), names.end());
    return names;
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("--resume needs an output") {
  const Result result = run({"analyze", kSample, "--resume"});
  CHECK(result.code == 2);
  CHECK(result.err ==
        "fp4scope: --resume needs --out FILE, beside which it keeps what is finished\n");
}

TEST_CASE("a run that is not interrupted leaves its report alone") {
  const Run run_once;
  const Result result = run(run_once.command());
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK(run_once.outputs() == Names{"r.json"});
  json with = json::parse(read_file(run_once.report));
  std::vector<std::string> command = run_once.command();
  std::erase(command, "--resume");
  CHECK(run(command).out == result.out);
  json without = json::parse(read_file(run_once.report));
  with["fp4scope"].erase("command");
  without["fp4scope"].erase("command");
  CHECK(with == without);
}

TEST_CASE("after a signal the same command uses what was finished") {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    const Run slow(true);
    const std::vector<std::string> more = {"--backend", "reference", "--exclude", "no such name"};
    const Result stopped = run(slow.command(more), slow.stopped_by(signal));
    CHECK(stopped.code == (signal == SIGKILL ? -SIGKILL : 128 + signal));
    CHECK(slow.outputs() == Names{"r.json.resume"});
    if (signal != SIGKILL) {
      CHECK(stopped.err == "fp4scope: " + slow.report + ": not written, the run was interrupted\n" +
                               "fp4scope: " + slow.journal +
                               " keeps the 4 finished tensors: the same command goes on from "
                               "there\n");
    }
    // That it is used shows in a file whose numbers changed behind the back of its size and time.
    const std::string input = slow.folder.file("in/a.safetensors");
    const auto time = fs::last_write_time(input);
    std::string bytes = read_file(input);
    std::fill(bytes.end() - 4096, bytes.end(), '\0');
    write_file(input, bytes);
    fs::last_write_time(input, time);
    write_sparse_npy(slow.folder.file("in/b.npy"), 4, 64);
    const Result resumed = run(slow.command(more));
    CHECK(resumed.code == 0);
    CHECK(resumed.err == "");
    CHECK(slow.outputs() == Names{"r.json"});
    const std::string report = read_file(slow.report);

    fs::copy_file(source_dir() / kSample, input, fs::copy_options::overwrite_existing);
    const Result whole = run(slow.command(more));
    CHECK(whole.code == 0);
    CHECK(whole.out == resumed.out);
    CHECK(read_file(slow.report) == report);
    write_file(input, bytes);
    CHECK(run(slow.command(more)).code == 0);
    CHECK(read_file(slow.report) != report);
  }
}

TEST_CASE("a second process on the same run is refused, and so are other settings") {
  const Run slow(true);
  Result second, other;
  const Result first = run(slow.command(), {.meanwhile = [&](pid_t pid) {
                             slow.wait_for_journal();
                             second = run(slow.command());
                             ::kill(pid, SIGKILL);
                           }});
  CHECK(second.code == 3);
  CHECK(second.err ==
        "fp4scope: --resume " + slow.journal +
            ": another process is working on this run; wait for it, or give another --out\n");
  const std::string before = read_file(slow.journal);
  other = run(slow.command({"--axis", "0", "--map-size", "8"}));
  CHECK(other.code == 2);
  CHECK(other.err == "fp4scope: --resume: " + slow.journal +
                         " keeps a run with other settings (--axis: \"-1\" then, \"0\" now; "
                         "--map-size: \"0\" then, \"8\" now); give the settings of then, delete "
                         "the file, or run without --resume\n");
  CHECK(read_file(slow.journal) == before);
  // Without --resume nobody looks at it.
  write_sparse_npy(slow.folder.file("in/b.npy"), 4, 64);
  std::vector<std::string> command = slow.command({"--axis", "0"});
  std::erase(command, "--resume");
  CHECK(run(command).code == 0);
  CHECK(read_file(slow.journal) == before);
}

TEST_CASE("a full disk under the report keeps the journal, and the next run writes the report") {
  const Run full;
  // Between the journal and the report.
  const Result failed = run(full.command(), {.file_limit = 20000});
  CAPTURE(failed.err);
  CHECK(failed.code == 3);
  CHECK(contains(failed.out, "all, 4 tensors"));
  CHECK(failed.err == "fp4scope: cannot write " + full.report + ": File too large\n" +
                          "fp4scope: " + full.journal +
                          " keeps the 4 finished tensors: the same command goes on from there\n");
  CHECK(full.outputs() == Names{"r.json.resume"});
  const Result done = run(full.command());
  CHECK(done.code == 0);
  CHECK(done.out == failed.out);
  CHECK(full.outputs() == Names{"r.json"});
  const std::string report = read_file(full.report);
  CHECK(run(full.command()).code == 0);
  CHECK(read_file(full.report) == report);
}

TEST_CASE("a report that standard output does not take keeps the journal") {
  const Run piped;
  const Result result = run(piped.command(), {.out = Stdout::kFull});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "standard output"));
  CHECK(contains(result.err, "keeps the 4 finished tensors"));
  CHECK(piped.outputs() == Names{"r.json", "r.json.resume"});
  CHECK(run(piped.command()).code == 0);
  CHECK(piped.outputs() == Names{"r.json"});
}

TEST_CASE("a journal that cannot be written does not end the run") {
  const Run full;
  // Room for the settings and some tensors.
  const Result result = run(full.command(), {.file_limit = 5000});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "fp4scope: cannot write " + full.journal +
                                 ": File too large; the run goes on, but what it finishes from "
                                 "here on is not kept for --resume\n"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') <= 3);
  CHECK(contains(result.out, "all, 4 tensors"));
  CHECK(run(full.command()).code == 0);
  CHECK(full.outputs() == Names{"r.json"});
}

TEST_CASE("a damaged journal costs time, not figures") {
  const Run run_once;
  run(run_once.command(), {.out = Stdout::kFull});
  const std::string report = read_file(run_once.report);
  std::string bytes = read_file(run_once.journal);
  bytes[bytes.size() / 2] ^= 1;
  write_file(run_once.journal, bytes);
  const Result result = run(run_once.command());
  CHECK(result.code == 0);
  CHECK(result.err.starts_with("fp4scope: " + run_once.journal + " is damaged at byte "));
  CHECK(result.err.ends_with(": one tensor is computed again\n"));
  CHECK(read_file(run_once.report) == report);
  CHECK(run_once.outputs() == Names{"r.json"});
}

TEST_CASE("a tensor that one recipe refuses is finished too, and its error is reported again") {
  const Run run_once;
  write_sparse_npy(run_once.folder.file("in/z.npy"), 3, 17);
  sleep_ms(30);
  const std::vector<std::string> more = {"-r", "mxfp4:ragged=error"};
  const Result first = run(run_once.command(more), {.out = Stdout::kFull});
  CHECK(first.code == 3);
  CHECK(contains(first.err, "keeps the 5 finished tensors"));
  const std::string report = read_file(run_once.report);
  const Result second = run(run_once.command(more));
  CHECK(second.code == 3);
  CHECK(contains(second.err, "expected rows of a multiple of 32 elements (ragged=error)"));
  CHECK(read_file(run_once.report) == report);
}

TEST_CASE("temporary files that a killed process left are removed, those of others are not") {
  const Run run_once;
  write_file(run_once.folder.file("out/r.json.999999-0.tmp"), "half a report");
  for (const char* other : {"r.json.tmp", "r.json.1-.tmp", "r.json.a-0.tmp", "q.json.1-0.tmp"}) {
    write_file(run_once.folder.file(std::string("out/") + other), "of a user");
  }
  // One that is being written is locked.
  const std::string busy = run_once.folder.file("out/r.json.1-1.tmp");
  write_file(busy, "of a process that runs");
  const int fd = ::open(busy.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  CHECK(run(run_once.command()).code == 0);
  CHECK(run_once.outputs() == Names{"q.json.1-0.tmp", "r.json", "r.json.1-.tmp", "r.json.1-1.tmp",
                                    "r.json.a-0.tmp", "r.json.tmp"});
  ::close(fd);
}
