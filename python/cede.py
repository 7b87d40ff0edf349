"""Reports a program's class and requests to the GPU scheduler cede: libcede for Python, by ctypes.

    import cede
    client = cede.Client(deadline_us=20000)
    client.lead_cuda()
    with client.request(expected_us=3000) as request:
        prepare()           # 3 ms
        launch(); request.queued()
        wait()
    print(client.statistics())

Without a daemon every call has the same effect on the program. Without the library hints (Client, and its requests) do
nothing; what a program builds on raises NoLibrary when it is made: Pool here, all of the other modules. All modules have
the same rules: errors of the caller raise ValueError, or TypeError for a wrong type and for a setting that there is not;
what is closed raises Closed; all else OSError (PermissionError: a user may lower class and weight, but not raise them)
and MemoryError, with the text of libcede. Objects may be used from several threads. cede(3) describes every call.
"""
import contextlib
import ctypes
import difflib
import errno
import os
import threading

LATENCY, NORMAL, BATCH = -1, 0, 1
TIMEOUT_NOW, TIMEOUT_DEFAULT, TIMEOUT_FOREVER = 0, -2**63, 2**63 - 1  # cede_timeout, in microseconds
REPORT_ALL = 2  # a flag of Pool: leases without a deadline are requests, too
JOB = ctypes.c_size_t(-1).value  # all streams; else a stream of PyTorch, or a handle


class NoLibrary(FileNotFoundError):
    """libcede was not found. The text says which file was looked for, and what to do."""


class Closed(ValueError):
    """The object was closed or shut down, or it is the parent's, in a forked child."""


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
    known = [name for name, *_ in struct._fields_ if name not in own]
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"{of} has no setting {name}: " + (f"did you mean {near[0]}?" if near else
                                                               "there are " + ", ".join(known)))
        try:
            setattr(struct, name, value)
        except TypeError as e:
            raise TypeError(f"{of}: {name} is {value!r}: {e}") from None
        if getattr(struct, name) != value:  # cut off, or no number
            raise ValueError(f"{of}: {name} is {value}: out of range")
    return struct


def _number(kind):
    """A type of arguments whose numbers have to fit, as ctypes cuts them off."""
    class Number(kind):
        @classmethod
        def from_param(cls, value):
            number = kind(value)
            if number.value != value:
                raise OverflowError(f"{value} is out of range")
            return number
    return Number


# Types of arguments by the letters of the struct module; p: a pointer that libcede has made, *: one to what it reads or
# writes, f: a number in full.
_LETTERS = dict(zip("iIQqN", map(_number, (ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int64, ctypes.c_size_t))),
                p=ctypes.c_void_p, s=ctypes.c_char_p, f=ctypes.c_double, **{"*": ctypes.c_void_p})

_PATH, _lib, _why = os.environ.get("CEDE_LIBRARY") or "libcede.so.0", None, ""
try:
    _lib = ctypes.CDLL(_PATH)
    _lib.cede_error_text.restype = ctypes.c_char_p
except OSError as missing:
    _why = str(missing)
except AttributeError:
    _lib, _why = None, _PATH + ": an older release"


def available():
    """Whether the library was found."""
    return _lib is not None


def _need(of):
    if not _lib:
        raise NoLibrary(errno.ENOENT, f"{of} needs libcede ({_why}): install it, or set CEDE_LIBRARY to its path", _PATH)


def _declare(result=ctypes.c_int, **calls):
    """Functions of libcede, each with letters for its arguments, and what they return."""
    for name, letters in calls.items() if _lib else ():
        f = getattr(_lib, "cede_" + name)
        f.argtypes, f.restype = [_LETTERS[letter] for letter in letters], result


_declare(connect="*", connected="p", set_class="pi", set_weight="pI", set_deadline="pNQ", set_laxity="pNQ", set_priority="pNi",
         request_begin="p*NQQ", request_queued="p*", request_end="p*", lead_cuda="pQ", wanted="p", share="p", job_yield="pI",
         job_acquire="pq", get_statistics="p*N")
_declare(None, close="p")

