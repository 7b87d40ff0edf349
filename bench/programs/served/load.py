"""Runs the servers of server.py under loads, and prints one line of JSON for each run: load.cpp in Python."""
import json
import random
import threading
import time

from work import BULK, LARGE, SMALL


class Model:
    def __init__(self, kind, name, deadline_us, share, **cede):
        self.kind, self.name, self.deadline_us, self.share, self.batch_max = kind, name, deadline_us, share, 8
        self.cede = cede  # batch_wait_us, cls, occupancy


class Request:
    def __init__(self, arrival):
        self.arrival, self.answered, self.refused = arrival, None, False  # us, from the start of the run


class Run:
    def __init__(self, mode, load, seconds, work, models, times):
        self.mode, self.load, self.seconds, self.work, self.models, self.times = mode, load, seconds, work, models, times
        self.length_us = seconds * 1e6 + max(m.deadline_us for m in models)
        self.requests, self.batches, self.bulk, self.over = [], [0] * len(models), 0, False
        self.queues, self.pool, self.lock = [], None, threading.Lock()
        for m in models:
            at, gap, requests = 0, m.share * load * m.batch_max / times[m.kind][1], random.Random(m.kind)
            self.requests.append(requests_of := [])
            while (at := at + requests.expovariate(gap)) < seconds * 1e6:
                requests_of.append(Request(at))

    def begin(self):
        self.start = time.monotonic_ns()

    def now(self):
        return (time.monotonic_ns() - self.start) / 1000

    def sleep_until(self, us):
        time.sleep(max(us - self.now(), 0) / 1e6)

    def arrive(self, m, submit):
        """Calls submit(request) at each one's arrival, however slow the server is."""
        for q in self.requests[m]:
            self.sleep_until(q.arrival)
            if self.over:
                return
            submit(q)

    def answered(self, m, batch):
        now = self.now()
        for q in batch:
            q.answered = now
        with self.lock:
            self.batches[m] += 1

    def report(self):
        out = {"mode": self.mode, "load": self.load, "seconds": self.seconds, "bulk": self.bulk,
               "displaced": self.pool.displaced if self.pool else 0, "timed_out": self.pool.timed_out if self.pool else 0}
        for m, model in enumerate(self.models):
            sent = self.requests[m]
            # A request without an answer is late: when a run ends, all deadlines have passed.
            took = sorted((self.length_us if q.answered is None else q.answered) - q.arrival for q in sent if not q.refused)
            met = sum(q.answered is not None and q.answered - q.arrival <= model.deadline_us for q in sent)
            part = {"sent": len(sent), "answered": met, "late": len(took) - met, "refused": sum(q.refused for q in sent),
                    "unanswered": sum(q.answered is None and not q.refused for q in sent), "batches": self.batches[m],
                    "p50_ms": took[len(took) // 2] / 1000 if took else 0,
                    "p99_ms": took[len(took) * 99 // 100] / 1000 if took else 0}
            for name in ("alone", "behind", "others"):
                part[name] = getattr(self.queues[m], name) if self.queues else 0
            out[model.name] = part
        print(json.dumps(out), flush=True)


def measure(work, models):
    """Run times alone in us, of one request and of a full batch, by kind."""
    times = {}
    for kind, most in [(m.kind, m.batch_max) for m in models] + [(BULK, 1)]:
        run, stream = work.runner(kind, most), work.stream(0)
        times[kind] = []
        for n in (1, most):
            seen = []
            for _ in range(12):
                before = time.monotonic_ns()
                with stream():
                    run(n)
                seen.append((time.monotonic_ns() - before) / 1000)
            times[kind].append(sorted(seen[3:])[4])  # the first ones are for warming up
    print(json.dumps({"small_ms": [t / 1000 for t in times[SMALL]], "large_ms": [t / 1000 for t in times[LARGE]],
                      "bulk_ms": times[BULK][0] / 1000}), flush=True)
    return times
