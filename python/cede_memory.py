"""A GPU's memory of libcede for Python, by ctypes: wait for room instead of failing for want of it.

    import cede_memory
    memory = cede_memory.Memory()               # device=0, reserve_fraction=0.1, ...
    with memory.reserve(20 << 30, timeout_us=60 * 10**6):
        model = load()                          # PyTorch's own allocator takes the memory
    if not memory.can_allocate(2 << 30):
        torch.cuda.empty_cache()

With a lease, whose kernels are to have the memory when they start:

    with memory.lease(pool, "gemm", memory_bytes=2 << 30) as lease:
        y = model(batch)

PyTorch allocates by itself, so room is reserved for it: the reservation keeps the program's other threads from it, and
ends when the memory is taken. Only threads that use the same Memory wait for each other; what others allocate counts.
client: a cede.Client of a latency job, for which the daemon then makes room. MemoryError has Memory.text(). All sizes are
in bytes. cede_memory_open(3) describes everything.
"""
import ctypes
import errno

import cede

LOW, HIGH, CRITICAL = 0, 1, 2
READ_MOSTLY, PREFER_DEVICE, ACCESSED_BY_DEVICE = 1, 2, 4

_PRESSURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


_Config = cede._struct("N size I flags i device I capacity q block_timeout_us Q polling_us total_bytes reserve_bytes",
                       "d reserve_fraction high critical", ("on_pressure", _PRESSURE), "P arg client")
_Range = cede._struct("Q address bytes I advice")


class Reservation(cede.Given, ctypes.Structure):
    """Room that is kept until the end of the block that it is of, or until release(), once PyTorch has the memory."""
    _fields_ = cede._layout("Q bytes Q2 opaque")

    def _back(self, _):
        cede._lib.cede_memory_release(ctypes.byref(self))


class User(cede.Figures):
    """A process that has memory on the GPU; `bytes` is 2**64 - 1 where the driver does not say."""
    _fields_ = cede._layout("i pid ours Q bytes c16 name")


class Statistics(cede.Figures):
    """cede_memory_open(3) describes them."""
    _fields_ = cede._layout(
        "i has_gpu pressure I waiting reservations allocations reserved0"
        " Q total_bytes free_bytes reserve_bytes promised_bytes allocated_bytes available_bytes granted timed_out waited"
        " longest_wait_us daemon_asked prefetched_ranges prefetched_bytes skipped_ranges c128 skipped error")


cede._declare(memory_open="* *", memory_close="p", memory_reserve="p Qbytes qtimeout_us *", memory_release="*",
              memory_acquire="p p skernel * * I qtimeout_us * *", memory_allocate="p * Qbytes qtimeout_us *", memory_free="p Q",
              memory_can_allocate="p Qbytes", memory_pressure="p", memory_users="p * I", memory_text="p * N",
              memory_get_statistics="p * N")
cede._declare(None, memory_defaults="*")
cede._declare(ctypes.c_uint64, memory_need="p skernel *")


class Allocation(cede.Given):
    """GPU memory, `bytes` at `address`, until release(), which its Memory's close() does, too."""

    def __init__(self, memory, address, size):
        self._of, self.address, self.bytes = memory, address, size

    def _back(self, memory):
        handle = memory._raw
        if handle and handle.here():
            cede._call("memory_free", handle, self.address, but=(errno.ESHUTDOWN,))


