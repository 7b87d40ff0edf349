"""A second ceded on the same GPU, a user's own or root's in another directory: it refuses, and names root's; `cede run` of a
user joins that.

usage: test_beside_root.py CEDE"""
import os
import subprocess
import sys
import unittest

from on_soft import CEDE, OnSoft, eventually

# Root's is where users look for it, in a /run of the test's own.
PRIVATE = "CEDE_TEST_PRIVATE_RUN"


class BesideRoot(OnSoft):
    def setUp(self):
        if PRIVATE not in os.environ:
            self.skipTest("not root, or no mount namespace")
        if not os.stat(CEDE).st_mode & 0o001 or not os.stat(os.path.dirname(CEDE)).st_mode & 0o001:
            self.skipTest("others may not execute " + CEDE)
        self.user = 100000 + os.getpid()
        super().setUp()
        os.chmod(self.dir, 0o755)
        os.mkdir(self.path("own"))
        os.chown(self.path("own"), self.user, self.user)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.env |= {"CEDE_SOFT_SOCKET": self.path("gpu"), "CEDE_STATE_DIR": self.path("own")}
        self.gpu("gpu")

    def gpu(self, name):
        self.start(CEDE, "softgpu", "--socket", self.path(name))
        eventually(lambda: os.path.exists(self.path(name)), "no software GPU")
        os.chmod(self.path(name), 0o666)

    def begins(self, where, *args, **kw):
        self.start(CEDE, "daemon", "--device", "soft", *args, **kw)
        eventually(lambda: os.path.exists(where + "/socket"), "no ceded in " + where)

    def root(self, *args):
        self.begins(args[1] if args else "/run/cede", *args)

    def as_user(self, *args, **env):
        return self.cede(*args, env=self.env | env, user=self.user, group=self.user, extra_groups=[])

    def refused(self, where):
        done = self.as_user("daemon", "--device", "soft", "--dir", self.path("own"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("another cede (pid ", done.stderr)
        self.assertIn("CEDE_DIR=" + where, done.stderr)

    def test_refuses(self):
        self.root()
        self.refused("/run/cede")
        # One that `cede run` would begin does, too, and the program runs.
        done = self.as_user("run", "--", "true", CEDE_DIR=self.path("own"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("another cede (pid ", done.stderr)
        done = self.as_user("run", "-n", "joins", "--", CEDE, "ps", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"joins"', done.stdout)

    def test_elsewhere(self):
        self.root("--dir", self.path("root"))
        self.refused(self.path("root"))

    def test_root_twice(self):
        self.root("--dir", self.path("root"))
        for verb in (["daemon", "--device", "soft"], ["set", "-c", "batch", str(os.getpid())]):
            done = self.cede(*verb, env=self.env | {"CEDE_DIR": self.path("second")})
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("CEDE_DIR=" + self.path("root"), done.stderr)

    def test_other_gpu(self):
        self.root()
        self.gpu("gpu2")
        self.env["CEDE_SOFT_SOCKET"] = self.path("gpu2")
        self.begins(self.path("own"), "--dir", self.path("own"), user=self.user, group=self.user, extra_groups=[])


if __name__ == "__main__":
    if PRIVATE not in os.environ and os.geteuid() == 0:
        MOUNT = 'mount -t tmpfs -o mode=755 none /run && exec "$@"'
        if subprocess.run(["unshare", "-m", "sh", "-c", MOUNT, "sh", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[PRIVATE] = "1"
            os.execvp("unshare", ["unshare", "-m", "sh", "-c", MOUNT, "sh", sys.executable, *sys.argv[:1], CEDE,
                                  *sys.argv[1:]])
    unittest.main()
