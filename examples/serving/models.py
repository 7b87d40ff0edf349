"""What the serving program runs: a BERT-large-shaped encoder with random weights in fp16 on PyTorch, or a
stand-in that sleeps. A model takes lists of token ids and gives one short vector for each. It knows
nothing of queues, HTTP and cede."""
import hashlib
import time

OUT = 4  # numbers of the pooled output in an answer


class Soft:
    """In place of a GPU: n rows take fixed_ms + n each_ms, and the result is a hash."""

    def __init__(self, seed, fixed_ms=2.0, each_ms=0.5):
        self.seed, self.fixed_s, self.each_s = seed, fixed_ms / 1e3, each_ms / 1e3

    def run(self, rows, queued):
        queued()
        self.work(self.fixed_s + self.each_s * len(rows))
        return [[b / 256 for b in hashlib.blake2b(repr((self.seed, r)).encode()).digest()[:OUT]]
                for r in rows]

    def work(self, seconds):
        time.sleep(seconds)


class SoftGpu(Soft):
    """The same on cede's software GPU, where programs are in each other's way and cede schedules them."""
    KERNELS = 24

    def __init__(self, *args):
        super().__init__(*args)
        import softgpu  # bench/programs
        try:
            self.context = softgpu.Context()
        except OSError as e:
            raise SystemExit(f"no software GPU at {softgpu.path()} ({e}): start cede-softgpu")

    def work(self, seconds):
        self.context.launch(self.KERNELS, max(1, round(seconds * 1e9 / self.KERNELS)))
        self.context.wait(self.KERNELS)


class Bert:
    """One CUDA graph for each number of rows that is a power of two, all of one padded length. More rows
    than the largest has run one part after the other."""

    def __init__(self, seed, rows_max=16, length=128, layers=24, width=1024, heads=16, graphs=True):
        try:
            import torch
        except ImportError:
            raise SystemExit("PyTorch is not installed; --model soft does without")
        if not torch.cuda.is_available():
            raise SystemExit("no GPU that PyTorch can use; --model soft does without")
        self.torch, self.length = torch, length
        torch.manual_seed(seed)
        with torch.no_grad():
            self.net = _encoder(torch, layers, width, heads, max(length, 512)).cuda().half().eval()
        self.done = torch.cuda.Event()
        self.slots = {}
        n, sizes = 1, []
        while n < rows_max:
            sizes.append(n)
            n *= 2
        sizes.append(n)
        for n in reversed(sizes):  # the largest first: the others fit into its memory
            self.slots[n] = self._slot(n, graphs)
        self.sizes = sizes

    def _slot(self, n, graphs):
        torch = self.torch
        s = {"ids": torch.zeros(n, self.length, dtype=torch.long, device="cuda"),
             "lengths": torch.ones(n, dtype=torch.long, device="cuda"),
             "host_ids": torch.zeros(n, self.length, dtype=torch.long, pin_memory=True),
             "host_lengths": torch.ones(n, dtype=torch.long, pin_memory=True),
             "host_out": torch.zeros(n, OUT, dtype=torch.half, pin_memory=True)}
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    s["out"] = self.net(s["ids"], s["lengths"])
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            if graphs:
                pool = next(iter(self.slots.values()))["graph"].pool() if self.slots else None
                s["graph"] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(s["graph"], pool=pool):
                    s["out"] = self.net(s["ids"], s["lengths"])
        return s

    def run(self, rows, queued):
        """queued() is called when the GPU has the first work."""
        out, most = [], self.sizes[-1]
        for i in range(0, len(rows), most):
            out += self._part(rows[i:i + most], queued if i == 0 else lambda: None)
        return out

    def _part(self, rows, queued):
        torch = self.torch
        s = self.slots[next(n for n in self.sizes if n >= len(rows))]
        for i, row in enumerate(rows):
            row = row[:self.length]
            s["host_ids"][i, :len(row)] = torch.tensor(row)
            s["host_lengths"][i] = len(row)
        with torch.no_grad():
            s["ids"].copy_(s["host_ids"], non_blocking=True)
            s["lengths"].copy_(s["host_lengths"], non_blocking=True)
            if "graph" in s:
                s["graph"].replay()
            else:
                s["out"] = self.net(s["ids"], s["lengths"])
            s["host_out"].copy_(s["out"][:, :OUT], non_blocking=True)
            self.done.record()
        queued()
        self.done.synchronize()
        return s["host_out"][:len(rows)].tolist()


def _encoder(torch, layers, width, heads, positions, vocabulary=30522):
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x, mask):
            n, length, _ = x.shape
            q, k, v = self.qkv(x).view(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = self.norm1(x + self.out(a.transpose(1, 2).reshape(n, length, width)))
            return self.norm2(x + self.down(F.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.pool = nn.Linear(width, width)
            self.register_buffer("range", torch.arange(positions))

        def forward(self, ids, lengths):
            at = self.range[:ids.shape[1]]
            mask = (at < lengths[:, None])[:, None, None, :]
            x = self.norm(self.words(ids) + self.places(at))
            for layer in self.layers:
                x = layer(x, mask)
            return torch.tanh(self.pool(x[:, 0]))

    return Encoder()
