// pytorch_tensors.cc: the functions of torch/_utils.py and torch/_tensor.py (torch 2.15) by which a
// pickle says that an object is a tensor. None of them is run: their arguments say where it lies.
#include "analysis/io/pytorch_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMaxRank = 64;
// Wrappers around wrappers; torch writes at most two.
constexpr int kMaxWrappers = 16;
// An expanded view repeats elements. More often than this, a few bytes would stand for more than
// anybody could want to have read.
constexpr std::int64_t kMostRepeats = std::int64_t{1} << 24;
// The same for views that nobody could read to their end: as many elements, and as many for each
// byte of the storage.
constexpr std::int64_t kMostExpanded = std::int64_t{1} << 36, kMostPerByte = 4096;
// torch numbers its storages.
constexpr std::size_t kMostKeyBytes = 4096;

bool is_torch(std::string_view module) {
  return module == "torch" || module.starts_with("torch.");
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(shape[d], 1);
  }
  return strides;
}

}  // namespace

std::optional<TorchStorageId> read_storage_id(const Pickle& pickle,
                                              const PickleObject& persistent) {
  const PickleObject& id = pickle[persistent.items[0]];
  const auto fail = [&](const std::string& what) {
    fail_at(pickle, persistent,
            fmt::format("has {}, expected (\"storage\", class, key, device, elements)", what));
  };
  if (id.kind != PickleKind::kTuple) fail(fmt::format("{} for an id", pickle_kind_name(id.kind)));
  const auto item = [&](std::size_t i) -> const PickleObject& { return pickle[id.items[i]]; };
  const bool tagged = !id.items.empty() && item(0).kind == PickleKind::kText;
  if (tagged && item(0).text == "module") return std::nullopt;
  if (!tagged || item(0).text != "storage") fail("an id that is not tagged as a storage");
  if (id.items.size() != 5 && id.items.size() != 6) {
    fail(fmt::format("an id of {} entries", id.items.size()));
  }
  TorchStorageId result;
  if (item(1).kind == PickleKind::kGlobal && is_torch(item(1).text)) {
    result.dtype = torch_storage_dtype(item(1).name);
  }
  if (result.dtype == nullptr) {
    const std::string found = item(1).kind == PickleKind::kGlobal
                                  ? in_quotes(global_name(item(1)))
                                  : std::string(pickle_kind_name(item(1).kind));
    fail(fmt::format("the unknown storage class {}", found));
  }
  if (item(2).kind != PickleKind::kText) {
    fail(fmt::format("{} for a key", pickle_kind_name(item(2).kind)));
  }
  result.key = item(2).text;
  if (result.key.size() > kMostKeyBytes) {
    fail(fmt::format("a key of {} bytes, at most {}", result.key.size(), kMostKeyBytes));
  }
  const auto count = [&](const PickleObject& object, const char* what) {
    if (object.kind != PickleKind::kInt) {
      fail(fmt::format("{} for the {}", pickle_kind_name(object.kind), what));
    }
    if (object.big || object.integer < 0) {
      fail(fmt::format("a {} outside 0 to 2^63-1", what));
    }
    return object.integer;
  };
  result.elements = count(item(4), "number of elements");
  result.count = result.elements;
  if (id.items.size() == 6 && item(5).kind != PickleKind::kNone) {
    const PickleObject& view = item(5);
    if (view.kind != PickleKind::kTuple || view.items.size() != 3) {
      fail(fmt::format("{} for the view, expected (key, offset, elements)",
                       pickle_kind_name(view.kind)));
    }
    result.first = count(pickle[view.items[1]], "offset of the view");
    result.count = count(pickle[view.items[2]], "size of the view");
    if (result.count > result.elements || result.first > result.elements - result.count) {
      fail(fmt::format("a view of {} elements from {} in a storage of {}", result.count,
                       result.first, result.elements));
    }
  }
  return result;
}

