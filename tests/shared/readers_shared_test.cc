// readers_shared_test.cc: the real files of ../shared/tensors. The fixtures w_* hold one real
// tensor in every container and dtype (ATTRIBUTION.md there), so they are compared with each other;
// the checksums and values in the tables were taken with numpy 2.4 (np.load for npy; for
// safetensors np.frombuffer at the offsets of the JSON header).
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "analysis/io/tensor_source.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

std::string shared_file(const char* name) {
  return (test::shared_dir() / "tensors" / name).string();
}

struct Loaded {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

// Reads in pieces of 7 rows and 29 columns, so that no reader sees whole rows only.
Loaded load(const char* name, const std::string& hint = "") {
  const auto source = open_source(shared_file(name), OpenOptions{hint});
  REQUIRE(source->tensors().size() == 1);
  const TensorInfo& tensor = source->tensors()[0];
  Loaded loaded{std::vector<float>(static_cast<std::size_t>(tensor.elements)), tensor.shape};
  const std::int64_t rows = tensor.rows(), cols = tensor.cols();
  for (std::int64_t r = 0; r < rows; r += 7) {
    for (std::int64_t c = 0; c < cols; c += 29) {
      const std::int64_t nr = std::min<std::int64_t>(7, rows - r);
      const std::int64_t nc = std::min<std::int64_t>(29, cols - c);
      std::vector<double> piece(static_cast<std::size_t>(nr * nc));
      source->read_f64(tensor, r, nr, c, nc, piece.data());
      for (std::int64_t i = 0; i < nr * nc; ++i) {
        loaded.values[static_cast<std::size_t>((r + i / nc) * cols + c + i % nc)] =
            static_cast<float>(piece[static_cast<std::size_t>(i)]);
      }
    }
  }
  return loaded;
}

std::size_t different_bits(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  }
  return count;
}

// Whether `rounded` is `value` rounded to nearest even on a grid of steps 2^exponent(value) * ulp.
bool is_rounded_to(float value, float rounded, int fraction_bits, int smallest_exponent) {
  int exponent = 0;
  (void)std::frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= |m| < 1
  const int step_exponent = std::max(exponent - 1, smallest_exponent) - fraction_bits;
  const double steps = std::ldexp(static_cast<double>(value), -step_exponent);  // exact
  // The default rounding mode of nearbyint is to nearest, ties to even.
  return std::bit_cast<std::uint32_t>(static_cast<float>(std::ldexp(
             std::nearbyint(steps), step_exponent))) == std::bit_cast<std::uint32_t>(rounded);
}

}  // namespace

TEST_CASE("one real tensor has the same values in every container") {
  if (!test::have_shared("tensors/formats")) return;
  const Loaded reference = load("formats/w_f4_c.npy");
  REQUIRE(reference.shape == std::vector<std::int64_t>{64, 172});
  const struct {
    std::size_t row, col;
    std::uint32_t bits;
  } spots[] = {{0, 0, 0xbd44400e},
               {0, 171, 0x3d4da0c7},
               {1, 0, 0x3e1fae92},
               {31, 7, 0x3cd2a1ec},
               {63, 171, 0xbb65d38b}};
  for (const auto& spot : spots) {
    CHECK(std::bit_cast<std::uint32_t>(reference.values[spot.row * 172 + spot.col]) == spot.bits);
  }
  for (const char* name :
       {"formats/w_f32.safetensors", "formats/w_f64.safetensors", "formats/w_f8.npy",
        "formats/w_f4_fortran.npy", "formats/w_f4_bigendian.npy", "formats/w_f4_v2header.npy"}) {
    CAPTURE(std::string(name));
    const Loaded other = load(name);
    CHECK(other.shape == reference.shape);
    CHECK(different_bits(other.values, reference.values) == 0);
  }
  const Loaded f16 = load("formats/w_f16.safetensors"), bf16 = load("formats/w_bf16.safetensors");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < reference.values.size(); ++i) {
    wrong += !is_rounded_to(reference.values[i], f16.values[i], 10, -14);
    wrong += !is_rounded_to(reference.values[i], bf16.values[i], 7, -126);
  }
  CHECK(wrong == 0);
  CHECK(different_bits(f16.values, reference.values) > 10000);  // the rounding did something
  CHECK(different_bits(load("formats/w_f2.npy").values, f16.values) == 0);
  CHECK(different_bits(load("formats/w_bf16_V2.npy", "bf16").values, bf16.values) == 0);
}

