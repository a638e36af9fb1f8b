// inputs.cc: see inputs.h.
#include "analysis/inputs.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>

#include "analysis/analyze.h"
#include "analysis/io/container_files.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr int kDataCode = 3, kUnsupportedCode = 4;

// The files of a directory, whose names speak of what is below it.
void add_directory(const Operand& directory, std::size_t operand, const OpenOptions& options,
                   InputFiles& inputs) {
  const ContainerFiles found = find_containers(directory.file, options.follow_links);
  for (const ContainerFiles::Note& note : found.skipped) {
    inputs.skipped.push_back({note.path, "", note.message, kUnsupportedCode});
  }
  for (const ContainerFiles::Note& note : found.errors) {
    inputs.errors.push_back({note.path, "", note.message, kDataCode});
  }
  if (found.files.empty() && found.errors.empty()) {
    inputs.errors.push_back({directory.file, directory.tensor,
                             no_containers_message(directory.file, found), kDataCode});
  }
  for (const std::string& file : found.files) {
    std::size_t start = directory.file.size();
    while (start < file.size() && file[start] == '/') ++start;
    inputs.files.push_back({file, directory.tensor, file.substr(start), operand, true});
  }
}

// Picks the tensors of one file; what cannot be used is recorded. False when there is none of that
// name.
bool take_tensors(const InputFile& input, const TensorSource& source,
                  const std::function<bool(const std::string&)>& accepts,
                  const NamePatterns& patterns, InputTensors& inputs) {
  bool found = false;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!input.tensor.empty() && tensor.name != input.tensor) continue;
    // What another tensor holds already is only taken when it is named.
    if (tensor.derived && input.tensor.empty()) continue;
    found = true;
    if (!accepts(tensor.name)) continue;
    if (is_real(tensor.dtype)) {
      inputs.tensors.push_back({&source, &tensor, tensor.file + ":" + tensor.name,
                                patterns.fields({input.below, tensor.file, tensor.name})});
      continue;
    }
    const ErrorRecord record{tensor.file, tensor.name,
                             tensor.file + ": tensor '" + tensor.name +
                                 "': expected F64, F32, F16, BF16 or FP8 numbers, found dtype " +
                                 dtype_label(tensor),
                             kUnsupportedCode};
    // Asked for by name, or of a dtype that nobody knows, it is an error; codes and integers met
    // in passing are left out and said so.
    const bool in_passing = input.tensor.empty() && tensor.known_dtype;
    (in_passing ? inputs.skipped : inputs.errors).push_back(record);
  }
  return found || input.tensor.empty();
}

}  // namespace

void report_faults(const SourceInfo& info, const std::string& tensor,
                   const std::function<bool(const std::string&)>& accepts,
                   std::vector<ErrorRecord>& errors) {
  for (const SourceFault& fault : info.faults) {
    const auto is_wanted = [&](const std::string& name) {
      return (tensor.empty() || name == tensor) && accepts(name);
    };
    if (std::none_of(fault.tensors.begin(), fault.tensors.end(), is_wanted)) continue;
    errors.push_back({fault.file, tensor, fault.message, fault.exit_code});
  }
}

InputFiles find_inputs(const std::vector<std::string>& operands, const OpenOptions& options) {
  InputFiles inputs;
  std::set<std::string> streams;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    try {
      for (const Operand& operand : expand_operand(operands[i])) {
        if (is_stream(operand.file) && !streams.insert(operand.file).second) {
          throw Error(ErrorKind::kUsage,
                      (operand.file == "-" ? "standard input (-)" : printable(operand.file)) +
                          " can be read only once, found it in two operands");
        }
        if (std::error_code unknown; std::filesystem::is_directory(operand.file, unknown)) {
          add_directory(operand, i, options, inputs);
        } else {
          inputs.files.push_back({operand.file, operand.tensor, operand.file, i, false});
        }
      }
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kUsage) throw;
      inputs.errors.push_back({operands[i], "", e.what(), e.exit_code()});
    }
  }
  return inputs;
}

void report_missing_tensors(const InputFiles& inputs, const std::vector<bool>& found,
                            const std::vector<std::string>& operands,
                            std::vector<ErrorRecord>& errors) {
  std::set<std::size_t> said;
  for (const InputFile& input : inputs.files) {
    if (input.tensor.empty() || !input.in_directory || found[input.operand]) continue;
    if (!said.insert(input.operand).second) continue;
    const std::string directory =
        operands[input.operand].substr(0, operands[input.operand].size() - input.tensor.size() - 1);
    errors.push_back({directory, input.tensor,
                      directory + ": no file of this directory that can be read holds a tensor '" +
                          input.tensor + "'",
                      kDataCode});
  }
}

InputTensors open_inputs(const std::vector<std::string>& operands, const OpenOptions& options,
                         const std::function<bool(const std::string&)>& accepts,
                         const NamePatterns& patterns) {
  const InputFiles found = find_inputs(operands, options);
  InputTensors inputs;
  inputs.errors = found.errors;
  inputs.skipped = found.skipped;
  std::vector<bool> has_tensor(operands.size());
  OpenOptions in_parts = options;
  in_parts.parts = true;
  SourcePool pool(in_parts);
  for (const InputFile& input : found.files) {
    std::unique_ptr<TensorSource> source;
    try {
      source = pool.open(input.file);
    } catch (const Error& e) {
      inputs.errors.push_back({input.file, input.tensor, e.what(), e.exit_code()});
      continue;
    } catch (const std::bad_alloc&) {
      inputs.errors.push_back({input.file, input.tensor,
                               input.file + ": not enough memory for its list of tensors", 4});
      continue;
    }
    const SourceInfo& info = source->info();
    const std::size_t errors = inputs.errors.size();
    report_faults(info, input.tensor, accepts, inputs.errors);
    const bool is_lost = !input.tensor.empty() && inputs.errors.size() > errors;
    if (take_tensors(input, *source, accepts, patterns, inputs) || is_lost) {
      has_tensor[input.operand] = true;
    } else if (input.in_directory) {
      continue;
    } else {
      inputs.errors.push_back({input.file, input.tensor,
                               input.file + ": no tensor is named '" + input.tensor + "'; found " +
                                   std::to_string(source->tensors().size()) + " tensors" +
                                   near_names(source->tensors(), input.tensor),
                               kDataCode});
    }
    inputs.sources.push_back({info.path, info.container, info.bytes});
    inputs.files.push_back(std::move(source));
  }
  report_missing_tensors(found, has_tensor, operands, inputs.errors);
  return inputs;
}

}  // namespace fp4scope
