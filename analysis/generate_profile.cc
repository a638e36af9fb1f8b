// generate_profile.cc: see generate_profile.h.
#include "analysis/generate_profile.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "analysis/analyze.h"
#include "analysis/inverse_cdf.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

const TensorInfo& profile_tensor(const TensorSource& source, const Operand& operand) {
  const auto& tensors = source.tensors();
  if (operand.tensor.empty()) {
    if (tensors.size() == 1) return tensors[0];
    throw Error(ErrorKind::kData,
                fmt::format("{} holds {} tensors, expected one, or FILE:TENSOR as the profile",
                            printable(operand.file), tensors.size()));
  }
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorInfo& t) { return t.name == operand.tensor; });
  if (found != tensors.end()) return *found;
  throw Error(ErrorKind::kData, fmt::format("{} holds no tensor {}", printable(operand.file),
                                            in_quotes(operand.tensor)));
}

}  // namespace

double expected_maximum(std::int64_t count) {
  // Octave k holds p in [2^-(k+1), 2^-k); below 2^-55 nothing is left for counts up to 2^31.
  constexpr int kOctaves = 55, kSteps = 256, kStepBits = 8;
  const auto exponent = static_cast<std::uint64_t>(count - 1);
  const auto integrand = [&](std::uint64_t tail) {
    const double p = static_cast<double>(tail) * 0x1p-64;
    return power(1 - p, exponent) * magnitude_of_tail(Distribution::kNormal, tail);
  };
  double integral = 0;
  for (int k = kOctaves - 1; k >= 0; --k) {
    const std::uint64_t low = std::uint64_t{1} << (63 - k), step = low >> kStepBits;
    double sum = integrand(low);
    for (std::uint64_t i = 1; i < kSteps; ++i)
      sum += (i % 2 == 1 ? 4 : 2) * integrand(low + i * step);
    if (k > 0) sum += integrand(2 * low);  // at p = 1 the magnitude is 0
    integral += sum * static_cast<double>(step) * 0x1p-64 / 3;
  }
  return static_cast<double>(count) * integral;
}

ChannelProfile read_profile(const std::string& operand, std::int64_t channels,
                            const std::string& out) {
  const Operand parts = split_operand(operand);
  const auto source = open_source(parts.file);
  refuse_overwriting(out, source_files(*source));
  const TensorInfo& tensor = profile_tensor(*source, parts);
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kData, fmt::format("{}: tensor {} cannot be a profile: {}",
                                              printable(tensor.file), in_quotes(tensor.name), why));
  };
  refuse_damaged(tensor);
  if (!is_real(tensor.dtype)) {
    fail(fmt::format("expected F64, F32, F16, BF16 or FP8, found {}", dtype_label(tensor)));
  }
  if (tensor.shape.size() != 1 || tensor.shape[0] != channels) {
    fail(fmt::format("expected the shape [{}] of one value per channel, found {}", channels,
                     shape_text(tensor.shape)));
  }
  ChannelProfile profile;
  profile.file = std::filesystem::path(tensor.file).filename().string();
  profile.tensor = tensor.name;
  profile.amax.resize(static_cast<std::size_t>(channels));
  if (tensor.dtype == DType::kF64) {
    source->read_f64(tensor, 0, 1, 0, channels, profile.amax.data());
  } else {
    std::vector<float> narrow(profile.amax.size());
    source->read_f32(tensor, 0, 1, 0, channels, narrow.data());
    std::copy(narrow.begin(), narrow.end(), profile.amax.begin());
  }
  for (std::size_t c = 0; c < profile.amax.size(); ++c) {
    if (!std::isfinite(profile.amax[c]) || profile.amax[c] < 0) {
      fail(fmt::format("expected finite values >= 0, found {} at channel {}", profile.amax[c], c));
    }
  }
  profile.hash = fmt::format(
      "{:016x}", XXH3_64bits(profile.amax.data(), profile.amax.size() * sizeof(profile.amax[0])));
  return profile;
}

std::vector<double> synthetic_factors(StreamKey key, std::int64_t channels, double share,
                                      double factor) {
  const auto n = static_cast<std::size_t>(channels);
  std::vector<double> factors(n, 1.0);
  auto outliers = static_cast<std::size_t>(share * static_cast<double>(channels) + 0.5);
  outliers = std::min(share > 0 ? std::max<std::size_t>(outliers, 1) : 0, n);
  if (outliers == 0) return factors;
  std::vector<std::uint64_t> words(n);
  random_bits(key, kOutlierPurpose, 0, words);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto before = [&](std::size_t a, std::size_t b) {
    return words[a] != words[b] ? words[a] < words[b] : a < b;
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(outliers - 1),
                   order.end(), before);
  for (std::size_t i = 0; i < outliers; ++i) factors[order[i]] = factor;
  return factors;
}

}  // namespace fp4scope
