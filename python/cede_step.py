"""libcede's overlap loop and future map for programs that serve models with PyTorch, by ctypes: while the GPU
computes a step, the CPU schedules and launches the next one, with tokens that are not known yet.

    import cede_step
    futures = cede_step.Futures()
    loop = cede_step.Loop(schedule, launch, finish, depth=2, batch=64, futures=futures, stream=stream)
    loop.join(request)
    while loop.once(): ...

    def schedule(step):                      # the next step: its requests, and what they need
        for request in running:
            symbol = loop.add(request)       # None: it has left, or the step is full
            tokens.append(symbol or request.last_token)
        return bool(tokens)                  # False: there is nothing to run

    def launch(step):                        # puts the step into the stream, and waits for nothing
        with torch.cuda.stream(stream):
            inputs.copy_(pinned[step.lane], non_blocking=True)
            futures.resolve(inputs, step.stream)
            graph.replay()
            futures.store(outputs[:step.n], step.symbol, step.stream)

    def finish(step):                        # it has run
        for request, token, surplus in zip(step.requests, step.results, step.surplus): ...
            loop.leave(request)

cede_step_open(3) and cede_future_open(3) describe everything. Tensors are of int32 or int64, with one dimension.
Needs the library, but no daemon. Create a CUDA context first, in the thread that calls: torch.cuda.init(), and
torch.cuda.set_device() or any work; or give gpu=False, where all is in host memory and nothing overlaps.
"""
import ctypes
import errno
import os
import threading

import cede

DEPTH_MAX = 4

_u64, _i64, _uint, _int, _p = ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p


class _Step(ctypes.Structure):
    _fields_ = [("number", _u64), ("batch", _p), ("stream", _p), ("lane", _uint), ("n", _uint),
                ("user", ctypes.POINTER(_p)), ("symbol", _i64), ("error", _int),
                ("result", ctypes.POINTER(_i64)), ("surplus", ctypes.POINTER(ctypes.c_ubyte)),
                ("gpu_us", _u64), ("idle_us", _u64)]


_STEP = ctypes.CFUNCTYPE(_int, _p, ctypes.POINTER(_Step))
_LEFT = ctypes.CFUNCTYPE(None, _p, _p, _int)


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", _uint), ("depth", _uint), ("batch", _uint),
                ("requests", _uint), ("stream", _p), ("futures", _p), ("scope", _p), ("arg", _p),
                ("schedule", _STEP), ("launch", _STEP), ("finish", _STEP), ("left", _LEFT)]


