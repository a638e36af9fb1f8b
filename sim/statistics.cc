// statistics.cc: see statistics.h.
#include "sim/statistics.h"

namespace fp4scope {

void StatisticsSink::add(const StripFigures& strip) {
  statistics_.squared_error += folded(strip.squared_error, strip.count);
  statistics_.absolute_error += folded(strip.absolute_error, strip.count);
  statistics_.blocks += strip.count;
  for (std::size_t i = 0; i < static_cast<std::size_t>(strip.count); ++i) {
    statistics_.elements += strip.elements[i];
    statistics_.underflow += strip.underflow[i];
    statistics_.saturated += strip.saturated[i];
    statistics_.map4 += strip.is_map4[i];
    if (scale_bytes_ == 0) continue;
    ++statistics_.scales[strip.scales[i * static_cast<std::size_t>(scale_bytes_)]];
  }
}

void Statistics::add(const Statistics& later) {
  squared_error += later.squared_error;
  absolute_error += later.absolute_error;
  elements += later.elements;
  underflow += later.underflow;
  saturated += later.saturated;
  blocks += later.blocks;
  map4 += later.map4;
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] += later.scales[i];
}

}  // namespace fp4scope
