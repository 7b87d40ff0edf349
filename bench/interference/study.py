#!/usr/bin/env python3
"""How well does an estimate from profiles of kernels tell which programs fit together on a GPU? Recomputes all predictions from
results that are checked in, and sets them against rules that look at nothing. No GPU is needed; numpy is.

    python3 bench/interference/study.py [--json FILE]

What is in this folder:

    model.py        the estimator: two kernels, or two programs, from what a profiler sees of each alone
    study.py        this: predictions against measurements, the constants, and what of the paper is reproduced
    paper.py        the paper's figures and experiments
    suite.py        measures the experiments on a GPU: bench_interference, in pairs; parts.py: with MPS, torch.mm, by SM
    bench.py        processes that suite.py asks to run kernels; torch_mm.py is one
    meet.c, gpu.c, chip.c, suite.h    bench_interference: its requests, on an NVIDIA GPU, on a timing model
    ncu_profile.py  makes a profile of a program from a table of Nsight Compute
    ../programs/advice.py    profiles programs, measures pairs of them, and writes the file that this reads

Data: `programs`, 18 pairs of real programs, each measured in turns, in one MPS server, and there with half of the SMs each
(advice.json); `suite`, pairs of kernels (interference.json); `paper`, the rows of paper.py.

All constants of the estimator were set with all of these data in view, and so was the form of the formulas. So that something is
left for a test, the ten that have no other source are also fitted anew, from neutral values, without five pairs of programs: those
whose names come first by SHA-256. They have been seen by no constant then, but by who chose the formulas; and each program of them is
in other pairs, too."""
import argparse
import dataclasses
import hashlib
import json
import pathlib
import statistics
import types

import numpy as np

import model
import paper

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
KEPT = 5
LONGER = 6  # SUITE_LONGER of suite.h
FITS = 1.7  # of kernels: so many times as fast together as one after the other
MODES = {"turns": "turns", "pool": "pool", "split": "halves"}  # advice -> what was measured
TIE = 0.05  # in the sum of both speeds

# Constant -> where it is from. The others are fitted: name -> a neutral value, the least and the most.
SOURCES = {"block_shared": "NVIDIA's programming guide", "l2_by_dram": "bandwidths of an H200, measured",
           "latency_l1": "measured by others, H100", "latency_l2": "measured by others, H100", "latency_dram": "set by hand",
           "least_use": "set by hand", "issue_least": "set by hand"}
NEUTRAL = {"issue_most": (1, 0.5, 1), "saturated": (1, 0.8, 1), "greed": (2, 1, 8), "sharp": (2, 1, 8), "sharper": (4, 1, 32),
           "together": (2, 1, 8), "l1_full": (0.8, 0.3, 1), "l1_empty": (1.2, 1.05, 2.5), "l2_full": (0.8, 0.3, 1),
           "l2_empty": (1.2, 1.05, 2.5)}


# ---- data ----

class Programs:
    """pairs: of advice.json, with the programs of their profiles."""

    def __init__(self, path, keep=lambda name: True):
        with open(path, encoding="utf-8") as f:
            measured = json.load(f)["pairs"]
        profiles = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((path.parent / "profiles").glob("*.json"))]
        self.gpu, named = model.gpu(profiles[0]["gpu"]), {p["program"]: model.program(p) for p in profiles}
        self.pairs = [(p, [named[n] for n in p["programs"]]) for p in measured if keep(name_of(p))]

    def error(self, c):
        """The mean difference of a speed in a pool, relative to alone."""
        told = [[1 / s for s in model.estimate_programs(self.gpu, pair, 0, c)[0]] for _, pair in self.pairs]
        return float(np.mean([np.abs(np.subtract(t, p["pool"])) for t, (p, _) in zip(told, self.pairs)]))


