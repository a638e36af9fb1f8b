// target.h: what a fuzz target is. Each parser has one function that takes the bytes of a file (or
// a text) and does with them what the program would do. Only fp4scope::Error may come out of the
// parser, with one printable line; the same functions run under libFuzzer (libfuzzer_entry.cc) and
// once over the committed files in the ordinary tests (fuzz_corpus_test.cc).
#pragma once
#include <functional>
#include <span>
#include <string_view>

namespace fp4scope::fuzz {

struct Target {
  std::string_view name;  // of the folders in corpus/ and regressions/
  void (*run)(std::string_view bytes);
};
// All targets of this build, in order of name.
std::span<const Target> all_targets();

void run_format_file(std::string_view bytes);
void run_gguf(std::string_view bytes);
void run_hdf5(std::string_view bytes);
void run_index(std::string_view bytes);
void run_npy(std::string_view bytes);
void run_pickle(std::string_view bytes);
void run_recipe(std::string_view bytes);
void run_resume(std::string_view bytes);
void run_safetensors(std::string_view bytes);
void run_zip(std::string_view bytes);

// Throws std::logic_error, which ends the process under libFuzzer.
void require(bool holds, const char* what);
// The io library escapes what it quotes; the texts of sim are escaped where the tools print them.
enum class Sentence { kPrintable, kEscapedLater };
// Runs `parse` and absorbs fp4scope::Error; whether it came through without one. What else is
// thrown passes, and so does the breach of a rule about sentences.
bool accepts(const std::function<void()>& parse, Sentence sentence = Sentence::kPrintable);

}  // namespace fp4scope::fuzz
