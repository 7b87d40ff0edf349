"""libcede's scopes for Python, by ctypes: tasks that begin and end together.

    import cede, cede_scope
    with cede_scope.Scope(threads=8, timeout_us=10 * 10**6) as scope:
        for item in items:
            scope.fork(infer, item)              # calls infer(item)

    def infer(item):                             # leases that it leaves are released with the scope
        with pool.lease(kernel="gemm"):
            return model(item)

The end of the block waits for all tasks. The first task that raises cancels the others, and its exception comes out of
the block; an exception in the block itself cancels the tasks too. A scope is also cancelled by its deadline
(TimeoutError), by cancel() and with its parent (OSError ECANCELED). A task that runs checks scope.cancelled() and
returns; one that has not begun never begins; one that waits for a lease, for memory or for a
batch gets OSError ECANCELED.

`scope=` of cede_slice.run(), cede_step.Loop() and its join() end with a scope as well.
cede_scope_open(3) describes everything. Needs the library, but no daemon and no GPU.
"""
import atexit
import contextlib
import ctypes
import errno
import os
import threading
import weakref

import cede

_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def _load(p=ctypes.c_void_p):
    return cede._declare(cede._lib, (
        ("scope_open", [ctypes.POINTER(p), p, ctypes.c_uint, ctypes.c_int64]), ("scope_fork", [p, _TASK, p]),
        ("scope_cancel", [p], None), ("scope_cancelled", [p]), ("scope_join", [p]), ("scope_close", [p])))


_lib = _load()


def available():
    """Whether the library was found, and has scopes."""
    return _lib is not None


class _Handle(ctypes.c_void_p):
    """A scope of libcede. It is freed when its last reference goes: its Scope's, that of a scope within it, of a loop,
    or of a call in another thread."""
    parent = None

    def __del__(self):
        if _lib and self:
            _lib.cede_scope_close(self)


_scopes = weakref.WeakSet()


@atexit.register
def _close_all():
    # Once the interpreter ends, tasks do not go on, and waiting for them would not end.
    for scope in list(_scopes):
        scope.close()


def _in_child():
    # The threads of its parent's scopes are not there to be waited for.
    for scope in list(_scopes):
        if scope._s:
            scope._s.value = None


os.register_at_fork(after_in_child=_in_child)


class Scope:
    """threads: tasks that run at a time, besides the thread that joins, which runs tasks too. Within another scope
    (parent) it is cancelled with that, and its block has to end before that one's. stream: a stream of PyTorch that is
    the current one in the tasks; cede.CURRENT: the one that is current now. Tasks begin in PyTorch's default stream
    otherwise."""
    _s = None

    def __init__(self, threads, timeout_us=cede.TIMEOUT_DEFAULT, parent=None, stream=None):
        cede._need(_lib, "cede_scope_open")
        self._current = contextlib.nullcontext
        if stream is not None:
            import torch  # pylint: disable=import-outside-toplevel
            stream = torch.cuda.current_stream() if stream is cede.CURRENT else stream
            self._current = lambda: torch.cuda.stream(stream)
        self._lock, self._tasks, self._last, self._raised = threading.Lock(), {}, 0, None
        self._run, s = _TASK(self._on_run), _Handle()
        if parent is not None and not parent._s:
            raise ValueError("the parent is closed")
        self._parent, s.parent = parent, parent and parent._s
        cede._check(_lib.cede_scope_open(ctypes.byref(s), s.parent, threads, timeout_us), cede._said())
        self._s = s
        cede._used[id(self)] = s
        _scopes.add(self)

    def _on_run(self, _, key):
        with self._lock:
            task, args = self._tasks.pop(key)
        cede._task.depth = getattr(cede._task, "depth", 0) + 1
        try:
            with self._current():
                task(*args)
            return 0
        except BaseException as e:  # pylint: disable=broad-except
            with self._lock:
                if not self._raised and not self.cancelled():  # what follows a stop is no reason
                    self._raised = e
            return -errno.EIO
        finally:
            cede._task.depth -= 1

    def fork(self, task, *args):
        """Adds a task, from any thread and from tasks; they begin in this order. OSError EBUSY: the scope was joined;
        ECANCELED; TimeoutError."""
        with self._lock:
            self._last += 1
            key, self._tasks[self._last] = self._last, (task, args)
        result = _lib.cede_scope_fork(self._s, self._run, key)
        if result < 0:
            with self._lock:
                self._tasks.pop(key, None)
            cede._check(result)

    def cancelled(self):
        """Whether tasks are to return: one failed, the deadline has passed, or it or its parent was cancelled."""
        return bool(_lib.cede_scope_cancelled(self._s))

    def cancel(self):
        """No further task begins."""
        _lib.cede_scope_cancel(self._s)

    def join(self):
        """Waits until all tasks have ended, as the end of the block does, and raises what that raises. OSError EDEADLK:
        a task of the scope called this."""
        result = _lib.cede_scope_join(self._s)
        if result == -errno.EDEADLK:
            raise OSError(errno.EDEADLK, "a task cannot wait for the scope that it is in")
        self._tasks.clear()  # those that never began
        if self._raised:
            raise self._raised
        if result < 0:
            why = "the scope was cancelled" if result == -errno.ECANCELED else os.strerror(-result)
            raise OSError(-result, why)

    def close(self):
        """Cancels the tasks unless they were joined, and waits for those that run. Not to be used afterwards. A task of
        the scope that calls this cancels it, and waits for nothing."""
        if _lib and self._s:
            _lib.cede_scope_cancel(self._s)
            if _lib.cede_scope_join(self._s) != -errno.EDEADLK:  # by one of its tasks: it stays
                self._s = None
                cede._used.pop(id(self), None)

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.join()
        finally:
            self.close()
        return False
