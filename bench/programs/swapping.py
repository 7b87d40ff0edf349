"""A PyTorch training and an idle inference server leave the GPU's memory by themselves when a server of class latency
needs it, and come back when that ends; a training of two processes, which this driver may not be able to bring back, is
refused, and the server waits until it ends. Batch jobs that do not fit together wait in line instead of running out of
memory. With a ceded of its own. For an NVIDIA GPU that nobody else uses, root, PyTorch, and host memory for what leaves.

usage: swapping.py CEDE FILE [PART...]   prints what it saw, and writes it to FILE: queue, swap, refused, or all
       swapping.py --train N        one of the training's processes: N iterations, and a digest of its weights
       swapping.py --serve GIB      the server: holds so much, and serves a request every 20 ms, until SIGTERM
       swapping.py --hold GIB       one of the jobs in line: holds so much for 3 s
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import provenance

ITERATIONS, LINE, IDLE_GIB = 350, 5, 24
BEGAN = time.monotonic()
HERE = os.path.abspath(__file__)


def hold(gib):
    import torch
    held = [torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda") for _ in range(gib)]
    torch.cuda.synchronize()
    return held


def train(iterations):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    sys.argv = ["train.py", "--iterations", str(iterations), "--batch", "128", "--deterministic"]
    import train as training  # noqa: F401


def serve(gib):
    import torch
    import told
    held = hold(gib)
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.half)

    def request():
        torch.mm(a, a)
        torch.cuda.synchronize()
    for _ in range(20):
        request()
    told.requests(0.02, request)
    told.final("serve", len(held) == gib)


def in_line(gib):
    held = hold(gib)
    sums = [int(h[:4096].sum()) for h in held]
    time.sleep(3)
    print(json.dumps({"same": sums == [int(h[:4096].sum()) for h in held]}), flush=True)


# ---- from outside ----

def lines(path):
    """The whole lines of JSON there so far."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(text) for text in f.read().split("\n")[:-1] if text.startswith("{")]


def start(argv, path):
    with open(path, "w", encoding="utf-8") as out, open(path + ".err", "w", encoding="utf-8") as err:
        return subprocess.Popen(argv, stdout=out, stderr=err)


def until(what, seconds, *args):
    end = time.monotonic() + seconds
    while not what(*args):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s")
        time.sleep(0.1)
    return time.monotonic()


def stage(text):
    print(f"{time.monotonic() - BEGAN:6.1f} s: {text}", flush=True)


def gpu_bytes():
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], check=True,
                         capture_output=True, text=True, timeout=60).stdout
    return int(out.split()[0]) << 20


def job(cede, name):
    out = subprocess.run([cede, "ps", "--json"], check=True, capture_output=True, timeout=60).stdout
    return next((j for j in json.loads(out)["jobs"] if j["name"] == name), {})


def digests(paths):
    return [x["digest"] for p in paths for x in lines(p) if "digest" in x]


def python(*args):
    return [sys.executable, HERE, *args]


def serve_latency(cede, folder, name, need):
    """A latency job that needs so many GiB; when it was asked for."""
    return time.monotonic(), start([cede, "run", "-c", "latency", "-n", name, "--memory", f"{need}G", "--",
                                    *python("--serve", str(need - 4))], f"{folder}/{name}")


def await_requests(path, n, *programs):
    return until(lambda: len(lines(path)) > n or any(p.poll() is not None for p in programs), 100)


