// zip_mutator.cc: libFuzzer's mutator of the targets zip and pickle. It changes the inside of an
// archive and puts a consistent one around it again; a pickle is changed by opcodes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/pickle_mutator.h"
#include "tests/fuzz/zip_bytes.h"

namespace fp4scope::fuzz {
namespace {

bool is_pickle(const ZipPart& part) {
  return part.name.ends_with(".pkl");
}

std::size_t below(Random& random, std::size_t limit) {
  return random() / 7 % limit;
}

std::string mutate_content(const ZipPart& part, Random& random) {
  if (is_pickle(part) && below(random, 4) != 0) return mutate_pickle(part.content, random);
  return mutate_blindly(part.content);
}

void mutate_parts(std::vector<ZipPart>& parts, Random& random) {
  const std::size_t at = below(random, parts.size());
  const auto pickle = std::find_if(parts.begin(), parts.end(), is_pickle);
  switch (below(random, 12)) {
    case 0:
      parts[at].name = mutate_blindly(parts[at].name);
      break;
    case 1:
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at), parts[at]);
      break;
    case 2:
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 3:
      std::swap(parts[at], parts[below(random, parts.size())]);
      break;
    case 4:
      parts[at].deflated = !parts[at].deflated;
      break;
    case 5:
      parts[at].content = parts[below(random, parts.size())].content;
      break;
    default: {
      ZipPart& part = pickle != parts.end() && below(random, 5) != 0 ? *pickle : parts[at];
      part.content = mutate_content(part, random);
    }
  }
}

std::string mutate_zip(std::vector<ZipPart> parts, Random& random) {
  mutate_parts(parts, random);
  ZipForm form;
  form.zip64 = below(random, 5) == 0;
  form.descriptors = !form.zip64 && below(random, 5) == 0;
  if (below(random, 20) == 0) form.prefix = "#!prefix\n";
  if (below(random, 20) == 0) form.comment = "comment";
  std::string bytes = zip_bytes(parts, form);
  // A lie in one of the headers.
  if (below(random, 6) == 0)
    bytes[below(random, bytes.size())] ^= static_cast<char>(below(random, 256));
  return bytes;
}

std::string mutate(const std::string& bytes, Random& random) {
  if (below(random, 5) == 0) return mutate_blindly(bytes);
  if (bytes.starts_with("PK") || bytes.find("PK\x05\x06") != std::string::npos) {
    const auto parts = zip_parts(bytes);
    return parts && !parts->empty() ? mutate_zip(*parts, random) : mutate_blindly(bytes);
  }
  return mutate_pickle(bytes, random);
}

}  // namespace
}  // namespace fp4scope::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  using namespace fp4scope::fuzz;
  Random random(seed);
  const std::string before(reinterpret_cast<const char*>(data), size);
  std::string after = mutate(before, random);
  if (after.size() > max_size) after = before;
  std::memcpy(data, after.data(), after.size());
  return after.size();
}
