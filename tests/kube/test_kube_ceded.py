"""`cede kube-agent` with ceded, the software GPU and control groups made as the kubelet makes them: what programs in pods
become, and when.

usage: test_kube_ceded.py CEDE [TEST...]"""
import contextlib
import json
import os
import subprocess
import unittest

from stand_ins import CEDE, WAIT_S, Base, eventually, group, pod

HIERARCHIES = "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"
LOW = "[rule low]\nnamespace = prod\npriority_class = low\nclass = batch\nweight = 50\n"


class Pods(Base):
    def setUp(self):
        super().setUp()
        self.root = f"/cede-test-{os.getpid()}"
        self.addCleanup(self.remove_groups)

    def remove_groups(self):
        for at in HIERARCHIES:
            for folder, _, _ in os.walk(at + self.root, topdown=False):
                os.rmdir(folder)

    def make_group(self, path):
        """A control group of version 1 or 2 below the test's own."""
        for at in HIERARCHIES:
            with contextlib.suppress(OSError):
                os.makedirs(at + self.root + path, exist_ok=True)
                if os.path.exists(at + self.root + path + "/cgroup.procs"):
                    return at + self.root + path
        return self.skipTest("no control group can be made here")

    def cede(self, *args):
        return subprocess.run([CEDE, *args], env=self.env, text=True, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, timeout=WAIT_S).stdout

    def begin(self, *args, **env):
        c = subprocess.Popen([CEDE, *args], env=dict(self.env, **env), stdout=subprocess.DEVNULL, stderr=self.said)
        self.addCleanup(c.wait, WAIT_S)
        self.addCleanup(c.terminate)
        return c

    def begin_ceded(self, config):
        with open(self.path("conf"), "w", encoding="utf8") as f:
            f.write(config)
        if not os.path.exists(self.path("gpu")):
            self.begin("softgpu")
            eventually(lambda: os.path.exists(self.path("gpu")), "no software GPU")
        ceded = self.begin("daemon", "--config", self.path("conf"), "--device", "soft")
        eventually(lambda: "no daemon" not in self.cede("policy"), "no ceded")
        return ceded

    def begin_program(self, path, **env):
        """A GPU program in that control group."""
        program = self.begin("load", "batch", "--device", "soft", "--memory", "100M", **env)
        with open(self.make_group(path) + "/cgroup.procs", "w", encoding="utf8") as f:
            f.write(str(program.pid))
        return program

    def start_agent(self):
        return self.start("--cgroup-root", self.root)

    def job(self, program):
        jobs = json.loads(self.cede("ps", "--json"))["jobs"]
        return next((j for j in jobs if j["pid"] == program.pid), {})

    def is_job(self, program, **want):
        return all(self.job(program).get(k) == v for k, v in want.items())

    def becomes(self, program, **want):
        eventually(lambda: self.is_job(program, **want), f"it does not become {want}")

    def outcome(self, program):
        return json.loads(self.cede("rules", "test", "--json", str(program.pid)))["outcome"]

    def test_pod_becomes_batch(self):
        """A GPU program that runs already in a pod is of the class of its PriorityClass, lowered by the pod's word."""
        p = pod("train", priority="low", notes={"cede.io/weight": "7"})
        self.begin_ceded(LOW)
        program = self.begin_program(group(p))
        self.assertEqual(self.outcome(program)["by"], "nothing")
        self.api.change("ADDED", p)
        self.start_agent()
        self.becomes(program, **{"class": "batch", "weight": 7})
        self.api.change("DELETED", p)
        eventually(lambda: self.outcome(program)["by"] == "nothing", "the pod is not withdrawn")
        self.assertTrue(self.is_job(program, **{"class": "batch", "weight": 7}))  # a job keeps what it has


if __name__ == "__main__":
    unittest.main(verbosity=2)
