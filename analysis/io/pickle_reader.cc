// pickle_reader.cc: the loop over the opcodes, their arguments, the stack and the objects, after
// Lib/pickle.py of CPython 3.13. The machine is stricter than CPython in one point: STOP must leave
// nothing else behind. What the single opcodes do stands in pickle_steps.cc.
#include "analysis/io/pickle_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "analysis/io/message.h"
#include "analysis/io/pickle_refused.h"
#include "analysis/io/pickle_text.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// Names of globals are looked at byte by byte. Python code has none as long as this.
constexpr std::size_t kMostNameBytes = 4096;
// STACK_GLOBAL may take one memoized text again and again.
constexpr std::int64_t kNameBytesPerValue = 16;
constexpr std::uint64_t kOpcodesPerLook = 4096;  // at the stop flag

}  // namespace

PickleMachine::PickleMachine(const PickleInput& input) : input_(input) {
  pickle_.where = input.where;
  for (const PickleId id : {kIdNone, kIdFalse, kIdTrue}) {
    PickleObject& constant = pickle_.objects.emplace_back();
    constant.kind = id == kIdNone ? PickleKind::kNone : PickleKind::kBool;
    constant.opcode = static_cast<unsigned char>(Op::kNone);
    constant.integer = id == kIdTrue ? 1 : 0;
  }
}

void PickleMachine::fail(const std::string& what) const {
  throw Error(ErrorKind::kData,
              fmt::format("{}: {} at byte {} {}", input_.where, pickle_opcode_name(opcode_),
                          input_.base + static_cast<std::int64_t>(at_), what));
}

Pickle PickleMachine::run() {
  for (std::uint64_t opcodes = 0;; ++opcodes) {
    if (opcodes % kOpcodesPerLook == 0 && input_.stop != nullptr && *input_.stop) {
      throw Error(ErrorKind::kData, "interrupted");
    }
    if (next_ == input_.bytes.size()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: the pickle that starts at byte {} ends after {} bytes without "
                              "STOP (truncated?)",
                              input_.where, input_.base, next_));
    }
    at_ = next_++;
    opcode_ = static_cast<unsigned char>(input_.bytes[at_]);
    const Op op = static_cast<Op>(opcode_);
    if (op == Op::kStop) {
      need(1);
      if (stack_.size() != 1 || !marks_.empty()) {
        fail(
            fmt::format("leaves {} values and {} MARKs behind, expected the one value of the "
                        "pickle",
                        stack_.size(), marks_.size()));
      }
      pickle_.root = stack_.back();
      pickle_.bytes = static_cast<std::int64_t>(next_);
      return std::move(pickle_);
    }
    const bool known =
        constants(op) || texts(op) || containers(op) || changes(op) || calls(op) || memo(op);
    if (!known) fail("is no opcode of the pickle protocols 0 to 5");
  }
}

// ------------------------------------------------------------------------------------------------
// Arguments

std::string_view PickleMachine::take(std::uint64_t bytes) {
  const std::size_t left = input_.bytes.size() - next_;
  if (bytes > left) {
    fail(fmt::format("needs {} bytes, but only {} follow (truncated?)", bytes, left));
  }
  const std::string_view taken = input_.bytes.substr(next_, static_cast<std::size_t>(bytes));
  next_ += taken.size();
  return taken;
}

std::uint64_t PickleMachine::number(int bytes) {
  std::uint64_t value = 0;
  const std::string_view raw = take(static_cast<std::uint64_t>(bytes));
  for (std::size_t i = raw.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(raw[i]);
  }
  return value;
}

std::string_view PickleMachine::line() {
  const std::size_t end = input_.bytes.find('\n', next_);
  if (end == std::string_view::npos) fail("needs a line of text, but no line ends (truncated?)");
  const std::string_view text = input_.bytes.substr(next_, end - next_);
  next_ = end + 1;
  return text;
}

// A pickle that numbers its memo like Python has no index as large as its own size, so the memo can
// be an array.
std::uint32_t PickleMachine::memo_index(std::uint64_t index) const {
  const auto most = static_cast<std::uint64_t>(input_.most_values);
  if (index >= std::min<std::uint64_t>(most, input_.bytes.size())) {
    fail(fmt::format("uses the memo index {}, which a pickle of {} bytes cannot have reached",
                     index, input_.bytes.size()));
  }
  return static_cast<std::uint32_t>(index);
}

std::uint64_t PickleMachine::text_index() {
  const std::string_view text = line();
  std::uint64_t index = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || stop != text.data() + text.size()) {
    fail(fmt::format("has {} for a memo index, expected a number from 0", in_quotes(text)));
  }
  return index;
}

// ------------------------------------------------------------------------------------------------
// The stack

void PickleMachine::push(PickleId id) {
  if (++pickle_.values > input_.most_values) {
    fail(fmt::format("makes more than {} values, too many for a file of this size",
                     input_.most_values));
  }
  stack_.push_back(id);
}

std::size_t PickleMachine::above_mark() const {
  return stack_.size() - (marks_.empty() ? 0 : marks_.back());
}

