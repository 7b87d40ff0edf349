/* See sim.h. A job has a rank on each of its GPUs; the scheduler's group of a rank is its number.
 */
#include "softgpu/sim/sim_impl.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "softgpu/engine.h"

/* To all deciders. */
static void event(struct sim *m, struct sched_event ev)
{
    for (uint32_t d = 0; d < m->ndeciders; d++) {
        if (m->s->policy)
            sched_event(m->deciders[d].c, &ev);
        m->deciders[d].dirty = true;
    }
}

/* To the one that decides about this GPU. */
static void event_on(struct sim *m, uint32_t g, struct sched_event ev)
{
    struct decider *d = &m->deciders[m->s->apart ? g : 0];
    ev.device = m->s->apart ? 0 : g;
    if (m->s->policy)
        sched_event(d->c, &ev);
    d->dirty = true;
}

/* The next kernel of a rank; one that meets its peers after each kernel alternates. */
static void submit(struct sim *m, uint32_t j, uint32_t g)
{
    const struct sim_job *job = &m->s->jobs[j];
    struct rank *r = rank_of(m, j, g);
    uint64_t i = r->submitted++;
    bool sync = job->sync_ns && i % 2;
    struct softgpu_kernel k = {.duration_ns = sync ? job->sync_ns : job->kernel_ns,
                               .sm_fraction = 1,
                               .cookie = j * SIM_GPUS_MAX + g,
                               .ranks = sync ? (uint32_t)__builtin_popcount(sim_gpus_of(m, j)) : 0,
                               .collective = (uint64_t)(j + 1) << 40 | i};
    r->queued++;
    softgpu_submit(m->f.engines[gpu_of(m, j, g)], r->group, &k, m->now);
}

static bool works(const struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    return !job->period_ns && !job->step_kernels &&
           !(job->idle_ns && m->now >= job->idle_ns && m->now < job->busy_ns);
}

static void keep_busy(struct sim *m, uint32_t j)
{
    uint64_t most = 0;
    for_each_rank_of (m, j, g)
        most = max_u64(most, rank_of(m, j, g)->submitted);
    most += most % 2;
    for_each_rank_of (m, j, g) {
        struct rank *r = rank_of(m, j, g);
        /* All ranks stop after the same kernel, or some would wait for ever. */
        while (r->queued < QUEUED && (works(m, j) || r->submitted < most))
            submit(m, j, g);
    }
}

static void tell_deadline(struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    struct state *st = &m->st[j];
    uint64_t used = job->class == CLASS_LATENCY ? 0 : sim_busy(m, j) - st->busy_at_issue;
    uint64_t issued = st->open_ns[st->first_open % OPEN_MAX];
    st->news = false;
    if (job->due_ns)
        event(m, (struct sched_event){.type = EV_DEADLINE,
                                      .job = j,
                                      .deadline_ns = st->nopen ? issued + job->due_ns : TIME_NEVER,
                                      .left_ns = used < job->kernel_ns ? job->kernel_ns - used : 0,
                                      .may_promote = job->may_promote,
                                      .on = true});
}

static void sim_changed(struct sim *m, uint32_t j)
{
    if (m->s->report_ns)
        m->st[j].news = true;
    else
        tell_deadline(m, j);
}

/* What has changed since the last time. */
static void report(struct sim *m)
{
    for (uint32_t j = 0; j < m->n; j++) {
        if (m->st[j].present && m->st[j].news)
            tell_deadline(m, j);
    }
    m->report_at = m->now + m->s->report_ns;
}

/* The time to the next request of an open loop. */
static uint64_t sim_gap(const struct sim_job *job, struct state *st)
{
    bool regular = job->period_ns && !job->seed;
    return regular ? job->period_ns : sim_random_gap(st, job->period_ns + job->request_ns);
}

