"""examples/serve.c, serve.cpp and serve.py are one server: with a sleep in place of the GPU, without ceded, and the one in
C also with a stand-in for libcuda.

usage: test_serve.py STAND_IN SERVER...     STAND_IN: the folder of libcuda.so.1; with CEDE_LIBRARY"""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
STAND_IN, *SERVERS = sys.argv[1:]
del sys.argv[1:]
sys.path.append(str(EXAMPLES))
import serve_model

PYTHON = [sys.executable, str(EXAMPLES / "serve.py")]
NOTHING = "/nowhere"  # where no libcuda is
TABLE = [(PYTHON, NOTHING)] + [([s], NOTHING) for s in SERVERS] + [([s], STAND_IN) for s in SERVERS[:1]]


class Server:
    def __init__(self, command, libraries, **env):
        self.command, self.env = command, dict(os.environ, LD_LIBRARY_PATH=libraries, CUDA_VISIBLE_DEVICES="",
                                               PYTHONDONTWRITEBYTECODE="1", **env)

    def start(self, port):
        return subprocess.Popen([*self.command, str(port)], stderr=subprocess.PIPE, text=True, env=self.env)

    def __enter__(self):
        self.p = self.start(0)
        self.port = int(self.p.stderr.readline().rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.communicate()

    def end(self):
        """Its last words."""
        self.p.send_signal(signal.SIGTERM)
        err = self.p.communicate(timeout=30)[1]
        assert self.p.returncode == 0, (self.p.returncode, err)
        return err

    def post(self, *bodies, path="/v1/model", header=""):
        """A connection that has sent requests, for answers()."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as s:
            f = s.makefile("rwb")
        for body in bodies:
            f.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{header}\r\n".encode() + body)
        f.flush()
        return f

    def load(self, *args):
        out = subprocess.run([sys.executable, str(EXAMPLES / "serving/clients.py"), f"http://127.0.0.1:{self.port}/v1",
                              "model", *args], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
        return json.loads(out.splitlines()[-1])


def answers(f):
    """Status and value of each, until the server closes the connection."""
    with f, contextlib.suppress(ConnectionResetError):
        while line := f.readline():
            length = int(http.client.parse_headers(f)["Content-Length"])
            yield int(line.split()[1]), json.loads(f.read(length) or "null")


class Serve(unittest.TestCase):
    def answers(self, server):
        bodies = [b"question %d " % i * (1 + i % 3) for i in range(40)] + [b"", b"\xff" * 4000]
        for body, f in [(body, server.post(body)) for body in bodies]:
            expected = serve_model.Sleep._row(serve_model.hashed(body))
            self.assertEqual(next(answers(f)), (200, {"output": [[expected]]}))
        self.assertEqual(next(answers(server.post(b"x", path="/v2")))[0], 404)

    def deadlines(self, server):
        calm = server.load("--rate", "60", "--poisson", "--seconds", "1", "--deadline-ms", "2000")
        self.assertEqual((calm["sent"], calm["failed"], calm["verified"]), (60, 0, True))
        self.assertGreaterEqual(calm["in_time"], 54)
        full = server.load("--clients", "80", "--seconds", "1", "--deadline-ms", "1")
        self.assertEqual((full["failed"], full["verified"]), (0, True))
        self.assertGreater(full["requests"], 0)
        self.assertGreater(full["refused"], 0)

    def late(self, server):
        """Of deadlines that cannot be met only the last is known before the model runs, and a server that works refuses it."""
        busy = [answers(server.post(*[b"x"] * 10)) for _ in range(60)]
        self.assertEqual(next(busy[0])[0], 200)
        for ms, status in (("0.5", 503), ("0.00001", 503), ("-5", 503), ("0", 503), ("-0.5", 503), ("abc", 400), ("5 s", 400),
                           ("", 400), ("nan", 400), ("inf", 400), ("1e300", 400), ("9999.5", 200)):
            with self.subTest(ms=ms):
                self.assertEqual(next(answers(server.post(b"x", header=f"Deadline-Ms: {ms}\r\n")))[0], status)
        for i, connection in enumerate(busy):
            self.assertEqual({next(connection)[0] for _ in range(10 - (i == 0))}, {200})

    def end(self, server):
        """What runs is answered, what waits is not, and nobody hangs."""
        connections = [answers(server.post(*[b"x"] * 20)) for _ in range(60)]
        first = next(connections[0])[0]
        err = server.end()
        counts = collections.Counter(status for c in connections for status, _ in c)
        self.assertEqual((first, set(counts)), (200, {200, 503}), counts)
        return err

    def test_all(self):
        for command, libraries in TABLE:
            with self.subTest(command=command, libraries=libraries), Server(command, libraries) as server:
                self.answers(server)
                self.deadlines(server)
                if libraries == NOTHING:  # the model of the other is done at once
                    self.late(server)
                for port, status, text in ((server.port, 1, f"127.0.0.1:{server.port}: Address already in use\n"),
                                           ("abc", 2, "the port is abc: give 0 to 65535\n"),
                                           ("65536", 2, "the port is 65536: give 0 to 65535\n")):
                    other = server.start(port)
                    self.assertTrue(other.communicate(timeout=30)[1].startswith(text), port)
                    self.assertEqual(other.returncode, status)
                err = self.end(server)
                if libraries == STAND_IN:
                    self.assertRegex(err, "^[1-9][0-9]* graphs of 15 were launched, and 15 kernels without one; 0 bad calls$")

    def test_no_request_is_taken_at_the_end(self):
        """A server in Python ends when those that it took are answered: what other threads call then may be gone."""
        head = b"POST /v1/model HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
        with Server(PYTHON, NOTHING) as server:
            taken, other = server.post(), server.post()
            replies = answers(other)
            for f, data in (taken, head), (other, head + b"x"):
                f.write(data)
                f.flush()
            self.assertEqual(next(replies)[0], 200)
            server.p.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            status = 200
            while status == 200:  # the signal may not have come yet
                other.write(head + b"x")
                other.flush()
                status = next(replies)[0]
            self.assertEqual((status, [*replies]), (503, []))
            taken.write(b"x")
            taken.flush()
            self.assertEqual(next(answers(taken))[0], 503)
            server.p.communicate(timeout=30)
            self.assertEqual(server.p.returncode, 0)

    def test_the_model_fails(self):
        fails = [sys.executable, "-c", "import serve_model; serve_model.Sleep.read = None; import serve"]
        for command in [fails] + [[s] for s in SERVERS]:
            with self.subTest(command=command), Server(command, STAND_IN if command != fails else NOTHING, CEDE_FAKE_FAIL="1",
                                                       PYTHONPATH=f"{EXAMPLES}:{EXAMPLES.parent}/python") as server:
                self.assertEqual(next(answers(server.post(b"x")))[0], 500)
                err = server.p.communicate(timeout=30)[1]
                self.assertRegex(err, "serve: cede_scope_join: |serve: the model failed|TypeError: ")
                self.assertEqual(server.p.returncode, 1)


unittest.main()
