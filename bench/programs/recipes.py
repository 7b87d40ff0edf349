"""Recipes of docs/recipes.md that need a GPU, with a ceded of their own. A reinforcement learning loop: a trainer (40 GB)
and a sampler that decodes with a cache of keys and values (60 GB) yield to each other with their memory, on a GPU that
holds one of them at a time (a third program holds what is more); their results are compared bit by bit with those of
runs without yielding. And a job that gives up the GPU and its memory for a meeting. 140 s at most.

usage: recipes.py CEDE LIBCEDE FILE [DEVICE]     nvidia or soft; writes FILE and prints a table. Root.
"""
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import provenance

BEGAN, LIMIT_S = time.monotonic(), 140
HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"nvidia": {"trainer": 40 * 10**9, "sampler": 60 * 10**9, "drawing": 8 * 10**9},
         "soft": {"trainer": 130 << 20, "sampler": 140 << 20, "drawing": 64 << 20}}
SPARE = 4 * 10**9  # of a CUDA context, and what a move wants to stay free


# ---- workers: one phase of work at a time, and a digest of all that it has computed ----

class Soft:
    """Kernels of 1 ms; what is computed is how many ended."""

    def __init__(self, _, size):
        import softgpu
        self.context = softgpu.Context()
        self.context.alloc(size)
        self.done = 0

    def phase(self):
        self.context.launch(20, 1000000)
        self.context.wait(20)
        self.done += 20

    def digest(self):
        return self.done


