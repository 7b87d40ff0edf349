/* See scans.h. */
#include "core/observe/scans.h"

#include <errno.h>
#include <stdlib.h>

/* While scans find nothing new, all together become so rare that they take one SCAN_PART of the
 * time, but each process is scanned at least once per SCAN_RARE_NS. */
#define SCAN_PART      1000U
#define SCAN_RARE_NS   (5 * NSEC_PER_SEC)
#define SCAN_FAST_NS   (20 * NSEC_PER_MSEC)
#define SCAN_SLOW_NS   (2 * NSEC_PER_SEC)
#define FAST_PART      4U                  /* the same part while each scan finds something new, */
#define SLOW_PART      5U                  /* for slow scans together, */
#define SEARCH_PART    2U                  /* and for searches that go on over several scans */
#define SCAN_BUDGET_NS (5 * NSEC_PER_MSEC) /* per tick */
#define SCAN_JOB_NS    NSEC_PER_SEC        /* for scans_job(), during which all else waits */

static uint32_t slow_ones(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->processes_end; i++)
        n += m->processes[i].id.pid && m->processes[i].slow;
    return n;
}

struct found_group {
    const struct device_group *g;
    bool known;
};

static int by_key(const void *x, const void *y)
{
    const struct device_group *a = ((const struct found_group *)x)->g;
    const struct device_group *b = ((const struct found_group *)y)->g;
    if (a->gpu != b->gpu)
        return a->gpu < b->gpu ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* Takes over what a scan found, and returns whether anything changed. complete: groups that were
 * not found have ended. Sorted, as a program may have thousands of groups. */
static bool take_over(struct model *m, uint32_t slot, struct group_list *found, bool complete)
{
    _cleanup_free_ struct found_group *sorted = calloc(found->n + 1, sizeof(*sorted));
    bool changed = false;
    if (!sorted)
        return false; /* the next scan finds it again */
    for (size_t k = 0; k < found->n; k++)
        sorted[k].g = &found->v[k];
    qsort(sorted, found->n, sizeof(*sorted), by_key);
    for (uint32_t g = m->processes[slot].first_group, next; g != SLOT_NONE; g = next) {
        const struct found_group known = {.g = &m->groups[g].dg};
        struct found_group *f = bsearch(&known, sorted, found->n, sizeof(*sorted), by_key);
        next = m->groups[g].next;
        if (!f && complete) {
            model_group_remove(m, g, false);
            changed = true;
        } else if (f) {
            changed |= model_group_update(m, g, f->g);
            f->known = true;
        }
    }
    for (size_t k = 0; k < found->n; k++) {
        if (sorted[k].known)
            found->v[sorted[k].g - found->v].key = 0;
    }
    for (size_t k = 0; k < found->n; k++)
        changed |= found->v[k].key && model_group_add(m, slot, &found->v[k]) == 0;
    return changed;
}

/* Programs determine how long their scans take, so the longer scans take, the rarer they are. A
 * search is an exception, because its scans are short and it may be for a latency job. */
static void plan_next(struct model *m, struct process *p, bool changed, uint64_t took)
{
    uint64_t all = took * m->processes_end;
    uint64_t slow = clamp_u64(all * SCAN_PART, SCAN_SLOW_NS, SCAN_RARE_NS);
    uint64_t fast = clamp_u64(all * FAST_PART, SCAN_FAST_NS, slow);
    uint64_t every = max_u64(p->scan_every, SCAN_FAST_NS);
    p->scan_every = changed || p->searching ? fast : min_u64(every * 3 / 2, slow);
    p->scan_at = m->now + p->scan_every;
    p->slow = p->searching || took > SCAN_BUDGET_NS;
    if (p->searching)
        p->scan_at = m->now + took * SEARCH_PART * slow_ones(m);
    else if (p->slow)
        p->scan_at = max_u64(p->scan_at, m->now + took * SLOW_PART * slow_ones(m));
}

static int scan(struct model *m, uint32_t slot)
{
    struct process *p = &m->processes[slot];
    uint64_t started = monotonic_ns();
    struct group_list found = {0};
    struct error err = {""};
    int r = m->driver->ops->scan(m->driver, p->id, &found, &err);
    bool changed = r != -ESRCH && take_over(m, slot, &found, r == 0);
    p->searching = r == -EAGAIN;
    if (r == 0) {
        p->unseen_since = m->now;
        p->charged = 0;
    }
    if (r < 0 && r != -ESRCH && r != -EAGAIN)
        model_job_failed(m, p->job, r, &err);
    group_list_free(&found);
    plan_next(m, p, changed, monotonic_ns() - started);
    if (r == -ESRCH && !proc_alive(p->id))
        model_process_remove(m, slot, false);
    return r;
}

int scans_job(struct model *m, uint32_t job)
{
    const uint64_t started = monotonic_ns();
    int unknown = 0;
    if (m->quiesced)
        return -EAGAIN;
    for (uint32_t p = m->jobs[job].first_process, next; p != SLOT_NONE; p = next) {
        next = m->processes[p].job_next;
        if (m->processes[p].scan_at == TIME_NEVER) /* detached: it is on its way, or away */
            continue;
        if (monotonic_ns() - started > SCAN_JOB_NS)
            return -EAGAIN;
        int r = scan(m, p);
        if (r < 0 && r != -ESRCH && m->processes[p].first_group == SLOT_NONE)
            unknown = r;
    }
    return unknown;
}

uint64_t scans_due(struct scans *s, struct model *m)
{
    uint64_t next = TIME_NEVER, started = monotonic_ns();
    uint32_t n = m->quiesced ? 0 : m->processes_end, first = s->from;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (first + k) % n;
        if (!m->processes[i].id.pid)
            continue;
        /* Scans that do not fit in this tick come first in the next. */
        if (m->processes[i].scan_at <= m->now && monotonic_ns() - started < SCAN_BUDGET_NS) {
            uint32_t job = m->processes[i].job;
            s->from = i + 1;
            scan(m, i);
            model_job_drop_if_over(m, job);
        }
        if (m->processes[i].id.pid)
            next = min_u64(next, m->processes[i].scan_at);
    }
    return next;
}
