// sinks_test.cc: output files appear whole or not at all, whatever fails in between.
#include "analysis/io/sinks.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using fp4scope::test::TempDir;

namespace {

std::vector<std::string> files_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.exit_code() == 3);
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs `body` in a process of its own with a limit on the size of files, which makes writes fail
// with EFBIG as a full disk makes them fail with ENOSPC. Returns its exit status.
int with_file_limit(rlim_t bytes, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    int status = 99;
    if (::setrlimit(RLIMIT_FSIZE, &limit) == 0) status = body();
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a committed file is whole and leaves no temporary file") {
  const TempDir dir;
  AtomicFile file(dir.file("out.txt"));
  file.write("hello ", 6);
  file.write("world", 5);
  file.write_at(0, "J", 1);
  CHECK(files_in(dir).size() == 1);
  CHECK(!std::filesystem::exists(dir.file("out.txt")));
  file.commit();
  CHECK(files_in(dir) == std::vector<std::string>{"out.txt"});
  CHECK(test::read_file(dir.file("out.txt")) == "Jello world");
  CHECK(contains(message_of([&] { file.write("x", 1); }), "out.txt"));
  CHECK(contains(message_of([&] { file.commit(); }), "out.txt"));
}

TEST_CASE("a file that is not committed leaves nothing and does not touch an older one") {
  const TempDir dir;
  test::write_file(dir.file("old.txt"), "old");
  for (const char* name : {"new.txt", "old.txt"}) {
    AtomicFile file(dir.file(name));
    file.write("new", 3);
  }
  CHECK(files_in(dir) == std::vector<std::string>{"old.txt"});
  CHECK(test::read_file(dir.file("old.txt")) == "old");
}

TEST_CASE("a replaced file keeps its permissions, and a symbolic link stays a link") {
  const TempDir dir;
  test::write_file(dir.file("target"), "old");
  ::chmod(dir.file("target").c_str(), 0640);
  std::filesystem::create_symlink("target", dir.path() / "link");
  AtomicFile file(dir.file("link"));
  file.write("new", 3);
  file.commit();
  CHECK(std::filesystem::is_symlink(dir.path() / "link"));
  CHECK(test::read_file(dir.file("target")) == "new");
  struct stat status {};
  REQUIRE(::stat(dir.file("target").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
}

TEST_CASE("targets that cannot be written are refused with a sentence that names them") {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "folder");
  test::write_file(dir.file("plain"), "x");
  const struct {
    std::string path;
    const char* fragment;
  } cases[] = {
      {dir.file("folder"), "it is a directory"},
      {dir.file("missing/out"), "there is no directory"},
      {dir.file("plain/out"), "Not a directory"},
      {dir.file("new/"), "there is no directory"},
      {"/dev/null", "pipe, socket or device"},
      {"", "the file name is empty"},
      {std::string("a\0b", 3), "NUL byte"},
      {dir.file(std::string(300, 'n')), "File name too long"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.fragment));
    const std::string text = message_of([&] { AtomicFile file(c.path); });
    CAPTURE(text);
    CHECK(contains(text, c.fragment));
    CHECK(contains(text, "cannot write"));
  }
  CHECK(files_in(dir) == std::vector<std::string>{"folder", "plain"});
}

TEST_CASE("a name of the longest possible length can be written") {
  const TempDir dir;
  const std::string name(255, 'n');
  AtomicFile file(dir.file(name));
  file.commit();
  CHECK(files_in(dir) == std::vector<std::string>{name});
}

TEST_CASE("a write that fails removes the temporary file and keeps the old one") {
  const TempDir dir;
  test::write_file(dir.file("out"), "old");
  const int status = with_file_limit(1000, [&] {
    AtomicFile file(dir.file("out"));
    const std::string half(600, 'x');
    file.write(half.data(), half.size());
    try {
      file.write(half.data(), half.size());
      return 1;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.exit_code() != 3 || !contains(text, "cannot write " + dir.file("out")) ||
          !contains(text, "File too large")) {
        return 2;
      }
    }
    if (files_in(dir).size() != 1) return 3;  // gone at once, not only with the object
    try {
      file.commit();
      return 4;
    } catch (const Error&) {
    }
    return 0;
  });
  CHECK(status == 0);
  CHECK(files_in(dir) == std::vector<std::string>{"out"});
  CHECK(test::read_file(dir.file("out")) == "old");
}

TEST_CASE("unfinished files can be removed from a signal handler") {
  const TempDir dir;
  AtomicFile first(dir.file("a"));
  AtomicFile second(dir.file("b"));
  AtomicFile done(dir.file("c"));
  done.commit();
  CHECK(files_in(dir).size() == 3);
  remove_unfinished_files();
  CHECK(files_in(dir) == std::vector<std::string>{"c"});
  CHECK(contains(message_of([&] { first.commit(); }), "cannot write"));
}

