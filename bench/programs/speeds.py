"""Records what GPU counters show of programs alone, in pairs and in threes in one MPS server, and how fast
each went by its own count: bench/results/*/speeds.json, by which tests/sched/test_speeds.c judges the
estimate of src/plan/speeds.h. For an NVIDIA GPU from Hopper on that nobody else uses, and PyTorch.

usage: speeds.py FILE [SECONDS]      writes FILE after so many seconds at most (default 190)
       speeds.py --program KIND PAGE INDEX      one of the programs
"""
import ctypes
import itertools
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

import provenance

KINDS = {
    "transformer_training": "transformer training", "resnet_training": "ResNet-50 training",
    "product_bf16": "product bf16", "product_fp32": "product fp32", "copy": "copy",
    "decoding": "decoding", "stencil_fp64": "stencil fp64", "product_fp64": "product fp64",
    "small_inference": "small transformer inference",
}
# In the order of enum gpu_part: NVML's GPM metrics; DRAM is the last.
METRICS = (4, 6, 7, 9, 11, 12, 13, 10)
ALONE_S, TOGETHER_S, SETTLE_S, STEP_S = 3, 2, 0.35, 0.05


# ---- the programs ----

def steps(kind):
    """One step of the program, to be called again and again."""
    import torch
    from torch import nn

    torch.backends.cudnn.benchmark = True

    def randn(*shape, dtype=torch.float32):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def training(model, optimizer, loss):
        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                value = loss(model)
            value.backward()
            optimizer.step()
        return step

    def product(n, dtype, times):
        a, b = randn(n, n, dtype=dtype), randn(n, n, dtype=dtype)
        return lambda: [torch.mm(a, b) for _ in range(times)]

    def encoder(width, heads, layers):
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
        return nn.TransformerEncoder(layer, layers).cuda()

    if kind == "transformer_training":
        model, x = encoder(768, 12, 12), randn(16, 512, 768)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        return training(model, optimizer, lambda m: m(x).square().mean())
    if kind == "resnet_training":
        import torchvision
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
        x = randn(64, 3, 224, 224).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (64,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        return training(model, optimizer, lambda m: nn.functional.cross_entropy(m(x), y))
    if kind == "product_bf16":
        return product(4096, torch.bfloat16, 32)
    if kind == "product_fp32":
        torch.backends.cuda.matmul.allow_tf32 = False
        return product(3072, torch.float32, 8)
    if kind == "product_fp64":
        return product(2048, torch.float64, 4)
    if kind == "copy":
        a, b = randn(256 << 20), randn(256 << 20)
        return lambda: [b.copy_(a) for _ in range(8)]
    if kind == "decoding":  # products with a few columns: memory-bound
        weights = [randn(8192, 8192, dtype=torch.bfloat16) for _ in range(16)]
        x = randn(8192, 4, dtype=torch.bfloat16)

        def tokens():
            for _ in range(4):
                y = x
                for w in weights:
                    y = torch.mm(w, y) * 0.01
        return tokens
    if kind == "stencil_fp64":  # seven points in three dimensions
        grid = [randn(384, 384, 384, dtype=torch.float64)]

        def sweep():
            for _ in range(2):
                u, v = grid[0], grid[0].clone()
                v[1:-1, 1:-1, 1:-1] = (
                    u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1]
                    + u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]) / 6
                grid[0] = v
        return sweep
    model, x = encoder(512, 8, 6).half().eval(), randn(8, 128, 512, dtype=torch.float16)

    def infer():
        with torch.no_grad():
            for _ in range(4):
                model(x)
    return infer


def program(kind, page, index):
    import torch
    torch.manual_seed(index)
    counts = mmap.mmap(os.open(page, os.O_RDWR), mmap.PAGESIZE)
    step = steps(kind)
    for _ in range(6):
        step()
    n = 0
    while True:
        torch.cuda.synchronize()
        struct.pack_into("<Q", counts, index * 8, n)
        step()
        n += 1


# ---- the counters ----

class Metric(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("status", ctypes.c_int), ("value", ctypes.c_double),
                ("names", ctypes.c_char_p * 3)]


class Asked(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("n", ctypes.c_uint), ("begin", ctypes.c_void_p),
                ("end", ctypes.c_void_p), ("v", Metric * 333)]


