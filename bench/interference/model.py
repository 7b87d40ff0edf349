"""An estimator of how much two kernels that run on one GPU at the same time slow each other down, and by which resource.

Both kernels run for ever, each as a profiler sees it alone. They contend for the resources of each SM (room for blocks, issue
slots, pipes, L1) where they share SMs, and for those that all SMs share (L2, DRAM). The resources are those of "Measuring GPU
utilization one level deeper" (arXiv 2501.16909), sections 3 and 4; how each is modelled says its function. All functions work
element by element on numpy arrays: kernels of shape (n, 1) and (1, m) give every pair, of shape (n, m).

Units: times in us, sizes in bytes, shares and hit rates from 0 to 1; a slowdown is a duration relative to alone on all SMs.
Not known is 0."""
import copy
import dataclasses
import functools
import types

import numpy as np

RESOURCES = ("nothing", "room for blocks", "issue slots", "integer pipe", "FP32 pipe", "FP64 pipe", "FP16 pipe", "tensor pipe",
             "L1 cache", "L2 cache", "DRAM bandwidth")
NOTHING, ROOM, ISSUE, TENSOR, L1, L2, DRAM = (0, 1, 2, 7, 8, 9, 10)  # indices of RESOURCES; pipes lie between ISSUE and TENSOR
SMALL = 1e-9
GPU_FIELDS = "sms", "sm_threads", "sm_blocks", "sm_registers", "sm_shared_bytes", "sm_l1_bytes", "l2_bytes", "l2_by_dram"
KERNEL_FIELDS = ("blocks", "threads", "registers", "shared_bytes", "division", "sms", "us", "share", "l1_hit", "l2_hit", "l1_bytes",
                 "l2_bytes")


@dataclasses.dataclass(frozen=True)
class Constants:
    """Numbers of the formulas. Which of them were fitted, and with what, is in study.py."""
    issue_most: float = 0.98  # of issue slots and pipes that two kernels get together
    issue_least: float = 0.01  # that one gets while the other could use all
    saturated: float = 0.96  # a kernel that uses so much leaves the other nothing
    greed: float = 4.0  # power by which the kernel that has an instruction ready more often gets more
    sharp: float = 3.3  # how late a bandwidth makes its users wait before it is full
    sharper: float = 16.0  # of two bandwidths in a row the scarcer counts
    together: float = 4.0  # several scarce resources cost more than the scarcest
    l1_full: float = 0.6  # part of L1: the largest working set that has hits only
    l1_empty: float = 1.6  # and the smallest that has none
    l2_full: float = 1.0
    l2_empty: float = 1.25
    latency_l1: float = 35.0  # cycles, of which only the ratios matter
    latency_l2: float = 270.0
    latency_dram: float = 500.0
    least_use: float = 0.02  # of a bandwidth: below that a kernel does not wait for it
    l2_by_dram: float = 2.4  # bandwidth of L2 in that of DRAM, where a GPU's is not known: an H200's, 8289 by 3515 GB/s
    block_shared: float = 1024.0  # bytes of shared memory that the system takes for a block


SHIPPED = Constants()


def gpu(o):
    """Capacities: from a profile's "gpu" (sm_threads, ...), or from a file of suite.py ("sm": {threads, ...}, dram_gbps)."""
    flat = {**o, **{f"sm_{k}": v for k, v in o.get("sm", {}).items()}}
    if flat.get("dram_gbps"):
        flat["l2_by_dram"] = flat["l2_gbps"] / flat["dram_gbps"]
    return types.SimpleNamespace(**{f: float(flat.get(f, 0)) for f in GPU_FIELDS})


def kernels(rows):
    """Kernels as arrays of shape (n,): the fields of KERNEL_FIELDS, and use, of shape (11, n), by index of RESOURCES."""
    k = types.SimpleNamespace(**{f: np.array([float(o.get(f, 0)) for o in rows]) for f in KERNEL_FIELDS})
    k.use = np.array([[float(o.get("use", {}).get(r, 0)) for o in rows] for r in RESOURCES])
    return k


