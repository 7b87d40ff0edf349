"""python/cede_memory.py without a GPU; with the library and without."""
import asyncio
import errno
import os
import unittest
import weakref

import cede
import cede_memory


class Memory(unittest.TestCase):
    def memory(self, **settings):
        m = cede_memory.Memory(gpu=False, total_bytes=1000, **settings)
        self.addCleanup(m.close)
        return m

    def test_reservations(self):
        m = self.memory()
        self.assertTrue(m.can_allocate(900))
        self.assertFalse(m.can_allocate(901))
        with self.assertRaises(KeyError), m.reserve(800):
            self.assertFalse(m.can_allocate(101))
            self.assertEqual(m.statistics().promised_bytes, 800)
            with self.assertRaises(MemoryError) as e, m.reserve(200, timeout_us=1000):
                pass
            self.assertRegex(str(e.exception), "^cede_memory_reserve: no room for 200 bytes .there is 100 bytes, .*; GPU 0: ")
            raise KeyError
        self.assertEqual((m.statistics().promised_bytes, m.statistics().timed_out), (0, 1))

    def test_leases_with_memory(self):
        m, pool = self.memory(), cede.Pool(gpu=False, max_concurrent_streams=1)
        self.addCleanup(pool.close)
        pool.occupancy("gemm", 0.1)

        def held():
            return pool.statistics().active, m.statistics().promised_bytes

        with self.assertRaises(KeyError):
            with m.acquire(pool, "gemm", memory_bytes=800, ranges=[(4096, 50, cede_memory.READ_MOSTLY)]) as lease:
                self.assertEqual((lease.device, lease.room.bytes, held()), (0, 800, (1, 800)))
                self.assertEqual((m.statistics().skipped_ranges, m.statistics().skipped),
                                 (1, "a range of 50 bytes: the handle has no GPU"))
                with self.assertRaisesRegex(MemoryError, "GPU 0: there is room for"):
                    with m.acquire(pool, timeout_us=0, memory_bytes=200):
                        self.fail()
                with self.assertRaises(TimeoutError):  # of room there is enough
                    with m.acquire(pool, timeout_us=1000, memory_bytes=100):
                        self.fail()
                for _ in range(2):
                    lease.room.release()
                self.assertEqual(held(), (1, 0))
                raise KeyError
        self.assertEqual((held(), m.need("gemm", blocks=1)), ((0, 0), 0))
        for error, kernel, ranges in ((ValueError, None, [(1, 1)] * 65), (cede.Unknown, "unheard-of", ())):
            with self.assertRaises(error), m.acquire(pool, kernel, ranges=ranges):
                self.fail()

        async def waits():
            async with m.acquire(pool, memory_bytes=900):
                self.assertEqual(held(), (1, 900))

        async def main():
            with m.reserve(100) as room:
                task = asyncio.ensure_future(waits())
                while not m.statistics().waiting:
                    await asyncio.sleep(0.001)
                room.release()
                await task
        asyncio.run(main())
        self.assertEqual(held(), (0, 0))

    def test_users(self):
        try:
            self.assertEqual([u.pid for u in self.memory().users() if u.ours], [os.getpid()])
        except OSError as e:
            self.assertEqual(e.errno, errno.ENOTSUP)

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

    def test_a_client_that_is_closed_first(self):
        with cede.Client() as client:
            self.memory(client=client)
            handle = weakref.ref(client._raw)
        self.assertIsNotNone(handle())  # the memory may ask the daemon on it

    def test_those_that_are_forgotten_are_closed(self):
        for _ in range(65):
            m = cede_memory.Memory(gpu=False, total_bytes=1000)
            with m.reserve(900):
                pass


unittest.main()
