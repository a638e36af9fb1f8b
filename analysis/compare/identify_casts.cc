// identify_casts.cc: see identify_casts.h.
#include "analysis/compare/identify_casts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "analysis/compare/compare.h"
#include "analysis/compare/prepared.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "formats/scalars.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // elements

using Encode = std::function<std::uint32_t(float)>;
using Decode = std::function<float(std::uint32_t)>;

struct Candidate {
  CastExplanation says;
  int bits = 8;
  Encode encode;
  Decode decode;
  // Codes of NaN inputs, by sign.
  std::set<std::uint32_t> nan_codes[2] = {};
  bool nan_values = false;  // --fake: some NaN input gave a number
};

constexpr std::pair<Rounding, const char*> kRoundings[] = {{Rounding::kEven, "ties to even"},
                                                           {Rounding::kAway, "ties away from zero"},
                                                           {Rounding::kZero, "ties toward zero"},
                                                           {Rounding::kTrunc, "truncated"}};
constexpr std::pair<E8m0Rule, const char*> kE8m0Rules[] = {
    {E8m0Rule::kUp, "rounded up, saturating at 254"},
    {E8m0Rule::kUpNoSat, "rounded up, 255 beyond the range"},
    {E8m0Rule::kDown, "exponent field"},
    {E8m0Rule::kUpOnnx, "rounded up as ONNX"},
    {E8m0Rule::kNearestTorch, "nearest as torch, sign ignored"},
    {E8m0Rule::kNearestOnnx, "nearest as ONNX, saturating at 254"},
    {E8m0Rule::kNearestMlDtypes, "nearest as ml_dtypes, 255 for zero and negative values"}};

const char* overflow_text(const MinifloatSpec& spec, Overflow overflow) {
  if (spec.special == Special::kNone) return "saturates";
  if (overflow == Overflow::kSaturate) return "saturates";
  return spec.special == Special::kIeee ? "infinity beyond the range" : "NaN beyond the range";
}

std::vector<Candidate> all_casts() {
  std::vector<Candidate> list;
  for (const NamedSpec& row : kScalars) {
    const MinifloatSpec spec = row.spec;
    // binary32 itself is no cast.
    if (spec.storage_bits() > 16) continue;
    for (const auto& [rounding, text] : kRoundings) {
      for (const Overflow overflow : {Overflow::kSaturate, Overflow::kSpecial}) {
        if (spec.special == Special::kNone && overflow == Overflow::kSpecial) continue;
        Candidate c;
        c.says = {std::string(row.name), text, overflow_text(spec, overflow), "", ""};
        c.bits = spec.storage_bits();
        c.encode = [spec, policy = CastPolicy{rounding, overflow, {0, NanRule::Sign::kDrop}}](
                       float v) { return cast<Lane<1>>(spec, policy, v); };
        c.decode = [spec](std::uint32_t code) { return decode<Lane<1>>(spec, code); };
        list.push_back(std::move(c));
      }
    }
  }
  for (const auto& [rule, text] : kE8m0Rules) {
    Candidate c;
    c.says = {"e8m0", text, "", "", ""};
    c.encode = [rule](float v) { return e8m0_encode<Lane<1>>(rule, v); };
    c.decode = [](std::uint32_t byte) { return e8m0_decode<Lane<1>>(byte); };
    list.push_back(std::move(c));
  }
  return list;
}

// Whether the cast gives these codes; those of NaN inputs are only gathered.
bool explains(Candidate& c, const std::vector<float>& x, const std::vector<std::uint32_t>& codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] != x[i]) {
      c.nan_codes[bit_cast<std::uint32_t>(x[i]) >> 31].insert(codes[i]);
    } else if (c.encode(x[i]) != codes[i]) {
      return false;
    }
  }
  return true;
}

std::string codes_text(const std::set<std::uint32_t>& codes) {
  std::string out;
  for (const std::uint32_t code : codes)
    out += fmt::format("{}{:#x}", out.empty() ? "" : ", ", code);
  return out;
}

std::string nan_text(const Candidate& c) {
  if (c.nan_values) return "NaN inputs give numbers";
  const auto &plus = c.nan_codes[0], &minus = c.nan_codes[1];
  if (plus.empty() && minus.empty()) return "";
  if (plus == minus || plus.empty() || minus.empty()) {
    return "NaN gives " + codes_text(plus.empty() ? minus : plus);
  }
  return fmt::format("NaN gives {}, with its sign bit {}", codes_text(plus), codes_text(minus));
}

