"""The programs in docs/serving.md are in the examples, line by line. Other excerpts, of pages and at the heads of C++
headers, compile: those of a file in one function, with what they do not declare.

usage: test_excerpts.py TOP"""
import os
import re
import shutil
import subprocess
import sys
import unittest

TOP = sys.argv.pop(1)


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


C = "#include <err.h>\n#include <errno.h>\n#include <inttypes.h>\n#include <stdio.h>\n" + "".join(
    "#include <cede/%s.h>\n" % h for h in ("cede", "lease", "memory", "slice", "graph"))
CPP = "#include <cede/cede.hpp>\n#include <thread>\n#include <vector>\nusing namespace std::chrono_literals;\n"
CUDA = """extern void *kernel, *stream, **params; extern unsigned n; int cuLaunchKernel(void *, unsigned, unsigned, unsigned,
    unsigned, unsigned, unsigned, unsigned, void *, void **, void **);"""
UNDECLARED = {C: {
    "docs/libcede.md": "",
    "docs/graphs.md": CUDA + "extern int model;",
    "docs/memory.md": """extern struct cede_pool *pool; extern struct cede_shape shape; extern struct cede_lease lease;
        extern struct cede_reservation room; extern uint64_t bytes, scratch, scratch_bytes, timeout_us;""",
    "man/cede_memory_open.3": "extern uint64_t bytes;",
    "man/cede_slice_run.3": """enum { WORK, COUNT }; extern int r, state[9], save(void *, uint64_t),
        launch(void *, uint64_t, uint64_t, void *);""",
}, CPP: {
    "docs/libcede.md": "void work(void *);",
    "docs/graphs.md": CUDA + "int step(void *, unsigned);",
    "docs/memory.md": """extern cede::memory memory; extern cede::pool pool; extern cede::shape shape;
        extern cede_range weights; extern std::uint64_t scratch_bytes;""",
    "include/cede/graph.hpp": "using CUstream = void *;" + CUDA,
    "include/cede/slice.hpp": """extern cede::client client; extern double state[9];
        extern std::uint64_t n, version; void launch(std::uint64_t, std::uint64_t, void *);""",
    "include/cede/step.hpp": """struct request { std::uint64_t id; std::int64_t token; bool ends(std::int64_t); };
        extern std::vector<request *> running; void input(unsigned, std::int64_t), launch(void *);""",
}}


def excerpts(name, language):
    """The excerpts of a file in a language: what is to stand outside of a function, and inside."""
    text = read(name)
    if name.endswith(".hpp"):
        blocks = [re.sub(r"^ \* {5}", "", text.split("*/")[0], flags=re.MULTILINE).split("\n *\n")[1]]
    elif name.endswith(".3"):
        blocks = re.findall(r"^\.Bd -literal.*\n((?:[^.\n].*\n|\n)*)\.Ed", text.replace("\\e", "\\"), re.MULTILINE)
    else:
        blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.MULTILINE)
    code = [b for b in blocks if re.search(r";( */[/*].*)?$", b, re.MULTILINE) and ("cede::" in b) == (language is CPP)]
    parts = [p for b in code for p in re.split(r"\n\s*\n", b)]
    outside = [p for p in parts if re.match(r"\s*(#include|static )", p)]
    return "\n".join(outside), "\n".join(p for p in parts if p not in outside)


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

    def test_excerpts_compile(self):
        for language, files in UNDECLARED.items():
            compiler, *args = ["cc", "-xc", "-std=gnu11"] if language is C else ["c++", "-xc++", "-std=c++17"]
            if not shutil.which(compiler):
                continue
            args += ["-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only", "-I" + os.path.join(TOP, "include")]
            source = language
            for i, (name, undeclared) in enumerate(files.items()):
                outside, inside = excerpts(name, language)
                self.assertIn("cede", inside, name)
                source += "namespace excerpts%d\n{\n" % i if language is CPP else ""
                source += '#line 1 "%s: excerpts"\n%s\n%s\nvoid excerpt%d(void)\n{\n%s\n}\n' % (
                    name, undeclared, outside, i, inside)
                source += "}\n" if language is CPP else ""
            said = subprocess.run([compiler, *args, "-"], input=source, text=True, capture_output=True)
            with self.subTest(compiler=compiler):
                self.assertEqual(said.returncode, 0, said.stderr)


unittest.main()
