"""`--memory-max` on the software GPU: jobs that have more are named, paused or killed, by whatever the limit was set,
and others are left alone.

usage: test_memory_max.py CEDE [TEST...]"""
import json
import signal
import unittest

from on_soft import CEDE, WAIT_S, OnSoft, eventually

LOAD = CEDE, "load", "batch", "--device", "soft", "--memory", "300M"


class MemoryMax(OnSoft):
    def begin(self, config=""):
        self.said = open(self.path("said"), "w+", encoding="utf8")  # pylint: disable=consider-using-with
        self.addCleanup(self.said.close)
        self.ceded(config, stderr=self.said)

    def run_job(self, name, *args):
        with open(self.path(name), "w", encoding="utf8") as f:
            return self.start(CEDE, "run", "-c", "batch", "-n", name, *args, "--", *LOAD, stderr=f)

    def says(self, *words):
        eventually(lambda: any(all(w in line for w in words) for line in self.read("said").split("\n")),
                   lambda: f"no line with {words} in\n" + self.read("said"))

    def has_memory(self, name):
        eventually(lambda: self.jobs()[name]["memory_bytes"] >= 300 << 20, "it has no memory")

    def test_kill(self):
        self.begin()
        other = self.run_job("small", "--memory-max", "301M,kill")
        big = self.run_job("big", "--memory-max", "299M,kill")
        self.assertEqual(big.wait(WAIT_S), -signal.SIGKILL)
        self.says("(big) of uid ", "it has 300 MiB on GPU 0, more than its memory-max of 299 MiB",
                  "1 of its processes killed")
        self.assertIn("': it has 300 MiB on GPU 0, more than its memory-max of 299 MiB: 1 of its processes killed", self.read("big"))
        self.has_memory("small")
        self.assertIsNone(other.poll())
        # While it runs.
        r = self.cede("set", "--memory-max", "100M,kill", "small")
        self.assertIn(", memory-max 100 MiB", r.stdout)
        self.assertEqual(other.wait(WAIT_S), -signal.SIGKILL)

    def test_pause(self):
        self.begin()
        self.run_job("big", "--memory-max", "299M,pause")
        eventually(lambda: self.jobs().get("big", {}).get("state") == "paused", "it is not paused")
        self.assertEqual([self.jobs()["big"][k] for k in ("memory_max_mib", "memory_over", "memory_exceeded")],
                         [299, "pause", "pause"])
        self.says("(big)", "paused until `cede resume")
        self.assertEqual(self.cede("why", "big").stdout.count("`cede resume"), 1)
        r = self.cede("resume", "big")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertNotIn("memory-max", self.cede("why", "big").stdout)
        eventually(lambda: self.jobs()["big"]["state"] == "running", "it does not go on")

    def test_warn(self):
        """The default."""
        self.begin()
        self.run_job("big", "--memory-max", "299M")
        self.says("(big)", "more than its memory-max of 299 MiB: it goes on")
        self.assertEqual(self.jobs()["big"]["state"], "running")

    def test_rule(self):
        self.begin("[rule limited]\nexe = *\nclass = batch\nmemory_max = 200M, kill\n")
        self.assertEqual(self.start(*LOAD).wait(WAIT_S), -signal.SIGKILL)
        self.says("memory-max of 200 MiB", "killed")

    def test_usage(self):
        for text in "8", "8G,", "8G,stop", "much", "-1G,kill":
            r = self.cede("run", "--memory-max", text, "--", "true")
            self.assertEqual(r.returncode, 2, text)
            self.assertIn("memory-max", r.stderr)

    def test_none(self):
        """0 takes the limit away."""
        self.begin()
        job = self.run_job("j", "--memory-max", "1G,kill")
        eventually(lambda: "j" in self.jobs(), "no job")
        self.has_memory("j")
        self.cede("set", "--memory-max", "0", "j")
        self.assertNotIn("memory_max_mib", json.loads(self.cede("ps", "--json").stdout)["jobs"][0])
        self.assertIsNone(job.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
