/* The batch workload: the queue is never empty, or bursts of kernels with the host at work in
 * between, for which several programs may wait for each other. Runs on any back end and any clock,
 * as roles.c does. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "bench/load/barrier.h"
#include "bench/load/ops.h"

struct batch_count {
    uint64_t sent, in_flight, kernels; /* kernels: that have ended */
    uint64_t first_ns, last_ns;        /* first submitted, last ended */
    uint64_t next_line_ns;
};

/* Adds the bursts that have ended, where there are any. */
static json_t *batch_rounds(json_t *line, const struct batch_count *c, uint64_t burst)
{
    if (burst)
        json_object_set_new(line, "rounds", json_integer((json_int_t)(c->kernels / burst)));
    return line;
}

static int batch_line(const struct load_run *run, const struct batch_count *c, uint64_t t_ns,
                      struct error *err)
{
    json_t *line =
        json_pack("{s:f,s:I,s:f}", "t", load_seconds(t_ns), "kernels", (json_int_t)c->kernels,
                  "work_us", (double)c->kernels * run->o->kernel_us);
    return load_print_line(run, batch_rounds(line, c, run->o->burst), err);
}

static int batch_final(struct load_run *run, const struct batch_count *c, struct error *err)
{
    /* Work is kernels times what one takes alone, so time spent preempted is no progress. */
    double work_us = (double)c->kernels * run->o->kernel_us;
    double seconds = load_seconds(c->last_ns - c->first_ns);
    double rate = seconds > 0 ? work_us / 1e6 / seconds : 0;
    snprintf(run->summary, sizeof(run->summary),
             "batch on %s: %llu kernels, %.3f s of work in %.3f s: rate %.3f", run->gpu->ops->name,
             (unsigned long long)c->kernels, work_us / 1e6, seconds, rate);
    json_t *line = json_pack("{s:s,s:s,s:I,s:f,s:f,s:f}", "role", "batch", "device",
                             run->gpu->ops->name, "kernels", (json_int_t)c->kernels, "work_us",
                             work_us, "seconds", seconds, "rate", rate);
    return load_print_final(run, batch_rounds(line, c, run->o->burst), err);
}

/* A line's count is exact: it holds what had ended by its t, so t is a time before which nothing
 * can be missing any more. */
static int batch_lines(const struct load_run *run, struct batch_count *c, uint64_t known_ns,
                       struct error *err)
{
    int r = 0;
    for (; !r && c->next_line_ns <= known_ns; c->next_line_ns += run->o->report_ms * NSEC_PER_MSEC)
        r = batch_line(run, c, c->next_line_ns, err);
    return r;
}

/* Before a burst: the host's work since the last one, then the other ranks. -ECANCELED: one of them
 * has ended, or this one is to. */
static int batch_meet(struct load_run *run, struct batch_count *c, uint64_t end_ns,
                      struct error *err)
{
    const struct load_options *o = run->o;
    uint64_t until_ns = min_u64(c->last_ns + o->host_us * NSEC_PER_USEC, end_ns);
    if (c->kernels && load_now(run) < until_ns)
        run->env->sleep_until(run->env->arg, until_ns);
    if (!run->barrier)
        return 0;
    barrier_arrive(run->barrier);
    for (;;) {
        int r = barrier_wait(run->barrier, LOAD_SLICE_NS);
        if (r == -ETIMEDOUT && (load_stopped(run) || load_now(run) >= end_ns))
            r = -ECANCELED;
        if (r == -ETIMEDOUT)
            r = batch_lines(run, c, load_now(run) - LOAD_SLICE_NS, err);
        else
            return r;
        if (r)
            return r;
    }
}

/* Keeps the queue filled: up to `depth` kernels, or all of a burst when the one before has ended.
 */
static int batch_submit(struct load_run *run, struct batch_count *c, uint64_t depth,
                        struct error *err)
{
    const struct load_options *o = run->o;
    for (; !(o->requests && c->sent == o->requests) && c->in_flight < depth; c->in_flight++) {
        int r = run->gpu->ops->submit(run->gpu, &(struct load_piece){.kernels = 1}, err);
        if (r == -EAGAIN && c->in_flight)
            return 0;
        if (r)
            return r;
        c->sent++;
    }
    return 0;
}

int load_run_batch(struct load_run *run, struct error *err)
{
    const struct load_options *o = run->o;
    uint64_t depth = o->depth ? o->depth : run->gpu->depth;
    uint64_t start = load_now(run), end = load_end_ns(run, start);
    struct batch_count c = {.first_ns = start, .last_ns = start};
    c.next_line_ns = load_first_line(run, start);
    for (;;) {
        bool over = load_stopped(run) || load_now(run) >= end;
        int r = 0;
        if (!over && o->burst && !c.in_flight && !(o->requests && c.sent == o->requests)) {
            r = batch_meet(run, &c, end, err);
            if (r && r != -ECANCELED)
                return r;
            over = r || load_stopped(run) || load_now(run) >= end;
        }
        if (!over && (!o->burst || !c.in_flight)) {
            r = batch_submit(run, &c, depth, err);
            if (r)
                return r;
        }
        if (!c.in_flight)
            break;
        struct load_done done;
        r = load_wait(run, UINT64_MAX, over, &done, err);
        if (r && r != -ETIMEDOUT && r != -ECANCELED)
            return r;
        /* A completion proves that no earlier one is missing; so does a long enough wait. */
        int failed = batch_lines(run, &c, r ? load_now(run) - LOAD_SLICE_NS : done.end_ns - 1, err);
        if (failed)
            return failed;
        if (!r) {
            if (!c.kernels++)
                c.first_ns = done.submit_ns;
            c.last_ns = done.end_ns;
            c.in_flight--;
        } else if (r == -ECANCELED) {
            c.last_ns = load_now(run);
            break;
        }
    }
    return batch_final(run, &c, err);
}
