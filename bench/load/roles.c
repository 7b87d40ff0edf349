/* The latency workload (requests one after the other, or when they are due), its statistics, and
 * what the roles share. Runs on any back end and any clock: what is measured comes from the back
 * end's times, so that the same code runs in virtual time. Must not read the clock or sleep by
 * itself. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/load/kernels.h"
#include "bench/load/ops.h"

/* After a stop request the GPU has this long to finish: it may be suspended for good. */
#define DRAIN_NS (2 * NSEC_PER_SEC)

/* ---- samples ---- */

int load_push(struct load_samples *s, int64_t ns, struct error *err)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        int64_t *v = reallocarray(s->v, cap, sizeof(*v));
        if (!v)
            return error_set(err, -ENOMEM, "no memory for the latencies after %zu requests", s->n);
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = ns;
    return 0;
}

int load_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void load_sort(struct load_samples *s)
{
    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), load_compare);
}

int64_t load_percentile(const struct load_samples *sorted, unsigned permille)
{
    return sorted->v[(sorted->n * permille + 999) / 1000 - 1];
}

json_t *load_report(struct load_samples *s)
{
    json_t *list = json_array();
    for (; s->reported < s->n; s->reported++)
        json_array_append_new(list, json_real(load_us(s->v[s->reported])));
    return list;
}

/* ---- arithmetic ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t load_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

struct load_map load_chain(uint64_t n)
{
    struct load_map all = {1, 0}, power = {SPIN_MUL, SPIN_ADD};
    for (; n; n >>= 1) {
        if (n & 1)
            all = (struct load_map){all.mul * power.mul, all.add * power.mul + power.add};
        power = (struct load_map){power.mul * power.mul, power.add * power.mul + power.add};
    }
    return all;
}

uint64_t load_end_ns(const struct load_run *run, uint64_t start_ns)
{
    double s = run->o->seconds;
    return s > 0 ? start_ns + (uint64_t)(s * (double)NSEC_PER_SEC) : UINT64_MAX;
}

int load_wait(struct load_run *run, uint64_t until_ns, bool stop, struct load_done *done,
              struct error *err)
{
    uint64_t t = load_now(run);
    until_ns = min_u64(until_ns, t + LOAD_SLICE_NS);
    int r = run->gpu->ops->wait(run->gpu, until_ns > t ? until_ns - t : 0, done, err);
    if (r != -ETIMEDOUT || !stop)
        return r;
    if (!run->give_up_ns)
        run->give_up_ns = load_now(run) + DRAIN_NS;
    run->abandoned = load_now(run) >= run->give_up_ns;
    return run->abandoned ? -ECANCELED : r;
}

uint64_t load_first_line(const struct load_run *run, uint64_t start_ns)
{
    return run->o->report_ms ? start_ns + run->o->report_ms * NSEC_PER_MSEC : UINT64_MAX;
}

bool load_line_due(const struct load_run *run, uint64_t *next_ns, uint64_t t)
{
    uint64_t every_ns = run->o->report_ms * NSEC_PER_MSEC;
    if (!every_ns || t < *next_ns)
        return false;
    *next_ns += ((t - *next_ns) / every_ns + 1) * every_ns;
    return true;
}

int load_print_line(const struct load_run *run, json_t *line, struct error *err)
{
    if (!line)
        return error_set(err, -ENOMEM, "no memory for a line of output");
    /* 15 digits: microseconds of uptime survive, and 0.1 stays 0.1. */
    int r = json_dumpf(line, run->env->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(line);
    if (r || fputc('\n', run->env->out) == EOF || fflush(run->env->out))
        return error_set(err, -EIO, "cannot write to standard output: %s", strerror(errno));
    return 0;
}

/* Prints the final object, with what all roles have in common; verified is null where it was not
 * asked for or the work was abandoned. Returns -EBADMSG when a result was wrong. */
