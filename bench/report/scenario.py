"""A scenario file: which programs run together, in which configurations, at which points, what has to come out. Reads and
checks all of it, so that a mistake shows before the hours of measuring; every message names the file, the line and the key.
Runs nothing. The syntax is in cede-scenario(5); lines are understood as inih does it, which reads cede.conf."""
import copy
import math
import os
import re

from common import Wrong, cut, parse_double
from expr import Expression
from figures import known_figure

TEXT_MAX = 639  # bytes of a value
LINE_MAX = 199  # and of a line
POINTS_MAX, VALUES_MAX, PROGRAMS_MAX = 64, 12, 64
VALUE_MIN, VALUE_MAX = 1e-9, 1e12  # of an axis: 0, or a value from the one to the other, or as much below 0

# Kinds of values. An expression has to come to lo..hi at every point, a number to be lo..hi.
TEXT = {"kind": "text"}
LINES = {"kind": "text", "lines": True}  # may be given several times
BRACES = {"kind": "braces"}  # {expression} is replaced
BRACES_LINES = {"kind": "braces", "lines": True}
LENIENT = {"kind": "braces", "lenient": True}  # other braces stay
LENIENT_LINES = {"kind": "braces", "lenient": True, "lines": True}


def _expression(lo, hi):
    return {"kind": "expression", "lo": lo, "hi": hi}


def _number(lo, hi, whole=False, default=0.0):
    return {"kind": "number", "lo": lo, "hi": hi, "whole": whole, "default": default}


# Sections, [scenario] and [WORD NAME]: how many there may be, and their keys.
SECTIONS = {
    "scenario": (1, {
        "title": TEXT, "id": TEXT, "reference": TEXT, "shows": LINES, "note": LINES, "needs": TEXT, "configs": TEXT,
        "figure": LINES, "seconds": _expression(0.1, 600), "memory_mib": _expression(0, 1e12),
        "quick_seconds": _number(0.1, 600), "settle": _number(0, 60, default=0.5), "gpus": _number(1, 16, True, 1.0),
        "repeat": _number(1, 100, True, 3.0), "quick_repeat": _number(1, 100, True, 1.0)}),
    "config": (10, {
        "base": TEXT, "policy": TEXT, "conf": BRACES_LINES, "set": BRACES_LINES, "options": BRACES_LINES,
        "run": LENIENT_LINES, "start": LENIENT, "stop": LENIENT, "wrap": BRACES, "env": BRACES_LINES}),
    "axis": (2, {"values": TEXT, "quick": TEXT, "soft": TEXT}),
    "role": (6, {
        "load": BRACES, "program": BRACES, "soft": BRACES, "count": _expression(1, PROGRAMS_MAX), "class": TEXT,
        "weight": _expression(0, 10000), "set": BRACES, "alone": TEXT, "start": TEXT, "ready": _number(1, 600)}),
    "phase": (8, {"do": LENIENT_LINES, "takes": _expression(0, 3600), "seconds": _number(0.1, 600)}),
    "target": (12, {"check": TEXT, "when": TEXT, "only": TEXT}),
}
OF_VERB, OF_DAEMON = {"us", "pause", "resume"}, {"cpu"}
OF_ROLE = {"requests", "p50", "p90", "p99", "p999", "max", "mean", "rate", "share", "share_min", "share_max", "rate_min",
           "rate_max", "late", "work", "cpu", "count", "speed"}


