// rcp_table_test.cc: the table behind rcp~ (spec/scalars.md section 9): counts and hash over all
// fractions, formats/reciprocal.h in lane widths 1, 8 and 16 and the oracle against the closed form
// of the spec and the recorded samples, and table files.
#include "sim/rcp_table.h"

#include <doctest/doctest.h>
#include <lzma.h>

#include <array>
#include <vector>

#include "formats/reciprocal.h"
#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"
#include "tests/support/container_bytes.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr std::uint32_t kFractions = 1u << 23;

// d of the spec: -1, 0 or +1 (-2 is no value of it).
int difference(const std::vector<std::uint8_t>& table, std::uint32_t fraction) {
  const int two_bits = table[fraction / 4] >> (2 * (fraction % 4)) & 3;
  return two_bits >= 2 ? two_bits - 4 : two_bits;
}
// "bits(fl(1 / float(0x3f800000|m))) + d[m] - ((e-127)<<23); r < 0x00800000 -> 0; sign copied",
// with the special operands of the section; NaN as 0x7fc00000.
std::uint32_t closed_form(const std::vector<std::uint8_t>& table, std::uint32_t bits) {
  const std::uint32_t sign = bits & 0x80000000u, m = bits & 0x7fffffu;
  const int e = static_cast<int>(bits >> 23 & 255u);
  if (e == 255) return m != 0 ? 0x7fc00000u : sign;
  if (e == 0) return sign | 0x7f800000u;
  const float quotient = 1.0f / bit_cast<float>(0x3f800000u | m);
  const std::int64_t r = static_cast<std::int64_t>(bit_cast<std::uint32_t>(quotient)) +
                         difference(table, m) - static_cast<std::int64_t>(e - 127) * (1 << 23);
  return sign | (r < 0x00800000 ? 0u : static_cast<std::uint32_t>(r));
}

std::uint32_t without_payload(std::uint32_t bits) {
  return is_nan_bits(bits) ? kQuietNanBits : bits;
}
template <int W>
std::array<std::uint32_t, W> lanes(const std::array<std::uint32_t, W>& in,
                                   const std::uint8_t* table) {
  using L = Lane<W>;
  typename L::U bits{};
  for (int l = 0; l < W; ++l) bits[l] = in[static_cast<std::size_t>(l)];
  const typename L::F result = rcp_approx<L>(bit_cast<typename L::F>(bits), table);
  bits = bit_cast<typename L::U>(result);
  std::array<std::uint32_t, W> out{};
  for (int l = 0; l < W; ++l) out[static_cast<std::size_t>(l)] = without_payload(bits[l]);
  return out;
}
std::uint32_t scalar(std::uint32_t bits, const std::uint8_t* table) {
  return without_payload(
      bit_cast<std::uint32_t>(rcp_approx<Lane<1>>(bit_cast<float>(bits), table)));
}
std::uint32_t exact(std::uint32_t bits, const std::uint8_t* table) {
  const float result = oracle::rcp_approx(bit_cast<float>(bits), table);
  return without_payload(bit_cast<std::uint32_t>(result));
}

// Operand patterns around every edge of the rule, with both signs.
std::vector<std::uint32_t> edges() {
  std::vector<std::uint32_t> list;
  for (const std::uint32_t exponent :
       {0u, 1u, 2u, 64u, 126u, 127u, 128u, 200u, 252u, 253u, 254u, 255u}) {
    for (const std::uint32_t m :
         {0u, 1u, 2u, 3u, 0x2aaaaau, 0x400000u, 0x5a827au, 0x7ffffeu, 0x7fffffu}) {
      list.push_back(exponent << 23 | m);
      list.push_back(0x80000000u | exponent << 23 | m);
    }
  }
  return list;
}

