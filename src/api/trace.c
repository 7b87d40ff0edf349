/* See trace.h. */
#include "api/trace.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "api/replies.h"
#include "base/quota.h"
#include "base/trace_proto.h"

#define LOOK_NS    (50 * NSEC_PER_MSEC) /* between looks at records, which cause no tick */
#define COUNTER_NS (100 * NSEC_PER_MSEC)
#define STALL_NS                                                                                   \
    (5 * NSEC_PER_SEC)         /* without reading; a client that is stopped for a moment stays */
#define CUT_NS    NSEC_PER_SEC /* between attempts to send a cut-off tracer its count */
#define EVENTS    16384U       /* per tracer: 2 MB */
#define COST_PART 20           /* looking at jobs takes a 20th of the time at most */
#define PIDS      1024U
#define PID_NS    (5 * NSEC_PER_SEC)

struct tracer {
    bool used, fresh, dead; /* fresh: it has no events yet; dead: its connection has ended */
    bool cut;
    uint64_t connection;
    uid_t uid, principal;
    bool admin;
    int fd; /* -1: its reply is not sent yet */
    struct trace_event *ring;
    uint64_t first, end; /* numbers of events, which are in ring[number % EVENTS] */
    uint64_t lost;       /* events since the last TRACE_LOST */
    uint64_t taken_ns;   /* when it last took something, or had nothing to take */
};

/* The state of a job that tracers know. */
struct seen {
    uint64_t number; /* 0: none in this slot */
    uint64_t round;
    uid_t uid;
    const char *state;
    struct {
        enum sched_why why;
        uint64_t other;
    } on[DEVICE_GPUS_MAX];
    uint64_t memory_bytes, busy;
    struct pod_names pod;
};

struct traces {
    struct tracer v[TRACERS_MAX];
    struct seen *seen; /* JOURNAL_JOBS of them; NULL: there is no tracer */
    uint64_t round, jobs_at, counters_at;
    struct engine *recording; /* the engine that keeps switches for traces */
    bool no_switches;         /* the driver has no record of switches, or refuses it */
    bool takes_requests;      /* false: requests from before the trace are skipped once */
    /* The jobs of processes that may have ended since. */
    struct {
        int32_t pid;
        uint64_t job, at_ns;
    } pids[PIDS];
};

#define for_each_tracer(t, r) for (struct tracer *r = (t)->v; r < (t)->v + TRACERS_MAX; r++)

struct traces *traces_new(void)
{
    return calloc(1, sizeof(struct traces));
}

static void tracer_free(struct tracer *r)
{
    free(r->ring);
    *r = (struct tracer){.used = false};
}

void traces_free(struct traces *t)
{
    if (!t)
        return;
    for_each_tracer (t, r)
        tracer_free(r);
    free(t->seen);
    free(t);
}

int traces_open(struct traces *t, const struct caller *who, struct error *err)
{
    struct tracer *slot = NULL;
    unsigned own = 0, users = 0;
    for_each_tracer (t, r) {
        if (r->used && r->connection == who->connection)
            return error_set(err, -EALREADY, "this connection traces already");
        own += r->used && !r->admin && r->principal == who->principal;
        users += r->used && !r->admin;
        slot = slot || r->used ? slot : r;
    }
    if (!slot || (!who->admin && (own >= TRACERS_PER_USER || users >= USERS_PART(TRACERS_MAX))))
        return error_set(err, -EUSERS, "%u programs trace already; end one of them",
                         slot && own >= TRACERS_PER_USER ? own : users);
    struct trace_event *ring = malloc(EVENTS * sizeof(*ring));
    if (!t->seen)
        t->seen = calloc(JOURNAL_JOBS, sizeof(*t->seen));
    if (!ring || !t->seen) {
        free(ring);
        return error_set(err, -ENOMEM, "no memory for a trace");
    }
    *slot = (struct tracer){.used = true,
                            .fresh = true,
                            .connection = who->connection,
                            .uid = who->uid,
                            .principal = who->principal,
                            .admin = who->admin,
                            .fd = -1,
                            .ring = ring};
    return 0;
}

void traces_begin(struct traces *t, uint64_t connection, int fd, uint64_t now)
{
    for_each_tracer (t, r) {
        if (r->used && r->connection == connection && r->fd < 0) {
            r->fd = fd;
            r->taken_ns = now;
        }
    }
}

void traces_close(struct traces *t, uint64_t connection)
{
    for_each_tracer (t, r) {
        if (r->used && r->connection == connection)
            tracer_free(r);
    }
}

/* Whether events are put for it. */
static bool is_live(const struct tracer *r)
{
    return r->used && r->fd >= 0 && !r->cut && !r->dead;
}

/* ---- events ---- */

static bool shows_job(const struct tracer *r, uid_t owner)
{
    return r->admin || r->uid == owner;
}

