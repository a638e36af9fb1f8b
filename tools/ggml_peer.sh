#!/usr/bin/env bash
# Builds ggml's block quantizers as a shared library for `fp4scope bench --ggml FILE`. Their source
# comes with the source package of llama-cpp-python on PyPI (MIT); nothing of it is kept here.
#   tools/ggml_peer.sh FILE.so [VERSION]
set -euo pipefail
out=$(realpath -m "${1:?usage: ggml_peer.sh FILE.so [VERSION]}")
version=${2:-0.3.36}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v pip3 >/dev/null || { echo "ggml_peer.sh needs pip3 (apt-get install python3-pip)" >&2; exit 1; }
cd "$folder"
if ! pip3 download --quiet --no-deps --no-binary :all: "llama-cpp-python==$version" >pip.log 2>&1; then
  tail -n 1 pip.log >&2
  echo "ggml_peer.sh: pip3 did not fetch the source of llama-cpp-python $version" >&2
  exit 1
fi
archive=$(echo llama_cpp_python-*.tar.gz)
tar xzf "$archive" --wildcards '*/vendor/llama.cpp/ggml/src/ggml-*.[ch]' \
  '*/vendor/llama.cpp/ggml/include/*.h'
cd llama_cpp_python-*/vendor/llama.cpp/ggml
# As llama.cpp builds it for the machine it is on. What ggml.c would add is never called.
gcc -O3 -march=native -DNDEBUG -fPIC -shared -Iinclude -Isrc src/ggml-quants.c \
  -o "$out" -lm
echo "wrote $out (llama-cpp-python $version)"