std::string packed_xz(const std::vector<std::uint8_t>& bytes) {
  std::string out(lzma_stream_buffer_bound(bytes.size()), '\0');
  std::size_t size = 0;
  const lzma_ret result =
      lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, nullptr, bytes.data(), bytes.size(),
                              reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size());
  REQUIRE(result == LZMA_OK);
  out.resize(size);
  return out;
}
std::string as_text(const std::vector<std::uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

TEST_CASE("counts and hash of the built-in table are those of the measurement") {
  const RcpTable& table = rcp_table_h200();
  REQUIRE(table.bytes.size() == 2097152);
  CHECK(table.name == "h200");
  std::int64_t minus = 0, zero = 0, plus = 0, other = 0;
  std::uint64_t hash = 1469598103934665603u;
  for (std::uint32_t m = 0; m < kFractions; ++m) {
    const int d = difference(table.bytes, m);
    (d == -1 ? minus : d == 0 ? zero : d == 1 ? plus : other) += 1;
    hash = (hash ^ closed_form(table.bytes, 0x3f800000u | m)) * 1099511628211u;
  }
  CHECK(minus == 374723);
  CHECK(zero == 7280086);
  CHECK(plus == 733799);
  CHECK(other == 0);
  CHECK(hash == 0x3e91d9060e14dc36u);
  // The recorded file says the same.
  const auto recorded = load_golden("scalars/rcp_approx_samples.json").at("table");
  CHECK(recorded.at("counts").at("-1") == minus);
  CHECK(recorded.at("counts").at("0") == zero);
  CHECK(recorded.at("counts").at("+1") == plus);
}

TEST_CASE("recorded samples: closed form, lane widths 1, 8 and 16, and the oracle") {
  const std::vector<std::uint8_t>& table = rcp_table_h200().bytes;
  const auto rows = load_golden("scalars/rcp_approx_samples.json").at("rows");
  REQUIRE(rows.size() == 303);
  std::vector<std::uint32_t> in, expected;
  for (const auto& row : rows) {
    in.push_back(hex_bits(row.at(0)));
    expected.push_back(hex_bits(row.at(1)));
  }
  int differ[5] = {};
  for (std::size_t i = 0; i < in.size(); ++i) {
    differ[0] += closed_form(table, in[i]) != expected[i];
    differ[1] += scalar(in[i], table.data()) != expected[i];
    differ[2] += exact(in[i], table.data()) != expected[i];
    // The row in every lane, its neighbours in the others.
    std::array<std::uint32_t, 8> in8;
    std::array<std::uint32_t, 16> in16;
    for (std::size_t l = 0; l < 16; ++l) in16[l] = in[(i + l) % in.size()];
    for (std::size_t l = 0; l < 8; ++l) in8[l] = in16[l];
    const auto out8 = lanes<8>(in8, table.data());
    const auto out16 = lanes<16>(in16, table.data());
    for (std::size_t l = 0; l < 16; ++l) {
      const std::uint32_t e = expected[(i + l) % in.size()];
      if (l < 8) differ[3] += out8[l] != e;
      differ[4] += out16[l] != e;
    }
  }
  for (const int count : differ) CHECK(count == 0);
}

TEST_CASE("all fractions and every edge of the rule equal the closed form") {
  const std::vector<std::uint8_t>& table = rcp_table_h200().bytes;
  std::int64_t differ1 = 0, differ16 = 0;
  std::array<std::uint32_t, 16> in;
  for (std::uint32_t m = 0; m < kFractions; m += 16) {
    // Exponents vary with the fraction; all of them are normal numbers.
    const std::uint32_t exponent = 1 + m / 16 * 7 % 254;
    for (std::uint32_t l = 0; l < 16; ++l) in[l] = exponent << 23 | (m + l);
    const auto out = lanes<16>(in, table.data());
    for (std::uint32_t l = 0; l < 16; ++l) {
      const std::uint32_t expected = closed_form(table, in[l]);
      differ1 += scalar(in[l], table.data()) != expected;
      differ16 += out[l] != expected;
    }
  }
  CHECK(differ1 == 0);
  CHECK(differ16 == 0);
  const std::vector<std::uint8_t> none(kRcpTableBytes, 0);
  for (const std::uint32_t bits : edges()) {
    CAPTURE(bits);
    const std::uint32_t expected = closed_form(table, bits), rounded = closed_form(none, bits);
    CHECK(scalar(bits, table.data()) == expected);
    CHECK(exact(bits, table.data()) == expected);
    CHECK(scalar(bits, nullptr) == rounded);
    CHECK(exact(bits, nullptr) == rounded);
    std::array<std::uint32_t, 8> same;
    same.fill(bits);
    for (const std::uint32_t out : lanes<8>(same, table.data())) CHECK(out == expected);
    for (const std::uint32_t out : lanes<8>(same, nullptr)) CHECK(out == rounded);
  }
}

TEST_CASE("the constants of the contracts are correctly rounded on that device") {
  // spec/scalars.md 9; FlashInfer and others use rcp~(6), rcp~(448), rcp~(1536), rcp~(2688).
  const std::pair<float, std::uint32_t> constants[] = {{6.0f, 0x3e2aaaabu},
                                                       {448.0f, 0x3b124925u},
                                                       {1536.0f, 0x3a2aaaabu},
                                                       {2688.0f, 0x39c30c31u},
                                                       {3.0f, 0x3eaaaaabu}};
  for (const auto& [v, bits] : constants) {
    CAPTURE(v);
    CHECK(bit_cast<std::uint32_t>(rcp_approx<Lane<1>>(v, rcp_table_h200().bytes.data())) == bits);
    CHECK(bit_cast<std::uint32_t>(1.0f / v) == bits);
  }
}

TEST_CASE("a table file is read plain and as xz, and everything else is refused") {
  TempDir dir;
  const std::vector<std::uint8_t>& bytes = rcp_table_h200().bytes;
  const std::string plain = as_text(bytes), xz = packed_xz(bytes);
  write_file(dir.file("plain"), plain);
  write_file(dir.file("t.xz"), xz);
  const auto first = load_rcp_table(dir.file("plain")), second = load_rcp_table(dir.file("t.xz"));
  CHECK(first->bytes == bytes);
  CHECK(second->bytes == bytes);
  CHECK(load_rcp_table((data_dir() / "rcp" / "rcp_approx_h200.xz").string())->bytes == bytes);
  // The name has the file and a hash of the table, not of the file.
  const auto hash = [](const std::string& name) { return name.substr(name.rfind(" (XXH3-64 ")); };
  CHECK(first->name.starts_with(dir.file("plain") + " (XXH3-64 "));
  CHECK(hash(first->name) == hash(second->name));
  std::vector<std::uint8_t> changed = bytes;
  changed[7] ^= 1;
  write_file(dir.file("changed"), as_text(changed));
  CHECK(hash(load_rcp_table(dir.file("changed"))->name) != hash(first->name));

  std::string damaged = xz;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x40);
  const std::vector<std::uint8_t> shorter(bytes.begin(), bytes.end() - 1);
  std::vector<std::uint8_t> longer = bytes;
  longer.push_back(0);
  struct BadFile {
    std::string name, content, part;
  };
  const BadFile bad[] = {
      {"empty", "", "found 0 bytes"},
      {"short", plain.substr(1), "found 2097151 bytes"},
      {"long", plain + '\0', "found more than 2097152 bytes"},
      {"longer", plain + plain, "found more than 2097152 bytes"},
      {"short.xz", packed_xz(shorter), "found an xz stream of another length"},
      {"long.xz", packed_xz(longer), "found an xz stream of another length"},
      {"cut.xz", xz.substr(0, xz.size() / 2), "found an xz stream of another length"},
      {"damaged.xz", damaged, "found an xz stream of another length"},
      {"trailing.xz", xz + "more", "found an xz stream of another length"},
      {"magic.xz", xz.substr(0, 6), "found 6 bytes"},
  };
  for (const BadFile& b : bad) {
    const std::string path = dir.file(b.name);
    write_file(path, b.content);
    CAPTURE(path);
    try {
      (void)load_rcp_table(path);
      FAIL("accepted ", path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kData);
      const std::string message = error.what();
      CAPTURE(message);
      CHECK(message.starts_with(path + ": expected a reciprocal table of 2097152 bytes"));
      CHECK(message.ends_with(b.part));
    }
  }
  for (const std::string& path : {dir.file("missing"), dir.path().string()}) {
    CAPTURE(path);
    try {
      (void)load_rcp_table(path);
      FAIL("accepted ", path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kData);
      CHECK(std::string(error.what()).starts_with("cannot read the reciprocal table " + path));
    }
  }
}

