"""`cede kube-agent` with stand-ins for the API server, the kubelet and ceded: 200 pods that come and go, an API
and a ceded that go away, an agent that is killed, hostile pods. And with a real ceded and the manifests.

usage: test_kube_agent.py CEDE INTEGRATION_DIR [TEST...]"""
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from stand_ins import CEDE, WAIT_S, Asked, WithStandIn, eventually, group, pod, uid

try:
    import yaml
except ImportError:
    yaml = None

INTEGRATION = sys.argv.pop(1)


class Agent(WithStandIn):
    # -- what is reported ----------------------------------------------------------------------

    def test_facts(self):
        p = pod("web", priority="high", notes={"cede.io/class": "batch", "other.io/x": "y"},
                labels={"cede.io/team": "a", "cede.io/class": "latency", "app": "web"},
                containers=(("main", "ab" * 32), ("side", "cd" * 32), ("odd", "../x")))
        p["status"]["containerStatuses"].append({"name": "ended", "containerID": "cri-o://" + "ef" * 32,
                                                 "state": {"terminated": {"exitCode": 0}}})
        p["status"]["initContainerStatuses"] = [{"name": "sidecar", "containerID": "cri-o://" + "01" * 32,
                                                 "state": {"running": {}}}]
        self.api.change("ADDED", p)
        self.api.change("ADDED", pod("done", phase="Succeeded"))
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(self.fake.known, {group(p): {
            "pod": "web", "namespace": "prod", "priority_class": "high", "label:cede.io/class": "batch",
            "label:cede.io/team": "a", "container:" + "ab" * 8: "main", "container:" + "cd" * 8: "side",
            "container:" + "01" * 8: "sidecar"}})
        self.assertEqual(self.api.asked[0][1]["fieldSelector"], "spec.nodeName=n1")

    def test_groups(self):
        u = "11111111-2222-3333-4444-555555555555"
        v = u.replace("-", "_")
        for qos, root, driver, want in (
                ("Guaranteed", "", "systemd", f"/kubepods.slice/kubepods-pod{v}.slice"),
                ("BestEffort", "", "systemd",
                 f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{v}.slice"),
                ("Burstable", "/kubelet.slice", "systemd",
                 "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
                 f"kubelet-kubepods-burstable-pod{v}.slice"),
                ("Guaranteed", "", "cgroupfs", f"/kubepods/pod{u}"),
                ("BestEffort", "/kubelet", "cgroupfs", f"/kubelet/kubepods/besteffort/pod{u}")):
            self.stand_in()
            self.api.pods = {u: pod("p", qos=qos, uid=u)}
            self.assertEqual(self.once("--cgroup-driver", driver, "--cgroup-root", root).returncode, 0)
            self.assertEqual(list(self.fake.known), [want])
            self.assertEqual(self.once("--cgroup-driver", "either").returncode, 0)
            self.assertGreaterEqual(len(self.fake.known), 2)
            self.fake.stop()

    # -- pods that come and go -----------------------------------------------------------------

    def test_two_hundred(self):
        pods = self.begun()[0]
        self.assertEqual(self.fake.messages, 200)
        for p in pods[:100]:
            self.api.change("DELETED", p)
        new = [pod(f"q{i}") for i in range(100)]
        for p in new:
            self.api.change("ADDED", p)
        ended = json.loads(json.dumps(pods[100]))
        ended["status"]["phase"] = "Failed"
        self.api.change("MODIFIED", ended)
        now = pods[101:] + new
        self.knows(now)
        self.assertEqual(self.fake.messages, 401)
        # What happened while nobody watched, and an event that says that it was too long ago.
        self.api.pods.pop(uid(new[0]))
        self.api.end_watches({"type": "ERROR", "object": {"code": 410}})
        self.knows([p for p in now if p is not new[0]])

    def test_too_many(self):
        pods = self.fill(520)
        r = self.once()
        self.assertEqual((r.returncode, len(self.fake.known)), (0, 500))
        self.assertEqual(r.stderr, "cede: more than 500 pods: some are not reported\n")
        self.assertEqual(len(pods), 520)

    def test_api_away(self):
        """Pods keep what they had, also if half a list comes."""
        pods = self.begun(60)[0]
        for field in "away", "cut":
            self.api.pods.pop(uid(pods.pop()))
            setattr(self.api, field, True)
            asked = len(self.api.asked)
            self.api.end_watches()
            eventually(lambda n=asked: len(self.api.asked) > n + 1, "it does not ask again")
            self.assertEqual(len(self.fake.known), len(pods) + 1)
            setattr(self.api, field, False)
            self.knows(pods)
            self.watches()
        self.assertIn("answers 503; trying again", self.words())

    def test_ceded_is_full(self):
        self.fake.room = 10
        pods = self.fill(30)
        self.start_agent()
        eventually(lambda: "no room; trying again" in self.words(), "it does not say so")
        self.assertEqual(len(self.fake.known), 10)
        self.watches()
        for p in pods[:5] + pods[20:]:
            self.api.change("DELETED", p)
        eventually(lambda: set(self.fake.known) == set(map(group, pods[5:15])), "what is gone makes no room")
        self.fake.room = 30
        self.knows(pods[5:20])

    def test_ceded_away(self):
        pods = self.begun(30)[0]
        self.fake.stop()
        eventually(lambda: "no daemon is running; trying again" in self.words(), "it does not say so")
        self.stand_in()
        self.knows(pods)  # all anew: that one knew nothing

    def test_killed(self):
        pods = self.fill(30)
        for _ in range(3):
            agent = self.start_agent()
            eventually(lambda: self.fake.known, "nothing is reported")
            agent.kill()
            agent.wait(WAIT_S)
        self.start_agent()
        self.knows(pods)

    def test_kubelet(self):
        pods = self.fill(40)
        self.start_agent("--url", self.url() + "/pods", "--interval", "1")
        self.knows(pods)
        self.api.pods.clear()
        self.knows([])
        self.assertEqual({path for path, _ in self.api.asked}, {"/pods"})

    # -- what is wrong -------------------------------------------------------------------------

    def test_refused(self):
        self.write("token", "another\r\nX-Header: 1")
        self.assertIn("the service account may not list pods", self.once().stderr)
        r = self.once("--ca", "/etc/hostname")
        self.assertEqual(r.returncode, 1)
        self.assertFalse(self.fake.known)

    def test_no_token_without_tls(self):
        seen = []

        class Plain(Asked):
            def do_GET(self):
                seen.append(self.headers["Authorization"])
                self.answer({"items": []})
        with http.server.HTTPServer(("127.0.0.1", 0), Plain) as server:
            server.cut = False
            threading.Thread(target=server.handle_request, daemon=True).start()
            r = self.once("--url", f"http://127.0.0.1:{server.server_port}/pods")
        self.assertEqual((r.returncode, seen), (0, [None]), r.stderr)

    def test_usage(self):
        for args, said in ((("--cgroup-driver", "x"), "is not systemd"), (("--interval", "0"), "is not a number"),
                           (("--url", "ftp://x"), "https://HOST:PORT"),
                           (("--url", "https://x/" + "p" * 512 + "/pods"), "longer than 511"),
                           (("--cgroup-root", "x"), "a path from /"),
                           (("x",), "unexpected argument"), (("--node", ""), "NODE_NAME")):
            r = self.once(*args)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(said, r.stderr)

    def test_no_library(self):
        for name in "libcurl.so.4", "libcurl-gnutls.so.4":
            self.write(name, "")
        r = self.once(LD_LIBRARY_PATH=self.dir)
        self.assertEqual((r.returncode, r.stderr), (1, "cede: libcurl.so.4 cannot be opened: install libcurl4\n"))


def documents(text):
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text) if o}


