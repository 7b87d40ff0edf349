"""python/cede_graph.py and Memory.allocate() on the stand-in for CUDA (fake_gpu), and steps of plain numbers."""
import array
import ctypes
import errno
import unittest
import unittest.mock

import cede
import cede_graph
import cede_memory
import cede_queue
import cede_step

cuda = ctypes.CDLL("libcuda.so.1")
context, stream, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 40) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
STREAM = stream.value


class Graphs(unittest.TestCase):
    def setUp(self):
        self.steps, self.result = [], 0
        self.cache = cede_graph.Cache(self.step, buckets=(2, 4))
        self.addCleanup(self.cache.close)

    def step(self, on, n):
        self.assertEqual(on, STREAM)
        self.steps.append(n)
        if isinstance(self.result, Exception):
            raise self.result
        cuda.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(1), ctypes.c_void_p(on))
        return self.result

    def test_launches(self):
        self.assertEqual([self.cache.launch(STREAM, n) for n in (1, 1, 9)], [0, 2, 0])
        self.cache.prepare(STREAM)
        self.steps.clear()
        self.assertEqual([self.cache.launch(STREAM, n) for n in (2, 3, 4)], [2, 4, 4])
        self.assertEqual(self.steps, [])
        self.cache.changed()
        self.cache.launch(STREAM, 4)
        self.assertEqual(set(self.steps), {4})
        b = self.cache.bucket(3)
        self.assertEqual((b.size, b.captured, b.launched, b.nodes), (4, 1, 3, 1))
        self.assertRegex(repr(self.cache.statistics()), r"^Statistics\(buckets=2, graphs=2, refused=0, launched=5, .*error=''\)$")

    def test_what_a_step_raises_comes_out(self):
        self.result = KeyError("mine")
        for call in (self.cache.launch, self.cache.prepare):
            with self.assertRaisesRegex(KeyError, "mine"):
                call(STREAM, 2)
        self.result = -errno.ENOSPC
        with self.assertRaisesRegex(OSError, "cede_graph_launch: ") as caught:
            self.cache.launch(STREAM, 2)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.result = 0
        self.cache.prepare(STREAM, 2)
        self.assertEqual(self.cache.launch(STREAM, 2), 2)

    def test_refused(self):
        self.cache.close()
        with cede_graph.Cache(lambda *_: 0, max_batch=1) as cache:
            cache.prepare(STREAM)
            self.assertEqual(cache.launch(STREAM, 1), 0)
            self.assertEqual((cache.bucket(1).captured, cache.statistics().refused), (0, 1))
            self.assertIn("queue", cache.bucket(1).why())


class Allocations(unittest.TestCase):
    def test_allocations(self):
        with cede_memory.Memory(total_bytes=1000) as memory:
            with memory.allocate(600) as a:
                self.assertNotEqual(a.address, 0)
                self.assertEqual((a.bytes, memory.statistics().allocated_bytes), (600, 600))
                with self.assertRaisesRegex(MemoryError, "cede_memory_allocate: no room for 400 bytes .there is 300 bytes, "):
                    memory.allocate(400, timeout_us=0)
            self.assertEqual(memory.statistics().allocations, 0)
            a.release()
            with memory.reserve(800) as room:
                b = memory.allocate(700, timeout_us=0, room=room)
                self.assertEqual(memory.statistics().promised_bytes, 100)
            memory.allocate(100)  # is forgotten
            self.assertEqual(memory.statistics().allocations, 1)
        b.release()  # is freed with its memory
        with cede_memory.Memory(gpu=False, total_bytes=1000) as memory, self.assertRaisesRegex(OSError, "no GPU"):
            memory.allocate(1)


