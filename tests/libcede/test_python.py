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
        with c.request(queued_in_us=1, stream=7):
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
try:
    c.request().__enter__()
    print("taken")
except cede.Closed as e:
    print(e)
"""


NEEDS = """
import cede, cede_graph, cede_memory, cede_queue, cede_scope, cede_slice, cede_step
for new in (cede.Pool, cede_memory.Memory, cede_queue.Queue, lambda: cede_scope.Scope(1), cede_step.Futures,
            lambda: cede_step.Loop(print, print, print), lambda: cede_graph.Cache(print),
            lambda: cede_slice.run(cede_slice.Progress(), 1, print), lambda: cede_slice.Checkpoint("file", 1)):
    try:
        new()
        print("made")
    except cede.NoLibrary as e:
        print(e)
"""


class Module(unittest.TestCase):
    def test_without_library(self):
        """Hints do nothing, and what a program would build on says at once that there is no library."""
        self.assertEqual(run(CODE, "/nowhere/libcede.so.0"), "False False False 0 0 0 True\ntaken\ntaken")
        said = run(NEEDS, "/nowhere/libcede.so.0").split("\n")
        self.assertEqual(len(said), 9)
        for line in said:
            self.assertRegex(line, r"needs libcede \(/nowhere/libcede.so.0: .*\): install it, or set CEDE_LIBRARY")
        self.assertRegex(run(NEEDS, "libc.so.6"), "libc.so.6: an older release")

    def test_without_daemon(self):
        self.assertEqual(run(CODE, LIBRARY), "True False False 201 201 201 True\nrefused\nthis Client is closed")


if __name__ == "__main__":
    LIBRARY = sys.argv.pop(1)
    unittest.main()
