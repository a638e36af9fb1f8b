// zip_archive_test.cc: members of zip archives that are put together by hand: read where they lie
// or unpacked, in every form of the format; broken archives end in one sentence and allocate
// little.
#include "analysis/io/zip_archive.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "sim/error.h"
#include "tests/support/allocations.h"
#include "tests/support/paths.h"
#include "tests/support/zip_bytes.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr std::size_t kMostAllocated = 2 << 20;  // unpacking goes by pieces of 1 MiB

ZipArchive opened(const std::string& path, const std::atomic<bool>* stop = nullptr) {
  return {std::make_shared<MappedFile>(path), OpenOptions{.stop = stop}};
}

std::string content(const ZipArchive& archive, std::size_t member, bool checks_crc = true) {
  const ZipArchive::Data data = archive.data(member, checks_crc);
  const auto bytes = data.store->bytes();
  return std::string(bytes->text(data.offset, archive.members()[member].size));
}
std::string content(const ZipArchive& archive, const std::string& name) {
  const auto member = archive.find(name);
  REQUIRE(member.has_value());
  return content(archive, *member);
}

// Everything that can be asked of an archive.
void read_all(const ZipArchive& archive) {
  for (std::size_t i = 0; i < archive.members().size(); ++i) {
    (void)archive.read_start(i, 16);
    (void)archive.read_start(i, archive.members()[i].size);
    (void)content(archive, i);
  }
}

// Without the disk, for many.
ZipArchive in_memory(const std::string& bytes) {
  const int fd = ::memfd_create("zip", MFD_CLOEXEC);
  REQUIRE(::write(fd, bytes.data(), bytes.size()) == std::ssize(bytes));
  return {std::make_shared<MappedFile>(fd, "memory"), OpenOptions{}};
}

std::string counted(std::size_t bytes) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 7 + i / 251);
  return out;
}

}  // namespace

TEST_CASE("stored members are read where they lie, deflated ones are unpacked") {
  const TempDir dir;
  const std::string path = dir.file("x.zip"), large = counted(3'000'000);
  ZipPart described = deflated_part("descriptor", "behind");
  described.descriptor = true;
  ZipPart described_stored = stored_part("descriptor, stored", "behind it");
  described_stored.descriptor = true;
  ZipPart padded = stored_part("padded", "0123456789");
  padded.local_extra = "FB" + little_endian(20, 2) + std::string(20, 'Z');  // as torch aligns
  ZipPart small64 = stored_part("zip64", "small, but with large fields");
  small64.zip64 = true;
  ZipPart packed64 = deflated_part("zip64, deflated", "as numpy writes");
  packed64.zip64 = true;
  for (const bool end64 : {false, true}) {
    for (const std::string& comment : {std::string(), std::string("a comment"), counted(65535)}) {
      CAPTURE(end64);
      CAPTURE(comment.size());
      write_file(path, zip_bytes({stored_part("stored", "plain"), deflated_part("large", large),
                                  described, described_stored, padded, small64, packed64,
                                  stored_part("empty", ""), deflated_part("empty, deflated", ""),
                                  stored_part("folder/", ""), stored_part("folder/x", "inside")},
                                 {.zip64 = end64, .comment = comment}));
      const ZipArchive archive = opened(path);
      CHECK(archive.members().size() == 10);
      CHECK(!archive.find("folder/"));
      CHECK(!archive.find("missing"));
      CHECK(content(archive, "stored") == "plain");
      CHECK(content(archive, "large") == large);
      CHECK(content(archive, "descriptor") == "behind");
      CHECK(content(archive, "descriptor, stored") == "behind it");
      CHECK(content(archive, "padded") == "0123456789");
      CHECK(content(archive, "zip64") == "small, but with large fields");
      CHECK(content(archive, "zip64, deflated") == "as numpy writes");
      CHECK(content(archive, "empty").empty());
      CHECK(content(archive, "empty, deflated").empty());
      CHECK(content(archive, "folder/x") == "inside");
      const auto padded_data = archive.data(*archive.find("padded"), false);
      CHECK(padded_data.store->bytes()->path() == path);
      CHECK(padded_data.store->bytes()->size() ==
            static_cast<std::int64_t>(std::filesystem::file_size(path)));
      CHECK(archive.data(*archive.find("large"), false).store->bytes()->size() == 3'000'000);
      CHECK(archive.read_start(*archive.find("large"), 5) == large.substr(0, 5));
      CHECK(archive.read_start(*archive.find("large"), 4'000'000) == large);
      CHECK(archive.read_start(*archive.find("stored"), 2) == "pl");
      CHECK(archive.read_start(*archive.find("stored"), 9) == "plain");
    }
  }
  // Nothing was left in the scratch folder or beside the archive.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a store outlives its archive") {
  const TempDir dir;
  write_file(dir.file("x"), zip_bytes({stored_part("s", "kept"), deflated_part("d", "kept too")}));
  ZipArchive::Data stored, deflated;
  {
    const ZipArchive archive = opened(dir.file("x"));
    stored = archive.data(0, true);
    deflated = archive.data(1, true);
  }
  CHECK(stored.store->bytes()->text(stored.offset, 4) == "kept");
  CHECK(deflated.store->bytes()->text(deflated.offset, 8) == "kept too");
}

