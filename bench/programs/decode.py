"""A language model's decoding, in its shape: one token at a time through all layers, a batch of a few
sequences, every step a CUDA graph of some hundred short kernels. Random weights. A request is a number
of tokens; the latency is that of the whole request.
"""
import argparse

import torch

import gpt
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
with torch.no_grad():
    decoder = gpt.Decoder(args.batch, args.layers, args.width, args.context)
    graph = decoder.graph()


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
told.final("decode", bool(torch.isfinite(decoder.state).all()), n=n)