/* What this work takes a job's host now. */
static uint64_t host_time(struct sim *m, uint32_t j, uint64_t ns)
{
    struct state *st = &m->st[j];
    if (m->s->jobs[j].wander <= 0)
        return ns;
    if (m->now >= st->host_until_ns) {
        st->host_until_ns = m->now + sim_random_gap(st, WANDER_NS);
        st->host_takes = 1 + m->s->jobs[j].wander * (2 * sim_random(st) - 1);
    }
    return (uint64_t)(st->host_takes * (double)ns);
}

static void sim_issue(struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    struct state *st = &m->st[j];
    st->may_wait_us = st->nopen ? st->may_wait_us : 0;
    sim_note_wait(m, j);
    st->open_ns[(st->first_open + st->nopen++) % OPEN_MAX] = m->now;
    st->waits = !job->open_loop || st->nopen == OPEN_MAX;
    st->due_ns += sim_gap(job, st) * (job->slow_ns && m->now >= job->slow_ns ? 100 : 1);
    st->busy_at_issue = sim_busy(m, j);
    for_each_rank_of (m, j, g)
        submit(m, j, g);
    sim_changed(m, j);
}

static void come(struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    m->st[j].present = true;
    m->st[j].random = job->seed;
    event(m, (struct sched_event){.type = EV_JOB_ADD,
                                  .job = j,
                                  .account = job->account,
                                  .class = job->class,
                                  .weight = job->weight ? job->weight : WEIGHT_DEFAULT,
                                  .budget_us = job->budget_us,
                                  .min_speed = job->min_speed,
                                  .gpu_min = job->gpu_min,
                                  .gpu_max = job->gpu_max});
    for_each_gpu_of (m, j, g) {
        struct rank *r = rank_of(m, j, g);
        softgpu_group_add(m->f.engines[gpu_of(m, j, g)], m->now, &r->group);
        softgpu_tag(m->f.engines[gpu_of(m, j, g)], r->group, j * SIM_GPUS_MAX + g + 1);
        r->present = true;
        r->step_ns = m->now;
        event_on(m, gpu_of(m, j, g),
                 (struct sched_event){.type = EV_GROUP_ADD,
                                      .job = j,
                                      .group = j * SIM_GPUS_MAX + g,
                                      .process = j * SIM_GPUS_MAX + g,
                                      .computes = true});
    }
}

static void sim_leave(struct sim *m, uint32_t j)
{
    event(m, (struct sched_event){.type = EV_JOB_REMOVE, .job = j});
    for_each_gpu_of (m, j, g) {
        softgpu_group_remove(m->f.engines[gpu_of(m, j, g)], rank_of(m, j, g)->group, m->now);
        rank_of(m, j, g)->present = false;
    }
    m->st[j].present = false;
    m->st[j].gone = true;
}

/* A paused program's host goes on until it waits for the GPU. */
static bool pause_over(const struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    return job->idle_ns && m->now >= job->idle_ns && m->now < job->busy_ns;
}

static bool is_changed(const struct sim *m, const struct sim_job *job)
{
    return job->change_ns && m->now >= job->change_ns;
}

static uint32_t step_kernels(const struct sim *m, const struct sim_job *job)
{
    return is_changed(m, job) ? job->then_kernels : job->step_kernels;
}

/* What the host of a rank with steps does until now. Returns when it does the next thing;
 * SOFTGPU_NEVER: it waits for the GPU or for its peers. */
static uint64_t host(struct sim *m, uint32_t j, uint32_t g)
{
    const struct sim_job *job = &m->s->jobs[j];
    struct rank *r = rank_of(m, j, g);
    r->kernels = r->launched ? r->kernels : step_kernels(m, job);
    for (; job->request_ns && m->now >= m->st[j].due_ns; m->st[j].due_ns += sim_gap(job, &m->st[j]))
        r->last_step = r->steps + job->request_steps;
    if (job->request_ns && !r->launched && r->steps >= r->last_step)
        return m->st[j].due_ns;
    while (r->launched < r->kernels && m->now >= r->step_ns) {
        r->begun_ns = r->launched++ ? r->begun_ns : m->now;
        r->step_ns += host_time(m, j, job->launch_ns);
        submit(m, j, g);
    }
    return r->launched < r->kernels ? r->step_ns : SOFTGPU_NEVER;
}

