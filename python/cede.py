"""Reports a program's class and requests to the GPU scheduler cede: libcede for Python, by ctypes.

    import cede
    client = cede.Client(deadline_us=20000)
    client.lead_cuda()
    with client.request(expected_us=3000) as request:
        prepare()           # 3 ms
        launch(); request.queued()
        wait()
    print(client.statistics())

Without the library, or without a daemon, every call does nothing and raises nothing. Errors of the
caller raise OSError (PermissionError: a user may lower class and weight, but not raise them) and
ValueError. Clients may be used from several threads. cede(3) describes every call.
"""
import contextlib
import ctypes
import errno
import os
import threading

LATENCY, NORMAL, BATCH = -1, 0, 1
TIMEOUT_NOW, TIMEOUT_DEFAULT, TIMEOUT_FOREVER = 0, -2**63, 2**63 - 1  # cede_timeout, in microseconds
REPORT_ALL = 2  # a flag of Pool: leases without a deadline are requests, too
JOB = ctypes.c_size_t(-1).value  # all streams; else a stream of PyTorch, or a handle


class _Request(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_uint64 * 8)]


class Figures(ctypes.Structure):
    """Statistics of all modules. Texts are bytes."""

    def __repr__(self):
        names = [name for name, *_ in self._fields_ if not name.startswith("reserved")]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"


class Statistics(Figures):
    """Requests since the client was made; times in microseconds."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "begun", "ended", "with_deadline", "deadlines_met", "p50_us", "p99_us", "max_us")]


def _fill(struct, of, settings, own=()):
    """Puts settings into the struct by name. of: what they are settings of. own: fields that are none."""
    for name, value in settings.items():
        if name in own or name not in dict(struct._fields_):
            raise TypeError(f"{of} has no setting {name}")
        try:
            setattr(struct, name, value)
        except TypeError as e:
            raise TypeError(f"{of}: {name} is {value!r}: {e}") from None
        if getattr(struct, name) != value:  # cut off, or no number
            raise ValueError(f"{of}: {name} is {value}: out of range")
    return struct


def _declare(lib, calls):
    """The library with the types of these functions, or None where it lacks the first. calls: names, arguments, and what
    is returned, if not an int."""
    if lib is None or not hasattr(lib, "cede_" + calls[0][0]):
        return None
    for name, args, *result in calls:
        f = getattr(lib, "cede_" + name)
        f.argtypes, f.restype = args, result[0] if result else ctypes.c_int
    return lib


def _need(lib, call):
    if lib is None:
        raise FileNotFoundError(errno.ENOENT, f"libcede with {call}() was not found: set CEDE_LIBRARY")


def _load():
    # CEDE_LIBRARY: its path, if the dynamic linker does not find it.
    try:
        lib = ctypes.CDLL(os.environ.get("CEDE_LIBRARY") or "libcede.so.0")
    except OSError:
        return None
    p, u64, stream, i = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
    request = ctypes.POINTER(_Request)
    return _declare(lib, (
        ("connect", [ctypes.POINTER(p)]), ("connected", [p]), ("set_class", [p, i]), ("set_weight", [p, ctypes.c_uint]),
        ("set_deadline", [p, stream, u64]), ("set_laxity", [p, stream, u64]), ("set_priority", [p, stream, i]),
        ("request_begin", [p, request, stream, u64, u64]), ("request_queued", [p, request]),
        ("request_end", [p, request]), ("lead_cuda", [p, u64]), ("wanted", [p]), ("share", [p]),
        ("job_yield", [p, ctypes.c_uint]), ("job_acquire", [p, ctypes.c_int64]),
        ("get_statistics", [p, ctypes.POINTER(Statistics), ctypes.c_size_t]), ("close", [p], None),
        ("error_text", [], ctypes.c_char_p)))


_lib = _load()


def available():
    """Whether the library was found."""
    return _lib is not None


def _check(result, why=None):
    """why: in the place of what libcede says."""
    why = why or (_said() if result < 0 else "") or os.strerror(-result)
    if result == -errno.EINVAL:
        raise ValueError(why)
    if result < 0:
        raise OSError(-result, why)


def _said():
    return _lib.cede_error_text().decode()


class Request:
    """One request, as a context manager. It ends with its block, however the block ends."""

    def __init__(self, client, stream, expected_us, deadline_us):
        self._client, self._args = client, (stream, expected_us, deadline_us)
        self._raw = _Request()

    def __enter__(self):
        if _lib and self._client._c:
            _lib.cede_request_begin(self._client._c, ctypes.byref(self._raw), *self._args)
        return self

    def queued(self):
        """The request's first GPU work has been queued; see Client.lead_cuda()."""
        if _lib and self._client._c:
            _lib.cede_request_queued(self._client._c, ctypes.byref(self._raw))

    def __exit__(self, *_):
        if _lib and self._client._c:
            _lib.cede_request_end(self._client._c, ctypes.byref(self._raw))
        return False


