"""scripts/opencl-programs on made-up programs: a second run that says the same but for times, rates and
the machine's state of the moment is the same, any other is not.

usage: test_programs.py PATH_OF_OPENCL_PROGRAMS
"""
import contextlib
import io
import tempfile
import unittest

from script import InFolder

CLINFO = """\
  Device Name                                     pthread-skylake
  Max clock frequency                             {clock}MHz
  Global memory size                              {bytes} ({gib}GiB)
  Max memory allocation                           {most}
    Max size for 1D images from buffer            {pixels} pixels
  Max work group size                             {group}
"""
CLPEAK = """\
    Compute units   : 2
    Clock frequency : {clock} MHz
    Kernel launch latency : {us} us
"""
EMPTY_MACHINE = {"clock": 2596, "bytes": 4399457280, "gib": 4.097, "most": "2147483648 (2GiB)",
                 "pixels": 134217728, "group": 4096, "us": 22.08}
BUSY_MACHINE = {"clock": 1799, "bytes": 3795477504, "gib": 3.535, "most": "1073741824 (1024MiB)",
                "pixels": 67108864, "group": 4096, "us": 1e-05}


class Programs(InFolder):
    def setUp(self):
        super().setUp()
        self.module = self.script
        self.module.pocl = lambda: False
        self.module.tempfile.tempdir = self.top
        self.addCleanup(setattr, tempfile, "tempdir", None)

    def compare(self, name, first, second, status=0):
        """The script's verdict on program `name` if it says `first` as it is and `second` with SECOND set."""
        for i, text in enumerate((first, second)):
            self.write(f"says{i}", text)
        program = self.module.PROGRAMS[name]
        program.command = f"cat {self.top}/says${{SECOND:-0}}; exit $((${{SECOND:-0}} * {status}))"
        self.module.there = lambda _: True
        self.module.sys.argv = ["opencl-programs", "SECOND=1", name]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = self.module.main()
        verdict = out.getvalue().split("\n")[1].split(None, 5)[5]
        self.assertEqual(code, 0 if verdict == "same" else 1)
        return verdict

    def test_the_machine_of_the_moment(self):
        for name, text in (("clinfo", CLINFO), ("clpeak-latency", CLPEAK)):
            self.assertEqual(self.compare(name, text.format(**EMPTY_MACHINE), text.format(**BUSY_MACHINE)),
                             "same")

    def test_what_a_gate_could_change(self):
        first = CLINFO.format(**EMPTY_MACHINE)
        for second in (first.replace("4096", "1024"), first.replace("skylake", "other"),
                       first.replace("4399457280 (4.097GiB)", "<error -30>"), first + "more\n", "",
                       first.replace("  Global memory size                              4399457280 (4.097GiB)\n", "")):
            self.assertIn("differs: line ", self.compare("clinfo", first, second))
        self.assertIn("differs: status 3", self.compare("clinfo", first, first, status=3))
        rates = CLPEAK.format(**EMPTY_MACHINE)
        self.assertIn("differs", self.compare("clpeak-latency", rates, rates.replace(": 2\n", ": 1\n")))


if __name__ == "__main__":
    unittest.main()
