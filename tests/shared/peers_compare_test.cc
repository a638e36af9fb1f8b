// peers_compare_test.cc: verify and identify on the recorded outputs of the real projects
// (../shared/vectors/README.md section 6): 0 differences under the recipe given there, every
// flipped bit is noticed and named, and identify names that recipe.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include "analysis/compare/identify.h"
#include "analysis/compare/identify_casts.h"
#include "tests/shared/peer_cases.h"
#include "tests/shared/peers.h"
#include "tests/support/paths.h"

namespace fp4scope {
namespace {

using test::have_shared;
using test::kPeers;
using test::peer_cases;

constexpr std::int64_t kRows = 68, kCols = 256;

std::string peers_path() {
  return (test::shared_dir() / kPeers).string();
}

TEST_CASE("verify: 0 differences under the recipe of the README, 63 outputs") {
  if (!have_shared(kPeers)) return;
  SourceCache sources;
  std::int64_t elements = 0, scales = 0;
  const auto cases = peer_cases(peers_path());
  CHECK(cases.size() == 63);
  for (const VerifyCase& job : cases) {
    CAPTURE(job.name);
    const VerifyResult r = verify(job, {}, sources);
    CHECK_MESSAGE(r.agrees(), summary_of(r));
    CHECK(r.elements == kRows * kCols);
    CHECK(r.first.empty());
    elements += r.elements;
    scales += r.scales;
  }
  std::printf("verify on %zu peers: %lld elements and %lld scales, 0 differ\n", cases.size(),
              static_cast<long long>(elements), static_cast<long long>(scales));
}

// A writable copy of the peers whose bits can be flipped one by one.
class Copy {
 public:
  Copy() : path_(folder_.file("peers.safetensors")) {
    std::filesystem::copy_file(peers_path(), path_);
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    fd_ = ::open(path_.c_str(), O_RDWR);
    REQUIRE(fd_ >= 0);
    // Offsets of the tensors: the header is JSON of 8 + length bytes.
    std::uint64_t length = 0;
    REQUIRE(::pread(fd_, &length, 8, 0) == 8);
    std::string header(length, ' ');
    REQUIRE(::pread(fd_, header.data(), length, 8) == static_cast<ssize_t>(length));
    header_ = nlohmann::json::parse(header);
    data_ = static_cast<std::int64_t>(8 + length);
  }
  ~Copy() { ::close(fd_); }
  const std::string& path() const { return path_; }
  std::int64_t bytes(const std::string& name) const {
    return header_[name]["data_offsets"][1].get<std::int64_t>() -
           header_[name]["data_offsets"][0].get<std::int64_t>();
  }
  void flip(const std::string& name, std::int64_t byte, int bit) {
    const std::int64_t at = data_ + header_[name]["data_offsets"][0].get<std::int64_t>() + byte;
    std::uint8_t value = 0;
    REQUIRE(::pread(fd_, &value, 1, at) == 1);
    value = static_cast<std::uint8_t>(value ^ 1u << bit);
    REQUIRE(::pwrite(fd_, &value, 1, at) == 1);
  }

