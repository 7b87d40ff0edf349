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

_u64, _uint, _int, _p = ctypes.c_uint64, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p
_LAUNCH = ctypes.CFUNCTYPE(_int, _p, _u64, _u64, _p)
_SAVE = ctypes.CFUNCTYPE(_int, _p, _u64)


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", _uint), ("depth", _uint), ("target_us", _u64), ("count", _u64),
                ("multiple", _u64), ("checkpoint_us", _u64), ("timeout_us", ctypes.c_int64), ("scope", _p),
                ("cede", _p), ("patience_us", ctypes.c_int64), ("lease", _p), ("stream", _p), ("arg", _p), ("launch", _LAUNCH), ("save", _SAVE)]


class Progress(cede.Figures):
    """How far a computation is. Set `done` from a checkpoint; then hand it to each run() as the last one left it."""
    _fields_ = [(name, _u64) for name in ("done", "saved", "next_count", "slices", "gpu_us", "idle_us")] + [
        ("error", ctypes.c_char * 256), ("reserved", _u64 * 4)]


class _File(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("work", _u64), ("error", ctypes.c_char * 512)]


def _load(pointer=ctypes.POINTER):
    return cede._declare(cede._lib, (
        ("slice_run", [pointer(_Config), pointer(Progress)]), ("slice_defaults", [pointer(_Config)], None),
        ("checkpoint_write", [pointer(_File), _u64, _p, ctypes.c_size_t]),
        ("checkpoint_read", [pointer(_File), pointer(_u64), _p, ctypes.c_size_t])))


_lib = _load()


def available():
    """Whether the library was found, and has slices."""
    return _lib is not None


def _error(result, text):
    text = text.decode(errors="replace") or os.strerror(-result)
    return ValueError(text) if result == -errno.EINVAL else OSError(-result, text)


def run(progress, count, launch, save=None, *, client=None, lease=None, scope=None, stream=None, gpu=True, **settings):
    """Runs elements progress.done to count - 1. True: all are done, and saved. False: a job of a higher class waits, or
    the deadline (timeout_us) has passed; what was done is saved, and the next call goes on. OSError: the driver failed.
    lease: a cede.Lease that the run holds; no slice begins while an urgent lease displaces it. scope: a
    cede_scope.Scope, whose end ends the run with OSError ECANCELED; what was done is saved. stream: one of PyTorch,
    cede.CURRENT, or a handle; without it the lease's, or one of the run's own.
    An exception in launch() or save() ends the run, and comes out of it. settings: depth, target_us, multiple,
    checkpoint_us, patience_us, timeout_us."""
    cede._need(_lib, "cede_slice_run")
    config, raised = _Config(), []
    _lib.cede_slice_defaults(ctypes.byref(config))
    for name, value in settings.items():
        if name not in ("depth", "target_us", "multiple", "checkpoint_us", "patience_us", "timeout_us"):
            raise TypeError("no such setting: " + name)
        if value < 0 and name not in ("patience_us", "timeout_us"):
            raise ValueError(name + " is negative")
        setattr(config, name, value)

    def call(function, *args):
        try:
            function(*args)
            return 0
        except BaseException as e:  # pylint: disable=broad-except
            raised.append(e)
            return -errno.EIO

    config.flags, config.count, config.stream = 0 if gpu else 1, count, cede._stream_handle(stream)
    handles = scope and scope._s, client and client._c  # have to outlive the run
    config.scope, config.cede = handles
    config.lease = ctypes.cast(ctypes.pointer(lease), _p) if lease is not None else None
    if lease is not None and stream is None:
        config.stream = lease.stream
    config.launch = _LAUNCH(lambda _, first, n, on: call(launch, first, n, on))
    if save:
        config.save = _SAVE(lambda _, done: call(save, done))
    result = _lib.cede_slice_run(ctypes.byref(config), ctypes.byref(progress))
    if raised:
        raise raised[0]
    if result in (-errno.EAGAIN, -errno.ETIMEDOUT):
        return False
    if result < 0:
        raise _error(result, progress.error)
    return True


class Checkpoint:
    """A file that is whole or not there. work: a number for what is computed; a file of other work is refused."""

    def __init__(self, path, work):
        cede._need(_lib, "cede_slice_run")
        self._file = _File(os.fsencode(path), work)

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
        result = _lib.cede_checkpoint_write(ctypes.byref(self._file), done, raw, size)
        if result < 0:
            raise _error(result, self._file.error)

    def read(self, data):
        """Fills data, and returns how many elements are done. None: there is no checkpoint. OSError: it is damaged
        (EBADMSG), of another format (EPROTO) or of other work (ESTALE)."""
        done = _u64()
        raw, size = self._buffer(data, True)
        result = _lib.cede_checkpoint_read(ctypes.byref(self._file), ctypes.byref(done), raw, size)
        if result == -errno.ENOENT:
            return None
        if result < 0:
            raise _error(result, self._file.error)
        return done.value
