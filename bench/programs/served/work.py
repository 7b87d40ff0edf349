"""The models that server.py serves: work.h in Python, with PyTorch or in sleep. runner(kind, most, thread) is a function
of one thread's that queues a batch of up to `most` in PyTorch's current stream. To be made before threads use the GPU."""
import contextlib
import functools
import threading
import time

SMALL, LARGE, BULK = range(3)


class Sleep:
    """A kernel is a sleep, and kernels of all streams run one at a time in order of arrival."""
    kernels = {SMALL: 2, LARGE: 10, BULK: 6}

    def __init__(self):
        self._changed, self._arrived, self._running = threading.Condition(), 0, 0

    def runner(self, kind, _most, _thread=0):
        def run(n):
            for _ in range(self.kernels[kind]):
                with self._changed:
                    mine, self._arrived = self._arrived, self._arrived + 1
                    self._changed.wait_for(lambda: self._running == mine)
                time.sleep((200 + 25 * n) * 1e-6)
                with self._changed:
                    self._running += 1
                    self._changed.notify_all()
        return run

    def stream(self, _priority):
        """Makes a stream whose block runs in it, and whose end waits for it."""
        return contextlib.nullcontext


class Torch:
    """Chains of matrix products, a CUDA graph for each batch size: launching them takes Python no time."""
    width, most_rows = 4096, 4096
    shapes = {SMALL: (256, 16), LARGE: (512, 32), BULK: (4096, 16)}  # rows of a request, products

    def __init__(self):
        import torch
        self.torch, self.settings = torch, {"dtype": torch.float16, "device": "cuda"}
        torch.manual_seed(1)
        self.weights = [torch.randn(self.width, self.width, **self.settings) / self.width**0.5 for _ in range(8)]

    def _capture(self, kind, n, rows, stream):
        torch, (each, products) = self.torch, self.shapes[kind]
        x, *ys = (r[:n * each] for r in rows)

        def model():
            torch.mm(x, self.weights[0], out=ys[0])
            for i in range(1, products):
                torch.mm(ys[(i - 1) % 2], self.weights[i % 8], out=ys[i % 2])
        with torch.cuda.stream(stream):
            model()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            model()
        return graph

    @functools.cache
    def runner(self, kind, most, _thread=0):
        """Activations and graphs are the thread's, as a graph cannot run twice at a time. Kernels of a graph may have
        the priority of the stream that captured it."""
        torch = self.torch
        stream = torch.cuda.Stream(priority=-3 if kind == SMALL else 0)
        rows = [torch.randn(self.most_rows, self.width, **self.settings) for _ in range(3)]
        torch.cuda.synchronize()
        graphs = {n: self._capture(kind, n, rows, stream) for n in range(1, most + 1)}
        return lambda n: graphs[n].replay()

    def stream(self, priority):
        stream = self.torch.cuda.Stream(priority=priority)

        @contextlib.contextmanager
        def block():
            with self.torch.cuda.stream(stream):
                yield
            stream.synchronize()
        return block
