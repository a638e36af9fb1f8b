// pickle_mutator.h: changes of whole opcodes of a pickle. Blind changes mostly break the length of
// some text, behind which nothing is read any more.
#pragma once
#include <cstddef>
#include <random>
#include <string>

namespace fp4scope::fuzz {

using Random = std::minstd_rand;

// LLVMFuzzerMutate, which has to be declared by its user; grows by at most 256 bytes.
std::string mutate_blindly(std::string bytes);
// Removes, repeats, swaps, inserts or changes opcodes; several pickles in a row count as one.
std::string mutate_pickle(const std::string& pickle, Random& random);

}  // namespace fp4scope::fuzz
