"""transformers' continuous batching as a server: a Llama of 1.1 billion parameters, random weights, its defaults. Requests
arrive at random (Poisson). The latencies are those between the tokens of a request (TPOT); first_us are those from when a
request was due to its first token (TTFT).
"""
import argparse
import random
import signal
import time

import torch
from transformers.generation import ContinuousBatchingConfig, GenerationConfig

import gpt
import told

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=2, help="requests per second")
parser.add_argument("--prompt", type=int, default=256, help="tokens")
parser.add_argument("--tokens", type=int, default=64, help="of an answer, on average")
args = parser.parse_args()

torch.manual_seed(7)
rng = random.Random(7)
model = gpt.llama()
first, between, told_first, told_between = [], [], 0, 0
last = {}  # request: when it was due, or its last token came; whether a token has come
stopped = []  # requests that were due while it was stopped do not come
signal.signal(signal.SIGCONT, lambda *_: stopped.append(True))
settings = {"generation_config": GenerationConfig(do_sample=False, max_new_tokens=2 * args.tokens, eos_token_id=-1, pad_token_id=0),
            "continuous_batching_config": ContinuousBatchingConfig(max_memory_percent=0.1)}
with model.continuous_batching_context_manager(**settings) as manager:
    def ask(due):
        name = manager.add_request(input_ids=[rng.randrange(1, 32000) for _ in range(args.prompt)], streaming=True,
                                   max_new_tokens=rng.randint(args.tokens // 2, args.tokens * 3 // 2))
        last[name] = [due, False]

    def take(wait_s):
        """A token, if one comes."""
        result = manager.get_result(timeout=wait_s)
        now = time.monotonic()
        if result is None or result.request_id not in last:
            return
        request = last[result.request_id]
        if result.generated_tokens and request[0]:
            (between if request[1] else first).append((now - request[0]) * 1e6)
        request[:] = now, True
        if result.is_finished():
            del last[result.request_id]

    ask(time.monotonic())
    while last:  # warms up
        take(1)
    first, between = [], []
    due = spoke = time.monotonic()
    told.line(t=due, requests=0, latencies_us=[])
    while not told.stop:
        now = time.monotonic()
        if stopped:
            stopped.clear()
            due = now
            for request in last.values():
                request[0] = None  # its next token was not on its way all the time
        while due <= now:
            ask(due)
            due += rng.expovariate(args.rate)
        take(max(0, min(due - now, 0.05)))
        if now - spoke >= 0.05:
            spoke = now
            told.line(t=now, requests=len(between), latencies_us=between[told_between:], first_us=first[told_first:])
            told_first, told_between = len(first), len(between)
told.final("batching", None, n=len(between), requests=len(first), ttft=told.percentiles(first), tpot=told.percentiles(between))
