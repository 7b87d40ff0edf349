"""Shared by the programs of the video conference: their clock, their output, and how they report requests to cede.
Without cede, its library or its daemon everything runs the same, and no request is reported."""
import json
import pathlib
import signal
import sys
import time

try:
    import cede
except ImportError:
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    try:
        import cede
    except ImportError:
        cede = None


def torch():
    try:
        import torch as module
    except ImportError:
        sys.exit("PyTorch is not installed; --pretend-ms 10 does without")
    if not module.cuda.is_available():
        sys.exit("no GPU that PyTorch can use; --pretend-ms 10 does without")
    return module


class _Untold:
    """Stands in for cede.Client."""

    def request(self, **_):
        return self

    def connected(self):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def client():
    return cede.Client() if cede else _Untold()


class Run:
    """Requests that come every period, until the time is over or SIGTERM or SIGINT comes."""

    def __init__(self, role, period_s, due_s, seconds, report):
        self.role, self.period, self.due, self.report = role, period_s, due_s, report
        self.cede = client()
        self.latencies, self.late, self.dropped, self.stop = [], 0, 0, False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self.start = time.monotonic()
        self.end = self.start + seconds if seconds else float("inf")
        if report:
            self._line(t=self.start, requests=0, latencies_us=[])

    def _stop(self, *_):
        self.stop = True

    @staticmethod
    def _line(**fields):
        print(json.dumps(fields), flush=True)

    def _wait(self, until):
        """False: the run is over. Spins at the end, as the host may wake late, which would not be the GPU's
        fault."""
        while not self.stop:
            now = time.monotonic()
            if now >= min(until, self.end):
                break
            if min(until, self.end) - now > 0.002:
                time.sleep(min(min(until, self.end) - now - 0.0015, 0.2))
        return not self.stop and time.monotonic() < self.end

    def requests(self, serve, drop):
        """Calls serve() for each request. drop: skips a request whose successor has come already, as a camera
        skips frames; it counts as late."""
        n = 0
        while self._wait(self.start + n * self.period):
            now = time.monotonic()
            behind = int((now - self.start) / self.period) - n
            if drop and behind > 0:
                self.dropped += behind
                n += behind
            came = self.start + n * self.period
            left = came + self.due - now
            with self.cede.request(deadline_us=max(1, int(left * 1e6))):
                serve()
            took = time.monotonic() - came
            n += 1
            self.late += took > self.due
            self.latencies.append(took)
            if self.report:
                self._line(t=came + took, requests=len(self.latencies), latencies_us=[took * 1e6])

    def final(self, **more):
        v = sorted(self.latencies)

        def ms(p):
            return round(v[max(0, -(-len(v) * p // 100) - 1)] * 1e3, 3) if v else None
        self._line(role=self.role, requests=len(v), p50_ms=ms(50), p99_ms=ms(99), max_ms=ms(100),
                   late=self.late + self.dropped, dropped=self.dropped, told=self.cede.connected(),
                   seconds=round(time.monotonic() - self.start, 3), **more)


def options(parser, what):
    parser.add_argument("--seconds", type=float, default=0, help="0: until SIGTERM")
    parser.add_argument("--report", action="store_true", help="one line of JSON per request")
    parser.add_argument("--measure", action="store_true",
                        help=f"print the GPU time of {what} on an idle GPU, and exit")
    parser.add_argument("--pretend-ms", type=float, default=0,
                        help="sleep this long instead: needs no GPU and no PyTorch")
