// identify_sample.h: the fixed sample of identify: a few bands of the input with the stored bytes
// read in every order that fits, and how much of it a recipe explains.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "analysis/compare/identify.h"
#include "analysis/compare/prepared.h"
#include "analysis/tiles.h"

namespace fp4scope {

// Shares of what was compared, 1 where there was nothing of the kind.
struct SampleScore {
  double codes = 1, scales = 1, values = 1, outer = 1, choices = 1;
  // The orders that explain most; several where the sample cannot tell them apart.
  std::vector<CodePacking> packings;
  std::vector<ScaleStorage> storages;
  bool fits = false;  // sizes and recipe allow a comparison
  double total() const { return codes + scales + values + outer + choices; }
  bool is_exact() const { return fits && total() == 5; }
};

class IdentifySample {
 public:
  // Opens the operands of the job. Throws Error where they cannot be read at all.
  IdentifySample(const IdentifyOptions& options, SourceCache& sources);
  // `whole`: all bands; otherwise the first one alone, for ranking.
  SampleScore score(const Recipe& recipe, bool whole);
  // Orders that the options allow.
  std::vector<CodePacking> wanted_packings(const Recipe& recipe) const;
  std::vector<ScaleStorage> wanted_storages(const Recipe& recipe) const;
  // Adds the band that holds an element, so that what the first bands could not tell apart is.
  // False: it is there already.
  bool add_band(std::int64_t row, std::int64_t col);
  // The sample is all of the input, so that exact on it is exact.
  bool is_whole() const;
  const TensorInfo& input() const { return *input_.tensor; }
  // "32768 bytes of codes and 4096 bytes of scales", for a sentence.
  std::string sizes_text() const;
  std::string source_hash() const;
  // Sentences about operands that say little.
  std::vector<std::string> warnings() const;

 private:
  struct Band {
    TileSpan span;
    TileBuffer buffer;
  };
  // The input padded to one shape.
  struct Shaped {
    StoredShape shape;
    std::unique_ptr<PreparedInput> input;
    std::vector<Band> bands;
    std::optional<AmaxResult> amax;
  };
  struct Reading {
    bool fits = false;
    std::vector<std::vector<std::uint8_t>> bands;
  };
  Shaped& shaped(StoredShape shape);
  const AmaxResult& amax_of(Shaped& shaped);
  const Reading& codes_of(const Recipe& recipe, CodePacking packing, Shaped& shaped);
  const Reading& scales_of(const Recipe& recipe, ScaleStorage storage, Shaped& shaped);
  std::optional<SampleScore> score_shape(const Recipe& recipe, Shaped& shaped,
                                         const std::vector<CodePacking>& packings, bool whole);
  bool take_outer(const Recipe& recipe, const Backend& backend, Shaped& shaped,
                  std::vector<OuterScale32>& outer, SampleScore& score);

  const IdentifyOptions& options_;
  SourceCache::Opened input_;
  std::optional<SourceCache::Opened> codes_, scales_, fake_, choice_;
  std::vector<float> outer_, amax_values_;
  std::map<std::pair<std::int64_t, std::int64_t>, Shaped> shapes_;
  std::map<std::string, Reading> code_readings_, scale_readings_;
  std::map<std::int64_t, std::vector<std::vector<float>>> fake_bands_;  // by padded rows
  // Reused from recipe to recipe.
  QuantizedTile quantized_;
  std::vector<float> values_;
};

}  // namespace fp4scope
