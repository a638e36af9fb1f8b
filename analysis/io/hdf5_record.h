// hdf5_record.h: what the process that runs the HDF5 library (hdf5_worker.h) and the one that asks
// it (hdf5_process.h) say to each other.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

// Bytes of the memory that both processes see: names go one way through it, listings, data and
// error sentences the other way.
inline constexpr std::int64_t kHdf5Window = std::int64_t{8} << 20;

// Longest path of a dataset, in bytes; longer ones are listed as damaged, under a cut name.
inline constexpr std::size_t kHdf5LongestPath = std::size_t{1} << 20;

enum class Hdf5Operation : std::uint32_t { kList, kMore, kRead };
enum class Hdf5Status : std::uint32_t { kOk, kData, kUnsupported };

struct Hdf5Request {
  Hdf5Operation operation = Hdf5Operation::kList;
  std::uint32_t name_bytes = 0;                       // kRead: of the path, in the window
  std::int64_t row = 0, rows = 0, col = 0, cols = 0;  // kRead: of the dataset's own dimensions
  std::int64_t offset = 0;                            // kMore: into the listing
};
struct Hdf5Reply {
  Hdf5Status status = Hdf5Status::kOk;
  std::int64_t bytes =
      0;  // in the window: data, a piece of the listing, or the reason of a failure
  std::int64_t total = 0;     // kList: of the whole listing
  std::int64_t unpacked = 0;  // kRead: bytes of the chunks that were taken out of the file for it
  std::int64_t columns = 0;   // kRead: so many can be read row after row, each chunk once; 0: none
};

// A dataset as it is listed.
struct Hdf5Dataset {
  std::string name;
  DType dtype = DType::kOther;
  std::string dtype_text;
  bool known_dtype = true;
  std::vector<std::int64_t> shape;  // with the dimensions of an array type behind the others
  std::int32_t array_rank = 0;      // how many of them the array type has
  std::int32_t bytes = 0;           // per element of `shape`; 0: cannot be read as plain bytes
  std::int32_t swapped = 0;         // 2, 4 or 8: elements arrive in big-endian order
  Hdf5Status refusal = Hdf5Status::kOk;
  std::string reason;  // of a refusal, as the end of a sentence about the tensor
};

// One whose own record cannot be read: no elements of no known dtype.
Hdf5Dataset unreadable_dataset(Hdf5Status refusal, std::string reason);

void append_record(const Hdf5Dataset& dataset, std::string& listing);
// The reverse. The text comes from a process that may have gone astray: false where it is no
// listing, and for each dataset the sizes are in order (see the checks there).
bool parse_records(std::string_view listing, std::vector<Hdf5Dataset>& datasets);

}  // namespace fp4scope
