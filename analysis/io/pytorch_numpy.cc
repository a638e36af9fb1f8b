// pytorch_numpy.cc: numpy arrays in a pickle, as ndarray.__reduce__ (with BUILD) and
// ndarray.__reduce_ex__(5) (with _frombuffer) of numpy 1 and 2 write them. The bytes lie in the
// pickle; protocols 0 to 2 spell them as text, one character per byte.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "analysis/io/message.h"
#include "analysis/io/pickle_opcodes.h"
#include "analysis/io/pickle_text.h"
#include "analysis/io/pytorch_tensors.h"
#include "sim/error.h"

namespace fp4scope {

// The array that was used last, which stays, so that a tensor that is read tile by tile is decoded
// once.
struct DecodedArray {
  std::mutex mutex;
  std::shared_ptr<const MappedFile> last;
};

namespace {

// Bytes that lie in no file: put into a file in memory while somebody reads them.
class DecodedBytes final : public ByteStore {
 public:
  // UTF-8 of `latin1` characters, or the bytes themselves; both as text that lives in `file` at
  // `offset`, or in `owned` where `file` is null.
  struct Source {
    std::shared_ptr<const ByteStore> file;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    std::string owned;
    bool latin1 = false;
  };
  DecodedBytes(Source source, std::string what, std::shared_ptr<DecodedArray> kept)
      : source_(std::move(source)), what_(std::move(what)), kept_(std::move(kept)) {}

  std::shared_ptr<const MappedFile> bytes() const override {
    const std::lock_guard lock(mutex_);
    auto decoded = decoded_.lock();
    if (decoded == nullptr) {
      decoded = decode();
      decoded_ = decoded;
    }
    std::shared_ptr<const MappedFile> before = decoded;
    const std::lock_guard keep(kept_->mutex);
    std::swap(before, kept_->last);
    return decoded;
  }

 private:
  std::shared_ptr<const MappedFile> decode() const {
    const std::shared_ptr<const MappedFile> file = source_.file ? source_.file->bytes() : nullptr;
    std::string_view text =
        file ? file->text(source_.offset, source_.bytes) : std::string_view(source_.owned);
    const int fd = ::memfd_create("fp4scope", MFD_CLOEXEC);
    if (fd < 0) fail(errno);
    std::string piece;
    while (!text.empty()) {
      piece.clear();
      constexpr std::size_t kPiece = 1 << 20;
      while (!text.empty() && piece.size() < kPiece) {
        if (source_.latin1) {
          piece += static_cast<char>(take_utf8(text).value_or(0));
        } else {
          const std::string_view next = text.substr(0, kPiece);
          piece += next;
          text.remove_prefix(next.size());
        }
      }
      for (std::size_t written = 0; written < piece.size();) {
        const ssize_t n = ::write(fd, piece.data() + written, piece.size() - written);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
          const int error = n < 0 ? errno : EIO;
          ::close(fd);
          fail(error);
        }
        written += static_cast<std::size_t>(n);
      }
    }
    if (file) file->check();
    return std::make_shared<MappedFile>(fd, what_);
  }

  [[noreturn]] void fail(int error) const {
    throw Error(ErrorKind::kData, fmt::format("{}: no memory for an array of the pickle: {}",
                                              printable(what_), system_message(error)));
  }

  Source source_;
  std::string what_;
  std::shared_ptr<DecodedArray> kept_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const MappedFile> decoded_;
};

bool is_python2_string(const PickleObject& object) {
  const auto op = static_cast<PickleOp>(object.opcode);
  return object.kind == PickleKind::kText &&
         (op == PickleOp::kString || op == PickleOp::kBinString || op == PickleOp::kShortBinString);
}

}  // namespace

