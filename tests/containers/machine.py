"""A ceded on the software GPU, and programs in containers, for the tests of this folder."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CEDE, SOURCE, LIBCEDE = (sys.argv.pop(1) for _ in range(3))
WAIT_S = 60  # only a test that fails takes so long


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def eventually(what, message):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError(message() if callable(message) else message)


class Machine(unittest.TestCase):
    CONF = ""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="cede-containers-")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        os.mkdir(self.path("cede"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.env.update(CEDE_DIR=self.path("cede"), CEDE_SOFT_SOCKET=self.path("gpu"),
                        PYTHONPATH=os.path.join(SOURCE, "python"), CEDE_LIBRARY=LIBCEDE)
        self.start(CEDE, "softgpu")
        eventually(lambda: os.path.exists(self.path("gpu")), "no software GPU")
        os.chmod(self.path("gpu"), 0o666)  # for the programs of other users
        self.ceded = self.begin_ceded()

    def path(self, name):
        return os.path.join(self.dir, name)

    def begin_ceded(self):
        with open(self.path("conf"), "w", encoding="utf8") as f:
            f.write("[daemon]\naccounts = no\n" + self.CONF)
        p = self.start(CEDE, "daemon", "--config", self.path("conf"), "--device", "soft")
        eventually(lambda: self.call(CEDE, "ps").returncode == 0 and os.path.exists(self.path("cede/container/socket")),
                   "no ceded")
        os.chmod(self.path("cede/container"), 0o755)  # below /tmp it is made for its user alone
        return p

    def start(self, *args, env=None):
        p = subprocess.Popen(args, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    def call(self, *args, env=None):
        return subprocess.run(args, env={**self.env, **(env or {})}, text=True, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S)

    def cede(self, *args, env=None):
        r = self.call(CEDE, *args, env=env)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def refused(self, said, *args):
        r = self.call(*args)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn(said, r.stderr)

    def job(self, name):
        """As it is outside; None."""
        jobs = json.loads(self.cede("ps", "--json"))["jobs"]
        return next((j for j in jobs if j["name"] == name), None)

    def await_job(self, name, **fields):
        def found():
            j = self.job(name)
            return j if j and all(j[k] == v for k, v in fields.items()) else None
        return eventually(found, lambda: f"{name} is not {fields}: {self.job(name)}")


def run(tests=None):
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    unittest.main(argv=[sys.argv[0], *(tests or sys.argv[1:])], module="__main__", verbosity=2)
