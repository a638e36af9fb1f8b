// totals_record.h: the figures of a tensor as bytes, exactly, for the journal of --resume. Integers
// take 7 bits per byte, doubles are their 8 bytes, lists of counts leave out runs of zeros. Reading
// trusts nothing: every length is compared with what is there and with what the caller allows.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/metrics/totals.h"
#include "sim/error.h"

namespace fp4scope {

// Far above the elements of any file; a thousand times as many still fit into 63 bits.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 53;

class RecordWriter {
 public:
  void number(std::uint64_t value);
  void real(double value);
  void text(std::string_view value);
  void counts(const std::vector<std::int64_t>& values);
  void reals(const std::vector<double>& values);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct MalformedRecord : Error {
  MalformedRecord() : Error(ErrorKind::kData, "the record is malformed") {}
};

// All functions throw MalformedRecord when the bytes end early or hold something else.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t number(std::uint64_t most = ~std::uint64_t{0});
  double real();
  std::string text();
  // At most `most` entries: `most` bounds what the list takes in memory. None is negative and their
  // sum is at most kMostCounted.
  std::vector<std::int64_t> counts(std::size_t most);
  std::vector<double> reals(std::size_t most);
  void expect_end() const;

 private:
  std::string_view take(std::size_t count);
  std::string_view bytes_;
};

void write_totals(const Totals& totals, RecordWriter& out);
// `cells`: those of the maps, 0 without maps.
Totals read_totals(RecordReader& in, std::size_t cells);

}  // namespace fp4scope
