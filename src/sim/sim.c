/* See sim.h. */
#include "sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 65536U
#define LOOK_NS     100000000U
#define QUEUED      2U /* kernels a saturating job keeps in the queue */

enum call { CALL_SUSPEND, CALL_TIMESLICE, CALL_RESUME };

struct state {
    bool present, paused, suspended;
    uint32_t group, timeslice_us;
    uint64_t due_ns, issued_ns, bursts, seen_ns; /* bursts, seen_ns: told to the scheduler so far */
    uint64_t busy_at_issue;
    bool waits; /* a request is on its way */
    uint64_t busy_at_settle, busy_at_pause;
    double *samples;
};

struct sim {
    const struct sim_scenario *s;
    struct sim_result *out;
    struct softgpu *e;
    struct sched *c;
    struct state st[SIM_JOBS_MAX];
    uint32_t n;
    uint64_t now, wake, call_at; /* call_at: the daemon is in a call until then */
    uint64_t look_at;            /* when it asks next who got the GPU */
    struct {
        enum call call;
        uint32_t job, us;
    } calls[3 * SIM_JOBS_MAX];
    uint32_t ncalls, next_call;
    bool dirty;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t busy(const struct sim *m, uint32_t j)
{
    struct softgpu_group_info info = {0};
    softgpu_group_info(m->e, m->st[j].group, &info);
    return info.busy_ns;
}

static void event(struct sim *m, struct sched_event ev)
{
    if (m->s->policy)
        sched_event(m->c, &ev);
    m->dirty = true;
}

static void submit(struct sim *m, uint32_t j)
{
    struct softgpu_kernel k = {
        .duration_ns = m->s->jobs[j].kernel_ns, .sm_fraction = 1, .cookie = j};
    softgpu_submit(m->e, m->st[j].group, &k, m->now);
}

static void tell_deadline(struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    const struct state *st = &m->st[j];
    uint64_t used = busy(m, j) - st->busy_at_issue;
    if (job->due_ns)
        event(m, (struct sched_event){.type = EV_DEADLINE,
                                      .job = j,
                                      .deadline_ns =
                                          st->waits ? st->issued_ns + job->due_ns : TIME_NEVER,
                                      .left_ns = used < job->kernel_ns ? job->kernel_ns - used : 0,
                                      .may_promote = job->may_promote,
                                      .on = true});
}

/* Jobs that come, leave, pause, and requests that are due. Returns when that happens next. */
static uint64_t lives(struct sim *m)
{
    uint64_t next = SOFTGPU_NEVER;
    for (uint32_t j = 0; j < m->n; j++) {
        const struct sim_job *job = &m->s->jobs[j];
        struct state *st = &m->st[j];
        if (st->present && job->leave_ns && m->now >= job->leave_ns) {
            event(m, (struct sched_event){.type = EV_JOB_REMOVE, .job = j});
            softgpu_group_remove(m->e, st->group, m->now);
            st->present = false;
        }
        if (!st->present)
            continue;
        bool pause = job->pause_ns && m->now >= job->pause_ns && m->now < job->resume_ns;
        if (pause != st->paused) {
            st->paused = pause;
            event(m, (struct sched_event){.type = EV_JOB_PAUSE, .job = j, .on = pause});
        }
        while (job->period_ns && !st->waits && m->now >= st->due_ns) {
            st->waits = !job->open_loop;
            st->issued_ns = m->now;
            st->due_ns += job->period_ns * (job->slow_ns && m->now >= job->slow_ns ? 100 : 1);
            st->busy_at_issue = busy(m, j);
            submit(m, j);
            tell_deadline(m, j);
        }
        uint64_t at[] = {job->leave_ns, job->pause_ns, job->resume_ns,
                         job->period_ns && !st->waits ? st->due_ns : 0};
        for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
            next = at[i] > m->now && at[i] < next ? at[i] : next;
    }
    return next;
}

static void completions(struct sim *m)
{
    struct softgpu_completion done;
    while (softgpu_pop_completion(m->e, &done)) {
        uint32_t j = (uint32_t)done.cookie;
        struct state *st = &m->st[j];
        if (!m->s->jobs[j].period_ns) {
            submit(m, j);
            continue;
        }
        st->waits = false;
        tell_deadline(m, j);
        uint64_t due_ns = m->s->jobs[j].due_ns;
        m->out->job[j].late +=
            done.submit_ns >= m->s->settle_ns && due_ns && done.end_ns - done.submit_ns > due_ns;
        if (done.submit_ns >= m->s->settle_ns && m->out->job[j].requests < SAMPLES_MAX)
            st->samples[m->out->job[j].requests++] = (double)(done.end_ns - done.submit_ns) / 1e3;
    }
}

/* What the daemon tells the scheduler ten times a second, from the driver's activity(). */
static void look(struct sim *m)
{
    struct sched_event ev = {.type = EV_ACTIVITY, .window_ns = LOOK_NS};
    uint64_t upper = 0, lower = 0;
    for (uint32_t j = 0; j < m->n; j++) {
        struct state *st = &m->st[j];
        struct softgpu_group_info info;
        if (!st->present || softgpu_group_info(m->e, st->group, &info) < 0)
            continue;
        bool latency = m->s->jobs[j].class == CLASS_LATENCY;
        *(latency ? &upper : &lower) += info.bursts - st->bursts;
        ev.busy_ns += latency ? info.busy_ns - st->seen_ns : 0;
        st->seen_ns = info.busy_ns;
        st->bursts = info.bursts;
        if (!m->s->blind)
            tell_deadline(m, j);
    }
    m->look_at = m->now + LOOK_NS;
    ev.busy_ns = ev.busy_ns < LOOK_NS ? ev.busy_ns : LOOK_NS;
    ev.returns = (uint32_t)(upper < lower ? upper : lower);
    if (!m->s->blind)
        event(m, ev);
}

static void add_call(struct sim *m, enum call call, uint32_t job, uint32_t us)
{
    m->calls[m->ncalls].call = call;
    m->calls[m->ncalls].job = job;
    m->calls[m->ncalls++].us = us;
}

static void decide(struct sim *m)
{
    struct sched_plan plan;
    m->dirty = false;
    m->wake = TIME_NEVER;
    if (!m->s->policy)
        return;
    sched_decide(m->c, m->now, &plan);
    m->wake = plan.wake_ns;
    m->ncalls = m->next_call = 0;
    for (int pass = CALL_SUSPEND; pass <= CALL_RESUME; pass++) {
        for (size_t i = 0; i < plan.n; i++) {
            uint32_t j = plan.settings[i].group, us = plan.settings[i].timeslice_us;
            struct state *st = &m->st[j];
            bool runs = plan.settings[i].runnable;
            if (pass == CALL_TIMESLICE && us != st->timeslice_us) {
                add_call(m, CALL_TIMESLICE, j, us);
                st->timeslice_us = us;
            } else if (pass == (runs ? CALL_RESUME : CALL_SUSPEND) && st->suspended == runs) {
                add_call(m, runs ? CALL_RESUME : CALL_SUSPEND, j, 0);
                st->suspended = !runs;
            }
        }
    }
    m->call_at = m->now;
}

static void make_call(struct sim *m, const struct softgpu_params *p)
{
    uint32_t j = m->calls[m->next_call].job, g = m->st[j].group;
    uint32_t us = m->calls[m->next_call].us;
    enum call call = m->calls[m->next_call++].call;
    if (!m->st[j].present)
        return;
    m->out->calls++;
    if (call == CALL_TIMESLICE)
        softgpu_set_timeslice(m->e, g, us ? us : p->timeslice_us, m->now, &m->call_at);
    else if (call == CALL_SUSPEND)
        softgpu_suspend(m->e, g, m->now, &m->call_at);
    else
        softgpu_resume(m->e, g, m->now, &m->call_at);
}

static void begin(struct sim *m)
{
    for (uint32_t j = 0; j < m->n; j++) {
        const struct sim_job *job = &m->s->jobs[j];
        softgpu_group_add(m->e, 0, &m->st[j].group);
        m->st[j].present = true;
        event(m, (struct sched_event){.type = EV_JOB_ADD,
                                      .job = j,
                                      .class = job->class,
                                      .weight = job->weight ? job->weight : WEIGHT_DEFAULT,
                                      .budget_us = job->budget_us});
        event(m,
              (struct sched_event){.type = EV_GROUP_ADD, .job = j, .group = j, .computes = true});
        for (uint32_t k = 0; !job->period_ns && k < QUEUED; k++)
            submit(m, j);
    }
}

static void account(struct sim *m, uint64_t from, uint64_t to)
{
    for (uint32_t j = 0; j < m->n; j++) {
        const struct sim_job *job = &m->s->jobs[j];
        struct state *st = &m->st[j];
        if (!st->present)
            continue;
        if (from < m->s->settle_ns && to >= m->s->settle_ns)
            st->busy_at_settle = busy(m, j);
        /* A pause counts from 1 ms on: that is what the calls may take. */
        uint64_t paused = job->pause_ns + 1000000;
        if (job->pause_ns && from < paused && to >= paused)
            st->busy_at_pause = busy(m, j);
        if (job->pause_ns && from < job->resume_ns && to >= job->resume_ns)
            m->out->job[j].paused_share =
                (double)(busy(m, j) - st->busy_at_pause) / (double)(job->resume_ns - paused);
        uint64_t end = job->leave_ns ? job->leave_ns : m->s->duration_ns;
        if (from < end && to >= end)
            m->out->job[j].share =
                (double)(busy(m, j) - st->busy_at_settle) / (double)(end - m->s->settle_ns);
    }
}

static void run(struct sim *m, const struct softgpu_params *p)
{
    begin(m);
    while (m->now < m->s->duration_ns) {
        uint64_t next = lives(m);
        bool calling = m->next_call < m->ncalls;
        if (calling && m->now >= m->call_at) {
            make_call(m, p);
            continue;
        }
        if (m->now >= m->look_at)
            look(m);
        if (!calling && m->now >= m->call_at && (m->dirty || m->now >= m->wake)) {
            decide(m);
            continue;
        }
        uint64_t at[] = {softgpu_next_event_ns(m->e), m->now < m->call_at ? m->call_at : m->wake,
                         m->look_at, m->s->settle_ns, m->s->duration_ns};
        for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
            next = at[i] > m->now && at[i] < next ? at[i] : next;
        for (uint32_t j = 0; j < m->n; j++) {
            uint64_t paused = m->s->jobs[j].pause_ns ? m->s->jobs[j].pause_ns + 1000000 : 0;
            next = paused > m->now && paused < next ? paused : next;
        }
        softgpu_advance(m->e, next);
        account(m, m->now, next);
        m->now = next;
        completions(m);
    }
}

int sim_run(const struct softgpu_params *engine, const struct sim_scenario *s,
            struct sim_result *out)
{
    struct sim *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    memset(out, 0, sizeof(*out));
    m->s = s;
    m->out = out;
    m->wake = TIME_NEVER;
    while (m->n < SIM_JOBS_MAX && s->jobs[m->n].kernel_ns)
        m->n++;
    double *samples = calloc((size_t)SIM_JOBS_MAX * SAMPLES_MAX, sizeof(*samples));
    struct sched_params params;
    params_default(&params);
    params.floor = s->floor;
    int r = m->n ? 0 : -EINVAL;
    if (r == 0)
        r = samples ? softgpu_new(engine, SIM_JOBS_MAX, SIM_JOBS_MAX * 64, &m->e) : -ENOMEM;
    if (r == 0)
        r = sched_new(&(struct sched_limits){1, SIM_JOBS_MAX, SIM_JOBS_MAX}, &params, &m->c);
    if (r == 0 && s->policy)
        r = sched_set_policy(m->c, s->policy);
    if (r == 0) {
        for (uint32_t j = 0; j < m->n; j++)
            m->st[j].samples = samples + (size_t)j * SAMPLES_MAX;
        run(m, engine);
    }
    for (uint32_t j = 0; r == 0 && j < m->n; j++) {
        uint32_t n = out->job[j].requests;
        out->job[j].timeslice_us = m->st[j].timeslice_us;
        if (!n)
            continue;
        qsort(m->st[j].samples, n, sizeof(double), compare);
        out->job[j].p50_us = m->st[j].samples[(n * 50 + 99) / 100 - 1];
        out->job[j].max_us = m->st[j].samples[n - 1];
        out->job[j].p99_us = m->st[j].samples[(n * 99 + 99) / 100 - 1];
    }
    softgpu_free(m->e);
    sched_free(m->c);
    free(samples);
    free(m);
    return r;
}
