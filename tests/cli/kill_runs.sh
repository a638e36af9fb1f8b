#!/usr/bin/env bash
# kill_runs.sh PROGRAM [KILLS] [SEED]: runs `analyze --resume` over a directory and kills it at
# random times until KILLS processes died of SIGKILL; about as many more get SIGTERM or SIGINT.
# Each is continued until it ends, and then its reports must be those of an uninterrupted run, byte
# for byte, with nothing else beside them.
set -uo pipefail

program=$(realpath "$1") kills=${2:-100} seed=${3:-1}
RANDOM=$seed
folder=$(mktemp -d "${TMPDIR:-/tmp}/fp4scope-kills-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

fail() {
  echo "kill_runs: $1" >&2
  [ -s errors ] && cat errors >&2
  exit 1
}

mkdir in out reference
types=(bf16 f32 f16 f64)
for i in $(seq 40); do
  ending=npy
  [ $((i % 2)) -eq 0 ] && ending=safetensors
  type=${types[i % 4]}
  [ $ending = npy ] && [ "$type" = bf16 ] && type=f32
  "$program" gen "in/t$i.$ending" --shape $((i * 8))x$((100 + 4 * i)) --dtype "$type" --seed "$i" \
    --threads 1 >/dev/null || fail "gen failed"
done
printf 'no tensor' >in/broken.npy  # its error belongs to the report

# The backend that takes longest: there has to be time to die in.
run=("$program" analyze in -r mxfp4 -r nvfp4 -r hif4 -r if4 -r mxfp4:ragged=flat
  -r nvfp4:scale=row
  --map-size 64 --backend reference --threads 2 --group-by '^(t)' --out out/report.json
  --out out/report.csv --resume --quiet)

milliseconds() { echo $(($(date +%s%N) / 1000000)); }
start=$(milliseconds)
"${run[@]}" >reference/stdout 2>errors
[ $? -eq 3 ] || fail "the uninterrupted run did not end with the code of the broken file"
whole=$(($(milliseconds) - start))
[ "$(ls out)" = "$(printf 'report.csv\nreport.json')" ] || fail "beside the reports: $(ls out)"
mv out/* reference/

killed=0 terminated=0 interrupted=0 runs=0 cut_writes=0 resumed=0
while [ $killed -lt "$kills" ]; do
  runs=$((runs + 1))
  while :; do
    [ -s out/report.json.resume ] && resumed=$((resumed + 1))
    "${run[@]}" >stdout 2>errors &
    pid=$!
    # Mostly early, so that one run takes several; sometimes up to the writing of the reports.
    longest=$((whole / 4))
    [ $((RANDOM % 3)) -eq 0 ] && longest=$((whole * 11 / 10))
    delay=$(((RANDOM * 32768 + RANDOM) % (longest + 1)))
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    signal=KILL
    [ $((RANDOM % 3)) -eq 0 ] && signal=TERM
    [ $((RANDOM % 4)) -eq 0 ] && signal=INT
    kill -s $signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
    case $status in
      3) break ;;
      137) killed=$((killed + 1)); compgen -G 'out/*.tmp' >/dev/null && cut_writes=$((cut_writes + 1)) ;;
      143) terminated=$((terminated + 1)) ;;
      130) interrupted=$((interrupted + 1)) ;;
      *) fail "exit code $status after signal $signal" ;;
    esac
  done
  cmp -s stdout reference/stdout || fail "standard output differs in run $runs"
  for report in report.json report.csv; do
    cmp -s out/$report reference/$report || fail "$report differs in run $runs (seed $seed)"
  done
  [ "$(ls out)" = "$(printf 'report.csv\nreport.json')" ] || fail "beside the reports: $(ls -a out)"
  rm out/*
done
echo "kill_runs: $killed SIGKILL, $terminated SIGTERM and $interrupted SIGINT in $runs runs" \
  "(seed $seed; $whole ms uninterrupted): every report equal, nothing left; $resumed starts found" \
  "finished tensors, $cut_writes kills left a temporary file that the next start removed"
