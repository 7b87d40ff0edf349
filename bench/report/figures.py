"""Figures of one scenario's results, drawn by matplotlib, which is imported only here and only then. What is drawn is worked
out first (figure), so that it can be compared without a picture."""
import io
import math
import re

from common import Wrong, elements, get, is_number, items, metric, number_of, part, put_file, text_of

SERIES_MAX, ROWS_MAX, BINS_MAX = 24, 64, 4096
BARS_MAX = 256
COLORS = {"alone": "#7f7f7f", "default": "#c44e52", "mps": "#dd8452", "cede": "#4c72b0"}
OTHER_COLORS = ["#55a868", "#8172b3", "#937860", "#da8bc3", "#ccb974", "#64b5cd"]
BAR_COLORS = ["#4c72b0", "#dd8452", "#55a868", "#c44e52"]
MARKS = "sov^D<>PX"
PLAIN = re.compile(r"[a-zA-Z0-9_.-]+")


class Missing(Exception):
    """Names the package that figures need and that is not installed."""


def plain(text):
    return isinstance(text, str) and PLAIN.fullmatch(text) is not None


def config_of(row):
    c = text_of(row, "config")
    return c if plain(c) else "?"


def color(config, i):
    return COLORS.get(config) or OTHER_COLORS[i % len(OTHER_COLORS)]


def label(name):
    """Returns "latency p99, us" for "latency.p99_us"."""
    us = len(name) > 3 and name.endswith("_us")
    return re.sub("[._]", " ", name[:-3] if us else name) + (", us" if us else "")


def where(point, but=None):
    """Returns the axes of a point as words: ["kernel us 500"...]."""
    return [f"{axis.replace('_', ' ')} {number_of(v):.6g}" for axis, v in items(point) if axis != but and plain(axis)]


def of_row(row, name):
    role, _, what = name.partition(".")
    return metric(row, role, what)


def on_axis(row, axis):
    v = get(row, "point", axis)
    return float(v) if is_number(v) else math.nan


