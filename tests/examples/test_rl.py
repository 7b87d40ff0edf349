"""examples/rl/turn.py passes the software GPU: as a hook from job to job, and among programs that drive themselves, of
which one is killed in its turn. And the program that measures it, bench/programs/passing.py.

usage: test_rl.py CEDE SOURCE_DIR"""
import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from on_soft import CEDE, OnSoft, eventually  # pylint: disable=wrong-import-position

SOURCE = sys.argv.pop(1)
HOOK = os.path.join(SOURCE, "examples/rl/turn.py")
# Works in turns, with memory that fits once; a line for the begin and the end of each, with the time.
DRIVES_ITSELF = """
import os, sys, time
sys.path[:0] = sys.argv[2:4]
import softgpu, turn
name, gpu = sys.argv[1], None
client = turn.Turn(name, group="rl", memory=True, directory=sys.argv[4])
for i in range(int(sys.argv[5])):
    with client.on_accelerators(timeout_sec=50):
        if not gpu:
            gpu = softgpu.Context()
            gpu.alloc(140 << 20)
        print(name, "begins", time.monotonic(), os.getpid(), flush=True)
        gpu.launch(50, 1000000)
        gpu.wait(50)
        print(name, "ends", time.monotonic(), flush=True)
client.close()
"""


class Turns(OnSoft):
    def setUp(self):
        super().setUp()
        self.env.update(CEDE_EXE=CEDE, PYTHONDONTWRITEBYTECODE="1")
        self.soft_gpu("--memory", "256M")

    def begin(self):
        self.ceded("[daemon]\nswap_start = 0s\naccounts = no\n")

    def load(self, name, cls):
        self.start(CEDE, "run", "-c", cls, "-n", name, "--", CEDE, "load", "batch", "--device", "soft",
                   "--memory", "100M")
        eventually(lambda: self.jobs().get(name, {}).get("memory_bytes"), f"{name} has no memory")

    def pass_on(self, *args):
        return self.run_as(sys.executable, HOOK, "pass", *args)

    def test_hook(self):
        self.begin()
        self.load("trainer", "normal")
        self.load("server", "latency")
        self.assertEqual(self.pass_on("server", "trainer").returncode, 0)
        jobs = self.jobs()
        self.assertEqual((jobs["server"]["state"], jobs["trainer"]["state"]), ("paused", "running"))
        self.assertEqual(self.pass_on("trainer", "server", "--memory").returncode, 0)
        jobs = self.jobs()
        self.assertEqual((jobs["trainer"]["state"], jobs["server"]["state"]), ("swapped", "running"))
        self.assertEqual(jobs["server"]["class"], "latency")
        self.assertEqual(self.pass_on("server", "trainer", "--memory").returncode, 0)
        jobs = self.jobs()
        self.assertEqual((jobs["server"]["state"], jobs["trainer"]["state"]), ("swapped", "running"))

    def test_nobody_takes(self):
        """A job that gives the GPU to none has it back, and the hook says why."""
        self.begin()
        self.load("server", "latency")
        r = self.pass_on("server", "trainer", "--timeout", "5")
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, r"^turn.py: cede acquire --timeout 5s trainer: cede: .*trainer")
        server = self.jobs()["server"]
        self.assertEqual((server["state"], server["class"], server.get("yielded")), ("running", "latency", None))
        self.assertEqual(self.pass_on("nobody", "server").returncode, 1)
        self.assertEqual(self.pass_on("server").returncode, 2)

    def drives(self, name, turns):
        self.write(name + ".py", DRIVES_ITSELF)
        with open(self.path(name + ".out"), "w", encoding="utf8") as out:
            return self.start(CEDE, "run", "-n", name, "--", sys.executable, self.path(name + ".py"), name,
                              os.path.join(SOURCE, "bench/programs"), os.path.dirname(HOOK), self.dir, str(turns),
                              stdout=out, stderr=None)

    def lines(self, name):
        return [line.split() for line in self.read(name + ".out").splitlines()]

    def test_in_turns(self):
        """Two programs, of which the GPU's memory holds one."""
        self.begin()
        programs = [self.drives(name, 4) for name in ("a", "b")]
        self.assertEqual([p.wait(100) for p in programs], [0, 0])
        said = sorted(self.lines("a") + self.lines("b"), key=lambda line: float(line[2]))
        self.assertEqual(len(said), 16)
        for begin, end in zip(said[::2], said[1::2]):
            self.assertEqual((begin[0], begin[1], end[1]), (end[0], "begins", "ends"), said)

    def test_killed_in_its_turn(self):
        self.begin()
        self.drives("a", 1000)
        eventually(lambda: self.lines("a"), "a has no turn")
        b = self.drives("b", 20)
        eventually(lambda: self.lines("b"), "b has no turn beside a, which takes one after another")
        eventually(lambda: self.lines("a")[-1][1] == "begins", "a has no further turn")
        os.kill(int(self.lines("a")[0][3]), signal.SIGKILL)
        self.assertEqual(b.wait(100), 0)
        self.assertEqual(len(self.lines("b")), 40)

    def test_measured(self):
        """The measuring program: nothing is served in the trainer's turn, which computes the same."""
        larger, result = self.path("larger"), self.path("result.json")  # a GPU that holds both
        self.start(CEDE, "softgpu", "--memory", "512M", "--socket", larger)
        eventually(lambda: os.path.exists(larger), "no software GPU")
        r = self.run_as(sys.executable, os.path.join(SOURCE, "bench/programs/passing.py"), CEDE, HOOK, result, "soft",
                        env=dict(self.env, CEDE_SOFT_SOCKET=larger), timeout=200)
        self.assertEqual(r.returncode, 0, r.stderr)
        got = json.loads(self.read("result.json"))
        self.assertTrue(got["same_results"])
        self.assertGreater(got["beside"]["served_per_s"], 1)
        for mode in "pause", "memory":
            self.assertEqual(max(row["served_in_phase"] for row in got[mode]["rounds"]), 0)
            self.assertGreater(got[mode]["served_per_s"], 1)
            self.assertGreater(got[mode]["to_trainer_s"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
