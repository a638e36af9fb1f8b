// pytorch_walk.cc: an iterative walk over the objects of a pickle. Depth, steps, tensors and bytes
// of names are bounded by the size of the pickle, because references let a small file describe a
// gigantic tree.
#include "analysis/io/pytorch_walk.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <string_view>
#include <vector>

#include "analysis/io/message.h"
#include "analysis/io/pickle_text.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// Python's own pickler gives up between 300 and 1000 levels.
constexpr std::size_t kMostDepth = 2000;
// Per value of the pickle, and in any case. A tensor takes about twenty values.
constexpr std::int64_t kObjectsPerValue = 16, kLeastObjects = 1'000'000;
constexpr std::int64_t kTensorsPerValue = 4, kLeastTensors = 10'000;
// Bytes of a name that cost as much as an object.
constexpr std::size_t kNameBytesPerObject = 16;
constexpr std::int64_t kObjectsPerLook = 4096;  // at the stop flag
constexpr std::int64_t kNameBytesPerValue = 64, kLeastNameBytes = 4 << 20;

// From an object to one below it.
struct Step {
  enum class By : std::uint8_t { kNothing, kIndex, kText };
  PickleId to = 0;
  By by = By::kNothing;
  std::size_t index = 0;
  std::string_view text = {};
};
using Steps = std::vector<Step>;

class Walk {
 public:
  Walk(const WalkInput& input, TensorNames& names, Contents& contents)
      : input_(input),
        pickle_(input.pickle),
        names_(names),
        contents_(contents),
        on_path_(input.pickle.objects.size(), false) {}

  void run() {
    path_ = input_.prefix;
    parts_ = path_.empty() ? 0 : 1;
    enter(pickle_.root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      path_.resize(frame.path);
      parts_ = frame.parts;
      if (frame.next == frame.steps.size()) {
        on_path_[frame.object] = false;
        key_texts_.resize(frame.key_texts);
        frames_.pop_back();
        continue;
      }
      const Step step = frame.steps[frame.next++];
      if (step.by != Step::By::kNothing) {
        if (parts_ > 0) path_ += '.';
        ++parts_;
        if (step.by == Step::By::kIndex) {
          path_ += std::to_string(step.index);
        } else {
          path_ += step.text;
        }
      }
      enter(step.to);
    }
  }

 private:
  struct Frame {
    PickleId object;
    Steps steps;
    std::size_t next, path, parts, key_texts;
  };

  // Everything that is looked at counts, also what leads nowhere.
  void count(std::size_t objects) {
    looked_at_ += static_cast<std::int64_t>(objects);
    if (looked_at_ > kLeastObjects + kObjectsPerValue * pickle_.values)
      too_many(object_, "objects");
    if (looked_at_ < next_look_) return;
    next_look_ = looked_at_ + kObjectsPerLook;
    if (input_.stop != nullptr && *input_.stop) throw Error(ErrorKind::kData, "interrupted");
  }
  // Before a name is compared or copied: many objects may share one long text.
  void count_name(const PickleObject& name) {
    count((name.text.size() + name.name.size()) / kNameBytesPerObject);
  }

  [[noreturn]] void too_many(PickleId id, const char* what) const {
    fail_at(pickle_, pickle_[id],
            fmt::format("makes an object that is reached by too many paths: the whole has more "
                        "{} than a pickle of {} values honestly has",
                        what, pickle_.values));
  }

  void enter(PickleId id) {
    const PickleObject& object = pickle_[id];
    if (object.kind == PickleKind::kPersistent) {
      read_storage_id(pickle_, object);  // a storage by itself is no tensor, but has to be one
      return;
    }
    if (on_path_[id]) return;  // a cycle
    object_ = id;
    const std::size_t key_texts = key_texts_.size();
    count(1);
    if (object.kind == PickleKind::kCall) count_name(pickle_[object.items[0]]);
    Steps steps;
    if (const FoundTensors* found = find(id)) {
      list(*found, id);
      by_indices(found->items, steps);
      for (const PickleId state : found->states) by_state(state, steps);
    } else {
      switch (object.kind) {
        case PickleKind::kList:
        case PickleKind::kTuple:
        case PickleKind::kSet:
          by_indices(object.items, steps);
          break;
        case PickleKind::kDict:
          by_key(object.items, steps);
          break;
        case PickleKind::kCall:
          of_call(object, steps);
          break;
        default:
          break;
      }
    }
    if (steps.empty()) {
      key_texts_.resize(key_texts);
      return;
    }
    if (frames_.size() == kMostDepth) {
      fail_at(pickle_, object,
              fmt::format("makes an object that lies more than {} levels deep", kMostDepth));
    }
    on_path_[id] = true;
    frames_.push_back({id, std::move(steps), 0, path_.size(), parts_, key_texts});
  }

