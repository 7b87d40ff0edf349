#!/usr/bin/env python3
"""Two kernels at the same time on one GPU, each of which uses one part of it, against what src/plan/interference.h predicts:
the experiments of "Measuring GPU utilization one level deeper", sections 3 and 4. Prints a table. Sizes are parts of what the
GPU has, so that the same experiments are made of any."""
import argparse
import collections
import json
import math
import subprocess
import sys

STREAM = 130.0  # times L2: always from memory
RIGHT = 0.1  # a prediction that is off by less is right (requirement N11)

# A kernel's launch, in parts of the GPU: blocks for each SM; of a copy its arrays, both together, in L2s, or a block's in L1s.
Part = collections.namedtuple("Part", "kernel blocks threads l2 l1", defaults=(0, 0))
PRODUCT = Part("product", 128.0 / 132, 128)
SLEEP = Part("sleep", 1, 1024)


def copy(n, l2=STREAM):
    return Part("copy", n, 1024, l2)


def mul(ways, threads):
    return Part(f"mul{ways}", 1, threads)


def double(ways, threads=128):
    return Part(f"double{ways}", 1, threads)


class Experiment:
    """x: what varies. apart: half of the SMs for each. slowdown (of the second), speedup: in the reference, on an H100.
    unfamiliar: not in the reference, nor looked at when the estimator was made."""

    def __init__(self, name, x, first, second=None, apart=False, slowdown=0, speedup=0, unfamiliar=False, driver_divides=False):
        self.name, self.x, self.pair, self.apart = name, x, (first, second or first), apart
        self.slowdown, self.speedup, self.unfamiliar, self.driver_divides = slowdown, speedup, unfamiliar, driver_divides

    def launches(self, stage):
        for p in self.pair:
            blocks = max(1, math.floor(p.blocks * (2 * stage["part_sms"] if self.apart else stage["sms"]) + 0.5))
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


# ---- simpler rules: may the two run together? ----

def fits(speedup):
    return speedup >= 1.7


def fits_by_intensity(e):
    """One computes and the other moves data."""
    return (e.pair[0].kernel == "copy") != (e.pair[1].kernel == "copy")


def fits_by_occupancy(e, stage):
    """There is room for the threads of both."""
    most = stage["sm"]["threads"]
    return e.apart or sum(min(most, math.ceil(p.blocks) * p.threads) for p in e.pair) <= most


class Score:
    def __init__(self):
        self.counts = dict.fromkeys(("pairs", "within_a_tenth", "fits_right", "by_intensity", "by_occupancy"), 0)
        self.off_told = 0.0  # the largest part by which a measured figure is off the reference's

    def add(self, e, stage, m):
        truth = fits(m["speedup"])
        for is_, told in ((m["slowdown"][1], e.slowdown), (m["speedup"], e.speedup)):
            if told:
                self.off_told = max(self.off_told, abs(is_ / told - 1))
        for what, right in (("pairs", True),
                            ("within_a_tenth", all(abs(p / s - 1) <= RIGHT for p, s in zip(m["predicted_slowdown"], m["slowdown"]))),
                            ("fits_right", fits(m["predicted_speedup"]) == truth), ("by_intensity", fits_by_intensity(e) == truth),
                            ("by_occupancy", fits_by_occupancy(e, stage) == truth)):
            self.counts[what] += right

    def show(self, which):
        c = self.counts
        print(f"{which}: {c['pairs']} pairs, both within a tenth in {c['within_a_tenth']}; whether they fit: right {c['fits_right']}, "
              f"by arithmetic intensity {c['by_intensity']}, by occupancy {c['by_occupancy']}")

    def good(self, within):
        """Tells whether the figures are what they should be."""
        c = self.counts
        if self.off_told <= within and c["fits_right"] >= max(c["by_intensity"], c["by_occupancy"]):
            return True
        print(f"suite.py: a figure is off the reference's by {self.off_told * 100:.0f} %, or a simpler rule does better",
              file=sys.stderr)
        return False


# ---- the table ----

