"""The parts of the suite that are no pairs of kernels in one process: what the paper did with MPS, with torch.mm and with
counters of each SM; and one that is arithmetic only. Each is a function of the suite's context that returns rows for the file."""
import os
import statistics
import sys

import bench
import ncu_profile

COPY_L2S = 130  # both arrays of a copy, in L2s: always from memory
SECONDS = 1.0  # of a measurement
SIXTEENTH = 6.25  # percent


def laps(kernel, blocks, threads, size=0):
    return {"laps": {"kernel": kernel, "blocks": blocks, "threads": threads, "bytes": size}}


def process(context, env):
    return bench.Process([context.program, "gpu"], context.deadline, env)


def show(row):
    print("  " + "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return row


def sixteenth(context):
    """Section 3, pitfall 2: a kernel of 6.25 % occupancy on 6.25 % of the SMs, which takes 15.8 times as long there."""
    request = laps("mul4", context.stage["sms"], 128)
    with bench.Server() as server:
        with process(context, server.env()) as whole:
            answer, fixed = bench.alone(whole, request, SECONDS)
        with process(context, server.env(SIXTEENTH)) as one, process(context, server.env(SIXTEENTH)) as other:
            part = one.ask({**fixed, "seconds": SECONDS})
            both, covered = bench.beside(one, fixed, other, fixed, SECONDS)
    all_ms = bench.lap_ms(answer)
    return [show({"kernel": "mul4", "sms": len(part["sms"]), "of": context.stage["sms"], "slowdown": bench.lap_ms(part) / all_ms,
                  "slowdown_both": both / all_ms, "covered": covered, "told_slowdown": 15.8})]


def mps(context):
    """Table 2: two processes of one MPS server that copy, each with half of the SMs."""
    rows, stage = [], context.stage
    with bench.Server() as server:
        with process(context, server.env(50)) as one, process(context, server.env(50)) as other:
            for part, told in ((0.25, 1.06), (0.5, 1.14), (0.75, 1.23), (1, 1.36)):
                request = laps("copy", round(part * stage["sms"]), 1024, COPY_L2S * stage["l2_bytes"])
                answers, slowdown, covered = bench.slowdowns((one, other), (request, request), SECONDS)
                traffic = answers[0]["kernel"]["use"].get("L2 cache", 0) * one.stage["dram_gbps"] / stage["dram_gbps"]
                rows.append(show({"blocks": round(part * stage["sms"]), "sms": [len(a["sms"]) for a in answers],
                                  "DRAM bandwidth": traffic, "slowdown": slowdown, "covered": covered, "told_slowdown": told}))
    return rows


def torch_mm(context):
    """Section 4.3: torch.mm while a second one runs, which takes 1.7 times as long; and while sleeping blocks are there, which
    take room and hardly anything else (not in the paper)."""
    sleep = laps("sleep", context.stage["sms"], 1024)
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_mm.py")]
    rows = []
    with bench.Server() as server:
        with bench.Process(command, context.deadline, server.env()) as mm:
            with bench.Process(command, context.deadline, server.env()) as other:
                _, slowdown, covered = bench.slowdowns((mm, other), ({}, {}), SECONDS)
                rows.append(show({"pair": ["torch.mm", "torch.mm"], "slowdown": slowdown, "covered": covered, "told_slowdown": 1.7}))
            with process(context, server.env()) as other:
                _, slowdown, covered = bench.slowdowns((mm, other), ({}, sleep), SECONDS)
                rows.append(show({"pair": ["torch.mm", "sleep"], "slowdown": slowdown, "covered": covered, "told_slowdown": 0}))
    return rows


def distribution(context):
    """Section 2.2, workload distribution: blocks of each SM and how long it had any, by the SM number that each block reads. An SM
    without blocks counts as 0, as in sm__cycles_active."""
    rows, sms = [], context.stage["sms"]
    with process(context, None) as one:
        for kernel, blocks, threads in (("mul4", sms // 2, 128), ("mul4", sms, 128), ("mul4", sms + 1, 128), ("sleep", 2 * sms, 1024),
                                        ("sleep", 2 * sms + 1, 1024), ("sleep", 3 * sms, 1024), ("prefetch", 128, 128)):
            answer = one.ask({**laps(kernel, blocks, threads), "seconds": 0.1, "steps": 0})
            idle = sms - len(answer["sms"])
            had = [0] * idle + [n for _, n, _ in answer["sms"]]
            busy = [0.0] * idle + [ms for _, _, ms in answer["sms"]]
            rows.append(show({"kernel": kernel, "blocks": blocks, "threads": threads, "sms": sms - idle,
                              "blocks_min_max": [min(had), max(had)], "busy_ms_min": min(busy), "busy_ms_mean": statistics.mean(busy),
                              "busy_ms_max": max(busy)}))
    return rows


def limits(_context):
    """Section 4.1.1 on chips that have less room, by arithmetic only, nothing runs: blocks that an SM holds of a kernel, and
    whether one block of each of two copies of the kernel has room. By the limits of NVIDIA's programming guide; a block takes 1 KB
    of shared memory for the system."""
    rows = []
    for chip, capability in (("RTX 3090", "8.6"), ("RTX 4090", "8.9"), ("RTX 5090", "12.0"), ("H100", "9.0")):
        threads, blocks, shared_kb, _ = ncu_profile.LIMITS[capability]
        for kernel, of_block, registers, shared in (("1024 threads", 1024, 32, 0), ("128 threads, 13 KB", 128, 127, 13),
                                                    ("256 threads, 48 KB", 256, 64, 48), ("256 threads, 99 KB", 256, 64, 99)):
            held = min(threads // of_block, blocks, 65536 // (of_block * registers), shared_kb // (shared + 1))
            rows.append(show({"chip": chip, "kernel": kernel, "blocks": held, "two_have_room": held >= 2, "by": "arithmetic"}))
    return rows


# Name -> what runs, in how many seconds at most, and whether it requires a GPU.
PARTS = {"sixteenth": (sixteenth, 60, True), "mps": (mps, 120, True), "torch": (torch_mm, 180, True),
         "distribution": (distribution, 60, True), "limits": (limits, 5, False)}