class _Handle(ctypes.c_void_p):
    """A handle of libcede. It is closed when its last reference goes: its Client's, a queue's that
    reports requests on it, or that of a call in another thread."""

    def __del__(self):
        if _lib and self:
            _lib.cede_close(self)


# Handles by the id of the pool, queue or scope that is to be closed before they are. Else the garbage collector, which
# finalizes the objects of a cycle in any order, might close them first.
_used = {}


class Client:
    """A handle: class and weight of this job, and its requests."""

    def __init__(self, cls=None, weight=None, deadline_us=0):
        self._c = _Handle()
        if _lib:
            _check(_lib.cede_connect(ctypes.byref(self._c)))
        if cls is not None:
            self.set_class(cls)
        if weight is not None:
            self.set_weight(weight)
        if deadline_us:
            self.set_deadline(deadline_us)

    def _call(self, name, *args, said=False):
        if _lib and self._c:
            _check(getattr(_lib, "cede_" + name)(self._c, *args), _said() if said else None)

    def set_class(self, cls):
        """LATENCY, NORMAL or BATCH, for the whole job."""
        self._call("set_class", cls)

    def set_weight(self, weight):
        """1 to 10000, for the whole job; the default is 100."""
        self._call("set_weight", weight)

    def set_deadline(self, deadline_us, stream=JOB):
        """Default deadline, from request start; 0: none."""
        self._call("set_deadline", _stream_handle(stream), deadline_us)

    def set_laxity(self, laxity_us, stream=JOB):
        """The deadline minus the GPU time that a request needs; 0: cede learns the GPU time."""
        self._call("set_laxity", _stream_handle(stream), laxity_us)

    def set_priority(self, priority, stream=JOB):
        """Among jobs with requests due the highest runs first; above 0 for root only."""
        self._call("set_priority", _stream_handle(stream), priority)

    def request(self, expected_us=0, deadline_us=0, stream=JOB):
        """`with client.request(...):` around the work of one request."""
        return Request(self, _stream_handle(stream), expected_us, deadline_us)

    def lead_cuda(self, keep_us=0):
        """Lets the GPU switch to this program while a request prepares. To be called with the CUDA context
        current, for example after a first torch call on the device. False: there is no CUDA."""
        if not (_lib and self._c):
            return False
        result = _lib.cede_lead_cuda(self._c, keep_us)
        if result == -errno.ENOSYS:
            return False
        _check(result)
        return True

    def job_yield(self, pause=False, memory=False):
        """The job gives the GPU to others until job_acquire(): class batch, suspended, its memory in host memory. The
        job's work on the GPU has to have ended (torch.cuda.synchronize()). False: no daemon, nothing has changed."""
        if not (_lib and self._c):
            return False
        result = _lib.cede_job_yield(self._c, (1 if pause else 0) | (2 if memory else 0))
        if result == -errno.ENOTCONN:
            return False
        _check(result)
        return True

    def job_acquire(self, timeout_us=TIMEOUT_DEFAULT):
        """The job has back what it yielded; waits for that. TimeoutError."""
        self._call("job_acquire", timeout_us, said=True)

    def connected(self):
        """Whether a daemon receives the hints."""
        return bool(_lib and self._c and _lib.cede_connected(self._c))

    def wanted(self):
        """Whether a job of a higher class waits until this one gives way; cede(3) says when. Never waits."""
        return bool(_lib and self._c and _lib.cede_wanted(self._c))

    def share(self):
        """The share of the GPU, up to 1, that this process can expect while other programs use it; see
        cede_share(3). 1 if that is not known. Never waits."""
        return _lib.cede_share(self._c) / 1000 if _lib and self._c else 1.0

    def statistics(self):
        """Zeros without the library."""
        s = Statistics()
        if _lib and self._c:
            _check(_lib.cede_get_statistics(self._c, ctypes.byref(s), ctypes.sizeof(s)))
        return s

    def close(self):
        """Closes the handle once other threads' calls and the queues that use it have ended. Later calls
        do nothing."""
        self._c = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False


