"""examples/decode on the CPU, and on a stand-in for CUDA (decode_gpu.c), where steps overlap and graphs are launched:
the tokens of every request are the same in every mode and in any company.

usage: test_decode.py DECODE FOLDER_OF_THE_STAND_IN"""
import json
import os
import subprocess
import sys
import unittest

DECODE, STAND_IN = sys.argv[1:3]
del sys.argv[1:3]
GPU = dict(os.environ, LD_LIBRARY_PATH=STAND_IN, ASAN_OPTIONS="detect_leaks=0")
SMALL = "--device cpu --layers 2 --width 128 --heads 2 --vocabulary 512 --requests 12 --tokens 16 --json".split()


def report(*more, env=None):
    done = subprocess.run([DECODE, *SMALL, *more], check=True, capture_output=True, timeout=200, env=env)
    return json.loads(done.stdout)


def runs(*more, env=None):
    return report(*more, env=env)["runs"]


class Decode(unittest.TestCase):
    def test_modes(self):
        modes = runs("--batch", "4")
        self.assertEqual([r["mode"] for r in modes], ["naive", "eager", "graphs", "overlap", "all", "chunks", "all-chunks"])
        self.assertEqual(len({r["digest"] for r in modes}), 1)

    def test_modes_on_a_gpu(self):
        options = "--requests 24 --tokens 40 --batch 4".split()
        on_cpu = runs(*options, "--mode", "all")[0]
        modes = {r["mode"]: r for r in runs("--device", "cuda", *options, env=GPU)}
        self.assertEqual({r["digest"] for r in modes.values()}, {on_cpu["digest"]})
        for mode, r in modes.items():
            overlaps, graphs = mode in ("overlap", "all", "all-chunks"), mode not in ("naive", "eager", "overlap")
            self.assertEqual((r["surplus"] > 0, r["graphs"] > 0, r["eager"] > 0), (overlaps, graphs, not graphs))
            self.assertEqual(r["captures"], 3 if graphs else 0)

    def test_chunks(self):
        options = "--requests 24 --tokens 20 --batch 4 --prompt 40 --step-tokens 11 --alone".split()
        for device, env in (("cpu", None), ("cuda", GPU)):
            modes = {r["mode"]: r for r in runs("--device", device, *options, env=env)}
            self.assertEqual({(r["differ_from_alone"], r["digest"]) for r in modes.values()}, {(0, modes["naive"]["digest"])})
            for mode, r in modes.items():
                self.assertEqual(r["rows_most"], 11 if "chunks" in mode else 4)
                self.assertEqual(r["chunk_steps"] > 0, "chunks" in mode)
                self.assertEqual(r["surplus"] > 0, mode in ("overlap", "all", "all-chunks"))
            for plain, chunks in (("graphs", "chunks"), ("all", "all-chunks")):
                self.assertLess(modes[chunks]["steps"], modes[plain]["steps"])

    def test_inputs(self):
        options = "--device cuda --mode all --batch 4".split()
        digests = {runs(*options, "--inputs", how, env=GPU)[0]["digest"] for how in ("copies", "copy", "kernel")}
        self.assertEqual(digests, {runs("--mode", "all", "--batch", "4")[0]["digest"]})
        self.assertEqual(runs(*options, "--spin", env=GPU)[0]["digest"], *digests)

    def test_alone(self):
        for r in runs("--device", "cuda", "--batch", "4", "--alone", env=GPU):
            self.assertEqual(r["differ_from_alone"], 0)
        one = runs("--batch", "4", "--at-once", "1", "--mode", "eager")[0]
        self.assertGreater(one["steps"], runs("--batch", "4", "--mode", "eager")[0]["steps"])

    def test_long_steps(self):
        for r in runs("--device", "cuda", "--batch", "4", "--schedule-us", "5000", "--tokens", "2", env=GPU):
            # the stand-in's microseconds are things that ran: no step has so many
            self.assertEqual((r["long_steps"], "long_hidden" in r, "long_idle" in r), (0, False, False))
        for r in runs("--device", "cuda", "--batch", "4", "--tokens", "2", env=GPU):
            # they are longer than it takes to schedule them, unless this machine is busy
            self.assertLessEqual(r["long_steps"], r["steps"])
            if r["long_steps"]:
                self.assertTrue(0 <= r["long_hidden"] <= 1 and 0 < r["long_idle"] < 1, r)

    def test_prefill(self):
        _, by_power, by_length = report("--device", "cuda", "--mode", "eager", "--batch", "12", "--prefill", "100",
                                        env=GPU)["prefill"]
        self.assertEqual((by_power["captures"], by_length["captures"]), (5, 12))
        self.assertEqual((by_power["graphs"], by_length["graphs"]), (95, 88))  # each is warmed up once

    def test_no_gpu(self):
        done = subprocess.run([DECODE, "--device", "cuda"], capture_output=True, check=False,
                              env=dict(os.environ, CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH=""))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"no device 'cuda'", done.stderr)

    def test_report(self):
        run = runs("--batch", "4", "--mode", "graphs")[0]
        self.assertEqual((run["kernels"], run["eager"], run["graphs"]), (4 + 7 * 2, run["steps"], 0))
        self.assertGreater(run["tokens"], 0)
        self.assertGreaterEqual(run["launch_p99_us"], run["launch_p50_us"])

    def test_company(self):
        digests = {runs("--batch", batch, "--mode", "all")[0]["digest"] for batch in ("1", "3", "8", "12")}
        self.assertEqual(len(digests), 1)
        other = runs("--batch", "3", "--mode", "all", "--tokens", "15")[0]["digest"]
        self.assertNotIn(other, digests)

    def test_usage(self):
        for wrong in (["--mode", "none"], ["--batch", "0"], ["--width", "100"], ["--what"],
                      ["--batch", "4", "--at-once", "5"], ["--products", "mine"], ["--inputs", "none"]):
            done = subprocess.run([DECODE, *wrong], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertTrue(done.stderr)


unittest.main()
