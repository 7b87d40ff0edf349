/* Who works: what the driver tells of GPU time, as demand for the scheduler. On gated devices
 * programs say so themselves, and demand() tells it at once. Elsewhere there are two sources, both
 * asked only while somebody takes turns (or looks).
 *
 *   usage()     everybody's share of time, once a second, of the last second or more. Slow, and
 *               says nothing of a job that was suspended most of the time.
 *   activity()  who got the engine, ten times a second. A job that got it works. A job that could
 *               have had it and did not is idle, but only if nobody above it may have kept it
 *               away; and a job that has the engine and is not asked to leave may have stopped
 *               working: then activity() says nothing, and usage() counts.
 *
 * activity() also tells the scheduler what a latency budget buys, and, where a latency job has most
 * of a GPU, what its gaps cost it: a rare usage() finds those, because a GPU that is traced
 * switches more slowly, by some microseconds. Decides nothing. */
#include <math.h>

#include "engine/manager_impl.h"

#define GAPS_NS     (3 * NSEC_PER_SEC) /* between looks for latency jobs that have most of a GPU */
#define GAPS_BUSY   0.5
#define OTHERS_BUSY 0.9 /* share of time above which others may keep a job off the engine */

static bool turns_taken(const struct manager *m)
{
    bool turns = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        turns |= m->wake[d] != TIME_NEVER;
    return turns;
}

static void tell(struct manager *m, uint32_t job, unsigned d, bool works)
{
    struct mjob_on *on = &m->jobs[job].on[d];
    mgr_sched(m, (struct sched_event){.type = EV_DEMAND, .job = job, .device = d, .on = works});
    /* Only where jobs take turns does it change anything. */
    m->dirty[d] |= on->idle == works && (m->wake[d] != TIME_NEVER || m->jobs[job].due);
    on->idle = !works;
}

void mgr_demand_resumed(struct manager *m, uint32_t job)
{
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (m->gpus[d].caps & GPU_CAP_GATE)
            continue;
        m->jobs[job].on[d].idle_windows = 0;
        m->jobs[job].on[d].quiet_ns = 0;
        tell(m, job, d, true);
    }
}

/* ---- usage ---- */

static void usage_demand(struct manager *m, uint32_t job, unsigned d)
{
    struct mjob_on *on = &m->jobs[job].on[d];
    /* No work in a window in which it was not allowed to work says nothing. */
    if (on->busy > 0)
        on->idle_windows = 0;
    else if (on->ran && on->idle_windows < IDLE_WINDOWS)
        on->idle_windows++;
    bool runnable;
    uint32_t us;
    on->ran = sched_member_state(m->sched, job, d, &runnable, &us) ? runnable : false;
    if (m->gpus[d].caps & GPU_CAP_GATE)
        return;
    if (!on->seen_ns || m->now - on->seen_ns > ACTIVITY_VALID_NS)
        tell(m, job, d, on->idle_windows < IDLE_WINDOWS);
}

static void usage(struct manager *m)
{
    struct usage_list list = {0};
    m->usage_at = m->now + USAGE_NS;
    if (m->driver->ops->usage(m->driver, &list, NULL) < 0) {
        usage_list_free(&list);
        return;
    }
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        m->jobs[i].busy = -1;
        m->jobs[i].memory_bytes = 0;
        for (unsigned d = 0; d < m->ngpus; d++)
            m->jobs[i].on[d].busy = -1, m->jobs[i].on[d].memory_bytes = 0;
    }
    for (unsigned d = 0; d < m->ngpus; d++)
        m->outside_busy[d] = 0;
    for (size_t k = 0; k < list.n; k++) {
        const struct gpu_usage *u = &list.v[k];
        uint32_t p = mgr_process_find(m, u->pid);
        if (u->gpu >= m->ngpus)
            continue;
        double *busy = p == SLOT_NONE ? &m->outside_busy[u->gpu]
                                      : &m->jobs[m->processes[p].job].on[u->gpu].busy;
        if (u->busy >= 0)
            *busy = (*busy < 0 ? 0 : *busy) + u->busy;
        if (p == SLOT_NONE)
            continue;
        m->jobs[m->processes[p].job].memory_bytes += u->memory_bytes;
        m->jobs[m->processes[p].job].on[u->gpu].memory_bytes += u->memory_bytes;
    }
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        struct mjob *j = &m->jobs[i];
        for (unsigned d = 0; d < m->ngpus && j->j.root.pid; d++) {
            if (j->on[d].busy < 0)
                continue;
            j->busy = (j->busy < 0 ? 0 : j->busy) + j->on[d].busy;
            usage_demand(m, i, d);
        }
    }
    usage_list_free(&list);
}

