"""The pages of libcede say what its headers say: every function has a page, with the header's prototype in SYNOPSIS,
and the errno values that a header names are on its page.

usage: test_man.py TOP"""
import glob
import os
import re
import sys
import unittest

TOP = sys.argv.pop(1)
PROTOTYPE = re.compile(r"^(?:static inline )?((?:const )?\w+ \*?)(cede_\w+)\(([^;{}]*?)\)[;\n]", re.MULTILINE)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def page_of(function):
    page = read("man/%s.3" % function)
    return read("man/" + page.split("/")[1].strip()) if page.startswith(".so ") else page


def synopsis(page):
    calls = re.findall(r'^\.Ft (.*)\n\.Fn (cede_\w+) ((?:"[^"]*" ?)*)$', page, re.MULTILINE)
    return {name: (kind, ", ".join(re.findall(r'"([^"]*)"', rest))) for kind, name, rest in calls}


def errnos(text):
    return set(re.findall(r"-(E[A-Z]{3,})\b", text.replace("\\", "")))


class Man(unittest.TestCase):
    def test_pages_say_what_headers_say(self):
        seen = 0
        for header in glob.glob("include/cede/*.h", root_dir=TOP):
            text = read(header)
            for kind, name, arguments in PROTOTYPE.findall(text):
                seen += 1
                page = page_of(name)
                with self.subTest(function=name):
                    self.assertEqual(synopsis(page).get(name), (kind.strip(), " ".join(arguments.split())))
                    self.assertRegex(page.split(".Nd")[0], r"\b%s\b" % name)
            with self.subTest(header=header):
                self.assertFalse(errnos(text) - errnos(page), "are not on the page")
        self.assertGreater(seen, 90)


unittest.main()
