"""`cede top` in a real terminal, tmux's: with a ceded and jobs on the software GPU, and with a stand-in
of ceded for what no real one says: hostile names, 500 jobs. Also `cede top --once` and `--json`.

usage: test_top.py CEDE [TEST...]"""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

from on_soft import CEDE, WAIT_S, OnSoft, eventually


class StandIn:
    """Answers `ps` as ceded does, with jobs of the test's, and notes what else it is asked."""

    def __init__(self, test, jobs):
        self.jobs, self.asked, self.start, self.silent = jobs, [], time.monotonic(), False
        self.refusal = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(test.path("socket"))
        self.socket.listen(8)
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def close(self):
        """Its number may be another socket's next: nobody may wait there any more."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(WAIT_S)
        self.socket.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.socket.accept()[0]
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection:
            while True:
                message = connection.recv(65536)
                if not message:
                    return
                request = json.loads(message)
                while self.silent:
                    time.sleep(0.05)
                if request["op"] == "ps":
                    reply = self.page(request.get("after", 0))
                else:
                    self.asked.append(request)
                    reply = {"v": 1, "ok": False, "errno": 1, "error": self.refusal} if self.refusal else \
                        {"v": 1, "ok": True, "job": {}}
                connection.send(json.dumps(reply).encode())

    def page(self, after):
        now = time.monotonic() - self.start + 10
        gpus = [{"index": 0, "label": "soft0", "name": "\x1b[2Jgpu", "uuid": "", "level": 1,
                 "level_name": "hardware", "caps": []}]
        page = {"v": 1, "ok": True, "more": False, "policy": "laxity", "device": "soft", "gpus": gpus,
                "pid": os.getpid(), "jobs": [], "unmanaged": [] if after else [
                    {"pid": 2147483601, "name": "stranger", "uid": 4242, "gpus": [0], "detached": False, "may_set": True}]}
        size = len(json.dumps(page))
        for number, name in sorted(self.jobs.items()):
            job = {"number": number, "name": name, "class": "batch", "weight": 100, "pid": 2147480000 + number,
                   "uid": os.getuid(), "state": "running", "gpus": [0], "memory_bytes": number << 20,
                   "counts": {"known_s": now, "gpus": [{"gpu": 0, "gpu_s": now * number / 1000,
                                                        "counted_s": now, "waited_s": 0.0}]}}
            size += len(json.dumps(job)) + 2
            if number <= after:
                size -= len(json.dumps(job)) + 2
            elif size > 65000:
                page["more"] = True
                break
            else:
                page["jobs"].append(job)
        return page


class Top(OnSoft):
    def setUp(self):
        super().setUp()
        self.env["LC_ALL"] = "C.UTF-8"
        for name in ("NO_COLOR", "TMUX", "TERM"):
            self.env.pop(name, None)

    def job(self, name, kind):
        role = "latency" if kind == "latency" else "batch"
        return self.start(CEDE, "run", "-c", kind, "--name", name, "--", CEDE, "load", role, "--device", "soft",
                          "--memory", "100M")

    def three_jobs(self):
        jobs = [self.job(name, kind) for name, kind in (("serve", "latency"), ("train", "batch"), ("sweep", "batch"))]
        eventually(lambda: [j["gpus"] for j in self.jobs().values()] == [[0]] * 3, "the jobs do not run")
        return jobs

    # -- the terminal ----------------------------------------------------------------------------

    def tmux(self, *args):
        return self.run_as("tmux", "-S", self.path("tmux"), "-f", "/dev/null", *args, check=True).stdout

    def terminal(self, width=100, height=24, **env):
        """A shell in a terminal of that size."""
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height),
                  " ".join(["env", "PS1='ready> '", *[f"{k}={v}" for k, v in env.items()], "sh -i"]))
        self.addCleanup(subprocess.run, ["tmux", "-S", self.path("tmux"), "kill-server"], check=False)
        self.sees(r"^ready>$")
        self.modes = self.shell("stty -g | cksum")

    def top(self, *args, width=100, height=24, **env):
        self.terminal(width, height, **env)
        self.keys(" ".join([CEDE, "top", "-d 0.2", *args]), "Enter")
        self.sees(r"F1\s*Help")

    def shell(self, command):
        self.keys(f"clear; {command}; echo don''e", "Enter")
        return re.search(r"^(.*)\ndone$", self.sees(r"^done$"), re.M)[1]

    def running(self):
        """The pid of the shell's child."""
        pid = self.tmux("display", "-p", "#{pane_pid}").strip()
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return int(f.read().split()[0])

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def sees(self, pattern):
        """What the screen holds, as soon as it matches."""
        def matches():
            shown = self.screen()
            return re.search(pattern, shown, re.M) and shown
        return eventually(matches, lambda: f"{pattern!r} is not on the screen:\n{self.screen()}")

    def sees_not(self, pattern):
        eventually(lambda: not re.search(pattern, self.screen(), re.M),
                   lambda: f"{pattern!r} is on the screen still:\n{self.screen()}")

    def names(self):
        """Of the jobs on the screen, from the top."""
        return re.findall(r"^[ *]*#\d+ .* (\S+)$", self.screen(), re.M)

    def orders(self, *names):
        eventually(lambda: self.names() == list(names), lambda: f"the order is {self.names()}, not {names}")

    def restored(self):
        """The shell has its terminal back, as it was."""
        self.sees(r"^ready>$")
        self.assertEqual(self.shell("stty -g | cksum"), self.modes)
        self.assertEqual(self.tmux("display", "-p", "#{alternate_on} #{cursor_flag} #{keypad_cursor_flag}").strip(),
                         "0 1 0")

    # -- jobs --------------------------------------------------------------------------------------

    def test_jobs(self):
        """With a real ceded: shares add up, and keys change what `cede ps` shows."""
        self.ceded()
        self.three_jobs()
        self.top()
        screen = self.sees(r"#\d+ .*batch .* [1-9]\d*% +\|")
        self.assertRegex(screen, r"(?m)^3 jobs: .* policy laxity")
        self.assertRegex(screen, r"(?m)^GPU 0 .*3 jobs")
        self.sees(r"^GPU 0  \[[| ]+\] +([89]\d|100)%")
        self.keys("N")
        eventually(lambda: len(self.names()) == 3, "not three jobs")
        self.keys("F4", "tra", "Enter", "p")
        eventually(lambda: self.jobs()["train"]["state"] == "paused", "train is not paused")
        self.sees(r"#\d+ .* paused .* train$")
        self.keys("r")
        eventually(lambda: self.jobs()["train"]["state"] != "paused", "train is not resumed")
        self.keys("F7", "n", "Enter")
        eventually(lambda: self.jobs()["train"]["class"] == "normal", "train is not normal")
        self.sees(r"#\d+ .*normal .* train$")
        self.keys("F8", "250", "Enter")
        eventually(lambda: self.jobs()["train"]["weight"] == 250, "train has not its weight")
        self.sees(r"train: set")  # the answer would be over what is said next
        self.keys("F8", "0", "Enter")
        self.sees(r"weight: '0' is")
        self.assertEqual(self.jobs()["train"]["weight"], 250)
        self.keys("q")
        self.restored()

    def test_daemon_returns(self):
        """It dies, and comes back."""
        daemon = self.ceded()
        self.three_jobs()
        self.top(width=140)
        self.sees(r"^3 jobs: .* policy laxity")
        daemon.kill()
        daemon.wait(WAIT_S)
        self.sees(rf"ceded \(pid {daemon.pid}\) has ended: these are the jobs on record")
        self.sees(r"#\d+ .* train$")
        self.keys("p")
        self.sees(r"no daemon is running to do it")
        again = self.daemon()
        self.sees(rf"ceded is there again \(pid {again.pid}\)")
        self.sees(r"^3 jobs: .* policy laxity")
        self.sees(r"#\d+ .* [1-9]\d*% .* train$")
        self.keys("F10")
        self.restored()

    def test_without_daemon(self):
        r = self.cede("top", "--once")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("no daemon is running: these are the jobs on record", r.stderr)
        self.assertEqual(r.stdout, "0 jobs: 0 running, 0 waiting\n")
        o = json.loads(self.cede("top", "--json").stdout)
        self.assertEqual((o["daemon"], o["jobs"], o["gpus"]), (False, [], []))

    def test_plain(self):
        """--once and --json with a real ceded: the shares of a GPU that is never idle."""
        self.ceded()
        self.three_jobs()
        r = self.cede("top", "--once")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertNotIn("\x1b", r.stdout)
        self.assertEqual(sorted(re.findall(r"^ +#\d.* (\S+)$", r.stdout, re.M)), ["serve", "sweep", "train"])
        o = json.loads(self.cede("top", "--json").stdout)
        shares = {j["name"]: j["share"] for j in o["jobs"]}
        self.assertLess(shares["serve"], shares["train"])
        self.assertAlmostEqual(sum(shares.values()), o["gpus"][0]["share"], 6)
        self.assertLess(sum(shares.values()), 1.1)
        p = subprocess.Popen([CEDE, "top", "--json", "-d", "0.2"], env=self.env, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        lines = [json.loads(p.stdout.readline()) for _ in range(4)]
        p.stdout.close()
        self.assertIsNone(lines[0]["jobs"][0]["share"])
        self.assertGreater(sum(j["share"] for j in lines[3]["jobs"]), 0)
        self.assertEqual(p.wait(WAIT_S), -signal.SIGPIPE)  # nobody reads

    # -- the stand-in ----------------------------------------------------------------------------

    def test_keys(self):
        StandIn(self, {1: "one", 2: "two", 3: "three", 4: "other"})
        self.top()
        self.orders("other", "three", "two", "one")
        for key, names in (("N", ("one", "two", "three", "other")), ("I", ("other", "three", "two", "one")),
                           ("P", ("other", "three", "two", "one")), ("M", ("other", "three", "two", "one"))):
            self.keys(key)
            self.orders(*names)
        self.keys("F6")
        self.sees(r"^ Sort by")
        self.keys("End", "Up", "Up", "Up", "Up", "Escape")  # cancelled
        self.sees_not(r"Sort by")
        self.orders("other", "three", "two", "one")
        self.keys(">")
        self.sees(r"^ memory")
        self.keys(*["Down"] * 5, "Enter")  # from memory to name
        self.orders("one", "other", "three", "two")
        self.keys("F4", "th")
        self.orders("other", "three")
        self.keys("BSpace", "hr", "Enter")
        self.orders("three")
        self.sees(r"^filter: thr")
        self.keys("Escape")
        self.orders("one", "other", "three", "two")
        self.keys("?")
        self.sees(r"^WAIT    time in which the job had work")
        self.keys("q", "q")
        self.restored()

    def test_refused(self):
        """What ceded refuses is said, and nothing else happens."""
        d = StandIn(self, {7: "x"})
        d.refusal = "not permitted: the job is \x1b[31mroot's"
        self.top()
        self.keys("p")
        self.sees(r"^#7 x: not permitted: the job is \?\[31mroot's")
        self.keys("F7", "l", "Enter")
        eventually(lambda: len(d.asked) == 2, "was not asked")
        self.assertEqual(d.asked, [{"v": 1, "op": "pause", "target": "#7"},
                                   {"v": 1, "op": "set", "target": "#7", "class": "latency"}])
        self.keys("End", "F7", "b", "Enter")  # one in no job becomes one
        eventually(lambda: len(d.asked) == 3, "was not asked")
        self.assertEqual(d.asked[2], {"v": 1, "op": "set", "target": 2147483601, "class": "batch"})

    def test_hostile_names(self):
        names = {1: "a\x1b[2J\x1b]0;owned\x07b", 2: "漢字かな" * 30, 3: "e" + "\u0301" * 40 + "x", 4: "\u202eabc",
                 5: "x" * 500, 6: "\x9b31m\x0e", 7: "plain", 8: "\ud7ff\U0001f600\u200d"}
        StandIn(self, names)
        title = self.top(width=140) or self.tmux("display", "-p", "#{pane_title}")
        self.keys("N")
        screen = self.sees(r"#8 (?s:.*)^F1Help.*\n\Z")
        lines = screen.split("\n")
        self.assertRegex(screen, r"(?m)^ +#7 .* plain$")
        self.assertRegex(screen, r"(?m)^ +#1 .* a\?\[2J\?\]0;owned\?b$")
        self.assertNotIn("\u202e", screen)
        self.assertLessEqual(screen.count("\u0301"), 2)
        starts = {line.index("batch") for line in lines if "#" in line and "batch" in line}
        self.assertEqual(len(starts), 1)  # columns are where they were
        self.assertEqual(self.tmux("display", "-p", "#{pane_title}"), title)
        self.assertIn("?[2Jgpu", screen)

    def test_sizes(self):
        """Any size, also while it runs; and what a small one shows is not nothing."""
        StandIn(self, {i: f"job-{i}" for i in range(1, 31)})
        self.top(width=120, height=30)
        self.sees(r"^ *JOB +PID +CLASS")
        for width, height in ((80, 24), (40, 10), (10, 3), (2, 2), (200, 60), (80, 24)):
            self.tmux("resize-window", "-x", str(width), "-y", str(height))
            if width >= 40:
                screen = self.sees(r"^ +#30 +.*job-30$(?s:.*)^F1Help.*\n\Z")
        self.assertRegex(screen, r"(?m)^GPU 0 .* 30 jobs")
        self.assertEqual(len(re.findall(r"^ +#.* job-\d+$", screen, re.M)), 19)
        self.keys("End")
        self.sees(r"no job .*stranger")
        self.keys("F10")
        self.restored()

    def test_larger_than_any_screen(self):
        """A terminal may say that it is as large as it likes, at the start and later."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)

        def resize(*size):
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
        resize(24, 65535)
        top = subprocess.Popen([CEDE, "top"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                               env={**os.environ, "TERM": "xterm", "CEDE_DIR": self.path("none")})
        self.addCleanup(top.kill)
        os.close(slave)
        for size in (65535, 65535), (65535, 80), (24, 80):
            self.assertTrue(eventually(lambda: select.select([master], [], [], 0)[0], "nothing is shown"))
            self.assertTrue(os.read(master, 1 << 20))
            self.assertIsNone(top.poll())
            resize(*size)
            top.send_signal(signal.SIGWINCH)  # the terminal is not its controlling one
            time.sleep(0.3)
        os.write(master, b"q")

        def ended():
            with contextlib.suppress(OSError):
                while top.poll() is None and select.select([master], [], [], 0.1)[0]:
                    os.read(master, 1 << 20)
            return top.poll() is not None
        eventually(ended, "it does not end")
        self.assertEqual(top.returncode, 0)

    def test_no_colour(self):
        """NO_COLOR, and a terminal that has none: no colours, and no characters but ASCII."""
        StandIn(self, {600: "one", 2: "two"})
        self.top(NO_COLOR="1")
        self.orders("one", "two")
        self.assertNotRegex(self.tmux("capture-pane", "-pe"), r"\x1b\[[\d;]*\b(3[0-7]|9[0-7]|38)\b")
        self.keys("q")
        self.sees(r"^ready>$")
        self.keys(f"clear; TERM=vt100 LC_ALL=C {CEDE} top -d 0.2", "Enter")
        screen = self.sees(r"#600 .* \d\d% \|+ .* one$(?s:.*)^F1Help")
        self.assertTrue(screen.isascii())
        self.assertNotRegex(self.tmux("capture-pane", "-pe"), r"\x1b\[[\d;]*\b(3[0-7]|9[0-7]|38)\b")
        self.keys("q")
        self.sees(r"^ready>$")
        self.keys(f"clear; TERM=no-such-terminal {CEDE} top -d 0.2", "Enter")
        self.sees(r"#600 .* one$")
        self.keys("q")
        self.sees(r"^ready>$")
        self.keys(f"clear; TERM=dumb {CEDE} top", "Enter")
        self.sees(r"cede: TERM says that this terminal cannot show")

    def test_ends(self):
        """However it ends, the terminal is as it was; ^Z and fg go on."""
        StandIn(self, {1: "one"})
        self.top()
        self.sees(r"#1 .* one$")
        self.keys("C-z")
        self.sees(r"Stopped")
        self.assertEqual(self.shell("stty -g | cksum"), self.modes)
        self.keys("clear; fg", "Enter")
        self.sees(r"^F1\s*Help")
        self.sees(r"#1 .* one$")
        os.kill(self.running(), signal.SIGSTOP)  # unawares
        self.sees(r"Stopped")
        self.keys("clear; stty sane; fg", "C-j")
        self.sees(r"^F1\s*Help")

        def helps():  # a key that comes while the terminal is set up is lost
            self.keys("?")
            time.sleep(1)
            return "this page" in self.screen()
        eventually(helps, "a key does nothing")
        self.keys("C-c")
        self.restored()
        for how in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            self.keys(f"clear; {CEDE} top", "Enter")
            self.sees(r"#1 .* one$")
            os.kill(self.running(), how)
            self.restored()

    def test_many(self):
        """500 jobs, in pages; a daemon that does not answer is named, and the keys go on."""
        d = StandIn(self, {i: f"job-{i}" for i in range(1, 501)})
        self.top()
        self.sees(r"^500 jobs: 500 running, 0 waiting; 1 in no job")
        eventually(lambda: self.names()[:2] == ["job-500", "job-499"], "the order is another")
        self.keys("N", "F4", "job-321", "Enter")
        self.sees(r"#321 .* job-321$")
        self.orders("job-321")
        self.keys("Escape", "End")
        self.sees(r"no job .*stranger")
        d.silent = True
        self.sees(r"has not answered for \d+ s")
        self.keys("Home")
        self.sees(r"#1 .* job-1$")
        d.silent = False
        self.sees_not(r"has not answered")
        d.jobs = {3: "left"}
        self.orders("left")

    def test_usage(self):
        for args, said in ((("-d", "0"), "is not a number from 0.1 to 3600"), (("-d", "x"), "is not a number"),
                           (("--once", "--json"), "exclude each other"), (("x",), "unexpected argument 'x'"),
                           ((), "no terminal; try `cede top --once`")):
            r = self.cede("top", *args)
            self.assertEqual((r.returncode, r.stdout), (2, ""))
            self.assertIn(said, r.stderr)


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("skipped: tmux is not installed")
        sys.exit(77)
    unittest.main()
