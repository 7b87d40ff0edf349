"""tests/alone: a test sees its own processes only, none of them is left when it ends, and its exit status is
that of the test; the first is skipped where there are no pid namespaces to be had. tests/quiet: a test that
failed is skipped only where other programs took the machine.

usage: test_alone.py PATH_OF_ALONE
"""
import contextlib
import io
import os
import subprocess
import time
import unittest

from script import SCRIPT as ALONE, load

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
        self.quiet = load(os.path.join(os.path.dirname(ALONE), "quiet"))
        self.quiet.EVERY_S = 0.01

    def run_it(self, script, *given):
        """The last of what is given goes on."""
        out, left = io.StringIO(), list(given)
        self.quiet.sys.argv = ["quiet", "sh", "-c", script]
        self.quiet.given = lambda _: left.pop(0) if len(left) > 1 else left[0]
        with contextlib.redirect_stdout(out):
            return self.quiet.main(), out.getvalue()

    def test_measures(self):
        self.assertTrue(0 < self.quiet.given(0.001) <= 1)

    def test_before(self):
        self.assertEqual(self.run_it("exit 3", 0.08),
                         (77, "skipped: before the test the machine gave a program 8 % of a processor\n"))

    def test_verdicts(self):
        for part in (1, 0.7, 0.1):
            self.assertEqual(self.run_it("exit 0", 1, part), (0, ""))
            self.assertEqual(self.run_it("exit 77", 1, part), (77, ""))
        for part in (1, 0.7):
            self.assertEqual(self.run_it("sleep 0.2; exit 3", 1, part), (3, ""))
        self.assertEqual([self.quiet.worst([1] * n + [0.1]) for n in (5, 19)], [0.1, 1])
        self.assertEqual(self.run_it("sleep 0.2; kill -9 $$", 1, 0.33),
                         (77, "skipped: it failed (status -9), and meanwhile the machine gave a program 33 % of a processor\n"))


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
