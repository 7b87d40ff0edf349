"""What a scenario's cells come to: values within one repeat, medians over repeats, targets. Every expression is evaluated
within one repeat and the median taken afterwards, so that a ratio never mixes two moments of the machine. Pure."""
import math

from common import Raw, dumps, get, is_number, items, metric, number_of, part, text_of
from expr import Expression, holds

REPEATS_MAX = 100
SHARES = (("rate", "share"), ("rate_min", "share_min"), ("rate_max", "share_max"))
# A machine is too busy to compare windows if a program alone differs by more from one repeat to another, by its work or by the
# median of its requests, or if one does more beside others than alone. At rest these are 1.02, 1.1 and 1.1.
WORK_SPREAD, LATENCY_SPREAD, SHARE_MOST = 1.25, 1.5, 1.25
FLAT = ("p50_us", "p99_us", "late", "share", "rate", "cpu", "us", "pause_us", "resume_us", "speed")


def summary(values):
    """Returns the summary of the values that are not NAN, or None if there is none."""
    v = sorted(x for x in values if not math.isnan(x))
    if not v:
        return None
    k = len(v) // 2
    return {"median": v[k] if len(v) % 2 else (v[k - 1] + v[k]) / 2, "min": v[0], "max": v[-1], "n": len(v)}


def _value(cell, role, name):
    v = metric(cell, role, name)
    return float(v) if is_number(v) else math.nan


