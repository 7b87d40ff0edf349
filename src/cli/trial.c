/* See trial.h. */
#include "cli/trial.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"

#define SETTLE_NS (200 * NSEC_PER_MSEC) /* in which queued work of a held job ends */
#define LATE_NS   (150 * NSEC_PER_MSEC) /* events of a window come so late at most */
#define RENEW_NS  NSEC_PER_SEC          /* between requests; also the length of a turn */
#define BUSY_NS   (2 * NSEC_PER_SEC)    /* ceded reports each second how busy a job was in it */
#define MORE_NS                                                                                    \
    (4 * NSEC_PER_SEC)   /* by which a window grows that had no report of the counters             \
                          */
#define LASTS_US 2500000 /* of what is asked for, should this process be stopped */

int trial_open(struct trial *t, unsigned gpu, const uint64_t *jobs, uint32_t n, struct error *err)
{
    *t = (struct trial){.client.fd = -1, .events.fd = -1, .gpu = gpu, .n = n};
    memcpy(t->jobs, jobs, n * sizeof(*jobs));
    t->owner = ADVICE_JOBS + 1;
    int code = client_open(&t->client, err);
    code = code == 0 ? client_open(&t->events, err) : code;
    return code == 0 ? client_trace(&t->events, err) : code;
}

void trial_close(struct trial *t)
{
    client_close(&t->client);
    client_close(&t->events);
}

/* ---- events ---- */

static uint32_t index_of(const struct trial *t, uint64_t job)
{
    uint32_t i = 0;
    while (i < t->n && t->jobs[i] != job)
        i++;
    return i < t->n ? i : ADVICE_JOBS + 1;
}

/* The engine's owner had it until then. */
static void owner_until(struct trial *t, uint64_t ns)
{
    const uint64_t from = max_u64(t->owner_since, t->begin_ns), to = min_u64(ns, t->end_ns);
    const double for_ns = to > from ? (double)(to - from) : 0;
    if (t->owner < ADVICE_JOBS)
        t->sums.had[t->owner] += for_ns;
    else if (t->owner == ADVICE_JOBS)
        t->sums.idle += for_ns;
    t->owner_since = ns;
}

static void take_part(struct trial *t, const struct trace_event *ev)
{
    if (ev->v[0] == 0) {
        t->whole = t->parts_at >= t->begin_ns && ev->at_ns <= t->end_ns;
        t->parts_ns += t->whole ? ev->at_ns - t->parts_at : 0;
        t->owner_since = t->owner_since ? t->owner_since : ev->at_ns;
    }
    if (t->whole && ev->v[0] < GPU_PARTS)
        t->sums.parts[ev->v[0]] += (double)ev->v[1] / 1e6 * (double)(ev->at_ns - t->parts_at);
    if (ev->v[0] == GPU_PARTS - 1)
        t->parts_at = ev->at_ns;
}

static void take_event(struct trial *t, const struct trace_event *ev)
{
    const uint32_t job = index_of(t, ev->job);
    const bool ours = job < ADVICE_JOBS, on_gpu = ev->gpu == t->gpu;
    if (ev->kind == TRACE_PART && on_gpu) {
        take_part(t, ev);
    } else if (ev->kind == TRACE_SWITCH && on_gpu) {
        owner_until(t, ev->at_ns);
        t->owner = ours ? job : ev->v[0] == TRACE_NOBODY && !ev->job ? ADVICE_JOBS : job;
    } else if (ev->kind == TRACE_BUSY && ours) {
        t->busy[job] = (double)ev->v[0] / 1e6;
    } else if (ev->kind == TRACE_JOB_END && ours) {
        t->ended |= 1U << job;
    } else if (ev->kind == TRACE_REQUEST && ours && ev->at_ns >= t->begin_ns &&
               ev->v[0] > ev->at_ns) {
        t->requests_us[job][t->nrequests[job]++ % TRIAL_REQUESTS] =
            (ev->v[0] - ev->at_ns) / NSEC_PER_USEC;
    }
}

/* Takes events until then. */
static int events_until(struct trial *t, uint64_t until_ns, struct error *err)
{
    static struct trace_event v[TRACE_BATCH];
    for (uint64_t now; (now = monotonic_ns()) < until_ns;) {
        struct pollfd f = {.fd = t->events.fd, .events = POLLIN};
        if (poll(&f, 1, (int)((until_ns - now) / NSEC_PER_MSEC + 1)) <= 0)
            continue;
        const int n = client_events(&t->events, v, err);
        if (n < 0 && n != -EAGAIN)
            return n == -EPIPE ? error_set(err, n,
                                           "the connection to ceded has ended: all jobs "
                                           "run as before")
                               : n;
        for (int i = 0; i < n; i++)
            take_event(t, &v[i]);
    }
    return 0;
}

