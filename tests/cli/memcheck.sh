#!/usr/bin/env bash
# memcheck.sh PROGRAM: every command under valgrind memcheck on small inputs, with the sample and
# the files of other programs in data/containers. Reads of memory that was never written, accesses
# outside of it and lost blocks fail; what the commands say about the files is tested elsewhere.
set -uo pipefail

program=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
if ! command -v valgrind >/dev/null; then
  echo "SKIPPED: valgrind is not installed"
  exit 77
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp4scope-memcheck-XXXXXX")
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=2

failed=0 runs=0
# check NAME CODES ARGUMENT...: CODES are the exit codes that the program may end with.
check() {
  local name=$1 codes=$2
  shift 2
  valgrind --quiet --error-exitcode=99 --leak-check=full --log-file="$folder/$name.log" \
    --suppressions=tests/cli/memcheck.supp "$program" "$@" >"$folder/stdout" 2>"$folder/stderr"
  local code=$?
  [ -n "${VERBOSE:-}" ] && echo "$SECONDS s: $name"
  runs=$((runs + 1))
  if [[ " $codes " != *" $code "* || -s $folder/$name.log ]]; then
    failed=$((failed + 1))
    echo "--- $name: exit code $code: fp4scope $*"
    head -c 2000 "$folder/stderr"
    head -n 60 "$folder/$name.log"
  fi
}

sample=data/sample/use_lite_slice.safetensors
small=$folder/small.safetensors ties=$folder/ties.npy packed=$folder/packed.safetensors
reference=(--backend reference --threads 2)

check formats 0 formats
check usage 2 analyze
check gen 0 gen "$small" --shape 6x80 --dtype bf16 --seed 3 --threads 2
check ties 0 gen "$ties" --dist tie-aligned -r nvfp4 --shape 8x64 --dtype f32 --threads 2
check info 0 info "$sample" "$small" "$ties" --json
check sample 0 analyze "$sample:layers.1.attn_out.X" -r nvfp4 "${reference[@]}"
check analyze 0 analyze "$small" "$ties" -r mxfp4 -r nvfp4 -r hif4 -r mxfp4:ragged=flat \
  --map-size 8 --group-by '(.)' --out "$folder/r.json" --out "$folder/r.csv" "${reference[@]}"
check journal 3 analyze "$small" "$ties" "$folder/missing" -r mxfp4 --map-size 8 --resume \
  --out "$folder/j.json" "${reference[@]}"
check agree 0 agree nvfp4 nvfp4:contract=fouroversix "$small" "${reference[@]}"
check quantize 0 quantize "$small" "$packed" -r nvfp4 "${reference[@]}"
check dequantize 0 dequantize "$packed" "$folder/values.safetensors" --threads 2
check explain 0 explain "$small:x@1,0" -r hif4
check golden 0 golden -r mxfp4 "$folder/golden.json"
stored=(--input "$small:x" --codes "$packed:x.codes" --scales "$packed:x.scales")
check verify 0 verify -r nvfp4 "${stored[@]}"
check identify 0 identify "${stored[@]}"

# Files of other programs, readable or not.
shopt -s nullglob
files=(data/containers/*.{safetensors,pt,npz,npy,gguf,h5} data/containers/malicious/*)
if [ ${#files[@]} -gt 0 ]; then
  check containers '0 3 4' analyze "${files[@]}" -r mxfp4 "${reference[@]}"
  check listed '0 3 4' info "${files[@]}" --json
fi

echo "memcheck: $runs runs, $failed failed"
[ $failed -eq 0 ]
