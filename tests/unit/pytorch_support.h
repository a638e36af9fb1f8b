// pytorch_support.h: PyTorch files put together opcode by opcode (pickletools.py,
// torch/serialization.py). Nothing here uses the reader or Python.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/container_bytes.h"

namespace fp4scope::test::torch {

// Without operator+, about which g++ 12 gives false warnings.
inline std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

inline std::string text(std::string_view value) {
  return joined({"X", little_endian(value.size(), 4), value});
}
inline std::string number(std::int64_t value) {
  return std::string("\x8a\x08") + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string global(std::string_view module, std::string_view name) {
  return joined({"c", module, "\n", name, "\n"});
}
inline std::string concat(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}
inline std::string tuple(const std::vector<std::string>& items) {
  return joined({"(", concat(items), "t"});
}
inline std::string list(const std::vector<std::string>& items) {
  return joined({"](", concat(items), "e"});
}
// Keys and values in turn.
inline std::string dict(const std::vector<std::string>& entries) {
  return joined({"}(", concat(entries), "u"});
}
inline std::string numbers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(number(value));
  return tuple(items);
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
inline const std::string kNone = "N", kTrue = "\x88", kFalse = "\x89";

inline std::string storage_id(const std::string& key, const std::string& kind, std::int64_t count,
                              const std::string& view = kNone) {
  return tuple({text("storage"), global("torch", kind), text(key), text("cpu"), number(count),
                view}) +
         "Q";
}
inline std::string hooks() {
  return global("collections", "OrderedDict") + ")R";
}
inline std::string tensor(const std::string& storage, std::int64_t offset,
                          const std::vector<std::int64_t>& size,
                          const std::vector<std::int64_t>& stride) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, number(offset), numbers(size), numbers(stride), kFalse, hooks()});
}

inline std::string pickle(const std::string& body) {
  return joined({"\x80\x02", body, "."});
}

struct LegacyStorage {
  std::string key;
  std::int64_t count;
  std::string bytes;
};
inline std::string legacy_magic() {
  return pickle(std::string("\x8a\x0a") + std::string("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"));
}
// A whole file of the format before PyTorch 1.6.
inline std::string legacy_file(const std::string& body,
                               const std::vector<LegacyStorage>& storages) {
  std::string file = legacy_magic() + pickle("M\xe9\x03") +
                     pickle(dict({text("little_endian"), kTrue})) + pickle(body);
  std::vector<std::string> keys;
  std::string data;
  for (const LegacyStorage& storage : storages) {
    keys.push_back(text(storage.key));
    data += little_endian(static_cast<std::uint64_t>(storage.count), 8) + storage.bytes;
  }
  return file + pickle(list(keys)) + data;
}

inline std::string counting_floats(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return bytes_of(values);
}

}  // namespace fp4scope::test::torch