CURRENT = object()  # as a stream: PyTorch's current one


@contextlib.contextmanager
def _in_stream(lease, stream, ended, follow=True):
    """Makes a stream PyTorch's current one, behind what the former has queued; the former then goes on behind it
    (follow). No host call waits: ended() gets an event behind the work of the block, or None where there is no stream."""
    event = None
    try:
        if stream is None and not lease.stream:
            yield None
            return
        import torch  # pylint: disable=import-outside-toplevel
        former = torch.cuda.current_stream(lease.device)
        if stream is CURRENT:
            stream = former
        elif stream is None:
            stream = torch.cuda.ExternalStream(lease.stream, device=lease.device)
        if stream != former:
            stream.wait_stream(former)
        try:
            with torch.cuda.stream(stream):
                yield stream
        finally:
            mark = torch.cuda.Event(blocking=True)
            mark.record(stream)
            event = mark  # where the driver fails, none ever occurs
            if follow and stream != former:
                former.wait_event(event)
    finally:
        ended(event)


def _stream_handle(stream):
    """Of a stream of PyTorch, of CURRENT, or of a number, which is one. The default stream's is CU_STREAM_LEGACY, as 0
    would be none."""
    if stream is CURRENT:
        import torch  # pylint: disable=import-outside-toplevel
        stream = torch.cuda.current_stream()
    return stream.cuda_stream or 1 if hasattr(stream, "cuda_stream") else stream


def _wait(event):
    if event is not None:
        event.synchronize()


class Lease(ctypes.Structure):
    """Room on a GPU: .device, and .stream for torch.cuda.ExternalStream(); None without a GPU. `room`: of one that was
    acquired with memory (cede_memory)."""
    room = None
    _fields_ = [("stream", ctypes.c_void_p), ("device", ctypes.c_int), ("urgent", ctypes.c_int),
                ("opaque", ctypes.c_uint64 * 2)]

    def wanted(self):
        """Whether an urgent lease displaces others on this one's GPU: hold the next kernels back until it does not."""
        return bool(_lib and any(self.opaque) and _lib.cede_lease_wanted(ctypes.byref(self)))

    def torch(self, stream=None):
        """`with lease.torch():` makes the lease's stream PyTorch's current one, or with `stream` that one (CURRENT:
        the one that is). It runs behind what the former has queued. The end of the block waits for an event behind the
        block's work, not for the stream or the device. PyTorch's rules for tensors on several streams hold
        (Tensor.record_stream). Without a GPU, and without `stream`, it does nothing."""
        # Threads share PyTorch's default stream: if that went on behind this lease, other leases would begin behind it.
        return _in_stream(self, stream, _wait, follow=False)


class _Shape(ctypes.Structure):
    _fields_ = [("blocks", ctypes.c_uint), ("threads", ctypes.c_uint),
                ("shared_bytes", ctypes.c_uint), ("priority", ctypes.c_int),
                ("memory_bytes", ctypes.c_uint64), ("due_us", ctypes.c_uint64)]


class _PoolConfig(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(n, ctypes.c_uint) for n in (
        "flags", "devices", "capacity", "max_concurrent_streams", "streams", "target_utilization_percent")] + [
            (n, ctypes.c_uint64) for n in ("utilization_polling_us", "age_us", "urgent_us")] + [
                (n, ctypes.c_int64) for n in ("block_timeout_us", "stream_timeout_us")] + [
            (n, ctypes.c_double) for n in (
                "max_total_occupancy", "unknown_occupancy", "memory_reserve_fraction", "max_slowdown")] + [
                    ("displace", ctypes.c_uint), ("reserved", ctypes.c_uint), ("cede", ctypes.c_void_p)]


class PoolStatistics(Figures):
    """Of one device of a pool; cede_acquire(3) describes them. `error` is the driver's latest, as bytes."""
    _fields_ = [("devices", ctypes.c_uint), ("has_gpu", ctypes.c_int), ("utilization_percent", ctypes.c_int),
                ("active", ctypes.c_uint), ("waiting", ctypes.c_uint), ("limit", ctypes.c_uint),
                ("occupancy", ctypes.c_double), ("started", ctypes.c_uint64),
                ("timed_out", ctypes.c_uint64), ("stolen", ctypes.c_uint64),
                ("displaced", ctypes.c_uint64), ("busy_us", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 4), ("error", ctypes.c_char * 128)]

