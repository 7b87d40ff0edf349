"""Reports a program's class and requests to the GPU scheduler cede: libcede for Python, by ctypes.

    import cede
    client = cede.Client(deadline_us=20000)
    client.lead_cuda()
    with client.request(queued_in_us=3000) as request:
        prepare()           # 3 ms
        launch(); request.queued()
        wait()
    print(client.statistics())

Without a daemon every call has the same effect on the program. Without the library hints (Client, and its requests) do
nothing; what a program builds on raises NoLibrary when it is made: Pool here, all of the other modules. All modules have
the same rules: errors of the caller raise ValueError, or TypeError for a wrong type and for a setting that there is not;
what is closed raises Closed; all else OSError (PermissionError: a user may lower class and weight, but not raise them)
and MemoryError, with the text of libcede. A function of the program, such as a task, a step or launch(), fails by an
exception or by the number that it returns: a negative errno, or what a driver returns; None, 0 and what is no number
are success. Objects may be used from several threads. cede(3) describes every call.
"""
import contextlib
import ctypes
import difflib
import errno
import numbers
import os
import re
import threading
import warnings

LATENCY, NORMAL, BATCH = -1, 0, 1
TIMEOUT_NOW, TIMEOUT_DEFAULT, TIMEOUT_FOREVER = 0, -2**63, 2**63 - 1  # cede_timeout, in microseconds
# Profile.limit: what keeps more blocks of a kernel off a multiprocessor.
LIMIT_UNKNOWN, LIMIT_THREADS, LIMIT_REGISTERS, LIMIT_SHARED, LIMIT_BLOCKS = range(5)
JOB = ctypes.c_size_t(-1).value  # all streams; else a stream of PyTorch, or a handle


class NoLibrary(FileNotFoundError):
    """libcede was not found. The text says which file was looked for, and what to do."""


class Closed(ValueError):
    """The object was closed or shut down, or it is the parent's, in a forked child."""


class Unknown(OSError):
    """ENOENT: what the call names is not there, or not any more: a kernel, a batch, a reservation."""


_TYPES = dict(i=ctypes.c_int, I=ctypes.c_uint, q=ctypes.c_int64, Q=ctypes.c_uint64, N=ctypes.c_size_t, d=ctypes.c_double,
              c=ctypes.c_char, P=ctypes.c_void_p)


def _layout(*parts):
    """Fields of a struct: in a text each letter, with a number for arrays, is the type of the names that follow it."""
    fields, kind = [], None
    for word in sum((part.split() if isinstance(part, str) else [part] for part in parts), []):
        if not isinstance(word, str):
            fields.append(word)
        elif word[0] in _TYPES and (len(word) == 1 or word[1:].isdigit()):
            kind = _TYPES[word[0]] * int(word[1:]) if word[1:] else _TYPES[word[0]]
        else:
            fields.append((word, kind))
    return fields


def _struct(*parts):
    return type("Struct", (ctypes.Structure,), {"_fields_": _layout(*parts)})


