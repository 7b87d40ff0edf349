"""A language model's decoding, in its shape: one token at a time through all layers, a batch of a few
sequences, every step a CUDA graph of some hundred short kernels. Random weights. A request is a number
of tokens; the latency is that of the whole request.
"""
import argparse

import torch
import torch.nn.functional as F

import told

parser = argparse.ArgumentParser()
parser.add_argument("--period-ms", type=float, default=100, help="0: one request after the other")
parser.add_argument("--tokens", type=int, default=8)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--context", type=int, default=1024)
args = parser.parse_args()

torch.manual_seed(3)
heads, w = args.width // 128, args.width


def weight(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.half) / shape[-1] ** 0.5


layers = [dict(qkv=weight(3 * w, w), out=weight(w, w), up=weight(4 * w, w), down=weight(w, 4 * w),
               k=weight(args.batch, heads, args.context, 128),
               v=weight(args.batch, heads, args.context, 128)) for _ in range(args.layers)]
state = torch.randn(args.batch, w, device="cuda", dtype=torch.half)


def token():
    h = state
    for l in layers:
        q, k, v = F.linear(F.layer_norm(h, (w,)), l["qkv"]).view(args.batch, 3, heads, 1, 128).unbind(1)
        l["k"][:, :, -1:], l["v"][:, :, -1:] = k, v
        a = F.scaled_dot_product_attention(q, l["k"], l["v"]).reshape(args.batch, w)
        h = h + F.linear(a, l["out"])
        h = h + F.linear(F.gelu(F.linear(F.layer_norm(h, (w,)), l["up"])), l["down"])
    state.copy_(F.layer_norm(h, (w,)))


with torch.no_grad():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            token()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token()


def serve():
    for _ in range(args.tokens):
        graph.replay()
    torch.cuda.synchronize()


for _ in range(3):
    serve()
if args.period_ms > 0:
    n = told.requests(args.period_ms / 1e3, serve)
else:
    n = told.saturate(serve)
told.final("decode", bool(torch.isfinite(state).all()), n=n)