class Numbers(unittest.TestCase):
    def test_values(self):
        with cede_step.Futures(64, gpu=False) as futures:
            futures.store([5, 6], -3)
            futures.store(7, -5)
            for given, found in (([-3, 1, -4], [5, 1, 6]), (array.array("i", [-5, 2]), array.array("i", [7, 2])),
                                 (bytearray(b"\1\2"), bytearray(b"\1\2")), (-4, 6), (3, 3)):
                self.assertEqual(futures.resolve(given), found)
            memory = memoryview(array.array("q", [-3, 0, -5]))
            futures.resolve(memory[::2])
            self.assertEqual(memory.tolist(), [5, 0, 7])
            futures.place(-6, 2)
            futures.store_placed((8, 9))
            self.assertEqual(futures.resolve([-6, -7]), [8, 9])
            self.assertEqual(futures.resolve(-20), 0)
            symbol = futures.reserve(2)
            self.assertEqual(futures.statistics().free, 62)
            futures.release(symbol)
            self.assertEqual(repr(futures.statistics()), "FutureStatistics(slots=64, free=64, missing=-20, error='')")

    def test_other_threads_while_a_loop_closes(self):
        loop, close, refused = cede_step.Loop(*[lambda _: 0] * 3, gpu=False), cede._lib.cede_step_close, []

        def others(raw):
            for call in (loop.statistics, lambda: loop.leave("a"), lambda: loop.join("b")):
                with self.assertRaises(cede.Closed):
                    call()
                refused.append(call)
            return close(raw)
        loop.join("a")
        with unittest.mock.patch.object(cede._lib, "cede_step_close", others):
            loop.close()
        self.assertEqual(len(refused), 3)

    def test_a_loop(self):
        """Each step adds one to the result of the step before."""
        found, tokens = [], []

        def schedule(_):
            symbol = loop.add("a")
            if symbol is None:
                return False
            tokens[:] = [symbol or (found[-1] if found else 0)]
            return True

        def launch(step):
            futures.store(futures.resolve(tokens)[0] + 1, step.symbol)

        def finish(step):
            found.extend(step.results)
            if len(found) == 5:
                loop.leave("a")

        futures = cede_step.Futures(64, gpu=False)
        with cede_step.Loop(schedule, launch, finish, futures=futures, batch=4, gpu=False) as loop:
            loop.join("a")
            loop.run()
            self.assertEqual(found[:5], [1, 2, 3, 4, 5])
            self.assertIn("joined=1, left=1", repr(loop.statistics()))

    def test_a_loop_takes_its_requests_from_a_queue(self):
        found, rooms, left = {"a": [], "b": []}, {}, []

        def joined(request, batch):
            rooms[request] = batch.room_bytes

        def schedule(step):
            for request in list(rooms):
                loop.add(request)
            return step.n > 0

        def launch(step):
            futures.store([step.number] * step.n, step.symbol)

        def finish(step):
            for request, token, surplus in zip(step.requests, step.results, step.surplus):
                if surplus:
                    continue
                found[request].append(token)
                if len(found[request]) == 3:
                    loop.leave(request)
                    del rooms[request]

        memory = cede_memory.Memory(total_bytes=1000, gpu=False)
        queue = cede_queue.Queue(memory=[memory], batches=2)
        queue.set_lease(0, memory_bytes=100)
        futures = cede_step.Futures(64, gpu=False)
        with cede_step.Loop(schedule, launch, finish, lambda *why: left.append(why), futures=futures, queue=queue, requests=2, batch=4,
                            joined=joined, gpu=False) as loop:
            queue.submit("a")
            queue.submit("b")
            self.assertTrue(loop.once())
            self.assertEqual(rooms, {"a": 100, "b": 100})
            self.assertEqual(memory.statistics().promised_bytes, 200)
            with self.assertRaisesRegex(ValueError, "takes its requests from its queue"):
                loop.join("c")
            while len(left) < 2:
                loop.once()
            queue.shutdown()
            self.assertFalse(loop.once())
        self.assertEqual({len(tokens) for tokens in found.values()}, {3})
        self.assertEqual((sorted(left), rooms, memory.statistics().promised_bytes), ([("a", 0), ("b", 0)], {}, 0))
        self.assertEqual((queue.statistics().ended, queue.statistics().failed), (2, 0))
        with cede_step.Loop(schedule, launch, finish, queue=cede_queue.Queue(), joined=joined, gpu=False) as loop:
            loop._uses[2].submit([1])
            with self.assertRaisesRegex(TypeError, "unhashable"):
                loop.once()
        for wrong, text in (({"joined": joined}, "joined one is NULL: give both"), ({"queue": queue}, "joined one is NULL: give both"),
                            ({"device": 1}, "device is 1: give 0$")):
            with self.assertRaisesRegex(ValueError, text):
                cede_step.Loop(schedule, launch, finish, gpu=False, **wrong)


unittest.main()