static void tracer_put(struct tracer *r, const struct trace_event *ev)
{
    if (r->end - r->first + (r->lost ? 1 : 0) >= EVENTS) {
        r->lost++;
        return;
    }
    if (r->lost)
        r->ring[r->end++ % EVENTS] =
            (struct trace_event){.at_ns = ev->at_ns, .kind = TRACE_LOST, .v = {r->lost}};
    r->lost = 0;
    r->ring[r->end++ % EVENTS] = *ev;
}

/* Puts an event for one tracer, or (only NULL) for all that are not fresh. owner: of the event's
 * job. */
static void traces_put(struct traces *t, struct tracer *only, const struct trace_event *ev,
                       uid_t owner)
{
    for_each_tracer (t, r) {
        if (!is_live(r) || (only ? r != only : r->fresh))
            continue;
        struct trace_event own = *ev;
        if (!shows_job(r, owner)) {
            if (ev->kind == TRACE_REQUEST || ev->kind == TRACE_LEASE || ev->kind == TRACE_POD)
                continue;
            if (ev->kind == TRACE_JOB) /* the whole array, as the whole structure is sent */
                memset(own.text, 0, sizeof(own.text));
        }
        tracer_put(r, &own);
    }
}

static struct trace_event event_of(enum trace_kind kind, uint64_t at_ns, uint64_t job,
                                   const char *text)
{
    struct trace_event ev = {.kind = kind, .at_ns = at_ns, .job = job};
    snprintf(ev.text, sizeof(ev.text), "%s", text);
    return ev;
}

/* ---- jobs ---- */

static void put_job(struct traces *t, struct tracer *only, const struct job_view *v, uint64_t now)
{
    struct trace_event ev = event_of(TRACE_JOB, now, v->number, v->job.name);
    traces_put(t, only, &ev, v->job.uid);
}

/* The container's name is the last event, with which the client has all of them. */
static void put_pod(struct traces *t, struct tracer *only, const struct seen *s, uint64_t now)
{
    const char *const names[TRACE_POD_NAMES] = {[TRACE_NAMESPACE] = s->pod.namespace,
                                                [TRACE_POD_NAME] = s->pod.pod,
                                                [TRACE_CONTAINER] = s->pod.container};
    for (unsigned i = 0; i < TRACE_POD_NAMES && s->pod.pod[0]; i++) {
        struct trace_event ev = event_of(TRACE_POD, now, s->number, names[i]);
        ev.v[0] = i;
        traces_put(t, only, &ev, s->uid);
    }
}

static void put_state(struct traces *t, struct tracer *only, const struct seen *s, uint64_t now)
{
    struct trace_event ev = event_of(TRACE_STATE, now, s->number, s->state);
    traces_put(t, only, &ev, s->uid);
}

static void put_why(struct traces *t, struct tracer *only, const struct seen *s,
                    const struct job_view *v, unsigned gpu, uint64_t now)
{
    const struct job_why *w = &v->why[gpu];
    struct trace_event ev = event_of(TRACE_WHY, now, s->number, sched_why_text(w->why));
    ev.gpu = gpu;
    ev.v[0] = w->other;
    ev.v[1] = w->ahead;
    ev.v[2] = w->for_ns == TIME_NEVER ? UINT64_MAX : w->for_ns / NSEC_PER_USEC;
    traces_put(t, only, &ev, s->uid);
}

static void put_numbers(struct traces *t, struct tracer *only, const struct seen *s, uint64_t now)
{
    struct trace_event ev = event_of(TRACE_MEMORY, now, s->number, "");
    ev.v[0] = s->memory_bytes;
    traces_put(t, only, &ev, s->uid);
    ev.kind = TRACE_BUSY;
    ev.v[0] = s->busy;
    traces_put(t, only, &ev, s->uid);
}

static void compare_job(struct traces *t, struct seen *s, const struct job_view *v, uint64_t now,
                        bool counters)
{
    const char *state = job_state(v);
    uint64_t busy = v->busy > 0 ? (uint64_t)(v->busy * 1e6) : 0;
    if (s->number != v->number) {
        struct trace_event end = event_of(TRACE_JOB_END, now, s->number, "");
        if (s->number)
            traces_put(t, NULL, &end, s->uid);
        *s = (struct seen){.number = v->number, .uid = v->job.uid, .state = ""};
        put_job(t, NULL, v, now);
    }
    s->round = t->round;
    if (memcmp(&s->pod, &v->pod, sizeof(s->pod)) != 0) {
        s->pod = v->pod;
        put_pod(t, NULL, s, now);
    }
    if (strcmp(state, s->state) != 0) {
        s->state = state;
        put_state(t, NULL, s, now);
    }
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        const struct job_why *w = &v->why[d];
        if (s->on[d].why == w->why && s->on[d].other == w->other)
            continue;
        s->on[d].why = w->why;
        s->on[d].other = w->other;
        put_why(t, NULL, s, v, d, now);
    }
    if (counters && (s->memory_bytes != v->memory_bytes || s->busy != busy)) {
        s->memory_bytes = v->memory_bytes;
        s->busy = busy;
        put_numbers(t, NULL, s, now);
    }
}

