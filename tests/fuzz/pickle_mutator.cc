// pickle_mutator.cc: see pickle_mutator.h. Opcodes: CPython Lib/pickletools.py, protocols 0 to 5.
#include "tests/fuzz/pickle_mutator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/support/container_bytes.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fp4scope::fuzz {
namespace {

using namespace std::string_view_literals;

// Opcodes by their argument.
constexpr std::string_view kPlain =
    "(.012NQRabdlost]}eu)\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98"sv;
constexpr std::string_view kOneByte = "Khq\x80\x82"sv;
constexpr std::string_view kTwoBytes = "M\x83"sv;
constexpr std::string_view kFourBytes = "Jjr\x84"sv;
constexpr std::string_view kEightBytes = "G\x95"sv;
constexpr std::string_view kLine = "FILPSVgp"sv;
constexpr std::string_view kTwoLines = "ci"sv;
constexpr std::string_view kText1 = "UC\x8a\x8c"sv;
constexpr std::string_view kText4 = "TXB\x8b"sv;
constexpr std::string_view kText8 = "\x8d\x8e\x96"sv;

constexpr std::array kGlobals = {
    "torch._utils\n_rebuild_tensor_v2\n"sv,
    "torch._utils\n_rebuild_tensor\n"sv,
    "torch._utils\n_rebuild_parameter\n"sv,
    "torch._utils\n_rebuild_sparse_tensor\n"sv,
    "torch._utils\n_rebuild_qtensor\n"sv,
    "torch._tensor\n_rebuild_from_type_v2\n"sv,
    "torch\nFloatStorage\n"sv,
    "torch\nBFloat16Storage\n"sv,
    "torch.storage\nUntypedStorage\n"sv,
    "torch\nfloat8_e4m3fn\n"sv,
    "torch\nSize\n"sv,
    "torch\ndevice\n"sv,
    "collections\nOrderedDict\n"sv,
    "collections\ndefaultdict\n"sv,
    "collections\nCounter\n"sv,
    "numpy.core.multiarray\n_reconstruct\n"sv,
    "numpy\nndarray\n"sv,
    "numpy\ndtype\n"sv,
    "builtins\nset\n"sv,
    "builtins\ngetattr\n"sv,
    "builtins\neval\n"sv,
    "types\nSimpleNamespace\n"sv,
    "my.module\nClass\n"sv,
};

bool has(std::string_view opcodes, char opcode) {
  return opcodes.find(opcode) != std::string_view::npos;
}

// Bytes of the opcode at the start of `rest`, 0 where there is none or it does not end.
std::size_t opcode_bytes(std::string_view rest) {
  const char op = rest.front();
  const auto line = [&](std::size_t from) {
    const std::size_t end = rest.find('\n', from);
    return end == std::string_view::npos ? 0 : end + 1;
  };
  const auto text = [&](std::size_t width) -> std::size_t {
    if (rest.size() < 1 + width) return 0;
    std::uint64_t length = 0;
    for (std::size_t i = width; i-- > 0;) {
      length = length << 8 | static_cast<unsigned char>(rest[1 + i]);
    }
    return length > rest.size() - 1 - width ? 0 : 1 + width + length;
  };
  std::size_t bytes = 0;
  if (has(kPlain, op)) bytes = 1;
  if (has(kOneByte, op)) bytes = 2;
  if (has(kTwoBytes, op)) bytes = 3;
  if (has(kFourBytes, op)) bytes = 5;
  if (has(kEightBytes, op)) bytes = 9;
  if (has(kLine, op)) return line(1);
  if (has(kTwoLines, op)) return line(1) == 0 ? 0 : line(line(1));
  if (has(kText1, op)) return text(1);
  if (has(kText4, op)) return text(4);
  if (has(kText8, op)) return text(8);
  return bytes <= rest.size() ? bytes : 0;
}

std::size_t below(Random& random, std::size_t limit) {
  return random() / 7 % limit;
}

char pick(Random& random, std::string_view opcodes) {
  return opcodes[below(random, opcodes.size())];
}

std::string random_text(Random& random) {
  static constexpr std::array kTexts = {"storage"sv, "cpu"sv,   "0"sv,    "1"sv, "w"sv,
                                        "<f4"sv,     "state"sv, "data"sv, ""sv,  "\xc3\xa9"sv};
  return std::string(kTexts[below(random, kTexts.size())]);
}

std::string random_number(Random& random, int bytes) {
  static constexpr std::array<std::uint64_t, 10> kNumbers = {
      0, 1, 2, 3, 4, 8, 255, 0x7FFFFFFF, 0x80000000, ~std::uint64_t{0}};
  return test::little_endian(kNumbers[below(random, kNumbers.size())], bytes);
}

std::string random_opcode(Random& random) {
  switch (below(random, 10)) {
    case 0:
      return pick(random, kOneByte) + test::little_endian(below(random, 12), 1);
    case 1:
      return pick(random, kFourBytes) + random_number(random, 4);
    case 2:
      return pick(random, kLine) + std::to_string(below(random, 20)) + "\n";
    case 3:
      return pick(random, kTwoLines) + std::string(kGlobals[below(random, kGlobals.size())]);
    case 4: {
      const std::string text = random_text(random);
      return pick(random, kText1) + test::little_endian(text.size(), 1) + text;
    }
    case 5: {
      const std::string text = random_text(random);
      return pick(random, kText4) + test::little_endian(text.size(), 4) + text;
    }
    case 6: {
      const std::string text = random_text(random);
      return pick(random, kText8) + test::little_endian(text.size(), 8) + text;
    }
    case 7:
      return pick(random, kTwoBytes) + random_number(random, 2);
    default:
      return {pick(random, kPlain)};
  }
}

}  // namespace

