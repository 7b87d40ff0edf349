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