static void next_step(struct sim *m, uint32_t j, struct rank *r)
{
    const struct sim_job *job = &m->s->jobs[j];
    r->launched = 0;
    r->step_ns = m->now + host_time(m, j, is_changed(m, job) ? job->then_host_ns : job->host_ns);
}

/* The last kernel of a step has ended. */
static void step_done(struct sim *m, uint32_t j, struct rank *r)
{
    const struct sim_job *job = &m->s->jobs[j];
    struct state *st = &m->st[j];
    r->steps++;
    if (r->begun_ns >= m->s->settle_ns && m->out->job[j].requests < SAMPLES_MAX)
        st->samples[m->out->job[j].requests++] = (double)(m->now - r->begun_ns) / 1e3;
    if (!job->lockstep) {
        next_step(m, j, r);
        return;
    }
    if (++st->meets < (uint64_t)__builtin_popcount(sim_gpus_of(m, j)))
        return;
    st->meets = 0;
    for_each_rank_of (m, j, g)
        next_step(m, j, rank_of(m, j, g));
}

/* Jobs that come, leave, pause, and requests that are due. Returns when that happens next. */
static uint64_t lives(struct sim *m)
{
    uint64_t next = SOFTGPU_NEVER;
    for (uint32_t j = 0; j < m->n; j++) {
        const struct sim_job *job = &m->s->jobs[j];
        struct state *st = &m->st[j];
        if (!st->present && !st->gone && m->now >= job->come_ns)
            come(m, j);
        if (st->present && job->leave_ns && m->now >= job->leave_ns)
            sim_leave(m, j);
        if (!st->gone && !st->present)
            next = job->come_ns < next ? job->come_ns : next;
        if (!st->present)
            continue;
        bool pause = job->pause_ns && m->now >= job->pause_ns && m->now < job->resume_ns;
        if (pause != st->paused) {
            st->paused = pause;
            event(m, (struct sched_event){.type = EV_JOB_PAUSE, .job = j, .on = pause});
        }
        if (!job->period_ns && !job->step_kernels)
            keep_busy(m, j);
        for_each_rank_of (m, j, g) {
            if (job->step_kernels && !pause_over(m, j))
                next = min_u64(next, host(m, j, g));
        }
        while (job->period_ns && !st->waits && m->now >= st->due_ns)
            sim_issue(m, j);
        uint64_t at[] = {job->leave_ns,  job->pause_ns,
                         job->resume_ns, job->idle_ns,
                         job->busy_ns,   job->period_ns && !st->waits ? st->due_ns : 0};
        for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
            next = at[i] > m->now && at[i] < next ? at[i] : next;
    }
    return next;
}

static void completed(struct sim *m, const struct softgpu_completion *done)
{
    uint32_t j = (uint32_t)done->cookie / SIM_GPUS_MAX, g = (uint32_t)done->cookie % SIM_GPUS_MAX;
    const struct sim_job *job = &m->s->jobs[j];
    struct state *st = &m->st[j];
    struct rank *r = rank_of(m, j, g);
    uint64_t i = r->submitted - r->queued--;
    st->useful_ns += job->sync_ns && i % 2 ? job->sync_ns : job->kernel_ns;
    if (job->step_kernels) {
        if (r->launched == r->kernels && !r->queued)
            step_done(m, j, r);
        return;
    }
    if (!job->period_ns) {
        keep_busy(m, j);
        return;
    }
    if (g != (uint32_t)__builtin_ctz(sim_gpus_of(m, j)))
        return;
    st->waits = false;
    st->first_open++;
    st->nopen--;
    sim_changed(m, j);
    uint64_t took = done->end_ns - done->submit_ns;
    if (done->submit_ns < m->s->settle_ns)
        return;
    m->out->job[j].late += job->due_ns && took > job->due_ns;
    double beyond_us = ((double)took - (double)job->kernel_ns) / 1e3 - (double)st->may_wait_us;
    if (!job->open_loop && beyond_us > m->out->job[j].beyond_us)
        m->out->job[j].beyond_us = beyond_us;
    if (m->out->job[j].requests < SAMPLES_MAX)
        st->samples[m->out->job[j].requests++] = (double)took / 1e3;
}

