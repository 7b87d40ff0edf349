"""Arithmetic of scenario files: "max(cede.latency.p99) / min(cede.latency.p99) <= 1.3", "1e6 / rate",
"alone.latency.p99 + 220us". Pure: values come from a callback.

Numbers may carry a unit: us (1), ms (1000), s (1e6), % (0.01). Functions: abs(x); min(x, y), max(x, y); min(x), max(x),
mean(x) over all points of the scenario's axes. One comparison at most: <= >= < > ==."""
import math
import operator
import re

from common import Wrong, cut, strtod

DEPTH_MAX = 32
NESTED_MAX = 2  # aggregates in each other: each goes over all points, up to 64
NUMBER_MIN, NUMBER_MAX = 1e-12, 1e15
EXPR_MAX = 1e300  # stands for what is infinite, which JSON does not have
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "%": 0.01}
OPS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq}
BLANKS = " \t\n\v\f\r"
NAME = re.compile(r"[A-Za-z0-9_.]*")


def _divide(a, b):
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _apply(f, *nodes):
    return lambda value, point, points: f(*(n(value, point, points) for n in nodes))


def _known(f):
    """Makes f return NAN if one of the values is NAN."""
    return lambda *v: math.nan if any(map(math.isnan, v)) else f(v)


def _over_points(f, node):
    """One point that is missing must not make the others look complete."""
    return lambda value, point, points: _known(f)(*(node(value, p, points) for p in points))


class _Parser:
    """Recursive descent; what it returns are functions of (value, point, points)."""

    def __init__(self, text, known):
        self.text, self.known = text, known
        self.at = self.depth = self.aggregates = 0
        self.pointwise = False

    def fail(self, what):
        raise Wrong(f"'{self.text}': {what} at '{cut(self.text[self.at:], 20)}'")

    def accept(self, word):
        while self.at < len(self.text) and self.text[self.at] in BLANKS:
            self.at += 1
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def expect(self, word):
        if not self.accept(word):
            self.fail(f"'{word}' is missing")

    def number(self):
        v, end = strtod(self.text, self.at)
        if v is None or self.text.startswith("-", self.at):
            self.fail("a number, a name or a bracket is missing")
        if v > NUMBER_MAX or 0 < v < NUMBER_MIN:
            self.fail("a number has to be 0, or from 1e-12 to 1e15,")
        self.at = end
        for unit, factor in UNITS.items():
            after = self.text[end + len(unit):end + len(unit) + 1]
            if self.text.startswith(unit, end) and not (after.isascii() and after.isalnum()):
                self.at += len(unit)
                v *= factor
                break
        return lambda value, point, points: v

    def two(self):
        """Tells whether two arguments follow the bracket that is open."""
        level = 0
        for c in self.text[self.at:]:
            level += (c == "(") - (c == ")")
            if level < 0 or (c == "," and level == 0):
                return level == 0
        return False

    def call(self, function):
        folds = {"min": min, "max": max, "mean": lambda v: sum(v) / len(v)}
        if function == "abs":
            node = _apply(abs, self.sum())
        elif function not in folds:
            self.fail("no such function")
        elif function != "mean" and self.two():
            left = self.sum()
            self.expect(",")
            node = _apply(_known(folds[function]), left, self.sum())
        elif self.aggregates == NESTED_MAX:
            self.fail("too many of min, max and mean inside each other")
        else:
            self.aggregates += 1
            node = _over_points(folds[function], self.sum())
            self.aggregates -= 1
        self.expect(")")
        return node

    def name(self):
        word = NAME.match(self.text, self.at)[0]
        if len(word) >= 96:
            self.fail("name too long")
        if self.text.startswith("(", self.at + len(word)):
            self.at += len(word) + 1
            return self.call(word)
        self.pointwise |= self.aggregates == 0
        if not self.known(word):
            self.fail("no such name")
        self.at += len(word)
        return lambda value, point, points: value(word, point)

    def primary(self):
        self.accept("")
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail("too many brackets")
        if self.accept("-"):
            node = _apply(operator.neg, self.primary())
        elif self.accept("("):
            node = self.sum()
            self.expect(")")
        elif re.match("[A-Za-z]", self.text[self.at:]):
            node = self.name()
        else:
            node = self.number()
        self.depth -= 1
        return node

    def chain(self, step, signs):
        node = step()
        while True:
            sign = next((s for s in signs if self.accept(s)), None)
            if not sign:
                return node
            node = _apply(signs[sign], node, step())

    def sum(self):
        return self.chain(lambda: self.chain(self.primary, {"*": operator.mul, "/": _divide}),
                          {"+": operator.add, "-": operator.sub})


class Expression:
    """A text that has been parsed. known(name) tells whether there is such a name. Raises Wrong with what is wrong and where.
    It is pointwise if a name stands outside of all that goes over points, because another point has another value then."""

    def __init__(self, text, known):
        p = _Parser(text, known)
        self.left, self.right = p.sum(), None
        self.op = next((op for op in OPS if p.accept(op)), "")
        if self.op:
            self.right = p.sum()
        p.accept("")
        if p.at < len(text):
            p.fail("not understood")
        self.pointwise = p.pointwise

    def sides(self, value, point=0, points=None):
        """Returns the values of both sides; the right one is NAN without a comparison. value(name, point) is NAN for what was
        not measured; points are all that there are."""
        def side(node):
            v = node(value, point, [point] if points is None else points)
            return math.copysign(EXPR_MAX, v) if math.isinf(v) else float(v)
        return side(self.left), side(self.right) if self.right else math.nan


def holds(op, left, right):
    """Tells whether the comparison holds. It does not if a side is NAN."""
    if op:
        return OPS[op](left, right)
    return not math.isnan(left) and left != 0


def unit_of(text):
    """Returns the unit of a limit and its factor: ("ms", 1000) for "a.p99 < 40ms", ("", 1) if it has no unit."""
    text = text.rstrip(BLANKS)
    for unit, factor in UNITS.items():
        if text.endswith(unit) and text[-len(unit) - 1:-len(unit)] in list("0123456789"):
            return unit, factor
    return "", 1.0
