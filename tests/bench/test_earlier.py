"""What of an earlier run's result `cede bench run --resume` would keep: heads that differ, cells that are missing. usage:
test_earlier.py BENCH_REPORT"""
import io
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import scenario  # noqa: E402
from run import Session, differs, has_session  # noqa: E402

HEAD = {"scenario_file": "[scenario]\n", "cede_version": "0.1", "device": "nvidia", "quick": False, "hardware": "H200",
        "driver_version": "580"}


def points(text):
    return scenario.read(io.BytesIO(f"[scenario]\ntitle = t\nid = 1\n{text}".encode()), "mine.ini")


class Earlier(unittest.TestCase):
    def test_differs(self):
        for key, says in (("scenario_file", "scenario's file"), ("cede_version", "version of cede"), ("device", "another device"),
                          ("quick", "--quick"), ("hardware", "another GPU"), ("driver_version", "the driver")):
            self.assertIsNone(differs(dict(HEAD), HEAD))
            self.assertIsNone(differs({**HEAD, "date": "1999-01-01"}, HEAD))
            self.assertIn(says, differs({**HEAD, key: "other"}, HEAD))
            self.assertIsNotNone(differs({k: v for k, v in HEAD.items() if k != key}, HEAD))
        # As for `bench list`, which has not asked the GPU.
        self.assertIsNone(differs(HEAD, {**HEAD, "hardware": ""}))
        # A scenario whose text is not known is never the same.
        unknown = {k: v for k, v in HEAD.items() if k != "scenario_file"}
        self.assertIsNotNone(differs(unknown, unknown))
        self.assertIsNotNone(differs([], HEAD))

    def test_cells(self):
        s = points("configs = mps cede\n[axis k]\nvalues = 1 1234567.8\n[role r]\nload = batch\n")
        cede, mps, alone = Session(s[1], 1, config="cede"), Session(s[0], 0, config="mps"), Session(s[0], 2, alone="r")

        def has(x, config, k, repeat, status, unavailable=False, at=0, **more):
            cell = {"config": config, "point": {"k": k}, "repeat": repeat, "status": status, **more}
            return has_session({"cells": [cell]}, x, at, unavailable)
        # Six digits of a value are what a file has.
        self.assertTrue(has(cede, "cede", 1.23457e6, 2, "ok", at=1))
        self.assertFalse(has(cede, "cede", 1.23457e6, 2, "ok", at=0))
        self.assertFalse(has(cede, "cede", 1, 2, "ok", at=1))
        self.assertFalse(has(cede, "cede", 1.23457e6, 2, "failed", at=1))
        self.assertFalse(has(cede, "mps", 1.23457e6, 2, "ok", at=1))
        for cells in ([], [{"config": "cede"}, 3, None], "cells", None):
            self.assertFalse(has_session({"cells": cells}, cede, 0, False))

        self.assertTrue(has(mps, "mps", 1, 1, "ok", unavailable=True))
        self.assertTrue(has(mps, "mps", 1, 1, "unavailable", unavailable=True))
        self.assertFalse(has(mps, "mps", 1, 1, "unavailable"))

        self.assertTrue(has(alone, "alone", 1, 1, "ok", alone="r"))
        self.assertFalse(has(alone, "alone", 1, 1, "ok", alone="q"))

    def test_phases(self):
        """All phases of a session, or it is not there."""
        s = points("[role r]\nload = batch\n[phase a]\ndo = wait\n[phase b]\ndo = wait\n")
        a, b = ({"config": name, "point": {}, "repeat": 1, "status": "ok"} for name in "ab")
        self.assertTrue(has_session({"cells": [b, a]}, Session(s[0], 0), 0, False))
        self.assertFalse(has_session({"cells": [a, a]}, Session(s[0], 0), 0, False))


if __name__ == "__main__":
    unittest.main()