int load_print_final(struct load_run *run, json_t *line, struct error *err)
{
    const struct load_ops *ops = run->gpu->ops;
    json_t *verified = json_null();
    int wrong = 0;
    if (run->o->verify && !run->abandoned) {
        uint64_t digest; /* before verify, which may use the arrays for other things */
        if (ops->digest && ops->digest(run->gpu, &digest, err) == 0)
            json_object_set_new(line, "digest",
                                json_sprintf("%016llx", (unsigned long long)digest));
        wrong = ops->verify(run->gpu, err);
        if (wrong && wrong != -EBADMSG) {
            json_decref(line);
            return wrong;
        }
        verified = json_boolean(!wrong);
    }
    if (run->o->name)
        json_object_set_new(line, "name", json_string(run->o->name));
    json_object_set_new(line, "verified", verified);
    int r = load_print_line(run, line, err);
    return r ? r : wrong;
}

/* ---- latency ---- */

static int latency_line(const struct load_run *run, struct load_samples *s, struct error *err)
{
    return load_print_line(run,
                           json_pack("{s:f,s:I,s:o}", "t", load_seconds(load_now(run)), "requests",
                                     (json_int_t)s->n, "latencies_us", load_report(s)),
                           err);
}

/* [[upper bound in us, count], ...] of the sorted samples, without empty buckets: those below 16 ns
 * by themselves, then sixteen to a doubling, so that a bucket is at most 1/16 of its lower end
 * wide.
 */
static json_t *latency_histogram(const struct load_samples *s)
{
    json_t *list = json_array();
    for (size_t i = 0, n; i < s->n; i += n) {
        unsigned bits = 64 - (unsigned)__builtin_clzll((uint64_t)s->v[i] | 1);
        unsigned shift = bits > 5 ? bits - 5 : 0;
        for (n = 1; i + n < s->n && s->v[i + n] >> shift == s->v[i] >> shift; n++)
            ;
        json_array_append_new(
            list, json_pack("[f,I]", load_us(((s->v[i] >> shift) + 1) << shift), (json_int_t)n));
    }
    return list;
}

static int latency_final(struct load_run *run, struct load_samples *s, uint64_t late,
                         uint64_t span_ns, struct error *err)
{
    static const struct {
        const char *key;
        unsigned permille;
    } points[] = {
        {"p50_us", 500}, {"p90_us", 900}, {"p99_us", 990}, {"p999_us", 999}, {"max_us", 1000},
    };
    json_t *line = json_pack("{s:s,s:s,s:I,s:I}", "role", "latency", "device", run->gpu->ops->name,
                             "requests", (json_int_t)s->n, "late", (json_int_t)late);
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += load_us(s->v[i]);
    load_sort(s);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++)
        json_object_set_new(line, points[i].key,
                            s->n ? json_real(load_us(load_percentile(s, points[i].permille)))
                                 : json_null());
    json_object_set_new(line, "mean_us", s->n ? json_real(sum / (double)s->n) : json_null());
    json_object_set_new(line, "seconds", json_real(load_seconds(span_ns)));
    json_object_set_new(line, "rate",
                        json_real(span_ns ? (double)s->n / load_seconds(span_ns) : 0));
    if (!isatty(STDOUT_FILENO)) /* for programs: it is long */
        json_object_set_new(line, "histogram", latency_histogram(s));
    if (s->n)
        snprintf(run->summary, sizeof(run->summary),
                 "latency on %s: %zu requests, p50 %.1f us, p99 %.1f us, max %.1f us; %llu late",
                 run->gpu->ops->name, s->n, load_us(load_percentile(s, 500)),
                 load_us(load_percentile(s, 990)), load_us(s->v[s->n - 1]),
                 (unsigned long long)late);
    else
        snprintf(run->summary, sizeof(run->summary), "latency on %s: no request completed",
                 run->gpu->ops->name);
    return load_print_final(run, line, err);
}

static int wait_done(struct load_run *run, struct load_done *done, struct error *err)
{
    int r;
    do {
        r = load_wait(run, UINT64_MAX, load_stopped(run), done, err);
    } while (r == -ETIMEDOUT);
    return r;
}

/* One request: all kernels queued at once, launched one after the other by a busy host that waits
 * for none of them, or one at a time with the host at work in between. The latency is the sum of
 * what each piece took and of the gaps as asked for: the host's waking up late from a gap is not
 * the GPU's doing. */
