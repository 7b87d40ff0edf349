"""scripts/rules on small made-up trees: each kind of fault is found where it is, and only there; what
is known is no fault, what is not needed any more is one, and --shrink keeps the rest.

usage: test_rules.py PATH_OF_RULES
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

RULES = sys.argv.pop(1)
sys.dont_write_bytecode = True  # scripts/ stays as it is


def load():
    loader = importlib.machinery.SourceFileLoader("rules", RULES)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("rules", loader))
    loader.exec_module(module)
    return module


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        self.rules = load()
        self.rules.TOP = self.top
        self.rules.PURE = []
        self.versions, self.rules.VERSIONS = self.rules.VERSIONS, {}
        self.rules.TABLES, self.rules.MAY_BE_MUTUAL, self.rules.COMMON_STATICS = {}, {}, {}
        self.rules.FILE_LINES, self.rules.FUNCTION_LINES = 20, 5

    def write(self, **files):
        """src__sched__a_c="..." is src/sched/a.c. Each gets a leading comment of one line."""
        for name, text in files.items():
            path = os.path.join(self.top, *name.split("__"))
            path = path[:-2] + "." + path[-1]
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write("/* Made up. */\n" + text)

    def known(self, *lines):
        os.makedirs(os.path.join(self.top, "scripts"), exist_ok=True)
        with open(os.path.join(self.top, "scripts/rules-known"), "w", encoding="utf-8") as f:
            f.write("\n".join(("# What is known", *lines, "# the end", "")))

    def now_known(self):
        with open(os.path.join(self.top, "scripts/rules-known"), encoding="utf-8") as f:
            return f.read().split("\n")[1:-2]

    def build(self):
        """Compiles all below src/, libcede/ and tests/ as meson would; the name of the folder."""
        build, entries = os.path.join(self.top, "build"), []
        for d in ("src", "libcede", "tests"):
            for path, _, names in os.walk(os.path.join(self.top, d)):
                for n in (n for n in names if n.endswith(".c")):
                    source = os.path.join(path, n)
                    output = os.path.relpath(path, self.top) + "/lib.a.p/" + n + ".o"
                    os.makedirs(os.path.join(build, os.path.dirname(output)), exist_ok=True)
                    subprocess.run(["cc", "-c", "-I" + os.path.join(self.top, "src"), source, "-o",
                                    os.path.join(build, output)], check=True)
                    entries.append({"directory": build, "file": os.path.relpath(source, build),
                                    "output": output})
        with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as f:
            json.dump(entries, f)
        return build

    def faults(self, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = self.rules.main(list(argv))
        lines = [s for s in out.getvalue().split("\n") if s and not s.startswith(" ")]
        self.assertEqual(status, 1 if lines else 0)
        return lines

    def expect(self, parts, *argv):
        """As many faults as parts; each has the words of its part, which is separated by |."""
        found = self.faults(*argv)
        self.assertEqual(len(found), len(parts), found)
        for words, fault in zip(parts, found):
            for word in words.split("|"):
                self.assertIn(word, fault)


class Texts(Tree):
    def test_nothing_wrong(self):
        self.write(src__lib__a_c="static int f(void)\n{\n    return 1;\n}\n", src__lib__a_h="int g(void);\n")
        self.expect([])

    def test_comment_arrows_and_exit(self):
        self.write(src__lib__a_c='#include "sched/b.h"\n#include "lib/c.h"\n', src__lib__c_h="",
                   src__sched__b_h='#include "lib/c.h"\n/* exit(1) */\n',
                   src__sched__b_c='void f(void)\n{\n    puts("exit(1)");\n    exit(1);\n}\n')
        with open(os.path.join(self.top, "src/sched/bare.c"), "w", encoding="utf-8") as f:
            f.write("int x;\n")
        self.expect([".: folders and files that need each other: lib/ sched/", "src/lib/a.c:2|lib must not depend on sched", "src/sched/b.c:5|exit() outside main",
                     "src/sched/bare.c:1|without a comment"])

    def test_long_files(self):
        self.write(src__lib__a_c="\n" * 19, src__lib__b_c="\n" * 20, tests__lib__c_c="\n" * 30)
        self.expect(["src/lib/b.c: 21 lines|split", "tests/lib/c.c: 31 lines"])
        self.rules.TABLES = {"src/lib/b.c": "a table", "src/lib/a.c": "none any more"}
        self.expect(["src/lib/a.c is short enough|TABLES", "tests/lib/c.c: 31 lines"])

    def test_long_functions(self):
        body = "{\n" + "    x();\n" * 4 + "}\n"  # six lines
        table = "{\n    static const int t[] = {\n        1,\n        2,\n    };\n    x();\n    x();\n}\n"
        self.write(src__lib__a_c="int first(void)\n{\n    x();\n}\nint second(int a,\n           int b)\n" + body,
                   src__lib__b_c="int with_table(void)\n" + table,
                   src__lib__c_c="const struct t table = {\n" + "    1,\n" * 9 + "};\n",
                   tests__lib__d_c="static __attribute__((format(printf, 1, 2))) void third(char *f)\n" + body)
        self.expect(["src/lib/a.c:8: second() has 6 lines", "tests/lib/d.c:3: third() has 6 lines"])

    def test_protocol_versions(self):
        self.rules.VERSIONS = self.versions
        h, py = "#define SOFT_VERSION           0x73670006U\n", "\nVERSION = 0x7367000%d\n"
        os.makedirs(os.path.join(self.top, "bench/programs"))

        def python(text):
            with open(os.path.join(self.top, "bench/programs/softgpu.py"), "w", encoding="utf-8") as f:
                f.write(text)
        self.write(src__device__soft__proto_h=h)
        python(py % 6)
        self.expect([])
        python(py % 5)
        self.expect(["differ|proto.h has 0x73670006|softgpu.py has 0x73670005"])
        python("")
        self.expect(["softgpu.py: no protocol version"])

    def test_static_names(self):
        f = "static int %s(void)\n{\n}\n"
        self.write(src__lib__a_c=f % "turn" + "\n" + f % "usage", libcede__b_c=f % "turn" + "\n" + f % "alone",
                   src__lib__c_c="int turn(void)\n{\n}\n", src__cli__d_c=f % "usage",
                   src__cli__e_c=f % "usage", tests__lib__t_c=f % "alone")
        turn = ["libcede/b.c:3: static turn()|src/lib/a.c, src/lib/c.c|prefix", "src/lib/a.c:3: static turn()"]
        self.expect([turn[0], "src/cli/d.c|usage", "src/cli/e.c|usage", turn[1], "src/lib/a.c:7: static usage()"])
        self.rules.COMMON_STATICS = {"usage": (r"src/cli/\w+\.c", "why")}
        self.expect([*turn, "src/lib/a.c:7: static usage()"])
        self.rules.COMMON_STATICS = {"usage": (r"src/\w+/\w+\.c", "why"), "alone": ("libcede/.*", "why"),
                                     "gone": (".*", "why")}
        self.expect([turn[0], "alone() has one meaning|COMMON_STATICS", "there is no gone()", turn[1]])


class Cycles(Tree):
    def test_of_headers(self):
        self.write(src__sched__a_h='#include "sched/b.h"\n', src__sched__b_h='#include "sched/a.h"\n',
                   src__sched__a_c='#include "sched/a.h"\n#include "sched/c.h"\n', src__sched__c_h="")
        self.expect(["src/sched/a.h: in a cycle of 2 files: src/sched/a.h src/sched/b.h"])

    def test_of_folders_by_headers(self):
        self.write(src__device__x__a_h='#include "device/y/b.h"\n', src__device__y__b_h="",
                   src__device__y__c_h='#include "device/x/d.h"\n', src__device__x__d_h="")
        self.expect(["device: folders and files|x/ y/"])

    def test_of_symbols(self):
        """a, b and c use each other in a circle; d and e each other; f uses all."""
        uses = {"a": "b", "b": "c", "c": "a", "d": "e", "e": "d", "f": "ad"}
        self.write(**{f"src__sched__{n}_c": "".join(f"void {u}(void);\n" for u in used) + f"void {n}(void)\n{{\n"
                      + "".join(f"    {u}();\n" for u in used) + "}\n" for n, used in uses.items()})
        three, two = "src/sched/a.c src/sched/b.c src/sched/c.c", "src/sched/d.c src/sched/e.c"
        self.expect([])  # only the object files tell
        build = self.build()
        self.expect([f"cycle of 3 files: {three};", f"cycle of 2 files: {two}|MAY_BE_MUTUAL"], build)
        self.rules.MAY_BE_MUTUAL = {tuple(two.split()): "why"}
        self.expect([f"cycle of 3 files: {three};"], build)
        self.known(f"symbol-cycle {three} src/sched/z.c", "static-name src/sched/a.c a")
        self.expect(["rules-known:3|no longer needed"], build)
        self.expect([], "--shrink", build)
        self.assertEqual(self.now_known(), [f"symbol-cycle {three}"])
        self.known("symbol-cycle src/sched/a.c src/sched/b.c")
        self.expect(["rules-known:2|no longer needed", f"cycle of 3 files: {three};"], build)

    def test_that_is_gone_or_apart(self):
        """What was one cycle of four is two of two: both are known, and both take its place."""
        uses = {"a": "b", "b": "a", "c": "d", "d": "c"}
        self.write(**{f"src__sched__{n}_c": f"void {u}(void);\nvoid {n}(void)\n{{\n    {u}();\n}}\n"
                      for n, u in uses.items()})
        build = self.build()
        self.known("symbol-cycle src/sched/a.c src/sched/b.c src/sched/c.c src/sched/d.c")
        self.expect([], build)
        self.expect([], "--shrink", build)
        self.assertEqual(self.now_known(), ["symbol-cycle src/sched/a.c src/sched/b.c",
                                            "symbol-cycle src/sched/c.c src/sched/d.c"])
        self.rules.MAY_BE_MUTUAL = {("src/sched/b.c", "src/sched/a.c"): "why",
                                    ("src/sched/a.c", "src/sched/c.c"): "none any more"}
        self.expect(["rules-known:2|no longer needed", "a.c and src/sched/c.c|take them out"], build)

    def test_of_folders_by_symbols(self):
        """No two files use each other, but their folders do. A folder's own files are no folder."""
        self.write(src__engine__see__a_c="void b(void);\nvoid a(void)\n{\n    b();\n}\n",
                   src__engine__do__b_c="void b(void)\n{\n}\n",
                   src__engine__do__c_c="void d(void);\nvoid c(void)\n{\n    d();\n}\n",
                   src__engine__see__d_c="void d(void)\n{\n}\n",
                   src__device__top_c="void low(void);\nvoid top(void)\n{\n    low();\n}\n",
                   src__device__x__low_c="void mux(void);\nvoid low(void)\n{\n    mux();\n}\n",
                   src__device__mux_c="void mux(void)\n{\n}\n")
        build = self.build()
        self.expect(["engine: folders and files|do/ see/"], build)
        self.known("symbol-folders engine do/ see/")
        self.expect([], build)

    def test_tests_do_not_count(self):
        self.write(src__lib__a_c="void b(void);\nvoid a(void)\n{\n    b();\n}\n",
                   tests__lib__b_c="void a(void);\nvoid b(void)\n{\n    a();\n}\n")
        self.expect([], self.build())

    def test_names_of_two_programs(self):
        """Where two folders define a symbol, the nearer is meant."""
        use = "void port(void);\nvoid %s(void)\n{\n    port();\n}\n"
        port = "%svoid port(void)\n{\n%s}\n"
        self.write(src__gate__hip__a_c=use % "a", src__gate__hip__p_c=port % ("", ""),
                   src__gate__opencl__b_c=use % "b",
                   src__gate__opencl__p_c=port % ("void a(void);\n", "    a();\n"))
        self.expect([], self.build())

    def test_a_build_that_is_not_there(self):
        self.write(src__lib__a_c="")
        self.expect(["no build; run meson"], os.path.join(self.top, "build"))
        build = self.build()
        os.remove(os.path.join(build, "src/lib/lib.a.p/a.c.o"))
        self.known("symbol-cycle src/lib/a.c src/lib/b.c")
        self.expect(["src/lib/a.c: not built"], build)  # and the list is not judged by it


