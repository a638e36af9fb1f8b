// json_text.h: JSON as fp4scope prints it. Doubles in their shortest round-trip form (with ".0"
// when they look like integers), no NaN or Infinity token, malformed UTF-8 replaced by U+FFFD,
// arrays of plain values on one line.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/render.h"

namespace fp4scope {

using Json = nlohmann::ordered_json;  // keys stay in the order of insertion

// Ends with a newline.
std::string json_text(const Json& value);

// The object that every command prints: provenance and empty results, aggregates and errors.
Json json_envelope(const Provenance& provenance);
Json to_json(const ErrorRecord& error);
// The keys layer, step, rank, expert and role, each only where it is known.
void add_fields(const NameFields& fields, Json& out);

}  // namespace fp4scope
