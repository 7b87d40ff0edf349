#!/usr/bin/env python3
"""Runs decode in all modes for several batch sizes and amounts of scheduling work, writes one JSON object and
prints a table. What does not fit into --seconds is left out, and named.

usage: grid.py [OPTION...] DECODE [-- OPTION OF DECODE...]"""
import argparse
import json
import subprocess
import sys
import time


def numbers(text):
    return [int(n) for n in text.split(",")]


parser = argparse.ArgumentParser(usage=__doc__.rsplit("usage: ", 1)[1])
parser.add_argument("decode")
parser.add_argument("--seconds", type=float, default=300)
parser.add_argument("--batches", type=numbers, default=[1, 8, 64, 256])
parser.add_argument("--schedule-us", type=numbers, default=[0, 2000, 5000])
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--together", type=int, default=64, help="requests whose tokens are compared with those alone")
parser.add_argument("--out", default="decode.json")
own = sys.argv[1:]
more = own[own.index("--") + 1:] if "--" in own else []
args = parser.parse_args(own[:len(own) - len(more) - ("--" in own)])
end = time.monotonic() + args.seconds


def decode(*options):
    """What it prints; or a text that says why there is nothing."""
    left = end - time.monotonic()
    if left < 1:
        return "no time was left"
    try:
        done = subprocess.run([args.decode, "--json", "--tokens", str(args.tokens), *map(str, options), *more],
                              capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return "no time was left"
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def company():
    """The same requests one after the other, and all at once."""
    runs = [decode("--mode", "all", "--requests", args.together, "--batch", batch) for batch in (1, args.together)]
    if any(isinstance(r, str) for r in runs):
        return {"error": next(r for r in runs if isinstance(r, str))}
    digests = [r["runs"][0]["digest"] for r in runs]
    return {"requests": args.together, "digests": digests, "same": digests[0] == digests[1]}


def prefill():
    """Steps of lengths that vary; the modes are not what counts here."""
    found = decode("--mode", "eager", "--requests", 1, "--batch", max(args.batches), "--prefill", 200)
    return found if isinstance(found, str) else found["prefill"]


def add_derived(cell):
    """Of the whole time, what the GPU would not have needed: graphs leave no gaps between kernels."""
    run = {r["mode"]: r for r in cell["runs"]}
    for r in cell["runs"] if "graphs" in run and cell["device"] != "CPU" else []:
        r["gpu_idle_by_graphs"] = round(1 - min(1, run["graphs"]["gpu_us"] / r["step_us"]), 4)
    if run.get("graphs", {}).get("captures") and "eager" in run:
        saved = run["eager"]["launch_p50_us"] - run["graphs"]["launch_p50_us"]
        each = run["graphs"]["capture_us"] / run["graphs"]["captures"]
        cell["graph_pays_after_launches"] = round(each / saved, 1) if saved > 0 else None


def show(cell):
    for r in cell["runs"]:
        print(f"{cell['batch']:5} {cell['schedule_us'] / 1000:8.1f} {r['mode']:8}{r['tokens_per_s']:11.1f}"
              f"{r['step_us']:10.1f}{r['cpu_us']:10.1f}{r['gpu_us']:10.1f}{r['launch_p50_us']:10.1f}"
              f"{r['launch_p99_us']:10.1f}{100 * r['hidden']:9.1f}{100 * r['gpu_idle']:7.1f}"
              f"{100 * r.get('gpu_idle_by_graphs', 0):10.1f}", flush=True)


result = {"company": company(), "cells": [], "left_out": []}
print(f"tokens alone and with {args.together} at once:", result["company"].get("error") or
      ("the same" if result["company"]["same"] else "DIFFERENT"))
print("BATCH SCHED MS MODE       TOKENS/S   STEP US    CPU US    GPU US LAUNCH 50 LAUNCH 99  HIDDEN%  IDLE%  BY GRAPHS")
for schedule_us in args.schedule_us:
    for batch in args.batches:
        found = decode("--batch", batch, "--requests", max(8, 2 * batch), "--schedule-us", schedule_us)
        if isinstance(found, str):
            result["left_out"].append({"batch": batch, "schedule_us": schedule_us, "why": found})
            print(f"{batch:5} {schedule_us / 1000:8.1f} left out: {found}", flush=True)
            continue
        add_derived(found)
        result["cells"].append(found)
        show(found)
result["prefill"] = prefill()
print("steps of lengths that vary:", "; ".join(f"{p['way']} {p['step_us']} us" for p in result["prefill"])
      if isinstance(result["prefill"], list) else result["prefill"])
with open(args.out, "w", encoding="ascii") as f:
    json.dump(result, f, indent=1)
sys.exit(not result["company"].get("same") or bool(result["left_out"]))
