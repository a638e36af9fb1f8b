// hdf5_source.h: the datasets of an HDF5 file, read through its library.
#pragma once
#include <memory>
#include <string>

#include "analysis/io/mmap.h"
#include "analysis/io/tensor_source.h"

namespace fp4scope {

// `file` is the same file, mapped; `path` is how the user names it. Throws Error(kData), or
// Error(kUnsupported) for a feature that the library of this machine lacks. Of the options, the
// scratch folder and the stop flag are used; the flag has to outlive the source. A dataset that is
// read against the order of its chunks is unpacked into a scratch file once that is cheaper.
std::unique_ptr<TensorSource> open_hdf5(const std::string& path,
                                        const std::shared_ptr<MappedFile>& file,
                                        const OpenOptions& options = {});

}  // namespace fp4scope
