"""Follows the advice of bench/interference/model.py: profiles the programs of speeds.py with Nsight Compute, asks for
advice on each pair, and measures how fast each of a pair is, by its own count, in turns (default time
slices), in one MPS server, and there with half of the SMs each. For an NVIDIA GPU that nobody else uses,
ncu, PyTorch and numpy.

usage: advice.py FILE [SECONDS]          measures for so many seconds at most (default 240), then profiles; writes FILE,
                                         the profiler's tables in FILE.ncu, and profiles in `profiles` beside FILE
       advice.py --tables FOLDER KIND... only makes the profiler's tables of these programs
       advice.py --profiles FILE         makes the profiles anew, from the tables
       advice.py --again FILE            predicts once more, with the profiles; needs no GPU
       advice.py --step KIND             one step of a program, for the profiler
"""
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interference"))
import model
import ncu_profile
import provenance
import speeds

LAUNCHES, PROFILE_S, RUN_S = 100, 60, 1.2
KINDS = [k for k in speeds.KINDS if k not in ("copy", "product_fp64")]
NAMES = [speeds.KINDS[k] for k in KINDS]
MODES = {"turns": {}, "pool": {}, "halves": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}}


def step(kind):
    import torch
    torch.manual_seed(0)
    one = speeds.steps(kind)
    for _ in range(3):
        one()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    one()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def tables(folder, kinds):
    """The profiler's table of each kind."""
    os.makedirs(folder, exist_ok=True)
    for kind in kinds:
        ncu = ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off",
               "--launch-count", str(LAUNCHES), "--metrics", ",".join(ncu_profile.METRICS), "--log-file", f"{folder}/{kind}.csv",
               sys.executable, os.path.abspath(__file__), "--step", kind]
        began = time.monotonic()
        try:
            subprocess.run(ncu, timeout=PROFILE_S, check=True, stdout=subprocess.DEVNULL)
        except (subprocess.SubprocessError, OSError) as e:
            print(f"{kind}: no table: {e}", file=sys.stderr)
        print(f"{kind}: profiled in {time.monotonic() - began:.0f} s", flush=True)


def profiles_of(path):
    return pathlib.Path(path).resolve().parent / "profiles"


def profiles(path):
    """Of the tables; a program whose table says nothing is left out."""
    with open(path, encoding="utf-8") as f:
        busy = json.load(f)["busy"]
    profiles_of(path).mkdir(exist_ok=True)
    for kind in KINDS:
        name = speeds.KINDS[kind]
        try:
            p = ncu_profile.from_table(f"{path}.ncu/{kind}.csv", name, round(max(0.01, min(1, busy[name])), 2))
            ncu_profile.write(p, profiles_of(path) / f"{kind}.json")
        except (ncu_profile.Wrong, OSError) as e:
            print(f"{kind}: no profile: {e}", file=sys.stderr)


def advice(path):
    """By the pair."""
    read = [json.loads(f.read_text()) for f in sorted(profiles_of(path).glob("*.json"))]
    told = (model.advise(model.gpu(read[0]["gpu"]), pair) for pair in itertools.combinations(map(model.program, read), 2))
    return {frozenset(p["programs"]): p for p in told}


def worth(pair, mode):
    """What both did; nothing if one of them was starved."""
    return sum(pair[mode]) if min(pair[mode]) >= 0.25 else 0


def summary(pairs):
    followed = {"turns": "turns", "pool": "pool", "split": "halves"}
    mean = {m: sum(sum(p[m]) for p in pairs) / len(pairs) for m in MODES}
    errors = sorted(abs(s - w) for p in pairs for s, w in zip(p["predicted"]["pool"]["speeds"], p["pool"]))
    return {"pairs": len(pairs), "mean_sum": mean,
            "mean_sum_by_advice": sum(sum(p[followed[p["predicted"]["advice"]]]) for p in pairs) / len(pairs),
            "mean_sum_at_best": sum(max(worth(p, m) for m in MODES) for p in pairs) / len(pairs),
            "advice_within_0.05_of_best": sum(
                sum(p[followed[p["predicted"]["advice"]]]) >= max(worth(p, m) for m in MODES) - 0.05
                for p in pairs),
            "pool_speed_off_median": errors[len(errors) // 2], "pool_speed_off_90": errors[len(errors) * 9 // 10]}


def measure(recorders, end):
    """The alone speeds, and of each pair until the time is up: its speeds in each mode."""
    alone = {m: [r.run([i], RUN_S)[1][0] for i in range(len(NAMES))] for m, r in recorders.items() if m != "halves"}
    alone["halves"] = alone["pool"]
    sets = list(itertools.combinations(range(len(NAMES)), 2))
    random.Random(2).shuffle(sets)
    pairs = []
    for which in sets:
        if time.monotonic() > end:
            break
        pair = {"programs": [NAMES[i] for i in which]}
        for mode, recorder in recorders.items():
            _, rates = recorder.run(which, RUN_S)
            pair[mode] = [round(r / alone[mode][i], 4) for r, i in zip(rates, which)]
        pairs.append(pair)
    return pairs


def utilization(recorder):
    busy = {}
    for i, name in enumerate(NAMES):
        recorder.run([i], RUN_S)
        seen = recorder.counters.busy[len(recorder.counters.busy) // 2:]  # the driver's word is late
        busy[name] = round(sum(seen) / len(seen), 3)
    return busy


def record(path, seconds):
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        recorders = {}
        try:
            for mode, env in MODES.items():
                own = f"{folder}/{mode}"
                os.mkdir(own)
                recorders[mode] = speeds.Recorder(own, mode != "turns", KINDS, **env)
                recorders[mode].await_all(120)
            busy = utilization(recorders["turns"])
            measured = measure(recorders, end)
            counters = recorders["pool"].counters
            gpu, driver = counters.text("nvmlDeviceGetName"), counters.text("nvmlSystemGetDriverVersion")
        finally:
            for recorder in recorders.values():
                recorder.close()
    save(path, {**provenance.head(), "gpu": gpu, "driver": driver, "busy": busy, "pairs": measured})
    tables(f"{path}.ncu", KINDS)
    profiles(path)
    follow(path)


def follow(path):
    """Sets what is predicted beside what was measured."""
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    told = advice(path)
    for pair in result["pairs"]:
        says = told.get(frozenset(pair["programs"]))
        if says and says["programs"] != pair["programs"]:
            for mode in (*MODES, "programs"):
                pair[mode].reverse()
        pair["predicted"] = says
    pairs = [p for p in result["pairs"] if p["predicted"]]
    result["summary"] = summary(pairs)
    save(path, result)
    for p in pairs:
        text = " + ".join(p["programs"])
        sums = "  ".join(f"{m} {sum(p[m]):.2f}" for m in MODES)
        print(f"{text:52} {sums}  advice: {p['predicted']['advice']}, "
              f"pool {sum(p['predicted']['pool']['speeds']):.2f}")
    print(json.dumps(result["summary"]))


def save(path, result):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--step":
        step(sys.argv[2])
    elif len(sys.argv) > 3 and sys.argv[1] == "--tables" and not set(sys.argv[3:]) - set(speeds.KINDS):
        tables(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 3 and sys.argv[1] == "--again":
        follow(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "--profiles":
        profiles(sys.argv[2])
    elif len(sys.argv) in (2, 3) and not sys.argv[1].startswith("-"):
        record(sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else 240)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
