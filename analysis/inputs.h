// inputs.h: the files and tensors that the operands of a command name: FILE, DIRECTORY,
// FILE:TENSOR, DIRECTORY:TENSOR, patterns of glob(3) for the file, or "-".
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/input_repeats.h"
#include "analysis/io/pooled_source.h"
#include "analysis/io/tensor_source.h"
#include "analysis/name_pattern.h"
#include "analysis/report.h"

namespace fp4scope {

// One file to open; a directory stands for its files, so that a bad one does not hide the others.
struct InputFile {
  std::string file;
  std::string tensor;   // empty: all
  std::string below;    // the path below the directory that the operand names, or `file`
  std::size_t operand;  // index into the operands
  bool in_directory;    // then a file without the tensor is none of those that are meant
  std::vector<std::size_t> also = {};  // operands that name it, too
  // Says in `operands` (one entry each) that the tensor was found.
  void mark(std::vector<bool>& operands) const;
};
struct InputFiles {
  std::vector<InputFile> files;
  std::vector<ErrorRecord> errors;   // what cannot be read though it was asked for
  std::vector<ErrorRecord> skipped;  // containers of a directory that are left out
  InputRepeats repeats;              // what is there once though it was named more often
};
// A file that several operands name with the same tensor, or with none, is there once. Throws
// Error(kUsage) when two operands are the same stream, which can be read once.
InputFiles find_inputs(const std::vector<std::string>& operands, const OpenOptions& options);
// For DIRECTORY:TENSOR that no file of the directory holds: errors of the operands for which
// `found` (parallel to them) says so, unless one is recorded for a file of theirs.
void report_missing_tensors(const InputFiles& inputs, const std::vector<bool>& found,
                            const std::vector<std::string>& operands,
                            std::vector<ErrorRecord>& errors);

// Errors for the shards of an index that cannot be read and hold tensors that are asked for: those
// of the name `tensor`, or all, that the filter accepts.
void report_faults(const SourceInfo& info, const std::string& tensor,
                   const std::function<bool(const std::string&)>& accepts,
                   std::vector<ErrorRecord>& errors);

struct InputTensors {
  struct Entry {
    const TensorSource* source;
    const TensorInfo* tensor;
    std::string operand;  // FILE:TENSOR, as a later command can name it
    NameFields fields;
  };
  std::vector<std::unique_ptr<TensorSource>> files;  // few of them are open at a time
  std::vector<Entry> tensors;  // of real numbers that the filter accepts, in the order of operands
  std::vector<ErrorRecord> errors;   // what cannot be used though it was asked for
  std::vector<ErrorRecord> skipped;  // what holds no real numbers and was met in passing
  std::vector<Report::Source> sources;
  std::vector<std::string> notes;  // sentences about operands and options (input_notes.h)
};
std::vector<std::string> paths_of(const std::vector<Report::Source>& sources);

// Goes on after a bad file or tensor and records it. `looking` is called before each file is opened
// with the number of those before it; may be empty.
InputTensors open_inputs(const std::vector<std::string>& operands, const OpenOptions& options,
                         const std::function<bool(const std::string&)>& accepts,
                         const NamePatterns& patterns = {},
                         const std::function<void(std::int64_t files)>& looking = {});

}  // namespace fp4scope
