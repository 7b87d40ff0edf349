"""What suite.py does with processes that answer, end or hang; its parts on a stand-in for bench_interference, with a made-up MPS.

usage: test_suite.py SOURCE"""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

SOURCE, = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(SOURCE, "bench/interference")))

# pylint: disable=wrong-import-position
import bench
import parts
import suite

STAGE = {"gpu": "made up", "sms": 4, "part_sms": 2, "sm": {"threads": 2048, "l1_bytes": 1024}, "l2_bytes": 1 << 20, "dram_gbps": 100,
         "l2_gbps": 200}
# A kernel takes 20 ms alone, 30 while another process has a request; on SMs of an MPS percentage so many times as long.
STAND_IN = f"""#!{sys.executable}
import json, os, sys, time
print(json.dumps({STAGE!r}), flush=True)
percent = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100))
mark = os.environ.get("MARK", "/nonexistent/")
for line in sys.stdin:
    o = json.loads(line)
    kernel = (o.get("laps") or o["launches"][0])["kernel"]
    if kernel == os.environ.get("HANGS"):
        time.sleep(60)
    if kernel == os.environ.get("DIES"):
        sys.exit(3)
    if "laps" in o:
        long, until = o["seconds"] > 1, time.monotonic() + 0.5
        if long:  # ends after the other has
            open(mark, "w").close()
            until += 20
            while os.path.exists(mark) and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(0.5)
        while not long and o["steps"] and not os.path.exists(mark) and time.monotonic() < until:
            time.sleep(0.02)
        slow = not long and os.path.exists(mark)
        if slow:
            os.remove(mark)
        ns = int((30e6 if slow else 20e6) * 100 / percent)
        print(json.dumps({{"steps": 7, "start_ns": [0, ns], "end_ns": [ns, 2 * ns], "kernel": {{"use": {{"L2 cache": 0.5}}}},
                          "sms": [[0, 1, 20.0], [1, 2, 10.0]]}}), flush=True)
    else:
        k = {{"us": 4000, "use": {{}}}}
        print(json.dumps({{"kernels": [k, k], "slowdown": [1, 1.5], "covered": [1, 1], "speedup": 1.2}}), flush=True)
"""


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("program", STAND_IN), ("nvidia-cuda-mps-control", "#!/bin/sh\nexit 0\n")):
            self.folder.joinpath(name).write_text(text)
            self.folder.joinpath(name).chmod(0o755)
        env = {"PATH": f"{folder.name}:{os.environ['PATH']}", "MARK": str(self.folder / "mark")}
        patched = unittest.mock.patch.dict(os.environ, env)
        patched.start()
        self.addCleanup(patched.stop)
        out = contextlib.redirect_stdout(io.StringIO())
        out.__enter__()
        self.addCleanup(out.__exit__, None, None, None)

    def context(self, seconds=60):
        return types.SimpleNamespace(program=str(self.folder / "program"), stage=STAGE, deadline=time.monotonic() + seconds)

    def run_suite(self, *options, **env):
        with unittest.mock.patch.dict(os.environ, env), unittest.mock.patch.object(parts, "SECONDS", 0.1), \
                unittest.mock.patch.object(sys, "argv", ["suite.py", self.context().program, "--json", str(self.folder / "o"), *options]), \
                contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
            suite.main()
        return json.loads(self.folder.joinpath("o").read_text()), end.exception.code, said.getvalue()

    def test_parts(self):
        with unittest.mock.patch.object(parts, "SECONDS", 0.1):
            row, = parts.sixteenth(self.context())
            self.assertAlmostEqual(row["slowdown"], 16)
            self.assertAlmostEqual(row["slowdown_both"], 24)
            self.assertTrue(row["covered"])
            rows = parts.mps(self.context())
            self.assertEqual([r["blocks"] for r in rows], [1, 2, 3, 4])
            for r in rows:
                self.assertEqual((r["slowdown"], r["covered"]), ([1.5, 1.5], [True, True]))
            spread = parts.distribution(self.context())
            self.assertEqual((spread[0]["sms"], spread[0]["blocks_min_max"], spread[0]["busy_ms_mean"]), (2, [0, 2], 7.5))

    def test_limits(self):
        rows = {(r["chip"], r["kernel"]): r for r in parts.limits(self.context())}
        self.assertFalse(rows["RTX 3090", "1024 threads"]["two_have_room"])  # 1536 threads
        self.assertTrue(rows["H100", "1024 threads"]["two_have_room"])
        self.assertEqual(rows["RTX 4090", "256 threads, 48 KB"]["blocks"], 2)  # 100 KB

    def test_failed_part(self):
        """One that ends or hangs is named in the file, and the next part runs."""
        for how, why, seconds in (("DIES", "ended with status 3", 60), ("HANGS", "no answer before", 0.3)):
            with unittest.mock.patch.object(suite, "PAIRS_S", seconds):
                found, status, said = self.run_suite("--only", "product", "--only", "FP64", **{how: "product"})
            self.assertEqual(status, 1)
            self.assertIn(why, found["parts"]["product"]["error"])
            self.assertIn("suite.py: product:", said)
            self.assertEqual([e["experiment"] for e in found["experiments"]], ["FP64: ways"] * 4)
            self.assertNotIn("error", found["parts"]["FP64"])

    def test_no_mps(self):
        self.folder.joinpath("nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")
        found, status, _ = self.run_suite("--only", "mps", "--only", "limits")
        self.assertEqual(status, 1)
        self.assertIn("MPS does not start", found["parts"]["mps"]["error"])
        self.assertEqual(len(found["parts"]["limits"]["rows"]), 16)

    def test_every_experiment_has_a_part(self):
        self.assertEqual({e.part for e in suite.EXPERIMENTS}, set(suite.PAIRS))

    def test_process_that_is_missing(self):
        for command in "false", "/nonexistent":
            with self.assertRaises(bench.Failed):
                bench.Process([command], time.monotonic() + 10)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
