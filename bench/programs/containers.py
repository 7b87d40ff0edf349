"""Whether a GPU program in the namespaces of a container is steered as one outside is: a batch program that has only
CEDE_CLASS=batch, on the host, in a pid namespace, and in a user namespace of an ordinary user as well (rootless), beside
a latency program on the host. Then it is steered from inside, by the socket for containers: weight, pause, resume.

usage: containers.py CEDE FILE [DEVICE [SECONDS]]     nvidia, 6 seconds each; writes FILE and prints a table. Takes root
and unshare, nsenter and setpriv of util-linux; what cannot be made here is in the table with the reason.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import provenance
from looking import running

USER = "12345"
PIDS = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
WAYS = {
    "host": ([], None),
    "pid namespace": (PIDS, ["-p", "-m"]),
    "rootless": (["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "unshare", "-U", "-r", *PIDS[:-1], "--mount-proc"],
                 ["-U", "-p", "-m"]),
}


@contextlib.contextmanager
def killed(*argv, **more):
    """unshare(1) ignores SIGTERM, and its child is killed with it."""
    p = subprocess.Popen(argv, **more)
    try:
        yield
    finally:
        p.kill()
        p.wait(30)


def jobs(cede):
    out = subprocess.run([cede, "ps", "--json"], stdout=subprocess.PIPE, check=True, timeout=30).stdout
    return json.loads(out)["jobs"]


def job(cede, name):
    return next((j for j in jobs(cede) if j["name"] == name), None)


def until(what, seconds):
    """How long it took; None."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if what():
            return time.monotonic() - began
        time.sleep(0.02)
    return None


def work_us(path):
    """What the program has said last that it did."""
    with open(path, encoding="utf-8") as f:
        lines = [line for line in f if line.endswith("}\n") and "work_us" in line]
    return json.loads(lines[-1])["work_us"] if lines else 0


def rate(path, seconds):
    before, began = work_us(path), time.monotonic()
    time.sleep(seconds)
    return (work_us(path) - before) / 1e6 / (time.monotonic() - began)


def inside(cede, enter, guest, *args):
    """A verb by the socket for containers; from the host where there is no namespace."""
    r = subprocess.run([*(["nsenter", *enter] if enter else []), cede, *args], env=dict(os.environ, CEDE_DIR=guest),
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=20)
    return None if r.returncode == 0 else r.stdout.strip()[-300:]


def steer(cede, folder, name, enter, r):
    """From inside: what each verb answered, and what it did."""
    guest, out = f"{folder}/cede/container", f"{folder}/{name}.out"
    j = job(cede, name)
    enter = ["-t", str(j["pid"]), *enter] if enter else None
    target = "1" if enter else str(j["pid"])
    r["ps_inside"] = subprocess.run([*(["nsenter", *enter] if enter else []), cede, "ps"], text=True, check=False, timeout=20,
                                    env=dict(os.environ, CEDE_DIR=guest), stdout=subprocess.PIPE).stdout
    r["alone_rate"] = rate(out, 1.5)
    r["errors"] = [e for e in (inside(cede, enter, guest, "set", target, "-w", "50"),
                               inside(cede, enter, guest, "pause", target)) if e]
    time.sleep(0.5)
    j = job(cede, name)
    r["weight"], r["state"], r["paused_rate"] = j["weight"], j["state"], rate(out, 1)
    error = inside(cede, enter, guest, "resume", target)
    r["errors"] += [error] if error else []
    time.sleep(0.5)
    r["resumed_rate"] = rate(out, 1.5)
    raised = inside(cede, enter, guest, "set", target, "-c", "latency")
    r["raising"] = "refused" if raised else "DONE"


def measure(cede, folder, device, name, way, seconds):
    prefix, enter = way
    program = name.replace(" ", "-")
    r = {"errors": []}
    env = dict(os.environ, CEDE_CLASS="batch", CEDE_NAME=program)
    load = [cede, "load", "batch", "--device", device, "--report", "100", "--seconds", "60"]
    if prefix:
        made = subprocess.run([*prefix, "true"], stderr=subprocess.PIPE, text=True, check=False, timeout=20)
        if made.returncode:
            return {"errors": ["cannot be made here: " + made.stderr.strip()[-200:]]}
    with open(f"{folder}/{program}.out", "w", encoding="utf-8") as out, open(f"{folder}/{program}.err", "w", encoding="utf-8") as err, \
            killed(*prefix, *load, env=env, stdout=out, stderr=err):
        r["known_s"] = until(lambda: (job(cede, program) or {"gpus": []})["gpus"], 20)
        if r["known_s"] is None:
            with open(f"{folder}/{program}.err", encoding="utf-8") as f:
                r["errors"].append("no job: " + f.read()[-300:])
            return r
        r["class"] = job(cede, program)["class"]
        steer(cede, folder, program, enter, r)
        serve = [cede, "load", "latency", "--device", device, "--kernel-us", "100", "--period-us", "10000", "--seconds", str(seconds)]
        done = subprocess.run([cede, "run", "-q", "-c", "latency", "-n", "serve", "--", *serve], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=seconds + 25)
        if done.returncode:
            r["errors"].append("latency program: " + done.stderr[-300:])
        else:
            last = json.loads(done.stdout.strip().split("\n")[-1])
            r |= {"p50_us": last["p50_us"], "p99_us": last["p99_us"], "max_us": last["max_us"]}
    return r


def main():
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    cede, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    device, seconds = (sys.argv + ["nvidia"])[3], float((sys.argv[4:] + [6])[0])
    if os.geteuid() != 0 or not all(shutil.which(x) for x in ("unshare", "nsenter", "setpriv")):
        sys.exit("containers.py: takes root, and unshare, nsenter and setpriv")
    result = {**provenance.head(cede), "device": device, "ways": {}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        shutil.copy(cede, f"{folder}/cede-program")  # where every user may execute it
        cede = f"{folder}/cede-program"
        os.environ["CEDE_DIR"] = os.environ["CEDE_STATE_DIR"] = f"{folder}/cede"
        with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\naccounts = no\n")
        with open(f"{folder}/ceded.err", "w", encoding="utf-8") as log, \
                running(cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf", stderr=log):
            if until(lambda: os.path.exists(f"{folder}/cede/container/socket"), 20) is None:
                with open(f"{folder}/ceded.err", encoding="utf-8") as f:
                    sys.exit("containers.py: ceded does not start: " + f.read())
            os.chmod(f"{folder}/cede", 0o755)
            os.chmod(f"{folder}/cede/container", 0o755)
            for name, way in WAYS.items():
                try:
                    r = measure(cede, folder, device, name, way, seconds)
                except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError) as e:
                    r = {"errors": [repr(e)[-300:]]}
                result["ways"][name] = r
                with open(f"{folder}/ceded.err", encoding="utf-8") as f:
                    result["ceded"] = f.read()[-6000:]
                with open(path, "w", encoding="utf-8") as f:  # each time: this may be cut off
                    json.dump(result, f, indent=1)
                    f.write("\n")
                time.sleep(1)
    columns = ("known_s", "class", "weight", "state", "alone_rate", "paused_rate", "resumed_rate", "raising", "p50_us", "p99_us", "max_us")
    print(" ".join(f"{c:>12}" for c in ("where", *columns)))
    for name, r in result["ways"].items():
        cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in (r.get(c, "-") for c in columns)]
        print(f"{name:>13}" + " ".join(f"{c:>12}" for c in cells))
        for e in r["errors"]:
            print(f"{name:>13} ! {e}")


if __name__ == "__main__":
    main()