/* ---- windows ---- */

static int say_ended(uint64_t job, struct error *err)
{
    return error_set(err, -ESRCH, "job #%llu has ended meanwhile", (unsigned long long)job);
}

static int try_one(struct trial *t, uint32_t i, const struct request *what, struct error *err)
{
    struct request r = *what;
    _cleanup_json_ json_t *reply = NULL;
    struct error why = {""};
    r.op = OP_TRY;
    r.number = t->jobs[i];
    r.for_us = LASTS_US;
    const int code = client_call(&t->client, &r, &reply, &why);
    if (code == -ESRCH)
        return say_ended(t->jobs[i], err);
    return code < 0
               ? error_set(err, code, "job #%llu: %s", (unsigned long long)t->jobs[i], why.text)
               : 0;
}

static int try_all(struct trial *t, const struct trial_way *way, uint32_t turn, struct error *err)
{
    int code = 0;
    for (uint32_t i = 0; i < t->n && code == 0; i++) {
        const struct request r = {
            .held = way->turns ? i != turn % t->n : way->held >> i & 1,
            .first = way->first == i,
            .last = way->first != TRIAL_NONE && way->first != i,
        };
        code = try_one(t, i, &r, err);
    }
    return code;
}

static void window_end(struct trial *t, struct advice_window *out)
{
    owner_until(t, t->end_ns);
    *out = t->sums;
    out->from_ns = t->begin_ns;
    out->to_ns = t->end_ns;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        out->parts[p] /= (double)t->parts_ns;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint64_t n = min_u64(t->nrequests[i], TRIAL_REQUESTS), at = n - (n + 99) / 100;
        out->had[i] /= (double)(t->end_ns - t->begin_ns);
        out->busy[i] = t->end_ns - t->begin_ns >= BUSY_NS ? t->busy[i] : 0;
        qsort(t->requests_us[i], n, sizeof(uint64_t), compare_u64);
        out->p99_us[i] = n ? (double)t->requests_us[i][at] : 0;
    }
    out->idle /= (double)(t->end_ns - t->begin_ns);
}

int trial_window(struct trial *t, const struct trial_way *way, uint64_t ms,
                 struct advice_window *out, struct error *err)
{
    uint64_t tried_ns = monotonic_ns();
    int code = try_all(t, way, 0, err);
    const uint64_t round_ns = (way->turns ? t->n : 0) * RENEW_NS, all_ns = ms * NSEC_PER_MSEC;
    t->begin_ns = monotonic_ns() + SETTLE_NS;
    t->end_ns = t->begin_ns + all_ns;
    if (round_ns) /* whole rounds, so that all have as many turns */
        t->end_ns += (round_ns - all_ns % round_ns) % round_ns;
    const uint64_t asked_ns = t->end_ns;
    t->parts_ns = 0;
    t->sums = (struct advice_window){.idle = 0};
    memset(t->nrequests, 0, sizeof(t->nrequests));
    code = code == 0 ? events_until(t, t->begin_ns, err) : code;
    for (uint32_t turn = 1; code == 0 && monotonic_ns() < t->end_ns; turn++) {
        code = events_until(t, min_u64(monotonic_ns() + RENEW_NS, t->end_ns), err);
        if (code == 0 && monotonic_ns() > tried_ns + LASTS_US * NSEC_PER_USEC)
            code = error_set(err, -EINTR, "stopped for a while, in which the jobs ran on: repeat");
        tried_ns = monotonic_ns();
        code = code == 0 && monotonic_ns() < t->end_ns ? try_all(t, way, turn, err) : code;
    }
    code = code == 0 ? events_until(t, t->end_ns + LATE_NS, err) : code;
    while (code == 0 && !t->parts_ns && t->end_ns < asked_ns + MORE_NS) {
        t->end_ns = monotonic_ns() + LATE_NS;
        code = try_all(t, way, 0, err);
        code = code == 0 ? events_until(t, t->end_ns + LATE_NS, err) : code;
    }
    if (code == 0 && t->ended)
        return say_ended(t->jobs[__builtin_ctz(t->ended)], err);
    if (code == 0 && !t->parts_ns)
        return error_set(err, -EIO,
                         "the counters of GPU %u showed nothing: it has none, or a profiler uses "
                         "them",
                         t->gpu);
    if (code == 0)
        window_end(t, out);
    return code;
}

int trial_remember(struct trial *t, uint32_t together, struct error *err)
{
    const struct request r = {.together = together};
    return try_one(t, 0, &r, err);
}