_ERRORS = {errno.EINVAL: ValueError, errno.ENOMEM: MemoryError, errno.ESHUTDOWN: Closed}
_ANY = range(4096)


def _error(result):
    """The exception for what the latest call of this thread returned."""
    why = _lib.cede_error_text().decode(errors="replace") or os.strerror(-result)
    return _ERRORS[-result](why) if -result in _ERRORS else OSError(-result, why)


def _call(name, *args, but=()):
    """Calls libcede. What that returns, if it is no error, or one of `but`; else raises the exception for it."""
    try:
        result = getattr(_lib, "cede_" + name)(*args)
    except ctypes.ArgumentError as e:
        raise (ValueError if "OverflowError" in str(e) else TypeError)(f"cede_{name}: {e}") from None
    if result and result < 0 and -result not in but:
        raise _error(result)
    return result


def _name(kernel):
    """As libcede takes it: a text, or None."""
    if kernel is None:
        return None
    if not isinstance(kernel, str):
        raise TypeError(f"a kernel's name is a text, not {kernel!r}")
    if "\0" in kernel:
        raise ValueError(f"a kernel's name has no zeros: {kernel!r}")
    return kernel.encode()


class _Raw(ctypes.c_void_p):
    """A handle of libcede. It is freed when its last reference goes: that of its object, of what was opened with it, or
    of a call in another thread."""
    pid = free = None

    def here(self, getpid=os.getpid):
        """Whether this is not a forked child in which it cannot be used."""
        return self.pid is None or self.pid == getpid()

    def end(self):
        value, self.value = self.value, None
        if value and self.here():
            self.free(value)

    __del__ = end


# By the id of their objects. Else the garbage collector, which finalizes the objects of a cycle in any order, might free
# a handle before what was opened with it.
_used = {}


