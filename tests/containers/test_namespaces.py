"""Verbs in pid and user namespaces as containers have them, made with unshare(1): which process a number
means, whom the socket for containers lets do what, whom a rootless container trusts; what `cede doctor` says in
there; and rules for systemd's slices, with control groups made by hand.

usage: test_namespaces.py CEDE SOURCE LIBCEDE [TEST...]"""
import contextlib
import json
import os
import shutil
import subprocess
import sys

from machine import CEDE, LIBCEDE, SOURCE, Machine, eventually, run, skip

USER = 12345
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
AS_USER = ("setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups")
IDENTITY = """import json, os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(os.environ["CEDE_DIR"] + "/socket")
s.send(json.dumps({"v": 1, "op": "identity", "cgroup": "/x", "facts": {"namespace": "prod"}}).encode())
print(s.recv(65536).decode())"""
NUMBER = """import json, os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(os.environ["CEDE_DIR"] + "/socket")
s.send(json.dumps({"v": 1, "op": "set", "target": 1, "weight": 90}).encode())
print(s.recv(65536).decode())"""
CLIENT = """import cede, time
c = cede.Client()
while not c.connected():
    time.sleep(0.01)
c.set_class(cede.BATCH)
c.set_weight(30)
time.sleep(600)"""


class Pids(Machine):
    def inside(self, name, *command, word="batch"):
        """A program in a pid namespace; how to enter that."""
        p = self.start(*NAMESPACE, *(command or (CEDE, "load", "batch", "--device", "soft")),
                       env={"CEDE_CLASS": word, "CEDE_NAME": name} if word else {})
        children = f"/proc/{p.pid}/task/{p.pid}/children"

        def child():
            with contextlib.suppress(OSError), open(children, encoding="utf8") as f:
                return f.read().split()
        pid = eventually(child, "no namespace")[0]
        return ("nsenter", "-t", pid, "-p", "-m")

    def outside(self):
        self.start(CEDE, "load", "batch", "--device", "soft", env={"CEDE_CLASS": "batch", "CEDE_NAME": "outside"})
        return self.await_job("outside", **{"class": "batch"})

    def test_numbers_are_the_callers(self):
        outside = self.outside()
        enter = self.inside("inside")
        inside = self.await_job("inside")
        self.assertNotEqual(inside["pid"], 1)
        seen = {j["name"]: j["pid"] for j in json.loads(self.call(*enter, CEDE, "ps", "--json").stdout)["jobs"]}
        self.assertEqual(seen, {"inside": 1, "outside": 0})
        rows = self.call(*enter, CEDE, "ps").stdout.splitlines()
        self.assertEqual({r.split()[-1]: r.split()[1] for r in rows[1:]}, {"inside": "1", "outside": "-"})
        self.assertEqual(self.call(*enter, CEDE, "set", "1", "-w", "30").returncode, 0)
        self.await_job("inside", weight=30)
        self.assertEqual(self.job("outside")["weight"], outside["weight"])
        self.refused("in your pid namespace", *enter, CEDE, "set", "4194300", "-w", "30")
        # Programs in no job: only those that could be named there.
        self.inside("", word=None)
        eventually(lambda: json.loads(self.cede("ps", "--json"))["unmanaged"], "not seen")
        self.assertEqual(json.loads(self.call(*enter, CEDE, "ps", "--json").stdout)["unmanaged"], [])

    def test_libcede_means_itself(self):
        self.inside("", sys.executable, "-c", CLIENT, word=None)
        eventually(lambda: [j for j in self.all_jobs()
                            if j["class"] == "batch" and j["weight"] == 30], "its class is not set")

    def guest(self, enter, *args):
        """A verb by the socket for containers."""
        return self.call(*enter, CEDE, *args, env={"CEDE_DIR": self.path("cede/container")})

    def test_guests_reach_their_own(self):
        number = self.outside()["number"]
        enter = self.inside("inside")
        other = self.inside("other")
        self.await_job("inside")
        self.await_job("other")
        self.env["CEDE_DIR"] = self.path("cede/container")
        guest = (*enter, CEDE)
        page = json.loads(self.call(*guest, "ps", "--json").stdout)
        self.assertTrue(page["guest"])
        self.assertEqual([(j["name"], j["pid"]) for j in page["jobs"]], [("inside", 1)])
        self.assertEqual([j["name"] for j in json.loads(self.call(*other, CEDE, "ps", "--json").stdout)["jobs"]], ["other"])
        for said, *args in (("may only lower", "set", "1", "-c", "latency"),
                            ("may only lower", "set", "inside", "-w", "200"),
                            ("outside of this container", "pause", f"#{number}"),
                            ("outside of this container", "set", f"#{number}", "-c", "none"),
                            ("no job named outside", "pause", "outside"),
                            ("has no job named other", "pause", "0/other"),
                            ("may change the policy", "policy", "edf"),
                            ("outside of this container", "trace", "-o", self.path("trace"))):
            self.refused(said, *guest, *args)
        said = json.loads(self.call(*enter, sys.executable, "-c", IDENTITY).stdout)
        self.assertFalse(said["ok"])
        self.assertIn("only root and the administrators' group", said["error"])
        said = json.loads(self.call(*enter, sys.executable, "-c", NUMBER).stdout)
        self.assertEqual(said["job"]["pid"], 1)
        for args in (("set", "1", "-w", "30"), ("pause", "1"), ("resume", "inside"), ("pause", "1")):
            self.assertEqual(self.call(*guest, *args).returncode, 0, args)
        self.env["CEDE_DIR"] = self.path("cede")
        self.await_job("inside", weight=30, state="paused")
        self.cede("resume", "inside")  # root, from outside
        self.cede("pause", "inside")
        r = self.guest(enter, "resume", "1")
        self.assertEqual(r.returncode, 1)
        self.assertIn("paused from outside of this container", r.stderr)
        self.await_job("inside", state="paused")
        self.assertEqual(self.job("outside")["weight"], 100)
        # Of two jobs of one name a guest means the one that it sees.
        self.start(CEDE, "load", "batch", "--device", "soft", env={"CEDE_CLASS": "batch", "CEDE_NAME": "other"})
        eventually(lambda: self.cede("ps").count("other") == 2, "not two")
        self.assertEqual(self.guest(other, "set", "other", "-w", "20").returncode, 0)

    def test_a_container_outlives_ceded(self):
        enter = self.inside("inside")
        self.await_job("inside")
        self.daemon_process.terminate()
        self.daemon_process.wait()
        self.assertEqual(os.listdir(self.path("cede/container")), [])
        self.assertNotEqual(self.guest(enter, "set", "1", "-w", "30").returncode, 0)
        self.assertEqual(os.listdir(self.path("cede/container")), [])  # nor does the verb start another ceded there
        kept = os.stat(self.path("cede/container")).st_ino
        self.begin_ceded()
        self.assertEqual(os.stat(self.path("cede/container")).st_ino, kept)
        self.await_job("inside")
        self.assertEqual(self.guest(enter, "set", "1", "-w", "30").returncode, 0)
        self.await_job("inside", weight=30)

    def test_run_inside(self):
        self.start(*NAMESPACE, CEDE, "run", "-c", "batch", "-n", "in", "--", CEDE, "load", "batch", "--device", "soft",
                   env={"CEDE_DIR": self.path("cede/container")})
        self.await_job("in", **{"class": "batch", "state": "running"})

    def test_rootless(self):  # the machine's root has no number there
        if self.call(*AS_USER, "unshare", "-U", "-r", CEDE, "--version").returncode:
            self.skipTest(f"users may not make user namespaces, or not execute {CEDE}")
        rootless = (*AS_USER, "unshare", "-U", "-r")
        self.start(*rootless, *NAMESPACE[:-1], CEDE, "load", "batch", "--device", "soft",
                   env={"CEDE_CLASS": "batch", "CEDE_NAME": "rootless"})
        job = self.await_job("rootless", uid=USER)
        enter = ("nsenter", "-t", str(job["pid"]), "-U", "-p", "-m")
        r = self.guest(enter, "set", "1", "-w", "30")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.await_job("rootless", weight=30)
        # A daemon where any user could have put one is not believed.
        if os.path.exists("/run/cede/socket"):
            return
        os.mkdir(self.path("run"))
        os.symlink(self.path("cede"), self.path("run/cede"))
        r = self.call(*AS_USER, "unshare", "-U", "--map-user=1000", CEDE, "ps",
                      env={"CEDE_DIR": "", "XDG_RUNTIME_DIR": self.path("run")})
        self.assertIn("not trusting the daemon", r.stderr)


