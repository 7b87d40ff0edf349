#!/usr/bin/env python3
"""Clients of server.py, and of ../serve.c, serve.cpp and serve.py. --rate: requests per second, whatever the answers
(open loop; latency counts from when a request was due); with --poisson at random times. --clients: clients that each send
a request when they have the answer to the one before (closed loop, which saturates). Prints JSON lines, except on a
terminal, and one last object, as cede-load does.

    clients.py http://127.0.0.1:8001/ high --rate 10 --seconds 30
    clients.py http://127.0.0.1:8002/ low --clients 16
    clients.py http://127.0.0.1:8000/v1 model --rate 200 --poisson --deadline-ms 50 --seconds 10
"""
import argparse
import http.client
import json
import math
import os
import queue
import random
import signal
import sys
import threading
import time
import urllib.parse

WORDS = "the quick brown fox jumps over a lazy dog and comes back in the evening".split()
DOCUMENTS = 10
EVERY_S = 0.05  # between lines

stop = threading.Event()


def texts(n, count, words):
    """Those of document n: always the same."""
    return [" ".join(WORDS[(n + i + k) % len(WORDS)] for k in range(words)) for i in range(count)]


class Tally:
    """What came back; one line at a time."""

    def __init__(self, saturate, quiet, deadline_ms):
        self.lock = threading.Lock()
        self.saturate, self.quiet, self.deadline_us = saturate, quiet, deadline_ms * 1e3
        self.n = self.refused = self.failed = self.late = self.told = 0
        self.latencies, self.fresh, self.seen, self.same = [], [], {}, True
        self.start = time.monotonic()

    def answer(self, document, status, output, latency_us):
        with self.lock:
            if status == 503:
                self.refused += 1
            elif status != 200:
                self.failed += 1
            else:
                self.n += 1
                self.latencies.append(latency_us)
                self.fresh.append(latency_us)
                self.late += 0 < self.deadline_us < latency_us
                # other batch sizes sum in another order
                first = self.seen.setdefault(document, output)
                self.same &= len(output) == len(first) > 0 and all(
                    math.isfinite(a) and abs(a - b) < 0.05
                    for row, other in zip(output, first) for a, b in zip(row, other))

    def line(self):
        with self.lock:
            fresh, self.fresh = self.fresh, []
            n = self.n
        if self.quiet or sys.stdout.isatty():
            return
        t = time.monotonic()
        if self.saturate:
            out = {"t": t, "work_us": n * 1e6}
        else:
            out = {"t": t, "requests": n, "latencies_us": fresh}
            if self.deadline_us:
                out["late"] = sum(us > self.deadline_us for us in fresh)
        print(json.dumps(out), flush=True)

    def final(self, model):
        seconds = time.monotonic() - self.start
        v = sorted(self.latencies)
        out = {"role": "clients", "model": model, "sent": self.n + self.refused + self.failed, "requests": self.n,
               "in_time": self.n - self.late, "refused": self.refused, "failed": self.failed, "late": self.late,
               "seconds": seconds,
               "rate": self.n / seconds if seconds > 0 else 0}
        for p in (50, 90, 99):
            out[f"p{p}_us"] = v[max(0, -(-len(v) * p // 100) - 1)] if v else None
        out["max_us"] = v[-1] if v else None
        out["verified"] = self.same and not self.failed
        if not self.quiet:
            print(json.dumps(out), flush=True)


class Connection:
    """One that is kept, and made anew when it was lost."""

    told = False  # why the first request failed

    def __init__(self, url, args):
        self.url, self.model, self.c = url, args.model, None
        self.path = url.path.rstrip("/") + "/" + args.model
        extra = {"deadline_ms": args.deadline_ms} if args.deadline_ms else {}
        self.headers = {"Deadline-Ms": f"{args.deadline_ms:g}"} if args.deadline_ms else {}
        self.bodies = [json.dumps({"texts": texts(n, args.texts, args.words), **extra})
                       for n in range(DOCUMENTS)]

    def fail(self, why):
        if not Connection.told and not stop.is_set():
            Connection.told = True
            print(f"clients.py: {self.url.geturl()} {self.model}: {why}", file=sys.stderr)

    def ask(self, document):
        try:
            if self.c is None:
                self.c = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
            self.c.request("POST", self.path, self.bodies[document], self.headers)
            answer = self.c.getresponse()
            value = json.loads(answer.read())
            if answer.status not in (200, 503):
                self.fail(value.get("error", answer.status))
            return answer.status, value.get("output", [])
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.fail(e)
            self.c = None
            return 0, []


def open_loop(args, tally, connect):
    due_queue = queue.SimpleQueue()

    def worker():
        c = connect()
        while (job := due_queue.get()) is not None:
            document, due = job
            status, output = c.ask(document)
            tally.answer(document, status, output, (time.monotonic() - due) * 1e6)

    workers = [threading.Thread(target=worker, daemon=True) for _ in range(args.workers)]
    for w in workers:
        w.start()
    n, due, rng = 0, time.monotonic(), random.Random(1)
    while not stop.is_set() and (not args.seconds or n < args.seconds * args.rate):
        n += 1
        due += rng.expovariate(args.rate) if args.poisson else 1 / args.rate
        left = due - time.monotonic()
        if left > 0.002:  # the host may wake late, which is not the server's doing
            stop.wait(left - 0.0015)
        while time.monotonic() < due and not stop.is_set():
            time.sleep(0)  # the workers run
        if not stop.is_set():
            due_queue.put((n % DOCUMENTS, due))
    for _ in workers:
        due_queue.put(None)
    return workers


def closed_loop(args, tally, connect):
    end = time.monotonic() + args.seconds if args.seconds else math.inf

    def client(i):
        c = connect()
        while not stop.is_set() and time.monotonic() < end:
            i += 1
            document, began = i % DOCUMENTS, time.monotonic()
            status, output = c.ask(document)
            if not stop.is_set() or status:
                tally.answer(document, status, output, (time.monotonic() - began) * 1e6)
            if status != 200:
                stop.wait(0.01)  # refused, or no server: do not spin

    clients = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(args.clients)]
    for c in clients:
        c.start()
    return clients


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("url")
    p.add_argument("model")
    how = p.add_mutually_exclusive_group(required=True)
    how.add_argument("--rate", type=float, help="requests per second")
    how.add_argument("--clients", type=int, help="each with one request at a time")
    p.add_argument("--poisson", action="store_true", help="--rate at random times")
    p.add_argument("--workers", type=int, default=32, help="connections of --rate")
    p.add_argument("--seconds", type=float, default=0, help="0: until SIGTERM")
    p.add_argument("--deadline-ms", type=float, default=0)
    p.add_argument("--texts", type=int, default=1, help="in a request")
    p.add_argument("--words", type=int, default=40, help="in a text")
    p.add_argument("--quiet", action="store_true", help="print nothing")
    p.add_argument("--parent", type=int, default=0, help="end when this process, which started it, does")
    args = p.parse_args()
    if (args.rate is not None and not 0 < args.rate <= 1e5) or \
            (args.clients is not None and not 1 <= args.clients <= 1000):
        p.error("--rate: up to 100000; --clients: from 1 to 1000")
    if not (1 <= args.workers <= 1000 and 1 <= args.texts <= 256 and 1 <= args.words <= 510 and args.deadline_ms >= 0):
        p.error("--workers: 1 to 1000; --texts: 1 to 256; --words: 1 to 510; --deadline-ms: from 0")
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: stop.set())
    url = urllib.parse.urlsplit(args.url)
    tally = Tally(args.clients is not None, args.quiet, args.deadline_ms)
    threads = []

    def run():
        make = open_loop if args.rate else closed_loop
        threads.extend(make(args, tally, lambda: Connection(url, args)))
        for t in threads:
            while t.is_alive() and not stop.is_set():
                t.join(0.5)
        patience = time.monotonic() + 5  # an answer may never arrive
        for t in threads:
            t.join(max(0, patience - time.monotonic()))

    tally.line()
    runner = threading.Thread(target=run)
    runner.start()
    while runner.is_alive():
        runner.join(EVERY_S)
        if args.parent and os.getppid() != args.parent:
            stop.set()
        tally.line()
    tally.final(args.model)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
