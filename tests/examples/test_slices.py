"""examples/slices.c on an OpenCL device: the result does not depend on slices; killed at random moments it goes on,
and has the same result; it gives way while a latency job works behind the gate. Skips (77) without a device.

usage: test_slices.py PROGRAM [CEDE]"""
import os
import random
import re
import shutil
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
        self.dir = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(self.remove)
        self.env = dict(os.environ, CEDE_DIR=self.dir)

    def remove(self):
        """What restores after the daemon may still be ending, with files there."""
        while os.path.exists(self.dir):
            shutil.rmtree(self.dir, ignore_errors=True)

    def args(self, name, side=SIDE):
        return [PROGRAM, os.path.join(self.dir, name), side]

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
        self.assertEqual(sorted(os.listdir(self.dir)), ["killed", "whole"])

    @unittest.skipUnless(CEDE, "the gate is not built")
    def test_gives_way(self):
        self.env.update(CEDE_GATE_CPU="1")
        log, begun = os.path.join(self.dir, "log"), time.monotonic()
        gave, low = [], None
        daemon = subprocess.Popen([CEDE, "daemon", "--device", "gate"], env=self.env, stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(os.path.join(self.dir, "socket")):
                self.assertLess(time.monotonic(), begun + PATIENCE_S)
                time.sleep(0.01)
            with open(log, "w", encoding="utf-8") as out:  # longer than the test
                low = subprocess.Popen([CEDE, "run", "-q", "-c", "batch", "--", "stdbuf", "-oL",
                                        *self.args("low", "60000")], env=self.env, stdout=out)
            while len(gave) < 2 and time.monotonic() < begun + PATIENCE_S:
                self.assertIsNone(low.poll())
                subprocess.run([CEDE, "run", "-q", "-c", "latency", "--", *self.args(f"high{time.monotonic_ns()}")],
                               env=self.env, stdout=subprocess.DEVNULL, timeout=120, check=True)
                with open(log, encoding="utf-8") as f:
                    gave = [float(p) for p in re.findall(r"gives way at (\S+) %", f.read())]
        finally:
            if low:
                low.kill()
                low.wait()
            daemon.terminate()
            daemon.wait(timeout=60)
        self.assertGreaterEqual(len(gave), 2)  # so it went on in between

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
