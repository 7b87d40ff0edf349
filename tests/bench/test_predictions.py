"""What results that are checked in say was predicted is what is predicted now, from what was measured.

usage: test_predictions.py CEDE BENCH_INTERFERENCE SOURCE [--write]"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

WRITE = "--write" in sys.argv
CEDE, SUITE, SOURCE = [a for a in sys.argv[1:] if a != "--write"][:3]
RESULTS = pathlib.Path(SOURCE, "bench/results")


def alike(a, b):
    """The same, but for rounding by another compiler."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-3 * max(1, abs(a))
    return a == b


class Predictions(unittest.TestCase):
    def compare(self, checked_in, now):
        had, has = json.loads(checked_in.read_text()), json.loads(now.read_text())
        has = {k: has.get(k, v) for k, v in had.items()}  # what is added by hand stays
        if WRITE:
            checked_in.write_text(json.dumps(has, indent=1) + "\n")
        else:
            self.assertTrue(alike(had, has), f"{checked_in}: other predictions; --write puts them there")

    def test_suite(self):
        files = sorted(RESULTS.glob("*/interference.json"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file=file), tempfile.TemporaryDirectory() as folder:
                now = pathlib.Path(folder, "now.json")
                subprocess.run([sys.executable, "-B", pathlib.Path(SOURCE, "bench/interference/suite.py"), SUITE, "--again", file,
                                "--json", now], check=True, stdout=subprocess.DEVNULL)
                self.compare(file, now)

    def test_advice(self):
        files = sorted(RESULTS.glob("*/advice.json"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file=file), tempfile.TemporaryDirectory() as folder:
                shutil.copytree(file.parent / "profiles", pathlib.Path(folder, "profiles"))
                now = pathlib.Path(shutil.copyfile(file, pathlib.Path(folder, "advice.json")))
                subprocess.run([sys.executable, "-B", pathlib.Path(SOURCE, "bench/programs/advice.py"), "--again", CEDE, now],
                               check=True, stdout=subprocess.DEVNULL)
                self.compare(file, now)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