static int request(struct load_run *run, struct cede_request *hint, uint64_t *latency_ns,
                   uint64_t *done_ns, struct error *err)
{
    const struct load_options *o = run->o;
    uint64_t pieces = o->gap_us ? o->kernels : 1;
    /* In a closed loop the host goes on when the request before ends, however late it is woken. */
    uint64_t from_ns = o->period_us ? load_now(run) : *done_ns;
    struct load_done done = {0, 0};
    *latency_ns = (pieces - 1) * o->gap_us * NSEC_PER_USEC;
    for (uint64_t i = 0; i < pieces; i++) {
        if (i)
            run->env->sleep_until(run->env->arg, done.end_ns + o->gap_us * NSEC_PER_USEC);
        struct load_piece piece = {
            .kernels = (uint32_t)(o->kernels / pieces),
            .copy_in = o->copy_bytes && i == 0,
            .copy_out = o->copy_bytes && i == pieces - 1,
            .launch_ns = o->launch_us * NSEC_PER_USEC,
            .from_ns = from_ns,
        };
        int r = run->gpu->ops->submit(run->gpu, &piece, err);
        if (!r && i == 0 && run->hints)
            cede_request_queued(run->hints, hint);
        if (!r)
            r = wait_done(run, &done, err);
        if (r)
            return r;
        *latency_ns += done.end_ns - (o->launch_us ? from_ns : done.submit_ns);
    }
    *done_ns = done.end_ns;
    return 0;
}

/* A place in the schedule, which depends on the options alone: several can walk along it. */
struct arrival {
    uint64_t n, due_ns, random;
};

/* What a run of the latency role knows so far. */
struct requests {
    struct load_samples s;
    struct arrival next, oldest; /* to be sent; in flight */
    uint64_t start, end, period_ns, next_line;
    uint64_t late, last_ns;
};

static int due_lines(const struct load_run *run, struct requests *q, uint64_t t, struct error *err)
{
    return load_line_due(run, &q->next_line, t) ? latency_line(run, &q->s, err) : 0;
}

/* The time from one request of a Poisson process to the next. */
static uint64_t random_gap(const struct requests *q, struct arrival *a)
{
    return (uint64_t)(-log1p(-load_uniform(&a->random)) * (double)q->period_ns);
}

static struct arrival first_arrival(const struct load_options *o, const struct requests *q)
{
    struct arrival a = {.due_ns = q->start, .random = o->seed};
    if (o->poisson)
        a.due_ns += random_gap(q, &a);
    return a;
}

static void go_on(const struct load_options *o, const struct requests *q, struct arrival *a)
{
    a->n++;
    a->due_ns = o->poisson ? a->due_ns + random_gap(q, a) : q->start + a->n * q->period_ns;
}

static int latency_sleep(struct load_run *run, struct requests *q, uint64_t until_ns,
                         struct error *err)
{
    uint64_t t;
    int r = 0;
    while (!r && (t = load_now(run)) < until_ns && t < q->end && !load_stopped(run)) {
        r = due_lines(run, q, t, err);
        if (!r)
            run->env->sleep_until(run->env->arg, min_u64(min_u64(until_ns, q->end), q->next_line));
    }
    return r ? r : due_lines(run, q, load_now(run), err);
}

/* Announces a request to libcede, and waits until it is due. */
static int hint(struct load_run *run, struct requests *q, uint64_t due_ns, struct cede_request *out,
                struct error *err)
{
    uint64_t ahead = run->o->hint_us * NSEC_PER_USEC;
    int r = latency_sleep(run, q, due_ns > ahead ? due_ns - ahead : 0, err);
    uint64_t late = due_ns + run->o->deadline_us * NSEC_PER_USEC, t = load_now(run);
    uint64_t deadline_us = late > t + NSEC_PER_USEC ? (late - t) / NSEC_PER_USEC : 1;
    if (!r)
        cede_request_begin(run->hints, out, CEDE_JOB, run->o->hint_us ? run->o->hint_says_us : 0,
                           run->o->deadline_us ? deadline_us : 0);
    return r ? r : latency_sleep(run, q, due_ns, err);
}

