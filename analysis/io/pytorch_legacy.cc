// pytorch_legacy.cc: the format of torch.save before 1.6 (torch/serialization.py, _legacy_save):
// five pickles one after the other (magic number, protocol version, facts about the machine, the
// object, the keys of its storages) and then the storages in the order of the keys, each as its
// number of elements (64 bits) and its bytes. Counts and elements are little-endian on every
// machine.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "analysis/io/message.h"
#include "analysis/io/pytorch_walk.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// 0x1950a86a20f9469cfc6c, little-endian.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kProtocolVersion = 1001;
constexpr std::int64_t kCountBytes = 8;

class LegacyStorages final : public TorchStorages {
 public:
  // What the pickle says about its storages.
  explicit LegacyStorages(const Pickle& pickle) {
    for (const PickleObject& object : pickle.objects) {
      if (object.kind != PickleKind::kPersistent) continue;
      const auto id = read_storage_id(pickle, object);
      if (!id) continue;
      // Types of less than a byte are counted in bytes.
      const std::int64_t size = std::max(id->dtype->bytes, 1);
      const auto [known, is_new] =
          claims_.try_emplace(std::string(id->key), Claim{id->elements, size, {}});
      if (!is_new && (known->second.elements != id->elements || known->second.size != size)) {
        fail_at(pickle, object,
                fmt::format("gives the storage {} {} elements of {} bytes, but {} of {} bytes "
                            "before",
                            in_quotes(id->key), id->elements, size, known->second.elements,
                            known->second.size));
      }
    }
  }

  // Reads the storages from `next` on. `keys` is the pickled list.
  void locate(const Pickle& keys, const MappedFile& file, std::size_t index, std::int64_t next) {
    const auto fail = [&](const std::string& what) {
      throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(file.path()), what));
    };
    const PickleObject& list = keys[keys.root];
    if (list.kind != PickleKind::kList) {
      fail_at(keys, list,
              fmt::format("makes {} for the keys of the storages, expected a list",
                          pickle_kind_name(list.kind)));
    }
    for (const PickleId item : list.items) {
      const PickleObject& key = keys[item];
      const auto claim =
          key.kind == PickleKind::kText ? claims_.find(std::string(key.text)) : claims_.end();
      if (claim == claims_.end()) {
        fail_at(
            keys, key,
            fmt::format("lists {} as the key of a storage, which the pickle does not use",
                        key.kind == PickleKind::kText ? in_quotes(key.text)
                                                      : std::string(pickle_kind_name(key.kind))));
      }
      const std::string shown = in_quotes(key.text);
      if (next > file.size() - kCountBytes) {
        fail(fmt::format("the file ends where storage {} should begin (truncated?)", shown));
      }
      std::uint64_t count = 0;
      for (int i = kCountBytes; i-- > 0;) {
        count = count << 8 | file.data()[next + i];
      }
      next += kCountBytes;
      const std::int64_t size = claim->second.size;
      if (count != static_cast<std::uint64_t>(claim->second.elements)) {
        fail(fmt::format("storage {} has {} elements, but the pickle says {}", shown, count,
                         claim->second.elements));
      }
      std::int64_t bytes = 0;
      if (__builtin_mul_overflow(claim->second.elements, size, &bytes) ||
          bytes > file.size() - next) {
        fail(
            fmt::format("storage {} has {} elements of {} bytes, but only {} bytes follow "
                        "(truncated?)",
                        shown, count, size, file.size() - next));
      }
      claim->second.place = TorchStoragePlace{index, next, bytes, false};
      next += bytes;
    }
  }

  TorchStoragePlace find(const Pickle& pickle, const PickleObject& persistent,
                         const TorchStorageId& id, Contents& contents) override {
    static_cast<void>(contents);
    const Claim& claim = claims_.at(std::string(id.key));
    if (!claim.place) {
      fail_at(pickle, persistent,
              fmt::format("names the storage {}, which the list of storages behind the pickle "
                          "does not have",
                          in_quotes(id.key)));
    }
    TorchStoragePlace place = *claim.place;
    place.offset += id.first * claim.size;
    place.bytes = id.count * claim.size;
    return place;
  }

 private:
  struct Claim {
    std::int64_t elements, size;  // bytes of an element
    std::optional<TorchStoragePlace> place;
  };
  std::unordered_map<std::string, Claim> claims_;
};

bool is_magic(const PickleObject& object) {
  return object.kind == PickleKind::kInt && object.big && object.text == kMagic;
}

}  // namespace

void append_pytorch_legacy(const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                           Contents& contents) {
  const std::string shown = printable(file->path());
  const std::string_view all = file->text(0, file->size());
  std::size_t next = 0;
  const auto read = [&] {
    PickleInput input;
    input.where = shown;
    input.bytes = all.substr(next);
    input.base = static_cast<std::int64_t>(next);
    input.most_values = file->size();
    input.stop = options.stop;
    Pickle pickle = read_pickle(input);
    next += static_cast<std::size_t>(pickle.bytes);
    return pickle;
  };

  const Pickle magic = read();
  if (!is_magic(magic[magic.root])) {
    throw Error(ErrorKind::kData,
                fmt::format("{} is a Python pickle, but no PyTorch file: it starts with {}, "
                            "expected PyTorch's magic number; save the tensors with torch.save",
                            shown, pickle_kind_name(magic[magic.root].kind)));
  }
  const Pickle version = read();
  const PickleObject& number = version[version.root];
  if (number.kind != PickleKind::kInt || number.big || number.integer != kProtocolVersion) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: the legacy PyTorch file has version {}, expected {}", shown,
                            number.kind == PickleKind::kInt && !number.big
                                ? std::to_string(number.integer)
                                : std::string(pickle_kind_name(number.kind)),
                            kProtocolVersion));
  }
  const Pickle machine = read();
  if (machine[machine.root].kind != PickleKind::kDict) {
    fail_at(machine, machine[machine.root],
            fmt::format("makes {} for the facts about the machine, expected a dict",
                        pickle_kind_name(machine[machine.root].kind)));
  }
  const std::size_t start = next;
  const Pickle pickle = read();
  const std::size_t end = next;
  const Pickle keys = read();

  const std::size_t index = add_file(file, contents);
  LegacyStorages storages(pickle);
  storages.locate(keys, *file, index, static_cast<std::int64_t>(next));
  const PicklePlace place{all.substr(start, end - start), index, static_cast<std::int64_t>(start)};
  TorchTensors tensors(pickle, place, storages, contents);
  TensorNames names;
  append_pickled_tensors({pickle, tensors, file->path(), "",
                          std::filesystem::path(file->path()).stem().string(), options.stop},
                         names, contents);
}

}  // namespace fp4scope
