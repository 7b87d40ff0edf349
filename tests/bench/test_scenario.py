"""Scenario files: those that are shipped, mistakes in others, and random damage. usage: test_scenario.py BENCH_REPORT SCENARIOS SEEDS"""
import io
import pathlib
import random
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
SHIPPED = sorted(pathlib.Path(sys.argv.pop(1)).glob("*.ini"))
SEEDS = sorted(pathlib.Path(sys.argv.pop(1)).glob("*.ini"))
import scenario  # noqa: E402
from common import Wrong, dumps  # noqa: E402
from figures import figure  # noqa: E402
from planned import sessions  # noqa: E402
from run import Session  # noqa: E402

HEAD = "[scenario]\ntitle = t\nid = 1\n"
PLAIN = "[role r]\nload = batch\n"
ROLE = "[role r]\nload = batch --kernel-us {k}\n"
AXIS = "[axis k]\nvalues = 1 20 300\nquick = 20\nsoft = 4\n"
CEDE = HEAD + "configs = cede\n"
TARGET = CEDE + AXIS + ROLE + "[target t]\n"
ODD = [b"{", b"}", b"[", b"]", b"=", b":", b" ;", b"\n", b"\n ", b"nan", b"inf", b"-1", b"1e999", b"max(", b"min(", b")", b",", b"%",
       b"us", b"\xff", b"\0", b"${k}", b"configs = ", b"x" * 200, b"1/0", b"0/0", b"[axis k]\nvalues = 1 2\n", b"((((", b"==",
       b"cede.latency.p99", b"[target t]\ncheck = ", b"[role r]\nload = batch\n", b"figure = bars batch.share\n", b"\xef\xbb\xbf"]


def read(text, quick=False, soft=False):
    return scenario.read(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "/tmp/mine.ini", quick, soft)


def use(points):
    """What follows from a scenario works too, whether all cells are missing or there, with made-up numbers; 0 is among them, as
    that is what divisions stumble on."""
    it = sessions(points)
    for filled in (False, True):
        for x in it.sessions if filled else ():
            roles = {name: {"rate": float(x.p.index), "p99_us": float(i), "cpu": 0.0, "histogram": [[1.0, 1]]}
                     for i, name in enumerate(x.p.roles)}
            plan = x.plan(False)
            assert plan["roles"] and all(r.get("load") or r.get("program") for r in plan["roles"])
            for i, cell in enumerate(x.cells([{"status": "ok", "roles": roles}] * max(1, len(x.p.phases)), 0)):
                it.result.put(0, x.slot + i, x.p.index, cell)
                it.result.cells.append(cell)
        o = {**it.result.json(), "cells": it.result.cells}
        assert dumps(o, 1)
        for spec in filter(None, points[0].top["figure"].split("\n")):
            figure(o, spec)


