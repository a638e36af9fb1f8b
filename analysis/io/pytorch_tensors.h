// pytorch_tensors.h: which objects of a pickle are tensors (torch._utils._rebuild_tensor_v2 and its
// relatives, numpy arrays), and where their bytes lie. Everything that a file claims is checked
// against the real size of the storage.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/io/mapped_source.h"
#include "analysis/io/pickle.h"
#include "analysis/io/pytorch_dtypes.h"

namespace fp4scope {

// A storage as its persistent id names it:
// ("storage", class, key, device, elements[, None or (key, offset, elements) of a view]).
struct TorchStorageId {
  std::string_view key;
  const StoredDType* dtype = nullptr;
  std::int64_t elements = 0;  // of the whole storage
  std::int64_t first = 0;     // of the view, in elements; 0 without one
  std::int64_t count = 0;     // of the view; `elements` without one
};
// Nothing for ("module", class, ...), which stands for a class in old files. Throws Error(kData).
std::optional<TorchStorageId> read_storage_id(const Pickle& pickle, const PickleObject& persistent);

// Where the bytes of a storage lie.
struct TorchStoragePlace {
  std::size_t file = 0;  // index into Contents::files
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool big_endian = false;
};
class TorchStorages {
 public:
  virtual ~TorchStorages() = default;
  // Throws Error(kData) through fail_at() when there is no such storage. Adds files to `contents`.
  virtual TorchStoragePlace find(const Pickle& pickle, const PickleObject& persistent,
                                 const TorchStorageId& id, Contents& contents) = 0;
};

struct FoundTensor {
  std::string part;  // "indices" of a sparse tensor; empty for the tensor itself
  DType dtype = DType::kOther;
  std::string dtype_text;
  bool known_dtype = true;  // as in TensorInfo
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  Storage storage;
};
struct FoundTensors {
  std::vector<FoundTensor> parts;
  std::vector<PickleId> states;  // python attributes of the tensor
  std::vector<PickleId> items;   // of an array of objects
};

// The bytes of the pickle itself, where arrays of numpy lie.
struct PicklePlace {
  std::string_view bytes;
  std::size_t file = 0;  // index into Contents::files
  std::int64_t offset = 0;
};

struct DecodedArray;

class TorchTensors {
 public:
  TorchTensors(const Pickle& pickle, const PicklePlace& place, TorchStorages& storages,
               Contents& contents);
  // Null when the object is no tensor. Throws Error(kData) for a call that should make one, but has
  // wrong arguments, and Error(kUnsupported) for an unknown dtype. Each object is looked at once.
  const FoundTensors* find(PickleId id);

 private:
  using Arguments = std::vector<PickleId>;
  // A call in work: the function may stand inside another call (_rebuild_from_type_v2).
  struct Call {
    const PickleObject& object;
    std::string function;
    const Arguments& arguments;
    int depth = 0;
  };
  std::optional<FoundTensors> look(PickleId id, int depth);
  std::optional<FoundTensors> rebuild(const Call& call);
  FoundTensors dense(const Call& call, bool has_dtype);
  FoundTensors meta(const Call& call);
  FoundTensors wrapped(const Call& call, bool has_state);
  FoundTensors sparse(const Call& call);
  std::optional<FoundTensors> from_type(const Call& call);
  FoundTensors inner(const Call& call, PickleId id, const char* what);
  // pytorch_numpy.cc
  std::optional<FoundTensors> reconstructed(const Call& call);
  FoundTensors from_buffer(const Call& call);
  FoundTensors array(const Call& call, PickleId shape, PickleId dtype, bool fortran, PickleId data);
  StoredDType array_dtype(const Call& call, PickleId id, bool& big_endian) const;
  // Where the bytes of a numpy array lie; nothing when `id` holds none.
  std::optional<TorchStoragePlace> bytes_of(const Call& call, PickleId id);

  // Sentences and arguments.
  [[noreturn]] void fail(const Call& call, const std::string& what) const;
  void expect_arguments(const Call& call, std::size_t least, std::size_t most) const;
  std::int64_t integer(const Call& call, PickleId id, const char* what) const;
  std::vector<std::int64_t> integers(const Call& call, PickleId id, const char* what) const;
  bool is_negated(const Call& call, PickleId metadata) const;
  const StoredDType& dtype_argument(const Call& call, PickleId id) const;
  // Shape, strides and place of a view, checked.
  FoundTensor view(const Call& call, const TorchStoragePlace& place, const StoredDType& dtype,
                   std::int64_t offset, std::vector<std::int64_t> shape,
                   std::vector<std::int64_t> strides) const;

  const Pickle& pickle_;
  PicklePlace place_;
  TorchStorages& storages_;
  Contents& contents_;
  std::unordered_map<PickleId, std::unique_ptr<FoundTensors>> found_;  // null: no tensor
  // Of texts that hold bytes, by the text and whether they are Latin-1: a text that many arrays
  // share is kept and decoded once.
  std::unordered_map<std::uint64_t, TorchStoragePlace> decoded_;
  std::shared_ptr<DecodedArray> decoded_array_;
};

}  // namespace fp4scope
