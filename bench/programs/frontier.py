"""What each way of sharing a GPU leaves to a server and to the program beside it, on programs that people run: alone, by
the driver's default, in an MPS server with client priorities, under cede, and in a pool of cede's. All programs of a place
(outside, in MPS, in a pool) are started once; pairs are chosen by SIGSTOP and SIGCONT, which saves the time that they
take to start. For an NVIDIA GPU that nobody else uses, root, PyTorch, transformers, CuPy and JAX.

usage: frontier.py [--gpus 0,1] CEDE FILE [PAIR...]   adds what FILE lacks, as resnet+gpt (default: all pairs); prints
                                                      what it measures; on several GPUs as many pairs at the same time
       frontier.py --score FILE                       who is on the frontier, and where cede is; needs no GPU
       frontier.py --soft CEDE FILE                   stand-ins on the software GPU (CEDE_SOFT_SOCKET), outside only
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import provenance

HERE = os.path.dirname(os.path.abspath(__file__))
# The command, and the stand-in on the software GPU: `cede load` with these options.
SERVERS = {
    "generate": ("generate.py", "latency --period-us 10000 --kernels 30 --kernel-us 100"),
    "batching": ("continuous.py", "latency --period-us 10000 --kernels 20 --kernel-us 100"),
    "graphs": ("llm.py", "latency --period-us 10000 --kernels 160 --kernel-us 13"),
    "resnet": ("infer.py --model resnet50 --batch 1 --eager", "latency --period-us 5000 --kernels 10 --kernel-us 100"),
    "unet": ("unet.py", "latency --period-us 50000 --kernels 100 --kernel-us 200"),
    "stencil": ("arrangements.py --closed stencil_fp64", "latency --period-us 10000 --kernels 4 --kernel-us 2000"),
}
OTHERS = {
    "gpt": ("train.py --model gpt", "batch --kernel-us 1000"),
    "gpt2": ("arrangements.py --closed gpt2_training", "batch --kernel-us 500"),
    "resnet_training": ("train.py", "batch --burst 300 --kernel-us 105 --host-us 1000"),
    "jax": ("train_jax.py", "batch --kernel-us 300"),
    "fft": ("arrangements.py --closed fft", "batch --kernel-us 2000"),
    "ranks": ("ranks.py 4 --lockstep --burst 10 --kernel-us 300 --host-us 2000", "batch --burst 30 --kernel-us 100 --host-us 2000"),
}
PROGRAMS = SERVERS | OTHERS
PAIRS = [p.split("+") for p in (
    "generate+gpt", "generate+jax", "batching+gpt2", "batching+resnet_training", "graphs+gpt", "graphs+resnet_training",
    "resnet+gpt", "resnet+fft", "resnet+ranks", "unet+resnet_training", "unet+gpt", "stencil+fft")]
OPEN = ("graphs", "batching")  # their requests come at a rate: speed is the mean time per token, else answers per second
SPEEDS = ("90%", "80%")  # --min-speed of the server; cede's own choice first
FILLING = ("graphs", "stencil")  # servers that fill the GPU, with which the other speeds are measured, too
START_S, ROUNDS, BOTH_S, ALONE_S, OTHER_S = 150, 3, 2.4, 1.2, 3
AGAIN_S = 0.3  # what a program takes to go on; with ALONE_S less than what cede takes for the end of a server
FLOOR, SPARE, SLACK = 0.9, 0.05, 0.02
CEDE, OUT, SOFT, GPUS = "", "", False, []


# ---- programs of one place ----

class Place:
    """Its programs on one GPU, each stopped but while it is measured. gpu: "" if the study chooses none."""

    def __init__(self, name, folder, gpu, pairs):
        self.name, self.gpu, self.pairs, self.running = name, gpu, pairs, {}
        self.files = {n: os.path.join(folder, f"{name}-{n}{gpu}") for n in PROGRAMS if any(n in p for p in pairs)}

    def start(self):
        for n in self.files:  # servers first: a pool gives batch jobs a lower priority only beside one
            with open(self.files[n], "w", encoding="utf-8") as out, open(self.files[n] + ".err", "w", encoding="utf-8") as err:
                self.running[n] = subprocess.Popen(self.command(n), stdout=out, stderr=err, start_new_session=True,
                                                   env={**os.environ, **self.environment(n)})
        end = time.monotonic() + START_S
        starting = set(self.running)
        while starting and time.monotonic() < end:
            time.sleep(0.3)
            ready = {n for n in starting if self.lines(n) >= 10}
            self.send(ready, signal.SIGSTOP)  # so that it is in nobody's way
            starting -= ready | {n for n in starting if self.running[n].poll() is not None}
        for n in [n for n in self.running if self.lines(n) < 10]:
            with open(self.files[n] + ".err", encoding="utf-8", errors="replace") as f:
                print(f"{self.name}: {n} did not start: {f.read()[-500:]}", flush=True)
            self.send([n], signal.SIGKILL)
            del self.running[n]

    def command(self, n):
        words = PROGRAMS[n][SOFT].split()
        words = [CEDE, "load", *words, "--device", "soft", "--report", "50"] if SOFT else [sys.executable, os.path.join(HERE, words[0]), *words[1:]]
        if self.name == "pool":
            who = ["-c", "latency", "--pool"] if n in SERVERS else ["-c", "batch", "--pool=latency"]
            words = [CEDE, "run", "-q", "-n", n + self.gpu, *who, "--", *words]
        return words

    def environment(self, n):
        priority = {"CUDA_MPS_CLIENT_PRIORITY": "0" if n in SERVERS else "1"} if self.name == "mps" else {}
        return priority | ({"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {})

    def lines(self, n):
        with open(self.files[n], encoding="utf-8") as f:
            return sum(1 for _ in f)

    def send(self, names, number):
        for n in names:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.running[n].pid, number)

    def measured(self, n, windows):
        """Of windows together: its rate, of answers or of units of work, and of a server percentiles in us."""
        latencies, first, work = [], [], {}
        with open(self.files[n], encoding="utf-8") as f:
            for text in f:
                try:
                    o = json.loads(text)
                except ValueError:
                    continue  # the last line is being written
                at = next((w for w in windows if w[0] <= o.get("t", 0) <= w[1]), None)
                if at:
                    latencies += o.get("latencies_us", [])
                    first += o.get("first_us", [])
                    work.setdefault(at, []).extend([(o["t"], o["work_us"])] if "work_us" in o else [])
        if n in OTHERS and any(work.values()):
            of = [w for w in work.values() if len(w) > 1]
            return {"rate": sum(w[-1][1] - w[0][1] for w in of) / 1e6 / (sum(w[-1][0] - w[0][0] for w in of) or 1)}
        m = {"n": len(latencies), "rate": len(latencies) / sum(end - begin for begin, end in windows), **percentiles("", latencies)}
        return m | percentiles("first_", first) if first else m

    def window(self, names, settle_s, seconds):
        self.send(names, signal.SIGCONT)
        time.sleep(settle_s)
        begin = time.monotonic()
        time.sleep(seconds)
        return begin, time.monotonic()

    def stop(self):
        time.sleep(0.1)
        self.send(self.running, signal.SIGSTOP)
        time.sleep(0.2)

    def by_turns(self, pair, settle_s, rounds):
        """Both, and the server alone, by turns: hosts change their speed by tens of percent within seconds, for both alike."""
        both, alone = [], []
        self.window(pair, settle_s, 0)
        for _ in range(rounds):
            self.send(pair[1:], signal.SIGSTOP)
            alone.append(self.window(pair[:1], AGAIN_S, ALONE_S))
            both.append(self.window(pair, AGAIN_S, BOTH_S))
        speed = self.says_speed(pair[0])
        self.stop()
        return {"measured": {n: self.measured(n, both) for n in pair}, "alone": self.measured(pair[0], alone), **speed}

    def says_speed(self, n):
        """As cede shows it, if there is one."""
        done = subprocess.run([CEDE, "ps", "--json", str(self.running[n].pid)], capture_output=True, text=True, timeout=30, check=False)
        return {} if done.returncode else {"cede_says": json.loads(done.stdout)["jobs"][0].get("speed")}

    def end(self):
        self.send([n for n, p in self.running.items() if p.poll() is None], signal.SIGKILL)
        for p in self.running.values():
            p.wait()


def percentiles(name, v):
    v = sorted(v)
    return {f"{name}mean_us": sum(v) / len(v) if v else None} | {f"{name}p{p}_us": v[min(len(v) * p // 100, len(v) - 1)] if v else None for p in (50, 99)}


# ---- one place after the other, on all GPUs ----

class Study:
    def __init__(self, pairs):
        self.pairs, self.rows, self.lock = pairs, [], threading.Lock()
        self.head = {"shows": __doc__.split("\n\n", maxsplit=1)[0], **provenance.head(CEDE)}
        if SOFT:
            self.head["gpu"] = "software GPU"
        if os.path.exists(OUT):
            with open(OUT, encoding="utf-8") as f:
                had = json.load(f)
            here = [self.head[k] for k in ("gpu", "driver", "commit")]
            if [had.get(k) for k in ("gpu", "driver", "commit")] != here:
                sys.exit(f"frontier: {OUT} is not of {', '.join(here)}: name another file")
            self.rows = had["rows"]
        self.claimed = {r["pair"] for r in self.rows if r["system"] == "alone"}

    def lacks(self, systems, pair):
        """Of these ways those in which the file lacks the pair."""
        had = {(r["system"], r["pair"]) for r in self.rows}
        return [s for s in systems if (s, "+".join(pair)) not in had and (s not in cede_systems()[1:] or pair[0] in FILLING)]

    def add(self, system, pair, measured, **more):
        with self.lock:
            self.rows.append({"system": system, "pair": "+".join(pair), "measured": measured, **more})
            with open(OUT, "w", encoding="utf-8") as f:
                json.dump({**self.head, "rows": self.rows}, f, indent=1)
        print(f"{system:18}", "  ".join(f"{n} {m['rate']:.2f}/s" + (f" p50 {m['p50_us']:.0f} p99 {m['p99_us']:.0f} us" if m.get("p50_us") else "")
                                       for n, m in [*measured.items(), *([(f"{pair[0]} alone", more["alone"])] if more else [])]), flush=True)

    def compare(self, places, systems, settle_s, begins=lambda place, system, pair: None):
        at_once(lambda place: self.compare_on(place, systems, settle_s, begins), places)

    def compare_on(self, place, systems, settle_s, begins):
        """The pairs in turn; what a program does alone that is no server is measured outside, before its first pair."""
        for pair in [p for p in place.pairs if self.lacks(systems, p) and all(n in place.running for n in p)]:
            with self.lock:
                first = place.name == "plain" and pair[1] not in self.claimed
                self.claimed.add(pair[1])
            if first:
                window = place.window(pair[1:], 1.5, OTHER_S)
                place.stop()
                self.add("alone", pair[1:], {pair[1]: place.measured(pair[1], [window])})
            for system in self.lacks(systems, pair):
                begins(place, system, pair)
                self.add(system, pair, **place.by_turns(pair, 4 if system in cede_systems()[1:] else settle_s, ROUNDS))

    def run(self, name, folder, systems, measure):
        """Its programs on all GPUs, which have the pairs in turn."""
        lacking = [[p for p in self.pairs[i::len(GPUS)] if self.lacks(systems, p)] for i in range(len(GPUS))]
        places = [Place(name, folder, gpu, pairs) for gpu, pairs in zip(GPUS, lacking) if pairs]
        if not places:
            return
        try:
            at_once(Place.start, places)
            measure(places)
        finally:
            for place in places:
                place.end()


def at_once(do, places):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        list(threads.map(do, places))


def output(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout.strip()


class Daemon:
    """A ceded of the study's own."""

    def __init__(self):
        with open(OUT + ".log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([CEDE, "daemon", "--dir", os.environ["CEDE_DIR"], "--device", "soft" if SOFT else "nvidia"], stderr=log)
        time.sleep(1.5)

    def end(self):
        self.process.terminate()
        self.process.wait()


def under_cede(study, places):
    """Default first, without a ceded; then cede gets the running programs."""
    study.compare(places, ["default"], 1.5)
    daemon = Daemon()
    output(CEDE, "set", "-c", "batch", *(str(p.pid) for place in places for p in place.running.values()))

    def begins(place, system, pair):
        """Only this server is a latency job."""
        pids = {n: str(p.pid) for n, p in place.running.items()}
        for n in SERVERS:
            if n in pids:
                output(CEDE, "set", "-c", "latency" if n == pair[0] else "batch", pids[n])
        output(CEDE, "set", "--min-speed", system.split()[-1] if " " in system else SPEEDS[0], pids[pair[0]])
    try:
        study.compare(places, cede_systems(), 7, begins)
    finally:
        daemon.end()


def cede_systems():
    return ["cede", *(f"cede --min-speed {s}" for s in SPEEDS[1:])]


def in_mps(study, folder):
    os.environ.update(CUDA_MPS_PIPE_DIRECTORY=os.path.join(folder, "mps"), CUDA_MPS_LOG_DIRECTORY=os.path.join(folder, "mps-log"))
    for d in ("mps", "mps-log"):
        os.makedirs(os.path.join(folder, d), exist_ok=True)
    output("nvidia-cuda-mps-control", "-d")
    try:
        study.run("mps", folder, ["mps"], lambda places: study.compare(places, ["mps"], 1.5))
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=60, check=False)
        for n in ("PIPE", "LOG"):
            del os.environ[f"CUDA_MPS_{n}_DIRECTORY"]


