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
torch.cuda.set_device() or any work; or give gpu=False, where all is in host memory.
"""
import array
import ctypes
import errno
import numbers
import threading

import cede
import cede_queue
import cede_scope

DEPTH_MAX = 4

_u64, _i64, _int, _p = ctypes.c_uint64, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p


_Step = cede._struct("Q number P batch stream I lane n P user q symbol i error", ("result", ctypes.POINTER(_i64)),
                     ("surplus", ctypes.POINTER(ctypes.c_ubyte)), "Q gpu_us idle_us")
_STEP = ctypes.CFUNCTYPE(_int, _p, ctypes.POINTER(_Step))
_LEFT = ctypes.CFUNCTYPE(None, _p, _p, _int)
_JOINED = ctypes.CFUNCTYPE(None, _p, ctypes.POINTER(cede_queue._Batch), _u64)


_Config = cede._struct("N size I flags depth batch requests P stream futures scope queue i device P arg",
                       ("schedule", _STEP), ("launch", _STEP), ("finish", _STEP), ("left", _LEFT), ("joined", _JOINED))
_FutureConfig = cede._struct("N size I flags slots")
_Array = cede._struct("Q address q stride I n bytes")


class Statistics(cede.Figures):
    """See cede/step.h; times in microseconds. hidden_us is 0 with gpu=False."""
    _fields_ = cede._layout("Q steps failed results surplus joined left blocked schedule_us launch_us finish_us wait_us"
                            " hidden_us gpu_us idle_us I running requests c128 error")


class FutureStatistics(cede.Figures):
    """See cede/future.h."""
    _fields_ = cede._layout("I slots free q missing c128 error")


cede._declare(step_open="* *", step_close="p", step_join="p p p qtimeout_us *", step_leave="p Q ireason", step_add="p Q *",
              step_once="p", step_get_statistics="p * N", future_open="* *", future_store="p pstream * qsymbol",
              future_resolve="p pstream *", future_store_placed="p pstream *", future_place="p pstream qsymbol In",
              future_reserve="p In *", future_release="p qsymbol", future_get_statistics="p * N")
cede._declare(None, step_defaults="*", future_defaults="*", future_close="p")


class Futures(cede.Counted):
    """A future map. slots: a power of two; 2 * depth - 1 batches never hold a step back. With gpu=False values are also
    whole numbers, sequences of them, and what has a buffer of them. To be closed when all work that uses it has ended."""
    _prefix, _Config, _Statistics, _flags = "future_", _FutureConfig, FutureStatistics, {"gpu": 1}

    def __init__(self, slots=4096, **settings):
        config = self._configure({"slots": slots, **settings})
        self._gpu = not config.flags
        self._open("future_open", ctypes.byref(config), ...)

    def _put(self, name, values, stream, *args):
        """Calls it for the values; the numbers that there are then, unless the values are a tensor's."""
        if hasattr(values, "data_ptr"):
            here = values.is_cuda or values.is_pinned() if self._gpu else not values.is_cuda
            if not here or values.dim() != 1 or values.is_floating_point() or values.element_size() not in (4, 8):
                raise ValueError("a tensor has to be of int32 or int64, of one dimension, and " +
                                 ("on the GPU" if self._gpu else "in host memory"))
            there, stride, n, size = None, values.stride(0) if values.numel() > 1 else 1, values.numel(), values.element_size()
            address = values.data_ptr()
        elif self._gpu:
            raise TypeError(f"a map on the GPU takes tensors, not {values!r}")
        else:
            try:
                there = array.array("q", (n for n in ([values] if isinstance(values, numbers.Integral) else values)))
            except OverflowError as e:
                raise ValueError(f"{values!r}: {e}") from None
            (address, n), stride, size = there.buffer_info(), 1, 8
        self._call(name, cede._stream_handle(stream), ctypes.byref(_Array(address, stride, n, size)), *args)
        return there

    def resolve(self, inputs, stream=None):
        """Replaces the symbols (negative numbers) in a tensor or a sequence by what they stand for, in stream order. Of
        one number: returns it, resolved."""
        resolved = self._put("resolve", inputs, stream)
        if resolved and isinstance(inputs, numbers.Integral):
            return resolved[0]
        for i, value in enumerate(resolved or ()):
            inputs[i] = value
        return inputs

    def store(self, values, symbol, stream=None):
        """Gives the symbol, and those after it, the values, in stream order."""
        self._put("store", values, stream, symbol)

    def store_placed(self, values, stream=None):
        """For a CUDA graph: as store(), to where place() said before the graph was launched."""
        self._put("store_placed", values, stream)

    def place(self, symbol, n, stream=None):
        """Before each launch of such a graph: it stores n values, the first under this symbol."""
        self._call("place", cede._stream_handle(stream), symbol, n)

    def reserve(self, n):
        """Slots for n values: the symbol of the first; those of others count down. OSError EAGAIN: fewer are free. For
        steps without a Loop, which does this itself."""
        symbol = _i64()
        self._call("reserve", n, ctypes.byref(symbol))
        return symbol.value

    def release(self, symbol):
        """Frees what reserve() returned this symbol for, once all work that names its symbols has run."""
        self._call("release", symbol)


class Step:
    """What the functions get; attributes that one of them sets are there in the next. `number`: from 1; `lane`: from 0,
    different for all steps that run, for buffers; `stream`: a handle; `symbol`: in launch(), that of the first result, or 0.
    For finish(): `error`: 0, or why the step failed, a negative errno; `results` and `surplus`, one for each of `requests`,
    but without a map or after an error no results; how long the GPU computed the step (gpu_us), and had nothing to do
    before it (idle_us)."""

    def __init__(self, raw):
        self.number, self.lane, self.stream = raw.number, raw.lane, raw.stream
        self.requests, self.results, self.surplus = [], None, []

    @property
    def n(self):
        return len(self.requests)


