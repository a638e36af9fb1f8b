// inputs.cc: see inputs.h.
#include "analysis/inputs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <set>

#include "analysis/analyze.h"
#include "analysis/input_notes.h"
#include "analysis/io/container_files.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
#include "analysis/io/scratch.h"
#include "analysis/io/source_faults.h"
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

// What a look at the tensors of a file tells.
struct Taken {
  bool found = false;     // one of that name, or all are meant
  bool repeated = false;  // some, and all of them were there before
};
// Picks the tensors of one file, the `number`-th; what cannot be used is recorded. `repeats` is
// null when there is no other file.
Taken take_tensors(const InputFile& input, std::size_t number, const TensorSource& source,
                   const std::function<bool(const std::string&)>& accepts,
                   const NamePatterns& patterns, InputNotes& notes, InputRepeats* repeats,
                   InputTensors& inputs) {
  bool found = false;
  std::size_t taken = 0, again = 0;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!input.tensor.empty() && tensor.name != input.tensor) continue;
    // What another tensor holds already is only taken when it is named.
    if (tensor.derived && input.tensor.empty()) continue;
    found = true;
    if (!accepts(tensor.name)) continue;
    notes.add_tensor(tensor);
    ++taken;
    // What cannot be used is an error where it is asked for by name, also if it was met before.
    const bool in_passing = input.tensor.empty() && tensor.known_dtype;
    if (repeats && repeats->is_again(tensor, number) && (is_real(tensor.dtype) || in_passing)) {
      ++again;
      continue;
    }
    if (is_real(tensor.dtype)) {
      inputs.tensors.push_back(
          {&source, &tensor, tensor.file + ":" + tensor.name,
           patterns.fields({input.below, tensor.file, tensor.name}, &notes.pattern_use())});
      continue;
    }
    if (const auto damage = damage_of(tensor)) {
      inputs.errors.push_back({tensor.file, tensor.name, damage->what(), damage->exit_code()});
      continue;
    }
    const ErrorRecord record{
        tensor.file, tensor.name,
        tensor.file + ": tensor '" + tensor.name +
            "': expected F64, F32, F16, BF16 or FP8 numbers, found dtype " +
            (tensor.dtype == DType::kOther ? dtype_label(tensor) + dtype_advice(tensor)
                                           : shown_dtype(tensor)),
        kUnsupportedCode};
    // Asked for by name, or of a dtype that nobody knows, it is an error; codes and integers met
    // in passing are left out and said so.
    (in_passing ? inputs.skipped : inputs.errors).push_back(record);
  }
  return {found || input.tensor.empty(), again > 0 && again == taken};
}

// A file that is named again, with the same tensor or without one, is not opened again.
void keep_first_of_each(InputFiles& inputs) {
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  std::vector<InputFile> kept;
  for (InputFile& input : inputs.files) {
    const auto [at, is_new] =
        places.try_emplace({inputs.repeats.key(input.file), input.tensor}, kept.size());
    if (is_new) {
      kept.push_back(std::move(input));
      continue;
    }
    InputFile& first = kept[at->second];
    first.also.push_back(input.operand);
    first.in_directory &= input.in_directory;
    inputs.repeats.add(input.file);
  }
  inputs.files = std::move(kept);
}

}  // namespace

void report_faults(const SourceInfo& info, const std::string& tensor,
                   const std::function<bool(const std::string&)>& accepts,
                   std::vector<ErrorRecord>& errors) {
  const auto is_wanted = [&](const std::string& name) {
    return (tensor.empty() || name == tensor) && accepts(name);
  };
  for (const SourceFault& fault : wanted_faults(info.faults, is_wanted)) {
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
  keep_first_of_each(inputs);
  return inputs;
}

void InputFile::mark(std::vector<bool>& operands) const {
  operands[operand] = true;
  for (const std::size_t other : also) operands[other] = true;
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
                         const NamePatterns& patterns,
                         const std::function<void(std::int64_t files)>& looking) {
  InputFiles found = find_inputs(operands, options);
  InputTensors inputs;
  inputs.errors = found.errors;
  inputs.skipped = found.skipped;
  InputNotes notes(options);
  std::int64_t looked_at = 0;
  std::vector<bool> has_tensor(operands.size());
  SourcePool pool(options.in_parts());
  InputRepeats* const repeats = found.files.size() > 1 ? &found.repeats : nullptr;
  for (const InputFile& input : found.files) {
    std::unique_ptr<TensorSource> source;
    if (looking) looking(looked_at);
    ++looked_at;
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
    const Taken taken = take_tensors(input, static_cast<std::size_t>(looked_at), *source, accepts,
                                     patterns, notes, repeats, inputs);
    if (taken.found || is_lost) {
      input.mark(has_tensor);
      if (taken.repeated) continue;
    } else if (input.in_directory) {
      continue;
    } else {
      inputs.errors.push_back({input.file, input.tensor,
                               input.file + ": no tensor is named '" + input.tensor + "'; found " +
                                   counted(source->tensors().size(), "tensor") +
                                   near_names(source->tensors(), input.tensor),
                               kDataCode});
    }
    notes.add_file(input.file);
    inputs.sources.push_back({info.path, info.container, info.bytes});
    inputs.files.push_back(std::move(source));
  }
  report_missing_tensors(found, has_tensor, operands, inputs.errors);
  if (const std::string note = found.repeats.sentence(); !note.empty()) {
    inputs.notes.push_back(note);
  }
  for (std::string& note : notes.sentences(patterns, !inputs.errors.empty())) {
    inputs.notes.push_back(std::move(note));
  }
  return inputs;
}

std::vector<std::string> paths_of(const std::vector<Report::Source>& sources) {
  std::vector<std::string> out;
  for (const Report::Source& source : sources) out.push_back(source.path);
  return out;
}

}  // namespace fp4scope
