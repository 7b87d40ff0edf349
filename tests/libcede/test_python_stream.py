"""Leases on PyTorch's streams (python/cede.py, cede_memory.py): the calls and their order on a stand-in for PyTorch,
which cannot synchronize a stream or a device, and whose events occur when a test says so."""
import asyncio
import sys
import threading
import types
import unittest
from unittest import mock

import cede
import cede_memory
import cede_scope


class Torch:
    """torch.cuda, in as far as leases use it."""

    def __init__(self):
        torch = self
        self.log, self.events, self.fail = [], [], False
        self.main = None

        class Stream:
            def __init__(self, handle, device=0):
                self.cuda_stream, self.device = handle, types.SimpleNamespace(index=device)

            def wait_stream(self, other):
                torch.log.append(f"{self.cuda_stream:x} waits for {other.cuda_stream:x}")

            def wait_event(self, event):
                torch.log.append(f"{self.cuda_stream:x} waits for the event in {event.stream.cuda_stream:x}")

        class Event:
            def __init__(self, blocking):
                assert blocking  # threads that wait for it sleep
                self.stream, self.occurred = None, threading.Event()
                torch.events.append(self)

            def record(self, stream):
                if torch.fail:
                    raise RuntimeError("CUDA error")
                self.stream = stream
                torch.log.append(f"event in {stream.cuda_stream:x}")

            def synchronize(self):
                self.occurred.wait()

        class Current:
            def __init__(self, stream):
                self.stream = stream

            def __enter__(self):
                self.former, torch.main = torch.main, self.stream

            def __exit__(self, *_):
                torch.main = self.former

        self.main = Stream(0xA)
        self.Event, self.ExternalStream, self.stream = Event, Stream, Current

    def current_stream(self, _device=None):
        return self.main


