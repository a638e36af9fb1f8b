#!/usr/bin/env bash
# A program that failed is never reported as skipped, one that could not run is never reported as
# passed. usage: skips.sh PROBE CTEST, where PROBE is skips_probe.cc and CTEST the ctest program.
set -uo pipefail
probe=$1
ctest=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# test cases, exit code of the program, what ctest says of it
expect() {
  "$probe" "--test-case=$1" >/dev/null 2>&1
  local code=$?
  printf 'add_test(probe "%s" "--test-case=%s")\nset_tests_properties(probe PROPERTIES SKIP_RETURN_CODE 77)\n' \
    "$probe" "$1" >"$folder/CTestTestfile.cmake"
  local line
  line=$(cd "$folder" && "$ctest" 2>&1 | grep -E 'Test +#1: probe')
  echo "$1: exit code $code, $line"
  if [ "$code" -ne "$2" ] || [[ "$line" != *"$3"* ]]; then
    echo "  expected $2 and $3"
    failures=1
  fi
}

expect passes 0 Passed
expect skips 77 '***Skipped'
expect fails 1 '***Failed'
expect throws 1 '***Failed'
expect passes,skips 77 '***Skipped'
expect passes,fails 1 '***Failed'
expect skips,fails 1 '***Failed'
expect skips,throws 1 '***Failed'
expect 'a misspelt name' 1 '***Failed'

"$probe" --test-case=skips >"$folder/out"
grep -qx 'SKIPPED: ../shared/a file that nobody has is not there' "$folder/out" || {
  echo "the reason is not printed"
  failures=1
}
exit $failures
