"""examples/serve.py answers all its requests, and ends as a whole if its model fails.

usage: test_serve.py EXAMPLES       with CEDE_LIBRARY"""
import contextlib
import io
import sys
import unittest
from unittest import mock

sys.path.append(sys.argv.pop(1))
import serve


class Serve(unittest.TestCase):
    def test_all_are_answered(self):
        out = io.StringIO()
        # A busy machine may make requests late, which are refused then.
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            serve.main()
        lines = out.getvalue().splitlines()
        answered, batches = int(lines[-1].split()[0]), int(lines[-1].split()[-2])
        self.assertEqual(answered + len(lines) - 1, 100)
        self.assertGreater(answered, 0)
        self.assertLess(batches, answered)

    def test_one_fails(self):
        seen = []

        def run(queue):
            for batch in queue.batches():
                seen.append(batch.items)
                raise ArithmeticError("the model failed")

        with mock.patch.object(serve, "run", run), self.assertRaises(ArithmeticError):
            serve.main()
        self.assertLessEqual(len(seen), 2)


unittest.main()
