#!/usr/bin/env python3
"""What checkpoints cost a computation in slices (docs/slices.md), and that it has the same bits after kill -9: runs it
without checkpoints and with one every so often, in turn; then until it has launched a part of its work and kills itself with
SIGKILL, and on from the checkpoint. Each run is a process of its own; times are those of cede_slice_run(). Needs an NVIDIA
GPU, its driver and no packages. --cpu needs no GPU; its figures say nothing of one.

usage: checkpoint.py --libcede build/libcede/libcede.so.0 --out FILE     prints a table; 2 min
"""
import argparse
import ctypes
import hashlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import provenance

HERE = pathlib.Path(__file__).resolve().parent
THREADS, FACTOR, ADDEND = 256, 1664525, 1013904223
# An element is a block. Each thread steps its number on by a generator, and adds that to a word of the state.
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry slice_add(
.param .u64 slice_add_param_0,
.param .u64 slice_add_param_1,
.param .u32 slice_add_param_2,
.param .u32 slice_add_param_3
)
{
.reg .pred %p<2>;
.reg .b32 %r<8>;
.reg .b64 %rd<6>;
ld.param.u64 %rd1, [slice_add_param_0];
ld.param.u64 %rd2, [slice_add_param_1];
ld.param.u32 %r1, [slice_add_param_2];
ld.param.u32 %r2, [slice_add_param_3];
cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
mov.u32 %r5, %tid.x;
cvt.u32.u64 %r6, %rd2;
add.s32 %r6, %r6, %r3;
mad.lo.s32 %r6, %r6, %r4, %r5;
mov.u32 %r7, %r6;
$L__BB0_1:
mad.lo.s32 %r7, %r7, 1664525, 1013904223;
add.s32 %r2, %r2, -1;
setp.gt.u32 %p1, %r2, 0;
@%p1 bra $L__BB0_1;
and.b32 %r6, %r6, %r1;
mul.wide.u32 %rd3, %r6, 8;
add.s64 %rd4, %rd1, %rd3;
cvt.u64.u32 %rd5, %r7;
red.global.add.u64 [%rd4], %rd5;
ret;
}
"""


class Cpu:
    """The same sums; all steps of the generator are one."""
    name = "CPU"

    def __init__(self, size, rounds):
        self.state, self.factor, self.addend = bytearray(size), 1, 0
        self.words = memoryview(self.state).cast("Q")
        for _ in range(rounds):
            self.factor, self.addend = self.factor * FACTOR % 2**32, (self.addend * FACTOR + ADDEND) % 2**32

    def launch(self, first, count, _stream):
        for i in range(first * THREADS, (first + count) * THREADS):
            self.words[i % len(self.words)] += (i * self.factor + self.addend) % 2**32

    def copy(self, out):
        pass


class Gpu:
    """By the driver's interface. The state is in memory of the GPU, and while it is saved in pinned memory."""

    def __init__(self, size, rounds):
        self.cuda, self.mask, self.rounds = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint32(size // 8 - 1), ctypes.c_uint32(rounds)
        self.memory, self.kernel = ctypes.c_uint64(), ctypes.c_void_p()
        context, module, pinned, name = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
        self.call("cuInit", 0)
        self.call("cuDeviceGetName", name, 96, 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"slice_add")
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(size))
        self.call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(size), 0)
        self.name, self.module = name.value.decode(), module
        self.state = (ctypes.c_char * size).from_address(pinned.value)
        ctypes.memset(self.state, 0, size)

    def call(self, name, *args):
        result = getattr(self.cuda, name)(*args)
        if result:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def launch(self, first, count, stream):
        values = self.memory, ctypes.c_uint64(first), self.mask, self.rounds
        params = (ctypes.c_void_p * 4)(*(ctypes.addressof(v) for v in values))
        self.call("cuLaunchKernel", self.kernel, ctypes.c_uint(count), 1, 1, THREADS, 1, 1, 0, ctypes.c_void_p(stream), params, None)

    def copy(self, out):
        """The state, from the GPU's memory to the host's, or back."""
        name, to, what = ("DtoH", self.state, self.memory) if out else ("HtoD", self.memory, self.state)
        self.call(f"cuMemcpy{name}Async_v2", to, what, ctypes.c_size_t(len(self.state)), None)
        self.call("cuStreamSynchronize", None)


