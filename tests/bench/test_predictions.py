"""The estimator of bench/interference/model.py: the predictions that are in results which are checked in, the paper's figures, and
what has to hold for any pair.

usage: test_predictions.py SOURCE [--write]"""
import copy
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

if not importlib.util.find_spec("numpy"):
    print("python3-numpy is not installed")
    sys.exit(77)
WRITE = "--write" in sys.argv
SOURCE, = [a for a in sys.argv[1:] if a != "--write"]
RESULTS = pathlib.Path(SOURCE, "bench/results")
sys.path.insert(0, str(pathlib.Path(SOURCE, "bench/interference")))

# pylint: disable=wrong-import-position
import model
import paper
import study

H100 = model.gpu(paper.H100)


def alike(a, b):
    """The same, but for rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-6 * max(1, abs(a))
    return a == b


def met(a, b, g=H100):
    return model.estimate(g, model.kernels([a]), model.kernels([b]))


class Predictions(unittest.TestCase):
    """What the results have was predicted in C, before the estimator was Python."""

    def compare(self, file, had, has):
        if WRITE:
            file.write_text(json.dumps(has, indent=1) + "\n")
        else:
            self.assertTrue(alike(had, has), f"{file}: other predictions; --write puts them there")

    def test_suite(self):
        files = sorted(RESULTS.glob("*/interference.json"))
        self.assertTrue(files)
        for file in files:
            suite, had = study.Suite(file), json.loads(file.read_text())
            has, e = copy.deepcopy(had), suite.estimate(model.SHIPPED)
            for i, o in enumerate(has["experiments"] if "predicted_speedup" in had["experiments"][0] else []):
                o.update(predicted_slowdown=[float(s[i]) for s in e.slowdown], predicted_speedup=float(e.speedup[i]),
                         limits=[model.RESOURCES[limit[i]] for limit in e.limit])
            self.compare(file, had, has)

    def test_advice(self):
        files = sorted(RESULTS.glob("*/advice.json"))
        self.assertTrue(files)
        for file in files:
            with tempfile.TemporaryDirectory() as folder:
                now = pathlib.Path(folder, "advice.json")
                now.write_text(file.read_text())
                pathlib.Path(folder, "profiles").symlink_to(file.parent.resolve() / "profiles")
                subprocess.run([sys.executable, "-B", pathlib.Path(SOURCE, "bench/programs/advice.py"), "--again", now], check=True,
                               stdout=subprocess.DEVNULL)
                self.compare(file, json.loads(file.read_text()), json.loads(now.read_text()))


class Paper(unittest.TestCase):
    def test_rows(self):
        """Each figure to a tenth, and the resource that the paper names."""
        for row, slowdown, speedup, limit in study.Paper().estimate(model.SHIPPED):
            with self.subTest(row=row.name):
                for got, told in ((slowdown, row.slowdown), (speedup, row.speedup)):
                    if told:
                        self.assertAlmostEqual(got / told, 1, delta=0.1)
                self.assertEqual(limit, row.limit)

    def test_caches(self):
        """Small arrays do not disturb each other; two that fill L1 alone are no faster together than one after the other."""
        self.assertLess(met(*[paper.copy_l2(5000, 1)] * 2).slowdown[0], 1.1)
        self.assertGreater(met(*[paper.copy_l1(32)] * 2).speedup, 1.5)
        many = met(*[paper.copy_l1(120)] * 2)
        self.assertLessEqual(many.speedup, 1)
        self.assertEqual(many.limit[0], model.L1)
        # Far more than fits, whose size is known: what misses anyway misses while another runs, too.
        stream = paper.apart(66, 69.18)
        stream["use"]["L2 cache"] = stream["use"]["DRAM bandwidth"]
        got = met(*[dict(stream, l2_bytes=8e9, l1_bytes=8e9 / 66)] * 2)
        self.assertGreater(got.slowdown[0], 1.3)
        self.assertEqual(got.limit[0], model.DRAM)

    def test_fewer_sms(self):
        """A sixteenth of the SMs, by its occupancy."""
        for kernel, sms, told in ((paper.mul(128, 3.45), 8, 15.8), (paper.mul(128, 3.45), 132, 1), (paper.sleep(132), 66, 1),
                                  (paper.sleep(132), 33, 2)):
            self.assertAlmostEqual(float(model.of_fewer_sms(H100, model.kernels([kernel]), sms)[0]) / told, 1, delta=0.1)


def program(*kernels, **fields):
    return model.program({"kernels": [dict(k, name="k", calls=1) for k in kernels], **fields})


class Programs(unittest.TestCase):
    def test_kernels_meet(self):
        """While the one does its work once, the other is at both of its kernels once."""
        one, two = program(paper.mul64(2.01, 96.59)), program(paper.mul64(2.01, 96.59), paper.sleep(132))
        slowdown, limits = model.estimate_programs(H100, (one, two))
        for s in slowdown:
            self.assertAlmostEqual(s, 1.485, delta=0.02)
        self.assertEqual(limits, ["FP64 pipe"] * 2)
        # Each on half of the SMs: what computes takes twice as long, what sleeps does not.
        slowdown, limits = model.estimate_programs(H100, (one, two), 66)
        self.assertAlmostEqual(slowdown[0], 1.97, delta=0.05)
        self.assertAlmostEqual(slowdown[1], 0.5 * 1.97 + 0.5, delta=0.05)
        self.assertEqual(limits[0], "room for blocks")

    def test_gaps(self):
        for busy, both, told in (((1, 1), (2, 2), (2, 2)), ((0, 0), (3, 1.5), (3, 1.5)),  # not known: no gaps
                                 ((0.5, 1), (2, 2), (1.5, 1.5)),  # there for 2/3 of the time then, which is 1 / 1.5
                                 ((1, 1e-9), (2, 2), (1, 1)), ((0.5, 0.5), (1, 1), (1, 1))):
            for got, right in zip(model.with_gaps(busy, both), told):
                self.assertAlmostEqual(got, right, delta=1e-3)
        speeds = [1 / s for s in model.with_gaps((0.6, 0.6), (2, 2))]
        self.assertTrue(1.2 < sum(speeds) < 1.7)

    def advice(self, a, b, sms=132):
        return model.advise(model.gpu(dict(paper.H100, sms=sms)), (a, b))

    def test_advice(self):
        def one(issue, dram, threads, busy=1.0, **fields):
            return program({"blocks": 132, "threads": threads, "us": 1000, "use": {"issue slots": issue, "DRAM bandwidth": dram}, **fields},
                           busy=busy)
        computes, greedy, copies, rarely = one(0.4, 0.01, 128), one(1, 0, 128), one(0.1, 0.6, 1024), one(0.4, 0.01, 128, 0.05)
        for a, b, advice, limit in ((computes, copies, "pool", "nothing"), (greedy, greedy, "turns", "issue slots"),
                                    (copies, greedy, "split", "issue slots"), (computes, computes, "pool", "nothing"),
                                    (rarely, rarely, "turns", "nothing")):  # idle most of the time: turns are as good
            told = self.advice(a, b)
            self.assertEqual((told["advice"], told["pool"]["limits"][0]), (advice, limit))
        full = one(0.5, 0, 1024, blocks=9999)
        self.assertNotIn("split", self.advice(full, full, sms=1))

    def test_any_pair(self):
        """Nothing is faster together than alone, or is no number."""
        r = random.Random(7)

        def kernel():
            use = {u: r.choice((0, 0.01, 0.97, 1, r.random())) for u in model.RESOURCES[2:] if r.random() < 0.5}
            return {"blocks": r.choice((1, 66, 132, 133, 9999)), "threads": r.choice((32, 256, 1024)), "us": r.choice((0.001, 1, 1e9)),
                    "registers": r.choice((0, 40, 255)), "shared_bytes": r.choice((0, 7168, 200000)), "division": r.choice((0, 32768)),
                    "l1_hit": r.choice((0, 1, r.random())), "l2_hit": r.choice((0, 1, r.random())), "use": use}
        a, b = (model.kernels([kernel() for _ in range(3000)]) for _ in range(2))
        for slowdown in model.estimate(H100, a, b).slowdown:
            self.assertTrue((slowdown >= 0.999).all() and (slowdown < 1e300).all())

    def test_damaged(self):
        for wrong in ({"threads": 0}, {"us": 0}, {"blocks": 0}):
            with self.assertRaises(ValueError):
                program(dict(paper.sleep(1), **wrong))
        with self.assertRaises(ValueError):
            program()


class Study(unittest.TestCase):
    def test_kept(self):
        """No pair that is kept for the test is fitted with; the choice does not depend on an order."""
        pairs = [p for p, _ in study.Programs(study.newest("advice.json")).pairs]
        names = study.kept(pairs)
        self.assertEqual(names, study.kept([dict(p, programs=p["programs"][::-1]) for p in reversed(pairs)]))
        fitted = study.Programs(study.newest("advice.json"), lambda n: n not in names)
        self.assertEqual(len(fitted.pairs) + study.KEPT, len(pairs))
        self.assertFalse({study.name_of(p) for p, _ in fitted.pairs} & set(names))

    def test_fit(self):
        """The search ends with less than it begins with, within its bounds."""
        data = [study.Paper()]
        found = study.fit(data)
        neutral = study.dataclasses.replace(model.SHIPPED, **{k: v[0] for k, v in study.NEUTRAL.items()})
        self.assertLess(data[0].error(found), data[0].error(neutral))
        for name, (_, least, most) in study.NEUTRAL.items():
            self.assertTrue(least <= getattr(found, name) <= most)

    def test_verdicts(self):
        for found, says in ((None, "not run"), ([], "run; the paper gives no figure"), ([(1.09, 1)], "yes"), ([(1.09, 1), (0.8, 1)], "no: 1 of 2"),
                            ([(1.7, False)], "no: 0 of 1"), ([(1.02, True)], "yes")):
            self.assertEqual(paper.verdict(found), says)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
