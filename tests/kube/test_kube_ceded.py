"""`cede kube-agent` with ceded, the software GPU and control groups made as the kubelet makes them: what programs in pods
become, and when.

usage: test_kube_ceded.py CEDE [TEST...]"""
import json
import unittest

from stand_ins import CEDE, HIGH, LOW, WAIT_S, WithCeded, eventually, group, pod, uid


class Pods(WithCeded):
    def test_pod_becomes_batch(self):
        """A GPU program that runs already in a pod is of the class of its PriorityClass, lowered by the pod's word."""
        p = pod("train", priority="low", notes={"cede.io/weight": "7"})
        self.begin_ceded(LOW)
        program = self.begin_program(group(p))
        self.assertEqual(self.outcome(program)["by"], "nothing")
        self.api.change("ADDED", p)
        self.agent_of_root()
        self.becomes(program, **{"class": "batch", "weight": 7})
        self.api.change("DELETED", p)
        eventually(lambda: self.outcome(program)["by"] == "nothing", "the pod is not withdrawn")
        self.assertTrue(self.is_job(program, **{"class": "batch", "weight": 7}))  # a job keeps what it has

    def test_patterns(self):
        """What pods are called is compared with patterns, and is none."""
        self.begin_ceded(LOW)
        pods = [pod(f"p{i}", namespace=n) for i, n in enumerate(("*", "pro?", "prod\n", "prod\0", "[p]rod", "prod"))]
        programs = [self.begin_program(group(p)) for p in pods]
        for p in pods:
            self.api.change("ADDED", p)
        self.agent_of_root()
        self.becomes(programs[-1], **{"class": "batch"})
        self.assertEqual([x.pid for x in programs if self.job(x)], [programs[-1].pid])

    def test_pods_in_figures(self):
        """Namespace, pod and container of a job are shown wherever its name is, whoever made it a job; also when they
        come later than the job."""
        ids = "ab" * 32, "cd" * 32, "ef" * 32
        p = pod("train-0", containers=zip(("main", "side", "late"), ids))
        self.begin_ceded("[daemon]\nothers = normal\n")
        programs = [self.begin_program(f"{group(p)}/{i}") for i in ids[:2]] + [self.begin_program("/elsewhere")]
        for x in programs:
            self.becomes(x, **{"class": "normal"})
        self.assertFalse({"namespace", "pod", "container"} & set(self.job(programs[0])))
        trace = self.begin("trace", "-o", self.path("trace"))
        self.api.change("ADDED", p)
        self.agent_of_root()
        names = [{"namespace": "prod", "pod": "train-0", "container": c} for c in ("main", "side", "late")]
        for x, want in zip(programs[:2], names):
            self.becomes(x, **want)
        self.assertNotIn("pod", self.job(programs[2]))
        late = self.begin_program(f"{group(p)}/{ids[2]}")  # the report is there first
        self.becomes(late, **names[2])
        top = {j["pid"]: j for j in json.loads(self.cede("top", "--json").stdout)["jobs"]}
        self.assertEqual({k: top[programs[1].pid][k] for k in names[1]}, names[1])
        self.assertEqual(top[programs[1].pid]["where"], "train-0/side")
        self.assertIn(',namespace="prod",pod="train-0",container="side"', self.cede("metrics").stdout)
        with open(self.path("trace"), "rb") as f:
            eventually(lambda: b"train-0" in f.read(), "the trace does not name the pod")
        trace.terminate()
        number = self.job(late)["number"]
        late.terminate()
        def rows():
            got = self.cede("acct", "--json").stdout
            return [r for r in json.loads(got)["jobs"] if r["number"] == number] if got else []
        if "built without SQLite" not in self.cede("acct").stderr:
            row = eventually(rows, "no accounting")[0]
            self.assertEqual([row[k] for k in ("namespace", "pod_name", "container_name")], ["prod", "train-0", "late"])
        self.api.change("DELETED", p)  # a job keeps what it has
        eventually(lambda: self.outcome(programs[0])["by"] == "others", "the pod is not withdrawn")
        self.assertTrue(self.is_job(programs[0], **names[0]))

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
        self.agent_of_root()
        self.becomes(rule, source="rule", **{"class": "batch", "weight": 7})
        self.becomes(others, source="rule", **{"class": "batch", "weight": 7})
        self.becomes(environment, source="rule", **{"class": "latency"})
        self.assertEqual([self.job(x)["number"] for x in (rule, others, environment)], numbers)
        self.assertTrue(self.is_job(elsewhere, **{"class": "normal"}))
        self.assertIn("by what an agent reported", self.words())
        # A pod whose annotation changes.
        self.watches()
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
        self.agent_of_root()

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
        self.agent_of_root()
        self.becomes(program, **{"class": "batch", "weight": 50})


if __name__ == "__main__":
    unittest.main(verbosity=2)
