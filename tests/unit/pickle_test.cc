// pickle_test.cc: pickles assembled by hand from pickletools.py, every opcode of protocols 0 to 5
// at least once, against what they say; each cut at every byte; what is refused, with its sentence.
#include "analysis/io/pickle.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/pickle_opcodes.h"
#include "analysis/io/pickle_text.h"
#include "sim/error.h"

using namespace fp4scope;
using namespace std::string_view_literals;

namespace {

PickleInput input_of(std::string_view bytes) {
  PickleInput input;
  input.where = "FILE";
  input.bytes = bytes;
  input.most_values = 1'000'000;
  return input;
}

std::string shown(const Pickle& pickle, PickleId id);

std::string joined(const Pickle& pickle, const std::vector<PickleId>& items, bool pairs = false) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += pairs && i % 2 == 1 ? ": " : ", ";
    text += shown(pickle, items[i]);
  }
  return text;
}

// The value as Python would print it, near enough. Calls as "callable(arguments; keywords)", then
// what BUILD, APPEND and SETITEM gave.
std::string shown(const Pickle& pickle, PickleId id) {
  const PickleObject& object = pickle[id];
  switch (object.kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return object.integer != 0 ? "True" : "False";
    case PickleKind::kInt:
      return object.big ? "big" : fmt::format("{}", object.integer);
    case PickleKind::kFloat:
      return python_float(object.number);
    case PickleKind::kText:
      return fmt::format("'{}'", object.text);
    case PickleKind::kBytes:
      return fmt::format("b'{}'", object.text);
    case PickleKind::kList:
      return fmt::format("[{}]", joined(pickle, object.items));
    case PickleKind::kTuple:
      return fmt::format("({})", joined(pickle, object.items));
    case PickleKind::kSet:
      return fmt::format("set{{{}}}", joined(pickle, object.items));
    case PickleKind::kDict:
      return fmt::format("{{{}}}", joined(pickle, object.items, true));
    case PickleKind::kGlobal:
      return global_name(object);
    case PickleKind::kPersistent:
      return fmt::format("persistent {}", joined(pickle, object.items));
    case PickleKind::kCall: {
      std::string text = shown(pickle, object.items[0]) + shown(pickle, object.items[1]);
      if (object.items.size() == 3) text += shown(pickle, object.items[2]);
      if (const PickleExtra* extra = pickle.extra(object)) {
        for (const PickleId state : extra->states)
          text += fmt::format(" state {}", shown(pickle, state));
        if (!extra->items.empty()) text += fmt::format(" items {}", joined(pickle, extra->items));
        if (!extra->entries.empty())
          text += fmt::format(" entries {}", joined(pickle, extra->entries, true));
      }
      return text;
    }
  }
  return "?";
}

struct Case {
  const char* opcode;  // that the case is about
  std::string_view bytes;
  const char* want;
};