std::string mutate_blindly(std::string bytes) {
  const std::size_t size = bytes.size();
  bytes.resize(size + 256);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

std::string mutate_pickle(const std::string& pickle, Random& random) {
  std::vector<std::string> ops;
  std::size_t at = 0;
  while (at < pickle.size() && ops.size() < 20000) {
    const std::size_t bytes = opcode_bytes(std::string_view(pickle).substr(at));
    if (bytes == 0) break;
    // Changes make the lengths of frames wrong; the rest is told more by what comes behind.
    if (pickle[at] != '\x95' || below(random, 20) == 0) ops.push_back(pickle.substr(at, bytes));
    at += bytes;
  }
  const std::string tail = pickle.substr(at);
  if (ops.empty()) return mutate_blindly(pickle);
  const std::size_t changes = 1 + below(random, 3);
  for (std::size_t i = 0; i < changes && !ops.empty(); ++i) {
    const auto place = ops.begin() + static_cast<std::ptrdiff_t>(below(random, ops.size()));
    switch (below(random, 7)) {
      case 0:
        ops.erase(place);
        break;
      case 1:
        ops.insert(place, random_opcode(random));
        break;
      case 2:
        *place = random_opcode(random);
        break;
      case 3:
        std::swap(*place, ops[below(random, ops.size())]);
        break;
      case 4: {  // a run of opcodes once more
        const auto from = static_cast<std::size_t>(place - ops.begin());
        const std::size_t count = 1 + below(random, std::min<std::size_t>(8, ops.size() - from));
        const std::vector<std::string> run(place, place + static_cast<std::ptrdiff_t>(count));
        ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(below(random, ops.size())),
                   run.begin(), run.end());
        break;
      }
      case 5: {  // a fixed-size argument
        if (place->size() > 1 && !has(kLine, place->front()) && !has(kTwoLines, place->front())) {
          (*place)[1 + below(random, place->size() - 1)] = static_cast<char>(below(random, 256));
        }
        break;
      }
      default:
        *place = place->front() + mutate_blindly(place->substr(1));
    }
  }
  std::string out;
  for (const std::string& op : ops) out += op;
  return out + tail;
}

}  // namespace fp4scope::fuzz