def reshaped(k, *shape):
    """The same kernels with arrays of another shape, such as (-1, 1) or (1, -1)."""
    return types.SimpleNamespace(use=k.use.reshape(len(RESOURCES), *shape), **{f: getattr(k, f).reshape(shape) for f in KERNEL_FIELDS})


def changed(k, **fields):
    out = copy.copy(k)
    for name, value in fields.items():
        setattr(out, name, value + np.zeros_like(k.us))
    return out


def ratio(a, b, otherwise):
    """a / b where b is positive."""
    return np.where(b > 0, a / np.where(b > 0, b, 1), otherwise)


# ---- room on SMs ----

def room_taken(g, a, na, b, nb):
    """The largest part that na blocks of one kernel and nb of another take of anything that an SM has."""
    taken = [(na * a.threads + nb * b.threads, g.sm_threads), (na + nb, g.sm_blocks),
             (na * a.threads * a.registers + nb * b.threads * b.registers, g.sm_registers),
             (na * a.shared_bytes + nb * b.shared_bytes, g.sm_shared_bytes)]
    return functools.reduce(np.maximum, [amount / most for amount, most in taken if most])


def most_resident(g, k):
    """Blocks of the kernel that an SM has room for: the occupancy calculation of NVIDIA's programming guide, without the
    granularity of registers."""
    return np.maximum(1, np.floor(ratio(1, room_taken(g, k, 1, k, 0), 1) + SMALL))


def resident(g, k):
    """Blocks at a time on an SM in use."""
    return np.minimum(most_resident(g, k), np.ceil(k.blocks / g.sms))


def busiest_use(k):
    """The most of the issue slots and of a pipe that it uses."""
    return k.use[ISSUE:TENSOR + 1].max(axis=0)


def overlap(g, k, other):
    """The part of the SMs in use that the other kernel uses, too: blocks go where the fewest are. 1 where all blocks run at
    once, as the slowest counts."""
    in_use, others = np.minimum(k.blocks, g.sms), np.minimum(other.blocks, g.sms)
    both = np.maximum(0, in_use + others - g.sms)
    apart = (k.sms > 0) & (other.sms > 0) & (k.sms + other.sms <= g.sms)
    at_once = (both > 0) & (k.blocks <= g.sms * resident(g, k))
    return np.where(apart, 0, np.where(at_once, 1, ratio(both, in_use, 0)))


def without_room(g, k, other):
    """1 where both leave no room for each other and take turns, kernel by kernel; a part where some is left."""
    own, others = resident(g, k), resident(g, other)
    over = room_taken(g, k, own, other, others) - 1
    least = np.minimum(room_taken(g, k, own, k, 0), room_taken(g, other, others, k, 0))
    return np.where((over > 0) & (least > 0), np.minimum(1, ratio(over, least, 0)), 0)


def wait_for_division(g, k, other, c):
    """The slowdown by the division of SMs into shared memory and L1, which stays while blocks are there. A kernel begins only if
    the shared memory is enough for as many of its blocks as could be on an SM at a time; else it waits for the other's end, and
    then all its blocks go to the SMs that are free first. Seen on an H200 (docs/interference.md)."""
    most, longer = most_resident(g, k), other.us / np.maximum(k.us, SMALL)
    enough = (k.division == 0) | (other.division == 0) | (most * (k.shared_bytes + c.block_shared) <= other.division)
    return np.where(enough, 1, longer + np.maximum(1, most / resident(g, k) * busiest_use(k) / c.issue_most))


def of_fewer_sms(g, k, sms, c=SHIPPED):
    """The duration with so many SMs, 1 to all, relative to all of them: waves of blocks, or instructions to issue."""
    most = most_resident(g, k)
    before, now = np.ceil(k.blocks / g.sms), np.ceil(k.blocks / np.maximum(sms, 1))
    waves = np.ceil(now / most) / np.ceil(before / most)
    return np.maximum(np.maximum(1, waves), busiest_use(k) / c.issue_most * now / before)


# ---- issue slots and pipes ----

