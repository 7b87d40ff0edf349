"""Leases of python/cede.py: try_acquire, statistics, async with, without a GPU; with the library and without."""
import asyncio
import gc
import unittest
from unittest import mock

import cede
import cede_memory
import cede_queue

LONG_US = 60 * 10**6


class Leases(unittest.TestCase):
    def setUp(self):
        self.pool = cede.Pool(gpu=False, max_concurrent_streams=1)
        self.addCleanup(self.pool.close)

    def active(self):
        return self.pool.statistics().active

    async def wait_in_vain(self):
        async with self.pool.acquire(timeout_us=LONG_US):
            self.fail()

    def until(self, condition):
        """A coroutine that gives way until something is so; the test's own limit of time ends it."""
        async def wait():
            while not condition():
                await asyncio.sleep(0.001)
        return wait()

    def test_urgent_ones_displace(self):
        with cede.Client() as client:
            pool = cede.Pool(client, gpu=False, max_concurrent_streams=1)
            self.addCleanup(pool.close)
            with pool.acquire() as first:
                self.assertFalse(first.wanted())
                with pool.acquire(due_us=1, timeout_us=0) as urgent:
                    self.assertTrue(first.wanted())
                    self.assertFalse(urgent.wanted())
                    self.assertEqual((urgent.urgent, pool.statistics().displaced), (1, 1))
                self.assertFalse(first.wanted())
            self.assertEqual((client.statistics().begun, client.statistics().ended), (1, 1))
            with cede.Pool(client, gpu=False, report_all=True) as everything, everything.acquire():
                self.assertEqual(client.statistics().begun, 2)

    def test_pools_that_are_forgotten_are_closed(self):
        for _ in range(65):
            pool = cede.Pool(gpu=False)
            with pool.acquire():
                pass

    def test_the_collector_closes_pools_before_their_clients(self):
        closed, lib = [], cede._lib

        def noted(name):
            call = getattr(lib, name)
            return mock.patch.object(lib, name, side_effect=lambda handle: (closed.append(name), call(handle)))

        with noted("cede_pool_close"), noted("cede_close"):
            for first in (0, 1):
                ring = [cede.Client()]
                ring.insert(first, cede.Pool(ring[0], gpu=False, report_all=True))
                ring += [ring, ring[first].try_acquire()]  # whose request is open
                del ring
                gc.collect()
        self.assertEqual(closed, ["cede_pool_close", "cede_close"] * 2)

    def test_try_acquire(self):
        held = self.pool.try_acquire(0)
        self.assertEqual(self.active(), 1)
        self.assertIsNone(self.pool.try_acquire())
        with held as lease:
            self.assertEqual(lease.device, 0)
        self.assertEqual(self.active(), 0)
        with self.assertRaises(KeyError), self.pool.try_acquire():
            raise KeyError
        self.assertEqual(self.active(), 0)
        self.pool.occupancy("gemm", 0.5)
        with self.pool.try_acquire(kernel="gemm") as lease:
            self.assertEqual(self.pool.statistics().occupancy, 0.5)

    def test_what_nobody_refers_to_is_given_back(self):
        memory, queue = cede_memory.Memory(gpu=False, total_bytes=1000), cede_queue.Queue(pool=self.pool)
        queue.submit("a")
        for take in (self.pool.try_acquire, lambda: self.pool.acquire().__enter__(), lambda: memory.reserve(1).__enter__(),
                     lambda: memory.acquire(self.pool, memory_bytes=1).__enter__(), queue.next):
            taken = take()
            self.assertGreater(self.active() + memory.statistics().reservations, 0)
            del taken
            self.assertEqual(self.active() + memory.statistics().reservations, 0)
        self.assertEqual((queue.statistics().running, queue.statistics().failed), (0, 1))

    def test_statistics(self):
        with self.pool.acquire():
            with self.assertRaises(TimeoutError), self.pool.acquire(timeout_us=1):
                self.fail()
            s = self.pool.statistics(0)
            self.assertEqual((s.devices, s.has_gpu, s.active, s.waiting, s.limit, s.started, s.timed_out, s.error),
                             (1, 0, 1, 0, 1, 1, 1, ""))
            self.assertIn("timed_out=1", repr(s))

    def test_async_waits_and_lets_others_run(self):
        order = []

        async def task(name, begun=None):
            async with self.pool.acquire(timeout_us=LONG_US):
                order.append(name)
                if begun:
                    begun.set()
                    await self.until(lambda: self.pool.statistics().waiting == 1)

        async def main():
            begun = asyncio.Event()
            first = asyncio.ensure_future(task("first", begun))
            await begun.wait()
            await asyncio.gather(first, task("second"))
        asyncio.run(main())
        self.assertEqual(order, ["first", "second"])
        self.assertEqual(self.active(), 0)

    def test_async_errors(self):
        async def main():
            async with self.pool.acquire():
                for error, args in ((BlockingIOError, {"timeout_us": 0}), (TimeoutError, {"timeout_us": 1}),
                                    (ValueError, {"timeout_us": -1}), (cede.Unknown, {"kernel": "unheard-of"})):
                    with self.assertRaises(error):
                        async with self.pool.acquire(**args):
                            self.fail()
            with self.assertRaises(KeyError):
                async with self.pool.acquire():
                    raise KeyError
        asyncio.run(main())
        self.assertEqual(self.active(), 0)

    def test_a_cancelled_task_keeps_no_lease(self):
        async def main():
            with self.pool.acquire():
                task = asyncio.ensure_future(self.wait_in_vain())
                await self.until(lambda: self.pool.statistics().waiting == 1)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            await self.until(lambda: self.pool.statistics().started == 2)
            await self.until(lambda: self.active() == 0)
        asyncio.run(main())

    def test_a_loop_that_has_ended_keeps_no_lease(self):
        async def main():
            asyncio.ensure_future(self.wait_in_vain())
            await self.until(lambda: self.pool.statistics().waiting == 1)
        with self.pool.acquire():
            asyncio.run(main())  # cancels the task, and closes the loop
        asyncio.run(self.until(lambda: self.pool.statistics().started == 2 and self.active() == 0))

    def test_cancelled_as_the_lease_comes(self):
        """The lease is there, but its task is cancelled before it runs."""
        async def main():
            held = self.pool.try_acquire()
            task = asyncio.ensure_future(self.wait_in_vain())
            await self.until(lambda: self.pool.statistics().waiting == 1)
            future = task._fut_waiter
            with held:
                pass
            while not future.done():  # this task runs before the other, which the future has woken
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        asyncio.run(main())
        self.assertEqual(self.active(), 0)


if __name__ == "__main__":
    unittest.main()
