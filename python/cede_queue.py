"""libcede's request queue for programs that serve models, by ctypes. It decides which request runs next and
in what batch, and refuses at once a request that would be late.

    import cede_queue
    q = cede_queue.Queue(batch_max=16, batch_wait_us=2000)
    ...
    try:                                     # any thread
        q.submit(request, model=0, deadline_us=50000)
    except cede_queue.Refused as why: ...
    ...
    for batch in q.batches(device=0):        # the thread that runs the models
        run(batch.model, batch.items)

cede_queue_open(3) describes everything. Closed: the queue was shut down. Needs the library, but no
daemon and no GPU. A call that waits lets other threads run.
"""
import ctypes
import errno
import threading

import cede
import cede_memory
from cede import Closed

FIFO, PRIORITY, EDF, LAXITY = range(4)
RUNS, WAITS, FULL, ALONE, BEHIND, OTHERS = range(6)
BATCH_MAX = 128

_u64, _uint, _p = ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("policy", ctypes.c_int), ("k", _uint), ("devices", _uint),
                ("batches", _uint), ("capacity", _uint), ("admit", ctypes.c_int), ("urgent_us", _u64),
                ("quantile", ctypes.c_double), ("batch_max", _uint), ("batch_wait_us", _u64),
                ("expected_us", _u64), ("cede", _p), ("pool", _p), ("memory", ctypes.POINTER(_p))]


class _Request(ctypes.Structure):
    _fields_ = [("model", ctypes.c_uint32), ("shape", _u64), ("cls", ctypes.c_int),
                ("deadline_us", _u64), ("after_us", _u64), ("device", ctypes.c_int), ("user", _p)]


class _Ticket(ctypes.Structure):
    _fields_ = [("id", _u64), ("answer", ctypes.c_int), ("device", _uint), ("urgent", ctypes.c_int)]


class _Batch(ctypes.Structure):
    _fields_ = [("id", _u64), ("shape", _u64), ("model", ctypes.c_uint32), ("device", ctypes.c_uint32),
                ("n", ctypes.c_uint32), ("lane", ctypes.c_uint32), ("urgent", ctypes.c_int), ("expected_us", _u64),
                ("retry_us", ctypes.c_int64), ("ticket", _u64 * BATCH_MAX), ("user", _p * BATCH_MAX),
                ("lease", cede.Lease), ("room_bytes", _u64), ("room", _u64 * 2)]


class Statistics(cede.Figures):
    """See cede_queue_open(3)."""
    _fields_ = [(name, _u64) for name in (
        "submitted", "ended", "failed", "cancelled", "batches", "late", "full", "alone", "behind",
        "others", "waiting", "running", "busy_us", "p50_us", "p99_us")]


cede._declare(queue_open="**", queue_set_model="pIIQQ", queue_set_lease="pIs*", queue_submit="p**", queue_next="pIq*",
              queue_done="p*i", queue_cancel="pQ", queue_reclaim="p*", queue_get_statistics="p*N")
cede._declare(None, queue_defaults="*", queue_shutdown="p", queue_close="p")
cede._declare(ctypes.c_char_p, queue_text="i")


class Refused(Exception):
    """The request was refused; `answer` is FULL, ALONE, BEHIND or OTHERS, and the text is the reason."""

    def __init__(self, answer):
        super().__init__(cede._lib.cede_queue_text(answer).decode())
        self.answer = answer


class Batch:
    """Requests to run together now: `items` as they were submitted, all of `model` and `shape`. `lease`: with a pool,
    the cede.Lease to run them on, until done(); else None. `lane`: from 0, different for all batches that run on a
    device, for buffers and graphs. `room_bytes`: with memory, what the GPU has for it until done()."""

    def __init__(self, raw, items):
        self._raw, self.items = raw, items
        self.model, self.shape, self.device = raw.model, raw.shape, raw.device
        self.urgent, self.expected_us, self.lane = bool(raw.urgent), raw.expected_us, raw.lane
        self.room_bytes = raw.room_bytes
        self.lease = raw.lease if any(raw.lease.opaque) else None


