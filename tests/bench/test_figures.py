"""The figures of results that are checked in: what each curve is called and its points, which axes are logarithmic. Each is the
one whose digest stands in figures.sha256, so that no change of the bench draws something else of old results. Where one is meant
to change, look at the difference, then write the digests anew. usage: test_figures.py BENCH_REPORT SOURCE [--write]"""
import copy
import hashlib
import importlib.util
import pathlib
import random
import sys
import tempfile
import unittest
import unittest.mock

WRITE = "--write" in sys.argv
SOURCE = pathlib.Path(sys.argv[2])
sys.path.insert(0, sys.argv[1])
import figures  # noqa: E402
from common import Wrong, load_json, text_of  # noqa: E402
from report import Report  # noqa: E402


def shown(drawn):
    """With the digits that a figure shows."""
    out = f"log {drawn['log'][0]} {drawn['log'][1]}\n" + "".join(repr(g) + "\n" for g in drawn.get("groups", []))
    for s in drawn["series"]:
        points = [p if isinstance(p, (tuple, list)) else (p,) for p in s["points"]]
        out += s["label"] + "\n" + "".join(" ".join(f"{v:.6g}" for v in p) + "\n" for p in points)
    return out


def put(_cede, path, data):
    pathlib.Path(path).write_bytes(data)


class Figures(unittest.TestCase):
    def test_checked_in(self):
        text = ""
        for path in sorted((SOURCE / "bench/results").rglob("*.json")):
            o = load_json(path)
            for n, spec in enumerate(filter(None, text_of(o, "figures").split("\n")), 1):
                drawn = figures.figure(o, spec)
                if drawn:
                    digest = hashlib.sha256(shown(drawn).encode()).hexdigest()[:16]
                    text += f"{digest}  {path.relative_to(SOURCE).with_suffix('')}-{n}\n"
        golden = SOURCE / "tests/bench/figures.sha256"
        if WRITE:
            golden.write_text(text)
        self.assertGreater(text.count("\n"), 100)
        self.assertEqual(set(text.splitlines()) ^ set(golden.read_text().splitlines()), set())

    def test_curves(self):
        """One figure with its points, to see what the others are made of."""
        rows = [{"config": c, "point": {"kernel_us": x, "n": n}, "roles": {"r": {"p99_us": {"median": x * n, "min": 1, "max": 9e3}}}}
                for c in ("alone", "cede") for n in (1, 2) for x in (10, 1000)]
        d = figures.figure({"rows": rows}, "lines kernel_us r.p99")
        self.assertEqual([s["label"] for s in d["series"]], ["alone, n 1", "alone, n 2", "cede, n 1", "cede, n 2"])
        self.assertEqual(d["series"][3]["points"], [(10, 20, 1, 9e3), (1000, 2000, 1, 9e3)])
        self.assertEqual((d["log"], d["x"], d["y"]), ((True, True), "kernel, us", "r p99"))
        self.assertIsNone(figures.figure({"rows": rows[:1]}, "lines kernel_us r.p99"))

    def test_anybodys(self):
        """Whatever a result is, there is a figure, none, or a message."""
        for rows in (None, 3, [], [None, 3, "x", {}], [{"roles": []}], [{"point": 3, "roles": {"r": {"rate": 3}}}],
                     [{"point": {"k": "x"}, "roles": {"r": {"rate": {"median": None}}}}] * 2,
                     [{"config": "`", "point": {"k": i}, "roles": {"r": {"rate": {"median": 10.0 ** i}}}} for i in range(-99, 99)]):
            for spec in ("lines k r.rate", "scatter r.rate r.rate", "bars r.rate r.p99", "cdf r"):
                figures.figure({"rows": rows, "cells": rows}, spec)
        for spec in ("", "pie r", "lines k", "lines k k", "bars", "bars r.a r.b r.c r.d r.e", "cdf r.`x", "bars " + "a" * 60 + ".b"):
            with self.assertRaises(Wrong):
                figures.figure({}, spec)

    def test_damage(self):
        """Of results with anything anywhere: a report, and figures or a message."""
        rand = random.Random(3)
        files = [load_json(p) for p in sorted((SOURCE / "bench/results/h200-2026-11-21/bench-8").glob("*.json"))]
        for _ in range(300):
            o = copy.deepcopy(rand.choice(files))
            o["cells"] = o["cells"][:6]
            for _ in range(rand.choice((1, 3, 20))):
                at = o
                while isinstance(at, (dict, list)) and at:
                    key = rand.choice(list(at)) if isinstance(at, dict) else rand.randrange(len(at))
                    if rand.random() < 0.2 or not isinstance(at[key], (dict, list)):
                        at[key] = rand.choice((None, 3, -1, 1e308, 1e-308, "", "x" * 999, [], {}, [[]], {"a": 1}, True, 2 ** 62, "`"))
                        break
                    at = at[key]
            r = Report.__new__(Report)
            r.results, r.draws = [o], False
            self.assertTrue((r.overview() + r.result(o)).startswith("# cede bench"))
            for spec in ("lines kernel_us latency.p99", "scatter batch.share latency.p99", "bars batch.share", "cdf latency"):
                figures.figure(o, spec)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "python3-matplotlib is not installed")
    def test_drawn(self):
        """Each kind, with a title that says what matplotlib or a terminal would take for more than a text."""
        rows = [{"config": c, "point": {"k": k}, "roles": {"r": {"rate": {"median": k, "min": 0, "max": 3}, "p99_us": {"median": 5}}}}
                for c in ("alone", "cede") for k in (1, 2)]
        cells = [{"config": c, "point": {"k": 2}, "roles": {"r": {"histogram": [[1, 5], [2, 5]]}}} for c in ("alone", "cede")]
        o = {"rows": rows, "cells": cells, "test_name": "$\\frac{1$ \033[31m\0", "hardware": "<b>&", "date": "2026"}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(figures, "put_file", put):
            for i, spec in enumerate(("lines k r.rate", "scatter r.rate r.p99", "bars r.rate r.p99", "cdf r")):
                path = pathlib.Path(folder, str(i))
                figures.draw(figures.figure(o, spec), "cede", str(path))
                svg = path.with_suffix(".svg").read_text()
                self.assertIn("cede", svg)
                self.assertTrue(path.with_suffix(".png").read_bytes().startswith(b"\x89PNG"))

    def test_missing(self):
        with unittest.mock.patch.dict(sys.modules, {"matplotlib": None}), self.assertRaises(figures.Missing) as e:
            figures.draw({}, "cede", "/nonexistent")
        self.assertEqual(str(e.exception), "python3-matplotlib")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
