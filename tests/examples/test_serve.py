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

    def post(self, *bodies, path="/v1/model"):
        """A connection that has sent requests, for answers()."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as s:
            f = s.makefile("rwb")
        for body in bodies:
            f.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
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
                taken = server.start(server.port)
                self.assertIn("in use", taken.communicate(timeout=30)[1])
                self.assertEqual(taken.returncode, 1)
                err = self.end(server)
                if libraries == STAND_IN:
                    self.assertRegex(err, "^[1-9][0-9]* graphs of 15 were launched, and 15 kernels without one; 0 bad calls$")

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