// "\x94"sv and the like: the literals hold NUL bytes.
const Case kCases[] = {
    // Protocol 0
    {"NONE", "N."sv, "None"},
    {"INT", "I42\n."sv, "42"},
    {"INT", "I-9223372036854775808\n."sv, "-9223372036854775808"},
    {"INT", "I9223372036854775808\n."sv, "big"},
    {"INT", "I01\n."sv, "True"},
    {"INT", "I00\n."sv, "False"},
    {"LONG", "L-5L\n."sv, "-5"},
    {"LONG", "L12345678901234567890\n."sv, "big"},
    {"FLOAT", "F-0.5\n."sv, "-0.5"},
    {"FLOAT", "F1e300\n."sv, "1e+300"},
    {"FLOAT", "Fnan\n."sv, "nan"},
    {"FLOAT", "F-inf\n."sv, "-inf"},
    {"FLOAT", "F3\n."sv, "3.0"},
    {"STRING", "S'a\\n\\x41\\101\\'\\q'\n."sv, "'a\nAA'\\q'"},
    {"STRING", "S\"it's\"\n."sv, "'it's'"},
    {"UNICODE", "V\\u00e9\\U0001f642\xe9\\n\n."sv, "'\xc3\xa9\xf0\x9f\x99\x82\xc3\xa9\\n'"},
    {"MARK", "(t."sv, "()"},
    {"MARK", "I1\n(0."sv, "1"},
    {"LIST", "(I1\nI2\nl."sv, "[1, 2]"},
    {"DICT", "(I1\nI2\nd."sv, "{1: 2}"},
    {"TUPLE", "(I1\n(I2\ntt."sv, "(1, (2))"},
    {"APPEND", "(lI1\na."sv, "[1]"},
    {"SETITEM", "(dI1\nI2\ns."sv, "{1: 2}"},
    {"POP", "I1\nI2\n0."sv, "1"},
    {"DUP", "(lI7\n2e."sv, nullptr},  // APPENDS without MARK
    {"DUP", "(I7\n2t."sv, "(7, 7)"},
    {"PUT", "(I5\np3\n0g3\nt."sv, "(5)"},
    {"GET", "(I5\np0\ng0\nt."sv, "(5, 5)"},
    {"GLOBAL", "cmod.sub\nname\n."sv, "mod.sub.name"},
    {"REDUCE", "cm\nn\n(I1\ntR."sv, "m.n(1)"},
    {"BUILD", "cm\nn\n(tR(dI1\nI2\nsb."sv, "m.n() state {1: 2}"},
    {"INST", "(I1\nI2\nim\nn\n."sv, "m.n(1, 2)"},
    {"STOP", "N.rest"sv, "None"},
    {"PERSID", "P12\n."sv, nullptr},
    // Protocol 1
    {"BININT", "J\xfe\xff\xff\xff."sv, "-2"},
    {"BININT", "J\x00\x00\x00\x80."sv, "-2147483648"},
    {"BININT1", "K\xff."sv, "255"},
    {"BININT2", "M\x01\x02."sv, "513"},
    {"BINFLOAT", "G\x3f\xf8\x00\x00\x00\x00\x00\x00."sv, "1.5"},
    {"BINSTRING",
     "T\x02\x00\x00\x00"
     "ab."sv,
     "'ab'"},
    {"SHORT_BINSTRING",
     "U\x01"
     "a."sv,
     "'a'"},
    {"BINUNICODE", "X\x02\x00\x00\x00\xc3\xa9."sv, "'\xc3\xa9'"},
    {"EMPTY_LIST", "]."sv, "[]"},
    {"EMPTY_TUPLE", ")."sv, "()"},
    {"EMPTY_DICT", "}."sv, "{}"},
    {"APPENDS",
     "](K\x01K\x02"
     "e."sv,
     "[1, 2]"},
    {"SETITEMS", "}(K\x01K\x02K\x03Nu."sv, "{1: 2, 3: None}"},
    {"POP_MARK",
     "K\x01(K\x02K\x03"
     "1."sv,
     "1"},
    {"BINPUT", "(K\x07q\x02h\x02t."sv, "(7, 7)"},
    {"BINGET", "(]q\x00h\x00t."sv, "([], [])"},
    {"LONG_BINPUT", "(K\x07r\x03\x00\x00\x00j\x03\x00\x00\x00t."sv, "(7, 7)"},
    {"LONG_BINGET", "(Nr\x00\x00\x00\x00j\x00\x00\x00\x00t."sv, "(None, None)"},
    {"OBJ", "(cm\nn\nK\x01o."sv, "m.n(1)"},
    {"BINPERSID", "K\x05Q."sv, "persistent 5"},
    // Protocol 2
    {"PROTO", "\x80\x02N."sv, "None"},
    {"PROTO", "\x80\x05N."sv, "None"},
    {"NEWOBJ", "cm\nn\n)\x81."sv, "m.n()"},
    {"TUPLE1", "N\x85."sv, "(None)"},
    {"TUPLE2", "NK\x01\x86."sv, "(None, 1)"},
    {"TUPLE3", "NK\x01K\x02\x87."sv, "(None, 1, 2)"},
    {"NEWTRUE", "\x88."sv, "True"},
    {"NEWFALSE", "\x89."sv, "False"},
    {"LONG1", "\x8a\x00."sv, "0"},
    {"LONG1", "\x8a\x01\xff."sv, "-1"},
    {"LONG1", "\x8a\x02\xff\x00."sv, "255"},
    {"LONG1", "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."sv, "-9223372036854775808"},
    {"LONG1", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."sv, "big"},
    {"LONG4", "\x8b\x02\x00\x00\x00\x00\x01."sv, "256"},
    {"EXT1", "\x82\x01."sv, nullptr},
    {"EXT2", "\x83\x01\x01."sv, nullptr},
    {"EXT4", "\x84\x01\x01\x01\x01."sv, nullptr},
    // Protocol 3
    {"BINBYTES",
     "B\x02\x00\x00\x00"
     "ab."sv,
     "b'ab'"},
    {"SHORT_BINBYTES",
     "C\x01"
     "a."sv,
     "b'a'"},
    // Protocol 4
    {"SHORT_BINUNICODE",
     "\x8c\x01"
     "a."sv,
     "'a'"},
    {"BINUNICODE8",
     "\x8d\x01\x00\x00\x00\x00\x00\x00\x00"
     "a."sv,
     "'a'"},
    {"BINBYTES8",
     "\x8e\x01\x00\x00\x00\x00\x00\x00\x00"
     "a."sv,
     "b'a'"},
    {"EMPTY_SET", "\x8f."sv, "set{}"},
    {"ADDITEMS", "\x8f(K\x01K\x02\x90."sv, "set{1, 2}"},
    {"FROZENSET", "(K\x01\x91."sv, "set{1}"},
    {"NEWOBJ_EX", "cm\nn\nK\x01\x85}K\x02Ns\x92."sv, "m.n(1){2: None}"},
    {"STACK_GLOBAL",
     "\x8c\x01m\x8c\x03"
     "a.b\x93."sv,
     "m.a.b"},
    {"MEMOIZE", "(K\x07\x94h\x00t."sv, "(7, 7)"},
    {"FRAME", "\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."sv, "None"},
    // Protocol 5
    {"BYTEARRAY8",
     "\x96\x01\x00\x00\x00\x00\x00\x00\x00"
     "a."sv,
     "b'a'"},
    {"NEXT_BUFFER", "\x97."sv, nullptr},
    {"READONLY_BUFFER", "N\x98."sv, nullptr},
    // Mixtures
    {"APPEND",
     "cm\nn\n)\x81K\x01"
     "a."sv,
     "m.n() items 1"},
    {"SETITEM", "cm\nn\n)RK\x01Ns."sv, "m.n() entries 1: None"},
    {"BUILD",
     "cm\nn\n)RK\x01"
     "bNb."sv,
     "m.n() state 1 state None"},
    {"REDUCE", "cm\nn\n)R)R."sv, "m.n()()"},
    {"BINPUT",
     "]q\x00h\x00"
     "0."sv,
     "[]"},
    {"MEMOIZE", "(K\x07\x94K\x08\x94h\x01t."sv, "(7, 8, 8)"},
    {"MEMOIZE", "(K\x07q\x01K\x08\x94h\x01t."sv, "(7, 8, 8)"},  // as Python counts entries
};

std::string error_of(std::string_view bytes) {
  try {
    read_pickle(input_of(bytes));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kData);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every opcode of the protocols 0 to 5 is understood") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.opcode));
    CAPTURE(std::string(c.bytes));
    if (c.want == nullptr) {
      CHECK(error_of(c.bytes) != "no error");
      continue;
    }
    const Pickle pickle = read_pickle(input_of(c.bytes));
    CHECK(shown(pickle, pickle.root) == c.want);
    const std::size_t behind = c.bytes.ends_with(".rest") ? 4 : 0;
    CHECK(pickle.bytes == std::ssize(c.bytes) - static_cast<std::ptrdiff_t>(behind));
  }
}