// numpy.dtype(type, align, copy) and BUILD with (version, order, subarray, names, fields, bytes,
// alignment, flags[, metadata]).
StoredDType TorchTensors::array_dtype(const Call& call, PickleId id, bool& big_endian) const {
  const PickleObject& object = pickle_[id];
  const bool is_call = object.kind == PickleKind::kCall;
  const std::string callable = is_call ? global_name(pickle_[object.items[0]]) : std::string();
  const std::vector<PickleId>* arguments = is_call ? &pickle_[object.items[1]].items : nullptr;
  big_endian = false;
  if (arguments == nullptr || !callable.starts_with("numpy.")) {
    fail(call,
         fmt::format("{} for the dtype, expected a numpy dtype", pickle_kind_name(object.kind)));
  }
  if (callable != "numpy.dtype" || arguments->empty()) {
    return {DType::kOther, printable(callable, 60), 0, 1};
  }
  const PickleObject& type = pickle_[arguments->front()];
  // ml_dtypes and other extensions: named by their class. Most have the names of torch.
  if (type.kind == PickleKind::kGlobal) {
    const StoredDType* known = type.text == "ml_dtypes" ? torch_dtype(type.name) : nullptr;
    if (known == nullptr) return {DType::kOther, printable(global_name(type), 60), 0, 1};
    return *known;
  }
  char order = '<';
  bool objects = false;
  const PickleExtra* extra = pickle_.extra(object);
  if (extra != nullptr && !extra->states.empty()) {
    const PickleObject& state = pickle_[extra->states.back()];
    if (state.kind == PickleKind::kTuple && state.items.size() >= 8) {
      const PickleObject& text = pickle_[state.items[1]];
      if (text.kind == PickleKind::kText && !text.text.empty()) order = text.text[0];
      const PickleObject& flags = pickle_[state.items[7]];
      constexpr std::int64_t kHasObject = 1;
      objects = flags.kind == PickleKind::kInt && (flags.integer & kHasObject) != 0;
    }
  }
  if (type.kind != PickleKind::kText) {
    fail(call,
         fmt::format("{} for the type of the dtype, expected a text", pickle_kind_name(type.kind)));
  }
  // Longer than any of numpy's; many arrays may name one long text.
  constexpr std::size_t kMostTypeBytes = 64;
  if (type.text.size() > kMostTypeBytes) return {DType::kOther, printable(type.text, 60), 0, 1};
  StoredDType dtype = numpy_dtype(type.text, order, big_endian);
  if (objects) {
    dtype.bytes = 0;
    dtype.text = "|O";
  }
  if (dtype.bytes == 0) dtype.text = printable(dtype.text, 60);
  return dtype;
}

std::optional<TorchStoragePlace> TorchTensors::bytes_of(const Call& call, PickleId id) {
  const PickleObject* object = &pickle_[id];
  bool latin1 = false;
  if (object->kind == PickleKind::kCall) {
    const std::string callable = global_name(pickle_[object->items[0]]);
    const std::vector<PickleId>& arguments = pickle_[object->items[1]].items;
    const bool is_bytes = callable == "builtins.bytes" || callable == "__builtin__.bytes";
    if (is_bytes && arguments.empty())
      return TorchStoragePlace{place_.file, place_.offset, 0, false};
    if (callable != "_codecs.encode" || arguments.size() != 2) return std::nullopt;
    const std::string_view encoding = pickle_[arguments[1]].text;
    if (encoding != "latin1" && encoding != "latin-1") return std::nullopt;
    id = arguments[0];
    object = &pickle_[id];
    latin1 = true;
    if (object->kind != PickleKind::kText) return std::nullopt;
  } else if (object->kind != PickleKind::kBytes && !is_python2_string(*object)) {
    return std::nullopt;
  }
  const std::uint64_t key = std::uint64_t{id} << 1 | (latin1 ? 1 : 0);
  const auto known = decoded_.find(key);
  if (known != decoded_.end()) return known->second;
  TorchStoragePlace place{place_.file, place_.offset, std::ssize(object->text), false};
  if (latin1) {
    place.bytes = 0;
    for (std::string_view rest = object->text; !rest.empty(); ++place.bytes) {
      const auto code = take_utf8(rest);
      if (!code || *code > 0xFF) {
        fail(call,
             fmt::format("bytes as text, of which character {} is none of Latin-1", place.bytes));
      }
    }
  }
  const std::less<const char*> before;
  const char* start = place_.bytes.data();
  const bool inside = !before(object->text.data(), start) &&
                      before(object->text.data(), start + place_.bytes.size());
  if (inside) place.offset += object->text.data() - start;
  if ((!inside || latin1) && !object->text.empty()) {
    DecodedBytes::Source source;
    source.latin1 = latin1;
    source.bytes = std::ssize(object->text);
    if (inside) {
      source.file = contents_.files[place_.file];
      source.offset = place.offset;
    } else {
      source.owned = std::string(object->text);
    }
    if (decoded_array_ == nullptr) decoded_array_ = std::make_shared<DecodedArray>();
    contents_.files.push_back(
        std::make_shared<DecodedBytes>(std::move(source), contents_.info.path, decoded_array_));
    place.file = contents_.files.size() - 1;
    place.offset = 0;
  }
  decoded_.emplace(key, place);
  return place;
}

