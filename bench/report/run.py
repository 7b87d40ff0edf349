"""Which sessions there are, in which order they are run, what of an earlier run is kept, and the files that results are in.
Measures nothing: `cede bench cells`, a program of its own, runs one session after the other (bench/runner/plan.h)."""
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

import scenario
from common import Wrong, cut, dumps, elements, get, is_number, items, load_json, put_file, text_of
from result import REPEATS_MAX, Result

SCENARIOS_MAX = 64
SWAP_DRIVER = 570  # the first whose libcuda.so.1 has the checkpoint calls
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# What a session takes in addition to its windows, in seconds: the difference between took_s and the windows in the results
# of bench/results/h200-2026-11-21. Starting and ending MPS and ceded is less than those differ by.
SESSION_S = 0.1
PROGRAM_S = 0.3  # 0.27 to 0.37 each, 51 at once too: contexts are made one by one
PYTHON_S = 0.5  # without PyTorch
TORCH_S = 7.0  # 4.7 (decode), 6.4 (serving), 6.8 (harvest), 7.1 (priority_resnet)
SOFT_S = 0.2  # the software GPU's server
SOFT_LOAD_S = 0.05

# Words of `needs` that are modules of Python.
MODULES = {"torch": ("import torch, torchvision", "needs python3 with PyTorch and torchvision"),
           "transformers": ("import transformers", "needs python3 with transformers"),
           "jax": ("import jax", "needs python3 with JAX")}
# What a difference in the head of a result means.
DIFFERS = {"scenario_file": "is of another version of the scenario's file", "cede_version": "is of another version of cede",
           "device": "is of another device", "quick": "differs in --quick", "hardware": "is of another GPU",
           "driver_version": "is of another version of the driver"}


# ---- sessions ----

class Session:
    """All roles under a configuration, one role alone, or all roles through the phases. slot is that of Result; same is the
    first point at which the session would be the very same."""

    def __init__(self, point, slot, config=None, alone=None):
        self.p, self.slot, self.config, self.alone, self.same = point, slot, config, alone, point.index
        self.phases = not config and not alone
        self.name = config or ("alone" if alone else "phases")
        self.c = point.configs[config] if config else {}
        self.base = "cede" if self.phases else self.c.get("base", "alone")

    def roles(self):
        return {name: r for name, r in self.p.roles.items() if self.alone in (None, name)}

    def words(self, lines, role):
        """Returns what lines "ROLE words" have for a role, without its name, or None if there is no such line."""
        found = [line[len(role):] for line in self.c.get(lines, "").split("\n")
                 if line == role or line.startswith(role + " ")]
        return "".join(found) if found else None

    def terms(self, role):
        """Returns the arguments of `cede set` for a role."""
        r = self.p.roles[role]
        weight = f" -w {r['weight']:.0f}" if r["weight"] > 0 else ""
        more = f" {r['set']}" if r["set"] else ""
        return f" -c {r['class'] or 'normal'}{weight}{more}{self.words('set', role) or ''}"

    def conf(self):
        """Returns the text of ceded's configuration file."""
        name = f"name = {self.c['policy']}\n" if self.c.get("policy") else ""
        return f"[policy]\n{name}" + (f"{self.c['conf']}\n" if self.c.get("conf") else "")

    def key(self):
        """Returns all that decides what the session measures. Sessions with the same key need to run only once."""
        cede = bool(self.config) and self.base == "cede"
        return (self.slot, self.name, [(name, 1 if self.alone else r["count"], r["program"] or r["load"],
                                        self.terms(name) if cede else "") for name, r in self.roles().items()],
                self.conf() if cede else "", [self.c.get(k) for k in ("env", "wrap", "start", "run", "stop", "options")])

    def plan(self, soft):
        """Returns what `cede bench cells` is told (bench/runner/plan.h)."""
        env = self.c.get("env", "").split("\n") if self.c.get("env") else []
        roles = []
        for name, r in self.roles().items():
            # 0 is the normal, and highest, priority of a client
            mps = [f"CUDA_MPS_CLIENT_PRIORITY={int(r['class'] == 'batch')}"] if self.base == "mps" else []
            role = {"name": name, "count": 1 if self.alone else int(r["count"]), "ready": r["ready"],
                    "later": r["start"] == "later", "terms": self.terms(name), "env": "\n".join(mps + env)}
            role.update({"program": r["program"]} if r["program"] else {"load": (soft and r["soft"]) or r["load"]})
            options = self.words("options", name)
            roles.append({**role, **({} if options is None else {"options": options})})
        top = self.p.top
        return {"base": self.base, "gpus": int(top["gpus"]), "settle": top["settle"], "seconds": self.p.window(),
                "conf": self.conf(), **{k: self.c[k] for k in ("start", "stop", "run", "wrap") if self.c.get(k)},
                "roles": roles, "phases": [{"name": name, "steps": f["do"], "seconds": self.p.window(f)}
                                           for name, f in self.p.phases.items()] if self.phases else []}

    def cells(self, found, repeat):
        """Yields the cells as results have them: one, or one for each phase."""
        for i, name in enumerate(self.p.phases if self.phases else [self.name]):
            c = found[i] if isinstance(found, list) else found
            yield {"config": name, "point": dict(self.p.at), "status": c["status"], "window_s": float(c.get("window_s", 0)),
                   **({"alone": self.alone} if self.alone else {}),
                   **{k: c[k] for k in ("error", "stderr", "roles") if k in c}, "repeat": repeat + 1}


