/* Demand of jobs for the scheduler, from the driver's reports of GPU time. On gated devices
 * programs report themselves (demand_read()). Elsewhere there are two sources, asked only while
 * jobs take turns or a person looks:
 *   - demand_usage(), once per second: each job's share of time since the last call. It is slow,
 *     says nothing about a job that was mostly suspended, and does not show reliably which of
 *     several jobs worked (by_record()).
 *   - demand_activity(), ten times per second: which jobs had the engine. A job that had it works.
 *     A job that could have had it and did not is idle, unless others may have kept it away. A
 *     job that keeps the engine unasked may have stopped working: then demand_usage() counts.
 *
 * demand_activity() also reports to the scheduler what a latency budget buys. Decides nothing. */
#include "core/observe/demand.h"

#include <math.h>
#include <string.h>

#define USAGE_NS          NSEC_PER_SEC
#define USAGE_COUNT_NS    (5 * NSEC_PER_SEC)  /* between calls that only count engine time */
#define YOUNG_NS          (10 * NSEC_PER_SEC) /* a younger job may end within USAGE_COUNT_NS */
#define COUNT_MAX_NS      (10 * NSEC_PER_SEC) /* the driver's samples reach back no further */
#define USAGE_WATCHED_NS  (10 * NSEC_PER_SEC) /* how long a person who looked counts as looking */
#define IDLE_WINDOWS      3                   /* windows without work before a job counts as idle */
#define ACTIVITY_RETRY_NS NSEC_PER_SEC        /* the driver paces costlier attempts itself */
/* How long the last result of demand_activity() overrides demand_usage(). */
#define ACTIVITY_VALID_NS (5 * NSEC_PER_SEC)
/* Time of its own turns without work before a job counts as idle: with turns of 200 ms, a gap of
 * half a second or more. Skipping a job for shorter gaps costs more than it gains. */
#define IDLE_QUIET_NS (300 * NSEC_PER_MSEC)

/* Calls of usage() for a program's GPUs: one that has a device open may never work on it. */
#define UNMANAGED_ASKED_MAX 10

#define RECORD_LEAST 0.8 /* the part of the time between two calls that activity() must cover */
#define RECORD_GOT   2   /* a job that got the engine so often has work, as others had it between */

#define GAPS_NS     (3 * NSEC_PER_SEC) /* between looks for latency jobs that leave short gaps */
#define SERVER_BUSY 0.02 /* share of time that a driver may count as an MPS server's own */
#define OTHERS_BUSY 0.9  /* share of time above which others may keep a job off the engine */

/* A unit works if one of its jobs does or, as far as usage() shows it, its server. */
static bool others_work(const struct demand *x, const struct model *m, uint32_t job, unsigned d)
{
    if (m->jobs[job].is_client && x->unmanaged_busy[d] > SERVER_BUSY)
        return true;
    for_each_job (m, j) {
        if (j->unit == m->jobs[job].unit && model_job_slot(m, j) != job && !j->on[d].idle &&
            (model_job_gpus(m, j) >> d & 1))
            return true;
    }
    return false;
}

static void set_idle(const struct demand *x, struct model *m, uint32_t job, unsigned d, bool idle)
{
    bool on = !idle || (m->jobs[job].is_client && others_work(x, m, job, d));
    m->dirty |= m->jobs[job].united;
    model_emit(m, (struct sched_event){.type = EV_DEMAND,
                                       .job = m->jobs[job].unit,
                                       .device = d,
                                       .on = on,
                                       .busy = fmin(fmax(m->jobs[job].on[d].busy, 0), 1)});
    m->jobs[job].on[d].idle = idle;
}

void demand_resumed(const struct demand *x, struct model *m, uint32_t job)
{
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (m->gpus[d].caps & GPU_CAP_GATE)
            continue;
        m->jobs[job].on[d].idle_windows = 0;
        m->jobs[job].on[d].quiet_ns = 0;
        set_idle(x, m, job, d, false);
    }
}

/* ---- usage ---- */

