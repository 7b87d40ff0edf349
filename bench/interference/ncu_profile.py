#!/usr/bin/env python3
"""Shows which kernels a program spends its GPU time in, and what of the GPU each uses, from a table of Nsight Compute. With -o
it writes a profile for model.py, as JSON:

  program  its name
  busy     above 0 and up to 1: part of its time alone in which one of its kernels runs; absent: not known
  gpu      integers: sms; of one SM sm_threads, sm_blocks, sm_registers, sm_shared_bytes, sm_l1_bytes; l2_bytes
  kernels  those with most time first, each with name, calls, us (the mean of a call), share of the program's GPU time, blocks of
           the grid, threads and shared_bytes of a block, registers of a thread, division (bytes of an SM that are shared memory),
           l1_hit and l2_hit (from 0 to 1), and use: what it uses, from 0 to 1, by name"""
import argparse
import csv
import json
import math
import os
import re
import sys

KERNELS_MAX, SHOWN = 2000, 20
NUMBERS = "blocks", "threads", "registers", "shared_bytes", "division"  # of a launch, as a profile has them
GPU = "sms", "sm_threads", "sm_blocks", "sm_registers", "sm_shared_bytes", "sm_l1_bytes", "l2_bytes"
USES = "issue slots", "integer pipe", "FP32 pipe", "FP64 pipe", "FP16 pipe", "tensor pipe", "L2 cache", "DRAM bandwidth"

# What is asked of the profiler: metric -> what it tells, and by how much it is divided.
METRICS = {
    "gpu__time_duration.sum": ("us", 1e3),
    "launch__grid_size": ("blocks", 1),
    "launch__block_size": ("threads", 1),
    "launch__registers_per_thread": ("registers", 1),
    "launch__shared_mem_per_block": ("shared_bytes", 1),
    "launch__shared_mem_config_size": ("division", 1),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("issue slots", 100),
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": ("integer pipe", 100),
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": ("FP32 pipe", 100),
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": ("FP64 pipe", 100),
    "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active": ("FP16 pipe", 100),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("tensor pipe", 100),
    "l1tex__t_sector_hit_rate.pct": ("l1_hit", 100),
    "lts__t_sector_hit_rate.pct": ("l2_hit", 100),
    "lts__t_bytes.sum.per_second": ("L2 bytes", 1),
    "dram__bytes.sum.per_second": ("DRAM bytes", 1),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("DRAM bandwidth", 100),
    "device__attribute_multiprocessor_count": ("sms", 1),
    "device__attribute_l2_cache_size": ("l2_bytes", 1)}
# What a table may have in place of these, or in addition.
MORE = {
    "sm__inst_issued.avg.per_cycle_active": ("issue slots", 4),
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("tensor pipe", 100),
    "device__attribute_max_threads_per_multiprocessor": ("sm_threads", 1),
    "device__attribute_max_blocks_per_multiprocessor": ("sm_blocks", 1),
    "device__attribute_max_registers_per_multiprocessor": ("sm_registers", 1),
    "device__attribute_max_shared_memory_per_multiprocessor": ("sm_shared_bytes", 1)}
KNOWN = METRICS | MORE
REQUIRED = "gpu__time_duration.sum, launch__grid_size and launch__block_size"

