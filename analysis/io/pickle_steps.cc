// pickle_steps.cc: what each opcode does, after pickletools.py and Lib/pickle.py of CPython 3.13.
// Where CPython would import or call, an inert object is made.
#include <fmt/format.h>

#include <bit>

#include "analysis/io/message.h"
#include "analysis/io/pickle_reader.h"
#include "analysis/io/pickle_text.h"

namespace fp4scope {
namespace {

constexpr unsigned kLastProtocol = 5;

}  // namespace

bool PickleMachine::constants(Op op) {
  switch (op) {
    case Op::kNone:
      push(kIdNone);
      return true;
    case Op::kNewTrue:
      push(kIdTrue);
      return true;
    case Op::kNewFalse:
      push(kIdFalse);
      return true;
    case Op::kBinInt:
      push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4))));
      return true;
    case Op::kBinInt1:
      push_integer(static_cast<std::int64_t>(number(1)));
      return true;
    case Op::kBinInt2:
      push_integer(static_cast<std::int64_t>(number(2)));
      return true;
    case Op::kInt:
      push_int_line();
      return true;
    case Op::kLong: {
      std::string_view text = line();
      if (text.ends_with('L')) text.remove_suffix(1);
      push_decimal(text);
      return true;
    }
    case Op::kLong1:
      push_long(take(number(1)));
      return true;
    case Op::kLong4: {
      const auto bytes = static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)));
      if (bytes < 0) fail(fmt::format("has a negative length, {}", bytes));
      push_long(take(static_cast<std::uint64_t>(bytes)));
      return true;
    }
    case Op::kFloat:
      push_float_line();
      return true;
    case Op::kBinFloat: {  // the one big-endian field of the format
      std::uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
      add(PickleKind::kFloat).number = std::bit_cast<double>(bits);
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::texts(Op op) {
  switch (op) {
    case Op::kShortBinUnicode:
      push_text(PickleKind::kText, take(number(1)));
      return true;
    case Op::kBinUnicode:
      push_text(PickleKind::kText, take(number(4)));
      return true;
    case Op::kBinUnicode8:
      push_text(PickleKind::kText, take(number(8)));
      return true;
    case Op::kShortBinString:
      push_text(PickleKind::kText, take(number(1)));
      return true;
    case Op::kBinString: {
      const auto bytes = static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)));
      if (bytes < 0) fail(fmt::format("has a negative length, {}", bytes));
      push_text(PickleKind::kText, take(static_cast<std::uint64_t>(bytes)));
      return true;
    }
    case Op::kUnicode: {
      auto text = unescape_unicode(line());
      if (!text) fail("has a malformed escape in its text");
      push_owned(std::move(*text));
      return true;
    }
    case Op::kString: {
      auto text = unescape_string(line());
      if (!text) fail("has a malformed literal, expected text in quotes");
      push_owned(std::move(*text));
      return true;
    }
    case Op::kShortBinBytes:
      push_text(PickleKind::kBytes, take(number(1)));
      return true;
    case Op::kBinBytes:
      push_text(PickleKind::kBytes, take(number(4)));
      return true;
    case Op::kBinBytes8:
    case Op::kByteArray8:
      push_text(PickleKind::kBytes, take(number(8)));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::containers(Op op) {
  switch (op) {
    case Op::kMark:
      if (++pickle_.values > input_.most_values) fail("makes too many values for this file");
      marks_.push_back(stack_.size());
      return true;
    case Op::kPop:
      // A MARK on top is what it takes away.
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case Op::kPopMark:
      pop_to_mark();
      return true;
    case Op::kDup:
      push(top());
      return true;
    case Op::kEmptyList:
      push_items(PickleKind::kList, {});
      return true;
    case Op::kEmptyTuple:
      push_items(PickleKind::kTuple, {});
      return true;
    case Op::kEmptyDict:
      push_items(PickleKind::kDict, {});
      return true;
    case Op::kEmptySet:
      push_items(PickleKind::kSet, {});
      return true;
    case Op::kList:
      push_items(PickleKind::kList, pop_to_mark());
      return true;
    case Op::kTuple:
      push_items(PickleKind::kTuple, pop_to_mark());
      return true;
    case Op::kFrozenSet:
      push_items(PickleKind::kSet, pop_to_mark());
      return true;
    case Op::kDict: {
      std::vector<PickleId> entries = pop_to_mark();
      if (entries.size() % 2 != 0) fail("has a key without a value");
      push_items(PickleKind::kDict, std::move(entries));
      return true;
    }
    case Op::kTuple1:
      push_tuple_of(1);
      return true;
    case Op::kTuple2:
      push_tuple_of(2);
      return true;
    case Op::kTuple3:
      push_tuple_of(3);
      return true;
    default:
      return false;
  }
}

