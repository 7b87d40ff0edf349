"""Bad input for every function of python/cede*.py: wrong types, absurd numbers, closed objects, and those of the parent
in a forked child. Each call raises an exception with a text, and none crashes or waits. All that the modules declare of
libcede is what its headers say. Without a GPU."""
import ctypes
import faulthandler
import inspect
import math
import os
import pathlib
import pydoc
import re
import signal
import sys
import tempfile
import threading
import unittest

import cede
import cede_graph
import cede_memory
import cede_queue
import cede_scope
import cede_slice
import cede_step

WRONG = (object(), 1.5, [None], {"a": 1}, cede, math.nan)
ABSURD = (None, b"bytes", "text\0", "", -1, -2, 2**31, 2**32, 2**63, 2**64, 2**70, -2**63 - 1, math.inf, True)
EXCEPTIONS = (TypeError, ValueError, OSError, MemoryError)
FILE = tempfile.NamedTemporaryFile()  # pylint: disable=consider-using-with


def nothing(*_):
    return 0


def loop(gpu=False, **settings):
    return cede_step.Loop(nothing, nothing, nothing, gpu=gpu, **settings)


def run(progress=None, count=1, launch=nothing, save=None, **settings):
    cede_slice.run(progress or cede_slice.Progress(), count, launch, save, gpu=False, **settings)


def leave(a_loop, reason):
    request = object()
    a_loop.join(request)
    a_loop.leave(request, reason)


# By class: how one is made, and its calls with arguments that are taken. ANY: an argument that may be anything.
class ANY:
    pass


class Timeout(int):
    """Calls may wait for as long as a valid one says."""


NOW = Timeout(0)


LEASE = {"blocks": 1, "threads": 1, "shared_bytes": 0, "priority": 0, "memory_bytes": 1, "due_us": 0}
OBJECTS = {
    "client": (cede.Client, [
        ("set_class", 1), ("set_weight", 100), ("set_deadline", 5, 7), ("set_laxity", 5, 7), ("set_priority", 0, 7),
        (lambda c, *a: c.request(*a).__enter__(), 1, 1, 7), ("lead_cuda", 0), ("job_acquire", NOW), ("job_yield", ANY, ANY),
        ("connected",), ("wanted",), ("share",), ("statistics",)]),
    "pool": (lambda: cede.Pool(gpu=False), [
        ("occupancy", "gemm", 0.5), ("kernel", "gemm", 1), ("profile", "gemm"), ("statistics", 0), ("try_acquire", 0, "gemm"),
        (lambda p, *a: p.acquire(*a).__enter__(), 0, "gemm", NOW, ANY),
        (lambda p, *a: p.acquire(timeout_us=0, **dict(zip(LEASE, a))).__enter__(), *LEASE.values()),
        (lambda p, s: p.lease(stream=s).__enter__(), None)]),
    "memory": (lambda: cede_memory.Memory(gpu=False, total_bytes=1000), [
        ("can_allocate", 1), (lambda m, *a: m.allocate(*a), 1, NOW, None), (lambda m, *a: m.reserve(*a).__enter__(), 1, NOW),
        (lambda m, *a: m.acquire(POOL, *a).__enter__(), "gemm", NOW), (lambda m, p: m.acquire(p, timeout_us=0).__enter__(), None),
        (lambda m, *r: m.acquire(POOL, None, 0, [r]).__enter__(), 4096, 1, 1),
        (lambda m, r: m.acquire(POOL, None, 0, r).__enter__(), ()), ("pressure",), ("text",), ("statistics",)]),
    "queue": (cede_queue.Queue, [
        ("set_model", 0, 1, 1, 1), (lambda q, *a: q.set_lease(0, *a), "gemm"), ("submit", ANY, 0, 0, 0, 0, 0, 0),
        ("next", 0, NOW), ("done", None, ANY), ("cancel", cede_queue.Ticket(1, 1)), (lambda q, n: q.cancel(cede_queue.Ticket(n, 1)), 1), ("statistics",),
        (lambda q, d: next(q.batches(d)) if d != 0 or not q._raw or not q._raw.here() else 0, 0), ("shutdown",), ("reclaim",)]),
    "scope": (lambda: cede_scope.Scope(0), [("fork", nothing, ANY), ("cancelled",), ("cancel",), ("join",)]),
    "futures": (lambda: cede_step.Futures(gpu=False), [
        ("resolve", 1, 7), ("store", 1, -1, 7), ("store_placed", 1, 7), ("place", -1, 1, 7), ("statistics",)]),
    "loop": (loop, [
        ("join", ANY, NOW, None), (leave, 0), ("add", ANY), ("once",), ("statistics",)]),
    "cache": (lambda: cede_graph.Cache(nothing, gpu=False), [
        ("launch", 7, 1), ("prepare", 7, 1), ("changed",), ("bucket", 1), ("statistics",)]),
}
POOL = cede.Pool(gpu=False)
POOL.occupancy("gemm", 0.1)
NEW = [  # calls that make something
    (lambda *a: cede.Client(*a), 1, 100, 1), (lambda c: cede.Pool(c, gpu=False), None),
    (lambda c, p: cede_memory.Memory(c, p, gpu=False, total_bytes=1), None, nothing),
    (lambda *a: cede_queue.Queue(*a), None, None, ()), (lambda m: cede_queue.Queue(memory=[m]), None),
    (lambda *a: cede_scope.Scope(*a), 0, 0, None), (lambda f: cede_step.Loop(f, f, f, gpu=False), nothing),
    (lambda f, s, g: loop(futures=f, scope=s, left=g), None, None, nothing), (lambda s: loop(stream=s), None),
    (lambda f, b: cede_graph.Cache(f, b, gpu=False), nothing, ()), (lambda b: cede_graph.Cache(nothing, [b], gpu=False), 1),
    (run, None, 1, nothing, nothing), (lambda c, s, le: run(client=c, scope=s, lease=le), None, None, None),
    (lambda p, w: cede_slice.Checkpoint(p, w).read(bytearray()), FILE.name, 1),
    (lambda n, d: cede_slice.Checkpoint(FILE.name, 1).write(n, d), 1, b""),
    (lambda d: cede_slice.Checkpoint(FILE.name, 1).read(d), bytearray())]
