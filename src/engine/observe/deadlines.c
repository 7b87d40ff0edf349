/* When the work of jobs is due, for the scheduler (EV_DEADLINE): from what programs tell of their
 * requests (hints.c), or for programs that tell nothing from what the job was given (`cede run
 * --deadline`): then a request begins when the job is seen working after it was not, and has ended
 * when it could have worked for QUIET_NS and did not. A program that never rests has one deadline.
 *
 * What a request still needs is what those before it took, at a high quantile (lib/estimate.h),
 * less what it has had; or what the job was said to need (deadline less laxity). Everything a
 * program tells is a number within bounds here; what it can gain by it is bounded in the scheduler.
 *
 * Of latency jobs only what programs report counts, and only where two of them report on one GPU
 * (sched/slack.h). Their requests are shorter than the time in which activity() shows what they
 * took, so the need is learned as the mean of some time, and what one has had is the scheduler's to
 * estimate. */
#include "engine/observe/deadlines.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/observe/demand.h"
#include "lib/estimate.h"

#define QUANTILE  0.9
#define QUIET_NS  (90 * NSEC_PER_MSEC)            /* all of a look, or of two that overlap it */
#define SEEN_NS   (ACTIVITY_NS + ACTIVITY_LAG_NS) /* work was seen at most so long after it began */
#define END_NS    (SEEN_NS + 2 * ACTIVITY_NS + ACTIVITY_LAG_NS) /* from the deadline as seen */
#define NOTIFY_NS (100 * NSEC_PER_MSEC)
#define SILENT_NS NSEC_PER_SEC /* after that a program that told of requests is gone */
#define FAR_NS    (3600 * NSEC_PER_SEC)
/* Requests of a latency job are counted for LEARN_NS at least, and LEARN_N of them (at first
 * LEARN_1), as one more or less is seen at the ends of that. */
#define LEARN_NS NSEC_PER_SEC
#define LEARN_N  8
#define LEARN_1  3
#define LAST_NS  (2 * SEEN_NS) /* until work is seen of requests that are counted */

struct job_due {
    struct estimate need; /* GPU time of the requests so far */
    bool open;
    bool reported;                 /* by its programs; else the job's own deadline counts */
    bool program_root;             /* all of these are root's */
    uint64_t reported_ns;          /* when they spoke last */
    uint64_t ended;                /* requests, as they count */
    uint64_t deadline_ns, said_ns; /* said_ns: what it needs, if it was said; or 0 */
    int priority;
    uint64_t mark_ns;           /* the job's GPU time when it began */
    uint64_t ended_n, learn_at; /* of requests that ended: what they took is not all seen yet */
    uint64_t notify_at;
    bool united;             /* the job was, at the last notice */
    bool ordered;            /* a latency job, and not the only one that reports on a GPU */
    bool fast;               /* and there one has requests that are worth an order */
    bool settles;            /* what was counted so far is of before */
    struct sched_event last; /* told to the scheduler */
};

static struct job_due *due_of(struct job *j)
{
    if (!j->due)
        j->due = calloc(1, sizeof(*j->due)); /* without memory: nothing is due */
    return j->due;
}

static bool is_latency(const struct job *j)
{
    return j->rec.class == CLASS_LATENCY;
}

static uint64_t deadlines_left(const struct job *j, const struct job_due *d)
{
    uint64_t said = d->said_ns, used = is_latency(j) ? 0 : j->gpu_ns - d->mark_ns;
    if (!said && j->rec.laxity_us && j->rec.deadline_us > j->rec.laxity_us)
        said = (j->rec.deadline_us - j->rec.laxity_us) * NSEC_PER_USEC;
    double q = is_latency(j) ? 0.5 : QUANTILE; /* of means */
    uint64_t need = said ? said : cede_estimate_get(&d->need, q, TIME_NEVER);
    if (need == TIME_NEVER)
        return TIME_NEVER;
    /* One that takes longer than others is not done because they were. */
    return max_u64(need > used ? need - used : 0, need / 8);
}

