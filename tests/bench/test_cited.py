"""Figures of pages against the results: those in the tree are right and have sources, and each way to be wrong is found and named
with its line. usage: test_cited.py BENCH_REPORT SOURCE"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

SOURCE = pathlib.Path(sys.argv[2])
sys.path[:0] = [sys.argv[1], str(SOURCE / "bench/cited")]
import cited  # noqa: E402
import made  # noqa: E402
from common import Wrong  # noqa: E402


def summary(v):
    return {"median": v, "min": v - 1, "max": v + 1, "n": 3}


def row(config, k, p99, share):
    return {"config": config, "point": {"k": k}, "roles": {"r": {"p99_us": summary(p99), "share": summary(share)}}}


BENCH = {"scenario": "speed", "date": "2026-11-27", "hardware": "NVIDIA H100 80GB HBM3", "cede_version": "0.1.0-g54242ea8", "pass": False,
         "rows": [row("alone", 1, 100.4, 1), row("alone", 2, 200, 1), row("cede", 1, 150.6, 0.9544), row("cede", 2, 1250, 0.5)],
         "targets": [{"name": "in time", "check": "cede.r.p99 <= 220us", "pass": False, "points": [
             {"point": {"k": 1}, "value": summary(150.6), "limit": summary(220), "pass": True},
             {"point": {"k": 2}, "value": summary(1250), "limit": summary(220), "pass": False}]},
                     {"name": "kept", "check": "cede.r.share > 0", "pass": True, "points": [
                         {"point": {"k": 1}, "value": summary(0.9), "limit": summary(0), "pass": True}]}]}
OTHER = {"gpu": "NVIDIA H200, 580.159.04", "runs": [{"way": "a b", "at": [1, 2]}, {"way": "c", "at": [5, 9]}], "one": {"x-y": 7}}

# What a list and a page say -> what is said of them.
CASES = [
    ("p99 {B.cede.r.p99[k=1] :us0} us", "p99 151 us\n", None),
    ("p99 {B.cede.r.p99[k=1] :us0} us", "\n\np99 152\nus\n", "README.md:3: 152 is 151 by B.cede.r.p99[k=1]"),
    ("p99 {B.cede.r.p99[k=2] :ms2} ms", "p99 1.25 ms\n", None),
    ("**{B.cede.r.p99.max[k=1] - B.alone.r.p99[k=1] :us1}**", "**51.2**\n", None),
    ("{min(B.cede.r.p99) :g} to {max(B.cede.r.p99 / B.alone.r.p99) :1}", "150.6 to 6.2\n", None),
    ("{B.cede.r.p99 :us0} us", "1 us\n", "names 2 things"),
    ("{B.cede.r.p50[k=1] :us0} us", "1 us\n", "has no B.cede.r.p50[k=1]"),
    ("{X.cede.r.p99[k=1] :us0} us", "1 us\n", "no file X"),
    ("{O.runs[way=c].at.1 :0} of {O.one.x_y :0}, {max(O.runs[way=a_b].at) :0}", "9 of 7, 2\n", None),
    ("for 1 2: | {$ :0} | {B.alone.r.p99[k=$] :us0} us |", "| 1 | 100 us |\n| 2 | 200 us |\n", None),
    ("for 1 2: | {$ :0} | {B.alone.r.p99[k=$] :us0} us |", "| 1 | 100 us |\n| 2 | 201 us |\n", "README.md:2: 201 is 200"),
    ("all {B.cede.r.share[k=1] :%1} %", "none\n", "README.md:1: from here on the page lacks: all"),
    ("a {B.cede.r.share[k=1] :3}\nb {B.cede.r.share[k=2] :1}", "b 0.5, a 0.954\n", "the page lacks: b"),
    ("", "Some.\nIt took 3 ms.\n", "README.md:2: no source for '3 ms.'"),
    ("", "| a | b |\n|---|---|\n| 12 | 34 |\n", "README.md:3: no source for '34 |'"),
    ("", "It was 3 to 5 % here, `4 ms` on 2026-11-27 with 580.159.04 on an H100: p99, [5 us](x/4.5).\n", "no source for '3 to 5 %"),
    ("given every # ms", "every 3 ms\n", None),
    ("given every # ms", "every 3 ms, in 4 ms\n", "no source for '4 ms'"),
    ("given every # ms", "never\n", "the page lacks what is given"),
    ("by-hand about # us", "about 3 us\n", "seen by hand, without docs/nvidia-measurements.md"),
    ("by-hand about # us", "about 3 us (2026-11-21, [by hand](nvidia-measurements.md))\n", None),
    ("reported 3 us", "3 us\n", "reported by others, without a link"),
    ("reported 3 us", "3 us, [X](https://example.com)\n", None),
]


class Cited(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        (self.top / "bench/cited").mkdir(parents=True)
        made.read.cache_clear()
        self.results = self.top / "bench/results"
        self.results.mkdir()
        for name, o in (("b", BENCH), ("o", OTHER)):
            (self.results / f"{name}.json").write_text(json.dumps(o))

    def page(self, words, text, blocks=None):
        (self.top / "bench/cited/readme.txt").write_text(f"whole\nfile B b.json\nfile O o.json\n\n{words}\n")
        (self.top / "README.md").write_text(text)
        return cited.Page(self.top, "README.md", cited.Results(self.results), blocks or {})

    def test_checked_in(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = cited.main([])
        self.assertEqual((status, out.getvalue()), (0, ""), "write the figures anew: python3 bench/cited/cited.py --write")

    def test_all_files_are_there(self):
        """Each page with figures of its own has a list, and each list a page."""
        names = cited.pages(SOURCE)
        self.assertIn("docs/evidence.md", names)
        self.assertTrue(all((SOURCE / n).exists() for n in names))
        self.assertTrue(all(cited.List(SOURCE / f"bench/cited/{n}.txt").whole for n in ("readme", "evidence")))

    def test_results_say_where_they_come_from(self):
        """Each program that writes a result takes its head from one helper, which finds the commit of what was measured."""
        programs = [p for folder in ("programs", "programs/served", "interference") for p in (SOURCE / "bench" / folder).glob("*.py")]
        writers = [p for p in [*programs, SOURCE / "bench/checks.py"] if "json.dump(" in p.read_text() or p.name == "checks.py"]
        self.assertGreater(len(writers), 10)
        lacking = [p.name for p in writers if "provenance." not in p.read_text() and p.name != "study.py"]  # which measures nothing
        self.assertEqual(lacking, [])
        made.program("frontier")  # puts the programs on the path
        import provenance
        for version, commit in (("cede 0.1.0-g54242ea8", "54242ea8"), ("0.1.0+git929.g18f2fb0", "18f2fb0"),
                                ("cede 0.1.0-g7163e543-dirty", "7163e543-dirty"), ("0.2.0+git5.g18f2fb0.dirty", "18f2fb0-dirty")):
            self.assertEqual(provenance.commit(version), commit)
        with unittest.mock.patch.dict(provenance.os.environ, {"CEDE_COMMIT": "abcdef12"}):
            self.assertEqual(provenance.commit("cede 0.1.0"), "abcdef12")
        self.assertEqual(set(provenance.head()), {"date", "gpu", "driver", "kernel", "command", "commit"})

    def test_cases(self):
        for words, text, fault in CASES:
            with self.subTest(words=words, text=text):
                faults = self.page(words, text).faults
                if fault:
                    self.assertIn(fault, "\n".join(faults))
                else:
                    self.assertEqual(faults, [])

    def test_written(self):
        p = self.page("p99 {B.cede.r.p99[k=1] :us0} us, then\n {B.alone.r.p99[k=1] :us1}", "A p99 ? us,\nthen 99 or not\n")
        self.assertEqual(p.fixed(), "A p99 151 us,\nthen 100.4 or not\n")

    def test_wrong_lists(self):
        for words, text in (("p99 151 us", "no figure in"), ("p99 {B.cede.r.p99[k=1] :7us} us", "no such format")):
            with self.subTest(words=words):
                try:
                    faults = "\n".join(self.page(words, "p99 151 us\n").faults)
                except Wrong as e:
                    faults = str(e)
                self.assertIn(text, faults)

    def test_missed(self):
        text = made.missed(self.results)
        self.assertIn("| `speed` | `cede.r.p99 <= 220us` | 1 of 1 | 1250 us | **missed**, H100, 2026-11-27, 54242ea8 |\n", text)
        self.assertNotIn("share", text)
        page = "<!-- made: missed -->\nold 1.5 ms\n<!-- end -->\n"
        p = self.page("", page, made.blocks(self.results))
        self.assertIn("README.md:1: the block 'missed'", p.faults[0])
        self.assertEqual(self.page("", p.fixed(), made.blocks(self.results)).faults, [])

    def test_runs(self):
        self.assertIn("| H100, H200 | 580.159.04 | 54242ea8, ? | **b**, o |", made.runs(self.results))
        (self.results / "commits.txt").write_text("# A comment.\n. abcdef12\n")
        self.assertIn("54242ea8, before abcdef12", made.runs(self.results))

    def test_frontier(self):
        """A pair in which cede is as good as any, and one in which MPS gives the other more."""
        self.assertEqual(made.frontier(self.results), "")

        def rate(v, p99=None):
            return {"rate": v, "p50_us": 10, "p99_us": p99} if p99 else {"rate": v}
        rows = [{"system": "alone", "pair": o, "measured": {o: rate(10)}} for o in ("gpt", "fft")]
        for other, mps in (("gpt", 4), ("fft", 6)):
            rows += [{"system": s, "pair": f"resnet+{other}", "measured": {"resnet": rate(speed, 100), other: rate(kept)}, "alone": rate(100, 50)}
                     for s, speed, kept in (("default", 50, 5), ("mps", 96, mps), ("cede", 95, 4), ("cede --min-speed 80%", 80, 6))]
        made.read.cache_clear()
        for name, date, had in (("frontier", "2026-11-28", rows), ("frontier-before", "2026-11-27", rows[:-4])):
            (self.results / f"{name}.json").write_text(json.dumps({"gpu": "NVIDIA H100 80GB HBM3", "driver": "580.159.04", "date": date,
                                                                   "cede": "cede 0.1.0-g9f49d1f1", "rows": had}))
        text = made.frontier(self.results)
        self.assertTrue(text.startswith("## Programs that people run\n\nNVIDIA H100 80GB HBM3, driver 580.159.04, 2026-11-28, 9f49d1f1, "))
        self.assertIn("| server + other | default | MPS with priorities | cede | |\n", text)
        self.assertIn("| resnet + gpt | 0.50; 2.00 x; 0.50 | 0.96; 2.00 x; 0.40 | **0.95**; 2.00 x; 0.40 | met |\n", text)
        self.assertIn("0.96; 2.00 x; 0.60 | **0.95**; 2.00 x; 0.40 | **missed**, behind mps |\n", text)
        self.assertIn("**met in 1 of 2 pairs, 1 with each server's median speed alone**", text)
        self.assertIn(" An earlier run ([2026-11-27](../bench/results/frontier-before.json), 9f49d1f1): 1 of 1 pairs, 1 with each", text)
        self.assertEqual(text.count("| server + other |"), 1)
        self.assertIn("(figures/frontier-h100.svg)", text)
        self.assertEqual(made.frontier(self.results, "resnet+gpt").count("resnet"), 1)
        self.assertEqual(made.servers(self.results), "")  # neither of its pairs was measured
        made.SERVERS = {"resnet+gpt": "pictures"}
        self.assertIn("| pictures: its speed | 1 | 0.50 | 0.96 | 0.95 |\n| what the training keeps | 1 | 0.50 | 0.40 | 0.40 |\n",
                      made.servers(self.results))
        drawn = made.frontier_points(json.loads((self.results / "frontier.json").read_text()))
        self.assertEqual(drawn["resnet + gpt"]["MPS with priorities"], (0.96, 0.4))
        self.assertEqual(len(drawn["resnet + fft"]), 4)

    def test_arrangements(self):
        """One pair chosen well, and one in which the other row was better by the programs' own count."""
        self.assertEqual(made.arrangements(self.results), "")

        def pair(chosen):
            counted = [[0.5, 0.5], [1.0, 0.1], [0.7, 0.6]]
            return {"pair": ["copy", "fft"], "counted": counted, "best": 2,
                    "told": {"best": chosen, "rows": [{"speeds": s, "sum": sum(s)} for s in counted]}}
        made.read.cache_clear()
        (self.results / "arrangements.json").write_text(json.dumps({"gpu": "NVIDIA H200", "driver": "580.159.04", "date": "2026-11-28",
                                                                    "pairs": [pair(2), pair(0)]}))
        text = made.arrangements(self.results)
        self.assertIn("| copy + fft | 1.00 (1.00) | 1.10 (1.10) | 1.30 (1.30) | halves |\n", text)
        self.assertIn("| turns, the best: halves |\n", text)
        self.assertIn("| cede advise | 1.15 | 0 | 1 of 2 |\n", text)
        self.assertIn("| always together | 1.10 | 2 | 0 of 2 |\n", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
