/* The models workload: one process that serves requests of several models through libcede's queue,
 * which arrive in bursts and are due. What is decided is the queue's; when something arrives
 * depends on the options alone, so that policies can be compared on the same load. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/ops.h"
#include "cede/queue.h"

#define MODELS  4U /* 1, 2, 4, 8 kernels */
#define CLASSES 3U
#define WAITING 65536U

static const char *const policies[] = {"fifo", "priority", "edf", "laxity"};
static const char *const classes[] = {"latency", "normal", "batch"};

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
    /* By class; [CLASSES]: all. Late: after the deadline; negative: before. */
    struct load_samples latency[CLASSES + 1], late[CLASSES + 1];
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

static json_int_t count_late(const struct load_samples *s, size_t from)
{
    json_int_t n = 0;
    for (size_t i = from; i < s->n; i++)
        n += s->v[i] > 0;
    return n;
}

static int live_line(struct models *m, uint64_t t, struct error *err)
{
    struct load_samples *all = &m->latency[CLASSES];
    json_int_t late = count_late(&m->late[CLASSES], all->reported);
    return load_print_line(m->run,
                           json_pack("{s:f,s:I,s:o,s:I}", "t", load_seconds(t), "requests",
                                     (json_int_t)all->n, "latencies_us", load_report(all), "late",
                                     late),
                           err);
}

/* Requests, late ones, and quantiles of latency and lateness. */
static json_t *figures(struct models *m, unsigned class)
{
    struct load_samples *s = &m->latency[class], *late = &m->late[class];
    json_t *o = json_pack("{s:I,s:I}", "requests", (json_int_t)s->n, "late", count_late(late, 0));
    load_sort(s);
    load_sort(late);
    if (o && s->n)
        json_object_update_new(o, json_pack("{s:f,s:f,s:f,s:f}", "p50_us",
                                            load_us(load_percentile(s, 500)), "p99_us",
                                            load_us(load_percentile(s, 990)), "max_us",
                                            load_us(load_percentile(s, 1000)), "p99_lateness_us",
                                            load_us(load_percentile(late, 990))));
    return o;
}

static int final_line(struct models *m, struct error *err)
{
    const struct load_options *o = m->run->o;
    double seconds = load_seconds(m->last_ns - m->start_ns);
    size_t n = m->latency[CLASSES].n;
    json_t *line = figures(m, CLASSES), *by = json_object();
    for (unsigned c = 0; c < CLASSES; c++)
        json_object_set_new(by, classes[c], figures(m, c));
    json_t *head =
        json_pack("{s:s,s:s,s:s,s:I,s:f,s:I,s:f,s:f,s:o}", "role", "models", "device",
                  m->run->gpu->ops->name, "policy", policies[o->policy], "k", (json_int_t)o->k,
                  "load", o->load, "refused", (json_int_t)m->refused, "seconds", seconds, "rate",
                  seconds > 0 ? (double)n / seconds : 0, "classes", by);
    if (line && head)
        json_object_update(line, head);
    json_decref(head);
    snprintf(m->run->summary, sizeof(m->run->summary), "models on %s, %s: %zu requests in %.1f s",
             m->run->gpu->ops->name, policies[o->policy], n, seconds);
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
        struct cede_queue_request r = {
            .model = a->model,
            .cls = (enum cede_class)((int)(a->model % CLASSES) + CEDE_LATENCY),
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
    const unsigned classes_of[] = {a->model % CLASSES, CLASSES};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(classes_of) && !r; i++) {
        r = load_push(&m->latency[classes_of[i]], (int64_t)(end_ns - a->due_ns), err);
        if (!r)
            r = load_push(&m->late[classes_of[i]], (int64_t)(end_ns - a->deadline_ns), err);
    }
    a->waits = false;
    m->last_ns = end_ns;
    return r;
}

/* Until something is due, at most: the running one's end, or nothing. */
static int models_wait(struct models *m, uint64_t until_ns, bool stop, struct error *err)
{
    const struct load_env *env = m->run->env;
    struct load_done done;
    if (!m->running) {
        env->sleep_until(env->arg, min_u64(until_ns, env->now_ns(env->arg) + LOAD_SLICE_NS));
        return 0;
    }
    int r = load_wait(m->run, until_ns, stop, &done, err);
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
    for (;;) {
        uint64_t t = run->env->now_ns(run->env->arg);
        bool stop = run->env->stopped(run->env->arg);
        bool over = stop || m->next.due_ns >= m->end_ns || (o->requests && m->n >= o->requests);
        int r = over ? 0 : submit_due(m, t, err);
        if (!r && load_line_due(run, &m->next_line_ns, t))
            r = live_line(m, t, err);
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
        uint64_t until_ns = min_u64(over ? UINT64_MAX : m->next.due_ns, m->next_line_ns);
        r = models_wait(m, until_ns, stop, err);
        if (r)
            return r == -ECANCELED ? 0 : r;
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
    uint64_t start_ns = run->env->now_ns(run->env->arg);
    double mean_ns = 0;
    for (uint32_t i = 0; i < MODELS; i++)
        mean_ns += kernels(i) * o->kernel_us * (double)NSEC_PER_USEC / MODELS;
    struct models m = {
        .run = run,
        .waiting = calloc(WAITING, sizeof(*m.waiting)),
        .random = o->seed,
        .mean_gap_ns = mean_ns * 100 / o->load,
        .start_ns = start_ns,
        .last_ns = start_ns,
        .next.due_ns = start_ns,
        .end_ns = load_end_ns(run, start_ns),
        .next_line_ns = load_first_line(run, start_ns),
    };
    arrive(&m);
    int r = m.waiting ? open_queue(&m, err)
                      : error_set(err, -ENOMEM, "no memory for the models' requests");
    if (!r)
        r = loop(&m, err);
    if (!r)
        r = final_line(&m, err);
    cede_queue_close(m.queue);
    for (unsigned c = 0; c <= CLASSES; c++) {
        free(m.latency[c].v);
        free(m.late[c].v);
    }
    free(m.waiting);
    return r;
}
