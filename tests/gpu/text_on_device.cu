// text_on_device.cu: the codec text as CUDA threads against the same text on the host: every scalar
// format and rounding over all 2^32 binary32 patterns, and te, MX and HiF4 on random and hard
// blocks. Needs a device; without one it prints SKIPPED. `text_on_device BLOCKS` sets the blocks
// per job (default 2^20), a job being a contract with an element and an option. A line for each
// sweep, so that an interrupted run still says what it saw.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "tests/gpu/jobs.h"

namespace fp4scope::test {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void scalar_sums(ScalarJob job, unsigned long long* sums) {
  const std::uint32_t chunk = blockIdx.y;
  const std::uint32_t first = chunk << kChunkBits;
  std::uint64_t sum = 0;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (1u << kChunkBits);
       i += gridDim.x * blockDim.x) {
    const std::uint32_t bits = first + i;
    const std::uint32_t code =
        encode<Lane<1>>(job.spec, job.rounding, bit_cast<float>(bits), job.random_byte);
    const auto value = bit_cast<std::uint32_t>(decode<Lane<1>>(job.spec, code));
    sum += weight(bits) * (code + 1u) + value;
  }
  atomicAdd(sums + chunk, static_cast<unsigned long long>(sum));  // integers: free of order
}

__global__ void block_kernel(BlockJob job, const float* x, const double* x64, std::uint8_t* codes,
                             std::uint32_t* metadata, int blocks) {
  using L = Lane<1>;
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  const auto store = [&](const std::uint32_t* from, int n, std::uint32_t word) {
    for (int i = 0; i < n; ++i) {
      codes[static_cast<std::size_t>(n) * b + i] = static_cast<std::uint8_t>(from[i]);
    }
    metadata[b] = word;
  };
  if (job.kind == BlockKind::kMx) {
    float in[32];
    for (int i = 0; i < 32; ++i) in[i] = x[std::size_t{32} * b + i];
    MxBlock<L> out{};
    mx_quantize<L>(job.mx, job.element, in, out);
    store(out.codes, 32, out.scale);
  } else if (job.kind == BlockKind::kMxBinary64) {
    double in[32];
    for (int i = 0; i < 32; ++i) in[i] = x64[std::size_t{32} * b + i];
    MxBlock<L> out{};
    mx_quantize(job.mx, job.element, in, out);
    store(out.codes, 32, out.scale);
  } else if (job.kind == BlockKind::kNvfp4) {
    float in[16];
    for (int i = 0; i < 16; ++i) in[i] = x[std::size_t{16} * b + i];
    Nvfp4Block<L> out{};
    nvfp4_quantize<L>(job.nvfp4, job.g, nvfp4_block_amax<L>(in), in, out);
    store(out.codes, 16, out.scale);
  } else {
    float in[64];
    for (int i = 0; i < 64; ++i) in[i] = x[std::size_t{64} * b + i];
    Hif4Block<L> out{};
    hif4_quantize<L>(job.hif4, job.element, in, out);
    store(out.codes, 64, out.scale | out.level2 << 8 | out.level3 << 16);
  }
}

std::int64_t compare_scalars(std::int64_t* swept) {
  std::vector<ScalarJob> jobs;
  std::vector<std::string_view> names;
  for (const NamedSpec& s : kScalars) {
    for (const Rounding r : {Rounding::kEven, Rounding::kAway, Rounding::kZero, Rounding::kTrunc}) {
      jobs.push_back({s.spec, r, 0});
      names.push_back(s.name);
    }
  }
  for (const std::uint32_t byte : {0u, 1u, 127u, 128u, 255u}) {
    jobs.push_back({kE2M1, Rounding::kStochastic, byte});
    names.push_back("e2m1 stochastic");
  }
  unsigned long long* device = nullptr;
  check(cudaMalloc(&device, kChunks * sizeof(*device)), "cudaMalloc");
  std::vector<unsigned long long> got(kChunks), want(kChunks);
  std::int64_t differing = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    check(cudaMemset(device, 0, kChunks * sizeof(*device)), "cudaMemset");
    scalar_sums<<<dim3(64, kChunks), 256>>>(jobs[j], device);
    check(cudaGetLastError(), "launch of the scalar sweep");
#pragma omp parallel for schedule(dynamic, 1)
    for (int c = 0; c < kChunks; ++c) {
      want[static_cast<std::size_t>(c)] = host_chunk_sum(jobs[j], static_cast<std::uint32_t>(c));
    }
    check(cudaMemcpy(got.data(), device, kChunks * sizeof(*device), cudaMemcpyDeviceToHost),
          "scalar sweep");
    int bad = 0;
    for (int c = 0; c < kChunks; ++c) {
      if (got[static_cast<std::size_t>(c)] == want[static_cast<std::size_t>(c)]) continue;
      if (bad++ == 0) std::printf("DIFFERS %s chunk %08x\n", names[j].data(), c << kChunkBits);
    }
    std::printf("%s %d: 2^32 inputs, %d chunks differ\n", names[j].data(),
                static_cast<int>(jobs[j].rounding), bad);
    std::fflush(stdout);
    differing += bad;
    *swept += std::int64_t{1} << 32;
  }
  check(cudaFree(device), "cudaFree");
  return differing;
}

