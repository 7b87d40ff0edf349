"""libcede's cache of CUDA graphs for Python, by ctypes: a step that runs for batches of many sizes is captured once for
each of a few sizes (buckets), and then launched as one call.

    cache = cede_graph.Cache(step, max_batch=64)
    size = cache.launch(stream, len(batch))  # that of the graph; 0: the step ran without one

    def step(stream, n):                     # puts a step for n into the stream (a number), and waits for nothing
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            model(inputs[:n])

An exception in the step comes out of launch() or prepare(). A positive number that it returns, the driver's error, is in a
capture the reason why there is no graph. Needs the library, but no daemon. One thread at a time may use
a cache, with the context current in which it was opened. cede_graph_open(3) describes everything.
"""
import ctypes

import cede

_STEP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)


_Config = cede._struct("N size I flags max_batch nbuckets P buckets I warmups max_graphs Q max_bytes")


class Bucket(cede.Figures):
    """One size of a cache. `refused`: not 0 if it runs without a graph; why() has the reason."""
    _fields_ = cede._layout("I size i captured refused cuda_error I nodes Q launched eager bytes")

    def why(self):
        """Why it runs without a graph. "not refused": it has one, or will have, unless gpu=False of the cache captures none."""
        return cede._lib.cede_graph_text(self.refused).decode()


class Statistics(cede.Figures):
    _fields_ = cede._layout("I buckets graphs refused Q launched eager warmups too_large captures retried refusals updates"
                            " rebuilds evictions bytes capture_us saved_us c256 error")


cede._declare(graph_open="* * p *", graph_prepare="p pstream In", graph_launch="p pstream In *", graph_get_bucket="p In * N",
              graph_get_statistics="p * N")
cede._declare(None, graph_defaults="*", graph_changed="p", graph_close="p")
cede._declare(ctypes.c_char_p, graph_text="irefused")


class Cache(cede.Counted):
    """buckets: sizes, ascending, in place of max_batch. gpu=False: captures nothing, and needs no GPU."""
    _prefix, _Config, _Statistics, _own, _flags = "graph_", _Config, Statistics, ("nbuckets", "buckets"), {"gpu": 1}

    def __init__(self, step, buckets=(), **settings):
        config = self._configure(settings)
        cede._function(step, "step")
        function = _STEP(lambda _, stream, n: self._run("step", step, stream or 0, n))
        sizes = (ctypes.c_uint * len(buckets))(*buckets)
        if list(sizes) != list(buckets):
            raise ValueError(f"buckets are {buckets}: give 1 or more, up to {2**32 - 1}")
        config.buckets, config.nbuckets, self._uses = ctypes.cast(sizes, ctypes.c_void_p), len(sizes), function
        self._open("graph_open", ctypes.byref(config), function, None, ...)

    def launch(self, stream, n):
        """Runs the step for a batch of n. The size of the graph; 0: the step ran without one."""
        bucket = ctypes.c_uint()
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
