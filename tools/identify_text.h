// identify_text.h: an IdentifyResult as text and JSON, for identify and for verify --suggest.
#pragma once
#include <string>

#include "analysis/compare/identify.h"
#include "analysis/json_text.h"

namespace fp4scope::tools {

std::string identify_text(const IdentifyResult& result);
Json identify_json(const IdentifyResult& result);
// The keys layer, step, rank, expert and role of a tensor, by the built-in rules.
void add_name_fields(const std::string& file, const std::string& tensor, Json& out);

}  // namespace fp4scope::tools
