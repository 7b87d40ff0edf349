"""What many serve: transformers' generate() of a model of 1.1 billion parameters, eager, one request after the
other. Random weights. The latency is that of a token. The host launches hundreds of short kernels for each, so the
GPU computes for a small part of the time (launch-bound)."""
import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import told

parser = argparse.ArgumentParser()
parser.add_argument("--prompt", type=int, default=64, help="tokens")
parser.add_argument("--tokens", type=int, default=128, help="of an answer")
args = parser.parse_args()

torch.manual_seed(5)
config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                     num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, bos_token_id=None,
                     eos_token_id=None, pad_token_id=0)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
prompt = torch.randint(1, config.vocab_size, (1, args.prompt), device="cuda")


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