static void usage_demand(const struct demand *x, struct model *m, uint32_t job, unsigned d)
{
    struct job_demand *on = &m->jobs[job].on[d];
    /* A window in which the job could not run does not show that it is idle. */
    if (on->busy > 0)
        on->idle_windows = 0;
    else if (on->ran && on->idle_windows < IDLE_WINDOWS)
        on->idle_windows++;
    sched_member_state(m->sched, m->jobs[job].unit, d, &on->ran);
    if (m->gpus[d].caps & GPU_CAP_GATE)
        return;
    if (!on->seen_ns || m->now - on->seen_ns > ACTIVITY_VALID_NS)
        set_idle(x, m, job, d, on->idle_windows >= IDLE_WINDOWS);
}

static void unmanaged_uses(struct model *m, pid_t pid, unsigned gpu)
{
    struct unmanaged *u = model_unmanaged_with(m, pid);
    if (u)
        u->gpus |= 1U << gpu;
}

static bool unmanaged_unknown(const struct unmanaged *u)
{
    return !u->gpus && !u->scheduler && u->asked < UNMANAGED_ASKED_MAX;
}

/* Whether the GPUs of an unmanaged program are still unknown while there are jobs. */
static bool unmanaged_wanted(const struct model *m)
{
    bool unknown = false;
    for (size_t i = 0; i < m->nunmanaged; i++)
        unknown |= unmanaged_unknown(&m->unmanaged[i]);
    return unknown && model_jobs(m);
}

/* Adds the engine time since the last call that activity() has not covered. */
static void count_samples(struct demand *x, struct model *m)
{
    uint64_t window = min_u64(m->now - x->counted_ns, COUNT_MAX_NS);
    x->has_window = x->counted_ns;
    x->counted_ns = m->now;
    for (unsigned d = 0; d < m->ngpus; d++) {
        uint64_t left = window - min_u64(x->exact_ns[d], window);
        double busy = x->unmanaged_busy[d];
        x->exact_ns[d] = x->had_ns[d] = 0;
        x->until_ns[d] = left ? m->now : x->until_ns[d];
        for_each_job (m, j) {
            struct job_demand *on = &j->on[d];
            busy += fmax(on->busy, 0);
            on->had_ns = on->got = 0;
            if (on->busy > 0)
                j->counts.total.on[d].sampled_ns +=
                    (uint64_t)(on->busy * (double)min_u64(left, m->now - j->added_ns));
        }
        x->used_ns[d] += (uint64_t)(fmin(busy, 1) * (double)window);
    }
}

void demand_ended(const struct demand *x, struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    for (unsigned d = 0; d < m->ngpus; d++) {
        const struct job_demand *on = &j->on[d];
        const struct gpu_counts *c = &j->counts.on[d];
        struct gpu_totals *t = &j->counts.total.on[d];
        uint64_t left = min_u64(m->now - x->counted_ns, m->now - j->added_ns);
        uint64_t ran = t->ran_ns + (c->runs ? m->now - c->since : 0);
        uint64_t had = t->exact_ns + t->sampled_ns;
        left -= min_u64(x->exact_ns[d], left);
        if (on->busy > 0 && ran > had)
            t->sampled_ns += min_u64((uint64_t)(on->busy * (double)left), ran - had);
    }
}

/* Samples show how long the engine worked, but not reliably for which job. The record shows which
 * job had the engine, but not whether that worked, as a context keeps it until another wants it. So
 * the time that the engine worked is divided by the record. A job that got the engine again and
 * again had it for its work, even if samples are missing. Clients of an MPS server are left out, as
 * the record has one name for all of them. A job without engine time is not reported as idle here,
 * because others may have kept it away. */
static void by_record(const struct demand *x, struct model *m, unsigned d)
{
    const double known = (double)x->exact_ns[d], had = (double)x->had_ns[d] / fmax(known, 1);
    if (!x->exact_ns[d] || known < RECORD_LEAST * (double)(m->now - x->counted_ns))
        return;
    for_each_job (m, j) {
        struct job_demand *on = &j->on[d];
        double own = fmin((double)on->had_ns / known, 1);
        if (j->is_client || !(model_job_gpus(m, j) >> d & 1))
            continue;
        if (x->all_busy[d] >= 0)
            on->busy = had > x->all_busy[d] ? own * x->all_busy[d] / had : own;
        else
            on->busy = !on->had_ns || on->got >= RECORD_GOT ? own : -1;
    }
}

