"""What is said of jobs and of programs in none, by a real ceded on the software GPU.

usage: test_look.py CEDE"""
import json
import os
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True
from on_soft import CEDE, OnSoft, eventually


class Look(OnSoft):
    def begin(self, conf=""):
        self.soft_gpu()
        self.write("conf", conf)
        self.daemon()
        eventually(lambda: self.cede("status").returncode == 0, "no daemon")

    def unmanaged(self):
        return [u["pid"] for u in json.loads(self.cede("ps", "--json").stdout)["unmanaged"]]

    def free(self):
        """A GPU program in no job."""
        program = self.start(CEDE, "load", "batch", "--device", "soft")
        eventually(lambda: program.pid in self.unmanaged(), "it is not seen")
        return program.pid

    def test_why_in_no_job(self):
        self.begin("[rule other]\nclass = batch\nexe = no-such-program\n")
        pid = self.free()
        said = self.cede("why", str(pid))
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertEqual(said.stdout, f"cede-load (pid {pid}): in no job, it runs on the GPU by the driver's default\n"
                         f"  process {pid}: no rule matches it, and its environment has no CEDE_CLASS that counts\n"
                         f"  to make it a job: cede set {pid} -c batch\n")
        own = os.getpid()  # it has no GPU
        said = json.loads(self.cede("why", "--json", str(pid), str(own)).stdout)
        self.assertEqual(said["jobs"], [])
        self.assertEqual([o.pop("outcome") for o in said["in_no_job"]], [{"by": "nothing"}] * 2)
        self.assertEqual(said["in_no_job"][0], {"pid": pid, "name": "cede-load", "on_gpu": True, "detached": False,
                                                "command": f"cede set {pid} -c batch"})
        self.assertEqual((said["in_no_job"][1]["pid"], said["in_no_job"][1]["on_gpu"]), (own, False))
        self.cede("set", str(pid), "-c", "batch", "-n", "load")
        self.assertIn("(load), batch: ", self.cede("why", str(pid)).stdout)
        self.cede("detach", "load")
        self.assertIn("it was detached by hand", self.cede("why", str(pid)).stdout)
        self.assertTrue(json.loads(self.cede("why", "--json", str(pid)).stdout)["in_no_job"][0]["detached"])
        self.assertIn(f"in no job cede-load (pid {pid}): detached by hand (cede detach), so left alone\n",
                      self.cede("status").stdout)
        self.assertEqual(self.cede("why", "2147483647").returncode, 1)

    def test_other_users(self):
        """A user changes and stops nothing of another's, with whichever verb; --others are the user's own."""
        if os.geteuid() != 0:
            self.skipTest("takes another user")
        self.begin()
        os.chmod(self.dir, 0o755)
        os.chmod(self.path("gpu"), 0o666)
        free = self.free()
        self.start(CEDE, "run", "-n", "train", "--", CEDE, "load", "batch", "--device", "soft")
        eventually(lambda: self.jobs().get("train", {}).get("state") in ("running", "waiting"), "no job")
        user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", CEDE)
        said = self.run_as(*user, "set", "--others", "-c", "batch")
        self.assertEqual((said.returncode, said.stdout, said.stderr),
                         (0, "no unmanaged GPU programs: nothing to set\n", ""))
        steady = ("class", "weight", "pid", "processes")
        before = {k: self.jobs()["train"][k] for k in steady}
        for verb in (("set", "-c", "batch"), ("set", "-n", "mine"), ("set", "--memory-max", "1M,kill"), ("detach",),
                     ("pause",), ("resume",), ("yield",), ("acquire",), ("swap", "out"), ("swap", "in"), ("kill",)):
            for target in "train", "root/train", str(free):
                said = self.run_as(*user, *verb, target)
                self.assertEqual((said.returncode, said.stdout), (1, ""), (verb, target, said.stderr))
        self.assertEqual(self.run_as(*user, "why", str(free)).returncode, 1)
        self.assertEqual({k: self.jobs()["train"][k] for k in steady}, before)
        self.assertIn(self.jobs()["train"]["state"], ("running", "waiting"))
        own = self.start(*user, "load", "batch", "--device", "soft")
        eventually(lambda: own.pid in self.unmanaged(), "it is not seen")
        said = self.run_as(*user, "set", "--others", "-c", "batch")
        self.assertRegex(said.stdout, r"^#\d+ cede-load: batch, weight 100\n$")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertEqual(self.unmanaged(), [free])
        # Of root's ceded root sets all.
        said = self.cede("set", "--others", "-c", "batch")
        self.assertEqual((said.returncode, self.unmanaged()), (0, []), said.stderr)

    def test_no_gpu(self):
        """A job under a ceded without a GPU is not said to be scheduled as soon as it has a context."""
        self.write("conf", "")
        self.start(CEDE, "daemon", "--config", self.path("conf"))  # sees no software GPU
        eventually(lambda: self.cede("status").returncode == 0, "no daemon")
        self.start(CEDE, "run", "-n", "train", "--", "sleep", "60")
        eventually(lambda: "train" in self.jobs(), "no job")
        self.assertRegex(self.cede("set", "train", "-w", "50").stderr, r"^cede: #\d+ train: ceded has no GPU \(`cede status`\)")

    def test_names(self):
        self.begin()
        pid = self.free()
        self.assertRegex(self.cede("set", str(pid), "--name", "first").stdout, r"^#\d+ first: normal, weight 100\n$")
        self.assertRegex(self.cede("set", "first", "--name", "second").stdout, r"^#\d+ second: normal, weight 100\n$")
        self.assertEqual(list(self.jobs()), ["second"])
        self.assertEqual(self.cede("pause", "first").returncode, 1)

    def test_nothing_to_undo(self):
        """What was not paused, swapped or yielded is said to be so, and not done."""
        self.begin()
        pid = self.free()
        self.cede("set", str(pid), "-n", "load")
        for verb, text in ((("resume",), "it was not paused"), (("swap", "in"), "it was not swapped out"),
                           (("acquire",), "it had yielded nothing")):
            said = self.cede(*verb, "load")
            self.assertEqual((said.returncode, said.stdout), (0, ""))
            self.assertRegex(said.stderr, rf"^cede: #\d+ load: {text}\n$")
        self.cede("pause", "load")
        said = self.cede("resume", "load")
        self.assertRegex(said.stdout, r"^#\d+ load: resumed\n$")
        self.assertEqual(said.stderr, "")

    def test_another_ceded(self):
        """Doctor warns of one that runs, and not of one that has ended and is not waited for."""
        for name, program in ("ended", "/bin/true"), ("runs", "/bin/sleep"):
            os.mkdir(self.path(name))
            os.symlink(program, self.path(name + "/ceded"))
        ended = self.start(self.path("ended/ceded"))
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        runs = self.start(self.path("runs/ceded"), "1000")
        said = self.cede("doctor", "--device", "soft")
        self.assertIn("warn  daemon       another ceded runs (pid ", said.stdout)
        self.assertNotIn(f"(pid {ended.pid},", said.stdout)
        self.assertIsNone(runs.poll())

    def test_doctor_without_gpu(self):
        """It looks at the software GPU that runs by itself, and says so; else at what a GPU lacks."""
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd"):
            self.skipTest("there is a GPU")
        said = self.cede("doctor")
        self.assertEqual(said.returncode, 1, said.stdout)
        self.assertEqual(said.stdout.count("fail  "), 1, said.stdout)  # for one cause
        self.assertIn("fail  devices ", said.stdout)
        self.soft_gpu()
        said = self.cede("doctor")
        self.assertEqual((said.returncode, said.stderr), (0, ""), said.stdout)
        self.assertIn(f"no NVIDIA or AMD GPU is here, but a software GPU ({self.path('gpu')}): one like it", said.stdout)
        self.assertIn("says nothing about a real one", said.stdout)
        self.assertNotIn("fail ", said.stdout)

    def test_run_without_gpu(self):
        """What would not be scheduled is not run with --strict; the gate can be named, and OpenCL on processors."""
        if any(os.path.exists("/dev/" + f) for f in ("nvidiactl", "kfd", "dri/renderD128")):
            self.skipTest("there is a GPU")
        note = "no GPU here can be scheduled: `cede doctor` says why\n"
        for words, env, result in (((), {}, (0, "cede: note: " + note)), (("-q",), {}, (0, "")),
                                   (("--strict",), {}, (1, "cede: 'true' was not run: " + note)),
                                   (("--strict", "--gpu-device", "gate"), {}, (0, "")),
                                   (("--strict",), {"CEDE_GATE_CPU": "1"}, (0, ""))):
            said = self.cede("run", *words, "--", "true", env={**self.env, **env})
            self.assertEqual((said.returncode, said.stderr), result, words)
            eventually(lambda: "no daemon" in self.cede("policy").stderr, "ceded does not end")

    def test_no_place(self):
        """No directory for a scheduler, or no space in it: that is said, not that one does not answer."""
        env = dict(self.env, CEDE_DIR="/nonexistent/cede")
        said = self.cede("run", "--gpu-device", "gate", "--", "true", env=env)
        self.assertEqual(said.returncode, 0)
        self.assertIn("unscheduled: cannot create directory /nonexistent/cede: No such", said.stderr)
        self.assertIn("cannot create directory", self.cede("pause", "1234", env=env).stderr)
        script = f"mount -t tmpfs -o size=64k t {self.dir} && mkdir -m 755 {self.dir}/c && " \
                 f"{{ dd if=/dev/zero of={self.dir}/f bs=1k count=100; CEDE_DIR={self.dir}/c {CEDE} run --gpu-device gate -- true; }}"
        said = self.run_as("unshare", "-m", "sh", "-c", script)
        if os.geteuid() != 0 or "dd:" not in said.stderr:
            self.skipTest("nothing can be mounted here")
        self.assertIn("no space is left for ", said.stderr)

    def test_stopped_ceded(self):
        """A program does not wait for a ceded that hangs."""
        self.soft_gpu()
        self.write("conf", "")
        daemon = self.daemon()
        eventually(lambda: self.cede("status").returncode == 0, "no daemon")
        daemon.send_signal(signal.SIGSTOP)
        for options in (), ("--gpus", "1"), ("-c", "batch", "--pool"):
            began = time.monotonic()
            said = self.cede("run", *options, "--", "true")
            self.assertEqual(said.returncode, 0)
            self.assertIn("runs unscheduled", said.stderr)
            self.assertLess(time.monotonic() - began, 8)


if __name__ == "__main__":
    unittest.main()
