"""What many serve: transformers' generate() of a model of 1.1 billion parameters, eager, one request after the
other. Random weights. The latency is that of a token. The host launches hundreds of short kernels for each, so the
GPU computes for a small part of the time (launch-bound)."""
import argparse

import torch

import gpt
import told

parser = argparse.ArgumentParser()
parser.add_argument("--prompt", type=int, default=64, help="tokens")
parser.add_argument("--tokens", type=int, default=128, help="of an answer")
args = parser.parse_args()

torch.manual_seed(5)
model = gpt.llama()
prompt = torch.randint(1, model.config.vocab_size, (1, args.prompt), device="cuda")


class Stopped(Exception):
    """A stop request came within an answer."""


class Tokens:
    """Is given every token as soon as it is known."""

    def __init__(self, tick):
        self.tick = tick

    def put(self, value):
        if value.numel() == 1:  # not the prompt
            self.tick()
        if told.stop:
            raise Stopped

    def end(self):
        pass


def answer(tick):
    model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=args.tokens,
                   streamer=Tokens(tick))


ticks = told.Clock()
try:
    with torch.no_grad():
        answer(lambda: None)
        ticks.start()
        while not told.stop:
            answer(ticks.tick)
except Stopped:
    pass
told.final("generate", None, n=len(ticks.latencies), tokens_per_s=ticks.rate(), **told.percentiles(ticks.latencies))
