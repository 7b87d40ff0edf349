"""Blocks of pages that are made whole from the results: what was missed, which runs there are, the programs that people run.
usage: see cited.py"""
import functools
import importlib
import pathlib
import re
import sys

from common import elements, get, load_json, part, text_of
from expr import unit_of

NAMES = {"mps": "MPS with priorities", "pool": "cede, in a pool"}  # of systems, in tables and figures
PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"


def commit_of(o, path, added):
    """Returns the commit that was measured, or else the one that added the file, in words."""
    version = text_of(o, "cede_version") or text_of(o, "cede")
    m = re.search(r"-g([0-9a-f]{7,})|^([0-9a-f]{8})$", version)
    if text_of(o, "commit") or m:
        return (text_of(o, "commit") or m[1] or m[2])[:8] + (" and changes" if "dirty" in version else "")
    found = next((added[str(p)] for p in (path, *path.parents) if str(p) in added), "")
    return f"before {found}" if found else "?"


def read_added(folder):
    path = folder / "commits.txt"
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return dict(line.split() for line in lines if line and not line.startswith("#"))


@functools.cache
def read(folder):
    """Returns [(path below the folder, what is in it)], the oldest first."""
    found = [(p.relative_to(folder), load_json(p)) for p in folder.rglob("*.json")]
    return sorted(((p, tables_of(o)) for p, o in found if isinstance(o, dict)), key=lambda x: (text_of(x[1], "date")[:10], str(x[0])))


def shown(p, check):
    """Returns what was measured, and the limit where the target does not say it as a number."""
    unit, factor = unit_of(check)
    v, limit = part(p["value"]) / factor, part(get(p, "limit")) / factor
    number = f"{v:.0f}" if abs(v) >= 100 else f"{v:.3g}"
    return f"{number}{' ' if unit else ''}{unit}" + ("" if re.search(r"[<>=] [0-9.]+(us|ms|s|%)?$", check) else f", limit {limit:.3g}")


def chip(o):
    name = text_of(o, "hardware") or text_of(o, "gpu") or text_of(o, "chip") or text_of(o, "device")
    m = re.search("[HABV][0-9]+0", name)
    return m[0] if m else "PoCL" if re.search("pocl|pthread", name, re.I) or "opencl" in o else ""


def tables_of(o):
    """Returns a result without its cells, which tables do not show and which are most of it."""
    return {k: v for k, v in o.items() if k not in ("cells", "results", "scenario_file")}


def missed(folder):
    """Every target that any result missed: in how many of those that measured it, the worst, and how the last one was. Of several
    on the last day one that missed is shown."""
    added, targets = read_added(folder), {}
    for path, o in read(folder):
        for t in elements(o, "targets"):
            known = [p for p in elements(t, "points") if get(p, "pass") is not None]
            if known:
                targets.setdefault((text_of(o, "scenario"), text_of(t, "check")), []).append((path, o, known))
    out = "| scenario | target | missed in | worst | the last result |\n|---|---|---|---|---|\n"
    for (name, check), runs in sorted(targets.items()):
        bad = [r for r in runs if any(p["pass"] is False for p in r[2])]
        if not bad:
            continue

        def excess(p):
            v, limit = part(p["value"]), part(get(p, "limit"))
            return abs(v - limit) / (abs(limit) or 1)
        worst = max((p for r in bad for p in r[2] if p["pass"] is False), key=excess)
        path, o, known = max(runs, key=lambda r: (text_of(r[1], "date"), any(p["pass"] is False for p in r[2])))
        last = [p for p in known if p["pass"] is False]
        out += (f"| `{name}` | `{check}` | {len(bad)} of {len(runs)} | {shown(worst, check)} | "
                f"{'**missed**' if last else 'met'}, {chip(o)}, {text_of(o, 'date')}, {commit_of(o, path, added)} |\n")
    return out


def runs(folder):
    """Each folder of results: where, when, with what, and which scenarios missed a target."""
    added, folders = read_added(folder), {}
    for path, o in read(folder):
        folders.setdefault(path.parent, []).append((path, o))
    out = "| results | GPU | driver | cede | scenarios or programs; in bold with a missed target |\n|---|---|---|---|---|\n"
    for where, found in sorted((w, sorted(f, key=lambda x: str(x[0]))) for w, f in folders.items()):
        commits = list(dict.fromkeys(commit_of(o, p, added) for p, o in found))
        drivers = list(dict.fromkeys(m[0] for _, o in found
                                     for m in re.finditer(r"\b5\d\d\.\d+\.\d+", f"{o.get('driver_version')} {o.get('driver')} {o.get('gpu')}")))
        names = [f"**{p.stem}**" if o.get("pass") is False and "targets" in o else p.stem for p, o in found]
        chips = list(dict.fromkeys(c for _, o in found if (c := chip(o))))
        out += (f"| [{where}](../bench/results/{where}) | {', '.join(chips)} | {', '.join(drivers)} | {', '.join(commits)} | "
                f"{', '.join(names)} |\n")
    return out


