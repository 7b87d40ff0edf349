"""What bounds the speed with which a job leaves GPU memory and comes back: `cede swap out` and `swap in` of a program that
holds so much, with the host's transparent huge pages never, where asked, and always; how much of a processor each thread
of the program took meanwhile, and how much of its host memory was in huge pages. For an NVIDIA GPU that nobody else uses,
root, and host memory for what leaves. What was set of huge pages is set again at the end.

usage: swap_speed.py CEDE FILE [GIB...]   default 8 32
       swap_speed.py --hold GIB           the program: holds so much, and checks it on SIGUSR1
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import provenance

HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
TICK = os.sysconf("SC_CLK_TCK")
LIMIT_S = 120


def hold(gib):
    import torch
    held = [torch.full((1 << 28,), i + 0.5, device="cuda") for i in range(gib)]
    torch.cuda.synchronize()
    signal.signal(signal.SIGUSR1, lambda *_: print(all(bool((h == i + 0.5).all()) for i, h in enumerate(held)), flush=True))
    print("ready", flush=True)
    while True:
        signal.pause()


def threads(pid):
    """Processor seconds of each thread so far, user and system."""
    out = {}
    for t in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{t}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        out[t] = (int(fields[11]) / TICK, int(fields[12]) / TICK)
    return out


def memory(pid):
    """GiB resident, and of it in huge pages."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in f if line.split()[0] in ("Rss:", "AnonHugePages:")}
    return kib["Rss"] / 2**20, kib["AnonHugePages"] / 2**20


def verb(cede, pid, what):
    """Asks until ceded does it: it moves no program that may still size itself by the free memory."""
    end, refused = time.monotonic() + LIMIT_S, ""
    while True:
        before, began = threads(pid), time.monotonic()
        p = subprocess.run([cede, "swap", what, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        if p.returncode == 0:
            break
        refused = p.stderr
        if time.monotonic() > end:
            raise RuntimeError(f"cede swap {what} {pid}: {refused}")
        time.sleep(0.5)
    took, after = time.monotonic() - began, threads(pid)
    used = sorted(([round(b - a, 2) for a, b in zip(before.get(t, (0, 0)), after[t])] for t in after), key=sum, reverse=True)
    rss, huge = memory(pid)
    return {"s": round(took, 2), "refused": refused, "user_system_s": [u for u in used if sum(u) > 0.02 * took][:8], "rss_gib": round(rss, 1), "huge_gib": round(huge, 1)}


def measure(cede, gib):
    p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--hold", str(gib)], stdout=subprocess.PIPE, text=True)
    try:
        if p.stdout.readline() != "ready\n":
            raise RuntimeError(f"a program with {gib} GiB did not start")
        subprocess.run([cede, "set", "-c", "batch", str(p.pid)], check=True, stdout=subprocess.DEVNULL, timeout=30)
        rows = [{"out": verb(cede, p.pid, "out"), "in": verb(cede, p.pid, "in")} for _ in range(2)]
        p.send_signal(signal.SIGUSR1)
        return {"rounds": rows, "same": p.stdout.readline() == "True\n"}
    finally:
        p.kill()
        p.wait()


def main():
    cede, out, sizes = os.path.abspath(sys.argv[1]), sys.argv[2], [int(g) for g in sys.argv[3:]] or [8, 32]
    result = {"shows": __doc__.split("\n\n", maxsplit=1)[0], **provenance.head(cede), "rows": []}
    with open(HUGE, encoding="ascii") as f:
        was = f.read().split("[")[1].split("]")[0]
    with tempfile.TemporaryDirectory(prefix="cede-") as folder:
        os.environ["CEDE_DIR"] = folder
        daemon = subprocess.Popen([cede, "daemon", "--device", "nvidia"], stderr=subprocess.DEVNULL)
        try:
            time.sleep(1.5)
            for gib in sizes:
                for huge in ("never", "madvise", "always"):
                    with open(HUGE, "w", encoding="ascii") as f:
                        f.write(huge)
                    row = {"gib": gib, "huge_pages": huge, **measure(cede, gib)}
                    result["rows"].append(row)
                    for r in row["rounds"]:
                        print(f"{gib:3} GiB {huge:8}", *(f"{w} {r[w]['s']:6.2f} s {gib / r[w]['s']:5.1f} GiB/s huge {r[w]['huge_gib']:5.1f} threads {r[w]['user_system_s'][:3]}"
                                                          for w in ("out", "in")), "" if row["same"] else "CHANGED", flush=True)
                    with open(out, "w", encoding="utf-8") as f:
                        json.dump(result, f, indent=1)
        finally:
            daemon.terminate()
            daemon.wait()
            with open(HUGE, "w", encoding="ascii") as f:
                f.write(was)


if len(sys.argv) == 3 and sys.argv[1] == "--hold":
    hold(int(sys.argv[2]))
elif len(sys.argv) < 3 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
else:
    main()
