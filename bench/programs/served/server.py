"""A server of two models, with a long computation in what they leave of the GPU, written twice: with a thread and a
stream per model, first come first served, and with libcede's queues, leases and a scope. docs/serving.md has excerpts
of the second; server.cpp is the same in C++.

    server.py [--sleep] SECONDS MODE:LOAD...     e.g. server.py 6 plain:0.8 cede:0.8

CEDE_LIBRARY: the path of libcede.so.0, if it is not installed."""
import pathlib
import sys
import threading
import time

# For the source tree.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import cede
import cede_queue
import cede_scope
from load import Model, Run, measure
from work import BULK, LARGE, SMALL, Sleep, Torch

MODELS = [
    Model(SMALL, "small", 10000, 0.25, batch_wait_us=2000, cls=cede.LATENCY, occupancy=0.25),
    Model(LARGE, "large", 100000, 0.75, batch_wait_us=15000, cls=cede.NORMAL, occupancy=1),
]


# As people write it.

def serve_plain(r):
    """Mode `priority`: on streams of different priorities, as in CUDA: the lowest number is the best."""
    lines = [[] for _ in MODELS]
    more = [threading.Condition() for _ in MODELS]

    def receive(m):
        def put(q):
            with more[m]:
                lines[m].append(q)
                more[m].notify()
        r.arrive(m, put)

    def answer(m, run, stream):
        while True:
            with more[m]:
                more[m].wait_for(lambda: r.over or lines[m])
                if r.over:
                    return
                batch, lines[m][:] = lines[m][:MODELS[m].batch_max], lines[m][MODELS[m].batch_max:]
            with stream():
                run(len(batch))
            r.answered(m, batch)

    def bulk(run, stream):
        while not r.over:
            with stream():
                run(1)
            r.bulk += 1

    threads = [threading.Thread(target=bulk, args=(r.work.runner(BULK, 1), r.work.stream(0)))]
    for m, model in enumerate(MODELS):
        threads.append(threading.Thread(target=receive, args=(m,)))
        stream = r.work.stream(m - 2 if r.mode == "priority" else 0)
        threads.append(threading.Thread(target=answer, args=(m, r.work.runner(model.kind, model.batch_max), stream)))
    r.begin()
    for t in threads:
        t.start()
    r.sleep_until(r.length_us)
    for condition in more:
        with condition:
            r.over = True
            condition.notify()
    for t in threads:
        t.join()


# With libcede.

def submit(r, m, queue):
    def put(q):
        due_us = int(q.arrival + MODELS[m].deadline_us - r.now())  # counts from now
        try:
            queue.submit(q, cls=MODELS[m].cede["cls"], deadline_us=max(due_us, 1))  # 0 would be none
        except cede_queue.Refused:
            q.refused = True
        except cede_queue.Closed:
            pass  # shut down meanwhile
    r.arrive(m, put)


def run_queue(r, m, queue, run):
    for batch in queue.batches():
        with batch.lease.torch():
            run(len(batch.items))
        r.answered(m, batch.items)


def run_bulk(r, pool, run):
    while not r.over:
        with pool.acquire(device=0, kernel="bulk", timeout_us=cede.TIMEOUT_FOREVER) as lease, lease.torch():
            run(1)
        r.bulk += 1


def serve_cede(r):
    client = cede.Client()
    pool = cede.Pool(max_total_occupancy=1.3)  # a batch that fills the GPU, and a small one
    pool.occupancy("bulk", 1)
    queues, runners = [], []
    for model in MODELS:  # one queue per deadline
        pool.occupancy(model.name, model.cede["occupancy"])
        # quantile: run times vary with what runs beside
        queue = cede_queue.Queue(client, pool, admit=True, quantile=0.95)
        queue.set_model(0, model.batch_max, model.cede["batch_wait_us"], int(r.times[model.kind][0]))
        queue.set_lease(0, model.name)
        queues.append(queue)
        # Warmed up before the first batch, whose time is learned.
        runners.append([r.work.runner(model.kind, model.batch_max, i) for i in range(2)])
    bulk = r.work.runner(BULK, 1)
    r.begin()
    with cede_scope.Scope(threads=3 * len(MODELS) + 1) as scope:  # as many threads as tasks
        for m, queue in enumerate(queues):
            scope.fork(submit, r, m, queue)
            for run in runners[m]:
                scope.fork(run_queue, r, m, queue, run)
        scope.fork(run_bulk, r, pool, bulk)
        # batches() does not know of the scope: a queue that is shut down ends it.
        try:
            while r.now() < r.length_us and not scope.cancelled():
                time.sleep(1e-3)
        finally:
            r.over = True
            for queue in queues:
                queue.shutdown()
    r.queues, r.pool = [q.statistics() for q in queues], pool.statistics()
    for queue in queues:
        queue.close()
    pool.close()


def main(args):
    work = Sleep() if args[:1] == ["--sleep"] else Torch()
    args = [a for a in args if a != "--sleep"]
    times = measure(work, MODELS)
    for mode, load in (a.split(":") for a in args[1:]):
        r = Run(mode, float(load), float(args[0]), work, MODELS, times)
        {"plain": serve_plain, "priority": serve_plain, "cede": serve_cede}[mode](r)
        r.report()


if __name__ == "__main__":
    main(sys.argv[1:])
