"""python/cede.py: without the library, and with it but without a daemon.

usage: test_python.py LIBRARY"""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.join(HERE, "..", "..", "python")


def run(code, library):
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ, PYTHONPATH=MODULE, CEDE_DIR=d, CEDE_LIBRARY=library,
                   PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run([sys.executable, "-c", code], env=env, text=True, check=True,
                              stdout=subprocess.PIPE, timeout=60).stdout.strip()


CODE = """
import threading, cede
c = cede.Client(cls=cede.BATCH, weight=5, deadline_us=3600000000)
def work():
    for _ in range(50):
        with c.request(expected_us=1, stream=7):
            pass
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
try:
    with c.request():
        raise KeyError
except KeyError:
    pass
c.job_acquire(timeout_us=0)
assert c.job_yield(memory=True) is False
s = c.statistics()
print(cede.available(), c.connected(), c.wanted(), s.begun, s.ended, s.deadlines_met, s.p50_us <= s.p99_us <= s.max_us)
try:
    c.set_weight(0)
    print("taken")
except ValueError:
    print("refused")
c.close()
with c.request():
    c.set_class(cede.LATENCY)
print(c.statistics().ended)
"""


LEASES = """
import threading, cede
p = cede.Pool(flags=1, max_concurrent_streams=2, max_total_occupancy=0.9)
p.occupancy("gemm", 0.5)
with p.acquire(kernel="gemm", threads=256) as lease:
    print(lease.device, lease.stream)
    try:
        with p.acquire(0, "gemm", timeout_us=0):
            print("taken")
    except BlockingIOError:
        print("refused")
done = []
def work():
    for _ in range(50):
        with p.acquire(device=0, priority=1):
            done.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(done))
try:
    cede.Pool(max_concurent_streams=2)
except TypeError:
    print("no such setting")
p.close()
"""


class Module(unittest.TestCase):
    def test_leases(self):
        self.assertEqual(run(LEASES, LIBRARY), "0 None\nrefused\n200\nno such setting")
        self.assertEqual(run(LEASES, "/nowhere/libcede.so.0"),
                         "0 None\ntaken\n200\nno such setting")

    def test_without_library(self):
        self.assertEqual(run(CODE, "/nowhere/libcede.so.0"), "False False False 0 0 0 True\ntaken\n0")

    def test_without_daemon(self):
        self.assertEqual(run(CODE, LIBRARY), "True False False 201 201 201 True\nrefused\n0")


if __name__ == "__main__":
    LIBRARY = sys.argv.pop(1)
    unittest.main()