class Suite:
    """A file of suite.py, as arrays over its pairs. may: the durations allow that they fit."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.file = json.load(f)
        self.experiments, self.gpu = self.file["experiments"], model.gpu(self.file)
        self.pair = [model.kernels([e["kernels"][i] for e in self.experiments]) for i in (0, 1)]
        self.slowdown = np.array([e["slowdown"] for e in self.experiments]).T
        self.fits = np.array([e["speedup"] >= FITS for e in self.experiments])
        us = np.array([k.us for k in self.pair])
        self.may = us.sum(axis=0) >= FITS * us.max(axis=0)

    def estimate(self, c):
        return model.estimate_long_run(self.gpu, *self.pair, LONGER, c)

    def error(self, c):
        """The mean of |ln(predicted / measured)|, of slowdowns."""
        return float(np.mean(np.abs(np.log(np.array(self.estimate(c).slowdown) / self.slowdown))))

    def by_rule(self, rule, c):
        """Whether the two fit, of each pair."""
        if rule in ("estimator", "refitted"):
            return np.array(self.estimate(c).speedup) >= FITS
        return np.array([{"never": lambda e: False, "together": lambda e: True, "intensity": by_intensity,
                          "occupancy": self.by_occupancy}[rule](e) for e in self.experiments], bool)

    def by_occupancy(self, e):
        """There is room for the threads of both."""
        most = self.gpu.sm_threads
        return e["apart"] or sum(min(most, -(-k["blocks"] // self.gpu.sms) * k["threads"]) for k in e["kernels"]) <= most


def by_intensity(e):
    """One computes and the other moves data."""
    return (e["kernels"][0]["kernel"] == "copy") != (e["kernels"][1]["kernel"] == "copy")


class Paper:
    def __init__(self):
        self.groups = [[r for r in paper.ROWS if r.gpu is g] for g in (paper.H100, paper.RTX_3090)]
        self.kernels = [(model.gpu(rows[0].gpu), *(model.kernels([r.pair[i] for r in rows]) for i in (0, 1))) for rows in self.groups]

    def estimate(self, c):
        """(row, slowdown of the second, speedup, limit of the second) of each."""
        for rows, of_gpu in zip(self.groups, self.kernels):
            e = model.estimate(*of_gpu, c)
            for row, slowdown, speedup, limit in zip(rows, e.slowdown[1].tolist(), e.speedup.tolist(), e.limit[1]):
                yield row, slowdown, speedup, model.RESOURCES[limit]

    def error(self, c):
        return float(np.mean([abs(np.log(v / told)) for row, *got, _ in self.estimate(c)
                              for v, told in zip(got, (row.slowdown, row.speedup)) if told]))

    def right(self, rule, c):
        """How often a rule says rightly whether two fit."""
        fits = {"never": False, "together": True}
        return sum(fits.get(rule, paper.fits(row.slowdown and slowdown, speedup)) == paper.fits(row.slowdown, row.speedup)
                   for row, slowdown, speedup, _ in self.estimate(c))


def name_of(pair):
    return " + ".join(sorted(pair["programs"]))


def kept(pairs):
    """The names of the pairs that are kept for the test."""
    return sorted(map(name_of, pairs), key=lambda n: hashlib.sha256(n.encode()).hexdigest())[:KEPT]


# ---- fitting ----

def fit(sets):
    """Coordinate search from neutral values for the least sum of the data's errors."""
    c = dataclasses.replace(model.SHIPPED, **{k: float(v[0]) for k, v in NEUTRAL.items()})

    def error(c):
        return sum(s.error(c) for s in sets)
    best, step = error(c), 0.3
    while step > 0.01:
        before = best
        for name, (_, least, most) in NEUTRAL.items():
            for factor in (1 + step, 1 / (1 + step)):
                other = dataclasses.replace(c, **{name: float(min(most, max(least, getattr(c, name) * factor)))})
                if (e := error(other)) < best - 1e-9:
                    best, c = e, other
        step = step / 2 if best > before - 1e-3 else step
    return c


def bearing(sets, name):
    """The data that a constant changes: by more than 0.001 in the error, if it is a tenth larger or smaller."""
    out = []
    for what, s in sets.items():
        alone = s.error(model.SHIPPED)
        changed = [dataclasses.replace(model.SHIPPED, **{name: getattr(model.SHIPPED, name) * f}) for f in (1.1, 1 / 1.1)]
        if any(abs(s.error(c) - alone) > 1e-3 for c in changed):
            out.append(what)
    return out


# ---- scores ----

def of_programs(data, rule, c, only):
    """How a rule does: the mean sum of both speeds, how often one starves, and how often nothing better was there."""
    sums, starved, best = [], 0, 0
    for measured, pair in data.pairs:
        if only and name_of(measured) not in only:
            continue
        mode = {"never": "turns", "halves": "halves", "together": "pool"}.get(rule) or MODES[model.advise(data.gpu, pair, c)["advice"]]
        most = max(model.worth(measured[m]) for m in MODES.values())
        sums.append(sum(measured[mode]))
        starved += model.worth(measured[mode]) == 0
        best += model.worth(measured[mode]) >= most - TIE
    return {"pairs": len(sums), "sum": statistics.mean(sums), "starved": starved, "best": best}


def off_in_pool(data, c, only):
    """Of each speed in a pool, by how much it is off; the median."""
    off = [abs(1 / s - is_) for p, pair in data.pairs if not only or name_of(p) in only
           for s, is_ in zip(model.estimate_programs(data.gpu, pair, 0, c)[0], p["pool"])]
    return statistics.median(off)


RULES = {"never": "never together (turns)", "halves": "always halves of the SMs", "together": "always together (a pool)",
         "intensity": "by arithmetic intensity", "occupancy": "by occupancy", "estimator": "estimator, its constants",
         "refitted": "estimator, refitted without the five"}