TEST_CASE("the cases above have every opcode, and no byte is an opcode without a name") {
  std::set<std::string> named;
  for (const Case& c : kCases) named.insert(c.opcode);
  int opcodes = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = pickle_opcode_name(static_cast<unsigned char>(byte));
    const bool is_opcode = !name.starts_with("opcode 0x");
    opcodes += is_opcode ? 1 : 0;
    CAPTURE(name);
    if (is_opcode) CHECK(named.contains(name));
    const std::string text = error_of(std::string(1, static_cast<char>(byte)));
    if (!is_opcode) {
      CHECK(text ==
            fmt::format("FILE: {} at byte 0 is no opcode of the pickle protocols 0 to 5", name));
    }
  }
  CHECK(opcodes == 68);  // len(pickletools.opcodes) of Python 3.8 to 3.13
  CHECK(named.size() == 68);
}

TEST_CASE("a pickle cut at any byte is refused") {
  for (const Case& c : kCases) {
    if (c.want == nullptr || c.bytes.ends_with(".rest")) continue;
    for (std::size_t length = 0; length < c.bytes.size(); ++length) {
      CAPTURE(std::string(c.bytes));
      CAPTURE(length);
      const std::string text = error_of(c.bytes.substr(0, length));
      CHECK(text.starts_with("FILE: "));
      const bool says_byte = text.find(" at byte ") != std::string::npos;
      const bool says_stop = text.find("without STOP (truncated?)") != std::string::npos;
      CHECK((says_byte || says_stop));
    }
  }
}

