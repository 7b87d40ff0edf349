#!/usr/bin/env python3
"""What batches bring on a model: a BERT-large-shaped encoder (24 layers, width 1024, 128 tokens, fp16, CUDA graphs)
serves requests that come at random (Poisson) whether or not it keeps up. A quarter of them have a short deadline,
the others a longer one. Compared, each with 1 and 2 workers on the GPU and at several rates:

  batch 1     one request at a time, in order of arrival
  fixed       up to 16 requests, or what came within 5 ms of the first, in order of arrival
  cede        cede_queue with leases: earliest deadline first, batches by slack
  cede+admit  the same, refusing requests that would be late

Latency counts from the time at which a request was due to come. Goodput: requests answered by their deadline, per
second. Each answer is compared with that of the same text in a batch of 1. Needs PyTorch, a GPU that nobody else
uses, and no daemon; --soft needs neither (its figures say nothing).

usage: batching.py FILE [--soft] [--seconds 2.2] [--layers 24]    writes FILE, prints a table; under 120 s
"""
import argparse
import collections
import json
import math
import os
import random
import signal
import sys
import threading
import time

import example
import provenance

example.find("serving")
import cede  # noqa: E402
import cede_queue  # noqa: E402
import models  # noqa: E402

BATCH, FIXED_WAIT_S, DOCUMENTS, LIMIT_S = 16, 0.005, 10, 115
MODES = ("batch 1", "fixed", "cede", "cede+admit")


class Request:
    __slots__ = ("due", "deadline", "urgent", "document", "late", "took")

    def __init__(self, due, deadline_s, urgent, document):
        self.due, self.deadline, self.urgent, self.document = due, deadline_s, urgent, document
        self.took = None


class Plain:
    """A batcher without deadlines: what most servers do."""

    def __init__(self, largest, wait_s):
        self.largest, self.wait_s = largest, wait_s
        self.items, self.changed, self.over = collections.deque(), threading.Condition(), False

    def submit(self, r):
        with self.changed:
            self.items.append(r)
            self.changed.notify()
        return True

    def batches(self):
        while True:
            with self.changed:
                while not self.items and not self.over:
                    self.changed.wait()
                if self.over:
                    return
                end = self.items[0].due + self.wait_s
                while 0 < len(self.items) < self.largest and time.monotonic() < end and not self.over:
                    self.changed.wait(max(0, end - time.monotonic()))
                batch = [self.items.popleft() for _ in range(min(self.largest, len(self.items)))]
            if batch:
                yield batch, None

    def close(self):
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def figures(self):
        return {}


class Cede:
    """cede's queue: one device, a lease for each batch."""

    def __init__(self, workers, admit, one_s, soft):
        self.pool = cede.Pool(gpu=not soft, devices=1, max_concurrent_streams=workers, target_utilization_percent=100)
        self.queue = cede_queue.Queue(pool=self.pool, policy=cede_queue.EDF, admit=int(admit), batches=workers,
                                      capacity=1 << 16, batch_max=BATCH, batch_wait_us=round(FIXED_WAIT_S * 1e6),
                                      expected_us=max(1, round(one_s * 1e6)))

    def submit(self, r):
        left = r.deadline - (time.monotonic() - r.due)
        try:
            self.queue.submit(r, cls=cede.LATENCY if r.urgent else cede.NORMAL,
                              deadline_us=0 if math.isinf(left) else max(1, round(left * 1e6)))
            return True
        except cede_queue.Refused:
            return False

    def batches(self):
        for batch in self.queue.batches(0):
            yield batch.items, batch.lease

    def close(self):
        self.queue.shutdown()

    def free(self):
        self.queue.close()
        self.pool.close()

    def figures(self):
        s, p = self.queue.statistics(), self.pool.statistics(0)
        return {"queue": {n: getattr(s, n) for n, _ in s._fields_}, "leases": p.started, "leases_waited_out": p.timed_out}


