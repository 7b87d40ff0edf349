"""examples/slices.c on an OpenCL device: the result does not depend on slices; killed at random moments it goes on,
and has the same result; it gives way while a latency job works behind the gate. Skips (77) without a device.

usage: test_slices.py PROGRAM [CEDE]"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv[1]
CEDE = sys.argv[2] if len(sys.argv) > 2 else None  # with the gate beside it
PATIENCE_S = 60
SIDE = "1800"
KILLS = 6


def area(output):
    return re.search(r"area .* points", output)[0]


class Slices(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(self.dir.cleanup)
        self.env = dict(os.environ, CEDE_DIR=self.dir.name)

    def args(self, name, side=SIDE):
        return [PROGRAM, os.path.join(self.dir.name, name), side]

    def run_it(self, name, side=SIDE):
        return subprocess.run(self.args(name, side), env=self.env, text=True, timeout=120, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def test_killed(self):
        began = time.monotonic()
        whole = self.run_it("whole")
        took = time.monotonic() - began
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("begins at 0.0 %", whole.stdout)
        again = self.run_it("whole")
        self.assertIn("begins at 100.0 %", again.stdout)
        self.assertEqual(area(again.stdout), area(whole.stdout))
        chance = random.Random(5)
        for _ in range(KILLS):
            p = subprocess.Popen(self.args("killed"), env=self.env, stdout=subprocess.DEVNULL)
            time.sleep(chance.random() * took)
            p.send_signal(signal.SIGKILL)
            p.wait()
        last = self.run_it("killed")
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertNotIn("begins at 0.0 %", last.stdout)
        self.assertEqual(area(last.stdout), area(whole.stdout))
        self.assertEqual(sorted(os.listdir(self.dir.name)), ["killed", "whole"])

    @unittest.skipUnless(CEDE, "the gate is not built")
    def test_gives_way(self):
        whole = self.run_it("whole", "3000")
        self.env.update(CEDE_GATE_CPU="1")
        daemon = subprocess.Popen([CEDE, "daemon", "--device", "gate"], env=self.env, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + PATIENCE_S
            while not os.path.exists(os.path.join(self.dir.name, "socket")) and time.monotonic() < end:
                time.sleep(0.01)
            log = os.path.join(self.dir.name, "log")
            with open(log, "w", encoding="utf-8") as out:
                low = subprocess.Popen([CEDE, "run", "-q", "-c", "batch", "--", "stdbuf", "-oL",
                                        *self.args("low", "3000")], env=self.env, stdout=out)
            text = ""
            while low.poll() is None and "gives way" not in text and time.monotonic() < end:
                # until the batch job works, and is interrupted by a latency job that is long enough
                subprocess.run([CEDE, "run", "-q", "-c", "latency", "--", *self.args("high%d" % time.monotonic_ns())],
                               env=self.env, stdout=subprocess.DEVNULL, timeout=120, check=True)
                with open(log, encoding="utf-8") as f:
                    text = f.read()
            self.assertEqual(low.wait(timeout=120), 0)
            with open(log, encoding="utf-8") as f:
                text = f.read()
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
        self.assertIn("gives way", text)
        self.assertEqual(area(text), area(whole.stdout))

    def test_other_work(self):
        self.assertEqual(self.run_it("state", "64").returncode, 0)
        other = self.run_it("state", "65")
        self.assertEqual(other.returncode, 1)
        self.assertIn("other work", other.stderr)
        self.assertIn("remove it to begin anew", other.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        probe = subprocess.run([PROGRAM, os.path.join(d, "probe"), "8"], text=True, timeout=120, stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL)
    if "no OpenCL device" in probe.stderr:
        print(probe.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
