// layouts_test.cc: sim/layouts against data/golden/layouts, more/sparse.json and the packings of
// more/int4.json. Whole swizzled buffers are recorded as SHA-256, which sha256sum computes here.
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "sim/error.h"
#include "sim/layouts/hif4_carrier.h"
#include "sim/layouts/int_packing.h"
#include "sim/layouts/meta_layout.h"
#include "sim/layouts/nibbles.h"
#include "sim/layouts/scale_layout.h"
#include "sim/layouts/sparse_meta.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using nlohmann::json;
using test::Diff;
using test::load_golden;
using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint32_t>;

// One byte per `digits` hex digits.
Bytes hex_bytes(const std::string& text, std::size_t digits = 2) {
  Bytes out;
  for (const std::uint32_t word : test::hex_words(text, digits)) {
    out.push_back(static_cast<std::uint8_t>(word));
  }
  return out;
}
Words hex_word_list(const json& list) {
  Words out;
  for (const json& text : list) out.push_back(test::hex_bits(text.get<std::string>()));
  return out;
}
std::size_t size_of(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

template <class Got, class Want>
void compare_all(Diff& diff, const Got& got, const Want& want, const std::string& where) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    diff.compare(got[i], want[i], where + " [" + std::to_string(i) + "]");
  }
}

TEST_CASE("nibble orders") {
  const json recorded = load_golden("layouts/nibbles_and_ragged.json").at("nibbles");
  const Bytes codes = hex_bytes(recorded.at("codes"), 1);
  const auto cols = static_cast<std::int64_t>(codes.size());
  const std::pair<const char*, Nibbles> orders[] = {{"low-first", Nibbles::kLowFirst},
                                                    {"high-first", Nibbles::kHighFirst},
                                                    {"split8", Nibbles::kSplit8},
                                                    {"split16", Nibbles::kSplit16}};
  CHECK(recorded.size() == 1 + std::size(orders));
  Diff diff("nibbles: packed bytes and codes");
  for (const auto& [name, order] : orders) {
    const Bytes want = hex_bytes(recorded.at(std::string("nibbles=") + name));
    Bytes packed(size_of(packed_row_bytes(order, cols))), back(codes.size());
    pack_nibbles(order, 1, cols, codes, packed);
    compare_all(diff, packed, want, name);
    unpack_nibbles(order, 1, cols, want, back);
    compare_all(diff, back, codes, name);
  }
  CHECK(diff.compared() == 4 * (32 + 64));
  diff.check();
}

// scale(r, c) of the recorded whole buffers.
Bytes recorded_scales(std::int64_t rows, std::int64_t cols) {
  Bytes scales;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      scales.push_back(static_cast<std::uint8_t>((7 * r + c) % 251 + 1));
    }
  }
  return scales;
}

TEST_CASE("offsets of swizzled scales") {
  const json recorded = load_golden("layouts/scale_swizzle.json");
  Diff offsets("swizzled scales: offsets and buffer sizes");
  Diff buffers("swizzled scales: bytes at the recorded offsets");
  for (const json& c : recorded.at("cases")) {
    const std::int64_t rows = c.at("rows"), cols = c.at("cols");
    const Bytes scales = recorded_scales(rows, cols);
    for (const auto& [key, order] :
         {std::pair{"at_128x4", ScaleOrder::k128x4}, std::pair{"at_8x4", ScaleOrder::k8x4}}) {
      if (!c.contains(key)) continue;
      const std::string where =
          std::string(key) + " " + std::to_string(rows) + "x" + std::to_string(cols);
      const std::int64_t bytes = scale_buffer_entries(order, rows, cols);
      if (order == ScaleOrder::k128x4) {
        offsets.compare(static_cast<std::uint32_t>(bytes), c.at("bytes_128x4"), where);
      }
      Bytes stored(size_of(bytes), 0xff);
      store_scales<std::uint8_t>(order, rows, cols, scales, stored);
      for (const json& at : c.at(key)) {
        const std::int64_t r = at[0], col = at[1], want = at[2];
        offsets.compare(static_cast<std::uint32_t>(scale_offset(order, rows, cols, r, col)),
                        static_cast<std::uint32_t>(want), where);
        buffers.compare(stored[size_of(want)], static_cast<std::uint32_t>((7 * r + col) % 251 + 1),
                        where);
      }
    }
  }
  offsets.check();
  buffers.check();
}

