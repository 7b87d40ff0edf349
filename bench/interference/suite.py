#!/usr/bin/env python3
"""Measures the experiments of "Measuring GPU utilization one level deeper", sections 3 and 4, on the first NVIDIA GPU: two kernels
at the same time, each of which uses one part of the GPU, and what parts.py has. Sizes are parts of what the GPU has, so that the
same experiments are made of any. Prints what it finds and the paper's figures (H100); study.py predicts and judges.

Each part has its time. One that fails is named, and the others run; the status is 1 then. The GPU must not be used by others; the
parts mps, sixteenth and torch start an MPS server, and torch requires PyTorch."""
import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys
import time
import types

import bench
import parts

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
import provenance  # noqa: E402

STREAM = 130.0  # times L2: always from memory
PAIRS_S = 120  # of a part that is pairs of kernels

# A kernel's launch, in parts of the GPU: blocks for each SM; of a copy its arrays, both together, in L2s, or a block's in L1s.
Part = collections.namedtuple("Part", "kernel blocks threads l2 l1", defaults=(0, 0))
PRODUCT = Part("product", 128.0 / 132, 128)
PREFETCH = Part("prefetch", 128.0 / 132, 128)
SLEEP = Part("sleep", 1, 1024)


def copy(n, l2=STREAM):
    return Part("copy", n, 1024, l2)


def mul(ways, threads):
    return Part(f"mul{ways}", 1, threads)


def double(ways, threads=128):
    return Part(f"double{ways}", 1, threads)


PAIRS = "sleep", "L2", "DRAM", "L1", "issue", "FP64", "product", "pitfalls", "others"


class Experiment:
    """x: what varies. apart: half of the SMs for each. slowdown (of the second), speedup: in the paper, on an H100.
    unfamiliar: not in the paper."""

    def __init__(self, name, x, first, second=None, apart=False, slowdown=0, speedup=0, unfamiliar=False, driver_divides=False):
        self.name, self.x, self.pair, self.apart = name, x, (first, second or first), apart
        self.slowdown, self.speedup, self.unfamiliar, self.driver_divides = slowdown, speedup, unfamiliar, driver_divides
        self.part = "others" if unfamiliar else next((p for p in PAIRS if name.startswith(p)), "pitfalls")

    def launches(self, stage):
        for p in self.pair:
            blocks = max(1, math.floor(p.blocks * (2 * stage["part_sms"] if self.apart else stage["sms"]) + 0.5))
            blocks = min(blocks, 128) if p.kernel in (PRODUCT.kernel, PREFETCH.kernel) else blocks  # the matrices have no more
            yield {"kernel": p.kernel, "blocks": blocks, "threads": p.threads, "driver_divides": self.driver_divides,
                   "bytes": int(p.l2 * stage["l2_bytes"] + p.l1 * stage["sm"]["l1_bytes"] * blocks)}


EXPERIMENTS = [
    Experiment("sleep: blocks an SM", 1, SLEEP, speedup=2),
    Experiment("sleep: blocks an SM", 2, SLEEP._replace(blocks=2), speedup=1),
    *(Experiment("L2: array, of L2", size, copy(0.5, 2 * size), slowdown=1.79 if size == 0.45 else 0)
      for size in (0.04, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.75, 1, 1.5)),
    *(Experiment("DRAM: blocks an SM", n, copy(n), apart=True, slowdown=slowdown)
      for n, slowdown in ((0.25, 1.06), (0.5, 1.14), (0.75, 1.23), (1, 1.36))),
    *(Experiment("L1: array, of L1", size, Part("copy", 1, 64, 0, 2 * size))
      for size in (0.03125, 0.0625, 0.125, 0.1875, 0.25, 0.375, 0.4375, 0.5, 0.75, 1, 2)),
    *(Experiment("issue: ways, beside copy", ways, mul(ways, 128), copy(1), speedup=speedup)
      for ways, speedup in ((1, 1.915), (2, 1.896), (3, 1.893), (4, 1.65))),
    Experiment("issue: 4 ways, 256 threads", 4, mul(4, 256), copy(1), speedup=1.001),
    *(Experiment("FP64: ways", ways, double(ways), speedup=speedup)
      for ways, speedup in ((1, 1.988), (2, 1.977), (3, 1.356), (4, 1.018))),
    Experiment("product of 4 MB", 0, PRODUCT, slowdown=1.7, driver_divides=True),
    Experiment("product that prefetches", 0, PREFETCH, slowdown=1.7, driver_divides=True),
    Experiment("intensity says yes", 0, mul(1, 1024), copy(1), speedup=1),
    Experiment("occupancy says yes", 0, mul(4, 128), slowdown=1.85),
    Experiment("FP32 beside FP64", 0, mul(4, 128), double(4), unfamiliar=True),
    Experiment("FP32 beside FP64", 1, mul(2, 128), double(2), unfamiliar=True),
    Experiment("copy beside FP64", 0, copy(1), double(3, 256), unfamiliar=True),
    Experiment("copy from L2 beside copy", 0, copy(0.5, 0.5), copy(0.5), unfamiliar=True),
    Experiment("product beside copy", 0, PRODUCT, copy(1), unfamiliar=True, driver_divides=True),
    Experiment("product beside FP32", 0, PRODUCT, mul(2, 128), unfamiliar=True, driver_divides=True),
    Experiment("product beside sleep", 0, PRODUCT, SLEEP, unfamiliar=True, driver_divides=True),
    Experiment("as the driver divides SMs", 0, mul(1, 128), copy(1), unfamiliar=True, driver_divides=True),
    Experiment("half of the SMs each", 0, mul(4, 128), apart=True, unfamiliar=True),
]