TEST_CASE("a recipe names its table, and rcp=user without one is refused") {
  const auto bytes_of = [](const Recipe& r) { return rcp_bytes(r, rcp_of(r).value()); };
  Recipe user = parse_recipe("nvfp4:contract=vllm,rcp=user");
  CHECK(bytes_of(parse_recipe("nvfp4:contract=vllm")) == rcp_table_h200().bytes.data());
  CHECK(bytes_of(parse_recipe("nvfp4:contract=vllm,rcp=rn")) == nullptr);
  CHECK_THROWS_WITH_AS(bytes_of(user), doctest::Contains("rcp=user needs a table"), Error);
  auto table = std::make_shared<RcpTable>();
  table->bytes.assign(kRcpTableBytes, 0);
  table->name = "mine";
  user.user_rcp = table;
  CHECK(bytes_of(user) == table->bytes.data());
  CHECK(rcp_table_note(user).find("mine") != std::string::npos);
  CHECK(rcp_table_note(parse_recipe("nvfp4:contract=vllm")).find("h200") != std::string::npos);
  CHECK(rcp_table_note(parse_recipe("nvfp4:contract=vllm,rcp=rn")).find("correctly rounded") !=
        std::string::npos);
  CHECK(rcp_table_note(parse_recipe("nvfp4")) == "");
  CHECK(!rcp_of(parse_recipe("nvfp4")).has_value());
  CHECK(!rcp_of(parse_recipe("mxfp4")).has_value());
  CHECK(rcp_of(parse_recipe("mxfp4:contract=flashinfer-cute")) == Rcp::kH200);
  CHECK(rcp_of(parse_recipe("fp8:contract=triton-group")) == Rcp::kH200);
  CHECK(!rcp_of(parse_recipe("fp8:contract=triton-group,div=ieee")).has_value());
}
