"""The loop of examples/decode/torch_decode.py and python/cede_step.py, with a small model in place of PyTorch's: in
host memory, and on the stand-in for CUDA (tests/libcede/fake_gpu/streams), where steps overlap.

usage: test_torch_decode.py LIBRARY, with the stand-in in LD_LIBRARY_PATH"""
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../../python"), os.path.join(HERE, "../../examples/decode")]
os.environ["CEDE_LIBRARY"] = sys.argv.pop(1)
import cede_step
import torch_decode

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 40) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
WIDTH = 8  # of an int64


class Tensor:
    """As much of one as cede_step looks at."""

    def __init__(self, n, memory=None, at=0):
        self.n, self.at, self.memory = n, at, memory or (ctypes.c_int64 * n)()

    def data_ptr(self):
        return ctypes.addressof(self.memory) + self.at * WIDTH

    def numel(self):
        return self.n

    def element_size(self):
        return WIDTH

    def stride(self, _):
        return 1

    def dim(self):
        return 1

    def is_floating_point(self):
        return False

    def is_pinned(self):  # of what the stand-in reads, too
        return True
    is_cuda = False

    def __getitem__(self, part):
        start, stop, _ = part.indices(self.n)
        return Tensor(stop - start, self.memory, self.at + start)


class Model:
    """The next token depends on all before it, and on nothing else. What is put into the stream runs later."""

    def __init__(self, batch, gpu):
        self.batch, self.gpu, self.stream, self.calls, self.ran = batch, gpu, None, [], []
        if gpu:
            stream = ctypes.c_void_p()
            assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
            self.stream = stream.value
        self.inputs, self.chosen = Tensor(3 * batch), Tensor(batch)
        self.token = self.inputs[:batch]
        self.pinned = [Tensor(3 * batch) for _ in range(cede_step.DEPTH_MAX + 1)]
        self.cache = [[] for _ in range(2 * batch)]

    def put(self, call):
        if not self.gpu:
            return call()
        self.calls.append(CALL(lambda _: call()))
        return cuda.cuLaunchHostFunc(ctypes.c_void_p(self.stream), self.calls[-1], None)

    def current(self):
        return contextlib.nullcontext()

    def write(self, lane, rows):
        for i, row in enumerate(rows):
            for k, v in enumerate(row):
                self.pinned[lane].memory[k * self.batch + i] = v

    def send(self, lane):
        self.put(lambda: ctypes.memmove(self.inputs.memory, self.pinned[lane].memory, 3 * self.batch * WIDTH))

    def run(self, n, graphs):
        self.ran.append(graphs)
        self.put(lambda: self.step(n))

    def step(self, n):
        for i in range(n):
            token, position, slot = (self.inputs.memory[k * self.batch + i] for k in range(3))
            assert token >= 0 and position <= len(self.cache[slot])
            self.cache[slot][position:] = [token]
            self.chosen.memory[i] = hash(tuple(self.cache[slot])) % 512

    def results(self, n):
        if self.gpu:
            cuda.cuStreamSynchronize(ctypes.c_void_p(self.stream))
        return self.chosen.memory[:n]


def run(mode, at_once=4, depth=2, gpu=True):
    args = torch_decode.options().parse_args(["--requests", "24", "--tokens", "40", "--vocabulary", "512",
                                              "--batch", "4", "--depth", str(depth)])
    model = Model(4, gpu)
    requests, result = torch_decode.run(model, args, mode, at_once)
    return [r.tokens for r in requests], result, model


