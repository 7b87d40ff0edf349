#!/usr/bin/env python3
"""Passes a GPU between jobs that work in turns, such as the trainer and the server of a reinforcement learning loop,
by `cede yield` and `cede acquire`. A job that gives the GPU is suspended; with --memory its memory leaves the GPU too.

As a program, for the hook of a framework that drives both: the first job gives the GPU and the second has it. If the
second cannot have it, the first has it back.

    usage: turn.py pass FROM TO [--memory] [--timeout S]

As a module, in each of several jobs of one machine that drive themselves: the interface of the client of llm-d's time
slicing, where jobs with the same group have the GPU one at a time. A job whose program ends has given it.

    client = turn.Turn("trainer", group="rl")
    with client.on_accelerators():
        train()

Jobs are started by `cede run -n NAME`. Another user's job is passed on by root only, as 1000/NAME.
"""
import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
import time

CEDE = os.environ.get("CEDE_EXE", "cede")
MOVE_S = 60  # for a move out, besides its time-out for coming in


class TurnError(Exception):
    pass


def _cede(*args, timeout_s):
    try:
        done = subprocess.run([CEDE, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise TurnError(f"cede {' '.join(args)}: {e}") from e
    if done.returncode:
        raise TurnError(f"cede {' '.join(args)}: {done.stderr.strip()}")


def give(job, memory=False, timeout_s=300):
    _cede("yield", "--pause", *(["--memory"] if memory else []), job, timeout_s=timeout_s + MOVE_S)


def take(job, timeout_s=300):
    _cede("acquire", "--timeout", f"{timeout_s:g}s", job, timeout_s=timeout_s + MOVE_S)


def pass_on(giver, taker, memory=False, timeout_s=300):
    give(giver, memory, timeout_s)
    try:
        take(taker, timeout_s)
    except TurnError:
        take(giver, timeout_s)
        raise


class Turn:
    """Not for use by several threads. Between acquire() and release() this process holds the lock of its group. The job
    that is next holds a second lock, so that one that has just released cannot overtake it."""

    def __init__(self, job, group="gpu", memory=False, directory=None):
        self.job, self.memory = job, memory
        folder = directory or os.environ.get("XDG_RUNTIME_DIR") or "/run/lock"
        self.gpu, self.next = (os.open(os.path.join(folder, f"turn-{group}.{name}"), os.O_RDWR | os.O_CREAT, 0o600)
                               for name in ("lock", "next"))

    def _lock(self, lock, end):
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise TurnError(f"{self.job}: other jobs had the GPU all the time") from None
                time.sleep(0.01)

    def acquire(self, timeout_sec=300):
        """Waits until no other job of the group has the GPU. TurnError: it was not there in time."""
        end = time.monotonic() + timeout_sec
        self._lock(self.next, end)
        try:
            self._lock(self.gpu, end)
        finally:
            fcntl.flock(self.next, fcntl.LOCK_UN)
        try:
            take(self.job, max(end - time.monotonic(), 1))
        except TurnError:
            fcntl.flock(self.gpu, fcntl.LOCK_UN)
            raise

    def release(self):
        """The work on the GPU should have ended, as by torch.cuda.synchronize()."""
        try:
            give(self.job, self.memory)
        finally:
            fcntl.flock(self.gpu, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def on_accelerators(self, timeout_sec=300):
        self.acquire(timeout_sec)
        try:
            yield
        finally:
            self.release()

    def close(self):
        os.close(self.gpu)
        os.close(self.next)


def main():
    parser = argparse.ArgumentParser(prog="turn.py")
    verbs = parser.add_subparsers(dest="verb", required=True)
    p = verbs.add_parser("pass", help="the GPU, from one job to another")
    p.add_argument("giver", metavar="FROM")
    p.add_argument("taker", metavar="TO")
    p.add_argument("--memory", action="store_true", help="FROM's memory moves to host memory")
    p.add_argument("--timeout", type=float, default=300, metavar="S")
    a = parser.parse_args()
    try:
        pass_on(a.giver, a.taker, a.memory, a.timeout)
    except TurnError as e:
        sys.exit(f"turn.py: {e}")


if __name__ == "__main__":
    main()