def swap(cede, folder):
    """A training alone; then with a server that was there before, while another comes and goes."""
    ref = f"{folder}/ref"
    if start(python("--train", str(ITERATIONS)), ref).wait(120):
        raise RuntimeError("the training alone failed")
    stage("a training alone has ended")
    out, idle_out, serving = f"{folder}/a", f"{folder}/idle", f"{folder}/server"
    training = start([cede, "run", "-q", "-c", "batch", "-n", "training", "--", *python("--train", str(ITERATIONS))], out)
    idle = start([cede, "run", "-q", "-c", "batch", "-n", "idle", "--", *python("--serve", str(IDLE_GIB))], idle_out)
    until(lambda: len(lines(out)) > 3 and len(lines(idle_out)) > 3, 60)
    time.sleep(6)  # swap_start
    held = [job(cede, name).get("memory_bytes") for name in ("training", "idle")]
    need = (gpu_bytes() - min(held) // 2) // (1 << 30)  # neither may stay
    stage(f"they hold {[round(h / (1 << 30), 1) for h in held]} GiB; a server comes that needs {need}")
    asked, server = serve_latency(cede, folder, "server", need)
    ready = await_requests(serving, 1, server)
    stage("it serves")
    away = [job(cede, name) for name in ("training", "idle")]
    stood = [len(lines(p)) for p in (out, idle_out)]
    time.sleep(5)
    moved = [len(lines(p)) for p in (out, idle_out)] != stood
    server.terminate()
    ended, left = server.wait(60), time.monotonic()
    back = [until(lambda p=p, n=n: len(lines(p)) > n, 60) for p, n in zip((out, idle_out), stood)]
    stage("both are back")
    status = training.wait(120)
    idle.terminate()
    late = sorted(x for line in lines(serving) for x in line.get("latencies_us", ()))
    same = digests([out]) == digests([ref]) and len(digests([ref])) == 1
    return {"held_bytes": held, "needed_bytes": need << 30, "server_ready_s": round(ready - asked, 2),
            "states_meanwhile": [a.get("state") for a in away], "swapped_bytes": [a.get("swapped_bytes") for a in away],
            "moved_meanwhile": moved, "server_status": ended, "requests": len(late), "p50_us": round(late[len(late) // 2]),
            "p99_us": round(late[len(late) * 99 // 100]), "back_s": [round(b - left, 2) for b in back],
            "training_status": status, "idle_status": idle.wait(60), "iterations_when_away": stood[0] + 10,
            "same_weights": same}


def refused(cede, folder):
    """A job of two processes is not swapped; the server waits until it has ended."""
    out = [f"{folder}/r0", f"{folder}/r1"]
    two = " & ".join(" ".join(python("--train", "150")) + f" >{p}" for p in out) + " & wait"
    training = start([cede, "run", "-q", "-c", "batch", "-n", "two", "--", "sh", "-c", two], f"{folder}/sh")
    until(lambda: all(len(lines(p)) > 3 for p in out), 60)
    time.sleep(6)
    held = job(cede, "two").get("memory_bytes")
    asked, server = serve_latency(cede, folder, "waits", (gpu_bytes() - held) // (1 << 30) + 4)
    status, ended = training.wait(120), time.monotonic()
    ready = await_requests(f"{folder}/waits", 1, server)
    server.terminate()
    return {"held_bytes": held, "waited_while_it_ran_s": round(ended - asked, 2), "then_s": round(ready - ended, 2),
            "training_status": status, "server_status": server.wait(60), "equal": len(set(digests(out))) == 1}


def queue(cede, folder):
    """So many jobs of 50 GB each, of which two fit."""
    began = time.monotonic()
    paths = [f"{folder}/line{i}" for i in range(LINE)]
    jobs = []
    for i, path in enumerate(paths):
        jobs.append(start([cede, "run", "-c", "batch", "-n", f"line{i}", "--memory", "50G", "--",
                           *python("--hold", "48")], path))
        time.sleep(0.3)
    statuses = [j.wait(150) for j in jobs]
    said = []
    for path in paths:
        with open(path + ".err", encoding="utf-8") as f:
            said.append(f.read().strip().split("\n")[0])
    return {"statuses": statuses, "same": [x["same"] for p in paths for x in lines(p)],
            "seconds": round(time.monotonic() - began, 1), "said": said}


def measure(cede, path, parts):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = f"{folder}/cede"
        with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\nswap_start = 5s\n")  # the training is younger than the usual 300 s
        ceded = subprocess.Popen([cede, "daemon", "--device", "nvidia", "--config", f"{folder}/cede.conf"])
        try:
            time.sleep(2)
            result = provenance.head(cede)
            for part in parts:
                try:
                    result[part.__name__] = part(cede, folder)
                except (RuntimeError, subprocess.SubprocessError, IndexError) as e:
                    result[part.__name__] = {"failed": str(e)}
                    subprocess.run(f"{cede} ps; {cede} ps --json; nvidia-smi; head -c 2000 {folder}/*.err; "
                                   f"tail -n 3 {folder}/a {folder}/idle {folder}/server", shell=True, check=False)
        finally:
            ceded.terminate()
            ceded.wait(60)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(json.dumps(result, indent=1))


def main():
    parts = {"queue": queue, "swap": swap, "refused": refused}
    steps = {"--train": train, "--serve": serve, "--hold": in_line}
    if len(sys.argv) == 3 and sys.argv[1] in steps:
        steps[sys.argv[1]](int(sys.argv[2]))
    elif len(sys.argv) >= 3 and not sys.argv[1].startswith("-") and set(sys.argv[3:]) <= set(parts):
        measure(os.path.abspath(sys.argv[1]), sys.argv[2], [parts[name] for name in sys.argv[3:] or parts])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