bool PickleMachine::changes(Op op) {
  switch (op) {
    case Op::kAppend:
      need(2);
      append({pop()}, false);
      return true;
    case Op::kAppends:
      append(pop_to_mark(), false);
      return true;
    case Op::kAddItems:
      append(pop_to_mark(), true);
      return true;
    case Op::kSetItem: {
      need(3);
      const PickleId value = pop(), key = pop();
      set_items({key, value});
      return true;
    }
    case Op::kSetItems:
      set_items(pop_to_mark());
      return true;
    case Op::kBuild:
      build();
      return true;
    default:
      return false;
  }
}

PickleExtra& PickleMachine::extra_of(PickleId id) {
  PickleObject& call = pickle_.objects[id];
  if (call.extra == 0) {
    pickle_.extras.emplace_back();
    call.extra = static_cast<std::uint32_t>(pickle_.extras.size());
  }
  return pickle_.extras[call.extra - 1];
}

void PickleMachine::append(std::vector<PickleId> items, bool to_set) {
  const PickleId target = top();
  PickleObject& object = pickle_.objects[target];
  const PickleKind wanted = to_set ? PickleKind::kSet : PickleKind::kList;
  if (object.kind != wanted && object.kind != PickleKind::kCall) {
    fail(fmt::format("adds to {}, expected {} or an object", pickle_kind_name(object.kind),
                     pickle_kind_name(wanted)));
  }
  std::vector<PickleId>& list =
      object.kind == PickleKind::kCall ? extra_of(target).items : object.items;
  list.insert(list.end(), items.begin(), items.end());
}

void PickleMachine::set_items(std::vector<PickleId> entries) {
  const PickleId target = top();
  PickleObject& object = pickle_.objects[target];
  if (object.kind != PickleKind::kDict && object.kind != PickleKind::kCall) {
    fail(fmt::format("sets an item of {}, expected a dict or an object",
                     pickle_kind_name(object.kind)));
  }
  if (entries.size() % 2 != 0) fail("has a key without a value");
  std::vector<PickleId>& list =
      object.kind == PickleKind::kCall ? extra_of(target).entries : object.items;
  list.insert(list.end(), entries.begin(), entries.end());
}

void PickleMachine::build() {
  need(2);
  const PickleId state = pop();
  const PickleId target = top();
  if (pickle_[target].kind != PickleKind::kCall) {
    fail(fmt::format("sets the state of {}, expected an object",
                     pickle_kind_name(pickle_[target].kind)));
  }
  extra_of(target).states.push_back(state);
}

void PickleMachine::check_callable(PickleId id) const {
  const PickleKind kind = pickle_[id].kind;
  // A persistent id can stand for a class in old PyTorch files.
  if (kind == PickleKind::kGlobal || kind == PickleKind::kCall || kind == PickleKind::kPersistent) {
    return;
  }
  fail(fmt::format("calls {}, expected a name or an object", pickle_kind_name(kind)));
}

void PickleMachine::check_tuple(PickleId id) const {
  if (pickle_[id].kind == PickleKind::kTuple) return;
  fail(fmt::format("has {} for arguments, expected a tuple", pickle_kind_name(pickle_[id].kind)));
}

