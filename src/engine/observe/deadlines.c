/* When the work of jobs is due, for the scheduler (EV_DEADLINE): from what programs tell of their
 * requests (hints.c), or for programs that tell nothing from what the job was given (`cede run
 * --deadline`): then a request begins when the job is seen working after it was not, and has ended
 * when it could have worked for QUIET_NS and did not. A program that never rests has one deadline.
 *
 * What a request still needs is what those before it took, at a high quantile (lib/estimate.h),
 * less what it has had; or what the job was said to need (deadline less laxity). Everything a
 * program tells is a number within bounds here; what it can gain by it is bounded in the scheduler.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/manager_impl.h"
#include "lib/estimate.h"

#define QUANTILE  0.9
#define QUIET_NS  (90 * NSEC_PER_MSEC)            /* all of a look, or of two that overlap it */
#define SEEN_NS   (ACTIVITY_NS + ACTIVITY_LAG_NS) /* work was seen at most so long after it began */
#define END_NS    (SEEN_NS + 2 * ACTIVITY_NS + ACTIVITY_LAG_NS) /* from the deadline as seen */
#define TELL_NS   (100 * NSEC_PER_MSEC)
#define SILENT_NS NSEC_PER_SEC /* after that a program that told of requests is gone */
#define FAR_NS    (3600 * NSEC_PER_SEC)

struct mjob_due {
    struct estimate need; /* GPU time of the requests so far */
    bool open;
    bool told;                     /* by its programs; else the job's own deadline counts */
    bool program_root;             /* all of these are root's */
    uint64_t told_ns;              /* when they spoke last */
    uint64_t ended;                /* requests, as they count */
    uint64_t deadline_ns, said_ns; /* said_ns: what it needs, if it was said; or 0 */
    int priority;
    uint64_t mark_ns;            /* the job's GPU time when it began */
    uint64_t ended_n, settle_at; /* of requests that ended: what they took is not all seen yet */
    uint64_t tell_at;
    struct sched_event last; /* told to the scheduler */
};

static struct mjob_due *due_of(struct mjob *j)
{
    if (!j->due)
        j->due = calloc(1, sizeof(*j->due)); /* without memory: nothing is due */
    return j->due;
}

void mgr_deadline_free(struct mjob *j)
{
    free(j->due);
    j->due = NULL;
}

static uint64_t left(const struct mjob *j, const struct mjob_due *d)
{
    uint64_t said = d->said_ns, used = j->gpu_ns - d->mark_ns;
    if (!said && j->j.laxity_us && j->j.deadline_us > j->j.laxity_us)
        said = (j->j.deadline_us - j->j.laxity_us) * NSEC_PER_USEC;
    uint64_t need = said ? said : estimate_get(&d->need, QUANTILE, TIME_NEVER);
    if (need == TIME_NEVER)
        return TIME_NEVER;
    /* One that takes longer than others is not done because they were. */
    return max_u64(need > used ? need - used : 0, need / 8);
}

static void tell(struct manager *m, uint32_t job)
{
    struct mjob *j = &m->jobs[job];
    struct mjob_due *d = j->due;
    struct sched_event ev = {.type = EV_DEADLINE,
                             .job = job,
                             .deadline_ns = d->open ? d->deadline_ns : TIME_NEVER,
                             .left_ns = d->open ? left(j, d) : 0,
                             .priority = d->open && d->told ? d->priority : 0,
                             /* Whoever set the job's did not set these. */
                             .may_rise = d->told ? d->program_root : j->j.may_rise,
                             .on = d->told || j->j.deadline_us};
    bool begins = ev.deadline_ns != TIME_NEVER && ev.deadline_ns != d->last.deadline_ns;
    bool same = d->last.type == EV_DEADLINE && ev.deadline_ns == d->last.deadline_ns &&
                ev.left_ns == d->last.left_ns && ev.may_rise == d->last.may_rise &&
                ev.on == d->last.on && ev.priority == d->last.priority;
    d->tell_at = d->open ? m->now + TELL_NS : TIME_NEVER;
    if (same)
        return;
    bool ends = ev.on && ev.deadline_ns == TIME_NEVER;
    for (unsigned g = 0; g < m->ngpus; g++) {
        if (m->gpus[g].caps & GPU_CAP_GATE || !(begins || ends))
            continue;
        j->on[g].idle = ends; /* as the scheduler takes it */
        j->on[g].quiet_ns = 0;
    }
    d->last = ev;
    mgr_sched(m, ev);
    mgr_all_dirty(m);
}

static void settle(struct mjob *j)
{
    struct mjob_due *d = j->due;
    uint64_t used = j->gpu_ns - d->mark_ns;
    if (d->ended_n && used)
        estimate_add(&d->need, used / d->ended_n);
    d->ended_n = 0;
}

static void begin(struct mjob *j, uint64_t deadline_ns, uint64_t said_ns, uint64_t had_ns)
{
    struct mjob_due *d = j->due;
    settle(j);
    d->open = true;
    d->deadline_ns = deadline_ns;
    d->said_ns = said_ns;
    d->mark_ns = j->gpu_ns - min_u64(j->gpu_ns, had_ns);
}

