// gguf_types.h: the tensor types of ggml by their number in a GGUF file (enum ggml_type, ggml
// d99724f and gguf 0.19.0): name, elements and bytes of a block, and how this program reads them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "analysis/io/gguf_blocks.h"

namespace fp4scope {

struct GgufType {
  std::uint32_t number = 0;
  std::string_view name;
  int elements = 1;             // of a block; 1 for plain numbers
  int bytes = 0;                // of a block; 0: removed from ggml, and its size with it
  DType dtype = DType::kOther;  // of the elements that a reader gets
  int bits = 0;                 // per element that a reader gets; 0: only listed
  const GgufCodecs* codecs = nullptr;
};

// nullptr for a number that ggml does not have.
const GgufType* find_gguf_type(std::uint32_t number);
// The name of a type, or "type 99".
std::string gguf_type_name(std::uint32_t number);

}  // namespace fp4scope
