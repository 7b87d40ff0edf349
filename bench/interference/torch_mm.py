"""torch.mm of two tensors of 4 MB (1024 x 1024, FP32 without TF32), as often as it is asked: a process of bench.py. A lap is as
many products as take 20 ms alone, between two events of a stream.

usage: torch_mm.py"""
import json
import sys
import time

import torch

LAP_MS = 20


def lap(a, b, out, steps):
    """Milliseconds."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(steps):
        torch.mm(a, b, out=out)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def answer(o):
    print(json.dumps(o), flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 1024, device="cuda")
    out = torch.empty_like(a)
    lap(a, b, out, 100)
    answer({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__})
    for line in sys.stdin:
        o = json.loads(line)
        steps = o["steps"] or max(1, round(LAP_MS / (lap(a, b, out, 100) / 100)))
        until, starts, ends = time.monotonic() + o["seconds"], [], []
        while len(starts) < 5 or time.monotonic() < until:
            starts.append(0 if not ends else ends[-1])  # only durations are known
            ends.append(starts[-1] + round(lap(a, b, out, steps) * 1e6))
        answer({"steps": steps, "start_ns": starts, "end_ns": ends})


if __name__ == "__main__":
    main()
