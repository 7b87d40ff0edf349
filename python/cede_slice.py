"""libcede's slices and checkpoints for Python, by ctypes: a long computation on the GPU that can stop, be saved and go
on, also after kill -9.

    import cede, cede_slice
    file = cede_slice.Checkpoint("sum.checkpoint", work=VERSION)
    progress = cede_slice.Progress()
    saved = file.read(state)                 # a buffer such as a pinned numpy array; None: there is no checkpoint
    if saved is not None:
        progress.done = saved

    def launch(first, count, stream):        # puts elements first to first + count - 1 into the stream, and waits for
        kernel((blocks,), (256,), (sums, first, count), stream=stream)    # nothing

    def save(done):                          # nothing runs meanwhile
        state[:] = sums.get()
        file.write(done, state)

    while not cede_slice.run(progress, N, launch, save, client=cede.Client(cls=cede.BATCH)):
        time.sleep(1)                        # a job of a higher class waits: it is saved

cede_slice_run(3) describes everything. Needs the library, but no daemon. Create a CUDA context first, in the thread that
calls: torch.cuda.init(), and torch.cuda.set_device() or any work; or give gpu=False, where a slice has run when launch()
returns.
"""
import ctypes
import errno
import os

import cede
import cede_scope

_u64, _p = ctypes.c_uint64, ctypes.c_void_p
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, _p, _u64, _u64, _p)
_SAVE = ctypes.CFUNCTYPE(ctypes.c_int, _p, _u64)


_Config = cede._struct("N size I flags depth Q target_us count multiple checkpoint_us q timeout_us P scope client",
                       "q patience_us P lease stream arg", ("launch", _LAUNCH), ("save", _SAVE))
_File = cede._struct(("path", ctypes.c_char_p), "Q work c512 error")


class Progress(cede.Figures):
    """How far a computation is. Set `done` from a checkpoint; then hand it to each run() as the last one left it."""
    _fields_ = cede._layout("Q done saved next_count slices gpu_us idle_us c256 error Q4 reserved")


cede._declare(slice_run="* *", checkpoint_write="* Qdone * N", checkpoint_read="* * * N")
cede._declare(None, slice_defaults="*")


def run(progress, count, launch, save=None, *, client=None, lease=None, scope=None, stream=None, **settings):
    """Runs elements progress.done to count - 1. True: all are done, and saved. False: a job of a higher class waits, or
    timeout_us has passed; what was done is saved, and the next call goes on. OSError: the driver failed.
    lease: a cede.Lease that the run holds; no slice begins while an urgent lease displaces it. scope: a
    cede_scope.Scope, whose end ends the run with OSError ECANCELED; what was done is saved. stream: one of PyTorch,
    cede.CURRENT, or a handle; without it the lease's, or one of the run's own.
    An exception in launch() or save() ends the run, and comes out of it; so does a number that means a failure.
    settings: depth, target_us, multiple, checkpoint_us, patience_us, timeout_us, gpu."""
    cede._need("cede_slice.run()")
    config, calls = _Config(), cede._Calls()
    cede._lib.cede_slice_defaults(ctypes.byref(config))
    if not isinstance(progress, Progress):
        raise TypeError(f"progress: a Progress is expected, not {progress!r}")
    own = ("size", "flags", "scope", "client", "lease", "stream", "arg", "launch", "save")
    cede._fill(config, "cede_slice.run()", {"count": count, **settings}, own, {"gpu": 1})
    config.stream = cede._stream_handle(stream)
    handles = cede._of(scope, cede_scope.Scope, "scope"), cede._of(client, cede.Client, "client")  # outlive the run
    config.scope, config.client = handles
    if cede._a(lease, cede.Lease, "lease") is not None:
        config.lease = ctypes.cast(ctypes.pointer(lease), _p)
        config.stream = config.stream or lease.stream
    cede._function(launch, "launch")
    config.launch = _LAUNCH(lambda _, first, n, on: calls._run("launch", launch, first, n, on))
    if save is not None:
        cede._function(save, "save")
        config.save = _SAVE(lambda _, done: calls._run("save", save, done))
    result = cede._call("slice_run", ctypes.byref(config), ctypes.byref(progress), but=cede._ANY)
    calls._raise(0 if result in (-errno.EAGAIN, -errno.ETIMEDOUT) else result)
    return result == 0


class Checkpoint:
    """A file that is whole or not there. work: a number for what is computed; a file of other work is refused."""

    def __init__(self, path, work):
        cede._need("Checkpoint")
        if b"\0" in os.fsencode(path):
            raise ValueError(f"a path has no zeros: {path!r}")
        self._file = cede._fill(_File(), "Checkpoint", {"path": os.fsencode(path), "work": work})

    @staticmethod
    def _buffer(data, writable):
        view = memoryview(data)
        if not view.contiguous or (writable and view.readonly):
            raise ValueError("the state has to be one block of memory" + (" that can be written" if writable else ""))
        if not view.nbytes:
            return None, 0
        if view.readonly:
            return ctypes.c_char_p(view.tobytes()), view.nbytes
        return (ctypes.c_char * view.nbytes).from_buffer(view.cast("B")), view.nbytes

    def write(self, done, data):
        """data: bytes, or anything with a buffer, such as a numpy array."""
        raw, size = self._buffer(data, False)
        cede._call("checkpoint_write", ctypes.byref(self._file), done, raw, size)

    def read(self, data):
        """Fills data, and returns how many elements are done. None: there is no checkpoint. OSError: it is damaged
        (EBADMSG), of another format (EPROTO) or of other work (ESTALE)."""
        done = _u64()
        raw, size = self._buffer(data, True)
        found = cede._call("checkpoint_read", ctypes.byref(self._file), ctypes.byref(done), raw, size, but=(errno.ENOENT,)) == 0
        return done.value if found else None
