/* See swap_choice.h. */
#include "plan/swap_choice.h"

/* The memory that is kept free: for jobs that have started, and for those of the classes up to
 * `lowest` that wait. */
static uint64_t needs(const struct swap_job *jobs, uint32_t n, enum job_class lowest)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += !jobs[i].out && (!jobs[i].waits || jobs[i].class <= lowest) ? jobs[i].need_bytes : 0;
    return sum;
}

static bool latency_needs(const struct swap_job *jobs, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any |= jobs[i].class == CLASS_LATENCY && !jobs[i].out && jobs[i].need_bytes;
    return any;
}

/* The memory that becomes free when the job leaves. */
static uint64_t gain(const struct swap_job *j)
{
    return j->bytes + j->need_bytes;
}

static bool may_leave(const struct swap_job *j)
{
    return !j->out && !j->fixed && j->class != CLASS_LATENCY && j->bytes > 0;
}

/* Whether a leaves before b. */
static bool leaves_before(const struct swap_job *a, const struct swap_job *b)
{
    return a->class != b->class ? a->class > b->class : a->bytes > b->bytes;
}

/* The next to leave after `last` (SLOT_NONE: the first); ties go by index. */
static uint32_t next_to_leave(const struct swap_job *jobs, uint32_t n, uint32_t last)
{
    uint32_t best = SLOT_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (!may_leave(&jobs[i]))
            continue;
        if (last != SLOT_NONE && (leaves_before(&jobs[i], &jobs[last]) ||
                                  (!leaves_before(&jobs[last], &jobs[i]) && i <= last)))
            continue;
        if (best == SLOT_NONE || leaves_before(&jobs[i], &jobs[best]))
            best = i;
    }
    return best;
}

/* The first of the jobs that have to leave so that `shortage` becomes free. A job stays if the
 * others, which have to leave anyway, are enough. */
static uint32_t leaver(const struct swap_job *jobs, uint32_t n, uint64_t shortage)
{
    uint64_t sum = 0;
    for (uint32_t i = SLOT_NONE; sum < shortage; sum += gain(&jobs[i])) {
        i = next_to_leave(jobs, n, i);
        if (i == SLOT_NONE)
            return SLOT_NONE; /* it would not help if all left */
    }
    uint64_t surplus = sum - shortage;
    for (uint32_t i = next_to_leave(jobs, n, SLOT_NONE); i != SLOT_NONE;
         i = next_to_leave(jobs, n, i)) {
        if (gain(&jobs[i]) > surplus)
            return i;
        surplus -= gain(&jobs[i]);
    }
    return SLOT_NONE;
}

static uint32_t comer(const struct swap_device *d, const struct swap_job *jobs, uint32_t n)
{
    uint32_t best = SLOT_NONE;
    uint64_t kept[CLASS_COUNT];
    for (int c = 0; c < CLASS_COUNT; c++) /* waiting jobs count if their class is above its own */
        kept[c] = needs(jobs, n, (enum job_class)(c > 0 ? c - 1 : 0));
    for (uint32_t i = 0; i < n; i++) {
        const struct swap_job *j = &jobs[i], *b = best == SLOT_NONE ? NULL : &jobs[best];
        if (!j->out || j->fixed || kept[j->class] + j->bytes > d->free_bytes)
            continue;
        if (!b || j->class < b->class || (j->class == b->class && j->since_ns < b->since_ns))
            best = i;
    }
    return best;
}

struct swap_move swap_decide(const struct swap_device *d, const struct swap_job *jobs, uint32_t n,
                             uint64_t now_ns)
{
    struct swap_move m = {.job = SLOT_NONE};
    uint64_t need = needs(jobs, n, CLASS_LATENCY);
    if (need > d->free_bytes && latency_needs(jobs, n)) {
        m.out = true;
        m.job = leaver(jobs, n, need - d->free_bytes);
        return m;
    }
    if (!d->need_ns || now_ns >= d->need_ns + d->quiet_ns)
        m.job = comer(d, jobs, n);
    return m;
}