/* If the usage of one process is unknown, so is that of its job and of the GPU. */
static void usage_unknown(struct demand *x, struct model *m, const struct usage_list *l)
{
    for (size_t k = 0; k < l->n; k++) {
        const uint32_t p = model_process_find(m, l->v[k].pid);
        if (l->v[k].busy >= 0 || l->v[k].gpu >= m->ngpus)
            continue;
        x->all_busy[l->v[k].gpu] = -1;
        if (p != SLOT_NONE)
            m->jobs[m->processes[p].job].on[l->v[k].gpu].busy = -1;
    }
}

/* Reports all jobs at once, because their shares add up only if they are of the same time. */
static void tell_busy(const struct demand *x, struct model *m)
{
    for_each_job (m, j) {
        const uint32_t gpus = model_job_gpus(m, j);
        for (unsigned d = 0; d < m->ngpus; d++) {
            if (!(m->gpus[d].caps & GPU_CAP_GATE) && gpus >> d & 1)
                set_idle(x, m, model_job_slot(m, j), d, j->on[d].idle);
        }
    }
}

/* What was last known of jobs expires if usage() has failed for a while, and activity() too. */
static void usage_fails(const struct demand *x, struct model *m)
{
    if (m->now - x->counted_ns <= ACTIVITY_VALID_NS)
        return;
    for_each_job (m, j) {
        for (unsigned d = 0; d < m->ngpus; d++) {
            struct job_demand *on = &j->on[d];
            on->busy = -1;
            on->idle_windows = 0;
            on->idle &=
                (m->gpus[d].caps & GPU_CAP_GATE) || m->now - on->seen_ns <= ACTIVITY_VALID_NS;
        }
    }
    tell_busy(x, m);
}

static void demand_usage(struct demand *x, struct model *m)
{
    struct usage_list list = {0};
    x->usage_at = m->now + USAGE_NS;
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].asked += unmanaged_unknown(&m->unmanaged[i]);
    if (m->driver->ops->usage(m->driver, &list, NULL) < 0) {
        usage_list_free(&list);
        usage_fails(x, m);
        return;
    }
    for_each_job (m, j)
        model_job_usage_clear(j);
    memset(x->unmanaged_busy, 0, sizeof(x->unmanaged_busy));
    memset(x->all_busy, 0, sizeof(x->all_busy));
    for_each (u, list.v, list.n) {
        uint32_t p = model_process_find(m, u->pid);
        if (u->gpu >= m->ngpus)
            continue;
        struct job_demand *on = p == SLOT_NONE ? NULL : &m->jobs[m->processes[p].job].on[u->gpu];
        double *busy = on ? &on->busy : &x->unmanaged_busy[u->gpu];
        if (u->busy >= 0) {
            *busy = fmin(fmax(*busy, 0) + u->busy, 1);
            x->all_busy[u->gpu] = fmin(x->all_busy[u->gpu] + u->busy, 1);
        }
        if (on)
            on->memory_bytes += u->memory_bytes;
        else
            unmanaged_uses(m, u->pid, u->gpu);
    }
    usage_unknown(x, m, &list);
    for_each_job (m, j) {
        for (unsigned d = 0; d < m->ngpus; d++) {
            if (j->on[d].memory_bytes > j->on[d].start_bytes)
                j->on[d].start.grew_ns = m->now;
            j->on[d].start_bytes = max_u64(j->on[d].start_bytes, j->on[d].memory_bytes);
            if (j->on[d].busy >= 0)
                usage_demand(x, m, model_job_slot(m, j), d);
        }
    }
    for (unsigned d = 0; d < m->ngpus; d++)
        by_record(x, m, d);
    tell_busy(x, m);
    count_samples(x, m);
    usage_list_free(&list);
}

/* ---- gated devices ---- */

