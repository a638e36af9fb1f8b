// totals_record.cc: see totals_record.h.
#include "analysis/totals_record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

namespace fp4scope {
namespace {

[[noreturn]] void malformed() {
  throw MalformedRecord();
}

// Counts and ErrorSums hold nothing but numbers, so that a new member needs no line here.
using CountArray = std::array<std::int64_t, sizeof(Counts) / sizeof(std::int64_t)>;
using SumArray = std::array<double, sizeof(ErrorSums) / sizeof(double)>;
static_assert(std::is_trivially_copyable_v<Counts> && sizeof(CountArray) == sizeof(Counts));
static_assert(std::is_trivially_copyable_v<ErrorSums> && sizeof(SumArray) == sizeof(ErrorSums));
// Whoever adds a member to these adds it to write_totals and read_totals.
constexpr std::size_t kVector = sizeof(std::vector<std::int64_t>);
static_assert(sizeof(Tallies) == sizeof(Counts) + 10 * kVector);
static_assert(sizeof(Totals) == sizeof(Tallies) + sizeof(ErrorSums) + 3 * sizeof(double) + kVector +
                                    2 * sizeof(std::size_t));

constexpr std::size_t kCodes = 256;  // of a byte
constexpr std::size_t kExponents = 2 * kExponentOffset;

}  // namespace

void RecordWriter::number(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
  bytes_ += static_cast<char>(value);
}

void RecordWriter::real(double value) {
  auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) bytes_ += static_cast<char>(bits & 0xFF);
}

void RecordWriter::text(std::string_view value) {
  number(value.size());
  bytes_ += value;
}

// The length, then in turn how many zeros follow and how many other entries, and these.
void RecordWriter::counts(const std::vector<std::int64_t>& values) {
  number(values.size());
  const auto is_zero = [](std::int64_t v) { return v == 0; };
  for (auto at = values.begin(); at != values.end();) {
    const auto first = std::find_if_not(at, values.end(), is_zero);
    const auto last = std::find_if(first, values.end(), is_zero);
    number(static_cast<std::uint64_t>(first - at));
    number(static_cast<std::uint64_t>(last - first));
    for (auto value = first; value != last; ++value) number(static_cast<std::uint64_t>(*value));
    at = last;
  }
}

void RecordWriter::reals(const std::vector<double>& values) {
  number(values.size());
  for (const double value : values) real(value);
}

std::string_view RecordReader::take(std::size_t count) {
  if (count > bytes_.size()) malformed();
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::uint64_t RecordReader::number(std::uint64_t most) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    const std::uint64_t bits = byte & 0x7F;
    if (shift > 63 || (bits << shift) >> shift != bits) malformed();
    value |= bits << shift;
    if ((byte & 0x80) == 0) break;
  }
  if (value > most) malformed();
  return value;
}

double RecordReader::real() {
  const std::string_view bytes = take(8);
  std::uint64_t bits = 0;
  for (std::size_t i = 8; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  return std::bit_cast<double>(bits);
}

std::string RecordReader::text() {
  return std::string(take(static_cast<std::size_t>(number(bytes_.size()))));
}

std::vector<std::int64_t> RecordReader::counts(std::size_t most) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(number(most)));
  std::uint64_t left = kMostCounted;
  for (std::size_t at = 0; at < values.size();) {
    const std::uint64_t zeros = number(values.size() - at);
    at += static_cast<std::size_t>(zeros);
    const std::uint64_t others = number(values.size() - at);
    if (zeros + others == 0) malformed();
    for (std::uint64_t i = 0; i < others; ++i) {
      const std::uint64_t value = number(left);
      left -= value;
      values[at++] = static_cast<std::int64_t>(value);
    }
  }
  return values;
}

std::vector<double> RecordReader::reals(std::size_t most) {
  const auto count = static_cast<std::size_t>(number(std::min(most, bytes_.size() / 8)));
  std::vector<double> values(count);
  for (double& value : values) value = real();
  return values;
}

void RecordReader::expect_end() const {
  if (!bytes_.empty()) malformed();
}

void write_totals(const Totals& totals, RecordWriter& out) {
  const Tallies& t = totals.tallies;
  for (const std::int64_t count : std::bit_cast<CountArray>(t.counts)) {
    out.number(static_cast<std::uint64_t>(count));
  }
  for (const auto* list :
       {&t.codes, &t.scales, &t.amax_exponents, &t.absolute_error_bins, &t.relative_error_bins,
        &t.map_elements, &t.map_underflow, &t.map_saturated, &t.map_scale_sum, &t.map_blocks}) {
    out.counts(*list);
  }
  for (const double sum : std::bit_cast<SumArray>(totals.sums)) out.real(sum);
  out.real(totals.max_abs_err);
  out.real(totals.amax);
  out.real(totals.crest_max);
  out.reals(totals.map_squared_error);
  out.number(totals.code_count);
  out.number(totals.has_scale_codes ? 1 : 0);
  out.number(totals.chooses ? 1 : 0);
  out.number(totals.full_percentiles ? 1 : 0);
}

Totals read_totals(RecordReader& in, std::size_t cells) {
  Totals totals;
  Tallies& t = totals.tallies;
  CountArray counts;
  for (std::int64_t& count : counts) {
    count = static_cast<std::int64_t>(in.number(kMostCounted));
  }
  t.counts = std::bit_cast<Counts>(counts);
  t.codes = in.counts(kCodes);
  t.scales = in.counts(kCodes);
  // The figures index both by a byte.
  if (t.codes.size() != kCodes || t.scales.size() != kCodes) malformed();
  t.amax_exponents = in.counts(kExponents);
  for (auto* bins : {&t.absolute_error_bins, &t.relative_error_bins}) *bins = in.counts(kErrorBins);
  for (auto* map :
       {&t.map_elements, &t.map_underflow, &t.map_saturated, &t.map_scale_sum, &t.map_blocks}) {
    *map = in.counts(cells);
  }
  SumArray sums;
  for (double& sum : sums) sum = in.real();
  totals.sums = std::bit_cast<ErrorSums>(sums);
  totals.max_abs_err = in.real();
  totals.amax = in.real();
  totals.crest_max = in.real();
  totals.map_squared_error = in.reals(cells);
  totals.code_count = static_cast<std::size_t>(in.number(kCodes));
  totals.has_scale_codes = in.number(1) == 1;
  totals.chooses = in.number(1) == 1;
  totals.full_percentiles = in.number(1) == 1;
  return totals;
}

}  // namespace fp4scope