def head(stage):
    print(f"{stage['gpu']}: {stage['sms']} SMs, L2 {stage['l2_bytes'] / 2 ** 20:.4g} MB; a copy has {stage['dram_gbps']:.0f} GB/s from "
          f"DRAM, {stage['l2_gbps']:.0f} from L2{'' if stage['part_sms'] else '; no parts of the SMs'}")
    for words in (("", "", "IPC of each", "slowdown of", "of the other", "both at once:"), ("", "", "", "the first", "", "times as fast")):
        print("%-26s %7s %-11s | %-11s | %-17s | %-17s" % words)
    print("%-26s %7s %-11s | %5s %5s | %5s %5s %5s | %5s %5s %5s  %s" % (
        "experiment", "x", "", "is", "pred.", "is", "pred.", "H100", "is", "pred.", "H100", "predicted limit"))


def row(e, m):
    ipc = [k["use"].get("issue slots", 0) * 4 for k in m["kernels"]]
    (first, second), (p_first, p_second) = m["slowdown"], m["predicted_slowdown"]
    slowdown, speedup = (f"{told:5.2f}" if told else " " * 5 for told in (e.slowdown, e.speedup))
    print(f"{e.name:26} {e.x:7.4g} {ipc[0]:5.2f} {ipc[1]:5.2f} | {first:5.2f} {p_first:5.2f} | {second:5.2f} {p_second:5.2f} {slowdown} | "
          f"{m['speedup']:5.2f} {m['predicted_speedup']:5.2f} {speedup}  {m['limits'][1]}", flush=True)


class Meeting:
    """bench_interference, which runs pairs, or predicts again what a file has as measured."""

    def __init__(self, program, soft, again):
        self.process = subprocess.Popen([program, "again" if again else "soft" if soft else "gpu"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.measured = None
        if again:
            with open(again, encoding="utf-8") as f:
                self.stage = json.load(f)
            self.measured = iter(self.stage["experiments"])
            self.put(self.stage)
        else:
            self.stage = self.get()

    def put(self, o):
        print(json.dumps(o), file=self.process.stdin, flush=True)

    def get(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(self.process.wait() or 1)  # it has said why
        return json.loads(line)

    def meet(self, e):
        launches = list(e.launches(self.stage))
        had = next(self.measured, {"kernels": []}) if self.measured else {}
        if self.measured and [k["kernel"] for k in had["kernels"]] != [p.kernel for p in e.pair]:
            sys.exit(f"suite.py: in place of '{e.name}' the file has another experiment")
        self.put({"kernels": had["kernels"]} if self.measured else {"launches": launches, "apart": e.apart})
        m = self.get()
        m["kernels"] = [{"kernel": p.kernel, **k} for p, k in zip(e.pair, m["kernels"])]
        return {**m, **{k: had[k] for k in ("slowdown", "covered", "speedup") if k in had}}

    def close(self):
        self.process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/bench/bench_interference")
    parser.add_argument("--soft", action="store_true", help="on a timing model (chip.c) in place of the first NVIDIA GPU")
    parser.add_argument("--again", metavar="FILE", help="predict anew what a file of --json has as measured")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--only", metavar="NAME", default="", help="experiments whose name begins so")
    parser.add_argument("--within", type=float, default=math.inf, metavar="R",
                        help="status 1 if a figure is off the reference's by a larger part than R, or if the estimator tells less "
                        "often than a simpler rule whether two fit")
    o = parser.parse_args()
    meeting = Meeting(o.program, o.soft, o.again)
    stage = meeting.stage
    there = [e for e in EXPERIMENTS if stage["part_sms"] or not e.apart]
    chosen = [e for e in there if e.name.startswith(o.only)]
    if not chosen:
        names = "\n  ".join(dict.fromkeys(e.name for e in there))
        parser.error(f"--only {o.only}: no experiment here has a name that begins so; use one of\n  {names}")
    head(stage)
    scores, found = {False: Score(), True: Score()}, []
    for e in chosen:
        m = meeting.meet(e)
        row(e, m)
        scores[e.unfamiliar].add(e, stage, m)
        found.append({"experiment": e.name, "x": e.x, "apart": e.apart, "unfamiliar": e.unfamiliar, "told_slowdown": e.slowdown,
                      "told_speedup": e.speedup, **m})
    meeting.close()
    scores[False].show("of the reference")
    scores[True].show("others")
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({**{k: stage[k] for k in ("gpu", "sms", "part_sms", "sm", "l2_bytes", "dram_gbps", "l2_gbps")},
                       "reference": scores[False].counts, "others": scores[True].counts, "experiments": found}, f, indent=1)
    sys.exit(not all([s.good(o.within) for s in scores.values()]))


if __name__ == "__main__":
    main()
