"""A GPU passed between a trainer and a server that always has work, by examples/rl/turn.py: how long a pass takes by
`pause` and by `memory` (16 GB each), what the trainer's phases take alone, beside the server and after a pass, what the
server does in the trainer's turn (nothing), and whether the trainer computes the same, bit by bit. Starts a ceded of
its own. Every command has a time-out; 400 s at most.

usage: passing.py CEDE HOOK FILE [DEVICE]     nvidia or soft; writes FILE (JSON) and prints a table. Root.
"""
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time

import provenance
import recipes

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"nvidia": 16 * 10**9, "soft": 130 << 20}
ROUNDS = {"nvidia": 3, "soft": 2}
MODES = {"beside": None, "pause": [], "memory": ["--memory"]}
SERVE_S = {"nvidia": 3, "soft": 0.3}  # the server's turn
PASS_S = 90


def trainer(gpu):
    actions = {"phase": gpu.phase, "digest": gpu.digest}
    for text in sys.stdin:
        began = time.monotonic()
        result = actions[text.strip()]()
        print(json.dumps({"s": time.monotonic() - began, "result": result}), flush=True)


def server(gpu):
    """A line for each piece of work, with the time at which it ended, which is that of all processes."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            gpu.phase()
            print(json.dumps({"at": time.monotonic()}), flush=True)


class Worker(recipes.Worker):
    PROGRAM = os.path.abspath(__file__)


def served(worker, ends):
    """Adds the times at which the server ended pieces of work so far."""
    while not worker.lines.empty():
        line = worker.lines.get()
        if line is None:
            raise RuntimeError("the server has ended; its message is above")
        ends.append(line["at"])
    return ends


def turns(mode, hook, train, serve, device):
    """Rounds of a loop in which the trainer works once and then the server for a while."""
    rows = []
    ends = served(serve, [])

    def hand(giver, taker):
        began = time.monotonic()
        if MODES[mode] is not None:
            subprocess.run([sys.executable, hook, "pass", giver, taker, "--timeout", str(PASS_S / 3), *MODES[mode]],
                           check=True, timeout=PASS_S)
        return time.monotonic() - began
    for _ in range(ROUNDS[device]):
        to = hand("server", "trainer")
        began = time.monotonic()
        phase = train.do("phase")["s"]
        ended = time.monotonic()
        back = hand("trainer", "server")
        free = time.monotonic()
        time.sleep(SERVE_S[device])
        now = time.monotonic()
        served(serve, ends)
        rows.append({"to_trainer_s": to, "phase_s": phase, "to_server_s": back,
                     "served_in_phase": sum(began < t < ended for t in ends),
                     "served_per_s": sum(free < t < now for t in ends) / (now - free)})
        recipes.stage(f"{mode}: pass {to:.3f} s, phase {phase:.3f} s, pass {back:.3f} s")
    median = {key: round(statistics.median(r[key] for r in rows), 4) for key in rows[0]}
    return {**median, "rounds": rows}


def loop(cede, hook, device):
    size, phases = BYTES[device], 2 + len(MODES) * ROUNDS[device]
    reference = Worker("trainer", device, size)
    reference.answer()
    alone = [reference.do("phase")["s"] for _ in range(phases)]
    expected = reference.do("digest")["result"]
    reference.end()
    train = Worker("trainer", device, size, [cede, "run", "-q", "-c", "normal", "-n", "trainer", "--"])
    train.answer()
    for _ in range(2):
        train.do("phase")
    serve = Worker("sampler", device, size, [cede, "run", "-q", "-c", "normal", "-n", "server", "--"])
    serve.answer()
    serve.answer()  # its first piece of work
    result = {"bytes_each": size, "phase_alone_s": round(statistics.median(alone[1:]), 4)}
    for mode in MODES:
        result[mode] = turns(mode, hook, train, serve, device)
    result["same_results"] = train.do("digest")["result"] == expected
    return result


def measure(cede, hook, path, device):
    os.environ |= {"CEDE_EXE": cede, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    recipes.LIMIT_S = 400
    result = {**provenance.head(cede), "device": device}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CEDE_DIR"] = folder
        with open(f"{folder}/cede.conf", "w", encoding="utf-8") as f:
            f.write("[daemon]\naccounts = no\nswap_start = 0s\n")
        ceded = subprocess.Popen([cede, "daemon", "--device", device, "--config", f"{folder}/cede.conf"])
        try:
            time.sleep(1)
            result |= loop(cede, hook, device)
        except (RuntimeError, OSError, subprocess.SubprocessError, queue.Empty) as e:
            result["failed"] = f"{type(e).__name__}: {e}"
            shown = subprocess.run([cede, "ps"], check=False, timeout=30, capture_output=True, text=True)
            print(shown.stdout, file=sys.stderr)
        finally:
            for w in recipes.EVERYBODY:
                w.process.kill()
            ceded.terminate()
            try:
                ceded.wait(60)
            except subprocess.TimeoutExpired:
                ceded.kill()
    result["wall_s"] = round(time.monotonic() - recipes.BEGAN, 1)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"phase alone {result.get('phase_alone_s')} s, same results: {result.get('same_results')}")
    for mode in MODES:
        print(mode, {k: v for k, v in result.get(mode, {}).items() if k != "rounds"})
    return "failed" not in result and result["same_results"]


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--worker":
        gpu = (recipes.Soft if sys.argv[3] == "soft" else recipes.Torch)(sys.argv[2], int(sys.argv[4]))
        print(json.dumps({"did": "begin"}), flush=True)
        (server if sys.argv[2] == "sampler" else trainer)(gpu)
    elif 4 <= len(sys.argv) <= 5 and not sys.argv[1].startswith("-"):
        paths = [os.path.abspath(p) for p in sys.argv[1:4]]
        sys.exit(not measure(*paths, sys.argv[4] if len(sys.argv) == 5 else "nvidia"))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
