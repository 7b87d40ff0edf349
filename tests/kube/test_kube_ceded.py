"""`cede kube-agent` with ceded, the software GPU and control groups made as the kubelet makes them: what programs in pods
become, and when.

usage: test_kube_ceded.py CEDE [TEST...]"""
import contextlib
import json
import os
import subprocess
import unittest

from stand_ins import CEDE, WAIT_S, Base, eventually, group, pod, uid

HIERARCHIES = "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"
HIGH = "[rule high]\nnamespace = prod\npriority_class = high\nclass = latency\n"
LOW = "[rule low]\nnamespace = prod\npriority_class = low\nclass = batch\nweight = 50\n"


class Pods(Base):
    def setUp(self):
        super().setUp()
        self.root = f"/cede-test-{os.getpid()}"
        self.ceded_processes = []
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
        self.ceded_processes.append(self.begin("daemon", "--config", self.path("conf"), "--device", "soft"))
        eventually(lambda: "no daemon" not in self.cede("policy"), "no ceded")

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

    # -- facts that come later than the job ----------------------------------------------------

    def test_facts_come_later(self):
        """A job of a rule, of `others` or of CEDE_CLASS becomes what the pod's facts say; it stays the same job."""
        self.begin_ceded(HIGH + LOW + "[rule first]\narguments = *100M*\nenvironment = CASE=rule\nclass = normal\n"
                         "[daemon]\nothers = normal\n")
        low, high = pod("low", notes={"cede.io/weight": "7"}), pod("high", priority="high")
        rule = self.begin_program(group(low), CASE="rule")
        others = self.begin_program(group(low))
        environment = self.begin_program(group(high), CEDE_CLASS="batch")
        elsewhere = self.begin_program(group(pod("elsewhere")))
        self.becomes(rule, source="rule", **{"class": "normal"})
        self.becomes(others, source="rule", **{"class": "normal"})
        self.becomes(environment, source="environment", **{"class": "batch"})
        numbers = [self.job(x)["number"] for x in (rule, others, environment)]
        self.api.change("ADDED", low)
        self.api.change("ADDED", high)
        self.start_agent()
        self.becomes(rule, source="rule", **{"class": "batch", "weight": 7})
        self.becomes(others, source="rule", **{"class": "batch", "weight": 7})
        self.becomes(environment, source="rule", **{"class": "latency"})
        self.assertEqual([self.job(x)["number"] for x in (rule, others, environment)], numbers)
        self.assertTrue(self.is_job(elsewhere, **{"class": "normal"}))
        self.assertIn("by what an agent reported", self.words())
        # A pod whose annotation changes.
        eventually(lambda: self.api.watches, "it does not watch")
        self.api.change("MODIFIED", pod("low", uid=uid(low), notes={"cede.io/weight": "9"}))
        self.becomes(rule, **{"class": "batch", "weight": 9})

    def test_typed(self):
        """What somebody typed stays, also in the next ceded."""
        self.begin_ceded(config := LOW + "[daemon]\nothers = normal\n")
        p = pod("p")
        programs = [self.begin_program(group(p)) for _ in range(3)]
        for x in programs:
            self.becomes(x, source="rule")
        run = self.begin("run", "-c", "normal", "--", CEDE, "load", "batch", "--device", "soft", "--memory", "100M")
        with open(self.make_group(group(p)) + "/cgroup.procs", "w", encoding="utf8") as f:
            f.write(str(run.pid))
        self.becomes(run, source="run")
        number = self.job(programs[0])["number"]
        self.cede("set", "-c", "normal", "-w", "33", f"#{number}")
        self.cede("set", "-c", "none", str(programs[1].pid))
        self.assertTrue(self.is_job(programs[0], source="pid", weight=33))
        self.api.change("ADDED", p)
        self.start_agent()

        def stays():
            self.becomes(programs[2], source="rule", **{"class": "batch", "weight": 50})
            self.assertTrue(self.is_job(programs[0], source="pid", number=number, weight=33, **{"class": "normal"}))
            self.assertEqual(self.job(programs[1]), {})
            self.assertTrue(self.is_job(run, source="run", **{"class": "normal"}))
        stays()
        for x in self.ceded_processes:
            x.kill()
            x.wait(WAIT_S)
        programs += [self.begin_program(group(p))]
        self.begin_ceded(config.replace("= 50", "= 60"))
        self.becomes(programs[3], **{"class": "batch", "weight": 60})  # the agent reported all pods again
        self.becomes(programs[2], **{"class": "batch", "weight": 60})
        self.assertTrue(self.is_job(programs[0], source="pid", weight=33, **{"class": "normal"}))
        self.assertTrue(self.is_job(run, source="run", **{"class": "normal"}))

    def test_static_pod(self):
        """Its control group is named by the hash of its manifest, which its mirror tells."""
        h = "0123456789abcdef0123456789abcdef"
        p = pod("static", notes={"kubernetes.io/config.mirror": h, "kubernetes.io/config.hash": h})
        self.begin_ceded(LOW)
        program = self.begin_program(f"/kubepods/burstable/pod{h}")
        self.api.change("ADDED", p)
        self.start_agent()
        self.becomes(program, **{"class": "batch", "weight": 50})


if __name__ == "__main__":
    unittest.main(verbosity=2)
