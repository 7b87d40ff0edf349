"""A second ceded on the same GPU, a user's own or root's in another directory: it refuses, and names root's; `cede run` of a
user joins that.

usage: test_beside_root.py CEDE"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CEDE = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120
# Root's is where users look for it, in a /run of the test's own.
PRIVATE = "CEDE_TEST_PRIVATE_RUN"


def until(what):
    end = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


class BesideRoot(unittest.TestCase):
    def setUp(self):
        if PRIVATE not in os.environ:
            self.skipTest("not root, or no mount namespace")
        if not os.stat(CEDE).st_mode & 0o001 or not os.stat(os.path.dirname(CEDE)).st_mode & 0o001:
            self.skipTest("others may not execute " + CEDE)
        self.user = 100000 + os.getpid()
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        os.mkdir(self.path("own"))
        os.chown(self.path("own"), self.user, self.user)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.env |= {"CEDE_SOFT_SOCKET": self.path("gpu"), "CEDE_STATE_DIR": self.path("own")}
        self.gpu("gpu")

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self, *args, **more):
        with open(self.path("log"), "ab") as log:
            p = subprocess.Popen([CEDE, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
        self.addCleanup(p.wait)
        self.addCleanup(p.terminate)
        return p

    def gpu(self, name):
        self.start("softgpu", "--socket", self.path(name))
        until(lambda: os.path.exists(self.path(name)))
        os.chmod(self.path(name), 0o666)

    def root(self, *args):
        self.start("daemon", "--device", "soft", *args)
        where = args[1] if args else "/run/cede"
        until(lambda: os.path.exists(where + "/socket"))

    def as_user(self, *args, **env):
        return subprocess.run([CEDE, *args], env=self.env | env, user=self.user, group=self.user, extra_groups=[],
                              text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)

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
            done = subprocess.run([CEDE, *verb], env=self.env | {"CEDE_DIR": self.path("second")}, text=True, check=False,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("CEDE_DIR=" + self.path("root"), done.stderr)

    def test_other_gpu(self):
        self.root()
        self.gpu("gpu2")
        self.env["CEDE_SOFT_SOCKET"] = self.path("gpu2")
        self.start("daemon", "--device", "soft", "--dir", self.path("own"), user=self.user, group=self.user,
                   extra_groups=[])
        until(lambda: os.path.exists(self.path("own/socket")))


if __name__ == "__main__":
    if PRIVATE not in os.environ and os.geteuid() == 0:
        MOUNT = 'mount -t tmpfs -o mode=755 none /run && exec "$@"'
        if subprocess.run(["unshare", "-m", "sh", "-c", MOUNT, "sh", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[PRIVATE] = "1"
            os.execvp("unshare", ["unshare", "-m", "sh", "-c", MOUNT, "sh", sys.executable, *sys.argv[:1], CEDE,
                                  *sys.argv[1:]])
    unittest.main()
