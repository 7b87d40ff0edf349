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

cede_queue_open(3) describes everything. Needs the library, but no daemon and no GPU. Queues may be used from
several threads; a call that waits lets others run.
"""
import ctypes
import errno
import os
import threading

import cede

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


def _load(pointer=ctypes.POINTER):
    return cede._declare(cede._lib, (
        ("queue_open", [pointer(_Config), pointer(_p)]), ("queue_set_model", [_p, _uint, _uint, _u64, _u64]),
        ("queue_set_lease", [_p, _uint, ctypes.c_char_p, pointer(cede._Shape)]),
        ("queue_submit", [_p, pointer(_Request), pointer(_Ticket)]), ("queue_next", [_p, _uint, ctypes.c_int64, pointer(_Batch)]),
        ("queue_done", [_p, pointer(_Batch), ctypes.c_int]), ("queue_cancel", [_p, _u64]),
        ("queue_reclaim", [_p, pointer(_p)]), ("queue_get_statistics", [_p, pointer(Statistics), ctypes.c_size_t]),
        ("queue_defaults", [pointer(_Config)], None), ("queue_shutdown", [_p], None), ("queue_close", [_p], None),
        ("queue_text", [ctypes.c_int], ctypes.c_char_p)))


_lib = _load()


class Refused(Exception):
    """The request was refused; `answer` is FULL, ALONE, BEHIND or OTHERS, and the text is the reason."""

    def __init__(self, answer):
        super().__init__(_lib.cede_queue_text(answer).decode())
        self.answer = answer


class Closed(Exception):
    """The queue has been shut down."""


def _check(result, why=None):
    if result == -errno.ESHUTDOWN:
        raise Closed
    cede._check(result, why)


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


class Queue:
    """Settings: the fields of struct cede_queue_config by name. client: a cede.Client on which requests are
    reported. memory: a cede_memory.Memory for each device, where each batch has room. pool: a cede.Pool, of which each
    batch has a lease:

        for batch in queue.batches(device=0):      # in as many threads as batches are to run at a time
            with batch.lease.torch():
                model(batch.items)

    The queue holds a reference to each submitted item until it comes out."""
    _q = None

    def __init__(self, client=None, pool=None, memory=(), **settings):
        cede._need(_lib, "cede_queue_open")
        config = _Config()
        _lib.cede_queue_defaults(ctypes.byref(config))
        cede._fill(config, "Queue", settings, ("size", "cede", "memory"))
        self._client = client and client._c  # has to outlive the queue, also if the client is closed
        if self._client:
            config.cede = self._client
        self._pool, self._memory = pool, memory  # likewise, until close()
        if memory:
            if len(memory) != config.devices:
                raise ValueError(f"{config.devices} devices need as many memories, not {len(memory)}")
            config.memory = (_p * len(memory))(*(m._m for m in memory))
        if pool:
            config.pool = pool._p
        self._q = _p()
        self._lock, self._items, self._last = threading.Lock(), {}, 0
        _check(_lib.cede_queue_open(ctypes.byref(config), ctypes.byref(self._q)))
        cede._used[id(self)] = self._client

    def set_model(self, model, batch_max=32, batch_wait_us=10000, expected_us=1000):
        """Settings of one model."""
        _check(_lib.cede_queue_set_model(self._q, model, batch_max, batch_wait_us, expected_us))

    def set_lease(self, model, kernel=None, **shape):
        """What leases for batches of one model are asked for: a kernel's name, which the pool has to know before, and
        what one request takes; see cede_queue_set_lease(3). FileNotFoundError: the pool does not know the kernel."""
        _check(_lib.cede_queue_set_lease(self._q, model, kernel.encode() if kernel is not None else None,
                                         ctypes.byref(cede._fill(cede._Shape(), "a lease", shape))), cede._said())

    def submit(self, item, model=0, shape=0, cls=cede.NORMAL, deadline_us=0, after_us=0, device=-1):
        """Returns a ticket for cancel(). device: the preferred one, from 0. Raises Refused or Closed."""
        request = _Request(model, shape, cls, deadline_us, after_us, device | 0x20000)
        with self._lock:
            self._last += 1
            key = request.user = self._last
            self._items[key] = item
        ticket = _Ticket()
        result = _lib.cede_queue_submit(self._q, ctypes.byref(request), ctypes.byref(ticket))
        if result < 0:
            self._take(key)
        if result == -errno.EBUSY:
            raise Refused(ticket.answer)
        _check(result)
        return ticket.id, key

    def _take(self, key):
        with self._lock:
            return self._items.pop(key, None)

    def next(self, device=0, timeout_us=cede.TIMEOUT_DEFAULT):
        """A Batch, or None after the timeout. Raises Closed."""
        raw = _Batch()
        result = _lib.cede_queue_next(self._q, device, timeout_us, ctypes.byref(raw))
        if result in (-errno.EAGAIN, -errno.ETIMEDOUT):
            return None
        _check(result, cede._said())
        return Batch(raw, [self._take(raw.user[i]) for i in range(raw.n)])

    def done(self, batch, failed=False):
        """The batch has ended; its run time is learned unless it failed."""
        _check(_lib.cede_queue_done(self._q, ctypes.byref(batch._raw), failed))

    def batches(self, device=0):
        """Yields batches until shutdown(); each is done when the loop asks for the next, and has failed if the loop is
        left, by an exception or break."""
        while True:
            try:
                batch = self.next(device)
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
        result = _lib.cede_queue_cancel(self._q, ticket[0])
        if result == 0:
            self._take(ticket[1])
        return result == 0

    def statistics(self):
        s = Statistics()
        _check(_lib.cede_queue_get_statistics(self._q, ctypes.byref(s), ctypes.sizeof(s)))
        return s

    def shutdown(self):
        """From now on no item goes in or out; returns the items that still waited."""
        _lib.cede_queue_shutdown(self._q)
        key, items = _p(), []
        while _lib.cede_queue_reclaim(self._q, ctypes.byref(key)) == 0:
            items.append(self._take(key.value))
        return items

    def close(self):
        """After shutdown(), when no thread uses the queue any more."""
        q, self._q = self._q, None
        if _lib and q:
            _lib.cede_queue_close(q)
        cede._used.pop(id(self), None)

    __del__ = close
