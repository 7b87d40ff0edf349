"""/tmp/cede-UID that another user has made: `cede ps` says so at once, whatever is in it. Needs root, to be two users.

usage: test_squat.py CEDE"""
import os
import shutil
import socket
import stat
import unittest

from on_soft import CEDE, OnSoft


class Squat(OnSoft):
    def setUp(self):
        if os.geteuid():
            self.skipTest("not root")
        if os.path.exists("/run/cede/socket"):
            self.skipTest("a ceded of the system's would answer")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.attacker = 100000 + 2 * os.getpid()
        self.victim = self.attacker + 1
        if self.run_as("test", "-x", CEDE, user=self.victim, group=self.victim, extra_groups=[]).returncode:
            self.skipTest("others may not execute " + CEDE)
        self.dir = f"/tmp/cede-{self.victim}"
        os.mkdir(self.dir, 0o755)
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)
        os.chown(self.dir, self.attacker, self.attacker)

    def theirs(self, name):
        path = os.path.join(self.dir, name)
        os.chown(path, self.attacker, self.attacker)
        return path

    def ps(self):
        return self.cede("ps", user=self.victim, group=self.victim, extra_groups=[])

    def refused(self, path):
        done = self.ps()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(path, done.stderr)
        self.assertIn("CEDE_DIR", done.stderr)

    def test_journal(self):
        """A pipe, and one that is made up."""
        path = os.path.join(self.dir, "journal")
        for kind in stat.S_IFIFO, stat.S_IFREG:
            os.mknod(path, kind | 0o644)
            self.refused(self.theirs("journal"))
            os.unlink(path)

    def test_accepts_nobody(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.bind(os.path.join(self.dir, "socket"))
            path = self.theirs("socket")
            os.chmod(path, 0o666)
            s.listen(0)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as full:
                full.connect(path)
                self.refused(path)

    def test_nothing_in_it(self):
        self.assertEqual(self.ps().returncode, 0)


if __name__ == "__main__":
    unittest.main()
