"""What the tests of `cede kube-agent` have in common: stand-ins for API server, kubelet and ceded."""
import contextlib
import glob
import http.server
import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
import urllib.parse
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from on_soft import CEDE, WAIT_S, OnSoft, eventually  # pylint: disable=wrong-import-position

TOKEN = "a-token"
HIERARCHIES = "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"
HIGH = "[rule high]\nnamespace = prod\npriority_class = high\nclass = latency\n"
LOW = "[rule low]\nnamespace = prod\npriority_class = low\nclass = batch\nweight = 50\n"


def pod(name, qos="Burstable", phase="Running", priority="low", notes=None, labels=None, uid=None, namespace="prod",
        containers=()):
    """containers: pairs of a name and an id"""
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid or str(uuid.uuid4()),
                         "annotations": notes or {}, "labels": labels or {}},
            "spec": {"nodeName": "n1", "priorityClassName": priority},
            "status": {"phase": phase, "qosClass": qos, "containerStatuses": [
                {"name": n, "containerID": "containerd://" + i, "state": {"running": {"startedAt": "2026-11-28"}}}
                for n, i in containers]}}


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
        self.pods, self.claims, self.watches, self.asked, self.away, self.cut = {}, {}, [], [], False, False
        self.instead = None  # called with each request, answers it and returns True, or False

    def handle_error(self, request, client_address):
        pass

    def shutdown_request(self, request):
        """TLS ends with a message of its own, without which an answer that says no length counts as cut off."""
        request.settimeout(1)
        with contextlib.suppress(OSError):
            request.unwrap()
        super().shutdown_request(request)

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
        elif api.instead and api.instead(self, q):
            pass
        elif "/resourceclaims/" in url.path:
            claim = api.claims.get(url.path.rsplit("/", 1)[1])
            self.answer(claim) if claim else self.send_error(404)
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
        self.ever = set()  # groups that were known some time
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
                    self.ever.add(m["cgroup"])
                c.send(json.dumps({"v": 1, "ok": True}).encode())

    def stop(self):
        for s in [self.socket, *self.connections]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        os.unlink(self.path)


class Base(OnSoft):
    def setUp(self):
        super().setUp()
        self.said = open(self.path("said"), "w+", encoding="utf8")  # pylint: disable=consider-using-with
        self.addCleanup(self.said.close)
        self.write("token", TOKEN + "\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-keyout", self.path("key"), "-out", self.path("ca")],
                       check=True, stderr=subprocess.DEVNULL, timeout=WAIT_S)
        self.write("pem", self.read("key") + self.read("ca"))
        self.api = Api(self.path("pem"))
        self.addCleanup(self.api.server_close)
        self.addCleanup(self.api.shutdown)
        self.addCleanup(self.api.end_watches)
        threading.Thread(target=self.api.serve_forever, args=(0.05,), daemon=True).start()

    def url(self):
        return f"https://127.0.0.1:{self.api.server_port}"

    def command(self, *args):
        return [CEDE, "kube-agent", "--node", "n1", "--url", self.url(), "--ca", self.path("ca"), "--token",
                self.path("token"), "--cgroup-driver", "cgroupfs", *args]

    def start_agent(self, *args):
        return self.start(*self.command(*args), stderr=self.said)

    def once(self, *args, **env):
        return self.run_as(*self.command("--once", *args), env=dict(self.env, **env))

    def words(self):
        return self.read("said")

    def watches(self):
        eventually(lambda: self.api.watches, "it does not watch")


class WithStandIn(Base):
    """With a stand-in for ceded."""
    def setUp(self):
        super().setUp()
        self.stand_in()

    def stand_in(self):
        self.fake = Ceded(self.dir)
        self.addCleanup(lambda: os.path.exists(self.fake.path) and self.fake.stop())

    def knows(self, pods):
        want = sorted(map(group, pods))
        eventually(lambda: sorted(self.fake.known) == want,
                   f"{len(self.fake.known)} groups are known, not {len(want)}\n{self.words()}")

    def fill(self, n=200):
        pods = [pod(f"p{i}") for i in range(n)]
        for p in pods:
            self.api.pods[uid(p)] = p
        return pods

    def begun(self, n=200):
        """That many pods, and an agent that has reported them and watches."""
        pods, agent = self.fill(n), self.start_agent()
        self.knows(pods)
        self.watches()
        return pods, agent


class WithCeded(Base):
    """With ceded, the software GPU and control groups made as the kubelet makes them."""
    def setUp(self):
        super().setUp()
        self.root = "/cede-test-" + os.path.basename(self.dir)
        self.ceded_processes = []
        self.addCleanup(self.remove_groups)

    def remove_groups(self):
        for at in ["/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")]:
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

    def begin(self, *args, command=(CEDE,), **env):
        return self.start(*command, *args, env=dict(self.env, **env), stderr=self.said)

    def begin_ceded(self, config):
        self.ceded_processes.append(self.ceded(config, stderr=self.said))

    def begin_program(self, path, **env):
        """A GPU program in that control group: it is there before it begins, as programs of containers are."""
        into = ("sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', self.make_group(path), CEDE)
        return self.begin("load", "batch", "--device", "soft", "--memory", "100M", command=into, **env)

    def agent_of_root(self):
        return self.start_agent("--cgroup-root", self.root)

    def job(self, program):
        jobs = json.loads(self.cede("ps", "--json").stdout)["jobs"]
        return next((j for j in jobs if j["pid"] == program.pid), {})

    def is_job(self, program, **want):
        return all(self.job(program).get(k) == v for k, v in want.items())

    def becomes(self, program, **want):
        eventually(lambda: self.is_job(program, **want), f"it does not become {want}")

    def outcome(self, program):
        return json.loads(self.cede("rules", "test", "--json", str(program.pid)).stdout)["outcome"]
