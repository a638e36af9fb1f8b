// rcp_table.cc: see rcp_table.h. The measured table is embedded as the .xz file that
// data/rcp holds.
#include "sim/rcp_table.h"

#include <fmt/format.h>
#include <lzma.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "sim/error.h"

extern "C" {
extern const unsigned char fp4scope_rcp_h200_xz[];
extern const unsigned char fp4scope_rcp_h200_xz_end[];
}

namespace fp4scope {
namespace {

// Empty when it is not an .xz stream of exactly one table.
std::vector<std::uint8_t> unpacked(std::span<const std::uint8_t> xz) {
  std::vector<std::uint8_t> bytes(kRcpTableBytes);
  std::uint64_t memory = std::uint64_t{256} << 20;  // xz -9 needs 65 MiB
  std::size_t in = 0, out = 0;
  const lzma_ret result = lzma_stream_buffer_decode(&memory, 0, nullptr, xz.data(), &in, xz.size(),
                                                    bytes.data(), &out, bytes.size());
  if (result != LZMA_OK || out != bytes.size() || in != xz.size()) bytes.clear();
  return bytes;
}

}  // namespace

const RcpTable& rcp_table_h200() {
  static const RcpTable table{
      unpacked({fp4scope_rcp_h200_xz,
                static_cast<std::size_t>(fp4scope_rcp_h200_xz_end - fp4scope_rcp_h200_xz)}),
      "h200", ""};
  // An empty table would silently be the correctly rounded reciprocal.
  if (table.bytes.empty())
    throw Error(ErrorKind::kUnsupported, "the built-in reciprocal table cannot be unpacked");
  return table;
}

std::shared_ptr<const RcpTable> load_rcp_table(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // One byte more than a table, so that a longer file is seen without reading all of it.
  std::vector<std::uint8_t> bytes(kRcpTableBytes + 1);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file && !file.eof()) {
    throw Error(ErrorKind::kData,
                fmt::format("cannot read the reciprocal table {}: {}", path, std::strerror(errno)));
  }
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  const std::uint8_t magic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
  const bool is_xz =
      bytes.size() > sizeof magic && std::memcmp(bytes.data(), magic, sizeof magic) == 0;
  const std::size_t found = bytes.size();
  if (is_xz) bytes = unpacked(bytes);
  if (bytes.size() != kRcpTableBytes) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: expected a reciprocal table of {} bytes, plain or xz, found {}", path,
                    kRcpTableBytes,
                    is_xz ? "an xz stream of another length"
                          : fmt::format("{}{} bytes", found > kRcpTableBytes ? "more than " : "",
                                        std::min(found, kRcpTableBytes))));
  }
  RcpTable table{std::move(bytes), "", ""};
  table.hash = fmt::format("{:016x}", XXH3_64bits(table.bytes.data(), table.bytes.size()));
  table.name = fmt::format("{} (XXH3-64 {})", path, table.hash);
  return std::make_shared<const RcpTable>(std::move(table));
}

const std::uint8_t* rcp_bytes(const Recipe& recipe, Rcp rcp) {
  switch (rcp) {
    case Rcp::kH200:
      return rcp_table_h200().bytes.data();
    case Rcp::kRn:
      return nullptr;
    case Rcp::kUser:
      if (recipe.user_rcp == nullptr) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("recipe \"{}\": rcp=user needs a table (--rcp-table FILE)",
                                to_string(recipe)));
      }
      return recipe.user_rcp->bytes.data();
  }
  return nullptr;
}

std::string rcp_table_note(const Recipe& recipe) {
  const std::optional<Rcp> rcp = rcp_of(recipe);
  if (!rcp) return "";
  switch (*rcp) {
    case Rcp::kH200:
      return "rcp~ (rcp.approx.ftz.f32) from the table h200, measured on an H200 (sm_90)";
    case Rcp::kRn:
      return "rcp~ correctly rounded (rcp=rn), not as a device computes it";
    case Rcp::kUser:
      return "rcp~ from the table " + (recipe.user_rcp ? recipe.user_rcp->name : "of --rcp-table");
  }
  return "";
}

}  // namespace fp4scope
