// tensor_source.h: containers as lists of named tensors whose rows can be read piece by piece. The
// kind of a file is found from its content, not from its name. Nothing is loaded whole.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/error.h"

namespace fp4scope {

enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kU8,
  kI8,
  kOther
};
std::string_view dtype_name(DType dtype);  // "f64", "f32", "f16", "bf16", "f8_e4m3", ...
std::int64_t dtype_bytes(DType dtype);     // 0 for kOther
// Whether analyze and quantize take this dtype as numbers (F64 F32 F16 BF16 and FP8; E8M0 is a
// scale).
bool is_real(DType dtype);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kOther;
  std::string dtype_text;   // as the container spells it, for messages
  bool known_dtype = true;  // false: the container names a dtype that nobody defines
  std::string damage;       // why what the container says of it cannot be read, or ""
  ErrorKind damage_kind = ErrorKind::kData;
  bool decoded = false;             // stored as blocks of dtype_text, which the reader decodes
  bool derived = false;             // a part of another tensor of the file under its own name
  std::vector<std::int64_t> shape;  // [] for a 0-d tensor
  std::int64_t elements = 0;        // product of the shape, 1 for 0-d
  std::int64_t bytes = 0;           // of the data in the container
  std::string file;                 // the file that holds it (a shard of a set), as given
  std::int64_t rows() const;        // product of all dimensions but the last, 1 for rank < 2
  std::int64_t cols() const;        // last dimension, 1 for 0-d
};

// A shard that an index names and that cannot be read, or lacks tensors that it should hold.
struct SourceFault {
  enum class Cause { kMissing, kOutside, kOther };  // kOutside: a link out of the folder
  std::string file;
  std::string message;
  int exit_code = 0;
  std::vector<std::string> tensors;  // the names that are left out with it
  Cause cause = Cause::kOther;
};

// What a safetensors file or another container says about itself, for provenance.
struct SourceInfo {
  std::string path;  // as given by the user
  // "safetensors", "safetensors index", "npy", "npz", "pytorch", "pytorch legacy", "pytorch index",
  // "gguf", "hdf5", "raw", "directory" (several files)
  std::string container;
  std::int64_t bytes = 0;
  std::vector<SourceFault> faults = {};  // only with OpenOptions::parts
};

// open_source() of a file without the header of any container: codes of a kernel, say.
class UnknownContainer : public Error {
 public:
  using Error::Error;
};

// For messages: the container's spelling, or the name of a dtype that a hint gave.
std::string dtype_label(const TensorInfo& tensor);
// What follows it where --dtype is an option: " (--dtype bf16?)" for an array of numpy of which
// only the size of its elements is known; else "".
std::string dtype_advice(const TensorInfo& tensor);
// TensorInfo::damage as a sentence about the tensor, and the same thrown.
std::optional<Error> damage_of(const TensorInfo& tensor);
void refuse_damaged(const TensorInfo& tensor);
// For reports: dtype_name(), or the container's spelling of blocks that the reader decodes and of
// what has no name here.
std::string shown_dtype(const TensorInfo& tensor);
// Throws Error(kData) when the rectangle is not inside the flattened tensor.
void check_rectangle(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                     std::int64_t col, std::int64_t cols);

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const SourceInfo& info() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Elements [row, row+rows) x [col, col+cols) of the tensor flattened to [rows(), cols()], widened
  // exactly to binary32 (F16, BF16, F32, FP8) into `out`, row-major without gaps. F64: use
  // read_f64. E8M0 and integer codes: read_raw. Thread-safe. Throws Error(kData) on an I/O error.
  virtual void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, float* out) const = 0;
  virtual void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, double* out) const = 0;
  // The stored bytes of the elements, in little-endian order and logical (row-major) element order.
  virtual void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, void* out) const = 0;
  // safetensors __metadata__ and the metadata of GGUF as text (empty elsewhere).
  virtual const std::vector<std::pair<std::string, std::string>>& metadata() const = 0;
};

// A file without a header: one tensor in row-major order, little-endian, named by the file without
// its ending.
struct RawLayout {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // one extent may be -1: what the file holds
  std::int64_t offset = 0;          // of the first byte
  // Whether the last byte of the tensor has to be that of the file, as without an offset a longer
  // file most likely means a wrong shape. false: what follows is not looked at.
  bool ends_file = true;
};
struct OpenOptions {
  // "bf16", "e4m3", "e5m2", "e8m0", "raw" or empty: the type of npy arrays whose descr carries
  // none.
  std::string dtype_hint = {};
  std::optional<RawLayout> raw = {};  // set: every file is read so, whatever it looks like
  // Where pipes and compressed members of archives are unpacked, into files without a name.
  std::string scratch_folder = "/tmp";
  // Set from a signal handler, ends what waits for a pipe or unpacks: Error(kData, "interrupted").
  const std::atomic<bool>* stop = nullptr;
  // Also read what symbolic links of a directory, or of the folder of an index, lead to outside.
  bool follow_links = false;
  // An index with missing or broken shards gives the tensors of the others, and says in
  // SourceInfo::faults what is left out; without this it is an error.
  bool parts = false;
  OpenOptions in_parts() const {
    OpenOptions out = *this;
    out.parts = true;
    return out;
  }
};
// Opens a file of one of the containers in SourceInfo::container, an index
// (*.safetensors.index.json or *.bin.index.json) with its shards, a directory with the files of
// container_files(), or "-" and pipes. A directory keeps only some of its files open at a time.
// Throws Error (kData, or kUnsupported for a well-formed unknown thing).
std::unique_ptr<TensorSource> open_source(const std::string& path, const OpenOptions& options = {});
// The files that open_source() would read for `path`: those of a directory as find_containers()
// (container_files.h) finds them, an index for its shards; `path` itself when it is no directory.
// Throws Error(kData) when a directory holds none, or a part of it cannot be read.
std::vector<std::string> container_files(const std::string& path, bool follow_links = false);
// Every file that `source` reads: what an output file must not replace.
std::vector<std::string> source_files(const TensorSource& source);

}  // namespace fp4scope
