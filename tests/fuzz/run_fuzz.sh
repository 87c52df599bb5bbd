#!/bin/sh
# run_fuzz.sh TARGET SEEDS FOUND: fuzzes for KVD_FUZZ_SECONDS (60), from SEEDS, keeping finds in
# FOUND. An input that takes over 10 s or 2 GiB counts as a failure, as does any sanitizer report.
set -eu
target=$1 seeds=$2 found=$3
if [ ! -d "$seeds" ]; then
  echo "no seeds: $seeds does not exist" >&2
  exit 1
fi
mkdir -p "$found"
status=0
"$target" -max_total_time="${KVD_FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 \
  -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/" "$found" "$seeds" || status=$?
# The input itself, for whoever has only this log.
for input in "$found"/crash-* "$found"/leak-* "$found"/timeout-* "$found"/oom-*; do
  [ -e "$input" ] && echo "Base64: $(basename "$input") $(head -c 3000 "$input" | base64 -w 0)"
done
exit "$status"
