"""Recomputes the figures that pages cite from the results in bench/results. For each page a list beside this file names the
words that a figure stands in and the expression that gives it; blocks of a page between two HTML comments are made whole
(made.py). A figure that differs, words that are not on the page, and a figure without a source are faults, each with its line.

usage: cited.py [--write] [PAGE...]   (README.md, docs/evidence.md...; all that have a list); --write changes the pages
       cited.py --ask 'FILE EXPRESSION'...   prints values, to find an expression

A list, bench/cited/NAME.txt for NAME.md; a line that begins with a blank goes on with the one before:
    whole                        the page may have no measured figure without a source
    file P h200-2026-11-21/bench-8/preemption.json
    p99 is {P.cede.latency.p99[kernel_us=500] :us0} us   words of the page, in its order
    for 10 100: | {$/1000 :g} ms | {P.cede.latency.p99[kernel_us=$] :us0} us |   a row for each value
    given kernels of # ms        words with numbers that are no measurements: parameters; # stands for a number
    target at most # us          what was to be reached
    reported XSched # to #       figures of others, on a line of the page that has a link, or in a section that says so
    by-hand p99 # us             seen once by hand; the page names docs/nvidia-measurements.md and the date
An expression is one of scenario files (bench/report/expr.py) with names of two kinds. Of a result of `cede bench`:
FILE.CONFIG.ROLE.METRIC, its median over repeats, or with .min or .max behind it the least and greatest. Of any file: a path
of keys and numbers; what is no letter or digit in a key is written as _. [key=value key=value] picks a point of a scenario or
elements of a list; if it leaves several, min(), max() or mean() has to join them. A format is a unit that values are divided
by (us, ms, s, %), how many digits follow the point, and a comma for thousands: us0, ms2, %1, 3, 0,; or g."""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / "bench/report"), str(HERE)]
from common import Wrong, load_json, metric, part  # noqa: E402
from expr import UNITS, Expression  # noqa: E402

NUMBER = r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
UNIT = (r"(?:[unm]?s\b|%|x\b|[KMGT]i?B\b(?:/s)?|GHz\b|MHz\b|W\b|points?\b|of a core\b|times\b"
        r"|(?:it|iterations|steps|images|tokens|requests|launches|switches|products|answers)(?:/s| per second| a second))")
BETWEEN = rf"(?:\*\*)?(?:,? to |,? and |,? or |, |; | \+ |/| against )(?:\*\*)?{NUMBER}"
# A number is a figure if it has a unit, alone or behind others, or digits behind a point.
FIGURE = re.compile(rf"(?<![\w./#=-])(?:(?:{NUMBER})(?=(?:{BETWEEN})*(?:\*\*)?[ -]?{UNIT})|-?\d+\.\d+)(?!\w|\.\d)")
IN_CELL = re.compile(rf"(?<![\w./#=-]){NUMBER}(?!\w|\.\d)")
# What is never a measurement: code, where links lead, comments, dates, versions.
NEVER = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|\d{4}-\d\d-\d\d|\b\d+\.\d+\.[\dx]+|arXiv:? ?\d+\.\d+", re.S)
NAME = re.compile(r"[A-Za-z]\w*(?:\[[^\]]*\]|\.\w+)*(?!\w*\()")
MADE = re.compile(r"<!-- made: (\w+)([^\n]*) -->\n(.*?)<!-- end -->\n", re.S)


# ---- values ----

def same(key, word):
    return re.sub(r"[^A-Za-z0-9]", "_", str(key)) == re.sub(r"[^A-Za-z0-9]", "_", word)


def picked(element, chosen):
    """Tells whether an element of a list has the values that were chosen, of the keys that it has."""
    def equal(v, word):
        try:
            return abs(float(v) - float(word)) <= 1e-6 * abs(float(word))
        except (TypeError, ValueError):
            return same(v, word)
    o = {**element, **element.get("point", {})} if isinstance(element, dict) else {}
    return all(equal(o[k], v) for k, v in chosen.items() if k in o)


