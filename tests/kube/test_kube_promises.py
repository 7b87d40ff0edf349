"""What cluster schedulers promise: objects with the fields that these projects write, what `cede kube-agent` reports of
them, and what ceded makes of that on the software GPU, with and without a rule that allows it.

KAI-Scheduler: annotations of its GPU sharing (non-enforced, and per container), 2026-09. HAMi: the resources of its
chart, 2026-08. NVIDIA's device plugin: replicas of time-slicing. NVIDIA's DRA driver: resource.k8s.io/v1 with
consumable shares, 2026-08.

usage: test_kube_promises.py CEDE [TEST...]"""
import copy
import json
import os
import re
import unittest

from stand_ins import WithCeded, WithStandIn, eventually, group, pod

GIB = 1 << 30
KAI = "nvidia.com/container.trainer."


def kai(notes):
    p = pod("kai", notes={"pod-group-name": "pg-kai", **notes}, labels={"kai.scheduler/queue": "research"})
    p["spec"].update(schedulerName="kai-scheduler", containers=[{"name": "trainer", "image": "train:1"}])
    return p


def limits(*containers, env=()):
    """As the API server writes quantities: texts, 3000 as "3k"."""
    p = pod("limits")
    p["spec"]["containers"] = [
        {"name": f"c{i}", "image": "train:1", "env": list(env), "resources": {"limits": {
            "cpu": "2", "memory": "4Gi", **{"nvidia.com/" + k: v for k, v in c.items()}}}}
        for i, c in enumerate(containers)]
    return p


DISABLED = [{"name": "A", "value": "1"}, {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"}]
# What the pod says, and the promises in the report, without "promise:".
PODS = (
    (kai({"gpu-fraction": "0.5"}), {"gpu-min": "50", "memory": "50%", "memory-max": "50%"}),
    (kai({"gpu-fraction": "0.333", "gpu-fraction-num-devices": "2", "gpu-fraction-container-name": "trainer"}),
     {"gpu-min": "33", "memory": "33.3%", "memory-max": "33.3%"}),
    (kai({"gpu-fraction": "1.5"}), {}),
    (kai({"gpu-fraction": "nan"}), {}),
    (kai({"gpu-memory": "2000"}), {"memory": "2097152000", "memory-max": "2097152000"}),
    (kai({KAI + "gpu-memory.request": "8Gi", KAI + "gpu-memory.limit": "16Gi", KAI + "gpus.devices": "GPU-1"}),
     {"memory": str(8 * GIB), "memory-max": str(16 * GIB)}),
    (kai({KAI + "gpu-memory.request": "8Gi"}), {"memory": str(8 * GIB), "memory-max": str(8 * GIB)}),
    (kai({KAI + "gpu-memory.limit": "512M"}), {"memory": "512000000", "memory-max": "512000000"}),
    (kai({"gpu-fraction": "0.5", "kai.scheduler/container.trainer.gpu-memory.portion.limit": "0.8"}),
     {"gpu-min": "50", "memory": "50%", "memory-max": "80%"}),
    (kai({KAI + "gpu-memory.request": "8Gi", KAI + "gpu-compute.portion": "0.25",
          KAI + "gpu-compute.mode": "time-slicing"}),
     {"gpu-min": "25", "gpu-max": "25", "memory": str(8 * GIB), "memory-max": str(8 * GIB)}),
    (kai({KAI + "gpu-compute.portion": "-1", KAI + "gpu-memory.limit": "1Zi"}), {}),
    (limits({"gpu": "1", "gpumem": "3k", "gpucores": "30"}),
     {"gpu-min": "30", "gpu-max": "30", "memory": "3145728000", "memory-max": "3145728000"}),
    (limits({"gpu": "2", "gpumem-percentage": "50", "gpucores": "30", "priority": "1"}),
     {"class": "batch", "gpu-min": "30", "gpu-max": "30", "memory": "50%", "memory-max": "50%"}),
    (limits({"gpu": "1", "gpucores": "30", "priority": "0"}, env=DISABLED), {"class": "latency", "gpu-min": "30"}),
    (limits({"gpu": "1", "gpucores": "0"}), {}),
    (limits({"gpucores": "30"}), {}),
    (limits({"gpu": "1", "gpucores": "30"}, {"gpu": "1", "gpucores": "20"}), {"gpu-min": "20", "gpu-max": "30"}),
    (limits({"gpu": "1", "gpucores": "30", "gpumem": "1000"}, {"gpu": "1"}, {}), {"memory": "1048576000"}),
    (limits({"gpu": "1"}), {}),           # of the device plugin: a replica of time-slicing
    (limits({"gpu.shared": "1"}), {}),
)


def device(**consumed):
    return {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0",
            "shareID": "a671734a-e8e5-11e4-8fde-42010af09327", "consumedCapacity": consumed}


def claim(*devices):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "shared", "namespace": "prod"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}}]}},
            "status": {"allocation": {"devices": {"results": list(devices)}}, "reservedFor": [
                {"resource": "pods", "name": "claimant", "uid": "1"}]}}


