#!/usr/bin/env bash
# From a clean clone to a report: installs what is missing, builds, and analyzes the tensors in
# data/sample with MXFP4, NVFP4 and HiF4.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/install_deps.sh
cmake --preset release >/dev/null
cmake --build --preset release

mkdir -p build/demo
build/release/tools/fp4scope analyze data/sample/use_lite_slice.safetensors \
  -r mxfp4 -r nvfp4 -r hif4 --out build/demo/report.json
echo
echo "The same figures and more, as JSON: build/demo/report.json"
