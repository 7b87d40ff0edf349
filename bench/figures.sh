#!/usr/bin/env bash
# Figures from the results of bench/gpu.py: bench/figures.sh DIR writes DIR/latency.svg, DIR/shares.svg.
# Needs gnuplot and python3.
set -euo pipefail
dir=${1:?usage: bench/figures.sh DIR}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 - "$dir" "$tmp" <<'PY'
import json, sys
d, tmp = sys.argv[1:]
p = json.load(open(f"{d}/preemption.json"))
rows = [("alone", p["alone"], "")]
for r in p["rows"]:
    what = "driver default" if r["config"] == "default" else "cede"
    jobs = "" if r["jobs"] == 1 else f", {r['jobs']} jobs"
    rows.append((f"{what}{jobs}", r, f"{r['kernel_us'] / 1000:g} ms"))
with open(f"{tmp}/latency", "w") as f:
    for name, r, kernel in rows:
        f.write(f'"{name}\\n{kernel}" {r["p50_us"]} {r["p99_us"]}\n')
s = json.load(open(f"{d}/shares.json"))
with open(f"{tmp}/shares", "w") as f:
    for r in s["rows"]:
        f.write(f'"{r["asked"][0] * 100:.0f} : {r["asked"][1] * 100:.0f}" '
                f'{r["got"][0]} {r["got"][1]} {r["sum"]:.3f}\n')
with open(f"{tmp}/title", "w") as f:
    f.write(f"{p['chip']}, driver {p['driver']}, {p['date']}")
PY
title=$(cat "$tmp/title")
gnuplot <<GP
set terminal svg size 900,420 font "sans,12" background "white"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.85 border -1
set boxwidth 0.9
set grid ytics
set bmargin 4
set output "$dir/latency.svg"
set title "100 us kernel every 10 ms beside saturating batch programs ($title)"
set ylabel "request latency, us (log scale)"
set logscale y
set yrange [50:5000]
set xtics font "sans,10"
set key top right
plot "$tmp/latency" using 2:xtic(1) title "p50" lc rgb "#7a9cc6", "" using 3 title "p99" lc rgb "#c44e52"
unset logscale y
set output "$dir/shares.svg"
set title "Two saturating programs under policy shares ($title)"
set ylabel "share of running alone"
set yrange [0:1.05]
set style histogram rowstacked
plot "$tmp/shares" using 2:xtic(1) title "first" lc rgb "#7a9cc6", "" using 3 title "second" lc rgb "#dd8452", \
     "" using 0:(1.02):4 with labels notitle
GP
echo "$dir/latency.svg $dir/shares.svg"
