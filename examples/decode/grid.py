#!/usr/bin/env python3
"""Everything that docs/steps.md and docs/graphs.md have of the decoder, in one JSON object: all modes for several batch
sizes and amounts of scheduling work, products by the own kernel and by cuBLASLt, ways to bring inputs, steps of
lengths that vary, and what a launch costs (--graph-cost bench/bench_graph_cost). Prints the same as tables. What does
not fit into --seconds is left out, and named; so is what this machine lacks. --tables FILE prints the tables of
results that there are.

usage: grid.py [OPTION...] DECODE [-- OPTION OF DECODE...]
       grid.py --tables FILE"""
import argparse
import datetime
import glob
import json
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tables  # pylint: disable=wrong-import-position

PRODUCTS = "own", "library", "plain"
INPUTS = "copies", "copy", "kernel"
MODES = "naive", "eager", "graphs", "overlap", "all"


def modes(names):
    return [x for mode in names for x in ("--mode", mode)]


def numbers(text):
    return [int(n) for n in text.split(",")]


def options(own):
    parser = argparse.ArgumentParser(usage=__doc__.rsplit("usage: ", 1)[1])
    parser.add_argument("decode", nargs="?")
    parser.add_argument("--tables", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--batches", type=numbers, default=[1, 4, 16, 64, 256])
    parser.add_argument("--schedule-us", type=numbers, default=[0, 2000, 5000])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--together", type=int, default=64, help="requests whose tokens are compared with those alone")
    parser.add_argument("--cublaslt", help="libcublasLt.so of release 12 or 13 (default: the loader's, or PyTorch's)")
    parser.add_argument("--graph-cost", metavar="PROGRAM", help="bench_graph_cost")
    parser.add_argument("--out", default="decode.json")
    args = parser.parse_args(own)
    if not args.decode and not args.tables:
        parser.error("a decode is missing")
    return args


def driver():
    """The NVIDIA driver's release; "": there is none."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii") as f:
            return re.search(r"\s(\d+\.\d[\d.]*)\s", f.read()).group(1)
    except (OSError, AttributeError):
        return ""


def cublaslt():
    """Of PyTorch's packages or a toolkit, which the loader does not search. "": there is none."""
    found = [f for folder in sys.path for f in glob.glob(folder + "/nvidia/*/lib/libcublasLt.so.1[23]")]
    found += glob.glob("/usr/local/cuda*/lib64/libcublasLt.so.1[23]")
    return found[0] if found else ""


class Grid:
    def __init__(self, args, more):
        self.args, self.more, self.end = args, more, time.monotonic() + args.seconds
        self.left_out = []

    def run(self, command):
        """Its standard output; or None, with the reason kept."""
        left = self.end - time.monotonic()
        why = "no time was left"
        if left >= 1:
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
                if done.returncode == 0:
                    return done.stdout
                why = done.stderr.strip() or f"exit status {done.returncode}"
            except subprocess.TimeoutExpired:
                pass
            except OSError as e:
                why = str(e)
        self.left_out.append({"what": " ".join(command), "why": why})
        print("left out:", self.left_out[-1]["what"] + ":", why, flush=True)
        return None

    def decode(self, *given):
        out = self.run([self.args.decode, "--json", "--tokens", str(self.args.tokens), *map(str, given), *self.more])
        return out and json.loads(out)

    def company(self):
        """The same requests one after the other, and all at once."""
        n = self.args.together
        found = self.decode("--mode", "all", "--requests", n, "--batch", n, "--alone")
        return found and {"requests": n, "differ": found["runs"][0]["differ_from_alone"]}

    def products(self):
        """Of each: what it costs, and how many requests get other tokens in company than alone."""
        file = ["--cublaslt", self.args.cublaslt] if self.args.cublaslt else []
        n = self.args.together
        cells = [self.decode("--batch", n, "--requests", 2 * n, "--alone", "--products", how, *(how != "own" and file or []),
                             *modes(("eager", "graphs", "all"))) for how in PRODUCTS]
        return [c for c in cells if c]

    def inputs(self):
        n = self.args.together
        cells = [self.decode("--batch", n, "--requests", 4 * n, "--mode", "graphs", "--mode", "all", "--inputs", how, *spin)
                 for how in INPUTS for spin in ((), ("--spin",))]
        return [c for c in cells if c]

    def cell(self, batch, schedule_us):
        found = self.decode("--batch", batch, "--requests", max(8, 2 * batch), "--schedule-us", schedule_us, *modes(MODES))
        if found:
            add_derived(found)
            tables.progress(found)
        return found

    def prefill(self):
        """Steps of lengths that vary; the modes are not what counts here."""
        found = self.decode("--mode", "eager", "--requests", 1, "--batch", max(self.args.batches), "--prefill", 200)
        return found and found["prefill"]

    def graph_cost(self):
        out = self.run([self.args.graph_cost]) if self.args.graph_cost else None
        return out and json.loads(out)

    def all(self):
        result = {"gpu": "", "driver": driver(), "date": datetime.date.today().isoformat(),
                  "shows": "examples/decode/grid.py: a decoder in five modes", "company": self.company(),
                  "graph_cost": self.graph_cost(), "products": self.products(), "inputs": self.inputs()}
        result["prefill"] = self.prefill()
        cells = [self.cell(batch, us) for us in self.args.schedule_us for batch in self.args.batches]
        result["cells"] = [c for c in cells if c]
        result["left_out"] = self.left_out
        result["gpu"] = result["cells"][0]["device"] if result["cells"] else ""
        return result


def add_derived(cell):
    """Of the whole time, what the GPU would not have needed: graphs leave no gaps between kernels."""
    run = {r["mode"]: r for r in cell["runs"]}
    for r in cell["runs"] if "graphs" in run and cell["device"] != "CPU" else []:
        r["gpu_idle_by_graphs"] = round(1 - min(1, run["graphs"]["gpu_us"] / r["step_us"]), 4)
    if run.get("graphs", {}).get("captures") and "eager" in run:
        saved = run["eager"]["launch_p50_us"] - run["graphs"]["launch_p50_us"]
        each = run["graphs"]["capture_us"] / run["graphs"]["captures"]
        cell["graph_pays_after_launches"] = round(each / saved, 1) if saved > 0 else None


def main():
    own = sys.argv[1:]
    more = own[own.index("--") + 1:] if "--" in own else []
    args = options(own[:len(own) - len(more) - ("--" in own)])
    if args.tables:
        with open(args.tables, encoding="ascii") as f:
            tables.show(json.load(f))
        return 0
    args.cublaslt = args.cublaslt or cublaslt()
    result = Grid(args, more).all()
    with open(args.out, "w", encoding="ascii") as f:
        json.dump(result, f, indent=1)
    tables.show(result)
    return not result["company"] or result["company"]["differ"] > 0 or bool(result["left_out"])


if __name__ == "__main__":
    sys.exit(main())