# ---- programs that people run ----

def program(name):
    if str(PROGRAMS) not in sys.path:
        sys.path.append(str(PROGRAMS))
    return importlib.import_module(name)


def frontier_runs(folder):
    return [(p, o) for p, o in read(folder) if p.name.startswith("frontier") and elements(o, "rows")]


def frontier_files(folder):
    """The newest of each chip."""
    return list({chip(o): (p, o) for p, o in frontier_runs(folder)}.values())


def frontier_table(f, o, wanted):
    """Returns the table of a machine, with pairs in rows, and how many pairs met the target, in words."""
    pairs = {p: points for p, points in f.kept(o["rows"]).items() if p in wanted or not wanted}
    systems = [s for s in ("default", "mps", f.cede_systems()[0], "pool") if any(s in points for points in pairs.values())]
    out = f"| server + other | {' | '.join(NAMES.get(s, s) for s in systems)} | |\n|{'---|' * (len(systems) + 2)}\n"
    for pair, points in pairs.items():
        best, ok, better = f.verdict(points)
        cells = []
        for s in systems:
            speed, p99, other = points.get(s, (0, 0, 0))
            bold = "**" if s == best else ""
            cells.append(f"{bold}{speed:.2f}{bold}; {p99:.2f} x; {other:.2f}" if s in points else "")
        out += (f"| {pair.replace('+', ' + ')} | {' | '.join(cells)} | "
                f"{'met' if ok else '**missed**' + (', behind ' + ' and '.join(better) if better else '')} |\n")
    return out, f"{f.met(pairs)} of {len(pairs)} pairs, {f.met(f.kept(f.with_medians(o['rows'])))} with each server's median speed alone"


def frontier(folder, *wanted):
    """A section with a table for each machine: what the server has of its speed, its p99 over alone, what the other keeps, in each
    way of sharing. With pairs that are wanted, their rows alone."""
    f, out = program("frontier"), ""
    for path, o in frontier_files(folder):
        table, met = frontier_table(f, o, wanted)
        where = f"{chip(o)}, {text_of(o, 'date')}, {commit_of(o, path, {})}"
        if wanted:
            out += f"{where}:\n\n{table}\n"
            continue
        out += "" if out else "## Programs that people run\n\n"
        out += (f"{text_of(o, 'gpu')}, driver {text_of(o, 'driver') or '-'}, {text_of(o, 'date')}, {commit_of(o, path, {})}, "
                f"[results](../bench/results/{path}), by `python3 bench/programs/frontier.py`: the server's speed; its p99 over alone; what "
                f"the other keeps.\n\n![{chip(o)}: what the other keeps against the server's speed](figures/{frontier_figure(path, o)})\n\n"
                f"{table}\nTarget: the server keeps {f.FLOOR:g} of its speed (noise: {f.SLACK:g}), and no system that gives it as much leaves "
                f"the other {f.SPARE:g} more: **met in {met}**.{earlier(f, folder, path, o)}\n\n")
    return out


def earlier(f, folder, newest, o):
    """What earlier runs on the same chip met."""
    runs = [(p, r) for p, r in frontier_runs(folder) if chip(r) == chip(o) and p != newest]
    return "".join(f" An earlier run ([{text_of(r, 'date')}](../bench/results/{p}), {commit_of(r, p, {})}): {frontier_table(f, r, ())[1]}." for p, r in runs)


WORDS = {"first_p50_us": "time to first token, p50", "mean_us": "time per token, mean"}
SERVERS = {"graphs+gpt": "a server that replays CUDA graphs", "generate+gpt": "transformers' `generate()`, eager"}


