"""For tests of verbs in Python: a directory of the test's own with the software GPU, a ceded and programs, all of which
end with the test; and waiting. The program under test is the first argument."""
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CEDE = os.path.abspath(sys.argv.pop(1))
WAIT_S = 60  # only a test that fails takes so long


def eventually(what, message, wait_s=WAIT_S):
    """What it returns, as soon as that is true; what is not there yet is waited for."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            got = what()
            if got:
                return got
        time.sleep(0.05)
    raise AssertionError(message() if callable(message) else message)


class OnSoft(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = dict(os.environ, CEDE_DIR=self.dir, CEDE_SOFT_SOCKET=self.path("gpu"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode="w"):
        with open(self.path(name), mode, encoding="utf8") as f:
            f.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf8") as f:
            return f.read()

    def start(self, *args, **kw):
        kw = {"env": self.env, "text": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **kw}
        p = subprocess.Popen(args, **kw)

        def end():
            with contextlib.suppress(ProcessLookupError):
                p.send_signal(signal.SIGCONT)
                p.terminate()
            p.wait(WAIT_S)
            for pipe in p.stdout, p.stderr:
                if pipe:
                    pipe.close()
        self.addCleanup(end)
        return p

    def run_as(self, *args, **kw):
        """To its end, with what it said."""
        return subprocess.run(args, **{"env": self.env, "text": True, "stdin": subprocess.DEVNULL, "check": False,
                                       "capture_output": True, "timeout": WAIT_S, **kw})

    def cede(self, *args, **kw):
        return self.run_as(CEDE, *args, **kw)

    def jobs(self):
        return {j["name"]: j for j in json.loads(self.cede("ps", "--json").stdout)["jobs"]}

    def soft_gpu(self, *args):
        self.start(CEDE, "softgpu", *args)
        eventually(lambda: os.path.exists(self.path("gpu")), "no software GPU")

    def daemon(self, **kw):
        return self.start(CEDE, "daemon", "--config", self.path("conf"), "--device", "soft", **kw)

    def ceded(self, config="", **kw):
        """With that configuration, and the software GPU if there is none yet; the process, once it answers."""
        self.write("conf", config)
        if not os.path.exists(self.path("gpu")):
            self.soft_gpu()
        daemon = self.daemon(**kw)
        eventually(lambda: "no daemon" not in self.cede("policy").stderr, "no ceded")
        return daemon