def contend(use, c):
    """The slowdowns of two users of one pipe. A scheduler stays with the warp that has an instruction ready, others get what that
    leaves: the form that explains tables 3 and 4 of the paper."""
    most = np.maximum(c.issue_most, np.maximum(*use))
    full = use[0] + use[1] > most
    weight = [u ** c.greed for u in use]
    total = np.where(full, weight[0] + weight[1], 1)
    got = [np.minimum(u, most * w / total) for u, w in zip(use, weight)]
    for i in (0, 1):
        got[i] = np.minimum(use[i], np.maximum(most - got[1 - i], c.issue_least))
    return [np.where(full, np.maximum(1, ratio(u, g, 1)), 1) for u, g in zip(use, got)]


# ---- memory ----

def hit_rate(size, full, empty, working_set):
    """Of a set that is gone through again and again. What is needed next was replaced last, so a set a little larger than the
    cache has no hits (cyclic access under least recently used); with few ways for a line it loses some earlier."""
    return np.clip((empty - ratio(working_set, size, 0)) / (empty - full), 0, 1)


def working_set(size, full, empty, known, hit):
    """The working set, where it is not known that which has this hit rate alone."""
    return np.where((known > 0) | (hit <= 0) | (hit >= 1), known, size * (empty - hit * (empty - full)))


def hit_together(size, full, empty, hit, own, other):
    """The hit rate while the other's working set passes through the cache, too."""
    alone = hit_rate(size, full, empty, own)
    return np.where(own > 0, ratio(hit * hit_rate(size, full, empty, own + other), alone, hit), hit)


def latency(l1, l2, c):
    return l1 * c.latency_l1 + (1 - l1) * (l2 * c.latency_l2 + (1 - l2) * c.latency_dram)


def memory_bound(k, c):
    """The part of its time that a kernel waits for memory: the rest it computes."""
    reads = (k.use[DRAM] > c.least_use) | (k.l1_bytes > 0) | (k.l2_bytes > 0) | (k.l1_hit > 0) | (k.l2_hit > 0)
    return np.where(reads, np.maximum(0, 1 - busiest_use(k)), 0)


def caches_together(g, k, o, shared, c):
    """Hit rates in L1 and L2 of the first while the second runs; shared: part of its SMs where both are."""
    full, empty = c.l1_full, c.l1_empty
    own_blocks, other_blocks = resident(g, k), resident(g, o)
    own = working_set(g.sm_l1_bytes / own_blocks, full, empty, k.l1_bytes, k.l1_hit) * own_blocks
    other = working_set(g.sm_l1_bytes / other_blocks, full, empty, o.l1_bytes, o.l1_hit) * other_blocks
    l1 = k.l1_hit + shared * (hit_together(g.sm_l1_bytes, full, empty, k.l1_hit, own, other) - k.l1_hit)
    full, empty = c.l2_full, c.l2_empty
    own = working_set(g.l2_bytes, full, empty, k.l2_bytes, k.l2_hit)
    other = working_set(g.l2_bytes, full, empty, o.l2_bytes, o.l2_hit)
    rates = (k.use[L2] > 0) & (o.use[L2] > 0)  # of the other's set what comes between two uses of the same line
    other = np.where(rates, np.minimum(other, ratio(own * o.use[L2], k.use[L2], 0)), other)
    return l1, hit_together(g.l2_bytes, full, empty, k.l2_hit, own, other)


def demand_of(use, c):
    """What a kernel would ask of a bandwidth that never made it wait, if it has so much of it alone: the inverse of x / wait(x)."""
    u = np.minimum(use, 0.99) ** c.sharp
    return (u / (1 - u)) ** (1 / c.sharp)


def wait(demand, c):
    """The slowdown of users that together ask for so much: 1 while it is little, the demand itself when it is far above 1."""
    return (1 + demand ** c.sharp) ** (1 / c.sharp)


def waits(alone, now, c, least):
    """The slowdowns by one bandwidth; alone, now: what both have of it alone, and would ask for together."""
    total = wait(now[0] + now[1], c)
    return [np.where((a > c.least_use) | (n > c.least_use), np.maximum(low, total / wait(demand_of(a, c), c)), 1)
            for a, n, low in zip(alone, now, least)]