class Figures(ctypes.Structure):
    """Statistics of all modules."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def __repr__(self):
        names = [name for name, *_ in self._fields_ if not name.startswith("reserved")]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"


class Statistics(Figures):
    """Requests since the client was made; times in microseconds."""
    _fields_ = _layout("Q begun ended with_deadline deadlines_met p50_us p99_us max_us")


def _range(kind, value):
    """What to give in place of a value that the type cuts off."""
    bits, signed = 8 * ctypes.sizeof(kind), kind(-1).value < 0
    least, most = -2**(bits - 1) if signed else 0, 2**(bits - signed) - 1
    return "give a number" if value != value else f"give {least} or more" if value < least else f"give {most} or less"


def _help(name):
    """What to give in place of a value of the wrong type."""
    names = {"cls": ": give cede.LATENCY, cede.NORMAL or cede.BATCH", "policy": ": give cede_queue.FIFO, PRIORITY, EDF or LAXITY"}
    return names.get(name, ": give whole microseconds" * name.endswith("_us"))


def _fill(struct, of, settings, own=(), flags=()):
    """Puts settings into the struct by name. of: what they are settings of. own: fields that are none. flags: names of
    settings that are true or false, with their bits; that of `gpu` is set if it is false."""
    known = [name for name, *_ in struct._fields_ if name not in own] + [*flags]
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"{of} has no setting {name}: " + (f"did you mean {near[0]}?" if near else
                                                               "there are " + ", ".join(known)))
        if name in flags:
            if not isinstance(value, bool):
                raise TypeError(f"{of}: {name} is {value!r}: give True or False")
            struct.flags |= flags[name] if value != (name == "gpu") else 0
            continue
        try:
            setattr(struct, name, value)
        except TypeError as e:
            raise TypeError(f"{of}: {name} is {value!r}: {e}{_help(name)}") from None
        if getattr(struct, name) != value:  # cut off, or no number
            raise ValueError(f"{of}: {name} is {value}: {_range(dict(struct._fields_)[name], value)}")
    return struct


class _Fits:
    """Of types of arguments whose numbers have to fit, as ctypes cuts them off."""
    @classmethod
    def from_param(cls, value):
        number = cls(value)
        if number.value != value:
            raise OverflowError(_range(cls, value))
        return number


class _Text(ctypes.c_char_p):
    """A type of arguments that are texts, or None."""
    @classmethod
    def from_param(cls, value):
        if value is not None and not isinstance(value, str):
            raise TypeError("a text is expected")
        if value and "\0" in value:
            raise OverflowError("a text has no zeros")
        return None if value is None else value.encode()


# Types of arguments. p: a pointer that libcede has made, *: one to what it reads or writes.
_LETTERS = {**{letter: type("Number", (_TYPES[letter], _Fits), {}) for letter in "iIQqN"}, "d": ctypes.c_double, "s": _Text,
            **dict.fromkeys("p*", ctypes.c_void_p)}

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
    """Functions of libcede, each with its arguments, a letter and a name that errors have, and what they return."""
    for name, arguments in calls.items() if _lib else ():
        f, arguments = getattr(_lib, "cede_" + name), arguments.split()
        f.argtypes, f.restype, f.names = [_LETTERS[a[0]] for a in arguments], result, [a[1:] for a in arguments]


_declare(connect="*", connected="p", set_class="p icls", set_weight="p Iweight", set_deadline="p Nstream Qdeadline_us",
         set_laxity="p Nstream Qlaxity_us", set_priority="p Nstream ipriority", wanted="p", job_yield="p Iflags",
         request_begin="p * Nstream Qqueued_in_us Qdeadline_us", request_queued="p *", request_end="p *",
         lead_cuda="p Qkeep_us", job_acquire="p qtimeout_us", get_statistics="p * N")
_declare(None, close="p")
_declare(ctypes.c_double, share="p")

_ERRORS = {errno.EINVAL: ValueError, errno.ENOMEM: MemoryError, errno.ESHUTDOWN: Closed,
           errno.ENOENT: lambda why: Unknown(errno.ENOENT, why)}
_ANY = range(4096)


def _error(result):
    """The exception for what the latest call of this thread returned."""
    why = _lib.cede_error_text().decode(errors="replace") or os.strerror(-result)
    for name, here in ((r"CEDE_[\w.]*(NO_GPU|EAGER)", "gpu=False"), (r"CEDE_(?=LATENCY|NORMAL|BATCH|TIMEOUT)", "cede."),
                       (r"cede_(?:(?:pool|memory|queue|future|graph|step|scope)_)?(\w+\(\))", r"\1")):
        why = re.sub(name, here, why)  # as Python spells it
    return _ERRORS[-result](why) if -result in _ERRORS else OSError(-result, why)


def _call(name, *args, but=()):
    """Calls libcede. What that returns, if it is no error, or one of `but`; else raises the exception for it."""
    function = getattr(_lib, "cede_" + name)
    try:
        result = function(*args)
    except ctypes.ArgumentError as e:
        number, kind, why = re.match(r"argument (\d+): (?:<class ')?(\w+)(?:'>)?: (.*)", str(e)).groups()
        argument, value = function.names[int(number) - 1], args[int(number) - 1]
        error, why = (ValueError, why) if kind == "OverflowError" else (TypeError, why + _help(argument))
        raise error(f"cede_{name}: {argument} is {value!r}: {why}") from None
    if result and result < 0 and -result not in but:
        raise _error(result)
    return result


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


_OURS = errno.EAGAIN, errno.EBUSY, errno.ECANCELED, errno.EDEADLK, errno.ETIMEDOUT  # libcede returns them itself


def _returned(what, value):
    """What libcede gets of what a function of the program has returned. Raises OSError if that means a failure."""
    number = int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else 0
    if what == "step":  # libcede knows the driver's errors in captures
        return number
    if number < 0 or number and what != "schedule":
        code = errno.EIO if number > 0 or -number in _OURS else min(-number, 4095)
        raise OSError(code, f"{what}() returned {number}, a failure ({os.strerror(code)}): return " + (
            "whether there is a step" if what == "schedule" else "None or 0 for success"))
    return bool(value) if what == "schedule" else 0


class _Calls:
    """Calls of the program's functions by libcede."""
    _raised = None

    def _run(self, what, function, *args):
        """Calls a function of the program. What libcede gets; after a failure a negative errno, and _raise() raises it."""
        try:
            return _returned(what, function(*args))
        except BaseException as e:  # pylint: disable=broad-except
            self._raised = self._raised or e
            return -(getattr(e, "errno", None) if getattr(e, "errno", None) in _ANY[1:] else errno.EIO)

    def _raise(self, result=0):
        """What the latest call returned, unless that is an error, or a function has failed."""
        error, self._raised = self._raised or (_error(result) if result < 0 else None), None
        if error:
            raise error
        return result


