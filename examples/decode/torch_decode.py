#!/usr/bin/env python3
"""A model that decodes with PyTorch: in the loop that one writes first, and with CUDA graphs, cede's overlap loop and
future map (python/cede_step.py). The modes are those of decode.c, with `plain` first.

With --rows fixed each step computes the whole batch, empty rows too: then a library's product takes the same kernel
each time, and the tokens of a request are the same in all modes and alone. With --rows library a step computes the
rows that it has (graphs: the next power of two). Then the library chooses kernels by their number, sums are taken in
other orders, and some requests get other tokens than alone: how many is shown."""
import argparse
import json
import os
import random
import sys
import time

try:
    import cede_step
except ModuleNotFoundError:  # in the source tree
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
    import cede_step

MODES = {"plain": (0, False), "eager": (1, False), "graphs": (1, True), "overlap": (2, False), "all": (2, True)}
END = 64  # one of so many tokens ends a request


class Request:
    def __init__(self, prompt, most, from_step):
        self.prompt, self.most, self.from_step = prompt, most, from_step
        self.tokens, self.position, self.slot, self.ended = [], 0, None, False

    def row(self, symbol):
        """What the next step computes of it: token, position, slot of the cache."""
        token = self.prompt[self.position] if self.position < len(self.prompt) else symbol or self.tokens[-1]
        self.position += 1
        return token, self.position - 1, self.slot

    def take(self, position, token):
        if position >= len(self.prompt) - 1:
            self.tokens.append(token)
            self.ended = len(self.tokens) == self.most or token % END == END - 1


