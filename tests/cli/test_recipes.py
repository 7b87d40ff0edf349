"""bench/programs/recipes.py, which measured docs/recipes.md's loop on a GPU, runs on the software GPU, too. The commands of the page:
test_pages.py.

usage: test_recipes.py CEDE LIBCEDE SOURCE_DIR"""
import json
import os
import sys
import unittest

from on_soft import CEDE, OnSoft

LIBCEDE, SOURCE = sys.argv.pop(1), sys.argv.pop(1)


class Recipes(OnSoft):
    def test_bench(self):
        """The loop of two Python programs, with memory for one of them."""
        self.soft_gpu("--memory", str(1 << 28))
        del self.env["CEDE_DIR"]
        path = self.path("result.json")
        done = self.run_as(sys.executable, os.path.join(SOURCE, "bench/programs/recipes.py"), CEDE, LIBCEDE, path, "soft",
                           env=dict(self.env, PYTHONDONTWRITEBYTECODE="1"), timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(self.read("result.json"))
        self.assertTrue(result["loop"]["same_results"])
        self.assertEqual(result["loop"]["statuses"], [0, 0])
        self.assertTrue(result["meeting"]["stood_still"])


if __name__ == "__main__":
    unittest.main()
