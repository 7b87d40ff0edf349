"""python/cede_queue.py, from threads and with what goes wrong."""
import ctypes
import errno
import gc
import threading
import unittest
import weakref
from concurrent import futures
from unittest import mock

import cede
import cede_memory
import cede_queue


class Queue(unittest.TestCase):
    def test_one_that_is_forgotten_is_closed(self):
        with mock.patch.object(cede._lib, "cede_queue_close", wraps=cede._lib.cede_queue_close) as close:
            cede_queue.Queue()
            self.assertEqual(close.call_count, 1)
            cede_queue.Queue().close()
            self.assertEqual(close.call_count, 2)
            with self.assertRaises(ValueError):
                cede_queue.Queue(k=0)

    def test_threads(self):
        client = cede.Client()
        q = cede_queue.Queue(client, devices=2, batch_max=4, batch_wait_us=200)
        ran, lock = [], threading.Lock()

        def serve(device):
            for batch in q.batches(device):
                with lock:
                    ran.extend(batch.items)
                    assert len(batch.items) <= 4
                    assert {i % 2 for i in batch.items} == {batch.model}

        def submit(first):
            for i in range(first, 800, 4):
                q.submit(i, model=i % 2, shape=3, cls=i % 3 - 1, deadline_us=1000000)

        with futures.ThreadPoolExecutor(6) as threads:
            servers = [threads.submit(serve, d) for d in range(2)]
            for client_thread in [threads.submit(submit, n) for n in range(4)]:
                client_thread.result()
            q.shutdown()
            for server in servers:
                server.result()
        self.assertEqual(q.reclaim(), [])
        s = q.statistics()
        self.assertEqual(sorted(ran), list(range(800)))
        self.assertEqual((s.submitted, s.ended, s.failed, s.waiting), (800, 800, 0, 0))
        self.assertGreaterEqual(s.batches, 200)
        q.close()
        self.assertEqual(client.statistics().ended, 800)

    def test_batches_have_room(self):
        memory = cede_memory.Memory(gpu=False, total_bytes=1000)
        q = cede_queue.Queue(memory=memory, batches=4, batch_wait_us=0)
        with self.assertRaisesRegex(MemoryError, "memory_bytes is 1001: give at most "):
            q.set_lease(0, memory_bytes=1001)
        q.set_lease(0, memory_bytes=400)
        for item in "abc":
            q.submit(item)
        batch = q.next()
        self.assertEqual((batch.items, batch.room_bytes, batch.lane, batch.lease), (["a", "b"], 800, 0, None))
        self.assertIsNone(q.next(timeout_us=cede.TIMEOUT_NOW))
        q.done(batch)
        q.done(q.next())
        self.assertEqual(memory.statistics().reservations, 0)
        q.close()
        memory.close()
        with self.assertRaisesRegex(ValueError, "devices is 2, and memory has 1: give one Memory"):
            cede_queue.Queue(memory=[memory], devices=2)

    def test_refused_cancelled_reclaimed(self):
        q = cede_queue.Queue(admit=1, expected_us=10**9, batch_max=1)
        ticket = q.submit("a")  # an idle queue would take the next one all the same
        with self.assertRaises(cede_queue.Refused) as why:
            q.submit("late", deadline_us=1000)
        self.assertEqual((why.exception.answer, why.exception.errno), (cede_queue.ALONE, errno.EBUSY))
        self.assertIsInstance(why.exception, OSError)
        self.assertIn("deadline", str(why.exception))
        q.submit("b")
        self.assertTrue(q.cancel(ticket))
        self.assertFalse(q.cancel(ticket))
        q.submit("c")
        batch = q.next()
        self.assertEqual(batch.items, ["b"])
        self.assertIsNone(q.next(timeout_us=cede.TIMEOUT_NOW))
        q.done(batch, failed=True)
        with self.assertRaises(OSError):
            q.done(batch)
        with self.assertRaisesRegex(OSError, "shutdown"):
            q.reclaim()
        q.shutdown()
        self.assertEqual(q.reclaim(), ["c"])
        with self.assertRaises(cede_queue.Closed):
            q.submit("d")
        with self.assertRaises(cede_queue.Closed):
            q.next()
        self.assertEqual(q._items, {})
        q.close()

    def test_nothing_is_held_once_no_other_can_come(self):
        with cede_queue.Queue(batch_max=4, batch_wait_us=10**9) as q:
            q.submit("a")
            self.assertIsNone(q.next(timeout_us=cede.TIMEOUT_NOW))
            q.shutdown()
            self.assertEqual([batch.items for batch in q.batches()], [["a"]])

    def test_what_is_refused_is_not_kept(self):
        with cede_queue.Queue() as q:
            for bad in ({"cls": 9}, {"model": "none"}, {"model": 2**32}):
                with self.assertRaises((ValueError, TypeError)):
                    q.submit("a", **bad)
            self.assertEqual(q._items, {})

    def test_a_client_that_is_closed_first(self):
        client = cede.Client()
        q = cede_queue.Queue(client, batch_max=1)
        handle = client._raw
        q.submit("a")
        client.close()
        ended = cede.Statistics()
        q.done(q.next())  # reports it on the client's handle
        cede._lib.cede_get_statistics(handle, ctypes.byref(ended), ctypes.sizeof(ended))
        self.assertEqual((ended.begun, ended.ended), (1, 1))
        weak = weakref.ref(handle)
        del handle
        self.assertIsNotNone(weak())
        q.close()
        del q
        self.assertIsNone(weak())

    def test_a_batch_that_fails(self):
        q = cede_queue.Queue(batch_max=1)
        q.submit("a")
        with self.assertRaises(KeyError):
            for _ in q.batches():
                raise KeyError
        gc.collect()
        self.assertEqual(q.statistics().failed, 1)
        q.close()


if __name__ == "__main__":
    unittest.main()