def make_requests(n, tokens, vocabulary, batch):
    r = random.Random(1)
    return [Request([r.randrange(vocabulary) for _ in range(r.randint(1, 32))], r.randint(1, tokens),
                    0 if i < batch // 2 else i) for i in range(n)]


class Engine:
    """The requests, and the functions of the loop. model: see TorchModel. at_once: requests in a step."""

    def __init__(self, model, requests, at_once, schedule_us=0):
        self.model, self.requests, self.at_once, self.schedule_us = model, requests, at_once, schedule_us
        self.waiting, self.running, self.slots = list(requests), [], list(range(2 * model.batch))
        self.loop = None
        # Of steps that the GPU needs longer for than the CPU to schedule the next one; microseconds.
        self.before, self.long_steps, self.long_gpu, self.long_idle, self.long_schedule = 0, 0, 0, 0, 0

    def count_times(self, step):
        """The step was scheduled while the one before it ran: was that long enough?"""
        if self.before > step.scheduled_us:
            self.long_steps += 1
            self.long_gpu += self.before
            self.long_idle += step.idle_us
            self.long_schedule += step.scheduled_us
        self.before = step.gpu_us

    def choose(self, number, add):
        """The rows of a step."""
        until = time.perf_counter() + self.schedule_us / 1e6
        while time.perf_counter() < until:
            pass
        while self.waiting and (not self.running or self.waiting[0].from_step <= number):
            self.running.append(self.waiting.pop(0))
            if self.loop:
                self.loop.join(self.running[-1])
        rows = []
        for r in self.running:
            # Not more steps than it may have tokens; that it ended before is learnt later.
            if r.ended or r.position - len(r.prompt) + 1 >= r.most or len(rows) == self.at_once:
                continue
            if r.slot is None and not self.slots:
                continue
            symbol = add(r)
            if symbol is not None:
                r.slot = self.slots.pop() if r.slot is None else r.slot
                rows.append(r.row(symbol))
        return rows

    def left(self, request, _=0):
        self.running.remove(request)
        self.slots.append(request.slot)

    def plain(self):
        """The loop that one writes first."""
        number = 0
        while self.waiting or self.running:
            number += 1
            chosen = []
            rows = self.choose(number, lambda r: chosen.append(r) or 0)
            self.model.write(0, rows)
            with self.model.current():
                self.model.send(0)
                self.model.run(len(rows), False)
                tokens = self.model.results(len(rows))
            for r, row, token in zip(chosen, rows, tokens):
                r.take(row[1], token)
                if r.ended:
                    self.left(r)
        return number

    def overlapped(self, depth, graphs):
        """The same with cede's loop. Its statistics."""
        model = self.model
        futures = cede_step.Futures(slots=4096 if model.batch < 512 else 65536, gpu=model.gpu)

        def schedule(step):
            begin = time.perf_counter()
            step.rows = self.choose(step.number, self.loop.add)
            if step.rows:
                model.write(step.lane, step.rows)
            step.scheduled_us = 1e6 * (time.perf_counter() - begin)
            return bool(step.rows)

        def launch(step):
            with model.current():
                model.send(step.lane)
                futures.resolve(model.token, step.stream)
                model.run(step.n, graphs)
                futures.store(model.chosen[:step.n], step.symbol, step.stream)

        def finish(step):
            if step.error:
                raise OSError(-step.error, self.loop.statistics().error)
            self.count_times(step)
            for r, row, token, surplus in zip(step.requests, step.rows, step.results, step.surplus):
                if not surplus:
                    r.take(row[1], token)
                    if r.ended:
                        self.loop.leave(r)

        self.loop = cede_step.Loop(schedule, launch, finish, self.left, depth=depth, batch=self.at_once,
                                   requests=len(self.requests), futures=futures, stream=model.stream, gpu=model.gpu)
        try:
            while self.loop.once():
                pass
            return self.loop.statistics()
        finally:
            self.loop.close()
            futures.close()


class TorchModel:
    """Layers with attention over a cache of `length` tokens for each of 2 * batch requests. All that a graph reads or
    writes is in tensors that stay: inputs, chosen, the cache. `token` and `chosen` are what symbols are resolved in
    and results are stored from."""
    gpu = True

    def __init__(self, args, length):
        import torch
        self.torch, self.batch, self.heads, self.width = torch, args.batch, args.heads, args.width
        self.fixed, self.graphs, slots = args.rows == "fixed", {}, 2 * args.batch
        torch.manual_seed(1)
        kind = {"device": "cuda", "dtype": torch.bfloat16}

        def weight(*shape):
            return torch.randn(*shape, **kind) / shape[-1] ** 0.5

        w = args.width
        self.embedding, self.places = weight(args.vocabulary, w), weight(length, w)
        self.layers = [{"qkv": weight(3 * w, w), "out": weight(w, w), "up": weight(4 * w, w), "down": weight(w, 4 * w)}
                       for _ in range(args.layers)]
        # One slot more, for empty rows.
        self.cache = torch.zeros(args.layers, 2, slots + 1, length, args.heads, w // args.heads, **kind)
        self.all = torch.arange(length, device="cuda")
        self.inputs = torch.zeros(3, self.batch, dtype=torch.int64, device="cuda")
        self.token, self.position, self.slot = self.inputs.unbind(0)
        self.chosen = torch.zeros(self.batch, dtype=torch.int64, device="cuda")
        self.empty = [0, 0, slots]
        self.pinned = [torch.zeros(3, self.batch, dtype=torch.int64).pin_memory()
                       for _ in range(cede_step.DEPTH_MAX + 1)]
        self.side = torch.cuda.Stream()
        self.stream = self.side.cuda_stream
        torch.cuda.synchronize()

    def current(self):
        return self.torch.cuda.stream(self.side)

    def write(self, lane, rows):
        """Into memory from which send() copies; it stays until the step of the lane is finished."""
        rows = [list(r) for r in rows] + [self.empty] * (self.batch - len(rows))
        self.pinned[lane].copy_(self.torch.tensor(rows).t())

    def send(self, lane):
        self.inputs.copy_(self.pinned[lane], non_blocking=True)

    def results(self, n):
        return self.chosen[:n].tolist()

    def rows(self, n, graphs):
        if self.fixed:
            return self.batch
        return min(self.batch, 1 << (n - 1).bit_length()) if graphs else n

    def run(self, n, graphs):
        rows = self.rows(n, graphs)
        if graphs:
            self.graphs[rows].replay()
        else:
            self.step(rows)

    def step(self, n):
        f = self.torch.nn.functional
        token, position, slot = self.token[:n], self.position[:n], self.slot[:n]
        mask = (self.all[None, :] <= position[:, None])[:, None, None, :]
        x = self.embedding[token] + self.places[position]
        for layer, (keys, values) in zip(self.layers, self.cache):
            h = f.linear(f.layer_norm(x, (self.width,)), layer["qkv"])
            q, k, v = h.view(n, 3, self.heads, -1).unbind(1)
            keys.index_put_((slot, position), k)
            values.index_put_((slot, position), v)
            a = f.scaled_dot_product_attention(q[:, :, None], keys[slot].transpose(1, 2),
                                               values[slot].transpose(1, 2), attn_mask=mask)
            x = x + f.linear(a.reshape(n, self.width), layer["out"])
            h = f.linear(f.layer_norm(x, (self.width,)), layer["up"])
            x = x + f.linear(f.gelu(h), layer["down"])
        logits = f.linear(f.layer_norm(x, (self.width,)), self.embedding)
        self.chosen[:n].copy_(logits.float().argmax(-1))

    def capture(self):
        """The largest first: the others then use its memory. One pool is enough, as all run in one stream, one after
        the other, and leave nothing in it."""
        torch = self.torch
        sizes = [self.batch] if self.fixed else sorted({self.rows(n, True) for n in range(1, self.batch + 1)})
        pool = torch.cuda.graph_pool_handle()
        self.write(0, [])
        with self.current():
            self.send(0)
            for n in reversed(sizes):  # libraries load and choose their kernels: not in a capture
                self.step(n)
                self.step(n)
        self.side.synchronize()
        for n in reversed(sizes):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=self.side):
                self.step(n)
            self.graphs[n] = graph
        torch.cuda.synchronize()


def run(model, args, mode, at_once):
    """One mode: the requests, and what was measured."""
    requests = make_requests(args.requests, args.tokens, args.vocabulary, args.batch)
    engine = Engine(model, requests, at_once, args.schedule_us)
    depth, graphs = MODES[mode]
    begin = time.perf_counter()
    s = engine.overlapped(args.depth if depth > 1 else 1, graphs) if depth else None
    steps = s.steps if s else engine.plain()
    seconds = time.perf_counter() - begin
    result = {"mode": mode, "tokens_per_s": sum(len(r.tokens) for r in requests) / seconds, "steps": steps,
              "step_us": seconds * 1e6 / steps}
    if s:
        cpu_us = s.schedule_us + s.launch_us + s.finish_us
        result.update(cpu_us=cpu_us / steps, gpu_us=s.gpu_us / steps, surplus=s.surplus,
                      hidden=s.hidden_us / max(1, cpu_us), gpu_idle=s.idle_us / max(1, s.gpu_us + s.idle_us),
                      long_steps=engine.long_steps)
        if engine.long_steps:
            result.update(long_hidden=max(0, 1 - engine.long_idle / engine.long_schedule),
                          long_idle=engine.long_idle / (engine.long_gpu + engine.long_idle))
    return requests, result


def compare(model, args):
    """All modes, and how many requests get other tokens than alone."""
    alone, _ = run(model, args, "plain", 1)
    results = []
    for mode in args.modes:
        requests, result = run(model, args, mode, args.batch)
        result["differ_from_alone"] = sum(a.tokens != b.tokens for a, b in zip(alone, requests))
        results.append(result)
    return {"rows": args.rows, "batch": args.batch, "requests": args.requests, "runs": results}


def show(report):
    print("MODE       TOKENS/S   STEP US    CPU US    GPU US  HIDDEN%  IDLE%  OTHER TOKENS THAN ALONE")
    for r in report["runs"]:
        print(f"{r['mode']:8}{r['tokens_per_s']:11.1f}{r['step_us']:10.1f}{r.get('cpu_us', 0):10.1f}"
              f"{r.get('gpu_us', 0):10.1f}{100 * r.get('hidden', 0):9.1f}{100 * r.get('gpu_idle', 0):7.1f}"
              f"  {r['differ_from_alone']} of {report['requests']} requests")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 12), ("width", 1024), ("heads", 16), ("vocabulary", 8192), ("batch", 64),
                        ("requests", 128), ("tokens", 64), ("schedule-us", 0)):
        parser.add_argument("--" + name, type=int, default=value, help=f"({value})")
    parser.add_argument("--rows", choices=("fixed", "library"), default="fixed")
    parser.add_argument("--depth", type=int, default=2, choices=range(2, 1 + cede_step.DEPTH_MAX),
                        help="of overlap and all (2)")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--json", action="store_true")
    return parser


def main():
    args = options().parse_args()
    try:
        import torch
    except ModuleNotFoundError:
        sys.exit("torch_decode.py: needs PyTorch with CUDA: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("torch_decode.py: PyTorch finds no GPU")
    with torch.no_grad():
        model = TorchModel(args, 32 + args.tokens)
        model.capture()
        report = compare(model, args)
    if args.json:
        print(json.dumps(report))
    else:
        show(report)
    return args.rows == "fixed" and any(r["differ_from_alone"] for r in report["runs"])


if __name__ == "__main__":
    sys.exit(main())
