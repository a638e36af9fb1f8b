// pytorch_malicious_test.cc: the files of data/containers/malicious (pickles and archives that want
// to run code, to exhaust memory or to be read beyond their end), PyTorch files cut at every byte
// and with single wrong bytes. What malicious.json says about each file was written by hand.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/allocations.h"
#include "tests/support/paths.h"
#include "tests/unit/pytorch_support.h"

using namespace fp4scope;
using namespace fp4scope::test::torch;
using fp4scope::test::TempDir;

namespace {

// Opens and reads every tensor to its end.
void read_all(const std::string& path) {
  const auto source = open_source(path);
  for (const TensorInfo& tensor : source->tensors()) {
    REQUIRE(tensor.bytes < 1 << 20);
    std::vector<std::uint8_t> raw(static_cast<std::size_t>(tensor.bytes));
    try {
      source->read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), raw.data());
    } catch (const Error& error) {
      // Listed, but without bytes: objects of numpy, meta tensors.
      if (error.kind() != ErrorKind::kUnsupported) throw;
    }
  }
}

std::filesystem::path folder() {
  return test::source_dir() / "data/containers";
}

}  // namespace

TEST_CASE("malicious files are refused with the opcode named, or are inert") {
  std::ifstream in(folder() / "malicious/malicious.json");
  const auto rows = nlohmann::json::parse(in);
  int refused = 0, inert = 0, named = 0;
  for (const auto& row : rows) {
    const auto file = row.at("file").get<std::string>();
    const auto must = row.at("must").get<std::string>();
    CAPTURE(file);
    CAPTURE(row.at("what").get<std::string>());
    const std::string path = (folder() / "malicious" / file).string();
    std::string found = "inert";
    test::reset_allocations();
    try {
      read_all(path);
    } catch (const Error& error) {
      found = "refuse";
      const std::string text = error.what();
      CAPTURE(text);
      CHECK((error.exit_code() == 3 || error.exit_code() == 4));
      CHECK(text.find(path) != std::string::npos);
      CHECK(text.find('\n') == std::string::npos);
      CHECK(text.find('\0') == std::string::npos);
      CHECK(text.size() < path.size() + 500);
      if (!row.at("opcode").is_null()) {
        const std::string opcode = row.at("opcode");
        CHECK(std::regex_search(text, std::regex(": (opcode )?" + opcode + " at byte [0-9]+ ")));
        ++named;
      }
    }
    // The largest is the list of 10,000 tensors at which a memo bomb is given up.
    CHECK(test::largest_allocation < 4 << 20);
    CHECK(test::sum_of_allocations < 64 << 20);
    const bool also_ok = row.at("also_ok").is_string() && row.at("also_ok") == found;
    CHECK((found == must || also_ok));
    (found == "refuse" ? refused : inert) += 1;
  }
  CHECK(refused + inert == static_cast<int>(rows.size()));
  CHECK(rows.size() >= 190);
  CHECK(named >= 120);
  CHECK(inert >= 10);
  for (const char* never : {"never_made", "never_run.py"}) {
    CHECK_FALSE(std::filesystem::exists(never));
    CHECK_FALSE(std::filesystem::exists(folder() / never));
    CHECK_FALSE(std::filesystem::exists(folder() / "malicious" / never));
  }
}

