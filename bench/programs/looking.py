"""What looking costs: a latency program beside a batch program under a ceded of its own, while nobody looks, and while
somebody scrapes metrics, watches `cede top`, traces, or asks for accounts, once a second, alone and all together.

usage: looking.py CEDE FILE [DEVICE [SECONDS]]     nvidia, 8 seconds each; writes FILE and prints a table
"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import provenance

TICK = os.sysconf("SC_CLK_TCK")


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


@contextlib.contextmanager
def running(*argv, **more):
    p = subprocess.Popen(argv, **{"stdout": subprocess.DEVNULL, **more})
    try:
        yield p
    finally:
        p.terminate()
        p.wait(30)


@contextlib.contextmanager
def each_second(act):
    stop = threading.Event()

    def loop():
        while not stop.wait(1):
            act()
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def metrics(cede, _):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with running(cede, "metrics", "--listen", f"127.0.0.1:{port}"):
        time.sleep(0.5)
        with each_second(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()):
            yield


def top(cede, _):
    return running(cede, "top", "--json", "-d", "1")


def trace(cede, folder):
    return running(cede, "trace", "-o", f"{folder}/trace")


def accounts(cede, _):
    return each_second(lambda: subprocess.run([cede, "acct", "--json"], check=True, stdout=subprocess.DEVNULL))


LOOKS = {"nobody": (), "metrics": (metrics,), "top": (top,), "trace": (trace,), "accounts": (accounts,),
         "all": (metrics, top, trace, accounts), "nobody again": ()}


def measure(cede, folder, device, looks, seconds):
    load = [cede, "load", "latency", "--device", device, "--kernel-us", "100", "--period-us", "10000", "--seconds",
            str(seconds)]
    with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
        f.write(f"[daemon]\naccounts = {'yes' if accounts in looks else 'no'}\n")
    with running(cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf") as ceded:
        time.sleep(2)
        with running(cede, "run", "-q", "-c", "batch", "-n", "train", "--", cede, "load", "batch", "--device", device):
            time.sleep(3)
            with contextlib.ExitStack() as stack:
                for look in looks:
                    stack.enter_context(look(cede, folder))
                before, began = processor_s(ceded.pid), time.monotonic()
                out = subprocess.run([cede, "run", "-q", "-c", "latency", "-n", "serve", "--", *load], check=True,
                                     stdout=subprocess.PIPE, timeout=seconds + 60).stdout
                core = (processor_s(ceded.pid) - before) / (time.monotonic() - began)
    last = json.loads(out.decode().strip().split("\n")[-1])
    return {"p50_us": last["p50_us"], "p99_us": last["p99_us"], "max_us": last["max_us"], "ceded_core": round(core, 5)}


def main():
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    cede, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    device, seconds = (sys.argv + ["nvidia"])[3], float((sys.argv[4:] + [8])[0])
    result = {**provenance.head(cede), "device": device, "looks": {}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = os.environ["CEDE_STATE_DIR"] = f"{folder}/cede"
        for name, looks in LOOKS.items():
            result["looks"][name] = r = measure(cede, folder, device, looks, seconds)
            print(f"{name:14} p50 {r['p50_us']:8.1f} us  p99 {r['p99_us']:8.1f}  longest {r['max_us']:9.1f}  "
                  f"ceded {r['ceded_core']:.2%} of a core", flush=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