class Handle(_Calls):
    """What is open until close(), the end of its `with` block, or until it is forgotten. Later calls, and those of a
    forked child on what its parent has opened, raise Closed; what is to be given back then is gone already."""
    _prefix = ""  # of its functions' names in libcede
    _Config = None
    _own, _flags = (), {}  # fields of _Config that are no settings; settings that are bits of `flags`
    _forks = False  # whether it can be used in a forked child
    _raw = None

    def __init_subclass__(cls):
        if "_Config" in vars(cls):
            cls._own = "size", "flags", *cls._own
            names = [name for name, *_ in cls._Config._fields_ if name not in cls._own] + [*cls._flags]
            cls.__doc__ = f"{cls.__doc__}\n\n    settings: {', '.join(names)}"

    def _configure(self, settings):
        _need(type(self).__name__)
        config = self._Config()
        getattr(_lib, f"cede_{self._prefix}defaults")(ctypes.byref(config))
        return _fill(config, type(self).__name__, settings, self._own, self._flags)

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


class Counted(Handle):
    """A Handle with statistics."""
    _Statistics = None

    def statistics(self, *of):
        """What repr() shows by name."""
        s = self._Statistics()
        self._call("get_statistics", *of, ctypes.byref(s), ctypes.sizeof(s))
        return s


class Given:
    """What release(), the end of its `with` block, or its last reference gives back. Once more does nothing."""
    _of = None  # what it is of, until it is given back

    def release(self):
        """Its work has to have ended."""
        of, self._of = self._of, None
        if of:
            self._back(of)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        return False

    def __del__(self):
        self.release()


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


_Request = _struct("Q8 opaque")


class Request(Given):
    """One request. It ends with its block, however the block ends."""

    def __init__(self, handle, *args):
        self._raw = _Request()
        if handle:
            _call("request_begin", handle, ctypes.byref(self._raw), *args)
        self._of = handle

    def queued(self):
        """The request's first GPU work has been queued; see Client.lead_cuda(). Closed: it has ended."""
        if self._of:
            _call("request_queued", self._of, ctypes.byref(self._raw))
        elif _lib:
            raise Closed("this Request has ended: report its work before the end of its block")

    def _back(self, handle):
        _lib.cede_request_end(handle, ctypes.byref(self._raw))


class Client(Counted):
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

    def request(self, queued_in_us=0, deadline_us=0, stream=JOB):
        """For `with` alone: `with client.request(...):` around the work of one request. queued_in_us: until its first
        work on the GPU is queued."""
        return _Block(self._request, _stream_handle(stream), queued_in_us, deadline_us, TIMEOUT_NOW)

    def _request(self, *args):
        return Request(self._h if _lib else None, *args[:-1])

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
        return self._call("share", without=1.0)


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


def _after(event, release=lambda: None):
    """Waits for the event, if there is one."""
    try:
        if event is not None:
            event.synchronize()
    finally:
        release()


class Lease(ctypes.Structure):
    """Room on a GPU: .device, and .stream for torch.cuda.ExternalStream(); None without a GPU."""
    _fields_ = _layout("P stream i device urgent Q2 opaque")

    def wanted(self):
        """Whether an urgent lease displaces others on this one's GPU: hold the next kernels back until it does not."""
        return bool(any(self.opaque) and _lib.cede_lease_wanted(ctypes.byref(self)))

    def torch(self, stream=None):
        """`with lease.torch():` makes the lease's stream PyTorch's current one, or with `stream` that one (CURRENT:
        the one that is). It runs behind what the former has queued. The end of the block waits for an event behind the
        block's work, not for the stream or the device. PyTorch's rules for tensors on several streams hold
        (Tensor.record_stream). Without a GPU, and without `stream`, it does nothing."""
        # Threads share PyTorch's default stream: if that went on behind this lease, other leases would begin behind it.
        return _in_stream(self, stream, _after, follow=False)


