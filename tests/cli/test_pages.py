"""A page can be repeated: its commands run as they stand there, one after the other in one shell with a software GPU of its own, and
what they print is what the page shows, but for numbers. A command that cannot run here is in NOT_RUN with the reason.

usage: test_pages.py CEDE SOURCE_DIR PAGE     CEDE has ceded, cede-load and cede-softgpu beside it, as a build and an installation have"""
import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from on_soft import CEDE, WAIT_S, eventually

SOURCE, PAGE = sys.argv.pop(1), sys.argv.pop(1)
NOT_RUN = {  # commands that begin with it -> why
    "sudo apt install": "fetches and installs; scripts/packages-test builds and installs the packages",
    "sudo make deb": "as above",
    "sudo adduser": "changes users of the machine",
    "make ": "takes minutes, and is what runs this test",
    "sudo cede doctor": "measures a GPU",
    "cede run -c latency -n serve -- python3 serve.py  ": "of README, for a GPU; the guide's second step is the same",
    "cede run -c batch -n train -- python3 train.py  ": "as above",
    "sudo cede bench": "takes more than an hour; tests/bench runs every scenario shortened",
    "python3 bench/programs/looking.py": "a measurement of a minute",
    "sudo mkdir -p /etc/systemd": "changes services of the machine",
    "sudo cp /usr/share/cede/systemd": "as above",
    "sudo systemctl": "as above",
}
RUN = re.compile(r"(sudo )?(\w+=\S+ )*(cede|ceded|cede-load|cede-softgpu|export|sleep|kill|turn\.py|jupyter)\b")  # no others
NO_COMMANDS = ("↓", "driver default", "cede             train", "sum by (user)")  # how blocks that are none begin
LOAD = "exec cede-load batch --kernel-us 1000 --memory 128M\n"
STAND_INS = {"sudo": 'exec "$@"\n', "python3": LOAD, "vllm": LOAD, "jupyter": LOAD,
             "turn.py": f'exec {sys.executable} {SOURCE}/examples/rl/turn.py "$@"\n',
             # Prints what the filter asks for, and fails where a field is not there.
             "jq": f'''exec {sys.executable} -c '
import json, re, sys
print([{{f: j[f] for f in re.findall(r"\\w+", sys.argv[2].split("{{")[1])}} for j in json.load(sys.stdin)["jobs"]])' "$@"\n'''}
MACHINE = ["cede-softgpu &", "ceded --config conf 2>ceded.log &"]  # what a page takes for granted, unless it begins both itself
BEFORE = {"Live: cede top": ["cede run -c latency -n serve -- cede-load latency --memory 8G &",
                             "cede run -c batch -w 300 -n train -- cede-load batch --memory 40G &",
                             "cede run -c batch -n sweep -- cede-load batch --memory 12G &"],
          "Accounting": ["cede run -c normal -n try -- cede-load batch --seconds 1", "cede kill serve train sweep"]}  # headings
LOOKS = re.compile(r"(sudo )?cede (ps|top|why|acct|status|rules)\b")  # may be repeated until what they show is there
STARTS = re.compile(r"(^|-- |\w+=\w+ )(cede-load|python3?|vllm|jupyter)\b.*&$")  # a program on the GPU


def parts():
    """Of the page its headings, and the lines of each indented paragraph."""
    with open(os.path.join(SOURCE, PAGE), encoding="utf-8") as f:
        for heading, block in re.findall(r"^#+ (.*)|((?:^    .*\n)+)", f.read(), re.M):
            yield heading, re.sub("^    ", "", block, flags=re.M).splitlines()


def page():
    """What there is to run, as (command, what it prints, whether that is all); and the rules for ceded."""
    commands, rules = [], ""
    for heading, block in parts():
        if heading:
            commands += [(line, [], False) for line in BEFORE.get(heading, ())]
        elif any(line.startswith("$ ") for line in block):
            for line in block:
                if line.startswith("$ "):
                    commands.append((line[2:], [], True))
                else:
                    commands[-1][1].append(line)
        elif block[0].startswith("["):
            rules += "\n".join(block) + "\n"
        elif not block[0].lstrip().startswith(("import ", *NO_COMMANDS)):
            commands += [(line, [], False) for line in block]
    return commands, rules


def shape(lines):
    """What has to be the same: words, but for what changes from one moment to the next. The rows of a table in any order."""
    def word(w):
        w = "root" if w == getpass.getuser() else w
        return "N" if w in "-?" or re.search(r"\d|^exact$", w) else "STATE" if w in ("running", "waiting") else w
    lines = [" ".join(map(word, re.sub(r"[\[\]|]", " ", line).split())) for line in lines if line.strip()]  # without bars
    return lines[:1] + sorted(lines[1:])