class TorchDecode(unittest.TestCase):
    def test_modes(self):
        alone = run("plain", at_once=1)[0]
        self.assertTrue(all(alone))
        for mode, (depth, graphs) in torch_decode.MODES.items():
            for gpu in (False, True):
                tokens, result, model = run(mode, gpu=gpu)
                self.assertEqual(tokens, alone, (mode, gpu))
                self.assertEqual(set(model.ran), {graphs})
                self.assertEqual(result.get("surplus", 0) > 0, depth > 1, (mode, gpu))

    def test_depths(self):
        alone = run("plain", at_once=1)[0]
        surplus = [0]
        for depth in range(2, 1 + cede_step.DEPTH_MAX):
            tokens, result, _ = run("overlap", depth=depth)
            self.assertEqual(tokens, alone)
            surplus.append(result["surplus"])
            self.assertGreater(result["hidden"], 0)
        self.assertEqual(surplus, sorted(set(surplus)))

    def test_times_of_steps(self):
        for gpu in (True, False):
            steps = []
            with unittest.mock.patch.object(torch_decode.Engine, "count_times", lambda _, step, to=steps: to.append(step)):
                result = run("overlap", gpu=gpu)[1]
            self.assertEqual(len(steps), result["steps"])
            self.assertEqual(sum(s.gpu_us > 0 for s in steps), len(steps) if gpu else 0)
            self.assertAlmostEqual(sum(s.gpu_us for s in steps), result["gpu_us"] * len(steps), delta=len(steps))
            self.assertTrue(all(s.scheduled_us > 0 for s in steps))

    def test_long_steps(self):
        engine = torch_decode.Engine(Model(4, False), [], 4)
        step = types.SimpleNamespace
        for scheduled, gpu, idle in ((50, 100, 0), (90, 80, 10), (90, 100, 30), (80, 100, 6)):  # long: before 2 and 4
            engine.count_times(step(scheduled_us=scheduled, gpu_us=gpu, idle_us=idle))
        self.assertEqual((engine.long_steps, engine.long_gpu, engine.long_idle, engine.long_schedule), (2, 200, 16, 170))

    def test_report(self):
        args = torch_decode.options().parse_args(["--requests", "8", "--batch", "4", "--tokens", "8"])
        report = torch_decode.compare(Model(4, True), args)
        self.assertEqual([r["mode"] for r in report["runs"]], list(torch_decode.MODES))
        self.assertEqual({r["differ_from_alone"] for r in report["runs"]}, {0})
        self.assertTrue(json.dumps(report))

    def test_without_torch(self):
        hidden = f"""
import runpy, sys
sys.modules["torch"] = None
sys.argv = ["torch_decode.py"]
runpy.run_path("{torch_decode.__file__}", run_name="__main__")"""
        done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PyTorch", done.stderr)


class Loop(unittest.TestCase):
    def loop(self, **functions):
        done = {"schedule": lambda step: False, "launch": lambda step: None, "finish": lambda step: None}
        return cede_step.Loop(**{**done, **functions}, gpu=False, depth=2, batch=2, requests=2)

    def test_an_exception_comes_out(self):
        def fail(_):
            raise KeyError("mine")

        for where in ("schedule", "launch", "finish"):
            left = []
            loop = self.loop(**{"schedule": lambda step: loop.add("a") is not None, where: fail},
                             left=lambda request, reason: left.append((request, reason)))
            loop.join("a")
            with self.assertRaises(KeyError):
                while loop.once():
                    pass
            loop.close()
            self.assertEqual([request for request, _ in left], ["a"])

    def test_joining(self):
        loop = self.loop()
        loop.join("a")
        with self.assertRaises(ValueError):
            loop.join("a")
        loop.join("b")
        with self.assertRaises(OSError):
            loop.join("c")
        self.assertTrue(loop.leave("a"))
        self.assertFalse(loop.leave("a") or loop.leave("c"))
        with self.assertRaisesRegex(PermissionError, "only `schedule` may add requests"):
            loop.add("b")
        self.assertFalse(loop.once())
        self.assertEqual(loop.statistics().left, 1)
        loop.close()

    def test_wrong_settings(self):
        with self.assertRaises(ValueError):
            cede_step.Loop(len, len, len, depth=5, gpu=False)
        with self.assertRaises(ValueError):
            cede_step.Futures(slots=3, gpu=False)


unittest.main()