class Results:
    def __init__(self, folder):
        self.folder, self.loaded = pathlib.Path(folder), {}

    def load(self, path):
        if path not in self.loaded:
            o = load_json(self.folder / path)
            if o is None:
                raise Wrong(f"cannot read {self.folder / path}")
            self.loaded[path] = o
        return self.loaded[path]

    def values(self, path, words, chosen):
        """Returns all values that a name has."""
        o = self.load(path)
        rows = o.get("rows") if isinstance(o, dict) else None
        if rows and len(words) >= 3 and all("config" in r for r in rows) and any(r["config"] == words[0] for r in rows):
            rows = [r for r in rows if r["config"] == words[0] and (not chosen or picked(r, chosen))]
            found = [metric(r, words[1], words[2]) for r in rows]
            return [part(m, *words[3:]) for m in found if m is not None]
        return list(self.below(o, words, chosen))

    def below(self, o, words, chosen):
        """Yields the numbers below the keys, of all elements of a list that were picked."""
        if isinstance(o, list) and not (words and words[0].isdigit()):
            for e in o if not words else [e for e in o if not chosen or picked(e, chosen)]:
                yield from self.below(e, words, chosen)
        elif words and isinstance(o, list):
            yield from self.below(o[int(words[0])], words[1:], chosen) if int(words[0]) < len(o) else ()
        elif words and isinstance(o, dict):
            yield from self.below(next((v for k, v in o.items() if same(k, words[0])), None), words[1:], chosen)
        elif not words and isinstance(o, (int, float)) and not isinstance(o, bool):
            yield o

    def value(self, text, files):
        """Returns the value of an expression. Raises Wrong."""
        names = {}

        def put(m):
            if m[0] in UNITS:
                return m[0]
            chosen = dict(w.split("=", 1) for sel in re.findall(r"\[([^\]]*)\]", m[0]) for w in sel.split())
            alias, *words = re.sub(r"\[[^\]]*\]", "", m[0]).split(".")
            if alias not in files:
                raise Wrong(f"'{text}': no file {alias}")
            v = self.values(files[alias], words, chosen)
            if not v:
                raise Wrong(f"'{text}': {files[alias]} has no {m[0]}")
            names[f"n{len(names)}"] = v
            return f"n{len(names) - 1}"
        e = Expression(re.sub(rf"(?<![\w.]){NAME.pattern}", put, text), names.__contains__)
        points = max(map(len, names.values()), default=1)
        if points > 1 and e.pointwise:
            raise Wrong(f"'{text}': names {points} things: pick one, or join them by min, max or mean")
        return e.sides(lambda n, p: names[n][p] if len(names[n]) > 1 else names[n][0], 0, range(points))[0]


def formatted(v, how):
    m = re.fullmatch(r"(us|ms|s|%)?(\d)(,?)|g", how)
    if not m:
        raise Wrong(f"no such format: '{how}'")
    text = f"{v:.4g}" if how == "g" else f"{v / UNITS.get(m[1], 1):{m[3]}.{m[2]}f}"
    return text[1:] if re.fullmatch(r"-0(\.0*)?", text) else text


# ---- lists ----

class List:
    def __init__(self, path):
        self.path, self.whole, self.files, self.cited, self.others = path, False, {}, [], []
        text = re.sub(r"\n[ \t]+(?=\S)", " ", path.read_text(encoding="utf-8"))
        for line in text.split("\n"):
            kind, _, words = line.partition(" ")
            if line == "whole":
                self.whole = True
            elif kind == "file":
                name, where = words.split()
                self.files[name] = where
            elif kind == "for":
                values, _, words = words.partition(": ")
                self.cited += [words.replace("$", v) for v in values.split()]
            elif kind in ("given", "target", "reported", "by-hand"):
                self.others.append((kind, words))
            elif line and not line.startswith("#"):
                if "{" not in line:
                    raise Wrong(f"{path}: no figure in: {line}")
                self.cited.append(line)


def flat(text):
    """Returns the text with each run of blanks as one, and where each of its characters stood."""
    out, at = [], []
    for m in re.finditer(r"\s+|\S+", text):
        for i, c in enumerate(" " if m[0].isspace() else m[0]):
            out.append(c)
            at.append(m.start() + i)
    return "".join(out), at


def pattern(words, hole, number):
    return "".join(number if re.fullmatch(hole, p) else re.escape(p) for p in re.split(f"({hole})", " ".join(words.split())))