/* ---- gated devices ---- */

static bool uses(const struct manager *m, const struct mprocess *p, unsigned d)
{
    uint32_t g = p->first_group;
    while (g != SLOT_NONE && m->groups[g].dg.gpu != d)
        g = m->groups[g].next;
    return g != SLOT_NONE;
}

void mgr_demand_told(struct manager *m)
{
    struct demand_list list = {0};
    if (m->driver->ops->demand)
        m->driver->ops->demand(m->driver, &list, NULL); /* what it could not say it says later */
    for (size_t k = 0; k < list.n; k++) {
        uint32_t p = mgr_process_find(m, list.v[k].pid), bit = 1U << list.v[k].gpu;
        if (list.v[k].gpu >= m->ngpus)
            continue;
        if (p == SLOT_NONE) { /* told again after its scan */
            m->discover_at = m->now;
            continue;
        }
        struct mprocess *x = &m->processes[p];
        x->wants = list.v[k].wants ? x->wants | bit : x->wants & ~bit;
        if (!uses(m, x, list.v[k].gpu))
            x->scan_at = m->now;
    }
    for (size_t k = 0; k < list.n; k++) {
        uint32_t p = mgr_process_find(m, list.v[k].pid), d = list.v[k].gpu;
        if (p != SLOT_NONE && d < m->ngpus)
            mgr_demand_of(m, m->processes[p].job, d);
    }
    demand_list_free(&list);
}

void mgr_demand_of(struct manager *m, uint32_t job, unsigned d)
{
    bool wants = false;
    for (uint32_t p = 0; p < m->processes_end; p++)
        wants |=
            m->processes[p].id.pid && m->processes[p].job == job && m->processes[p].wants >> d & 1;
    mgr_sched(m, (struct sched_event){.type = EV_DEMAND, .job = job, .device = d, .on = wants});
    m->jobs[job].on[d].idle = !wants;
    m->dirty[d] = true;
}

/* ---- activity ---- */

void mgr_demand_decided(struct manager *m, unsigned device)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        struct mjob_on *on = &m->jobs[i].on[device];
        bool runnable;
        uint32_t us;
        if (!m->jobs[i].j.root.pid || !sched_member_state(m->sched, i, device, &runnable, &us))
            runnable = false;
        if (runnable && !on->runnable)
            on->since_ns = m->now;
        on->until_ns = runnable ? UINT64_MAX : on->runnable ? m->now : on->until_ns;
        on->runnable = runnable;
    }
}

/* Whether those who could run at that time leave the engine to this job now and then. */
static bool others_leave_room(const struct manager *m, uint32_t job, unsigned d, uint64_t from,
                              uint64_t to)
{
    double sum = m->outside_busy[d];
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        const struct mjob_on *on = &m->jobs[i].on[d];
        if (i == job || !m->jobs[i].j.root.pid || on->since_ns >= to || on->until_ns <= from)
            continue;
        if (on->busy < 0)
            return false; /* not known */
        sum += on->busy;
    }
    return sum < OTHERS_BUSY;
}

static void activity_demand(struct manager *m, uint32_t job, unsigned d, uint64_t from, uint64_t to)
{
    struct mjob_on *on = &m->jobs[job].on[d];
    if (on->bursts || on->busy_ns)
        on->active_ns = m->now;
    if (on->bursts) {
        on->quiet_ns = 0;
        on->seen_ns = m->now;
        tell(m, job, d, true);
        return;
    }
    /* What it did until active_ns may have been told then. */
    from = max_u64(from, max_u64(on->since_ns, on->active_ns));
    to = min_u64(to, on->until_ns);
    if (from >= to || !others_leave_room(m, job, d, from, to))
        return;
    on->quiet_ns = min_u64(on->quiet_ns + (to - from), IDLE_QUIET_NS);
    if (on->quiet_ns < IDLE_QUIET_NS)
        return;
    on->seen_ns = m->now;
    tell(m, job, d, false);
}

