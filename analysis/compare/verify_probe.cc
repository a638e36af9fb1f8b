// verify_probe.cc: other orders of the same bytes, for differences that are none of arithmetic.
#include <cstring>
#include <memory>
#include <type_traits>

#include "analysis/compare/verify_run.h"
#include "sim/error.h"

namespace fp4scope::verifying {
namespace {

// The first order, other than the one in use, under which everything is as expected.
template <class Order, class Make, class Same>
std::string probe(const Run& run, const std::vector<Order>& orders, Order used, const Make& make,
                  const Same& same) {
  using Reader = typename std::invoke_result_t<Make, Order>::value_type;
  struct Candidate {
    Order order;
    std::shared_ptr<const Reader> reader;  // has no assignment
  };
  std::vector<Candidate> left;
  for (const Order order : orders) {
    if (order == used) continue;
    try {
      if (auto reader = make(order)) left.push_back({order, std::make_shared<Reader>(*reader)});
    } catch (const Error&) {  // another size
    }
  }
  Worker w;
  const auto grid =
      tile_grid(run.input.tensor().rows(), run.input.tensor().cols(), tile_steps(run.recipe));
  for (const TileSpan& span : grid) {
    if (left.empty()) break;
    if (run.options.stop != nullptr && *run.options.stop) {
      throw Error(ErrorKind::kData, "interrupted");
    }
    const auto outer = outer_of_tile(run.outer, run.recipe, span);
    quantize_tile(run, span, outer, w);
    std::erase_if(left, [&](const Candidate& c) {
      try {
        return !same(*c.reader, span, w);
      } catch (const Error&) {  // bytes that are no codes
        return true;
      }
    });
  }
  return left.empty() ? "" : std::string(name_of(left.front().order));
}

}  // namespace

std::string probe_nibbles(const Run& run, const TensorBytes& bytes, CodePacking used,
                          StoredShape shape) {
  const auto make = [&](CodePacking packing) -> std::optional<StoredCodes> {
    if (packed_bytes(packing, run.recipe, shape.cols) * shape.rows != bytes.size()) return {};
    return StoredCodes(bytes, run.recipe, packing, shape);
  };
  const auto same = [&](const StoredCodes& codes, const TileSpan& span, Worker& w) {
    resize(w.found, run.recipe, span.rows, span.cols);
    codes.read(span, w.found.padded_cols, w.found.codes.data());
    const std::int64_t width = run.recipe.code_bytes();
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const std::int64_t at = r * w.found.padded_cols * width;
      if (std::memcmp(w.found.codes.data() + at, w.expected.codes.data() + at,
                      static_cast<std::size_t>(span.cols * width)) != 0) {
        return false;
      }
    }
    return true;
  };
  return probe(run, packings_of(run.recipe), used, make, same);
}

std::string probe_layout(const Run& run, const TensorBytes& bytes, ScaleStorage used,
                         StoredShape shape) {
  const auto make = [&](ScaleStorage storage) -> std::optional<StoredScales> {
    return StoredScales(bytes, run.recipe, storage, shape);
  };
  const auto same = [&](const StoredScales& scales, const TileSpan& span, Worker& w) {
    resize(w.found, run.recipe, span.rows, span.cols);
    scales.read(span, w.found.scales.data());
    return w.found.scales == w.expected.scales;
  };
  return probe(run, storages_of(run.recipe), used, make, same);
}

}  // namespace fp4scope::verifying
