"""For tests of scripts: the one that the first argument names, as a module anew for each test."""
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest

SCRIPT = os.path.abspath(sys.argv.pop(1))
sys.dont_write_bytecode = True  # the scripts' folder stays as it is


def load(path=SCRIPT):
    loader = importlib.machinery.SourceFileLoader("script", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("script", loader))
    loader.exec_module(module)
    return module


class InFolder(unittest.TestCase):
    """self.script, and an empty folder self.top."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top, self.script = folder.name, load()

    def write(self, name, text):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
