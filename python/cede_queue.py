"""libcede's request queue for programs that serve models, by ctypes. It decides which request runs next and
in what batch, and refuses at once a request that would be late.

    import cede_queue
    q = cede_queue.Queue(batch_max=16, batch_wait_us=2000)
    try:                                     # any thread
        q.submit(request, model=0, deadline_us=50000)
    except cede_queue.Refused as why: ...
    for batch in q.batches(device=0):        # the thread that runs the models
        run(batch.model, batch.items)

cede_queue_open(3) describes everything. Closed: the queue was shut down. Needs the library, but no
daemon and no GPU. A call that waits lets other threads run.
"""
import collections
import ctypes
import errno
import threading

import cede
import cede_memory
from cede import Closed

FIFO, PRIORITY, EDF, LAXITY = range(4)
RUNS, WAITS, FULL, ALONE, BEHIND, OTHERS = range(6)
BATCH_MAX = 128

_Config = cede._struct("N size i policy I k devices batches capacity i admit Q urgent_us d quantile I batch_max",
                       "Q batch_wait_us expected_us P client pool memory")
_Request = cede._struct("I model Q shape i cls Q deadline_us after_us i device P user")
_Ticket = cede._struct("Q id i answer device urgent")
_Batch = cede._struct("Q id shape I model i device I n lane i urgent Q expected_us q retry_us",
                      f"Q{BATCH_MAX} ticket P{BATCH_MAX} user", ("lease", cede.Lease), ("room", cede_memory.Reservation))


class Statistics(cede.Figures):
    """See cede_queue_open(3)."""
    _fields_ = cede._layout("Q submitted ended failed cancelled batches late full alone behind others waiting running"
                            " busy_us p50_us p99_us")


cede._declare(queue_open="* *", queue_set_model="p Imodel Ibatch_max Qbatch_wait_us Qexpected_us", queue_cancel="p Qid",
              queue_set_lease="p Imodel skernel *", queue_submit="p * *", queue_next="p idevice qtimeout_us *",
              queue_done="p * i", queue_reclaim="p *", queue_get_statistics="p * N")
cede._declare(None, queue_defaults="*", queue_shutdown="p", queue_close="p")
cede._declare(ctypes.c_char_p, queue_text="i")

Ticket = collections.namedtuple("Ticket", "id key")
Ticket.__doc__ = "Of a request, for Queue.cancel(). id: libcede's, as in C. key: the Queue's, under which it keeps the item."


class Refused(OSError):
    """The request was refused: errno is EBUSY, `answer` is FULL, ALONE, BEHIND or OTHERS, and the text is the reason."""

    def __init__(self, answer):
        super().__init__(errno.EBUSY, "cede_queue_submit: " + cede._lib.cede_queue_text(answer).decode())
        self.answer = answer

    def __str__(self):
        return self.strerror


class Batch(cede.Given):
    """Requests to run together now: `items` as they were submitted, all of `model` and `shape`, for `device`. `lease`:
    with a pool, the cede.Lease to run them on, until done(); else None. `lane`: from 0, different for all batches that
    run on a device, for buffers and graphs. `room_bytes`: with memory, what the GPU has for it until done(). `urgent`: one
    has little slack. `expected_us`: estimated run time. Without done() it has failed; `with batch:` is done at its end."""

    def __init__(self, raw, items, queue=None):
        self._raw, self.items, self._of = raw, items, queue
        for name in ("model", "shape", "device", "lane", "expected_us"):
            setattr(self, name, getattr(raw, name))
        self.room_bytes = raw.room.bytes
        self.urgent, self.lease = bool(raw.urgent), raw.lease if any(raw.lease.opaque) else None

    def done(self, failed=False):
        """Queue.done() of this batch. Closed: it is done, or has failed."""
        if not self._of:
            raise Closed("this Batch is done: report its end once")
        self._of.done(self, failed)

    def release(self):
        """It has failed, as at its last reference, unless it was done."""
        super().release()

    def _back(self, queue):
        try:
            queue.done(self, failed=True)
        except (Closed, OSError):  # it has ended with the queue
            pass

    def __exit__(self, kind, *_):
        if self._of and kind is None:
            self._of.done(self)
        self.release()
        return False