void demand_read(struct model *m)
{
    _cleanup_(demand_list_free) struct demand_list list = {0};
    if (m->driver->ops->demand)
        m->driver->ops->demand(m->driver, &list, NULL); /* after an error it reports again */
    for (size_t k = 0; k < list.n; k++) {
        const uint32_t p = model_process_find(m, list.v[k].pid);
        if (list.v[k].gpu >= m->ngpus)
            continue;
        const bool gated = m->gpus[list.v[k].gpu].caps & GPU_CAP_GATE;
        if (p == SLOT_NONE) { /* gated: reported again after its scan */
            *(gated ? &m->discover_now : &m->discover_soon) = true;
            continue;
        }
        struct process *q = &m->processes[p];
        const uint32_t bit = 1U << list.v[k].gpu;
        if (!gated) { /* the driver reports a new context */
            q->scan_at = q->scan_at == TIME_NEVER ? TIME_NEVER : m->now;
            q->scan_every = 0;
            continue;
        }
        q->wants = list.v[k].wants ? q->wants | bit : q->wants & ~bit;
        m->jobs[q->job].wants_changed = true;
        if (!(model_process_gpus(m, q) & bit))
            q->scan_at = m->now;
    }
}

void demand_gated(const struct demand *x, struct model *m)
{
    for_each_job (m, j) {
        uint32_t wants = 0;
        if (!j->wants_changed)
            continue;
        j->wants_changed = false;
        for_each_process_of (m, j, p)
            wants |= m->processes[p].wants;
        for (unsigned d = 0; d < m->ngpus; d++) {
            if (m->gpus[d].caps & GPU_CAP_GATE)
                set_idle(x, m, model_job_slot(m, j), d, !(wants >> d & 1));
        }
    }
}

/* ---- activity ---- */

void demand_decided(struct model *m)
{
    for_each_job (m, j) {
        for (unsigned d = 0; d < m->ngpus; d++) {
            struct job_demand *on = &j->on[d];
            bool runnable;
            sched_member_state(m->sched, j->unit, d, &runnable);
            on->ran |= runnable;
            if (runnable && !on->runnable)
                on->since_ns = m->now;
            on->until_ns = runnable ? UINT64_MAX : on->runnable ? m->now : on->until_ns;
            on->runnable = runnable;
        }
    }
}

/* Whether the jobs that could run at that time left the engine to this job now and then. */
static bool others_leave_room(const struct demand *x, const struct model *m, uint32_t job,
                              unsigned d, uint64_t from, uint64_t to)
{
    double sum = x->unmanaged_busy[d];
    for_each_job (m, j) {
        const struct job_demand *on = &j->on[d];
        if (model_job_slot(m, j) == job || on->since_ns >= to || on->until_ns <= from)
            continue;
        if (on->busy < 0)
            return false; /* not known */
        sum += on->busy;
    }
    return sum < OTHERS_BUSY;
}

static void activity_demand(const struct demand *x, struct model *m, uint32_t job, unsigned d,
                            uint64_t from, uint64_t to)
{
    struct job_demand *on = &m->jobs[job].on[d];
    if (on->bursts || on->busy_ns)
        on->active_ns = m->now;
    if (on->bursts) {
        on->quiet_ns = 0;
        on->seen_ns = m->now;
        set_idle(x, m, job, d, false);
        return;
    }
    /* Work until active_ns may have been reported then already. */
    from = max_u64(from, max_u64(on->since_ns, on->active_ns));
    to = min_u64(to, on->until_ns);
    if (from >= to || !others_leave_room(x, m, job, d, from, to))
        return;
    on->quiet_ns = min_u64(on->quiet_ns + (to - from), IDLE_QUIET_NS);
    if (on->quiet_ns < IDLE_QUIET_NS)
        return;
    on->seen_ns = m->now;
    set_idle(x, m, job, d, true);
}

/* For latency budgets: how long latency jobs had the GPU, and how often lower jobs got it back. The
 * starts of lower jobs include those after their own gaps, and the starts of latency jobs those on
 * an idle GPU, so the smaller of both numbers is closer. */
static void activity_report(struct model *m, unsigned d, uint64_t window_ns)
{
    struct sched_event ev = {.type = EV_ACTIVITY, .device = d, .window_ns = window_ns};
    uint64_t upper = 0, lower = 0;
    for_each_job (m, j) {
        bool latency = model_class(m, j) == CLASS_LATENCY;
        *(latency ? &upper : &lower) += j->on[d].bursts;
        ev.busy_ns += latency ? j->on[d].busy_ns : 0;
    }
    ev.returns = (uint32_t)min_u64(upper, lower);
    ev.busy_ns = min_u64(ev.busy_ns, window_ns);
    model_emit(m, ev);
}

