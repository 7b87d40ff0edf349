/* See programs.h. */
#include "programs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAD_COOKIE UINT64_MAX

static void must(int r)
{
    if (r < 0)
        abort();
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank. */
static double percentile(const double *sorted, size_t n, double p)
{
    size_t rank = (size_t)ceil(p / 100 * (double)n);
    return n == 0 ? 0 : sorted[rank > 0 ? rank - 1 : 0];
}

struct requests {
    const struct latency_program *prog;
    uint32_t group;
    uint64_t n, started; /* requests submitted; request whose lead kernel was submitted, + 1 */
    uint64_t next_ns;    /* SOFTGPU_NEVER: waits for a completion */
    double *latency_us;
    size_t measured;
};

/* The lead times go through the whole range in an order unrelated to anything else. */
static uint64_t lead_ns(const struct requests *q)
{
    uint64_t range = q->prog->lead_max_ns - q->prog->lead_min_ns;
    return q->prog->lead_min_ns + (range ? q->n * 7919 * 1000 % range : 0);
}

static void request(struct softgpu *e, struct requests *q)
{
    struct softgpu_kernel k = {.duration_ns = q->prog->kernel_ns, .sm_fraction = 1, .cookie = q->n};
    if (q->prog->lead_max_ns && q->started == q->n) {
        struct softgpu_kernel lead = {
            .duration_ns = 2000, .sm_fraction = 0.01f, .cookie = LEAD_COOKIE};
        must(softgpu_submit(e, q->group, &lead, q->next_ns));
        q->next_ns += lead_ns(q);
        q->started++;
        return;
    }
    must(softgpu_submit(e, q->group, &k, q->next_ns));
    q->n++;
    q->started = q->n;
    q->next_ns = SOFTGPU_NEVER;
}

static void submit_batch(struct softgpu *e, uint32_t group, const struct batch_program *b)
{
    struct softgpu_kernel k = {.duration_ns = b->kernel_ns, .sm_fraction = b->sm_fraction};
    must(softgpu_submit(e, group, &k, softgpu_now_ns(e)));
}

/* 0 of SOFTGPU_NONE. */
static double busy_ns(const struct softgpu *e, uint32_t group)
{
    struct softgpu_group_info info = {0};
    if (group != SOFTGPU_NONE)
        must(softgpu_group_info(e, group, &info));
    return (double)info.busy_ns;
}

void scenario_run(const struct softgpu_params *p, const struct scenario *s, struct outcome *out)
{
    struct softgpu *e;
    uint64_t done, t;
    uint32_t batch[2] = {SOFTGPU_NONE, SOFTGPU_NONE};
    struct requests q = {.prog = &s->latency, .next_ns = SOFTGPU_NEVER};
    must(softgpu_new(p, 4, 64, &e));

    for (int i = 0; i < 2; i++) {
        const struct batch_program *b = &s->batch[i];
        if (!b->kernel_ns)
            continue;
        must(softgpu_group_add(e, 0, &batch[i]));
        if (b->timeslice_us)
            must(softgpu_control(e, batch[i], SOFTGPU_TIMESLICE, b->timeslice_us, 0, &done));
        if (b->suspended)
            must(softgpu_control(e, batch[i], SOFTGPU_SUSPEND, 0, 0, &done));
        submit_batch(e, batch[i], b);
        submit_batch(e, batch[i], b);
    }
    must(softgpu_group_add(e, 0, &q.group));
    /* Measured from here on: the controls are done. */
    const uint64_t start = 1000000;
    softgpu_advance(e, start);
    if (s->latency.period_ns) {
        q.latency_us = calloc(s->duration_ns / s->latency.period_ns + 2, sizeof(double));
        q.next_ns = start;
        if (!q.latency_us)
            abort();
    }
    const double busy0[2] = {busy_ns(e, batch[0]), busy_ns(e, batch[1])};
    while ((t = softgpu_next_event_ns(e)) < start + s->duration_ns || q.next_ns < SOFTGPU_NEVER) {
        t = q.next_ns < t ? q.next_ns : t;
        if (t >= start + s->duration_ns)
            break;
        softgpu_advance(e, t);
        struct softgpu_completion c;
        while (softgpu_pop_completion(e, &c)) {
            if (c.group != q.group) {
                submit_batch(e, c.group, &s->batch[c.group == batch[0] ? 0 : 1]);
            } else if (c.cookie != LEAD_COOKIE) {
                q.latency_us[q.measured++] = (double)(c.end_ns - c.submit_ns) / 1000;
                uint64_t due = start + q.n * s->latency.period_ns;
                q.next_ns = due - s->latency.lead_max_ns;
                q.next_ns = q.next_ns > c.end_ns ? q.next_ns : c.end_ns;
            }
        }
        if (q.next_ns <= t)
            request(e, &q);
    }
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < 2; i++)
        out->share[i] = (busy_ns(e, batch[i]) - busy0[i]) / (double)s->duration_ns;
    if (q.measured) {
        qsort(q.latency_us, q.measured, sizeof(double), by_value);
        out->p50_us = percentile(q.latency_us, q.measured, 50);
        out->p99_us = percentile(q.latency_us, q.measured, 99);
    }
    free(q.latency_us);
    softgpu_free(e);
}
