"""tests/alone: a test sees its own processes only, none of them is left when it ends, and its exit status is
that of the test; the first is skipped where there are no pid namespaces to be had. tests/quiet: a test that
failed is skipped only where other programs took the machine.

usage: test_alone.py PATH_OF_ALONE
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import time
import unittest

ALONE = sys.argv.pop(1)
sys.dont_write_bytecode = True  # tests/ stays as it is
OWN = ["unshare", "--pid", "--fork", "--mount-proc", "true"]


def run(script, *args, **env):
    return subprocess.run([ALONE, "sh", "-c", script, "sh", *args], env={**os.environ, **env}, text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)


class Alone(unittest.TestCase):
    def test_status_and_arguments(self):
        for status in (0, 1, 77):
            r = run('printf "%s" "$2"; exit $1', str(status), "two words")
            self.assertEqual((r.returncode, r.stdout), (status, "two words"))

    def test_environment(self):
        r = run('echo "$CEDE_EXE$CEDE_DIR$CEDE_CLASS"', CEDE_EXE="x", CEDE_DIR="/elsewhere", CEDE_CLASS="batch")
        self.assertEqual(r.stdout, "x\n")

    def test_sees_its_own(self):
        if os.geteuid() or subprocess.run(OWN, check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no pid namespaces here")
        mine = subprocess.Popen(["sleep", "60"])
        self.addCleanup(mine.wait)
        self.addCleanup(mine.kill)
        r = run("cat /proc/[0-9]*/cmdline | tr '\\0\\n' '  '; sleep 1234.5 >/dev/null & echo; echo /proc/[0-9]*")
        commands, pids = r.stdout.strip().split("\n")
        self.assertNotIn("sleep 60", commands)
        self.assertLessEqual(len(pids.split()), 4)  # the first process, this script, what it runs
        end = time.monotonic() + 30
        while b"1234.5" in commands_of_all() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertNotIn(b"1234.5", commands_of_all())


class Quiet(unittest.TestCase):
    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("quiet", os.path.join(os.path.dirname(ALONE), "quiet"))
        self.quiet = importlib.util.module_from_spec(importlib.util.spec_from_loader("quiet", loader))
        loader.exec_module(self.quiet)
        self.quiet.SAMPLE_S = 0.01
        self.quiet.os = type("Os", (), {"cpu_count": lambda: 2})

    def run_it(self, script, wanting):
        out = io.StringIO()
        self.quiet.sys.argv = ["quiet", "sh", "-c", script]
        self.quiet.wanting = lambda: next(wanting)
        with contextlib.redirect_stdout(out):
            return self.quiet.main(), out.getvalue()

    def test_before(self):
        self.assertEqual(self.run_it("exit 3", iter([8] * 10)),
                         (77, "skipped: for a second before the test the machine gave one program 22 % of a processor\n"))

    def test_verdicts(self):
        def some(n):
            yield from [0] * 10
            while True:
                yield n
        for busy in (0, 2, 30):
            self.assertEqual(self.run_it("exit 0", some(busy)), (0, ""))
            self.assertEqual(self.run_it("exit 77", some(busy)), (77, ""))
        for busy in (0, 1, 2):
            self.assertEqual(self.run_it("sleep 0.2; exit 3", some(busy)), (3, ""))
        status, said = self.run_it("sleep 0.2; kill -9 $$", some(5))
        self.assertEqual((status, said[:31]), (77, "skipped: it failed (status -9),"))
        self.assertIn(" 33 % ", said)

    def test_a_bad_second_counts(self):
        good, bad = [0] * 90, [9] * 10
        self.assertLess(self.quiet.worst(good + bad * 2), 0.6)
        self.assertEqual(self.quiet.worst(good + bad), 1)


def commands_of_all():
    found = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                found += f.read() if pid != str(os.getpid()) else b""
        except OSError:
            pass
    return found


unittest.main(verbosity=2)
