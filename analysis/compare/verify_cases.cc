// verify_cases.cc: see verify_cases.h.
#include "analysis/compare/verify_cases.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/analyze.h"
#include "analysis/io/message.h"
#include "analysis/tiles.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

struct TextKey {
  const char* name;
  std::string VerifyCase::*field;
  bool is_operand;
};
constexpr TextKey kTextKeys[] = {
    {"name", &VerifyCase::name, false},       {"recipe", &VerifyCase::recipe, false},
    {"input", &VerifyCase::input, true},      {"codes", &VerifyCase::codes, true},
    {"scales", &VerifyCase::scales, true},    {"choice", &VerifyCase::choice, true},
    {"fake", &VerifyCase::fake, true},        {"outer_scale", &VerifyCase::outer_scale, true},
    {"amax", &VerifyCase::amax, true},        {"layout", &VerifyCase::layout, false},
    {"nibbles", &VerifyCase::nibbles, false}, {"stream", &VerifyCase::stream, false}};

std::string keys_text() {
  std::string out;
  for (const TextKey& key : kTextKeys) out += std::string(key.name) + ", ";
  return out + "axis";
}

VerifyCase case_of_line(const nlohmann::json& line, const std::filesystem::path& folder,
                        const VerifyCase& defaults, const std::string& where) {
  VerifyCase job = defaults;
  for (const auto& [name, value] : line.items()) {
    if (name == "axis") {
      const bool fits =
          value.is_number_integer() && value.get<double>() >= -64 && value.get<double>() <= 64;
      if (!fits) {
        throw Error(ErrorKind::kData, fmt::format("{}: axis is no integer from -64 to 64", where));
      }
      job.axis = value.get<int>();
      continue;
    }
    const auto* key = std::find_if(std::begin(kTextKeys), std::end(kTextKeys),
                                   [&](const TextKey& k) { return name == k.name; });
    if (key == std::end(kTextKeys)) {
      throw Error(ErrorKind::kData, fmt::format("{}: unknown key {}; the keys are {}", where,
                                                in_quotes(name), keys_text()));
    }
    if (!value.is_string()) {
      throw Error(ErrorKind::kData, fmt::format("{}: {} is not a text", where, name));
    }
    std::string text = value.get<std::string>();
    if (key->is_operand && !text.empty() && text.front() != '/') text = (folder / text).string();
    job.*(key->field) = std::move(text);
  }
  if (job.recipe.empty() || job.input.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{}: expected a recipe and an input, found {}", where,
                                              job.recipe.empty() ? "no recipe" : "no input"));
  }
  return job;
}

// Lines of well-formed UTF-8 without the two characters that XML 1.0 does not have.
std::string well_formed(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at), std::string::npos);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  std::string clean;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string_view next = std::string_view(out).substr(i, 3);
    const bool is_bad = next == "\xEF\xBF\xBE" || next == "\xEF\xBF\xBF";
    clean += is_bad ? '?' : out[i];
    i += is_bad ? 2 : 0;
  }
  return clean;
}

std::string xml_text(const std::string& raw) {
  const std::string text = well_formed(raw);
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        // XML 1.0 has no other control characters.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? '?' : c;
    }
  }
  return out;
}

}  // namespace

std::vector<VerifyCase> read_cases(const std::string& path, const VerifyCase& defaults) {
  std::ifstream file(path);
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorKind::kData,
                fmt::format("{} is a directory, expected a list of cases", printable(path)));
  }
  if (!file) {
    throw Error(ErrorKind::kData,
                fmt::format("cannot read {}: {}", printable(path), system_message(errno)));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<VerifyCase> cases;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}: line {}", printable(path), number);
    std::set<std::string> keys;
    std::string twice;
    const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
      if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
          !keys.insert(key.get<std::string>()).second) {
        twice = key.get<std::string>();
      }
      return true;
    };
    const nlohmann::json line = nlohmann::json::parse(text, on_event, false);
    if (!twice.empty()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: the key {} is there twice", where, in_quotes(twice)));
    }
    if (!line.is_object()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: expected a JSON object, found {}", where, in_quotes(text)));
    }
    cases.push_back(case_of_line(line, folder, defaults, where));
    if (cases.back().name.empty()) cases.back().name = fmt::format("line {}", number);
  }
  if (file.bad()) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: a read error after {} cases", printable(path), cases.size()));
  }
  if (cases.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{} holds no case", printable(path)));
  }
  return cases;
}

namespace {

// A stripped or cut file must not pass: __metadata__ lists the cases, and what each of them has
// follows from the recipe that made it.
void require_whole_golden(const TensorSource& source, const std::set<std::string>& names,
                          const std::string& path) {
  nlohmann::json listed;
  std::string recipe;
  for (const auto& [key, value] : source.metadata()) {
    if (key == "cases") listed = nlohmann::json::parse(value, nullptr, false);
    if (key == "recipe") recipe = value;
  }
  if (!listed.is_object()) {
    throw Error(ErrorKind::kData, fmt::format("{}: __metadata__ lists no cases, expected a file of "
                                              "fp4scope golden",
                                              printable(path)));
  }
  // scale=none and the like in the full text of the recipe; a format file is not needed for this.
  const bool has_choices = recipe.find("select=m") != std::string::npos ||
                           recipe.find("select=absmax") != std::string::npos;
  std::set<std::string> planes_of_others;
  for (const std::string& name : names) {
    const std::size_t dot = name.rfind('.');
    if (dot != std::string::npos) planes_of_others.insert(name.substr(dot));
  }
  for (const auto& [name, facts] : listed.items()) {
    const bool is_refused = facts.contains("refused");
    const bool has_codes = !is_refused && !facts.contains("values_only");
    std::vector<const char*> planes = {".x"};
    if (!is_refused) planes.push_back(".values");
    if (has_codes) planes.push_back(".codes");
    // What some case has, every case with codes has.
    for (const char* plane : {".scales", ".amax", ".outer_scale"}) {
      if (has_codes && planes_of_others.contains(plane)) planes.push_back(plane);
    }
    if (has_codes && has_choices) planes.push_back(".choice");
    for (const char* plane : planes) {
      if (names.contains(name + plane)) continue;
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: the case {} has no tensor {}, expected every plane of the golden",
                      printable(path), in_quotes(name), in_quotes(name + plane)));
    }
  }
}

}  // namespace

