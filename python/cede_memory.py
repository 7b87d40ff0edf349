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
client: a cede.Client of a latency job, for which the daemon then makes room. Without the library every reservation is
granted. MemoryError says how much there is and which processes have it. cede_memory_open(3) describes everything.
"""
import contextlib
import ctypes
import errno
import os

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
        if cede._lib and any(self.opaque):
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


def _declare(room, pointer=ctypes.POINTER):
    cede._declare(cede._lib, (
        ("memory_open", [pointer(_Config), pointer(_p)]), ("memory_defaults", [pointer(_Config)], None),
        ("memory_close", [_p]), ("memory_reserve", [_p, _u64, ctypes.c_int64, room]),
        ("memory_acquire", [_p, _p, ctypes.c_char_p, pointer(cede._Shape), pointer(_Range), _uint, ctypes.c_int64,
                            pointer(cede.Lease), room]),
        ("memory_can_allocate", [_p, _u64]), ("memory_pressure", [_p]),
        ("memory_text", [_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("memory_get_statistics", [_p, pointer(Statistics), ctypes.c_size_t])))


_declare(ctypes.POINTER(Reservation))


class Memory:
    """Room on one GPU. on_pressure: called with LOW, HIGH or CRITICAL, by the thread that noticed the change."""
    _m = _lib = None

    def __init__(self, client=None, on_pressure=None, **settings):
        self._client = client and client._c  # has to outlive this
        config, lib = _Config(), cede._lib
        self._lib, self._m = lib, _p()
        if lib:
            lib.cede_memory_defaults(ctypes.byref(config))
        cede._fill(config, "Memory", settings, ("size", "arg", "daemon"))
        if not lib:
            return
        if on_pressure:
            self._call = _PRESSURE(lambda _, now: on_pressure(now))  # kept as long as this
            config.on_pressure = self._call
        config.daemon = self._client
        self._check(lib.cede_memory_open(ctypes.byref(config), ctypes.byref(self._m)))

    def _check(self, r, why=None):
        if r == -errno.ENOMEM:
            raise MemoryError(self.text() if self._m else os.strerror(errno.ENOMEM))
        cede._check(r, why)
        return r

    def can_allocate(self, size):
        """Whether there is room for so many bytes now."""
        return not self._lib or self._check(self._lib.cede_memory_can_allocate(self._m, size)) == 1

    @contextlib.contextmanager
    def reserve(self, size, timeout_us=cede.TIMEOUT_DEFAULT):
        """`with memory.reserve(...) as room:` waits for room, in order of arrival. MemoryError."""
        r = Reservation()
        if self._lib:
            self._check(self._lib.cede_memory_reserve(self._m, size, timeout_us, ctypes.byref(r)), cede._said())
        try:
            yield r
        finally:
            r.release()

    def acquire(self, pool, kernel=None, timeout_us=cede.TIMEOUT_DEFAULT, ranges=(), **shape):
        """cede.Pool.acquire() with memory: `with memory.acquire(pool, memory_bytes=...) as lease:` waits for room and
        then for a lease on this GPU. Without memory_bytes: for what leases of the kernel and shape took before. The
        room is kept until the lease ends, or lease.room.release(). ranges: (address, bytes, advice) of managed memory,
        which is on the GPU then; advice of READ_MOSTLY, PREFER_DEVICE and ACCESSED_BY_DEVICE. MemoryError, and the
        errors of both."""
        return cede._Held(self._acquire, (pool, kernel.encode() if kernel else None, cede._fill(cede._Shape(), "a lease", shape),
                                          (_Range * len(ranges))(*ranges), timeout_us))

    def lease(self, pool, *args, stream=None, **shape):
        """acquire() as cede.Pool.lease(): with the lease's stream, or `stream`, as PyTorch's current one. Room and
        lease are released when the work of the block has run, which nothing waits for."""
        return cede._Streamed(self.acquire(pool, *args, **shape), stream, pool)

    def _acquire(self, pool, kernel, shape, ranges, timeout_us):
        lease = cede.Lease()
        lease.room = Reservation()
        if self._lib:
            self._check(self._lib.cede_memory_acquire(
                self._m, pool._p, kernel, ctypes.byref(shape), ranges, len(ranges), timeout_us, ctypes.byref(lease),
                ctypes.byref(lease.room)), cede._said())
        return lease

    def pressure(self):
        """LOW, HIGH or CRITICAL."""
        return self._check(self._lib.cede_memory_pressure(self._m)) if self._lib else LOW

    def text(self):
        """How much there is and which processes have it."""
        text = ctypes.create_string_buffer(4096)
        if self._lib:
            self._lib.cede_memory_text(self._m, text, len(text))
        return text.value.decode(errors="replace")

    def statistics(self):
        """Zeros without the library."""
        s = Statistics()
        if self._lib:
            self._check(self._lib.cede_memory_get_statistics(self._m, ctypes.byref(s), ctypes.sizeof(s)))
        return s

    def close(self):
        """Ends waits with OSError. Not to be used afterwards."""
        if self._lib and self._m:
            self._lib.cede_memory_close(self._m)
            self._m = _p()

    __del__ = close