def in_pool(study, folder):
    daemon = Daemon()
    try:
        study.run("pool", folder, ["pool"], lambda places: study.compare(places, ["pool"], 4))
    finally:
        daemon.end()


# ---- what it shows ----

def kept(rows):
    """{pair: {system: (speed of the server, p99 of it over alone, speed of the other)}}"""
    others, out = {r["pair"]: r["measured"][r["pair"]]["rate"] for r in rows if r["system"] == "alone"}, {}
    for r in rows:
        if r["system"] != "alone":
            server, other = r["pair"].split("+")
            m, alone = r["measured"], r["alone"]
            speed = alone["mean_us"] / m[server]["mean_us"] if server in OPEN else m[server]["rate"] / alone["rate"]
            out.setdefault(r["pair"], {})[r["system"]] = (speed, m[server]["p99_us"] / alone["p99_us"], m[other]["rate"] / others[other])
    return out


def with_medians(rows):
    """The same with each server's median alone, of all its windows, in place of that between the windows of the pair. Hosts change
    their speed: that between them follows it, and errs where it changed within."""
    alone = {}
    for r in rows:
        if "alone" in r:
            alone.setdefault(r["pair"].split("+")[0], []).append(r["alone"])
    return [{**r, "alone": {k: statistics.median(a[k] for a in alone[r["pair"].split("+")[0]]) for k in r["alone"] if r["alone"][k] is not None}}
            if "alone" in r else r for r in rows]