class Loop(cede.Counted):
    """The functions are called by once(); an exception in one of them, or OSError for a number that means a failure,
    comes out of it. What schedule() returns says whether there is something to run. left: called with a
    request and a reason when no step has it any more. Requests are objects that can be keys of a dict. stream: one of
    PyTorch, cede.CURRENT, or a handle; without it the loop makes one. scope: a cede_scope.Scope; once it is cancelled,
    no step is scheduled, and once() raises OSError ECANCELED. queue: a cede_queue.Queue, of whose `device` the loop takes
    its requests, in place of join(); joined(request, batch), which has to be given then, is called before the first step
    that may have one, and batch.room_bytes is kept until it has left. That queue has no pool."""

    _prefix, _Config, _Statistics = "step_", _Config, Statistics
    _own = ("stream", "futures", "scope", "queue", "arg", "schedule", "launch", "finish", "left", "joined")
    _flags = {"gpu": 1, "spin": 2}

    def __init__(self, schedule, launch, finish, left=None, *, futures=None, stream=None, scope=None, queue=None, joined=None,
                 **settings):
        self._config = c = self._configure(settings)  # holds the functions
        self._left, self._joined = left, joined
        for name, function in (("schedule", schedule), ("launch", launch), ("finish", finish)):
            call = name, cede._function(function, name)
            setattr(c, name, _STEP(lambda _, raw, call=call: self._on(*call, raw.contents)))
        c.left = _LEFT(self._on_left if left is None else cede._function(left, "left") and self._on_left)
        self._lock, self._ids, self._users, self._last, self._steps = threading.Lock(), {}, {}, 0, {}
        c.stream = cede._stream_handle(stream)
        uses = (cede._of(scope, cede_scope.Scope, "scope"), cede._of(futures, Futures, "futures"),
                cede._of(queue, cede_queue.Queue, "queue"))
        c.scope, c.futures, c.queue = uses
        if joined is not None:
            c.joined = _JOINED(cede._function(joined, "joined") and self._on_joined)
        self._uses = scope, futures, queue  # are not forgotten before
        self._open("step_open", ctypes.byref(c), ..., uses=uses)

    def _on(self, what, function, raw):
        """Calls schedule, launch or finish."""
        if what == "schedule":
            self._steps[raw.lane] = self._scheduling = Step(raw)
        step = self._steps[raw.lane]
        step.symbol, step.error, step.gpu_us, step.idle_us = raw.symbol, raw.error, raw.gpu_us, raw.idle_us
        if what == "finish":
            del self._steps[raw.lane]
            step.surplus = [bool(v) for v in raw.surplus[:raw.n]]
            step.results = raw.result[:raw.n] if raw.result else None
        return self._run(what, function, step)

    def _on_joined(self, _, raw, number):
        self._run("joined", self._take, raw, number)

    def _take(self, raw, number):
        key = raw.contents.user[0]
        request = self._uses[2]._take(key)
        with self._lock:
            self._users[key], self._ids[request] = (request, None), number
        self._run("joined", self._joined, request, cede_queue.Batch(raw.contents, [request]))

    def _on_left(self, _, key, reason):
        with self._lock:
            request, _ = self._users.pop(key)
            del self._ids[request]
        if self._left:
            self._run("left", self._left, request, reason)

    def join(self, request, timeout_us=cede.TIMEOUT_DEFAULT, scope=None):
        """It can be scheduled from the next step on; from any thread. With a scope it leaves when that is cancelled.
        OSError ENOSPC: `requests` have joined."""
        number = _u64()
        kept = scope, cede._of(scope, cede_scope.Scope, "scope")  # as long as the request
        with self._h and self._lock:  # in a forked child a thread that is not there may have it
            if request in self._ids:
                raise ValueError("the request has joined before")
            self._last += 1
            self._call("join", self._last, kept[1], timeout_us, ctypes.byref(number))
            self._users[self._last] = request, kept
            self._ids[request] = number.value

    def leave(self, request, reason=0):
        """It has ended: results that are still to come are surplus. From any thread. False: it has left before."""
        with self._h and self._lock:
            number = self._ids.get(request)
            return number is not None and self._call("leave", number, reason, but=(errno.ENOENT,)) == 0

    def statistics(self):
        with self._h and self._lock:
            return super().statistics()

    def add(self, request):
        """In schedule(): puts it into the step. The symbol of its latest result, or 0 where finish() had that; None:
        it has left, or the step is full, or has it."""
        handle, number, symbol = self._h, self._ids.get(request), _i64()
        full = errno.ENOENT, errno.ENOSPC, errno.EALREADY
        if number is None or cede._call("step_add", handle, number, ctypes.byref(symbol), but=full) < 0:
            return None
        self._scheduling.requests.append(request)
        return symbol.value

    def once(self):
        """False: there is nothing to do, and nothing runs."""
        return self._raise(self._call("once", but=cede._ANY)) > 0

    def run(self):
        """once() until there is nothing to do; with a queue, until that is shut down and every request has left."""
        while self.once():
            pass

    def _end(self, raw):
        with self._lock:  # calls of other threads have ended, and later ones raise Closed
            self._raw = None
        try:
            cede._call("step_close", raw)
            raw.value = None
        except OSError:
            self._raw = raw
            raise

    def close(self):
        """Waits for the steps that run; all requests leave. Raises what `left` raises, and is closed then."""
        super().close()
        self._raise()