class Queue(cede.Counted):
    """client: a cede.Client on which requests are reported. memory: a cede_memory.Memory for each device, where each batch
    has room. pool: a cede.Pool, of which each batch has a lease:

        for batch in queue.batches(device=0):      # in as many threads as batches are to run at a time
            with batch.lease.torch():
                model(batch.items)

    The queue holds a reference to each submitted item until it comes out."""
    _prefix, _Config, _Statistics, _own = "queue_", _Config, Statistics, ("client", "pool", "memory")

    def __init__(self, client=None, pool=None, memory=(), **settings):
        config = self._configure(settings)
        config.client = handle = cede._of(client, cede.Client, "client")
        config.pool = cede._of(pool, cede.Pool, "pool")
        memory = [memory] if isinstance(memory, cede_memory.Memory) else list(memory or ())
        if memory:
            if len(memory) != config.devices:
                raise ValueError(f"Queue: devices is {config.devices}, and memory has {len(memory)}: give one Memory for each device")
            handles = (ctypes.c_void_p * len(memory))(*(cede._of(m, cede_memory.Memory, "memory") for m in memory))
            config.memory = ctypes.addressof(handles)
        self._uses = pool, memory  # are not forgotten before
        self._lock, self._items, self._last, self._devices = threading.Lock(), {}, 0, config.devices
        self._open("queue_open", ctypes.byref(config), ..., uses=handle)

    def set_model(self, model, batch_max=32, batch_wait_us=10000, expected_us=1000):
        """Settings of one model."""
        self._call("set_model", model, batch_max, batch_wait_us, expected_us)

    def set_lease(self, model, kernel=None, **shape):
        """What leases for batches of one model are asked for: a kernel's name, which the pool has to know before, and
        what one request takes; see cede_queue_set_lease(3). cede.Unknown: the pool does not know the kernel."""
        self._call("set_lease", model, kernel, ctypes.byref(cede._fill(cede._Shape(), "a lease", shape)))

    def submit(self, item, model=0, shape=0, cls=cede.NORMAL, deadline_us=0, after_us=0, device=-1):
        """Returns a Ticket for cancel(). device: the preferred one, from 0; -1: any. Raises Refused or Closed."""
        if device != -1 and not 0 <= device < self._devices:
            least = f"0 to {self._devices - 1}" if self._devices > 1 else "0"
            raise ValueError(f"cede_queue_submit: device is {device}: give {least}, or -1 for any")
        handle, ticket, request = self._h, _Ticket(), cede._fill(_Request(), "a request", {
            "model": model, "shape": shape, "cls": cls, "deadline_us": deadline_us, "after_us": after_us,
            "device": device + 0x20000})
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
        return Ticket(ticket.id, key)

    def _take(self, key):
        with self._lock:
            return self._items.pop(key, None)

    def next(self, device=0, timeout_us=cede.TIMEOUT_DEFAULT):
        """A Batch, or None after the timeout. Raises Closed; in a task of a scope that has ended OSError ECANCELED."""
        return self._next(device, timeout_us, (errno.EAGAIN, errno.ETIMEDOUT))

    def _next(self, device, timeout_us, but=()):
        raw = _Batch()
        if self._call("next", device, timeout_us, ctypes.byref(raw), but=but) < 0:
            return None
        return Batch(raw, [self._take(raw.user[i]) for i in range(raw.n)], self)

    def done(self, batch, failed=False):
        """The batch has ended; its run time is learned unless it failed."""
        handle = self._h
        if not isinstance(batch, Batch):
            raise TypeError(f"a Batch is expected, not {batch!r}")
        cede._call("queue_done", handle, ctypes.byref(batch._raw), bool(failed))
        batch._of = None

    def batches(self, device=0):
        """Yields batches until shutdown(); each is done when the loop asks for the next, and has failed if the loop is
        left, by an exception or break. OSError ECANCELED: in a task of a scope that has ended."""
        while self._h:
            try:
                batch = self._next(device, cede.TIMEOUT_FOREVER)
            except Closed:
                return
            with batch:
                yield batch

    def cancel(self, ticket):
        """True: the request was removed. False: it runs, or has ended."""
        number, key = cede._a(ticket, Ticket, "ticket")
        removed = self._call("cancel", number, but=(errno.EBUSY, errno.ENOENT)) == 0
        if removed:
            self._take(key)
        return removed

    def shutdown(self):
        """From now on no item gets in. What waits still comes out; batches() ends when nothing waits any more."""
        self._call("shutdown")

    def reclaim(self):
        """After shutdown(): takes out the items that still wait, and returns them."""
        return self._reclaim(self._h)

    def _reclaim(self, raw):
        key, items = ctypes.c_void_p(), []
        while cede._call("queue_reclaim", raw, ctypes.byref(key), but=(errno.ENOENT,)) == 0:
            items.append(self._take(key.value))
        return items

    def _end(self, raw):
        """Waits raise Closed. It is freed when no thread uses it any more."""
        cede._call("queue_shutdown", raw)
        self._reclaim(raw)