/* For a request that never comes, half a period before the next. */
static int false_hint(struct load_run *run, struct requests *q, struct error *err)
{
    struct cede_request never;
    int r = latency_sleep(run, q, q->next.due_ns + q->period_ns / 2, err);
    if (r)
        return r;
    cede_request_begin(run->hints, &never, CEDE_JOB, run->o->hint_says_us, 0);
    r = latency_sleep(run, q, q->next.due_ns + q->period_ns * 3 / 4, err);
    cede_request_end(run->hints, &never);
    return r;
}

/* One at a time; a request that is due while the one before runs is sent when that is done. */
static int closed_loop(struct load_run *run, struct requests *q, struct error *err)
{
    const struct load_options *o = run->o;
    for (; !o->requests || q->next.n < o->requests; go_on(o, q, &q->next)) {
        uint64_t due = q->next.due_ns, latency_ns;
        struct cede_request r_hint;
        int r = run->hints ? hint(run, q, due, &r_hint, err) : latency_sleep(run, q, due, err);
        if (r || load_stopped(run) || load_now(run) >= q->end)
            return r;
        q->late += o->period_us && q->last_ns > due;
        r = request(run, &r_hint, &latency_ns, &q->last_ns, err);
        if (!r && run->hints) {
            cede_request_end(run->hints, &r_hint);
            if (o->hint_false)
                r = false_hint(run, q, err);
        }
        if (r)
            return r == -ECANCELED ? 0 : r;
        if (o->open)
            latency_ns = q->last_ns > due ? q->last_ns - due : 0;
        r = load_push(&q->s, (int64_t)latency_ns, err);
        if (r)
            return r;
    }
    return 0;
}

/* All that are due, whatever still runs: what a server's clients do. */
static int open_loop(struct load_run *run, struct requests *q, struct error *err)
{
    const struct load_options *o = run->o;
    for (;;) {
        uint64_t t = load_now(run), due = q->next.due_ns, in_flight = q->next.n - q->oldest.n;
        bool over = load_stopped(run) || due >= q->end || (o->requests && q->next.n == o->requests);
        int r = due_lines(run, q, t, err);
        if (r)
            return r;
        if (!over && t >= due && in_flight < LOAD_QUEUE_MAX) {
            q->late += in_flight > 0 || t - due > q->period_ns;
            go_on(o, q, &q->next);
            r = run->gpu->ops->submit(run->gpu,
                                      &(struct load_piece){.kernels = (uint32_t)o->kernels}, err);
            if (r)
                return r;
        } else if (in_flight) {
            struct load_done done;
            uint64_t until = over || in_flight == LOAD_QUEUE_MAX ? UINT64_MAX : due;
            r = load_wait(run, min_u64(until, q->next_line), load_stopped(run), &done, err);
            if (!r) {
                q->last_ns = done.end_ns;
                r = load_push(&q->s, (int64_t)(done.end_ns - q->oldest.due_ns), err);
                go_on(o, q, &q->oldest);
            }
            if (r && r != -ETIMEDOUT)
                return r == -ECANCELED ? 0 : r;
        } else if (over) {
            return 0;
        } else if (t + run->gpu->wake_ns < due) {
            run->env->sleep_until(run->env->arg, min_u64(due - run->gpu->wake_ns, q->next_line));
        }
    }
}

int load_run_latency(struct load_run *run, struct error *err)
{
    const struct load_options *o = run->o;
    struct requests q = {.start = load_now(run), .period_ns = o->period_us * NSEC_PER_USEC};
    q.end = load_end_ns(run, q.start);
    q.last_ns = q.start;
    q.next = q.oldest = first_arrival(o, &q);
    q.next_line = load_first_line(run, q.start);
    int r = load_queues(o) ? open_loop(run, &q, err) : closed_loop(run, &q, err);
    if (!r)
        r = latency_final(run, &q.s, q.late, q.last_ns - q.start, err);
    free(q.s.v);
    return r;
}
