"""Processes that run kernels when they are asked: bench_interference (meet.c has its requests), and torch_mm.py, which answers
the same request "laps"; and an MPS server for several of them."""
import json
import os
import select
import statistics
import subprocess
import tempfile
import time


class Failed(Exception):
    """A process has ended, or has not answered in time; the text says which."""


class Process:
    """deadline: of time.monotonic(), for all answers; the process is killed when it has passed."""

    def __init__(self, command, deadline, env=None):
        self.deadline = deadline
        try:
            self.child = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        except OSError as e:
            raise Failed(f"{command[0]}: {e.strerror}") from e
        try:
            self.stage = self.get()
        except Failed:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def put(self, request):
        try:
            print(json.dumps(request), file=self.child.stdin, flush=True)
        except OSError as e:
            raise Failed(f"{os.path.basename(self.child.args[0])}: {e.strerror}") from e

    def has_answer(self, seconds=0.0):
        return bool(select.select([self.child.stdout], [], [], seconds)[0])

    def get(self):
        """The answer to the last request: a line, which is the only one that is due."""
        if not self.has_answer(max(0, self.deadline - time.monotonic())):
            raise Failed("no answer before the part's time was up")
        line = self.child.stdout.readline()
        if not line:
            raise Failed(f"{' '.join(map(str, self.child.args))}: ended with status {self.child.wait()}")
        return json.loads(line)

    def ask(self, request):
        self.put(request)
        return self.get()

    def close(self):
        """A process ends by itself when its input does; one that hangs, or whose time is up, is killed."""
        try:
            self.child.stdin.close()
        except OSError:
            pass  # what it did not read does not matter
        try:
            self.child.wait(timeout=5 if time.monotonic() < self.deadline else 0)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()


class Server:
    """An MPS server with folders of its own. env(): of a client, with a percentage of the SMs or all of them."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.own = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=self.folder.name, CUDA_MPS_LOG_DIRECTORY=self.folder.name)
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.own, check=True, timeout=20)
        except (OSError, subprocess.SubprocessError) as e:
            self.folder.cleanup()
            raise Failed(f"MPS does not start: {e}") from e
        return self

    def env(self, percent=None):
        return {**self.own, **({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)} if percent else {})}

    def __exit__(self, *_):
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=self.own, timeout=20, check=False)
        except subprocess.SubprocessError:
            pass
        self.folder.cleanup()


def lap_ms(answer):
    """The median duration of a lap."""
    return statistics.median(b - a for a, b in zip(answer["start_ns"], answer["end_ns"])) / 1e6


def alone(process, request, seconds):
    """The answer of a process that nothing disturbs; and the same request with as many steps in a lap."""
    answer = process.ask({**request, "seconds": seconds, "steps": 0})
    return answer, {**request, "steps": answer["steps"]}


def beside(process, request, other, other_request, seconds):
    """The duration of a lap while the other process runs; false: the other ended before."""
    other.put({**other_request, "seconds": 3 * seconds + 2})
    time.sleep(0.5)
    ms = lap_ms(process.ask({**request, "seconds": seconds}))
    covered = not other.has_answer()
    other.get()
    return ms, covered


def slowdowns(pair, requests, seconds):
    """Of two processes: the answer of each alone, how much longer its laps are while the other runs, and whether it ran all the
    time."""
    answers, fixed = zip(*(alone(p, r, seconds) for p, r in zip(pair, requests)))
    found = [beside(pair[i], fixed[i], pair[1 - i], fixed[1 - i], seconds) for i in (0, 1)]
    return answers, [ms / lap_ms(a) for (ms, _), a in zip(found, answers)], [covered for _, covered in found]
