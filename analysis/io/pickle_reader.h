// pickle_reader.h: the stack machine behind read_pickle(). Not for other code.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/pickle.h"
#include "analysis/io/pickle_opcodes.h"

namespace fp4scope {

class PickleMachine {
 public:
  // The first three objects of every pickle: constants need no objects of their own.
  static constexpr PickleId kIdNone = 0, kIdFalse = 1, kIdTrue = 2;
  static constexpr PickleId kAbsent = 0xFFFFFFFF;

  explicit PickleMachine(const PickleInput& input);
  Pickle run();

 private:
  using Op = PickleOp;
  // Sentences.
  [[noreturn]] void fail(const std::string& what) const;
  // Arguments behind the opcode.
  std::uint64_t number(int bytes);
  std::string_view take(std::uint64_t bytes);
  std::string_view line();
  std::uint32_t memo_index(std::uint64_t index) const;
  std::uint64_t text_index();
  // The stack. Nothing reaches below the last MARK.
  void push(PickleId id);
  PickleId pop();
  PickleId top() const;
  void need(std::size_t values) const;
  std::size_t above_mark() const;
  std::vector<PickleId> pop_to_mark();
  // Objects.
  PickleObject& add(PickleKind kind);
  void push_items(PickleKind kind, std::vector<PickleId> items);
  void push_text(PickleKind kind, std::string_view text);
  void push_owned(std::string text);
  void push_integer(std::int64_t value);
  void push_long(std::string_view bytes);
  void push_decimal(std::string_view text);
  void push_int_line();
  void push_float_line();
  void push_global(std::string_view module, std::string_view name);
  void push_call(PickleId callable, std::vector<PickleId> arguments);
  void push_tuple_of(std::size_t items);
  // Groups of opcodes; each returns whether it knew the opcode.
  bool constants(Op op);
  bool texts(Op op);
  bool containers(Op op);
  bool changes(Op op);
  bool calls(Op op);
  bool memo(Op op);
  // Changes of what is below on the stack.
  void append(std::vector<PickleId> items, bool to_set);
  void set_items(std::vector<PickleId> entries);
  void build();
  PickleExtra& extra_of(PickleId id);
  void check_callable(PickleId id) const;
  void check_tuple(PickleId id) const;
  void store(std::uint32_t index);
  void fetch(std::uint32_t index);

  const PickleInput& input_;
  Pickle pickle_;
  std::size_t next_ = 0;      // of the next byte
  std::size_t at_ = 0;        // of the opcode in work
  unsigned char opcode_ = 0;  // the opcode in work
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::vector<PickleId> memo_;      // kAbsent where nothing was put
  std::size_t memo_entries_ = 0;
  std::int64_t name_bytes_ = 0;  // of all globals
};

}  // namespace fp4scope