def servers(folder):
    """What two servers of language models have beside a training in the newest run, in each way of sharing. For README, whose
    links begin at the top of the tree."""
    f, found = program("frontier"), frontier_files(folder)
    if not found:
        return ""
    path, o = found[-1]
    kept, medians = f.kept(o["rows"]), f.with_medians(o["rows"])
    systems = [s for s in ("default", "mps", f.cede_systems()[0], "pool") if all(s in kept.get(pair, ()) for pair in SERVERS)]
    if not systems:
        return ""
    out = (f"| beside a GPT training ([{chip(o)}](bench/results/{path}), {text_of(o, 'date')}) | alone | {' | '.join(NAMES.get(s, s) for s in systems)} |\n"
           f"|{'---|' * (len(systems) + 2)}\n")
    for pair, title in SERVERS.items():
        rows = {r["system"]: r for r in o["rows"] if r["pair"] == pair}
        server, alone = pair.split("+", maxsplit=1)[0], next(r["alone"] for r in medians if r["pair"] == pair)
        known = [k for k in WORDS if k in alone and server in f.OPEN]
        lines = [(f"{title}: {WORDS[k]}", f"{alone[k] / 1e3:.1f} ms", [f"{rows[s]['measured'][server][k] / 1e3:.1f} ms" for s in systems])
                 for k in known] or [(f"{title}: its speed", "1", [f"{kept[pair][s][0]:.2f}" for s in systems])]
        lines += [("what the training keeps", "1", [f"{kept[pair][s][2]:.2f}" for s in systems])]
        out += "".join(f"| {words} | {before} | {' | '.join(cells)} |\n" for words, before, cells in lines)
    return out


def frontier_points(o):
    """Returns {pair: {system: (the server's speed, what the other keeps)}}, for the figure."""
    return {pair.replace("+", " + "): {NAMES.get(s, s): (v[0], v[2]) for s, v in points.items()}
            for pair, points in program("frontier").kept(o["rows"]).items()}


def frontier_figure(path, o):
    return f"{path.stem}-{chip(o).lower() or 'soft'}.svg"


def arrangements(folder):
    """What cede advise told of pairs of programs, what they counted themselves, and how rules do that always choose the same."""
    f, out, ways = program("arrangements"), "", ("turns", "together", "halves")
    for path, o in read(folder):
        pairs = elements(o, "pairs") if path.stem == "arrangements" else []
        if not pairs:
            continue
        rules, off = f.scores(pairs)
        dates = sorted({text_of(p, "date") or text_of(o, "date") for p in pairs})
        out += (f"One {chip(o)}, driver {o['driver']}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, [results](../bench/results/{path}), which say each pair's commit, by "
                f"`bench/programs/arrangements.py`:\n\n"
                f"| pair | {' | '.join(ways)} | chosen |\n|---|---|---|---|---|\n")
        for p in pairs:
            sums = [f"{f.shown(row['sum'])} ({sum(really):.2f})" for row, really in zip(p["told"]["rows"], p["counted"])]
            out += (f"| {' + '.join(p['pair']).replace('_', ' ')} | {' | '.join(sums)} | {ways[p['told']['best'] or 0]}"
                    f"{'' if p['told']['best'] == p['best'] else ', the best: ' + ways[p['best']]} |\n")
        out += f"\n| rule | mean of sums | pairs in which one starves | within {f.WITHIN} of the best |\n|---|---|---|---|\n"
        for name, mean, starved, right in rules[:-1]:
            out += f"| {name} | {mean:.2f} | {starved} | {right} of {len(pairs)} |\n"
        out += (f"\nOf {len(off)} speeds {sum(e <= f.WITHIN for e in off)} were within {f.WITHIN} of the programs' count; the worst was off by "
                f"{max(off):.2f}.\n")
        if earlier := elements(o, "earlier"):
            out += f"Earlier measurements of these pairs: {f.scores(earlier)[0][0][3]} of {len(earlier)} within {f.WITHIN} of the best.\n"
    return out


def peers(folder):
    """What requests wait for beside a batch program under other schedulers, and what it keeps, each case in a column."""
    out = ""
    for path, o in read(folder):
        if path.stem != "peers":
            continue
        rows = {(r["system"], r["case"]): r for r in elements(o, "rows")}
        systems, cases = ([*dict.fromkeys(k[i] for k in rows)] for i in (0, 1))
        out += (f"One {chip(o)}, driver {o['driver']}, {text_of(o, 'date')}, {commit_of(o, path, {})}, [results](../bench/results/{path}): p50; "
                f"p99; what the batch program keeps.\n\n| | {' | '.join(cases)} |\n|{'---|' * (len(cases) + 1)}\n")
        for s in systems:
            cells = []
            for c in cases:
                m, alone = (rows.get((name, c), {}).get("measured") for name in (s, "alone"))
                cells.append(f"{m['server']['p50_us'] / 1e3:.2f} ms; {m['server']['p99_us'] / 1e3:.2f} ms; "
                             f"{m['batch']['rate'] / alone['batch']['rate']:.2f}" if m and alone else "failed" if (s, c) in rows else "")
            out += f"| {s} | {' | '.join(cells)} |\n"
    return out


def blocks(folder):
    return {f.__name__: lambda *words, f=f: f(folder, *words) for f in (missed, runs, frontier, servers, arrangements, peers)}