TEST_CASE("malformed pickles are refused with the opcode and its byte") {
  const struct {
    std::string_view bytes;
    const char* want;  // behind "FILE: "
  } cases[] = {
      {"", "the pickle that starts at byte 0 ends after 0 bytes without STOP (truncated?)"},
      {"N", "the pickle that starts at byte 0 ends after 1 bytes without STOP (truncated?)"},
      {"NN.",
       "STOP at byte 2 leaves 2 values and 0 MARKs behind, expected the one value of the "
       "pickle"},
      {"(N.",
       "STOP at byte 2 leaves 1 values and 1 MARKs behind, expected the one value of the "
       "pickle"},
      {".", "STOP at byte 0 needs 1 value on the stack, found 0"},
      {"N(.", "STOP at byte 2 needs 1 value on the stack above the last MARK, found 0"},
      {"0", "POP at byte 0 needs 1 value on the stack, found 0"},
      {"2", "DUP at byte 0 needs 1 value on the stack, found 0"},
      {"N(2", "DUP at byte 2 needs 1 value on the stack above the last MARK, found 0"},
      {"1", "POP_MARK at byte 0 needs a MARK, but none is open"},
      {"l", "LIST at byte 0 needs a MARK, but none is open"},
      {"(Nd", "DICT at byte 2 has a key without a value"},
      {"}(Nu", "SETITEMS at byte 3 has a key without a value"},
      {"Na", "APPEND at byte 1 needs 2 values on the stack, found 1"},
      {")Na", "APPEND at byte 2 adds to a tuple, expected a list or an object"},
      {"](N\x90", "ADDITEMS at byte 3 adds to a list, expected a set or an object"},
      {"]NNs", "SETITEM at byte 3 sets an item of a list, expected a dict or an object"},
      {"}Nb", "BUILD at byte 2 sets the state of a dict, expected an object"},
      {"cm\nn\nNb", "BUILD at byte 6 sets the state of a name, expected an object"},
      {"N)R", "REDUCE at byte 2 calls None, expected a name or an object"},
      {"cm\nn\n]R", "REDUCE at byte 6 has a list for arguments, expected a tuple"},
      {"cm\nn\nN\x81", "NEWOBJ at byte 6 has None for arguments, expected a tuple"},
      {"cm\nn\n)N\x92", "NEWOBJ_EX at byte 7 has None for keyword arguments, expected a dict"},
      {"(o", "OBJ at byte 1 needs a class above the MARK, found nothing"},
      {"(No", "OBJ at byte 2 calls None, expected a name or an object"},
      {"NN\x93",
       "STACK_GLOBAL at byte 2 has None and None, expected the texts of a module and a "
       "name"},
      {"I1x\n", "INT at byte 0 has \"1x\", expected a decimal integer"},
      {"I\n", "INT at byte 0 has \"\", expected a decimal integer"},
      {"L--1L\n", "LONG at byte 0 has \"--1\", expected a decimal integer"},
      {"F\n", "FLOAT at byte 0 has \"\", expected a number"},
      {"F1 \n", "FLOAT at byte 0 has \"1 \", expected a number"},
      {"Sabc\n", "STRING at byte 0 has a malformed literal, expected text in quotes"},
      {"S'abc\n", "STRING at byte 0 has a malformed literal, expected text in quotes"},
      {"S'\\xg0'\n", "STRING at byte 0 has a malformed literal, expected text in quotes"},
      {"V\\u12\n", "UNICODE at byte 0 has a malformed escape in its text"},
      {"V\\U00110000\n", "UNICODE at byte 0 has a malformed escape in its text"},
      {"I1", "INT at byte 0 needs a line of text, but no line ends (truncated?)"},
      {"cmod\nname", "GLOBAL at byte 0 needs a line of text, but no line ends (truncated?)"},
      {"N\x80\x06.", "PROTO at byte 1 says protocol 6, expected 0 to 5"},
      {"Np9\n",
       "PUT at byte 1 uses the memo index 9, which a pickle of 4 bytes cannot have "
       "reached"},
      {"Np-1\n", "PUT at byte 1 has \"-1\" for a memo index, expected a number from 0"},
      {"g1\n.", "GET at byte 0 takes entry 1 of the memo, which was never put there"},
      {"Nq\x02h\x01t.", "BINGET at byte 3 takes entry 1 of the memo, which was never put there"},
      {"P1\n", "PERSID at byte 0 has the persistent id \"1\", which PyTorch never writes as text"},
      {"\x82\x01",
       "EXT1 at byte 0 uses the extension registry, which exists only inside the "
       "program that wrote the file"},
      {"\x97", "NEXT_BUFFER at byte 0 uses a buffer outside the pickle, which no file has"},
      {"N\x98", "READONLY_BUFFER at byte 1 uses a buffer outside the pickle, which no file has"},
      {"X\xff\xff\xff\xff"
       "a",
       "BINUNICODE at byte 0 needs 4294967295 bytes, but only 1 follow (truncated?)"},
      {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
       "a",
       "BINUNICODE8 at byte 0 needs 18446744073709551615 bytes, but only 1 follow (truncated?)"},
      {"\x8b\xff\xff\xff\xff", "LONG4 at byte 0 has a negative length, -1"},
      {"T\xff\xff\xff\xff", "BINSTRING at byte 0 has a negative length, -1"},
      {"cos\nsystem\n",
       "GLOBAL at byte 0 names os.system, which serves only to run code: nothing "
       "was run, and the file should not be opened with Python"},
      {"(ios\nsystem\n",
       "INST at byte 1 names os.system, which serves only to run code: nothing "
       "was run, and the file should not be opened with Python"},
      {"\x8c\x02os\x8c\x06system\x93",
       "STACK_GLOBAL at byte 12 names os.system, which serves only to run code: nothing was run, "
       "and the file should not be opened with Python"},
  };
  for (const auto& c : cases) CHECK(error_of(c.bytes) == std::string("FILE: ") + c.want);
}

TEST_CASE("values are bounded, and messages count from where the pickle starts") {
  PickleInput input = input_of("(NNNNt.");
  input.most_values = 4;
  CHECK_THROWS_WITH_AS(read_pickle(input),
                       "FILE: NONE at byte 4 makes more than 4 values, too many for a file of this "
                       "size",
                       Error);
  input.bytes = "NN";
  input.base = 100;
  CHECK_THROWS_WITH_AS(read_pickle(input),
                       "FILE: the pickle that starts at byte 100 ends after 2 bytes without STOP "
                       "(truncated?)",
                       Error);
  input.bytes = "(0\xff";
  CHECK_THROWS_WITH_AS(read_pickle(input),
                       "FILE: opcode 0xff at byte 102 is no opcode of the pickle protocols 0 to 5",
                       Error);
}
