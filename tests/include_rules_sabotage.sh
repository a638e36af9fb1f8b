#!/usr/bin/env bash
# Every rule of include_rules.sh must notice a tree that breaks it, and accept the tree without the
# fault.
set -uo pipefail
rules=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/include_rules.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

clean_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{formats/codecs,sim/oracle,analysis,gpu,tools}
  echo '#include <array>' >"$tree/formats/spec.h"
  echo '#include "formats/spec.h"' >"$tree/formats/minifloat.h"
  echo '#include "formats/spec.h"' >"$tree/sim/recipe.h"
  echo '#include "sim/recipe.h"' >"$tree/sim/oracle/oracle.cc"
  # Words in comments, strings and longer names are no violations.
  echo '// printf("x"); exit(1)
const char* s = "std::cout << getenv(1)"; int n = snprintf(b, 1, ""); exit_code(1); on_exit_code(2);' \
    >"$tree/analysis/a.cc"
  echo '#include "analysis/a.h"' >"$tree/tools/t.cc"
}

expect() { # rule text, file, line of code
  clean_tree
  printf '%s\n' "$3" >>"$tree/$2"
  local out
  out=$(bash "$rules" "$tree")
  if [ $? -ne 1 ] || [[ "$out" != *"$1"*"$2"* ]]; then
    echo "not noticed in $2: $3"
    echo "$out"
    failures=$((failures + 1))
  fi
}

clean_tree
bash "$rules" "$tree" || { echo "the clean tree was refused"; failures=1; }

expect 'formats includes something else' formats/spec.h '#include <vector>'
expect 'formats includes something else' formats/spec.h '#include "sim/recipe.h"'
expect 'sim includes upwards' sim/recipe.h '#include "analysis/report.h"'
expect 'analysis includes upwards' analysis/a.cc '#include "tools/common.h"'
expect 'tools includes tests' tools/t.cc '#include "tests/support/paths.h"'
expect 'gpu is known by register.h alone' analysis/a.cc '#include "gpu/cuda_backend.h"'
expect 'the oracle reaches what it may not' sim/oracle/oracle.cc '#include "formats/minifloat.h"'
expect 'the oracle reaches what it may not' sim/oracle/oracle.cc '#include "formats/codecs/nvfp4.h"'
expect 'the oracle reaches what it may not' sim/oracle/oracle.cc '#include "formats/lut.h"'
expect 'the oracle reaches what it may not' sim/oracle/oracle.cc '#include "formats/contracts/mx.h"'
expect 'the oracle reaches what it may not' sim/oracle/oracle.cc '#include "sim/element.h"'
for call in 'printf("x");' 'std::cout << 1;' 'fmt::print("x");' 'std::fputs("x", stderr);'; do
  expect 'a library prints' sim/recipe.h "$call"
done
for call in 'std::exit(1);' '_exit(1);' 'abort();'; do
  expect 'ends the process' analysis/a.cc "$call"
done
expect 'reads the environment' analysis/a.cc 'std::getenv("HOME");'
for call in 'std::log2(x);' 'frexp(x, &e);' 'powf(2, x);' 'std::exp2(x);' 'ldexp(x, 3);'; do
  expect 'libm near the arithmetic' sim/recipe.h "$call"
done
expect 'depends on threads' analysis/a.cc '#pragma omp parallel for reduction(+:sum)'
expect 'flags that change bits' CMakeLists.txt 'add_compile_options(-ffast-math)'

# A header in between must not hide production arithmetic from the rule.
clean_tree
echo '#include "formats/minifloat.h"' >>"$tree/sim/recipe.h"
[[ "$(bash "$rules" "$tree")" == *'sim/oracle/oracle.cc:formats/minifloat.h'* ]] ||
  { echo "an indirect include was not noticed"; failures=$((failures + 1)); }

[ "$failures" -eq 0 ] && echo "all sabotaged trees were noticed"
exit $((failures > 0))
