"""A ceded on the software GPU, and programs in containers, for the tests of this folder."""
import contextlib
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from on_soft import CEDE, WAIT_S, OnSoft, eventually  # pylint: disable=wrong-import-position

SOURCE, LIBCEDE = (sys.argv.pop(1) for _ in range(2))


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


class Machine(OnSoft):
    CONF = ""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        os.mkdir(self.path("cede"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.env.update(CEDE_DIR=self.path("cede"), CEDE_SOFT_SOCKET=self.path("gpu"),
                        PYTHONPATH=os.path.join(SOURCE, "python"), CEDE_LIBRARY=LIBCEDE)
        self.soft_gpu()
        os.chmod(self.path("gpu"), 0o666)  # for the programs of other users
        self.daemon_process = self.begin_ceded()

    def begin_ceded(self):
        self.write("conf", "[daemon]\naccounts = no\n" + self.CONF)
        p = self.daemon()
        eventually(lambda: self.call(CEDE, "ps").returncode == 0 and os.path.exists(self.path("cede/container/socket")),
                   "no ceded")
        os.chmod(self.path("cede/container"), 0o755)  # below /tmp it is made for its user alone
        return p

    def start(self, *args, env=None, **kw):
        p = super().start(*args, env={**self.env, **(env or {})}, **kw)
        self.addCleanup(p.kill)  # unshare(1) ignores SIGTERM
        return p

    def call(self, *args, env=None):
        return self.run_as(*args, env={**self.env, **(env or {})})

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
        return next((j for j in self.all_jobs() if j["name"] == name), None)

    def all_jobs(self):
        return json.loads(self.cede("ps", "--json"))["jobs"]

    def await_job(self, name, **fields):
        def found():
            j = self.job(name)
            return j if j and all(j[k] == v for k, v in fields.items()) else None
        return eventually(found, lambda: f"{name} is not {fields}: {self.job(name)}")


def run(tests=None):
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    unittest.main(argv=[sys.argv[0], *(tests or sys.argv[1:])], module="__main__", verbosity=2)
