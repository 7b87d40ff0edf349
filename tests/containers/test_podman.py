"""Programs in containers of a real podman: which class they get by their environment, a CDI device and rules for
container, name and image, and verbs inside with the mounted socket.

usage: test_podman.py CEDE SOURCE LIBCEDE [TEST...]"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from machine import CEDE, SOURCE, WAIT_S, Machine, eventually, run, skip

NAME = f"cede-test-{os.getpid()}"
CDI = "/etc/cdi"
# Rights and networks are no matter of these tests, and a machine may lack what the defaults take.
RUN = ["podman", "run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]
os.environ["PODMAN_IGNORE_CGROUPSV1_WARNING"] = "1"
PROGRAM = ["/bin/cede", "load", "batch", "--device", "soft"]


def podman(*args):
    return subprocess.run(["podman", *args], text=True, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=WAIT_S)


def make_root():
    """A file system with cede and env(1) and the libraries that they need."""
    root = tempfile.mkdtemp(prefix="cede-root-")
    for d in "bin", "dev", "etc", "proc", "run", "sys", "tmp":
        os.mkdir(os.path.join(root, d))
    for program in CEDE, shutil.which("env"):
        shutil.copy(program, f"{root}/bin/{os.path.basename(program)}")
        needed = subprocess.run(["ldd", program], text=True, check=True, stdout=subprocess.PIPE).stdout
        for lib in re.findall(r"/\S+", needed):
            os.makedirs(root + os.path.dirname(lib), exist_ok=True)
            shutil.copy(lib, root + lib)
    return root


def find_runtime():
    why = ""
    for args in [], ["--runtime=runc"], ["--runtime=crun"]:
        r = podman(*RUN[1:], *args, "--rootfs", ROOT, "/bin/cede", "--version")
        if r.returncode == 0:
            RUN.extend(args)
            return None
        why = why or r.stderr.strip().splitlines()[-1]
    return why


class Podman(Machine):
    CONF = f"""
