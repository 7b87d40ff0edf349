"""A server and a batch program on one GPU: each alone, together by the driver's default, under cede, and under other
schedulers that were built from their public sources. Their libraries sit inside the programs from the start, so all
programs are started anew for each measurement. For an NVIDIA GPU that nobody else uses, as root.

NAME=FOLDER is a peer: xsched, hami-core and nvshare are known (PEERS below has how each is started). FOLDER/peer.json says
which "commit" was "built" and how; another NAME is started "like" one of them, or has "modes" of its own. A peer that fails
is recorded with its error.
"""
import argparse
import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import frontier
import provenance

HERE = os.path.dirname(os.path.abspath(__file__))
REQUESTS, LAUNCHES = "latency --kernel-us 100 --period-us 10000", "latency --period-us 0 --kernels 160 --kernel-us 6 --launch-us 40"
# (server, batch): options of cede load, or of a program here. XSched leaves CUDA's default stream alone, on which PyTorch
# launches what a program puts on no other: those on "a stream" are otherwise unchanged.
CASES = {
    "requests, 0.5 ms": (REQUESTS, "batch --kernel-us 500"),
    "requests, 10 ms": (REQUESTS, "batch --kernel-us 10000"),
    "launches, 0.5 ms": (LAUNCHES, "batch --kernel-us 500"),
    "launches, 10 ms": (LAUNCHES, "batch --kernel-us 10000"),
    "resnet, training, on a stream": ("infer.py --model resnet50 --batch 1 --eager", "train.py"),
    "resnet, training": ("infer.py --model resnet50 --batch 1 --eager", "train.py"),
}
XSCHED = {"LD_LIBRARY_PATH": "{folder}/lib", "XSCHED_CUDA_LIB": "{libcuda}", "CUXTRA_CUDA_LIB": "{libcuda}",
          "XSCHED_SCHEDULER": "GLB", "XSCHED_AUTO_XQUEUE": "ON"}


def xsched(name, level, in_flight, **more):
    """Highest priority first, the server with the in-flight limit of XSched's own example."""
    queue = {"XSCHED_AUTO_XQUEUE_LEVEL": str(level)}
    return {"mode": name, "daemon": ["{folder}/bin/xserver", "HPF", "50000"], "both": XSCHED | queue | more,
            "server": {"XSCHED_AUTO_XQUEUE_PRIORITY": "1", "XSCHED_AUTO_XQUEUE_THRESHOLD": "16", "XSCHED_AUTO_XQUEUE_BATCH_SIZE": "8"},
            "batch": {"XSCHED_AUTO_XQUEUE_PRIORITY": "0", "XSCHED_AUTO_XQUEUE_THRESHOLD": str(in_flight),
                      "XSCHED_AUTO_XQUEUE_BATCH_SIZE": str(max(in_flight // 2, 1))}}


def hami(percent):
    """Its priorities are for a monitor of HAMi's, outside the library: the limit is what the library does itself."""
    return {"mode": f"batch limited to {percent} %", "both": {"LD_PRELOAD": "{folder}/libvgpu.so", "CUDA_REDIRECT": "{folder}/libvgpu.so", "LIBCUDA_LOG_LEVEL": "0"},
            "folders": ["/tmp/vgpulock"], "settle_s": 7,
            "server": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "{scratch}/server.cache"},
            "batch": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "{scratch}/batch.cache", "CUDA_DEVICE_SM_LIMIT": str(percent),
                      "GPU_CORE_UTILIZATION_POLICY": "FORCE"}}


def nvshare(name, *options):
    """It opens libcuda.so, which a machine without development files may not have."""
    return {"mode": name, "daemon": ["{folder}/nvshare-scheduler"],
            "setup": [["{folder}/nvsharectl", *options], ["ln", "-sf", "{libcuda}", "{scratch}/libcuda.so"]],
            "both": {"LD_PRELOAD": "{folder}/libnvshare.so", "LD_LIBRARY_PATH": "{scratch}"}}


PEERS = {
    "xsched": [xsched("level 1", 1, 4), xsched("level 1, 1 in flight", 1, 1), xsched("TSG", 3, 16, XSCHED_CUDA_LV3_IMPL="TSG")],
    "hami-core": [hami(50), hami(20)],
    "nvshare": [nvshare("turns of 1 s", "-T", "1"), nvshare("no turns", "-S", "off")],
}
SETTLE_S, START_S, END_S = 3, {"load": 30, "torch": 100}, 5


class Failed(Exception):
    pass


class Program:
    """One, and what it starts, which is a session of its own."""

    def __init__(self, words, environment, path):
        self.path = path
        with open(path, "w", encoding="utf-8") as out, open(path + ".err", "w", encoding="utf-8") as err:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                            env=os.environ | environment)

    def said(self):
        """Objects; a line that is being written, or is not one, is left out."""
        found = []
        with open(self.path, encoding="utf-8", errors="replace") as f:
            for text in f:
                with contextlib.suppress(ValueError):
                    found.append(json.loads(text))
        return [o for o in found if isinstance(o, dict)]

    def error(self):
        with open(self.path + ".err", encoding="utf-8", errors="replace") as f:
            return f"status {self.process.poll()}: {f.read()[-600:].strip()}"

    def started(self, limit_s):
        end = time.monotonic() + limit_s
        while sum("t" in o for o in self.said()) < 3:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"{os.path.basename(self.path)} did not start (within {limit_s} s), {self.error()}")
            time.sleep(0.2)

    def core_s(self):
        """Processor time that the session has had."""
        ticks = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                words = f.read().rpartition(")")[2].split()
                ticks += (int(words[11]) + int(words[12])) * (int(words[3]) == self.process.pid)
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self):
        """One that does not even end by SIGKILL is left behind."""
        for number in signal.SIGTERM, signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)


