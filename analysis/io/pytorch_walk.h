// pytorch_walk.h: the tensors that an unpickled object would hold, with their names: dict keys,
// indices and attributes on the way, joined with dots (rules: data/containers/README.md).
#pragma once
#include <atomic>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "analysis/io/mapped_source.h"
#include "analysis/io/pickle.h"
#include "analysis/io/pytorch_tensors.h"

namespace fp4scope {

// Names of a file: one that comes again gets "#2" and so on.
class TensorNames {
 public:
  std::string unique(const std::string& name);

 private:
  std::unordered_map<std::string, std::size_t> times_;
  std::unordered_set<std::string> given_;
};

// Appends every tensor below the root of `pickle` in the order of the pickle. `prefix` comes before
// the names; `alone` is the name of a root that is a tensor itself. A shared object is listed under
// each of its paths, cycles are cut. Throws Error(kData), which names the opcode of the object at
// which a bound was reached: too deep, or more paths or longer names on them than a pickle of this
// size honestly has.
struct WalkInput {
  const Pickle& pickle;
  TorchTensors& tensors;
  std::string file;    // TensorInfo::file
  std::string prefix;  // may be empty
  std::string alone;
  const std::atomic<bool>* stop = nullptr;  // set: Error(kData, "interrupted")
};
void append_pickled_tensors(const WalkInput& input, TensorNames& names, Contents& contents);

}  // namespace fp4scope