# ---- the table ----

def head(stage):
    print(f"{stage['gpu']}: {stage['sms']} SMs, L2 {stage['l2_bytes'] / 2 ** 20:.4g} MB; a copy has {stage['dram_gbps']:.0f} GB/s from "
          f"DRAM, {stage['l2_gbps']:.0f} from L2{'' if stage['part_sms'] else '; no parts of the SMs'}")
    for words in (("", "", "ms, IPC alone", "slowdown", "both at once:"), ("", "", "", "", "times as fast")):
        print("%-26s %7s %-23s | %-17s | %-11s" % words)
    print("%-26s %7s %-23s | %5s %5s %5s | %5s %5s" % ("experiment", "x", "", "1st", "2nd", "H100", "is", "H100"))


def row(e, m):
    ms = [k["us"] / 1e3 for k in m["kernels"]]
    ipc = [k["use"].get("issue slots", 0) * 4 for k in m["kernels"]]
    slowdown, speedup = (f"{told:5.2f}" if told else " " * 5 for told in (e.slowdown, e.speedup))
    print(f"{e.name:26} {e.x:7.4g} {ms[0]:5.2f} {ipc[0]:5.2f} {ms[1]:5.2f} {ipc[1]:5.2f} | {m['slowdown'][0]:5.2f} {m['slowdown'][1]:5.2f} "
          f"{slowdown} | {m['speedup']:5.2f} {speedup}", flush=True)


def off_told(m):
    """The largest part by which a figure is off the paper's."""
    return max((abs(v / told - 1) for v, told in ((m["slowdown"][1], m["told_slowdown"]), (m["speedup"], m["told_speedup"])) if told),
               default=0)


class Suite:
    """What has been found. A process that failed is replaced."""

    def __init__(self, program, soft):
        self.program, self.soft, self.process = program, soft, None
        self.experiments, self.parts, self.failed = [], {}, False
        self.renew(60)
        self.stage = self.process.stage

    def renew(self, seconds):
        if not self.process:
            self.process = bench.Process([self.program, "soft" if self.soft else "gpu"], time.monotonic() + seconds)

    def close(self):
        if self.process:
            self.process.close()
        self.process = None

    def pairs(self, deadline, part):
        self.renew(60)
        self.process.deadline = deadline
        for e in EXPERIMENTS:
            if e.part == part and (self.stage["part_sms"] or not e.apart):
                m = self.process.ask({"launches": list(e.launches(self.stage)), "apart": e.apart})
                m["kernels"] = [{"kernel": p.kernel, **k} for p, k in zip(e.pair, m["kernels"])]
                row(e, m)
                self.experiments.append({"experiment": e.name, "x": e.x, "apart": e.apart, "unfamiliar": e.unfamiliar,
                                         "told_slowdown": e.slowdown, "told_speedup": e.speedup, **m})

    def run(self, part):
        began = time.monotonic()
        found = self.parts[part] = {}
        try:
            if part in PAIRS:
                self.pairs(began + PAIRS_S, part)
            else:
                run, seconds, _ = parts.PARTS[part]
                print(f"{part}:", flush=True)
                self.close()  # nothing else is on the GPU
                found["rows"] = run(types.SimpleNamespace(program=self.program, stage=self.stage, deadline=began + seconds))
        except bench.Failed as e:
            print(f"suite.py: {part}: {e}", file=sys.stderr)
            found["error"], self.failed = str(e), True
            self.close()
        found["seconds"] = round(time.monotonic() - began, 1)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**provenance.head(), "gpu": self.stage["gpu"], "driver": driver(self.soft),
                       **{k: self.stage[k] for k in ("sms", "part_sms", "sm", "l2_bytes", "dram_gbps", "l2_gbps")},
                       "experiments": self.experiments, "parts": self.parts}, f, indent=1)
            f.write("\n")


def driver(soft):
    if soft:
        return ""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"], timeout=20, check=True,
                              capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def main():
    every = [*PAIRS, *parts.PARTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/bench/bench_interference")
    parser.add_argument("--soft", action="store_true", help="on a timing model (chip.c) in place of the first NVIDIA GPU")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--only", metavar="PART", choices=every, action="append", help=f"may be repeated; of {', '.join(every)}")
    parser.add_argument("--within", type=float, default=math.inf, metavar="R",
                        help="status 1 if a figure of a pair is off the paper's by a larger part than R")
    o = parser.parse_args()
    chosen = [p for p in o.only or every if not (o.soft and p in parts.PARTS and parts.PARTS[p][2])]
    try:
        suite = Suite(o.program, o.soft)
    except bench.Failed as e:
        sys.exit(f"suite.py: {e}")
    head(suite.stage)
    for part in chosen:
        suite.run(part)
        if o.json:
            suite.write(o.json)  # what has been found stays if a later part takes the machine down
    suite.close()
    off = max(map(off_told, suite.experiments), default=0)
    if off > o.within:
        print(f"suite.py: a figure is off the paper's by {off * 100:.0f} %", file=sys.stderr)
    sys.exit(suite.failed or off > o.within)


if __name__ == "__main__":
    main()