std::vector<VerifyCase> golden_cases(const std::string& path, const VerifyCase& defaults,
                                     SourceCache& sources) {
  if (path.ends_with(".json")) {
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format("{}: this version checks goldens in safetensors form alone", printable(path)));
  }
  const TensorSource& source = sources.open_file(path);
  std::set<std::string> names;
  for (const TensorInfo& tensor : source.tensors()) names.insert(tensor.name);
  VerifyCase base = defaults;
  for (const auto& [key, value] : source.metadata()) {
    if (key == "recipe" && base.recipe.empty()) base.recipe = value;
  }
  if (base.recipe.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{}: __metadata__ states no recipe; give one with -r",
                                              printable(path)));
  }
  require_whole_golden(source, names, path);
  std::vector<VerifyCase> cases;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.ends_with(".x")) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - 2);
    const auto operand = [&](const char* suffix) {
      return names.contains(name + suffix) ? path + ":" + name + suffix : std::string();
    };
    VerifyCase job = base;
    job.name = name;
    job.input = operand(".x");
    job.codes = operand(".codes");
    job.scales = operand(".scales");
    job.choice = operand(".choice");
    job.amax = operand(".amax");
    job.outer_scale = operand(".outer_scale");
    job.fake = operand(".values");
    job.is_golden = true;
    // Input that the recipe refuses is kept without bytes.
    job.expects_refusal = job.codes.empty() && job.scales.empty() && job.fake.empty();
    cases.push_back(std::move(job));
  }
  if (cases.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{} holds no case: expected tensors NAME.x with "
                                              "NAME.codes, as fp4scope golden writes them",
                                              printable(path)));
  }
  return cases;
}

std::vector<VerifyOutcome> verify_all(const std::vector<VerifyCase>& cases,
                                      const VerifyOptions& options, SourceCache& sources) {
  std::vector<VerifyOutcome> outcomes(cases.size());
  VerifyOptions one = options;
  if (cases.size() > 1) {
    one.threads = 1;
    one.progress = nullptr;
  }
  std::int64_t done = 0;
  const auto body = [&](std::int64_t i, int) {
    const VerifyCase& job = cases[static_cast<std::size_t>(i)];
    VerifyOutcome& outcome = outcomes[static_cast<std::size_t>(i)];
    outcome.name = job.name.empty() ? job.input : job.name;
    try {
      outcome.result = verify(job, one, sources);
    } catch (const Error& e) {
      if (options.stop != nullptr && *options.stop) throw;
      outcome.error = ErrorRecord{split_operand(job.input).file, split_operand(job.input).tensor,
                                  e.what(), e.exit_code()};
    }
    if (cases.size() < 2 || !options.progress) return;
#pragma omp critical(fp4scope_cases_progress)
    options.progress(++done, std::ssize(cases));
  };
  const int threads = cases.size() > 1 ? thread_count(options.threads) : 1;
  if (!for_each_tile(std::ssize(cases), threads, options.stop, body)) {
    throw Error(ErrorKind::kData, "interrupted");
  }
  return outcomes;
}

std::string junit_xml(const std::vector<VerifyOutcome>& outcomes) {
  std::size_t failures = 0, errors = 0;
  for (const VerifyOutcome& o : outcomes) {
    errors += o.error ? 1 : 0;
    failures += o.result && !o.result->agrees() ? 1 : 0;
  }
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<testsuites>\n<testsuite name=\"fp4scope verify\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\" skipped=\"0\">\n",
      outcomes.size(), failures, errors);
  for (const VerifyOutcome& o : outcomes) {
    const std::string recipe = o.result ? o.result->inputs.recipe : "";
    out += fmt::format("<testcase classname=\"{}\" name=\"{}\"",
                       xml_text(recipe.empty() ? "fp4scope" : recipe), xml_text(printable(o.name)));
    if (o.error) {
      out += fmt::format("><error message=\"{}\"/></testcase>\n", xml_text(o.error->message));
    } else if (!o.result->agrees()) {
      out += fmt::format("><failure message=\"{}\">", xml_text(summary_of(*o.result)));
      for (const DifferingBlock& block : o.result->first) {
        out += xml_text(to_text(block, o.result->recipe, o.result->recipe, {"expected", "found"}));
      }
      out += "</failure></testcase>\n";
    } else if (!o.result->warnings.empty()) {
      out += ">\n<system-out>";
      for (const std::string& warning : o.result->warnings) out += xml_text(warning + "\n");
      out += "</system-out></testcase>\n";
    } else {
      out += "/>\n";
    }
  }
  return out + "</testsuite>\n</testsuites>\n";
}

}  // namespace fp4scope