def memory_costs(g, pair, shared, fewer, c):
    """The slowdowns by caches and bandwidths, and which of them counts. A miss costs the latency of the next level and bandwidth
    behind it. Traffic of L2 counts as if half of what L1 sees were read: what is written goes on to L2 in any case; what comes
    from DRAM is written to L2 first. With fewer SMs than alone a kernel may wait less than alone."""
    by_dram = g.l2_by_dram if g.l2_by_dram > 0 else c.l2_by_dram
    later, l1_later, lost, dram, l2 = [], [], [], ([], []), ([], [])
    for i, k in enumerate(pair):
        l1_hit, l2_hit = caches_together(g, k, pair[1 - i], shared[i], c)
        bound, alone = memory_bound(k, c), latency(k.l1_hit, k.l2_hit, c)
        lost.append(k.l2_hit > l2_hit + c.least_use)
        more, traffic = (2 - l1_hit) / (2 - k.l1_hit), k.use[L2]
        l1_later.append(1 + bound * (latency(l1_hit, k.l2_hit, c) / alone - 1))
        later.append(1 + bound * (latency(l1_hit, l2_hit, c) / alone - 1))
        from_dram = k.use[DRAM] * more
        from_dram = np.where(traffic > 0, from_dram + more * traffic * (k.l2_hit - l2_hit),
                             from_dram * ratio(1 - l2_hit, 1 - k.l2_hit, 1))
        for of, had, has in ((dram, k.use[DRAM], from_dram),
                             (l2, (traffic + k.use[DRAM]) / by_dram, (more * traffic + from_dram) / by_dram)):
            of[0].append(had)
            of[1].append((demand_of(had, c) + np.maximum(0, has - had)) / (later[i] * fewer[i]))
    least = [np.where(f > 1, 0, 1) for f in fewer]
    out = []
    for i, (of_dram, of_l2) in enumerate(zip(waits(*dram, c, least), waits(*l2, c, least))):
        positive = np.maximum(of_dram ** c.sharper + of_l2 ** c.sharper - 1, 0) ** (1 / c.sharper)
        both = np.where(least[i] > 0, positive, np.minimum(of_dram, of_l2))
        limit = np.where((of_dram > of_l2) & ~lost[i], DRAM, L2)
        out.append((later[i] * both, np.where((l1_later[i] > both) & (l1_later[i] ** 2 > later[i]), L1, limit)))
    return out


# ---- two kernels ----

class Costs:
    """Several causes of a slowdown: the sum of slowdown ** together - 1, and the largest."""

    def __init__(self, shape, c):
        self.excess, self.largest, self.limit, self.c = np.zeros(shape), np.ones(shape), np.zeros(shape, int), c

    def add(self, slowdown, limit):
        self.excess = self.excess + slowdown ** self.c.together - 1
        more = slowdown > self.largest * (1 + SMALL)
        self.largest, self.limit = np.where(more, slowdown, self.largest), np.where(more, limit, self.limit)


def add_pipes(pair, shared, costs, c):
    """Whether one gets next to nothing before the other's kernel has ended: while one that leaves nothing runs, a second that is
    launched later gets nothing; of two such each is the second half of the time."""
    starves = [np.zeros(s.shape, bool) for s in shared]
    for r in range(ISSUE, TENSOR + 1):
        use = np.broadcast_arrays(pair[0].use[r], pair[1].use[r])
        for i, slowdown in enumerate(contend(use, c)):
            nothing = (use[1 - i] >= c.saturated) & (slowdown > 1 + c.least_use) & (shared[i] >= 1)
            slowdown = np.where(nothing & (use[i] < c.saturated), 1 / c.issue_least, slowdown)
            starves[i] = starves[i] | nothing
            costs[i].add(1 + shared[i] * (slowdown - 1), r)
    return starves


def speedup_of(us, slowdown):
    """One of each, started together, over one after the other, with such slowdowns while both run: when the first has ended the
    other goes on alone. 0: a duration is not known."""
    first = us[0] * slowdown[0] > us[1] * slowdown[1]
    t = np.where(first, us[1] * slowdown[1], us[0] * slowdown[0])
    other, slower = np.where(first, us[0], us[1]), np.where(first, slowdown[0], slowdown[1])
    left = other * np.maximum(0, 1 - ratio(t, other * slower, 0))
    return np.where((us[0] > 0) & (us[1] > 0), ratio(us[0] + us[1], t + left, 0), 0)