std::int64_t compare_blocks(int blocks, std::int64_t* elements) {
  std::int64_t differing = 0;
  std::uint64_t seed = 1;
  for (const BlockJob& job : block_jobs()) {
    std::vector<float> x;
    std::vector<double> x64;
    fill_blocks(job.block(), blocks, seed++, x, x64);
    float* dx = nullptr;
    double* dx64 = nullptr;
    std::uint8_t* dcodes = nullptr;
    std::uint32_t* dmetadata = nullptr;
    check(cudaMalloc(&dx, x.size() * 4), "cudaMalloc");
    check(cudaMalloc(&dx64, x.size() * 8), "cudaMalloc");
    check(cudaMalloc(&dcodes, x.size()), "cudaMalloc");
    check(cudaMalloc(&dmetadata, static_cast<std::size_t>(blocks) * 4), "cudaMalloc");
    check(cudaMemcpy(dx, x.data(), x.size() * 4, cudaMemcpyHostToDevice), "copy");
    check(cudaMemcpy(dx64, x64.data(), x.size() * 8, cudaMemcpyHostToDevice), "copy");
    block_kernel<<<(blocks + 127) / 128, 128>>>(job, dx, dx64, dcodes, dmetadata, blocks);
    check(cudaGetLastError(), "launch of the block kernel");
    const BlockOutput want = host_blocks(job, x, x64, blocks);
    std::vector<std::uint8_t> codes(x.size());
    std::vector<std::uint32_t> metadata(static_cast<std::size_t>(blocks));
    check(cudaMemcpy(codes.data(), dcodes, codes.size(), cudaMemcpyDeviceToHost), "block kernel");
    check(cudaMemcpy(metadata.data(), dmetadata, metadata.size() * 4, cudaMemcpyDeviceToHost),
          "block kernel");
    std::int64_t bad = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) bad += codes[i] != want.codes[i];
    for (std::size_t i = 0; i < metadata.size(); ++i) bad += metadata[i] != want.metadata[i];
    if (bad != 0) {
      std::printf("DIFFERS %s kind %d: %lld bytes or words\n", job.name, static_cast<int>(job.kind),
                  static_cast<long long>(bad));
    }
    differing += bad;
    *elements += static_cast<std::int64_t>(x.size());
    check(cudaFree(dx), "cudaFree");
    check(cudaFree(dx64), "cudaFree");
    check(cudaFree(dcodes), "cudaFree");
    check(cudaFree(dmetadata), "cudaFree");
  }
  return differing;
}

}  // namespace
}  // namespace fp4scope::test

int main(int argc, char** argv) {
  using namespace fp4scope::test;
  int driver = 0, devices = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  const cudaError_t counted = driver == 0 ? cudaErrorNoDevice : cudaGetDeviceCount(&devices);
  if (counted == cudaErrorNoDevice) {
    std::printf("SKIPPED: no CUDA %s on this machine\n", driver == 0 ? "driver" : "device");
    return 77;
  }
  check(counted, "cudaGetDeviceCount");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const int blocks = argc > 1 ? std::atoi(argv[1]) : 1 << 20;
  const auto start = std::chrono::steady_clock::now();
  std::int64_t swept = 0, elements = 0;
  const std::int64_t block_bytes = compare_blocks(blocks, &elements);
  std::printf("%lld block elements, %lld differ\n", static_cast<long long>(elements),
              static_cast<long long>(block_bytes));
  std::fflush(stdout);
  const std::int64_t scalars = compare_scalars(&swept);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "%s: %lld scalar conversions in checksums, %lld chunks differ; %lld block elements, "
      "%lld differ; %.0f s\n",
      properties.name, static_cast<long long>(swept), static_cast<long long>(scalars),
      static_cast<long long>(elements), static_cast<long long>(block_bytes), seconds.count());
  return scalars == 0 && block_bytes == 0 ? 0 : 1;
}