/* Asks activity(). Returns whether it covered a window. */
static bool demand_activity(struct demand *x, struct model *m)
{
    struct activity_list list = {0};
    uint64_t from = x->activity_ns;
    x->activity_at = m->now + ACTIVITY_NS;
    if (m->driver->ops->activity(m->driver, &list, NULL) < 0) {
        x->activity_at = m->now + ACTIVITY_RETRY_NS;
        x->activity_ns = 0;
        activity_list_free(&list);
        return false;
    }
    for_each_job (m, j) {
        for (unsigned d = 0; d < m->ngpus; d++)
            j->on[d].bursts = 0, j->on[d].busy_ns = 0;
    }
    for_each (a, list.v, list.n) {
        uint32_t p = model_process_find(m, a->pid);
        if (a->gpu >= m->ngpus)
            continue;
        if (from && !(list.incomplete & 1U << a->gpu))
            x->had_ns[a->gpu] += a->busy_ns;
        if (p == SLOT_NONE)
            continue;
        struct job_demand *on = &m->jobs[m->processes[p].job].on[a->gpu];
        on->bursts += a->bursts;
        on->busy_ns += a->busy_ns;
    }
    /* The driver's answer is complete until ACTIVITY_LAG_NS ago. After a pause in asking, a new
     * window begins. */
    uint64_t to = m->now - ACTIVITY_LAG_NS;
    x->activity_ns = to;
    for_each_job (m, j) {
        for (unsigned d = 0; d < m->ngpus; d++) {
            bool all_known = from && !(list.incomplete & 1U << d);
            j->counts.total.on[d].exact_ns += all_known ? j->on[d].busy_ns : 0;
            j->on[d].had_ns += all_known ? j->on[d].busy_ns : 0;
            j->on[d].got += all_known ? j->on[d].bursts : 0;
            activity_demand(x, m, model_job_slot(m, j), d, all_known ? from : to, to);
        }
    }
    for (unsigned d = 0; d < m->ngpus && from && from < to; d++) {
        if (list.incomplete & 1U << d)
            continue;
        x->exact_ns[d] += to - from;
        x->until_ns[d] = max_u64(x->until_ns[d], to);
        if (sched_wants_activity(m->sched, d))
            activity_report(m, d, min_u64(to - from, NSEC_PER_SEC));
    }
    activity_list_free(&list);
    return from != 0;
}

/* When demand_usage() is due. */
static uint64_t usage_due(const struct demand *x, const struct model *m, bool turns)
{
    if (!m->driver->ops->usage)
        return TIME_NEVER;
    if (turns || m->now < x->watched_until || m->now < m->memory_until || unmanaged_wanted(m))
        return x->usage_at;
    bool gaps = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        gaps |= m->driver->ops->switches && sched_wants_switches(m->sched, d, 1);
    if (gaps)
        return x->usage_at + (GAPS_NS - USAGE_NS);
    uint64_t due = TIME_NEVER;
    for_each_job (m, j) {
        if (j->ngroups && m->now - j->added_ns < YOUNG_NS)
            return x->usage_at;
        if (j->ngroups)
            due = x->usage_at + (USAGE_COUNT_NS - USAGE_NS);
    }
    return due;
}

void demand_ask(struct demand *x)
{
    x->usage_at = 0;
}

uint64_t demand_due(struct demand *x, struct model *m, bool turns)
{
    x->fresh = false;
    if (m->now >= usage_due(x, m, turns))
        demand_usage(x, m);
    uint64_t next = usage_due(x, m, turns);
    if (m->driver->ops->due_ns)
        next = min_u64(next, m->driver->ops->due_ns(m->driver));
    bool budgets = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        budgets |= sched_wants_activity(m->sched, d);
    if (!m->driver->ops->activity || !(turns || budgets)) {
        x->activity_ns = 0;
        return next;
    }
    if (m->now >= x->activity_at)
        x->fresh = demand_activity(x, m);
    return min_u64(next, x->activity_at);
}

bool demand_stale(const struct demand *x, const struct model *m)
{
    return m->driver->ops->usage && m->now >= x->usage_at;
}

void demand_refresh(struct demand *x, struct model *m)
{
    demand_usage(x, m);
}

void demand_watch(struct demand *x, const struct model *m)
{
    x->watched_until = m->now + USAGE_WATCHED_NS;
}