class Study:
    def __init__(self, args, modes):
        self.args, self.modes, self.rows = args, modes, []
        self.head = {"shows": __doc__.split("\n\n", maxsplit=1)[0]}
        if os.path.exists(args.file):
            with open(args.file, encoding="utf-8") as f:
                self.head = json.load(f)
            self.rows = self.head.pop("rows")
        self.device, self.speed = ["--device", "soft" if args.soft else "nvidia"], []
        if not args.soft:
            speed = json.loads(frontier.output(args.cede, "load", "calibrate", *self.device))
            self.speed = ["--iterations-per-us", str(speed["iterations_per_us"])]
        self.head |= provenance.head(args.cede) | ({"gpu": "software GPU"} if args.soft else {})
        self.head |= {"window_s": args.seconds,
                      "command": " ".join(["peers.py", *(a.rpartition("/")[2] if "=" not in a else a.partition("=")[0] + "=FOLDER" for a in sys.argv[1:])])}
        self.head["peers"] = self.head.get("peers", {}) | {
            name: {"commit": m["commit"], "built": m["built"]} for name, found in modes.items() for m in found[:1]}

    def command(self, case, role):
        """16 kernels in flight, as a program has that launches ahead; times on the software GPU are in real time."""
        text = CASES[case][role == "batch"]
        if not text.startswith(("batch", "latency")):
            on = [os.path.abspath(__file__), "--on-stream"] if "on a stream" in case else []
            return [sys.executable, *on, os.path.join(HERE, text.split()[0]), *text.split()[1:]]
        words = [self.args.cede, "load", *text.split(), *self.device, *self.speed, "--report", "50", "--verify"]
        if role == "batch":
            words += ["--depth", "400" if self.args.soft and "500" in text else "16"]
        return words + ["--open"] * ("10000" in words and role == "server" and not self.args.soft)

    def start(self, stack, case, role, mode, scratch, wrap=()):
        text = CASES[case][0]
        program = Program([*wrap, *self.command(case, role)], environment(mode, role, scratch), f"{scratch}/{role}")
        stack.callback(program.end)
        program.started(START_S["load" if text.startswith("latency") else "torch"])
        return program

    def window(self, programs, settle_s=SETTLE_S):
        """What each had, and the processor time that it took, in cores."""
        time.sleep(min(settle_s, 2 * self.args.seconds))
        begin, before = time.monotonic(), {n: p.core_s() for n, p in programs.items()}
        time.sleep(self.args.seconds)
        end, after = time.monotonic(), {n: p.core_s() for n, p in programs.items()}
        time.sleep(0.2)
        found = {}
        for name, program in programs.items():
            if program.process.poll() is not None:
                raise Failed(f"{name} has ended, {program.error()}")
            lines = [o for o in program.said() if begin <= o.get("t", 0) <= end]
            found[name] = {"core": round((after[name] - before[name]) / (end - begin), 4)}
            if name == "server":
                latencies = [v for o in lines for v in o.get("latencies_us", [])]
                found[name] |= {"n": len(latencies), "rate": len(latencies) / (end - begin), **frontier.percentiles("", latencies)}
            elif name == "batch":
                work = [(o["t"], o["work_us"]) for o in lines if "work_us" in o]
                rate = (work[-1][1] - work[0][1]) / 1e6 / (work[-1][0] - work[0][0]) if len(work) > 1 else 0
                found[name]["rate"] = rate
        return found

    def alone(self, case, scratch):
        found = {}
        for role in "server", "batch":
            with contextlib.ExitStack() as stack:
                found |= self.window({role: self.start(stack, case, role, {}, scratch)})
        return found

    def together(self, case, mode, scratch, stack):
        """The batch program begins, as it would not under a scheduler that has a server without pauses first."""
        programs = {}
        words = [w.format(**names(mode, scratch)) for w in mode.get("daemon", [])]
        for folder in mode.get("folders", []):
            os.makedirs(folder, exist_ok=True)
        if words:
            programs["daemon"] = Program(words, {}, f"{scratch}/daemon")
            stack.callback(programs["daemon"].end)
            time.sleep(1.5)
            if programs["daemon"].process.poll() is not None:
                raise Failed(f"{os.path.basename(words[0])} has ended, {programs['daemon'].error()}")
        for setup in mode.get("setup", []):
            frontier.output(*[w.format(**names(mode, scratch)) for w in setup])
        for role in "batch", "server":
            wrap = [self.args.cede, "run", "-q", "-c", {"server": "latency"}.get(role, role), "-n", role, "--"] if mode.get("cede") else []
            programs[role] = self.start(stack, case, role, mode, scratch, wrap)
        found = self.window(programs, mode.get("settle_s", SETTLE_S))
        for role in "server", "batch":  # while the scheduler still runs
            programs[role].end()
            found[role]["verified"] = next((o["verified"] for o in programs[role].said() if "verified" in o), None)
        return found

    def measure(self, case, system, mode):
        row = {"case": case, "system": system} | {k: mode[k] for k in ("daemon", "setup", "both", "server", "batch") if k in mode and not mode.get("cede")}
        row = {k if k not in ("server", "batch") else k + "_environment": v for k, v in row.items()}
        with tempfile.TemporaryDirectory(prefix="cede-", ignore_cleanup_errors=True) as scratch, contextlib.ExitStack() as stack:
            os.environ["CEDE_DIR"] = scratch
            try:
                row["measured"] = self.alone(case, scratch) if system == "alone" else self.together(case, mode, scratch, stack)
            except (Failed, OSError, ValueError, subprocess.SubprocessError) as e:
                row["failed"] = f"{type(e).__name__}: {e}"
        self.rows = [r for r in self.rows if (r["case"], r["system"]) != (case, system)] + [row]
        with open(self.args.file, "w", encoding="utf-8") as f:
            json.dump({**self.head, "rows": self.rows}, f, indent=1)
            f.write("\n")
        self.show(row)

    def show(self, row):
        m, alone = row.get("measured"), next((r.get("measured") for r in self.rows if r["case"] == row["case"] and r["system"] == "alone"), None)
        text = f"{row['case']:30} {row['system']:32} "
        if not m:
            print(text + "failed: " + row["failed"][:300], flush=True)
            return
        share = f", share {m['batch']['rate'] / alone['batch']['rate']:.3f}" if alone and alone["batch"]["rate"] else ""
        s = m["server"]
        print(text + f"{s['rate']:8.1f}/s p50 {s['p50_us'] or 0:8.0f} p99 {s['p99_us'] or 0:8.0f} us; batch {m['batch']['rate']:.3f}{share}; cores "
              + ", ".join(f"{n} {v['core']:.3f}" for n, v in m.items()), flush=True)

    def run(self, until):
        cede = {"cede": True, "settle_s": 7, "daemon": [self.args.cede, "daemon", "--dir", "{scratch}", "--device", self.device[1]]}
        systems = {"alone": {}, "default": {}, "cede": cede} | {
            f"{name}: {m['mode']}": m for name, found in self.modes.items() for m in found}
        measured = {(r["case"], r["system"]) for r in self.rows if "measured" in r or not self.args.again}
        left = [(c, s) for c in self.args.case for s in systems if (c, s) not in measured]
        for i, (case, system) in enumerate(left):
            if time.monotonic() > until:
                print(f"{len(left) - i} of {len(left)} are left: run it again")
                return
            self.measure(case, system, systems[system])