def estimate(g, a, b, c=SHIPPED):
    """Two kernels at the same time, element by element. Returns slowdown[2], limit[2] (indices of RESOURCES: what costs each most),
    starves[2] and speedup (of both at once over one after the other)."""
    pair = (a, b)
    shared = np.broadcast_arrays(overlap(g, a, b), overlap(g, b, a))
    us = np.broadcast_arrays(a.us, b.us)
    costs = [Costs(shared[0].shape, c) for _ in pair]
    starves = add_pipes(pair, shared, costs, c)
    fewer = [np.where(k.sms > 0, of_fewer_sms(g, k, k.sms, c), 1) for k in pair]
    for cost, (slowdown, limit) in zip(costs, memory_costs(g, pair, shared, fewer, c)):
        cost.add(slowdown, limit)
    out = types.SimpleNamespace(slowdown=[], limit=[], starves=starves)
    pace = []
    for i, k in enumerate(pair):
        other = pair[1 - i]
        apart = shared[i] * without_room(g, k, other)
        turns = 1 + apart * np.where((us[i] > 0) & (us[1 - i] > 0), ratio(us[1 - i], us[i], 1), 1)
        divided = np.where(shared[i] > 0, wait_for_division(g, k, other, c), 1)
        slower = 1 + (1 - apart) * ((1 + costs[i].excess) ** (1 / c.together) - 1)  # blocks that wait ask for nothing else
        waiting = np.maximum(turns, divided)
        limit = np.where(slower > 1.01, costs[i].limit, NOTHING)
        out.limit.append(np.where(np.maximum(waiting, fewer[i]) > slower, ROOM, limit))
        meets = (turns > 1) | (divided > 1)  # else what fewer SMs cost is all
        started = np.maximum(turns, divided if i else 0)  # started together, the first is there before the second
        pace.append(np.maximum(np.where(meets, started, 0), slower) * fewer[i])
        out.slowdown.append(np.maximum(np.where(meets, waiting, 0), slower) * fewer[i])
    out.speedup = speedup_of(us, pace)
    return out


def estimate_long_run(g, a, b, longer, c=SHIPPED):
    """As suite.py measures: the slowdown of each during one run of the other that is so many times as long and began half a run
    before, relative to alone on the SMs that it may use. What is left when that has ended it does alone."""
    pair, out = (a, b), estimate(g, a, b, c)
    fewer = [np.where(k.sms > 0, of_fewer_sms(g, k, k.sms, c), 1) for k in pair]
    out.speedup = out.speedup * fewer[1]
    for i, k in enumerate(pair):
        long = changed(pair[1 - i], us=pair[1 - i].us * (longer - 0.5))
        one, times = estimate(g, *((long, k) if i else (k, long)), c), long.us / k.us
        own, other = one.slowdown[i] / fewer[i], times * one.slowdown[1 - i] / fewer[1 - i]
        rest = np.where((own > other) & (one.limit[i] != ROOM), other + 1 - other / own, own)
        out.slowdown[i], out.limit[i] = np.where(one.starves[i], 1 + times, rest), one.limit[i]
    return out


# ---- programs ----

def program(profile):
    """A profile as ncu_profile.py writes it: its name, busy (part of its time alone in which it has a kernel; 0: not known) and
    kernels, of shape (n,), whose share is of the program's GPU time."""
    k = kernels(profile["kernels"])
    calls = np.array([o["calls"] for o in profile["kernels"]], float)
    if not (len(calls) and np.all(calls >= 1) and np.all(k.us >= 1e-3) and np.all(k.blocks > 0) and np.all(k.threads > 0)):
        raise ValueError("no profile of a program, or damaged")
    k = changed(k, share=k.us * calls / np.sum(k.us * calls), l1_hit=np.minimum(k.l1_hit, 1), l2_hit=np.minimum(k.l2_hit, 1))
    return types.SimpleNamespace(name=profile.get("program", "program"), busy=min(profile.get("busy", 0), 1), kernels=k)