class HeldLease(Given, Lease):
    """A Lease of Pool.acquire() and its like. `room`: of one that was acquired with memory (cede_memory)."""
    room = None

    def _back(self, _):
        _lib.cede_release(ctypes.byref(self))
        if self.room:
            self.room.release()


_Shape = _struct("I blocks threads shared_bytes i priority Q memory_bytes due_us")
_PoolConfig = _struct("N size I flags devices capacity max_concurrent_streams streams target_utilization_percent",
                      "Q utilization_polling_us age_us urgent_us q block_timeout_us stream_timeout_us",
                      "d max_total_occupancy unknown_occupancy memory_reserve_fraction max_slowdown",
                      "I displace reserved P client")


class LeaseWaits(Figures):
    """How many leases waited for one thing, and how long."""
    _fields_ = _layout("Q leases total_us max_us")


class PoolWaits(Figures):
    """By what leases waited for; `none`: they did not wait."""
    _fields_ = [(n, LeaseWaits) for n in ("none", "class_", "limit", "occupancy", "memory", "utilization", "stream")]


class PoolStatistics(Figures):
    """Of one device of a pool; cede_acquire(3) describes them. `error` is the driver's latest."""
    _fields_ = _layout("I devices i has_gpu utilization_percent I active waiting limit d occupancy"
                       " Q started timed_out stolen displaced busy_us", ("waits", PoolWaits), "Q4 reserved c128 error")


class Profile(Figures):
    """What a kernel takes; cede_acquire(3) describes it. limit: LIMIT_THREADS and so on."""
    _fields_ = _layout("d occupancy I registers shared_bytes blocks_per_sm sms limit reserved")


_declare(pool_open="* *", pool_close="p", pool_occupancy="p sname dshare", pool_kernel="p sname Nfunction", release="*",
         acquire="p idevice skernel * qtimeout_us *", lease_wanted="*", pool_profile="p sname * * N",
         pool_get_statistics="p idevice * N")
_declare(None, pool_defaults="*")


class _Block:
    """What is taken for the time of a block, `with` or `async with`. The last of args is a timeout."""
    _entered = False

    def __init__(self, take, *args):
        self._take, self._args = take, args

    def __del__(self, warn=warnings.warn):
        if not self._entered:  # as of a coroutine that was never awaited
            warn("`with` is missing: acquire(), lease(), reserve() and request() take nothing before it", RuntimeWarning, 2)

    def _begin(self, given):
        self._given = given
        return given

    def __enter__(self):
        self._entered = True
        return self._begin(self._take(*self._args))

    def __exit__(self, *_):
        self._given.release()
        return False

    async def __aenter__(self):
        self._entered = True
        try:
            given = self._take(*self._args[:-1], TIMEOUT_NOW)
        except (BlockingIOError, MemoryError):
            if self._args[-1] == TIMEOUT_NOW:
                raise
            given = await self._wait()
        return self._begin(given)

    async def __aexit__(self, *error):
        return self.__exit__(*error)

    async def _wait(self):
        """Waits in a thread of its own: those of the loop's executor may be needed by the programs that hold
        leases, to give them back. A lease that comes after the task was cancelled is released."""
        import asyncio  # pylint: disable=import-outside-toplevel
        from concurrent import futures  # pylint: disable=import-outside-toplevel
        comes = futures.Future()
        comes.set_running_or_notify_cancel()  # the wait itself goes on

        def wait():
            try:
                comes.set_result(self._take(*self._args))
            except Exception as e:  # for the task
                comes.set_exception(e)

        threading.Thread(target=wait, daemon=True).start()
        try:
            return await asyncio.wrap_future(comes)
        except BaseException:
            comes.add_done_callback(lambda c: c.exception() or c.result().release())
            raise


_task = threading.local()  # depth: of the scopes whose tasks this thread runs (cede_scope)


class _Streamed(_Block):
    """A lease of a _Block whose stream, or another, is PyTorch's current one in the block. The lease is released when the
    work of the block has run; the block waits for that in tasks of a scope alone, with which their leases end."""

    def __init__(self, block, stream, pool):
        super().__init__(block._take, *block._args)
        self._stream, self._pool, block._entered = stream, pool, True

    def _begin(self, given):
        self._block = _in_stream(given, self._stream, lambda event: self._ended(event, given.release))
        self._block.__enter__()
        return given

    def _ended(self, event, release):
        (_after if event is None or getattr(_task, "depth", 0) else self._pool._later)(event, release)

    def __exit__(self, *error):
        return self._block.__exit__(*error)


