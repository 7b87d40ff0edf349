"""What a machine does before it sleeps and after: the script of agents/systemd, with ceded and the software GPU; and
its units, as systemd reads them.

usage: test_sleep.py CEDE SCRIPT UNIT..."""
import os
import shutil
import sys
import unittest

from on_soft import CEDE, OnSoft, eventually

SCRIPT = sys.argv.pop(1)
UNITS = [sys.argv.pop(1) for _ in range(2)]
ODD = 'a {"number": 1, "state": "swapped"}'
LOAD = (CEDE, "load", "batch", "--device", "soft", "--memory", "100M")


class Sleep(OnSoft):
    def setUp(self):
        super().setUp()
        self.env.update(CEDE=CEDE, CEDE_SLEEP_PARAMS=self.path("params"))
        self.write("params", "EnableGpuFirmware: 18\nPreserveVideoMemoryAllocations: 0\n")

    def sleeps(self, when):
        r = self.run_as("sh", SCRIPT, when)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def states(self):
        return {name: job["state"] for name, job in self.jobs().items()}

    def job(self, name):
        self.start(CEDE, "run", "-c", "batch", "-n", name, "--", *LOAD)
        eventually(lambda: self.jobs().get(name, {}).get("memory_bytes"), f"{name} has no memory")

    def test_out_and_back(self):
        """All memory leaves, except what the script says; what a person had moved out stays out."""
        self.ceded("[daemon]\nswap_start = 0s\n")
        for name in ODD, "b", "out":
            self.job(name)
        other = self.start(*LOAD)
        eventually(lambda: str(other.pid) in self.cede("ps", "-a").stdout, "the program in no job is not seen")
        self.assertEqual(self.cede("swap-out", "out").returncode, 0)
        r = self.sleeps("before")
        self.assertEqual(set(self.states().values()), {"swapped"}, r.stderr)
        self.assertEqual(r.stderr, f"cede-sleep: GPU memory of process {other.pid}, which is in no job, may be lost\n")
        self.assertEqual(r.stdout.count("swapped out"), 2)
        r = self.sleeps("after")
        self.assertEqual(self.states(), {ODD: "running", "b": "running", "out": "swapped"}, r.stdout)
        self.assertEqual(self.sleeps("after").stdout, "")  # nothing is left to do

    def test_killed(self):
        """What moves when the script is killed comes back after all."""
        self.ceded("[daemon]\nswap_start = 0s\n")
        self.job("a")
        self.write("slow", f'#!/bin/sh\n{CEDE} "$@"; [ "$1 $2" != "swap out" ] || kill -9 $(cut -d" " -f6 /proc/$$/stat)\n')
        os.chmod(self.path("slow"), 0o755)
        self.env["CEDE"] = self.path("slow")
        self.assertNotEqual(self.run_as("setsid", "-w", "sh", SCRIPT, "before").returncode, 0)  # the session's leader
        self.assertEqual(self.states(), {"a": "swapped"})
        self.env["CEDE"] = CEDE
        self.sleeps("after")
        self.assertEqual(self.states(), {"a": "running"})

    def test_what_stays(self):
        """A job that cannot leave is named, with the reason, and the machine sleeps."""
        self.ceded()  # for 20 s the job is starting
        self.job("young")
        r = self.sleeps("before")
        self.assertRegex(r.stderr, r"^cede-sleep: GPU memory of job #1 may be lost: .*starting")
        self.assertEqual(self.states(), {"young": "running"})

    def test_driver_keeps(self):
        self.ceded("[daemon]\nswap_start = 0s\n")
        self.job("a")
        for word in "PreserveVideoMemoryAllocations", "UseKernelSuspendNotifiers":
            self.write("params", f"EnableGpuFirmware: 18\n{word}: 1\n")
            self.assertIn("the driver keeps GPU memory", self.sleeps("before").stdout)
            self.assertEqual(self.states(), {"a": "running"})

    def test_no_ceded(self):
        for when in "before", "after":
            r = self.sleeps(when)
            self.assertEqual((r.stdout, r.stderr), ("", ""))
        self.assertEqual(self.run_as("sh", SCRIPT).returncode, 2)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_units(self):
        for unit in UNITS:  # with programs that are there
            with open(unit, encoding="utf8") as f:
                self.write(os.path.basename(unit), f.read().replace("/usr/local/libexec/cede/cede-sleep", "/bin/true"))
        r = self.run_as("systemd-analyze", "verify", "--man=no", *(self.path(os.path.basename(u)) for u in UNITS))
        if "Failed to" in r.stderr and "unit" not in r.stderr:
            self.skipTest(r.stderr)
        self.assertEqual((r.returncode, r.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