def claimant(template=True, name="shared"):
    p = pod("claimant")
    p["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-share"} if template else
                                   {"name": "gpu", "resourceClaimName": name}]
    if template:
        p["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
    return p


CLAIMS = (
    ((device(memory="0", shares="1"),), {"weight": "100"}),
    ((device(memory="0", shares="2"),), {"weight": "200"}),
    ((device(memory="4Gi"),), {"memory": str(4 * GIB), "memory-max": str(4 * GIB)}),
    ((device(memory="4Gi", shares="3"), device(memory="8Gi", shares="2")),
     {"weight": "200", "memory": str(8 * GIB), "memory-max": str(8 * GIB)}),
    (({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"},), {}),
    ((dict(device(memory="4Gi", shares="2"), driver="gpu.example.com"),), {}),
)


def promised(facts):
    return {k.removeprefix("promise:"): v for k, v in facts.items() if k.startswith("promise:")}


class Reports(WithStandIn):
    def reported(self, p):
        self.api.pods = {"one": p}
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        return promised(self.fake.known[group(p)])

    def test_pods(self):
        for p, want in PODS:
            self.assertEqual(self.reported(p), want, json.dumps(p))

    def test_claims(self):
        for devices, want in CLAIMS:
            for template in False, True:
                self.api.claims = {"shared": claim(*devices)}
                self.assertEqual(self.reported(claimant(template)), want, devices)
        self.assertIn("/apis/resource.k8s.io/v1/namespaces/prod/resourceclaims/shared",
                      [path for path, _ in self.api.asked])

    def test_no_such_claim(self):
        """A claim that is not there holds up neither its pod's other facts nor other pods, and is asked for seldom."""
        self.api.claims = {"shared": claim(device(shares="2"))}
        bad = [claimant(False, name) for name in ("none", "../../../api/v1/secrets/x", "a/b", "UPPER")]
        good = claimant()
        for p in [*bad, good]:
            self.api.change("ADDED", p)
        self.start_agent()
        self.knows([*bad, good])
        self.assertEqual(promised(self.fake.known[group(good)]), {"weight": "200"})
        self.watches()
        for i in range(20):
            bad[0]["metadata"]["labels"] = {"cede.io/n": str(i)}
            self.api.change("MODIFIED", copy.deepcopy(bad[0]))
        eventually(lambda: self.fake.known[group(bad[0])].get("label:cede.io/n") == "19", "the last one is not known")
        asked = [path for path, _ in self.api.asked if "/resourceclaims/" in path]
        self.assertEqual(sorted(x.rsplit("/", 1)[1] for x in asked), ["none", "shared"])
        self.assertIn("answers 404; trying again", self.words())

    def test_room_for_promises(self):
        """Labels, of which a pod may have many, take no room from a promise."""
        p = kai({"gpu-fraction": "0.5", **{f"cede.io/k{i:02}": "v" * 250 for i in range(16)}})
        self.assertEqual(self.reported(p)["gpu-min"], "50")


RULES = ("[rule research]\nnamespace = prod\npriority_class = research\nclass = normal\nweight = promised\n"
         "gpu_min = promised\nmemory_max = promised, pause\n"
         "[rule hami]\nnamespace = prod\npriority_class = hami\nclass = promised\n"
         "[rule high]\nnamespace = prod\npriority_class = high\nclass = latency\n"
         "[rule low]\nnamespace = prod\npriority_class = low\nclass = batch\n")


class Terms(WithCeded):
    def test_terms(self):
        self.soft_gpu("--memory", "16G")
        self.begin_ceded(RULES)
        self.api.claims = {"shared": claim(device(memory="4Gi", shares="2"))}
        rows = (
            # Floors and shares where the rule says so, ceilings and limits anyway.
            (kai({"gpu-fraction": "0.5"}), "research", {"class": "normal", "gpu_min": 50, "memory_max_mib": 8192,
                                                        "memory_over": "pause"}),
            (kai({"gpu-fraction": "0.5"}), "low", {"class": "batch", "gpu_min": None, "memory_max_mib": 8192}),
            (kai({KAI + "gpu-compute.portion": "0.25"}), "other", {"class": "normal", "gpu_min": None, "gpu_max": 25}),
            (claimant(), "research", {"class": "normal", "weight": 200, "memory_max_mib": 4096}),
            (claimant(), "high", {"class": "latency", "weight": 100}),
            (limits({"gpu": "1", "gpucores": "30", "priority": "0"}), "hami", {"class": "latency", "gpu_max": 30}),
            (limits({"gpu": "1", "gpucores": "30", "priority": "0"}), "other", {"class": "normal", "gpu_max": 30}),
            (limits({"gpu": "1", "gpucores": "30", "priority": "1"}), "high", {"class": "batch", "gpu_max": 30}),
            # Two replicas of the device plugin's time-slicing: equal parts, unless their PriorityClasses differ.
            (limits({"gpu": "1"}), "low", {"class": "batch", "weight": 100, "gpu_max": None}),
            (limits({"gpu": "1"}), "high", {"class": "latency", "weight": 100}),
        )
        begun = []
        for p, priority, want in rows:
            p = copy.deepcopy(p)
            p["metadata"]["uid"] = f"11111111-2222-3333-4444-{len(begun):012}"
            p["spec"]["priorityClassName"] = priority
            begun.append((self.begin_program(group(p)), want))
            self.api.change("ADDED", p)
        self.agent_of_root()
        for program, want in begun:
            none = {k: 0 for k, v in want.items() if v is None}
            self.becomes(program, **{k: v for k, v in want.items() if v is not None})
            self.assertEqual({k: self.job(program).get(k, 0) for k in none}, none)

    def test_page(self):
        """The rules of docs/kubernetes.md are rules."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/kubernetes.md"),
                  encoding="utf8") as f:
            block = re.search(r"^    \[account pods\]\n(?:(?:    .*)?\n)+", f.read(), re.M)[0]
        self.begin_ceded(re.sub("^    ", "", block, flags=re.M))
        rules = json.loads(self.cede("rules", "--json").stdout)["rules"]
        self.assertEqual([(r["name"], r.get("class"), r.get("promised")) for r in rules],
                         [("pods", None, None), ("research", "normal", "weight, gpu_min, memory_max"),
                          ("chat", "promised", "memory")])
        self.assertFalse([r for r in rules if "warning" in r])

    def test_shown(self):
        """Rules show what they give as promised, and of a program what its pod was promised, also in vain."""
        self.begin_ceded(RULES)
        p = kai({"gpu-fraction": "0.5"})
        self.api.change("ADDED", p)
        program = self.begin_program(group(p))
        self.agent_of_root()
        self.becomes(program, **{"class": "batch"})
        said = "Its pod was promised: gpu-min 50, memory 50%, memory-max 50%.\n"
        self.assertIn(said, self.cede("rules", "test", str(program.pid)).stdout)
        out = self.cede("rules").stdout
        self.assertIn("rule research: class normal, as promised: weight, gpu_min, memory_max\n", out)
        self.assertIn("rule hami: class promised\n", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
