"""python/cede_memory.py without a GPU; with the library and without.

usage: test_python_memory.py LIBRARY"""
import os
import sys
import threading
import unittest
from unittest import mock

os.environ["CEDE_LIBRARY"] = sys.argv.pop(1)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.dont_write_bytecode = True
import cede  # noqa: E402
import cede_memory  # noqa: E402


class Memory(unittest.TestCase):
    def memory(self, **settings):
        m = cede_memory.Memory(flags=1, total_bytes=1000, **settings)
        self.addCleanup(m.close)
        return m

    def test_reservations(self):
        m = self.memory()
        self.assertTrue(m.can_allocate(900))
        self.assertFalse(m.can_allocate(901))
        with self.assertRaises(KeyError):
            with m.reserve(800):
                self.assertFalse(m.can_allocate(101))
                self.assertEqual(m.statistics().promised_bytes, 800)
                with self.assertRaisesRegex(MemoryError, "GPU 0: there is room for"):
                    with m.reserve(200, timeout_us=1000):
                        pass
                raise KeyError
        self.assertEqual((m.statistics().promised_bytes, m.statistics().timed_out), (0, 1))

    def test_a_thread_waits(self):
        m, order = self.memory(), []

        def wait():
            with m.reserve(900, timeout_us=60 * 10**6):
                order.append("second")

        with m.reserve(500):
            thread = threading.Thread(target=wait)
            thread.start()
            while not m.statistics().waiting:
                pass
            order.append("first")
        thread.join()
        self.assertEqual(order, ["first", "second"])

    def test_pressure(self):
        seen = []
        m = self.memory(on_pressure=seen.append)
        with m.reserve(700):
            self.assertEqual(m.pressure(), cede_memory.HIGH)
            with m.reserve(150):
                self.assertEqual(m.pressure(), cede_memory.CRITICAL)
        self.assertEqual(m.pressure(), cede_memory.LOW)
        self.assertEqual(seen[:2], [cede_memory.HIGH, cede_memory.CRITICAL])
        self.assertEqual(seen[-1], cede_memory.LOW)

    def test_settings(self):
        with self.assertRaises(ValueError):
            cede_memory.Memory(sise=1)
        with self.assertRaises(OSError):
            self.memory(reserve_fraction=1.0)
        with cede.Client() as client:
            self.memory(client=client)

    def test_without_the_library(self):
        with mock.patch.object(cede, "_lib", None):
            m = cede_memory.Memory()
            with m.reserve(1 << 60):
                self.assertTrue(m.can_allocate(1 << 60))
            self.assertEqual((m.pressure(), m.text(), m.statistics().granted), (cede_memory.LOW, "", 0))
            m.close()


unittest.main()