class Scenarios(unittest.TestCase):
    def refused(self, text, says, **how):
        with self.assertRaises(Wrong, msg=text) as e:
            read(text, **how)
        self.assertIn(says, str(e.exception))
        self.assertEqual(e.exception.status, 2)

    def test_shipped(self):
        """Each of them, in each way, and every session's plan."""
        self.assertGreaterEqual(len(SHIPPED), 15)
        for path in SHIPPED:
            for quick in (False, True):
                for soft in (False, True):
                    points, text, name = scenario.load(path, quick, soft)
                    top = points[0].top
                    self.assertTrue(top["title"] and top["reference"] and top["shows"] and points[0].targets, path)
                    self.assertEqual((text, name), (path.read_text(), path.stem))
                    use(points)

    def test_axes(self):
        two = HEAD + "configs = cede default\n" + AXIS + "[axis m]\nvalues = 5 6\n" + ROLE
        s = read(two)
        self.assertEqual([p.at for p in s][3], {"k": 20.0, "m": 6.0})  # the last axis runs fastest
        self.assertEqual(len(s), 6)
        self.assertEqual(s[5].roles["r"]["load"], "batch --kernel-us 300")
        self.assertEqual(list(s[0].configs), ["cede", "default"])
        self.assertEqual(s[0].configs["default"]["base"], "default")
        self.assertEqual(s[4].expand("a {k * m} {1e6 / 3ms} b", False), "a 1500 333.3333333 b")
        self.assertEqual(s[0].number("", 7), 7)
        for text in ("{nothing}", "{k", "0123456789" * 64, "{1 / 0 - 1 / 0 + 0 / 0}"):
            with self.assertRaises(Wrong):
                s[0].expand(text, False)
        self.assertEqual(s[4].expand("${k} {k} {print} {", True), "${k} 300 {print} {")
        with self.assertRaises(Wrong):
            s[0].expand("0123456789" * 64, True)
        self.assertEqual([p.at["k"] for p in read(two, quick=True)], [20, 20])
        self.assertEqual([p.at["k"] for p in read(two, quick=True, soft=True)], [4, 4])

    def test_keys(self):
        """Sessions that differ in nothing that is measured have one key; those that do, have two."""
        s = read(HEAD + "configs = default cede other started\n[config cede]\nconf = a = {k}\n[config other]\nwrap = env K={k}\n"
                 "[config started]\nbase = other\nstart = set-clock {k}\n[axis k]\nvalues = 1 2\n" + PLAIN + "weight = k\n")
        for c in s[0].configs:
            self.assertEqual(Session(s[0], 0, config=c).key() == Session(s[1], 0, config=c).key(), c == "default", c)
        self.assertEqual([(x.p.index, x.same) for x in sessions(s).sessions if x.alone or x.config == "default"],
                         [(0, 0), (0, 0), (1, 0), (1, 0)])

    def test_plan(self):
        s = read(HEAD + "configs = default mps cede\n[config cede]\npolicy = p\nconf = a = 1\nset = r -w 3\noptions = r --pool\n"
                 "env = A=b\n[config mps]\nenv = A=b\n" + PLAIN + "class = batch\ncount = 3\n")[0]
        alone, cede, mps = (Session(s, 0, **x).plan(False) for x in ({"alone": "r"}, {"config": "cede"}, {"config": "mps"}))
        self.assertEqual((alone["base"], alone["roles"][0]["count"], "options" in alone["roles"][0]), ("alone", 1, False))
        self.assertEqual(cede["conf"], "[policy]\nname = p\na = 1\n")
        self.assertEqual([cede["roles"][0][k] for k in ("terms", "options", "env", "count")],
                         [" -c batch -w 3", " --pool", "A=b", 3])
        self.assertEqual(mps["roles"][0]["env"], "CUDA_MPS_CLIENT_PRIORITY=1\nA=b")

    def test_mistakes(self):
        for text, says in (
                ("", "title, id and a role"),
                (CEDE, "a role"),
                (HEAD + AXIS + ROLE, "configs or phases"),
                (CEDE + "[phase p]\ndo = wait\n" + AXIS + ROLE, "configs or phases"),
                (HEAD + "configs = nobody\n" + AXIS + ROLE, "base has to be"),
                (HEAD + "configs = cede cede\n" + AXIS + ROLE, "named twice"),
                (CEDE + "[config mps]\npolicy = p\n" + AXIS + ROLE, "not among"),
                (CEDE + "title = again\n" + AXIS + ROLE, ":5: given twice"),
                (HEAD + "color = red\nconfigs = cede\n" + AXIS + ROLE, ":4: unknown key"),
                (CEDE + "[thing x]\na = b\n", "unknown section"),
                (CEDE + "seconds = -1\n" + AXIS + ROLE, ":5: seconds = -1: must be a number from 0.1"),
                (CEDE + "seconds = 4 / (k - 20)\n" + AXIS + ROLE, ":5: seconds = "),
                (CEDE + "seconds = 4s +\n" + AXIS + ROLE, "seconds"),
                (CEDE + "seconds = nobody\n" + AXIS + ROLE, "no such name"),
                (CEDE + "memory_mib = mib\n" + AXIS + ROLE, "no such name"),
                (HEAD + "[phase p]\ndo = wait\ntakes = mib\n" + AXIS + ROLE, "no such name"),
                (CEDE + "[axis k]\nvalues = 1 x\n" + ROLE, ":6: values = "),
                (CEDE + "[axis k]\nquick = 1\n" + ROLE, "no values"),
                (CEDE + AXIS + "[role R]\nload = batch\n", "bad name"),
                (CEDE + AXIS + "[role r]\nclass = batch\n", "load or program"),
                (TARGET + "check = cede.nobody.p99 < 1\n", "no such name"),
                (TARGET + "check = mps.r.p99 < 1\n", "no such name"),
                (TARGET + "check = cede.r.p98 < 1\n", "no such name"),
                (TARGET + "check = cede.ceded.p99 < 1\n", "no such name"),
                (CEDE + "figure = line k r.p99_us\n" + AXIS + ROLE, "not a figure"),
                (CEDE + "figure = lines k r.p99_us`x`\n" + AXIS + ROLE, "not a figure"),
                (CEDE + "figure = bars r.share share\n" + AXIS + ROLE, "not a figure"),
                (CEDE + "figure = bars share r.share\n" + AXIS + ROLE, "not a figure"),
                (CEDE + "figure = lines m r.p99_us\n" + AXIS + ROLE, ":5: not a figure"),
                (CEDE + "figure = cdf nobody\n" + AXIS + ROLE, "not a figure"),
                (CEDE + "gpus = 1.5\n" + AXIS + ROLE, "whole number from 1 to 16"),
                (CEDE + "[role r]\nload = batch\ncount = 4 / (k - 20)\n" + AXIS, ":7: count"),
                (TARGET + "check = max(max(max(k))) < 1\n", "inside each other"),
                ((CEDE + "shows = gr\xf6\xdfer\n" + AXIS + ROLE).encode("latin1"), ":5: not UTF-8: 'shows'"),
                (TARGET + "when = k >\ncheck = 1 < 2\n", "missing"),
                (HEAD + "shows = " + "1" * 300 + "\n", "line too long"),
                (CEDE + "nothing\n" + PLAIN, ":5: not understood, in 'mine'"),
                (CEDE + PLAIN + "[role\n", ":7: not understood, in 'mine'")):
            self.refused(text, says)
        with self.assertRaises(Wrong):
            scenario.load("/nonexistent.ini")

    def test_numbers(self):
        """A number that is none, or that nothing could be done with, is refused by what names the file, the line, the key and
        what is allowed."""
        bad = ["nan", "inf", "-inf", "1e-320", "1e-20", "1e999", "-1e30"]
        for i, (before, after, says) in enumerate((
                (CEDE + "settle = ", "\n" + PLAIN, ":5: settle = "),
                (CEDE + "quick_seconds = ", "\n" + PLAIN, ":5: quick_seconds = "),
                (CEDE + "gpus = ", "\n" + PLAIN, ":5: gpus = "),
                (CEDE + "repeat = ", "\n" + PLAIN, ":5: repeat = "),
                (CEDE + "seconds = ", "\n" + PLAIN, ":5: seconds"),
                (CEDE + "memory_mib = ", "\n" + PLAIN, ":5: memory_mib"),
                (CEDE + "[role r]\nload = batch\nready = ", "\n", ":7: ready = "),
                (CEDE + "[role r]\nload = batch\ncount = ", "\n", ":7: count"),
                (CEDE + "[role r]\nload = batch\nweight = ", "\n", ":7: weight"),
                (CEDE + "[role r]\nload = batch --kernel-us {", "}\n", ":6: load"),
                (CEDE + "[config cede]\nconf = floor = {", "}\n" + PLAIN, ":6: conf"),
                (CEDE + "[axis k]\nvalues = 1 ", "\n" + PLAIN, ":6: values = "),
                (CEDE + "[axis k]\nvalues = 1\nquick = ", "\n" + PLAIN, ":7: quick = "),
                (HEAD + "[phase p]\ntakes = ", "\n" + PLAIN, ":5: takes"),
                (HEAD + "[phase p]\nseconds = ", "\n" + PLAIN, ":5: seconds = "),
                (CEDE + "[target t]\ncheck = 1 < ", "\n" + PLAIN, ":6: target"))):
            for k, number in enumerate(bad):
                # A settling time of next to nothing is one; so is a limit below 0.
                if not (i == 0 and 2 < k < 5) and not (i == 15 and number[0] == "-"):
                    self.refused(before + number + after, says)

    def test_damage(self):
        """Whatever a file is, it is refused with a message, or all that follows works."""
        rand, files, accepted = random.Random(7), [p.read_bytes() for p in SHIPPED + SEEDS], 0
        for _ in range(600):
            data = bytearray(rand.choice(files))
            for _ in range(rand.choice((1, 1, 2, 5))):
                at = rand.randrange(len(data) + 1)
                data[at:at + rand.choice((0, 0, 1, 10))] = rand.choice(ODD) if rand.random() < 0.8 else b""
            try:
                points = read(bytes(data), rand.random() < 0.5, rand.random() < 0.5)
            except Wrong as e:
                self.assertTrue(str(e).startswith("/tmp/mine.ini:"), str(e))
                continue
            accepted += 1
            self.assertTrue(1 <= len(points) <= 64 and points[0].roles)
            self.assertNotEqual(bool(points[0].configs), bool(points[0].phases))
            use(points)
        self.assertGreater(accepted, 60)


if __name__ == "__main__":
    unittest.main()
