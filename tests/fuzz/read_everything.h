// read_everything.h: everything that the program could ask a source for, within a budget.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "analysis/io/mapped_source.h"
#include "analysis/io/tensor_source.h"
#include "tests/fuzz/target.h"

namespace fp4scope::fuzz {

// A regular file without a name that holds `bytes`, at least one.
std::shared_ptr<MappedFile> file_in_memory(std::string_view bytes, const std::string& name);

// Touches names, metadata and every tensor: read_raw, read_f32 and read_f64, whole and in
// rectangles of odd sizes that have to agree, up to 1 MiB per tensor and 4 MiB per source.
void read_everything(const TensorSource& source);

// A file of one container: opens `bytes` with `append` and reads everything.
void open_and_read(
    std::string_view bytes,
    const std::function<void(const std::shared_ptr<MappedFile>&, Contents&)>& append);

}  // namespace fp4scope::fuzz
