"""docs/recipes.md does what it says: its commands run as they stand there, on the software GPU, with a load in place of
each program; what they print is what the page shows, but for numbers. And bench/programs/recipes.py runs there, too.

usage: test_recipes.py CEDE LIBCEDE SOURCE_DIR"""
import json
import os
import re
import signal
import stat
import sys
import unittest

from on_soft import CEDE, OnSoft, eventually

LIBCEDE, SOURCE = sys.argv.pop(1), sys.argv.pop(1)
LOAD = '#!/bin/sh\nexec "$REAL_CEDE" load batch --device soft --kernel-us 1000 --memory 134217728\n'
STAND_INS = {"sudo": '#!/bin/sh\nexec "$@"\n', "cede": '#!/bin/sh\nexec "$REAL_CEDE" "$@"\n',
             "python3": LOAD, "vllm": LOAD, "jupyter": LOAD}


def page():
    with open(os.path.join(SOURCE, "docs/recipes.md"), encoding="utf-8") as f:
        return f.read()


def recipes():
    """Title, and (command, expected output) of each."""
    sections = re.split(r"^## ", page(), flags=re.M)[2:]
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


class Recipes(OnSoft):
    def setUp(self):
        super().setUp()
        for name, text in STAND_INS.items():
            self.write(name, text)
            os.chmod(self.path(name), stat.S_IRWXU)
        self.env.update(REAL_CEDE=CEDE, PATH=self.dir + ":" + os.environ["PATH"])
        self.soft_gpu("--memory", str(self.memory()))

    def memory(self):
        """For the bench memory for one of two programs, else for all."""
        return 1 << (28 if self._testMethodName == "test_bench" else 30)

    def start_group(self, command):
        """A command of the page, which ends with all that it has begun."""
        p = self.start("bash", "-c", command, start_new_session=True)
        self.addCleanup(lambda: p.poll() is None and os.killpg(p.pid, 9))

    def run_recipe(self, title):
        self.daemon_process = self.ceded("[daemon]\naccounts = no\n")
        ran = 0
        for command, expected in recipes()[title]:
            ran += 1
            if command.endswith("&"):
                known, command = set(self.jobs()), command.rstrip("& ")
                self.start_group(command if "=" in command.split()[0] else "exec " + command)
                eventually(lambda k=known: any(j["name"] not in k and j["memory_bytes"] > 0 for j in self.jobs().values()),
                           command)
                continue
            done = self.run_as("bash", "-c", command, timeout=100)
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
        rule = re.search(r"^((?:    )\[rule .*\n(?:    .*\n)+)", page(), re.M)[1]
        self.write("conf", re.sub("^    ", "", rule, flags=re.M), mode="a")
        self.daemon_process.send_signal(signal.SIGHUP)
        rules = eventually(lambda: json.loads(self.cede("rules", "--json").stdout)["rules"], "no rules")
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
        del self.env["CEDE_DIR"]
        path = self.path("result.json")
        done = self.run_as(sys.executable, os.path.join(SOURCE, "bench/programs/recipes.py"), CEDE, LIBCEDE, path, "soft",
                           env=dict(self.env, PYTHONDONTWRITEBYTECODE="1"), timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(self.read("result.json"))
        self.assertTrue(result["loop"]["same_results"])
        self.assertEqual(result["loop"]["statuses"], [0, 0])
        self.assertTrue(result["meeting"]["stood_still"])


if __name__ == "__main__":
    unittest.main()
