"""examples/serving: the server with a stand-in for the GPU, and its clients. Shapes and orders, no times.

usage: test_serving.py LIBRARY"""
import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
LIBRARY = sys.argv.pop(1)
ENV = dict(os.environ, PYTHONPATH=os.path.join(TOP, "python"), CEDE_LIBRARY=LIBRARY,
           CEDE_DIR=tempfile.gettempdir() + "/cede-test-nowhere", PYTHONDONTWRITEBYTECODE="1")
SERVING = os.path.join(TOP, "examples/serving/")


def start(*args, program="server.py"):
    return subprocess.Popen([sys.executable, SERVING + program, *args], env=ENV, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Server:
    def __init__(self, *args):
        self.args = args

    def __enter__(self):
        self.p = start("--model", "soft", *self.args)
        self.port = int(self.p.stderr.readline().rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.p.send_signal(signal.SIGTERM)
        try:
            out, err = self.p.communicate(timeout=20)
        finally:
            self.p.kill()
        assert self.p.returncode == 0 and out == "", (out, err)

    def ask(self, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request("GET" if body is None else "POST", path,
                  body if body is None or isinstance(body, str) else json.dumps(body))
        answer = c.getresponse()
        value = json.loads(answer.read())
        c.close()
        return answer.status, value


class Serving(unittest.TestCase):
    def test_answers(self):
        with Server() as s:
            status, a = s.ask("/high", {"texts": ["one two", "three"]})
            self.assertEqual((status, a["model"], len(a["output"])), (200, "high", 2))
            self.assertEqual(s.ask("/high", {"texts": ["three"]})[1]["output"], a["output"][1:])
            self.assertNotEqual(s.ask("/low", {"texts": ["three"]})[1]["output"], a["output"][1:])
            self.assertEqual(s.ask("/other", {"texts": ["x"]})[0], 404)
            for body in ("{", "[]", {"texts": []}, {"texts": [3]}, {"texts": "x"}, {"text": "x"},
                         {"texts": ["x"], "deadline_ms": "soon"}, {"texts": ["x"], "deadline_ms": -1}):
                status, a = s.ask("/high", body)
                self.assertEqual(status, 400, body)
                self.assertTrue(a["error"])
            status, a = s.ask("/statistics")
            self.assertEqual((status, a["ended"], a["waiting"], a["failed"]), (200, 3, 0, 0))
            self.assertEqual(s.ask("/high")[0], 404)

    def test_refuses_what_would_be_late(self):
        with Server("--admit", "--soft-ms", "200", "--models", "low=batch") as s:
            self.assertEqual(s.ask("/low", {"texts": ["x"]})[0], 200)  # it learns
            for _ in range(10):  # an idle server tries it all the same, and the other may come later
                other = threading.Thread(target=s.ask, args=("/low", {"texts": ["x"]}))
                other.start()
                time.sleep(0.05)
                status, a = s.ask("/low", {"texts": ["x"], "deadline_ms": 0.0001})
                other.join()
                if status == 503:
                    break
            self.assertEqual(status, 503)
            self.assertIn("even if it ran at once", a["error"])

    def driven(self, *args):
        p = start("--model", "soft", *args)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        last = lines.pop()
        self.assertTrue(last["verified"])
        self.assertEqual((last["role"], last["failed"]), ("clients", 0))
        times = [line["t"] for line in lines]
        self.assertEqual(times, sorted(set(times)))
        return lines, last

    def test_lines_of_an_open_loop(self):
        lines, last = self.driven(
            "--drive", "high,--rate,40,--seconds,1,--deadline-ms,10000,--texts,2",
            "--drive", "low,--clients,8,--seconds,1,--quiet")
        self.assertEqual(last["requests"], 40)
        self.assertEqual(sum(len(line["latencies_us"]) for line in lines), 40)
        self.assertEqual(sum(line["late"] for line in lines), last["late"])
        self.assertTrue(0 < last["p50_us"] <= last["p99_us"] <= last["max_us"])

    def test_clients_fill_batches(self):
        load = ("--soft-ms", "20", "--drive", "low,--clients,8,--seconds,1")
        one, _ = self.driven("--batch-max", "1", *load)
        many, last = self.driven("--batch-max", "8", *load)
        self.assertGreater(many[-1]["work_us"], 1.2 * one[-1]["work_us"])
        self.assertEqual(many[-1]["work_us"], last["requests"] * 1e6)

    def test_the_higher_class_goes_first(self):
        p99 = {}
        for policy in ("priority", "fifo"):
            _, last = self.driven("--policy", policy, "--batch-max", "1", "--soft-ms", "5",
                                  "--drive", "high,--rate,15,--seconds,1.5",
                                  "--drive", "low,--clients,24,--seconds,1.6,--quiet")
            p99[policy] = last["p50_us"]
        self.assertLess(p99["priority"], p99["fifo"])

    def test_usage(self):
        for args in (["--models", "high"], ["--models", "high=urgent"], ["--batch-max", "0"],
                     ["--length", "0"], ["--port", "65536"]):
            p = start(*args)
            _, err = p.communicate(timeout=20)
            self.assertEqual(p.returncode, 2, err)
        p = start("http://127.0.0.1:1/", "high", program="clients.py")
        p.communicate(timeout=20)
        self.assertEqual(p.returncode, 2)
        p = start("http://127.0.0.1:1/", "high", "--rate", "20", "--seconds", "0.2",
                  program="clients.py")  # nobody answers
        out, _ = p.communicate(timeout=20)
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((p.returncode, last["failed"], last["verified"]), (1, 4, False))

    def test_clients_on_a_terminal(self):
        reader, terminal = pty.openpty()
        p = subprocess.Popen([sys.executable, SERVING + "clients.py", "http://127.0.0.1:1/", "high", "--rate", "20", "--seconds",
                              "0.2"], stdout=terminal, stderr=subprocess.DEVNULL)
        p.wait(20)
        self.assertEqual([json.loads(line)["role"] for line in os.read(reader, 65536).splitlines()], ["clients"])

    def test_a_port_that_is_taken(self):
        with Server() as s:
            p = start("--model", "soft", "--port", str(s.port))
            err = p.communicate(timeout=20)[1]
        self.assertEqual(p.returncode, 1)
        self.assertRegex(err, "^cannot listen on .*--port\n$")

    def test_what_is_missing(self):
        """In the source tree, with nothing set: modules are found; what is missing is named."""
        env = {"CEDE_LIBRARY": LIBRARY, "CEDE_SOFT_SOCKET": "/nonexistent/s", "PYTHONDONTWRITEBYTECODE": "1"}
        p = subprocess.run([sys.executable, SERVING + "server.py", "--model", "softgpu"], env=env, text=True,
                           stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(p.returncode, 1)
        self.assertRegex(p.stderr, r"^no software GPU at /nonexistent/s .*: start cede-softgpu\n$")
        p = start("http://127.0.0.1:1/", "high", "--rate", "100", "--seconds", "0.05", program="clients.py")
        err = p.communicate(timeout=60)[1]
        self.assertEqual(p.returncode, 1)
        self.assertRegex(err, r"^clients.py: http://127.0.0.1:1/ high: .*refused\n$")

    def test_clients_end_with_the_server(self):
        p = start("--model", "soft", "--drive", "low,--clients,2")
        p.stdout.readline()
        p.kill()
        p.stdout.read()  # until the clients have closed it too
        p.communicate(timeout=20)


if __name__ == "__main__":
    unittest.main()