class Result:
    """The cells of a scenario. A slot is a configuration or phase; the roles alone come after these. The same cell may stand at
    several points."""

    def __init__(self, points, repeats, soft):
        s = points[0]
        self.points, self.repeats, self.soft, self.s = points, repeats, soft, s
        self.ways = list(s.phases or s.configs)
        self.slots = self.ways + ["alone"] * len(s.roles)
        self.targets = [(name, t, *(Expression(t[k], s.knows) if t[k] else None for k in ("check", "when")))
                        for name, t in s.targets.items()]
        self.at = {}  # (repeat, slot, point): cell
        self.cells, self.texts = [], {}  # all, in the order they were run; their JSON

    def slot_alone(self, role):
        return len(self.ways) + list(self.s.roles).index(role)

    def put(self, repeat, slot, point, cell):
        """Puts a cell there and adds its shares: its rate as a part of what the same role had alone in the same repeat."""
        self.at[repeat, slot, point] = cell
        self.texts.pop(id(cell), None)
        for role in self.s.roles:
            base = _value(self.at.get((repeat, self.slot_alone(role), point)), role, "rate")
            m = get(cell, "roles", role)
            for rate, share in SHARES if isinstance(m, dict) and base > 0 else ():
                v = _value(cell, role, rate)
                if not math.isnan(v):
                    m.setdefault(share, v / base)

    def cells_text(self):
        """Returns the field `cells` of a file. A cell has its text made once, as the file is written after each session."""
        for c in self.cells:
            if id(c) not in self.texts:
                self.texts[id(c)] = Raw(dumps(c, 1, 2))
        return [self.texts[id(c)] for c in self.cells]

    # ---- targets ----

    def busy(self, role, point):
        """Returns in words by what the machine is known to have been too busy for a role at a point, or None."""
        def values(slot, name):
            v = [_value(self.at.get((i, slot, point)), role, name) for i in range(self.repeats)]
            return [x for x in v if x > 0]
        if role not in self.s.roles:
            return None
        slot = self.slot_alone(role)
        latency = values(slot, "p50_us")
        alone, most = (latency, LATENCY_SPREAD) if latency else (values(slot, "rate"), WORK_SPREAD)
        if alone and max(alone) > most * min(alone):
            what = "median of its requests" if latency else "work"
            return f"{role} alone differed by {max(alone) / min(alone):.2f} x from one repeat to another in the {what}"
        beside = [self.at.get((i, slot, point)) for i in range(self.repeats) for slot in range(len(self.ways))]
        share = max((_value(c, role, "share") / max(number_of(metric(c, role, "count")), 1) for c in beside if c), default=0)
        return f"{role} did {share:.2f} x as much beside others as alone" if not latency and share > SHARE_MOST else None

    def sides(self, e, repeat, point, used=None):
        def value(name, p):
            if name in self.s.at:
                return self.points[p].at[name]
            config, role, what = name.split(".", 2)
            if used is not None:
                used.add((role, p))
            slot = self.slots.index(config)
            if config == "alone" and role in self.s.roles and not self.s.phases:
                slot = self.slot_alone(role)
            return _value(self.at.get((repeat, slot, p)), role, what)
        return e.sides(value, point, range(len(self.points)))

    def check_point(self, e, point, once):
        """Returns the medians over repeats of both sides. A target is missed if a cell that it names failed, and open if the
        cell is missing."""
        left, right, used = [], [], set()
        for i in range(self.repeats):
            a, b = self.sides(e, i, point, used)
            left.append(math.nan if e.op and math.isnan(b) else a)
            right.append(math.nan if math.isnan(a) else b)
        value, limit = summary(left), summary(right)
        o = {"point": {} if once else dict(self.points[point].at), "value": value, "limit": limit,
             "pass": None if value is None or not e.op else holds(e.op, part(value), part(limit))}
        why = next(filter(None, (self.busy(role, p) for role, p in sorted(used))), None)
        if why and o["pass"] is not None:  # what holds by chance is not proven; what is missed stays so
            o.update({"pass": False if o["pass"] is False else None, "busy": why})
        return o

    def target(self, name, text, check, when):
        """Returns a target, and whether only some of its points were measured because the run was cut off."""
        once = len(self.points) > 1 and not check.pointwise  # one value for all points together
        points = [self.check_point(check, p, once) for p in range(1 if once else len(self.points))
                  if not when or holds(when.op, *self.sides(when, 0, p))]
        measured = sum(p["value"] is not None for p in points)
        missed = any(p["pass"] is False for p in points)
        busy = any("busy" in p for p in points)
        passed = False if missed else True if measured and measured == len(points) and not busy else None
        return {"name": name, "check": text["check"], "points": points, "pass": passed}, 0 < measured < len(points)

    # ---- tables ----

    def row(self, slot, point):
        """Returns the summaries over repeats of all numbers that the first good cell has, or None if there is no cell."""
        cells = [self.at.get((i, slot, point)) for i in range(self.repeats)]
        there = [c for c in cells if c]
        if not there:
            return None
        model = next((c for c in there if c["status"] == "ok"), None)
        bad = [c for c in there if c["status"] != "ok"]
        failed = sum(c["status"] == "failed" for c in bad)
        o = {"config": self.slots[slot], "point": dict(self.points[point].at),
             "status": "failed" if failed else "ok" if model else "unavailable", "repeats": len(there), "failed": failed}
        if bad and bad[-1].get("error"):
            o["error"] = bad[-1]["error"]
        o["roles"] = {role: {name: summary(_value(c, role, name) for c in cells) for name, v in items(metrics)
                             if is_number(v) or v is None}
                      for role, metrics in items(model, "roles")}
        return o

    def json(self):
        """Returns {"results", "rows", "targets", "pass", "failed_cells", "missed", "unavailable_cells"}."""
        rows, results, partly = [], {}, False
        for p in range(len(self.points)):
            alone = None
            for slot in [*range(len(self.ways), len(self.slots)), *range(len(self.ways))]:
                o = self.row(slot, p)
                if not o:
                    continue
                at = ",".join(f"{axis}={v:.10g}" for axis, v in o["point"].items())
                results.update({f"{o['config']}.{role}.{name}" + (f"[{at}]" if at else ""): part(metrics[name])
                                for role, metrics in o["roles"].items() for name in FLAT
                                if name in metrics and not math.isnan(part(metrics[name]))})
                if alone and slot >= len(self.ways):  # all roles alone share a row
                    alone["roles"].update(o["roles"])
                    if o["status"] != "ok":
                        alone["status"] = o["status"]
                        alone.update({"error": o["error"]} if "error" in o else {})
                    continue
                alone = o if slot >= len(self.ways) else alone
                rows.append(o)
        failed, unavailable = (sum(text_of(c, "status") == s for c in self.cells) for s in ("failed", "unavailable"))
        targets = []
        for name, text, check, when in self.targets:
            if not (self.soft and text["only"] == "nvidia"):
                o, some = self.target(name, text, check, when)
                partly |= some
                targets.append(o)
        missed = sum(t["pass"] is False for t in targets)
        busy = sum(t["pass"] is None and any("busy" in p for p in t["points"]) for t in targets)
        return {"results": results, "rows": rows, "targets": targets,
                "pass": False if failed or missed else None if partly or busy else True,
                "failed_cells": failed, "missed": missed, **({"busy": busy} if busy else {}), "unavailable_cells": unavailable}