// Digests of files by the tool of the system, in the order of the names.
std::vector<std::string> sha256_of(const std::vector<std::string>& paths) {
  std::string command = "sha256sum";
  for (const std::string& path : paths) command += " '" + path + "'";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::vector<std::string> digests;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    const std::string text = line.data();
    digests.push_back(text.substr(0, text.find(' ')));
  }
  REQUIRE(::pclose(pipe) == 0);
  REQUIRE(digests.size() == paths.size());
  return digests;
}

TEST_CASE("whole swizzled buffers, padding included") {
  const json recorded = load_golden("layouts/scale_swizzle.json").at("whole_buffers");
  REQUIRE(recorded.at("scale(r,c)") == "(7r+c) mod 251 + 1");
  const test::TempDir folder;
  std::vector<std::string> paths, want;
  Diff restored("whole swizzled buffers: scales read back");
  for (const json& c : recorded.at("cases")) {
    const std::int64_t rows = c.at("rows"), cols = c.at("cols");
    const Bytes scales = recorded_scales(rows, cols);
    Bytes stored(size_of(scale_buffer_entries(ScaleOrder::k128x4, rows, cols)), 0xff);
    CHECK(stored.size() == c.at("bytes").get<std::size_t>());
    store_scales<std::uint8_t>(ScaleOrder::k128x4, rows, cols, scales, stored);
    paths.push_back(folder.file(std::to_string(paths.size())));
    std::ofstream(paths.back(), std::ios::binary)
        .write(reinterpret_cast<const char*>(stored.data()),
               static_cast<std::streamsize>(stored.size()));
    want.push_back(c.at("sha256"));
    Bytes back(scales.size());
    load_scales<std::uint8_t>(ScaleOrder::k128x4, rows, cols, stored, back);
    compare_all(restored, back, scales, std::to_string(rows) + "x" + std::to_string(cols));
  }
  REQUIRE(!want.empty());
  CHECK(sha256_of(paths) == want);
  std::printf("whole swizzled buffers: %zu digests compared\n", want.size());
  restored.check();
}

// Metadata and codes of a recorded HiF4 group in fp4scope's own layout.
struct Group {
  Bytes scales;  // E, e8, e16 low, e16 high, index 0 in bit 0
  Bytes codes;
};
Group recorded_group(const json& groups, const std::string& name, const std::string& contract) {
  for (const json& g : groups.at("groups")) {
    if (g.at("name") != name) continue;
    const json& out = g.at("out").at("hif4:contract=" + contract);
    const auto level_byte = [](const std::string& bits, std::size_t first) {
      unsigned byte = 0;
      for (std::size_t i = 0; i < 8; ++i) byte |= (bits[first + i] == '1' ? 1u : 0u) << i;
      return static_cast<std::uint8_t>(byte);
    };
    const std::string e16 = out.at("e16");
    return {{hex_bytes(out.at("e6m2"))[0], level_byte(out.at("e8"), 0), level_byte(e16, 0),
             level_byte(e16, 8)},
            hex_bytes(out.at("nibbles"), 1)};
  }
  FAIL("no group ", name);
  return {};
}

