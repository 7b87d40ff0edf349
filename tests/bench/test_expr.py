"""The arithmetic of scenario files. usage: test_expr.py BENCH_REPORT (a folder)"""
import math
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
from common import Wrong  # noqa: E402
from expr import OPS, Expression, holds, unit_of  # noqa: E402


def value(name, point):
    """x is 10 times the point, hole is missing at point 1."""
    return 10.0 * point if name == "x" else math.nan if point == 1 else 1.0


def expression(text):
    return Expression(text, lambda name: name in ("x", "a.hole.us"))


def left(text):
    return expression(text).sides(value, 2, range(4))[0]


class Expressions(unittest.TestCase):
    def test_arithmetic(self):
        for text, v in (
                ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("8 / 2 / 2", 2), ("5 - 2 - 1", 2), ("-x + 1", -19), ("220us", 220),
                ("1.5ms", 1500), ("2s", 2e6), ("0.2%", 0.002), ("abs(3 - x)", 17), ("max(x)", 30), ("min(x)", 0),
                ("mean(x)", 15), ("x / max(x)", 2 / 3), ("max(x - 5) - min(x)", 25), ("max(abs(x - 15))", 15),
                ("1e6 / x", 5e4), ("min(x, 3)", 3), ("max(x, min(x))", 20), ("min(max(x), 2 * (x + 1))", 30),
                ("1 / 0", 1e300), ("-1 / 0", -1e300), ("2 - -x", 22), ("0x10", 16)):
            self.assertAlmostEqual(left(text), v, 9, text)

    def test_pointwise(self):
        """Whether an expression has a value of its own at every point."""
        for text, pointwise in (("x", True), ("1 + 2", False), ("max(x) / min(x) <= 1", False), ("x / max(x)", True),
                                ("min(x, 3) < 1", True), ("max(min(x, 3))", False), ("1 < x", True),
                                ("max(x) < min(x)", False)):
            self.assertEqual(expression(text).pointwise, pointwise, text)

    def test_comparisons(self):
        for text, met in (("1 <= 1", True), ("1 < 1", False), ("2 >= 1", True), ("1 > 2", False), ("1 == 1", True),
                          ("1 == 2", False), ("x < 21", True), ("1 + 1 == 2", True)):
            e = expression(text)
            self.assertTrue(e.op)
            self.assertEqual(holds(e.op, *e.sides(value, 2, range(4))), met, text)

    def test_missing(self):
        """What was not measured may not turn into a number, nor into a target that is met."""
        for text in ("max(a.hole.us)", "min(a.hole.us)", "mean(a.hole.us)", "min(1, max(a.hole.us))", "0 / 0"):
            self.assertTrue(math.isnan(left(text)), text)
        for op in ["", *OPS]:
            self.assertFalse(holds(op, math.nan, math.nan))
            self.assertFalse(op and holds(op, 1, math.nan))

    def test_mistakes(self):
        for text in ("", "1 +", "(1", "1 2", "y", "f(1)", "max(x", "1 <= ", "1 <= 2 3", "1 <= 2 <= 3", "1 & 2", "min(1, 2, 3)",
                     "mean(1, 2)", "abs(1, 2)", "min(1,", "2 ** 3x", "1 = 1", "(" * 199, "-" * 199, "1e99", "__import__('os')",
                     "max(max(max(x)))", "x.__class__", "1_000", "x" * 100):
            with self.assertRaises(Wrong, msg=text) as e:
                expression(text)
            self.assertIn(f"'{text}'", str(e.exception))

    def test_unit(self):
        for text, unit, factor in (("a.p99 < 40ms", "ms", 1e3), ("a - b <= 220us", "us", 1), ("max(a) < 3s ", "s", 1e6),
                                   ("a.cpu < 0.5%", "%", 0.01), ("a >= 0.9 * b", "", 1), ("a.us", "", 1), ("40ms > a.p99", "", 1),
                                   ("ms", "", 1), ("", "", 1)):
            self.assertEqual(unit_of(text), (unit, factor), text)


if __name__ == "__main__":
    unittest.main()
