// inputs.h: the tensors that the operands of a command name: FILE, DIRECTORY or FILE:TENSOR.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/report.h"

namespace fp4scope {

struct InputTensors {
  struct Entry {
    const TensorSource* source;
    const TensorInfo* tensor;
    std::string operand;  // FILE:TENSOR, as a later command can name it
  };
  std::vector<std::unique_ptr<TensorSource>> files;
  std::vector<Entry> tensors;  // of real numbers that the filter accepts, in the order of operands
  std::vector<ErrorRecord> errors;   // what cannot be used though it was asked for
  std::vector<ErrorRecord> skipped;  // what holds no real numbers and was met in passing
  std::vector<Report::Source> sources;
};

// Goes on after a bad file or tensor and records it.
InputTensors open_inputs(const std::vector<std::string>& operands, const OpenOptions& options,
                         const std::function<bool(const std::string&)>& accepts);

}  // namespace fp4scope