def met(pairs):
    return sum(verdict(points)[1] for points in pairs.values())


def on_frontier(points, system):
    """Nobody gives the server and the other more, by more than the noise."""
    speed, _, other = points[system]
    return not any(s > speed + SLACK and o > other + SLACK for n, (s, _, o) in points.items() if n != system)


def verdict(points):
    """Of a pair: the system of cede's that counts, None without one; whether it met the target; who gives the other more."""
    own = [s for s in ("cede", "pool") if s in points]
    if not own:
        return None, True, []
    best = max(own, key=lambda s: (points[s][0] >= FLOOR - SLACK, points[s][2]))
    speed, _, other = points[best]
    better = [n for n, (s, _, o) in points.items() if s >= speed - SLACK and o > other + SPARE and not n.startswith("cede --")]
    return best, speed >= FLOOR - SLACK and not better and on_frontier(points, best), better


def score(path):
    with open(path, encoding="utf-8") as f:
        rows = json.load(f)["rows"]
    pairs = kept(rows)
    for pair, points in pairs.items():
        print(pair)
        for system, (speed, p99, other) in points.items():
            print(f"  {system:18} server {speed:.2f}, p99 {p99:6.2f} x alone; the other {other:.2f}" + ("" if on_frontier(points, system) else "   behind"))
        best, ok, better = verdict(points)
        if best:
            print(f"  {'met' if ok else 'MISSED'}: {best}" + (f", behind {' and '.join(better)}" if better else ""))
    print(f"{met(pairs)} of {len(pairs)} pairs met ({met(kept(with_medians(rows)))} with each server's median speed alone): the server has {FLOOR} of its speed, "
          f"and nobody who gives it as much gives the other {SPARE} more")


