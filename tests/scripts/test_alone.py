"""tests/alone: a test sees its own processes only, none of them is left when it ends, and its exit status is
that of the test. Skipped where there are no pid namespaces to be had.

usage: test_alone.py PATH_OF_ALONE
"""
import os
import subprocess
import sys
import time
import unittest

ALONE = sys.argv.pop(1)
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
