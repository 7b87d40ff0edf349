"""Two model servers on one GPU, each with deadlines that it reports by libcede: requests of about 40 ms and of 8 ms,
arriving at random (Poisson), each due after three times what it takes alone, while a training has what they leave.
How many are late by the driver's default, by weight (policy priority), and by slack (policy laxity), under a ceded
of its own. The same arrivals in each phase; SECONDS of them, ten times.

usage: two_servers.py CEDE LIBCEDE FILE [DEVICE [SECONDS]]     nvidia, 7; writes FILE and prints a table
"""
import contextlib
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import provenance

TICK = os.sysconf("SC_CLK_TCK")
SOLO_MS = {"heavy": 40, "light": 8}
DUE = 3.0
PAUSE_S = 1.5  # without arrivals, at the end of each phase
LIMIT_S = 140
LOW, HIGH = {"heavy": 0.35, "light": 0.25}, {"heavy": 0.5, "light": 0.3}
PHASES = (("default", None, LOW, True), ("settle", "laxity", LOW, True), ("weight", "priority", LOW, True),
          ("slack", "laxity", LOW, True), ("weight", "priority", LOW, True), ("slack", "laxity", LOW, True),
          ("weight, high", "priority", HIGH, True), ("slack, high", "laxity", HIGH, True),
          ("weight, no training", "priority", LOW, False), ("slack, no training", "laxity", LOW, False))


# ---- workers ----

class Soft:
    """Kernels of 1 ms on the software GPU."""

    def __init__(self, _):
        import softgpu
        self.context = softgpu.Context()
        self.kernels = 1

    def run(self):
        self.context.launch(self.kernels, 1000000)
        self.context.wait(self.kernels)

    def repeat(self, n):
        self.kernels = n


class Torch:
    """A transformer, in fp16: its forward pass as a CUDA graph, which is launched so many times; or its training."""

    def __init__(self, role):
        import torch
        import torch.nn.functional as f
        self.torch, self.kernels = torch, 1
        torch.manual_seed(1)
        rows, layers, d, heads = {"heavy": (32, 24, 1024, 16), "light": (4, 24, 1024, 16),
                                  "train": (16, 12, 1024, 16)}[role]
        shapes = [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)] * layers
        weights = [torch.randn(s, device="cuda", dtype=torch.float16).mul_(0.02) for s in shapes]
        x = torch.randn(rows, 128, d, device="cuda", dtype=torch.float16)

        def forward():
            y = x
            for i in range(layers):
                qkv, out, up, down = weights[4 * i:4 * i + 4]
                q, k, v = f.linear(f.layer_norm(y, (d,)), qkv).view(rows, 128, 3, heads, d // heads).permute(
                    2, 0, 3, 1, 4)
                attended = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, 128, d)
                y = y + f.linear(attended, out)
                y = y + f.linear(f.gelu(f.linear(f.layer_norm(y, (d,)), up)), down)
            return y

        def step():
            forward().float().square().mean().backward()
            for w in weights:
                w.data.add_(w.grad, alpha=-1e-4)
                w.grad = None
            torch.cuda.synchronize()

        def graph_runs():
            for _ in range(self.kernels):
                graph.replay()
            done.record()
            done.synchronize()

        if role == "train":
            for w in weights:
                w.requires_grad_(True)
            self.run = step
            return
        done = torch.cuda.Event(blocking=True)
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                forward()
            side.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                forward()
        self.run = graph_runs

    def repeat(self, n):
        self.kernels = n


def say(**fields):
    print(json.dumps(fields), flush=True)


def solo_ms(gpu):
    times = []
    for _ in range(12):
        begun = time.monotonic()
        gpu.run()
        times.append((time.monotonic() - begun) * 1e3)
    return statistics.median(times[2:])


def arrivals(order):
    """(phase, time) of each request. Each load has the same ones in all its phases."""
    for i, load in enumerate(order["loads"]):
        rng, rate = random.Random(order["seed"]), load / order["solo_s"]
        t = rng.expovariate(rate)
        while t < order["seconds"]:
            yield i, order["t0"] + i * (order["seconds"] + PAUSE_S) + t
            t += rng.expovariate(rate)


