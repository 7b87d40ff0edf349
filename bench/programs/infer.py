"""An ordinary inference job: fp16, a CUDA graph replayed for each batch, either every period or without
end; with --eager the host launches each kernel, one batch after the other, and the latency is told. At the
end it says whether every answer was the same, bit by bit.
"""
import argparse

import torch
import torchvision

import gpt
import told

parser = argparse.ArgumentParser()
parser.add_argument("--period-ms", type=float, default=30, help="0: one batch after the other")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--model", default="resnet152")
parser.add_argument("--eager", action="store_true", help="without a graph, one batch after the other")
args = parser.parse_args()

torch.manual_seed(2)
model = getattr(torchvision.models, args.model)().cuda()
x = torch.randn(args.batch, 3, 224, 224, device="cuda")
with torch.no_grad():
    for _ in range(20):  # statistics for the normalisations: random weights overflow fp16 without
        model(x)
    model = model.half().eval()
    x = x.half()
    out = model(x)
    if not args.eager:
        def forward():
            global out
            out = model(x)
        graph = gpt.captured(forward)
        graph.replay()
torch.cuda.synchronize()
expected = out.clone()
same = bool(torch.isfinite(expected).all())
wrong = torch.zeros((), dtype=torch.bool, device="cuda")


def serve():
    graph.replay()
    torch.cuda.synchronize()


@torch.no_grad()
def serve_eager():
    global out
    out = model(x)
    torch.cuda.synchronize()


# The comparison is part of the work of a saturating job and stays out of a request's latency.
if args.eager:
    for _ in range(20):
        serve_eager()
    clock = told.closed(serve_eager)
    done = len(clock.latencies)
    same = same and torch.equal(out, expected)
elif args.period_ms > 0:
    done = told.requests(args.period_ms / 1e3, serve)
    same = same and torch.equal(out, expected)
else:
    events = [torch.cuda.Event(), torch.cuda.Event()]
    turn = 0

    def step():
        """Two replays in flight, so that the GPU never waits for the host."""
        global turn, wrong
        graph.replay()
        wrong |= (out != expected).any()
        events[turn % 2].record()
        turn += 1
        if turn > 1:
            events[turn % 2].synchronize()

    done = told.saturate(step)
    same = same and not bool(wrong)
told.final("infer", same, n=done)
