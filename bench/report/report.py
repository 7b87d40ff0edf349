"""The report: Markdown from the JSON files of a directory. Shows what is there, failed cells and missed targets included;
measures and decides nothing. Results may be anybody's: what they say is shown, and runs nothing."""
import math
import os

import figures
from common import Wrong, elements, get, items, load_json, metric, number_of, part, put_file, text_of
from expr import unit_of

RESULTS_MAX = 64
COLUMNS_MAX = 16
COLUMNS = ("p50_us", "p99_us", "late", "share", "rate", "us", "pause_us", "resume_us", "speed", "cpu")


def number(v, name):
    if "us" in name:
        return f"{v:.0f}" if abs(v) >= 100 else f"{v:.1f}"
    if name.startswith("share") or name in ("speed", "late"):
        return f"{v:.3f}"
    return f"{100 * v:.2f} %" if name == "cpu" else f"{v:.4g}"


def summary(s, name):
    """Returns the median and what it was between: "318 (312..325)"."""
    median, lo, hi = (part(s, w) for w in ("median", "min", "max"))
    if math.isnan(median):
        return ""
    n = get(s, "n")
    return number(median, name) + (f" ({number(lo, name)}..{number(hi, name)})" if isinstance(n, int) and n > 1 else "")


def in_unit(s, check):
    """Returns what a target compares, in the unit of its limit."""
    median, lo, hi = (part(s, w) for w in ("median", "min", "max"))
    unit, factor = unit_of(check)
    if math.isnan(median):
        return ""
    between = f" ({lo / factor:.4g}..{hi / factor:.4g})" if hi > lo else ""
    return f"{median / factor:.4g}{between}{' ' if unit else ''}{unit}"


def point(o):
    return ", ".join(f"{axis} {number_of(v):.6g}" for axis, v in items(o, "point"))


def worth(rows, role, name):
    """Tells whether a metric is worth a column. The share of a latency program is only where the program could not keep up."""
    known = [(row, part(metric(row, role, name))) for row in rows]
    known = [(row, v) for row, v in known if not math.isnan(v)]
    keeps_up = all(metric(row, role, "p99_us") is not None and v > 0.98 for row, v in known)
    return known and not (name == "share" and keeps_up)


def columns(rows):
    """Returns the (role, metric) that have a column. A rate has one only if there is nothing better, CPU time only of the
    daemon."""
    v = []
    for row in rows:
        for role, metrics in items(row, "roles"):
            if any(role == known for known, _ in v):
                continue
            metrics = dict(items(metrics))
            better = "share" in metrics or "p99_us" in metrics
            v += [(role, name) for name in COLUMNS
                  if name in metrics and not (name == "cpu" and role != "ceded") and not (name == "rate" and better)
                  and worth(rows, role, name)][:COLUMNS_MAX - len(v)]
    return v


def table(result):
    rows = elements(result, "rows")
    shown = columns(rows)
    points = bool(items(rows[0], "point")) if rows else False
    out = f"| {'at | ' if points else ''}configuration |"
    for role, name in shown:
        us = len(name) > 3 and name.endswith("_us")
        out += f" {role} {name[:-3] if us else name}{', us' if us else ''} |"
    out += f"\n|{'---|' if points else ''}---|" + "---|" * len(shown) + "\n"
    for row in rows:
        status = text_of(row, "status")
        out += f"| {point(row) + ' | ' if points else ''}{text_of(row, 'config')} |"
        for k, (role, name) in enumerate(shown):
            bad = f"**{status}** {text_of(row, 'error')} " if k == 0 and status != "ok" else ""
            out += f" {bad}{summary(metric(row, role, name), name)} |"
        out += "\n"
    return out


def busy_text(p):
    return f"{'**missed**, ' if get(p, 'pass') is False else ''}the machine was too busy: {text_of(p, 'busy')}"