class Known(Tree):
    def test_numbers(self):
        self.write(src__lib__a_c="\n" * 30, src__lib__b_c="\n" * 30, src__lib__c_c="\n" * 30)
        self.known("file-lines src/lib/a.c 31", "", "file-lines src/lib/b.c 40", "file-lines src/lib/c.c 30",
                   "file-lines src/lib/gone.c 99")
        self.expect(["rules-known:6|no longer needed|gone.c", "src/lib/c.c: 31 lines|it had 30"])
        self.expect(["src/lib/c.c: 31 lines|it had 30"], "--shrink")  # does not hide what has grown
        self.assertEqual(self.now_known(), ["file-lines src/lib/a.c 31", "", "file-lines src/lib/b.c 31",
                                            "file-lines src/lib/c.c 30"])

    def test_purity(self):
        self.write(src__lib__a_c="long time(long *);\nlong a(void)\n{\n    return time(0);\n}\n")
        build = self.build()
        subprocess.run(["ar", "rcsT", "src/lib/lib.a", "src/lib/lib.a.p/a.c.o"], cwd=build, check=True)
        self.rules.PURE = ["src/lib/lib.a", "src/none.a"]
        self.expect(["src/none.a: not built"], build)
        self.rules.PURE = ["src/lib/lib.a"]
        self.expect(["lib.a: must stay pure, but calls time()"], build)


if __name__ == "__main__":
    unittest.main()
