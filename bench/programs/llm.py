"""A server of a language model of 1.2 billion parameters, in its shape: requests arrive at random (Poisson), each is
prefilled into one of the slots when there is a free one, and every step of all slots is a CUDA graph. Random weights.
The latencies are those between the tokens of a request (TPOT); first_us are those from its arrival to its first token (TTFT).
"""
import argparse
import random
import signal
import time

import torch

import gpt
import told

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=5, help="requests per second")
parser.add_argument("--slots", type=int, default=16)
parser.add_argument("--prompt", type=int, default=256, help="tokens")
parser.add_argument("--tokens", type=int, default=128, help="of an answer, on average")
args = parser.parse_args()

torch.manual_seed(4)
rng = random.Random(4)
first, between, told_first, told_between = [], [], 0, 0
with torch.no_grad():
    decoder = gpt.Decoder(args.slots)
    graph = decoder.graph()
    for slot in range(args.slots):
        decoder.prefill(slot, args.prompt)
    graph.replay()
    torch.cuda.synchronize()

    free = list(range(args.slots))
    running = {}  # slot: tokens that are still to come, time of the last one
    waiting = []  # when they arrived
    stopped = []  # requests that were due while it was stopped do not come
    signal.signal(signal.SIGCONT, lambda *_: stopped.append(True))
    due = time.monotonic()
    told.line(t=due, requests=0, latencies_us=[])
    spoke = due
    while not told.stop:
        now = time.monotonic()
        if stopped:
            stopped.clear()
            waiting.clear()
            due = now
            for request in running.values():
                request[1] = None  # its next token was not on its way all the time
        while due <= now:
            waiting.append(due)
            due += rng.expovariate(args.rate)
        if waiting and free:
            slot, arrived = free.pop(), waiting.pop(0)
            decoder.prefill(slot, args.prompt)
            torch.cuda.synchronize()
            now = time.monotonic()
            first.append((now - arrived) * 1e6)
            running[slot] = [rng.randint(args.tokens // 2, args.tokens * 3 // 2), now]
        elif running:
            graph.replay()
            torch.cuda.synchronize()
            now = time.monotonic()
            for slot, request in list(running.items()):
                if request[1]:
                    between.append((now - request[1]) * 1e6)
                request[:] = request[0] - 1, now
                if not request[0]:
                    free.append(slot)
                    del running[slot]
        else:
            time.sleep(max(0, min(due - now, 0.05)))
        if now - spoke >= 0.05:
            spoke = now
            told.line(t=now, requests=len(between), latencies_us=between[told_between:], first_us=first[told_first:])
            told_first, told_between = len(first), len(between)
told.final("llm", bool(torch.isfinite(decoder.state).all()), n=len(between), requests=len(first),
           ttft=told.percentiles(first), tpot=told.percentiles(between))