def _declare_leases(p, name):
    acquire = [p, ctypes.c_int, name, ctypes.POINTER(_Shape), ctypes.c_int64, ctypes.POINTER(Lease)]
    _declare(_lib, (
        ("pool_open", [ctypes.POINTER(_PoolConfig), ctypes.POINTER(p)]), ("pool_close", [p]),
        ("pool_defaults", [ctypes.POINTER(_PoolConfig)], None), ("pool_occupancy", [p, name, ctypes.c_double]),
        ("pool_kernel", [p, name, p]), ("acquire", acquire),
        ("pool_get_statistics", [p, ctypes.c_int, ctypes.POINTER(PoolStatistics), ctypes.c_size_t])))


_declare_leases(ctypes.c_void_p, ctypes.c_char_p)


def _release(lease):
    if _lib and any(lease.opaque):
        _lib.cede_release(ctypes.byref(lease))
    if lease.room:
        lease.room.release()


class _Held:
    """A lease for the time of a block, `with` or `async with`. take: acquires it; the last of args is a timeout."""

    def __init__(self, take, args):
        self._take, self._args, self._lease = take, args, None

    def __enter__(self):
        if self._lease is None:
            self._lease = self._take(*self._args)
        return self._lease

    def __exit__(self, *_):
        lease, self._lease = self._lease, None
        _release(lease)
        return False

    async def __aenter__(self):
        if self._lease is None:
            try:
                self._lease = self._take(*self._args[:-1], TIMEOUT_NOW)
            except (BlockingIOError, MemoryError):
                if self._args[-1] == TIMEOUT_NOW:
                    raise
                self._lease = await self._wait()
        return self._lease

    async def __aexit__(self, *_):
        return self.__exit__()

    async def _wait(self):
        """Waits in a thread of its own: those of the loop's executor may be needed by the programs that hold
        leases, to give them back. A lease that comes after the task was cancelled is released."""
        import asyncio  # pylint: disable=import-outside-toplevel
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def arrived(lease, error):
            if future.cancelled():
                if lease:
                    _release(lease)
            elif error:
                future.set_exception(error)
            else:
                future.set_result(lease)

        def wait():
            lease = error = None
            try:
                lease = self._take(*self._args)
            except Exception as e:  # for the task
                error = e
            try:
                loop.call_soon_threadsafe(arrived, lease, error)
            except RuntimeError:  # the loop is closed
                if lease:
                    _release(lease)

        threading.Thread(target=wait, daemon=True).start()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and not future.exception():
                _release(future.result())
            raise


_task = threading.local()  # depth: of the scopes whose tasks this thread runs (cede_scope)


class _Streamed:
    """A held lease whose stream, or another, is PyTorch's current one in the block. The lease is released when the work
    of the block has run; the block waits for that in tasks of a scope alone, with which their leases end."""

    def __init__(self, held, stream, pool):
        self._held, self._stream, self._pool = held, stream, pool

    def _begin(self, lease):
        self._block = _in_stream(lease, self._stream, self._ended)
        self._block.__enter__()
        return lease

    def _ended(self, event):
        release = self._held.__exit__
        if event is not None and not getattr(_task, "depth", 0):
            self._pool._later(event, release)
            return
        try:
            _wait(event)
        finally:
            release()

    def __enter__(self):
        return self._begin(self._held.__enter__())

    def __exit__(self, *error):
        return self._block.__exit__(*error)

    async def __aenter__(self):
        return self._begin(await self._held.__aenter__())

    async def __aexit__(self, *error):
        return self._block.__exit__(*error)


