/* The models workload: one process that serves requests of several models through libcede's queue,
 * which arrive in bursts and are due. What is decided is the queue's; when something arrives
 * depends on the options alone, so that policies can be compared on the same load. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cede/queue.h"
#include "load/ops.h"

#define MODELS   4U /* 1, 2, 4, 8 kernels */
#define CLASSES  3U
#define WAITING  65536U
#define SLICE_NS (50 * NSEC_PER_MSEC)
#define DRAIN_NS (2 * NSEC_PER_SEC)

static const char *const policies[] = {"fifo", "priority", "edf", "laxity"};
static const char *const classes[] = {"latency", "normal", "batch"};

struct sample {
    double latency_us, late_us; /* late: after the deadline; negative: before */
    unsigned class;
};

struct arrival {
    uint64_t due_ns, deadline_ns;
    uint32_t model;
    bool waits; /* its place is taken */
};

struct models {
    struct load_run *run;
    struct cede_queue *queue;
    struct cede_queue_batch batch;
    struct arrival next, *waiting; /* what was submitted */
    uint64_t n, start_ns, end_ns, next_line_ns, last_ns, refused;
    uint64_t random;
    uint32_t place;
    double mean_gap_ns;
    bool running;
    struct sample *v;
    size_t nv, cap, reported;
};