class Torch:
    def __init__(self, role, size):
        import torch
        self.torch, self.held = torch, []
        torch.manual_seed(7)
        torch.use_deterministic_algorithms(True)
        if role == "hold":
            self.held = [torch.empty(size, dtype=torch.uint8, device="cuda")]
        elif role == "sampler":
            self.sampler(size)
        else:
            self.trainer(size)
        torch.cuda.synchronize()

    def digest(self):
        """Sums of the bits, so that each of them counts."""
        kind = {4: self.torch.int32, 2: self.torch.int16}
        parts = [t.detach().view(kind[t.element_size()]) for t in self.held]
        weights = [self.torch.arange(1, 1 + p.shape[-1], device="cuda") for p in parts]
        return [int((p.reshape(-1, p.shape[-1]).sum(0, dtype=self.torch.int64) * w).sum()) for p, w in zip(parts, weights)]

    def trainer(self, size):
        """A multilayer perceptron with Adam: weights, gradients and two moments of 4 bytes each."""
        torch, width = self.torch, 16384
        layers = max(size // (16 * width * width), 1)
        self.held = [torch.nn.Parameter(torch.randn(width, width, device="cuda") / width ** 0.5) for _ in range(layers)]
        adam = torch.optim.Adam(self.held, lr=1e-5, foreach=False)
        x = torch.randn(512, width, device="cuda")

        def step():
            y = x
            for w in self.held:
                y = y + torch.tanh(torch.nn.functional.linear(y, w))
            adam.zero_grad(set_to_none=False)
            (y - x).square().mean().backward()
            adam.step()
        self.run = lambda: [step() for _ in range(10)]

    def sampler(self, size):
        """A token at a time, each of which attends to all keys and values of its layer."""
        torch, heads, context, batch = self.torch, 16, 16384, 16
        layers = max(size // (2 * 2 * batch * heads * context * 128), 1)
        cache = [[torch.randn(batch, heads, context, 128, device="cuda", dtype=torch.half) for _ in "kv"]
                 for _ in range(layers)]
        state = torch.randn(batch, heads, 1, 128, device="cuda", dtype=torch.half)
        self.held = [state]
        self.at = 0

        def token():
            h = state
            for k, v in cache:
                weights = torch.softmax(torch.matmul(h, k.transpose(2, 3)).float() / 11.3, -1).half()
                h = torch.nn.functional.layer_norm(h + torch.matmul(weights, v), (128,))
                at = self.at % context
                k[:, :, at], v[:, :, at] = h[:, :, 0], -h[:, :, 0]
            state.copy_(h)
            self.at += 1

        def tokens():
            with torch.no_grad():
                for _ in range(64):
                    token()
        self.run = tokens

    def phase(self):
        self.run()
        self.torch.cuda.synchronize()


def worker(role, device, size):
    gpu = (Soft if device == "soft" else Torch)(role, size)
    sys.path.insert(0, os.environ["RECIPES_PYTHON"])
    import cede
    client = cede.Client()
    actions = {"phase": gpu.phase, "yield": lambda: client.job_yield(memory=True),
               "acquire": lambda: client.job_acquire(timeout_us=100000000), "digest": gpu.digest}
    print(json.dumps({"did": "begin"}), flush=True)
    for text in sys.stdin:
        began = time.monotonic()
        result = actions[text.strip()]()
        print(json.dumps({"did": text.strip(), "s": time.monotonic() - began, "result": result}), flush=True)


# ---- from outside ----

class Worker:
    PROGRAM = os.path.abspath(__file__)

    def __init__(self, role, device, size, prefix=()):
        argv = [*prefix, sys.executable, self.PROGRAM, "--worker", role, device, str(size)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        EVERYBODY.append(self)

    def read(self):
        for text in self.process.stdout:
            self.lines.put(json.loads(text))
        self.lines.put(None)

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.lines.get(timeout=max(BEGAN + LIMIT_S - time.monotonic(), 0.1))
        if line is None:
            raise RuntimeError("a worker has ended; its message is above")
        return line

    def do(self, what):
        self.ask(what)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(30)


EVERYBODY = []


def stage(text):
    print(f"{time.monotonic() - BEGAN:6.1f} s: {text}", flush=True)


def gpu_bytes(device):
    """In all, and used."""
    if device == "soft":
        return 0, 0
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"],
                         check=True, capture_output=True, text=True, timeout=60).stdout
    return [int(x) << 20 for x in out.split("\n")[0].split(",")]


def alone(device, roles):
    """Digests after two phases, without yielding: of all at once where all fit."""
    sizes, digests = BYTES[device], {}
    fit = gpu_bytes(device)[0] > sum(sizes[r] for r in roles) + 2 * SPARE
    for group in [roles] if fit else [[r] for r in roles]:
        workers = {r: Worker(r, device, sizes[r]) for r in group}
        for r, w in workers.items():
            w.answer()
            w.do("phase")
            w.do("phase")
            digests[r] = w.do("digest")["result"]
        for w in workers.values():
            w.end()
    return digests


def loop(cede, device):
    """Two phases each. The second of the sampler is asked for while the trainer still works."""
    sizes, seconds = BYTES[device], {}
    expected = alone(device, ["trainer", "sampler"])
    stage("both have run alone")
    more = gpu_bytes(device)[0] - sizes["sampler"] - 2 * SPARE
    hold = Worker("hold", device, more) if more > 0 and device != "soft" else None

    def start(role, cls):
        w = Worker(role, device, sizes[role], [cede, "run", "-q", "-c", cls, "-n", role, "--"])
        w.answer()
        return w

    def timed(w, what, key):
        seconds[key] = round(w.do(what)["s"], 2)
        stage(f"{key}: {seconds[key]} s")
    trainer = start("trainer", "normal")
    timed(trainer, "phase", "trainer_phase_1")
    timed(trainer, "yield", "trainer_yield")
    if hold:
        hold.answer()
    sampler = start("sampler", "latency")
    timed(sampler, "phase", "sampler_phase_1")
    timed(sampler, "yield", "sampler_yield")
    timed(trainer, "acquire", "trainer_acquire")
    sampler.ask("acquire")
    timed(trainer, "phase", "trainer_phase_2")
    digests = {"trainer": trainer.do("digest")["result"]}
    statuses = [trainer.end()]
    left = time.monotonic()
    sampler.answer()
    seconds["sampler_acquire_after_trainer_ended"] = round(time.monotonic() - left, 2)
    timed(sampler, "phase", "sampler_phase_2")
    digests["sampler"] = sampler.do("digest")["result"]
    statuses.append(sampler.end())
    if hold:
        hold.end()
    return {"bytes": {r: sizes[r] for r in ("trainer", "sampler")}, "held_by_a_third": max(more, 0) if hold else 0,
            "seconds": seconds, "statuses": statuses, "same_results": digests == expected}


def meeting(cede, device):
    """From outside: yields its turns and its memory, and goes on later."""
    def verb(*args):
        began = time.monotonic()
        said = subprocess.run([cede, *args], check=True, capture_output=True, text=True, timeout=60).stdout
        stage(said.strip())
        return round(time.monotonic() - began, 2)
    w = Worker("drawing", device, BYTES[device]["drawing"], [cede, "run", "-q", "-c", "normal", "-n", "drawing", "--"])
    w.answer()
    w.do("phase")
    with_it = gpu_bytes(device)[1]
    took = {"yield_s": verb("yield", "--pause", "--memory", "drawing")}
    freed = with_it - gpu_bytes(device)[1]
    w.ask("phase")
    time.sleep(2)
    still = w.lines.empty()
    took["acquire_s"] = verb("acquire", "--timeout", "60s", "drawing")
    w.answer()
    return {"bytes": BYTES[device]["drawing"], **took, "freed_bytes": freed, "stood_still": still, "status": w.end()}


def measure(cede, library, path, device):
    os.environ |= {"CEDE_LIBRARY": library, "RECIPES_PYTHON": os.path.join(HERE, "..", "..", "python"),
                   "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    result = {**provenance.head(cede), "device": device}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = folder
        with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\naccounts = no\n")
        ceded = subprocess.Popen([cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf"])
        try:
            time.sleep(1)
            for part in (loop, meeting):
                try:
                    result[part.__name__] = part(cede, device)
                except (RuntimeError, OSError, subprocess.SubprocessError, queue.Empty) as e:
                    result[part.__name__] = {"failed": f"{type(e).__name__}: {e}"}
                    subprocess.run([cede, "ps", "--json"], check=False, timeout=30)
        finally:
            for w in EVERYBODY:
                w.process.kill()
            ceded.terminate()
            ceded.wait(60)
    result["wall_s"] = round(time.monotonic() - BEGAN, 1)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"{'part':8} {'what':36} value")
    for name in ("loop", "meeting"):
        for key, value in {**result[name], **result[name].get("seconds", {})}.items():
            if key != "seconds":
                print(f"{name:8} {key:36} {value}")
    return result["loop"].get("same_results") and result["meeting"].get("stood_still")


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif 4 <= len(sys.argv) <= 5 and not sys.argv[1].startswith("-"):
        paths = [os.path.abspath(p) for p in sys.argv[1:4]]
        sys.exit(not measure(*paths, sys.argv[4] if len(sys.argv) == 5 else "nvidia"))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
