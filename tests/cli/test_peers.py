"""bench/programs/peers.py on the software GPU, with a peer of three modes: one that works, one whose daemon ends at
once, and one whose batch program cannot start. Each is in the file, the failures with their text; nothing is left running,
and what the file has is not measured again.

usage: test_peers.py CEDE SOURCE_DIR"""
import json
import os
import stat
import sys
import unittest

from on_soft import CEDE, OnSoft, eventually

PROGRAM = os.path.join(sys.argv.pop(1), "bench/programs/peers.py")
CASE = "requests, 0.5 ms"
MODES = [
    {"mode": "works", "daemon": ["{folder}/daemon"], "setup": [["test", "-f", "{folder}/pid"]], "both": {"PEER": "{folder}"}},
    {"mode": "no daemon", "daemon": ["sh", "-c", "echo no such GPU >&2; exit 3"]},
    {"mode": "broken", "batch": {"CEDE_SOFT_SOCKET": "/nonexistent"}},
]


class Peers(OnSoft):
    def peers(self, *more):
        return self.run_as(sys.executable, "-B", PROGRAM, "--soft", "--seconds", "0.5", "--case", CASE, *more, CEDE,
                           self.path("result.json"), f"stub={self.path('stub')}", timeout=200)

    def setUp(self):
        super().setUp()
        self.soft_gpu()
        os.mkdir(self.path("stub"))
        self.write("stub/daemon", '#!/bin/sh\necho $$ > "${0%/*}/pid"\nwhile :; do sleep 1; done\n')
        os.chmod(self.path("stub/daemon"), stat.S_IRWXU)
        self.write("stub/peer.json", json.dumps({"commit": "0123abc", "built": "by hand", "modes": MODES}))

    def test_modes(self):
        done = self.peers()
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(self.read("result.json"))
        self.assertEqual(result["peers"], {"stub": {"commit": "0123abc", "built": "by hand"}})
        rows = {r["system"]: r for r in result["rows"]}
        self.assertEqual(list(rows), ["alone", "default", "cede", "stub: works", "stub: no daemon", "stub: broken"])
        for system in "default", "cede", "stub: works":
            measured = rows[system]["measured"]
            self.assertGreater(measured["server"]["p99_us"], 0, system)
            self.assertGreater(measured["batch"]["rate"], 0, system)
            self.assertEqual([measured[r]["verified"] for r in ("server", "batch")], [True, True], system)
            self.assertEqual("daemon" in measured, system != "default")
        self.assertEqual(rows["stub: works"]["both"], {"PEER": "{folder}"})
        self.assertIn("status 3: no such GPU", rows["stub: no daemon"]["failed"])
        self.assertIn("batch did not start", rows["stub: broken"]["failed"])
        self.assertIn("/nonexistent", rows["stub: broken"]["failed"])
        eventually(lambda: not os.path.exists("/proc/" + self.read("stub/pid").strip()), "the peer's daemon still runs")
        before = self.read("result.json")
        self.assertEqual(self.peers().stdout, "")
        self.assertEqual(self.read("result.json"), before)

    def test_no_time(self):
        """What there was no time for is said, and the file is not begun."""
        self.assertEqual(self.peers("--within", "0").stdout, "6 of 6 are left: run it again\n")
        self.assertFalse(os.path.exists(self.path("result.json")))

    def test_unknown(self):
        done = self.run_as(sys.executable, "-B", PROGRAM, CEDE, self.path("result.json"), "other=" + self.dir)
        self.assertEqual(done.returncode, 2)
        self.assertIn("xsched, hami-core, nvshare", done.stderr)


if __name__ == "__main__":
    unittest.main()