# What one of a unit is in ns, bytes, % or without a unit.
UNITS = {"nsecond": 1, "ns": 1, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
         "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}

# Of one SM, by compute capability (NVIDIA's programming guide): threads, blocks, KiB of shared memory, and with L1.
LIMITS = {"7.0": (2048, 32, 96, 128), "7.5": (1024, 16, 64, 96), "8.0": (2048, 32, 164, 192), "8.6": (1536, 16, 100, 128),
          "8.7": (1536, 16, 164, 192), "8.9": (1536, 24, 100, 128), "9.0": (2048, 32, 228, 256),
          "10.0": (2048, 32, 228, 256), "12.0": (1536, 24, 100, 128)}


class Wrong(Exception):
    """The table is wrong; the text says how."""


def rows(file):
    """Yields the rows, without what the program and the profiler say in between."""
    for number, line in enumerate(file, 1):
        if line.startswith('"'):
            try:
                yield number, next(csv.reader([line.rstrip("\r\n")]))
            except csv.Error as e:
                raise Wrong(f"line {number}: {e}") from e


def scale(unit):
    return UNITS.get(re.split("[/ ]", unit)[0], 1)


def number_of(text):
    """Reads "1,234.5"; NAN: no number."""
    try:
        v = float(text.replace(",", ""))
    except ValueError:
        return math.nan
    return v if 0 <= v < 1e18 else math.nan


def whole(v):
    return int(v) if 0 < v < 2 ** 32 - 1 else 0


def launches(file):
    """Yields the kernel, compute capability and metrics of each launch, and the line behind it. Page raw has a row for each
    launch, a column for each metric and its units below the heading; page details a row for each metric."""
    table = rows(file)
    head = next((row for _, row in table if row[0] == "ID"), [])
    if "Kernel Name" not in head:
        raise Wrong("is no table of `ncu --csv`: there is no column 'Kernel Name'")
    details, units, last, number = "Metric Name" in head, {}, None, 0
    for number, row in table:
        o = dict(zip(head, row))
        if not o["ID"] and not details:
            units = o
            continue
        if last and not (details and o["ID"] == last["ID"]):
            yield *last["of"], number
            last = None
        if not last:
            last = {"ID": o["ID"], "of": (o.get("Kernel Name", ""), o.get("CC", ""), {})}
        found = {o["Metric Name"]: (o.get("Metric Value", ""), o.get("Metric Unit", ""))} if "Metric Name" in o else \
            {k: (v, units.get(k, "")) for k, v in o.items()}
        last["of"][2].update({k: number_of(v) * scale(unit) for k, (v, unit) in found.items() if k in KNOWN})
    if last:
        yield *last["of"], number


def read_launch(metrics, gpu):
    """Returns what a launch uses, and adds what is told of the GPU. Of two figures for the same the larger counts."""
    k = {}
    for metric, v in metrics.items():
        name, divisor = KNOWN[metric]
        if math.isnan(v):
            continue
        if name in GPU:
            gpu[name] = whole(v)
        elif divisor in (4, 100):
            k[name] = max(k.get(name, 0), min(v / divisor, 1))
        else:
            k[name] = whole(v) if name in NUMBERS else v / divisor
    # Of what DRAM can do, by what share of that its bytes are.
    if k.get("DRAM bytes"):
        k["L2 cache"] = k.get("L2 bytes", 0) / k["DRAM bytes"] * k.get("DRAM bandwidth", 0)
    return k


def profile(file):
    """Returns {"gpu", "kernels"} of a table: every kernel once for each size of launch, with the mean of its calls; those
    with most time first."""
    gpu, kernels, capability = dict.fromkeys(GPU, 0), {}, ""
    for name, capability, metrics, line in launches(file):
        k = read_launch(metrics, gpu)
        if not (k.get("us") and k.get("blocks") and k.get("threads")):
            raise Wrong(f"line {line}: '{name[:60]}' has no {REQUIRED} (--help has the metrics)")
        key = (name[:95], *(k.get(n, 0) for n in NUMBERS[:4]))
        kernels.setdefault(key, []).append(k)
        if len(kernels) > KERNELS_MAX:
            raise Wrong(f"more than {KERNELS_MAX} different launches")
    if not kernels:
        raise Wrong("has no kernels")
    threads, blocks, shared, l1 = LIMITS.get(capability, (0, 0, 0, 0))
    known = {"sm_threads": threads, "sm_blocks": blocks, "sm_registers": 65536 if threads else 0,
             "sm_shared_bytes": shared << 10, "sm_l1_bytes": l1 << 10}
    gpu = {n: v or known.get(n, 0) for n, v in gpu.items()}
    if not (gpu["sms"] and gpu["sm_threads"] and gpu["sm_blocks"]):
        raise Wrong("does not say what GPU it is from: add device__attribute_multiprocessor_count to --metrics")
    total = sum(k["us"] for calls in kernels.values() for k in calls)
    found = []
    for key, calls in kernels.items():
        def mean(name, calls=calls):
            return float(f"{sum(k.get(name, 0) for k in calls) / len(calls):.6g}")
        found.append({"name": key[0], "calls": len(calls), "us": mean("us"),
                      "share": float(f"{sum(k['us'] for k in calls) / total:.6g}"),
                      **{n: calls[0].get(n, 0) for n in NUMBERS}, "l1_hit": mean("l1_hit"), "l2_hit": mean("l2_hit"),
                      "use": {n: mean(n) for n in USES if mean(n) > 0}})
    return {"gpu": gpu, "kernels": sorted(found, key=lambda k: -k["share"])}


def text(s):
    """Replaces what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in s)


def show(p):
    print(f"{text(p['program'])}: {len(p['kernels'])} kernels, on a GPU of {p['gpu']['sms']} SMs")
    print(" TIME  ISSUE  DRAM L1HIT L2HIT   MOST       CALLS        US  BLOCKS THREADS KERNEL")
    for k in p["kernels"][:SHOWN]:
        use = {n: v for n, v in k["use"].items() if n != "L2 cache"}
        most = max(use, key=use.get, default="nothing")
        shares = (k["share"], use.get("issue slots", 0), use.get("DRAM bandwidth", 0), k["l1_hit"], k["l2_hit"], use.get(most, 0))
        print(" ".join(f"{100 * v:5.1f}" for v in shares), f"{most.split()[0]:6} {k['calls']:6} {k['us']:9.1f} {k['blocks']:7}",
              f"{k['threads']:7} {text(k['name'])}")
    if len(p["kernels"]) > SHOWN:
        print(f"and {len(p['kernels']) - SHOWN} more")


def percentage(s):
    v = float(s.removesuffix("%"))
    if not 0 < v <= 100:
        raise ValueError
    return v / 100


def from_table(path, name=None, busy=None):
    """Returns the profile of a program; busy: part of its time alone in which the GPU works. Raises Wrong or OSError."""
    with open(0 if path == "-" else path, encoding="utf-8", errors="replace") as f:
        p = profile(f)
    name = name or ("" if path == "-" else os.path.basename(path).split(".")[0]) or "program"
    return {"program": name, "gpu": p["gpu"], **({"busy": float(f"{busy:.6g}")} if busy else {}), "kernels": p["kernels"]}


def write(p, path):
    with open(1 if path == "-" else path, "w", encoding="utf-8", closefd=path != "-") as f:
        f.write(json.dumps(p, indent=1, ensure_ascii=False))


def main():
    command = "ncu --csv --page raw --metrics " + ",\\\n".join(METRICS) + \
        " \\\n--target-processes all --launch-count 500 python3 train.py >train.csv"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"{command}\n{os.path.basename(__file__)} train.csv -o train.json")
    parser.add_argument("table", help="made by ncu --csv, as below, page raw or details; -: standard input")
    parser.add_argument("--busy", type=percentage, metavar="PERCENT", help="of the program's time alone in which the GPU works "
                        "(nvidia-smi shows it as utilization): a profiler does not see gaps (default: 100%%)")
    parser.add_argument("--name", help="of the program (default: the file's)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the profile there; -: standard output")
    o = parser.parse_args()
    try:
        p = from_table(o.table, o.name, o.busy)
    except Wrong as e:
        parser.error(f"{o.table} {e}" if not str(e).startswith("line") else f"{o.table}, {e}")
    except OSError as e:
        parser.error(f"cannot open {o.table}: {e.strerror}")
    if o.output != "-":
        show(p)
    try:
        if o.output:
            write(p, o.output)
    except OSError as e:
        sys.exit(f"{parser.prog}: cannot write {o.output}: {e.strerror}")


if __name__ == "__main__":
    main()