TEST_CASE("HiF4 carriers of the recorded groups") {
  const json groups = load_golden("hif4/groups.json");
  const json recorded = load_golden("layouts/hif4_carriers.json");
  Diff diff("HiF4 carriers: bytes, both ways");
  for (const json& c : recorded.at("cases")) {
    const std::string name = c.at("group");
    const Group group = recorded_group(groups, name, c.at("contract"));
    const auto check = [&](Carrier carrier, LevelBits bits, const Bytes& want) {
      Bytes stored(4), back(4);
      store_hif4_scales(carrier, bits, 1, 1, group.scales, stored);
      compare_all(diff, stored, want, name);
      load_hif4_scales(carrier, bits, 1, 1, want, back);
      compare_all(diff, back, group.scales, name);
    };
    check(Carrier::kU32, LevelBits::kLsb, hex_bytes(c.at("pto_bytes")));
    check(Carrier::kBytes, LevelBits::kLsb, hex_bytes(c.at("pto_bytes")));
    check(Carrier::kBytes, LevelBits::kMsb, hex_bytes(c.at("amct_bytes")));
    const std::uint32_t word = test::hex_bits(c.at("f32_carrier_bits"));
    check(Carrier::kF32, LevelBits::kLsb,
          {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
           static_cast<std::uint8_t>(word >> 16), static_cast<std::uint8_t>(word >> 24)});
    for (const auto& [key, order] : {std::pair{"nibbles_low_first", Nibbles::kLowFirst},
                                     std::pair{"nibbles_high_first", Nibbles::kHighFirst}}) {
      Bytes packed(32), back(64);
      pack_nibbles(order, 1, 64, group.codes, packed);
      compare_all(diff, packed, hex_bytes(c.at(key)), name);
      unpack_nibbles(order, 1, 64, hex_bytes(c.at(key)), back);
      compare_all(diff, back, group.codes, name);
    }
  }
  const json& cell = recorded.at("a6_cell");
  Bytes scales;
  for (const json& row : cell.at("rows")) {
    const Group group = recorded_group(groups, row, cell.at("contract"));
    scales.insert(scales.end(), group.scales.begin(), group.scales.end());
  }
  const Bytes want = hex_bytes(cell.at("bytes"));
  Bytes stored(64), back(64);
  store_hif4_scales(Carrier::kA6, LevelBits::kLsb, 16, 1, scales, stored);
  compare_all(diff, stored, want, "a6 cell");
  load_hif4_scales(Carrier::kA6, LevelBits::kLsb, 16, 1, want, back);
  compare_all(diff, back, scales, "a6 cell");
  diff.check();
}

TEST_CASE("INT4 words: ct of every recorded case, and twos from them") {
  const json recorded = load_golden("more/int4.json");
  const std::int64_t rows = recorded.at("shape")[0], cols = recorded.at("shape")[1];
  Diff ct("INT4 ct words and their codes"), twos("INT4 twos bytes");
  for (const json& c : recorded.at("cases")) {
    const std::string where = c.at("recipe");
    Bytes codes, want_twos;
    for (const json& q : c.at("q")) codes.push_back(offset_code(q.get<int>(), 4));
    const Words want = hex_word_list(c.at("packed_ct"));
    Words words(size_of(rows * dense_words(4, cols)));
    pack_dense(4, rows, cols, codes, words);
    compare_all(ct, words, want, where);
    Bytes back(codes.size());
    unpack_dense(4, rows, cols, want, back);
    compare_all(ct, back, codes, where);
    // The definition of twos, without the words: byte j holds elements 2j and 2j+1 as q & 15.
    for (std::size_t i = 0; i < codes.size(); i += 2) {
      const int low = c.at("q")[i].get<int>() & 15, high = c.at("q")[i + 1].get<int>() & 15;
      want_twos.push_back(static_cast<std::uint8_t>(low | high << 4));
    }
    Bytes bytes(want_twos.size());
    ct_words_to_twos(want, bytes);
    compare_all(twos, bytes, want_twos, where);
    Words again(want.size());
    twos_to_ct_words(want_twos, again);
    compare_all(twos, again, want, where);
  }
  ct.check();
  twos.check();
}

