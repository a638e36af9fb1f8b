// generate_profile.h: factors per channel (column) for tensors with outlier channels:
// x[t, c] = z[t, c] * factor[c] with z ~ N(0, 1).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/random_bits.h"

namespace fp4scope {

// E max |z| of `count` independent normal z, the E of design/data.md section 1: 3.2515 for 512. The
// integral of count (1-p)^(count-1) x(p) over the two-sided tail probability p, x(p) from the
// tables of the generators, by Simpson's rule with 256 steps per octave of p, in + - * of binary64
// only. Relative error below 1e-6 for counts up to 2^31.
double expected_maximum(std::int64_t count);

// Per-channel maxima of a real tensor.
struct ChannelProfile {
  std::string file, tensor;  // the file's name without its folders
  std::string hash;          // XXH3-64 of the values as binary64, hexadecimal
  std::vector<double> amax;
};
// `operand` is FILE:TENSOR, or FILE with one tensor: 1-D, `channels` finite values >= 0. Throws
// Error(kData); Error(kUsage) when `out`, the file to be written, is the one that holds it.
ChannelProfile read_profile(const std::string& operand, std::int64_t channels,
                            const std::string& out);

// Without a profile: `factor` at round(share * channels) channels, at least one unless the share is
// 0, and 1 at the others. The outlier channels are those with the smallest random words.
std::vector<double> synthetic_factors(StreamKey key, std::int64_t channels, double share,
                                      double factor);

}  // namespace fp4scope