def wide(values, times=8):
    """Tells whether a logarithmic scale shows these values better."""
    known = [v for v in values if not math.isnan(v)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > times


def curves(rows, along, need):
    """Sorts rows into curves: {(config, axes...): rows}. A curve is of one configuration, at one value of every axis but the
    one that runs along it."""
    found = {}
    for row in rows:
        if of_row(row, need) is None:
            continue
        key = (config_of(row), *where(get(row, "point"), along))
        if key in found or len(found) < SERIES_MAX:
            found.setdefault(key, []).append(row)
    return {k: v[:ROWS_MAX] for k, v in found.items()}


def lines(result, axis, y):
    series = []
    for i, (key, rows) in enumerate(curves(elements(result, "rows"), axis, y).items()):
        points = [(on_axis(row, axis), *(part(of_row(row, y), w) for w in ("median", "min", "max"))) for row in rows]
        series.append({"label": ", ".join(key), "points": points, "color": color(key[0], i), "mark": MARKS[i % len(MARKS)],
                       "dashes": "--" if key[0] == "alone" else "-"})
    xs, ys = ([p[k] for s in series for p in s["points"] if not math.isnan(p[k])] for k in (0, 1))
    if not xs or max(xs) <= min(xs):
        return None  # one point is no line
    margin = 0 if wide(xs) else 0.05 * (max(xs) - min(xs))
    return {"x": label(axis), "y": label(y), "log": (wide(xs), wide(ys)), "series": series,
            "xlim": (min(xs) - margin, max(xs) + margin) if margin else (min(xs) / 1.3, max(xs) * 1.3),
            "ylim": (min(ys) / 1.5, max(ys) * 1.5) if wide(ys) else (0, None), "ticks": sorted(set(xs))}


def scatter(result, x, y):
    """Curves run along the scenario's last axis. Points of the same value of the other axis have the same mark, whatever the
    configuration."""
    rows = elements(result, "rows")
    last = ([axis for axis, _ in items(rows and rows[0], "point")] or [""])[-1]
    series, others = [], []
    for i, (key, found) in enumerate(curves(rows, last, x).items()):
        points = [(part(of_row(row, x)), part(of_row(row, y))) for row in found]
        others += [key[1:]] if key[1:] not in others else []
        mark = others.index(key[1:])
        series.append({"label": ", ".join(key), "points": [p for p in points if not math.isnan(p[1])],
                       "color": color(key[0], i), "mark": MARKS[mark % len(MARKS)],
                       "dashes": ("-", "--", ":", "-.")[mark % 4]})
    ys = [p[1] for s in series for p in s["points"]]
    return {"x": label(x), "y": label(y), "log": (False, wide(ys)), "xlim": None, "ylim": None if wide(ys) else (0, None),
            "series": [s for s in series if not s["label"].startswith("alone")], "ticks": None} if ys else None


def bars(result, *names):
    groups, us = [], "_us" in names[0]
    for row in elements(result, "rows")[:BARS_MAX]:
        if (config_of(row) == "alone" and not us) or not any(isinstance(of_row(row, n), dict) for n in names):
            continue  # the share of a program alone is 1 by definition
        groups.append(("\n".join([config_of(row), *where(get(row, "point"))]), [part(of_row(row, n)) for n in names]))
    return {"x": "", "y": label(names[0] if len(names) == 1 else names[0].rpartition(".")[2]),
            "log": (False, us and wide([v for _, g in groups for v in g])), "groups": [g for g, _ in groups],
            "series": [{"label": label(n), "color": BAR_COLORS[k % len(BAR_COLORS)],
                        "points": [0 if math.isnan(v[k]) else v[k] for _, v in groups]} for k, n in enumerate(names)],
            } if groups else None


def _bins(result, config, role, point):
    """Returns (bound, count) of all repeats of a configuration at a point. What does not depend on the point was measured once,
    so it is looked for at any other."""
    for anywhere in (False, True):
        bins = [(number_of(get(pair, 0)), number_of(get(pair, 1))) for cell in elements(result, "cells")
                if config_of(cell) == config and (anywhere or get(cell, "point") == point)
                for pair in elements(cell, "roles", role, "histogram")][:BINS_MAX]
        if bins:
            break
    return sorted(bins, key=lambda b: b[0])


def cdf(result, role):
    """Shows the distribution at one point, in the middle of all."""
    rows = elements(result, "rows")
    point = get(rows[len(rows) // 2], "point") if rows else None
    series = []
    for i, config in enumerate(list(dict.fromkeys(map(config_of, rows)))[:SERIES_MAX]):
        bins, total = _bins(result, config, role, point), 0
        count = sum(n for _, n in bins)
        points = [(bins[0][0] / 1.02, 0)] if bins else []
        for bound, n in bins:
            total += n
            points.append((bound, total / count if count else math.nan))
        if bins:
            series.append({"label": config, "points": points, "color": color(config, i), "mark": "", "dashes": "-"})
    xs = [x for s in series for x, _ in s["points"][1:]]
    return {"x": role + ", us", "y": "part of requests", "log": (wide(xs, 3), False), "xlim": None, "ylim": (0, 1.02),
            "series": series, "ticks": None, "steps": True, "at": where(point)} if series else None


# Kind of figure -> what works it out, how few and how many words follow, and the first of them that is a ROLE.METRIC.
KINDS = {"lines": (lines, 2, 2, 1), "scatter": (scatter, 2, 2, 0), "bars": (bars, 1, 4, 0), "cdf": (cdf, 1, 1, 1)}


def known_figure(spec):
    kind, *words = spec.split() or [""]
    _, least, most, metrics_from = KINDS.get(kind, (None, 1, 0, 0))
    return least <= len(words) <= most and all(
        plain(w) and len(w) < 48 and (i < metrics_from or re.match(r"[^.]+\..", w)) for i, w in enumerate(words))


def figure(result, spec):
    """Returns what is to be drawn for a line "figure =" of the scenario, or None if there is nothing. Raises Wrong."""
    if not known_figure(spec):
        raise Wrong(f"not a figure: '{spec}'", 1)
    kind, *words = spec.split()
    drawn = KINDS[kind][0](result, *words)
    if drawn:
        title, chip, date = (re.sub(r"[\x00-\x1f\x7f$\\]", " ", text_of(result, k) or "?")[:200]
                             for k in ("test_name", "hardware", "date"))
        drawn["title"] = ", ".join([title, *drawn.get("at", [])]) + f"\n{chip}, {date}"
    return drawn


def load_matplotlib():
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot, ticker
    except ImportError as e:
        raise Missing("python3-numpy" if "numpy" in str(e) else "python3-matplotlib") from e
    matplotlib.rcdefaults()  # a file in the working directory has no say
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cede", "font.size": 9, "axes.grid": True,
                                "grid.color": "#dddddd", "axes.axisbelow": True, "axes.spines.top": False,
                                "axes.spines.right": False, "legend.frameon": False})
    return pyplot, ticker


def plain_ticks(ticker, axis):
    """Puts plain numbers on a logarithmic axis, instead of powers of ten."""
    lo, hi = axis.get_view_interval()
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if hi / lo < 1000 else (1,)))
    axis.set_major_formatter(lambda v, _: f"{v:.7g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def _draw_bars(axes, d):
    n = len(d["series"])
    for k, s in enumerate(d["series"]):
        axes.bar([i + (k - (n - 1) / 2) * 0.8 / n for i in range(len(d["groups"]))], s["points"], 0.8 / n,
                 label=s["label"], color=s["color"])
    many = len(d["groups"]) > 10
    axes.set_xticks(range(len(d["groups"])), [g.replace("\n", ", ") if many else g for g in d["groups"]],
                    rotation=40 if many else 0, ha="right" if many else "center", fontsize=7 if many else 8)
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")


def _draw_curves(axes, d):
    for s in d["series"]:
        x, y = [p[0] for p in s["points"]], [p[1] for p in s["points"]]
        if d.get("steps"):
            axes.step(x, y, where="post", color=s["color"], label=s["label"], linewidth=1.5)
            continue
        if s["points"] and len(s["points"][0]) == 4:
            axes.errorbar(x, y, [[abs(p[1] - p[2]) for p in s["points"]], [abs(p[3] - p[1]) for p in s["points"]]],
                          fmt="none", ecolor=s["color"], elinewidth=1, capsize=2)
        axes.plot(x, y, s["dashes"], marker=s["mark"], markersize=4.5, linewidth=1.4, color=s["color"], label=s["label"])


def draw(drawn, cede, path):
    """Writes PATH.svg and PATH.png. Raises Missing, Wrong."""
    pyplot, ticker = load_matplotlib()
    fig, axes = pyplot.subplots(figsize=(8.6, 4.2))
    try:
        for axis, log in zip("xy", drawn["log"]):
            if log:
                getattr(axes, f"set_{axis}scale")("log")
        (_draw_bars if "groups" in drawn else _draw_curves)(axes, drawn)
        axes.set_title(drawn["title"], fontsize=10)
        axes.set_xlabel(drawn["x"])
        axes.set_ylabel(drawn["y"])
        if drawn.get("xlim"):
            axes.set_xlim(*drawn["xlim"])
        if drawn.get("ylim"):
            axes.set_ylim(*drawn["ylim"])
        if drawn.get("ticks"):
            axes.set_xticks(drawn["ticks"], [f"{t:.6g}" for t in drawn["ticks"]])
            axes.set_xticks([], minor=True)
        for name, log in zip("xy", drawn["log"]):
            if log and not (name == "x" and drawn.get("ticks")):
                plain_ticks(ticker, getattr(axes, f"{name}axis"))
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8)
        for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 150})):
            data = io.BytesIO()
            fig.savefig(data, format=kind, bbox_inches="tight", **options)
            put_file(cede, f"{path}.{kind}", data.getvalue())
    except (ArithmeticError, MemoryError, RuntimeError, ValueError) as e:  # numbers that nothing can be drawn with
        raise Wrong(f"matplotlib cannot draw {path}: {e}", 1) from e
    finally:
        pyplot.close(fig)
