#!/usr/bin/env bash
# Dependency rules of the folders: who may include what, and calls that libraries never make.
# usage: include_rules.sh SOURCE_DIR. One line per violation; exit code 1 when there is any.
set -uo pipefail
cd "$1" || exit 2

sources() { find "$@" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) 2>/dev/null | sort; }

# "file:included path" of every include of the given files.
includes() {
  grep -HoE '^ *# *include *[<"][^>"]+[>"]' "$@" /dev/null |
    sed -E 's/: *# *include *[<"]/:/; s/[>"]$//'
}

# "file:line:text" of code in some folders (a|b|c) that matches a pattern.
code_matches() { grep -E -- "^($1)/[^:]*:[0-9]+:.*($2)" <<<"$code"; }

# "file:header" for every project header that a file reaches, directly or through others.
reaches() {
  local file header queue seen
  for file in "$@"; do
    queue=("$file") seen=" "
    while [ ${#queue[@]} -gt 0 ]; do
      while IFS= read -r header; do
        header=${header#*:}
        case "$seen" in *" $header "*) continue ;; esac
        seen+="$header "
        echo "$file:$header"
        [ -f "$header" ] && queue+=("$header")
      done < <(includes "${queue[0]}")
      queue=("${queue[@]:1}")
    done
  done
}

mapfile -t formats < <(sources formats)
mapfile -t sim < <(sources sim)
mapfile -t oracle < <(sources sim/oracle)
mapfile -t analysis < <(sources analysis)
mapfile -t tools < <(sources tools)
mapfile -t all < <(sources formats sim analysis gpu tools)
# // comments and string literals do not count.
code=$(awk '{ gsub(/"([^"\\]|\\.)*"/, "\"\""); sub(/\/\/.*/, ""); print FILENAME ":" FNR ":" $0 }' \
  "${all[@]}" /dev/null)
libraries='formats|sim|analysis|gpu'

violations() {
  includes "${formats[@]}" | grep -vE ':(formats/.+|cstdint|array|string_view|type_traits)$' |
    sed 's/^/formats includes something else: /'
  includes "${sim[@]}" | grep -E ':(analysis|gpu|tools|tests)/' | sed 's/^/sim includes upwards: /'
  includes "${analysis[@]}" | grep -E ':(gpu|tools|tests)/' |
    sed 's/^/analysis includes upwards: /'
  includes "${tools[@]}" | grep -E ':tests/' | sed 's/^/tools includes tests: /'
  includes "${all[@]}" | grep -vE '^gpu/' | grep -E ':gpu/' |
    grep -vE ':gpu/register\.h$' | sed 's/^/gpu is known by register.h alone: /'
  # All that the oracle may know of the project: types, options and the table of rcp~.
  reaches "${oracle[@]}" | grep -E ':(formats|sim|analysis|gpu|tools|tests)/' |
    grep -vE ':formats/((hd|scalars|spec)\.h|contracts/([a-z0-9]+_)?options\.h)$' |
    grep -vE ':sim/(oracle/.+|(backend|error|rcp_table|recipe)\.h)$' |
    sed 's/^/the oracle reaches what it may not: /'

  code_matches "$libraries" '\b((v?f?printf|f?puts|putchar|perror) *\(|cout\b|cerr\b|clog\b|fmt::print)' |
    sed 's/^/a library prints: /'
  code_matches "$libraries" '\b(exit|_exit|_Exit|quick_exit|abort|terminate) *\(' |
    sed 's/^/a library ends the process: /'
  code_matches "$libraries" '\b(secure_)?getenv\b' | sed 's/^/a library reads the environment: /'
  code_matches 'formats|sim|gpu' '\b(log2|pow|exp2|frexp|ldexp|nearbyint)f? *\(' |
    sed 's/^/libm near the arithmetic: /'
  code_matches "$libraries" 'reduction *\( *\+' |
    sed 's/^/the order of this sum depends on threads: /'
  grep -rnE --include=CMakeLists.txt --include='*.cmake' --include=CMakePresets.json \
    --exclude-dir='build*' -e '-ffast-math|-Ofast|use_fast_math|-funsafe-math|-march=native' . |
    sed 's/^/flags that change bits: /'
}

# An empty tree would pass every rule.
if [ ${#formats[@]} -eq 0 ] || [ ${#oracle[@]} -eq 0 ] || [ ${#analysis[@]} -eq 0 ]; then
  echo "include_rules: no sources under $1"
  exit 2
fi
found=$(violations)
[ -z "$found" ] && exit 0
echo "$found"
exit 1
