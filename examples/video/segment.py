#!/usr/bin/env python3
"""A video conference's background: each frame through a segmentation network of UNet's shape (random
weights, fp16, a CUDA graph), and what is not a person blurred. Every frame is due before the next; a
frame that would start too late is skipped. Prints one object of JSON at the end.

    cede run -c latency -- python3 segment.py --seconds 30

The default size takes about 15 ms of an H200 per frame (with --base 64: 9 ms); --measure measures it, --base and
--width change it."""
import argparse
import time

import common

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
common.options(parser, "a frame")
parser.add_argument("--fps", type=float, default=25)
parser.add_argument("--width", type=int, default=1920, help="of a frame, a multiple of 16")
parser.add_argument("--height", type=int, default=1088, help="of a frame, a multiple of 16")
parser.add_argument("--base", type=int, default=80, help="channels of the first level")
args = parser.parse_args()
if args.fps <= 0 or args.width % 16 or args.height % 16 or min(args.width, args.height, args.base) < 1:
    parser.error("--width and --height are multiples of 16, and --fps and --base above 0")

LEVELS = 5


class Network:
    """Everything on the GPU: a frame in, the same frame with its background blurred out."""

    def __init__(self):
        torch = common.torch()
        import torch.nn.functional as F
        self.torch, self.F = torch, F
        torch.manual_seed(4)
        torch.backends.cudnn.deterministic = True  # so that a frame is the same each time
        c = [args.base << i for i in range(LEVELS)]
        self.down = [(self.conv(c[i - 1] if i else 3, c[i]), self.conv(c[i], c[i]))
                     for i in range(LEVELS)]
        self.up = [(self.weight(c[i + 1], c[i], 2, c[i + 1]), self.conv(2 * c[i], c[i]),
                    self.conv(c[i], c[i])) for i in range(LEVELS - 1)]
        self.head = self.conv(c[0], 2, 1)
        shape = (1, 3, args.height, args.width)
        self.host = torch.randint(0, 256, shape, dtype=torch.uint8).pin_memory()
        self.shown = torch.empty(shape, dtype=torch.uint8).pin_memory()
        self.frame = torch.empty(shape, dtype=torch.uint8, device="cuda")
        self.frame.copy_(self.host)
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.compute()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.scores, self.result = self.compute()
        for _ in range(5):
            self.serve()
        self.expected = self.result.clone()

    def weight(self, n, m, size, fan_in):
        """He's scale, which keeps the variance through convolution and ReLU."""
        w = self.torch.randn(n, m, size, size, device="cuda") * (2.0 / fan_in) ** 0.5
        return w.half().to(memory_format=self.torch.channels_last)

    def conv(self, n, m, size=3):
        return self.weight(m, n, size, n * size * size)

    def twice(self, x, pair):
        for w in pair:
            x = self.F.relu(self.F.conv2d(x, w, padding=w.shape[-1] // 2), inplace=True)
        return x

    def compute(self):
        torch, F = self.torch, self.F
        image = self.frame.half().div(255).to(memory_format=torch.channels_last)
        x, kept = image - 0.5, []
        for i, pair in enumerate(self.down):
            x = self.twice(F.max_pool2d(x, 2) if i else x, pair)
            kept.append(x)
        for i in reversed(range(LEVELS - 1)):
            up, *pair = self.up[i]
            x = self.twice(torch.cat((kept[i], F.conv_transpose2d(x, up, stride=2)), 1), pair)
        scores = F.conv2d(x, self.head)
        person = scores[:, 1:] > scores[:, :1]
        blurred = F.avg_pool2d(image, 15, stride=1, padding=7)
        return scores, (torch.where(person, image, blurred) * 255).to(torch.uint8).contiguous()

    def serve(self):
        self.frame.copy_(self.host, non_blocking=True)
        self.graph.replay()
        self.shown.copy_(self.result, non_blocking=True)
        self.torch.cuda.current_stream().synchronize()

    def facts(self):
        """Whether nothing has overflown, and the last frame is what the first was, bit by bit."""
        t = self.torch
        return dict(verified=bool(t.isfinite(self.scores).all()),
                    same=bool(t.equal(self.result, self.expected)))


def main():
    network = None if args.pretend_ms else Network()
    serve = (lambda: time.sleep(args.pretend_ms / 1e3)) if args.pretend_ms else network.serve
    if args.measure:
        start = time.monotonic()
        for _ in range(50):
            serve()
        print(f'{{"frame_ms": {(time.monotonic() - start) / 50 * 1e3:.3f}}}')
        return
    run = common.Run("segmentation", 1 / args.fps, 1 / args.fps, args.seconds, args.report)
    run.requests(serve, drop=True)
    run.final(**(network.facts() if network else dict(verified=None)))


main()
