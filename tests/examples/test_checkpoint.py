"""bench/programs/checkpoint.py on the CPU and on a stand-in for libcuda: a run that kills itself goes on from its
checkpoint, and all runs, of both, have the same bits. Asserts no times.

usage: test_checkpoint.py PROGRAM LIBRARY FOLDER_OF_THE_STAND_IN"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY, STAND_IN = sys.argv[1:]
del sys.argv[1:]


class Checkpoint(unittest.TestCase):
    def measured(self, *options):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([sys.executable, PROGRAM, "--libcede", LIBRARY, "--out", out, "--folder", folder, "--mib", "1",
                                   "--rounds", "9", "--every", "0.000001", "--times", "2", *options], text=True, check=False,
                                  capture_output=True, env=dict(os.environ, LD_LIBRARY_PATH=STAND_IN))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.listdir(folder), ["out.json"])
            with open(out, encoding="utf-8") as f:
                return json.load(f)

    def test_same_bits(self):
        cpu, gpu = self.measured("--cpu", "--count", "300"), self.measured("--count", "300")
        for r in (cpu, gpu):
            self.assertTrue(r["same_bits"])
            self.assertTrue(0 < r["resumed_at"] <= r["killed_at"] < 1 and r["killed_at"] >= 0.26, r)
            self.assertGreater(r["checkpoints"], 1)
            self.assertGreater(r["bytes"], 1 << 20)
        self.assertEqual((cpu["sha256"], cpu["chip"], gpu["chip"]), (gpu["sha256"], "CPU", "stand-in"))

    def test_calibrated(self):
        self.assertGreater(self.measured("--cpu", "--seconds", "0.1", "--times", "1")["elements"], 1)


unittest.main()