SETTINGS = [  # classes with settings by name, and where one is not of them
    (lambda **s: cede.Pool(**{"gpu": False, **s}), cede.Pool), (lambda **s: cede_queue.Queue(**s), cede_queue.Queue),
    (lambda **s: cede_memory.Memory(**{"gpu": False, "total_bytes": 1, **s}), cede_memory.Memory), (loop, cede_step.Loop),
    (lambda **s: cede_step.Futures(gpu=False, **s), cede_step.Futures),
    (lambda **s: cede_graph.Cache(nothing, **{"gpu": False, **s}), cede_graph.Cache)]


def calls(name):
    make, table = OBJECTS[name]
    for call, *args in table:
        if callable(call):
            yield make, call, args
        else:
            yield make, (lambda o, *a, call=call: getattr(o, call)(*a)), args


class Declarations(unittest.TestCase):
    """Against include/cede/*.h. Pointers are all the same, and a CUfunction is a number in Python."""
    HEADERS = re.sub(r"/\*.*?\*/|^#.*?[^\\]$", "", "".join(
        p.read_text() for p in sorted((pathlib.Path(__file__).parents[2] / "include/cede").glob("*.h"))), flags=re.S | re.M)
    TYPES = {"void": None, **{name: cede._TYPES[letter] for name, letter in re.findall(
        r"(\w+):(\w)", "char:c int:i enum:i unsigned:I uint32_t:I int64_t:q cede_timeout:q uint64_t:Q size_t:N cede_stream:N "
                       "double:d cede_task:P cede_graph_step:P")}}
    SIZES = {"CEDE_QUEUE_BATCH_MAX": cede_queue.BATCH_MAX, "CEDE_WAITS": len(cede.PoolWaits._fields_)}

    def type(self, c):
        return ctypes.c_size_t if "*function" in c else ctypes.c_void_p if "*" in c else \
            self.TYPES[c.replace("const ", "").split()[0]]

    def test_functions(self):
        declared = {name: f for name, f in vars(cede._lib).items() if name.startswith("cede_")}
        for result, name, arguments in re.findall(r"^([a-z][^;{}()=]*?)(cede_\w+)\(([^;{}]*?)\);", self.HEADERS, re.M):
            f = declared.pop(name, None)
            if f:
                got = [ctypes.c_void_p if t in (ctypes.c_char_p, cede._Text) else t.__base__ if issubclass(t or int, cede._Fits)
                       else t for t in (f.restype, *(f.argtypes or ()))]
                want = [self.type(c) for c in (result, *arguments.split(",")) if c != "void"]
                self.assertEqual(got, want, name)
        self.assertEqual((declared, cede.Client().share()), ({}, 1))

    def test_structs(self):
        bodies = dict(re.findall(r"^struct (cede_\w+) \{\n(.*?)^\};", self.HEADERS, re.M | re.S))

        def fields(body):
            for kind, names in re.findall(r"^ +(?:const )?((?:struct |enum )?\w+) ([^;]*?);", body, re.M):
                for name in [names] if "(" in names else names.split(","):
                    n, inner = re.search(r"\[(\w+)\]", name), bodies.get(kind[7:]) if "*" not in name else None
                    t = made(inner) if inner else self.type(kind + " *" * ("*" in name))
                    yield re.findall(r"(?<=\(\*)\w+|\w+(?=\[|$)", name)[0], t * int(self.SIZES.get(n[1], n[1])) if n else t

        def made(body):
            return type("Struct", (ctypes.Structure,), {"_fields_": list(fields(body))})

        def layout(struct):
            return tuple((n, getattr(struct, n).offset, getattr(struct, n).size) for n, *_ in struct._fields_)

        known = [layout(made(body)) for body in bodies.values()] + [layout(cede.PoolWaits)]  # an array, with names
        for module in (cede, cede_graph, cede_memory, cede_queue, cede_slice, cede_step):
            self.assertFalse(pydoc.visiblename("_call", None, module), "pydoc takes the module for a named tuple")
            for name, struct in vars(module).items():
                if isinstance(struct, type) and issubclass(struct, ctypes.Structure) and hasattr(struct, "_fields_"):
                    self.assertTrue(layout(struct) in known, f"{module.__name__}.{name}: {layout(struct)}")


