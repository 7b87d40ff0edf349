"""scripts/check with made-up stages: a lane goes on after a stage that breaks, results are counted once, a
build is made once however many ask for it, and the last line holds the counts.

usage: test_check.py PATH_OF_CHECK
"""
import contextlib
import io
import json
import os
import threading
import unittest

from script import InFolder


class Check(InFolder):
    def setUp(self):
        super().setUp()
        self.check = self.script
        self.check.OUT = self.top
        self.check.LINT = os.path.join(self.top, "lint")
        self.calls = []
        self.check.call = self.call
        self.status = 0

    def call(self, argv, **_):
        self.calls.append(argv)
        return self.status, "what it said"

    def run_stages(self, stages, *words):
        self.check.STAGES = stages
        self.check.sys.argv = ["check", *words]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = self.check.main()
        return status, out.getvalue().rstrip().split("\n")

    def test_counts_come_last(self):
        report = self.check.report
        status, out = self.run_stages({"a": (lambda: report("one", "passed"), lambda: report("two", "skipped")),
                                       "b": (None, lambda: report("three", "passed", 2.5))})
        self.assertEqual((status, out[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertEqual(out[-2], "skipped: two")
        self.assertEqual(sorted(s.split()[1] for s in out[:3]), ["one", "three", "two"])

    def test_a_broken_stage_fails_and_the_others_run(self):
        status, out = self.run_stages({"a": (lambda: {}["no such key"], None),
                                       "b": (lambda: self.check.report("after", "passed"), None)})
        self.assertEqual((status, out[-1]), (1, "1 passed, 1 failed"))
        self.assertEqual(out[-2], "failed: a")
        self.assertIn("no such key", out[-4])
        self.assertTrue(any("no such key" in s for s in out))

    def test_debian13_is_skipped_with_a_reason(self):
        self.status = 77
        _, out = self.run_stages({"debian13": (self.check.check_debian13, None)}, "debian13")
        self.assertIn("(what it said)", out[0])
        self.assertEqual(out[-1], "0 passed, 0 failed, 1 skipped")

    def test_lanes_run_beside_each_other(self):
        here, there = threading.Event(), threading.Event()
        met = []

        def meet(mine, other):
            mine.set()
            met.append(other.wait(60))
            self.check.report("met", "passed" if met[-1] else "failed")
        status, _ = self.run_stages({"a": (lambda: meet(here, there), None), "b": (None, lambda: meet(there, here))})
        self.assertEqual((status, met), (0, [True, True]))

    def test_only_the_stages_that_are_wanted(self):
        report = self.check.report
        stages = {n: (lambda n=n: report(n, "passed"), None) for n in "abc"}
        self.assertEqual(self.run_stages(stages, "c", "a")[1][-1], "2 passed, 0 failed")
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(self.run_stages(stages, "z")[0], 2)
        self.assertIn("a b c", err.getvalue())

    def test_a_build_is_made_once(self):
        asked = []
        ask = lambda: asked.append(self.check.built("gcc"))  # noqa: E731
        status, out = self.run_stages({"a": (ask, ask), "b": (ask, ask)})
        self.assertEqual((status, out[-1], asked), (0, "1 passed, 0 failed", [True] * 4))
        self.assertEqual([next(w for w in c if w in ("meson", "ninja")) for c in self.calls], ["meson", "ninja", "ninja"])  # one counts

    def test_a_build_that_fails(self):
        self.status = 1
        status, out = self.run_stages({"a": (lambda: self.check.built("gcc"), self.check.test_gcc)})
        self.assertEqual((status, out[-1]), (1, "0 passed, 1 failed"))
        self.assertTrue(any("what it said" in s for s in out))
        self.assertEqual(len(self.calls), 1)  # neither ninja nor tests

    def repeated(self, beside, alone):
        """What is said when a test, and one of the end-to-end tests, end so beside others, and by itself in real time."""
        def call(argv, env=None, **_):
            self.calls.append(argv)
            real = (env or {}).get("CEDE_TEST_TIME") == "real"
            names = argv[-1:] if real else ["e2e_well", "e2e_ill", "other"]
            self.write("gcc/meson-logs/testlog.json", "\n".join(json.dumps(
                {"name": f"cede / {n}", "result": "OK" if n.endswith("well") and real else alone if real else beside,
                 "stdout": "skipped: the machine gave a program 9 %"}) for n in names))
            return 0, ""

        self.check.call = call
        _, out = self.run_stages({"a": (None, lambda: self.check.tests("gcc"))})
        return out[-2:]

    def test_what_fails_beside_others_is_repeated_by_itself(self):
        """End-to-end tests."""
        self.assertEqual(self.repeated("FAIL", "FAIL"), ["failed: gcc: other, gcc: e2e_ill", "1 passed, 2 failed"])
        self.assertEqual(len(self.calls), 3)

    def test_what_a_busy_machine_skips_is_repeated_in_time(self):
        self.assertEqual(self.repeated("SKIP", "FAIL"), ["failed: gcc: e2e_ill, gcc: other", "1 passed, 2 failed"])

    def test_what_a_busy_machine_skips_stays_skipped_when_it_is_late(self):
        self.check.BUSY_AGAIN_S = -1
        self.assertEqual(self.repeated("SKIP", "FAIL"), ["skipped: gcc: e2e_well, gcc: e2e_ill, gcc: other",
                                                         "0 passed, 0 failed, 3 skipped"])

    def test_what_a_suite_needs(self):
        tree = os.path.join(self.check.OUT, "tsan")
        files = {"tests": [{"suite": ["cede:threads"], "depends": ["lib", "exe"], "cmd": [f"{tree}/tests/exe"]},
                           {"suite": ["cede:threads"], "depends": [], "cmd": ["/usr/bin/python3", "x.py"]},
                           {"suite": ["cede"], "depends": ["other"], "cmd": [f"{tree}/tests/other"]}],
                 "targets": [{"id": "lib", "filename": [f"{tree}/tests/libx.so"]},
                             {"id": "exe", "filename": [f"{tree}/tests/exe"]},
                             {"id": "other", "filename": [f"{tree}/tests/other"]}]}
        for name, content in files.items():
            self.write(f"tsan/meson-info/intro-{name}.json", json.dumps(content))
        self.assertEqual(self.check.needed_by(tree, "threads"), ["tests/exe", "tests/libx.so"])


if __name__ == "__main__":
    unittest.main()
