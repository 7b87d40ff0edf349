/* What the simulator measures while time passes: see sim.h. Changes nothing of what happens. */
#include <stdlib.h>

#include "softgpu/sim/sim_impl.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct softgpu_group_info sim_info(struct sim *m, uint32_t j, uint32_t g)
{
    struct softgpu_group_info info = {0};
    softgpu_group_info(m->f.engines[gpu_of(m, j, g)], rank_of(m, j, g)->group, &info);
    return info;
}

uint64_t sim_busy(struct sim *m, uint32_t j)
{
    uint64_t ns = 0;
    for_each_gpu_of (m, j, g)
        ns += rank_of(m, j, g)->present ? sim_info(m, j, g).busy_ns : 0;
    return ns;
}

/* For how long a request of the job may wait for contexts of others that run, or did until now. */
void sim_note_wait(struct sim *m, uint32_t job)
{
    uint32_t g = (uint32_t)__builtin_ctz(sim_gpus_of(m, job));
    uint64_t us = m->switch_us;
    for (uint32_t j = 0; j < m->n; j++) {
        for_each_gpu_of (m, j, k) {
            const struct rank *r = rank_of(m, j, k);
            if (j == job || !r->present || gpu_of(m, j, k) != g || (r->suspended && !r->ran_before))
                continue;
            uint32_t slice_us = r->timeslice_us ? r->timeslice_us : m->default_us;
            us += m->switch_us + (slice_us > r->before_us ? slice_us : r->before_us);
        }
    }
    m->st[job].may_wait_us = max_u64(m->st[job].may_wait_us, us);
}

void sim_note_waits(struct sim *m)
{
    for (uint32_t j = 0; j < m->n; j++) {
        if (m->st[j].present && m->s->jobs[j].period_ns && m->st[j].nopen)
            sim_note_wait(m, j);
    }
}

/* The calls of the last plan are made. */
void sim_applied(struct sim *m)
{
    m->applied = true;
    for (uint32_t k = 0; k < m->n * SIM_GPUS_MAX; k++) {
        m->ranks[k].ran_before = false;
        m->ranks[k].before_us = 0;
    }
}

void sim_sample(struct sim *m, uint64_t from, uint64_t to)
{
    for (uint32_t j = 0; j < m->n; j++) {
        const struct sim_job *job = &m->s->jobs[j];
        struct state *st = &m->st[j];
        if (!st->present)
            continue;
        if (from < m->s->settle_ns && to >= m->s->settle_ns) {
            st->busy_at_settle = sim_busy(m, j);
            st->useful_at_settle = st->useful_ns;
        }
        /* A pause counts from 1 ms on: that is what the calls may take. */
        uint64_t paused = job->pause_ns + 1000000;
        if (job->pause_ns && from < paused && to >= paused)
            st->busy_at_pause = sim_busy(m, j);
        if (job->pause_ns && from < job->resume_ns && to >= job->resume_ns)
            m->out->job[j].paused_share =
                (double)(sim_busy(m, j) - st->busy_at_pause) / (double)(job->resume_ns - paused);
        uint64_t end = job->leave_ns ? job->leave_ns : m->s->duration_ns;
        if (from >= end || to < end)
            continue;
        double time = (double)(end - m->s->settle_ns) *
                      (job->ranks ? 1 : __builtin_popcount(sim_gpus_of(m, j)));
        m->out->job[j].share = (double)(sim_busy(m, j) - st->busy_at_settle) / time;
        m->out->job[j].done = (double)(st->useful_ns - st->useful_at_settle) / time;
        for_each_rank_of (m, j, g)
            m->out->gpu_busy[gpu_of(m, j, g)] +=
                m->out->job[j].share / (job->ranks ? job->ranks : 1);
    }
}

/* The ranks of a gang have to run at the same time. */
static bool may_work(struct sim *m, uint32_t j)
{
    for_each_rank_of (m, j, k) {
        if (softgpu_working(m->f.engines[gpu_of(m, j, k)]))
            return false;
    }
    return true;
}

static bool is_awaited(struct sim *m, uint32_t g)
{
    for (uint32_t j = 0; j < m->n; j++) {
        if (m->s->jobs[j].gpus && !may_work(m, j))
            continue;
        for_each_rank_of (m, j, k) {
            const struct rank *r = rank_of(m, j, k);
            if (gpu_of(m, j, k) == g && r->present && r->suspended && r->queued && !m->st[j].paused)
                return true;
        }
    }
    return false;
}

/* From now to `next` nothing begins or ends. */
void sim_count_waste(struct sim *m, uint64_t next)
{
    if (!m->applied || m->now < m->s->settle_ns)
        return;
    for (uint32_t g = 0; g < m->ngpus; g++) {
        if (!softgpu_working(m->f.engines[g]) && is_awaited(m, g))
            m->wasted_ns[g] += next - m->now;
    }
}

void sim_report(struct sim *m)
{
    for (uint32_t g = 0; g < m->ngpus; g++)
        m->out->gpu_wasted[g] =
            (double)m->wasted_ns[g] / (double)(m->s->duration_ns - m->s->settle_ns);
    for (uint32_t j = 0; j < m->n; j++) {
        uint32_t n = m->out->job[j].requests;
        double *samples = m->st[j].samples;
        const struct state *st = &m->st[j];
        for (uint64_t i = 0; i < st->nopen && m->s->jobs[j].due_ns; i++)
            m->out->job[j].late +=
                st->open_ns[(st->first_open + i) % OPEN_MAX] + m->s->jobs[j].due_ns < m->now;
        m->out->job[j].timeslice_us =
            rank_of(m, j, (uint32_t)__builtin_ctz(sim_gpus_of(m, j)))->timeslice_us;
        if (!n)
            continue;
        qsort(samples, n, sizeof(double), compare);
        m->out->job[j].p50_us = samples[(n * 50 + 99) / 100 - 1];
        m->out->job[j].max_us = samples[n - 1];
        m->out->job[j].p99_us = samples[(n * 99 + 99) / 100 - 1];
    }
}