def serve(gpu, client, order):
    """One request after the other, in order of arrival."""
    waiting = queue.Queue()

    def arrive():
        for phase, at in arrivals(order):
            time.sleep(max(at - time.monotonic(), 0))
            request = client.request(deadline_us=int(order["due_s"] * 1e6))
            request.__enter__()
            waiting.put((phase, at, request))
        waiting.put(None)
    threading.Thread(target=arrive, daemon=True).start()
    for phase, at, request in iter(waiting.get, None):
        gpu.run()
        request.__exit__()
        say(phase=phase, s=time.monotonic() - at)


def worker(role, device):
    gpu = (Soft if device == "soft" else Torch)(role)
    gpu.run()
    say(loaded=role)
    sys.stdin.readline()
    once = solo_ms(gpu)
    if role == "train":
        say(solo_ms=once)
        while True:
            gpu.run()
            say(step=time.monotonic())
    gpu.repeat(max(round(SOLO_MS[role] / once), 1))
    say(solo_ms=solo_ms(gpu))
    order = json.loads(sys.stdin.readline())
    sys.path.insert(0, order["python"])
    import cede
    client = cede.Client()
    if not cede.available():
        sys.exit(f"{os.environ['CEDE_LIBRARY']}: not a libcede")
    serve(gpu, client, order)
    say(ended=role)


# ---- the experiment ----

class Worker:
    def __init__(self, role, device):
        argv = [sys.executable, os.path.abspath(__file__), "--worker", role, device]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.role, self.requests, self.steps, self.lines = role, [], [], queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for text in self.process.stdout:
            line = json.loads(text)
            if "phase" in line:
                self.requests.append((line["phase"], line["s"]))
            elif "step" in line:
                self.steps.append(line["step"])
            else:
                self.lines.put(line)

    def next(self, key):
        return self.lines.get(timeout=60)[key]

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


