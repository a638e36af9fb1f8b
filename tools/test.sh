#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test except those with the label "full". With CI
# set, warnings are errors (preset ci, else dev). The last line counts ctest entries:
#   N passed, N failed, N skipped
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=dev
[ -n "${CI:-}" ] && preset=ci

bash tools/install_deps.sh &&
  cmake --preset "$preset" >/dev/null &&
  cmake --build --preset "$preset" || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }

log=build/$preset/test.log
ctest --preset "$preset" --verbose 2>&1 | tee "$log" |
  grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#'
status=${PIPESTATUS[0]}

# "3/9 Test #3: name ...... Passed 0.1 sec"; ctest's own summary counts skipped tests as passed.
count() { grep -cE "^ *[0-9]+/[0-9]+ Test +#.*$1" "$log"; }
skipped=$(count '\*\*\*Skipped|\*\*\*Not Run \(Disabled\)')
passed=$(count ' Passed ')
total=$(count '')
failed=$((total - passed - skipped))

grep -E '^ *[0-9]+/[0-9]+ Test +#' "$log" | grep -vE ' Passed |\*\*\*Skipped|Not Run \(Disabled\)' |
  sed -E 's/^.*Test +#([0-9]+): .*/\1/' | while read -r number; do
  echo "--- output of failed test $number"
  grep -E "^$number: " "$log" | tail -n 60
done

# Why: the lines "12: SKIPPED: reason" of the entries that ctest calls skipped.
grep -E '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*Skipped' "$log" |
  sed -E 's/^.*Test +#([0-9]+): ([^ ]+).*/\1 \2/' | while read -r number name; do
  grep -E "^$number: SKIPPED: " "$log" | sort -u | sed "s/^$number: SKIPPED: /skipped $name: /"
done

if [ "$total" -eq 0 ]; then failed=1; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$status" -eq 0 ]
