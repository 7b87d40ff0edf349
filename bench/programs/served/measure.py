#!/usr/bin/env python3
"""Measures what libcede's queues, leases and scopes gain in a server: server.cpp and server.py, each as people write
it (plain) and with libcede (cede), at several loads, one after the other at each load. Builds the C++ server with nvcc;
needs PyTorch, a GPU that nobody else uses, and no daemon. --sleep needs only a C++ compiler; its figures say nothing.

usage: measure.py --libcede build/libcede/libcede.so.0 --out FILE     prints a table; under 150 s
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import provenance  # noqa: E402

LIMIT_S = 148


class Commands:
    """Runs commands for LIMIT_S together; keeps what went wrong."""

    def __init__(self):
        self.end, self.failed = time.monotonic() + LIMIT_S, []

    def run(self, args, limit_s, **env):
        """What it printed, also if it failed or was ended."""
        limit_s = min(limit_s, self.end - time.monotonic())
        try:
            if limit_s <= 0:
                raise subprocess.TimeoutExpired(args, 0)
            done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit_s,
                                  env=dict(os.environ, **env), check=False)
            if done.returncode:
                self.failed.append(f"{args[0]}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
            return done.stdout.decode()
        except (subprocess.TimeoutExpired, OSError) as e:
            self.failed.append(f"{e} {(getattr(e, 'stderr', None) or b'').decode(errors='replace')[-2000:]}")
            return (getattr(e, "stdout", None) or b"").decode()

    def said(self, *args):
        """One line, or None."""
        try:
            return subprocess.run(args, capture_output=True, text=True, timeout=20, check=True).stdout.strip().splitlines()[-1]
        except (OSError, subprocess.SubprocessError, IndexError):
            return None


def cublas(folder):
    """Options for nvcc: the toolkit's, or the one that PyTorch brought along."""
    nvcc = shutil.which("nvcc")
    if nvcc and (pathlib.Path(nvcc).resolve().parents[1] / "include/cublas_v2.h").exists():
        return ["-lcublas"]
    for header in (h for p in sys.path for h in pathlib.Path(p).glob("nvidia/*/include/cublas_v2.h")):
        for library in header.parents[1].glob("lib/libcublas.so.*"):
            (folder / "libcublas.so").symlink_to(library)
            return ["-isystem", header.parent, "-lcublas", "-Xlinker", "-rpath", "-Xlinker", library.parent]
    return ["-lcublas"]


def build(commands, libcede, folder, sleep):
    out, top = folder / "server", HERE.parents[2]
    for name in ("libcede.so", "libcede.so.0"):
        (folder / name).symlink_to(libcede)
    compiler = ["c++", HERE / "work_sleep.cpp", "-pthread"] if sleep else \
        ["nvcc", HERE / "work_cuda.cu", "-arch=native", *cublas(folder)]
    commands.run([*compiler, HERE / "server.cpp", HERE / "load.cpp", "-O2", "-std=c++17", "-I", top / "include",
                  "-L", folder, "-lcede", "-Xlinker", "-rpath", "-Xlinker", folder, "-o", out], 60)
    return out


def parsed(text, language):
    """(times, runs) of what a server printed."""
    times, runs = {}, []
    for line in text.splitlines():
        try:
            part = json.loads(line)
        except ValueError:
            continue  # cut off
        if "mode" in part:
            runs.append(dict(part, language=language, bulk_alone=part["seconds"] / times["bulk_ms"] * 1000))
        else:
            times = part
    return times, runs


def show(runs):
    print("| | load | mode | small: in time/s | late | refused | p50 | p99 ms | large: in time/s | late | refused | p50 | p99 ms "
          "| in time of all | bulk, of alone |")
    print("|" + "---|" * 15)
    for r in runs:
        cells = [r["language"], r["load"], r["mode"]]
        for m in ("small", "large"):
            d = r[m]
            cells += [f"{d['answered'] / r['seconds']:.0f}"]
            cells += [f"{100 * d[k] / max(d['sent'], 1):.1f} %" for k in ("late", "refused")]
            cells += [f"{d['p50_ms']:.2f}", f"{d['p99_ms']:.2f}"]
        met, sent = (sum(r[m][k] for m in ("small", "large")) for k in ("answered", "sent"))
        cells += [f"{100 * met / max(sent, 1):.1f} %", f"{100 * r['bulk'] / r['bulk_alone']:.0f} %"]
        print("| " + " | ".join(str(c) for c in cells) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("--libcede", required=True, type=lambda a: pathlib.Path(a).resolve())
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.8, 1.2])
    p.add_argument("--modes", nargs="+", default=["plain", "cede"], choices=["plain", "priority", "cede"])
    p.add_argument("--languages", nargs="+", default=["C++", "Python"], choices=["C++", "Python"])
    p.add_argument("--server", type=pathlib.Path, help="the C++ server, if it is built already")
    p.add_argument("--sleep", action="store_true")
    args = p.parse_args()
    commands = Commands()
    out = {**provenance.head(), "host": platform.platform(), "cpus": os.cpu_count(), "clock": commands.said(
        "nvidia-smi", "--query-gpu=clocks.sm,memory.used", "--format=csv,noheader"), "nvcc": commands.said("nvcc", "--version"), "times": {}, "runs": [], "failed": commands.failed,
           "torch": None if args.sleep else commands.said(sys.executable, "-c", "import torch; print(torch.__version__)")}
    asked = [f"{mode}:{load}" for load in args.loads for mode in args.modes]
    limit_s = (args.seconds + 1) * len(asked) + 20
    with tempfile.TemporaryDirectory() as folder:
        for language in args.languages:
            if language == "C++":
                server = [args.server or build(commands, args.libcede, pathlib.Path(folder), args.sleep)]
            else:
                server = [sys.executable, HERE / "server.py"] + ["--sleep"] * args.sleep
            text = commands.run([*server, args.seconds, *asked], limit_s, CEDE_LIBRARY=str(args.libcede), CEDE_DIR=folder)
            out["times"][language], runs = parsed(text, language)
            out["runs"] += runs
            with open(args.out, "w", encoding="utf-8") as f:
                json.dump(out, f, indent=1)
    for why in commands.failed:
        print(why, file=sys.stderr)
    print(out["gpu"], out["torch"], *(f"{k}: {v}" for k, v in out["times"].items()), sep="\n")
    show(out["runs"])
    return 1 if commands.failed else 0


if __name__ == "__main__":
    sys.exit(main())