static void compare_jobs(struct traces *t, struct engine *e, uint64_t now, bool counters)
{
    struct job_view v;
    t->round++;
    for (uint32_t cursor = 0; engine_next_job(e, &cursor, &v);)
        compare_job(t, &t->seen[cursor - 1], &v, now, counters);
}

/* Called after put_switches(), as the last switches of a job may be among those. */
static void end_jobs(struct traces *t, uint64_t now)
{
    for (struct seen *s = t->seen; s < t->seen + JOURNAL_JOBS; s++) {
        if (!s->number || s->round == t->round)
            continue;
        struct trace_event ev = event_of(TRACE_JOB_END, now, s->number, "");
        traces_put(t, NULL, &ev, s->uid);
        s->number = 0;
    }
}

/* Describes all GPUs and jobs to a tracer that begins. */
static void describe_all(struct traces *t, struct tracer *r, struct engine *e, uint64_t now)
{
    struct device_driver *d = engine_driver(e);
    struct job_view v;
    for (unsigned i = 0; i < d->ops->gpus(d) && i < DEVICE_GPUS_MAX; i++) {
        struct gpu_info g;
        if (d->ops->info(d, i, &g) < 0 || !g.name[0])
            continue;
        struct trace_event ev = event_of(TRACE_GPU, now, 0, g.name);
        if (g.label[0])
            snprintf(ev.text, sizeof(ev.text), "%s, %.50s", g.label, g.name);
        ev.gpu = i;
        traces_put(t, r, &ev, 0);
    }
    if (t->no_switches) {
        struct trace_event ev = event_of(
            TRACE_NOTE, now, 0, "no record of who has the GPUs: `cede doctor` may say why");
        traces_put(t, r, &ev, 0);
    }
    for (uint32_t cursor = 0; engine_next_job(e, &cursor, &v);) {
        const struct seen *s = &t->seen[cursor - 1];
        if (s->number != v.number)
            continue;
        put_job(t, r, &v, now);
        put_pod(t, r, s, now);
        put_state(t, r, s, now);
        put_numbers(t, r, s, now);
        for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
            if (s->on[i].why != WHY_ABSENT)
                put_why(t, r, s, &v, i, now);
        }
    }
    r->fresh = false;
}

/* ---- reports of devices and programs ---- */

static uint64_t job_of_pid(struct traces *t, const struct engine *e, int32_t pid, uint64_t now)
{
    uint32_t slot = model_job_with(engine_model(e), pid), at = (uint32_t)pid % PIDS;
    if (slot < JOURNAL_JOBS && t->seen[slot].number) {
        t->pids[at].pid = pid;
        t->pids[at].job = t->seen[slot].number;
        t->pids[at].at_ns = now;
    }
    bool known = t->pids[at].pid == pid && now - t->pids[at].at_ns < PID_NS;
    return known ? t->pids[at].job : 0;
}

static void put_switches(struct traces *t, struct engine *e, uint64_t now)
{
    struct switch_list list;
    t->recording = e;
    t->no_switches = engine_switches(e, &list) < 0;
    for_each (s, list.v, list.n) {
        struct trace_event ev = {.kind = TRACE_SWITCH, .at_ns = s->ns, .gpu = s->gpu};
        ev.job = s->pid > 0 ? job_of_pid(t, e, s->pid, now) : 0;
        ev.v[0] = s->pid == GPU_NOBODY ? TRACE_NOBODY : s->pid > 0 ? TRACE_NO_JOB : TRACE_UNKNOWN;
        traces_put(t, NULL, &ev, 0);
    }
    switch_list_free(&list);
}

static void put_parts(struct traces *t, struct engine *e, uint64_t now)
{
    struct device_driver *d = engine_driver(e);
    for (unsigned i = 0; i < d->ops->gpus(d) && i < DEVICE_GPUS_MAX; i++) {
        struct gpu_counters c;
        if (engine_counters(e, i, &c) < 0)
            continue;
        for (unsigned p = 0; p < GPU_PARTS; p++) {
            struct trace_event ev = {.kind = TRACE_PART, .at_ns = now, .gpu = i};
            ev.v[0] = p;
            ev.v[1] = c.parts[p] > 0 && c.parts[p] < 4 ? (uint64_t)(c.parts[p] * 1e6) : 0;
            traces_put(t, NULL, &ev, 0);
        }
    }
}