int load_policy_parse(const char *name, unsigned *out)
{
    for (unsigned i = 0; name && i < ARRAY_SIZE(policies); i++) {
        if (strcmp(name, policies[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return -EINVAL;
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static double normal(struct models *m)
{
    double r = sqrt(-2 * log(load_uniform(&m->random) + 0x1p-53)); /* of (0, 1] */
    return r * cos(2 * M_PI * (load_uniform(&m->random) + 0x1p-53));
}

static double kernels(uint32_t model)
{
    return 1U << model;
}

/* Log-normal times between arrivals whose mean is that of the load, whatever sigma is. */
static void arrive(struct models *m)
{
    const struct load_options *o = m->run->o;
    double gap = m->mean_gap_ns * exp(o->sigma * normal(m) - o->sigma * o->sigma / 2);
    m->next.due_ns += (uint64_t)gap;
    m->next.model = (uint32_t)(load_random(&m->random) % MODELS);
    m->next.deadline_ns = m->next.due_ns + (uint64_t)(o->due_times * kernels(m->next.model) *
                                                      o->kernel_us * (double)NSEC_PER_USEC);
}

/* ---- output ---------------------------------------------------------------------------------- */

static int live_line(struct models *m, uint64_t t, struct error *err)
{
    json_t *list = json_array();
    json_int_t late = 0;
    for (; m->reported < m->nv; m->reported++) {
        json_array_append_new(list, json_real(m->v[m->reported].latency_us));
        late += m->v[m->reported].late_us > 0;
    }
    return load_print_line(m->run,
                           json_pack("{s:f,s:I,s:o,s:I}", "t", load_seconds(t), "requests",
                                     (json_int_t)m->nv, "latencies_us", list, "late", late),
                           err);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Requests, late ones, and quantiles of latency and lateness; class CLASSES: of all. */
static json_t *figures(const struct models *m, unsigned class)
{
    double *v = calloc(2 * m->nv + 1, sizeof(*v));
    json_int_t n = 0, late = 0;
    if (!v)
        return NULL;
    double *lateness = v + m->nv;
    for (size_t i = 0; i < m->nv; i++) {
        const struct sample *s = &m->v[i];
        if (class != CLASSES && s->class != class)
            continue;
        v[n] = s->latency_us;
        lateness[n++] = s->late_us;
        late += s->late_us > 0;
    }
    qsort(v, (size_t)n, sizeof(*v), compare);
    qsort(lateness, (size_t)n, sizeof(*v), compare);
    size_t p50 = n ? ((size_t)n * 50 + 99) / 100 - 1 : 0,
           p99 = n ? ((size_t)n * 99 + 99) / 100 - 1 : 0;
    json_t *o = json_pack("{s:I,s:I}", "requests", n, "late", late);
    if (o && n)
        json_object_update_new(o, json_pack("{s:f,s:f,s:f,s:f}", "p50_us", v[p50], "p99_us", v[p99],
                                            "max_us", v[n - 1], "p99_lateness_us", lateness[p99]));
    free(v);
    return o;
}

static int final_line(struct models *m, struct error *err)
{
    const struct load_options *o = m->run->o;
    double seconds = load_seconds(m->last_ns - m->start_ns);
    json_t *line = figures(m, CLASSES), *by = json_object();
    for (unsigned c = 0; c < CLASSES; c++)
        json_object_set_new(by, classes[c], figures(m, c));
    json_t *head =
        json_pack("{s:s,s:s,s:s,s:I,s:f,s:I,s:f,s:f,s:o}", "role", "models", "device",
                  m->run->gpu->ops->name, "policy", policies[o->policy], "k", (json_int_t)o->k,
                  "load", o->load, "refused", (json_int_t)m->refused, "seconds", seconds, "rate",
                  seconds > 0 ? (double)m->nv / seconds : 0, "classes", by);
    if (line && head)
        json_object_update(line, head);
    json_decref(head);
    snprintf(m->run->summary, sizeof(m->run->summary), "models on %s, %s: %zu requests in %.1f s",
             m->run->gpu->ops->name, policies[o->policy], m->nv, seconds);
    return load_print_final(m->run, line, err);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int submit_due(struct models *m, uint64_t t, struct error *err)
{
    const struct load_options *o = m->run->o;
    while (m->next.due_ns <= t && m->next.due_ns < m->end_ns &&
           (!o->requests || m->n < o->requests)) {
        struct arrival *a = &m->waiting[m->place];
        while (a->waits) /* the queue has fewer places */
            a = &m->waiting[m->place = (m->place + 1) % WAITING];
        *a = m->next;
        uint64_t left_ns = a->deadline_ns > t ? a->deadline_ns - t : 0;
        struct cede_queue_request r = {.model = a->model,
                                       .cls = (enum cede_class)(a->model % CLASSES),
                                       .deadline_us = left_ns / NSEC_PER_USEC + 1,
                                       .user = a};
        int e = cede_queue_submit(m->queue, &r, NULL);
        if (e == -EBUSY)
            m->refused++;
        else if (e)
            return error_set(err, e, "cannot submit a request: %s", strerror(-e));
        a->waits = e == 0;
        m->n++;
        arrive(m);
    }
    return 0;
}

static int take_sample(struct models *m, uint64_t end_ns, struct error *err)
{
    struct arrival *a = m->batch.user[0];
    a->waits = false;
    if (m->nv == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 4096;
        struct sample *v = reallocarray(m->v, cap, sizeof(*v));
        if (!v)
            return error_set(err, -ENOMEM, "no memory for the latencies after %zu requests", m->nv);
        m->v = v;
        m->cap = cap;
    }
    m->v[m->nv++] = (struct sample){.latency_us = load_us(end_ns) - load_us(a->due_ns),
                                    .late_us = load_us(end_ns) - load_us(a->deadline_ns),
                                    .class = a->model % CLASSES};
    m->last_ns = end_ns;
    return 0;
}

/* Until something is due, at most: the running one's end, or nothing. */
static int pass_time(struct models *m, uint64_t t, uint64_t until_ns, struct error *err)
{
    const struct load_run *run = m->run;
    struct load_done done;
    until_ns = min_u64(until_ns, t + SLICE_NS);
    if (!m->running) {
        run->env->sleep_until(run->env->arg, until_ns);
        return 0;
    }
    int r = run->gpu->ops->wait(run->gpu, until_ns > t ? until_ns - t : 0, &done, err);
    if (r)
        return r == -ETIMEDOUT ? 0 : r;
    m->running = false;
    r = take_sample(m, done.end_ns, err);
    cede_queue_done(m->queue, &m->batch, 0);
    return r;
}

static int loop(struct models *m, struct error *err)
{
    const struct load_run *run = m->run;
    const struct load_options *o = run->o;
    uint64_t give_up_ns = UINT64_MAX;
    for (;;) {
        uint64_t t = run->env->now_ns(run->env->arg);
        bool stop = run->env->stopped(run->env->arg);
        bool over = stop || m->next.due_ns >= m->end_ns || (o->requests && m->n >= o->requests);
        int r = over ? 0 : submit_due(m, t, err);
        if (!r && t >= m->next_line_ns) {
            r = live_line(m, t, err);
            m->next_line_ns += ((t - m->next_line_ns) / (o->report_ms * NSEC_PER_MSEC) + 1) *
                               o->report_ms * NSEC_PER_MSEC;
        }
        if (r)
            return r;
        if (!m->running && !stop && t < m->end_ns) {
            r = cede_queue_next(m->queue, 0, 0, &m->batch);
            if (r == 0) {
                const struct arrival *a = m->batch.user[0];
                r = run->gpu->ops->submit(
                    run->gpu, &(struct load_piece){.kernels = (uint32_t)kernels(a->model)}, err);
                if (r)
                    return r;
                m->running = true;
            } else if (over) {
                return 0; /* nothing runs, waits or comes */
            }
        } else if (!m->running) {
            return 0;
        }
        if (stop && give_up_ns == UINT64_MAX)
            give_up_ns = t + DRAIN_NS;
        if (t >= give_up_ns) {
            m->run->abandoned = true;
            return 0;
        }
        r = pass_time(m, t, min_u64(over ? UINT64_MAX : m->next.due_ns, m->next_line_ns), err);
        if (r)
            return r;
    }
}

static int open_queue(struct models *m, struct error *err)
{
    const struct load_options *o = m->run->o;
    struct cede_queue_config c;
    cede_queue_defaults(&c);
    c.policy = (enum cede_queue_policy)o->policy;
    c.k = (unsigned)o->k;
    c.admit = o->admit;
    c.capacity = WAITING - CEDE_QUEUE_BATCH_MAX;
    c.batch_max = 1;
    int r = cede_queue_open(&c, &m->queue);
    for (uint32_t i = 0; i < MODELS && !r; i++)
        r = cede_queue_set_model(m->queue, i, 1, 0, (uint64_t)ceil(kernels(i) * o->kernel_us));
    return r ? error_set(err, r, "cannot open a queue: %s", strerror(-r)) : 0;
}

int load_run_models(struct load_run *run, struct error *err)
{
    const struct load_options *o = run->o;
    struct models *m = calloc(1, sizeof(*m));
    struct arrival *waiting = calloc(WAITING, sizeof(*waiting));
    int r = m && waiting ? 0 : error_set(err, -ENOMEM, "no memory for the models' requests");
    double mean_ns = 0;
    for (uint32_t i = 0; i < MODELS; i++)
        mean_ns += kernels(i) * o->kernel_us * (double)NSEC_PER_USEC / MODELS;
    if (!r) {
        m->run = run;
        m->waiting = waiting;
        m->random = o->seed;
        m->mean_gap_ns = mean_ns * 100 / o->load;
        m->start_ns = m->last_ns = m->next.due_ns = run->env->now_ns(run->env->arg);
        m->end_ns = o->seconds > 0 ? m->start_ns + (uint64_t)(o->seconds * (double)NSEC_PER_SEC)
                                   : UINT64_MAX;
        m->next_line_ns = o->report_ms ? m->start_ns + o->report_ms * NSEC_PER_MSEC : UINT64_MAX;
        arrive(m);
        r = open_queue(m, err);
    }
    if (!r)
        r = loop(m, err);
    if (!r)
        r = final_line(m, err);
    if (m) {
        cede_queue_close(m->queue);
        free(m->v);
    }
    free(waiting);
    free(m);
    return r;
}
