"""`cede kube-agent` with stand-ins for the API server, the kubelet and ceded: 200 pods that come and go, an API
and a ceded that go away, an agent that is killed, hostile pods. And with a real ceded and the manifests.

usage: test_kube_agent.py CEDE INTEGRATION_DIR [TEST...]"""
import contextlib
import hashlib
import http.server
import json
import os
import queue
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import uuid

try:
    import yaml
except ImportError:
    yaml = None

CEDE, INTEGRATION = sys.argv.pop(1), sys.argv.pop(1)
WAIT_S = 60  # only a test that fails takes so long
TOKEN = "a-token"


def eventually(what, message):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError(message)


def pod(name, qos="Burstable", phase="Running", priority="low", notes=None, labels=None, uid=None, namespace="prod"):
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid or str(uuid.uuid4()),
                         "annotations": notes or {}, "labels": labels or {}},
            "spec": {"nodeName": "n1", "priorityClassName": priority}, "status": {"phase": phase, "qosClass": qos}}


def uid(p):
    return p["metadata"]["uid"]


def group(p):
    return f"/kubepods/burstable/pod{uid(p)}"


class Api(http.server.ThreadingHTTPServer):
    """Lists in pages, watches, and answers /pods as a kubelet does."""
    daemon_threads = True

    def __init__(self, cert):
        super().__init__(("127.0.0.1", 0), Asked)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.lock = threading.Lock()
        self.pods, self.watches, self.asked, self.away, self.cut = {}, [], [], False, False

    def handle_error(self, request, client_address):
        pass

    def change(self, kind, p):
        with self.lock:
            if kind == "DELETED":
                self.pods.pop(uid(p), None)
            else:
                self.pods[uid(p)] = p
            for w in self.watches:
                w.put({"type": kind, "object": p})

    def end_watches(self, event=None):
        with self.lock:
            for w in self.watches:
                w.put(event)


class Asked(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, o):
        body = json.dumps(o).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:len(body) // 2] if self.server.cut else body)

    def do_GET(self):
        api, url = self.server, urllib.parse.urlsplit(self.path)
        q = dict(urllib.parse.parse_qsl(url.query))
        api.asked.append((url.path, q))
        if self.headers["Authorization"] != "Bearer " + TOKEN:
            self.send_error(401)
        elif api.away:
            self.send_error(503)
        elif "watch" in q:
            self.watch()
        elif url.path == "/pods":
            self.answer({"items": list(api.pods.values()) or None})
        else:
            n, at = int(q["limit"]), int(q.get("continue", "at=0")[3:])
            with api.lock:
                items = list(api.pods.values())
            more = {"continue": f"at={at + n}"} if at + n < len(items) else {}
            self.answer({"metadata": {"resourceVersion": "7", **more}, "items": items[at:at + n]})

    def watch(self):
        mine = queue.Queue()
        with self.server.lock:
            for p in self.server.pods.values():  # what changed between the list and the watch
                mine.put({"type": "MODIFIED", "object": p})
            self.server.watches.append(mine)
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while (event := mine.get()) is not None:
                self.wfile.write(json.dumps(event).encode() + b"\n")
        with self.server.lock:
            self.server.watches.remove(mine)


class Ceded:
    """What ceded would know. It checks no more than that a message is one."""
    def __init__(self, directory):
        self.known, self.messages, self.connections, self.room = {}, 0, [], 1 << 20
        self.path = os.path.join(directory, "socket")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.path)
        self.socket.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                c = self.socket.accept()[0]
                self.connections.append(c)
                threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        with contextlib.suppress(OSError):
            while text := c.recv(65536):
                m = json.loads(text)
                assert m["op"] == "identity", m
                self.messages += 1
                self.known.pop(m["cgroup"], None)
                if "facts" in m and len(self.known) >= self.room:
                    c.send(json.dumps({"v": 1, "ok": False, "errno": 28, "error": "no room"}).encode())
                    continue
                if "facts" in m:
                    self.known[m["cgroup"]] = m["facts"]
                c.send(json.dumps({"v": 1, "ok": True}).encode())

    def stop(self):
        for s in [self.socket, *self.connections]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        os.unlink(self.path)