[rule name]
container_name = {NAME}-serve*
class = latency
[rule image]
image = localhost/{NAME}:*
class = batch
weight = 40
"""

    def container(self, name, *args, of=None):
        """Its id."""
        r = subprocess.run([*RUN, "-d", "--name", f"{NAME}-{name}", "-e", "CEDE_SOFT_SOCKET=/gpu", "-v", self.path("gpu") + ":/gpu",
                            *args, *(of or ["--rootfs", ROOT]), *PROGRAM], text=True, check=False, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.addCleanup(podman, "rm", "-f", "-t", "0", f"{NAME}-{name}")
        return r.stdout.strip()

    def devices(self, file):
        """A file of agents/cdi, but not with the names and the directory of an installed cede."""
        os.makedirs(CDI, exist_ok=True)
        at = os.path.join(CDI, f"{NAME}-{file}")
        self.addCleanup(os.unlink, at)
        with open(os.path.join(SOURCE, "agents/cdi", file), encoding="utf8") as f, open(at, "w", encoding="utf8") as to:
            to.write(f.read().replace("cede.io/", f"{NAME}.cede.io/").replace("/run/cede/container", self.path("cede/container")))

    def job_in(self, container):
        for j in self.all_jobs():
            with open(f"/proc/{j['pid']}/cgroup", encoding="utf8") as f:
                if container in f.read():
                    return j
        return None

    def test_classes(self):
        self.devices("cede.json")
        image = f"localhost/{NAME}:1"
        archive = self.path("image.tar")
        subprocess.run(["tar", "-C", ROOT, "-cf", archive, "."], check=True)
        r = podman("import", archive, image)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.addCleanup(podman, "rmi", "-f", image)
        wanted = {
            self.container("word", "-e", "CEDE_CLASS=batch", "-e", "CEDE_WEIGHT=30"): ("batch", 30, "environment"),
            self.container("cdi", "--device", f"{NAME}.cede.io/class=batch"): ("batch", 100, "environment"),
            self.container("raised", "--device", f"{NAME}.cede.io/class=latency"): ("normal", 100, "environment"),
            self.container("serve-1", "-e", "CEDE_CLASS=batch"): ("latency", 100, "rule"),
            self.container("image", of=[image]): ("batch", 40, "rule"),
        }
        for container, expected in wanted.items():
            job = eventually(lambda c=container: self.job_in(c), "no job")
            self.assertEqual((job["class"], job["weight"], job["source"]), expected)
        # By id: a rule that is read when ceded reads its configuration again.
        other = self.container("id", of=[image])
        pid = str(eventually(lambda: self.job_in(other), "no job")["pid"])
        self.assertIn(f"yes: it has {NAME}-serve-1", self.cede("rules", "test", str(self.job_in(list(wanted)[3])["pid"])))
        self.cede("set", "-c", "none", pid)
        self.write("conf", f"[rule id]\ncontainer = {other[:12]}\nclass = normal\n", mode="a")
        self.daemon_process.send_signal(signal.SIGHUP)
        eventually(lambda: "rule id" in self.cede("rules", "test", pid), "the rule is not read")
        self.assertIn(f"container = {other[:12]}   yes", self.cede("rules", "test", pid))

    def test_cleaned(self):
        """A program that begins in a container without its environment, as a login does, has the container's class, and is
        part of its job."""
        container = self.container("login", "-e", "CEDE_CLASS=batch")
        eventually(lambda: self.job_in(container), "no job")
        with subprocess.Popen(["podman", "exec", f"{NAME}-login", "/bin/env", "-i", "CEDE_SOFT_SOCKET=/gpu", *PROGRAM],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as login:
            eventually(lambda: self.job_in(container)["processes"] == 2, "the program is in no job")
            self.assertEqual(self.job_in(container)["class"], "batch")
            podman("rm", "-f", "-t", "0", f"{NAME}-login")
            login.wait(WAIT_S)

    def test_verbs_inside(self):
        self.devices("cede-socket.json")
        mount = ["--device", f"{NAME}.cede.io/socket=verbs", "-e", "CEDE_CLASS=batch"]
        first, second = self.container("first", *mount), self.container("second", *mount)
        job = eventually(lambda: self.job_in(first), "no job")
        other = eventually(lambda: self.job_in(second), "no job")

        def inside(*args):
            return podman("exec", f"{NAME}-first", "/bin/cede", *args)
        r = inside("ps", "--json")
        self.assertEqual([(j["number"], j["pid"]) for j in json.loads(r.stdout)["jobs"]], [(job["number"], 1)], r.stderr)
        for args in (("set", "1", "-w", "50"), ("pause", "1")):
            r = inside(*args)
            self.assertEqual(r.returncode, 0, r.stderr)
        job = self.job_in(first)
        self.assertEqual((job["weight"], job["state"]), (50, "paused"))
        self.assertEqual(inside("resume", "1").returncode, 0)
        for args in (("pause", f"#{other['number']}"), ("set", "1", "-c", "latency"), ("policy", "edf")):
            self.assertNotEqual(inside(*args).returncode, 0, args)
        self.assertEqual((self.job_in(second)["state"] == "paused", self.job_in(second)["weight"]), (False, 100))
        r = inside("run", "-c", "batch", "-w", "20", "-n", "more", "--", *PROGRAM, "--seconds", "0.2")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        said = inside("doctor", "--device", "nvidia").stdout
        self.assertIn("cede runs in a container (podman), in a separate pid namespace", said)
        self.assertIn("verbs reach the programs in it", said)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("podman's own files are read as root")
    if not shutil.which("podman"):
        skip("podman is not installed")
    ROOT = make_root()
    try:
        unusable = find_runtime()
        if unusable:
            skip("podman runs nothing here: " + unusable)
        run()
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
