#!/usr/bin/env bash
# Kills a grid in the middle with -9, goes on from its checkpoint, and compares every byte with the
# same grid left alone: docs/grids/kill.sh FOLDER [DESIGNS]
set -euo pipefail
out=$1
designs=${2:-1000000}
here=$(cd "$(dirname "$0")" && pwd)
points=$(( (designs + 131071) / 131072 ))   # 8 bandwidths x 16,384 designs for each prompt length
(( points > 1 && points <= 10000 )) || { echo "expected 2e5 to 1e9 designs" >&2; exit 2; }
mkdir -p "$out"
grid() {
    exec dse grid "$here/cheap.yaml" --axis "workload.isl.mean=128..16384:log:$points" \
        --axis 'hardware.memory_bandwidth_bytes_per_s=x0.25..x2:8' \
        --heat workload.isl.mean,attention_tp --histogram tpot_mean_s --out "$1" --json
}
finished() {   # designs that a checkpoint holds
    python - "$1" 2> /dev/null << 'EOF' || echo 0
import json, sys
parts = json.load(open(sys.argv[1]))["state"]["parts"]
print(sum(sum(part["counts"].values()) for part in parts))
EOF
}
echo "left alone:"
(grid "$out/whole") > "$out/whole.json"
echo "killed:"
(grid "$out/killed") > "$out/killed.json" &
victim=$!
enough=$(( designs / 3 ))
done_=0
while kill -0 "$victim" 2> /dev/null; do
    done_=$(finished "$out/killed/checkpoint.json")
    if (( done_ >= enough )); then kill -9 "$victim"; break; fi
    sleep 0.2
done
wait "$victim" 2> /dev/null && { echo "it ended before it could be killed" >&2; exit 1; }
echo "killed after $done_ of $designs designs; going on:"
(grid "$out/killed") > "$out/resumed.json"
diff -r --exclude manifest.json "$out/whole" "$out/killed"
echo "identical: $(find "$out/whole" -type f ! -name manifest.json | wc -l) files"
