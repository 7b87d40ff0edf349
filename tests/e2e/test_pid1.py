"""Where process 1 waits for nobody, as in many containers, a pool leaves one zombie at most, its keeper, however many
servers it had: the keeper waits for what the control daemon leaves. Needs root, for a pid namespace.

usage: test_pid1.py CEDE FOLDER-OF-THE-MPS-STAND-IN"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CEDE, MPS = (os.path.abspath(a) for a in sys.argv[1:3])
LIMIT_S = 120


def processes():
    """{pid: (name, state)} of this namespace."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf8", errors="replace") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        found[int(entry)] = (name, rest.split()[0])
    return found


def until(what):
    end = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(processes())
        time.sleep(0.05)


class Pid1(unittest.TestCase):
    def setUp(self):
        if os.getpid() != 1:
            self.skipTest("not root, or no pid namespace")
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CEDE_", "XDG_"))}
        self.env |= {"CEDE_DIR": self.dir, "CEDE_STATE_DIR": self.dir, "CEDE_SOFT_SOCKET": self.dir + "/gpu",
                     "PATH": MPS + ":" + os.environ["PATH"]}

    def start(self, *args):
        p = subprocess.Popen([CEDE, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(p.wait)
        self.addCleanup(p.terminate)
        return p

    def test_pool(self):
        self.start("softgpu")
        until(lambda: os.path.exists(self.dir + "/gpu"))
        self.start("daemon", "--device", "soft")
        until(lambda: os.path.exists(self.dir + "/socket"))
        for _ in range(2):
            jobs = [self.start("run", "--pool", "-c", "batch", "--", CEDE, "load", "batch", "--seconds", "2")
                    for _ in range(2)]
            until(lambda: any(name.startswith("nvidia-cuda-mps") for name, _ in processes().values()))
            self.assertEqual([j.wait() for j in jobs], [0, 0])
        until(lambda: ("cede-pool", "Z") in processes().values())
        zombies = [name for name, state in processes().values() if state == "Z"]
        self.assertEqual(set(zombies), {"cede-pool"})
        self.assertLessEqual(len(zombies), 2)
        self.assertFalse([name for name, _ in processes().values() if name.startswith("nvidia-cuda-mps")])


if __name__ == "__main__":
    INSIDE = ["unshare", "--pid", "--fork", "--mount-proc"]
    if os.getpid() != 1 and subprocess.run([*INSIDE, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        os.execvp("unshare", [*INSIDE, sys.executable, *sys.argv])
    unittest.main(argv=sys.argv[:1])
