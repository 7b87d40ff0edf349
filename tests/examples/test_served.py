"""bench/programs/served without a GPU: each request of each run is answered in time, late or refused, once; a model that
fails ends the server. Asserts no times.

usage: test_served.py FOLDER LIBRARY [SERVER]       SERVER: built with work_sleep.cpp, without it the Python one"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER, LIBRARY, *SERVER = sys.argv[1:]
del sys.argv[1:]
os.environ["CEDE_LIBRARY"] = LIBRARY
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True


class Served(unittest.TestCase):
    def test_nothing_is_lost(self):
        modes, loads = ["plain", "priority", "cede"], ["0.5", "1.2"]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([sys.executable, os.path.join(FOLDER, "measure.py"), "--libcede", LIBRARY, "--out", out,
                                   "--sleep", "--seconds", "1", "--modes", *modes, "--loads", *loads] +
                                  (["--languages", "C++", "--server", SERVER[0]] if SERVER else ["--languages", "Python"]),
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(out, encoding="utf-8") as f:
                result = json.load(f)
        self.assertEqual(result["failed"], [])
        self.assertEqual([(r["load"], r["mode"]) for r in result["runs"]], [(float(x), m) for x in loads for m in modes])
        self.assertEqual(done.stdout.count("| plain |"), len(loads))
        for r in result["runs"]:
            self.assertGreater(r["bulk"], 0)
            for m in (r["small"], r["large"]):
                self.assertGreater(m["sent"], 0)
                self.assertEqual(m["answered"] + m["late"] + m["refused"], m["sent"], r)
                self.assertEqual(m["alone"] + m["behind"] + m["others"], m["refused"], r)
                self.assertLessEqual(m["unanswered"], m["late"])
                # A batch has 1 to 8 requests.
                ended = m["answered"] + m["late"] - m["unanswered"]
                self.assertLessEqual(m["batches"], ended)
                self.assertGreaterEqual(8 * m["batches"], ended)
                if r["mode"] != "cede":
                    self.assertEqual(m["refused"], 0)

    @unittest.skipIf(SERVER, "only the model of the Python server can be made to fail")
    def test_a_model_that_fails_ends_the_server(self):
        import server

        class Failing(server.Sleep):
            def runner(self, kind, most, thread=0):
                def fail(_n):
                    raise ArithmeticError("the model failed")
                return fail if kind == server.LARGE else super().runner(kind, most, thread)

        r = server.Run("cede", 0.5, 60, Failing(), server.MODELS, {k: [2000, 5000] for k in range(3)})
        with self.assertRaises(ArithmeticError):
            server.serve_cede(r)
        self.assertTrue(any(q.answered is None for q in r.requests[1]))


unittest.main()
