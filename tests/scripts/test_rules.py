"""scripts/rules on small made-up trees: each kind of fault is found where it is, and only there; what
is known is no fault, what is not needed any more is one, and --shrink keeps the rest.

usage: test_rules.py PATH_OF_RULES
"""
import contextlib
import io
import json
import os
import subprocess
import unittest

from script import InFolder


class Tree(InFolder):
    def setUp(self):
        super().setUp()
        self.rules = self.script
        self.rules.TOP = self.top
        self.rules.PURE = []
        self.versions, self.rules.VERSIONS = self.rules.VERSIONS, {}
        self.rules.TABLES, self.rules.MAY_BE_MUTUAL = {}, {}
        self.rules.FILE_LINES, self.rules.FUNCTION_LINES = 20, 5

    def sources(self, **files):
        """src__plan__a_c="..." is src/plan/a.c. Each gets a leading comment of one line."""
        for name, text in files.items():
            path = name.replace("__", "/")
            self.write(path[:-2] + "." + path[-1], "/* Made up. */\n" + text)

    def known(self, *lines):
        self.write("scripts/rules-known", "\n".join(("# What is known", *lines, "# the end", "")))

    def now_known(self):
        with open(os.path.join(self.top, "scripts/rules-known"), encoding="utf-8") as f:
            return f.read().split("\n")[1:-2]

    def build(self):
        """Compiles all below src/, libcede/, gate/ and tests/ as meson would; the name of the folder."""
        build, entries = os.path.join(self.top, "build"), []
        for d in ("src", "libcede", "gate", "tests"):
            for path, _, names in os.walk(os.path.join(self.top, d)):
                for n in (n for n in names if n.endswith(".c")):
                    source = os.path.join(path, n)
                    output = os.path.relpath(path, self.top) + "/lib.a.p/" + n + ".o"
                    os.makedirs(os.path.join(build, os.path.dirname(output)), exist_ok=True)
                    subprocess.run(["cc", "-c", "-I" + os.path.join(self.top, "src"), source, "-o",
                                    os.path.join(build, output)], check=True)
                    entries.append({"directory": build, "file": os.path.relpath(source, build),
                                    "output": output})
        self.write("build/compile_commands.json", json.dumps(entries))
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
        self.sources(src__base__a_c="static int f(void)\n{\n    return 1;\n}\n", src__base__a_h="int g(void);\n")
        self.expect([])

    def test_comment_arrows_and_exit(self):
        self.sources(src__base__a_c='#include "plan/b.h"\n#include "base/c.h"\n', src__base__c_h="",
                   src__plan__b_h='#include "base/c.h"\n/* exit(1) */\n',
                   src__plan__b_c='void f(void)\n{\n    puts("exit(1)");\n    exit(1);\n}\n')
        self.write("src/plan/bare.c", "int x;\n")
        self.expect([".: folders and files that need each other: base/ plan/", "src/base/a.c:2|base must not depend on plan", "src/plan/b.c:5|exit() outside main",
                     "src/plan/bare.c:1|without a comment"])

    def test_one_starter(self):
        body = "/* fork() and\n * execv() */\nvoid f(void)\n{\n    x = fork();\n    s->exec(1);\n    execvp(a, b);\n}\n"
        self.sources(src__base__child_c=body, src__base__b_c=body, softgpu__c_c=body)
        self.expect(["src/base/b.c:6|fork() outside src/base/child.c", "src/base/b.c:8|execvp() outside"])

    def test_long_files(self):
        self.sources(src__base__a_c="\n" * 19, src__base__b_c="\n" * 20, tests__lib__c_c="\n" * 30)
        self.expect(["src/base/b.c: 21 lines|split", "tests/lib/c.c: 31 lines"])
        self.rules.TABLES = {"src/base/b.c": "a table", "src/base/a.c": "none any more"}
        self.expect(["src/base/a.c is short enough|TABLES", "tests/lib/c.c: 31 lines"])

    def test_long_functions(self):
        body = "{\n" + "    x();\n" * 4 + "}\n"  # six lines
        table = "{\n    static const int t[] = {\n        1,\n        2,\n    };\n    x();\n    x();\n}\n"
        self.sources(src__base__a_c="int first(void)\n{\n    x();\n}\nint second(int a,\n           int b)\n" + body,
                   src__base__b_c="int with_table(void)\n" + table,
                   src__base__c_c="const struct t table = {\n" + "    1,\n" * 9 + "};\n",
                   tests__lib__d_c="static __attribute__((format(printf, 1, 2))) void third(char *f)\n" + body)
        self.expect(["src/base/a.c:8: second() has 6 lines", "tests/lib/d.c:3: third() has 6 lines"])

    def test_protocol_versions(self):
        self.rules.VERSIONS = self.versions
        h, py = "#define SOFT_VERSION           0x73670006U\n", "\nVERSION = 0x7367000%d\n"

        def python(text):
            self.write("bench/programs/softgpu.py", text)
        self.sources(src__gpu__soft__proto_h=h)
        python(py % 6)
        self.expect([])
        python(py % 5)
        self.expect(["differ|proto.h has 0x73670006|softgpu.py has 0x73670005"])
        python("")
        self.expect(["softgpu.py: no protocol version"])

    def test_of_headers(self):
        self.sources(src__plan__a_h='#include "plan/b.h"\n', src__plan__b_h='#include "plan/a.h"\n',
                   src__plan__a_c='#include "plan/a.h"\n#include "plan/c.h"\n', src__plan__c_h="")
        self.expect(["src/plan/a.h: in a cycle of 2 files: src/plan/a.h src/plan/b.h"])

    def test_of_folders_by_headers(self):
        self.sources(src__gpu__x__a_h='#include "gpu/y/b.h"\n', src__gpu__y__b_h="",
                   src__gpu__y__c_h='#include "gpu/x/d.h"\n', src__gpu__x__d_h="")
        self.expect(["gpu: folders and files|x/ y/"])

    def test_of_symbols(self):
        """a, b and c use each other in a circle; d and e each other; f uses all."""
        uses = {"a": "b", "b": "c", "c": "a", "d": "e", "e": "d", "f": "ad"}
        self.sources(**{f"src__plan__{n}_c": "".join(f"void {u}(void);\n" for u in used) + f"void {n}(void)\n{{\n"
                      + "".join(f"    {u}();\n" for u in used) + "}\n" for n, used in uses.items()})
        three, two = "src/plan/a.c src/plan/b.c src/plan/c.c", "src/plan/d.c src/plan/e.c"
        self.expect([])  # only the object files tell
        build = self.build()
        self.expect([f"cycle of 3 files: {three};", f"cycle of 2 files: {two}|MAY_BE_MUTUAL"], build)
        self.rules.MAY_BE_MUTUAL = {tuple(two.split()): "why"}
        self.expect([f"cycle of 3 files: {three};"], build)
        self.known(f"symbol-cycle {three} src/plan/z.c", "function-lines src/plan/a.c a 90")
        self.expect(["rules-known:3|no longer needed"], build)
        self.expect([], "--shrink", build)
        self.assertEqual(self.now_known(), [f"symbol-cycle {three}"])
        self.known("symbol-cycle src/plan/a.c src/plan/b.c")
        self.expect(["rules-known:2|no longer needed", f"cycle of 3 files: {three};"], build)

    def test_that_is_gone_or_apart(self):
        """What was one cycle of four is two of two: both are known, and both take its place."""
        uses = {"a": "b", "b": "a", "c": "d", "d": "c"}
        self.sources(**{f"src__plan__{n}_c": f"void {u}(void);\nvoid {n}(void)\n{{\n    {u}();\n}}\n"
                      for n, u in uses.items()})
        build = self.build()
        self.known("symbol-cycle src/plan/a.c src/plan/b.c src/plan/c.c src/plan/d.c")
        self.expect([], build)
        self.expect([], "--shrink", build)
        self.assertEqual(self.now_known(), ["symbol-cycle src/plan/a.c src/plan/b.c",
                                            "symbol-cycle src/plan/c.c src/plan/d.c"])
        self.rules.MAY_BE_MUTUAL = {("src/plan/b.c", "src/plan/a.c"): "why",
                                    ("src/plan/a.c", "src/plan/c.c"): "none any more"}
        self.expect(["rules-known:2|no longer needed", "a.c and src/plan/c.c|take them out"], build)

    def test_of_folders_by_symbols(self):
        """No two files use each other, but their folders do. A folder's own files are no folder."""
        self.sources(src__engine__see__a_c="void b(void);\nvoid a(void)\n{\n    b();\n}\n",
                   src__engine__do__b_c="void b(void)\n{\n}\n",
                   src__engine__do__c_c="void d(void);\nvoid c(void)\n{\n    d();\n}\n",
                   src__engine__see__d_c="void d(void)\n{\n}\n",
                   src__gpu__top_c="void low(void);\nvoid top(void)\n{\n    low();\n}\n",
                   src__gpu__x__low_c="void mux(void);\nvoid low(void)\n{\n    mux();\n}\n",
                   src__gpu__mux_c="void mux(void)\n{\n}\n")
        build = self.build()
        self.expect(["engine: folders and files|do/ see/"], build)
        self.known("symbol-folders engine do/ see/")
        self.expect([], build)

    def test_tests_do_not_count(self):
        self.sources(src__base__a_c="void b(void);\nvoid a(void)\n{\n    b();\n}\n",
                   tests__lib__b_c="void a(void);\nvoid b(void)\n{\n    a();\n}\n")
        self.expect([], self.build())

    def test_names_of_two_programs(self):
        """Where two folders define a symbol, the nearer is meant."""
        use = "void port(void);\nvoid %s(void)\n{\n    port();\n}\n"
        port = "%svoid port(void)\n{\n%s}\n"
        self.sources(gate__hip__a_c=use % "a", gate__hip__p_c=port % ("", ""),
                   gate__opencl__b_c=use % "b",
                   gate__opencl__p_c=port % ("void a(void);\n", "    a();\n"))
        self.expect([], self.build())

    def test_a_build_that_is_not_there(self):
        self.sources(src__base__a_c="")
        self.expect(["no build; run meson"], os.path.join(self.top, "build"))
        build = self.build()
        os.remove(os.path.join(build, "src/base/lib.a.p/a.c.o"))
        self.known("symbol-cycle src/base/a.c src/base/b.c")
        self.expect(["src/base/a.c: not built"], build)  # and the list is not judged by it