TEST_CASE("AWQ and GPTQ words and zero points") {
  const json p = load_golden("more/int4.json").at("packing");
  const Bytes u = p.at("u").get<Bytes>(), z = p.at("z").get<Bytes>();
  constexpr std::int64_t kK = 8, kN = 16;
  Diff diff("AWQ and GPTQ words and codes");
  const auto check_awq = [&](std::int64_t rows, const Bytes& codes, const char* key) {
    const Words want = hex_word_list(p.at(key));
    Words words(size_of(rows * kN / 8));
    pack_awq(rows, kN, codes, words);
    compare_all(diff, words, want, key);
    Bytes back(codes.size());
    unpack_awq(rows, kN, want, back);
    compare_all(diff, back, codes, key);
  };
  check_awq(kK, u, "awq");
  check_awq(1, z, "awq_zeros");
  const Words want = hex_word_list(p.at("gptq"));
  Words words(size_of(kN * dense_words(4, kK)));
  pack_dense_rows(4, kK, kN, u, words);
  compare_all(diff, words, want, "gptq");
  Bytes back(u.size());
  unpack_dense_rows(4, kK, kN, want, back);
  compare_all(diff, back, u, "gptq");
  for (const auto& [key, version] :
       {std::pair{"gptq_zeros_v1", GptqZeros::kV1}, std::pair{"gptq_zeros_v2", GptqZeros::kV2}}) {
    const Words want_zeros = hex_word_list(p.at(key));
    Words zeros(2);
    pack_gptq_zeros(version, 1, kN, z, zeros);
    compare_all(diff, zeros, want_zeros, key);
    Bytes zeros_back(z.size());
    unpack_gptq_zeros(version, 1, kN, want_zeros, zeros_back);
    compare_all(diff, zeros_back, z, key);
  }
  diff.check();
}

TEST_CASE("the six metadata nibbles and the fill tables") {
  const json recorded = load_golden("more/sparse.json");
  Diff diff("sparse chunks: nibbles and stored codes");
  std::set<unsigned> legal;
  for (const json& pair : recorded.at("pairs")) {
    const unsigned first = pair[0][0], second = pair[0][1], nibble = pair[1];
    legal.insert(nibble);
    for (const SparseFill fill : {SparseFill::kTorch, SparseFill::kCutlass}) {
      diff.compare(encode_chunk(fill, 1u << first | 1u << second).nibble, nibble, "pairs");
    }
    const auto units = decode_chunk({}, static_cast<std::uint8_t>(nibble));
    diff.compare(units[0], first, "pairs");
    diff.compare(units[1], second, "pairs");
  }
  CHECK(legal.size() == 6);
  for (unsigned nibble = 0; nibble < 256; ++nibble) {
    if (legal.count(nibble) != 0) continue;
    CHECK_THROWS_AS(decode_chunk({}, static_cast<std::uint8_t>(nibble)), Error);
  }
  CHECK(recorded.at("torch_truth").size() == 16);
  for (const json& row : recorded.at("torch_truth")) {
    unsigned kept = 0;
    for (unsigned i = 0; i < 4; ++i) kept |= row[0][i].get<unsigned>() << i;
    diff.compare(encode_chunk(SparseFill::kTorch, kept).nibble, row[1].get<std::uint32_t>(),
                 "torch " + row[0].dump());
  }
  for (const auto& [key, pattern] : {std::pair{"cutlass_2of4", SparsePattern::k2of4},
                                     std::pair{"cutlass_4of8_pairs", SparsePattern::k4of8Pairs}}) {
    for (const json& row : recorded.at(key)) {
      const Bytes codes = row[0].get<Bytes>(), want = row[1].get<Bytes>();
      Bytes mask(codes.size()), values(want.size()), nibble(1), back(codes.size());
      const auto cols = static_cast<std::int64_t>(codes.size());
      occupied_mask(pattern, 7, 1, cols, codes, mask);
      compress_sparse(pattern, SparseFill::kCutlass, 1, cols, codes, mask, values, nibble);
      compare_all(diff, values, want, key);
      diff.compare(nibble[0], row[2].get<std::uint32_t>(), key);
      // Reading back gives the chunk, less the -0 that the compressor drops.
      expand_sparse(pattern, {.empty = true}, 1, cols, want, nibble, back);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        diff.compare(back[i], mask[i] != 0 ? codes[i] : 0u, key);
      }
    }
  }
  diff.check();
}