struct trace_target {
    struct traces *traces;
    const struct engine *engine;
    uint64_t job; /* of the last request, which saves a search among all jobs for most */
    uint32_t slot;
};

static void put_of_program(struct trace_target *to, const struct trace_event *ev)
{
    if (to->job != ev->job)
        to->slot = model_job_by_number(engine_model(to->engine), ev->job);
    to->job = ev->job;
    const uint32_t slot = to->slot;
    if (slot < JOURNAL_JOBS && to->traces->seen[slot].number == ev->job)
        traces_put(to->traces, NULL, ev, to->traces->seen[slot].uid);
}

static void put_request(void *arg, uint64_t job, const struct hints_request *q)
{
    struct trace_event ev = {.kind = TRACE_REQUEST, .at_ns = q->begun_ns, .job = job};
    ev.v[0] = q->ended_ns;
    ev.v[1] = q->lead_ns;
    ev.v[2] = q->lead_end_ns;
    put_of_program(arg, &ev);
}

static void put_lease(void *arg, uint64_t job, const struct hints_wait *w)
{
    struct trace_event ev = {.kind = TRACE_LEASE, .at_ns = w->asked_ns, .job = job};
    ev.v[0] = w->ended_ns;
    ev.v[1] = w->what;
    _Static_assert(sizeof(w->kernel) < sizeof(ev.text), "ends with 0");
    memcpy(ev.text, w->kernel, sizeof(w->kernel));
    put_of_program(arg, &ev);
}

/* ---- sending ---- */

/* False: the tracer takes no more for now, or is dead. */
static bool tracer_send(struct tracer *r, const struct trace_event *v, size_t n)
{
    ssize_t sent = send(r->fd, v, n * sizeof(*v), MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR);
    r->dead |= sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS;
    return sent >= 0;
}

static void tracer_cut(struct tracer *r, uint64_t now)
{
    if (!r->cut) {
        r->lost += r->end - r->first;
        free(r->ring);
        r->ring = NULL;
        r->cut = true;
    }
    struct trace_event ev = {.kind = TRACE_LOST, .at_ns = now, .v = {r->lost, 1}};
    if (!tracer_send(r, &ev, 1))
        return;
    shutdown(r->fd, SHUT_RDWR); /* the server then closes the connection */
    r->dead = true;
}

static void tracer_flush(struct tracer *r, uint64_t now)
{
    while (!r->cut && !r->dead && r->first < r->end) {
        uint64_t at = r->first % EVENTS, n = min_u64(r->end - r->first, EVENTS - at);
        n = min_u64(n, TRACE_BATCH);
        if (!tracer_send(r, &r->ring[at], n))
            break;
        r->first += n;
        r->taken_ns = now;
    }
    if (r->cut || r->first == r->end)
        r->taken_ns = now;
    if (r->cut || now > r->taken_ns + STALL_NS)
        tracer_cut(r, now);
}

/* ---- the update after a tick ---- */

static void stop_recording(struct traces *t)
{
    if (t->recording)
        engine_switches_end(t->recording);
    t->recording = NULL;
    t->takes_requests = false;
}

static void traces_collect(struct traces *t, struct engine *e, struct hints *h, uint64_t now)
{
    struct trace_target to = {.traces = t, .engine = e};
    const struct hints_reader reader = {put_request, put_lease, &to};
    bool counters = now >= t->counters_at;
    if (counters) {
        t->counters_at = now + COUNTER_NS;
        engine_watch(e);
        put_parts(t, e, now);
    }
    uint64_t began = thread_cpu_ns();
    compare_jobs(t, e, now, counters);
    put_switches(t, e, now);
    end_jobs(t, now);
    if (h) {
        hints_assign(h, e, now);
        hints_requests(h, t->takes_requests ? &reader : NULL);
        t->takes_requests = true;
    }
    for_each_tracer (t, r) {
        if (is_live(r) && r->fresh)
            describe_all(t, r, e, now);
    }
    t->jobs_at = now + (thread_cpu_ns() - began) * (COST_PART - 1);
}

uint64_t traces_update(struct traces *t, struct engine *e, struct hints *h, uint64_t now)
{
    bool any = false, all = false;
    if (!t)
        return TIME_NEVER;
    for_each_tracer (t, r) {
        any |= is_live(r);
        all |= r->used;
    }
    if (!any)
        stop_recording(t);
    if (!all) {
        free(t->seen);
        t->seen = NULL;
        return TIME_NEVER;
    }
    if (any && now >= t->jobs_at)
        traces_collect(t, e, h, now);
    for_each_tracer (t, r) {
        if (r->used && r->fd >= 0 && !r->dead)
            tracer_flush(r, now);
    }
    return now + (any ? LOOK_NS : CUT_NS);
}
