"""What an API server, or whoever makes pods, can do to `cede kube-agent`: answers that are huge, deep, slow, broken or
endless, pods that claim each other's names. Each costs a bounded amount, and no other pod its class.

usage: test_kube_hostile.py CEDE [TEST...]"""
import contextlib
import json
import time
import unittest

from stand_ins import WithStandIn, eventually, group, pod, uid

MIB = 1 << 20
DEEP = "[" * 5000 + "]" * 5000
HASH = "0123456789abcdef0123456789abcdef"


def static(name, hash_of=HASH, **kw):
    return pod(name, notes={"kubernetes.io/config.mirror": hash_of, "kubernetes.io/config.hash": hash_of}, **kw)


class Hostile(WithStandIn):
    def answers(self, body, **headers):
        """Every list is this text, until answers_no_more()."""
        def instead(asked, q):
            if "watch" in q:
                return False
            with contextlib.suppress(OSError):
                asked.send_response(200)
                for k, v in headers.items():
                    asked.send_header(k.replace("_", "-"), v)
                asked.end_headers()
                asked.wfile.write(body)
            asked.close_connection = True
            return True
        self.api.instead = instead

    def answers_no_more(self, pods):
        self.api.instead = None
        self.knows(pods)

    def memory(self, agent):
        """The most that it had, in MiB; the manifest allows 256."""
        with open(f"/proc/{agent.pid}/status", encoding="utf8") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024

    def test_hostile(self):
        """Names cannot become rules or paths, and a pod cannot make its own facts too many to be known."""
        full = {f"cede.io/k{i:03}": "v" * 250 for i in range(200)}
        many = pod("many", notes=dict(full, **{"cede.io/class": "batch", "cede.io/x\n[rule r]": "1"}), labels=full)
        odd = pod("odd\n[rule r]\nclass = latency", notes={"cede.io/a": "\x1b[2J", "cede.io/b": 7, "cede.io/c": "d" * 254})
        for p in (many, odd, pod("up", uid="../../system.slice"), pod("none", qos="x"), {"metadata": 3}, None):
            self.api.pods[str(len(self.api.pods))] = p
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual(set(self.fake.known), {group(many), group(odd)})
        facts = self.fake.known[group(many)]
        self.assertEqual((facts["priority_class"], facts["label:cede.io/class"]), ("low", "batch"))
        self.assertLessEqual(sum(len(k) + len(v) + 2 for k, v in facts.items()), 2048)
        self.assertEqual(self.fake.known[group(odd)], {"namespace": "prod", "priority_class": "low"})

    def test_no_pod_spoils_others(self):
        """Text in a pod that JSON allows and parsers refuse: NUL, depth, numbers beyond all, bytes that are no text."""
        pods = self.fill(3)
        bad = [json.dumps(pod(f"bad{i}", notes={"a": "AA", "cede.io/weight": "BB"}), separators=(",", ":"))
               for i in range(5)]
        bad[0] = bad[0].replace("AA", "x\\u0000y").replace("BB", "5\\u00000")
        bad[1] = bad[1].replace('"AA"', DEEP)
        bad[2] = bad[2].replace('"spec":{', '"spec":{"x":' + DEEP + ',"n":1e999,"m":' + "9" * 400 + ",")
        bad[3] = bad[3].replace("AA", "Z").replace("BB", "7")
        bad[4] = bad[4].replace('"metadata":{', '"metadata":{"managedFields":[{"k:\\u0000":{}}],')
        text = ",".join([json.dumps(p) for p in pods] + bad).encode().replace(b'"Z"', b'"\xff\xc0"')
        want = [json.loads(t)["metadata"]["uid"] for t in (bad[0], bad[1].replace(DEEP, "1"), bad[4])]
        want += [bad[i].split('"uid":"')[1][:36] for i in (2, 3)]
        self.answers(b'{"metadata":{"resourceVersion":"7"},"items":[' + text + b"]}")
        r = self.once()
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        groups = {u: f"/kubepods/burstable/pod{u}" for u in want}
        self.assertEqual(set(self.fake.known), set(map(group, pods)) | set(groups.values()))
        self.assertNotIn("label:cede.io/weight", self.fake.known[groups[want[0]]])
        self.assertEqual(self.fake.known[groups[want[2]]]["label:cede.io/weight"], "BB")

    def test_events(self):
        """The same by a watch, and an event that comes byte by byte."""
        self.start_agent()
        self.watches()
        p = pod("nul", notes={"x": "a\0b", "cede.io/class": "batch"})
        self.api.change("ADDED", p)
        self.knows([p])
        self.assertEqual(len(self.api.asked), 2)  # a list and a watch: nothing made it begin anew
        slow = pod("slow")

        def instead(asked, q):
            if "watch" not in q:
                return False
            self.api.pods[uid(slow)] = slow
            asked.send_response(200)
            asked.end_headers()
            with contextlib.suppress(OSError):
                for c in json.dumps({"type": "ADDED", "object": slow}) + "\n":
                    asked.wfile.write(c.encode())
            asked.server.instead = None
            asked.watch()
            return True
        self.api.instead = instead
        self.api.end_watches()
        self.knows([p, slow])

    def test_huge(self):
        pods, agent = self.begun(2)
        for body in b"[" * 40 * MIB, b'{"items":[' + b"{}," * 13 * MIB:
            self.answers(body)
            self.api.end_watches()
            eventually(lambda: "an answer of more than" in self.words(), "it does not say so")
            self.answers_no_more(pods)
            self.watches()
        self.assertLess(self.memory(agent), 128)

    def test_large_pods(self):
        """As much as pods can hold, in as small parts as they can be."""
        pods = []
        for i in range(20):
            p = pod(f"large{i}", notes={f"{k:x}": "" for k in range(50000)})
            p["spec"]["containers"] = [{"env": [{"name": "x"}] * 50000}]
            pods.append(p)
            self.api.pods[uid(p)] = p
        agent = self.start_agent()
        self.knows(pods)
        self.assertLess(self.memory(agent), 128)

    def test_broken_answers(self):
        """Each is no list, and takes no pod away."""
        pods = self.begun(3)[0]
        whole = json.dumps({"items": [pod("never")]}).encode()
        for body, headers in ((b"5\r\nhello\r\nzz\r\n", {"Transfer_Encoding": "chunked"}),
                              (whole, {"Content_Length": "100000"}),
                              (b"<html>", {}), (b"", {}), (whole[:-1], {}), (b"\0" * 100, {}), (b"[]", {}),
                              (b'{"items":3}', {}), (b'{"items":"[]"}', {})):
            self.answers(body, **headers)
            asked = len(self.api.asked)
            self.api.end_watches()
            eventually(lambda n=asked: len(self.api.asked) > n, "it does not ask again")
            self.answers_no_more(pods)
            self.watches()
        self.assertEqual(self.fake.ever, set(map(group, pods)))
        self.assertEqual(self.fake.messages, len(pods))

    def test_not_redirected(self):

        def instead(asked, q):
            asked.send_response(302)
            asked.send_header("Location", self.url() + "/elsewhere")
            asked.end_headers()
            return True
        self.api.instead = instead
        self.assertIn("answers 302", self.once().stderr)
        self.assertEqual(len(self.api.asked), 1)

    def test_endless_pages(self):
        self.answers(json.dumps({"metadata": {"continue": "at=0"}, "items": [pod("again")]}).encode())
        r = self.once()
        self.assertEqual((r.returncode, len(self.api.asked)), (1, 100))
        self.assertIn("more than 100 pages of pods", r.stderr)
        self.answers(json.dumps({"metadata": {"continue": "x" * 600}, "items": []}).encode())
        self.assertIn("the next page of a list is too long", self.once().stderr)

    def test_api_hangs(self):
        """While the API server does not answer, a ceded that starts again is given all pods."""
        pods = self.begun(5)[0]
        hangs = []

        def instead(asked, q):
            hangs.append(q)
            eventually(lambda: not self.api.instead, "")
            return False
        self.api.instead = instead
        self.addCleanup(setattr, self.api, "instead", None)
        self.api.end_watches()
        eventually(lambda: hangs, "it does not ask")
        self.fake.stop()
        self.stand_in()
        self.knows(pods)
        self.assertEqual(len(hangs), 1)

    def test_same_uid(self):
        """Pods of one uid are one pod, and what changes all the time is reported once per second."""
        begun, same = time.monotonic(), pod("same")
        for i in range(300):
            self.api.pods[i] = pod(f"same{i}", uid=uid(same))
        self.start_agent()
        self.knows([same])
        self.api.pods.clear()
        self.watches()
        for i in range(2000):
            same["metadata"]["labels"] = {"cede.io/n": str(i)}
            self.api.change("MODIFIED", json.loads(json.dumps(same)))
        eventually(lambda: self.fake.known[group(same)].get("label:cede.io/n") == "1999", "the last one is not known")
        self.assertLessEqual(self.fake.messages, time.monotonic() - begun + 1)

    # -- static pods ---------------------------------------------------------------------------

    def test_static(self):
        """Its control group has the hash of its manifest for a name; nobody else's pod can claim that."""
        real, forged = static("etcd", namespace="kube-system"), static("forged", namespace="user")
        path = f"/kubepods/burstable/pod{HASH}"
        runs = pod("runs", notes={"kubernetes.io/config.hash": HASH})  # the kubelet runs it: it is what its uid says
        victim = pod("victim")
        odd = [static("a", hash_of=uid(victim)), static("b", hash_of="../" * 10 + "ab"), static("c", hash_of=""),
               pod("d", notes={"kubernetes.io/config.mirror": HASH})]
        for p in (real, runs, victim, *odd):
            self.api.change("ADDED", p)
        self.start_agent()
        want = {path, group(runs), group(victim)}
        eventually(lambda: set(self.fake.known) == want, f"not these: {want}")
        self.watches()
        last = pod("last")
        for kind in "ADDED", "DELETED":
            self.api.change(kind, forged)
            self.api.change(kind, last)
            eventually(lambda k=kind: (group(last) in self.fake.known) == (k == "ADDED"), "it does not go on")
            self.assertEqual(self.fake.known[path]["namespace"], "kube-system")
        self.assertEqual(self.fake.known[group(victim)]["pod"], "victim")
        self.api.change("DELETED", real)
        self.api.change("ADDED", static("next", namespace="kube-system"))
        eventually(lambda: self.fake.known.get(path, {}).get("pod") == "next", "the next one is not known")

    def test_static_by_kubelet(self):
        """To its kubelet a static pod's uid is the hash."""
        p = pod("etcd", uid=HASH, notes={"kubernetes.io/config.hash": HASH, "kubernetes.io/config.source": "file"})
        self.api.pods[HASH] = p
        self.start_agent("--url", self.url() + "/pods", "--interval", "1")
        self.knows([p])


if __name__ == "__main__":
    unittest.main(verbosity=2)
