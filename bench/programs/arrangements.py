"""Twelve pairs of programs that people run, each asked about by `cede advise -- PROGRAM -- PROGRAM`: how fast each
goes in each arrangement by its own count, in the same windows, what cede advise found there, and which arrangement
it and constant rules choose. For an NVIDIA GPU from Hopper on that nobody else uses, root, a running ceded, PyTorch,
torchvision, transformers, CuPy and JAX.

usage: arrangements.py CEDE FILE [SECONDS [KIND+KIND...]]    adds pairs to FILE for so many seconds (default 540), those that
                                                       it lacks; or these
       arrangements.py --program KIND LOG                    one of the programs
       arrangements.py --closed KIND                         the same, which tells its steps as the other programs here do
       arrangements.py --score FILE                          how cede advise and constant rules do; needs no GPU
"""
import bisect
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import provenance
import speeds

# Library: whose code does the work. resnet is torchvision's, generate and gpt2 are transformers'.
PAIRS = (
    ("resnet_training", "transformer_training"), ("gpt2_training", "resnet_training"),
    ("resnet_training", "small_inference"), ("generate", "transformer_training"), ("generate", "small_inference"),
    ("gpt2_training", "generate"), ("stencil_fp64", "fft"), ("copy", "product_bf16"),
    ("jax_training", "resnet_training"), ("decoding", "product_fp32"), ("jax_training", "generate"),
    ("fft", "product_bf16"),
)
FAIR, WITHIN = 0.66, 0.05
FAILS = 2  # after so many the rest is not tried


# ---- the programs ----

def gpt2_steps():
    """A training of transformers' GPT-2 of 124 million parameters."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32000)).cuda()
    tokens = torch.randint(0, 32000, (8, 512), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            value = model(tokens, labels=tokens).loss
        value.backward()
        optimizer.step()
    return step


def generate(log):
    """transformers' Llama of 1.1 billion parameters answers; a step is a token."""
    import torch
    import gpt
    model = gpt.llama()
    prompt = torch.randint(1, 32000, (1, 64), device="cuda")

    class Tokens:
        def put(self, value):
            log()

        def end(self):
            pass
    with torch.no_grad():
        while True:
            model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=128,
                           streamer=Tokens())


def jax_steps():
    """train_jax.py up to where it repeats its step."""
    import told

    class Repeats(Exception):
        pass

    def take(step):
        raise Repeats(step)
    told.saturate = take
    try:
        import train_jax  # noqa: F401
    except Repeats as repeats:
        return repeats.args[0]
    raise RuntimeError("train_jax.py repeats no step")


def fft_steps():
    import cupy
    x = cupy.random.standard_normal((256, 256, 256)).astype(cupy.complex64)

    def step():
        for _ in range(4):
            cupy.fft.ifftn(cupy.fft.fftn(x))
        cupy.cuda.Device().synchronize()
    return step


def whole_steps(kind):
    """A step of the program that ends when the GPU has done it; six have run."""
    step = {"gpt2_training": gpt2_steps, "jax_training": jax_steps, "fft": fft_steps}.get(
        kind, lambda: speeds.steps(kind))()
    synchronize = lambda: None
    if kind not in ("jax_training", "fft"):
        import torch
        synchronize = torch.cuda.synchronize

    def whole():
        step()
        synchronize()
    for _ in range(6):
        whole()
    return whole


def program(kind, path):
    """Writes when each step ended, by CLOCK_MONOTONIC, in ns."""
    log_file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def log():
        os.write(log_file, struct.pack("<Q", time.monotonic_ns()))
    if kind == "generate":
        generate(log)
    step = whole_steps(kind)
    while True:
        step()
        log()


# ---- what they counted ----