/* Within a unit nobody can be first: nothing of it is due. */
static void deadlines_notify(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    struct job_due *d = j->due;
    const bool counts = !j->united && (!is_latency(j) || (d->ordered && d->reported));
    const bool open = d->open && counts;
    struct sched_event ev = {.type = EV_DEADLINE,
                             .job = job,
                             .deadline_ns = open ? d->deadline_ns : TIME_NEVER,
                             .left_ns = open ? deadlines_left(j, d) : 0,
                             .priority = open && d->reported ? d->priority : 0,
                             /* Whoever set the job's did not set these. */
                             .may_promote = d->reported ? d->program_root : j->rec.may_promote,
                             .on = counts && (d->reported || j->rec.deadline_us)};
    d->united = j->united;
    bool begins = ev.deadline_ns != TIME_NEVER && ev.deadline_ns != d->last.deadline_ns;
    bool same = d->last.type == EV_DEADLINE && ev.deadline_ns == d->last.deadline_ns &&
                ev.left_ns == d->last.left_ns && ev.may_promote == d->last.may_promote &&
                ev.on == d->last.on && ev.priority == d->last.priority;
    d->notify_at = d->open ? m->now + NOTIFY_NS : TIME_NEVER;
    if (same)
        return;
    bool ends = ev.on && ev.deadline_ns == TIME_NEVER;
    for (unsigned g = 0; g < m->ngpus; g++) {
        if (m->gpus[g].caps & GPU_CAP_GATE || is_latency(j) || !(begins || ends))
            continue;
        j->on[g].idle = ends; /* as the scheduler takes it */
        j->on[g].quiet_ns = 0;
    }
    d->last = ev;
    model_emit(m, ev);
}

static void deadlines_learn(struct job *j)
{
    struct job_due *d = j->due;
    uint64_t used = j->gpu_ns - d->mark_ns;
    if (d->ended_n && used)
        cede_estimate_add(&d->need, used / d->ended_n);
    d->ended_n = 0;
}

/* So many as ended took what was seen meanwhile. */
static void deadlines_count(const struct model *m, struct job *j)
{
    struct job_due *d = j->due;
    bool enough = d->settles || d->ended_n >= (d->need.n ? LEARN_N : LEARN_1);
    if (m->now < d->learn_at || !enough)
        return;
    if (!d->settles)
        deadlines_learn(j);
    d->ended_n = 0;
    d->settles = false;
    d->mark_ns = j->gpu_ns;
    d->learn_at = m->now + LEARN_NS;
}

static void deadlines_begin(struct job *j, uint64_t deadline_ns, uint64_t said_ns, uint64_t had_ns)
{
    struct job_due *d = j->due;
    d->open = true;
    d->deadline_ns = deadline_ns;
    d->said_ns = said_ns;
    if (is_latency(j))
        return;
    deadlines_learn(j);
    d->mark_ns = j->gpu_ns - min_u64(j->gpu_ns, had_ns);
}

/* n of them, in the time since the first began. */
static void deadlines_end(struct job *j, uint64_t n, uint64_t learn_at)
{
    struct job_due *d = j->due;
    bool open = d->open;
    d->open = false;
    if (is_latency(j)) {
        d->ended_n += n;
        return;
    }
    d->ended_n = open ? n : 0;
    d->learn_at = learn_at;
}

uint64_t deadlines_report(struct model *m, uint32_t job, const struct report *t)
{
    struct job *j = &m->jobs[job];
    struct job_due *d = due_of(j);
    if (!d)
        return REPORT_NS;
    if (!d->reported) { /* whatever was open was a guess */
        d->open = false;
        d->ended = t->ended;
    }
    d->reported = true;
    d->reported_ns = t->now_ns;
    d->program_root = t->root;
    d->priority = t->priority;
    /* A program that begins anew counts from 0 again: that is no request. */
    uint64_t ended = t->ended > d->ended ? t->ended - d->ended : 0;
    bool due = t->deadline_ns && t->deadline_ns < t->now_ns + FAR_NS;
    if (ended || (d->open && !due))
        deadlines_end(j, ended, t->now_ns + SEEN_NS);
    if (due && !d->open)
        deadlines_begin(j, t->deadline_ns, t->need_ns, 0);
    else if (due)
        d->deadline_ns = t->deadline_ns;
    d->ended = t->ended;
    d->notify_at = 0; /* at the next turn */
    return is_latency(j) && d->fast ? ORDER_NS : REPORT_NS;
}

int deadlines_set(struct model *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                  bool may_promote)
{
    struct job *j = &m->jobs[job];
    if (deadline_us && !due_of(j))
        return -ENOMEM;
    j->rec.deadline_us = deadline_us;
    j->rec.laxity_us = laxity_us;
    j->rec.may_promote = may_promote;
    model_job_changed(m, j);
    if (j->due && !j->due->reported)
        j->due->open = false;
    if (j->due)
        j->due->notify_at = 0;
    return 0;
}

