"""Pairs of the programs of speeds.py under a ceded of its own, in turns and in a pool: how fast each of a pair
goes by its own count, relative to alone, what `cede ps` says of it (SPEED), whether the pool lets them run
together or in turns, and what ceded takes of a core. Pairs that took turns within the pool are started again: one of
each should stay out of the pool. For an NVIDIA GPU from Hopper on that nobody else uses, root, and PyTorch.

usage: pools.py CEDE FILE [SECONDS [KIND+KIND...]]     writes FILE after so many seconds at most (default 400);
                                                       these pairs instead of ten
"""
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time

import provenance
import speeds

PAIRS = (
    ("resnet_training", "small_inference"), ("resnet_training", "transformer_training"),
    ("resnet_training", "product_bf16"), ("small_inference", "decoding"), ("resnet_training", "stencil_fp64"),
    ("small_inference", "product_bf16"), ("product_bf16", "stencil_fp64"), ("resnet_training", "decoding"),
    ("transformer_training", "decoding"), ("small_inference", "transformer_training"),
    ("stencil_fp64", "decoding"), ("small_inference", "stencil_fp64"),
)
START_S, ALONE_S, TURNS_S, DECIDE_S, POOL_S, LOOK_S, AGAIN_S = 150, 2, 4, 10, 6, 1, 30
KINDS = []  # of the pairs


