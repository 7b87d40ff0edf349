"""What the programs here have in common: lines in the shape of cede-load's, a stop on SIGTERM, and an
open loop of requests whose latency counts from the time they were due. They know nothing of cede."""
import json
import signal
import time

stop = False


def _on_term(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, _on_term)
signal.signal(signal.SIGINT, _on_term)


def line(**fields):
    print(json.dumps(fields), flush=True)


def ready():
    """All is warm: requests or work follow."""
    line(t=time.monotonic(), work_us=0.0)


def work(units):
    """So many units of work done since the start (an iteration, say); a rate of 1 is one a second."""
    line(t=time.monotonic(), work_us=units * 1e6)


def final(role, verified, **more):
    line(role=role, verified=verified, **more)


def requests(period_s, serve):
    """Calls serve() every period, one at a time, until the stop; each request is told when it is done."""
    start = due = time.monotonic()
    line(t=start, requests=0, latencies_us=[])
    n = 0
    while not stop:
        n += 1
        due = start + n * period_s
        while time.monotonic() < due and not stop:
            left = due - time.monotonic()
            if left > 0.002:  # the host may wake late, which is not the GPU's doing
                time.sleep(left - 0.0015)
        if stop:
            break
        serve()
        now = time.monotonic()
        line(t=now, requests=n, latencies_us=[(now - due) * 1e6])
    return n


class Clock:
    """The times from one tick to the next, which are the latencies of a closed loop; told every 50 ms."""

    def __init__(self):
        self.latencies, self.told, self.begun, self.last, self.spoke = [], 0, 0, 0, 0

    def start(self):
        self.begun = self.last = self.spoke = time.monotonic()
        line(t=self.begun, requests=0, latencies_us=[])

    def tick(self):
        now = time.monotonic()
        self.latencies.append((now - self.last) * 1e6)
        self.last = now
        if now - self.spoke >= 0.05:
            self.spoke = now
            line(t=now, requests=len(self.latencies), latencies_us=self.latencies[self.told:])
            self.told = len(self.latencies)

    def rate(self):
        return len(self.latencies) / max(self.last - self.begun, 1e-9)


def closed(serve):
    """Calls serve() at once again when it has ended, until the stop; the clock that had its times."""
    clock = Clock()
    clock.start()
    while not stop:
        serve()
        clock.tick()
    return clock


def percentiles(latencies):
    """p50 and p99, each the smallest that so many do not exceed; None: there are no latencies."""
    v = sorted(latencies)
    return {f"p{p}_us": v[(len(v) * p + 99) // 100 - 1] if v else None for p in (50, 99)}


def saturate(step, every=0.05):
    """Calls step(), which does one unit of work to its end, until the stop."""
    ready()
    n, told = 0, time.monotonic()
    while not stop:
        step()
        n += 1
        if time.monotonic() - told >= every:
            told = time.monotonic()
            work(n)
    return n