class Queue(cede.Handle):
    """Settings: the fields of struct cede_queue_config by name. client: a cede.Client on which requests are
    reported. memory: a cede_memory.Memory for each device, where each batch has room. pool: a cede.Pool, of which each
    batch has a lease:

        for batch in queue.batches(device=0):      # in as many threads as batches are to run at a time
            with batch.lease.torch():
                model(batch.items)

    The queue holds a reference to each submitted item until it comes out."""
    _prefix, _Config, _Statistics, _own = "queue_", _Config, Statistics, ("cede", "pool", "memory")

    def __init__(self, client=None, pool=None, memory=(), **settings):
        config = self._configure(settings)
        config.cede = handle = cede._of(client, cede.Client, "client")
        config.pool = cede._of(pool, cede.Pool, "pool")
        if memory:
            if len(memory) != config.devices:
                raise ValueError(f"{config.devices} devices need as many memories, not {len(memory)}")
            config.memory = (_p * len(memory))(*(cede._of(m, cede_memory.Memory, "memory") for m in memory))
        self._uses = pool, memory  # are not forgotten before
        self._lock, self._items, self._last = threading.Lock(), {}, 0
        self._open("queue_open", ctypes.byref(config), ..., uses=handle)

    def set_model(self, model, batch_max=32, batch_wait_us=10000, expected_us=1000):
        """Settings of one model."""
        self._call("set_model", model, batch_max, batch_wait_us, expected_us)

    def set_lease(self, model, kernel=None, **shape):
        """What leases for batches of one model are asked for: a kernel's name, which the pool has to know before, and
        what one request takes; see cede_queue_set_lease(3). FileNotFoundError: the pool does not know the kernel."""
        self._call("set_lease", model, cede._name(kernel), ctypes.byref(cede._fill(cede._Shape(), "a lease", shape)))

    def submit(self, item, model=0, shape=0, cls=cede.NORMAL, deadline_us=0, after_us=0, device=-1):
        """Returns a ticket for cancel(). device: the preferred one, from 0. Raises Refused or Closed."""
        handle, ticket, request = self._h, _Ticket(), cede._fill(_Request(), "a request", {
            "model": model, "shape": shape, "cls": cls, "deadline_us": deadline_us, "after_us": after_us,
            "device": device | 0x20000})
        with self._lock:
            self._last += 1
            key = request.user = self._last
            self._items[key] = item
        try:
            if cede._call("queue_submit", handle, ctypes.byref(request), ctypes.byref(ticket), but=(errno.EBUSY,)) < 0:
                raise Refused(ticket.answer)
        except BaseException:
            self._take(key)
            raise
        return ticket.id, key

    def _take(self, key):
        with self._lock:
            return self._items.pop(key, None)

    def next(self, device=0, timeout_us=cede.TIMEOUT_DEFAULT):
        """A Batch, or None after the timeout. Raises Closed."""
        return self._next(device, timeout_us, (errno.EAGAIN, errno.ETIMEDOUT))

    def _next(self, device, timeout_us, but=()):
        raw = _Batch()
        if self._call("next", device, timeout_us, ctypes.byref(raw), but=but) < 0:
            return None
        return Batch(raw, [self._take(raw.user[i]) for i in range(raw.n)])

    def done(self, batch, failed=False):
        """The batch has ended; its run time is learned unless it failed."""
        handle = self._h
        if not isinstance(batch, Batch):
            raise TypeError(f"a Batch is expected, not {batch!r}")
        cede._call("queue_done", handle, ctypes.byref(batch._raw), bool(failed))

    def batches(self, device=0):
        """Yields batches until shutdown(); each is done when the loop asks for the next, and has failed if the loop is
        left, by an exception or break. TimeoutError: in a task of a scope, past its deadline."""
        while self._h:
            try:
                batch = self._next(device, cede.TIMEOUT_FOREVER)
            except Closed:
                return
            failed = True
            try:
                yield batch
                failed = False
            finally:
                self.done(batch, failed)

    def cancel(self, ticket):
        """True: the request was removed. False: it runs, or has ended."""
        number, key = ticket
        removed = self._call("cancel", number, but=(errno.EBUSY, errno.ENOENT)) == 0
        if removed:
            self._take(key)
        return removed

    def shutdown(self):
        """From now on no item goes in or out; returns the items that still waited."""
        self._call("shutdown")
        key, items = _p(), []
        while self._call("reclaim", ctypes.byref(key), but=(errno.ENOENT,)) == 0:
            items.append(self._take(key.value))
        return items

    def _end(self, raw):
        """Waits raise Closed. It is freed when no thread uses it any more."""
        cede._call("queue_shutdown", raw)
