// name_pattern.cc: see name_pattern.h. The layouts, as far as their sources are public:
//   TransformerEngine debug/features/dump_tensors.py
//                       rank_R/{layer}_{tensor}_iter_N.pt, keys high_precision and quantized
//   SGLang debug_utils  TPx_PPy_RankR_pidP/PassN.pt; step=S___rank=R___name=N___layer_id=L.pt;
//                       sglang_dump_{time}_R/forward_pass_id=S___name=N.pt
//   Megatron            iter_N/mp_rank_TT[_PPP[_EEE]]/model_optim_rng.pt
//   transformers, verl  checkpoint-N, global_step_N, model_world_size_W_rank_R.pt
#include "analysis/name_pattern.h"

#include <charconv>
#include <optional>

#include "analysis/text_table.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kLayer = 0, kStep = 1, kRank = 2, kExpert = 3, kRole = 4;

struct RuleText {
  std::size_t field;
  bool name_first;
  const char* expression;  // the first capture is the field
};
// In order; the first that matches wins.
constexpr RuleText kRules[] = {
    {kLayer, true, R"((?:^|[^A-Za-z0-9])layers?[._](\d+))"},
    {kLayer, true, R"((?:^|[^A-Za-z0-9])(?:blocks?|blk)\.(\d+))"},
    {kLayer, true, R"((?:^|[./:])h\.(\d+))"},
    {kLayer, true, R"((?:^|[^A-Za-z0-9])layer(?:_id)?=(\d+))"},
    {kStep, false, R"((?:^|[^A-Za-z0-9])(?:iter|iteration|step|checkpoint)[_=-]?(\d+))"},
    {kStep, false, R"((?:^|[^A-Za-z0-9])forward_pass_id=(\d+))"},
    {kStep, false, R"((?:^|/)Pass(\d+)\.[A-Za-z0-9]+$)"},
    {kRank, false, R"((?:^|/)(?:[a-z]p_)rank_(\d+(?:_\d+)*))"},
    {kRank, false, R"((?:^|/)(?i:rank)[_-]?(\d+))"},
    {kRank, false, R"((?:^|[/_])rank=(\d+))"},
    {kRank, false, R"((?:^|/)TP\d+_PP\d+_Rank(\d+))"},
    {kRank, false, R"(world_size_\d+_rank_(\d+))"},
    {kRank, false, R"((?:^|/)sglang_dump_[0-9.]+_(\d+)(?:/|$))"},
    {kExpert, true, R"((?:^|[^A-Za-z0-9])experts?[._](\d+))"},
    {kRole, false,
     R"(_(activation|weight|gradient|output|wgrad|dgrad)(?:_iter_\d+|__mb\d+)?\.[A-Za-z0-9]+$)"},
    {kRole, false, R"((?:^|[/_])name=(.+?)(?:___|\.[A-Za-z0-9]+$))"},
};

bool is_known(const Value& value) {
  return !std::holds_alternative<std::monostate>(value);
}

std::string known_fields() {
  std::vector<std::string> names(kNameFields.begin(), kNameFields.end());
  return joined(names, ", ");
}

// The first capture, or nothing.
std::optional<std::string_view> capture(const RE2& expression, std::string_view text) {
  re2::StringPiece parts[2];
  const re2::StringPiece subject(text.data(), text.size());
  if (!expression.Match(subject, 0, subject.size(), RE2::UNANCHORED, parts, 2) ||
      parts[1].empty()) {
    return std::nullopt;
  }
  return std::string_view(parts[1].data(), parts[1].size());
}

}  // namespace

int name_field_index(std::string_view name) {
  for (std::size_t i = 0; i < kNameFields.size(); ++i) {
    if (kNameFields[i] == name) return static_cast<int>(i);
  }
  return -1;
}

Value name_value(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (!text.empty() && error == std::errc{} && stop == end) return number;
  return std::string(text);
}

std::string name_fields_text(const NameFields& fields) {
  std::string out;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!is_known(fields[i])) continue;
    if (!out.empty()) out += ", ";
    out += std::string(kNameFields[i]) + ' ';
    if (const auto* number = std::get_if<std::int64_t>(&fields[i])) out += std::to_string(*number);
    if (const auto* text = std::get_if<std::string>(&fields[i])) out += *text;
  }
  return out;
}

NamePatterns::NamePatterns(const std::vector<std::string>& expressions)
    : part_(compile_expression("rule", "^(high_precision|quantized|(?:row|column)wise_[a-z_]+)")) {
  for (const std::string& text : expressions) {
    Pattern pattern{compile_expression("--name-pattern", text), {}};
    for (const auto& [name, capture] : pattern.expression->NamedCapturingGroups()) {
      const int field = name_field_index(name);
      if (field < 0) {
        throw Error(ErrorKind::kUsage, "--name-pattern '" + text + "' has the group '" + name +
                                           "', expected " + known_fields());
      }
      pattern.groups.emplace_back(capture, static_cast<std::size_t>(field));
    }
    if (pattern.groups.empty()) {
      throw Error(ErrorKind::kUsage, "--name-pattern '" + text +
                                         "' has no named group, expected (?P<NAME>...) with a NAME "
                                         "of " +
                                         known_fields());
    }
    patterns_.push_back(std::move(pattern));
  }
  for (const RuleText& rule : kRules) {
    rules_.push_back({rule.field, rule.name_first, compile_expression("rule", rule.expression)});
  }
}

std::vector<std::string> NamePatterns::unused(std::vector<bool> used) const {
  used.resize(patterns_.size());
  std::vector<std::string> out;
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (!used[i]) out.push_back(patterns_[i].expression->pattern());
  }
  return out;
}

NameFields NamePatterns::fields(const TensorPath& path, std::vector<bool>* used) const {
  if (used != nullptr) used->resize(patterns_.size());
  NameFields found;
  const std::string below = std::string(path.below) + ':' + std::string(path.tensor);
  const std::string whole = std::string(path.file) + ':' + std::string(path.tensor);
  for (const Pattern& pattern : patterns_) {
    const RE2& expression = *pattern.expression;
    std::vector<re2::StringPiece> parts(
        static_cast<std::size_t>(expression.NumberOfCapturingGroups()) + 1);
    const auto matches = [&](const std::string& text) {
      return expression.Match(text, 0, text.size(), RE2::UNANCHORED, parts.data(),
                              static_cast<int>(parts.size()));
    };
    if (!matches(below) && !matches(whole)) continue;
    if (used != nullptr) (*used)[static_cast<std::size_t>(&pattern - patterns_.data())] = true;
    for (const auto& [capture, field] : pattern.groups) {
      const re2::StringPiece& part = parts[static_cast<std::size_t>(capture)];
      if (part.empty() || is_known(found[field])) continue;
      const std::string_view text(part.data(), part.size());
      found[field] = field == kRole ? Value(std::string(text)) : name_value(text);
    }
  }
  for (const Rule& rule : rules_) {
    if (is_known(found[rule.field])) continue;
    const std::string_view order[] = {rule.name_first ? path.tensor : path.below,
                                      rule.name_first ? path.below : path.tensor, path.file};
    for (const std::string_view text : order) {
      const auto part = capture(*rule.expression, text);
      if (!part) continue;
      found[rule.field] = rule.field == kRole ? Value(std::string(*part)) : name_value(*part);
      // One dump file holds a tensor before and after its cast.
      const auto form =
          rule.field == kRole && text != path.tensor ? capture(*part_, path.tensor) : std::nullopt;
      if (form) std::get<std::string>(found[kRole]) += '.' + std::string(*form);
      break;
    }
  }
  return found;
}

}  // namespace fp4scope