class Jobs:
    """All programs as jobs of one ceded, paused but for those that run() lets run."""

    def __init__(self, cede, folder, name, *options):
        page = f"{folder}/{name}"
        with open(page, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        self.counts = mmap.mmap(os.open(page, os.O_RDWR), mmap.PAGESIZE)
        self.cede, self.names, self.page, self.options = cede, [f"{name}-{kind}" for kind in KINDS], page, options
        self.programs = [self.start(i) for i in range(len(KINDS))]

    def start(self, i):
        return subprocess.Popen(
            [self.cede, "run", "-q", "-c", "batch", "-n", self.names[i], *self.options, "--", sys.executable,
             os.path.abspath(speeds.__file__), "--program", KINDS[i], self.page, str(i)], stdout=subprocess.DEVNULL)

    def await_steps(self, which, before=0):
        end = time.monotonic() + START_S
        while min(self.count(which)) < before + 3:
            if time.monotonic() > end or any(self.programs[i].poll() is not None for i in which):
                raise RuntimeError("not all programs started")
            time.sleep(0.2)

    def start_again(self, i):
        """Ends it, which is paused, and starts it anew."""
        self.verb("resume", [i])
        self.programs[i].terminate()
        self.programs[i].wait(30)
        self.counts[8 * i:8 * i + 8] = bytes(8)
        self.programs[i] = self.start(i)
        self.await_steps([i])
        self.verb("pause", [i])

    def count(self, which):
        return [int.from_bytes(self.counts[8 * i:8 * i + 8], "little") for i in which]

    def verb(self, verb, which):
        subprocess.run([self.cede, verb, *(self.names[i] for i in which)], check=True, timeout=60,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def told(self, which):
        """The jobs' `mps`, as `cede ps` has it."""
        out = subprocess.run([self.cede, "ps", "--json"], check=True, capture_output=True, timeout=60).stdout
        jobs = {j["name"]: j.get("mps") or {} for j in json.loads(out)["jobs"]}
        return [jobs.get(self.names[i], {}) for i in which]

    def run(self, which, settle, seconds):
        """Steps a second of each in the last of these seconds, and what was told every LOOK_S of them."""
        self.verb("resume", which)
        time.sleep(settle)
        began, before, seen = time.monotonic(), self.count(which), []
        while time.monotonic() < began + seconds:
            time.sleep(LOOK_S)
            seen.append(self.told(which))
        took, after = time.monotonic() - began, self.count(which)
        self.verb("pause", which)
        time.sleep(0.3)
        return [(a - b) / took for a, b in zip(after, before)], seen

    def close(self):
        for p in self.programs:
            p.terminate()


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def mean_told(seen, i):
    """The mean of what was told of this one; None if that is nothing, or `?`, most of the time."""
    values = [s[i]["speed"] for s in seen if s[i].get("speed") is not None and s[i]["speed_error"] <= 0.15]
    return round(sum(values) / len(values), 4) if 2 * len(values) > len(seen) else None


def relative(rates, alone, which):
    return [round(r / alone[i], 4) for r, i in zip(rates, which)]


def measure(ceded, modes, chosen, end):
    alone = {m: [jobs.run([i], 1, ALONE_S)[0][0] for i in range(len(KINDS))] for m, jobs in modes.items()}
    pairs = []
    for kinds in chosen:
        if time.monotonic() > end - TURNS_S - DECIDE_S - POOL_S - 5:
            break
        which = [KINDS.index(k) for k in kinds]
        turns, _ = modes["turns"].run(which, 1, TURNS_S)
        used, began = processor_s(ceded), time.monotonic()
        pool, seen = modes["pool"].run(which, DECIDE_S, POOL_S)
        used, took = processor_s(ceded) - used, time.monotonic() - began
        pairs.append({
            "programs": [speeds.KINDS[k] for k in kinds], "turns": relative(turns, alone["turns"], which),
            "pool": relative(pool, alone["pool"], which), "told": [mean_told(seen, i) for i in (0, 1)],
            "takes_turns": any(m.get("turns") for m in seen[-1]), "ceded_core": round(used / took, 5)})
        p = pairs[-1]
        print(f"{' + '.join(p['programs']):52} turns {sum(p['turns']):.2f}  pool {sum(p['pool']):.2f} {p['pool']}"
              f"{' (in turns)' if p['takes_turns'] else ''}  told {p['told']}  ceded {p['ceded_core']:.2%}", flush=True)
    return alone, pairs


def again(jobs, alone, pair):
    """The second of a pair that took turns, started once more while the first is in the pool."""
    which = [KINDS.index(k) for k in kinds_of(pair)]
    jobs.verb("resume", which[:1])
    jobs.start_again(which[1])
    jobs.verb("pause", which[:1])
    rates, seen = jobs.run(which, 2, POOL_S)
    out = {"programs": pair["programs"], "speeds": relative(rates, alone, which), "in_pool": bool(seen[-1][1])}
    print(f"{' + '.join(out['programs']):52} again: {sum(out['speeds']):.2f} {out}", flush=True)
    return out


def kinds_of(pair):
    return [next(k for k, name in speeds.KINDS.items() if name == p) for p in pair["programs"]]


def quiet(ceded, jobs, seconds=6):
    """What ceded takes of a core while nothing runs, and while two share the GPU and nobody asks."""
    used = []
    for which in ((), (0, 1)):
        if which:
            jobs.verb("resume", which)
            time.sleep(DECIDE_S)
        before = processor_s(ceded)
        time.sleep(seconds)
        used.append(round((processor_s(ceded) - before) / seconds, 5))
        if which:
            jobs.verb("pause", which)
    print(f"ceded, of a core: {used[0]:.2%} with all paused, {used[1]:.2%} with two in a pool", flush=True)
    return used


def main():
    chosen = [tuple(pair.split("+")) for pair in sys.argv[4:]] or PAIRS
    if len(sys.argv) < 3 or sys.argv[1].startswith("-") or {k for pair in chosen for k in pair} - set(speeds.KINDS):
        sys.exit(__doc__)
    KINDS.extend(sorted({kind for pair in chosen for kind in pair}))
    cede, path, seconds = os.path.abspath(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 400
    end, modes = time.monotonic() + seconds, {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = f"{folder}/cede"
        ceded = subprocess.Popen([cede, "daemon", "--device", "nvidia"])
        try:
            time.sleep(2)
            for name, options in (("turns", ()), ("pool", ("--pool",))):
                modes[name] = Jobs(cede, folder, name, *options)
            for jobs in modes.values():
                jobs.await_steps(range(len(KINDS)))
            for jobs in modes.values():
                jobs.verb("pause", range(len(KINDS)))
            core = quiet(ceded.pid, modes["pool"])
            alone, pairs = measure(ceded.pid, modes, chosen, end - 4 * AGAIN_S)
            started_again = [again(modes["pool"], alone["pool"], p) for p in pairs
                             if p["takes_turns"] and time.monotonic() < end - AGAIN_S]
            counters = speeds.Counters()
            gpu, driver = counters.text("nvmlDeviceGetName"), counters.text("nvmlSystemGetDriverVersion")
        finally:
            for jobs in modes.values():
                jobs.close()
            ceded.terminate()
            ceded.wait(30)
    shows = ("Speeds relative to alone, by the programs' own count, of pairs of batch jobs in turns and in a pool; what "
             f"`cede ps` told of them in the same {POOL_S} s; ceded_core: processor time of ceded, with its windows, by time.")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**provenance.head(cede), "gpu": gpu, "driver": driver, "shows": shows,
                   "alone_steps_per_s": {m: dict(zip(KINDS, map(lambda r: round(r, 3), a))) for m, a in alone.items()},
                   "ceded_core_paused": core[0], "ceded_core_in_pool": core[1], "pairs": pairs,
                   "again": started_again}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