TorchTensors::TorchTensors(const Pickle& pickle, const PicklePlace& place, TorchStorages& storages,
                           Contents& contents)
    : pickle_(pickle), place_(place), storages_(storages), contents_(contents) {}

void TorchTensors::fail(const Call& call, const std::string& what) const {
  fail_at(pickle_, call.object, fmt::format("calls {} with {}", printable(call.function), what));
}

const FoundTensors* TorchTensors::find(PickleId id) {
  const auto known = found_.find(id);
  if (known != found_.end()) return known->second.get();
  auto found = look(id, 0);
  auto stored = found ? std::make_unique<FoundTensors>(std::move(*found)) : nullptr;
  return found_.emplace(id, std::move(stored)).first->second.get();
}

std::optional<FoundTensors> TorchTensors::look(PickleId id, int depth) {
  const PickleObject& object = pickle_[id];
  if (object.kind != PickleKind::kCall) return std::nullopt;
  const PickleObject& callable = pickle_[object.items[0]];
  if (callable.kind != PickleKind::kGlobal) return std::nullopt;
  return rebuild(Call{object, global_name(callable), pickle_[object.items[1]].items, depth});
}

std::optional<FoundTensors> TorchTensors::rebuild(const Call& call) {
  const std::string_view name = call.function;
  if (call.depth > kMaxWrappers) fail(call, "more wrappers inside each other than torch writes");
  if (name.starts_with("numpy.")) {
    if (name == "numpy._core.multiarray._reconstruct" ||
        name == "numpy.core.multiarray._reconstruct") {
      return reconstructed(call);
    }
    if (name == "numpy._core.numeric._frombuffer" || name == "numpy.core.numeric._frombuffer") {
      return from_buffer(call);
    }
    return std::nullopt;
  }
  if (name == "torch._tensor._rebuild_from_type_v2" || name == "torch._tensor._rebuild_from_type" ||
      name == "torch.tensor._rebuild_from_type") {
    return from_type(call);
  }
  constexpr std::string_view kModule = "torch._utils.";
  if (!name.starts_with(kModule)) return std::nullopt;
  const std::string_view function = name.substr(kModule.size());
  if (function == "_rebuild_tensor" || function == "_rebuild_tensor_v2" ||
      function == "_rebuild_qtensor") {
    return dense(call, false);
  }
  if (function == "_rebuild_tensor_v3") return dense(call, true);
  if (function == "_rebuild_parameter") return wrapped(call, false);
  if (function == "_rebuild_parameter_with_state") return wrapped(call, true);
  if (function == "_rebuild_sparse_tensor" || function == "_rebuild_sparse_csr_tensor") {
    return sparse(call);
  }
  if (function == "_rebuild_meta_tensor_no_storage") return meta(call);
  // Devices without storages: the values lie in an array or a tensor of the processor.
  if (function == "_rebuild_device_tensor_from_numpy" ||
      function == "_rebuild_device_tensor_from_cpu_tensor" || function == "_rebuild_xla_tensor") {
    expect_arguments(call, 4, 4);
    return inner(call, call.arguments[0], "the values");
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------
// Arguments

void TorchTensors::expect_arguments(const Call& call, std::size_t least, std::size_t most) const {
  const std::size_t found = call.arguments.size();
  if (found >= least && found <= most) return;
  fail(call, fmt::format(
                 "{} arguments, expected {}", found,
                 least == most ? fmt::format("{}", least) : fmt::format("{} or {}", least, most)));
}

std::int64_t TorchTensors::integer(const Call& call, PickleId id, const char* what) const {
  const PickleObject& object = pickle_[id];
  if (object.kind != PickleKind::kInt) {
    fail(call,
         fmt::format("{} for the {}, expected an integer", pickle_kind_name(object.kind), what));
  }
  if (object.big) fail(call, fmt::format("a number beyond 64 bits for the {}", what));
  if (object.integer < 0) {
    fail(call, fmt::format("{} for the {}, expected 0 or more", object.integer, what));
  }
  return object.integer;
}

std::vector<std::int64_t> TorchTensors::integers(const Call& call, PickleId id,
                                                 const char* what) const {
  const PickleObject* object = &pickle_[id];
  // torch.Size((2, 3))
  if (object->kind == PickleKind::kCall && global_name(pickle_[object->items[0]]) == "torch.Size" &&
      pickle_[object->items[1]].items.size() == 1) {
    object = &pickle_[pickle_[object->items[1]].items[0]];
  }
  if (object->kind != PickleKind::kTuple && object->kind != PickleKind::kList) {
    fail(call, fmt::format("{} for the {}, expected a tuple of integers",
                           pickle_kind_name(object->kind), what));
  }
  if (object->items.size() > kMaxRank) {
    fail(call,
         fmt::format("{} numbers for the {}, at most {}", object->items.size(), what, kMaxRank));
  }
  std::vector<std::int64_t> result;
  for (const PickleId item : object->items) result.push_back(integer(call, item, what));
  return result;
}

// {"neg": True}, {"conj": True} or both. A conjugated tensor is a complex one, whose stored bytes
// are all that can be had here anyway.
bool TorchTensors::is_negated(const Call& call, PickleId metadata) const {
  const PickleObject& object = pickle_[metadata];
  if (object.kind == PickleKind::kNone) return false;
  if (object.kind != PickleKind::kDict) {
    fail(call, fmt::format("{} for the metadata, expected a dict", pickle_kind_name(object.kind)));
  }
  bool negated = false;
  for (std::size_t i = 0; i + 1 < object.items.size(); i += 2) {
    const PickleObject& key = pickle_[object.items[i]];
    if (key.kind != PickleKind::kText || key.text != "neg") continue;
    const PickleObject& value = pickle_[object.items[i + 1]];
    if (value.kind != PickleKind::kBool) {
      fail(call, fmt::format("{} for \"neg\" in the metadata, expected a bool",
                             pickle_kind_name(value.kind)));
    }
    negated = value.integer != 0;
  }
  return negated;
}

const StoredDType& TorchTensors::dtype_argument(const Call& call, PickleId id) const {
  const PickleObject& object = pickle_[id];
  if (object.kind != PickleKind::kGlobal || object.text != "torch") {
    fail(call, fmt::format("{} for the dtype, expected a name such as torch.float32",
                           pickle_kind_name(object.kind)));
  }
  const StoredDType* dtype = torch_dtype(object.name);
  if (dtype == nullptr) {
    fail_at(pickle_, call.object,
            fmt::format("calls {} with the unknown dtype {}", printable(call.function),
                        in_quotes(global_name(object))),
            ErrorKind::kUnsupported);
  }
  return *dtype;
}

// ------------------------------------------------------------------------------------------------
// The functions

FoundTensor TorchTensors::view(const Call& call, const TorchStoragePlace& place,
                               const StoredDType& dtype, std::int64_t offset,
                               std::vector<std::int64_t> shape,
                               std::vector<std::int64_t> strides) const {
  if (strides.size() != shape.size()) {
    fail(call, fmt::format("{} sizes and {} strides", shape.size(), strides.size()));
  }
  const auto elements = checked_product(shape);
  std::int64_t bits = 0;
  // The bits of a tensor have to be countable in 64 bits, of complex128 as well.
  if (!elements || __builtin_mul_overflow(*elements, std::int64_t{128}, &bits)) {
    fail(call, fmt::format("the shape {}, whose size exceeds 64 bits", shape_text(shape)));
  }
  FoundTensor found;
  found.dtype = dtype.bytes == 0 ? DType::kOther : dtype.dtype;
  found.dtype_text = dtype.text;
  found.shape = shape;
  found.elements = *elements;
  found.storage.file = place.file;
  found.storage.offset = place.offset;
  if (dtype.bytes == 0) return found;  // listed, but cannot be read
  found.bytes = *elements * dtype.bytes;
  found.storage.bits = 8 * dtype.bytes;
  found.storage.big_endian = place.big_endian && dtype.unit > 1;
  // The bytes of a complex number cannot be swapped as one piece.
  if (found.storage.big_endian && dtype.unit != dtype.bytes) found.storage.bits = 0;

  const auto extent = strided_extent(shape, strides);
  const std::int64_t stored = place.bytes / dtype.bytes;
  if (!extent || offset > stored || *extent > stored - offset) {
    // An empty view may start anywhere.
    if (*elements != 0) {
      fail(call, fmt::format("shape {}, strides {} and offset {}, which reach beyond the {} "
                             "elements of the storage",
                             shape_text(shape), shape_text(strides), offset, stored));
    }
  }
  if (*elements == 0) return found;
  if (*elements / *extent > kMostRepeats) {
    fail(call, fmt::format("shape {} over {} stored elements, which repeats each more than 2^24 "
                           "times",
                           shape_text(shape), *extent));
  }
  if (*elements > kMostExpanded && *elements / kMostPerByte > place.bytes) {
    fail(call, fmt::format("shape {} over a storage of {} bytes, which is more than 2^36 elements "
                           "and more than {} for each byte",
                           shape_text(shape), place.bytes, kMostPerByte));
  }
  found.storage.offset += offset * dtype.bytes;
  // Strides of dimensions with one index are arbitrary; those below are harmless.
  const std::vector<std::int64_t> plain = row_major(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) strides[d] = plain[d];
  }
  if (strides != plain) found.storage.strides = std::move(strides);
  return found;
}

// _rebuild_tensor(storage, offset, size, stride), with requires_grad and hooks (v2), with a dtype
// (v3), both with metadata where there is some; _rebuild_qtensor has the parameters of the
// quantizer in between.
FoundTensors TorchTensors::dense(const Call& call, bool has_dtype) {
  const bool quantized = call.function.ends_with("_rebuild_qtensor");
  const bool first_version = call.function.ends_with("_rebuild_tensor");
  if (first_version) {
    expect_arguments(call, 4, 4);
  } else if (has_dtype || quantized) {
    expect_arguments(call, 7, 8);
  } else {
    expect_arguments(call, 6, 7);
  }
  const PickleObject& persistent = pickle_[call.arguments[0]];
  std::optional<TorchStorageId> id;
  if (persistent.kind == PickleKind::kPersistent) id = read_storage_id(pickle_, persistent);
  if (!id) {
    fail(call, fmt::format("{} for the storage, expected the persistent id of a storage",
                           pickle_kind_name(persistent.kind)));
  }
  const StoredDType& dtype = has_dtype ? dtype_argument(call, call.arguments[6]) : *id->dtype;
  const std::int64_t offset = integer(call, call.arguments[1], "offset");
  std::vector<std::int64_t> size = integers(call, call.arguments[2], "size");
  std::vector<std::int64_t> stride = integers(call, call.arguments[3], "stride");
  const TorchStoragePlace place = storages_.find(pickle_, persistent, *id, contents_);
  FoundTensors found;
  found.parts.push_back(view(call, place, dtype, offset, std::move(size), std::move(stride)));
  const std::size_t metadata = has_dtype ? 7 : 6;
  const bool has_metadata = !first_version && !quantized && call.arguments.size() > metadata;
  if (has_metadata && is_negated(call, call.arguments[metadata])) {
    FoundTensor& part = found.parts.back();
    part.dtype = DType::kOther;
    part.dtype_text += kNegatedView;
    part.known_dtype = false;
    part.storage.bits = 0;
  }
  return found;
}

// _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad): no bytes anywhere.
FoundTensors TorchTensors::meta(const Call& call) {
  expect_arguments(call, 4, 4);
  const StoredDType& dtype = dtype_argument(call, call.arguments[0]);
  const StoredDType unread = {DType::kOther, dtype.text + " (meta)", 0, 1};
  FoundTensors found;
  found.parts.push_back(view(call, {}, unread, 0, integers(call, call.arguments[1], "size"),
                             integers(call, call.arguments[2], "stride")));
  return found;
}

FoundTensors TorchTensors::inner(const Call& call, PickleId id, const char* what) {
  auto found = look(id, call.depth + 1);
  if (!found) {
    fail(call,
         fmt::format("{} for {}, expected a tensor", pickle_kind_name(pickle_[id].kind), what));
  }
  return std::move(*found);
}

// _rebuild_parameter(data, requires_grad, hooks[, state])
FoundTensors TorchTensors::wrapped(const Call& call, bool has_state) {
  const std::size_t arguments = has_state ? 4 : 3;
  expect_arguments(call, arguments, arguments);
  FoundTensors found = inner(call, call.arguments[0], "the data");
  if (has_state) found.states.push_back(call.arguments[3]);
  return found;
}

// _rebuild_from_type_v2(function, class, arguments, state)
std::optional<FoundTensors> TorchTensors::from_type(const Call& call) {
  expect_arguments(call, 4, 4);
  const PickleObject& function = pickle_[call.arguments[0]];
  const PickleObject& arguments = pickle_[call.arguments[2]];
  if (arguments.kind != PickleKind::kTuple) {
    fail(call,
         fmt::format("{} for the arguments, expected a tuple", pickle_kind_name(arguments.kind)));
  }
  if (function.kind != PickleKind::kGlobal) return std::nullopt;
  auto found = rebuild(Call{call.object, global_name(function), arguments.items, call.depth + 1});
  if (found) found->states.push_back(call.arguments[3]);
  return found;
}

// _rebuild_sparse_tensor(layout, (tensors..., size[, coalesced]))
FoundTensors TorchTensors::sparse(const Call& call) {
  expect_arguments(call, 2, 2);
  const PickleObject* layout = &pickle_[call.arguments[0]];
  const PickleObject& data = pickle_[call.arguments[1]];
  std::string name = global_name(*layout);  // torch.sparse_coo, or a call with that text
  if (layout->kind == PickleKind::kCall && pickle_[layout->items[1]].items.size() == 1) {
    name = std::string(pickle_[pickle_[layout->items[1]].items[0]].text);
  }
  struct Layout {
    std::string_view name;
    std::vector<const char*> parts;
  };
  const Layout layouts[] = {
      {"torch.sparse_coo", {"indices", "values"}},
      {"torch.sparse_csr", {"crow_indices", "col_indices", "values"}},
      {"torch.sparse_bsr", {"crow_indices", "col_indices", "values"}},
      {"torch.sparse_csc", {"ccol_indices", "row_indices", "values"}},
      {"torch.sparse_bsc", {"ccol_indices", "row_indices", "values"}},
  };
  const auto known = std::find_if(std::begin(layouts), std::end(layouts),
                                  [&](const Layout& candidate) { return candidate.name == name; });
  if (known == std::end(layouts)) {
    fail(call, fmt::format("the unknown layout {}", in_quotes(name)));
  }
  if (data.kind != PickleKind::kTuple || data.items.size() <= known->parts.size()) {
    fail(call, fmt::format("{} for the data, expected a tuple of {} tensors and a size",
                           data.kind == PickleKind::kTuple
                               ? fmt::format("a tuple of {} items", data.items.size())
                               : std::string(pickle_kind_name(data.kind)),
                           known->parts.size()));
  }
  FoundTensors found;
  for (std::size_t i = 0; i < known->parts.size(); ++i) {
    FoundTensors part = inner(call, data.items[i], known->parts[i]);
    if (part.parts.size() != 1) fail(call, "a sparse tensor inside a sparse tensor");
    found.parts.push_back(std::move(part.parts[0]));
    found.parts.back().part = known->parts[i];
  }
  return found;
}

}  // namespace fp4scope