class _FutureConfig(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", _uint), ("slots", _uint)]


class _Array(ctypes.Structure):
    _fields_ = [("address", _u64), ("stride", _i64), ("n", _uint), ("bytes", _uint)]


class Statistics(cede.Figures):
    """See cede/step.h; times in microseconds."""
    _fields_ = [(name, _u64) for name in (
        "steps", "failed", "results", "surplus", "joined", "left", "blocked", "schedule_us", "launch_us",
        "finish_us", "wait_us", "hidden_us", "gpu_us", "idle_us")] + [
            ("running", _uint), ("requests", _uint), ("error", ctypes.c_char * 128)]


def _load(pointer=ctypes.POINTER):
    return cede._declare(cede._lib, (
        ("step_open", [pointer(_Config), pointer(_p)]), ("step_close", [_p]),
        ("step_join", [_p, _p, _p, _i64, pointer(_u64)]), ("step_leave", [_p, _u64, _int]),
        ("step_add", [_p, _u64, pointer(_i64)]), ("step_once", [_p]), ("step_defaults", [pointer(_Config)], None),
        ("step_get_statistics", [_p, pointer(Statistics), ctypes.c_size_t]),
        ("future_open", [pointer(_FutureConfig), pointer(_p)]), ("future_defaults", [pointer(_FutureConfig)], None),
        ("future_store", [_p, _p, pointer(_Array), _i64]), ("future_resolve", [_p, _p, pointer(_Array)]),
        ("future_store_placed", [_p, _p, pointer(_Array)]), ("future_place", [_p, _p, _i64, _uint]),
        ("future_close", [_p], None)))


_lib = _load()


def available():
    """Whether the library was found, and has the loop."""
    return _lib is not None


def _check(result, what, why=None):
    cede._check(result, f"{what}: {why or cede._said()}")
    return result


def _array(tensor):
    stride = tensor.stride(0) if tensor.numel() > 1 else 1
    return ctypes.byref(_Array(tensor.data_ptr(), stride, tensor.numel(), tensor.element_size()))


class Futures:
    """A future map. slots: a power of two; 2 * depth - 1 batches never hold a step back."""

    def __init__(self, slots=4096, gpu=True):
        cede._need(_lib, "cede_step_open")
        config = _FutureConfig()
        _lib.cede_future_defaults(ctypes.byref(config))
        config.slots, config.flags = slots, not gpu
        self._f = _p()
        _check(_lib.cede_future_open(ctypes.byref(config), ctypes.byref(self._f)), "the future map")

    def resolve(self, inputs, stream):
        """Replaces the symbols (negative numbers) in a tensor by what they stand for, in stream order."""
        _check(_lib.cede_future_resolve(self._f, cede._stream_handle(stream), _array(inputs)), "resolving symbols")

    def store(self, values, symbol, stream):
        """Gives the symbol, and those after it, the values, in stream order."""
        _check(_lib.cede_future_store(self._f, cede._stream_handle(stream), _array(values), symbol), "storing results")

    def store_placed(self, values, stream):
        """For a CUDA graph: as store(), to where place() said before the graph was launched."""
        _check(_lib.cede_future_store_placed(self._f, cede._stream_handle(stream), _array(values)), "storing results")

    def place(self, symbol, n, stream):
        _check(_lib.cede_future_place(self._f, cede._stream_handle(stream), symbol, n), "placing results")

    def close(self):
        """After the loop, and when all work that uses the map has ended."""
        f, self._f = self._f, None
        _lib.cede_future_close(f)


class Step:
    """What the functions get; attributes that one of them sets are there in the next. `results` and `surplus`
    are for finish(), one for each of `requests`; without a map or after an error there are no results. Also for
    finish(): how long the GPU computed the step (gpu_us), and had nothing to do before it (idle_us)."""

    def __init__(self, raw):
        self.number, self.lane, self.stream = raw.number, raw.lane, raw.stream
        self.requests, self.results, self.surplus, self.error = [], None, [], 0
        self.gpu_us = self.idle_us = 0

    @property
    def n(self):
        return len(self.requests)


class Loop:
    """The functions are called by once(); an exception in one of them comes out of it. left: called with a
    request and a reason when no step has it any more. Requests are objects that can be keys of a dict. stream: one of
    PyTorch, cede.CURRENT, or a handle; without it the loop makes one. scope: a cede_scope.Scope; once it is cancelled,
    no step is scheduled, and once() raises OSError ECANCELED."""

    def __init__(self, schedule, launch, finish, left=None, *, depth=2, batch=256, requests=1024, futures=None,
                 stream=None, scope=None, gpu=True, spin=False):
        cede._need(_lib, "cede_step_open")
        self._schedule, self._launch, self._finish, self._left = schedule, launch, finish, left
        self._lock, self._ids, self._users, self._last = threading.Lock(), {}, {}, 0
        self._steps, self._raised = {}, None
        self._config = c = _Config()  # holds the functions
        _lib.cede_step_defaults(ctypes.byref(c))
        c.flags = (0 if gpu else 1) | (2 if spin else 0)
        c.depth, c.batch, c.requests, c.stream = depth, batch, requests, cede._stream_handle(stream)
        self._scope = scope, scope and scope._s  # have to outlive the loop
        c.scope = scope and scope._s
        self._futures = futures  # has to outlive the loop
        c.futures = futures and futures._f
        c.schedule, c.launch, c.finish = _STEP(self._on_schedule), _STEP(self._on_launch), _STEP(self._on_finish)
        c.left = _LEFT(self._on_left)
        self._l = _p()
        _check(_lib.cede_step_open(ctypes.byref(c), ctypes.byref(self._l)), "the loop")

    def _call(self, function, *args):
        """Its value; or a negative error, and the exception is kept."""
        try:
            return function(*args)
        except BaseException as e:  # pylint: disable=broad-except
            self._raised = self._raised or e
            return -errno.EIO

    def _on_schedule(self, _, raw):
        step = Step(raw.contents)
        self._scheduling = step
        r = self._call(self._schedule, step)
        self._steps[step.lane] = step
        return r if isinstance(r, int) and r < 0 else bool(r)

    def _on_launch(self, _, raw):
        step = self._steps[raw.contents.lane]
        step.symbol = raw.contents.symbol
        r = self._call(self._launch, step)
        return r if isinstance(r, int) and r < 0 else 0

    def _on_finish(self, _, raw):
        step, n = self._steps.pop(raw.contents.lane), raw.contents.n
        step.error, step.gpu_us, step.idle_us = raw.contents.error, raw.contents.gpu_us, raw.contents.idle_us
        step.surplus = [bool(v) for v in raw.contents.surplus[:n]]
        step.results = raw.contents.result[:n] if raw.contents.result else None
        r = self._call(self._finish, step)
        return r if isinstance(r, int) and r < 0 else 0

    def _on_left(self, _, key, reason):
        with self._lock:
            request, _ = self._users.pop(key)
            del self._ids[request]
        if self._left:
            self._call(self._left, request, reason)

    def join(self, request, timeout_us=cede.TIMEOUT_DEFAULT, scope=None):
        """It can be scheduled from the next step on; from any thread. With a scope it leaves when that is cancelled.
        OSError ENOSPC: `requests` have joined."""
        number = _u64()
        with self._lock:
            if request in self._ids:
                raise ValueError("the request has joined before")
            self._last += 1
            kept = scope, scope and scope._s  # as long as the request
            result = _lib.cede_step_join(self._l, self._last, kept[1], timeout_us, ctypes.byref(number))
            _check(result, "a request", cede._said())
            self._users[self._last] = request, kept
            self._ids[request] = number.value

    def leave(self, request, reason=0):
        """It has ended: results that are still to come are surplus. From any thread. False: it has left before."""
        number = self._ids.get(request)
        return number is not None and _lib.cede_step_leave(self._l, number, reason) == 0

    def add(self, request):
        """In schedule(): puts it into the step. The symbol of its latest result, or 0 where finish() had that; None:
        it has left, or the step is full, or has it."""
        symbol = _i64()
        if request not in self._ids or _lib.cede_step_add(self._l, self._ids[request], ctypes.byref(symbol)) < 0:
            return None
        self._scheduling.requests.append(request)
        return symbol.value

    def once(self):
        """False: there is nothing to do, and nothing runs."""
        r = _lib.cede_step_once(self._l)
        self._raise()
        return _check(r, "a step") > 0

    def _raise(self):
        raised, self._raised = self._raised, None
        if raised:
            raise raised

    def statistics(self):
        s = Statistics()
        _check(_lib.cede_step_get_statistics(self._l, ctypes.byref(s), ctypes.sizeof(s)), "statistics")
        return s

    def close(self):
        """Waits for the steps that run; all requests leave. Raises what `left` raises, and is closed then."""
        _check(_lib.cede_step_close(self._l), "closing the loop")
        self._l = None
        self._raise()
