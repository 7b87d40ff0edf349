"""Makefile: what root builds in another user's tree is that user's, and installing packages stays root's.

usage: test_makefile.py PATH_OF_MAKEFILE
"""
import os
import shutil
import subprocess
import tempfile
import unittest

from script import SCRIPT as MAKEFILE

OWNER = 65534
LEAVES = ('#!/bin/sh\necho "$(basename "$0") $(id -u) ${HOME-unset}" >>log\nmkdir -p %s\ntouch %s/$$\n'
          '[ "$(basename "$0")" != "$FAILS" ]\n')
WRITES = {"scripts/deps": "build-deps", "scripts/compile": "$1", "scripts/deb": "build-deb", "scripts/check": "build-check",
          "scripts/tarball": "build-tarball", "scripts/only-libc": "demo", "bin/ninja": "build",
          "bin/meson": "build/meson-logs", "build/src/cli/cede": "demo", "build-static/src/cli/cede": "demo"}


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("make") and shutil.which("runuser"), "not root, or no make")
class OfAnotherUser(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        shutil.copy(MAKEFILE, os.path.join(self.top, "Makefile"))
        self.write("log", "")
        for name, writes in WRITES.items():
            self.write(name, LEAVES % (writes, writes))
        for path, folders, files in os.walk(self.top):
            for name in [".", *folders, *files]:
                os.chown(os.path.join(path, name), OWNER, OWNER)

    def write(self, name, text):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def make(self, goal, **env):
        path = os.path.join(self.top, "bin") + ":" + os.environ["PATH"]
        r = subprocess.run(["make", "-s", goal, "PREFIX=" + self.top], cwd=self.top, check=False, timeout=60,
                           env={**os.environ, "PATH": path, "HOME": "/root", **env}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(os.path.join(self.top, "log"), encoding="utf-8") as f:
            return r, dict(line.split(" ", 1) for line in f.read().splitlines())

    def owners(self, folder):
        return {os.lstat(os.path.join(path, name)).st_uid for path, folders, files in os.walk(os.path.join(self.top, folder))
                for name in [".", *folders, *files]}

    def test_built_by_its_owner(self):
        theirs, roots = f"{OWNER} unset", "0 /root"
        for goal, folder, who in (
                ("demo", "build", {"deps": roots, "meson": theirs, "compile": theirs, "cede": roots}),
                ("build", "build", {"deps": roots, "compile": theirs}),
                ("static", "build-static", {"deps": roots, "compile": theirs}),
                ("deb", "build-deb", {"deps": roots, "deb": theirs}),
                ("tarball", "build-tarball", {"deps": roots, "tarball": theirs}),
                ("check", "build-check", {"deps": roots, "check": roots}),
                ("test", "build", {"deps": roots, "compile": theirs, "meson": roots}),
                ("install", "build", {"deps": roots, "ninja": theirs, "meson": roots})):
            with self.subTest(goal):
                self.write("log", "")
                r, did = self.make(goal)
                self.assertEqual((r.returncode, did), (0, {**did, **who}), r.stdout)
                self.assertEqual(self.owners(folder), {OWNER})

    def test_statuses(self):
        for goal, fails in (("check", "check"), ("test", "meson"), ("deb", "deb"), ("install", "meson")):
            self.assertNotEqual(self.make(goal, FAILS=fails)[0].returncode, 0, goal)


unittest.main(verbosity=2)
