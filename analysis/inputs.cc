// inputs.cc: see inputs.h.
#include "analysis/inputs.h"

#include "analysis/analyze.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// A directory stands for its files, so that a bad one does not hide the others.
std::vector<Operand> expand(const std::vector<std::string>& texts, InputTensors& inputs) {
  std::vector<Operand> operands;
  for (const std::string& text : texts) {
    const Operand operand = split_operand(text);
    try {
      if (operand.tensor.empty()) {
        for (const std::string& f : container_files(operand.file)) operands.push_back({f, ""});
        for (const std::string& f : unread_containers(operand.file)) {
          inputs.skipped.push_back({f, "", f + ": this version does not read such containers", 4});
        }
      } else {
        operands.push_back(operand);
      }
    } catch (const Error& e) {
      inputs.errors.push_back({operand.file, operand.tensor, e.what(), e.exit_code()});
    }
  }
  return operands;
}

// Picks the tensors of one operand; what cannot be used is recorded.
void take_tensors(const Operand& operand, const TensorSource& source,
                  const std::function<bool(const std::string&)>& accepts, InputTensors& inputs) {
  bool found = false;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!operand.tensor.empty() && tensor.name != operand.tensor) continue;
    // What another tensor holds already is only taken when it is named.
    if (tensor.derived && operand.tensor.empty()) continue;
    if (!accepts(tensor.name)) continue;
    found = true;
    if (is_real(tensor.dtype)) {
      inputs.tensors.push_back({&source, &tensor, tensor.file + ":" + tensor.name});
      continue;
    }
    const ErrorRecord record{tensor.file, tensor.name,
                             tensor.file + ": tensor '" + tensor.name +
                                 "': expected F64, F32, F16, BF16 or FP8 numbers, found dtype " +
                                 dtype_label(tensor),
                             4};
    // Asked for by name, or of a dtype that nobody knows, it is an error; codes and integers met
    // in passing are left out and said so.
    const bool in_passing = operand.tensor.empty() && tensor.known_dtype;
    (in_passing ? inputs.skipped : inputs.errors).push_back(record);
  }
  if (found || operand.tensor.empty()) return;
  inputs.errors.push_back({operand.file, operand.tensor,
                           operand.file + ": no tensor is named '" + operand.tensor + "'; found " +
                               std::to_string(source.tensors().size()) + " tensors",
                           3});
}

}  // namespace

InputTensors open_inputs(const std::vector<std::string>& operands, const OpenOptions& options,
                         const std::function<bool(const std::string&)>& accepts) {
  InputTensors inputs;
  for (const Operand& operand : expand(operands, inputs)) {
    try {
      inputs.files.push_back(open_source(operand.file, options));
    } catch (const Error& e) {
      inputs.errors.push_back({operand.file, operand.tensor, e.what(), e.exit_code()});
      continue;
    }
    const SourceInfo& info = inputs.files.back()->info();
    inputs.sources.push_back({info.path, info.container, info.bytes});
    take_tensors(operand, *inputs.files.back(), accepts, inputs);
  }
  return inputs;
}

}  // namespace fp4scope