class BadInput(unittest.TestCase):
    def refused(self, what, must, call, *args, **settings):
        """The call raises one of the exceptions, with a text, or is taken where it need not be refused."""
        try:
            call(*args, **settings)
        except EXCEPTIONS as e:
            self.assertGreater(len(str(e)), 5, what)
            self.assertNotIn("attribute", str(e), what)
            return
        self.assertFalse(must, f"{what}: taken: {args} {settings}")

    def replaced(self, what, call, args):
        """Each argument in turn is each of the values."""
        for i, valid in enumerate(args):
            for value in WRONG + ABSURD if valid is not ANY else ():
                if isinstance(valid, Timeout) and isinstance(value, int) and 0 < value < 2**63:
                    continue
                must = any(value is w for w in WRONG) and not isinstance(valid, type(value))
                must = must and not (isinstance(value, float) and isinstance(valid, float))
                with self.subTest(what=what, argument=i, value=repr(value)):
                    self.refused(what, must, call, *args[:i], value, *args[i + 1:])

    def test_arguments(self):
        for name in OBJECTS:
            for number, (make, call, args) in enumerate(calls(name)):
                with make() as o:
                    self.replaced(f"{name} {number}", lambda *a: call(o, *a), args)
        for number, (call, *args) in enumerate(NEW):
            self.replaced(f"new {number}", call, args)

    def test_tensors(self):
        """Those of several dimensions, of other types and in other memory: libcede would read beyond them."""
        right = {"data_ptr": 8, "numel": 4, "element_size": 8, "dim": 1, "is_floating_point": False, "is_pinned": False}
        futures = cede_step.Futures(gpu=False)
        for name, value in (("dim", 2), ("dim", 0), ("element_size", 2), ("is_floating_point", True), ("is_cuda", True)):
            tensor = type("Tensor", (), {n: lambda _, v=v: v for n, v in {**right, name: value}.items()})()
            tensor.is_cuda = name == "is_cuda"
            for call in (futures.resolve, lambda t: futures.store(t, -1), futures.store_placed):
                self.refused(name, True, call, tensor)

    def test_objects_of_other_kinds(self):
        made = {name: make() for name, (make, _) in OBJECTS.items()}
        for what, call, own in (
                ("client", cede.Pool, "client"), ("client", cede_memory.Memory, "client"), ("client", cede_queue.Queue, "client"),
                ("client", lambda o: run(client=o), "client"), ("pool", lambda o: cede_queue.Queue(pool=o), "pool"),
                ("memory", lambda o: cede_queue.Queue(memory=[o]), "memory"), ("scope", lambda o: run(scope=o), "scope"),
                ("parent", lambda o: cede_scope.Scope(0, parent=o), "scope"), ("scope", lambda o: loop(scope=o), "scope"),
                ("futures", lambda o: loop(futures=o), "futures"), ("scope", lambda o: made["loop"].join(1, scope=o), "scope"),
                ("pool", lambda o: made["memory"].acquire(o).__enter__(), "pool")):
            for name, o in made.items():
                if name != own:
                    with self.assertRaisesRegex(TypeError, f"{what}: a .* is expected, not <"):
                        call(o)
            closed = OBJECTS[own][0]()
            closed.close()
            with self.assertRaisesRegex(cede.Closed, "this .* is closed"):
                call(closed)
        for o in made.values():
            o.close()

    def test_settings(self):
        for make, kind in SETTINGS:
            for name in ("unheard_of", *kind._own):
                if name not in inspect.signature(kind.__init__).parameters:
                    with self.assertRaisesRegex(TypeError, f"{kind.__name__} has no setting {name}: (did you mean|there are) "):
                        make(**{name: 1})
            for name, *_ in kind._Config._fields_:
                for value in WRONG + ABSURD if name not in kind._own else ():
                    with self.subTest(kind=kind.__name__, setting=name, value=repr(value)):
                        must = value is not None and not isinstance(value, (int, float)) or value != value
                        self.refused(name, must, make, **{name: value})
            for name in kind._flags:
                for value in WRONG + ABSURD[:-1]:
                    self.refused(name, True, make, **{name: value})
        for wrong, near in (("max_concurent_streams", "max_concurrent_streams"), ("stream", "streams")):
            with self.assertRaisesRegex(TypeError, f"did you mean {near}"):
                cede.Pool(**{wrong: 1})
        for call, name in ((run, "timeout_s"), (POOL.acquire, "scope"), (POOL.lease, "scope"), (POOL.try_acquire, "timeout_s"),
                           (lambda **s: cede_queue.Queue().set_lease(0, **s), "scope")):
            with self.assertRaisesRegex(TypeError, "has no setting " + name):
                call(**{name: 1})

    def test_texts_name_the_argument(self):
        client, queue = cede.Client(), cede_queue.Queue(devices=2, capacity=1)
        with client.request() as request:
            request.queued()
        queue.submit(1)
        batch = queue.next(timeout_us=10**6)
        batch.done(failed=True)
        for call, text in (
                (lambda: client.request(deadline_us=-1).__enter__(), "cede_request_begin: deadline_us is -1: give 0 or more$"),
                (lambda: client.set_weight(2**32), "cede_set_weight: weight is 4294967296: give 4294967295 or less$"),
                (lambda: cede_queue.Queue(devices=-1), "Queue: devices is -1: give 0 or more$"),
                (lambda: client.set_class("batch"), "cls is 'batch': .*: give cede.LATENCY, cede.NORMAL or cede.BATCH"),
                (lambda: queue.submit(1, cls="batch"), "a request: cls is 'batch': .*: give cede.LATENCY"),
                (lambda: queue.submit(1, device=5), "cede_queue_submit: device is 5: give 0 to 1, or -1 for any"),
                (lambda: queue.cancel("x"), "ticket: a Ticket is expected, not 'x'"),
                (lambda: POOL.acquire("gemm").__enter__(), "device is 'gemm': give a number; for a kernel of this name, kernel='gemm'"),
                (lambda: POOL.acquire(only=True).__enter__(), "no device -1: give 0$"),
                (lambda: cede.Pool(block_timeout_us=cede.TIMEOUT_DEFAULT),
                 "block_timeout_us is cede.TIMEOUT_DEFAULT: give 0 or more, or cede.TIMEOUT_FOREVER"),
                (lambda: cede.Pool(max_slowdown=0.5), "max_slowdown is 0.5: give 0 for the default, or 1 to 1000000"),
                (lambda: cede.Pool(urgent_us=2**64 - 1), "urgent_us is 18446744073709551615: give 0 to 4611686018427386$"),
                (lambda: cede_memory.Memory(polling_us=0), "polling_us is 0: give 1 or more"),
                (lambda: POOL.acquire(5, only=True).__enter__(), "no device 5"),
                (lambda: client.set_class(9), "cls is 9: give cede.LATENCY, cede.NORMAL or cede.BATCH"),
                (lambda: queue.next(0, -1), "give 0 or more, cede.TIMEOUT_DEFAULT or cede.TIMEOUT_FOREVER"),
                (request.queued, "this Request has ended: report"), (batch.done, "this Batch is done: report its end once"),
                (lambda: POOL.acquire(kernel="gem").__enter__(), r"'gem': register it first, with kernel\(\) or occupancy\(\)"),
                (lambda: loop(futures=cede_step.Futures(slots=256, gpu=False), gpu=True), "on the GPU: open both with gpu=False"),
                (lambda: cede_queue.Queue(admit=2), "admit is 2: give 0 to 1"), (lambda: run(count=0), "count is 0: give 1 or more"),
                (lambda: [queue.submit(i) for i in (1, 2)], "^cede_queue_submit: the queue is full"),
                (lambda: client.set_deadline(0.02), "cede_set_deadline: deadline_us is 0.02: .*: give whole microseconds$"),
                (lambda: client.set_deadline(2**64 - 5), "deadline_us is 18446744073709551611: give 0 to "),
                (lambda: POOL.acquire(timeout_us=0.5).__enter__(), "timeout_us is 0.5: .*: give whole microseconds$"),
                (lambda: run(patience_us="1"), "patience_us is '1': .*: give whole microseconds$"),
                (lambda: cede_queue.Queue(policy="edf"), "policy is 'edf': .*: give cede_queue.FIFO, PRIORITY, EDF or LAXITY$"),
                (lambda: cede_queue.Queue(memory=[None] * 2),
                 "Queue: devices is 1, and memory has 2: give one Memory for each device$"),
                (lambda: cede_queue.Queue().submit(1, device=7), "device is 7: give 0, or -1 for any$"),
                (lambda: POOL.try_acquire(0, timeout_us=5),
                 r"Pool.try_acquire\(\) does not wait: use acquire\(timeout_us=\.\.\.\)$"),
                (lambda: cede_memory.Memory(gpu=False, total_bytes=1).allocate(1), "has no GPU: open one without gpu=False"),
                (lambda: cede_memory.Memory(gpu=False), "there is no GPU: set total_bytes, of which reservations are made$"),
                (lambda: cede.Pool(gpu=0), "Pool: gpu is 0: give True or False")):
            with self.subTest(text=text), self.assertRaisesRegex((TypeError, ValueError, OSError), text):
                call()

    def test_without_with(self):
        memory = OBJECTS["memory"][0]()
        for call in (cede.Client().request, POOL.acquire, POOL.lease, lambda: memory.reserve(1), lambda: memory.acquire(POOL),
                     lambda: memory.lease(POOL)):
            with self.assertWarnsRegex(RuntimeWarning, "`with` is missing"):
                call()

    def each_is_closed(self, objects, text):
        for name, o in objects.items():
            for number, (_, call, args) in enumerate(calls(name)):
                with self.subTest(what=name, call=number), self.assertRaisesRegex(cede.Closed, text):
                    call(o, *(1 if a is ANY else a for a in args))
            o.close()

    def test_closed(self):
        objects = {name: make() for name, (make, _) in OBJECTS.items()}
        for o in objects.values():
            o.close()
        self.each_is_closed(objects, "this .* is closed")

    def test_closed_while_a_thread_waits(self):
        pool, memory, queue = cede.Pool(gpu=False, max_concurrent_streams=1), OBJECTS["memory"][0](), cede_queue.Queue()
        held, room, raised = pool.try_acquire(), memory.reserve(900), []
        room.__enter__()

        def wait(call):
            try:
                call()
            except cede.Closed as e:
                raised.append(str(e))

        calls_that_wait = (lambda: pool.acquire(timeout_us=cede.TIMEOUT_FOREVER).__enter__(),
                           lambda: memory.reserve(900, cede.TIMEOUT_FOREVER).__enter__(), queue.next)
        threads = [threading.Thread(target=wait, args=[call]) for call in calls_that_wait]
        for t in threads:
            t.start()
        while not (pool.statistics().waiting and memory.statistics().waiting):
            pass
        for o in (pool, memory, queue):
            o.close()
        for t in threads:
            t.join()
        self.assertEqual(len(raised), 3)
        held.__exit__()  # it has ended with its pool
        room.__exit__(None, None, None)

    def test_forked(self):
        objects = {name: make() for name, (make, _) in OBJECTS.items()}
        client = objects.pop("client")
        for name in ("queue", "scope", "loop"):  # as if another thread had it
            objects[name]._lock.acquire()
        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                with client.request():
                    self.each_is_closed(objects, f"is of the parent process {os.getppid()}: open one in this process")
                os._exit(client.statistics().ended != 1)
            finally:
                faulthandler.dump_traceback()
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        for name in ("queue", "scope", "loop"):
            objects[name]._lock.release()
        for o in objects.values():
            o.close()


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.dump_traceback_later(50, exit=True)
    signal.alarm(60)
    sys.exit(unittest.main())
