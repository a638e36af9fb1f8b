// rcp_table.h: the table behind rcp~ = rcp.approx.ftz.f32 (spec/scalars.md section 9).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

// 2-bit two's complement difference to the rounded reciprocal for each of the 2^23 fractions:
// fraction i at bits 2*(i & 3) of byte i / 4.
inline constexpr std::size_t kRcpTableBytes = 2097152;
struct RcpTable {
  std::vector<std::uint8_t> bytes;  // kRcpTableBytes
  std::string name;                 // for reports: "h200", or the file with its hash
  std::string hash;                 // XXH3-64 in hex, of a file's table
};

// Measured on an H200 (sm_90); unpacked on first use. Whether Blackwell has the same is open.
const RcpTable& rcp_table_h200();
// A table file of the same layout, plain or xz. Throws Error(kData) when it is none.
std::shared_ptr<const RcpTable> load_rcp_table(const std::string& path);
// The bytes that a recipe computes rcp~ with; null for rcp=rn. Throws Error(kUsage) for rcp=user
// without a table.
const std::uint8_t* rcp_bytes(const Recipe& recipe, Rcp rcp);
// A sentence for reports that names the table; empty for recipes without an rcp~.
std::string rcp_table_note(const Recipe& recipe);

}  // namespace fp4scope