class Pool(Counted):
    """Leases for the threads of this program; cede_acquire(3) describes the settings. client: a Client
    that leases with a deadline, or with report_all=True all leases, are reported to as requests. gpu=False: as without
    a GPU.

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

    What a lease is for, `kernel` and shape: the name of one that occupancy() or kernel() knows; blocks, threads,
    shared_bytes, priority, memory_bytes, due_us. device: the preferred GPU, or with only=True the only one; -1: any."""

    _prefix, _Config, _Statistics, _own = "pool_", _PoolConfig, PoolStatistics, ("reserved", "client")
    _flags = {"gpu": 1, "report_all": 2}

    def __init__(self, client=None, **settings):
        from concurrent import futures  # pylint: disable=import-outside-toplevel
        config = self._configure(settings)
        self._threads = futures.ThreadPoolExecutor(max(config.capacity, 1), "cede-lease")  # which wait for events
        config.client = handle = _of(client, Client, "client")
        self._open("pool_open", ctypes.byref(config), ..., uses=handle)

    def occupancy(self, name, share):
        """A lease for the kernel `name` takes this share of a GPU's warps, 0 to 1."""
        self._call("occupancy", name, share)

    def kernel(self, name, function):
        """The driver computes what a lease for the kernel `name` takes, from its shape. function: a CUfunction, as a number,
        whose context is current."""
        self._call("kernel", name, function)

    def profile(self, name, **shape):
        """What a lease for the kernel `name` and this shape takes: a Profile."""
        shape, out = _fill(_Shape(), "a lease", shape), Profile()
        self._call("profile", name, ctypes.byref(shape), ctypes.byref(out), ctypes.sizeof(out))
        return out

    def statistics(self, device=0):
        """Of leases on one device."""
        return super().statistics(device)

    def try_acquire(self, device=-1, kernel=None, only=False, **shape):
        """A HeldLease, or None: there is no room now."""
        if "timeout_us" in shape:
            raise TypeError("Pool.try_acquire() does not wait: use acquire(timeout_us=...)")
        try:
            return self.acquire(device, kernel, TIMEOUT_NOW, only, **shape).__enter__()
        except BlockingIOError:
            return None

    def acquire(self, device=-1, kernel=None, timeout_us=TIMEOUT_DEFAULT, only=False, **shape):
        """For `with` alone, which waits: `with pool.acquire(...) as lease:`. Raises TimeoutError; BlockingIOError with a
        timeout of 0; in a task of a cede_scope.Scope OSError ECANCELED as soon as that has ended."""
        if isinstance(device, str):
            raise TypeError(f"Pool.acquire: device is {device!r}: give a number; for a kernel of this name, kernel={device!r}")
        return _Block(self._acquire, device + 0x10000 if only else device, kernel, _fill(_Shape(), "a lease", shape),
                      timeout_us)

    def lease(self, device=-1, kernel=None, timeout_us=TIMEOUT_DEFAULT, only=False, stream=None, **shape):
        """For `with` alone: acquire(), and Lease.torch() without its wait. `with pool.lease(...) as lease:` makes the
        lease's stream PyTorch's current one, or with `stream` that one: a stream of PyTorch, whose GPU it is then for, or
        CURRENT. At the end of the block an event is recorded; the stream that was current before goes on behind it, and
        the lease is released when it occurs. Neither the host nor the device waits, except in a task of a scope, which
        ends with its work. What the host reads afterwards it waits for as always: tensor.cpu(), event.synchronize().
        In `async with` do not await inside the block, unless `stream` is CURRENT."""
        if stream is not None and stream is not CURRENT:
            if not hasattr(stream, "cuda_stream"):
                raise TypeError(f"a stream of PyTorch or cede.CURRENT is expected, not {stream!r}")
            device, only = stream.device.index, True
        return _Streamed(self.acquire(device, kernel, timeout_us, only, **shape), stream, self)

    def _later(self, event, release):
        """Has a thread wait for the event and then release the lease. After close() it has ended."""
        try:
            if self._h:
                self._threads.submit(_after, event, release)
        except (Closed, RuntimeError):
            release()

    def _acquire(self, device, kernel, shape, timeout_us):
        lease = HeldLease()
        _call("acquire", self._h, device, kernel, ctypes.byref(shape), timeout_us, ctypes.byref(lease))
        lease._of = self
        return lease

    def _end(self, raw):
        """All leases end. Their work still runs to its end."""
        self._threads.shutdown(wait=False)
        raw.end()