class Pool:
    """Leases for the threads of this program; cede_acquire(3) describes the settings. client: a Client
    that leases with a deadline, or with flags=REPORT_ALL all leases, are reported to as requests. Without the
    library no lease ever waits.

        pool = cede.Pool(max_concurrent_streams=4)
        with pool.lease(device=0):                       # PyTorch's current stream is the lease's; waits for nothing
            y = model(batch)
        with pool.lease(device=0, stream=cede.CURRENT):  # in the stream that is current already
            y = model(batch)
        with pool.acquire(device=0) as lease:            # for other frameworks: lease.stream. To be released, which the
            launch(lease.stream)                         # end of the block does, its work has to have ended
            wait(lease.stream)

    `async with pool.acquire(...)` does not block the event loop. A task that is cancelled while it waits keeps
    its place in the queue until then; the lease is released as it comes.
    """

    def __init__(self, client=None, **settings):
        self._p = ctypes.c_void_p()
        self._lock, self._threads = threading.Lock(), None  # which wait for events
        self._client = client and client._c  # has to outlive the pool
        config = _PoolConfig()
        if _lib:
            _lib.cede_pool_defaults(ctypes.byref(config))
        _fill(config, "Pool", settings, ("size", "reserved", "cede"))
        if not _lib:
            return
        config.cede = self._client
        _check(_lib.cede_pool_open(ctypes.byref(config), ctypes.byref(self._p)))
        _used[id(self)] = self._client
        self._capacity = config.capacity

    def occupancy(self, kernel, share):
        """A lease for `kernel` takes this share of a GPU's warps, 0 to 1."""
        if _lib:
            _check(_lib.cede_pool_occupancy(self._p, kernel.encode(), share))

    def kernel(self, name, function):
        """The driver computes what a lease for `name` takes, from its shape. function: a CUfunction, as a number,
        whose context is current."""
        if _lib:
            _check(_lib.cede_pool_kernel(self._p, name.encode(), function))

    def statistics(self, device=0):
        """Of leases on one device; zeros without the library."""
        s = PoolStatistics()
        if _lib:
            _check(_lib.cede_pool_get_statistics(self._p, device, ctypes.byref(s), ctypes.sizeof(s)))
        return s

    def try_acquire(self, device=-1, kernel=None, only=False, **shape):
        """Does not wait. None, or a lease for one `with`:

            held = pool.try_acquire(device=0)
            if held:
                with held as lease: ...
        """
        held = self.acquire(device, kernel, TIMEOUT_NOW, only, **shape)
        try:
            held.__enter__()
        except BlockingIOError:
            return None
        return held

    def acquire(self, device=-1, kernel=None, timeout_us=TIMEOUT_DEFAULT, only=False, **shape):
        """`with pool.acquire(...) as lease:`. Raises TimeoutError; BlockingIOError with a timeout of 0; in a
        task of a cede_scope.Scope OSError ECANCELED as soon as that is cancelled."""
        if only and device >= 0:
            device |= 0x10000
        return _Held(self._acquire, (device, kernel.encode() if kernel else None, _fill(_Shape(), "a lease", shape), timeout_us))

    def lease(self, device=-1, kernel=None, timeout_us=TIMEOUT_DEFAULT, only=False, stream=None, **shape):
        """acquire(), and Lease.torch() without its wait: `with pool.lease(...) as lease:` makes the lease's stream
        PyTorch's current one, or with `stream` that one: a stream of PyTorch, whose GPU it is then for, or CURRENT. At
        the end of the block an event is recorded; the stream that was current before goes on behind it, and the lease
        is released when it occurs. Neither the host nor the device waits, except in a task of a scope, which ends with
        its work. What the host reads afterwards it waits for as always: tensor.cpu(), event.synchronize().
        In `async with` do not await inside the block, unless `stream` is CURRENT."""
        if stream is not None and stream is not CURRENT:
            device, only = stream.device.index, True
        return _Streamed(self.acquire(device, kernel, timeout_us, only, **shape), stream, self)

    def _later(self, event, release):
        """Has a thread wait for the event and then release the lease. After close() it has ended."""
        def wait():
            try:
                event.synchronize()
            finally:
                release()

        with self._lock:
            if self._p:
                if not self._threads:
                    from concurrent import futures  # pylint: disable=import-outside-toplevel
                    self._threads = futures.ThreadPoolExecutor(self._capacity, "cede-lease")
                self._threads.submit(wait)
                return
        release()

    def _acquire(self, device, kernel, shape, timeout_us):
        lease = Lease(device=max(device, 0) & 0xFFFF)
        if _lib:
            _check(_lib.cede_acquire(self._p, device, kernel, ctypes.byref(shape), timeout_us, ctypes.byref(lease)),
                   _said())
        return lease

    def close(self):
        """Closes the pool, which ends all its leases. Their work still runs to its end."""
        with self._lock:
            p, self._p = self._p, ctypes.c_void_p()
            if self._threads:
                self._threads.shutdown(wait=False)
        if _lib and p:
            _lib.cede_pool_close(p)
        _used.pop(id(self), None)
        self._client = None

    __del__ = close