TEST_CASE("references that make a gigantic tree cost no gigantic memory") {
  const TempDir dir;
  const std::string path = dir.file("file.pt");
  const std::string one = tensor(storage_id("k", "FloatStorage", 1), 0, {}, {});
  const auto memo = [](int index, const char* put_or_get) {
    return joined({put_or_get, test::little_endian(static_cast<std::uint64_t>(index), 4)});
  };
  const auto fails = [&](const std::string& body, const std::string& fragment) {
    test::write_file(path, legacy_file(body, {{"k", 1, "abcd"}}));
    test::reset_allocations();
    CHECK_THROWS_WITH_AS(open_source(path), doctest::Contains(fragment.c_str()), Error);
    CHECK(test::sum_of_allocations < 96 << 20);
  };
  // Two references per level, in the ways that opcodes offer.
  const struct {
    const char* what;
    std::string before, after;
    const char* opcode;
  } doublings[] = {{"lists", "](", "e", "REDUCE"},
                   {"tuples", "(", "t", "REDUCE"},
                   {"frozen sets", "(", "\x91", "REDUCE"},
                   {"dicts", "}(Nh\x01", "", "REDUCE"},
                   {"calls", "canybody\nmake\n(", "tR", "REDUCE"}};
  for (const auto& d : doublings) {
    CAPTURE(std::string(d.what));
    std::string body = one + memo(0, "r") + "0";
    for (int level = 0; level < 60; ++level) {
      const std::string below = memo(level, "j");
      if (std::string(d.what) == "dicts") {
        body += joined({"}(N", below, "\x88", below, "u"});
      } else {
        body += joined({d.before, below, below, d.after});
      }
      body += memo(level + 1, "r") + "0";
    }
    body += memo(60, "j");
    fails(body, "reached by too many paths");
  }
  // An object in its own state, and states that are shared.
  std::string body = "canybody\nC\n)\x81r" + std::string(4, '\0') + "}(X\1" + std::string(3, '\0') +
                     "sj" + std::string(4, '\0') + "X\1" + std::string(3, '\0') + "t" + one + "ub";
  test::write_file(path, legacy_file(body, {{"k", 1, "abcd"}}));
  CHECK(open_source(path)->tensors().size() == 1);

  // Wrappers around wrappers, and a long key over many tensors.
  body = one;
  for (int i = 0; i < 1000; ++i) {
    body = joined({global("torch._utils", "_rebuild_parameter"), "(", body, "\x88)tR"});
  }
  fails(body, "more wrappers inside each other than torch writes");
  std::vector<std::string> tensors;
  for (int i = 0; i < 2000; ++i) tensors.push_back(i == 0 ? one + memo(0, "r") : memo(0, "j"));
  fails(dict({text(std::string(1 << 16, 'n')), list(tensors)}), "more bytes of names");
  // One long text that stands for many keys, arrays or names.
  const std::string stored = text(std::string(1 << 20, 'a')) + memo(0, "r") + "0";
  std::string pairs, arrays;
  for (int i = 0; i < 3000; ++i) pairs += memo(0, "j") + "N";
  fails(joined({stored, "](", one, "}(", pairs, "ue"}), "reached by too many paths");
  const std::string escaped = "V" + std::string(1 << 20, 'a') + "\n" + memo(0, "r") + "0";
  const std::string array =
      call(global("numpy._core.numeric", "_frombuffer"),
           {call(global("_codecs", "encode"), {memo(0, "j"), text("latin1")}),
            call(global("numpy", "dtype"), {text("u1")}), numbers({1 << 20}), text("C")});
  for (int i = 0; i < 200; ++i) arrays += array;
  test::write_file(path, legacy_file(escaped + "](" + arrays + "e", {}));
  test::reset_allocations();
  CHECK(open_source(path)->tensors().size() == 200);
  CHECK(test::sum_of_allocations < 16 << 20);
  fails(global(std::string(4096, 'm'), "n"), "has a name of 4097 bytes, expected at most 4096");
  fails(storage_id(std::string(4097, 'k'), "FloatStorage", 1), "a key of 4097 bytes, at most 4096");
  // 2^40 elements over 64 kB.
  test::write_file(path, legacy_file(tensor(storage_id("k", "FloatStorage", 1 << 16), 0,
                                            {1 << 24, 1 << 16, 1}, {0, 1, 1}),
                                     {{"k", 1 << 16, std::string(4 << 16, 'a')}}));
  CHECK_THROWS_WITH_AS(open_source(path), doctest::Contains("more than 2^36 elements"), Error);
  // The flag of an interrupt.
  const std::atomic<bool> stop = true;
  OpenOptions options;
  options.stop = &stop;
  CHECK_THROWS_WITH_AS(open_source(path, options), "interrupted", Error);
}

TEST_CASE("a PyTorch file cut at any byte is refused with exit code 3") {
  const TempDir dir;
  const std::string path = dir.file("cut.pt");
  const std::string hand =
      legacy_file(dict({text("w"), tensor(storage_id("k", "FloatStorage", 4), 0, {2, 2}, {2, 1})}),
                  {{"k", 4, counting_floats(4)}});
  for (const std::string& whole :
       {hand, test::read_file((folder() / "shared_legacy_p4.pt").string()),
        test::read_file((folder() / "numpy_ml_dtypes.pt").string()),
        test::read_file((folder() / "single_tensor.pt").string())}) {
    test::write_file(path, whole);
    read_all(path);
    for (std::size_t length = whole.size(); length-- > 0;) {
      CAPTURE(length);
      std::filesystem::resize_file(path, length);
      try {
        read_all(path);
        FAIL_CHECK("the file was accepted");
      } catch (const Error& error) {
        CHECK(error.exit_code() == 3);
      }
    }
  }
}

