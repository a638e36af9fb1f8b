// host_reference.cc: the host side of the comparison, compiled by g++ with the same codec text.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "tests/gpu/jobs.h"

namespace fp4scope::test {
namespace {

template <int W>
[[gnu::always_inline]] inline std::uint64_t chunk_sum(const ScalarJob& job, std::uint32_t chunk) {
  using L = Lane<W>;
  std::uint64_t sum = 0;
  const std::uint32_t first = chunk << kChunkBits;
  for (std::uint32_t i = 0; i < (1u << kChunkBits); i += W) {
    typename L::U bits{};
    for (int l = 0; l < W; ++l) bits[l] = first + i + static_cast<std::uint32_t>(l);
    const typename L::U random = typename L::U{} + job.random_byte;
    const auto code = encode<L>(job.spec, job.rounding, bit_cast<typename L::F>(bits), random);
    const auto value = bit_cast<typename L::U>(decode<L>(job.spec, code));
    for (int l = 0; l < W; ++l) sum += weight(bits[l]) * (code[l] + 1u) + value[l];
  }
  return sum;
}
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] std::uint64_t chunk_sum_avx512(
    const ScalarJob& job, std::uint32_t chunk) {
  return chunk_sum<16>(job, chunk);
}
std::uint64_t chunk_sum_plain(const ScalarJob& job, std::uint32_t chunk) {
  return chunk_sum<4>(job, chunk);
}

}  // namespace

std::uint64_t host_chunk_sum(const ScalarJob& job, std::uint32_t chunk) {
  return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
             ? chunk_sum_avx512(job, chunk)
             : chunk_sum_plain(job, chunk);
}

std::vector<BlockJob> block_jobs() {
  std::vector<BlockJob> jobs;
  const std::pair<const char*, MinifloatSpec> elements[] = {
      {"e2m1", kE2M1}, {"e2m3", kE2M3}, {"e3m2", kE3M2}, {"e4m3", kE4M3}, {"e5m2", kE5M2}};
  for (const auto& [name, element] : elements) {
    for (const Contract<MxOptions>& c : kMxContracts) {
      BlockJob job{};
      job.name = c.name.data();
      job.kind = BlockKind::kMx;
      job.element = element;
      job.mx = c.options;
      jobs.push_back(job);
      job.kind = BlockKind::kMxBinary64;
      jobs.push_back(job);
      for (const Rounding ties : {Rounding::kAway, Rounding::kZero, Rounding::kTrunc}) {
        job.kind = BlockKind::kMx;
        job.mx.ties = ties;
        jobs.push_back(job);
      }
    }
    (void)name;
  }
  for (const float g : {1.0f, 0x1.0p10f, 448.0f, 0x1.8p-3f, 0x1.123456p4f}) {
    for (const NegZero neg_zero : {NegZero::kKeep, NegZero::kDrop}) {
      BlockJob job{};
      job.name = "te";
      job.kind = BlockKind::kNvfp4;
      job.element = kE2M1;
      job.g = g;
      job.nvfp4.neg_zero = neg_zero;
      jobs.push_back(job);
    }
  }
  for (const Contract<Hif4Options>& c : kHif4Contracts) {
    for (const MinifloatSpec& element : {kE1M2, kE1M1, kE1M3}) {
      BlockJob job{};
      job.name = c.name.data();
      job.kind = BlockKind::kHif4;
      job.element = element;
      job.hif4 = c.options;
      jobs.push_back(job);
      job.hif4.e6m2 = Rounding::kAway;
      job.hif4.overflow = Hif4Overflow::kNan;
      job.hif4.zero = Hif4Zero::kFf;
      job.hif4.neg_zero = NegZero::kKeep;
      jobs.push_back(job);
    }
  }
  return jobs;
}

BlockOutput host_blocks(const BlockJob& job, const std::vector<float>& x,
                        const std::vector<double>& x64, int blocks) {
  using L = Lane<1>;
  const int n = job.block();
  BlockOutput out;
  out.codes.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(blocks));
  out.metadata.resize(static_cast<std::size_t>(blocks));