 private:
  test::TempDir folder_;
  std::string path_;
  int fd_ = -1;
  nlohmann::json header_;
  std::int64_t data_ = 0;
};

std::string tensor_of(const std::string& operand) {
  return operand.substr(operand.rfind(':') + 1);
}

// spec/layouts.md section 2 for 128 rows.
std::int64_t offset_128x4(std::int64_t r, std::int64_t c) {
  return c / 4 * 512 + r % 32 * 16 + r / 32 * 4 + c % 4;
}

TEST_CASE("verify: one flipped bit in codes, scales, values or scale of a tensor is named") {
  if (!have_shared(kPeers)) return;
  Copy copy;
  std::mt19937 random(4);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int flips = 0, in_padding = 0;
  const auto verified = [&](const VerifyCase& job) {
    SourceCache sources;
    VerifyOptions options;
    options.threads = 1;
    return verify(job, options, sources);
  };
  for (const VerifyCase& job : peer_cases(copy.path())) {
    CAPTURE(job.name);
    for (int k = 0; k < 6; ++k) {
      if (!job.codes.empty()) {
        const std::string name = tensor_of(job.codes);
        const bool is_packed =
            copy.bytes(name) % (kCols / 2) == 0 && copy.bytes(name) < kRows * kCols;
        const std::int64_t row_bytes = is_packed ? kCols / 2 : kCols;
        const std::int64_t byte = below(copy.bytes(name));
        const int bit = static_cast<int>(below(8));
        copy.flip(name, byte, bit);
        const VerifyResult r = verified(job);
        copy.flip(name, byte, bit);
        const std::int64_t row = byte / row_bytes;
        const std::int64_t col = is_packed ? byte % row_bytes * 2 + bit / 4 : byte % row_bytes;
        CAPTURE(byte);
        CAPTURE(bit);
        REQUIRE(r.first.size() == 1);
        CHECK(r.first[0].row == row);
        REQUIRE(r.first[0].elements.size() == 1);
        CHECK(r.first[0].col + r.first[0].elements[0] == col);
        CHECK(r.elements_differing == (row < kRows ? 1 : 0));
        CHECK(r.padding_differing == (row < kRows ? 0 : 1));
        in_padding += row < kRows ? 0 : 1;
        ++flips;
      }
      if (!job.scales.empty()) {
        const std::string name = tensor_of(job.scales);
        const std::int64_t byte = below(copy.bytes(name));
        const int bit = static_cast<int>(below(8));
        copy.flip(name, byte, bit);
        const VerifyResult r = verified(job);
        copy.flip(name, byte, bit);
        const std::int64_t rows = job.name.starts_with("f46") ? 128 : kRows;
        const std::int64_t blocks = copy.bytes(name) / rows;
        REQUIRE(r.first.size() == 1);
        const std::int64_t row = r.first[0].row, block = r.first[0].block;
        CHECK((job.layout == "128x4" ? offset_128x4(row, block) : row * blocks + block) == byte);
        CHECK(r.scales_differing == (row < kRows ? 1 : 0));
        CHECK(r.padding_differing == (row < kRows ? 0 : 1));
        in_padding += row < kRows ? 0 : 1;
        ++flips;
      }
      if (!job.fake.empty()) {
        const std::string name = tensor_of(job.fake);
        const std::int64_t width = copy.bytes(name) / (kRows * kCols);
        const std::int64_t element = below(kRows * kCols);
        const std::int64_t byte = element * width + below(width);
        const int bit = static_cast<int>(below(8));
        copy.flip(name, byte, bit);
        const VerifyResult r = verified(job);
        copy.flip(name, byte, bit);
        REQUIRE(r.first.size() == 1);
        CHECK(r.elements_differing == 1);
        CHECK(r.first[0].row == element / kCols);
        REQUIRE(r.first[0].elements.size() == 1);
        CHECK(r.first[0].col + r.first[0].elements[0] == element % kCols);
        ++flips;
      }
    }
    for (const std::string& operand : {job.outer_scale, job.amax}) {
      if (operand.empty()) continue;
      for (int bit = 0; bit < 32; bit += 5) {
        copy.flip(tensor_of(operand), bit / 8, bit % 8);
        const VerifyResult r = verified(job);
        copy.flip(tensor_of(operand), bit / 8, bit % 8);
        CHECK(r.outer_scales_differing == 1);
        CHECK(!r.agrees());
        ++flips;
      }
    }
    CHECK(verified(job).agrees());
  }
  std::printf("verify: %d flipped bits (%d in padding), all named\n", flips, in_padding);
  CHECK(flips > 800);
  CHECK(in_padding > 50);
}

TEST_CASE("identify names the recipe of the README for every output") {
  if (!have_shared(kPeers)) return;
  SourceCache sources;
  int alone = 0;
  std::size_t largest = 0;
  const auto cases = peer_cases(peers_path());
  for (const VerifyCase& job : cases) {
    CAPTURE(job.name);
    IdentifyOptions options;
    options.job = job;
    options.job.recipe.clear();
    options.job.layout.clear();
    options.separations = 0;
    const IdentifyResult result = identify(options, sources);
    const std::string want = to_full_string(parse_recipe(job.recipe));
    bool found = false;
    for (const ExplainingRecipe& e : result.explaining) {
      CHECK(e.check.agrees());
      found |= to_full_string(e.recipe) == want;
      for (const std::string& text : e.also) found |= to_full_string(parse_recipe(text)) == want;
      if (!job.scales.empty() && job.layout == "128x4") CHECK(e.layout == "128x4");
    }
    CHECK(found);
    alone += result.explaining.size() == 1 ? 1 : 0;
    largest = std::max(largest, result.explaining.size());
  }
  std::printf("identify on %zu peers: %d by one contract alone, at most %zu contracts equal\n",
              cases.size(), alone, largest);
}

struct CastRow {
  const char* key;
  const char* scalar;
  const char* rounding;
  const char* overflow;
  const char* nan;
};
// README section 6 and spec/scalars.md 2 to 5: codes of ml_dtypes and torch 2.11 for cast_in_f32.
constexpr CastRow kCasts[] = {
    {"ml_float4_e2m1fn", "e2m1", "ties to even", "saturates", "NaN gives 0x8"},
    {"ml_float6_e2m3fn", "e2m3", "ties to even", "saturates", "NaN gives 0x20"},
    {"ml_float6_e3m2fn", "e3m2", "ties to even", "saturates", "NaN gives 0x20"},
    {"ml_float8_e4m3fn", "e4m3", "ties to even", "NaN beyond the range", "NaN gives 0x7f"},
    {"ml_float8_e5m2", "e5m2", "ties to even", "infinity beyond the range", "NaN gives 0x7e"},
    {"ml_float8_e8m0fnu", "e8m0", "nearest as ml_dtypes, 255 for zero and negative values", "",
     "NaN gives 0xff"},
    {"ml_bfloat16", "bf16", "ties to even", "infinity beyond the range", "NaN gives 0x7fc0"},
    {"ml_float8_e3m4", "e3m4", "ties to even", "infinity beyond the range", "NaN gives 0x78"},
    {"ml_float8_e4m3", "e4m3-ieee", "ties to even", "infinity beyond the range", "NaN gives 0x7c"},
    {"ml_float8_e4m3b11fnuz", "e4m3b11fnuz", "ties to even", "NaN beyond the range",
     "NaN gives 0x80"},
    {"ml_float8_e4m3fnuz", "e4m3fnuz", "ties to even", "NaN beyond the range", "NaN gives 0x80"},
    {"ml_float8_e5m2fnuz", "e5m2fnuz", "ties to even", "NaN beyond the range", "NaN gives 0x80"},
    {"torch_float8_e4m3fn", "e4m3", "ties to even", "NaN beyond the range", "NaN gives 0x7f"},
    {"torch_float8_e5m2", "e5m2", "ties to even", "infinity beyond the range", "NaN gives 0x7f"},
    {"torch_float8_e8m0fnu", "e8m0", "nearest as torch, sign ignored", "", "NaN gives 0xff"}};

TEST_CASE("identify names the scalar cast of ml_dtypes and torch, codes and decoded values") {
  if (!have_shared(kPeers)) return;
  SourceCache sources;
  for (const CastRow& row : kCasts) {
    CAPTURE(row.key);
    VerifyCase job;
    job.input = peers_path() + ":cast_in_f32";
    job.codes = peers_path() + ":" + row.key;
    const std::vector<CastExplanation> found = identify_casts(job, sources);
    REQUIRE(found.size() == 1);
    CHECK(found[0].scalar == row.scalar);
    CHECK(found[0].rounding == row.rounding);
    CHECK(found[0].overflow == row.overflow);
    CHECK(found[0].nan == row.nan);
    if (!std::string(row.key).starts_with("ml_")) continue;
    job.codes.clear();
    job.fake = peers_path() + ":mlback" + std::string(row.key).substr(2);
    bool named = false;
    for (const CastExplanation& cast : identify_casts(job, sources)) {
      named |= cast.scalar == row.scalar && cast.rounding == row.rounding;
    }
    CHECK(named);
  }
}

}  // namespace
}  // namespace fp4scope
