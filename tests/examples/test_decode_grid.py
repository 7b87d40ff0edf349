"""examples/decode/grid.py and its tables, on stand-ins for CUDA and cuBLASLt, and on the CPU: what is measured, what is
left out, and that it is said.

usage: test_decode_grid.py DECODE FOLDER_OF_THE_STAND_INS"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GRID = os.path.join(os.path.dirname(__file__), "../../examples/decode/grid.py")
DECODE, STAND_IN = sys.argv[1:3]
del sys.argv[1:3]
GPU = dict(os.environ, LD_LIBRARY_PATH=STAND_IN, ASAN_OPTIONS="detect_leaks=0")
SMALL = "--layers 1 --width 128 --heads 2 --vocabulary 512".split()


class Grid(unittest.TestCase):
    def grid(self, device, *more):
        with tempfile.TemporaryDirectory() as folder:
            out = folder + "/grid.json"
            done = subprocess.run([sys.executable, GRID, DECODE, "--batches", "1,3", "--schedule-us", "0,1",
                                   "--tokens", "4", "--together", "4", "--out", out, *more, "--", *SMALL, "--device", device],
                                  capture_output=True, text=True, timeout=200, check=False, env=GPU)
            again = subprocess.run([sys.executable, GRID, "--tables", out], capture_output=True, text=True, timeout=20,
                                   check=True)
            self.assertTrue(done.stdout.endswith(again.stdout))
            with open(out, encoding="ascii") as f:
                return done, json.load(f)

    def test_grid(self):
        with tempfile.TemporaryDirectory() as folder:
            cost = pathlib.Path(folder, "cost")
            each = {"queued_p50_us": 3, "queued_p99_us": 4}
            found = json.dumps({"nodes": 30, "eager": each, "graph": each, "direct": each})
            cost.write_text(f"#!/bin/sh\necho '{found}'\n", encoding="ascii")
            cost.chmod(0o755)
            done, result = self.grid("cuda", "--cublaslt", STAND_IN + "/libcublasLt.so.13", "--graph-cost", str(cost))
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual((result["company"], result["left_out"]), ({"requests": 4, "differ": 0}, []))
        self.assertEqual([(c["batch"], c["schedule_us"], len(c["runs"])) for c in result["cells"]],
                         [(1, 0, 5), (3, 0, 5), (1, 1, 5), (3, 1, 5)])
        self.assertEqual([p["way"] for p in result["prefill"]], ["eager", "padded", "exact"])
        self.assertEqual([c["products"] for c in result["products"]], ["own", "library", "plain"])
        self.assertEqual([(c["inputs"], c["spins"]) for c in result["inputs"]],
                         [(how, spins) for how in ("copies", "copy", "kernel") for spins in (False, True)])
        self.assertEqual(done.stdout.count("\n| 30 kernels, "), 3)
        for title, rows in (("Modes.", 20), ("Launch", 3 + 10), ("Products", 9), ("Inputs", 12), ("Graphs", 2),
                            ("Steps of", 3)):
            part = done.stdout.split("\n" + title)[1].split("\n\n")[1]
            self.assertEqual(len(part.splitlines()), 2 + rows, part)

    def test_grid_without_a_gpu(self):
        done, result = self.grid("cpu")
        self.assertEqual((done.returncode, len(result["left_out"]), len(result["cells"])), (1, 2, 4))
        for left_out in result["left_out"]:
            self.assertIn("--products", left_out["what"])
            self.assertIn("needs a GPU", left_out["why"])

    def test_grid_without_time(self):
        done, result = self.grid("cpu", "--seconds", "0")
        self.assertEqual((done.returncode, len(result["left_out"]), result["cells"]), (1, 1 + 3 + 6 + 4 + 1, []))


unittest.main()