class Known(Tree):
    def test_numbers(self):
        self.sources(src__base__a_c="\n" * 30, src__base__b_c="\n" * 30, src__base__c_c="\n" * 30)
        self.known("file-lines src/base/a.c 31", "", "file-lines src/base/b.c 40", "file-lines src/base/c.c 30",
                   "file-lines src/base/gone.c 99")
        self.expect(["rules-known:6|no longer needed|gone.c", "src/base/c.c: 31 lines|it had 30"])
        self.expect(["src/base/c.c: 31 lines|it had 30"], "--shrink")  # does not hide what has grown
        self.assertEqual(self.now_known(), ["file-lines src/base/a.c 31", "", "file-lines src/base/b.c 31",
                                            "file-lines src/base/c.c 30"])

    def test_purity(self):
        self.sources(src__base__a_c="long time(long *);\nlong a(void)\n{\n    return time(0);\n}\n")
        build = self.build()
        subprocess.run(["ar", "rcsT", "src/base/lib.a", "src/base/lib.a.p/a.c.o"], cwd=build, check=True)
        self.rules.PURE = ["src/base/lib.a", "src/none.a"]
        self.expect(["src/none.a: not built"], build)
        self.rules.PURE = ["src/base/lib.a"]
        self.expect(["lib.a: must stay pure, but calls time()"], build)


if __name__ == "__main__":
    unittest.main()
