"""The tables of grid.py's results, in Markdown, as they are in docs/steps.md and docs/graphs.md. Results of before some
of their parts were measured have the others."""


def table(title, head, rows):
    if not rows:
        return
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def percent(part):
    return "" if part is None else f"{100 * part:.1f} %"


def ms(us):
    return f"{us / 1000:.3g}" if us else "0"


def cells_of(result):
    return {(c["batch"], c["schedule_us"]): {r["mode"]: r for r in c["runs"]} for c in result["cells"]}


def progress(cell):
    print(f"{cell['batch']} requests at a time, {ms(cell['schedule_us'])} ms of scheduling:",
          ", ".join(f"{r['mode']} {r['tokens_per_s']:.0f}" for r in cell["runs"]), "tokens/s", flush=True)


def modes(result):
    head = ("requests", "scheduling, ms", "mode", "tokens/s", "step, us", "CPU a step, us", "GPU a step, us", "launch p50, us",
            "p99", "inputs p50, us", "p99", "hidden", "GPU idle", "long steps", "hidden in these", "GPU idle in these")
    rows = []
    for (batch, us), runs in cells_of(result).items():
        for r in runs.values():
            times = [f"{r[k]:.0f}" for k in ("tokens_per_s", "step_us", "cpu_us", "gpu_us")]
            calls = [f"{r[k]:.1f}" if k in r else ""
                     for k in ("launch_p50_us", "launch_p99_us", "inputs_p50_us", "inputs_p99_us")]
            rows.append((batch, ms(us), r["mode"], *times, *calls, percent(r["hidden"]), percent(r["gpu_idle"]),
                         f"{r['long_steps']} of {r['steps']}" if "long_steps" in r else "",
                         percent(r.get("long_hidden") if us else None), percent(r.get("long_idle"))))
    table("Modes. Long: steps that the GPU needs longer for than the CPU to schedule the next one.", head, rows)


def launches(result):
    """What launching a step costs the CPU: for each kernel, and all."""
    rows = []
    cost = result.get("graph_cost")
    for way in ("eager", "graph", "direct") if cost else ():
        rows.append((f"{cost['nodes']} kernels, {way}", f"{cost[way]['queued_p50_us']:.1f}",
                     f"{cost[way]['queued_p99_us']:.1f}", f"{1000 * cost[way]['queued_p50_us'] / cost['nodes']:.0f}"))
    cells = cells_of(result)
    for batch in sorted({b for b, us in cells if us == 0}):
        for r in cells[batch, 0].values():
            rows.append((f"a step of {batch}, {r['mode']}", f"{r['launch_p50_us']:.1f}", f"{r['launch_p99_us']:.1f}",
                         f"{1000 * r['launch_p50_us'] / r['kernels']:.0f}"))
    table("Launch", ("what", "p50, us", "p99, us", "per kernel, ns"), rows)


def hierarchy(result):
    """What each way adds to a step: its time less what the GPU needs for it as a graph."""
    cells, rows = cells_of(result), []
    times = sorted({us for _, us in cells})
    expected = (("CUDA graph replay, 0.01 ms: the launch", "graphs", "launch_p50_us"),
                ("overlap scheduled, 0.5 ms, hidden", "all", None), ("normal scheduling, 2 to 5 ms", "graphs", None),
                ("the same, kernels one by one", "eager", None), ("naive loop in Python, 10 ms and more", "naive", None))
    for batch in [b for b in (64, 256) if all((b, us) in cells for us in times)]:
        for what, mode, key in expected:
            of = [(cells[batch, us], cells[batch, us][mode]) for us in times]
            rows.append((batch, what, mode, *(ms(r[key] if key else max(0, r["step_us"] - runs["graphs"]["gpu_us"]))
                                              for runs, r in of)))
    table("The speed hierarchy: ms that a step takes beyond what the GPU needs for it",
          ("requests", "the reference", "mode", *(f"{ms(us)} ms of scheduling" for us in times)), rows)


def products(result):
    rows = [(c["products"], r["mode"], f"{r['tokens_per_s']:.0f}", f"{r['gpu_us']:.0f}", f"{r['launch_p50_us']:.1f}",
             f"{r['differ_from_alone']} of {c['requests']}", f"{c['products_difference']:.1g}")
            for c in result.get("products", ()) for r in c["runs"]]
    table("Products", ("products", "mode", "tokens/s", "GPU a step, us", "launch p50, us", "requests with other tokens than "
                       "alone", "largest difference from the own kernel"), rows)


def inputs(result):
    rows = [(c["inputs"], "spins" if c["spins"] else "sleeps", r["mode"],
             *(f"{r[k]:.1f}" for k in ("inputs_p50_us", "inputs_p99_us", "launch_p50_us", "launch_p99_us")),
             f"{r['tokens_per_s']:.0f}", percent(r["gpu_idle"])) for c in result.get("inputs", ()) for r in c["runs"]]
    table("Inputs and launch", ("inputs", "waits", "mode", "inputs p50, us", "p99", "launch p50, us", "p99", "tokens/s",
                                "GPU idle"), rows)


def graphs(result):
    """When they do not pay."""
    pays = [(c["batch"], c.get("graph_pays_after_launches", "never"), r["captures"], f"{r['graph_bytes'] / 2**20:.0f}")
            for c in result["cells"] if c["schedule_us"] == 0 for r in c["runs"] if r["mode"] == "graphs"]
    table("Graphs", ("requests", "pays after launches", "captured", "MiB"), pays)
    table("Steps of lengths that vary", ("way", "step, ms", "captured", "capturing, ms", "MiB"),
          [(p["way"], f"{p['step_us'] / 1000:.2f}", p["captures"], f"{p['capture_us'] / 1000:.1f}",
            f"{p['graph_bytes'] / 2**20:.0f}") for p in result.get("prefill") or ()])


def show(result):
    company = result.get("company") or {}
    if "differ" in company:
        print(f"\n{company['differ']} of {company['requests']} requests get other tokens in company than alone.")
    for part in (modes, launches, hierarchy, products, inputs, graphs):
        part(result)
    for left_out in result["left_out"]:
        print("\nLeft out:", *(f"{key} {value}" for key, value in left_out.items()))