def same(expected, printed):
    """In the page ... stands for other lines."""
    e, p = shape(expected), shape(printed)
    return set(e) - {"..."} <= set(p) if "..." in e else e == p


class Shell:
    """A bash that does one line at a time; what a line prints is kept apart, also from what it leaves running."""
    def __init__(self, env, cwd):
        self.dir, self.n = cwd, 0
        self.bash = subprocess.Popen(["bash"], stdin=subprocess.PIPE, text=True, env=env, cwd=cwd, start_new_session=True)

    def do(self, line):
        """Its exit status, and a function that reads what it has printed up to now."""
        self.n += 1
        out = os.path.join(self.dir, f"out.{self.n}")
        self.bash.stdin.write(f"{{ {line}\n}} </dev/null >{out} 2>&1; echo $? >{out}.tmp; mv {out}.tmp {out}.status\n")
        self.bash.stdin.flush()
        eventually(lambda: os.path.exists(out + ".status"), lambda: f"{line} does not end: {read(out)}", 3 * WAIT_S)

        def printed():  # but for results of cede-load, and what bash says of its children
            return [t for t in read(out).splitlines() if not re.match(r"\{\"|bash: line", t)]
        return int(read(out + ".status")), printed


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Page(unittest.TestCase):
    def setUp(self):
        self.dir = d = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, d, ignore_errors=True)
        os.makedirs(d + "/bin")
        for name, text in STAND_INS.items():
            with open(f"{d}/bin/{name}", "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(f"{d}/bin/{name}", 0o755)
        os.symlink(f"{SOURCE}/tests/e2e/mps/nvidia-cuda-mps-control", d + "/bin/nvidia-cuda-mps-control")
        path = f"{d}/bin:{os.path.dirname(CEDE)}:{os.environ['PATH']}"
        env = {name: value for name, value in os.environ.items() if not name.startswith("CEDE_")}
        self.shell = Shell(dict(env, HOME=d, TMPDIR=d, XDG_RUNTIME_DIR=d, CEDE_DIR=d + "/cede", PATH=path), d)
        self.addCleanup(self.end)

    def end(self):
        self.shell.bash.stdin.close()
        os.killpg(self.shell.bash.pid, signal.SIGTERM)
        self.shell.bash.wait()

    def programs(self):
        """On the GPU or in line for it, by number or pid; none while one is on its way there."""
        status, printed = self.shell.do("cede ps --json 2>/dev/null")
        found = {} if status else json.loads("\n".join(printed()))
        jobs = found.get("jobs", ())
        return set() if any(j["state"] == "starting" for j in jobs) else \
            {j["number"] for j in jobs} | {-other["pid"] for other in found.get("unmanaged", ())}

    def run_line(self, line, expected, strict):
        """Runs a line of the page to its end, or until what it starts is there."""
        if any(line.startswith(key) for key in NOT_RUN):
            return
        until = re.search(r"  # until \^C", line)
        line = re.sub(r"  +# .*", "", line).strip()
        self.assertRegex(line, RUN, "neither this test's to run nor in NOT_RUN")
        before = self.programs() if STARTS.search(line) else None
        done = []

        def matches():
            if done:
                time.sleep(0.5)
            if not done or LOOKS.match(line) or "is starting on GPU" in "".join(done[1]()):
                done[:] = self.shell.do("timeout --preserve-status -s INT 3 " + line if until else line)
            return done[0] == 0 and (not (strict or expected) or same(expected, done[1]()))
        eventually(matches, lambda: f"{line}\n{done[0]}:\n" + "\n".join(done[1]()) + "\nThe page shows:\n" + "\n".join(expected))
        if "cede-softgpu &" in line:
            eventually(lambda: "listening on" in "".join(done[1]()), "no software GPU")
        if re.search(r"\bceded\b.*&", line):
            eventually(lambda: self.shell.do("cede policy")[0] == 0, "no ceded")
        if before is not None:
            eventually(lambda: self.programs() - before, lambda: f"{line}: is not on the GPU\n" + "\n".join(done[1]()))

    def test_page(self):
        commands, rules = page()
        with open(self.dir + "/conf", "w", encoding="utf-8") as f:
            f.write(rules)
        if not any("cede-softgpu &" in line for line, _, _ in commands):
            commands = [*((line, [], False) for line in MACHINE), *commands]
        for line, expected, strict in commands:
            self.run_line(line, expected, strict and not STARTS.search(line))


if __name__ == "__main__":
    unittest.main()