class Point:
    """A scenario at one of its points: sections by word and name, {expression}s replaced and amounts worked out."""

    def __init__(self, sections):
        self.index, self.at, self.sections = 0, {}, sections
        self.top = sections["scenario"][""]
        self.roles, self.configs, self.phases, self.targets = (sections[w] for w in ("role", "config", "phase", "target"))

    def window(self, phase=None):
        """Returns how many seconds are measured."""
        seconds = self.top["seconds"]
        return min(phase["seconds"], seconds) if phase and phase["seconds"] > 0 else seconds

    def has_metric(self, role, name):
        """Tells whether results can have ROLE.METRIC, with or without its unit."""
        names = {"verb": OF_VERB, "ceded": OF_DAEMON}.get(role, OF_ROLE)
        return (role in self.roles or role in ("ceded", "verb")) and \
            (name[:-3] if len(name) > 3 and name.endswith("_us") else name) in names

    def knows(self, name):
        """Tells whether a target may use the name: an axis, or CONFIGURATION.ROLE.METRIC."""
        words = name.split(".", 2)
        places = self.phases or ["alone", *self.configs]
        return name in self.at or (len(words) == 3 and words[0] in places and self.has_metric(*words[1:]))

    def number(self, text, otherwise):
        """Returns the value of an expression over the axes, and `otherwise` for ""."""
        if not text:
            return otherwise
        return Expression(text, self.at.__contains__).sides(lambda name, _: self.at[name])[0]

    def expand(self, text, lenient):
        """Replaces {expression}. If lenient, braces with anything else in them and ${...} stay, as a shell command has them."""
        out, at = "", 0
        while at < len(text):
            brace = text[at] == "{" and not (lenient and at and text[at - 1] == "$")
            end = text.find("}", at) if brace else -1
            v = None
            if end >= 0:
                try:
                    v = self.number(text[at + 1:end], 0.0)
                except Wrong:
                    if not lenient:
                        raise
            elif brace and not lenient:
                raise Wrong(f"'{{' without '}}' in '{text[at:]}'")
            if v is not None and not math.isfinite(v):
                raise Wrong(f"{{{text[at + 1:end]}}} is {v:g}: must be a finite number")
            out += text[at] if v is None else f"{v:.10g}"
            at = at + 1 if v is None else end + 1
        if len(os.fsencode(out)) > TEXT_MAX:
            raise Wrong(f"'{cut(out, 40)}...' is too long")
        return out


def _range(key, k, value):
    what = "whole number" if k.get("whole") else "number"
    return Wrong(f"{key} = {cut(value, 80)}: must be a {what} from {k['lo']:.10g} to {k['hi']:.10g}")


def _comment_or(text, chars):
    """Returns where one of these characters is, or a comment behind a blank begins, or else the end."""
    m = re.search(rb"[" + re.escape(chars) + rb"]|(?<=[ \t\n\v\f\r]);" if chars else rb"(?<=[ \t\n\v\f\r]);", text)
    return m.start() if m else len(text)