TEST_CASE("many files in turn and many at once are listed for removal") {
  const TempDir dir;
  for (int i = 0; i < 70; ++i) AtomicFile(dir.file("turn")).commit();
  std::vector<std::unique_ptr<AtomicFile>> open;
  for (int i = 0; i < 64; ++i) {
    open.push_back(std::make_unique<AtomicFile>(dir.file(std::to_string(i))));
  }
  CHECK(contains(message_of([&] { AtomicFile one_more(dir.file("more")); }), "too many"));
  CHECK(files_in(dir).size() == 65);
  open.clear();
  CHECK(files_in(dir) == std::vector<std::string>{"turn"});
}

TEST_CASE("the safetensors writer gives the bytes that the format asks for") {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const std::vector<float> f32{1, -2};
  const std::vector<std::uint8_t> u8{1, 2, 3};
  {
    SafetensorsWriter writer(path,
                             {{"codes \"q\"", DType::kU8, {3, 1}},
                              {"empty", DType::kU8, {0, 7}},
                              {"amax", DType::kF32, {2}},
                              {"zero-d", DType::kF64, {}}},
                             {{"recipe", "a\nb"}, {"z", "\xC3\xA9"}});
    const double pi = 3.25;
    writer.write(0, 1, u8.data() + 1, 2);  // in any order and in pieces
    writer.write(2, 4, f32.data() + 1, 4);
    writer.write(3, 0, &pi, 8);
    writer.write(2, 0, f32.data(), 4);
    CHECK(contains(message_of([&] { writer.commit(); }), "only 2 of 3 bytes of tensor"));
    writer.write(0, 0, u8.data(), 1);
    CHECK(contains(message_of([&] { writer.write(0, 3, u8.data(), 1); }), "do not fit"));
    CHECK(contains(message_of([&] { writer.write(0, -1, u8.data(), 1); }), "do not fit"));
    writer.commit();
  }
  const std::string bytes = test::read_file(path);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  CHECK(length % 8 == 0);
  REQUIRE(bytes.size() == 8 + length + 8 + 8 + 3);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
  CHECK(header.size() == 5);
  CHECK(header["__metadata__"]["recipe"] == "a\nb");
  CHECK(header["__metadata__"]["z"] == "\xC3\xA9");
  CHECK(header["zero-d"] ==
        nlohmann::json::parse(R"({"dtype":"F64","shape":[],"data_offsets":[0,8]})"));
  CHECK(header["amax"] ==
        nlohmann::json::parse(R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})"));
  CHECK(header["codes \"q\""] ==
        nlohmann::json::parse(R"({"dtype":"U8","shape":[3,1],"data_offsets":[16,19]})"));
  CHECK(header["empty"] ==
        nlohmann::json::parse(R"({"dtype":"U8","shape":[0,7],"data_offsets":[19,19]})"));
  CHECK(bytes.substr(8 + length + 8, 8) == test::bytes_of(f32));
  CHECK(bytes.substr(8 + length + 16) == test::bytes_of(u8));
}

TEST_CASE("the safetensors writer refuses names and sizes that no file can have") {
  const TempDir dir;
  const std::string path = dir.file("w");
  const auto make = [&](std::vector<SafetensorsWriter::Entry> entries) {
    return message_of([&] { SafetensorsWriter writer(path, entries, {}); });
  };
  CHECK(contains(make({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), "occurs twice"));
  CHECK(contains(make({{"__metadata__", DType::kU8, {1}}}), "reserved"));
  CHECK(contains(make({{"\xFF", DType::kU8, {1}}}), "not UTF-8"));
  CHECK(contains(make({{"a", DType::kF32, {INT64_MAX}}}), "cannot be stored"));
  CHECK(contains(make({{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {INT64_MAX}}}), "2^63"));
  CHECK(contains(make({{"a", DType::kOther, {1}}}), "cannot be stored"));
  CHECK(files_in(dir).empty());
}

TEST_CASE("the safetensors writer takes pieces from several threads") {
  const TempDir dir;
  const std::string path = dir.file("w");
  constexpr std::int64_t kBytes = 1 << 20, kPiece = 1000;
  std::string want(kBytes, '\0');
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<char>(i * 2654435761u >> 13);
  SafetensorsWriter writer(path, {{"a", DType::kU8, {kBytes}}}, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t at = t * kPiece; at < kBytes; at += 4 * kPiece) {
        writer.write(0, at, want.data() + at,
                     static_cast<std::size_t>(std::min(kPiece, kBytes - at)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.commit();
  const std::string bytes = test::read_file(path);
  CHECK(bytes.substr(bytes.size() - kBytes) == want);
}