def rate(times, begin, end):
    """Steps a second between two times; the steps in which they lie count in part."""
    def at(t):
        i = bisect.bisect_right(times, t)
        if i == 0 or i == len(times):
            return float(i)
        return i + (t - times[i - 1]) / (times[i] - times[i - 1])
    return (at(end) - at(begin)) / (end - begin)


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    return [t / 1e9 for (t,) in struct.iter_unpack("<Q", data[:len(data) // 8 * 8])]


def counted(told, logs):
    """For each row of the answer the speeds by the programs' own count."""
    alone = [sum(rate(log, *w) for w in job["alone_s"]) / len(job["alone_s"]) for job, log in zip(told["jobs"], logs)]
    return alone, [[rate(log, *row["window_s"]) / a for log, a in zip(logs, alone)] for row in told["rows"]]


def best(speeds_of):
    """The index of the largest sum of those rows that leave each program two thirds of a turn; else of all."""
    fair = [i for i, s in enumerate(speeds_of) if min(s) >= FAIR / len(s)] or list(range(len(speeds_of)))
    return max(fair, key=lambda i: sum(speeds_of[i]))


def ask(cede, pair, folder):
    logs = [os.path.join(folder, f"{i}") for i in range(2)]
    command = [cede, "advise", "--json"]
    for kind, log in zip(pair, logs):
        command += ["--", sys.executable, os.path.abspath(__file__), "--program", kind, log]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        raise RuntimeError(f"{pair}: {done.stderr}")
    told = json.loads(done.stdout)
    alone, really = counted(told, [read(log) for log in logs])
    head = provenance.head(cede)
    return {"pair": pair, "date": head["date"], "commit": head["commit"], "took_s": round(time.monotonic() - began, 1), "says": done.stderr.strip(), "told": told,
            "alone_steps_s": alone, "counted": really, "best": best(really)}


def record(cede, path, seconds, pairs):
    end = time.monotonic() + seconds
    result = {"shows": __doc__.split("\n\n", maxsplit=1)[0], **provenance.head(cede), "pairs": []}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    counters = speeds.Counters()
    result["gpu"], result["driver"] = counters.text("nvmlDeviceGetName"), counters.text("nvmlSystemGetDriverVersion")
    failed, had = 0, [tuple(p["pair"]) for p in result["pairs"]]
    for pair in pairs:
        if pair in had or time.monotonic() > end - 75:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                one = ask(cede, pair, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as why:
                print(str(why)[-600:], flush=True)
                failed += 1
                if failed == FAILS:
                    break
                continue
        result["pairs"].append(one)
        print_pair(one)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


def shown(speed):
    return "?" if speed is None else f"{speed:.2f}"


def print_pair(one):
    print(" + ".join(one["pair"]), f"{one['took_s']} s", flush=True)
    for i, (row, really) in enumerate(zip(one["told"]["rows"], one["counted"])):
        marks = ("chosen " if one["told"]["best"] == i else "") + ("best" if one["best"] == i else "")
        print(f"  {row['arrangement']:16}", " ".join(f"{shown(s):>5} ({r:.2f})" for s, r in zip(row["speeds"], really)),
              f" sum {shown(row['sum'])} ({sum(really):.2f}) {marks}", flush=True)


def scores(pairs):
    """[(rule, mean of the sums of both speeds, by the programs' own count, of what it chooses, how many starved, how many
    best)] and [how far each speed that was told is off]. starved: one program has less than two thirds of a turn. best: the
    sum is at most WITHIN below that of the best row in which neither is."""
    rules = {"cede advise": lambda p: p["told"]["best"] or 0, "always turns": lambda p: 0, "always together": lambda p: 1,
             "always halves": lambda p: 2, "the best": lambda p: p["best"]}
    out = []
    for name, rule in rules.items():
        rows = [p["counted"][rule(p)] for p in pairs]
        starved = [min(r) < FAIR / len(r) for r in rows]
        right = [sum(r) >= sum(p["counted"][p["best"]]) - WITHIN and not bad for r, p, bad in zip(rows, pairs, starved)]
        out.append((name, sum(map(sum, rows)) / len(rows), sum(starved), sum(right)))
    return out, [abs(s - r) for p in pairs for row, really in zip(p["told"]["rows"], p["counted"])
                 for s, r in zip(row["speeds"], really) if s is not None]


def score(path):
    with open(path, encoding="utf-8") as f:
        pairs = json.load(f)["pairs"]
    rules, off = scores(pairs)
    print(f"{len(pairs)} pairs         mean of sums  starved  best")
    for name, mean, starved, right in rules:
        print(f"{name:16} {mean:10.2f} {starved:8} {right:5}")
    print(f"{len(off)} speeds: {sum(e <= WITHIN for e in off)} within {WITHIN} of the programs' count, the worst off by "
          f"{max(off):.2f}")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--program":
        program(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1] == "--closed":
        import told
        told.closed(whole_steps(sys.argv[2]))
    elif len(sys.argv) == 3 and sys.argv[1] == "--score":
        score(sys.argv[2])
    elif len(sys.argv) >= 3 and not sys.argv[1].startswith("-"):
        pairs = [tuple(p.split("+")) for p in sys.argv[4:]] or PAIRS
        record(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 540, pairs)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
