"""`cede kill` and `cede run --kill-leftovers`: which processes get the signal.

usage: test_kill.py CEDE"""
import ctypes
import json
import os
import resource
import signal
import sys
import unittest

sys.dont_write_bytecode = True
from on_soft import CEDE, OnSoft, eventually

LOAD = f"{CEDE} load batch --device soft"
CHAIN = '[ "$1" = 0 ] && echo 1 && exec sleep 1000; sh -c "$0" "$0" $(($1 - 1)); :'  # a process below each other


def as_user(uid, *args):
    return "setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *args


def start_as_pid(pid, *args):
    """clone3(2) with that pid; it must be free. The pid, or -1."""
    tid = ctypes.c_int(pid)
    of_clone = (ctypes.c_uint64 * 10)()
    of_clone[4], of_clone[8], of_clone[9] = signal.SIGCHLD, ctypes.addressof(tid), 1
    got = ctypes.PyDLL(None).syscall(435, of_clone, ctypes.sizeof(of_clone))
    if got == 0:
        os.execvp(args[0], args)
    return got


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf8") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Kill(OnSoft):
    def setUp(self):
        super().setUp()
        self.soft_gpu()
        self.write("conf", "")
        self.ceded_pid = self.daemon().pid
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
        eventually(lambda: self.jobs()["left"]["pid"] == 0, "the pid of the root is still shown")
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
        done = self.run_as(*as_user(65534, CEDE, "kill", "root"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("of another user: not signalled", done.stderr)
        self.assertTrue(alive(pid))

    def test_pid_of_an_ended_root(self):
        """What has got the pid is not the job's."""
        if os.geteuid() != 0:
            self.skipTest("chooses a pid")
        run = self.job("left", f"setsid sh -c 'echo $$ >b; exec {LOAD}' & while ! [ -s go ]; do sleep 0.05; done")
        pid, = self.pids("b")
        self.runs("left")
        self.write("go", "1")
        self.assertEqual(run.wait(60), 0)
        stranger = start_as_pid(run.pid, *as_user(65533, "sleep", "1000"))
        if stranger < 0:
            self.skipTest("the kernel gives no pid that is chosen")
        self.addCleanup(os.waitpid, stranger, 0)
        self.addCleanup(os.kill, stranger, signal.SIGKILL)
        self.assertIn("SIGKILL sent to 1 process\n", self.cede("kill", "-9", "left").stdout)
        self.gone(pid)
        self.assertTrue(alive(stranger))

    def test_names_of_users(self):
        """The caller's own job comes first, then that of the only other user who has the name."""
        if os.geteuid() != 0:
            self.skipTest("takes other users")
        os.chmod(self.dir, 0o755)
        own = self.job("same", "exec sleep 1000")
        others = {uid: self.start(*as_user(uid, CEDE, "run", "-n", "same", "--", "sleep", "1000")) for uid in (65533, 65534)}
        eventually(lambda: len(json.loads(self.cede("ps", "--json").stdout)["jobs"]) == 3, "no jobs")
        done = self.cede("kill", "same")
        self.assertIn("others have jobs of this name, too", done.stderr)
        own.wait(60)
        refused = self.cede("kill", "same")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("2 jobs of several users are named same: name one as 6553", refused.stderr)
        for uid, target in (65533, "65533/same"), (65534, "same"):
            self.assertTrue(all(o.poll() is None for u, o in others.items() if u >= uid))
            self.assertEqual(self.cede("kill", target).returncode, 0)
            others[uid].wait(60)
            eventually(lambda u=uid: not any(j["uid"] == u for j in self.jobs().values()), "the job lives")

    def test_jobs_within(self):
        """They end with the job that began them."""
        self.job("outer", f"{CEDE} run -n inner -- sh -c 'echo $$ >a; exec sleep 1000'; sleep 1000")
        pid, = self.pids("a")
        self.assertIn("inner", self.jobs())
        self.assertEqual(self.cede("kill", "-9", "outer").returncode, 0)
        self.gone(pid)

    def test_chain_of_a_stranger(self):
        """Its processes are read once, so that it delays nobody."""
        if os.geteuid() != 0:
            self.skipTest("takes another user")
        with open(self.path("chain"), "w", encoding="utf8") as f:
            chain = self.start(*as_user(65534, "sh", "-c", CHAIN, CHAIN, "800"), stdout=f, start_new_session=True)
        self.addCleanup(os.killpg, chain.pid, signal.SIGKILL)
        self.pids("chain")
        self.job("train", f"echo $$ >a; exec {LOAD}")
        pid, = self.pids("a")
        self.runs("train")
        before, of_ceded = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_s(self.ceded_pid)
        self.assertEqual(self.cede("kill", "train").returncode, 0)
        self.gone(pid)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        self.assertLess(cpu_s(self.ceded_pid) - of_ceded, 1)

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
        self.assertIn("there is no job named nobody", self.cede("kill", "nobody").stderr)


if __name__ == "__main__":
    unittest.main()