static void completions(struct sim *m)
{
    struct softgpu_completion done;
    for (uint32_t g = 0; g < m->ngpus; g++) {
        while (softgpu_pop_completion(m->f.engines[g], &done))
            completed(m, &done);
    }
}

/* Whether a job works, as the daemon finds out: it does if it had the engine, and does not if it
 * could have and had not, for a while. */
static void tell_demand(struct sim *m, uint32_t j, uint32_t g, uint64_t busy_ns)
{
    struct rank *r = rank_of(m, j, g);
    bool could = r->ran && !r->suspended;
    r->quiet_ns = busy_ns ? 0 : could ? r->quiet_ns + LOOK_NS : r->quiet_ns;
    r->ran = !r->suspended;
    r->busy += 0.1 * ((double)busy_ns / LOOK_NS * (1 - m->s->unseen) - r->busy);
    event_on(m, gpu_of(m, j, g),
             (struct sched_event){
                 .type = EV_DEMAND, .job = j, .on = r->quiet_ns < QUIET_NS, .busy = r->busy});
}

/* What the daemon tells the scheduler ten times a second, from the driver's activity(). */
static void look_at_gpu(struct sim *m, uint32_t g)
{
    struct sched_event ev = {.type = EV_ACTIVITY, .window_ns = LOOK_NS};
    uint64_t upper = 0, lower = 0;
    for (uint32_t j = 0; j < m->n; j++) {
        bool latency = m->s->jobs[j].class == CLASS_LATENCY;
        uint64_t busy_ns = 0;
        uint32_t first = SLOT_NONE;
        for_each_gpu_of (m, j, k) {
            struct rank *r = rank_of(m, j, k);
            if (!r->present || gpu_of(m, j, k) != g)
                continue;
            struct softgpu_group_info info = sim_info(m, j, k);
            first = first == SLOT_NONE ? k : first;
            *(latency ? &upper : &lower) += info.bursts - r->bursts;
            busy_ns += info.busy_ns - r->seen_ns;
            r->seen_ns = info.busy_ns;
            r->bursts = info.bursts;
        }
        ev.busy_ns += latency ? busy_ns : 0;
        if (m->s->demand && first != SLOT_NONE)
            tell_demand(m, j, first, busy_ns);
    }
    ev.busy_ns = ev.busy_ns < LOOK_NS ? ev.busy_ns : LOOK_NS;
    ev.returns = (uint32_t)(upper < lower ? upper : lower);
    if (!m->s->blind)
        event_on(m, g, ev);
}

/* The record of switches since the last look. */
static void tell_switches(struct sim *m, uint32_t g)
{
    bool lost = m->switches_end[g] > m->switches_told[g] + SWITCHES;
    if (lost)
        m->switches_told[g] = m->switches_end[g] - SWITCHES;
    lost |= m->s->lossy;
    if (m->s->deaf_ns && m->now >= m->s->deaf_ns)
        return;
    for (; m->switches_told[g] < m->switches_end[g]; m->switches_told[g]++) {
        const struct softgpu_switch *w = &m->switches[g][m->switches_told[g] % SWITCHES];
        event_on(m, g,
                 (struct sched_event){.type = EV_SWITCH,
                                      .group = w->who ? w->who - 1 : SLOT_NONE,
                                      .at_ns = w->ns,
                                      .on = lost});
        lost = false;
    }
}

static void look(struct sim *m)
{
    for (uint32_t g = 0; g < m->ngpus; g++) {
        look_at_gpu(m, g);
        if (!m->s->blind)
            tell_switches(m, g);
    }
    for (uint32_t j = 0; j < m->n && !m->s->blind; j++) {
        if (m->st[j].present)
            tell_deadline(m, j);
    }
    m->look_at = m->now + LOOK_NS;
}

static void add_call(struct sim *m, enum softgpu_call call, uint32_t rank, uint32_t us)
{
    m->calls[m->ncalls].call = call;
    m->calls[m->ncalls].rank = rank;
    m->calls[m->ncalls++].us = us;
}