class Counters:
    """Between begin() and end(), of the first GPU: a share of each part, at the highest clock."""
    SM = 1

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.gpu, self.samples, self.asked = ctypes.c_void_p(), [], Asked()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.gpu))
        for _ in range(2):
            self.samples.append(ctypes.c_void_p())
            self.call("nvmlGpmSampleAlloc", ctypes.byref(self.samples[-1]))
        self.clocks, self.busy, self.highest = [], [], self.clock("nvmlDeviceGetMaxClockInfo")

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def clock(self, name="nvmlDeviceGetClockInfo"):
        mhz = ctypes.c_uint()
        self.call(name, self.gpu, self.SM, ctypes.byref(mhz))
        return mhz.value

    def text(self, name):
        value = ctypes.create_string_buffer(96)
        args = (value, 96) if "System" in name else (self.gpu, value, 96)
        self.call(name, *args)
        return value.value.decode()

    def begin(self):
        self.clocks, self.busy = [self.clock()], []
        self.call("nvmlGpmSampleGet", self.gpu, self.samples[0])

    def look(self):
        self.clocks.append(self.clock())
        busy = (ctypes.c_uint * 2)()  # of the GPU, of its memory
        self.call("nvmlDeviceGetUtilizationRates", self.gpu, busy)
        self.busy.append(busy[0] / 100)

    def end(self):
        self.call("nvmlGpmSampleGet", self.gpu, self.samples[1])
        asked = self.asked
        asked.version, asked.n, asked.begin, asked.end = 1, len(METRICS), *self.samples
        for m, wanted in zip(asked.v, METRICS):
            m.id = wanted
        self.call("nvmlGpmMetricsGet", ctypes.byref(asked))
        clock = sum(self.clocks) / len(self.clocks) / self.highest
        shares = [max(m.value, 0) / 100 if m.status == 0 else 0 for m in asked.v[:len(METRICS)]]
        return [round(s * (1 if m == METRICS[-1] else clock), 5) for s, m in zip(shares, METRICS)]


# ---- the record ----

def server_in(folder):
    return {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}


class Recorder:
    """All programs, stopped but for those that run() lets run. serves: they are clients of an MPS
    server, whose control daemon is started and ended here. env: in theirs."""

    def __init__(self, folder, serves=True, kinds=tuple(KINDS), **env):
        page = f"{folder}/counts"
        with open(page, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        self.counts = mmap.mmap(os.open(page, os.O_RDWR), mmap.PAGESIZE)
        self.serves, self.kinds = serves, kinds
        self.env = dict(os.environ, **(server_in(folder) if serves else {}), **env)
        if serves:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.env, check=True)
        self.programs = [
            subprocess.Popen([sys.executable, __file__, "--program", kind, page, str(i)],
                             env=self.env, stdout=subprocess.DEVNULL)
            for i, kind in enumerate(kinds)]
        self.counters = Counters()

    def count(self):
        return [struct.unpack_from("<Q", self.counts, 8 * i)[0] for i in range(len(self.kinds))]

    def send(self, signum, which):
        for i in which:
            self.programs[i].send_signal(signum)

    def await_all(self, seconds):
        end = time.monotonic() + seconds
        while min(self.count()) < 3:
            ended = [p.args[3] for p in self.programs if p.poll() is not None]
            if ended or time.monotonic() > end:
                waiting = [kind for kind, n in zip(self.kinds, self.count()) if n < 3]
                raise RuntimeError(f"ended: {ended}; not started: {waiting}")
            time.sleep(0.2)
        self.send(signal.SIGSTOP, range(len(self.kinds)))
        time.sleep(0.5)

    def run(self, which, seconds):
        """What the GPU did, and the steps a second of each."""
        self.send(signal.SIGCONT, which)
        time.sleep(SETTLE_S)
        self.counters.begin()
        began, before = time.monotonic(), self.count()
        while time.monotonic() < began + seconds:
            time.sleep(STEP_S)
            self.counters.look()
        parts, after, took = self.counters.end(), self.count(), time.monotonic() - began
        self.send(signal.SIGSTOP, which)
        time.sleep(0.12)
        return parts, [(after[i] - before[i]) / took for i in which]

    def close(self):
        for p in self.programs:
            p.kill()
        if self.serves:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=self.env, timeout=20,
                           check=False)


def plan():
    """Threes and pairs by turns, in an order that is the same each time."""
    each = [list(itertools.combinations(range(len(KINDS)), n)) for n in (3, 2)]
    for n, sets in zip((3, 2), each):
        random.Random(n).shuffle(sets)
    return [s for both in zip(*each) for s in both]


def record(path, seconds):
    end, names = time.monotonic() + seconds, list(KINDS.values())
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        try:
            recorder.await_all(100)
            alone = [recorder.run([i], ALONE_S) for i in range(len(KINDS))]
            together = []
            for which in plan():
                if time.monotonic() > end - 5:
                    break
                parts, rates = recorder.run(which, TOGETHER_S)
                speeds = [round(r / alone[i][1][0], 4) for r, i in zip(rates, which)]
                together.append({"jobs": [names[i] for i in which], "parts": parts,
                                 "speeds": speeds})
            gpu = recorder.counters.text("nvmlDeviceGetName")
            driver = recorder.counters.text("nvmlSystemGetDriverVersion")
        finally:
            recorder.close()
    shows = ("What the parts of a GPU did, of what each could do at the highest clock (order: enum gpu_part), with "
             f"programs alone for {ALONE_S} s and two or three together in one MPS server for {TOGETHER_S} s; their "
             "speeds by what they counted themselves.")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**provenance.head(), "gpu": gpu, "driver": driver, "shows": shows,
                   "alone": {n: a[0] for n, a in zip(names, alone)}, "together": together}, f, indent=1)
        f.write("\n")
    print(f"{len(together)} sets of programs: {path}")


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--program":
        program(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) in (2, 3) and not sys.argv[1].startswith("-"):
        record(sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else 190)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