class Agent(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = dict(os.environ, CEDE_DIR=self.dir, CEDE_SOFT_SOCKET=self.path("gpu"))
        self.said = open(self.path("said"), "w+", encoding="utf8")  # pylint: disable=consider-using-with
        self.addCleanup(self.said.close)
        with open(self.path("token"), "w", encoding="utf8") as f:
            f.write(TOKEN + "\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-keyout", self.path("key"), "-out", self.path("ca")],
                       check=True, stderr=subprocess.DEVNULL, timeout=WAIT_S)
        with open(self.path("pem"), "w", encoding="utf8") as out:
            for part in "key", "ca":
                with open(self.path(part), encoding="utf8") as f:
                    out.write(f.read())
        self.api = Api(self.path("pem"))
        self.addCleanup(self.api.server_close)
        self.addCleanup(self.api.shutdown)
        self.addCleanup(self.api.end_watches)
        threading.Thread(target=self.api.serve_forever, args=(0.05,), daemon=True).start()
        self.ceded = None

    def path(self, name):
        return os.path.join(self.dir, name)

    def stand_in(self):
        self.ceded = Ceded(self.dir)
        self.addCleanup(lambda: os.path.exists(self.ceded.path) and self.ceded.stop())

    def url(self):
        return f"https://127.0.0.1:{self.api.server_port}"

    def command(self, *args):
        return [CEDE, "kube-agent", "--node", "n1", "--url", self.url(), "--ca", self.path("ca"), "--token",
                self.path("token"), "--cgroup-driver", "cgroupfs", *args]

    def start(self, *args):
        p = subprocess.Popen(self.command(*args), env=self.env, stderr=self.said)
        self.addCleanup(p.wait, WAIT_S)
        self.addCleanup(p.kill)
        return p

    def once(self, *args, **kw):
        return subprocess.run(self.command("--once", *args), env=dict(self.env, **kw), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S)

    def words(self):
        with open(self.path("said"), encoding="utf8") as f:
            return f.read()

    def knows(self, pods):
        want = sorted(map(group, pods))
        eventually(lambda: sorted(self.ceded.known) == want,
                   f"{len(self.ceded.known)} groups are known, not {len(want)}\n{self.words()}")

    def fill(self, n=200):
        pods = [pod(f"p{i}") for i in range(n)]
        for p in pods:
            self.api.pods[uid(p)] = p
        return pods

    # -- what is reported ----------------------------------------------------------------------

    def test_facts(self):
        self.stand_in()
        p = pod("web", priority="high", notes={"cede.io/class": "batch", "other.io/x": "y"},
                labels={"cede.io/team": "a", "cede.io/class": "latency", "app": "web"})
        self.api.change("ADDED", p)
        self.api.change("ADDED", pod("done", phase="Succeeded"))
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(self.ceded.known, {group(p): {
            "pod": "web", "namespace": "prod", "priority_class": "high", "label:cede.io/class": "batch",
            "label:cede.io/team": "a"}})
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
            self.assertEqual(list(self.ceded.known), [want])
            self.assertEqual(self.once("--cgroup-driver", "either").returncode, 0)
            self.assertGreaterEqual(len(self.ceded.known), 2)
            self.ceded.stop()

    def test_hostile(self):
        """Names cannot become rules or paths, and a pod cannot make its own facts too many to be known."""
        self.stand_in()
        full = {f"cede.io/k{i:03}": "v" * 250 for i in range(200)}
        many = pod("many", notes=dict(full, **{"cede.io/class": "batch", "cede.io/x\n[rule r]": "1"}), labels=full)
        odd = pod("odd\n[rule r]\nclass = latency", notes={"cede.io/a": "\x1b[2J", "cede.io/b": 7, "cede.io/c": "d" * 254})
        for p in (many, odd, pod("up", uid="../../system.slice"), pod("none", qos="x"), {"metadata": 3}, None):
            self.api.pods[str(len(self.api.pods))] = p
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(set(self.ceded.known), {group(many), group(odd)})
        facts = self.ceded.known[group(many)]
        self.assertEqual((facts["priority_class"], facts["label:cede.io/class"]), ("low", "batch"))
        self.assertLessEqual(sum(len(k) + len(v) + 2 for k, v in facts.items()), 2048)
        self.assertEqual(self.ceded.known[group(odd)], {"namespace": "prod", "priority_class": "low"})

    # -- pods that come and go -----------------------------------------------------------------

    def test_two_hundred(self):
        self.stand_in()
        pods = self.fill()
        self.start()
        self.knows(pods)
        self.assertEqual(self.ceded.messages, 200)
        eventually(lambda: self.api.watches, "it does not watch")
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
        self.assertEqual(self.ceded.messages, 401)
        # What happened while nobody watched, and an event that says that it was too long ago.
        self.api.pods.pop(uid(new[0]))
        self.api.end_watches({"type": "ERROR", "object": {"code": 410}})
        self.knows([p for p in now if p is not new[0]])

    def test_too_many(self):
        self.stand_in()
        pods = self.fill(520)
        r = self.once()
        self.assertEqual((r.returncode, len(self.ceded.known)), (0, 500))
        self.assertEqual(r.stderr, "cede: more than 500 pods: some are not reported\n")
        self.assertEqual(len(pods), 520)

    def test_api_away(self):
        """Pods keep what they had, also if half a list comes."""
        self.stand_in()
        pods = self.fill(60)
        self.start()
        self.knows(pods)
        eventually(lambda: self.api.watches, "it does not watch")
        for field in "away", "cut":
            self.api.pods.pop(uid(pods.pop()))
            setattr(self.api, field, True)
            asked = len(self.api.asked)
            self.api.end_watches()
            eventually(lambda n=asked: len(self.api.asked) > n + 1, "it does not ask again")
            self.assertEqual(len(self.ceded.known), len(pods) + 1)
            setattr(self.api, field, False)
            self.knows(pods)
            eventually(lambda: self.api.watches, "it does not watch again")
        self.assertIn("answers 503; trying again", self.words())

    def test_ceded_is_full(self):
        self.stand_in()
        self.ceded.room = 10
        pods = self.fill(30)
        self.start()
        eventually(lambda: "no room; trying again" in self.words(), "it does not say so")
        self.assertEqual(len(self.ceded.known), 10)
        eventually(lambda: self.api.watches, "it does not watch")
        for p in pods[:5] + pods[20:]:
            self.api.change("DELETED", p)
        eventually(lambda: set(self.ceded.known) == set(map(group, pods[5:15])), "what is gone makes no room")
        self.ceded.room = 30
        self.knows(pods[5:20])

    def test_ceded_away(self):
        self.stand_in()
        pods = self.fill(30)
        self.start()
        self.knows(pods)
        self.ceded.stop()
        eventually(lambda: "no daemon is running; trying again" in self.words(), "it does not say so")
        self.stand_in()
        self.knows(pods)  # all anew: that one knew nothing

    def test_killed(self):
        self.stand_in()
        pods = self.fill(30)
        for _ in range(3):
            agent = self.start()
            eventually(lambda: self.ceded.known, "nothing is reported")
            agent.kill()
            agent.wait(WAIT_S)
        self.start()
        self.knows(pods)

    def test_kubelet(self):
        self.stand_in()
        pods = self.fill(40)
        self.start("--url", self.url() + "/pods", "--interval", "1")
        self.knows(pods)
        self.api.pods.clear()
        self.knows([])
        self.assertEqual({path for path, _ in self.api.asked}, {"/pods"})

    # -- what is wrong -------------------------------------------------------------------------

    def test_refused(self):
        self.stand_in()
        with open(self.path("token"), "w", encoding="utf8") as f:
            f.write("another\r\nX-Header: 1")
        self.assertIn("the service account may not list pods", self.once().stderr)
        r = self.once("--ca", "/etc/hostname")
        self.assertEqual(r.returncode, 1)
        self.assertFalse(self.ceded.known)

    def test_no_token_without_tls(self):
        self.stand_in()
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
                           (("--url", "ftp://x"), "https://HOST:PORT"), (("--cgroup-root", "x"), "a path from /"),
                           (("x",), "unexpected argument"), (("--node", ""), "NODE_NAME")):
            r = self.once(*args)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(said, r.stderr)

    def test_no_library(self):
        for name in "libcurl.so.4", "libcurl-gnutls.so.4":
            with open(self.path(name), "w", encoding="utf8"):
                pass
        r = self.once(LD_LIBRARY_PATH=self.dir)
        self.assertEqual((r.returncode, r.stderr), (1, "cede: libcurl.so.4 cannot be opened: install libcurl4\n"))

    # -- with a real ceded ---------------------------------------------------------------------

    def group_of_test(self, root, p):
        """A control group as the kubelet would make it, below one of version 1 or 2."""
        for at in "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup":
            path = at + root + group(p)
            with contextlib.suppress(OSError):
                os.makedirs(path)
                if os.path.exists(path + "/cgroup.procs"):
                    self.addCleanup(lambda: [os.rmdir(at + "/".join((root + group(p)).split("/")[:n]))
                                             for n in range(5, 1, -1)])
                    return path
                shutil.rmtree(at + root)
        return self.skipTest("no control group can be made here")

    def cede(self, *args):
        return subprocess.run([CEDE, *args], env=self.env, text=True, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, timeout=WAIT_S).stdout

    def test_pod_becomes_batch(self):
        """A GPU program that runs already in a pod is of the class of its PriorityClass, lowered by the pod's word."""
        root, p = f"/cede-test-{os.getpid()}", pod("train", priority="low", notes={"cede.io/weight": "7"})
        path = self.group_of_test(root, p)
        with open(self.path("conf"), "w", encoding="utf8") as f:
            f.write("[rule low]\nnamespace = prod\npriority_class = low\nclass = batch\nweight = 50\n")

        def begin(*args):
            c = subprocess.Popen(args, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(c.wait, WAIT_S)
            self.addCleanup(c.terminate)
            return c
        begin(CEDE, "softgpu")
        eventually(lambda: os.path.exists(self.path("gpu")), "no software GPU")
        begin(CEDE, "daemon", "--config", self.path("conf"), "--device", "soft")
        eventually(lambda: "no daemon" not in self.cede("policy"), "no ceded")
        program = begin(CEDE, "load", "batch", "--device", "soft", "--memory", "100M")
        with open(path + "/cgroup.procs", "w", encoding="utf8") as f:
            f.write(str(program.pid))
        self.assertIn("nothing", self.cede("rules", "test", "--json", str(program.pid)))
        self.api.change("ADDED", p)
        self.start("--cgroup-root", root)

        def is_batch():
            jobs = json.loads(self.cede("ps", "--json"))["jobs"]
            return [j for j in jobs if j["pid"] == program.pid and (j["class"], j["weight"]) == ("batch", 7)]
        eventually(is_batch, "it is not batch")
        self.api.change("DELETED", p)
        eventually(lambda: '"by": "nothing"' in self.cede("rules", "test", "--json", str(program.pid)),
                   "the pod is not withdrawn")
        self.assertTrue(is_batch())  # a job keeps what it has


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
                         [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
        agent = all_of["DaemonSet", "cede-agent"]["spec"]["template"]["spec"]
        self.assertFalse({"hostPID", "hostNetwork", "hostIPC"} & set(agent))
        self.assertEqual(agent["containers"][0]["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertIs(all_of["DaemonSet", "ceded"]["spec"]["template"]["spec"]["automountServiceAccountToken"], False)

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