/* For latency budgets: how long latency jobs had the GPU, and how often jobs below got it back from
 * them. A batch job that leaves gaps of its own starts more often than that, and so may a latency
 * job that finds the GPU idle: the rarer of both is closer. */
static void activity_tell(struct manager *m, unsigned d, uint64_t window_ns)
{
    struct sched_event ev = {.type = EV_ACTIVITY, .device = d, .window_ns = window_ns};
    uint64_t upper = 0, lower = 0;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (!m->jobs[i].j.root.pid)
            continue;
        bool latency = m->jobs[i].j.class == CLASS_LATENCY;
        *(latency ? &upper : &lower) += m->jobs[i].on[d].bursts;
        ev.busy_ns += latency ? m->jobs[i].on[d].busy_ns : 0;
    }
    ev.returns = (uint32_t)min_u64(upper, lower);
    ev.busy_ns = min_u64(ev.busy_ns, window_ns);
    mgr_sched(m, ev);
    m->dirty[d] = true;
}

static bool wants_activity(const struct manager *m, unsigned d)
{
    double busy = 0;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].j.root.pid && m->jobs[i].j.class == CLASS_LATENCY)
            busy += fmax(m->jobs[i].on[d].busy, 0);
    }
    return sched_wants_activity(m->sched, d) ||
           (busy >= GAPS_BUSY && sched_minds_gaps(m->sched, d));
}

static void activity(struct manager *m)
{
    struct activity_list list = {0};
    uint64_t from = m->activity_ns;
    m->activity_at = m->now + ACTIVITY_NS;
    if (m->driver->ops->activity(m->driver, &list, NULL) < 0) {
        m->activity_at = m->now + ACTIVITY_RETRY_NS;
        m->activity_ns = 0;
        activity_list_free(&list);
        return;
    }
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        for (unsigned d = 0; d < m->ngpus; d++)
            m->jobs[i].on[d].bursts = 0, m->jobs[i].on[d].busy_ns = 0;
    }
    for (size_t k = 0; k < list.n; k++) {
        const struct gpu_activity *a = &list.v[k];
        uint32_t p = mgr_process_find(m, a->pid);
        if (p == SLOT_NONE || a->gpu >= m->ngpus)
            continue;
        struct mjob_on *on = &m->jobs[m->processes[p].job].on[a->gpu];
        on->bursts += a->bursts;
        on->busy_ns += a->busy_ns;
    }
    /* What the driver told is of the time until ACTIVITY_LAG_NS ago, or later. After a pause the
     * window begins anew: nobody looked. */
    uint64_t to = m->now - ACTIVITY_LAG_NS;
    m->activity_ns = to;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        for (unsigned d = 0; d < m->ngpus && m->jobs[i].j.root.pid; d++) {
            bool all_known = from && !(list.incomplete & 1U << d);
            activity_demand(m, i, d, all_known ? from : to, to);
        }
    }
    if (from)
        mgr_deadline_seen(m);
    for (unsigned d = 0; d < m->ngpus && from && from < to; d++) {
        if (wants_activity(m, d) && !(list.incomplete & 1U << d))
            activity_tell(m, d, min_u64(to - from, NSEC_PER_SEC));
    }
    activity_list_free(&list);
}

/* When usage() is due. */
static uint64_t usage_due(const struct manager *m, bool turns)
{
    if (!m->driver->ops->usage)
        return TIME_NEVER;
    if (turns || m->now < m->watched_until || m->now < m->memory_asked_until)
        return m->usage_at;
    bool gaps = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        gaps |= m->driver->ops->activity && sched_minds_gaps(m->sched, d);
    return gaps ? m->usage_at + (GAPS_NS - USAGE_NS) : TIME_NEVER;
}

uint64_t mgr_demand_due(struct manager *m)
{
    bool turns = turns_taken(m) || mgr_deadline_wanted(m);
    mgr_demand_told(m);
    if (m->now >= usage_due(m, turns))
        usage(m);
    uint64_t next = usage_due(m, turns);
    bool budgets = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        budgets |= wants_activity(m, d);
    if (m->driver->ops->activity && (turns || budgets)) {
        if (m->now >= m->activity_at)
            activity(m);
        next = min_u64(next, m->activity_at);
    } else {
        m->activity_ns = 0;
    }
    return next;
}
