// hdf5_record.cc: see hdf5_record.h. Numbers are stored as in memory: both ends are one program.
#include "analysis/io/hdf5_record.h"

#include <cstring>
#include <utility>

#include "analysis/io/mapped_source.h"

namespace fp4scope {
namespace {

template <class T>
void put(T value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(const std::string& text, std::string& out) {
  put(static_cast<std::uint64_t>(text.size()), out);
  out += text;
}

template <class T>
bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof value) return false;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}
bool take_text(std::string_view& in, std::string& text) {
  std::uint64_t size = 0;
  if (!take(in, size) || size > in.size()) return false;
  text.assign(in.substr(0, size));
  in.remove_prefix(size);
  return true;
}

bool in_order(const Hdf5Dataset& d) {
  const auto rank = static_cast<std::int32_t>(d.shape.size());
  const auto elements = checked_product(d.shape);
  std::int64_t total = 0;
  if (d.name.size() > kHdf5LongestPath || d.dtype > DType::kOther ||
      d.refusal > Hdf5Status::kUnsupported || !elements || d.array_rank < 0 ||
      d.array_rank > rank || d.bytes < 0 || d.bytes > kHdf5Window ||
      __builtin_mul_overflow(*elements, static_cast<std::int64_t>(d.bytes), &total)) {
    return false;
  }
  if (d.swapped != 0 && d.swapped != d.bytes) return false;
  return d.bytes == 0 || d.dtype == DType::kOther || d.bytes == dtype_bytes(d.dtype);
}

bool take_record(std::string_view& in, Hdf5Dataset& d) {
  std::uint8_t dtype = 0, known = 0;
  std::uint32_t refusal = 0;
  std::uint64_t rank = 0;
  if (!take_text(in, d.name) || !take(in, dtype) || !take(in, known) ||
      !take_text(in, d.dtype_text) || !take(in, rank) || rank > in.size() / sizeof(std::int64_t)) {
    return false;
  }
  d.dtype = static_cast<DType>(dtype);
  d.known_dtype = known != 0;
  d.shape.resize(rank);
  for (std::int64_t& extent : d.shape) {
    if (!take(in, extent)) return false;
  }
  if (!take(in, d.array_rank) || !take(in, d.bytes) || !take(in, d.swapped) || !take(in, refusal) ||
      !take_text(in, d.reason)) {
    return false;
  }
  d.refusal = static_cast<Hdf5Status>(refusal);
  return in_order(d);
}

}  // namespace

Hdf5Dataset unreadable_dataset(Hdf5Status refusal, std::string reason) {
  Hdf5Dataset dataset;
  dataset.dtype_text = "unreadable";
  dataset.known_dtype = false;
  dataset.shape = {0};
  dataset.refusal = refusal;
  dataset.reason = std::move(reason);
  return dataset;
}

void append_record(const Hdf5Dataset& d, std::string& out) {
  put_text(d.name, out);
  put(static_cast<std::uint8_t>(d.dtype), out);
  put(static_cast<std::uint8_t>(d.known_dtype), out);
  put_text(d.dtype_text, out);
  put(static_cast<std::uint64_t>(d.shape.size()), out);
  for (const std::int64_t extent : d.shape) put(extent, out);
  put(d.array_rank, out);
  put(d.bytes, out);
  put(d.swapped, out);
  put(static_cast<std::uint32_t>(d.refusal), out);
  put_text(d.reason, out);
}

bool parse_records(std::string_view listing, std::vector<Hdf5Dataset>& datasets) {
  while (!listing.empty()) {
    if (!take_record(listing, datasets.emplace_back())) return false;
  }
  return true;
}

}  // namespace fp4scope