TEST_CASE("names are bytes, and nothing is written by name") {
  const TempDir dir;
  const std::vector<std::string> names = {"../../up",
                                          "/absolute",
                                          "C:\\drive",
                                          "a/../../b",
                                          "Gr\xC3\xB6\xC3\x9F"
                                          "e",
                                          "\xFF\xFE",
                                          "new\nline",
                                          ""};
  std::vector<ZipPart> parts;
  for (const std::string& name : names) parts.push_back(deflated_part(name, "of " + name));
  write_file(dir.file("x"), zip_bytes(parts));
  const ZipArchive archive = opened(dir.file("x"));
  REQUIRE(archive.members().size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(archive.members()[i].name == names[i]);
    CHECK(content(archive, i) == "of " + names[i]);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("more than 65535 members") {
  const TempDir dir;
  std::vector<ZipPart> parts;
  for (int i = 0; i < 70000; ++i)
    parts.push_back(stored_part(std::string("m").append(std::to_string(i)), "x"));
  parts.back() = deflated_part("last", "the end");
  // With ZIP64, and as some writers do without it: counted modulo 65536.
  for (const ZipEnd& end : {ZipEnd{.zip64 = true}, ZipEnd{.members = 70000 % 65536}}) {
    write_file(dir.file("many"), zip_bytes(parts, end));
    const ZipArchive archive = opened(dir.file("many"));
    CHECK(archive.members().size() == 70000);
    CHECK(content(archive, "last") == "the end");
    CHECK(content(archive, "m65536") == "x");
  }
}

TEST_CASE("at most four members of an archive stay unpacked, the oldest use goes first") {
  const TempDir dir;
  std::vector<ZipPart> parts;
  for (int i = 0; i < 6; ++i)
    parts.push_back(deflated_part(std::to_string(i), std::string(9, 'a')));
  write_file(dir.file("x"), zip_bytes(parts));
  const ZipArchive archive = opened(dir.file("x"));
  std::vector<ZipArchive::Data> data;
  std::vector<std::weak_ptr<const MappedFile>> seen;
  for (std::size_t i = 0; i < 6; ++i) data.push_back(archive.data(i, false));
  for (std::size_t i = 0; i < 4; ++i) seen.push_back(data[i].store->bytes());
  for (const auto& bytes : seen) CHECK(!bytes.expired());
  CHECK(data[0].store->bytes() == seen[0].lock());  // used again: now 1 is the oldest
  const auto held = data[2].store->bytes();
  (void)data[4].store->bytes();
  CHECK(seen[1].expired());
  CHECK(!seen[0].expired());
  (void)data[5].store->bytes();
  CHECK(seen[3].expired());
  (void)data[1].store->bytes();
  (void)data[3].store->bytes();
  CHECK(seen[0].expired());
  CHECK(held->text(0, 9) == std::string(9, 'a'));  // one that is being read stays
  CHECK(data[0].store->bytes()->text(0, 9) == std::string(9, 'a'));
}

TEST_CASE("many threads read the members of one archive") {
  const TempDir dir;
  std::vector<ZipPart> parts;
  std::vector<std::string> contents;
  for (std::size_t i = 0; i < 12; ++i) {
    contents.push_back(counted(100'000 + i));
    parts.push_back(i % 3 == 0 ? stored_part(std::to_string(i), contents[i])
                               : deflated_part(std::to_string(i), contents[i]));
  }
  write_file(dir.file("x"), zip_bytes(parts));
  const ZipArchive archive = opened(dir.file("x"));
  std::vector<ZipArchive::Data> data;
  for (std::size_t i = 0; i < parts.size(); ++i) data.push_back(archive.data(i, true));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 4 * parts.size(); ++i) {
        const std::size_t member = (i * (t + 1) + t) % parts.size();
        const auto bytes = data[member].store->bytes();
        wrong += bytes->text(data[member].offset, std::ssize(contents[member])) != contents[member];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a member whose CRC-32 is wrong is refused each time, a stored one if asked for") {
  const TempDir dir;
  ZipPart stored = stored_part("s", "bytes that changed"),
          deflated = deflated_part("d", "these too");
  stored.crc ^= 1;
  deflated.crc = 0x01234567;
  write_file(dir.file("x"), zip_bytes({stored, deflated}));
  const ZipArchive archive = opened(dir.file("x"));
  const auto checked = archive.data(0, true);
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH_AS(checked.store->bytes(), doctest::Contains("is damaged: CRC-32 "), Error);
    CHECK_THROWS_WITH_AS(content(archive, 1), doctest::Contains("expected 01234567"), Error);
  }
  CHECK(content(archive, 0, false) == "bytes that changed");
  CHECK(archive.read_start(0, 5) == "bytes");
  CHECK_THROWS_WITH_AS(archive.read_start(0, 18), doctest::Contains("is damaged"), Error);
  CHECK_THROWS_WITH_AS(archive.read_start(1, 9), doctest::Contains("is damaged"), Error);
}

TEST_CASE("unpacking ends when it is asked to, or when the scratch folder takes no file") {
  const TempDir dir;
  write_file(dir.file("x"), zip_bytes({deflated_part("d", "abc"), stored_part("s", "abc")}));
  std::atomic<bool> stop{false};
  const ZipArchive archive = opened(dir.file("x"), &stop);
  const auto deflated = archive.data(0, true), stored = archive.data(1, true);
  stop = true;
  CHECK_THROWS_WITH_AS(deflated.store->bytes(), "interrupted", Error);
  CHECK_THROWS_WITH_AS(stored.store->bytes(), "interrupted", Error);
  stop = false;
  CHECK(deflated.store->bytes()->text(0, 3) == "abc");
  const ZipArchive homeless(std::make_shared<MappedFile>(dir.file("x")),
                            OpenOptions{.scratch_folder = dir.file("nowhere")});
  CHECK_THROWS_WITH_AS(homeless.data(0, true).store->bytes(),
                       doctest::Contains("nowhere: No such file or directory (TMPDIR names "),
                       Error);
}

TEST_CASE("a scratch folder that gets full ends the unpacking, and room lets it go on") {
  const TempDir dir;
  write_file(dir.file("x"), zip_bytes({deflated_part("d", std::string(100000, 'd'))}));
  const ZipArchive archive = opened(dir.file("x"));
  const ZipArchive::Data data = archive.data(0, true);
  // What a full disk gives, with another word for it: no file may be longer.
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    (void)data.store->bytes();
  } catch (const Error& error) {
    CHECK(error.exit_code() == 3);
    text = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, old_handler);
  CHECK(text.find("cannot keep member \"d\" of " + dir.file("x") + " in a scratch file in ") == 0);
  CHECK(text.find(": File too large (TMPDIR names another folder)") != std::string::npos);
  CHECK(data.store->bytes()->size() == 100000);
}

TEST_CASE("every malformed archive is refused with its own sentence") {
  const TempDir dir;
  const auto changed = [](ZipPart part, auto&& change) {
    change(part);
    return zip_bytes({part, stored_part("other", "o")});
  };
  const ZipPart s = stored_part("s", "stored bytes"), d = deflated_part("d", "deflated bytes");
  const std::string good = zip_bytes({s, d}), nul("a\0b", 3);
  std::string zero_stream = deflate_blocks("deflated bytes");
  zero_stream[0] = 7;  // block type 3 does not exist
  const struct {
    const char* name;
    std::string bytes;
    int exit_code;
    const char* fragment;
  } cases[] = {
      {"no end record", good.substr(0, good.size() - 22), 3, "has no end record (truncated?)"},
      {"shorter than an end record", "PK\x05\x06", 3, "has no end record"},
      {"comment beyond the end", zip_bytes({s}, {.comment = "abc"}).substr(0, 113), 3,
       "has no end record"},
      {"an end record in the comment", zip_bytes({s}, {.comment = zip_bytes({})}), 3,
       "has two end records"},
      {"one of two disks", zip_bytes({s}, {.disk = 1}), 4, "is one of several disks"},
      {"one of two disks, ZIP64", zip_bytes({s}, {.zip64 = true, .disk = 1}), 4,
       "is one of several disks"},
      {"more members than bytes", zip_bytes({s}, {.members = 60000}), 3,
       "claims 60000 members in a directory of 47 bytes"},
      {"2^40 members", zip_bytes({s}, {.zip64 = true, .members = std::uint64_t{1} << 40}), 3,
       "claims 1099511627776 members"},
      {"fewer members than there are", zip_bytes({s, d}, {.members = 1}), 3, "malformed directory"},
      {"directory behind the end", zip_bytes({s}, {.offset = 5000}), 3,
       "claims a directory of 47 bytes at byte 5000"},
      {"directory of 2^32 - 1 bytes", zip_bytes({s}, {.bytes = 0xFFFFFFFF}), 3,
       "claims a directory of 4294967295 bytes"},
      {"directory at 2^64 - 1", zip_bytes({s}, {.zip64 = true, .offset = ~std::uint64_t{0}}), 3,
       "at byte 18446744073709551615"},
      {"directory that is none", zip_bytes({s}, {.bytes = 47, .offset = 3}), 3,
       "malformed directory"},
      {"ZIP64 end record elsewhere", zip_bytes({s}, {.zip64 = true, .end64 = 7}), 3,
       "has no ZIP64 end record at byte 7"},
      {"ZIP64 end record at 2^64 - 1", zip_bytes({s}, {.zip64 = true, .end64 = ~std::uint64_t{0}}),
       3, "has no ZIP64 end record at byte 18446744073709551615"},
      {"encrypted", changed(s, [](ZipPart& p) { p.flags = 1; }), 4, "is encrypted, which"},
      {"method 99 without its extra field", changed(s, [](ZipPart& p) { p.method = 99; }), 4,
       "is encrypted (AES, method 99), which this program does not read; unpack it first"},
      // The field of APPNOTE's appendix E as 7-Zip writes it: AE-2, AES-256, deflated.
      {"method 99",
       changed(s,
               [](ZipPart& p) {
                 p.method = 99;
                 p.flags = 1;
                 p.extra = p.local_extra = std::string("\x01\x99\x07\0\x02\0AE\x03\x08\0", 11);
               }),
       4, "is encrypted (AES, method 99), which"},
      {"method 12", changed(s, [](ZipPart& p) { p.method = 12; }), 4,
       "has the compression method 12 (bzip2), expected 0 (stored) or 8 (deflate)"},
      {"symbolic link", changed(s, [](ZipPart& p) { p.attributes = 0120777u << 16; }), 3,
       "is a symbolic link"},
      {"two sizes", changed(s, [](ZipPart& p) { p.size = 5; }), 3,
       "is stored, but with two sizes, 5 and 12 bytes"},
      {"larger than the archive",
       changed(s, [](ZipPart& p) { p.size = *(p.packed_size = 1 << 30); }), 3,
       "claims 1073741824 bytes, but only "},
      {"2^63 bytes",
       changed(
           s,
           [](ZipPart& p) { p.size = *(p.packed_size = std::uint64_t{1} << 63), p.zip64 = true; }),
       3, "claims 9223372036854775808 bytes"},
      {"reaches into the directory", changed(s, [](ZipPart& p) { p.size = *(p.packed_size = 60); }),
       3, "but the directory begins at byte"},
      {"ratio beyond deflate", changed(d, [](ZipPart& p) { p.size = 1 << 20; }), 3,
       "claims 1048576 bytes from 19 compressed ones"},
      {"local header behind the end", changed(s, [](ZipPart& p) { p.offset = 100000; }), 3,
       "member \"s\" of the zip archive has its local header behind the end of the archive"},
      {"local header that is none", changed(s, [](ZipPart& p) { p.offset = 5; }), 3,
       "has no local header where it should"},
      {"another local name", changed(s, [](ZipPart& p) { p.local_name = "t"; }), 3,
       "has another name in its local header, \"t\""},
      {"another local method", changed(s, [](ZipPart& p) { p.local_method = 8; }), 3,
       "has another compression method"},
      {"another local size", changed(s, [](ZipPart& p) { p.local_size = 3; }), 3,
       "has 12 and 3 bytes in its local header, 12 and 12 in the directory"},
      {"NUL in a name", changed(s, [&](ZipPart& p) { p.name = nul; }), 3,
       "has another name in its local header, \"a\\x00b\""},
      {"a name twice", zip_bytes({s, d, s}), 3, "member \"s\" of the zip archive is there twice"},
      {"extra field cut short", changed(s, [](ZipPart& p) { p.extra = "\x01"; }), 3,
       "malformed directory"},
      {"unpacks to more", changed(d, [](ZipPart& p) { p.size = 5; }), 3,
       "unpacks to more than the 5 bytes that it claims"},
      {"unpacks to less", changed(d, [](ZipPart& p) { p.size = 50; }), 3,
       "claims 50 bytes, but unpacks to 14"},
      {"compressed data cut off", changed(d, [](ZipPart& p) { p.packed.resize(9); }), 3,
       "ends in the middle of its compressed data"},
      {"no compressed data", changed(d, [](ZipPart& p) { p.packed.clear(), p.size = 0; }), 3,
       "ends in the middle"},
      {"no deflate stream", changed(d, [&](ZipPart& p) { p.packed = zero_stream; }), 3,
       "has malformed compressed data: invalid block type"},
  };
  const std::string path = dir.file("bad.zip");
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    write_file(path, c.bytes);
    int code = 0;
    std::string text;
    try {
      test::reset_allocations();
      read_all(opened(path));
    } catch (const Error& error) {
      code = error.exit_code();
      text = error.what();
    }
    CHECK(test::largest_allocation < kMostAllocated);
    CAPTURE(text);
    CHECK(code == c.exit_code);
    CHECK(text.find(c.fragment) != std::string::npos);
    CHECK(text.find(path) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("members that share bytes are refused") {
  const TempDir dir;
  // The second header lies inside the data of the first member.
  const std::string inner = zip_bytes({stored_part("in", "inner")});
  const std::string local = inner.substr(0, inner.find("PK\x01\x02"));
  const ZipPart outer = stored_part("out", local + " and more");
  ZipPart second = stored_part("in", "inner");
  std::string bytes = zip_bytes({outer, second});
  second.offset = 30 + 3;
  write_file(dir.file("x"), zip_bytes({outer, second}));
  CHECK_THROWS_WITH_AS(opened(dir.file("x")), doctest::Contains("lies inside member \"out\""),
                       Error);
}

TEST_CASE("an archive that is cut at any byte is refused, one with a wrong byte never crashes") {
  ZipPart described = deflated_part("descriptor", "behind");
  described.descriptor = true;
  ZipPart small64 = deflated_part("zip64", "small");
  small64.zip64 = true;
  const std::vector<ZipPart> parts = {stored_part("s", "stored"), deflated_part("d", "deflated"),
                                      described, small64};
  for (const bool end64 : {false, true}) {
    const std::string good = zip_bytes(parts, {.zip64 = end64, .comment = "comment"});
    for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
      CAPTURE(bytes);
      CHECK_THROWS_AS(read_all(in_memory(good.substr(0, bytes))), Error);
    }
    int accepted = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (const int flip : {0xFF, 0x01, 0x80}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ flip);
        test::reset_allocations();
        try {
          read_all(in_memory(bad));
          ++accepted;
        } catch (const Error& error) {
          CHECK(std::string(error.what()).find('\n') == std::string::npos);
        }
        CHECK(test::largest_allocation < kMostAllocated);
      }
    }
    // Times, versions, attributes, names that changed in no record alone, the comment.
    CHECK(accepted < 3 * std::ssize(good) / 2);
  }
}
