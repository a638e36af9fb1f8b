// nvfp4.h: NVFP4 contracts (spec/nvfp4.md sections 2 and 3).
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

inline constexpr Contract<Nvfp4Options> kNvfp4Contracts[] = {
    {"te", Nvfp4Options{}, Ragged::kError,
     "TransformerEngine d0067d0 transformer_engine/common/cast/nvfp4/core_nvfp4.cuh",
     Evidence::kVerified, "nvfp4/cases.json nvfp4/global_scale.json"},
};

}  // namespace fp4scope
