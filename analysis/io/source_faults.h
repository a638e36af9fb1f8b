// source_faults.h: what is wrong with the shards of an index, in few sentences.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

// The faults with a tensor that `is_wanted`, in order, at most six: those of one cause and exit
// code share a sentence, which names the first shard and counts the others. `tensors` of such a
// fault are those of all its shards.
std::vector<SourceFault> wanted_faults(const std::vector<SourceFault>& faults,
                                       const std::function<bool(const std::string&)>& is_wanted);

}  // namespace fp4scope