  const FoundTensors* find(PickleId id) {
    try {
      return input_.tensors.find(id);
    } catch (const Error& error) {
      if (path_.empty()) throw;
      throw Error(error.kind(), fmt::format("{} (tensor {})", error.what(), in_quotes(path_)));
    }
  }

  void list(const FoundTensors& found, PickleId id) {
    for (const FoundTensor& part : found.parts) {
      std::string name = parts_ == 0 ? input_.alone : path_;
      if (!part.part.empty()) name += "." + part.part;
      name_bytes_ += std::ssize(name);
      if (++tensors_ > kLeastTensors + kTensorsPerValue * pickle_.values) too_many(id, "tensors");
      if (name_bytes_ > kLeastNameBytes + kNameBytesPerValue * pickle_.values) {
        too_many(id, "bytes of names");
      }
      TensorInfo tensor;
      tensor.name = names_.unique(name);
      tensor.dtype = part.dtype;
      tensor.dtype_text = part.dtype_text;
      tensor.known_dtype = part.known_dtype;
      tensor.shape = part.shape;
      tensor.elements = part.elements;
      tensor.bytes = part.bytes;
      tensor.file = input_.file;
      contents_.tensors.push_back(std::move(tensor));
      contents_.storage.push_back(part.storage);
    }
  }

  // Values without anything below them make no step.
  bool leads_on(PickleId id) const {
    const PickleKind kind = pickle_[id].kind;
    return kind == PickleKind::kList || kind == PickleKind::kTuple || kind == PickleKind::kDict ||
           kind == PickleKind::kSet || kind == PickleKind::kCall || kind == PickleKind::kPersistent;
  }

  void plain(PickleId id, Steps& steps) const {
    if (leads_on(id)) steps.push_back({id});
  }

  void by_indices(const std::vector<PickleId>& items, Steps& steps) {
    count(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (leads_on(items[i])) steps.push_back({items[i], Step::By::kIndex, i});
    }
  }

  // The name of a key, and what tells it from other keys: in Python 1, 1.0 and True are one key.
  // Empty for keys that are neither text nor a number nor None.
  struct Key {
    std::string_view name;
    std::string identity;
  };
  Key key_of(PickleId id) {
    const PickleObject& key = pickle_[id];
    const auto named = [&](std::string name, std::string identity) {
      return Key{key_texts_.emplace_back(std::move(name)), std::move(identity)};
    };
    switch (key.kind) {
      case PickleKind::kText:
        count_name(key);
        if (!is_utf8(key.text)) return {};
        return {key.text, fmt::format("t{}", key.text)};
      case PickleKind::kNone:
        return {"None", "N"};
      case PickleKind::kBool:
        return {key.integer != 0 ? "True" : "False", fmt::format("n{}", key.integer)};
      case PickleKind::kInt:
        if (key.big) return {};
        return named(std::to_string(key.integer), fmt::format("n{}", key.integer));
      case PickleKind::kFloat: {
        const bool whole = std::trunc(key.number) == key.number && std::abs(key.number) < 0x1p53;
        return named(python_float(key.number),
                     whole ? fmt::format("n{}", static_cast<std::int64_t>(key.number))
                           : fmt::format("f{}", key.number));
      }
      default:
        return {};
    }
  }

