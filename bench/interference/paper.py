"""What "Measuring GPU utilization one level deeper" (arXiv 2501.16909) measured on an H100 and an RTX 3090, sections 3 and 4: every
number of its tables and of the text, with the kernels as far as it describes them; and its experiments, to be found in a file of
suite.py."""
import collections

H100 = {"sms": 132, "sm_threads": 2048, "sm_blocks": 32, "sm_registers": 65536, "sm_shared_bytes": 233472, "sm_l1_bytes": 256 << 10,
        "l2_bytes": 50 << 20}
RTX_3090 = {"sms": 82, "sm_threads": 1536, "sm_blocks": 16, "sm_registers": 65536, "sm_l1_bytes": 128 << 10, "l2_bytes": 6 << 20}


def kernel(blocks, threads, ipc, **fields):
    """ipc: of an SM, which has four schedulers."""
    use = {"issue slots": ipc / 4, **fields.pop("use", {})}
    return {"blocks": blocks, "threads": threads, "us": 1, "use": use, **fields}


def sleep(blocks):
    return kernel(blocks, 1024, 0.2)


def mul(threads, ipc):
    return kernel(132, threads, ipc)


def mul64(ipc, percent):
    return kernel(132, 128, ipc, use={"FP64 pipe": percent / 100})


def apart(blocks, percent):
    """A copy on SMs of its own."""
    return kernel(blocks, 1024, 0.61, use={"DRAM bandwidth": percent / 100})


def copy_l2(kb, hit):
    """Arrays of so many KB that are copied again and again; hit: in L2 alone, on an H200."""
    return kernel(66, 1024, 0.61, l2_hit=hit, l2_bytes=2000 * kb, use={"L2 cache": 0.9, "DRAM bandwidth": 0.9 * (1 - hit)})


def copy_l1(kb):
    return kernel(132, 64, 0.1, l1_hit=1, l2_hit=1, l1_bytes=2000 * kb)


COPY = kernel(132, 1024, 0.61, use={"DRAM bandwidth": 0.5})

# slowdown of the second, speedup: 0: not told. limit: the resource that the paper names.
Row = collections.namedtuple("Row", "name gpu pair slowdown speedup limit")


def both(name, k, slowdown, speedup, limit, gpu=H100):  # pylint: disable=too-many-arguments
    return Row(name, gpu, (k, k), slowdown, speedup, limit)


ROWS = [
    both("sleeping, 132 blocks", sleep(132), 1, 2, "nothing"),
    both("sleeping, 264 blocks", sleep(264), 2, 1, "room for blocks"),
    both("L2: arrays of 22.5 MB", copy_l2(22500, 0.24), 1.79, 0, "L2 cache"),
    *(both(f"DRAM: {told} blocks", apart(blocks, percent), slowdown, 0, "DRAM bandwidth")
      for told, blocks, percent, slowdown in ((33, 33, 21.33, 1.06), (66, 66, 40.12, 1.14), (99, 66, 55.06, 1.23), (132, 66, 69.18, 1.36))),
    *(both(f"DRAM: {told} blocks", apart(blocks, percent), slowdown, 0, "DRAM bandwidth", RTX_3090)
      for told, blocks, percent, slowdown in ((10, 10, 24.48, 1.06), (20, 20, 45.34, 1.27), (40, 40, 71.96, 1.61), (80, 41, 90.69, 1.91))),
    *(Row(f"issue: IPC {ipc:g}", H100, (mul(threads, ipc), COPY), 0, speedup, limit)
      for threads, ipc, speedup, limit in ((128, 1.08, 1.915, "nothing"), (128, 2.06, 1.896, "nothing"), (128, 2.9, 1.893, "nothing"),
                                           (128, 3.45, 1.65, "issue slots"), (256, 4, 1.001, "issue slots"))),
    *(both(f"FP64: {percent:.0f} %", mul64(ipc, percent), 0, speedup, limit)
      for ipc, percent, speedup, limit in ((0.51, 24.96, 1.988, "nothing"), (1.02, 49.32, 1.977, "nothing"),
                                           (1.53, 72.99, 1.356, "FP64 pipe"), (2.01, 96.59, 1.018, "FP64 pipe"))),
    both("product of 4 MB", kernel(128, 128, 3, use={"FP32 pipe": 0.6}), 1.7, 0, "issue slots"),
    Row("intensity says yes", H100, (mul(1024, 4), COPY), 0, 1, "issue slots"),
    both("occupancy says yes", mul(128, 3.45), 1.85, 0, "issue slots"),
]


