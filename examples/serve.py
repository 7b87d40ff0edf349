"""A server loop in Python: it admits requests that will be in time, runs them in batches on leases of the GPUs, and
ends as a whole if one part of it fails. Runs without a GPU and without a daemon too. A sleep stands for the work.

    python3 serve.py          # CEDE_LIBRARY: the path of libcede.so.0, if it is not installed
"""
import pathlib
import sys
import time

# For the source tree.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import cede
import cede_queue
import cede_scope


class Question:
    def __init__(self, number):
        self.number, self.answer = number, None


def receive(scope, queue, questions):
    """Hands in requests, as a socket would. A request that would be late is refused at once."""
    try:
        for q in questions:
            if scope.cancelled():
                break
            try:
                queue.submit(q, deadline_us=50000)
            except cede_queue.Refused as why:
                print(f"request {q.number}: {why}", file=sys.stderr)
            time.sleep(200e-6)
        while queue.statistics().waiting and not scope.cancelled():
            time.sleep(1e-3)
    finally:
        queue.shutdown()  # returns what still waits


def run(queue):
    """Runs one batch after the other until the queue is shut down. If this raises, the batch is reported as failed, its
    lease is released, and the scope is cancelled."""
    for batch in queue.batches():
        with batch.lease.torch():  # on a GPU PyTorch's current stream is the lease's
            time.sleep(1e-3)  # in place of: model(batch.items)
        for q in batch.items:
            q.answer = True


def main():
    questions = [Question(i) for i in range(100)]
    client = cede.Client()  # the queue reports requests on it
    pool = cede.Pool()
    pool.occupancy("gemm", 0.3)
    queue = cede_queue.Queue(client, pool, admit=True, batch_max=8, batch_wait_us=500)
    queue.set_lease(0, "gemm")
    with cede_scope.Scope(threads=3, timeout_us=10 * 10**6) as scope:
        scope.fork(receive, scope, queue, questions)
        for _ in range(2):  # as many batches at a time, where the GPU has room
            scope.fork(run, queue)
    answered = sum(q.answer is not None for q in questions)
    print(f"{answered} requests answered in {queue.statistics().batches} batches")


if __name__ == "__main__":
    main()
