"""python/cede_slice.py: runs, what stops them, and checkpoints."""
import array
import errno
import os
import tempfile
import unittest

import cede
import cede_slice


class Slices(unittest.TestCase):
    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.path = os.path.join(d.name, "state")
        self.state = array.array("Q", [0, 0])

    def launch(self, first, count, stream):
        self.assertIsNone(stream)
        self.assertEqual(first, self.state[1])
        for i in range(first, first + count):
            self.state[0] += i * i
        self.state[1] += count

    def test_goes_on(self):
        file, client = cede_slice.Checkpoint(self.path, 7), cede.Client()
        self.assertIsNone(file.read(self.state))
        progress, calls = cede_slice.Progress(), 0
        while not cede_slice.run(progress, 20000, self.launch, lambda done: file.write(done, self.state), gpu=False,
                                 client=client, target_us=50, timeout_us=500):
            calls += 1
            self.assertIn("time-out", progress.error)
            self.assertEqual(progress.saved, progress.done)
            self.state = array.array("Q", [0, 0])  # another process
            progress = cede_slice.Progress(done=file.read(self.state))
        self.assertGreater(calls, 0)
        self.assertEqual(self.state[0], sum(i * i for i in range(20000)))
        self.assertEqual(progress.done, 20000)

    def test_gives_way_to_an_urgent_lease(self):
        """No slice begins while a lease displaces that of the run, which patience allows it for ever."""
        pool, progress, urgent = cede.Pool(gpu=False, max_concurrent_streams=1), cede_slice.Progress(), []
        self.addCleanup(pool.close)
        with pool.acquire() as lease:
            self.assertFalse(cede_slice.run(progress, 100, lambda *_: urgent.append(pool.try_acquire(due_us=1)), gpu=False,
                                            lease=lease, timeout_us=5000, patience_us=cede.TIMEOUT_FOREVER))
        self.assertEqual((progress.done, len(urgent), pool.statistics().displaced), (1, 1, 1))

    def test_exceptions(self):
        def fails(*_):
            raise KeyError("mine")
        progress = cede_slice.Progress()
        for functions in ((fails, None), (self.launch, fails)):
            with self.assertRaises(KeyError):
                cede_slice.run(progress, 10, *functions, gpu=False)
        self.assertEqual((progress.done, progress.saved), (10, 0))
        if not os.path.exists("/proc/driver/nvidia"):
            with self.assertRaises(OSError) as e:
                cede_slice.run(cede_slice.Progress(), 10, self.launch)
            self.assertEqual(e.exception.errno, errno.ENOSYS)

    def test_checkpoints(self):
        file = cede_slice.Checkpoint(self.path, 7)
        file.write(2**63, b"bytes of it")
        back = bytearray(11)
        self.assertEqual(file.read(back), 2**63)
        self.assertEqual(back, b"bytes of it")
        file.write(1, b"")
        self.assertEqual(file.read(bytearray()), 1)
        file.write(3, self.state)
        for path, work, data, code, text in (
                (self.path, 8, self.state, errno.ESTALE, "other work"), (self.path, 7, back, errno.ESTALE, "bytes"),
                ("/", 7, back, errno.EBADMSG, "no file")):
            with self.assertRaisesRegex(OSError, text) as e:
                cede_slice.Checkpoint(path, work).read(data)
            self.assertEqual(e.exception.errno, code)
        with self.assertRaises(ValueError):
            file.read(b"cannot be written")
        with self.assertRaises(ValueError):
            file.write(1, memoryview(bytearray(10))[::2])
        with open(self.path, "r+b") as f:
            f.truncate(20)
        with self.assertRaises(OSError) as e:
            file.read(self.state)
        self.assertEqual(e.exception.errno, errno.EBADMSG)


if __name__ == "__main__":
    unittest.main()