def names(mode, scratch):
    return {"folder": mode.get("folder"), "scratch": scratch, "libcuda": libcuda()}


@functools.cache
def libcuda():
    """Its whole path: a peer's stand-in for it has the same name."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
    with open("/proc/self/maps", encoding="utf-8") as f:
        return next((text.split()[-1] for text in f if "/libcuda.so" in text), None)


def environment(mode, role, scratch):
    found = {k: v.format(**names(mode, scratch)) for k, v in (mode.get("both", {}) | mode.get(role, {})).items()} if not mode.get("cede") else {}
    for key in "LD_LIBRARY_PATH", "LD_PRELOAD":
        if key in found and os.environ.get(key):
            found[key] += ":" + os.environ[key]
    return found


def peer(text):
    name, _, folder = text.partition("=")
    folder, about = os.path.abspath(folder), {}
    with contextlib.suppress(FileNotFoundError), open(f"{folder}/peer.json", encoding="utf-8") as f:
        about = json.load(f)
    modes = about.get("modes") or PEERS.get(about.get("like", name))
    if not modes or not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{text!r}: no such folder, or neither of {', '.join(PEERS)} nor like one by its peer.json")
    return name, [m | {"folder": folder, "commit": about.get("commit"), "built": about.get("built")} for m in modes]


def on_stream():
    """PROGRAM OPTION...: a program of PyTorch, on a stream that is not CUDA's default one."""
    import runpy
    import torch
    torch.cuda.set_stream(torch.cuda.Stream())
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")


