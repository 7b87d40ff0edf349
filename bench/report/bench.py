"""`cede bench`: options, tables for people, exit status. `cede` starts it as: bench.py CEDE VERSION DATADIR ARGUMENT..."""
import getopt
import os
import signal
import sys
import unicodedata

import run
from common import Wrong, cut, dumps, elements, get, items, number_of, part, text_of
from expr import unit_of

FAILED, USAGE = 1, 2
FLAGS = ("resume", "quick", "figures", "json")
HELP = """\
usage: cede bench list [--quick] [--device DEVICE] [--scenarios DIR] [--out DIR] [--json]
       cede bench run NAME...|all [--out DIR [--resume]] [--quick] [--device DEVICE]
                  [--repeat N] [--only CONFIG] [--scenarios DIR] [--json]
       cede bench report DIR [--figures]

Runs scenarios with programs that it starts: each alone, together as the driver does it, under
MPS where that is installed, and under cede; and shows what each got. NAME is a scenario of
the list, or a path with a '/'.

      --out DIR         keep the results there, one JSON file a scenario
      --resume          leave out scenarios whose results are there already, all of them: of
                        the same file, GPU, driver and --quick, with no failed cell
      --quick           fewer points, short windows, fewer repeats
      --device DEVICE   nvidia, soft or opencl; if not given, nvidia or else soft
      --repeat N        measurements of everything
      --only CONFIG     one configuration, and the programs alone
      --scenarios DIR   where scenario files are
      --figures         draw them with matplotlib
      --json            one array (list) or object (run: the summary), and nothing else
  -h, --help            this text

Exit status: 0; 1 if a target was missed or is open as the machine was too busy, or a cell
failed; 2 for wrong usage.
"""


class Options:
    """The options, with the values that were typed."""
    device = out = scenarios = only = None
    repeat, names = 0, ()
    quick = resume = figures = json = False


def tell(text):
    """Prints a line on standard error. Characters that cannot be seen or steer the terminal become question marks."""
    shown = "".join("?" * len(c.encode("utf-8", "surrogateescape")) if unicodedata.category(c) in
                    ("Cc", "Cf", "Zl", "Zp", "Co", "Cs") else c for c in cut(text, 1023))
    print(f"cede: {shown}", file=sys.stderr)


def wrong_usage(text):
    tell(text)
    print("try `cede bench --help`", file=sys.stderr)
    return USAGE


def print_target(name, t):
    """Prints a target, and returns how many of its points were not measured."""
    unmeasured, check = 0, text_of(t, "check")
    unit, factor = unit_of(check)
    for o in elements(t, "points"):
        v, passed = get(o, "value"), get(o, "pass")
        busy = text_of(o, "busy")
        word = "open" if v is None else ("busy" if busy else "") if passed is None else "ok" if passed else "MISS"
        at = "".join(f" {axis}={number_of(x):.6g}" for axis, x in items(o, "point"))
        if v is None:
            unmeasured += 1
            print(f"{word:<5} {name}: {check}{at}: not measured")
            continue
        limit = get(o, "limit")
        between = " to ".join(f"{part(v, w) / factor:.5g}" for w in ("min", "max"))
        print(f"{word:<5} {name}: {check}{at}: {part(v) / factor:.5g} ({between}){' ' if unit else ''}{unit}"
              + (f", limit {part(limit) / factor:.5g}" if limit is not None else "")
              + (f"; the machine was too busy: {busy}" if busy else ""))
    return unmeasured


def print_summary(summary):
    unmeasured = 0
    for s in summary["scenarios"]:
        name = text_of(s, "scenario")
        if text_of(s, "skipped"):
            print(f"{'':<5} {name}: skipped: {s['skipped']}")
        if s["kept"]:
            print(f"{'':<5} {name}: kept, of {text_of(s, 'date')}")
        unmeasured += sum(print_target(name, t) for t in elements(s, "targets"))
        if number_of(get(s, "failed_cells")) > 0:
            print(f"{'FAIL':<5} {name}: {s['failed_cells']} cells failed")
    print(f"{'passed' if summary['pass'] else 'not passed'}: {summary['failed_cells']} cells failed, {summary['missed']} "
          f"targets missed{f', {unmeasured} not measured' if unmeasured else ''}"
          f"{f', {number_of(busy)} open as the machine was too busy' if (busy := get(summary, 'busy')) else ''}, {summary['took_s']:.0f} s")