class Bench:
    def __init__(self, args):
        self.soft, self.seconds = args.soft, args.seconds
        make = (lambda: models.Soft(0, 2, 0.15)) if self.soft else \
            (lambda: models.Bert(0, BATCH, 128, args.layers, 1024, 16))
        self.models = [make() for _ in range(2)]
        rng = random.Random(1)
        self.rows = [[101] + [rng.randrange(1000, 30000) for _ in range(40 + n)] + [102] for n in range(DOCUMENTS)]
        self.expected = [self.models[0].run([row], lambda: None)[0] for row in self.rows]
        self.batch_s = {n: self.time(n) for n in (1, 2, 4, 8, BATCH)}
        self.short_s, self.long_s = 3 * self.batch_s[BATCH], 10 * self.batch_s[BATCH]

    def time(self, n):
        """The median time of a batch of n by itself."""
        rows, took = [self.rows[i % DOCUMENTS] for i in range(n)], []
        for _ in range(20):
            began = time.monotonic()
            self.models[0].run(rows, lambda: None)
            took.append(time.monotonic() - began)
        return sorted(took)[10]

    def work(self, model, source, tally):
        for requests, lease in source.batches():
            rows = [self.rows[r.document] for r in requests]
            try:
                if lease is None:
                    out = model.run(rows, lambda: None)
                else:
                    with lease.torch():
                        out = model.run(rows, lambda: None)
            except Exception as e:  # shown; the rest of the run counts as late
                tally["errors"].append(repr(e))
                return
            now = time.monotonic()
            for r, row in zip(requests, out):
                r.took = now - r.due
                tally["wrong"] += any(abs(a - b) > 0.05 for a, b in zip(row, self.expected[r.document]))
            tally["batches"] += 1
            tally["answered"] += len(requests)

    def run(self, mode, workers, rate, seed):
        one = self.batch_s[1]
        source = Plain(1, 0) if mode == "batch 1" else Plain(BATCH, FIXED_WAIT_S) if mode == "fixed" else \
            Cede(workers, mode == "cede+admit", one, self.soft)
        tallies = [{"wrong": 0, "batches": 0, "answered": 0, "errors": []} for _ in range(workers)]
        threads = [threading.Thread(target=self.work, args=(self.models[i], source, tallies[i]), daemon=True)
                   for i in range(workers)]
        for t in threads:
            t.start()
        for n in (1, 2, 4, 8, BATCH, BATCH):  # it learns its run times
            warm = [Request(time.monotonic(), math.inf, False, i % DOCUMENTS) for i in range(n)]
            for r in warm:
                source.submit(r)
            end = time.monotonic() + 2
            while any(r.took is None for r in warm) and time.monotonic() < end:
                time.sleep(0.001)
        for t in tallies:
            t["batches"] = t["answered"] = 0
        rng = random.Random(seed)
        requests, refused, at = [], 0, time.monotonic() + 0.01
        end = at + self.seconds
        while (at := at + rng.expovariate(rate)) < end:
            urgent = rng.random() < 0.25
            requests.append(Request(at, self.short_s if urgent else self.long_s, urgent, rng.randrange(DOCUMENTS)))
        behind = 0.0
        for r in requests:
            left = r.due - time.monotonic()
            if left > 0:
                time.sleep(left)
            behind = max(behind, time.monotonic() - r.due)
            refused += not source.submit(r)
        patience = time.monotonic() + 2 * self.long_s
        while sum(t["answered"] for t in tallies) < len(requests) - refused and time.monotonic() < patience:
            time.sleep(0.001)
        figures = source.figures()
        source.close()
        for t in threads:
            t.join(10)
        if hasattr(source, "free") and not any(t.is_alive() for t in threads):
            source.free()
        return self.result(mode, workers, rate, requests, refused, behind, tallies, figures)

    def result(self, mode, workers, rate, requests, refused, behind, tallies, figures):
        def quantile(q, urgent):
            v = sorted(r.took for r in requests if r.took is not None and r.urgent == urgent)
            return round(v[min(len(v) - 1, int(q * len(v)))] * 1e3, 3) if v else None
        good = sum(r.took is not None and r.took <= r.deadline for r in requests)
        good_short = sum(r.took is not None and r.took <= r.deadline for r in requests if r.urgent)
        answered, batches = sum(t["answered"] for t in tallies), sum(t["batches"] for t in tallies)
        return {"mode": mode, "workers": workers, "rate": round(rate, 1), "requests": len(requests),
                "answered": answered, "refused": refused, "in_time": good,
                "short_requests": sum(r.urgent for r in requests), "short_in_time": good_short,
                "goodput": round(good / self.seconds, 1), "throughput": round(answered / self.seconds, 1),
                "mean_batch": round(answered / batches, 2) if batches else None,
                "p50_short_ms": quantile(0.5, True), "p99_short_ms": quantile(0.99, True),
                "p50_long_ms": quantile(0.5, False), "p99_long_ms": quantile(0.99, False),
                "wrong": sum(t["wrong"] for t in tallies), "errors": [e for t in tallies for e in t["errors"]],
                "arrivals_behind_ms": round(behind * 1e3, 3), **figures}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("file")
    p.add_argument("--soft", action="store_true", help="sleeps in place of a model")
    p.add_argument("--seconds", type=float, default=2.2, help="of each of the 32 runs")
    p.add_argument("--layers", type=int, default=24)
    args = p.parse_args()
    if not cede.available():
        sys.exit("libcede was not found: build it, or set CEDE_LIBRARY")
    began = time.monotonic()
    os.environ["CEDE_DIR"] = "/nonexistent"  # by itself: no daemon
    sys.setswitchinterval(5e-4)  # the longest that one thread delays another
    signal.alarm(LIMIT_S + 25)   # ends a program that hangs
    out = {"program": "batching", **provenance.head(), "soft": args.soft, "seconds": args.seconds, "runs": []}
    bench = Bench(args)
    if not args.soft:
        import torch
        out.update(gpu=torch.cuda.get_device_name(0), torch=torch.__version__, cuda=torch.version.cuda)
    capacity = BATCH / bench.batch_s[BATCH]
    out.update(batch_ms={n: round(s * 1e3, 3) for n, s in bench.batch_s.items()}, capacity=round(capacity, 1),
               deadline_ms=[round(bench.short_s * 1e3, 2), round(bench.long_s * 1e3, 2)],
               started_s=round(time.monotonic() - began, 1))
    rates = (0.7 / bench.batch_s[1], 0.5 * capacity, 0.8 * capacity, 1.2 * capacity)
    for seed, rate in enumerate(rates):
        for mode in MODES:
            for workers in (1, 2):
                if time.monotonic() - began > LIMIT_S:
                    out["cut_off"] = True
                    continue
                out["runs"].append(bench.run(mode, workers, rate, seed))
        with open(args.file, "w", encoding="ascii") as f:
            json.dump(out, f, indent=1)
    show(out)
    bad = [r for r in out["runs"] if r["wrong"] or r["errors"]]
    sys.stdout.flush()
    os._exit(1 if bad or out.get("cut_off") else 0)