/* What the daemon makes of the calls of a plan. */
static void count_controls(struct sim *m)
{
    uint32_t lists[SOFTGPU_RESUME + 1][SIM_GPUS_MAX] = {0};
    if (m->now < m->s->settle_ns)
        return;
    m->out->decisions++;
    for (uint32_t i = 0; i < m->ncalls; i++) {
        uint32_t k = m->calls[i].rank, gpu = gpu_of(m, k / SIM_GPUS_MAX, k % SIM_GPUS_MAX);
        bool slice = m->calls[i].call == SOFTGPU_TIMESLICE;
        m->out->slices += slice;
        m->out->listed += !slice;
        m->out->lists += !slice && lists[m->calls[i].call][gpu]++ % LIST == 0;
    }
}

static void decide(struct sim *m, struct decider *d)
{
    struct sched_plan plan;
    d->dirty = false;
    d->wake = TIME_NEVER;
    if (!m->s->policy)
        return;
    sched_decide(d->c, m->now, &plan);
    assert(plan.wake_ns > m->now);
    d->wake = plan.wake_ns;
    m->ncalls = m->next_call = 0;
    for (int pass = SOFTGPU_SUSPEND; pass <= SOFTGPU_RESUME; pass++) {
        for (size_t i = 0; i < plan.n; i++) {
            uint32_t k = plan.settings[i].group, us = plan.settings[i].timeslice_us;
            struct rank *r = &m->ranks[k];
            bool runs = plan.settings[i].runnable;
            if (pass == SOFTGPU_SUSPEND) {
                r->ran_before = !r->suspended;
                r->before_us = r->timeslice_us ? r->timeslice_us : m->default_us;
            }
            if (pass == SOFTGPU_TIMESLICE && us != r->timeslice_us && (runs || !r->suspended)) {
                add_call(m, SOFTGPU_TIMESLICE, k, us);
                r->timeslice_us = us;
            } else if (pass == (runs ? SOFTGPU_RESUME : SOFTGPU_SUSPEND) && r->suspended == runs) {
                add_call(m, runs ? SOFTGPU_RESUME : SOFTGPU_SUSPEND, k, 0);
                r->suspended = !runs;
            }
        }
    }
    count_controls(m);
    m->call_at = m->now;
    m->applied = false;
    sim_note_waits(m);
}

static void make_call(struct sim *m, const struct softgpu_params *p)
{
    uint32_t k = m->calls[m->next_call].rank, us = m->calls[m->next_call].us;
    struct softgpu *e = m->f.engines[gpu_of(m, k / SIM_GPUS_MAX, k % SIM_GPUS_MAX)];
    struct rank *r = &m->ranks[k];
    struct state *st = &m->st[k / SIM_GPUS_MAX];
    enum softgpu_call call = m->calls[m->next_call++].call;
    if (!r->present)
        return;
    m->out->calls++;
    m->out->job[k / SIM_GPUS_MAX].slices +=
        call == SOFTGPU_TIMESLICE &&
        k % SIM_GPUS_MAX == (uint32_t)__builtin_ctz(sim_gpus_of(m, k / SIM_GPUS_MAX));
    softgpu_control(e, r->group, call, us ? us : p->timeslice_us, m->now, &m->call_at);
    if (call == SOFTGPU_SUSPEND)
        st->resumed_ns = 0;
    if (call != SOFTGPU_RESUME)
        return;
    st->resumed_ns = st->resumed_ns ? st->resumed_ns : m->call_at;
    uint64_t skew = m->call_at - st->resumed_ns;
    m->out->skew_ns = skew > m->out->skew_ns ? skew : m->out->skew_ns;
}

static struct decider *due(struct sim *m)
{
    for (uint32_t d = 0; d < m->ndeciders; d++) {
        if (m->deciders[d].dirty || m->now >= m->deciders[d].wake)
            return &m->deciders[d];
    }
    return NULL;
}