class _Reader:
    def __init__(self, path, quick, soft):
        self.path, self.quick, self.soft = path, quick, soft
        self.name = cut(os.path.basename(path).split(".")[0], 23)
        self.line = 0
        self.lines = {}  # (word, name, key): the line in which the text was given first
        self.sections = {word: {} for word in SECTIONS}
        self.entry("scenario", "")

    def fail(self, text):
        raise Wrong(f"{self.path}:{self.line}: {text}")

    def complain(self, what, which):
        self.fail(f"{what} '{cut(which, 80)}'")

    def go_to(self, *text):
        """Makes what is complained about from here on be in the line of that text."""
        self.line = self.lines.get(text, self.line)

    # ---- lines ----

    def entry(self, word, name):
        """Returns the section [WORD NAME], which is made if it is new, or None if there cannot be such a section."""
        most, keys = SECTIONS[word]
        entries = self.sections[word]
        if name not in entries:
            sentence = word in ("target", "scenario")
            if len(os.fsencode(name)) > (TEXT_MAX if sentence else 23) or len(entries) == most or \
                    not (sentence or re.fullmatch("[a-z_][a-z0-9_]*", name)):
                return None
            entries[name] = {key: k.get("default", "") for key, k in keys.items()}
        return entries[name]

    def put(self, section, key, value):
        section, key, value = (b.decode("utf-8", "surrogateescape") for b in (section, key, value))
        word, _, name = section.partition(" ")
        if len(os.fsencode(section)) >= 49:
            self.complain("section's name too long:", section)
        if word not in SECTIONS or (word == "scenario") != (word == section):
            self.complain("unknown section", section)
        to, keys = self.entry(word, name), SECTIONS[word][1]
        if to is None:
            self.complain("bad name, or too many sections:", section)
        if key not in keys:
            self.complain("unknown key", key)
        k = keys[key]
        if re.search("[\ud800-\udfff]", value):
            self.complain("not UTF-8:", key)
        if k["kind"] == "number":
            v = parse_double(value, k["lo"], k["hi"])
            if v is None or (k["whole"] and v != int(v)):
                self.fail(_range(key, k, value))
            to[key] = v
            return
        if to[key] and not k.get("lines"):
            self.complain("given twice:", key)
        if len(os.fsencode(to[key] + value)) >= TEXT_MAX:
            self.complain("too long:", value)
        if not to[key]:
            self.lines[word, name, key] = self.line
        to[key] += ("\n" if to[key] else "") + value

    def read(self, f):
        section = previous = b""
        bad = 0  # the first line that is neither a section nor a key
        while True:
            line = f.readline(LINE_MAX)
            if not line:
                break
            self.line += 1
            whole = line.split(b"\0")[0]
            if len(whole) >= LINE_MAX and b"\n" not in whole:
                self.complain("line too long:", whole.decode("utf-8", "surrogateescape"))
            if self.line == 1 and whole.startswith(b"\xef\xbb\xbf"):
                whole = whole[3:]
            text = whole.strip()
            if not text or text[:1] in b";#":
                continue
            if previous and whole[:1].isspace():  # a line that goes on with the one before
                self.put(section, previous, text[:_comment_or(text, b"")].rstrip())
            elif text[:1] == b"[":
                end = 1 + _comment_or(text[1:], b"]")
                if text[end:end + 1] == b"]":
                    section, previous = text[1:end][:49], b""
                else:
                    bad = bad or self.line
            else:
                end = _comment_or(text, b"=:")
                if text[end:end + 1] in (b"=", b":"):
                    key, value = text[:end].rstrip(), text[end + 1:]
                    previous = key[:49]
                    self.put(section, key, value[:_comment_or(value, b"")].strip())
                else:
                    bad = bad or self.line
        if bad:
            self.line = bad
            self.complain("not understood, in", self.name)

    # ---- after reading ----

    def values(self, axis, key):
        """Returns the values in a list of an axis."""
        text, v = self.sections["axis"][axis][key], []
        self.go_to("axis", axis, key)
        for word in re.split("[ \t]+", text.strip(" \t")) if text.strip(" \t") else []:
            if len(v) == VALUES_MAX:
                self.complain("too many values:", text)
            v.append(parse_double(word, -VALUE_MAX, VALUE_MAX))
            if v[-1] is None or (v[-1] != 0 and abs(v[-1]) < VALUE_MIN):
                self.fail(f"{key} = ... {cut(word, 40)}: must be numbers: 0, or from {VALUE_MIN:g} to {VALUE_MAX:g}, "
                          "or as much below 0")
        return v

    def axes(self):
        """Returns the values of each axis. All lists are checked, one is used."""
        chosen = {}
        for name, axis in self.sections["axis"].items():
            lists = {key: self.values(name, key) for key in ("values", "quick", "soft")}
            use = "soft" if self.soft and axis["soft"] else "quick" if self.quick and axis["quick"] else "values"
            chosen[name] = lists[use]
            if not lists[use]:
                self.complain("no values for axis", name)
        if math.prod(map(len, chosen.values())) > POINTS_MAX:
            self.complain("too many points in", self.name)
        return chosen

    def resolve(self, p, word, name, key):
        """Replaces what a text has in braces, or works out an amount."""
        k, to = SECTIONS[word][1][key], p.sections[word][name]
        try:
            if k["kind"] == "braces":
                to[key] = p.expand(to[key], k.get("lenient"))
            elif k["kind"] == "expression":
                to[key] = p.number(to[key], float(k["lo"]))
        except Wrong as e:
            self.go_to(word, name, key)
            self.fail(f"{key}: {e}")
        if k["kind"] == "expression" and not k["lo"] <= to[key] <= k["hi"]:
            self.go_to(word, name, key)
            self.fail(_range(key, k, f"{to[key]:g}"))

    def points(self, axes):
        """Returns the scenario at every point, so that what is wrong with a text shows now. The last axis runs fastest."""
        found = []
        for i in range(math.prod(map(len, axes.values()))):
            p = Point(copy.deepcopy(self.sections))
            rest, p.index = i, i
            for name, values in reversed(axes.items()):
                rest, at = divmod(rest, len(values))
                p.at = {name: values[at], **p.at}
            for word, (_, keys) in SECTIONS.items():
                for name in p.sections[word]:
                    for key in keys:
                        self.resolve(p, word, name, key)
            if self.quick:
                p.top["seconds"] = p.top["quick_seconds"] if p.top["quick_seconds"] > 0 else p.top["seconds"] / 3
                if self.soft:  # the software GPU's times are exact, so windows may be short
                    p.top["seconds"] = min(p.top["seconds"], 0.6)
            found.append(p)
        return found

    def configs(self):
        """Puts the configurations in the order of the list, which has to have all of them."""
        order, texts = {}, self.sections["config"]
        self.go_to("scenario", "", "configs")
        for word in filter(None, self.sections["scenario"][""]["configs"].split(" ")):
            if word in order or self.entry("config", word) is None:
                self.complain("bad name, named twice, or too many configurations:", word)
            order[word] = texts[word]
        for name in texts:
            if name not in order:
                self.complain("not among the configs:", name)
        for name, c in order.items():
            c["base"] = c["base"] or name
            if c["base"] not in ("default", "mps", "cede", "other"):
                self.complain("base has to be default, mps, cede or other for", name)
        self.sections["config"] = order

    def check_figure(self, p, line):
        """Tells whether a figure's words are axes and ROLE.METRIC, or a role for a cdf."""
        kind, *words = line.split() or [""]
        for w in words:
            role, dot, name = w.partition(".")
            if not (p.has_metric(role, name) if dot else role in (p.roles if kind == "cdf" else p.at)):
                return False
        return known_figure(line)

    def check_target(self, p, name, key):
        text = p.targets[name][key]
        self.go_to("target", name, key)
        try:
            if text or key == "check":
                Expression(text, p.knows)
        except Wrong as e:
            self.fail(f"target '{name}': {e}")

    def complete(self):
        top = self.sections["scenario"][""]
        top["seconds"] = top["seconds"] or "4"
        axes = self.axes()
        points = self.points(axes)
        self.configs()
        roles, configs, phases = (self.sections[w] for w in ("role", "config", "phase"))
        if not (top["title"] and top["id"] and roles):
            self.complain("title, id and a role are needed in", self.name)
        if bool(configs) == bool(phases):
            self.complain("either configs or phases are needed in", self.name)
        self.go_to("scenario", "", "figure")
        for line in filter(None, top["figure"].split("\n")):
            if not self.check_figure(points[0], line):
                self.complain("not a figure of these axes and ROLE.METRICs:", line)
        for name, r in roles.items():
            if bool(r["load"]) == bool(r["program"]):
                self.complain("either load or program is needed in role", name)
            if self.soft and r["program"] and r["soft"]:
                r["load"], r["program"], top["needs"] = r["soft"], "", ""  # these were the needs of the program
            r["ready"] = r["ready"] or (180.0 if r["program"] else 60.0)
        if self.quick:
            top["repeat"] = top["quick_repeat"]
        if self.quick and self.soft:
            top["settle"] = min(top["settle"], 0.25)
        points = self.points(axes)
        for name in self.sections["target"]:
            self.check_target(points[0], name, "check")
            self.check_target(points[0], name, "when")
        return points


def read(f, path, quick=False, soft=False):
    """Reads an open binary file. Returns one Point for each point. Raises Wrong."""
    r = _Reader(path, quick, soft)
    r.read(f)
    return r.complete()


def load(path, quick=False, soft=False):
    """Reads a file. Returns one Point for each point, the file's text (None if it is not UTF-8 or too long) and the scenario's
    name. Raises Wrong."""
    try:
        with open(path, "rb") as f:
            points = read(f, path, quick, soft)
            f.seek(0)
            data = f.read(32768)
    except OSError as e:
        raise Wrong(f"cannot read scenario {path}: {e.strerror}", 2 if e.errno == 2 else 1) from e
    try:
        text = data.decode() if len(data) < 32768 else None
    except UnicodeDecodeError:
        text = None
    return points, text, _Reader(path, quick, soft).name
