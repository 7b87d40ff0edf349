"""Leases on PyTorch's streams (python/cede.py, cede_memory.py, cede_scope.py, cede_slice.py) on a GPU: the block of
pool.lease() does not wait for its work, what comes after it does, and the lease ends with the work. Prints a table of
what the two ways to end a lease cost. Skips (77) without PyTorch or a GPU; ends after 140 s at the latest.

usage: test_python_stream_gpu.py LIBRARY [JSON_FILE]"""
import json
import os
import signal
import sys
import threading
import time

os.environ["CEDE_LIBRARY"] = sys.argv[1]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.dont_write_bytecode = True
signal.alarm(140)
try:
    import torch
except ImportError:
    print("no PyTorch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("no GPU")
    sys.exit(77)
import cede  # noqa: E402
import cede_memory  # noqa: E402
import cede_scope  # noqa: E402
import cede_slice  # noqa: E402

faults, rows, LONG_MS = [], [], 100


def check(what, holds):
    print("ok  " if holds else "FAIL", what, flush=True)
    if not holds:
        faults.append(what)


def cycles_per_ms():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(10**7)
    end.record()
    end.synchronize()
    return int(10**7 / begin.elapsed_time(end))


PER_MS = cycles_per_ms()


def active(pool):
    return pool.statistics().active


def until_free(pool):
    end = time.monotonic() + 20
    while active(pool) and time.monotonic() < end:
        time.sleep(0.001)
    return active(pool) == 0


def streams(pool):
    """Work of 100 ms in the block, then its result on the stream that was current before."""
    side = torch.cuda.Stream()
    (torch.ones(2, device="cuda") * 2 + 1).sum().item()  # kernels are loaded here: that waits for the device
    for name, stream in (("the lease's", None), ("the current", cede.CURRENT), ("another", side)):
        x = torch.full((1 << 16,), 3.0, device="cuda")
        before = torch.cuda.current_stream()
        begin = time.monotonic()
        with pool.lease(device=0, stream=stream) as lease:
            wanted = {None: lease.stream, cede.CURRENT: before.cuda_stream, side: side.cuda_stream}[stream]
            check(f"{name}: stream", torch.cuda.current_stream().cuda_stream == wanted)
            torch.cuda._sleep(LONG_MS * PER_MS)
            y = x * 2
        left = (time.monotonic() - begin) * 1000
        check(f"{name}: the lease is held while its work runs", active(pool) == 1)
        check(f"{name}: the former stream is current again", torch.cuda.current_stream() == before)
        total = (y + 1).sum().item()
        check(f"{name}: what comes later sees the result", total == 7.0 * (1 << 16))
        check(f"{name}: the lease ends", until_free(pool))
        rows.append((f"block with {LONG_MS} ms of work, {name} stream: host, ms", round(left, 2)))


def release_lag(pool, busy):
    """From the end of the work to the release, with a main thread that computes, or sleeps; ms, median of 21."""
    lags = []
    for _ in range(21):
        with pool.lease(device=0):
            torch.cuda._sleep(5 * PER_MS)
            done = torch.cuda.Event()
            done.record()
        while not done.query():
            if not busy:
                time.sleep(0.00005)
        begin = time.perf_counter()
        while active(pool):
            if not busy:
                time.sleep(0.00005)
        lags.append((time.perf_counter() - begin) * 1000)
    return round(sorted(lags)[10], 3)


def product_rate(pool, way, seconds=4):
    """Products per second of 4 threads that take a lease for each, and whether all results are right."""
    a = torch.randint(-2, 3, (512, 512), device="cuda").float()
    right, stop, counts, wrong = a @ a, time.monotonic() + seconds, [], []

    def work():
        n, out = 0, None
        while time.monotonic() < stop:
            if way == "lease":
                with pool.lease(device=0):
                    out = a @ a
            else:
                with pool.acquire(device=0) as lease, lease.torch():
                    out = a @ a
            n += 1
            if n % 50 == 0 and not torch.equal(out, right):
                wrong.append(n)
        counts.append(n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(f"{way}: results of 4 threads", not wrong)
    check(f"{way}: all leases end", until_free(pool))
    return round(sum(counts) / seconds)


def scopes(pool):
    side, ends, seen = torch.cuda.Stream(), [], []
    with cede_scope.Scope(2) as scope:
        def task():
            with pool.lease(device=0):
                torch.cuda._sleep(20 * PER_MS)
                end = torch.cuda.Event()
                end.record()
                ends.append(end)
        for _ in range(4):
            scope.fork(task)
    check("scope: its work has ended with it", len(ends) == 4 and all(e.query() for e in ends) and not active(pool))
    with cede_scope.Scope(1, stream=side) as scope:
        scope.fork(lambda: seen.append(torch.cuda.current_stream() == side))
    check("scope: its stream is current in tasks", seen == [True])


def memory(pool):
    m = cede_memory.Memory()
    with m.lease(pool, memory_bytes=1 << 20) as lease:
        torch.cuda._sleep(20 * PER_MS)
        check("memory: the room is kept", lease.room.bytes == 1 << 20 and m.statistics().promised_bytes == 1 << 20)
    free = until_free(pool)
    time.sleep(0.1)  # the room ends after the lease
    check("memory: room and lease end", free and m.statistics().promised_bytes == 0)
    m.close()


def slices(_pool):
    marks, side = torch.zeros(100000, dtype=torch.int32, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()

    def launch(first, count, _stream):
        marks[first:first + count] += 1

    done = cede_slice.run(cede_slice.Progress(), len(marks), launch, stream=cede.CURRENT)
    check("slices in the current stream", done and bool((marks == 1).all()))
    with torch.cuda.stream(side):
        done = cede_slice.run(cede_slice.Progress(), len(marks), launch, stream=side)
        check("slices in another stream", done and bool((marks == 2).all()))


def figures(pool):
    for busy in (False, True):
        rows.append(("release after the work's end, main thread " + ("computes" if busy else "sleeps") + ": ms",
                     release_lag(pool, busy)))
    for way, text in (("acquire", "acquire() and torch(): the thread waits"), ("lease", "lease(): it does not")):
        rows.append((f"512x512 products per second, 4 threads, {text}", product_rate(pool, way)))


def main():
    pool = cede.Pool()
    for part in (streams, scopes, memory, slices, figures):
        try:
            part(pool)
        except Exception as e:  # the others may work
            check(f"{part.__name__}: {type(e).__name__}: {e}", False)
    result = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda,
              "date": time.strftime("%Y-%m-%d"), "faults": faults, "figures": dict(rows),
              "pool_error": pool.statistics().error}
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
    print(f"\n{result['gpu']}, PyTorch {result['torch']}")
    for name, value in rows:
        print(f"{value:>10}  {name}")
    print(f"{len(faults)} faults", *faults, sep="\n")
    return 1 if faults else 0


sys.exit(main())
