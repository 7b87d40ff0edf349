"""`cede kill` and `cede run --kill-leftovers`: which processes get the signal.

usage: test_kill.py CEDE"""
import os
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from on_soft import CEDE, OnSoft, eventually

LOAD = f"{CEDE} load batch --device soft"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Kill(OnSoft):
    def setUp(self):
        super().setUp()
        self.soft_gpu()
        self.write("conf", "")
        self.daemon()
        eventually(lambda: self.cede("policy").returncode == 0 and os.path.exists(self.path("socket")), "no daemon")

    def pids(self, *names):
        """Of the files in which the programs have written their pids."""
        return [int(eventually(lambda n=n: self.read(n).strip(), n)) for n in names]

    def job(self, name, script, *options):
        return self.start(CEDE, "run", "-n", name, *options, "--", "sh", "-c", script, cwd=self.dir)

    def runs(self, name, processes=1):
        eventually(lambda: self.jobs()[name]["processes"] >= processes if name in self.jobs() else False, name)

    def gone(self, *pids):
        eventually(lambda: not any(map(alive, pids)), f"{pids} live")

    def test_all_processes(self):
        other = self.job("other", f"exec {LOAD}")
        train = self.job("train", f"echo $$ >a; setsid sh -c 'echo $$ >b; exec {LOAD}' & sleep 1000 & echo $! >c; wait")
        pids = self.pids("a", "b", "c")
        self.runs("train")
        self.runs("other")
        done = self.cede("kill", "train")
        self.assertRegex(done.stdout, r"^#\d+ train: SIGTERM sent to [34] processes\n$")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.gone(*pids)
        self.assertEqual(train.wait(60), -signal.SIGTERM)
        self.assertIsNone(other.poll())
        self.assertEqual(self.cede("kill", "train").returncode, 1)

    def test_left_behind(self):
        """Its command has ended; what it has started is no descendant of anything that is the job's."""
        run = self.job("left", f"setsid sh -c 'trap \"\" TERM; echo $$ >b; {LOAD}' & while ! [ -s go ]; do sleep 0.05; done")
        pid, = self.pids("b")
        self.runs("left")
        self.write("go", "1")
        self.assertEqual(run.wait(60), 0)
        self.assertTrue(alive(pid))
        done = self.cede("kill", "-9", "left")
        self.assertIn("SIGKILL sent to", done.stdout)
        self.gone(pid)

    def test_others(self):
        if os.geteuid() != 0:
            self.skipTest("takes another user")
        self.job("root", f"echo $$ >a; exec {LOAD}")
        pid, = self.pids("a")
        self.runs("root")
        os.chmod(self.dir, 0o755)
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", CEDE, "kill", "root"],
                              env=self.env, text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("of another user: not signalled", done.stderr)
        self.assertTrue(alive(pid))

    def test_leftovers(self):
        script = f"trap '' TERM; setsid sh -c 'echo $$ >a; exec {LOAD}' & setsid sleep 1000 & echo $! >b; exit 3"
        run = self.job("tidy", script, "--kill-leftovers")
        self.assertEqual(run.wait(60), 3)
        self.gone(*self.pids("b"))
        said = self.cede("run", "--kill-leftovers", "--", "sh", "-c", "sleep 1000 & exit 4", cwd=self.dir)
        self.assertEqual(said.returncode, 4)
        self.assertIn("'sh' left 1 process behind: ended", said.stderr)

    def test_usage(self):
        for args, text in ((("kill",), "no target given"), (("kill", "-s", "TREM", "x"), "'TREM' is not a signal"), (("kill", "-TREM", "x"), "'TREM' is not a signal")):
            done = self.cede(*args)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)
        self.assertIn("no such job", self.cede("kill", "nobody").stderr)


if __name__ == "__main__":
    unittest.main()
