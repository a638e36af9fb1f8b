// random_bits.h: the random bits of all generators: Philox4x32-10 (formats/philox.h) with the seed
// as key and a counter that says what the bits are for, so that no two uses share any. Private to
// the generators and their tests.
#pragma once
#include <cstdint>
#include <span>

namespace fp4scope {

// The streams of one tensor: several tensors of a file share the seed and differ in the number.
struct StreamKey {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0;
};

// Last word of the Philox counter. 1 to 6: the inverse-CDF streams, distribution number + 1.
inline constexpr std::uint32_t kOutlierPurpose = 7;  // by channel
inline constexpr std::uint32_t kTiePurpose = 8;      // by element
// Student-t by df+1 normals, call by call; df is 1 to 100 and call at least 0.
constexpr std::uint32_t student_purpose(int df, int call) {
  return static_cast<std::uint32_t>(call + 1) << 16 | static_cast<std::uint32_t>(df) << 8;
}

// Words [first, first + out.size()) of a stream: word w is half w % 2 (64 bits, low half first) of
// the Philox output for the counter {w / 2 low, w / 2 high, tensor, purpose}. Any split into pieces
// gives the same words, and so does every instruction set.
void random_bits(StreamKey key, std::uint32_t purpose, std::uint64_t first,
                 std::span<std::uint64_t> out);

}  // namespace fp4scope
