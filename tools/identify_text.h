// identify_text.h: an IdentifyResult as text and JSON, for identify and for verify --suggest.
#pragma once
#include <string>

#include "analysis/compare/identify.h"
#include "analysis/json_text.h"

namespace fp4scope::tools {

std::string identify_text(const IdentifyResult& result);
Json identify_json(const IdentifyResult& result);

}  // namespace fp4scope::tools
