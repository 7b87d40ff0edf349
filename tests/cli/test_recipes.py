"""docs/recipes.md does what it says: its commands run as they stand there, on the software GPU, with a load in place of
each program; what they print is what the page shows, but for numbers. And bench/programs/recipes.py runs there, too.

usage: test_recipes.py CEDE LIBCEDE SOURCE_DIR"""
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
import unittest

CEDE, LIBCEDE, SOURCE = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
LOAD = '#!/bin/sh\nexec "$REAL_CEDE" load batch --device soft --kernel-us 1000 --memory 134217728\n'
STAND_INS = {"sudo": '#!/bin/sh\nexec "$@"\n', "cede": '#!/bin/sh\nexec "$REAL_CEDE" "$@"\n',
             "python3": LOAD, "vllm": LOAD, "jupyter": LOAD}


def recipes():
    """Title, and (command, expected output) of each."""
    with open(os.path.join(SOURCE, "docs/recipes.md"), encoding="utf-8") as f:
        sections = re.split(r"^## ", f.read(), flags=re.M)[2:]
    found = {}
    for text in sections:
        commands = []
        for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M):
            for line in block.splitlines():
                if line.startswith("    $ "):
                    commands.append((line[6:], []))
                elif line.strip() and "    $ " in block:
                    commands[-1][1].append(line[4:])
        found[text.splitlines()[0]] = commands
    return found


def plain(text):
    return re.sub(r"\d+(\.\d+)?", "N", text)


class Recipes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in STAND_INS.items():
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(path, stat.S_IRWXU)
        with open(self.folder + "/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\ndevice = soft\naccounts = no\n")
        self.env = dict(os.environ, CEDE_DIR=self.folder, CEDE_SOFT_SOCKET=self.folder + "/gpu", REAL_CEDE=CEDE,
                        PATH=self.folder + ":" + os.environ["PATH"])
        self.processes = []
        self.addCleanup(self.end)
        self.gpu = self.start(CEDE, "softgpu", "--memory", str(1 << 30), stdout=subprocess.PIPE)
        self.assertIn(b"listening", self.gpu.stdout.readline())

    def start(self, *argv, **kw):
        self.processes.append(subprocess.Popen(argv, env=self.env, start_new_session=True, stderr=subprocess.DEVNULL, **kw))
        return self.processes[-1]

    def end(self):
        for p in reversed(self.processes):
            try:
                os.killpg(p.pid, 9)
            except ProcessLookupError:
                pass
            p.wait()
        self.gpu.stdout.close()

    def jobs(self):
        out = subprocess.run([CEDE, "ps", "--json"], env=self.env, text=True, timeout=60, check=True,
                             stdout=subprocess.PIPE).stdout
        return {j["name"]: j for j in json.loads(out)["jobs"]}

    def await_job(self, condition, what):
        end = time.monotonic() + 60
        while not any(condition(j) for j in self.jobs().values()):
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def run_recipe(self, title):
        self.start(CEDE, "daemon", "--config", self.folder + "/cede.conf", stdout=subprocess.DEVNULL)
        while not os.path.exists(self.folder + "/socket"):
            time.sleep(0.02)
        ran = 0
        for command, expected in recipes()[title]:
            ran += 1
            if command.endswith("&"):
                known = set(self.jobs())
                self.start("bash", "-c", "exec " + command.rstrip("& ") if "=" not in command.split()[0]
                           else command.rstrip("& "), stdout=subprocess.DEVNULL)
                self.await_job(lambda j: j["name"] not in known and j["memory_bytes"] > 0, command)
                continue
            done = subprocess.run(["bash", "-c", command], env=self.env, text=True, timeout=100, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, command + ": " + done.stderr)
            if expected:
                self.assertEqual(plain(done.stdout), plain("".join(line + "\n" for line in expected)), command)
        self.assertGreater(ran, 2)
        return self.jobs()

    def test_paused_for_a_meeting(self):
        comfy = self.run_recipe("A long job, paused for a meeting")["comfy"]
        self.assertEqual(comfy["class"], "batch")
        self.assertNotIn("yielded", comfy)

    def test_server_beside_training(self):
        jobs = self.run_recipe("A server and a training")
        self.assertEqual({n: j["class"] for n, j in jobs.items()}, {"serve": "latency", "train": "batch"})

    def test_two_servers(self):
        jobs = self.run_recipe("Two model servers")
        self.assertEqual({n: (j["class"], j["weight"]) for n, j in jobs.items()},
                         {"chat": ("latency", 300), "bulk": ("normal", 100)})
        self.assertNotIn("yielded", jobs["chat"])

    def test_notebooks(self):
        jobs = self.run_recipe("Notebooks as batch")
        self.assertEqual(jobs.pop("serve")["class"], "latency")
        self.assertEqual([(j["class"], j["source"]) for j in jobs.values()], [("batch", "environment")])
        with open(os.path.join(SOURCE, "docs/recipes.md"), encoding="utf-8") as f:
            rule = re.search(r"^((?:    )\[rule .*\n(?:    .*\n)+)", f.read(), re.M)[1]
        with open(self.folder + "/cede.conf", "a", encoding="utf-8") as f:
            f.write(re.sub("^    ", "", rule, flags=re.M))
        self.processes[1].send_signal(1)
        rules = []
        end = time.monotonic() + 60
        while not rules and time.monotonic() < end:
            rules = json.loads(subprocess.run([CEDE, "rules", "--json"], env=self.env, text=True, timeout=60, check=True,
                                              stdout=subprocess.PIPE).stdout)["rules"]
        self.assertEqual([(r["name"], r["class"]) for r in rules], [("notebooks", "batch")])

    def test_loop(self):
        jobs = self.run_recipe("A reinforcement learning loop")
        self.assertEqual((jobs["trainer"]["class"], jobs["sampler"]["class"]), ("normal", "batch"))
        self.assertEqual(jobs["sampler"]["yielded"], {"class": "latency", "paused": False, "memory": True})
        self.assertEqual(jobs["sampler"]["state"], "swapped")

    def test_all_recipes_are_tested(self):
        self.assertEqual(len(recipes()), 5)

    def test_bench(self):
        """The loop of two Python programs, with memory for one of them."""
        os.killpg(self.gpu.pid, 9)
        self.gpu.wait()
        gpu = self.start(CEDE, "softgpu", "--memory", str(256 << 20), stdout=subprocess.PIPE)
        gpu.stdout.readline()
        self.addCleanup(gpu.stdout.close)
        del self.env["CEDE_DIR"]
        path = self.folder + "/result.json"
        subprocess.run([sys.executable, os.path.join(SOURCE, "bench/programs/recipes.py"), CEDE, LIBCEDE, path, "soft"],
                       env=dict(self.env, PYTHONDONTWRITEBYTECODE="1"), timeout=200, check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
        self.assertTrue(result["loop"]["same_results"])
        self.assertEqual(result["loop"]["statuses"], [0, 0])
        self.assertTrue(result["meeting"]["stood_still"])


if __name__ == "__main__":
    unittest.main()
