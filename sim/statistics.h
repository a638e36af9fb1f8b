// statistics.h: the few figures that a kernel is compared by, of a tile or a tensor: errors,
// underflow, saturation, use of scale codes.
#pragma once
#include <array>
#include <cstdint>

#include "sim/figures.h"

namespace fp4scope {

struct Statistics {
  // Strips of 64 blocks, each folded() (sim/figures.h), in order.
  double squared_error = 0, absolute_error = 0;
  std::int64_t elements = 0, underflow = 0, saturated = 0, blocks = 0, map4 = 0;
  std::array<std::int64_t, 256> scales{};  // by the first scale byte of each block
  void add(const Statistics& later);       // of the tile behind
  bool operator==(const Statistics&) const = default;
};

// From the figures of blocks.
class StatisticsSink final : public FigureSink {
 public:
  StatisticsSink(const Recipe& recipe, Statistics& statistics)
      : scale_bytes_(recipe.format.scale_bytes), statistics_(statistics) {}
  bool wants_values(std::int64_t) const override { return false; }
  void add(const StripFigures& strip) override;

 private:
  int scale_bytes_;
  Statistics& statistics_;
};

}  // namespace fp4scope