void PickleMachine::need(std::size_t values) const {
  if (above_mark() >= values) return;
  fail(fmt::format("needs {} value{} on the stack{}, found {}", values, values == 1 ? "" : "s",
                   marks_.empty() ? "" : " above the last MARK", above_mark()));
}

PickleId PickleMachine::pop() {
  need(1);
  const PickleId id = stack_.back();
  stack_.pop_back();
  return id;
}

PickleId PickleMachine::top() const {
  need(1);
  return stack_.back();
}

std::vector<PickleId> PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("needs a MARK, but none is open");
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<PickleId> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

// ------------------------------------------------------------------------------------------------
// Objects

PickleObject& PickleMachine::add(PickleKind kind) {
  push(static_cast<PickleId>(pickle_.objects.size()));
  PickleObject& object = pickle_.objects.emplace_back();
  object.kind = kind;
  object.opcode = opcode_;
  object.at = input_.base + static_cast<std::int64_t>(at_);
  return object;
}

void PickleMachine::push_items(PickleKind kind, std::vector<PickleId> items) {
  add(kind).items = std::move(items);
}

void PickleMachine::push_text(PickleKind kind, std::string_view text) {
  add(kind).text = text;
}

void PickleMachine::push_owned(std::string text) {
  push_text(PickleKind::kText, pickle_.owned.emplace_back(std::move(text)));
}

void PickleMachine::push_integer(std::int64_t value) {
  add(PickleKind::kInt).integer = value;
}

void PickleMachine::push_long(std::string_view bytes) {
  PickleObject& object = add(PickleKind::kInt);
  object.text = bytes;
  object.big = bytes.size() > 8;
  if (object.big) return;
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  const auto unused = static_cast<int>(64 - 8 * bytes.size());
  object.integer = bytes.empty() ? 0 : static_cast<std::int64_t>(value << unused) >> unused;
}

void PickleMachine::push_decimal(std::string_view text) {
  const auto parsed = parse_decimal(text);
  if (!parsed) fail(fmt::format("has {}, expected a decimal integer", in_quotes(text)));
  PickleObject& object = add(PickleKind::kInt);
  object.big = parsed->big;
  object.integer = parsed->value;
  if (parsed->big) object.text = text;
}

void PickleMachine::push_int_line() {
  const std::string_view text = line();
  // Protocol 1 has no other way to write a bool.
  if (text == "00" || text == "01") return push(text == "01" ? kIdTrue : kIdFalse);
  push_decimal(text);
}

void PickleMachine::push_float_line() {
  const std::string_view text = line();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = stop == text.data() + text.size() && !text.empty();
  if (!whole || (error != std::errc() && error != std::errc::result_out_of_range)) {
    fail(fmt::format("has {}, expected a number", in_quotes(text)));
  }
  add(PickleKind::kFloat).number = value;
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  const std::size_t bytes = module.size() + name.size();
  if (bytes > kMostNameBytes) {
    fail(fmt::format("has a name of {} bytes, expected at most {}", bytes, kMostNameBytes));
  }
  name_bytes_ += static_cast<std::int64_t>(bytes);
  if (name_bytes_ / kNameBytesPerValue > input_.most_values) {
    fail(
        fmt::format("brings the names to {} bytes, too many for a file of this size", name_bytes_));
  }
  if (runs_code(module, name)) {
    fail(
        fmt::format("names {}.{}, which serves only to run code: nothing was run, and the file "
                    "should not be opened with Python",
                    printable(module, 60), printable(name, 60)));
  }
  PickleObject& object = add(PickleKind::kGlobal);
  object.text = module;
  object.name = name;
}

void PickleMachine::push_call(PickleId callable, std::vector<PickleId> arguments) {
  PickleObject& call = add(PickleKind::kCall);
  call.items.push_back(callable);
  call.items.insert(call.items.end(), arguments.begin(), arguments.end());
}

void PickleMachine::push_tuple_of(std::size_t items) {
  need(items);
  std::vector<PickleId> taken(stack_.end() - static_cast<std::ptrdiff_t>(items), stack_.end());
  stack_.resize(stack_.size() - items);
  push_items(PickleKind::kTuple, std::move(taken));
}

// ------------------------------------------------------------------------------------------------
// The interface

std::string_view pickle_kind_name(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a bool";
    case PickleKind::kInt:
      return "an integer";
    case PickleKind::kFloat:
      return "a float";
    case PickleKind::kText:
      return "a text";
    case PickleKind::kBytes:
      return "bytes";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kDict:
      return "a dict";
    case PickleKind::kSet:
      return "a set";
    case PickleKind::kGlobal:
      return "a name";
    case PickleKind::kCall:
      return "an object";
    case PickleKind::kPersistent:
      return "a persistent id";
  }
  return "a value";
}

Pickle read_pickle(const PickleInput& input) {
  return PickleMachine(input).run();
}

void fail_at(const Pickle& pickle, const PickleObject& object, const std::string& what,
             ErrorKind kind) {
  throw Error(kind, fmt::format("{}: {} at byte {} {}", pickle.where,
                                pickle_opcode_name(object.opcode), object.at, what));
}

std::string global_name(const PickleObject& object) {
  if (object.kind != PickleKind::kGlobal) return {};
  return std::string(object.text) + "." + std::string(object.name);
}

}  // namespace fp4scope
