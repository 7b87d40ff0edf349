"""The plugin for Slurm in a real slurmctld, slurmd and munged on this machine, with a ceded on the software
GPU: which jobs of Slurm become which jobs of cede's, what is refused and where, and that jobs run where
ceded does not.

usage: test_slurm.py CEDE PLUGIN DIRECTORY_OF_MPS_STAND_IN DIRECTORY_OF_INTEGRATION [TEST...]"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from on_soft import CEDE, WAIT_S, eventually  # pylint: disable=wrong-import-position

PLUGIN, MPS, INTEGRATION = (sys.argv.pop(1) for _ in range(3))
NOBODY = 65534
LIMITS = "default=none max=normal max:partition:prod=latency max_weight=200 max_weight:qos:high=300"

CONF = """ClusterName=cede
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthInfo=socket={dir}/munge
SlurmUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
GresTypes=gpu,shard
KillWait=2
PlugStackConfig={plugstack}
JobSubmitPlugins=lua
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=64 Gres=gpu:1,shard:4
PartitionName=debug Nodes=n1 Default=YES State=UP
PartitionName=prod Nodes=n1 State=UP
"""


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Cluster:
    """One node, for all tests."""

    def __init__(self, more="", limits=LIMITS):  # more: lines of slurm.conf, as a template too
        self.dir = tempfile.mkdtemp(prefix="cede-slurm-")
        os.chmod(self.dir, 0o755)
        self.children = []
        os.mkdir(self.path("state"))
        os.mkdir(self.path("cede"))
        with open(self.path("key"), "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(self.path("key"), 0o400)
        shutil.copy(os.path.join(INTEGRATION, "job_submit.lua"), self.dir)
        os.mknod(self.path("nvidia0"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # nothing opens it
        with open(self.path("gres.conf"), "w", encoding="utf8") as f:
            f.write(f"Name=gpu File={self.path('nvidia0')}\nName=shard Count=4\n")
        ctld, slurmd = free_ports(2)
        self.host = socket.gethostname().split(".")[0]
        for name, limits in (("slurm.conf", limits), ("lax.conf", "max=latency max_weight=10000")):
            stack = self.path(name + ".plugstack")
            with open(stack, "w", encoding="utf8") as f:
                f.write(f"required {PLUGIN} {limits} dir={self.path('cede')} cede={CEDE}\n")
            with open(self.path(name), "w", encoding="utf8") as f:
                f.write((CONF + more).format(dir=self.dir, host=self.host, ctld=ctld, slurmd=slurmd, plugstack=stack))
        self.env = dict(os.environ, SLURM_CONF=self.path("slurm.conf"), CEDE_DIR=self.path("cede"),
                        CEDE_SOFT_SOCKET=self.path("gpu"), PATH=MPS + ":" + os.environ["PATH"] + ":/usr/sbin")
        for name in [n for n in self.env if n.startswith(("SLURM_", "SBATCH_", "CUDA_"))]:
            if name != "SLURM_CONF":
                del self.env[name]

    def path(self, name):
        return os.path.join(self.dir, name)

    def text(self, name):
        with contextlib.suppress(OSError), open(self.path(name), encoding="utf8", errors="replace") as f:
            return f.read()
        return ""

    def start(self, *args):
        with open(self.path(os.path.basename(args[0]) + ".out"), "a", encoding="utf8") as out:
            p = subprocess.Popen(args, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 cwd=self.dir)
        self.children.append(p)
        return p

    def begin_munge(self):
        self.start("munged", "--foreground", "--force", "--num-threads=2", "--socket=" + self.path("munge"),
                   "--key-file=" + self.path("key"), "--pid-file=" + self.path("munge.pid"),
                   "--log-file=" + self.path("munge.log"), "--seed-file=" + self.path("munge.seed"))
        eventually(lambda: os.path.exists(self.path("munge")), "munged does not start")

    def begin_slurm(self):
        slurm = [self.start("slurmctld", "-D", "-i"), self.start("slurmd", "-D", "-N", "n1")]
        self.start(CEDE, "softgpu")
        eventually(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T", "-n", "n1").stdout
                   or any(p.poll() is not None for p in slurm), self.logs)
        if any(p.poll() is not None for p in slurm) and "spank" not in self.logs():
            self.end()
            skip("Slurm cannot run here: " + (self.logs().splitlines() or [""])[-1])

    def begin(self):
        self.begin_munge()
        self.begin_slurm()

    def logs(self):
        return "Slurm does not start\n" + "".join(self.text(n)[-3000:] for n in (
            "munged.out", "munge.log", "slurmctld.out", "slurmctld.log", "slurmd.out", "slurmd.log"))

    def end(self):
        if len(self.children) > 3:  # slurmctld runs: jobs end before it, as nobody ends them later
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.call("scancel", "-p", "debug,prod")  # of a test that failed
                eventually(lambda: not self.call("squeue", "-h").stdout, "jobs stay")
        for p in reversed(self.children):
            with contextlib.suppress(ProcessLookupError):
                p.kill()
            p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def call(self, *args, env=None, **kw):
        return subprocess.run(args, env={**self.env, **(env or {})}, cwd=self.dir, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=WAIT_S, **kw)


class OnCluster(unittest.TestCase):
    """What tests ask of the cluster, and of ceded on its node."""

    @classmethod
    def setUpClass(cls):
        cls.c = cls.cluster()
        cls.addClassCleanup(cls.c.end)
        cls.c.begin()

    @classmethod
    def cluster(cls):
        return Cluster()

    def ceded(self):
        c = self.c
        with open(c.path("conf"), "w", encoding="utf8"):
            pass
        daemon = c.start(CEDE, "daemon", "--config", c.path("conf"), "--device", "soft")
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        eventually(lambda: c.call(CEDE, "ps", "--json").returncode == 0 and self.daemon(), "no ceded")
        return daemon

    def ps(self):
        return json.loads(self.c.call(CEDE, "ps", "--json").stdout)

    def tearDown(self):
        self.c.call("scancel", "-p", "debug,prod")

    def daemon(self):
        return self.ps().get("daemon")

    def jobs(self):
        return self.ps()["jobs"]

    def job(self, number, **wanted):
        """The job of cede's for a job of Slurm's, once it has these values."""
        def look():
            found = [j for j in self.jobs() if j["name"] == f"slurm-{number}"]
            self.assertLessEqual(len(found), 1, found)
            return found and all(found[0][k] == v for k, v in wanted.items()) and found[0]
        return eventually(look, lambda: f"{number}: {wanted}: {self.jobs()}\n{self.c.text('slurmd.log')[-3000:]}")

    def gone(self, number):
        eventually(lambda: not [j for j in self.jobs() if j["name"] == f"slurm-{number}"], "the job stays")

    def slurm_sums(self, number):
        got = self.c.call(CEDE, "acct", "--json", "--sum-by", "slurmjob")
        return [r for r in json.loads(got.stdout).get("sums", []) if r["slurm_job"] == number]

    def refused(self, message, *args, **kw):
        got = self.c.call(*args, **kw)
        self.assertNotEqual(got.returncode, 0)
        self.assertIn(message, got.stderr)
        return got

    def srun(self, *args, **kw):
        return self.c.call("srun", "-Q", *args, **kw)

    def sbatch(self, *args, script, **kw):
        with open(self.c.path("script"), "w", encoding="utf8") as f:
            f.write("#!/bin/sh\n" + script)
        got = self.c.call("sbatch", "--parsable", "-o", self.c.path("out-%j"), *args, self.c.path("script"), **kw)
        self.assertEqual(got.returncode, 0, got.stderr)
        return int(got.stdout)

    def cancel(self, number):
        self.assertEqual(self.c.call("scancel", str(number)).returncode, 0)
        self.gone(number)

    def load(self, kind="batch"):
        return f"exec {CEDE} load {kind} --device soft --memory 100M\n"


class Slurm(OnCluster):
    def test_batch_job(self):
        """Its program is on the GPU as the job that the options say; the end of it, and its account."""
        self.ceded()
        number = self.sbatch("--gpu-class=batch", "--gpu-weight=150", script=self.load())
        job = self.job(number, processes=1)
        self.assertEqual((job["class"], job["weight"], job["source"], job["uid"]), ("batch", 150, "slurm", 0))
        eventually(lambda: self.job(number)["busy"], "it does not run")
        self.cancel(number)
        sums = eventually(lambda: self.slurm_sums(number), "no account")
        self.assertEqual([s["jobs"] for s in sums], [1])
        self.assertGreater(sums[0]["gpu_s"], 0)

    def test_steps_and_tasks(self):
        """All steps of a job are one job here, which ends with the last of them."""
        self.ceded()
        number = self.sbatch("-n", "3", "--gpu-class=batch", script=(
            f"srun -n 2 --overlap {CEDE} load batch --device soft --memory 100M &\n"
            f"srun -n 1 --overlap {CEDE} load batch --device soft --memory 100M &\nwait\n"))
        job = self.job(number, processes=3)
        self.assertEqual(job["class"], "batch")
        self.assertEqual(len(self.jobs()), 1)
        self.cancel(number)

    def test_refused_at_submission(self):
        for submit in (("srun",), ("sbatch", "--wrap=true"), ("salloc",)):
            self.refused("--gpu-class: 'turbo' is not latency, normal or batch", *submit, "--gpu-class=turbo",
                         *(["true"] if submit[0] != "sbatch" else []))
        self.refused("--gpu-weight=301 is not allowed: at most 300 is", "sbatch", "--gpu-weight=301", "--wrap=true")
        self.refused("--gpu-pool is for batch jobs", "srun", "-Q", "--gpu-class=normal", "--gpu-pool", "true")
        self.assertEqual(self.c.call("squeue", "-h").stdout, "")

    def test_ceiling_of_a_partition(self):
        self.ceded()
        number = self.sbatch("-p", "prod", "--gpu-class=latency", script="sleep 1000")
        self.job(number, **{"class": "latency"})
        self.cancel(number)
        for submit in (("srun", "true"), ("sbatch", "--wrap=true"), ("sbatch", "-p", "prod,debug", "--wrap=true")):
            self.refused("--gpu-class=latency is not allowed in partition debug: at most normal is",
                         submit[0], "--gpu-class=latency", *submit[1:])
        told = "--gpu-weight=201 is not allowed in partition debug: at most 200 is; it is allowed in qos high"
        self.refused("srun: error: cede: " + told, "srun", "-Q", "--gpu-weight=201", "true")
        # What the user's side says about limits, and about the partition, does not count.
        lie = {"SLURM_CONF": self.c.path("lax.conf"), "SLURM_JOB_PARTITION": "prod"}
        self.refused("slurmstepd-n1: error: cede: " + told, "srun", "-Q", "--gpu-weight=201", "touch",
                     self.c.path("ran"), env=lie)
        number = self.sbatch("--gpu-weight=201", script="touch ran", env=lie)
        eventually(lambda: told in self.c.text(f"out-{number}"),
                   lambda: self.c.text(f"out-{number}") + self.c.text("slurmd.log")[-3000:])
        self.assertFalse(os.path.exists(self.c.path("ran")))
        self.assertNotIn("dr", self.c.call("sinfo", "-h", "-o", "%T", "-n", "n1").stdout, "the node is drained")

    def test_without_ceded(self):
        got = self.srun("--gpu-class=batch", "echo", "ran")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "ran\n", ""))
        self.assertIn("runs unscheduled: no daemon is running", self.c.text("slurmd.log"))
        self.ceded()
        got = self.srun(CEDE, "ps", "--json")
        self.assertEqual(json.loads(got.stdout)["jobs"], [], "what asks for nothing is left alone")

    def test_hanging_ceded(self):
        daemon = self.ceded()
        self.addCleanup(daemon.send_signal, signal.SIGCONT)
        daemon.send_signal(signal.SIGSTOP)
        got = self.srun("--gpu-class=batch", "echo", "ran")
        self.assertEqual((got.returncode, got.stdout), (0, "ran\n"))
        self.assertIn("runs unscheduled", got.stderr)

    def test_killed_ceded(self):
        """What runs goes on, and is the same job of the next ceded."""
        daemon = self.ceded()
        number = self.sbatch("--gpu-class=batch", script=self.load())
        before = self.job(number, processes=1)
        daemon.kill()
        daemon.wait()
        self.ceded()
        after = self.job(number, processes=1)
        self.assertEqual((after["number"], after["class"], after["source"]), (before["number"], "batch", "slurm"))
        self.cancel(number)

    def test_suspended(self):
        """What scontrol stops leaves the GPU idle, keeps its memory, and goes on afterwards."""
        self.ceded()
        number = self.sbatch("--gpu-class=batch", script=self.load())
        eventually(lambda: self.job(number, processes=1)["busy"], "it does not run")
        self.assertEqual(self.c.call("scontrol", "suspend", str(number)).returncode, 0)
        eventually(lambda: self.job(number)["busy"] == 0, "it runs on")
        self.assertEqual(self.job(number)["memory_bytes"], 100 << 20)
        self.assertEqual(self.c.call("scontrol", "resume", str(number)).returncode, 0)
        eventually(lambda: self.job(number)["busy"], "it does not run again")
        self.cancel(number)

    def test_array(self):
        """Each task of an array is a Slurm job by itself."""
        self.ceded()
        first = self.sbatch("--array=1-2", "--gpu-class=batch", script="sleep 1000")
        eventually(lambda: len(self.jobs()) == 2, lambda: self.jobs())
        self.assertEqual(self.c.call("scancel", str(first)).returncode, 0)
        eventually(lambda: not self.jobs(), "they stay")

    def test_of_a_user(self):
        """The job is the user's, and a user alone cannot say that something is of a Slurm job."""
        user = "setpriv", "--reuid", str(NOBODY), "--clear-groups"
        if self.c.call(*user, "test", "-x", CEDE).returncode:
            self.skipTest(f"others may not execute {CEDE}")
        self.ceded()
        got = self.c.call(*user, "srun", "-Q", "--gpu-class=batch", "sh", "-c", f"{CEDE} ps --json; id -u")
        self.assertEqual(got.returncode, 0, got.stderr)
        text, uid = re.fullmatch(r"(.*)\n(\d+)\n", got.stdout, re.S).groups()
        jobs = [j for j in json.loads(text)["jobs"] if j["name"].startswith("slurm-")]
        self.assertEqual([(j["uid"], j["class"]) for j in jobs], [(NOBODY, "batch")])
        self.assertEqual(int(uid), NOBODY)

    def test_pool(self):
        self.ceded()
        show = "d=$CUDA_MPS_PIPE_DIRECTORY; echo $d $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; test -e $d/control && ! flock -n $d/../users true"
        inside = os.stat("/proc/self/ns/pid").st_ino  # the first one's is fixed in the kernel
        pool = "cede/pool-all" + ("" if inside == 0xEFFFFFFC else f"-{inside:x}")
        self.addCleanup(eventually, lambda: not os.path.exists(self.c.path(pool + "/mps/control")), "it stays")
        got = self.srun("--gpu-pool", "sh", "-c", show, env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"})
        self.assertEqual((got.returncode, got.stdout), (0, self.c.path(pool + "/mps") + " 30\n"), got.stderr)
        got = self.srun("--gpu-pool", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY", env={"CUDA_MPS_PIPE_DIRECTORY": "/else"})
        self.assertEqual(got.stdout, "/else\n")
        self.assertIn("runs outside of a pool: CUDA_MPS_PIPE_DIRECTORY is set", got.stderr)

    def test_shards(self):
        """Two jobs on one GPU, which Slurm gives no order."""
        self.ceded()
        numbers = [self.sbatch("--gres=shard:2", "--gpu-class=" + kind, script=self.load())
                   for kind in ("normal", "batch")]
        for number, kind in zip(numbers, ("normal", "batch")):
            self.job(number, processes=1, **{"class": kind})
        for number in numbers:
            self.cancel(number)


def main(*more):
    missing = [n for n in ("munged", "slurmctld", "slurmd", "srun", "sbatch", *more)
               if not shutil.which(n, path=os.environ["PATH"] + ":/usr/sbin")]
    if missing:
        skip("not installed: " + " ".join(missing))
    if os.geteuid() != 0:
        skip("slurmd and a SPANK plugin's part on the node run as root, and this is another user")
    unittest.main()


if __name__ == "__main__":
    main()
