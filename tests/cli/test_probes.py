"""The static probes are in the binaries with the arguments that docs/observe.md names, and bpftrace's script finds
them; where bpftrace may attach, it counts suspensions.

usage: test_probes.py CEDE LIBCEDE SOURCE_DIR"""
import os
import re
import shutil
import subprocess
import sys
import unittest

from on_soft import CEDE, OnSoft

LIBCEDE, SOURCE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
# Bytes of each argument, < 0: signed.
PROBES = {
    "job": [8, -4, 4, 4], "plan": [8, 8],
    "suspend": [8, -4, 4, 8], "suspend_done": [8, -4, 4, -4],
    "resume": [8, -4, 4, 8], "resume_done": [8, -4, 4, -4],
    "swap": [8, 4], "request": [8, 8, 8], "lease": [8, 8, 4, 4, 4, -4],
}
SCRIPT = os.path.join(SOURCE, "agents/bpftrace/suspensions.bt")


def probes_of(path):
    """{name: [sizes of the arguments], ...} of the provider cede; several places of one have the same."""
    notes = subprocess.run(["readelf", "-nW", path], text=True, check=True, stdout=subprocess.PIPE).stdout
    found = {}
    for provider, name, arguments in re.findall(
            r"Provider: (\S+)\n\s*Name: (\S+)\n\s*Location:.*\n\s*Arguments: ?(.*)", notes):
        sizes = [int(size) for size in re.findall(r"(-?\d+)@", arguments)]
        if provider == "cede":
            assert found.setdefault(name, sizes) == sizes, f"{name} has two kinds of arguments"
    return found


def has_header():
    return subprocess.run(["cc", "-E", "-"], input="#include <sys/sdt.h>\n", text=True, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Probes(OnSoft):
    def setUp(self):
        super().setUp()
        if not shutil.which("readelf") or not has_header():
            self.skipTest("no readelf, or built without sys/sdt.h")

    def test_arguments(self):
        self.assertEqual(probes_of(CEDE), PROBES)
        self.assertEqual(probes_of(LIBCEDE), {name: PROBES[name] for name in ("request", "lease")})

    def test_page(self):
        with open(os.path.join(SOURCE, "docs/observe.md"), encoding="utf8") as f:
            table = f.read().split("## Probes", 1)[1]
        self.assertEqual(set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))), set(PROBES))

    def test_script_names_probes(self):
        with open(SCRIPT, encoding="utf8") as f:
            named = set(re.findall(r"usdt:/usr/bin/cede:cede:(\w+)", f.read()))
        self.assertTrue(named)
        self.assertLessEqual(named, set(PROBES))

    def test_bpftrace(self):
        if not shutil.which("bpftrace") or os.geteuid() != 0:
            self.skipTest("no bpftrace, or not root")
        with open(SCRIPT, encoding="utf8") as f:
            self.write("s.bt", f.read().replace("/usr/bin/cede", CEDE))
        self.ceded("[policy]\nrotation_us = 50000\n")
        for cls, role in (("batch", "batch"), ("batch", "batch"), ("latency", "latency")):
            self.start(CEDE, "run", "-q", "-c", cls, "--", CEDE, "load", role, "--device", "soft")
        tracer = self.start("bpftrace", self.path("s.bt"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = tracer.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            tracer.send_signal(2)
            out, err = tracer.communicate(timeout=60)
        if "@suspend_us" not in out and ("ERROR" in err or "rror" in err):
            self.skipTest("bpftrace may not attach here: " + err.strip().split("\n")[-1])
        for name in ("@suspend_us", "@resume_us", "@suspended_us"):
            self.assertIn(name, out)


if __name__ == "__main__":
    unittest.main()
