"""What latency programs keep and what trainings get beside them, alone, as the driver does it and under cede, on the
programs that people run. All are started once, and pairs are chosen by SIGSTOP and SIGCONT, which saves the time that
they take to start; cede gets the running programs. For an NVIDIA GPU that nobody else uses, PyTorch and transformers.

usage: conserve.py FILE CEDE [PAIR...]      writes FILE; CEDE: the binary; pairs as generate:gpt (default: all)
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {
    "generate": "generate.py",
    "resnet": "infer.py --model resnet50 --batch 1 --eager",
    "resnets": "infer.py --model resnet50 --batch 1 --eager & infer.py --model resnet50 --batch 1 --eager",
    "llm": "llm.py",
    "train": "train.py",
    "train2": "train.py",
    "gpt": "train.py --model gpt",
    "gpt2": "train.py --model gpt",
    "nanogpt": "train.py --model nanogpt",
    "jax": "train_jax.py",
}
PAIRS = ["generate:gpt", "resnet:gpt", "train:train2", "llm:gpt", "generate:gpt+gpt2", "generate:nanogpt", "generate:jax", "resnets:gpt"]
START_S, WARM_S = 100, {"generate": 20}  # some are slow for their first seconds
WINDOW_S, SETTLE_S = {"llm": 6}, {"alone": 0.7, "default": 1.0, "cede": 7}
ROUNDS = 2  # of a pair in a mode: windows in turns with those alone, for the host's speed changes


class Programs:
    def __init__(self, names, folder):
        self.files = {n: os.path.join(folder, n) for n in names}
        self.running = {n: subprocess.Popen(["sh", "-c", " & ".join(f"{sys.executable} {HERE}/{c}" for c in PROGRAMS[n].split(" & "))],
                                            stdout=open(self.files[n], "w"), stderr=open(self.files[n] + ".err", "w"),
                                            start_new_session=True) for n in names}
        until = time.monotonic() + START_S
        while time.monotonic() < until and any(self.lines(n) < 20 and p.poll() is None for n, p in self.running.items()):
            time.sleep(0.3)
        for n, p in list(self.running.items()):
            if self.lines(n) < 20:
                print(n, "did not start:", open(self.files[n] + ".err").read()[-600:], flush=True)
                os.killpg(p.pid, signal.SIGKILL)
                del self.running[n]
        self.signal(self.running, signal.SIGSTOP)

    def lines(self, n):
        return sum(1 for _ in open(self.files[n]))

    def signal(self, names, number):
        for n in names:
            os.killpg(self.running[n].pid, number)

    def what(self, n, begin, end):
        """Of a window: latencies in us in order, and units of work per second."""
        latencies, work = [], []
        for text in open(self.files[n]):
            try:
                o = json.loads(text)
            except ValueError:
                continue  # the last line is being written
            if begin <= o.get("t", 0) <= end:
                latencies += o.get("latencies_us", [])
                work += [(o["t"], o["work_us"])] if "work_us" in o else []
        rate = (work[-1][1] - work[0][1]) / 1e6 / (work[-1][0] - work[0][0]) if len(work) > 1 else len(latencies) / (end - begin)
        return sorted(latencies), rate

    def measure(self, mode, names, cede=None):
        self.signal(names, signal.SIGCONT)
        time.sleep(SETTLE_S[mode])
        begin = time.monotonic()
        time.sleep(WINDOW_S.get(names[0], 3.5))
        end = time.monotonic()
        jobs, why = (subprocess.run([cede, *a], stdout=subprocess.PIPE, text=True, timeout=10).stdout if cede else None
                     for a in (["ps", "--json"], ["why", str(self.running[names[0]].pid)]))
        time.sleep(0.15)
        self.signal(names, signal.SIGSTOP)
        row = {"mode": mode, "programs": names, "rates": [], "jobs": json.loads(jobs) if jobs else None, "why": why}
        for n in names:
            latencies, rate = self.what(n, begin, end)
            row["rates"].append(rate)
            if latencies:
                row[n] = {"n": len(latencies), "p50_us": latencies[len(latencies) // 2], "p99_us": latencies[len(latencies) * 99 // 100]}
        print(f"{mode:8}", " + ".join(f"{n} {r:.2f}" for n, r in zip(names, row["rates"])),
              " ".join(f"p50 {row[n]['p50_us']:.0f} p99 {row[n]['p99_us']:.0f} us" for n in names if n in row), flush=True)
        return row


def main():
    out, cede, pairs = sys.argv[1], sys.argv[2], [p.replace(":", "+").split("+") for p in sys.argv[3:] or PAIRS]
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE,
                         text=True).stdout.strip()
    version = subprocess.run([cede, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    rows, kept, others = [], [], {}

    def add(row):
        rows.append(row)
        with open(out, "w") as f:
            json.dump({"gpu": gpu, "cede": version, "date": time.strftime("%Y-%m-%d"), "rows": rows, "kept": kept}, f, indent=1)
        return row["rates"]

    def compare(mode, p, cede=None):
        """What each of a pair keeps of its speed alone: of the first measured before and after each window."""
        alone = [add(programs.measure("alone", p[:1]))[0]]
        for i in range(ROUNDS):
            rates = add(programs.measure(mode, p, cede))
            alone.append(add(programs.measure("alone", p[:1]))[0])
            own = [2 * rates[0] / (alone[i] + alone[i + 1])] + [r / others[n.rstrip("2")] for n, r in zip(p[1:], rates[1:])]
            kept.append({"mode": mode, "programs": p, "kept": own})
            print(f"  {mode:8} keep", " + ".join(f"{n} {k:.3f}" for n, k in zip(p, own)), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(sorted({n for p in pairs for n in p}), folder)
        daemon = None
        try:
            for n, seconds in WARM_S.items():
                if n in programs.running:
                    programs.signal([n], signal.SIGCONT)
                    time.sleep(seconds)
                    programs.signal([n], signal.SIGSTOP)
            pairs = [p for p in pairs if all(n in programs.running for n in p)]
            for n in {n.rstrip("2") for p in pairs for n in p[1:]}:
                others[n] = add(programs.measure("alone", [n]))[0]
            for p in pairs:
                compare("default", p)
            daemon = subprocess.Popen([cede, "daemon", "--device", "nvidia"], stderr=open(out + ".log", "w"))
            time.sleep(1.5)
            pids = {n: str(p.pid) for n, p in programs.running.items()}
            subprocess.run([cede, "set", "-c", "batch", *pids.values()], check=True, stdout=subprocess.DEVNULL)
            for p in pairs:
                subprocess.run([cede, "set", "-c", "latency", pids[p[0]]], check=True, stdout=subprocess.DEVNULL)
                compare("cede", p, cede)
                subprocess.run([cede, "set", "-c", "batch", pids[p[0]]], check=True, stdout=subprocess.DEVNULL)
        finally:
            programs.signal(programs.running, signal.SIGKILL)
            if daemon:
                daemon.terminate()


main()