/* Whether the job did nothing for a while although it could have. */
static bool deadlines_quiet(const struct model *m, uint32_t job)
{
    bool any = false, runnable;
    for (unsigned g = 0; g < m->ngpus; g++) {
        if (!sched_member_state(m->sched, m->jobs[job].unit, g, &runnable))
            continue;
        if (m->jobs[job].on[g].quiet_ns < QUIET_NS)
            return false;
        any = true;
    }
    return any;
}

static uint64_t seen_working(const struct model *m, const struct job *j)
{
    uint64_t ns = 0;
    for (unsigned g = 0; g < m->ngpus; g++)
        ns = max_u64(ns, j->on[g].bursts ? max_u64(j->on[g].busy_ns, 1) : j->on[g].busy_ns);
    return ns;
}

void deadlines_observe(struct model *m)
{
    for_each_job (m, j) {
        if (!j->due)
            continue;
        uint64_t had = seen_working(m, j);
        j->gpu_ns += had;
        if (is_latency(j))
            deadlines_count(m, j);
        else if (m->now >= j->due->learn_at)
            deadlines_learn(j);
        if (is_latency(j) || j->due->reported || !j->rec.deadline_us)
            continue;
        if (!j->due->open && had)
            deadlines_begin(j, m->now - SEEN_NS + j->rec.deadline_us * NSEC_PER_USEC, 0, had);
        else if (j->due->open && !had && deadlines_quiet(m, model_job_slot(m, j)))
            deadlines_end(j, m->now < j->due->deadline_ns + END_NS,
                          0); /* late, it may be several */
        else
            continue;
        j->due->notify_at = 0;
    }
}

/* On which GPUs a job is that reports: bit map. */
static uint32_t reports_on(const struct model *m, const struct job *j)
{
    bool runnable;
    uint32_t gpus = 0;
    if (!is_latency(j) || !j->due || !j->due->reported || !sched_orders(m->sched))
        return 0;
    for (unsigned g = 0; g < m->ngpus; g++)
        gpus |= (uint32_t)sched_member_state(m->sched, j->unit, g, &runnable) << g;
    return gpus;
}

/* Which latency jobs have peers that report as well. */
static void deadlines_peers(struct model *m)
{
    const uint64_t slice_ns = sched_current_params(m->sched)->timeslice_latency_us * NSEC_PER_USEC;
    uint32_t one = 0, two = 0, fast = 0;
    for_each_job (m, j) {
        uint32_t gpus = reports_on(m, j);
        two |= one & gpus;
        one |= gpus;
        if (gpus && deadlines_left(j, j->due) != TIME_NEVER && deadlines_left(j, j->due) > slice_ns)
            fast |= gpus;
    }
    for_each_job (m, j) {
        if (!j->due)
            continue;
        uint32_t gpus = one ? reports_on(m, j) : 0;
        if ((gpus & two) && !j->due->ordered) {
            j->due->settles = true;
            j->due->learn_at = m->now + LAST_NS;
        }
        if (!(gpus & two) != !j->due->ordered)
            j->due->notify_at = 0;
        j->due->ordered = gpus & two;
        j->due->fast = gpus & two & fast;
    }
}

uint64_t deadlines_due(struct model *m)
{
    uint64_t next = TIME_NEVER;
    deadlines_peers(m);
    for_each_job (m, j) {
        if (j->rec.deadline_us)
            due_of(j); /* of an earlier daemon, or by a rule */
        if (!j->due)
            continue;
        if (j->due->reported && m->now > j->due->reported_ns + SILENT_NS) {
            j->due->reported = j->due->open = false;
            j->due->notify_at = 0;
        }
        if (m->now >= j->due->notify_at || j->due->united != j->united)
            deadlines_notify(m, model_job_slot(m, j));
        next = min_u64(next, j->due->notify_at);
    }
    return next;
}

bool deadlines_wanted(const struct model *m)
{
    for_each_job (m, j) {
        if (j->due && (is_latency(j) ? j->due->ordered : j->rec.deadline_us || j->due->reported))
            return true;
    }
    return false;
}

bool deadlines_open(const struct model *m, uint32_t job, int64_t *in_ns, uint64_t *needs_ns)
{
    const struct job_due *d = m->jobs[job].due;
    if (!d || !d->open)
        return false;
    *in_ns = (int64_t)(d->deadline_ns - m->now);
    *needs_ns = deadlines_left(&m->jobs[job], d);
    return true;
}
