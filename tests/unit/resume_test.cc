// resume_test.cc: the journal of --resume: figures come back bit for bit, a journal of other
// settings or another process is refused, and cut or damaged journals lose tensors but never give
// wrong ones.
#include "analysis/resume.h"

#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "analysis/totals_record.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope {
namespace {

using test::TempDir;

// No two members are equal.
Totals example_totals(std::size_t cells) {
  Totals totals;
  Tallies& t = totals.tallies;
  std::int64_t next = 1;
  auto* counts = reinterpret_cast<std::int64_t*>(&t.counts);
  for (std::size_t i = 0; i < sizeof t.counts / sizeof next; ++i) counts[i] = next++;
  t.counts.elements = std::int64_t{1} << 52;
  for (auto* list : {&t.codes, &t.scales}) {
    for (std::size_t i = 3; i < list->size(); i += 7) (*list)[i] = next++;
  }
  t.amax_exponents.assign(2 * kExponentOffset, 0);
  t.amax_exponents.front() = next++;
  t.amax_exponents.back() = next++;
  t.absolute_error_bins.assign(kErrorBins, 0);
  t.absolute_error_bins[1000] = next++;
  t.relative_error_bins.assign(kErrorBins, 1);
  for (auto* map :
       {&t.map_elements, &t.map_underflow, &t.map_saturated, &t.map_scale_sum, &t.map_blocks}) {
    map->assign(cells, next++);
  }
  totals.sums = {0.1, 1e300, -0.0, 5e-324, std::numeric_limits<double>::infinity(), 1.0 / 3, 7};
  totals.max_abs_err = std::bit_cast<double>(0x7FF8'0000'0000'1234ull);  // a NaN of its own
  totals.amax = 2.5;
  totals.crest_max = -1e-310;
  totals.map_squared_error.assign(cells, 0.7);
  totals.code_count = 16;
  totals.has_scale_codes = false;
  totals.chooses = true;
  totals.full_percentiles = true;
  return totals;
}

std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

void check_equal(const Totals& a, const Totals& b) {
  const Tallies &s = a.tallies, &t = b.tallies;
  CHECK(std::memcmp(&s.counts, &t.counts, sizeof s.counts) == 0);
  CHECK(s.codes == t.codes);
  CHECK(s.scales == t.scales);
  CHECK(s.amax_exponents == t.amax_exponents);
  CHECK(s.absolute_error_bins == t.absolute_error_bins);
  CHECK(s.relative_error_bins == t.relative_error_bins);
  CHECK(s.map_elements == t.map_elements);
  CHECK(s.map_underflow == t.map_underflow);
  CHECK(s.map_saturated == t.map_saturated);
  CHECK(s.map_scale_sum == t.map_scale_sum);
  CHECK(s.map_blocks == t.map_blocks);
  CHECK(std::memcmp(&a.sums, &b.sums, sizeof a.sums) == 0);
  CHECK(bits(a.max_abs_err) == bits(b.max_abs_err));
  CHECK(bits(a.amax) == bits(b.amax));
  CHECK(bits(a.crest_max) == bits(b.crest_max));
  CHECK(a.map_squared_error == b.map_squared_error);
  CHECK(a.code_count == b.code_count);
  CHECK(a.has_scale_codes == b.has_scale_codes);
  CHECK(a.chooses == b.chooses);
  CHECK(a.full_percentiles == b.full_percentiles);
}

void check_equal(const FinishedTensor& a, const FinishedTensor& b) {
  CHECK(a.hash == b.hash);
  CHECK(a.recipe_index == b.recipe_index);
  REQUIRE(a.totals.size() == b.totals.size());
  for (std::size_t i = 0; i < a.totals.size(); ++i) check_equal(a.totals[i], b.totals[i]);
  REQUIRE(a.errors.size() == b.errors.size());
  for (std::size_t i = 0; i < a.errors.size(); ++i) {
    CHECK(a.errors[i].file == b.errors[i].file);
    CHECK(a.errors[i].tensor == b.errors[i].tensor);
    CHECK(a.errors[i].message == b.errors[i].message);
    CHECK(a.errors[i].exit_code == b.errors[i].exit_code);
  }
}

constexpr std::size_t kCells = 6, kRecipes = 3;

FinishedTensor example(const std::string& file, const std::string& name) {
  return {"0123456789abcdef",
          {0, 2},
          {example_totals(kCells), example_totals(0)},
          {{file, name, "recipe 1 failed: \x01\xFF \xE2\x82\xAC", 4}}};
}

// A folder with tensor files that are older than any journal opened later.
struct Inputs {
  TempDir folder;
  std::string journal = folder.file("r.json.resume");
  std::vector<TensorInfo> tensors;
  std::vector<std::string> notices;

  Inputs() {
    for (const char name : {'a', 'b', 'c'}) {
      TensorInfo tensor;
      tensor.name = std::string(1, name);
      tensor.file = folder.file(tensor.name + ".npy");
      tensor.dtype = DType::kF32;
      tensor.shape = {2, 48};
      tensor.elements = 96;
      test::write_file(tensor.file, "bytes of " + tensor.name);
      tensors.push_back(tensor);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  ResumeJournal open(const RunSettings& settings = {{"program", "1"}, {"recipes", "mxfp4"}}) {
    return {journal, settings, [&](const std::string& text) { notices.push_back(text); }};
  }
  static std::optional<FinishedTensor> find(ResumeJournal& in, const TensorInfo& tensor) {
    return in.find(tensor, kRecipes, [](std::size_t recipe) { return recipe == 0 ? kCells : 0; });
  }
  void write_all() {
    ResumeJournal out = open();
    for (const TensorInfo& tensor : tensors) out.add(tensor, example(tensor.file, tensor.name));
    CHECK(out.size() == tensors.size());
  }
};

std::string error_of(const std::function<void()>& run, ErrorKind kind) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("numbers take 7 bits per byte and counts leave out runs of zeros") {
  RecordWriter out;
  out.number(127);
  out.number(300);
  out.number(~std::uint64_t{0});
  out.real(1.0);
  out.text("ab");
  out.counts({0, 0, 0, 5, 6, 0});
  out.counts({});
  CHECK(out.bytes() == std::string("\x7F"
                                   "\xAC\x02"
                                   "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"
                                   "\0\0\0\0\0\0\xF0\x3F"
                                   "\x02"
                                   "ab"
                                   "\x06\x03\x02\x05\x06\x01\0"
                                   "\0",
                                   1 + 2 + 10 + 8 + 3 + 7 + 1));
  RecordReader in(out.bytes());
  CHECK(in.number() == 127);
  CHECK(in.number() == 300);
  CHECK(in.number() == ~std::uint64_t{0});
  CHECK(in.real() == 1.0);
  CHECK(in.text() == "ab");
  CHECK(in.counts(6) == std::vector<std::int64_t>{0, 0, 0, 5, 6, 0});
  CHECK(in.counts(0).empty());
  in.expect_end();
}

TEST_CASE("records that lie are refused before anything is allocated") {
  struct Case {
    const char* name;
    std::string bytes;
    std::function<void(RecordReader&)> read;
  };
  const auto counts = [](RecordReader& in) { (void)in.counts(100); };
  for (const Case& c : std::vector<Case>{
           {"nothing", "", [](RecordReader& in) { (void)in.number(); }},
           {"a number that does not end", "\x80\x80", [](RecordReader& in) { (void)in.number(); }},
           {"a number of 65 bits", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
            [](RecordReader& in) { (void)in.number(); }},
           {"a number of 71 bits", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            [](RecordReader& in) { (void)in.number(); }},
           {"above the limit", "\x05", [](RecordReader& in) { (void)in.number(4); }},
           {"7 bytes of a double", "1234567", [](RecordReader& in) { (void)in.real(); }},
           {"a long text", "\xFF\xFF\xFF\xFF\x7F", [](RecordReader& in) { (void)in.text(); }},
           {"too many counts", "\x65", counts},
           {"more zeros than counts", "\x02\x03\x01", counts},
           {"more others than counts", std::string("\x02\0\x03", 3), counts},
           {"a run of nothing", std::string("\x02\0\0", 3), counts},
           {"a sum above 2^53", std::string("\x02\0\x02\x80\x80\x80\x80\x80\x80\x80\x10\x01", 12),
            counts},
           {"doubles that are not there", "\x02",
            [](RecordReader& in) { (void)in.reals(std::size_t{1} << 60); }},
           {"something behind the end", "x", [](RecordReader& in) { in.expect_end(); }},
       }) {
    CAPTURE(c.name);
    RecordReader in(c.bytes);
    CHECK_THROWS_AS(c.read(in), MalformedRecord);
  }
}

TEST_CASE("figures come back bit for bit, and no beginning of them is taken for the whole") {
  const Totals totals = example_totals(kCells);
  RecordWriter out;
  write_totals(totals, out);
  RecordReader in(out.bytes());
  check_equal(read_totals(in, kCells), totals);
  in.expect_end();
  for (std::size_t length = 0; length < out.bytes().size(); ++length) {
    RecordReader cut(std::string_view(out.bytes()).substr(0, length));
    CHECK_THROWS_AS((void)read_totals(cut, kCells), MalformedRecord);
  }
  RecordReader small(out.bytes());
  CHECK_THROWS_AS((void)read_totals(small, kCells - 1), MalformedRecord);
}

TEST_CASE("the next run finds what was finished, and the end removes the journal") {
  Inputs inputs;
  {
    ResumeJournal journal = inputs.open();
    CHECK_FALSE(Inputs::find(journal, inputs.tensors[0]));
    journal.add(inputs.tensors[0], example(inputs.tensors[0].file, "a"));
    CHECK(Inputs::find(journal, inputs.tensors[0]));
  }
  {
    ResumeJournal journal = inputs.open();
    CHECK(journal.size() == 1);
    journal.add(inputs.tensors[1], {"", {}, {}, {}});  // every recipe failed without a word
  }
  ResumeJournal journal = inputs.open();
  CHECK(journal.size() == 2);
  const auto found = Inputs::find(journal, inputs.tensors[0]);
  REQUIRE(found);
  check_equal(*found, example(inputs.tensors[0].file, "a"));
  const auto empty = Inputs::find(journal, inputs.tensors[1]);
  REQUIRE(empty);
  CHECK(empty->totals.empty());
  CHECK_FALSE(Inputs::find(journal, inputs.tensors[2]));
  CHECK(std::filesystem::exists(inputs.journal));
  journal.remove();
  CHECK_FALSE(std::filesystem::exists(inputs.journal));
  CHECK(inputs.notices.empty());
}

TEST_CASE("a journal without a tensor does not stay") {
  Inputs inputs;
  {
    ResumeJournal journal = inputs.open();
    CHECK(std::filesystem::exists(inputs.journal));
  }
  CHECK_FALSE(std::filesystem::exists(inputs.journal));
}

TEST_CASE("a tensor is found by file, size, time, name, dtype and shape") {
  Inputs inputs;
  inputs.write_all();
  const TensorInfo tensor = inputs.tensors[0];
  ResumeJournal journal = inputs.open();
  REQUIRE(Inputs::find(journal, tensor));
  TensorInfo other = tensor;
  other.file = inputs.tensors[1].file;
  CHECK_FALSE(Inputs::find(journal, other));
  other = tensor;
  other.name += "b";
  CHECK_FALSE(Inputs::find(journal, other));
  other = tensor;
  other.dtype = DType::kBF16;
  CHECK_FALSE(Inputs::find(journal, other));
  other = tensor;
  other.shape = {48, 2};
  CHECK_FALSE(Inputs::find(journal, other));
  const auto written = std::filesystem::last_write_time(tensor.file);
  std::filesystem::last_write_time(tensor.file, written + std::chrono::nanoseconds(1000));
  CHECK_FALSE(Inputs::find(journal, tensor));
  std::filesystem::last_write_time(tensor.file, written);
  CHECK(Inputs::find(journal, tensor));
  test::write_file(tensor.file, "longer than before");
  std::filesystem::last_write_time(tensor.file, written);
  CHECK_FALSE(Inputs::find(journal, tensor));
  std::filesystem::remove(tensor.file);
  CHECK_FALSE(Inputs::find(journal, tensor));
}

TEST_CASE("a file that changed since the run began is not kept") {
  Inputs inputs;
  ResumeJournal journal = inputs.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  test::write_file(inputs.tensors[0].file, "bytes of a");                   // as long as before
  std::filesystem::rename(inputs.tensors[1].file, inputs.tensors[2].file);  // with its old time
  journal.add(inputs.tensors[0], example("", ""));
  journal.add(inputs.tensors[2], example("", ""));
  CHECK(journal.size() == 0);
}

TEST_CASE("a journal of other settings is refused with what differs") {
  Inputs inputs;
  inputs.write_all();
  const std::string before = test::read_file(inputs.journal);
  struct Case {
    RunSettings settings;
    const char* difference;
  };
  for (const Case& c : {
           Case{{{"program", "2"}, {"recipes", "mxfp4"}}, "(program: \"1\" then, \"2\" now)"},
           Case{{{"program", "2"}, {"recipes", "hif4"}},
                "(program: \"1\" then, \"2\" now; recipes: \"mxfp4\" then, \"hif4\" now)"},
           Case{{{"program", "1"}}, "(recipes: \"mxfp4\" then, nothing now)"},
           Case{{{"program", "1"}, {"recipes", "mxfp4"}, {"--x", ""}},
                "(--x: nothing then, \"\" now)"},
       }) {
    const std::string message = error_of([&] { inputs.open(c.settings); }, ErrorKind::kUsage);
    CAPTURE(message);
    CHECK(message == "--resume: " + inputs.journal + " keeps a run with other settings " +
                         c.difference +
                         "; give the settings of then, delete the file, or run without --resume");
  }
  CHECK(test::read_file(inputs.journal) == before);
}

TEST_CASE("a file that is no journal stays as it is") {
  Inputs inputs;
  for (const auto& [text, why] : {
           std::pair{"a report of yesterday", "exists and is no journal of fp4scope"},
           std::pair{"fp4scope resume 9\n..", "was written by another version of fp4scope"},
       }) {
    test::write_file(inputs.journal, text);
    const std::string message = error_of([&] { inputs.open(); }, ErrorKind::kUsage);
    CHECK(message ==
          "--resume: " + inputs.journal + " " + why + "; delete the file, or run without --resume");
    CHECK(test::read_file(inputs.journal) == text);
  }
  std::filesystem::remove(inputs.journal);
  std::filesystem::create_symlink(inputs.tensors[0].file, inputs.journal);
  CHECK(contains(error_of([&] { inputs.open(); }, ErrorKind::kData), "--resume "));
  CHECK(test::read_file(inputs.tensors[0].file) == "bytes of a");
  std::filesystem::remove(inputs.journal);
  std::filesystem::create_directory(inputs.journal);
  CHECK(contains(error_of([&] { inputs.open(); }, ErrorKind::kData), "directory"));
}

TEST_CASE("one process at a time") {
  Inputs inputs;
  {
    ResumeJournal first = inputs.open();
    CHECK(error_of([&] { inputs.open(); }, ErrorKind::kData) ==
          "--resume " + inputs.journal +
              ": another process is working on this run; wait for it, or give another --out");
  }
  inputs.write_all();
  ResumeJournal second = inputs.open();
  CHECK(second.size() == 3);
}

TEST_CASE("a journal that ends anywhere goes on with the tensors that are whole") {
  Inputs inputs;
  inputs.write_all();
  const std::string whole = test::read_file(inputs.journal);
  std::size_t most = 0;
  for (std::size_t length = 0; length < whole.size(); length += length < 100 ? 1 : 1511) {
    test::write_file(inputs.journal, std::string_view(whole).substr(0, length));
    ResumeJournal journal = inputs.open();
    most = std::max(most, journal.size());
    for (std::size_t i = 0; i < 3; ++i) {
      const auto found = Inputs::find(journal, inputs.tensors[i]);
      CHECK(found.has_value() == (i < journal.size()));
      if (found) check_equal(*found, example(inputs.tensors[i].file, inputs.tensors[i].name));
    }
    // What is added lies behind the last whole one.
    journal.add(inputs.tensors[2], example(inputs.tensors[2].file, "c"));
    CHECK(Inputs::find(journal, inputs.tensors[2]));
  }
  CHECK(most == 2);
  CHECK(inputs.notices.empty());
}

TEST_CASE("damage costs the tensors that it hits, with a sentence, and gives no wrong figures") {
  Inputs inputs;
  inputs.write_all();
  const std::string whole = test::read_file(inputs.journal);
  for (std::size_t at = 18; at < whole.size(); at += at < 120 ? 1 : 1709) {
    CAPTURE(at);
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ 0x10);
    test::write_file(inputs.journal, text);
    inputs.notices.clear();
    ResumeJournal journal = inputs.open();
    CHECK(journal.size() < 3);
    for (const TensorInfo& tensor : inputs.tensors) {
      if (const auto found = Inputs::find(journal, tensor)) {
        check_equal(*found, example(tensor.file, tensor.name));
      }
    }
    // Of the last one it could be the write that the end of the process cut short.
    if (journal.size() == 2 && Inputs::find(journal, inputs.tensors[1])) {
      CHECK(inputs.notices.size() <= 1);
    } else {
      REQUIRE(inputs.notices.size() == 1);
      CHECK(contains(inputs.notices[0], inputs.journal + " is damaged at byte "));
    }
  }
}

TEST_CASE("every option that can change a report is a setting") {
  AnalyzeOptions options;
  options.recipes = {parse_recipe("mxfp4")};
  const RunSettings base = run_settings("p", {"x"}, options);
  CHECK(run_settings("p", {"x"}, options) == base);
  CHECK(run_settings("q", {"x"}, options) != base);
  CHECK(run_settings("p", {"x", "y"}, options) != base);
  CHECK(run_settings("p", {"x y"}, options) != run_settings("p", {"x", "y"}, options));
  const std::vector<std::function<void(AnalyzeOptions&)>> changes = {
      [](auto& o) { o.recipes.push_back(parse_recipe("nvfp4")); },
      [](auto& o) { o.recipes = {parse_recipe("mxfp4:ties=away")}; },
      [](auto& o) { o.recipes = {parse_recipe("mxfp4:block=32")}; },  // equal, typed otherwise
      [](auto& o) { o.filter.include = {"a"}; },
      [](auto& o) { o.filter.exclude = {"a"}; },
      [](auto& o) { o.axis = 0; },
      [](auto& o) { o.backend = "reference"; },
      [](auto& o) { o.memory_bytes /= 2; },
      [](auto& o) { o.full_percentiles = true; },
      [](auto& o) { o.map_size = 4; },
      [](auto& o) { o.group_by = {"a"}; },
      [](auto& o) { o.open.dtype_hint = "bf16"; },
      [](auto& o) { o.open.follow_links = true; },
      [](auto& o) { o.group_fields = {"layer"}; },
      [](auto& o) { o.name_patterns = {"(?P<layer>x)"}; },
      [](auto& o) {
        o.open.raw = RawLayout{DType::kF32, {2, 3}, 0};
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    AnalyzeOptions changed = options;
    changes[i](changed);
    CHECK(run_settings("p", {"x"}, changed) != base);
  }
  AnalyzeOptions same = options;
  same.threads = 7;  // no figure depends on it
  CHECK(run_settings("p", {"x"}, same) == base);
}

}  // namespace fp4scope
