"""ranks.py N OPTION...: N programs `cede-load batch OPTION...` as one job, such as the ranks of an MPI program. Its
lines are of all together. With --lockstep they meet before each burst. It ends when one of them ends."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import told


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def cede():
    """The program that started this one, if that is cede."""
    exe = os.readlink(f"/proc/{os.getppid()}/exe")
    return exe if os.path.basename(exe).startswith("cede") else "cede"


ranks, options = int(sys.argv[1]), [o for o in sys.argv[2:] if o != "--lockstep"]
load = [cede(), "load"]
device = ["--device", "soft" if "CEDE_SOFT_SOCKET" in os.environ else "nvidia"]
if device[1] == "nvidia":  # once: they would be in each other's way
    speed = json.loads(subprocess.run([*load, "calibrate", *device], stdout=subprocess.PIPE, check=True).stdout)
    options += ["--iterations-per-us", str(speed["iterations_per_us"])]
if "--lockstep" in sys.argv:
    options += ["--barrier", f"ranks-{os.getpid()}", "--ranks", str(ranks)]
programs = [subprocess.Popen([*load, "batch", *device, *options, "--verify", "--report", "50"], stdout=subprocess.PIPE,
                             text=True, preexec_fn=die_with_parent) for _ in range(ranks)]
work, finals = [0.0] * ranks, [None] * ranks


def read(i):
    for text in programs[i].stdout:
        o = json.loads(text)
        work[i] = o["work_us"]
        if "role" in o:
            finals[i] = o


readers = [threading.Thread(target=read, args=(i,)) for i in range(ranks)]
for r in readers:
    r.start()
while not told.stop and not any(p.poll() is not None for p in programs):
    time.sleep(0.05)
    if all(work):
        told.line(t=time.monotonic(), work_us=sum(work))
for p in programs:
    p.terminate()
for r in readers:
    r.join()
ended = [p.wait() for p in programs]
verified = {f and f["verified"] for f in finals}
told.final("ranks", False if False in verified else None if None in verified else True, rounds=sum(f["rounds"] for f in finals if f))
sys.exit(max(ended, key=abs))