def targets(result):
    found = elements(result, "targets")
    out = "\n| target | at | measured | limit | |\n|---|---|---|---|---|\n" if found else ""
    for t in found:
        for p in elements(t, "points"):
            passed, check = get(p, "pass"), text_of(t, "check")
            null = isinstance(p, dict) and "pass" in p and passed is None
            out += (f"| {text_of(t, 'name')}: `{check}` | {point(p)} | {in_unit(get(p, 'value'), check)} | "
                    f"{in_unit(get(p, 'limit'), check)} | "
                    f"{busy_text(p) if text_of(p, 'busy') else 'not measured' if null else 'pass' if passed is True else '**missed**'} |\n")
    return out


class Report:
    """failed says what could not be drawn, missing names the package that figures need."""

    def __init__(self, cede, folder, draws):
        self.cede, self.folder, self.draws = cede, folder, draws
        self.failed = self.missing = None
        self.results = self.read()

    def read(self):
        try:
            names = sorted(n for n in os.listdir(self.folder) if len(n) > 5 and n.endswith(".json"))
        except OSError as e:
            raise Wrong(f"cannot read {self.folder}: {e.strerror}", 1) from e
        found = []
        for name in names:
            o = load_json(os.path.join(self.folder, name))
            if isinstance(get(o, "scenario"), str) and len(found) < RESULTS_MAX:
                found.append(o)
        if not found:
            raise Wrong(f"no results of `cede bench run --out` in {self.folder}", 1)
        return sorted(found, key=lambda o: (text_of(o, "test_id").encode("utf-8", "replace"),
                                            text_of(o, "scenario").encode("utf-8", "replace")))

    def figure(self, result, spec, n):
        name = f"{text_of(result, 'scenario')}-{n}"
        if self.missing:
            return ""
        try:
            os.makedirs(os.path.join(self.folder, "figures"), exist_ok=True)
            if not figures.plain(name):
                raise Wrong(f"not a name for a figure: '{name}'", 1)
            drawn = figures.figure(result, spec)
            if not drawn:
                return ""
            figures.draw(drawn, self.cede, os.path.join(self.folder, "figures", name))
        except figures.Missing as e:
            self.missing = str(e)
            return ""
        except Wrong as e:
            self.failed = str(e)
            return f"\nNo figure: {e}.\n"
        except OSError as e:
            raise Wrong(f"cannot make {self.folder}/figures: {e.strerror}", 1) from e
        return f"\n![{spec}](figures/{name}.svg)\n"

    def result(self, o):
        out = (f"\n## {text_of(o, 'test_name')}\n\n{text_of(o, 'shows')}\n`cede bench run {text_of(o, 'scenario')}"
               f"{' --quick' if get(o, 'quick') is True else ''}`, {number_of(get(o, 'took_s')):.0f} s.\n\n")
        if text_of(o, "skipped"):
            return out + f"Skipped: {text_of(o, 'skipped')}.\n"
        out += table(o) + targets(o)
        specs = [s for s in text_of(o, "figures")[:699].split("\n") if s] if self.draws else []
        return out + "".join(self.figure(o, spec, n) for n, spec in enumerate(specs, 1))

    def overview(self):
        first = [text_of(self.results[0], k) for k in ("hardware", "driver_version", "kernel", "cede_version", "date")]
        out = ("# cede bench\n\n{}, driver {}, Linux {}, cede {}, {}. Values are medians over repeats,\n"
               "with the smallest and the largest; times of requests count from when they were due;\n"
               "shares are parts of what the same program gets alone in the same repeat.\n\n"
               "| scenario | targets met | cells failed |\n|---|---|---|\n").format(*first)
        for o in self.results:
            known = [get(t, "pass") for t in elements(o, "targets") if not (isinstance(t, dict) and t.get("pass", 0) is None)]
            failed = get(o, "failed_cells")
            out += f"| {text_of(o, 'test_name')} | " + (
                f"skipped: {text_of(o, 'skipped')} | |\n" if text_of(o, "skipped") else
                f"{known.count(True)} of {len(known)} | {failed if isinstance(failed, int) else 0} |\n")
        return out

    def write(self):
        """Writes DIR/report.md. Raises Wrong."""
        put_file(self.cede, os.path.join(self.folder, "report.md"), self.overview() + "".join(map(self.result, self.results)))
