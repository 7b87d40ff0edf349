"""libcede's cache of CUDA graphs for Python, by ctypes: a step that runs for batches of many sizes is captured once for
each of a few sizes (buckets), and then launched as one call.

    cache = cede_graph.Cache(step, max_batch=64)
    size = cache.launch(stream, len(batch))  # that of the graph; 0: the step ran without one

    def step(stream, n):                     # puts a step for n into the stream (a number), and waits for nothing
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            model(inputs[:n])

An exception in the step comes out of launch() or prepare(). Needs the library, but no daemon. One thread at a time may use
a cache, with the context current in which it was opened. cede_graph_open(3) describes everything.
"""
import ctypes

import cede

EAGER = 1  # a flag of Cache: captures nothing, and needs no GPU

_uint, _u64, _p = ctypes.c_uint, ctypes.c_uint64, ctypes.c_void_p
_STEP = ctypes.CFUNCTYPE(ctypes.c_int, _p, _p, _uint)


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", _uint), ("max_batch", _uint), ("nbuckets", _uint),
                ("buckets", ctypes.POINTER(_uint)), ("warmups", _uint), ("max_graphs", _uint), ("max_bytes", _u64)]


class Bucket(cede.Figures):
    """One size of a cache. `refused`: not 0 if it runs without a graph; why() has the reason."""
    _fields_ = [("size", _uint), ("captured", ctypes.c_int), ("refused", ctypes.c_int), ("cuda_error", ctypes.c_int),
                ("nodes", _uint), ("launched", _u64), ("eager", _u64), ("bytes", _u64)]

    def why(self):
        return cede._lib.cede_graph_text(self.refused).decode()


class Statistics(cede.Figures):
    _fields_ = [(name, _uint) for name in ("buckets", "graphs", "refused")] + [(name, _u64) for name in (
        "launched", "eager", "warmups", "too_large", "captures", "retried", "refusals", "updates", "rebuilds", "evictions",
        "bytes", "capture_us", "saved_us")] + [("error", ctypes.c_char * 256)]


cede._declare(graph_open="**p*", graph_prepare="ppI", graph_launch="ppI*", graph_get_bucket="pI*N", graph_get_statistics="p*N")
cede._declare(None, graph_defaults="*", graph_changed="p", graph_close="p")
cede._declare(ctypes.c_char_p, graph_text="i")


class Cache(cede.Handle):
    """Settings: the fields of struct cede_graph_config by name; buckets: sizes, ascending, in place of max_batch."""
    _prefix, _Config, _Statistics, _own = "graph_", _Config, Statistics, ("nbuckets", "buckets")

    def __init__(self, step, buckets=(), **settings):
        config = self._configure(settings)
        self._step, function = cede._function(step, "step"), _STEP(self._on_step)
        sizes = (_uint * len(buckets))(*buckets)
        if list(sizes) != list(buckets):
            raise ValueError(f"buckets are {buckets}: out of range")
        config.buckets, config.nbuckets, self._uses = sizes, len(sizes), function
        self._open("graph_open", ctypes.byref(config), function, None, ...)

    def _on_step(self, _, stream, n):
        result = self._run(self._step, stream or 0, n)
        return result if isinstance(result, int) else 0

    def launch(self, stream, n):
        """Runs the step for a batch of n. The size of the graph; 0: the step ran without one."""
        bucket = _uint()
        self._raise(self._call("launch", cede._stream_handle(stream), n, ctypes.byref(bucket), but=cede._ANY))
        return bucket.value

    def prepare(self, stream, n=0):
        """Captures the bucket of a batch of n now; 0: all."""
        self._raise(self._call("prepare", cede._stream_handle(stream), n, but=cede._ANY))

    def changed(self):
        """Addresses that the step gives to the driver have changed: graphs are captured again."""
        self._call("changed")

    def bucket(self, n):
        """The Bucket that a batch of n takes."""
        b = Bucket()
        self._call("get_bucket", n, ctypes.byref(b), ctypes.sizeof(b))
        return b
