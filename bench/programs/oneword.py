"""What it costs that ceded reads CEDE_CLASS from outside: a latency program beside batch programs that come and go, which
are started by `cede run`, or have only the word in their environment, or have it and hold the lock of their address space
most of the time (forks of 1 GiB), so that whoever reads their environment waits for it.

usage: oneword.py CEDE FILE [DEVICE [SECONDS]]     nvidia, 12 seconds each; writes FILE and prints a table. Needs cc.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import provenance
from looking import processor_s, running

HOLD = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void *hold(void *p)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
}
__attribute__((constructor)) static void begin(void)
{
    pthread_t t;
    const size_t n = 1UL << 30;
    unsetenv("LD_PRELOAD");
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, n, MADV_NOHUGEPAGE);
    memset(p, 1, n);
    pthread_create(&t, NULL, hold, NULL);
}
"""
WAYS = {"cede run": (True, False), "the word": (False, False), "the word, and holds its lock": (False, True)}


def jobs(cede):
    out = subprocess.run([cede, "ps", "--json"], stdout=subprocess.PIPE, check=True, timeout=30).stdout
    return json.loads(out)["jobs"]


def read_ms(pid):
    """How long whoever reads its environment waits: the longest of twenty times."""
    longest = 0
    for _ in range(20):
        began = time.monotonic()
        with open(f"/proc/{pid}/environ", "rb") as f:
            f.read()
        longest = max(longest, time.monotonic() - began)
    return longest * 1e3


def come_and_go(cede, folder, device, way, stop, seen):
    """One batch program after the other: how long each took to be a job of class batch."""
    by_run, holds = way
    for i in range(1000):
        if stop.is_set():
            return
        name, env = f"train{i}", dict(os.environ)
        load = [cede, "load", "batch", "--device", device, "--name", name, "--seconds", "60"]
        if by_run:
            load = [cede, "run", "-q", "-c", "batch", "-n", name, "--"] + load
        else:
            env |= {"CEDE_CLASS": "batch", "CEDE_NAME": name}
        if holds:
            env["LD_PRELOAD"] = f"{folder}/hold.so"
        began = time.monotonic()
        with running(*load, env=env) as p:
            while time.monotonic() < began + 15 and not stop.is_set():
                found = [j for j in jobs(cede) if j["name"] == name]
                if found and found[0]["gpus"]:
                    seen.append({"s": time.monotonic() - began, "class": found[0]["class"], "source": found[0]["source"],
                                 "read_ms": None if by_run else read_ms(p.pid)})
                    break
                time.sleep(0.02)
            stop.wait(1)


def measure(cede, folder, device, way, seconds):
    load = [cede, "load", "latency", "--device", device, "--kernel-us", "100", "--period-us", "10000", "--seconds",
            str(seconds)]
    stop, seen = threading.Event(), []
    with running(cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf") as ceded:
        time.sleep(2)
        thread = threading.Thread(target=come_and_go, args=(cede, folder, device, way, stop, seen))
        thread.start()
        before, began = processor_s(ceded.pid), time.monotonic()
        try:
            out = subprocess.run([cede, "run", "-q", "-c", "latency", "-n", "serve", "--", *load], check=True,
                                 stdout=subprocess.PIPE, timeout=seconds + 25).stdout
            core = (processor_s(ceded.pid) - before) / (time.monotonic() - began)
        finally:
            stop.set()
            thread.join()
    last = json.loads(out.decode().strip().split("\n")[-1])
    reads = [x["read_ms"] for x in seen if x["read_ms"] is not None]
    return {"p50_us": last["p50_us"], "p99_us": last["p99_us"], "max_us": last["max_us"], "ceded_core": round(core, 5),
            "programs": seen, "batch": sum(x["class"] == "batch" for x in seen), "read_ms": max(reads, default=None)}


def main():
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    cede, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    device, seconds = (sys.argv + ["nvidia"])[3], float((sys.argv[4:] + [12])[0])
    result = {**provenance.head(cede), "device": device, "ways": {}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = os.environ["CEDE_STATE_DIR"] = f"{folder}/cede"
        with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\naccounts = no\n")
        with open(f"{folder}/hold.c", "w", encoding="utf-8") as f:
            f.write(HOLD)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", f"{folder}/hold.c", "-o", f"{folder}/hold.so"],
                       check=True)
        for name, way in WAYS.items():
            result["ways"][name] = r = measure(cede, folder, device, way, seconds)
            waits = sorted(x["s"] for x in r["programs"]) or [float("nan")]
            print(f"{name:28} p50 {r['p50_us']:7.1f} us  p99 {r['p99_us']:7.1f}  longest {r['max_us']:8.1f}  ceded "
                  f"{r['ceded_core']:.2%} of a core  {r['batch']}/{len(r['programs'])} became batch, after "
                  f"{waits[len(waits) // 2]:.2f} s (longest {waits[-1]:.2f})"
                  + (f"  environ read in {r['read_ms']:.1f} ms at most" if r["read_ms"] else ""), flush=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