def fits(slowdown, speedup):
    """Whether the two could run together: 10 % slower at most, or 1.8 times as fast as one after the other."""
    return slowdown <= 1.1 if slowdown else speedup >= 1.8


# ---- is an experiment reproduced? ----

def figure(e):
    """What a suite found that the paper has a figure for: two of the same kernel are both told."""
    if e["told_speedup"]:
        return e["speedup"], e["told_speedup"]
    same = e["kernels"][0]["kernel"] == e["kernels"][1]["kernel"]
    return sum(e["slowdown"]) / 2 if same else e["slowdown"][1], e["told_slowdown"]


def figures(suite, name):
    return [figure(e) for e in suite["experiments"] if e["experiment"].startswith(name) and (e["told_slowdown"] or e["told_speedup"])]


def of_part(suite, part, *keys):
    """None: it did not run."""
    rows = suite.get("parts", {}).get(part, {}).get("rows")
    if rows is None:
        return None
    found = []
    for row in rows:
        for v in (row[k] for k in keys if row.get("told_slowdown")):
            found.append((sum(v) / len(v) if isinstance(v, list) else v, row["told_slowdown"]))
    return found


def shape(suite, name, where, key, right):
    """Whether all experiments of a kind whose x is so have a figure that is right: [(figure, "")], or None without any."""
    found = [e[key][1] if key == "slowdown" else e[key] for e in suite["experiments"] if e["experiment"].startswith(name) and where(e["x"])]
    return [(v, right(v)) for v in found]


# Section, what, a function of the suite's file: [(found, told)], told a figure, or whether it is as the text says. None: it did not run.
CLAIMS = [
    ("2.2", "workload distribution: blocks of each SM", lambda s: None if of_part(s, "distribution") is None else []),
    ("3", "pitfall 1: compute and copy, one after the other is as fast", lambda s: figures(s, "intensity says yes")),
    ("3", "pitfall 2: 6.25 % of the SMs", lambda s: of_part(s, "sixteenth", "slowdown", "slowdown_both")),
    ("3", "pitfall 2: two of 6.25 % occupancy on all SMs", lambda s: figures(s, "occupancy says yes")),
    ("4.1.1", "sleeping blocks: both fit, or neither", lambda s: figures(s, "sleep")),
    ("4.1.2", "figure 2: slowdown at 22.5 MB of 50 MB of L2", lambda s: figures(s, "L2")),
    ("4.1.2", "figure 2: small arrays, 10 % slower at most", lambda s: shape(s, "L2", lambda x: x <= 0.1, "slowdown", lambda v: v <= 1.1)),
    ("4.1.3", "table 2: halves of the SMs, streams of one process", lambda s: figures(s, "DRAM")),
    ("4.1.3", "table 2: halves of the SMs, two MPS processes", lambda s: of_part(s, "mps", "slowdown")),
    ("4.2.1", "figure 3: together faster below a quarter of L1", lambda s: shape(s, "L1", lambda x: x < 0.25, "speedup", lambda v: v > 1)),
    ("4.2.1", "figure 3: together no faster above half of L1", lambda s: shape(s, "L1", lambda x: x > 0.5, "speedup", lambda v: v <= 1.1)),
    ("4.2.2", "table 3: issue slots", lambda s: figures(s, "issue")),
    ("4.2.3", "table 4: FP64 pipe", lambda s: figures(s, "FP64")),
    ("4.3", "torch.mm, by a product of our own that waits for memory", lambda s: figures(s, "product of 4 MB")),
    ("4.3", "torch.mm, by a product of our own that prefetches", lambda s: figures(s, "product that prefetches") or None),
    ("4.3", "torch.mm", lambda s: of_part(s, "torch", "slowdown")),
]


def verdict(found):
    """Whether each figure is within a tenth of the paper's, or as its text says."""
    if found is None:
        return "not run"
    if not found:
        return "run; the paper gives no figure"
    right = sum(told if isinstance(told, bool) else abs(v / told - 1) <= 0.1 for v, told in found)
    return "yes" if right == len(found) else f"no: {right} of {len(found)}"