class Doctor(Machine):
    def doctor(self, *prefix, **env):
        r = self.call(*prefix, CEDE, "doctor", "--device", "nvidia", env=env)
        self.assertEqual(r.returncode, 1)  # there is no GPU
        return r.stdout

    def test_says_what_a_container_lacks(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("it would measure the GPU")
        plain = (*NAMESPACE, "setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
        os.mkdir(self.path("lib"))
        self.write("lib/libcede.so.0", "")  # in front of one that may be installed, and none
        said = self.doctor(*NAMESPACE, CEDE_DIR="/nonexistent", LD_LIBRARY_PATH=self.path("lib"))
        for text in ("warn  container    cede runs in a container", "in a separate pid namespace",
                     "warn  daemon       no socket of ceded", "-v /run/cede/container:/run/cede:ro",
                     "--device nvidia.com/gpu=all", "warn  libcede "):
            self.assertIn(text, said)
        said = self.doctor(*plain, CEDE_DIR=self.path("cede/container"), LD_LIBRARY_PATH=os.path.dirname(
            LIBCEDE))
        for text in ("ok    daemon       ceded runs outside of this container; verbs reach the programs in it",
                     "ok    libcede ", "here and needs none"):
            self.assertIn(text, said)
        said = self.doctor(*NAMESPACE, CEDE_DIR=self.path("cede"))
        self.assertIn("warn  daemon       ceded runs outside of this container, and its administrators' socket", said)
        if os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC:  # the first one's is fixed in the kernel
            self.skipTest("these tests are in a container themselves")
        said = self.doctor(CEDE_DIR=self.path("cede"))
        self.assertIn("ok    container    cede sees all processes", said)
        self.assertNotIn("libcede ", said)


class Slices(Machine):
    with open(os.path.join(SOURCE, "agents/systemd/cede.conf"), encoding="utf8") as f:
        CONF = f.read()

    def group(self, path):
        """A control group where `cgroup` looks, and what it is made of is removed at the end."""
        at = next((d for d in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if os.path.exists(d + "/cgroup.procs")), None)
        if not at:
            self.skipTest("no control groups of version 2")
        for name in path.split("/")[1:]:
            at += "/" + name
            try:
                os.mkdir(at)
            except FileExistsError:
                continue
            except OSError as e:
                self.skipTest(f"control groups cannot be made: {e}")
            self.addCleanup(lambda at=at: eventually(lambda: self.removed(at), at + " stays"))
        return at

    @staticmethod
    def removed(at):
        with contextlib.suppress(OSError):
            os.rmdir(at)
        return not os.path.exists(at)

    def test_classes(self):
        unique = f"cede-test-{os.getpid()}"
        wanted = {}
        for path, word, expected in (
                (f"/gpu.slice/gpu-latency.slice/{unique}.service", "batch", "latency"),
                (f"/gpu.slice/gpu-batch.slice/{unique}.service", "", "batch"),
                (f"/user.slice/user-1000.slice/session-{unique}.scope", "normal", "batch"),
                (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{unique}.scope", "", "batch"),
                (f"/system.slice/{unique}/serve.service", "", "latency"),
                (f"/user.slice/{unique}/gpu.slice/gpu-latency.slice/x.scope", "", "batch"),  # a user made that one
                (f"/system.slice/{unique}.service", "normal", "normal")):
            wanted[path] = expected
            self.start("sh", "-c", f"echo $$ > {self.group(path)}/cgroup.procs && exec {CEDE} load batch --device soft",
                       env={"CEDE_CLASS": word} if word else {})

        def classes():
            jobs = self.all_jobs()
            return {path: j["class"] for path in wanted for j in jobs if self.is_in(j, path)}
        eventually(lambda: len(classes()) == len(wanted), lambda: str(classes()))
        self.assertEqual(classes(), wanted)

    @staticmethod
    def is_in(job, path):
        with contextlib.suppress(OSError), open(f"/proc/{job['pid']}/cgroup", encoding="utf8") as f:
            return f.read().rstrip().endswith(":" + path)
        return False


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("namespaces and control groups take root")
    if not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        skip("no pid namespace can be made here")
    run()
