"""An ordinary inference job that knows nothing of cede: ResNet-152, fp16, a CUDA graph replayed every
period. Prints one JSON line a request, and at the end whether every answer was the same, bit by bit.
"""
import argparse
import json
import time

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--requests", type=int, default=300)
parser.add_argument("--period-ms", type=float, default=30)
parser.add_argument("--batch", type=int, default=16)
args = parser.parse_args()

torch.manual_seed(2)
model = torchvision.models.resnet152().cuda()
x = torch.randn(args.batch, 3, 224, 224, device="cuda")
with torch.no_grad():
    for _ in range(20):  # statistics for the normalisations: random weights overflow fp16 without
        model(x)
    model = model.half().eval()
    x = x.half()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)
graph.replay()
torch.cuda.synchronize()
expected = out.clone()
same = bool(torch.isfinite(expected).all())
due = time.monotonic()
print(json.dumps({"ready": True, "t": due}), flush=True)
for i in range(args.requests):
    due += args.period_ms / 1e3
    while time.monotonic() < due:
        pass
    t0 = time.monotonic()
    graph.replay()
    torch.cuda.synchronize()
    t1 = time.monotonic()
    same = same and torch.equal(out, expected)
    due = max(due, time.monotonic())
    print(json.dumps({"t": t0, "ms": (t1 - t0) * 1e3}), flush=True)
print(json.dumps({"final": True, "same": same}), flush=True)