  // Entries of a dict: a key that comes again replaces the value, as in Python.
  void by_key(const std::vector<PickleId>& entries, Steps& steps) {
    struct Entry {
      PickleId value;
      std::string_view name;
      bool has_name;
    };
    count(entries.size());
    std::vector<Entry> unique;
    std::unordered_map<std::string, std::size_t> index;
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      Key key = key_of(entries[i]);
      const bool has_name = !key.identity.empty();
      if (has_name) {
        const auto [known, is_new] = index.emplace(std::move(key.identity), unique.size());
        if (!is_new) {
          unique[known->second].value = entries[i + 1];
          continue;
        }
      }
      unique.push_back({entries[i + 1], key.name, has_name});
    }
    for (std::size_t i = 0; i < unique.size(); ++i) {
      if (!leads_on(unique[i].value)) continue;
      std::string_view name = unique[i].name;
      if (!unique[i].has_name) name = key_texts_.emplace_back(fmt::format("#{}", i));
      steps.push_back({unique[i].value, Step::By::kText, 0, name});
    }
  }

  // Attributes: the dict of an instance. Of an nn.Module, which has these three, the parts that
  // hold parameters, buffers and modules have no name of their own.
  void by_attribute(const PickleObject& dict, Steps& steps) {
    const std::size_t first = steps.size();
    by_key(dict.items, steps);
    const auto is_part = [](std::string_view name) {
      return name == "_parameters" || name == "_buffers" || name == "_modules";
    };
    std::size_t parts = 0;
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleObject& key = pickle_[dict.items[i]];
      if (key.kind == PickleKind::kText && is_part(key.text)) ++parts;
    }
    if (parts != 3) return;
    for (std::size_t i = first; i < steps.size(); ++i) {
      if (is_part(steps[i].text)) steps[i].by = Step::By::kNothing;
    }
  }

  // What BUILD gave: a dict, (dict or None, dict of slots), or anything that __setstate__ takes.
  void by_state(PickleId id, Steps& steps) {
    const PickleObject& state = pickle_[id];
    if (state.kind == PickleKind::kDict) return by_attribute(state, steps);
    if (state.kind == PickleKind::kTuple && state.items.size() == 2) {
      const PickleObject& attributes = pickle_[state.items[0]];
      const PickleObject& slots = pickle_[state.items[1]];
      const bool plain_dict =
          attributes.kind == PickleKind::kDict || attributes.kind == PickleKind::kNone;
      if (plain_dict && slots.kind == PickleKind::kDict) {
        by_attribute(slots, steps);
        if (attributes.kind == PickleKind::kDict) by_attribute(attributes, steps);
        return;
      }
    }
    plain(id, steps);
  }

  // OrderedDict([(key, value), ...]), dict({...}), Counter({...})
  void by_pairs(PickleId id, Steps& steps) {
    const PickleObject& pairs = pickle_[id];
    if (pairs.kind == PickleKind::kDict) return by_key(pairs.items, steps);
    if (pairs.kind != PickleKind::kList && pairs.kind != PickleKind::kTuple) return;
    count(pairs.items.size());
    std::vector<PickleId> entries;
    for (const PickleId item : pairs.items) {
      const PickleObject& pair = pickle_[item];
      const bool is_pair = pair.kind == PickleKind::kList || pair.kind == PickleKind::kTuple;
      if (is_pair && pair.items.size() == 2) {
        entries.insert(entries.end(), pair.items.begin(), pair.items.end());
      }
    }
    by_key(entries, steps);
  }

  void of_call(const PickleObject& object, Steps& steps) {
    const PickleObject& callable = pickle_[object.items[0]];
    const std::string name = global_name(callable);
    const std::vector<PickleId>& arguments = pickle_[object.items[1]].items;
    const PickleExtra* extra = pickle_.extra(object);
    const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
      for (const std::string_view candidate : names) {
        if (name == candidate) return true;
      }
      return false;
    };
    if (is_one_of({"numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar"})) return;
    const bool is_dict = is_one_of({"collections.OrderedDict", "collections.defaultdict",
                                    "collections.Counter", "builtins.dict", "__builtin__.dict"});
    if (is_dict) {
      if (!arguments.empty()) by_pairs(arguments[0], steps);
      if (extra != nullptr) by_key(extra->entries, steps);
      return;
    }
    const bool is_sequence =
        is_one_of({"builtins.set", "builtins.frozenset", "builtins.list", "builtins.tuple",
                   "__builtin__.set", "__builtin__.frozenset", "__builtin__.list",
                   "__builtin__.tuple"}) ||
        name.starts_with("torch.jit._pickle.");  // TorchScript's typed lists and dicts
    if (is_sequence) {
      if (!arguments.empty()) plain(arguments[0], steps);
    } else {
      plain(object.items[0], steps);  // getattr(object, name)(...)
      by_indices(arguments, steps);
      if (object.items.size() == 3) by_key(pickle_[object.items[2]].items, steps);
    }
    if (extra == nullptr) return;
    by_indices(extra->items, steps);
    by_key(extra->entries, steps);
    for (const PickleId state : extra->states) by_state(state, steps);
  }

  const WalkInput& input_;
  const Pickle& pickle_;
  TensorNames& names_;
  Contents& contents_;
  std::vector<bool> on_path_;
  std::vector<Frame> frames_;
  std::deque<std::string> key_texts_;
  std::string path_;
  std::size_t parts_ = 0;
  PickleId object_ = 0;  // in work
  std::int64_t looked_at_ = 0, next_look_ = 0, tensors_ = 0, name_bytes_ = 0;
};

}  // namespace

std::string TensorNames::unique(const std::string& name) {
  std::size_t& times = times_[name];
  for (;;) {
    const std::string candidate = ++times == 1 ? name : fmt::format("{}#{}", name, times);
    if (given_.insert(candidate).second) return candidate;
  }
}

void append_pickled_tensors(const WalkInput& input, TensorNames& names, Contents& contents) {
  Walk(input, names, contents).run();
}

}  // namespace fp4scope