bool PickleMachine::calls(Op op) {
  switch (op) {
    case Op::kGlobal: {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case Op::kStackGlobal: {
      need(2);
      const PickleObject& name = pickle_[pop()];
      const PickleObject& module = pickle_[pop()];
      if (name.kind != PickleKind::kText || module.kind != PickleKind::kText) {
        fail(fmt::format("has {} and {}, expected the texts of a module and a name",
                         pickle_kind_name(module.kind), pickle_kind_name(name.kind)));
      }
      push_global(module.text, name.text);
      return true;
    }
    case Op::kReduce:
    case Op::kNewObj: {
      need(2);
      const PickleId arguments = pop(), callable = pop();
      check_callable(callable);
      check_tuple(arguments);
      push_call(callable, {arguments});
      return true;
    }
    case Op::kNewObjEx: {
      need(3);
      const PickleId keywords = pop(), arguments = pop(), callable = pop();
      check_callable(callable);
      check_tuple(arguments);
      if (pickle_[keywords].kind != PickleKind::kDict) {
        fail(fmt::format("has {} for keyword arguments, expected a dict",
                         pickle_kind_name(pickle_[keywords].kind)));
      }
      push_call(callable, {arguments, keywords});
      return true;
    }
    case Op::kObj:
    case Op::kInst: {
      std::vector<PickleId> items = pop_to_mark();
      PickleId callable = kAbsent;
      if (op == Op::kInst) {
        const std::string_view module = line();
        push_global(module, line());
        callable = pop();
      } else {
        if (items.empty()) fail("needs a class above the MARK, found nothing");
        callable = items.front();
        items.erase(items.begin());
      }
      check_callable(callable);
      push_items(PickleKind::kTuple, std::move(items));
      push_call(callable, {pop()});
      return true;
    }
    case Op::kPersId:
      fail(fmt::format("has the persistent id {}, which PyTorch never writes as text",
                       in_quotes(line())));
    case Op::kBinPersId: {
      const PickleId id = pop();
      push_items(PickleKind::kPersistent, {id});
      return true;
    }
    case Op::kExt1:
    case Op::kExt2:
    case Op::kExt4:
      fail("uses the extension registry, which exists only inside the program that wrote the file");
    case Op::kNextBuffer:
    case Op::kReadOnlyBuffer:
      fail("uses a buffer outside the pickle, which no file has");
    default:
      return false;
  }
}

void PickleMachine::store(std::uint32_t index) {
  const PickleId id = top();
  if (index >= memo_.size()) memo_.resize(index + std::size_t{1}, kAbsent);
  if (memo_[index] == kAbsent) ++memo_entries_;
  memo_[index] = id;
}

void PickleMachine::fetch(std::uint32_t index) {
  if (index >= memo_.size() || memo_[index] == kAbsent) {
    fail(fmt::format("takes entry {} of the memo, which was never put there", index));
  }
  push(memo_[index]);
}

bool PickleMachine::memo(Op op) {
  switch (op) {
    case Op::kPut:
      store(memo_index(text_index()));
      return true;
    case Op::kBinPut:
      store(memo_index(number(1)));
      return true;
    case Op::kLongBinPut:
      store(memo_index(number(4)));
      return true;
    case Op::kMemoize:
      store(memo_index(memo_entries_));
      return true;
    case Op::kGet:
      fetch(memo_index(text_index()));
      return true;
    case Op::kBinGet:
      fetch(memo_index(number(1)));
      return true;
    case Op::kLongBinGet:
      fetch(memo_index(number(4)));
      return true;
    case Op::kProto: {
      const std::uint64_t protocol = number(1);
      if (protocol > kLastProtocol) {
        fail(fmt::format("says protocol {}, expected 0 to {}", protocol, kLastProtocol));
      }
      return true;
    }
    case Op::kFrame: {
      const std::uint64_t bytes = number(8);
      const std::size_t left = input_.bytes.size() - next_;
      if (bytes > left) {
        fail(fmt::format("claims {} bytes, but only {} follow (truncated?)", bytes, left));
      }
      return true;
    }
    default:
      return false;
  }
}

}  // namespace fp4scope
