"""Matrix products of examples/decode by cuBLASLt, on stand-ins for it (decode_cublaslt.c) and for CUDA: which shapes it
is asked for, that tokens do not depend on the company, and what is refused.

usage: test_decode_products.py DECODE FOLDER_OF_THE_STAND_INS"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DECODE, STAND_IN = sys.argv[1:3]
del sys.argv[1:3]
GPU = dict(os.environ, LD_LIBRARY_PATH=STAND_IN, ASAN_OPTIONS="detect_leaks=0")
SMALL = ("--device cuda --layers 1 --width 128 --heads 2 --vocabulary 512 --requests 10 --tokens 12 --batch 5 --prompt 5 "
         "--json --mode eager --mode all").split()


class Products(unittest.TestCase):
    def run_with(self, what, *more, status=0, **env):
        """The report, or what it says where it fails; and of how many rows products were."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([DECODE, *SMALL, "--cublaslt", STAND_IN + "/libcublasLt.so.13", "--products", what, *more], check=False,
                                  capture_output=True, timeout=200, text=True,
                                  env=dict(GPU, CUBLASLT_ROWS=folder + "/rows", **env))
            self.assertEqual(done.returncode, status, done.stderr)
            rows = pathlib.Path(folder, "rows")
            rows = rows.read_text(encoding="ascii").split() if rows.exists() else []
            return (done.stderr if status else json.loads(done.stdout)), set(map(int, rows))

    def test_products(self):
        found, rows = self.run_with("library", "--alone")
        self.assertEqual(rows, {5})
        self.assertEqual({r["differ_from_alone"] for r in found["runs"]}, {0})
        self.assertEqual(len({r["digest"] for r in found["runs"]}), 1)
        self.assertEqual(found["runs"][0]["kernels"], 4 + 8)
        self.assertTrue(0 < found["products_difference"] < 1e-4)
        own, _ = self.run_with("own", "--mode", "all")
        # Sums of another order, of numbers as they are, change no token here.
        self.assertEqual(found["runs"][0]["digest"], own["runs"][0]["digest"])

    def test_products_as_the_library_likes(self):
        found, rows = self.run_with("plain", "--alone", CUBLASLT_COARSE="1")
        self.assertEqual(rows, {1, 2, 3, 4, 5})
        self.assertGreater(max(r["differ_from_alone"] for r in found["runs"]), 0)
        found, rows = self.run_with("library", "--alone", CUBLASLT_COARSE="1")
        self.assertEqual((rows, {r["differ_from_alone"] for r in found["runs"]}), ({5}, {0}))

    def test_products_that_are_refused(self):
        for env, said in (({"CUBLASLT_WRONG": "1"}, "not rounding"), ({"CUBLASLT_UNEVEN": "1"}, "gives each row the same"),
                          ({"CUBLASLT_FAIL": "create"}, "cublasLtCreate: NOT_SUPPORTED (15)"),
                          ({"CUBLASLT_FAIL": "heuristic"}, "MatmulAlgoGetHeuristic: NOT_SUPPORTED (15)"),
                          ({"CUBLASLT_FAIL": "matmul"}, "Matmul: NOT_SUPPORTED (15)")):
            self.assertIn(said, self.run_with("library", status=1, **env)[0])
        self.run_with("plain", CUBLASLT_UNEVEN="1")
        self.assertIn("differs", self.run_with("plain", status=1, CUBLASLT_WRONG="1")[0])
        self.assertIn("cannot be opened", self.run_with("library", "--cublaslt", "/no/file", status=1)[0])
        self.assertIn("needs a GPU", self.run_with("library", "--device", "cpu", status=1)[0])


unittest.main()