@contextlib.contextmanager
def ending(process):
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def ask(cede, *words):
    done = subprocess.run([cede, *words], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    return json.loads(done.stdout) if "--json" in words else None


def start_ceded(cede, device, folder, stack, workers):
    with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
        f.write("[daemon]\naccounts = no\n")
    with open(f"{folder}/ceded.log", "w", encoding="utf-8") as log:
        ceded = stack.enter_context(ending(subprocess.Popen(
            [cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf"], stderr=log)))
    end = time.monotonic() + 10
    while subprocess.run([cede, "policy", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         timeout=30, check=False).returncode:
        if time.monotonic() > end:
            raise RuntimeError("ceded does not answer")
        time.sleep(0.1)
    for w in workers:
        ask(cede, "set", str(w.process.pid), "-c", "batch" if w.role == "train" else "latency")
    return ceded


def needs(cede, workers):
    """What ceded has learned that a request needs, of those that have one open."""
    jobs = {job["pid"]: job for job in ask(cede, "ps", "--json")["jobs"]}
    return {w.role: jobs[w.process.pid]["due"]["needs_us"] for w in workers
            if (jobs.get(w.process.pid) or {}).get("due")}


def run_phases(cede, device, folder, seconds, workers, result, stack):
    t0 = time.monotonic() + 1
    for w in workers[:2]:
        order = {"t0": t0, "seconds": seconds, "seed": w.role, "solo_s": result["solo_ms"][w.role] / 1e3,
                 "due_s": DUE * result["solo_ms"][w.role] / 1e3, "loads": [p[2][w.role] for p in PHASES],
                 "python": os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")}
        w.send(json.dumps(order))
    ceded = None
    for i, (name, policy, _, trains) in enumerate(PHASES):
        begins = t0 + i * (seconds + PAUSE_S)
        time.sleep(max(begins - 0.7 - time.monotonic(), 0))
        if policy and not ceded:
            ceded = start_ceded(cede, device, folder, stack, workers)
        if policy:
            ask(cede, "policy", policy)
        if not trains and workers[2].process.poll() is None:
            workers[2].process.terminate()
        phase = {"name": name, "from": begins, "to": begins + seconds, "needs_us": []}
        result["phases"].append(phase)
        before = (processor_s(ceded.pid), ask(cede, "policy", "--json")) if ceded else None
        while time.monotonic() < phase["to"]:
            time.sleep(min(0.9, max(phase["to"] - time.monotonic(), 0.01)))
            if policy == "laxity":
                phase["needs_us"].append(needs(cede, workers[:2]))
        if ceded:
            after = ask(cede, "policy", "--json")
            phase["ceded_core"] = (processor_s(ceded.pid) - before[0]) / seconds
            phase["controls_per_s"] = (after["controls"] - before[1]["controls"]) / seconds
            phase["controls_failed"] = after["controls_failed"] - before[1]["controls_failed"]
    for w in workers[:2]:
        w.next("ended")


def of_phase(result, i, workers):
    phase = result["phases"][i]
    for w in workers[:2]:
        ms = sorted(s * 1e3 for p, s in w.requests if p == i)
        due = DUE * result["solo_ms"][w.role]
        phase[w.role] = {"requests": len(ms), "late": sum(x > due for x in ms)} | (
            {"p50_ms": ms[len(ms) // 2], "p99_ms": ms[min(len(ms) * 99 // 100, len(ms) - 1)]} if ms else {})
    steps = [t for t in workers[2].steps if phase["from"] <= t < phase["to"]]
    phase["train_per_s"] = len(steps) / (phase["to"] - phase["from"])


def table(result):
    print(f"{result['gpu']}, {result['date']}")
    print(f"alone: heavy {result['solo_ms']['heavy']:.1f} ms, light {result['solo_ms']['light']:.1f} ms; due after "
          f"{DUE:g} times that")
    print(f"{'':20}  heavy: late   p50     p99 ms   light: late   p50     p99 ms  train/s  controls/s  ceded")
    late = {}
    for phase in result["phases"]:
        text = f"{phase['name']:20}"
        for role in SOLO_MS:
            r = phase.get(role, {"requests": 0, "late": 0})
            text += f"  {r['late']:4}/{r['requests']:<4} {r.get('p50_ms', 0):7.1f} {r.get('p99_ms', 0):8.1f}     "
            sums = late.setdefault(phase["name"].split(",")[0], {}).setdefault(role, [0, 0])
            sums[0] += r["late"]
            sums[1] += r["requests"]
        print(text + f"{phase.get('train_per_s', 0):6.1f} {phase.get('controls_per_s', 0):9.1f} "
              f"{phase.get('ceded_core', 0):9.2%}")
    for name in ("weight", "slack"):
        if name in late:
            print(f"by {name}: late " + ", ".join(f"{role} {a} of {b}" for role, (a, b) in late[name].items()))
    known = [n for p in result["phases"] for n in p["needs_us"]]
    for role in SOLO_MS:
        v = [n[role] for n in known if n.get(role)]
        print(f"need of {role} as learned: {statistics.median(v) / 1e3:.1f} ms" if v else f"need of {role}: not learned")


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:4])
        return
    if not 4 <= len(sys.argv) <= 6 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    cede, library, path = (os.path.abspath(x) for x in sys.argv[1:4])
    device, seconds = (sys.argv + ["nvidia"])[4], float((sys.argv[5:] + [7])[0])
    result = {**provenance.head(cede), "device": device, "seconds": seconds, "solo_ms": {}, "phases": []}
    os.environ["CEDE_LIBRARY"] = library
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not done within {LIMIT_S} s: what there is follows"))
    signal.alarm(LIMIT_S)
    workers = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as stack:
        os.environ["CEDE_DIR"] = os.environ["CEDE_STATE_DIR"] = f"{folder}/cede"
        if device == "soft":
            os.environ["CEDE_SOFT_SOCKET"] = f"{folder}/gpu"
            stack.enter_context(ending(subprocess.Popen([cede, "softgpu"], stdout=subprocess.DEVNULL)))
            time.sleep(1)
        try:
            for role in ("heavy", "light", "train"):
                workers.append(Worker(role, device))
                stack.enter_context(ending(workers[-1].process))
            for w in workers:
                w.next("loaded")
            for w in workers:
                w.send("calibrate")
                result["solo_ms"][w.role] = w.next("solo_ms")
            run_phases(cede, device, folder, seconds, workers, result, stack)
        finally:
            signal.alarm(0)
            for i in range(len(result["phases"])):
                of_phase(result, i, workers)
            with contextlib.suppress(OSError), open(f"{folder}/ceded.log", encoding="utf-8") as f:
                result["ceded_log"] = f.read()[-4000:]
            with open(path, "w", encoding="utf-8") as f:
                json.dump(result, f, indent=1)
                f.write("\n")
            if result["phases"]:
                table(result)


if __name__ == "__main__":
    main()
