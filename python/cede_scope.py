"""libcede's scopes for Python, by ctypes: tasks that begin and end together.

    import cede, cede_scope
    with cede_scope.Scope(threads=8, timeout_us=10 * 10**6) as scope:
        for item in items:
            scope.fork(infer, item)              # calls infer(item)

    def infer(item):                             # leases that it leaves are released with the scope
        with pool.lease(kernel="gemm"):
            return model(item)

The end of the block waits for all tasks. The first task that raises cancels the others, and its exception comes out of
the block, also where fork() has raised OSError ECANCELED for it, which is its context then; an exception in the block
itself cancels the tasks too. A task also fails by a number that it returns, as
cede's rules say. A scope ends early by timeout_us, too (TimeoutError), by cancel() and with its parent (OSError
ECANCELED). A task that runs checks scope.cancelled() and returns; one that has not begun never begins; one that waits
for a lease, for memory or for a batch gets OSError ECANCELED, whatever has ended the scope.

`scope=` of cede_slice.run(), cede_step.Loop() and its join() end with a scope as well.
cede_scope_open(3) describes everything. Needs the library, but no daemon and no GPU.
"""
import atexit
import contextlib
import ctypes
import errno
import threading
import weakref

import cede

_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


cede._declare(scope_open="* p Ithreads qtimeout_us", scope_fork="p * p", scope_cancelled="p", scope_join="p", scope_close="p")
cede._declare(None, scope_cancel="p")

_scopes = weakref.WeakSet()


@atexit.register
def _close_all():
    # Once the interpreter ends, tasks do not go on, and waiting for them would not end.
    for scope in list(_scopes):
        scope.close()


class Scope(cede.Handle):
    """threads: tasks that run at a time, besides the thread that joins, which runs tasks too. Within another scope
    (parent) it is cancelled with that, and its block has to end before that one's. stream: a stream of PyTorch that is
    the current one in the tasks; cede.CURRENT: the one that is current now. Tasks begin in PyTorch's default stream
    otherwise."""
    _prefix = "scope_"

    def __init__(self, threads, timeout_us=cede.TIMEOUT_DEFAULT, parent=None, stream=None):
        cede._need("Scope")
        self._current = contextlib.nullcontext
        if stream is not None:
            import torch  # pylint: disable=import-outside-toplevel
            stream = torch.cuda.current_stream() if stream is cede.CURRENT else stream
            self._current = lambda: torch.cuda.stream(stream)
        self._lock, self._tasks, self._last, self._raised = threading.Lock(), {}, 0, None
        self._parent = parent  # is not forgotten before
        self._run, handle = _TASK(self._on_run), cede._of(parent, Scope, "parent")
        self._open("scope_open", ..., handle, threads, timeout_us, uses=handle)
        _scopes.add(self)

    def _on_run(self, _, key):
        with self._lock:
            task, args = self._tasks.pop(key)
        cede._task.depth = getattr(cede._task, "depth", 0) + 1
        try:
            with self._current():
                return cede._returned("task", task(*args))
        except BaseException as e:  # pylint: disable=broad-except
            with self._lock:
                if not self._raised and not self.cancelled():  # what follows a stop is no reason
                    self._raised = e
            return -errno.EIO
        finally:
            cede._task.depth -= 1

    def fork(self, task, *args):
        """Adds a task, from any thread and from tasks; they begin in this order. OSError EBUSY: the scope was joined;
        ECANCELED: it has ended, and the end of the block raises the reason instead."""
        handle = self._h
        with self._lock:
            self._last += 1
            key, self._tasks[self._last] = self._last, (cede._function(task, "task"), args)
        try:
            cede._call("scope_fork", handle, self._run, key)
        except BaseException:
            with self._lock:
                self._tasks.pop(key, None)
            raise

    def cancelled(self):
        """Whether tasks are to return: one failed, its time-out has passed, or it or its parent was cancelled."""
        return bool(self._call("cancelled"))

    def cancel(self):
        """No further task begins."""
        self._call("cancel")

    def join(self):
        """Waits until all tasks have ended, as the end of the block does, and raises what that raises. OSError EDEADLK:
        a task of the scope called this."""
        result = self._call("join", but=cede._ANY)
        error = cede._error(result) if result < 0 else None
        if result != -errno.EDEADLK:
            self._tasks.clear()  # those that never began
            error = self._raised or error
        if error:
            raise error

    def _end(self, raw):
        """Cancels the tasks unless they were joined, and waits for those that run. A task of the scope that calls this
        cancels it, and waits for nothing: it stays."""
        cede._call("scope_cancel", raw)
        return cede._call("scope_join", raw, but=cede._ANY) == -errno.EDEADLK

    def __exit__(self, kind, e, _):
        try:
            if kind is None or getattr(e, "errno", None) == errno.ECANCELED and self._raw and self.cancelled():
                self.join()  # raises why the scope has ended, of which that of fork() says nothing
        finally:
            self.close()
        return False
