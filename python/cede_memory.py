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
client: a cede.Client of a latency job, for which the daemon then makes room. MemoryError says how much there is and
which processes have it. cede_memory_open(3) describes everything.
"""
import contextlib
import ctypes
import errno

import cede

LOW, HIGH, CRITICAL = 0, 1, 2
READ_MOSTLY, PREFER_DEVICE, ACCESSED_BY_DEVICE = 1, 2, 4

_u64, _uint, _int, _p = ctypes.c_uint64, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p
_PRESSURE = ctypes.CFUNCTYPE(None, _p, _int)


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", _uint), ("device", _int), ("capacity", _uint),
                ("block_timeout_us", ctypes.c_int64), ("polling_us", _u64), ("total_bytes", _u64), ("reserve_bytes", _u64),
                ("reserve_fraction", ctypes.c_double), ("high", ctypes.c_double), ("critical", ctypes.c_double),
                ("on_pressure", _PRESSURE), ("arg", _p), ("daemon", _p)]


class Reservation(ctypes.Structure):
    """Room that is kept until the end of the block that it is of, or release()."""
    _fields_ = [("bytes", _u64), ("opaque", _u64 * 2)]

    def release(self):
        """For when PyTorch has the memory; once more does nothing."""
        if any(self.opaque):
            cede._lib.cede_memory_release(ctypes.byref(self))


class _Range(ctypes.Structure):
    _fields_ = [("address", _u64), ("bytes", _u64), ("advice", _uint)]


class Statistics(cede.Figures):
    """cede_memory_open(3) describes them; texts are bytes."""
    _fields_ = [("has_gpu", _int), ("pressure", _int), ("waiting", _uint), ("reservations", _uint),
                ("allocations", _uint), ("reserved0", _uint)] + [(name, _u64) for name in (
                    "total_bytes", "free_bytes", "reserve_bytes", "promised_bytes", "allocated_bytes",
                    "available_bytes", "granted", "timed_out", "waited", "longest_wait_us", "daemon_asked",
                    "prefetched_ranges", "prefetched_bytes", "skipped_ranges")] + [
                        ("skipped", ctypes.c_char * 128), ("error", ctypes.c_char * 128)]


cede._declare(memory_open="**", memory_close="p", memory_reserve="pQq*", memory_release="*", memory_acquire="pps**Iq**",
              memory_allocate="p*Qq*", memory_free="pQ", memory_can_allocate="pQ", memory_pressure="p", memory_text="p*N",
              memory_get_statistics="p*N")
cede._declare(None, memory_defaults="*")


class Allocation:
    """GPU memory at `address`, for as long as its Memory is open or until the end of the block, or free()."""

    def __init__(self, handle, address, size):
        self._handle, self.address, self.bytes = handle, address, size

    def free(self):
        """Its work has to have ended. Once more does nothing."""
        handle, self._handle = self._handle, None
        if handle and handle.here():
            cede._call("memory_free", handle, self.address, but=(errno.ESHUTDOWN,))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()
        return False

    __del__ = free


class Memory(cede.Handle):
    """Room on one GPU. on_pressure: called with LOW, HIGH or CRITICAL, by the thread that noticed the change."""
    _prefix, _Config, _Statistics, _own = "memory_", _Config, Statistics, ("arg", "daemon")

    def __init__(self, client=None, on_pressure=None, **settings):
        config = self._configure(settings)
        if on_pressure is not None:
            cede._function(on_pressure, "on_pressure")
            self._changed = config.on_pressure = _PRESSURE(lambda _, now: on_pressure(now))  # kept as long as this
        config.daemon = handle = cede._of(client, cede.Client, "client")
        self._open("memory_open", ctypes.byref(config), ..., uses=handle)

    def can_allocate(self, size):
        """Whether there is room for so many bytes now."""
        return self._call("can_allocate", size) == 1

    def allocate(self, size, timeout_us=cede.TIMEOUT_DEFAULT, room=None):
        """GPU memory, an Allocation: `with memory.allocate(...) as a:`, or a.free(). Waits for room as reserve(), or has
        that of a reservation (room). MemoryError."""
        address, handle = _u64(), self._h
        room = cede._a(room, Reservation, "room") and ctypes.byref(room)
        cede._call("memory_allocate", handle, room, size, timeout_us, ctypes.byref(address))
        return Allocation(handle, address.value, size)

    @contextlib.contextmanager
    def reserve(self, size, timeout_us=cede.TIMEOUT_DEFAULT):
        """`with memory.reserve(...) as room:` waits for room, in order of arrival. MemoryError."""
        room = Reservation()
        self._call("reserve", size, timeout_us, ctypes.byref(room))
        try:
            yield room
        finally:
            room.release()

    def acquire(self, pool, kernel=None, timeout_us=cede.TIMEOUT_DEFAULT, ranges=(), **shape):
        """cede.Pool.acquire() with memory: `with memory.acquire(pool, memory_bytes=...) as lease:` waits for room and
        then for a lease on this GPU. Without memory_bytes: for what leases of the kernel and shape took before. The
        room is kept until the lease ends, or lease.room.release(). ranges: (address, bytes, advice) of managed memory,
        which is on the GPU then; advice of READ_MOSTLY, PREFER_DEVICE and ACCESSED_BY_DEVICE. MemoryError, and the
        errors of both."""
        array = (_Range * len(ranges))(*(cede._fill(_Range(), "a range", dict(zip(("address", "bytes", "advice"), r)))
                                         for r in ranges))
        return cede._Held(self._acquire, (pool, cede._name(kernel), cede._fill(cede._Shape(), "a lease", shape), array,
                                          timeout_us))

    def lease(self, pool, *args, stream=None, **shape):
        """acquire() as cede.Pool.lease(): with the lease's stream, or `stream`, as PyTorch's current one. Room and
        lease are released when the work of the block has run, which nothing waits for."""
        return cede._Streamed(self.acquire(pool, *args, **shape), stream, pool)

    def _acquire(self, pool, kernel, shape, ranges, timeout_us):
        lease = cede.Lease()
        lease.room = Reservation()
        self._call("acquire", cede._of(pool, cede.Pool, "pool"), kernel, ctypes.byref(shape), ranges, len(ranges), timeout_us,
                   ctypes.byref(lease), ctypes.byref(lease.room))
        return lease

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