def main():
    global CEDE, OUT, SOFT, GPUS
    if sys.argv[1:2] == ["--score"] and len(sys.argv) == 3:
        score(sys.argv[2])
        return
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2])
    parser.add_argument("--gpus", type=lambda text: text.split(","), default=[""])
    parser.add_argument("--soft", action="store_true")
    parser.add_argument("cede", type=os.path.abspath)
    parser.add_argument("file", type=os.path.abspath)
    parser.add_argument("pairs", nargs="*")
    args = parser.parse_args()
    CEDE, OUT, SOFT, GPUS = args.cede, args.file, args.soft, args.gpus
    unknown = [p for p in args.pairs if not (p.partition("+")[0] in SERVERS and p.partition("+")[2] in OTHERS)]
    if unknown:
        sys.exit(f"frontier: {unknown[0]!r} is no pair: {', '.join(SERVERS)} + {', '.join(OTHERS)}")
    with tempfile.TemporaryDirectory(prefix="cede-") as folder:
        os.environ.update(CEDE_DIR=folder, PATH=f"{os.path.dirname(CEDE)}:{os.environ['PATH']}")  # ranks.py starts cede load
        study = Study([p.split("+") for p in args.pairs] or PAIRS)
        study.run("plain", folder, ["default", *cede_systems()], lambda places: under_cede(study, places))
        if not SOFT:
            in_mps(study, folder)
            in_pool(study, folder)
    score(OUT)


if __name__ == "__main__":
    main()