def print_list(o, found):
    for s in found:
        minutes = "     done" if s["done"] else "        -" if s["left_out"] else f"{s['seconds'] / 60:5.1f} min"
        print(f"{s['name']:<16} {minutes}  {s['title']}{'; needs ' if s['needs'] else ''}{s['needs']}")
    total = sum(s["seconds"] for s in found if not s["done"] and not s["left_out"])
    print(f"{'all':<16} {total / 60:5.1f} min  with --device {o.device}{' --quick' if o.quick else ''}")


def verb_list(o):
    o.names = ["all"]
    try:
        found = run.Job(o).list()
    except Wrong as e:
        tell(f"bench: {e}")
        return FAILED
    if o.json:
        print(dumps(found, 2))
    else:
        print_list(o, found)
    return 0


def verb_run(o):
    try:
        summary, wrong = run.Job(o).run()
    except Wrong as e:
        summary, wrong = None, e
    if summary and o.json:
        print(dumps(summary, 2))
    elif summary:
        print_summary(summary)
    if wrong:
        tell(f"bench: {wrong}")
        if wrong.status > 128 and o.out:
            tell("bench: the same with --resume goes on after the last whole scenario")
        return wrong.status
    return 0 if summary["pass"] else FAILED


def verb_report(o):
    from report import Report
    try:
        r = Report(o.cede, o.names[0], o.figures)
        r.write()
    except Wrong as e:
        tell(f"bench: {e}")
        return FAILED
    if r.failed:
        tell(f"bench: {r.failed}")
        return FAILED
    print(f"{o.names[0]}/report.md")
    if r.missing:
        tell(f"bench: no figures, as {r.missing} is not installed")
    return FAILED if r.missing else 0


def parse(argv, o):
    """Returns the words behind the options and 0, or None and the exit status if there is nothing more to do."""
    try:
        found, words = getopt.gnu_getopt(argv, "h", ["out=", "device=", "repeat=", "only=", "scenarios=",
                                                     *FLAGS, "help"])
    except getopt.GetoptError as e:
        print(f"cede: {e}", file=sys.stderr)
        print("try `cede bench --help`", file=sys.stderr)
        return None, USAGE
    for name, v in found:
        name = name.lstrip("-")
        if name in ("h", "help"):
            print(HELP, end="")
            return None, 0
        if name == "repeat" and not (v.isascii() and v.isdigit() and len(v) < 20 and 1 <= int(v) <= 100):
            return None, wrong_usage(f"bad --repeat '{v}': a number from 1 to 100")
        if name == "device" and v not in ("nvidia", "soft", "opencl"):
            return None, wrong_usage(f"unknown device '{v}': use nvidia, soft or opencl")
        setattr(o, name, int(v) if name == "repeat" else name in FLAGS or v)
    return words, 0


def main(argv):
    o = Options()
    o.cede, o.version, datadir = argv[:3]
    o.command = cut(" ".join(["cede bench", *argv[3:]]), 799)
    words, status = parse(argv[3:], o)
    if words is None:
        return status
    what, o.names = words[0] if words else "", words[1:]
    chosen = o.device
    o.device = o.device or ("nvidia" if os.path.exists("/dev/nvidiactl") else "soft")
    o.soft = o.device == "soft"
    if what == "report":
        return verb_report(o) if len(o.names) == 1 else wrong_usage("bench report: one directory is needed")
    if what not in ("list", "run"):
        return wrong_usage("bench: list, run or report is needed")
    if o.resume and (what != "run" or not o.out):
        return wrong_usage("--resume is for bench run, with --out DIR: where results are")
    if o.scenarios is None:
        try:
            o.scenarios = run.find_scenarios(datadir)
        except Wrong as e:
            tell(f"bench: {e}")
            return FAILED
    if what == "list":
        return wrong_usage("bench list takes no name") if o.names else verb_list(o)
    if not o.names:
        return wrong_usage("bench run: name scenarios, or all")
    if o.soft and not chosen:
        tell("bench: no NVIDIA GPU is here: the software GPU is measured, whose figures say nothing about this machine")
    return verb_run(o)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        exit_status = main(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        tell(f"cannot write standard output: {error.strerror}")
        os._exit(FAILED)
    sys.exit(exit_status)