class Page:
    """One page against its list. faults are texts with page and line; fixed() is the page as it should be."""

    def __init__(self, top, name, results, made):
        self.name, self.text, self.results = name, (top / name).read_text(encoding="utf-8"), results
        self.list = List(top / "bench/cited" / (pathlib.Path(name).stem.lower() + ".txt"))
        self.flat, self.at = flat(self.text)
        self.faults, self.covered, self.right = [], [], {}  # spans of the text; what has to stand there
        self.blocks(made)
        self.figures()
        self.exceptions()
        if self.list.whole:
            self.sources()

    def fault(self, at, text):
        self.faults.append(f"{self.name}:{self.text.count(chr(10), 0, at) + 1}: {text}")

    def blocks(self, made):
        for m in MADE.finditer(self.text):
            self.covered.append(m.span())
            if m[1] not in made:
                self.fault(m.start(), f"nothing makes '{m[1]}'")
                continue
            text = made[m[1]](*m[2].split())
            if text != m[3]:
                self.fault(m.start(), f"the block '{m[1]}' is not what the results say")
                self.right[m.span(3)] = text

    def figures(self):
        begin = 0
        for words in self.list.cited:
            m = re.compile(pattern(words, r"\{[^}]*\}", f"({NUMBER}|\\?)")).search(self.flat, begin)
            if not m:
                self.fault(self.at[begin] if begin < len(self.at) else 0, f"from here on the page lacks: {words}")
                continue
            begin = m.end()
            self.covered.append((self.at[m.start()], self.at[m.end() - 1] + 1))
            for i, figure in enumerate(re.findall(r"\{([^}]*)\}", words), 1):
                text, _, how = figure.rpartition(":")
                try:
                    right = formatted(self.results.value(text.strip(), self.list.files), how.strip())
                except Wrong as e:
                    self.fault(self.at[m.start(i)], str(e))
                    continue
                if right != m[i]:
                    self.fault(self.at[m.start(i)], f"{m[i]} is {right} by {text.strip()}")
                    self.right[self.at[m.start(i)], self.at[m.end(i) - 1] + 1] = right

    def exceptions(self):
        for kind, words in self.list.others:
            found = list(re.finditer(rf"(?<![\w.]){pattern(words, '#', NUMBER)}(?![\w.]*\d)", self.flat))
            if not found:
                self.fault(0, f"the page lacks what is {kind}: {words}")
            for m in found:
                at = self.at[m.start()]
                self.covered.append((at, self.at[m.end() - 1] + 1))
                around = self.text[self.text.rfind("\n## ", 0, at) + 1:at] + self.text[at:self.text.find("\n\n", at)]
                if kind == "by-hand" and "nvidia-measurements.md" not in around:
                    self.fault(at, f"seen by hand, without docs/nvidia-measurements.md: {m[0]}")
                if kind == "reported" and "](http" not in around and "reported" not in around:
                    self.fault(at, f"reported by others, without a link: {m[0]}")

    def sources(self):
        text = NEVER.sub(lambda m: re.sub(r"[^\n]", "_", m[0]), self.text)
        text = re.sub(r"(?m)^    .*$", lambda m: "_" * len(m[0]), text)  # commands and drawings
        text = re.sub(r"(?m)^\|.*\n(?=\|--)", lambda m: "_" * (len(m[0]) - 1) + "\n", text)  # heads of tables say what was given,
        text = re.sub(r"(?m)^\|[^|\n]*", lambda m: "|" + "_" * (len(m[0]) - 1), text)  # as do labels of rows
        for line in re.finditer(r".+", text):
            cells = line[0].startswith("|")
            for m in (IN_CELL if cells else FIGURE).finditer(text, *line.span()):
                if not any(a <= m.start() < b for a, b in self.covered):
                    self.fault(m.start(), f"no source for {self.text[m.start():m.end() + 12].split(chr(10))[0]!r}: cite it in "
                                          f"{self.list.path.name}")

    def fixed(self):
        text = self.text
        for (a, b), right in sorted(self.right.items(), reverse=True):
            text = text[:a] + right + text[b:]
        return text


def pages(top):
    names = [p.stem for p in sorted((top / "bench/cited").glob("*.txt"))]
    return ["README.md" if n == "readme" else f"docs/{n}.md" for n in names]


def main(argv):
    import made
    results = Results(TOP / "bench/results")
    if argv[:1] == ["--ask"]:
        for words in argv[1:]:
            path, _, text = words.partition(" ")
            print(results.value(text, {"F": path}))
        return 0
    write = argv[:1] == ["--write"]
    names = argv[write:] or pages(TOP)
    faults = 0
    for name in names:
        page = Page(TOP, name, results, made.blocks(results.folder))
        if write and page.right:
            (TOP / name).write_text(page.fixed(), encoding="utf-8")
            page = Page(TOP, name, results, made.blocks(results.folder))
        faults += len(page.faults)
        print("".join(f"{f}\n" for f in page.faults), end="")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Wrong, OSError) as error:
        sys.exit(f"cited: {error}")