class Handle:
    """What is open until close(), the end of its `with` block, or until it is forgotten. Later calls, and those of a
    forked child on what its parent has opened, raise Closed; what is to be given back then is gone already."""
    _prefix = ""  # of its functions' names in libcede
    _Config = _Statistics = None
    _own = ()  # fields of _Config that are no settings
    _forks = False  # whether it can be used in a forked child
    _raw = _raised = None

    def _configure(self, settings):
        _need(type(self).__name__)
        config = self._Config()
        getattr(_lib, f"cede_{self._prefix}defaults")(ctypes.byref(config))
        return _fill(config, type(self).__name__, settings, ("size", *self._own))

    def _open(self, name, *args, uses=()):
        """Calls a function of libcede, with ... where the handle goes. uses: handles that have to outlive it."""
        raw = _Raw()
        raw.uses, raw.pid, raw.free = uses, None if self._forks else os.getpid(), getattr(_lib, f"cede_{self._prefix}close")
        _call(name, *(ctypes.byref(raw) if a is ... else a for a in args))
        self._raw = _used[id(self)] = raw

    @property
    def _h(self):
        raw = self._raw
        if raw is not None and raw.value and raw.here():
            return raw
        if raw is None or not raw.value:
            raise Closed(f"this {type(self).__name__} is closed")
        raise Closed(f"this {type(self).__name__} is of the parent process {raw.pid}: open one in this process")

    def _call(self, name, *args, but=()):
        return _call(self._prefix + name, self._h, *args, but=but)

    def _run(self, function, *args):
        """Calls a function of the program. Its value; or a negative error, and _raise() has the exception."""
        try:
            return function(*args)
        except BaseException as e:  # pylint: disable=broad-except
            self._raised = self._raised or e
            return -errno.EIO

    def _raise(self, result=0):
        """What the latest call returned, unless that is an error, or a function has raised something."""
        error, self._raised = self._raised or (_error(result) if result < 0 else None), None
        if error:
            raise error
        return result

    def statistics(self, *of):
        """What repr() shows by name."""
        s = self._Statistics()
        self._call("get_statistics", *of, ctypes.byref(s), ctypes.sizeof(s))
        return s

    def _end(self, raw):
        """At close(); true: it stays open."""

    def close(self):
        """Once more does nothing."""
        raw = self._raw
        if raw is not None and raw.here() and self._end(raw):
            return
        self._raw = None
        _used.pop(id(self), None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False

    def __del__(self):
        self.close()


def _a(value, kind, what):
    """The value, if it is None or of the kind."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{what}: a {kind.__name__} is expected, not {value!r}")
    return value


def _of(value, kind, what):
    """The handle of an object, or None of None."""
    return None if _a(value, kind, what) is None else value._h


def _function(value, what):
    if not callable(value):
        raise TypeError(f"{what}: a function is expected, not {value!r}")
    return value


class Request:
    """One request, as a context manager. It ends with its block, however the block ends."""

    def __init__(self, client, *args):
        self._handle, self._args, self._raw = client._h if _lib else None, args, _Request()

    def __enter__(self):
        if self._handle:
            _call("request_begin", self._handle, ctypes.byref(self._raw), *self._args)
        return self

    def queued(self):
        """The request's first GPU work has been queued; see Client.lead_cuda()."""
        if self._handle:
            _lib.cede_request_queued(self._handle, ctypes.byref(self._raw))

    def __exit__(self, *_):
        if self._handle:
            _lib.cede_request_end(self._handle, ctypes.byref(self._raw))
        return False


class Client(Handle):
    """Class and weight of this job, and its requests. Without the library every call does nothing. The handle is freed
    once other threads' calls, and what was opened with it, have ended."""
    _Statistics, _forks = Statistics, True

    def __init__(self, cls=None, weight=None, deadline_us=0):
        if _lib:
            self._open("connect", ...)
        for give, value in ((self.set_class, cls), (self.set_weight, weight), (self.set_deadline, deadline_us or None)):
            if value is not None:
                give(value)

    def _call(self, name, *args, but=(), without=None):
        return super()._call(name, *args, but=but) if _lib else without

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
        return self._call("lead_cuda", keep_us, but=(errno.ENOSYS,), without=-1) == 0

    def job_yield(self, pause=False, memory=False):
        """The job gives the GPU to others until job_acquire(): class batch, suspended, its memory in host memory. The
        job's work on the GPU has to have ended (torch.cuda.synchronize()). False: no daemon, nothing has changed."""
        return self._call("job_yield", (1 if pause else 0) | (2 if memory else 0), but=(errno.ENOTCONN,), without=-1) == 0

    def job_acquire(self, timeout_us=TIMEOUT_DEFAULT):
        """The job has back what it yielded; waits for that. TimeoutError."""
        self._call("job_acquire", timeout_us)

    def connected(self):
        """Whether a daemon receives the hints."""
        return bool(self._call("connected"))

    def wanted(self):
        """Whether a job of a higher class waits until this one gives way; cede(3) says when. Never waits."""
        return bool(self._call("wanted"))

    def share(self):
        """The share of the GPU, up to 1, that this process can expect while other programs use it; see
        cede_share(3). 1 if that is not known. Never waits."""
        return self._call("share", without=1000) / 1000


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
    handle = stream.cuda_stream or 1 if hasattr(stream, "cuda_stream") else stream
    if handle is not None and not isinstance(handle, int):
        raise TypeError(f"a stream of PyTorch, cede.CURRENT or a handle is expected, not {stream!r}")
    if handle and not 0 <= handle <= JOB:
        raise ValueError(f"no stream has the handle {handle}")
    return handle


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
        return bool(any(self.opaque) and _lib.cede_lease_wanted(ctypes.byref(self)))

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


class LeaseWaits(Figures):
    """How many leases waited for one thing, and how long."""
    _fields_ = [(n, ctypes.c_uint64) for n in ("leases", "total_us", "max_us")]


class PoolWaits(Figures):
    """By what leases waited for; `none`: they did not wait."""
    _fields_ = [(n, LeaseWaits) for n in ("none", "class_", "limit", "occupancy", "memory", "utilization", "stream")]


class PoolStatistics(Figures):
    """Of one device of a pool; cede_acquire(3) describes them. `error` is the driver's latest, as bytes."""
    _fields_ = [("devices", ctypes.c_uint), ("has_gpu", ctypes.c_int), ("utilization_percent", ctypes.c_int),
                ("active", ctypes.c_uint), ("waiting", ctypes.c_uint), ("limit", ctypes.c_uint),
                ("occupancy", ctypes.c_double), ("started", ctypes.c_uint64),
                ("timed_out", ctypes.c_uint64), ("stolen", ctypes.c_uint64),
                ("displaced", ctypes.c_uint64), ("busy_us", ctypes.c_uint64),
                ("waits", PoolWaits), ("reserved", ctypes.c_uint64 * 4), ("error", ctypes.c_char * 128)]

_declare(pool_open="**", pool_close="p", pool_occupancy="psf", pool_kernel="psN", acquire="pis*q*", release="*",
         lease_wanted="*", pool_get_statistics="pi*N")
_declare(None, pool_defaults="*")


def _release(lease):
    if any(lease.opaque):
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


class Pool(Handle):
    """Leases for the threads of this program; cede_acquire(3) describes the settings. client: a Client
    that leases with a deadline, or with flags=REPORT_ALL all leases, are reported to as requests.

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

    _prefix, _Config, _Statistics, _own = "pool_", _PoolConfig, PoolStatistics, ("reserved", "cede")

    def __init__(self, client=None, **settings):
        self._lock, self._threads = threading.Lock(), None  # which wait for events
        config = self._configure(settings)
        self._capacity = config.capacity
        config.cede = handle = _of(client, Client, "client")
        self._open("pool_open", ctypes.byref(config), ..., uses=handle)

    def occupancy(self, kernel, share):
        """A lease for `kernel` takes this share of a GPU's warps, 0 to 1."""
        self._call("occupancy", _name(kernel), share)

    def kernel(self, name, function):
        """The driver computes what a lease for `name` takes, from its shape. function: a CUfunction, as a number,
        whose context is current."""
        self._call("kernel", _name(name), function)

    def statistics(self, device=0):
        """Of leases on one device."""
        return super().statistics(device)

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
        return _Held(self._acquire, (device, _name(kernel), _fill(_Shape(), "a lease", shape), timeout_us))

    def lease(self, device=-1, kernel=None, timeout_us=TIMEOUT_DEFAULT, only=False, stream=None, **shape):
        """acquire(), and Lease.torch() without its wait: `with pool.lease(...) as lease:` makes the lease's stream
        PyTorch's current one, or with `stream` that one: a stream of PyTorch, whose GPU it is then for, or CURRENT. At
        the end of the block an event is recorded; the stream that was current before goes on behind it, and the lease
        is released when it occurs. Neither the host nor the device waits, except in a task of a scope, which ends with
        its work. What the host reads afterwards it waits for as always: tensor.cpu(), event.synchronize().
        In `async with` do not await inside the block, unless `stream` is CURRENT."""
        if stream is not None and stream is not CURRENT:
            if not hasattr(stream, "cuda_stream"):
                raise TypeError(f"a stream of PyTorch or cede.CURRENT is expected, not {stream!r}")
            device, only = stream.device.index, True
        return _Streamed(self.acquire(device, kernel, timeout_us, only, **shape), stream, self)

    def _later(self, event, release):
        """Has a thread wait for the event and then release the lease. After close() it has ended."""
        def wait():
            try:
                event.synchronize()
            finally:
                release()

        raw = self._raw
        if raw is not None and raw.here():
            with self._lock:
                if self._raw is not None:
                    if not self._threads:
                        from concurrent import futures  # pylint: disable=import-outside-toplevel
                        self._threads = futures.ThreadPoolExecutor(self._capacity, "cede-lease")
                    self._threads.submit(wait)
                    return
        release()

    def _acquire(self, device, kernel, shape, timeout_us):
        lease = Lease()
        _call("acquire", self._h, device, kernel, ctypes.byref(shape), timeout_us, ctypes.byref(lease))
        return lease

    def _end(self, raw):
        """All leases end. Their work still runs to its end."""
        with self._lock:
            self._raw = None
            if self._threads:
                self._threads.shutdown(wait=False)
        raw.end()