// Codes as integers, in one packing, from a piece of the tensor. Empty: they do not fit.
std::vector<std::uint32_t> read_codes(const TensorBytes& bytes, int bits, CodePacking packing,
                                      std::int64_t first, std::int64_t count) {
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(count));
  if (bits > 8) {
    std::vector<std::uint8_t> raw(static_cast<std::size_t>(2 * count));
    bytes.read(2 * first, 2 * count, raw.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = raw[2 * i] | static_cast<std::uint32_t>(raw[2 * i + 1]) << 8;
    }
    return codes;
  }
  const bool is_packed = packing != CodePacking::kBytes;
  std::vector<std::uint8_t> raw(static_cast<std::size_t>(is_packed ? (count + 1) / 2 : count));
  bytes.read(is_packed ? first / 2 : first, std::ssize(raw), raw.data());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (!is_packed) {
      codes[i] = raw[i];
    } else {
      const bool is_high = (i % 2 == 1) == (packing == CodePacking::kLowFirst);
      codes[i] = is_high ? raw[i / 2] >> 4 : raw[i / 2] & 15u;
    }
  }
  return codes;
}

// Binary64 values rounded once, as everywhere (spec/scalars.md section 7).
std::vector<float> read_floats(const FlatView& view, std::int64_t first, std::int64_t count) {
  const TensorInfo& tensor = view.tensors()[0];
  std::vector<float> out(static_cast<std::size_t>(count));
  if (tensor.dtype != DType::kF64) {
    view.read_f32(tensor, 0, 1, first, count, out.data());
    return out;
  }
  std::vector<double> wide(out.size());
  view.read_f64(tensor, 0, 1, first, count, wide.data());
  std::transform(wide.begin(), wide.end(), out.begin(),
                 [](double v) { return static_cast<float>(v); });
  return out;
}

}  // namespace

std::vector<CastExplanation> identify_casts(const VerifyCase& job, SourceCache& sources,
                                            const std::atomic<bool>* stop) {
  const bool has_codes = !job.codes.empty(), has_values = !job.fake.empty();
  if (!job.scales.empty() || !job.outer_scale.empty() || !job.amax.empty() || !job.choice.empty() ||
      !job.layout.empty() || has_codes == has_values) {
    return {};
  }
  const auto input = sources.open(job.input, "--input");
  const PreparedInput view(*input.source, *input.tensor, -1);
  const std::int64_t elements = input.tensor->elements;
  std::optional<TensorBytes> bytes;
  std::optional<SourceCache::Opened> fake;
  std::vector<Candidate> left;
  for (Candidate& c : all_casts()) {
    if (has_values) {
      left.push_back(std::move(c));
      continue;
    }
    const auto file = sources.open(job.codes, "--codes");
    if (!bytes) bytes.emplace(*file.source, *file.tensor);
    const std::int64_t width = c.bits > 8 ? 2 : 1;
    const auto wanted = [&](std::string_view packing) {
      return job.nibbles.empty() || job.nibbles == packing;
    };
    if (bytes->size() == elements * width && wanted("bytes")) {
      c.says.packing = "bytes";
      left.push_back(c);
    }
    // Rows of an odd length are packed with a byte of their own; such casts are not looked at.
    if (c.bits <= 4 && elements % 2 == 0 && bytes->size() == elements / 2) {
      for (const CodePacking packing : {CodePacking::kLowFirst, CodePacking::kHighFirst}) {
        c.says.packing = name_of(packing);
        if (wanted(c.says.packing)) left.push_back(c);
      }
    }
  }
  if (has_values) {
    fake = sources.open(job.fake, "--fake");
    if (fake->tensor->elements != elements || !is_real(fake->tensor->dtype)) return {};
  }
  const FlatView flat_x(*input.source, *input.tensor);
  std::int64_t compared = 0;
  for (std::int64_t at = 0; at < elements && !left.empty(); at += kPiece) {
    const std::int64_t n = std::min(kPiece, elements - at);
    if (stop != nullptr && *stop) throw Error(ErrorKind::kData, "interrupted");
    std::vector<float> x = read_floats(flat_x, at, n), values;
    if (has_values) {
      values = read_floats(FlatView(*fake->source, *fake->tensor), at, n);
    }
    compared += std::count_if(x.begin(), x.end(), [](float v) { return v == v; });
    std::erase_if(left, [&](Candidate& c) {
      if (!has_values) {
        const CodePacking packing = c.says.packing == "high-first"  ? CodePacking::kHighFirst
                                    : c.says.packing == "low-first" ? CodePacking::kLowFirst
                                                                    : CodePacking::kBytes;
        return !explains(c, x, read_codes(*bytes, c.bits, packing, at, n));
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (x[i] != x[i]) {
          c.nan_values |= values[i] == values[i];
          continue;
        }
        if (!same_pattern(c.decode(c.encode(x[i])), values[i])) return true;
      }
      return false;
    });
  }
  if (compared == 0) return {};  // nothing but NaN
  std::vector<CastExplanation> out;
  for (Candidate& c : left) {
    c.says.nan = nan_text(c);
    out.push_back(std::move(c.says));
  }
  return out;
}

std::string to_text(const CastExplanation& cast) {
  std::string out = cast.scalar + ": " + cast.rounding;
  for (const std::string& part : {cast.overflow, cast.nan}) {
    if (!part.empty()) out += ", " + part;
  }
  if (!cast.packing.empty() && cast.packing != "bytes") out += ", codes " + cast.packing;
  return out;
}

}  // namespace fp4scope