FoundTensors TorchTensors::array(const Call& call, PickleId shape, PickleId dtype, bool fortran,
                                 PickleId data) {
  bool big_endian = false;
  const StoredDType type = array_dtype(call, dtype, big_endian);
  std::vector<std::int64_t> extents = integers(call, shape, "shape");
  FoundTensors found;
  if (type.bytes == 0) {
    if (pickle_[data].kind == PickleKind::kList) found.items = pickle_[data].items;
    std::vector<std::int64_t> strides(extents.size(), 0);
    found.parts.push_back(view(call, {}, type, 0, std::move(extents), std::move(strides)));
    return found;
  }
  const auto elements = checked_product(extents);
  std::int64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, std::int64_t{type.bytes}, &bytes)) {
    fail(call, fmt::format("the shape {}, whose size exceeds 64 bits", shape_text(extents)));
  }
  auto place = bytes_of(call, data);
  if (!place) {
    fail(call, fmt::format("{} for the data of an array, expected bytes",
                           pickle_kind_name(pickle_[data].kind)));
  }
  if (place->bytes != bytes) {
    fail(call, fmt::format("{} bytes of data, expected {} for shape {} of {}", place->bytes, bytes,
                           shape_text(extents), in_quotes(type.text, 40)));
  }
  place->big_endian = big_endian;
  std::vector<std::int64_t> strides = fortran_strides(extents);
  if (!fortran) {
    std::int64_t stride = 1;
    for (std::size_t d = extents.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= std::max<std::int64_t>(extents[d], 1);
    }
  }
  found.parts.push_back(view(call, *place, type, 0, std::move(extents), std::move(strides)));
  return found;
}

// _reconstruct(class, (0,), b"b") and BUILD with (version, shape, dtype, fortran, data).
std::optional<FoundTensors> TorchTensors::reconstructed(const Call& call) {
  const PickleExtra* extra = pickle_.extra(call.object);
  if (extra == nullptr || extra->states.empty()) return std::nullopt;
  const PickleObject& state = pickle_[extra->states.back()];
  // A subclass of ndarray may have a state of its own, which is searched like any other.
  if (state.kind != PickleKind::kTuple || state.items.size() != 5 ||
      pickle_[state.items[1]].kind != PickleKind::kTuple) {
    return std::nullopt;
  }
  const PickleObject& fortran = pickle_[state.items[3]];
  return array(call, state.items[1], state.items[2], fortran.integer != 0, state.items[4]);
}

// _frombuffer(buffer, dtype, shape, order)
FoundTensors TorchTensors::from_buffer(const Call& call) {
  expect_arguments(call, 4, 5);
  const std::string_view order = pickle_[call.arguments[3]].text;
  return array(call, call.arguments[2], call.arguments[1], order == "F", call.arguments[0]);
}

}  // namespace fp4scope