TEST_CASE("a PyTorch file with one wrong byte is read or refused, but never crashes") {
  const TempDir dir;
  const std::string path = dir.file("corrupt.pt");
  std::size_t read = 0, refused = 0;
  for (const char* name : {"shared_legacy_p4.pt", "nested_legacy.pt", "numpy_inside_legacy.pt"}) {
    const std::string whole = test::read_file((folder() / name).string());
    test::write_file(path, whole);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, char value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(value);
      file.flush();
    };
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {0x01, 0x80, 0xFF, 0x20 ^ whole[at], '(' ^ whole[at]}) {
        put(at, static_cast<char>(whole[at] ^ change));
        test::reset_allocations();
        try {
          read_all(path);
          ++read;
        } catch (const Error& error) {
          ++refused;
          const bool one_line = std::string(error.what()).find('\n') == std::string::npos;
          if (!one_line || error.exit_code() < 3) FAIL_CHECK(error.what());
        }
        if (test::largest_allocation > 1 << 20)
          FAIL_CHECK("an allocation of " << test::largest_allocation << " bytes");
      }
      put(at, whole[at]);
    }
  }
  CHECK(read > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("malformed legacy files have their own sentences") {
  const TempDir dir;
  const std::string path = dir.file("bad.pt");
  const std::string body = tensor(storage_id("k", "FloatStorage", 2), 0, {2}, {1});
  const std::string magic = legacy_magic(), version = pickle("M\xe9\x03");
  const std::string machine = pickle(dict({text("little_endian"), kTrue}));
  const std::string start = magic + version + machine;
  const auto count = [](std::uint64_t n) { return test::little_endian(n, 8); };
  const struct {
    std::string bytes;
    const char* want;  // behind the path
  } cases[] = {
      {pickle(dict({text("w"), number(1)})),
       " is a Python pickle, but no PyTorch file: it starts with a dict, expected PyTorch's magic "
       "number; save the tensors with torch.save"},
      {magic + pickle("M\xea\x03"), ": the legacy PyTorch file has version 1002, expected 1001"},
      {magic + pickle("N"), ": the legacy PyTorch file has version None, expected 1001"},
      {magic + version + pickle("]"),
       ": EMPTY_LIST at byte 23 makes a list for the facts about the machine, expected a dict"},
      {start + pickle(body) + pickle(list({text("z")})) + count(2) + "12345678",
       "lists \"z\" as the key of a storage, which the pickle does not use"},
      {start + pickle(body) + pickle(list({number(1)})),
       "lists an integer as the key of a storage, which the pickle does not use"},
      {start + pickle(dict({text("w"), body})) + pickle("]"),
       "names the storage \"k\", which the list of storages behind the pickle does not have "
       "(tensor \"w\")"},
      {start + pickle(body) + pickle(list({text("k")})) + count(2) + "1234567",
       ": storage \"k\" has 2 elements of 4 bytes, but only 7 bytes follow (truncated?)"},
      {start + pickle(body) + pickle(list({text("k")})) + "1234567",
       ": the file ends where storage \"k\" should begin (truncated?)"},
      {start + pickle(body) + pickle(list({text("k")})) + count(3) + std::string(12, 'd'),
       ": storage \"k\" has 3 elements, but the pickle says 2"},
      {start + pickle(body) + pickle(list({text("k")})) + count(~std::uint64_t{0}),
       ": storage \"k\" has 18446744073709551615 elements, but the pickle says 2"},
      {start + pickle(list({body, tensor(storage_id("k", "FloatStorage", 3), 0, {2}, {1})})) +
           pickle(list({text("k")})) + count(2) + "12345678",
       "gives the storage \"k\" 3 elements of 4 bytes, but 2 of 4 bytes before"},
      {start + pickle(list({body, tensor(storage_id("k", "DoubleStorage", 2), 0, {1}, {1})})) +
           pickle(list({text("k")})) + count(2) + "12345678",
       "gives the storage \"k\" 2 elements of 8 bytes, but 2 of 4 bytes before"},
  };
  for (const auto& c : cases) {
    test::write_file(path, c.bytes);
    CHECK_THROWS_WITH_AS(open_source(path), doctest::Contains(c.want), Error);
  }
}

TEST_CASE("the readers of pickles have no way to run anything") {
  // By the text: no function that starts a program or loads code is called in these files.
  const std::regex runs(
      R"(\b(dlopen|dlsym|dlmopen|system|popen|v?fork|clone|posix_spawnp?|exec[lv]p?e?|execveat)\s*\()");
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_dir() / "analysis/io")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("pickle") && !name.starts_with("pytorch")) continue;
    CAPTURE(name);
    ++files;
    CHECK_FALSE(std::regex_search(test::read_file(entry.path().string()), runs));
  }
  CHECK(files >= 15);
  CHECK(std::regex_search("::system(\"x\")", runs));
  CHECK(std::regex_search("execve (x)", runs));
}
