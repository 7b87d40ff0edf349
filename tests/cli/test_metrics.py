"""`cede metrics` with a ceded and jobs on the software GPU: what it prints, writes and serves, and what
scrapers that are slow or hostile do to it. With promtool and prometheus, where they are installed,
also what those say, and each query of the dashboard.

usage: test_metrics.py CEDE CEDE_DIRECTORY_OF_INTEGRATION [TEST...]"""
import contextlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest
import urllib.parse

from on_soft import CEDE, WAIT_S, OnSoft, eventually

INTEGRATION = sys.argv.pop(1)


class Metrics(OnSoft):
    def setUp(self):
        super().setUp()
        self.env.pop("LISTEN_PID", None)

    def two_jobs(self):
        for name, role, kind in (('ser"ve\\', "latency", "latency"), ("train", "batch", "batch")):
            self.start(CEDE, "run", "-c", kind, "--name", name, "--", CEDE, "load", role, "--device", "soft",
                       "--memory", "100M")
        return eventually(lambda: self.both_ran() and self.cede("metrics").stdout, "the jobs do not run")

    def both_ran(self):
        text = self.cede("metrics").stdout
        values = re.findall(r"^cede_job_gpu_seconds_total\{.* (\S+)$", text, re.M)
        return len(set(re.findall(r'^cede_job_gpu_seconds_total\{(name="[^,]+"),', text, re.M))) == 2 \
            and sum(map(float, values)) > 0

    def serve(self, *args, where="127.0.0.1:0"):
        server = self.start(CEDE, "metrics", "--listen", where, *args, stderr=subprocess.PIPE)
        line = server.stderr.readline()
        said = re.fullmatch(r"cede: serving http://(.*):(\d+)/metrics\n", line)
        if not said and "install libmicrohttpd" in line:
            self.skipTest("libmicrohttpd is not installed")
        self.assertTrue(said, line)
        self.at = (said[1].strip("[]"), int(said[2]))
        return server

    def ask(self, method="GET", path="/metrics", headers=None, body=None):
        c = http.client.HTTPConnection(*self.at, timeout=WAIT_S)
        with contextlib.closing(c):
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, r.read().decode(), r.headers

    def connect(self):
        s = socket.create_connection(self.at, timeout=WAIT_S)
        self.addCleanup(s.close)
        return s

    # -- once ----------------------------------------------------------------------------------

    def test_once(self):
        self.ceded()
        text = self.two_jobs()
        self.assertTrue(text.endswith("\n# EOF\n"))
        self.assertIn("\ncede_up 1\n", text)
        self.assertRegex(text, r'\ncede_job_states\{name="ser\\"ve\\\\",class="latency",user="[^"]+",state="\w+"\} 1\n')
        self.assertNotIn("number=", text)
        self.assertRegex(self.cede("metrics", "--per-job").stdout,
                         r'\ncede_job_info\{number="\d+",name="ser\\"ve\\\\",class="latency"')
        self.assertRegex(text, r'\ncede_gpu_info\{UUID="[^"]+",gpu="0",')
        self.assertRegex(text, r"\ncede_decisions_total [1-9]")
        self.assertNotIn("pid=", text)
        self.assertIn('pid="', self.cede("metrics", "--per-job", "--pids").stdout)
        for more in [], ["--per-job"]:
            self.assertIn("\ncede_jobs_omitted 1\n", self.cede("metrics", "--max-jobs", "1", *more).stdout)
        os.mkdir(self.path("d"))
        self.assertEqual(self.cede("metrics", "-o", self.path("d/m.prom")).returncode, 0)
        self.assertEqual(os.stat(self.path("d/m.prom")).st_mode & 0o7777, 0o644)
        self.assertEqual(os.listdir(self.path("d")), ["m.prom"])
        text = self.read("d/m.prom")
        self.assertIn("# TYPE cede_build_info gauge\n", text)
        if shutil.which("promtool"):
            p = self.run_as("promtool", "check", "metrics", input=text, stdin=None)
            self.assertEqual((p.returncode, p.stdout, p.stderr), (0, "", ""))

    def test_cardinality(self):
        """64 jobs of one name, one after the other, have the series of one, whose counters never fall."""
        def series(text):
            return {s for s in re.findall(r"^(cede_(?:job|swap)_.*) \S+$", text, re.M) if "cede_job_states" not in s}

        def known(text):
            return float(re.search(r'^cede_job_known_seconds_total\{name="one",.*\} (\S+)$', text, re.M)[1])
        self.ceded()
        begun, all_of, last = 0.0, set(), 0.0
        for i in range(64):
            job = self.start(CEDE, "run", "-c", "batch", "--name", "one", "--", "sh", "-c", "read -r x",
                             stdin=subprocess.PIPE)
            eventually(lambda: "one" in self.jobs(), "no job")
            for ends in False, True:
                if ends:
                    job.communicate("\n", WAIT_S)
                    eventually(lambda: "one" not in self.jobs(), "it does not end")
                text = self.cede("metrics").stdout
                all_of |= series(text)
                now = known(text)
                self.assertGreaterEqual(now, last)
                last = now
            begun = begun or len(all_of)
        self.assertGreater(begun, 5)
        self.assertEqual(len(all_of), begun, "\n".join(sorted(all_of)))
        self.assertIn('} 0\n', "".join(re.findall(r"^cede_job_processes.*\n", text, re.M)))  # none lives

    def test_no_ceded(self):
        r = self.cede("metrics")
        self.assertEqual((r.returncode, r.stderr), (1, "cede: no daemon is running\n"))
        self.assertEqual(re.findall(r"^cede_.*", r.stdout, re.M), ["cede_up 0"])
        r = self.cede("metrics", "-o", self.path("m.prom"))
        self.assertEqual(r.returncode, 1)
        self.assertIn("\ncede_up 0\n", self.read("m.prom"))

    def test_usage(self):
        for args, said in ((("--listen", "9479"), "is no ADDR:PORT"), (("--listen", "::1:80"), "is no ADDR:PORT"),
                           (("--listen", "localhost:80"), "is no numeric address"),
                           (("--listen", "127.0.0.1:0", "-o", "x"), "exclude each other"),
                           (("--max-jobs", "-1"), "is not a number from 0"), (("x",), "unexpected argument 'x'")):
            r = self.cede("metrics", *args)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(said, r.stderr)
        r = self.cede("metrics", "-o", self.path("none/m.prom"))
        self.assertEqual(r.returncode, 1)
        self.assertIn("cannot write " + self.path("none/m.prom"), r.stderr)

    def test_no_plain_file(self):
        """What is no plain file is written, not replaced: /dev/null would end a host."""
        os.mkfifo(self.path("pipe"))
        with os.fdopen(os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)) as f:
            self.cede("metrics", "-o", self.path("pipe"))
            self.assertIn("\ncede_up 0\n", f.read())
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        os.symlink("there", self.path("link"))
        self.cede("metrics", "-o", self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertIn("\ncede_up 0\n", self.read("there"))
        for name in "-", "/dev/stdout":
            self.assertIn("\ncede_up 0\n", self.cede("metrics", "-o", name).stdout)

    def test_no_library(self):
        self.write("libmicrohttpd.so.12", "")
        self.env["LD_LIBRARY_PATH"] = self.dir
        r = self.cede("metrics", "--listen", "127.0.0.1:0")
        self.assertEqual(r.returncode, 1)
        self.assertIn("install libmicrohttpd12 (Debian 12)", r.stderr)

    # -- HTTP ----------------------------------------------------------------------------------

    def test_http(self):
        self.ceded()
        server = self.serve()
        status, text, headers = self.ask()
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertIn("\ncede_up 1\n", text)
        status, text, headers = self.ask(headers={"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
        self.assertEqual(headers["Content-Type"], "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(text.endswith("# EOF\n"))
        status, text, headers = self.ask("HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 100)
        self.assertEqual(self.ask(path="/")[0], 404)
        status, _, headers = self.ask("POST", body="x")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        server.terminate()
        self.assertEqual(server.wait(WAIT_S), 0)

    def test_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("no IPv6")
        self.serve(where="[::1]:0")
        self.assertEqual(self.ask()[0], 200)

    def test_handed_over(self):
        """As systemd does: descriptor 3, and the numbers in the environment."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.at = listener.getsockname()
        script = "import os,sys; os.dup2(%d, 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); " \
            "os.execv(sys.argv[1], sys.argv[1:])" % listener.fileno()
        server = self.start(sys.executable, "-c", script, CEDE, "metrics", stderr=subprocess.PIPE,
                            pass_fds=[listener.fileno()])
        line = server.stderr.readline()
        if "install libmicrohttpd" in line:
            self.skipTest("libmicrohttpd is not installed")
        self.assertIn(":%d/metrics" % self.at[1], line)
        self.assertIn("\ncede_up 0\n", self.ask()[1])
        # The socket is systemd's, which starts the program again by it: it listens on.
        server.terminate()
        self.assertEqual(server.wait(WAIT_S), 0)
        self.assertEqual(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), 1)

    def test_one_question(self):
        """A stand-in for ceded counts what it is asked while many scrape at once."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(self.path("socket"))
        listener.listen(64)
        listener.settimeout(WAIT_S)
        self.serve()
        scrapes = [self.connect() for _ in range(20)]
        for s in scrapes:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        asked = listener.accept()[0]
        self.assertIn(b'"op":"ps"', asked.recv(65536))
        asked.send(b'{"v":1,"ok":true,"jobs":[],"gpus":[]}')
        asked.recv(65536)
        asked.send(b'{"v":1,"ok":true,"decisions":5}')
        asked.close()
        started = time.monotonic()
        for s in scrapes:
            with s.makefile("rb") as f:
                self.assertIn(b"\ncede_decisions_total 5\n", f.read())
        if time.monotonic() - started < 0.9:  # else the answer was too old for the last
            listener.setblocking(False)
            self.assertRaises(BlockingIOError, listener.accept)

    def test_ceded_hangs(self):
        daemon = self.ceded()
        self.serve()
        self.assertIn("\ncede_up 1\n", self.ask()[1])
        daemon.send_signal(signal.SIGSTOP)
        text = eventually(lambda: (lambda a: a[0] == 200 and "\ncede_up 0\n" in a[1] and a[1])(self.ask()), "still up")
        self.assertEqual(re.findall(r"^cede_.*", text, re.M), ["cede_up 0"])
        daemon.send_signal(signal.SIGCONT)
        eventually(lambda: "\ncede_up 1\n" in self.ask()[1], "still down")

    def answers(self):
        eventually(lambda: self.ask()[0] == 200, "no answer any more")

    def test_silent(self):
        """Each is closed though it never says a word, and also if it says a byte at a time."""
        self.serve()
        silent, slow = self.connect(), self.connect()
        slow.settimeout(0.5)
        self.answers()
        end = time.monotonic() + WAIT_S
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                slow.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(1):
                        break
        self.assertLess(time.monotonic(), end)
        with contextlib.suppress(ConnectionError):
            self.assertEqual(silent.recv(1), b"")
        self.answers()

    def test_rubbish(self):
        server = self.serve()
        for sent in (os.urandom(20000), b"\0" * 100, b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 3000000 + b"\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100000 + b"\r\n",
                     b"GET /" + b"m" * 1000000 + b" HTTP/1.1\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 1000000,
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"):
            s = self.connect()
            with contextlib.suppress(ConnectionError):
                s.sendall(sent)
                while s.recv(65536):
                    pass
            self.answers()
        self.assertIsNone(server.poll())

    def test_crowd(self):
        server = self.serve()
        crowd = []
        for _ in range(1000):
            s = socket.socket()
            self.addCleanup(s.close)
            s.setblocking(False)
            s.connect_ex(self.at)
            crowd.append(s)
        self.answers()
        self.assertLess(len(os.listdir(f"/proc/{server.pid}/fd")), 300)

    # -- Prometheus ----------------------------------------------------------------------------

    def test_rules(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (Debian: prometheus)")
        for args in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
            p = self.run_as("promtool", *args, cwd=INTEGRATION)
            self.assertEqual(p.returncode, 0, p.stdout + p.stderr)

    def test_scrape(self):
        """A Prometheus scrapes, and every query of the dashboard has an answer."""
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not installed")
        self.ceded()
        self.two_jobs()
        self.serve()
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.write("prometheus.yml", "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: cede, static_configs: "
                                     "[{targets: ['127.0.0.1:%d']}]}]\n" % self.at[1])
        self.start("prometheus", "--config.file=" + self.path("prometheus.yml"), f"--web.listen-address=127.0.0.1:{port}",
                   "--storage.tsdb.path=" + self.path("tsdb"))
        self.at = ("127.0.0.1", port)

        def query(q):
            status, text, _ = self.ask(path="/api/v1/query?" + urllib.parse.urlencode({"query": q}))
            self.assertIn(status, (200, 503), f"{q}: {text}")
            return status == 200 and json.loads(text)["data"]["result"]
        with open(os.path.join(INTEGRATION, "dashboard.json"), encoding="utf8") as f:
            panels = json.load(f)["panels"]
        queries = [t["expr"] for p in panels for t in p.get("targets", [])]
        self.assertGreater(len(queries), 8)
        for q in queries:
            q = q.replace("$__rate_interval", "5s").replace("$user", ".*").replace("$gpu", ".*").replace("$instance", ".*")
            eventually(lambda q=q: query(q), f"nothing for {q}")


def at_once():
    """Each test in a process of its own: they wait for time-outs of the server, most of the time. Returns
    how many failed."""
    pids = []
    for name in unittest.TestLoader().getTestCaseNames(Metrics):
        pid = os.fork()
        if pid == 0:
            said = io.StringIO()
            ok = unittest.TextTestRunner(said, verbosity=2).run(Metrics(name)).wasSuccessful()
            os.write(2, said.getvalue().encode())
            os._exit(not ok)
        pids.append(pid)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        unittest.main()
    sys.exit(at_once() > 0)