def has_torch():
    program = "import torch, torchvision; assert torch.cuda.is_available()"
    return not subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=100, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cede")
    parser.add_argument("file", help="measures what FILE (JSON) lacks, and adds it")
    parser.add_argument("peers", nargs="*", type=peer, metavar="NAME=FOLDER")
    parser.add_argument("--case", action="append", choices=list(CASES), help="default: all that can run here")
    parser.add_argument("--within", type=float, default=450, metavar="S", help="begin nothing after that time; it ends 120 s later at most")
    parser.add_argument("--seconds", type=float, default=4, metavar="S", help="a window")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--soft", action="store_true", help="on the software GPU (CEDE_SOFT_SOCKET)")
    args = parser.parse_args()
    args.cede = os.path.abspath(args.cede)
    if not args.case:
        args.case = [c for c in CASES if not c.startswith("resnet") or not args.soft and has_torch()]
    until = time.monotonic() + args.within

    def ended(number, _):
        sys.exit("not done in time: what FILE has was measured" if number == signal.SIGALRM else "ended by a signal")
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGALRM, ended)
    signal.alarm(int(args.within) + 90)
    Study(args, dict(args.peers)).run(until)


if __name__ == "__main__":
    on_stream() if sys.argv[1:2] == ["--on-stream"] else main()