def same_values(then, now):
    """Compares points with the six digits that files have."""
    return isinstance(then, dict) and len(then) == len(now) and all(
        is_number(then.get(axis)) and abs(then[axis] - v) <= 1e-5 * abs(v) for axis, v in now.items())


def has_session(result, x, repeat, unavailable):
    """Tells whether a result has all cells of a session. If the session is unavailable on this machine, a cell that says so is
    enough."""
    def has(config):
        for c in elements(result, "cells"):
            if text_of(c, "config") == config and text_of(c, "alone") == (x.alone or "") and \
                    get(c, "repeat") == repeat + 1 and same_values(get(c, "point"), x.p.at):
                return text_of(c, "status") == "ok" or (unavailable and text_of(c, "status") == "unavailable")
        return False
    return all(map(has, x.p.phases if x.phases else [x.name]))


def differs(then, now):
    """Returns in words what the head of another run differs in, or None if in nothing that matters. Texts that are "" are not
    known yet, and are not compared."""
    for key, words in DIFFERS.items():
        if now.get(key) != "" and (now.get(key) is None or now[key] != get(then, key)):
            return words
    return None


# ---- the runner ----

class Runner:
    """`cede bench cells`, which measures one session after the other. about describes the machine. Signals that ask the bench
    to end are passed on to it, and it ends what it has started first."""

    def __init__(self, o):
        self.signal, self.process = 0, None
        for n in STOP_SIGNALS:
            if signal.getsignal(n) != signal.SIG_IGN:
                signal.signal(n, self.stop)
        self.process = subprocess.Popen([o.cede, "bench", "cells", o.device, os.path.join(o.scenarios, "../programs")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        if self.signal:
            self.process.send_signal(self.signal)
        self.about = self.answer()

    def stop(self, n, _):
        self.signal = self.signal or n
        if self.process and self.process.poll() is None:
            self.process.send_signal(n)

    def check(self):
        if self.signal:
            raise Wrong("interrupted", 128 + self.signal)

    def answer(self):
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            status = self.process.wait()
            self.check()  # a signal between two sessions ends the runner at once
            raise Wrong(f"cede bench cells: ended with status {status}", 1)
        o = json.loads(line)
        if "error" in o:
            self.signal = o.get("signal") or self.signal
            raise Wrong(o["error"], 128 + self.signal if self.signal else self.process.wait())
        return o

    def ask(self, session):
        try:
            self.process.stdin.write(json.dumps(session).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self.answer()

    def close(self):
        self.process.communicate()


# ---- scenarios ----

def find_scenarios(datadir):
    """Returns the directory of the scenario files. Raises Wrong."""
    env = os.environ.get("CEDE_SCENARIOS")
    beside = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../scenarios")
    for place in [env] if env is not None else [beside, f"{datadir}/cede/scenarios", "bench/scenarios"]:
        if os.path.isdir(place):
            return place
    where = env if env is not None else f"{datadir}/cede/scenarios or bench/scenarios"
    raise Wrong(f"no scenario files in {where}: give their directory by --scenarios", 1)


class Item:
    """A scenario that is to be run, and what came of it."""

    def __init__(self, job, path):
        self.job, self.o = job, job.o
        self.points, self.text, self.name = scenario.load(path, job.o.quick, job.o.soft)
        self.s = self.points[0]
        self.needs = self.s.top["needs"]
        self.kept = self.skipped = self.clocks = None
        self.took = 0.0
        self.repeats = min(job.o.repeat or int(self.s.top["repeat"]), REPEATS_MAX)
        self.result = Result(self.points, self.repeats, job.o.soft)
        self.path = None if job.o.out is None else os.path.join(job.o.out, self.name + ".json")

    def unavailable(self, x):
        """Returns why this machine cannot run a session, or None."""
        if x.base == "mps" and not self.job.mps:
            return "there is no MPS on a software GPU" if self.o.soft else "nvidia-cuda-mps-control is not installed"
        if 0 < self.job.about["memory_mib"] < x.p.top["memory_mib"]:
            return "the GPU or the host has less memory"
        return None

    def seconds(self, x):
        """Estimates how long a session takes."""
        if self.unavailable(x):
            return 0
        t = (SOFT_S if self.o.soft else SESSION_S) + x.p.top["settle"] * max(1, len(x.p.phases))
        for r in x.roles().values():
            program = TORCH_S if "torch" in self.needs.split(" ") else PYTHON_S
            t += (1 if x.alone else r["count"]) * (program if r["program"] else SOFT_LOAD_S if self.o.soft else PROGRAM_S)
        for phase in x.p.phases.values():
            t += (0 if self.o.soft else phase["takes"]) + x.p.window(phase)
        return t if x.p.phases else t + x.p.window()

    def plan(self):
        """Lists the sessions in the order in which they are run. A session whose `same` is another point need not run. Phases
        come after one another, so no two runs of them are the same."""
        self.sessions, first = [], {}
        for p in self.points:
            found = [Session(p, 0)] if p.phases else [
                Session(p, self.result.slot_alone(name), alone=name) for name, r in p.roles.items() if r["alone"] != "no"]
            found += [Session(p, i, config=name) for i, name in enumerate(p.configs) if self.o.only in (None, name)]
            for x in found:
                if not p.phases:
                    x.same = first.setdefault(repr(x.key()), p.index)
                self.sessions.append(x)
        self.runs = [x for x in self.sessions if x.same == x.p.index]
        self.planned = sum(map(self.seconds, self.runs)) * self.repeats

    def other_device(self):
        """Returns which other device the scenario needs, or None."""
        needs, gated = self.needs.split(" "), self.o.device == "opencl"
        if "nvidia" in needs and (self.o.soft or gated):
            return "needs an NVIDIA GPU"
        if "softgpu" in needs and not self.o.soft:
            return "needs --device soft"
        return "needs --device opencl" if "opencl" in needs and not gated else None

    def lacking(self):
        """Returns what the scenario needs and this machine lacks, or None. "set:--budget=1ms" needs an option of a verb."""
        if self.other_device():
            return self.other_device()
        if self.s.top["gpus"] > 1 and not self.o.soft and self.job.about["gpus"] < self.s.top["gpus"]:
            return "needs more GPUs"
        for word in filter(None, self.needs.split(" ")):
            verb, colon, option = word.partition(":")
            programs = os.path.join(self.o.scenarios, "../programs")
            if word == "libcede" and not self.job.succeeds("python3", f"{programs}/serving.py", "--check"):
                return "needs libcede and its Python modules: install them, or set CEDE_LIBRARY"
            if word == "swap" and self.o.device == "opencl":
                return "needs a device whose jobs can be swapped"
            if word == "swap" and not self.o.soft and int(re.match("[0-9]*", self.job.about["version"])[0] or 0) < SWAP_DRIVER:
                return "needs an NVIDIA driver of version 570 or later"
            if word in MODULES and not self.job.succeeds("python3", "-c", MODULES[word][0]):
                return MODULES[word][1]
            if colon and not self.job.succeeds(self.o.cede, verb, option or "--help", "--help"):
                return "needs an option that this cede does not have"
        return None

    def head(self):
        """Returns the head of a result file, which says where it comes from."""
        top, about = self.s.top, self.job.about
        o = {"test_id": top["id"], "test_name": top["title"], "scenario": self.name, "reference": top["reference"],
             "date": time.strftime("%Y-%m-%d"), "hardware": about["gpu"], "driver_version": about["version"],
             "kernel": platform.release(), "cede_version": self.o.version, "device": self.o.device,
             "command": self.o.command, "quick": self.o.quick}
        return o if self.text is None else {**o, "scenario_file": self.text}

    def look_back(self):
        """Keeps the result in --out if a run would measure nothing more. A result that lacks anything is measured anew as a
        whole, because what is compared has to be measured close together."""
        if not os.path.exists(self.path):
            return
        kept = load_json(self.path)
        why = differs(kept, self.head()) if kept is not None else "cannot be read"
        if not why and get(kept, "failed_cells"):
            why = "has cells that failed"
        if not why:
            there = sum(has_session(kept, x, i, self.unavailable(x)) for i in range(self.repeats) for x in self.runs)
            if there < len(self.runs) * self.repeats:
                why = f"has {there} of {len(self.runs) * self.repeats} sessions"
        self.kept = None if why else kept
        if self.o.resume:
            print(f"{self.name}: {'measured anew' if why else 'kept'}: {self.path} {why or 'has all of it'}", file=sys.stderr)

    def json(self, cells=True):
        top = self.s.top
        o = {**self.head(), "shows": top["shows"], "figures": top["figure"], "took_s": float(self.took)}
        if self.clocks:
            o["clocks"] = self.clocks
        if self.skipped:
            return {**o, "skipped": self.skipped, "pass": None, "notes": f"Skipped: it {self.skipped}. {top['note']}"}
        o.update(self.result.json())
        o["notes"] = f"{o['failed_cells']} cells failed, {o['missed']} targets missed.{' ' if top['note'] else ''}{top['note']}"
        return {**o, "cells": self.result.cells_text()} if cells else o

    def write(self):
        if self.path:
            put_file(self.o.cede, self.path, dumps(self.json(), 1))

    def run(self, x, repeat):
        r, p = self.result, x.p.index
        if x.same < p:
            r.put(repeat, x.slot, p, r.at.get((repeat, x.slot, x.same)))
            return
        self.job.progress(self, x, repeat)
        why = self.unavailable(x)
        answer = {"cells": {"status": "unavailable", "error": why}} if why else self.job.runner.ask(x.plan(self.o.soft))
        self.clocks = answer.get("clocks", self.clocks)
        self.job.done += self.seconds(x)
        self.took = time.monotonic() - self.started
        for i, cell in enumerate(x.cells(answer["cells"], repeat)):
            r.put(repeat, x.slot + i, p, cell)
            r.cells.append(cell)
        self.write()


class Job:
    """What one command is to do. All scenarios that were named are read and checked before anything else."""

    def __init__(self, o):
        self.o = o
        self.about = {"gpu": "", "version": "", "memory_mib": 0, "gpus": 0}  # the machine, which is not known yet
        self.mps = o.device == "nvidia" and shutil.which("nvidia-cuda-mps-control") is not None
        self.runner, self.session, self.sessions, self.planned, self.done = None, 0, 0, 0.0, 0.0
        self.terminal, self.found = sys.stderr.isatty(), {}
        self.items = [Item(self, path) for path in self.paths()]

    def paths(self):
        paths, folder = [], self.o.scenarios
        for name in self.o.names:
            path = name if "/" in name else f"{folder}/{name}.ini"
            if name == "all":
                try:
                    paths += [f"{folder}/{n}" for n in sorted(os.listdir(folder), key=lambda n: n[:-4])
                              if len(n) > 4 and n.endswith(".ini")]
                except OSError as e:
                    raise Wrong(f"cannot read {folder}: {e.strerror}", 2 if e.errno == 2 else 1) from e
            elif os.path.exists(path):
                paths.append(path)
            else:
                raise Wrong(f"there is no scenario '{name}': see `cede bench list`")
        if len(paths) > SCENARIOS_MAX:
            raise Wrong(f"more than {SCENARIOS_MAX} scenarios", 1)
        return paths

    def succeeds(self, *argv):
        """Tells whether a command ends with status 0. Each is tried once, because that takes seconds."""
        if argv not in self.found:
            try:
                self.found[argv] = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120,
                                                  stderr=subprocess.DEVNULL, check=False).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                self.found[argv] = False
        return self.found[argv]

    def list(self):
        """Returns one object a scenario. left_out says why it is not for this device, done that its result is in `out`."""
        if self.o.out and self.o.device == "nvidia":
            try:
                runner = Runner(self.o)
                self.about["memory_mib"] = runner.about["memory_mib"]
                runner.close()
            except Wrong:
                pass  # without a GPU, its memory is not known
        out = []
        for it in self.items:
            it.plan()
            if it.path:
                it.look_back()
            out.append({"name": it.name, "id": it.s.top["id"], "title": it.s.top["title"], "needs": it.needs,
                        "sessions": len(it.runs) * it.repeats, "seconds": float(it.planned),
                        "left_out": it.other_device(), "done": it.kept is not None})
        return out

    def progress(self, it, x, repeat):
        self.session += 1
        point = "".join(f" {axis}={v:.6g}" for axis, v in x.p.at.items())
        elapsed = time.monotonic() - self.start
        seconds = (self.planned - self.done) * (elapsed / self.done if self.done > 5 else 1)
        left = f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{max(seconds, 0):.0f} s left"
        alone = f" {x.alone}" if x.alone else ""
        print(f"{chr(13) if self.terminal else ''}[{self.session}/{self.sessions}] {it.name}{point} {x.name}{alone}, "
              f"repeat {repeat + 1}/{it.repeats}, {left}", end="\033[K" if self.terminal else "\n", file=sys.stderr, flush=True)

    def prepare(self):
        configs = [name for it in self.items for name in it.s.configs]
        if self.o.only and configs and self.o.only not in configs:
            raise Wrong(f"--only {self.o.only}: none of these scenarios has that configuration; one that they have is "
                        f"{configs[-1]}")
        self.runner = Runner(self.o)
        self.about = self.runner.about
        if self.o.out is not None:
            try:
                os.mkdir(self.o.out)
            except FileExistsError:
                pass
            except OSError as e:
                raise Wrong(f"cannot make {self.o.out}: {e.strerror}", 1) from e
        for it in self.items:
            it.plan()
            if self.o.resume:
                it.look_back()
            if not it.kept:
                it.skipped = it.lacking()
            if not it.kept and not it.skipped:
                self.sessions += len(it.runs) * it.repeats
                self.planned += it.planned
            self.runner.check()

    def summary(self, upto, passed=True):
        shown = []
        for it in self.items[:upto]:
            o = dict(it.kept) if it.kept else it.json(cells=False)
            shown.append({**{k: v for k, v in o.items() if k not in ("cells", "rows", "shows", "figures", "scenario_file")},
                          "kept": it.kept is not None})
        failed, missed, busy = (sum(get(o, k) or 0 for o in shown) for k in ("failed_cells", "missed", "busy"))
        some = any(not it.skipped for it in self.items[:upto])  # False if all were left out
        return {"hardware": self.about["gpu"], "driver_version": self.about["version"], "scenarios": shown,
                "failed_cells": failed, "missed": missed, **({"busy": busy} if busy else {}),
                "pass": passed and some and not failed and not missed and not busy,
                "took_s": time.monotonic() - self.start}

    def run(self):
        """Returns the summary, and what went wrong or None. The roles alone and every configuration run point by point and
        repeat by repeat, so that what is compared is measured close together."""
        upto, wrong = 0, None
        self.start = time.monotonic()
        try:
            self.prepare()
            self.start = time.monotonic()
            for upto, it in enumerate(self.items, 1):
                it.started = time.monotonic()
                for repeat in range(0 if it.kept or it.skipped else it.repeats):
                    for x in it.sessions:
                        it.run(x, repeat)
                if not it.kept:
                    it.write()
        except Wrong as e:
            wrong = e
        if self.runner and self.runner.process:
            self.runner.close()
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        shown = self.summary(upto, not wrong) if not wrong or (wrong.status > 128 and upto) else None
        return shown, wrong