def show(out):
    print(f"{out.get('gpu', 'no GPU')}, torch {out.get('torch', '-')}; batches of 1 2 4 8 16 take "
          f"{' '.join(str(v) for v in out['batch_ms'].values())} ms: up to {out['capacity']} requests/s; deadlines "
          f"{out['deadline_ms'][0]} (a quarter) and {out['deadline_ms'][1]} ms")
    print(f"{'rate/s':>7} {'workers':>7} {'mode':11} {'goodput':>8} {'in time':>8} {'short':>8} {'refused':>8} {'batch':>6}"
          f" {'p50':>8} {'p99 short':>10} {'p99 long':>9}   ms")
    for r in out["runs"]:
        share = 100 * r["in_time"] / max(1, r["requests"])
        short = 100 * r["short_in_time"] / max(1, r["short_requests"])
        print(f"{r['rate']:7.0f} {r['workers']:7} {r['mode']:11} {r['goodput']:8.0f} {share:7.1f}% {short:7.1f}% "
              f"{r['refused']:8} {r['mean_batch'] or 0:6.1f} {r['p50_long_ms'] or 0:8.1f} {r['p99_short_ms'] or 0:10.1f} "
              f"{r['p99_long_ms'] or 0:9.1f}" + (f"  wrong {r['wrong']}" if r["wrong"] else "") +
              (f"  {r['errors'][0]}" if r["errors"] else ""))


if __name__ == "__main__":
    main()
