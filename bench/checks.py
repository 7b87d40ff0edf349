#!/usr/bin/env python3
"""What `cede bench` has no scenario for, on a real GPU: a scheduler that is killed, results that have to
be the same bit by bit, namespaces, the launch path instruction by instruction. One JSON file a section.

    bench/checks.py --cede build-static/src/cli/cede --out DIR [SECTION...]

Needs root (or CAP_SYS_PTRACE) and python3; section harmless needs PyTorch with torchvision, launch gcc.
Every program is started here, under a time limit, and only these are touched. Prints a table last.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "programs"))
import provenance  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SETTLE = 0.5  # s: programs that just changed their setting


def percentile(values, p):
    """Nearest rank."""
    v = sorted(values)
    return v[max(0, -(-len(v) * p // 100) - 1)] if v else None


class Program:
    """A child whose output lines are JSON; kept with the time they came."""

    def __init__(self, argv, limit, env=None, stdin=None):
        self.lines = []
        self.argv = argv
        self.p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  stdin=stdin, env=env)
        self.errors = []
        self.timer = threading.Timer(limit, self.p.kill)
        self.timer.start()
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.read_err)]
        for r in self.readers:
            r.start()

    def read(self):
        for line in self.p.stdout:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.errors.append(line.rstrip())

    def read_err(self):
        for line in self.p.stderr:
            self.errors.append(line.rstrip())

    @property
    def pid(self):
        return self.p.pid

    def wait_lines(self, n, limit=120):
        end = time.monotonic() + limit
        while len(self.lines) < n:
            if self.p.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.argv}: no output; {self.errors[-3:]}")
            time.sleep(0.01)

    def finish(self, sig=None, limit=60):
        if sig is not None and self.p.poll() is None:
            self.p.send_signal(sig)
        try:
            self.p.wait(limit)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        for r in self.readers:
            r.join(5)
        self.timer.cancel()
        if self.p.returncode:
            raise RuntimeError(f"{self.argv}: status {self.p.returncode}; {self.errors[-3:]}")
        return self.lines[-1] if self.lines else None


class Bench:
    def __init__(self, cede, out):
        self.cede = str(pathlib.Path(cede).resolve())
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.tmp = tempfile.mkdtemp(prefix="cede-bench-")
        self.env = dict(os.environ, CEDE_DIR=self.tmp)
        self.daemon = None
        self.rate = None
        self.programs = []

    # -- programs ---------------------------------------------------------------------------------
    def load(self, role, limit=120, **options):
        argv = [self.cede, "load", role, "--device", "nvidia"]
        if self.rate:
            argv += ["--iterations-per-us", str(self.rate)]
        for k, v in options.items():
            argv += ["--" + k.replace("_", "-")] + ([] if v is True else [str(v)])
        p = Program(argv, limit)
        self.programs.append(p)
        return p

    def batch(self, kernel_us=500, **options):
        p = self.load("batch", kernel_us=kernel_us, report=20, verify=True, **options)
        p.wait_lines(3)
        return p

    def latency(self, seconds, **options):
        return self.load("latency", seconds=seconds, report=50, verify=True, **options)

    def torch(self, name, *args, limit=300):
        p = Program([sys.executable, str(HERE / "programs" / name), *map(str, args)], limit)
        self.programs.append(p)
        return p

    def calibrate(self):
        r = subprocess.run([self.cede, "load", "calibrate", "--device", "nvidia"], timeout=60,
                           capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(r.stderr)
        self.rate = json.loads(r.stdout.splitlines()[-1])["iterations_per_us"]

    # -- the scheduler ----------------------------------------------------------------------------
    def start_daemon(self):
        conf = os.path.join(self.tmp, "cede.conf")
        with open(conf, "w") as f:
            f.write("[daemon]\nlog_level = debug\n")  # tells how long applying took
        self.daemon = subprocess.Popen([self.cede, "daemon", "--dir", self.tmp, "--device",
                                        "nvidia", "--config", conf],
                                       stderr=open(self.out / "ceded.log", "a"))
        for _ in range(200):
            if os.path.exists(os.path.join(self.tmp, "socket")):
                r = subprocess.run([self.cede, "ps"], env=self.env, capture_output=True, timeout=10)
                if r.returncode == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError("ceded does not answer")

    def stop_daemon(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(10)
            self.daemon = None

    def verb(self, *args, check=True):
        t0 = time.monotonic()
        r = subprocess.run([self.cede, *map(str, args)], env=self.env, capture_output=True,
                           text=True, timeout=20)
        if check and r.returncode:
            raise RuntimeError(f"cede {args}: {r.stderr}")
        return (time.monotonic() - t0) * 1e6

    def close(self):
        try:
            self.stop_daemon()
        finally:
            for p in self.programs:
                if p.p.poll() is None:
                    p.p.kill()
                    p.p.wait()
                p.timer.cancel()
            shutil.rmtree(self.tmp, ignore_errors=True)


def rate(batch, t0, t1):
    """Work done per second of wall clock in [t0, t1], from the live lines around it."""
    lines = [l for l in batch.lines if "work_us" in l and "t" in l and "role" not in l]

    def at(t):
        before = [l for l in lines if l["t"] <= t]
        after = [l for l in lines if l["t"] > t]
        a, b = before[-1], after[0]
        return a["work_us"] + (b["work_us"] - a["work_us"]) * (t - a["t"]) / (b["t"] - a["t"])

    return (at(t1) - at(t0)) / (t1 - t0) / 1e6


def latencies(p, t0, t1):
    return [x for l in p.lines if t0 <= l.get("t", -1) <= t1 for x in l.get("latencies_us", [])]


def alone(b, kernel_us, seconds):
    p = b.batch(kernel_us)
    time.sleep(SETTLE)
    t0 = time.monotonic()
    time.sleep(seconds)
    t1 = time.monotonic()
    time.sleep(0.1)
    r = rate(p, t0, t1)
    p.finish(signal.SIGTERM)
    return r


# -- sections -------------------------------------------------------------------------------------
def harmless(b, n=600):
    """An unmodified PyTorch training job, adopted while running and paused ten times: its weights at the
    end are those of an undisturbed run, bit by bit."""
    args = ("train.py", "--iterations", n, "--deterministic")
    ref = b.torch(*args).finish(limit=200)
    train = b.torch(*args)
    train.wait_lines(20)
    b.start_daemon()
    b.verb("set", train.pid, "-c", "batch")
    pauses = []
    for _ in range(10):
        b.verb("pause", train.pid)
        time.sleep(0.05)
        at = len(train.lines)
        time.sleep(0.3)
        stood = len(train.lines) - at
        b.verb("resume", train.pid)
        time.sleep(0.3)
        pauses.append({"iterations_while_paused": stood, "iterations_after": len(train.lines) - at})
    final = train.finish(limit=200)
    b.stop_daemon()
    return {"digest_alone": ref["digest"], "digest_managed": final["digest"], "pauses": pauses,
            "unharmed": ref["digest"] == final["digest"]}


def kill9(b, times=20):
    """ceded killed at random moments beside a latency and three batch jobs that take turns."""
    b.calibrate()
    rng = random.Random(9)
    batches = [b.batch(500) for _ in range(3)]
    lat = b.latency(300)
    lat.wait_lines(2)
    back, worst = [], 0.0
    for i in range(times):
        b.start_daemon()
        for x in batches:
            b.verb("set", x.pid, "-c", "batch")
        b.verb("set", lat.pid, "-c", "latency")
        time.sleep(rng.uniform(0.02, 0.7))
        b.daemon.kill()
        b.daemon.wait()
        b.daemon = None
        t0 = time.monotonic()
        marks = [x.lines[-1]["kernels"] for x in batches]
        # Everybody advances again: look for each one's next kernel after the kill.
        left = set(range(3))
        while left and time.monotonic() < t0 + 5:
            left -= {k for k in left if batches[k].lines[-1]["kernels"] > marks[k] + 4}
            time.sleep(0.005)
        took = time.monotonic() - t0
        back.append({"all_run_again": not left, "seconds": took})
        worst = max(worst, took)
    # What is left at the end is the driver's default.
    t0 = time.monotonic()
    time.sleep(2)
    t1 = time.monotonic()
    time.sleep(0.3)
    equal = [rate(x, t0, t1) for x in batches]
    finals = [x.finish(signal.SIGTERM) for x in batches] + [lat.finish(signal.SIGTERM)]
    return {"times": times, "all_run_again": all(x["all_run_again"] for x in back),
            "worst_s": worst, "each": back, "rates_after": equal,
            "results_right": [f["verified"] for f in finals]}



def launch(b):
    """Instructions of one cuLaunchKernel, and the executable mappings, unmanaged and managed."""
    exe = os.path.join(b.tmp, "launch_path")
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", exe,
                    str(HERE / "programs" / "launch_path.c"), "-ldl"], check=True, timeout=60)
    out = {}
    b.start_daemon()
    # The first run fills the driver's cache of compiled kernels, and maps its compiler for that.
    for config in ("first", "unmanaged", "managed"):
        p = Program([exe, "50"], 120, stdin=subprocess.PIPE)
        b.programs.append(p)
        p.wait_lines(1)
        if config == "managed":
            b.verb("set", p.lines[0]["pid"], "-c", "latency")
            out["ps"] = json.loads(subprocess.run([b.cede, "ps", "--json"], env=b.env, timeout=20,
                                                  capture_output=True, text=True).stdout)["jobs"]
        p.p.stdin.write("go\n")
        p.p.stdin.flush()
        out[config] = p.finish()
    b.stop_daemon()
    # Libraries land at random addresses: compare them as sets.
    for config in ("first", "unmanaged", "managed"):
        out[config]["libraries"].sort()
    out["same"] = out["unmanaged"] == out["managed"]
    return out



def runs(b, seconds=6):
    """`cede run` twice, without a daemon: the second joins what the first started."""
    b.calibrate()
    out = {}
    for config in ("default", "cede"):
        def argv(cls, role, *options):
            head = [b.cede, "run", "--strict", "-c", cls, "--"] if config == "cede" else []
            return head + [b.cede, "load", role, "--device", "nvidia", "--verify",
                           "--iterations-per-us", str(b.rate), *options]

        batch = Program(argv("batch", "batch", "--seconds", str(seconds + 4)), 60, env=b.env)
        b.programs.append(batch)
        time.sleep(2)
        lat = Program(argv("latency", "latency", "--report", "50", "--seconds", str(seconds)), 60,
                      env=b.env)
        b.programs.append(lat)
        lat.wait_lines(1)
        t0 = time.monotonic()
        final = lat.finish()
        # From one second on: by then both have been found.
        first = [x for l in lat.lines if "t" in l and l["t"] < t0 + 1
                 for x in l.get("latencies_us", [])]
        later = [x for l in lat.lines if l.get("t", 0) > t0 + 1 for x in l.get("latencies_us", [])]
        out[config] = {"first_second_p99_us": percentile(first, 99),
                       "p50_us": percentile(later, 50), "p99_us": percentile(later, 99),
                       "verified": [final["verified"], batch.finish()["verified"]]}
    end = time.monotonic() + 10  # the transient daemon ends with the last job
    while os.path.exists(os.path.join(b.tmp, "socket")) and time.monotonic() < end:
        time.sleep(0.05)
    out["daemon_gone"] = not os.path.exists(os.path.join(b.tmp, "socket"))
    return out


def namespaces(b):
    """A program in a pid namespace of its own, as in a container: adopted and paused from outside; and
    a job whose GPU work is done by a grandchild."""
    b.calibrate()
    out = {}
    inner = [b.cede, "load", "batch", "--device", "nvidia", "--report", "20", "--verify",
             "--iterations-per-us", str(b.rate), "--seconds", "12"]
    b.start_daemon()
    for name, argv in (("container", ["unshare", "--pid", "--fork", "--mount-proc", *inner]),
                       ("grandchild", [b.cede, "run", "-c", "batch", "--strict", "--", "sh", "-c",
                                       '"$@" & wait', "sh", *inner])):
        p = Program(argv, 60, env=b.env)
        b.programs.append(p)
        p.wait_lines(10)
        if name == "container":
            b.verb("set", p.pid, "-c", "batch")
        time.sleep(1)
        jobs = json.loads(subprocess.run([b.cede, "ps", "--json"], env=b.env, timeout=20,
                                         capture_output=True, text=True).stdout)["jobs"]
        b.verb("pause", p.pid)
        time.sleep(0.1)
        at = p.lines[-1]["kernels"]
        time.sleep(0.5)
        stood = p.lines[-1]["kernels"] - at
        b.verb("resume", p.pid)
        time.sleep(0.5)
        ran = p.lines[-1]["kernels"] - at
        out[name] = {"found": [(j["processes"], j["state"]) for j in jobs],
                     "kernels_while_paused": stood, "kernels_after": ran,
                     "verified": p.finish()["verified"]}
    b.stop_daemon()
    return out


def contexts(b, seconds=8):
    """One batch job of two processes on one GPU, beside a latency program."""
    b.calibrate()
    base = alone(b, 500, 3)
    b.start_daemon()
    inner = " ".join([b.cede, "load", "batch", "--device", "nvidia", "--verify",
                      "--iterations-per-us", str(b.rate), "--seconds", str(seconds)])
    two = Program([b.cede, "run", "-c", "batch", "--strict", "--", "sh", "-c",
                   f"{inner} & {inner} & wait"], 60, env=b.env)
    b.programs.append(two)
    time.sleep(2)
    lat = b.latency(seconds - 3)
    b.verb("set", lat.pid, "-c", "latency")
    lat.wait_lines(1)
    t0 = time.monotonic()
    final = lat.finish()
    values = latencies(lat, t0 + SETTLE, t0 + seconds)
    two.finish()
    b.stop_daemon()
    ends = [l for l in two.lines if l.get("role") == "batch"]
    return {"p50_us": percentile(values, 50), "p99_us": percentile(values, 99),
            "shares": [l["rate"] / base for l in ends],
            "verified": [l["verified"] for l in ends] + [final["verified"]]}


SECTIONS = {f.__name__: f for f in (harmless, kill9, launch, namespaces, contexts, runs)}


def machine():
    q = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                       capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
    name, driver = [x.strip() for x in q[0].split(",")] if q else ("?", "?")
    return {**provenance.head(), "chip": name, "gpus": len(q), "driver": driver}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cede", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    args = parser.parse_args()
    unknown = [s for s in args.sections if s not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]}: choose from {', '.join(SECTIONS)}")
    about = machine()
    failed = 0
    table = []
    for name in args.sections or SECTIONS:
        b = Bench(args.cede, args.out)
        print(f"-- {name}", file=sys.stderr, flush=True)
        t0 = time.monotonic()
        try:
            result = SECTIONS[name](b)
        except Exception as e:  # shown as failed, never dropped
            result = {"failed": f"{type(e).__name__}: {e}"}
            failed += 1
        finally:
            b.close()
        result = {"section": name, **about, "took_s": round(time.monotonic() - t0, 1), **result}
        (b.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        brief = {k: v for k, v in result.items() if k not in about and k not in ("section", "each")}
        table.append(f"{name}: {json.dumps(brief)[:1500]}")
    print("\n".join(table))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
