// target.cc: see target.h.
#include "tests/fuzz/target.h"

#include <array>
#include <stdexcept>
#include <string>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope::fuzz {
namespace {

// A sentence quotes a few names, each cut by in_quotes(), and paths.
constexpr std::size_t kLongestSentence = 4096;

void check_sentence(const std::string& sentence, Sentence kind) {
  require(!sentence.empty(), "an error has no text");
  if (kind == Sentence::kEscapedLater) return;
  require(sentence.size() <= kLongestSentence, "an error text is longer than any terminal shows");
  // printable() changes nothing in a text without control characters and ill-formed UTF-8.
  require(printable(sentence, 2 * kLongestSentence) == sentence,
          "an error text holds control characters or ill-formed UTF-8 of the input");
}

}  // namespace

std::span<const Target> all_targets() {
  static constexpr std::array kTargets = {
      Target{"format_file", run_format_file},
      Target{"gguf", run_gguf},
      Target{"hdf5", run_hdf5},
      Target{"index", run_index},
      Target{"npy", run_npy},
      Target{"pickle", run_pickle},
      Target{"recipe", run_recipe},
      Target{"resume", run_resume},
      Target{"safetensors", run_safetensors},
      Target{"zip", run_zip},
  };
  return kTargets;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

bool accepts(const std::function<void()>& parse, Sentence sentence) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    check_sentence(error.what(), sentence);
    return false;
  }
}

}  // namespace fp4scope::fuzz