class Streams(unittest.TestCase):
    def setUp(self):
        self.pool = cede.Pool(gpu=False)
        self.addCleanup(self.pool.close)
        self.torch = Torch()
        patch = mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=self.torch))
        patch.start()
        self.addCleanup(patch.stop)

    def with_stream(self, of, handle=0x5000):
        """Leases have a stream, as on a GPU."""
        acquire = of._acquire

        def streamed(*args):
            lease = acquire(*args)
            lease.stream = handle
            return lease
        of._acquire = streamed

    def active(self):
        return self.pool.statistics().active

    def work_ends(self, event, leases):
        """That of this event; then there are this many leases. The test's own limit of time ends the wait."""
        self.torch.events[event].occurred.set()
        while self.active() != leases:
            pass

    def test_the_lease_ends_with_its_work_and_nothing_waits(self):
        self.with_stream(self.pool)
        with self.pool.lease() as lease:
            self.assertEqual((lease.stream, self.torch.main.cuda_stream, self.active()), (0x5000, 0x5000, 1))
        self.assertEqual(self.torch.main.cuda_stream, 0xA)
        self.assertEqual(self.torch.log, ["5000 waits for a", "event in 5000", "a waits for the event in 5000"])
        self.assertEqual(self.active(), 1)
        self.work_ends(0, 0)

    def test_the_stream_that_is_current(self):
        self.with_stream(self.pool)
        for stream in (cede.CURRENT, self.torch.main):
            self.torch.log.clear()
            with self.pool.lease(stream=stream):
                self.assertEqual(self.torch.main.cuda_stream, 0xA)
            self.assertEqual(self.torch.log, ["event in a"])
            self.assertEqual(self.active(), 1)
            self.work_ends(-1, 0)

    def test_another_stream(self):
        """It decides the GPU, and is used without a GPU too."""
        with self.pool.lease(stream=self.torch.ExternalStream(0xB)):
            self.assertEqual(self.torch.main.cuda_stream, 0xB)
        self.assertEqual(self.torch.log, ["b waits for a", "event in b", "a waits for the event in b"])
        self.torch.events[0].occurred.set()
        with self.assertRaises(ValueError), self.pool.lease(stream=self.torch.ExternalStream(0xB, device=1)):
            self.fail()

    def test_a_long_lease_holds_up_no_other(self):
        for _ in range(3):
            with self.pool.lease(stream=cede.CURRENT):
                pass
        self.assertEqual(self.active(), 3)
        self.work_ends(2, 2)
        self.work_ends(0, 1)
        self.work_ends(1, 0)

    def test_exceptions(self):
        with self.assertRaises(KeyError), self.pool.lease(stream=cede.CURRENT):
            raise KeyError
        self.assertEqual(self.active(), 1)
        self.work_ends(0, 0)
        self.torch.fail = True
        with self.assertRaises(RuntimeError), self.pool.lease(stream=cede.CURRENT):
            pass
        self.assertEqual(self.active(), 0)
        with mock.patch.dict(sys.modules, torch=None), self.assertRaises(ImportError):
            with self.pool.lease(stream=cede.CURRENT):
                self.fail()
        self.assertEqual(self.active(), 0)

    def test_without_a_gpu(self):
        with mock.patch.dict(sys.modules, torch=None), self.pool.lease():
            self.assertEqual(self.active(), 1)
        self.assertEqual(self.active(), 0)

    def test_a_pool_that_is_closed_meanwhile(self):
        with self.pool.lease(stream=cede.CURRENT):
            self.pool.close()
        pool = cede.Pool(gpu=False)
        with pool.lease(stream=cede.CURRENT):
            pass
        pool.close()
        self.torch.events[1].occurred.set()

    def test_async(self):
        async def main():
            async with self.pool.lease(stream=cede.CURRENT):
                self.assertEqual(self.active(), 1)
                await asyncio.sleep(0)
        asyncio.run(main())
        self.work_ends(0, 0)

    def test_tasks_of_a_scope_end_with_their_work(self):
        reached = threading.Event()

        def task():
            with self.pool.lease(stream=cede.CURRENT):
                reached.set()
            self.assertTrue(self.torch.events[0].occurred.is_set())
            self.assertEqual(self.active(), 0)

        def occur():
            reached.wait()
            while not self.torch.log:
                pass
            self.assertEqual(self.active(), 1)
            self.torch.events[0].occurred.set()

        thread = threading.Thread(target=occur)
        thread.start()
        with cede_scope.Scope(0) as scope:
            scope.fork(task)
        thread.join()
        side = self.torch.ExternalStream(0xB)
        with cede_scope.Scope(0, stream=side) as scope:
            scope.fork(lambda: self.assertIs(self.torch.main, side))
        former = self.torch.main
        with cede_scope.Scope(0, stream=cede.CURRENT) as scope:
            self.torch.main = side
            scope.fork(lambda: self.assertIs(self.torch.main, former))

    def test_torch_of_a_lease_waits_for_its_event(self):
        waits = []
        with mock.patch.object(self.torch.Event, "synchronize", lambda event: waits.append(event)):
            with self.pool.acquire() as lease, lease.torch() as s:
                self.assertIsNone(s)
            self.assertEqual(self.torch.log, [])
            with self.assertRaises(KeyError), cede.Lease(stream=0x5000, device=1).torch() as s:
                self.assertEqual((s.cuda_stream, s.device.index, waits), (0x5000, 1, []))
                raise KeyError
        self.assertEqual(waits, self.torch.events)
        self.assertEqual(len(waits), 1)
        # Nothing is queued in the default stream, behind which the leases of other threads would begin.
        self.assertEqual(self.torch.log, ["5000 waits for a", "event in 5000"])

    def test_memory_is_kept_until_the_work_has_run(self):
        memory = cede_memory.Memory(gpu=False, total_bytes=1000)
        self.addCleanup(memory.close)
        self.with_stream(memory)
        with memory.lease(self.pool, memory_bytes=800) as lease:
            self.assertEqual((lease.room.bytes, self.torch.main.cuda_stream), (800, 0x5000))
        self.assertEqual((self.active(), memory.statistics().promised_bytes), (1, 800))
        self.work_ends(0, 0)
        while memory.statistics().promised_bytes:
            pass

    def test_handles(self):
        self.torch.main = self.torch.ExternalStream(0)
        self.assertEqual([cede._stream_handle(s) for s in (None, 7, self.torch.ExternalStream(9), cede.CURRENT)],
                         [None, 7, 9, 1])
        with cede.Client() as client:
            side = self.torch.ExternalStream(9)
            client.set_deadline(3600 * 10**6, stream=side)
            for stream in (side, cede.JOB):
                with client.request(stream=stream):
                    pass
            self.assertEqual((client.statistics().ended, client.statistics().with_deadline), (2, 1))


unittest.main()