/* n of them, in the time since the first began. */
static void end(struct mjob *j, uint64_t n, uint64_t settle_at)
{
    struct mjob_due *d = j->due;
    d->ended_n = d->open ? n : 0;
    d->settle_at = settle_at;
    d->open = false;
}

void manager_told(struct manager *m, uint32_t job, const struct told *t)
{
    struct mjob *j = &m->jobs[job];
    struct mjob_due *d = j->j.class == CLASS_LATENCY ? NULL : due_of(j);
    if (!d) /* a latency job goes before the others anyway */
        return;
    if (!d->told) { /* whatever was open was a guess */
        d->open = false;
        d->ended = t->ended;
    }
    d->told = true;
    d->told_ns = t->now_ns;
    d->program_root = t->root;
    d->priority = t->priority;
    /* A program that begins anew counts from 0 again: that is no request. */
    uint64_t ended = t->ended > d->ended ? t->ended - d->ended : 0;
    bool due = t->deadline_ns && t->deadline_ns < t->now_ns + FAR_NS;
    if (ended || (d->open && !due))
        end(j, ended, t->now_ns + SEEN_NS);
    if (due && !d->open)
        begin(j, t->deadline_ns, t->need_ns, 0);
    else if (due)
        d->deadline_ns = t->deadline_ns;
    d->ended = t->ended;
    d->tell_at = 0; /* at the next turn */
}

int manager_set_deadline(struct manager *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                         bool may_rise)
{
    struct mjob *j = &m->jobs[job];
    if (deadline_us && !due_of(j))
        return -ENOMEM;
    j->j.deadline_us = deadline_us;
    j->j.laxity_us = laxity_us;
    j->j.may_rise = may_rise;
    journal_put_job(m->journal, job, &j->j);
    if (j->due && !j->due->told)
        j->due->open = false;
    if (j->due)
        j->due->tell_at = 0;
    return 0;
}

/* Whether the job did nothing for a while although it could have. */
static bool quiet(const struct manager *m, uint32_t job)
{
    bool any = false, runnable;
    uint32_t us;
    for (unsigned g = 0; g < m->ngpus; g++) {
        if (!sched_member_state(m->sched, job, g, &runnable, &us))
            continue;
        if (m->jobs[job].on[g].quiet_ns < QUIET_NS)
            return false;
        any = true;
    }
    return any;
}

static uint64_t seen_working(const struct manager *m, const struct mjob *j)
{
    uint64_t ns = 0;
    for (unsigned g = 0; g < m->ngpus; g++)
        ns = max_u64(ns, j->on[g].bursts ? max_u64(j->on[g].busy_ns, 1) : j->on[g].busy_ns);
    return ns;
}

void mgr_deadline_seen(struct manager *m)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        struct mjob *j = &m->jobs[i];
        if (!j->j.root.pid || !j->due)
            continue;
        uint64_t had = seen_working(m, j);
        j->gpu_ns += had;
        if (m->now >= j->due->settle_at)
            settle(j);
        if (j->due->told || !j->j.deadline_us)
            continue;
        if (!j->due->open && had)
            begin(j, m->now - SEEN_NS + j->j.deadline_us * NSEC_PER_USEC, 0, had);
        else if (j->due->open && !had && quiet(m, i))
            end(j, m->now < j->due->deadline_ns + END_NS, 0); /* late, it may be several */
        else
            continue;
        j->due->tell_at = 0;
    }
}

uint64_t mgr_deadline_due(struct manager *m)
{
    uint64_t next = TIME_NEVER;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        struct mjob *j = &m->jobs[i];
        if (!j->j.root.pid)
            continue;
        if (j->j.deadline_us && !due_of(j)) /* of an earlier daemon, or by a rule */
            continue;
        if (!j->due)
            continue;
        if (j->due->told && m->now > j->due->told_ns + SILENT_NS) {
            j->due->told = j->due->open = false;
            j->due->tell_at = 0;
        }
        if (m->now >= j->due->tell_at)
            tell(m, i);
        next = min_u64(next, j->due->tell_at);
    }
    return next;
}

bool mgr_deadline_wanted(const struct manager *m)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        const struct mjob *j = &m->jobs[i];
        if (j->j.root.pid && j->due && (j->j.deadline_us || j->due->told))
            return true;
    }
    return false;
}

void mgr_deadline_view(const struct manager *m, uint32_t job, struct job_view *out)
{
    const struct mjob_due *d = m->jobs[job].due;
    if (!d || !d->open)
        return;
    out->due = true;
    out->due_in_ns = (int64_t)(d->deadline_ns - m->now);
    out->due_needs_ns = left(&m->jobs[job], d);
    for (unsigned g = 0; g < m->ngpus; g++) {
        bool risen;
        out->due_first |= sched_member_hurries(m->sched, job, g, &risen);
        out->due_risen |= risen;
    }
}
