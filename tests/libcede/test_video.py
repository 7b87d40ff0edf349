"""examples/video without a GPU and without cede: what they print, and whom they count as late.

usage: test_video.py"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(program, *options):
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ, CEDE_DIR=d, CEDE_LIBRARY="/nonexistent", PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run([sys.executable, str(ROOT / program), *options], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


def lines(program, *options):
    r = run(program, *options)
    assert r.returncode == 0, r.stderr
    return [json.loads(l) for l in r.stdout.splitlines()]


class Video(unittest.TestCase):
    def test_all_requests(self):
        o, = lines("examples/video/transcribe.py", "--pretend-ms", "1", "--period", "0.1", "--due", "50",
                   "--seconds", "0.55")
        self.assertEqual((o["role"], o["late"], o["dropped"], o["told"]), ("transcription", 0, 0, False))
        self.assertGreaterEqual(o["requests"], 1)
        self.assertLessEqual(o["requests"], 6)

    def test_late_ones_are_done_all_the_same(self):
        o, = lines("examples/video/transcribe.py", "--pretend-ms", "120", "--period", "0.1", "--seconds",
                   "0.5")
        self.assertEqual(o["late"], o["requests"])
        self.assertEqual(o["dropped"], 0)

    def test_late_frames_are_left_out(self):
        o, = lines("examples/video/segment.py", "--pretend-ms", "95", "--fps", "25", "--seconds", "0.5")
        self.assertGreaterEqual(o["dropped"], o["requests"] - 1)
        self.assertEqual(o["late"], o["requests"] + o["dropped"])

    def test_for_the_bench(self):
        v = lines("bench/programs/video.py", "segment", "--pretend-ms", "1", "--seconds", "0.3")
        self.assertEqual(v[0]["requests"], 0)
        t = [l["t"] for l in v[:-1]]
        self.assertEqual(t, sorted(t))
        self.assertEqual(sum(len(l["latencies_us"]) for l in v[:-1]), v[-1]["requests"])

    def test_bad_options(self):
        for options in (["segment.py", "--width", "15"], ["segment.py", "--fps", "0"],
                        ["transcribe.py", "--width", "65"], ["transcribe.py", "--tokens", "0"],
                        ["transcribe.py", "--period", "-1"]):
            r = run("examples/video/" + options[0], "--pretend-ms", "1", *options[1:])
            self.assertEqual(r.returncode, 2, options)


unittest.main()
