// recipes.h: the recipes that backends are compared on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace fp4scope::test {

// Every contract of every format, and the NVFP4 settings that change the arithmetic.
std::vector<std::string> contract_recipes();
// Single settings on top of a contract, wherever the contract has the key; user-defined formats.
std::vector<std::string> option_recipes();
// FNV-1a of the text: each recipe meets blocks of its own, the same in every run.
std::uint64_t seed_of(const std::string& text);

}  // namespace fp4scope::test