class Memory(cede.Counted):
    """Room on one GPU. on_pressure: called with LOW, HIGH or CRITICAL, by the thread that noticed the change. gpu=False:
    counts total_bytes, without a GPU."""
    _prefix, _Config, _Statistics, _own, _flags = "memory_", _Config, Statistics, ("arg", "client"), {"gpu": 1}

    def __init__(self, client=None, on_pressure=None, **settings):
        config = self._configure(settings)
        if on_pressure is not None:
            cede._function(on_pressure, "on_pressure")
            self._changed = config.on_pressure = _PRESSURE(lambda _, now: on_pressure(now))  # kept as long as this
        config.client = handle = cede._of(client, cede.Client, "client")
        self._open("memory_open", ctypes.byref(config), ..., uses=handle)

    def _call(self, name, *args, but=()):
        try:
            return super()._call(name, *args, but=but)
        except MemoryError as e:
            raise MemoryError(f"{e}; {self.text()}") from None

    def can_allocate(self, bytes):
        """Whether there is room for so much now."""
        return self._call("can_allocate", bytes) == 1

    def allocate(self, bytes, timeout_us=cede.TIMEOUT_DEFAULT, room=None):
        """GPU memory, an Allocation. Waits for room as reserve(), or has that of a reservation (room). MemoryError."""
        address, room = ctypes.c_uint64(), cede._a(room, Reservation, "room") and ctypes.byref(room)
        self._call("allocate", room, bytes, timeout_us, ctypes.byref(address))
        return Allocation(self, address.value, bytes)

    def reserve(self, bytes, timeout_us=cede.TIMEOUT_DEFAULT):
        """For `with` alone, which waits: `with memory.reserve(...) as room:` has room, in order of arrival. MemoryError."""
        return cede._Block(self._reserve, bytes, timeout_us)

    def _reserve(self, bytes, timeout_us):
        room = Reservation()
        self._call("reserve", bytes, timeout_us, ctypes.byref(room))
        room._of = self
        return room

    def acquire(self, pool, kernel=None, timeout_us=cede.TIMEOUT_DEFAULT, ranges=(), **shape):
        """For `with` alone: cede.Pool.acquire() with memory. `with memory.acquire(pool, memory_bytes=...) as lease:` waits
        for room and then for a lease on this GPU. Without memory_bytes: for what leases of the kernel and shape took
        before. The room is kept until the lease ends, or lease.room.release(). ranges: (address, bytes, advice) of
        managed memory, which is on the GPU then; advice of READ_MOSTLY, PREFER_DEVICE and ACCESSED_BY_DEVICE.
        MemoryError, and the errors of both."""
        array = (_Range * len(ranges))(*(cede._fill(_Range(), "a range", dict(zip(("address", "bytes", "advice"), r)))
                                         for r in ranges))
        return cede._Block(self._acquire, pool, kernel, cede._fill(cede._Shape(), "a lease", shape), array, timeout_us)

    def lease(self, pool, *args, stream=None, **shape):
        """For `with` alone: acquire() as cede.Pool.lease(), with the lease's stream, or `stream`, as PyTorch's current one.
        Room and lease are released when the work of the block has run, which nothing waits for."""
        return cede._Streamed(self.acquire(pool, *args, **shape), stream, pool)

    def _acquire(self, pool, kernel, shape, ranges, timeout_us):
        lease, room = cede.HeldLease(), Reservation()
        self._call("acquire", cede._of(pool, cede.Pool, "pool"), kernel, ctypes.byref(shape), ranges, len(ranges), timeout_us,
                   ctypes.byref(lease), ctypes.byref(room))
        lease.room, lease._of, room._of = room, pool, self
        return lease

    def need(self, kernel=None, **shape):
        """The bytes that leases of this kernel and shape are expected to allocate; 0: not known."""
        return self._call("need", kernel, ctypes.byref(cede._fill(cede._Shape(), "a lease", shape)))

    def users(self):
        """The processes that have memory on the GPU, this one first, then by size, each a User. OSError ENOTSUP."""
        found = (User * 256)()
        return found[:self._call("users", found, len(found))]

    def pressure(self):
        """LOW, HIGH or CRITICAL."""
        return self._call("pressure")

    def text(self):
        """How much there is and which processes have it."""
        text = ctypes.create_string_buffer(4096)
        self._call("text", text, len(text))
        return text.value.decode(errors="replace")

    def _end(self, raw):
        """Waits raise Closed."""
        raw.end()