def compute(args):
    """One run, which goes on from the file if there is one. --until: it kills itself there."""
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    import cede_slice
    device = (Cpu if args.cpu else Gpu)(args.mib << 20, args.rounds)
    file = args.file and cede_slice.Checkpoint(args.file, work=args.count * args.rounds)
    begun, done = time.monotonic(), file and file.read(device.state)
    device.copy(out=False)
    progress, saves = cede_slice.Progress(done=done or 0), []
    out = {"began": progress.done / args.count, "restore_s": time.monotonic() - begun}

    def launch(first, count, stream):
        if first >= args.until * args.count:
            print(json.dumps({"killed_at": first / args.count}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        device.launch(first, count, stream)

    def save(done):
        begun = time.monotonic()
        device.copy(out=True)
        file.write(done, device.state)
        saves.append(time.monotonic() - begun)

    begun = time.monotonic()
    ended = cede_slice.run(progress, args.count, launch, file and save, gpu=not args.cpu, timeout_us=int(args.limit * 1e6),
                           checkpoint_us=int(args.every * 1e6))
    out.update(seconds=time.monotonic() - begun, saves=saves, slices=progress.slices, done=progress.done, chip=device.name)
    device.copy(out=True)
    print(json.dumps(dict(out, ended=ended, sha256=hashlib.sha256(device.state).hexdigest())))


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.env = dict(os.environ, CEDE_LIBRARY=str(args.libcede), CEDE_DIR=folder)

    def run(self, file=None, until=2, **more):
        """What a run printed."""
        a = self.args
        options = {"mib": a.mib, "rounds": a.rounds, "every": a.every, "count": a.count, "limit": 3600, "until": until, **more}
        command = [sys.executable, __file__, "--compute"] + ["--cpu"] * a.cpu + [f"--{k}={v}" for k, v in options.items()]
        done = subprocess.run(command + ([f"--file={self.folder}/{file}"] if file else []), env=self.env, text=True, check=False,
                              stdout=subprocess.PIPE, timeout=300)
        if done.returncode != (-signal.SIGKILL if until < 1 else 0):
            sys.exit(f"{command}: {done.returncode}")
        return json.loads(done.stdout)

    def all(self):
        a = self.args
        if not a.count:
            a.count = int(self.run(count=2**40, limit=1)["done"] * a.seconds)
        plain, saving = [], []
        for i in range(a.times):
            plain.append(self.run())
            saving.append(self.run(f"saved{i}"))
        size = os.path.getsize(f"{self.folder}/saved0")
        killed, resumed = self.run("killed", a.kill_at), self.run("killed")
        seconds = [[r["seconds"] for r in runs] for runs in (plain, saving)]
        ends = {r["sha256"] for r in (*plain, *saving, resumed)}
        return {"chip": resumed["chip"], **provenance.head(), **({"commit": a.commit} if a.commit else {}),
                "plain_s": statistics.median(seconds[0]), "checkpointed_s": statistics.median(seconds[1]),
                "checkpoints": len(saving[0]["saves"]), "bytes": size, "killed_at": killed["killed_at"],
                "same_bits": len(ends) == 1, "resumed_at": resumed["began"], "every_s": a.every, "plain_all_s": seconds[0],
                "checkpointed_all_s": seconds[1], "save_s": statistics.median(s for r in saving for s in r["saves"]),
                "restore_s": resumed["restore_s"], "resumed_s": resumed["seconds"], "slices": plain[0]["slices"],
                "elements": a.count, "sha256": sorted(ends)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("--libcede", type=lambda a: pathlib.Path(a).resolve())
    p.add_argument("--out")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--mib", type=int, default=64, help="size of the state, a power of two")
    p.add_argument("--every", type=float, default=1, help="seconds between checkpoints")
    p.add_argument("--seconds", type=float, default=10, help="how long a run takes, about")
    p.add_argument("--times", type=int, default=3)
    p.add_argument("--kill-at", type=float, default=0.26)
    p.add_argument("--folder", help="where checkpoints are written (default: a temporary one)")
    p.add_argument("--commit")
    p.add_argument("--count", type=int, default=0, help="elements, in place of --seconds")
    p.add_argument("--rounds", type=int, default=2000, help="of each thread")
    for option, kind in (("--file", str), ("--until", float), ("--limit", float)):
        p.add_argument(option, type=kind, help=argparse.SUPPRESS)
    p.add_argument("--compute", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.compute:
        return compute(args)
    if not args.libcede or not args.out:
        p.error("--libcede and --out are missing")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        out = Runs(args, folder).all()
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
    print("| chip | without, s | with checkpoints, s | more | checkpoints | MiB | one, ms | killed at | went on from | same bits |")
    print("|" + "---|" * 10)
    print(f"| {out['chip']} | {out['plain_s']:.2f} | {out['checkpointed_s']:.2f} | {100 * (out['checkpointed_s'] / out['plain_s'] - 1):.1f} % "
          f"| {out['checkpoints']} | {out['bytes'] / 2**20:.1f} | {1000 * out['save_s']:.1f} | {100 * out['killed_at']:.1f} % "
          f"| {100 * out['resumed_at']:.1f} % | {'yes' if out['same_bits'] else 'NO'} |")
    return 0 if out["same_bits"] else 1


if __name__ == "__main__":
    sys.exit(main())
