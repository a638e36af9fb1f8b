#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test except those with the label "full"; then the
# fuzz targets, each for 15 seconds (preset fuzz, tests/fuzz). With CI set, warnings are errors
# (preset ci, else dev). The last line counts ctest entries of both:
#   N passed, N failed, N skipped
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=dev
[ -n "${CI:-}" ] && preset=ci
passed=0 failed=0 skipped=0

build() { cmake --preset "$1" >/dev/null && cmake --build --preset "$1"; }

# "3/9 Test #3: name ...... Passed 0.1 sec"; ctest's own summary counts skipped tests as passed.
entry='^ *[0-9]+/[0-9]+ Test +#'
count() { grep -cE "$entry.*$2" "$1"; }

# Runs the tests of a preset and adds to the three counts.
run_tests() {  # PRESET
  local log=build/$1/test.log status total bad
  ctest --preset "$1" --verbose 2>&1 | tee "$log" | grep --line-buffered -E "$entry"
  status=${PIPESTATUS[0]}
  total=$(count "$log" '')
  local this_passed this_skipped
  this_skipped=$(count "$log" '\*\*\*Skipped|\*\*\*Not Run \(Disabled\)')
  this_passed=$(count "$log" ' Passed ')
  bad=$((total - this_passed - this_skipped))

  grep -E "$entry" "$log" | grep -vE ' Passed |\*\*\*Skipped|Not Run \(Disabled\)' |
    sed -E 's/^.*Test +#([0-9]+): .*/\1/' | while read -r number; do
    echo "--- output of failed test $number"
    grep -E "^$number: " "$log" | tail -n 60
  done

  # Why: the lines "12: SKIPPED: reason" of the entries that ctest calls skipped.
  grep -E "$entry.*\*\*\*Skipped" "$log" |
    sed -E 's/^.*Test +#([0-9]+): ([^ ]+).*/\1 \2/' | while read -r number name; do
    grep -E "^$number: SKIPPED: " "$log" | sort -u | sed "s/^$number: SKIPPED: /skipped $name: /"
  done

  # Without an entry, or where ctest itself failed, something is wrong that no line shows.
  if [ "$bad" -eq 0 ] && { [ "$total" -eq 0 ] || [ "$status" -ne 0 ]; }; then bad=1; fi
  passed=$((passed + this_passed)) skipped=$((skipped + this_skipped)) failed=$((failed + bad))
}

if bash tools/install_deps.sh && build "$preset"; then
  run_tests "$preset"
else
  failed=1
fi

if ! command -v clang++ >/dev/null; then
  for target in tests/fuzz/corpus/*/; do
    echo "skipped fuzz_$(basename "$target"): clang++ is not installed"
    skipped=$((skipped + 1))
  done
elif build fuzz; then
  run_tests fuzz
else
  failed=$((failed + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