def with_gaps(busy, both):
    """The slowdowns of programs with gaps; busy: part of their time alone in which they have work; both: their slowdowns while both
    have work, 2 and 2 in turns. A program that is slowed down is there for longer; the other has its gaps for as long as before."""
    part = [min(b, 1) if b > 0 else 1 for b in busy]
    slowdown = list(both)
    for _ in range(50):
        there = [1 - (1 - p) / s for p, s in zip(part, slowdown)]
        slowdown = [1 - p + p / (1 - t + t / b) for p, t, b in zip(part, reversed(there), both)]
    return slowdown


def one_of_programs(g, own, other, sms, c):
    """The slowdown of a program by another, and the index of what costs it most: kernels meet at random, weighted by time, and one
    that is slowed down is met more often. Two tables of (n, m) kernels."""
    a, b = changed(own.kernels, sms=sms[0]), changed(other.kernels, sms=sms[1])
    met = estimate(g, reshaped(a, -1, 1), reshaped(b, 1, -1), c)
    weight = b.share * met.slowdown[1]
    often, speed = weight.sum(axis=1), (weight / met.slowdown[0]).sum(axis=1)
    slowdown = np.sum(a.share * ratio(often, speed, 1))
    lost = a.share[:, None] * weight * (1 - 1 / met.slowdown[0]) / often[:, None]
    cost = np.array([np.sum(lost, where=met.limit[0] == r) for r in range(len(RESOURCES))])
    return float(slowdown), int(np.argmax(cost[1:]) + 1) if cost[1:].max() > cost[0] else NOTHING


def estimate_programs(g, pair, sms_of_first=0, c=SHIPPED):
    """The slowdowns of two programs and their limits. sms_of_first: SMs of the first, the other has the rest; 0: both have all."""
    sms = (sms_of_first, g.sms - sms_of_first if sms_of_first else 0)
    (first, limit), (second, other_limit) = (one_of_programs(g, *pair, sms, c), one_of_programs(g, *pair[::-1], sms[::-1], c))
    busy, slowdown = [p.busy for p in pair], [first, second]
    if not sms_of_first:
        slowdown = with_gaps(busy, slowdown)
    else:
        slowdown = [1 + b * (s - 1) if b > 0 else s for b, s in zip(busy, slowdown)]  # fewer SMs at any time
    return slowdown, [RESOURCES[limit], RESOURCES[other_limit]]


GAIN, LEAST_SPEED, STEP_PERCENT = 0.05, 0.25, 10


def worth(speeds):
    """The sum of both speeds, or 0 if one program starves: less than a quarter of its speed alone."""
    return sum(speeds) if min(speeds) >= LEAST_SPEED else 0


def advise(g, pair, c=SHIPPED):
    """How two programs should share a GPU, as {"turns", "pool", "split", "advice"}: in time; in space, both on all SMs; or each on a
    part of them. Space has to gain 0.05 in the sum of speeds, and must starve neither."""
    turns = [1 / s for s in with_gaps([p.busy for p in pair], [2, 2])]
    slowdown, limits = estimate_programs(g, pair, 0, c)
    pool, split = [1 / s for s in slowdown], None
    for percent in range(STEP_PERCENT, 100, STEP_PERCENT):
        sms = g.sms * percent // 100
        if 0 < sms < g.sms:
            speeds = [1 / s for s in estimate_programs(g, pair, sms, c)[0]]
            if split is None or worth(speeds) > worth(split["speeds"]):
                split = {"speeds": speeds, "sm_percent": [percent, 100 - percent]}
    parts, advice = worth(split["speeds"]) if split else 0, "turns"
    if max(worth(pool), parts) > sum(turns) + GAIN:
        advice = "split" if parts > worth(pool) + GAIN else "pool"
    return {"programs": [p.name for p in pair], "turns": {"speeds": turns}, "pool": {"speeds": pool, "limits": limits},
            **({"split": split} if split else {}), "advice": advice}