def score(rule, d, c):
    out = {"rule": RULES[rule]}
    if rule not in ("intensity", "occupancy"):
        for what, only in (("programs", None), ("kept", d.kept)):
            out[what] = of_programs(d.programs, rule, c, only)
            if rule in ("estimator", "refitted"):
                out[what]["pool_speed_off"] = off_in_pool(d.programs, c, only)
    if rule != "halves":
        may = d.suite.may
        out["suite"] = {"pairs": int(may.sum()), "right": int((d.suite.by_rule(rule, c) == d.suite.fits)[may].sum())}
        if rule not in ("intensity", "occupancy"):
            out["paper"] = {"rows": len(paper.ROWS), "right": d.paper.right(rule, c)}
    return out


def study(advice, suite):
    """Everything, as it goes into the file."""
    d = types.SimpleNamespace(programs=Programs(advice), suite=Suite(suite), paper=Paper())
    d.kept = kept([p for p, _ in d.programs.pairs])
    fitted = fit([Programs(advice, lambda n: n not in d.kept), d.suite, d.paper])
    sets = {"paper": d.paper, "suite": d.suite, "programs": d.programs}
    constants = [{"name": f.name, "value": f.default, **({"refitted": getattr(fitted, f.name)} if f.name in NEUTRAL else {}),
                  "source": SOURCES.get(f.name, "fitted"), "changes": bearing(sets, f.name)} for f in dataclasses.fields(model.Constants)]
    return {"programs": relative(advice), "suite": relative(suite), "kept": d.kept,
            "rules": [score(r, d, fitted if r == "refitted" else model.SHIPPED) for r in RULES],
            "out_of_reach": [f"{e['experiment']} {e['x']:g}" for e, may in zip(d.suite.experiments, d.suite.may) if not may],
            "constants": constants, "errors": {what: [s.error(model.SHIPPED), s.error(fitted)] for what, s in sets.items()},
            "experiments": [{"section": section, "what": what, "figures": found, "reproduced": paper.verdict(found)}
                            for section, what, claim in paper.CLAIMS for found in [claim(d.suite.file)]]}


def relative(path):
    path = pathlib.Path(path).resolve()
    return str(path.relative_to(RESULTS.parents[1])) if path.is_relative_to(RESULTS.parents[1]) else str(path)


# ---- for a person ----

def cell(o):
    off = f"{o['pool_speed_off']:5.2f}" if o and "pool_speed_off" in o else f"{'-':>5}"
    return f"{o['sum']:6.2f} {o['starved']:5d} {o['best']:4d} {off}" if o else ""


def show(s):
    n, kept_n = s["rules"][0]["programs"]["pairs"], s["rules"][0]["kept"]["pairs"]
    suite_n, rows = s["rules"][0]["suite"]["pairs"], s["rules"][0]["paper"]["rows"]
    heads = "   sum starv best   off"
    print(f"{'':38}| {f'{n} pairs of programs':23} | {f'the {kept_n} kept for the test':23} | {f'{suite_n} pairs':10} | {rows} rows of\n"
          f"{'rule':38}| {heads:23} | {heads:23} | of kernels | the paper")
    for r in s["rules"]:
        right = [f"{r[k]['right']:2d} right" if k in r else "" for k in ("suite", "paper")]
        print(f"{r['rule']:38}| {cell(r.get('programs')):23} | {cell(r.get('kept')):23} | {right[0]:10} | {right[1]}".rstrip())
    print("sum: of both speeds, one alone is 1. starv: pairs of which one has less than a quarter of its speed. best: pairs for which no\n"
          "way that starves neither is 0.05 better. off: error of a speed predicted in a pool, the median. right: whether the two fit.")
    print(f"Kernels that cannot fit, as one takes too long, do not count: {', '.join(s['out_of_reach']) or 'none'}.")
    print(f"Kept: {'; '.join(s['kept'])}.\n")
    print(f"{'constant':13}{'value':>8}{'refitted':>9}  {'source':32} changes predictions of")
    for c in s["constants"]:
        refitted = f"{c['refitted']:9.3g}" if "refitted" in c else " " * 9
        source = "fitted: paper, suite, programs" if c["source"] == "fitted" else c["source"]
        print(f"{c['name']:13}{c['value']:8g}{refitted}  {source:32} {', '.join(c['changes']) or '-'}")
    print("errors, refitted: " + "; ".join(f"{k} {a:.3f}, {b:.3f}" for k, (a, b) in s["errors"].items()) + "\n")
    print("of the paper, each figure within a tenth, or as the text says:")
    for e in s["experiments"]:
        found = ", ".join(f"{v:.2f}" + ("" if isinstance(told, bool) else f" ({told:g})") for v, told in e["figures"] or [])
        print(f"  {e['section']:6}{e['what']:60}{e['reproduced']:12} {found}")


def newest(name):
    return sorted(RESULTS.glob(f"*/{name}"), key=lambda p: p.parent.name.split("-", 1)[1])[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    parser.add_argument("--advice", metavar="FILE", type=pathlib.Path, default=newest("advice.json"), help="pairs of programs")
    parser.add_argument("--suite", metavar="FILE", type=pathlib.Path, default=newest("interference.json"), help="pairs of kernels")
    o = parser.parse_args()
    s = study(o.advice, o.suite)
    show(s)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(s, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