def render(template, values, release):
    """As much of Helm's language as the chart uses."""
    def value(m):
        words = m[1].split()
        if words[0] == "sha256sum":
            return json.dumps(hashlib.sha256(values[words[1].split(".")[2]].encode()).hexdigest())
        got = {"Release": {"Namespace": release}, "Values": values}
        for part in words[-1].strip(".").split("."):
            got = got[part]
        return json.dumps(got) if words[0] == "toJson" else str(got)
    part = re.fullmatch(r"\{\{- if \.Values\.(\w+) \}\}\n(.*)\{\{- end \}\}\n", template, re.S)
    if part:
        template = part[2] if values[part[1]] else ""
    return re.sub(r"\{\{ (.*?) \}\}", value, template)


@unittest.skipUnless(yaml, "python3-yaml is not installed")
class Manifests(unittest.TestCase):
    @staticmethod
    def read(*path):
        with open(os.path.join(INTEGRATION, *path), encoding="utf8") as f:
            return f.read()

    def plain(self):
        return documents("\n---\n".join(self.read(*p) for p in (("agent", "rbac.yaml"), ("agent", "agent.yaml"),
                                                                ("ceded", "ceded.yaml"))))

    def chart(self, **other):
        values = dict(yaml.safe_load(self.read("chart", "values.yaml")), **other)
        return documents("\n---\n".join(render(self.read("chart", "templates", n), values, "cede")
                                        for n in sorted(os.listdir(os.path.join(INTEGRATION, "chart", "templates")))))

    def test_chart_is_the_manifests(self):
        chart, plain = self.chart(), self.plain()
        config = chart.pop(("ConfigMap", "cede-config"))["data"]["cede.conf"]
        note = chart["DaemonSet", "ceded"]["spec"]["template"]["metadata"].pop("annotations")
        self.assertEqual(note["checksum/config"], hashlib.sha256(config.encode()).hexdigest())
        self.assertEqual(config.strip(), re.sub(r"^#.*\n", "", self.read("ceded", "cede.conf"), flags=re.M).strip())
        self.assertEqual(chart, plain)
        self.assertNotIn(("DaemonSet", "ceded"), self.chart(ceded=False))
        self.assertIn("/kubelet.slice", str(self.chart(cgroupRoot="/kubelet.slice")["DaemonSet", "cede-agent"]))
        if shutil.which("helm"):
            out = subprocess.run(["helm", "template", "-n", "cede", "cede", os.path.join(INTEGRATION, "chart")],
                                 text=True, check=True, stdout=subprocess.PIPE, timeout=WAIT_S).stdout
            self.assertEqual(documents(out), self.chart())

    def test_kustomize(self):
        """All that kustomization.yaml names is there, and what kubectl makes of it is the plain files."""
        for folder in ".", "agent", "ceded":
            for name in yaml.safe_load(self.read(folder, "kustomization.yaml"))["resources"]:
                self.assertTrue(os.path.exists(os.path.join(INTEGRATION, folder, name)), name)
        if shutil.which("kubectl"):
            out = subprocess.run(["kubectl", "kustomize", INTEGRATION], text=True, check=True, timeout=WAIT_S,
                                 stdout=subprocess.PIPE).stdout
            made, plain = documents(re.sub(r"cede-config-\w+", "cede-config", out)), self.plain()
            self.assertEqual({k: made[k] for k in plain}, plain)
            self.assertEqual(set(made) - set(plain), {("Namespace", "cede"), ("ConfigMap", "cede-config")})

    def test_rights(self):
        all_of = self.plain()
        self.assertEqual(all_of["ClusterRole", "cede-agent"]["rules"],
                         [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
                          {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}])
        agent = all_of["DaemonSet", "cede-agent"]["spec"]["template"]["spec"]
        self.assertFalse({"hostPID", "hostNetwork", "hostIPC"} & set(agent))
        self.assertEqual(agent["containers"][0]["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertIs(all_of["DaemonSet", "ceded"]["spec"]["template"]["spec"]["automountServiceAccountToken"], False)

    def test_what_outlasts_the_pod(self):
        """The journal, and accounting records and findings, are the node's."""
        pod = self.plain()["DaemonSet", "ceded"]["spec"]["template"]["spec"]
        mounts = {m["name"]: m for m in pod["containers"][0]["volumeMounts"]}
        self.assertEqual({v["name"]: v["hostPath"] for v in pod["volumes"] if "hostPath" in v},
                         {name: {"path": path, "type": "DirectoryOrCreate"}
                          for name, path in (("run", "/run/cede"), ("state", "/var/lib/cede"))})
        self.assertEqual([mounts["run"], mounts["state"]], [{"name": "run", "mountPath": "/run/cede"},
                                                            {"name": "state", "mountPath": "/var/lib/cede"}])

    def test_arguments(self):
        """What the manifests call exists, and the configuration is one."""
        for name in "cede-agent", "ceded":
            args = self.plain()["DaemonSet", name]["spec"]["template"]["spec"]["containers"][0]["args"]
            known = subprocess.run([CEDE, "help", args[0]], text=True, stdout=subprocess.PIPE, check=True,
                                   timeout=WAIT_S).stdout
            for option in (a for a in args if a.startswith("--")):
                self.assertIn(option, known)
        with tempfile.TemporaryDirectory() as d:
            p = subprocess.run([CEDE, "daemon", "--config", os.path.join(INTEGRATION, "ceded", "cede.conf"), "--device",
                                "soft"], env=dict(os.environ, CEDE_DIR=d, CEDE_SOFT_SOCKET=d + "/none"), text=True,
                               stderr=subprocess.PIPE, timeout=WAIT_S, check=False)
        self.assertEqual(p.returncode, 1, p.stderr)  # no GPU; 2 would be the configuration


if __name__ == "__main__":
    unittest.main(verbosity=2)
