#!/usr/bin/env bash
# Compiles what depends on the processor (sim, and of analysis the generator and the bench) for
# AArch64, where the lanes become NEON. Nothing is linked or run. Third-party headers are those of
# this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:?folder for the objects}

compiler=aarch64-linux-gnu-g++
if ! command -v $compiler >/dev/null; then
  echo "SKIPPED: $compiler is not installed"
  exit 77
fi
mkdir -p "$out"
mapfile -t sources < <(ls sim/*.cc sim/layouts/*.cc sim/trace/*.cc |
  grep -vE '/(cpu_fused_.*|rcp_h200)\.cc$'; ls analysis/random_bits.cc analysis/bench/memory.cc)
[ ${#sources[@]} -ge 40 ]
launcher=$(command -v ccache || true)
export CCACHE_BASEDIR=$PWD
flags="-std=c++20 -O1 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wpedantic \
  -Wno-psabi -Werror -I. -idirafter /usr/include"
printf '%s\n' "${sources[@]}" | xargs -P 2 -I{} sh -c \
  "$launcher $compiler $flags -c {} -o '$out'/\$(echo {} | tr / _).o"
# The lanes are vectors, and the backend has its name. (No -q: the writer of a pipe must not fail.)
strings "$out/sim_cpu_backend.cc.o" | grep -x neon >/dev/null
aarch64-linux-gnu-objdump -d "$out/sim_cpu_mx.cc.o" | grep -E 'fmul.*v[0-9]+\.4s' >/dev/null
echo "${#sources[@]} files compiled for AArch64"
