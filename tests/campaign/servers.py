"""What the programs of this folder have in common that start a software GPU and a ceded: waiting, processes, and how
a program begins, ends and says what it found."""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time

PATIENCE_S = 120
HERE = os.path.dirname(os.path.abspath(__file__))


with open(os.path.join(HERE, "../../src/base/link_proto.h"), encoding="ascii") as link_proto:
    LINK_MAGIC = int(re.search(r"LINK_MAGIC (0x\w+)U", link_proto.read())[1], 16)


def link_ask(op, *words, gpu=b""):
    """A message as libcede sends it: flags, wait_us, class, weight, bytes, page; LINK_HINTS is 0."""
    return struct.pack("<6I2Q64s", LINK_MAGIC, op, *words, *(0,) * (6 - len(words)), gpu)


def program(name):
    """The module that a program of this folder is."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def await_that(what, condition):
    """what: text, or a function that makes it when it is needed."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"{what() if callable(what) else what}: not within {PATIENCE_S} s"
        time.sleep(0.02)


def state(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(") ", 1)[1][0]
    except OSError:
        return ""


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


def kilobytes(pid, field):
    """A field of its /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field))


def become(uid):
    """In a child of root: another user for good."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


class Servers:
    def __init__(self, args, folder):
        self.args, self.dir, self.servers = args, folder, {}
        self.env = dict(os.environ, CEDE_DIR=folder, CEDE_SOFT_SOCKET=f"{folder}/gpu", LC_ALL="C")

    def start(self, label, *argv, exe=None, env=None, **more):
        """Of the program under test, or of another one; what it says goes to two files."""
        with open(f"{self.dir}/{label}.out", "wb") as out, open(f"{self.dir}/{label}.err", "wb") as err:
            return subprocess.Popen([exe or self.args.cede, *argv], env={**self.env, **(env or {})},
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, **more)

    def said(self, label, kind="err"):
        with open(f"{self.dir}/{label}.{kind}", encoding="utf-8", errors="replace") as f:
            return f.read()

    def output(self, label):
        return self.said(label) + self.said(label, "out")

    def cede(self, *argv):
        return subprocess.run([self.args.cede, *argv], env=self.env, capture_output=True, encoding="utf-8",
                              errors="replace", timeout=PATIENCE_S, check=False)

    def jobs(self):
        return json.loads(self.cede("ps", "--json").stdout)["jobs"]

    def configure(self, text):
        with open(f"{self.dir}/cede.conf", "w", encoding="utf-8") as f:
            f.write(text)

    def start_gpu(self, *argv):
        self.servers["softgpu"] = self.start("softgpu", "softgpu", *argv)
        await_that("the software GPU listens", lambda: "listening" in self.said("softgpu", "out"))

    def start_ceded(self):
        self.servers["ceded"] = self.start("ceded", "daemon", "--config", f"{self.dir}/cede.conf", "--dir", self.dir)
        self.answers()

    def answers(self):
        """ps; what answers without a daemon has no pid."""
        def asked():
            done = self.cede("ps", "--json")
            return done.returncode == 0 and json.loads(done.stdout).get("pid") == self.servers["ceded"].pid
        await_that(lambda: f"ps is not answered: {self.said('ceded')[-3000:]}", asked)

    def ends(self, label):
        """A server that is asked to."""
        self.servers[label].terminate()
        status = self.servers.pop(label).wait(PATIENCE_S)
        assert status == 0, f"{label} ended with {status}: {self.output(label)[-3000:]}"

    def stop(self):
        for process in reversed(self.servers.values()):  # a restorer without its GPU would wait for it
            process.terminate()
            process.wait(PATIENCE_S)


def main(tool, **options):
    """Runs tool(arguments, folder).run(result), with options of these defaults, and prints the result as one JSON
    object. The exit status: 0 if nothing failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cede", default=os.environ.get("CEDE_EXE", "build/src/cli/cede"))
    for name, value in options.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    args = parser.parse_args()
    args.cede = os.path.abspath(args.cede)
    folder, begin = tempfile.mkdtemp(prefix="cede-campaign-"), time.monotonic()
    it, result = tool(args, folder), {}
    try:
        it.run(result)
    except (AssertionError, OSError, subprocess.SubprocessError, ValueError, KeyError, IndexError) as e:
        result["error"] = f"{type(e).__name__}: {e}"
    finally:
        it.stop()
        shutil.rmtree(folder, ignore_errors=True)  # a restorer may still be at work in it
    print(json.dumps({"ok": "error" not in result, **{name: getattr(args, name) for name in options},
                      "seconds": round(time.monotonic() - begin), **result}))
    return int("error" in result)
