/* Deadlines of jobs for the scheduler (EV_DEADLINE). They come from what programs report of their
 * requests (api/hints.c), or else from the job's terms (`cede run --deadline`): then a request
 * begins when the job works after it did not, and has ended when the job could have worked for
 * QUIET_NS and did not. A program that works without a pause has one deadline.
 *
 * The need of a request is a high quantile of what earlier requests took (base/estimate.h), less
 * what it has had; or what the terms state (deadline less laxity). Reports are only checked for
 * their bounds here; the scheduler limits what a program can gain by them.
 *
 * For latency jobs only reports of programs count, and only where two of them report on one GPU
 * (plan/latency_order.h). Their requests are shorter than the period of activity(), so their need
 * is learned as a mean, and the scheduler estimates what a request has had. */
#include "core/observe/deadlines.h"

#include <errno.h>
#include <stdlib.h>

#include "base/estimate.h"
#include "core/observe/demand.h"

#define QUANTILE  0.9
#define QUIET_NS  (90 * NSEC_PER_MSEC)            /* nearly one period of activity() */
#define SEEN_NS   (ACTIVITY_NS + ACTIVITY_LAG_NS) /* longest time until work is seen */
#define END_NS    (SEEN_NS + 2 * ACTIVITY_NS + ACTIVITY_LAG_NS) /* until an end is seen */
#define NOTIFY_NS (100 * NSEC_PER_MSEC)
#define SILENT_NS NSEC_PER_SEC /* without a report, before a program counts as gone */
#define FAR_NS    (3600 * NSEC_PER_SEC)
/* The need of a latency job is the mean of at least LEARN_NS and LEARN_N requests (at first
 * LEARN_1), because at both ends of that time one request more or less may be counted. */
#define LEARN_NS NSEC_PER_SEC
#define LEARN_N  8
#define LEARN_1  3
#define LAST_NS  (2 * SEEN_NS) /* until all work of earlier requests has been seen */

struct job_due {
    struct estimate need; /* GPU time of the requests so far */
    bool open;
    bool reported;                 /* its programs report; else the job's own deadline counts */
    bool program_root;             /* all these programs are root's */
    uint64_t reported_ns;          /* when they reported last */
    uint64_t ended;                /* their count of ended requests */
    uint64_t deadline_ns, said_ns; /* said_ns: the reported need; 0: none */
    int priority;
    uint64_t mark_ns;           /* the job's GPU time when the request began */
    uint64_t ended_n, learn_at; /* requests that ended, and when all their work has been seen */
    uint64_t notify_at;
    bool united;             /* job.united at the last notice */
    bool ordered;            /* a latency job, and not the only one that reports on a GPU */
    bool fast;               /* and on that GPU some requests are longer than a timeslice */
    bool settles;            /* the present count began before `ordered` and does not count */
    struct sched_event last; /* the last event of the scheduler */
};

static struct job_due *due_of(struct job *j)
{
    if (!j->due)
        j->due = calloc(1, sizeof(*j->due)); /* if memory lacks, nothing is due */
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
    /* A request that takes longer than earlier ones still needs something. */
    return max_u64(need > used ? need - used : 0, need / 8);
}

/* Jobs of a unit run together, so none can overtake another and no deadline counts. */
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
                             /* The right to set the job's deadline does not cover reports. */
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
        j->on[g].idle = ends; /* the scheduler assumes the same */
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

/* For latency jobs: the requests that ended took the GPU time that was seen meanwhile. */
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

/* n requests have ended since the first one began. */
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
    if (!d->reported) { /* an open deadline was only a guess */
        d->open = false;
        d->ended = t->ended;
    }
    d->reported = true;
    d->reported_ns = t->now_ns;
    d->program_root = t->root;
    d->priority = t->priority;
    /* A program that was restarted counts from 0 again, which is no end of a request. */
    uint64_t ended = t->ended > d->ended ? t->ended - d->ended : 0;
    bool due = t->deadline_ns && t->deadline_ns < t->now_ns + FAR_NS;
    if (ended || (d->open && !due))
        deadlines_end(j, ended, t->now_ns + SEEN_NS);
    if (due && !d->open)
        deadlines_begin(j, t->deadline_ns, t->need_ns, 0);
    else if (due)
        d->deadline_ns = t->deadline_ns;
    d->ended = t->ended;
    d->notify_at = 0; /* deadlines_due() notifies the scheduler */
    return is_latency(j) && d->fast ? ORDER_NS : REPORT_NS;
}

int deadlines_set(struct model *m, uint32_t job, const struct job_terms *terms)
{
    struct job *j = &m->jobs[job];
    if (j->rec.deadline_us == terms->deadline_us && j->rec.laxity_us == terms->laxity_us &&
        j->rec.may_promote == terms->may_promote)
        return 0;
    if (terms->deadline_us && !due_of(j))
        return -ENOMEM;
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
                          0); /* a late end may be that of several requests */
        else
            continue;
        j->due->notify_at = 0;
    }
}

/* The GPUs of a latency job whose programs report requests: bit map. */
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

/* Determines which latency jobs share a GPU with another one that reports. */
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
            due_of(j); /* terms from a rule or an earlier daemon did not call deadlines_set() */
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
