"""What cells come to: medians over repeats, ratios within one, targets that failed or stayed open. usage: test_result.py
BENCH_REPORT SOURCE"""
import io
import json
import math
import pathlib
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
SOURCE = pathlib.Path(sys.argv.pop(1))
import scenario  # noqa: E402
from common import dumps, real  # noqa: E402
from planned import sessions  # noqa: E402
from result import Result, summary  # noqa: E402
from run import same_values  # noqa: E402

DEFAULT, CEDE = 0, 1


def result(targets, repeats, soft):
    text = ("[scenario]\ntitle = t\nid = 1\nconfigs = default cede\n[axis k]\nvalues = 1 2\n[role lat]\nload = latency\n"
            f"[role bat]\nload = batch\n{targets}")
    return Result(scenario.read(io.BytesIO(text.encode()), "mine.ini"), repeats, soft)


def put(r, repeat, slot, point, status, role, metric, v):
    c = {"config": "c", "status": status, "roles": {role: {metric: float(v)}}}
    r.put(repeat, slot, point, c)
    r.cells.append(c)


class Results(unittest.TestCase):
    def test_shares(self):
        """Shares are of one repeat, 0.5, 0.5 and 0.25; medians of the two taken apart would give 0.45."""
        r = result("[target t]\ncheck = cede.bat.share >= 0.5\nwhen = k == 1\n", 3, True)
        for i, (alone, beside) in enumerate(((100, 50), (110, 55), (120, 30))):
            put(r, i, r.slot_alone("bat"), 0, "ok", "bat", "rate", alone)
            put(r, i, CEDE, 0, "ok", "bat", "rate", beside)
        o = r.json()
        point, = o["targets"][0]["points"]  # `when` left the other out
        self.assertEqual(point["value"], {"median": 0.5, "min": 0.25, "max": 0.5, "n": 3})
        self.assertIs(o["targets"][0]["pass"], True)
        self.assertIs(o["pass"], True)
        self.assertEqual(o["results"]["cede.bat.share[k=1]"], 0.5)
        self.assertEqual([row["config"] for row in o["rows"]], ["alone", "cede"])  # alone first, once

    def test_busy_machine(self):
        """What holds is open, and what is missed stays so, where windows cannot be compared; other roles are not touched."""
        t = "[target held]\ncheck = cede.bat.share > 0.4\nwhen = k == 1\n[target missed]\ncheck = cede.bat.share > 9\nwhen = k == 1\n" \
            "[target other]\ncheck = cede.lat.p99 < 100\nwhen = k == 1\n"
        for alone, beside, p50, count, why in (
                ((100, 110), (50, 55), (10, 11), 1, None), ((100, 58), (50, 55), (10, 11), 1, "bat alone differed by 1.72 x"),
                ((100, 100), (50, 173), (10, 11), 1, "bat did 1.73 x as much beside others as alone"),
                ((100, 100), (150, 173), (10, 11), 2, None)):
            r = result(t, 2, True)
            for i in range(2):
                put(r, i, r.slot_alone("bat"), 0, "ok", "bat", "rate", alone[i])
                c = {"config": "cede", "status": "ok", "roles": {"bat": {"rate": float(beside[i]), "count": count},
                                                                 "lat": {"p99_us": 50.0, "p50_us": float(p50[i])}}}
                r.put(i, CEDE, 0, c)
            o = r.json()
            self.assertEqual([t["pass"] for t in o["targets"]], [None if why else True, False, True])
            self.assertEqual(o.get("busy"), 1 if why else None)
            points = [t["points"][0] for t in o["targets"]]
            self.assertEqual(["busy" in p for p in points], [bool(why), bool(why), False])
            self.assertIn(why or "", points[0].get("busy", ""))
        r = result("[target t]\ncheck = cede.lat.p99 - alone.lat.p99 < 100\nwhen = k == 1\n", 2, True)
        for i, p50 in enumerate((100, 151)):
            for slot in (r.slot_alone("lat"), CEDE):
                r.put(i, slot, 0, {"config": "c", "status": "ok", "roles": {"lat": {"p99_us": 200.0, "p50_us": float(p50)}}})
        o = r.json()
        self.assertIsNone(o["pass"])
        self.assertIn("lat alone differed by 1.51 x from one repeat to another in the median", o["targets"][0]["points"][0]["busy"])

    def test_scenarios_can_fail(self):
        """Of scenarios that are checked in: what each missed that did not gain what it is there for."""
        for name, soft, cells, missed in (
                ("harvest", False, {"cede": {"production": {"share": 0.99}, "opportunistic": {"share": 0.0}}}, "the opportunistic job has the rest"),
                ("video", True, {c: {"frames": {"p99_us": 20e3}} for c in ("laxity", "outside")}, "frames in time"),
                ("video", False, {c: {"frames": {"p99_us": 41e3}} for c in ("laxity", "outside")}, "frames in time"),
                ("lognormal", True, {c: {"requests": {"late": 1.0}} for c in ("fifo", "edf")}, "fewer late than in order of arrival"),
                ("serving_soft", True, {"default": {"high": {"p99_us": 5e3}}, "cede": {"high": {"p99_us": 6e3}}}, "and its slowest no later")):
            with open(SOURCE / f"bench/scenarios/{name}.ini", "rb") as f:
                r = Result(scenario.read(f, f"{name}.ini", True, soft), 1, soft)
            for config, roles in cells.items():
                r.put(0, r.slots.index(config), 0, {"config": config, "status": "ok", "roles": roles})
            self.assertIn(missed, [t["name"] for t in r.json()["targets"] if t["pass"] is False], name)

    def test_cut_off_runs(self):
        """One of two points: nothing was missed, and nothing is proven."""
        r = result("[target each]\ncheck = cede.lat.p99 < 100\n", 1, False)
        put(r, 0, CEDE, 0, "ok", "lat", "p99_us", 50)
        self.assertIsNone(r.json()["targets"][0]["pass"])
        self.assertIsNone(r.json()["pass"])
        put(r, 0, CEDE, 1, "ok", "lat", "p99_us", 60)
        self.assertIs(r.json()["pass"], True)

    def test_failures(self):
        r = result("[target missed]\ncheck = max(cede.lat.p99) < 100\n[target open]\ncheck = default.lat.p99 < 100\n"
                   "[target shown]\ncheck = cede.lat.p99 / 2\n", 1, False)
        put(r, 0, CEDE, 0, "ok", "lat", "p99_us", 50)
        put(r, 0, CEDE, 1, "ok", "lat", "p99_us", 150)
        put(r, 0, DEFAULT, 0, "failed", "x", "y", 0)
        put(r, 0, DEFAULT, 1, "unavailable", "x", "y", 0)
        o = r.json()
        self.assertEqual([t["pass"] for t in o["targets"][:2]], [False, None])
        self.assertIsNot(o["targets"][2]["pass"], False)
        self.assertEqual(len(o["targets"][0]["points"]), 1)
        self.assertEqual([o[k] for k in ("missed", "failed_cells", "unavailable_cells", "pass")], [1, 1, 1, False])
        self.assertEqual([row["status"] for row in o["rows"]].count("failed"), 1)

    def test_summary(self):
        self.assertEqual(summary([math.nan, 3.0, math.nan, 1.0]), {"median": 2.0, "min": 1.0, "max": 3.0, "n": 2})
        self.assertIsNone(summary([math.nan]))

    def test_quotient_by_zero(self):
        """A quotient by 0 is a number that JSON can have, and misses its target; 0 by 0 leaves it open."""
        r = result("[target a]\ncheck = 1 / cede.bat.rate <= 2\n[target b]\ncheck = 1 < cede.bat.rate / cede.bat.rate\n"
                   "[target c]\ncheck = 1 < 1 / cede.bat.rate\n", 1, True)
        for p in range(2):
            put(r, 0, CEDE, p, "ok", "bat", "rate", 0)
        targets = r.json()["targets"]
        self.assertEqual([len(t["points"]) for t in targets], [2, 2, 2])
        self.assertEqual([t["pass"] for t in targets], [False, None, True])
        self.assertIn("1e300", dumps(targets, 1))

    def test_digits(self):
        """As jansson writes reals with six digits."""
        for v, text in ((1.0, "1.0"), (0.0, "0.0"), (1234567.8, "1.23457e6"), (123456.7, "123457.0"), (0.00001234, "1.234e-5"),
                        (-0.5, "-0.5"), (1e300, "1e300"), (1 / 3, "0.333333")):
            self.assertEqual(real(v), text)
        self.assertEqual(dumps({"a": [], "b": {}, "c": [1, 2.0, None, True], "d": math.nan}, 1),
                         '{\n "a": [],\n "b": {},\n "c": [\n  1,\n  2.0,\n  null,\n  true\n ],\n "d": null\n}')

    def near(self, a, b, where):
        """Files have six digits."""
        if isinstance(a, dict) and isinstance(b, dict):
            self.assertEqual(a.keys(), b.keys(), where)
            for k in a:
                self.near(a[k], b[k], f"{where}.{k}")
        elif isinstance(a, list) and isinstance(b, list):
            self.assertEqual(len(a), len(b), where)
            for i, (x, y) in enumerate(zip(a, b)):
                self.near(x, y, f"{where}[{i}]")
        elif isinstance(a, float) and isinstance(b, (int, float)):
            self.assertLessEqual(abs(a - b), 2e-4 * max(abs(a), abs(b), 0.05), where)
        else:
            self.assertEqual(a, b, where)

    def test_checked_in(self):
        """Cells of results that are checked in come to what these files say."""
        seen = 0
        for path in sorted(SOURCE.glob("bench/results/**/*.json")):
            o = json.loads(path.read_text())
            if not isinstance(o, dict) or "scenario_file" not in o or "skipped" in o or "cells" not in o:
                continue
            points = scenario.read(io.BytesIO(o["scenario_file"].encode()), "x.ini", o["quick"], o["device"] == "soft")
            it = sessions(points, max(c["repeat"] for c in o["cells"]), o["device"] == "soft")
            r, cells = it.result, list(o["cells"])
            whole = it.repeats * sum(len(x.p.phases or [x.name]) for x in it.runs)
            for repeat in range(it.repeats):
                for x in it.sessions:
                    for i, name in enumerate(x.p.phases or [x.name]):
                        if len(r.cells) == len(cells) < whole:
                            break  # the run was cut off here
                        c = next((c for c in cells if c["config"] == name and c.get("alone") == x.alone and
                                  c["repeat"] == repeat + 1 and same_values(c["point"], x.p.at)), None)
                        if x.same < x.p.index:
                            c = r.at.get((repeat, x.slot + i, x.same))
                        elif c:
                            r.cells.append(c)
                        if c:
                            r.put(repeat, x.slot + i, x.p.index, c)
            self.assertEqual(len(r.cells), len(cells), path)
            now = r.json()
            for what in ("rows", "results", "targets"):
                with self.subTest(path=path, what=what):
                    self.near(now[what], o[what], what)
            seen += 1
        self.assertGreater(seen, 3)


if __name__ == "__main__":
    unittest.main()