static uint64_t next_event(struct sim *m, uint64_t next)
{
    uint64_t at[] = {fabric_next_event_ns(&m->f),
                     m->call_at,
                     m->look_at,
                     m->s->settle_ns,
                     m->s->duration_ns,
                     m->s->report_ns ? m->report_at : SOFTGPU_NEVER};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        next = at[i] > m->now && at[i] < next ? at[i] : next;
    for (uint32_t d = 0; d < m->ndeciders && m->now >= m->call_at; d++) {
        uint64_t wake = m->deciders[d].wake;
        next = wake > m->now && wake < next ? wake : next;
    }
    for (uint32_t j = 0; j < m->n; j++) {
        uint64_t paused = m->s->jobs[j].pause_ns ? m->s->jobs[j].pause_ns + 1000000 : 0;
        next = paused > m->now && paused < next ? paused : next;
    }
    return next;
}

static void run(struct sim *m, const struct softgpu_params *p)
{
    while (m->now < m->s->duration_ns) {
        uint64_t next = lives(m);
        bool calling = m->next_call < m->ncalls;
        if (calling && m->now >= m->call_at) {
            make_call(m, p);
            continue;
        }
        if (m->now >= m->look_at)
            look(m);
        if (m->s->report_ns && m->now >= m->report_at)
            report(m);
        struct decider *d = !calling && m->now >= m->call_at ? due(m) : NULL;
        if (d) {
            decide(m, d);
            continue;
        }
        if (!calling && m->now >= m->call_at && !m->applied)
            sim_applied(m);
        next = next_event(m, next);
        sim_count_waste(m, next);
        fabric_advance(&m->f, next);
        sim_sample(m, m->now, next);
        m->now = next;
        completions(m);
    }
}

static int sim_set_up(struct sim *m, const struct softgpu_params *engine)
{
    const struct sim_scenario *s = m->s;
    struct sched_params params;
    params_default(&params);
    params.floor = s->floor;
    while (m->n < SIM_JOBS_MAX && s->jobs[m->n].kernel_ns)
        m->n++;
    m->ngpus = s->gpus ? s->gpus : 1;
    m->switch_us = (engine->switch_ns + engine->save_ns + engine->restore_ns) / 1000 + 1;
    m->default_us = engine->timeslice_us;
    m->ndeciders = s->apart ? m->ngpus : 1;
    if (!m->n || m->ngpus > SIM_GPUS_MAX)
        return -EINVAL;
    int r = 0;
    for (uint32_t j = 0; r == 0 && j < m->n; j++) {
        if ((s->jobs[j].period_ns || s->jobs[j].step_kernels) &&
            !(m->st[j].samples = calloc(SAMPLES_MAX, sizeof(double))))
            r = -ENOMEM;
    }
    for (; r == 0 && m->f.n < m->ngpus; m->f.n += r == 0)
        r = softgpu_new(engine, RANKS, m->n * 512, &m->f.engines[m->f.n]);
    for (uint32_t g = 0; r == 0 && g < m->ngpus; g++)
        softgpu_record(m->f.engines[g], m->switches[g], SWITCHES, &m->switches_end[g]);
    for (uint32_t d = 0; r == 0 && d < m->ndeciders; d++) {
        m->deciders[d].wake = TIME_NEVER;
        struct sched_limits limits = {m->ngpus / m->ndeciders, SIM_JOBS_MAX, RANKS, SIM_ACCOUNTS};
        r = sched_new(&limits, &params, &m->deciders[d].c);
        if (r == 0 && s->policy)
            r = sched_set_policy(m->deciders[d].c, s->policy);
    }
    return r;
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
    int r = sim_set_up(m, engine);
    if (r == 0) {
        run(m, engine);
        sim_report(m);
    }
    for (uint32_t j = 0; j < m->n; j++)
        free(m->st[j].samples);
    for (uint32_t g = 0; g < m->f.n; g++)
        softgpu_free(m->f.engines[g]);
    for (uint32_t d = 0; d < SIM_GPUS_MAX; d++)
        sched_free(m->deciders[d].c);
    free(m);
    return r;
}
