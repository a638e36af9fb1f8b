// pickle.h: what a pickle says, as inert data. The reader knows every opcode of protocols 0 to 5 of
// Python's pickle format (Lib/pickletools.py), but it imports nothing and calls nothing: a global
// is its two names, a call is the callable with its arguments, an object is its class with its
// state.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"

namespace fp4scope {

// A value: an index into Pickle::objects.
using PickleId = std::uint32_t;

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kBytes,
  kList,
  kTuple,
  kDict,
  kSet,
  kGlobal,      // a name to import: module and name
  kCall,        // REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, INST: a callable or class with its arguments
  kPersistent,  // BINPERSID: items[0] is the id
};
std::string_view pickle_kind_name(PickleKind kind);  // "a list", "a call", ...

struct PickleObject {
  PickleKind kind = PickleKind::kNone;
  unsigned char opcode = 0;  // that made it
  // kInt: does not fit 64 bits; `text` then has its little-endian two's complement bytes or its
  // decimal digits.
  bool big = false;
  std::int64_t at = 0;       // byte of that opcode, counted as messages count
  std::int64_t integer = 0;  // kBool, kInt
  double number = 0;         // kFloat
  // kText: UTF-8, except Python 2's strings (STRING, BINSTRING, SHORT_BINSTRING), which are bytes.
  // kBytes: the bytes. kGlobal: the module. Points into the pickle or into Pickle::owned.
  std::string_view text;
  std::string_view name;  // kGlobal
  // kList, kTuple, kSet: the items. kDict: key, value, key, value, ... kPersistent: the id.
  // kCall: the callable, the arguments (a tuple), and the keyword arguments (a dict) if there are.
  std::vector<PickleId> items;
  std::uint32_t extra = 0;  // kCall: index into Pickle::extras plus 1, 0 for none
};

// What opcodes after a call put into the object that it would have made.
struct PickleExtra {
  std::vector<PickleId> states;   // of BUILD, in order
  std::vector<PickleId> items;    // of APPEND, APPENDS and ADDITEMS
  std::vector<PickleId> entries;  // of SETITEM and SETITEMS: key, value, ...
};

struct Pickle {
  std::deque<PickleObject> objects;
  std::deque<PickleExtra> extras;
  std::deque<std::string> owned;  // texts that the pickle spells with escapes
  PickleId root = 0;
  std::int64_t bytes = 0;   // from the start to behind STOP
  std::int64_t values = 0;  // put on the stack: a measure of its size
  std::string where;        // how messages call it
  const PickleObject& operator[](PickleId id) const { return objects[id]; }
  const PickleExtra* extra(const PickleObject& call) const {
    return call.extra == 0 ? nullptr : &extras[call.extra - 1];
  }
};

struct PickleInput {
  std::string where;       // for messages: the file, and the member of an archive
  std::string_view bytes;  // from the first opcode on; more may follow behind STOP
  std::int64_t base = 0;   // number of the first byte in messages
  // Most values that may be put on the stack. Never reached by a pickle that lies uncompressed in a
  // file of so many bytes.
  std::int64_t most_values = 0;
  const std::atomic<bool>* stop = nullptr;  // set: Error(kData, "interrupted")
};

// The texts of the result point into `input.bytes`. Throws Error(kData), which names the opcode and
// its byte: a malformed pickle, or one that names what exists only to run code
// (pickle_refused.h). Memory is linear in the number of values.
Pickle read_pickle(const PickleInput& input);

// An error about the opcode that made `object`: "WHERE: OPCODE at byte N WHAT".
[[noreturn]] void fail_at(const Pickle& pickle, const PickleObject& object, const std::string& what,
                          ErrorKind kind = ErrorKind::kData);

// "module.name" of a kGlobal, empty for others.
std::string global_name(const PickleObject& object);

}  // namespace fp4scope