TEST_CASE("metadata layouts of torch, cuSPARSELt and CUTLASS") {
  const json recorded = load_golden("more/sparse.json");
  Diff torch("torch metadata words, 64 rows of 32 quads, both ways");
  const json& reorder = recorded.at("torch_reorder");
  constexpr std::int64_t kRows = 64, kQuads = 32;
  Bytes nibbles;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t u = 0; u < kQuads; ++u) {
      nibbles.push_back(recorded.at("pairs")[(7 * r + 5 * u) % 6][1].get<std::uint8_t>());
    }
  }
  for (const auto& [key, layout] :
       {std::pair{"words", MetaLayout::kLinear}, std::pair{"reordered", MetaLayout::kTorch16}}) {
    Bytes want, back(nibbles.size());
    for (const json& word : reorder.at(key)) {
      const std::uint32_t bits = test::hex_bits(word);
      want.push_back(static_cast<std::uint8_t>(bits));
      want.push_back(static_cast<std::uint8_t>(bits >> 8));
    }
    Bytes stored(size_of(meta_bytes(layout, kRows, kQuads)));
    store_meta(layout, kRows, kQuads, nibbles, stored);
    compare_all(torch, stored, want, key);
    load_meta(layout, kRows, kQuads, want, back);
    compare_all(torch, back, nibbles, key);
  }
  torch.check();

  Diff places("metadata places: cslt-sm90, cutlass-sm100");
  for (const json& at : recorded.at("cslt_sm90").at("b16")) {
    places.compare(
        static_cast<std::uint32_t>(meta_nibble(MetaLayout::kCsltSm90b16, 256, 128, at[0], at[1])),
        at[2], "cslt 16-bit");
  }
  for (const json& at : recorded.at("cslt_sm90").at("b8")) {
    places.compare(
        static_cast<std::uint32_t>(meta_nibble(MetaLayout::kCsltSm90b8, 128, 128, at[0], at[1])),
        at[2], "cslt 8-bit");
  }
  for (const auto& [key, layout] :
       {std::pair{"e_offsets_f4", MetaLayout::kCutlassSm100F4},
        std::pair{"e_offsets_f8f6f4", MetaLayout::kCutlassSm100F8f6f4}}) {
    const std::int64_t chunk = cutlass_chunk(layout);
    for (const json& at : recorded.at(key)) {
      const std::int64_t r = at[0], k = at[1], want = at[2];
      places.compare(static_cast<std::uint32_t>(cutlass_offset(layout, 200, r, k)),
                     static_cast<std::uint32_t>(want), key);
      // spec/more.md 5.3: byte = off/16 (off/8), nibble (k/8)%2 ((k/4)%2).
      const std::int64_t n = meta_nibble(layout, 200, 64, r, k / chunk);
      places.compare(static_cast<std::uint32_t>(n / 2),
                     static_cast<std::uint32_t>(want / (2 * chunk)), key);
      places.compare(static_cast<std::uint32_t>(n % 2), static_cast<std::uint32_t>(k / chunk % 2),
                     key);
    }
  }
  places.check();
}

TEST_CASE("block scales of a trtllm-gen KV page") {
  const json recorded = load_golden("more/sparse.json").at("kv_vscale");
  Diff diff("trtllm-page offsets, S = 8");
  for (const json& at : recorded) {
    diff.compare(
        static_cast<std::uint32_t>(scale_offset(ScaleOrder::kTrtllmPage, 4, 8, at[0], at[1])),
        at[2], "kv_vscale");
  }
  CHECK(diff.compared() == 32);
  diff.check();
}

}  // namespace
}  // namespace fp4scope