#pragma omp parallel for
  for (int b = 0; b < blocks; ++b) {
    const auto store = [&](const std::uint32_t* codes, std::uint32_t metadata) {
      for (int i = 0; i < n; ++i) {
        out.codes[static_cast<std::size_t>(n) * b + i] = static_cast<std::uint8_t>(codes[i]);
      }
      out.metadata[b] = metadata;
    };
    const float* in = x.data() + static_cast<std::size_t>(n) * b;
    if (job.kind == BlockKind::kMx) {
      MxBlock<L> block{};
      mx_quantize<L>(job.mx, job.element, *reinterpret_cast<const float(*)[32]>(in), block);
      store(block.codes, block.scale);
    } else if (job.kind == BlockKind::kMxBinary64) {
      MxBlock<L> block{};
      const double* in64 = x64.data() + static_cast<std::size_t>(n) * b;
      mx_quantize(job.mx, job.element, *reinterpret_cast<const double(*)[32]>(in64), block);
      store(block.codes, block.scale);
    } else if (job.kind == BlockKind::kNvfp4) {
      Nvfp4Block<L> block{};
      const auto& values = *reinterpret_cast<const float(*)[16]>(in);
      nvfp4_quantize<L>(job.nvfp4, job.g, nvfp4_block_amax<L>(values), values, block);
      store(block.codes, block.scale);
    } else {
      Hif4Block<L> block{};
      hif4_quantize<L>(job.hif4, job.element, *reinterpret_cast<const float(*)[64]>(in), block);
      store(block.codes, block.scale | block.level2 << 8 | block.level3 << 16);
    }
  }
  return out;
}

void fill_blocks(int block, int blocks, std::uint64_t seed, std::vector<float>& x,
                 std::vector<double>& x64) {
  const auto n = static_cast<std::size_t>(block) * static_cast<std::size_t>(blocks);
  x.resize(n);
  x64.resize(n);
  std::uint64_t state = seed * 2 + 1;
  const auto next = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(state >> 32);
  };
  for (std::size_t b = 0; b < n; b += static_cast<std::size_t>(block)) {
    const std::uint32_t kind = next() % 16;
    const std::uint32_t base =
        kind == 0 ? next() % 256 : 90 + next() % 80;  // exponent of the block
    // Few fraction bits make ties, all of them random values.
    const std::uint32_t keep = kind < 6 ? 0x00700000u : kind < 10 ? 0x007f0000u : 0x007fffffu;
    for (int i = 0; i < block; ++i) {
      const std::uint32_t r = next();
      std::uint32_t exponent = base > r % 12 ? base - r % 12 : 0;
      if (exponent > 254) exponent = 254;
      std::uint32_t bits = (r & kSignBit) | exponent << 23 | (next() & keep);
      if (r % 64 == 5) bits &= kSignBit;                                    // signed zero
      if (kind == 1 && r % 61 == 7) bits = (r & kSignBit) | kInfBits;       // Inf
      if (kind == 2 && r % 61 == 9) bits = (r & kSignBit) | kQuietNanBits;  // NaN
      const std::size_t at = b + static_cast<std::size_t>(i);
      x[at] = bit_cast<float>(bits);
      // Binary64: the same value with a tail below binary32, and wide exponents at times.
      const std::uint64_t tail = kind % 3 == 0 ? 0 : next() & 0x1fffffffu;
      double v = x[at];
      if ((bits & kMagnitudeMask) < kInfBits && (bits & kMagnitudeMask) != 0) {
        v = bit_cast<double>(bit_cast<std::uint64_t>(v) | tail);
        if (kind == 3) v *= base % 2 == 0 ? 0x1p600 : 0x1p-600;
      }
      x64[at] = v;
    }
  }
}

}  // namespace fp4scope::test
