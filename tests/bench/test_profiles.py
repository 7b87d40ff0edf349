"""Profiles of programs, from tables of Nsight Compute in both of its forms; and that model.py reads them.

usage: test_profiles.py SOURCE"""
import csv
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, = sys.argv[1:]
TOOL = pathlib.Path(SOURCE, "bench/interference/ncu_profile.py")
FIXED = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC"]
TIME, GRID, BLOCK, SMS = "gpu__time_duration.sum", "launch__grid_size", "launch__block_size", "device__attribute_multiprocessor_count"
DRAM, ISSUE = "dram__throughput.avg.pct_of_peak_sustained_elapsed", "smsp__issue_active.avg.pct_of_peak_sustained_active"
FP32 = "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"
# Metric, unit, and its value for two kernels.
RAW = [("device__attribute_l2_cache_size", "", "52,428,800", "52,428,800"), (SMS, "", "132", "132"),
       ("dram__bytes.sum.per_second", "Tbyte/second", "2", "0"), (DRAM, "%", "50.0", "n/a"), (TIME, "us", "1,200", "600.5"),
       ("l1tex__t_sector_hit_rate.pct", "%", "0", "0"), (BLOCK, "", "1,024", "256"), (GRID, "", "132", "132"),
       ("launch__registers_per_thread", "register/thread", "32", "40"),
       ("launch__shared_mem_per_block", "Kbyte/block", "1.02", "0"), ("lts__t_bytes.sum.per_second", "Tbyte/second", "3", "0"),
       ("lts__t_sector_hit_rate.pct", "%", "25", "0"), (ISSUE, "%", "15", "90"),
       ("sm__inst_issued.avg.per_cycle_active", "inst/cycle", "0.6", "4")]


def table(*rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue()


def launch(number, name, values):
    return [number, "4242", name, "", "", "0", "9.0", *values]


def raw():
    names, units, copy, mul = map(list, zip(*RAW))
    again = [{"50.0": "60.0", "1,200": "1,400"}.get(v, v) for v in copy]
    return '==PROF== Connected to process 4242\nwhat the program prints, "quoted"\n' + table(
        FIXED + names, [""] * len(FIXED) + units, launch("0", "copy(float *, int)", copy),
        launch("1", 'mul<(int)4>("x")', mul), launch("2", "copy(float *, int)", again))


def details():
    launches = [[(TIME, "msecond", "1.5"), (GRID, "", "128"), (BLOCK, "", "128"), ("somebody_elses_metric", "%", "99"),
                 (FP32, "%", "60"), (SMS, "", "132")], [(TIME, "nsecond", "500,000"), (GRID, "", "128"), (BLOCK, "", "128"),
                                                        (FP32, "%", "20")]]
    return table(FIXED + ["Section Name", "Metric Name", "Metric Unit", "Metric Value"],
                 *(launch(i, "gemm", ["Section", name, unit, value]) for i, of in enumerate(launches) for name, unit, value in of))


class Profiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_tool(self, text, *options):
        self.folder.joinpath("train.csv").write_text(text)
        return subprocess.run([sys.executable, "-B", TOOL, "train.csv", *options], cwd=self.folder, text=True, capture_output=True,
                              check=False)

    def profile(self, text, *options):
        done = self.run_tool(text, "-o", "p.json", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(self.folder.joinpath("p.json").read_text()), done.stdout

    def test_raw(self):
        p, shown = self.profile(raw(), "--busy", "60%")
        self.assertEqual((p["program"], p["busy"]), ("train", 0.6))
        self.assertEqual(p["gpu"], {"sms": 132, "sm_threads": 2048, "sm_blocks": 32, "sm_registers": 65536,  # by 9.0
                                    "sm_shared_bytes": 233472, "sm_l1_bytes": 262144, "l2_bytes": 52428800})
        copy, mul = p["kernels"]
        self.assertEqual(copy, {"name": "copy(float *, int)", "calls": 2, "us": 1300, "share": 0.812373, "blocks": 132,
                                "threads": 1024, "registers": 32, "shared_bytes": 1020, "division": 0, "l1_hit": 0, "l2_hit": 0.25,
                                "use": {"issue slots": 0.15, "L2 cache": 0.825, "DRAM bandwidth": 0.55}})
        self.assertEqual((mul["name"], mul["us"], mul["share"]), ('mul<(int)4>("x")', 600.5, 0.187627))
        self.assertEqual(mul["use"], {"issue slots": 1})  # the larger of two figures; what is no number does not count
        self.assertIn("train: 2 kernels, on a GPU of 132 SMs", shown)
        self.assertRegex(shown, r"\n 81\.2  15\.0  55\.0   0\.0  25\.0  55\.0 DRAM +2 +1300\.0 +132 +1024 copy\(float \*, int\)\n")
        self.assertIn("a?]0;b: 2 kernels", self.profile(raw(), "--name", "a\033]0;b")[1])

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "python3-numpy is not installed")
    def test_read(self):
        sys.path.insert(0, str(TOOL.parent))
        import model  # pylint: disable=import-outside-toplevel
        p = self.profile(raw(), "--busy", "60%")[0]
        program = model.program(p)
        self.assertEqual((program.name, program.busy), ("train", 0.6))
        self.assertAlmostEqual(program.kernels.share[0], 0.812373, places=5)
        self.assertEqual(model.advise(model.gpu(p["gpu"]), [program] * 2)["pool"]["limits"], ["L2 cache"] * 2)

    def test_details(self):
        for text in details(), details().replace("\r\n", "\n"):
            k, = self.profile(text)[0]["kernels"]
            self.assertEqual((k["calls"], k["us"], k["share"], k["use"]), (2, 1000, 1, {"FP32 pipe": 0.4}))

    def test_refused(self):
        required = [TIME, GRID, BLOCK]
        for text, why in (
                ("nothing\n", "is no table of `ncu --csv`"), (table(["ID", "Time"]), "no column 'Kernel Name'"),
                (table(FIXED + [TIME]), "has no kernels"),
                (table(FIXED + [TIME], launch("0", "k", ["5"])), f"'k' has no {TIME}, {GRID}"),
                (table(FIXED + required, launch("0", "k", ["5", "1", "32"])), SMS),
                (table(FIXED + required, launch("0", "k", ["-5", "1", "32"])), "line 2: 'k' has no gpu__time")):
            done = self.run_tool(text)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)
        for options, status, why in ((("--busy", "101%"), 2, "101%"), (("-o", "none/p.json"), 1, "cannot write none/p.json")):
            done = self.run_tool(raw(), *options)
            self.assertEqual(done.returncode, status)
            self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
