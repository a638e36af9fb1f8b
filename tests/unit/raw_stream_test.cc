// raw_stream_test.cc: files without a header, and inputs that can be read only once: FIFOs, pipes,
// sockets, standard input.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "analysis/io/scratch.h"
#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using namespace fp4scope::test;
using namespace std::chrono_literals;

namespace {

using Shape = std::vector<std::int64_t>;

std::unique_ptr<TensorSource> open_raw(const std::string& path, const RawLayout& layout) {
  OpenOptions options;
  options.raw = layout;
  return open_source(path, options);
}

std::vector<float> floats_of(const TensorSource& source) {
  const TensorInfo& tensor = source.tensors().at(0);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  source.read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
  return values;
}

const std::string kNpy = npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                                   bytes_of<float>({1.5f, -2.0f}));

// Writes into a FIFO, pipe or socket, slowly enough that a reader has to wait, and closes it.
void feed(int fd, std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 40) {
    std::this_thread::sleep_for(2ms);
    const std::string_view piece = bytes.substr(i, 40);
    if (::write(fd, piece.data(), piece.size()) < 0) break;
  }
  ::close(fd);
}

// Puts `fd` in the place of standard input while it lives.
class StandardInput {
 public:
  explicit StandardInput(int fd) : saved_(::dup(STDIN_FILENO)) {
    ::dup2(fd, STDIN_FILENO);
    ::close(fd);
  }
  ~StandardInput() {
    ::dup2(saved_, STDIN_FILENO);
    ::close(saved_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  int saved_;
};

}  // namespace

TEST_CASE("raw files of every dtype, from an offset, with an inferred extent") {
  const TempDir dir;
  const std::string path = dir.file("layer.0.bin");
  write_file(path, "head" + bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const auto source = open_raw(path, {.shape = {2, 3}, .offset = 4});
  CHECK(source->info().container == "raw");
  CHECK(source->info().bytes == 28);
  const TensorInfo& tensor = source->tensors().at(0);
  CHECK(tensor.name == "layer.0");
  CHECK(tensor.dtype_text == "f32");
  CHECK(tensor.bytes == 24);
  CHECK(floats_of(*source) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(open_raw(path, {.shape = {-1, 3}, .offset = 4})->tensors()[0].shape == Shape{2, 3});
  CHECK(open_raw(path, {.shape = {3, -1}, .offset = 4})->tensors()[0].shape == Shape{3, 2});
  CHECK(open_raw(path, {.shape = {-1}, .offset = 28})->tensors()[0].shape == Shape{0});
  CHECK(floats_of(*open_raw(path, {.shape = {}, .offset = 24})) == std::vector<float>{6});
  CHECK(floats_of(*open_raw(path, {.shape = {2}, .offset = 8, .ends_file = false})) ==
        std::vector<float>{2, 3});

  const std::string none = dir.file("x");
  write_file(none, std::string("\x00\x3C\x80\x3F\x38\x3C\x7F\x80", 8));
  CHECK(open_raw(none, {.dtype = DType::kF16, .shape = {4}})->tensors()[0].name == "x");
  CHECK(floats_of(*open_raw(none, {.dtype = DType::kF16, .shape = {1}, .ends_file = false})) ==
        std::vector<float>{1});
  CHECK(floats_of(*open_raw(
            none, {.dtype = DType::kBF16, .shape = {1}, .offset = 2, .ends_file = false})) ==
        std::vector<float>{1});
  CHECK(floats_of(*open_raw(
            none, {.dtype = DType::kF8E4M3, .shape = {1}, .offset = 4, .ends_file = false})) ==
        std::vector<float>{1});
  CHECK(floats_of(*open_raw(
            none, {.dtype = DType::kF8E5M2, .shape = {1}, .offset = 5, .ends_file = false})) ==
        std::vector<float>{1});
  for (const DType dtype : {DType::kF8E8M0, DType::kU8, DType::kI8}) {
    const auto bytes = open_raw(none, {.dtype = dtype, .shape = {8}});
    std::uint8_t two[2];
    bytes->read_raw(bytes->tensors()[0], 0, 1, 6, 2, two);
    CHECK(two[0] == 0x7F);
    CHECK(two[1] == 0x80);
  }
  // A file that looks like another container is still raw.
  write_file(none, kNpy);
  CHECK(open_raw(none, {.dtype = DType::kU8, .shape = {-1}})->tensors()[0].elements ==
        std::ssize(kNpy));
}

TEST_CASE("raw layouts that do not fit are refused with their own sentence") {
  const TempDir dir;
  const std::string path = dir.file("x.raw");
  write_file(path, std::string(24, 'x'));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const struct {
    const char* name;
    RawLayout layout;
    int exit_code;
    const char* fragment;
  } cases[] = {
      {"too short",
       {.shape = {7}},
       3,
       "the shape [7] of f32 needs 28 bytes from byte 0, found 24 (truncated?)"},
      {"too long",
       {.shape = {5}},
       3,
       "the shape [5] of f32 needs 20 bytes from byte 0, found 24; give an offset"},
      {"too short with an offset",
       {.shape = {5}, .offset = 8, .ends_file = false},
       3,
       "needs 20 bytes from byte 8, found 16"},
      {"offset behind the end", {.shape = {1}, .offset = 25}, 3, "the offset 25 lies behind"},
      {"negative offset",
       {.shape = {1}, .offset = -1},
       2,
       "the offset -1 of a raw file is negative"},
      {"largest offset", {.shape = {1}, .offset = kMax}, 3, "lies behind the end"},
      {"negative extent", {.shape = {-2}}, 2, "has a negative extent"},
      {"two inferred", {.shape = {-1, -1}}, 2, "at most one -1"},
      {"smallest extent", {.shape = {-kMax - 1}}, 2, "has a negative extent"},
      {"product overflows", {.shape = {kMax, 2}}, 2, "exceeds 64 bits"},
      {"product wraps to 6", {.shape = {(std::int64_t{1} << 62) + 3, 4}}, 2, "exceeds 64 bits"},
      {"bits overflow",
       {.dtype = DType::kU8, .shape = {std::int64_t{1} << 60}},
       2,
       "exceeds 64 bits"},
      {"inferred beside a product that overflows", {.shape = {-1, kMax, 2}}, 2, "exceeds 64 bits"},
      {"inferred beside 0", {.shape = {-1, 0}}, 2, "leaves -1 open, since another extent is 0"},
      {"no multiple",
       {.shape = {-1, 5}},
       3,
       "24 bytes from byte 0 do not fill the shape [-1, 5] of f32, expected a multiple of the 20"},
      {"no dtype", {.dtype = DType::kOther, .shape = {24}}, 2, "needs a dtype"},
      {"65 dimensions", {.shape = Shape(65, 1)}, 2, "has more than 64 dimensions"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    try {
      open_raw(path, c.layout);
      FAIL_CHECK("the layout was accepted");
    } catch (const Error& error) {
      const std::string text = error.what();
      CAPTURE(text);
      CHECK(error.exit_code() == c.exit_code);
      CHECK(text.find(c.fragment) != std::string::npos);
      CHECK(text.find(path) != std::string::npos);
    }
  }
}

TEST_CASE("more than 2^31 elements of a raw file above 4 GiB") {
  const TempDir dir;
  const std::string path = dir.file("large.raw");
  constexpr std::int64_t kElements = 3'000'000'000;
  write_file(path, "");
  std::filesystem::resize_file(path, 2 * kElements - 2);
  {
    std::ofstream out(path, std::ios::binary | std::ios::app);
    out.write("\x00\x3C", 2);
  }
  const auto source = open_raw(path, {.dtype = DType::kF16, .shape = {kElements}});
  float last[2] = {5, 5};
  source->read_f32(source->tensors()[0], 0, 1, kElements - 2, 2, last);
  CHECK(last[0] == 0);
  CHECK(last[1] == 1);
}

TEST_CASE("a FIFO is read to its end, however slowly it comes, and waits for its writer") {
  const TempDir dir;
  const std::string path = dir.file("pipe.npy");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(300ms);
    feed(::open(path.c_str(), O_WRONLY), kNpy);
  });
  const auto source = open_source(path, {.scratch_folder = dir.path().string()});
  writer.join();
  CHECK(source->info().container == "npy");
  CHECK(source->tensors().at(0).name == "pipe");
  CHECK(floats_of(*source) == std::vector<float>{1.5f, -2.0f});
  // The scratch file has no name.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("pipes by their descriptor, sockets and redirected files") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::thread writer([&] { feed(ends[1], kNpy); });
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  const auto source = open_source(path);
  writer.join();
  ::close(ends[0]);
  CHECK(floats_of(*source) == std::vector<float>{1.5f, -2.0f});

  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  {
    std::thread sender([&] { feed(ends[1], kNpy); });
    const StandardInput input(ends[0]);
    const auto from_socket = open_source("-");
    sender.join();
    CHECK(from_socket->info().path == "-");
    CHECK(from_socket->tensors().at(0).file == "standard input");
    CHECK(floats_of(*from_socket) == std::vector<float>{1.5f, -2.0f});
  }

  const TempDir dir;
  write_file(dir.file("x.npy"), kNpy);
  {
    const StandardInput input(::open(dir.file("x.npy").c_str(), O_RDONLY));
    // Nothing is copied: the scratch folder is not needed.
    const auto file = open_source("-", {.scratch_folder = dir.file("nowhere")});
    CHECK(floats_of(*file) == std::vector<float>{1.5f, -2.0f});
  }
  write_file(dir.file("x.npy"), "skipped" + kNpy);
  {
    const int fd = ::open(dir.file("x.npy").c_str(), O_RDONLY);
    REQUIRE(::lseek(fd, 7, SEEK_SET) == 7);
    const StandardInput input(fd);
    CHECK(floats_of(*open_source("-")) == std::vector<float>{1.5f, -2.0f});
  }
}

TEST_CASE("what is no stream with an end is refused") {
  const TempDir dir;
  const std::string socket_path = dir.file("socket");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(socket_path.size() < sizeof address.sun_path);
  socket_path.copy(address.sun_path, socket_path.size());
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const struct {
    std::string path;
    const char* fragment;
  } cases[] = {
      {"/dev/zero", "it is a device, expected a file or pipe"},
      {"/dev/null", "it is a device"},
      {"/dev/urandom", "it is a device"},
      {socket_path, "No such device or address"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.path);
    CHECK_THROWS_WITH_AS(open_source(c.path), doctest::Contains(c.fragment), Error);
  }
  ::close(listener);
  for (const auto& [name, fragment] :
       {std::pair{"/dev/zero", "cannot read standard input: it is a device"},
        std::pair{"/", "cannot read standard input: it is a directory"}}) {
    const StandardInput input(::open(name, O_RDONLY));
    CHECK_THROWS_WITH_AS(open_source("-"), doctest::Contains(fragment), Error);
  }
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[1]);
  {
    const StandardInput input(ends[0]);
    CHECK_THROWS_WITH_AS(open_source("-"), "cannot read standard input: nothing came out of it",
                         Error);
  }
  // Closed: nothing is read from the next file that happens to get this number.
  REQUIRE(::pipe(ends) == 0);
  {
    const StandardInput input(ends[0]);
    ::close(STDIN_FILENO);
    CHECK_THROWS_WITH_AS(open_source("-"), doctest::Contains("Bad file descriptor"), Error);
  }
  ::close(ends[1]);
}

TEST_CASE("waiting for a pipe ends soon after the stop flag is set") {
  const TempDir dir;
  const std::string path = dir.file("fifo");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  for (const bool has_writer : {false, true}) {
    CAPTURE(has_writer);
    // Both ends, so that opening does not wait.
    const int writer = has_writer ? ::open(path.c_str(), O_RDWR) : -1;
    std::atomic<bool> stop{false};
    std::thread signal([&] {
      std::this_thread::sleep_for(200ms);
      stop = true;
    });
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH_AS(open_source(path, {.stop = &stop}), "interrupted", Error);
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    signal.join();
    if (writer >= 0) ::close(writer);
  }
}

TEST_CASE("a scratch folder that is full or missing is named") {
  const TempDir dir;
  const auto read_pipe = [&](const std::string& folder) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::thread writer([&] { feed(ends[1], kNpy); });
    std::string text;
    try {
      spool_stream("/dev/fd/" + std::to_string(ends[0]), folder, nullptr);
    } catch (const Error& error) {
      CHECK(error.exit_code() == 3);
      text = error.what();
    }
    ::close(ends[0]);
    writer.join();
    return text;
  };
  const auto old_pipe = ::signal(SIGPIPE, SIG_IGN);
  CHECK(read_pipe(dir.file("none"))
            .find("a scratch file in " + dir.file("none") +
                  ": No such file or directory (TMPDIR names another "
                  "folder)") != std::string::npos);
  // A limit of the file size fails as a full disk does, with another text.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{50, before.rlim_max};
  const auto old_size = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string text = read_pipe(dir.path().string());
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_size);
  ::signal(SIGPIPE, old_pipe);
  CHECK(text.find("File too large (TMPDIR names another folder)") != std::string::npos);
  CHECK(std::filesystem::is_empty(dir.path()));
}