TEST_CASE("npy files written by other projects give the values that numpy reads") {
  if (!test::have_shared("tensors/formats")) return;
  const Loaded half = load("formats/npyjs_65x65-float16.npy");
  REQUIRE(half.shape == std::vector<std::int64_t>{65, 65});
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over the binary32 words
  double sum = 0;
  for (const float value : half.values) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3u;
    sum += static_cast<double>(value);
  }
  CHECK(hash == 0xe8d7cd55feceb5dfu);
  CHECK(sum == 534198.0);
  CHECK(half.values[0] == 61.0f);
  CHECK(half.values[65] == 158.0f);  // row 1, column 0

  const auto source = open_source(shared_file("formats/xt_double_fortran.le.npy"));
  const TensorInfo& cube = source->tensors()[0];
  REQUIRE(cube.shape == std::vector<std::int64_t>{3, 3, 3});
  std::vector<double> got(27);
  source->read_f64(cube, 0, 9, 0, 3, got.data());
  const std::vector<double> want = {
      0x1.3073ed3ab7bb2p-2, 0x1.66d28b8e251a0p-5, 0x1.e51c80ae64530p-1, 0x1.b34e41ce57e99p-1,
      0x1.0f25eb5d01579p-1, 0x1.ea05c3de733d0p-5, 0x1.8b89645057d15p-1, 0x1.e70ec6f95267ep-2,
      0x1.67cd8b17641cdp-1, 0x1.b84fe269a9962p-1, 0x1.3923d780ecbc6p-1, 0x1.c6fe487eab1f0p-2,
      0x1.0530743a62792p-2, 0x1.f2cb9f4edd486p-1, 0x1.3c892005ac200p-3, 0x1.e12b8fcb5b700p-5,
      0x1.52e6de5ec858dp-1, 0x1.dac155c330c40p-7, 0x1.684837d787aa4p-3, 0x1.1ba7ccaf2451cp-3,
      0x1.e19592405b6bep-1, 0x1.994d53c72cfc1p-1, 0x1.065ef47d7f4adp-1, 0x1.06fcdd765ad04p-1,
      0x1.0764a00394d84p-2, 0x1.aa13203f57976p-2, 0x1.0037c631948a8p-4};
  CHECK(got == want);
}

TEST_CASE("every safetensors file of the shared folder is read with the right values") {
  if (!test::have_shared("tensors/formats")) return;
  // Checksum: tensors in header order, c = c * 0x100000001b3 + sum over elements of
  // word * (2 index + 1), words being the binary32 bits.
  const struct {
    const char* name;
    std::size_t tensors, metadata;
    std::int64_t elements;
    std::uint64_t checksum;
    const char *first, *last;
  } files[] = {
      {"formats/lora_disney.safetensors", 386, 196, 386880, 0x590e5cebe5a6c371u, "<s1>",
       "unet:9:up"},
      {"formats/w_bf16.safetensors", 1, 2, 11008, 0x0389d02662f50000u, "w", "w"},
      {"formats/w_f16.safetensors", 1, 2, 11008, 0x0389d028a761c000u, "w", "w"},
      {"formats/w_f32.safetensors", 1, 2, 11008, 0x0389d029d9c06ab6u, "w", "w"},
      {"formats/w_f64.safetensors", 1, 2, 11008, 0x0389d029d9c06ab6u, "w", "w"},
      {"formats/w_mixed_gguf_expected.safetensors", 3, 2, 33024, 0xd832f32f77ff5a80u, "w.q4_0",
       "w.q8_0"},
      {"llm_channel_amax_profiles.safetensors", 11, 2, 54784, 0x3b25982c502f0000u,
       "falcon-7b.transformer.h.0.self_attention.query_key_value.act_amax",
       "opt-1.3b.model.decoder.layers.12.fc2.act_amax"},
      {"redistributable/use_lite_slice.safetensors", 4, 4, 262144, 0xa1422c07a72a5bfdu,
       "layers.1.attn_out.X", "layers.1.attn_out.W.f32"},
      {"rxnmapper_albert_xw.safetensors", 12, 4, 1179648, 0xd7c070175dea7badu, "W.attn_qkv",
       "layers.11.mlp_down.X"},
      {"silero_vad_16k.safetensors", 15, 0, 309633, 0x6c2d7dd1648a9c03u, "stft_conv.weight",
       "final_conv.bias"},
      {"stories260k_xw.safetensors", 42, 4, 741632, 0x11e3c3a0a85b35d8u, "layers.0.attn_qkv.W",
       "lm_head.X"},
      {"tiny_rwkv5v2_730k_f16.safetensors", 270, 2, 731904, 0x02760f869a6ba938u, "emb.weight",
       "head.weight"},
      {"use_lite_l1_attn_out_f32.safetensors", 2, 1, 294912, 0x6597e6ba1a8aa02fu, "X", "W"},
      {"use_lite_xw_bf16.safetensors", 8, 5, 2752512, 0x2f5691d591a30000u, "layers.0.attn_qkv.X",
       "layers.1.mlp_down.W"},
  };
  for (const auto& file : files) {
    CAPTURE(std::string(file.name));
    const auto source = open_source(shared_file(file.name));
    REQUIRE(source->tensors().size() == file.tensors);
    CHECK(source->metadata().size() == file.metadata);
    CHECK(source->tensors().front().name == file.first);
    CHECK(source->tensors().back().name == file.last);
    std::int64_t elements = 0;
    std::uint64_t checksum = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      std::vector<float> values(static_cast<std::size_t>(tensor.elements));
      if (tensor.dtype == DType::kF64) {
        std::vector<double> wide(values.size());
        source->read_f64(tensor, 0, tensor.rows(), 0, tensor.cols(), wide.data());
        for (std::size_t i = 0; i < wide.size(); ++i) values[i] = static_cast<float>(wide[i]);
      } else {
        source->read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
      }
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum += std::bit_cast<std::uint32_t>(values[i]) * (2 * std::uint64_t{i} + 1);
      }
      checksum = checksum * 0x100000001b3u + sum;
      elements += tensor.elements;
    }
    CHECK(elements == file.elements);
    CHECK(checksum == file.checksum);
  }
}
