"""The programs in docs/serving.md are in the examples, line by line.

usage: test_excerpts.py TOP"""
import os
import re
import sys
import unittest

TOP = sys.argv.pop(1)


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


def squeezed(text):
    return "\n".join(line.strip() for line in text.splitlines())


class Excerpts(unittest.TestCase):
    def test_excerpts_are_in_the_examples(self):
        sources = [squeezed(read(f)) for f in ("examples/step.c", "examples/decode/engine.c", "examples/serve.c",
                                               "examples/serve.cpp", "examples/serve.py",
                                               "bench/programs/served/server.cpp", "bench/programs/served/server.py")]
        blocks = re.findall(r"(?:^ {4}.*\n)+", read("docs/serving.md"), re.MULTILINE)
        code = [b for b in blocks if re.search(r"[;}:]$", b, re.MULTILINE)]
        self.assertGreaterEqual(len(code), 15)
        for block in code:
            self.assertTrue(any(squeezed(block).strip() in s for s in sources), block)


unittest.main()
