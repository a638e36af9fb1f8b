#!/usr/bin/env bash
# Runs fuzz targets that the preset fuzz built.
#   run.sh TARGET|all MINUTES            long runs, one target after the other: the corpus grows in
#                                        build/fuzz-corpus, figures go to ledger.tsv there
#   run.sh --merge TARGET|all            takes what long runs found back into corpus/, as far as it
#                                        stays small
#   run.sh --once TARGET SECONDS BINARY  what ctest does: a corpus that is thrown away
# A finding prints the path of the input that shows it; exit code 1.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
containers=$root/data/containers
shared=$root/../shared/tensors/formats
# Bytes and files that the committed corpus of one target may have.
most_committed=35000
most_files=100

# A 100-byte file must not make anything allocate a gigabyte, nor run for long.
limits=(-rss_limit_mb=512 -malloc_limit_mb=64 -timeout=10 -max_len=65536 -print_final_stats=1)
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:allocator_may_return_null=0:detect_leaks=1:quarantine_size_mb=16
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-}:print_stacktrace=1

# Files of other writers as further seeds: the committed ones, and those below 100 KB of the folder
# that may lie beside the repository.
link_seeds() {  # TARGET FOLDER
  local endings=() ending file
  case $1 in
    safetensors | npy | gguf) endings=("$1") ;;
    zip) endings=(npz pt) ;;
    pickle) endings=(pt) ;;
    hdf5) endings=(h5 hdf5) ;;
  esac
  mkdir -p "$2"
  for ending in "${endings[@]}"; do
    for file in "$containers"/*."$ending" "$shared"/*."$ending"; do
      if [ -f "$file" ] && [ "$(stat -c %s "$file")" -lt 100000 ]; then ln -sf "$file" "$2/"; fi
    done
  done
}

# Runs BINARY; sets status, and cpu (seconds), runs from its last lines.
run_binary() {  # TARGET BINARY WORK ARGUMENTS...
  local target=$1 binary=$2 work=$3 more=()
  shift 3
  [ -f "$here/$target.dict" ] && more=(-dict="$here/$target.dict")
  # The process of the HDF5 library may use some processor time before it is stopped.
  [ "$target" = hdf5 ] && more+=(-timeout=100)
  mkdir -p "$work"
  # Files of targets that read by path, in memory where that is possible.
  local files=$work
  [ -w /dev/shm ] && files=$(mktemp -d /dev/shm/fuzz-XXXXXX)
  local TIMEFORMAT='cpu %U %S'
  { time TMPDIR=$files "$binary" "${limits[@]}" "${more[@]}" -artifact_prefix="$work/" "$@" \
    >"$work/log" 2>&1; } 2>"$work/time"
  status=$?
  [ "$files" = "$work" ] || rm -rf "$files"
  cpu=$(awk '$1 == "cpu" { print $2 + $3 }' "$work/time")
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log" | tail -n 1)
}

report_finding() {  # TARGET WORK
  local input
  echo "FOUND by fuzz_$1:"
  grep -E '^(SUMMARY|==[0-9]+== ?ERROR|.*runtime error:|.*what\(\):)' "$2/log" | head -n 5
  grep -E '^ +#[0-9]+ .*fp4scope' "$2/log" | head -n 12
  for input in "$2"/crash-* "$2"/oom-* "$2"/timeout-* "$2"/leak-*; do
    [ -f "$input" ] && echo "reproducer: $input"
  done
  tail -n 3 "$2/log"
}

once() {  # TARGET SECONDS BINARY
  local work
  work=$(dirname "$3")/$1.work
  rm -rf "$work"
  mkdir -p "$work/new"
  link_seeds "$1" "$work/seeds"
  local folders=("$work/new" "$work/seeds" "$here/corpus/$1")
  [ -d "$here/regressions/$1" ] && folders+=("$here/regressions/$1")
  run_binary "$1" "$3" "$work/run" -max_total_time="$2" "${folders[@]}"
  if [ "$status" -ne 0 ]; then
    report_finding "$1" "$work/run"
    exit 1
  fi
  echo "fuzz_$1: ${runs:-0} runs in $2 s, nothing found"
  rm -rf "$work"
}

# The smallest files first.
commit_corpus() {  # TARGET BINARY WORK
  local merged=$3/merged size file bytes
  rm -rf "$merged"
  cp -r "$here/corpus/$1" "$merged"
  # Adds to the first folder only what covers more than is there.
  run_binary "$1" "$2" "$3/merge" -merge=1 -max_len=4096 "$merged" "$3/corpus"
  [ "$status" -eq 0 ] || return
  local files
  files=$(find "$here/corpus/$1" -type f | wc -l)
  bytes=$(cat "$here/corpus/$1"/* | wc -c)
  while read -r size file; do
    [ -e "$here/corpus/$1/$file" ] && continue
    bytes=$((bytes + size))
    files=$((files + 1))
    [ "$bytes" -gt "$most_committed" ] && break
    [ "$files" -gt "$most_files" ] && break
    cp "$merged/$file" "$here/corpus/$1/"
  done < <(find "$merged" -type f -printf '%s %f\n' | sort -n)
}

long_run() {  # TARGET MINUTES
  local target=$1 binary=$root/build/fuzz/tests/fuzz/fuzz_$1 base=$root/build/fuzz-corpus
  local work=$base/$1
  if [ ! -x "$binary" ]; then
    echo "no $binary: cmake --preset fuzz && cmake --build --preset fuzz" >&2
    return 2
  fi
  mkdir -p "$work/corpus"
  link_seeds "$target" "$work/seeds"
  local folders=("$work/corpus" "$work/seeds" "$here/corpus/$target")
  [ -d "$here/regressions/$target" ] && folders+=("$here/regressions/$target")
  run_binary "$target" "$binary" "$work/run" -max_total_time=$(($2 * 60)) "${folders[@]}"
  local found=0
  [ "$status" -eq 0 ] || found=1
  printf '%s\t%s\t%s\t%s\n' "$target" "$cpu" "${runs:-0}" "$found" >>"$base/ledger.tsv"
  if [ "$found" -ne 0 ]; then
    report_finding "$target" "$work/run"
    return 1
  fi
}

summary() {
  awk -F '\t' '{ cpu[$1] += $2; runs[$1] += $3; found[$1] += $4 }
    END { printf "%-14s %10s %12s %9s\n", "target", "CPU min", "runs", "findings"
          for (t in cpu) printf "%-14s %10.1f %12d %9d\n", t, cpu[t] / 60, runs[t], found[t] | "sort" }' \
    "$root/build/fuzz-corpus/ledger.tsv"
}

if [ "${1:-}" = --once ] && [ $# -eq 4 ]; then
  once "$2" "$3" "$4"
elif [ $# -eq 2 ]; then
  what=$1
  [ "$1" = --merge ] && what=$2
  targets=("$what")
  [ "$what" = all ] && mapfile -t targets < <(cd "$here/corpus" && ls)
  worst=0
  if [ "$1" = --merge ]; then
    for target in "${targets[@]}"; do
      commit_corpus "$target" "$root/build/fuzz/tests/fuzz/fuzz_$target" \
        "$root/build/fuzz-corpus/$target" || worst=1
    done
    exit "$worst"
  fi
  for target in "${targets[@]}"; do
    long_run "$target" "$2" || worst=1
  done
  summary
  exit "$worst"
else
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
