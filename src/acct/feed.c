/* See feed.h. */
#include "acct/feed.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "acct/database.h"
#include "acct/days.h"
#include "acct/recorder.h"
#include "api/server.h"
#include "base/child.h"
#include "base/log.h"
#include "base/loop_poll.h"
#include "base/paths.h"
#include "journal/swapper.h"
#include "who/cgroup.h"

#define LOOK_NS        (60 * NSEC_PER_SEC)  /* between looks at living jobs */
#define LATER_NS       NSEC_PER_SEC         /* until a look that waits for earlier rows */
#define LOOK_JOBS      64U                  /* jobs per tick, so that ticks stay short */
#define STEP_NS        (10 * NSEC_PER_MSEC) /* until the next part of a look */
#define HOUR_S         3600
#define JUMP_S         60    /* a larger change of the clock is no drift: it was set */
#define QUEUE_MAX      8192U /* rows: two per job */
#define QUEUE_MIN      64U
#define BACKOFF_MIN_NS NSEC_PER_SEC
#define BACKOFF_MAX_NS (30 * NSEC_PER_SEC)
#define LAST_MS        500 /* for the last rows */

_Static_assert(ACCT_NAME_MAX == JOB_NAME_MAX, "");

/* A living job and its present row. */
struct acct_job {
    uint64_t number, piece;
    int64_t begin_s;      /* when the row began, by the wall clock, */
    int64_t begin_boot_s; /* and in seconds since the boot */
    uint32_t class;
    bool listed;                    /* the row is separate; else it is a part of a sum (days.h) */
    bool summed;                    /* a part of the job is in a sum */
    uint64_t base[ACCT_SUMS_COUNT]; /* the job's totals when the row began */
    struct workload workload;
};

struct acct {
    char state[160], socket[128];
    ino_t inode; /* of the socket */
    struct acct_settings settings;
    int64_t boot;
    struct acct_job *jobs[JOURNAL_JOBS]; /* by slot */
    uint32_t njobs;
    uint64_t look_at;
    uint32_t cursor; /* slot at which an unfinished look goes on */
    struct hints *hints;

    /* A ring of cap messages, of which n are in use; the first `sent` were sent to the recorder. */
    struct acct_message *queue;
    size_t cap, head, n, sent;
    uint64_t seq, told_dropped;
    struct acct_days days;

    uv_loop_t *loop;
    uv_poll_t *poll; /* of the link */
    int link, listen;
    pid_t recorder; /* 0: none */
    bool off;       /* no recorder is started until ceded is reloaded */
    uint64_t started_ns, start_at, backoff_ns;
};

/* ---- the queue ---- */

static struct acct_message *queue_at(const struct acct *a, size_t i)
{
    return &a->queue[(a->head + i) % a->cap];
}

static bool queue_grow(struct acct *a)
{
    size_t cap = a->cap ? a->cap * 2 : QUEUE_MIN;
    struct acct_message *v = cap <= QUEUE_MAX ? calloc(cap, sizeof(*v)) : NULL;
    for (size_t i = 0; v && i < a->n; i++)
        v[i] = *queue_at(a, i);
    if (!v)
        return false;
    free(a->queue);
    a->queue = v;
    a->cap = cap;
    a->head = 0;
    return true;
}

static void queue_put(void *arg, const struct acct_row *row)
{
    struct acct *a = arg;
    if (a->n == a->cap && !queue_grow(a)) {
        if (!a->settings.dropped++)
            log_say(LOG_WARNING, "accounting rows are not written and there is no room for more: "
                                 "from now on they are only counted");
        return;
    }
    *queue_at(a, a->n++) = (struct acct_message){.kind = ACCT_ROW, .seq = ++a->seq, .row = *row};
}

static void queue_send(struct acct *a)
{
    while (a->link >= 0 && a->sent < a->n) {
        const struct acct_message *m = queue_at(a, a->sent);
        ssize_t n = send(a->link, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n != (ssize_t)sizeof(*m))
            return; /* the recorder has no room until it has confirmed some, or has died */
        a->sent++;
    }
}

static void queue_written(struct acct *a, uint64_t seq)
{
    while (a->sent && queue_at(a, 0)->seq <= seq) {
        a->head = (a->head + 1) % a->cap;
        a->n--;
        a->sent--;
    }
}

/* ---- the recorder ---- */

static void recorder_unlink(struct acct *a)
{
    loop_poll_stop(&a->poll);
    close_p(&a->link);
    a->link = -1;
    a->sent = 0;
}

static bool take_answers(struct acct *a)
{
    uint64_t seq;
    ssize_t n;
    while ((n = recv_last(a->link, &seq, sizeof(seq), MSG_DONTWAIT)) == (ssize_t)sizeof(seq))
        queue_written(a, seq);
    return n != 0; /* an error, such as lack of memory, does not mean that it has ended */
}

static void on_answer(uv_poll_t *p, int status, int events)
{
    struct acct *a = p->data;
    if (!take_answers(a))
        uv_poll_stop(p); /* it has ended, and acct_reap() follows after SIGCHLD */
    queue_send(a);
}

static void send_settings(struct acct *a)
{
    const struct acct_message m = {.kind = ACCT_SETTINGS, .settings = a->settings};
    if (a->link >= 0 && send(a->link, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        a->told_dropped = a->settings.dropped;
}

static int recorder_start(struct acct *a, uint64_t now)
{
    a->started_ns = now;
    a->backoff_ns = clamp_u64(a->backoff_ns * 2, BACKOFF_MIN_NS, BACKOFF_MAX_NS);
    a->start_at = now + a->backoff_ns;
    const struct child_spec spec = {.file = CHILD_SELF,
                                    .argv = (const char *const[]){"cede-acct", a->state, NULL},
                                    .fds = {{a->listen, ACCT_LISTEN_FD}},
                                    .session = true,
                                    .fresh = true};
    int r = a->link = child_start_linked(&spec, CHILD_SOCKET, ACCT_LINK_FD, &a->recorder);
    if (r >= 0)
        r = loop_poll_start(a->loop, a->link, UV_READABLE, on_answer, a, &a->poll);
    if (r < 0) { /* a recorder without its link ends */
        recorder_unlink(a);
        return r;
    }
    send_settings(a);
    queue_send(a);
    return 0;
}

void acct_reap(struct acct *a, uint64_t now)
{
    int status;
    if (!a->recorder || waitpid(a->recorder, &status, WNOHANG) != a->recorder)
        return;
    (void)take_answers(a); /* answers from before it died */
    recorder_unlink(a);
    a->off = WIFEXITED(status) && WEXITSTATUS(status) == ACCT_EXIT_OFF;
    if (now - a->started_ns > BACKOFF_MAX_NS)
        a->backoff_ns = BACKOFF_MIN_NS;
    a->start_at = now + a->backoff_ns;
    log_say(LOG_WARNING, "cede-acct (pid %d), for accounting, has ended (%s %d); %s",
            (int)a->recorder, WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
            a->off ? "there are none until ceded is reloaded" : "another follows");
    a->recorder = 0;
}

/* ---- rows ---- */

static int64_t seconds_of(clockid_t clock)
{
    return (int64_t)(read_clock_ns(clock) / NSEC_PER_SEC);
}

static int64_t now_s(void)
{
    return seconds_of(CLOCK_REALTIME);
}

static void row_begins(struct acct_job *x)
{
    x->begin_s = now_s();
    x->begin_boot_s = seconds_of(CLOCK_BOOTTIME);
}

/* When the row began. If the clock was set meanwhile, the new time counts for the whole row. */
static int64_t row_begin(const struct acct_job *x, int64_t end_s)
{
    const int64_t begin_s = end_s - (seconds_of(CLOCK_BOOTTIME) - x->begin_boot_s);
    return llabs(begin_s - x->begin_s) > JUMP_S ? begin_s : x->begin_s;
}

static void totals_of(const struct acct *a, uint32_t slot, const struct job_view *v,
                      uint64_t out[ACCT_SUMS_COUNT])
{
    const struct job_totals *c = &v->counts;
    const struct hints_sums h = hints_sum(a->hints, slot, v->number);
    memset(out, 0, ACCT_SUMS_COUNT * sizeof(*out));
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        out[ACCT_GPU_NS] += c->on[d].exact_ns + c->on[d].sampled_ns;
        out[ACCT_EXACT_NS] += c->on[d].exact_ns;
        out[ACCT_ALLOWED_NS] += c->on[d].ran_ns;
        out[ACCT_WAITED_NS] += c->on[d].waited_ns;
        out[ACCT_TURNS] += c->on[d].turns;
        out[ACCT_PREEMPTED] += c->on[d].preempted;
    }
    for (int w = 0; w < WHERE_COUNT; w++)
        out[ACCT_KNOWN_NS] += c->where_ns[w];
    out[ACCT_QUEUED_NS] = c->where_ns[WHERE_QUEUED];
    out[ACCT_PAUSED_NS] = c->where_ns[WHERE_PAUSED];
    out[ACCT_SWAPPED_NS] = c->where_ns[WHERE_SWAPPED];
    out[ACCT_SWAPS] = c->swaps;
    out[ACCT_SWAPPED_BYTES] = c->swapped_bytes;
    out[ACCT_REQUESTS] = h.ended;
    out[ACCT_DUE] = h.due;
    out[ACCT_MET] = h.met;
}

/* Puts the present row of the job in this slot into the queue. next: begins another one. */
static void feed_row(struct acct *a, uint32_t slot, const struct job_view *v, bool ends, bool next)
{
    struct acct_job *x = a->jobs[slot];
    struct acct_row r = {.boot = a->boot,
                         .number = x->number,
                         .start_ticks = v->job.root.start_ticks,
                         .session = a->settings.session,
                         .piece = x->piece,
                         .end_s = now_s(),
                         .ended = ends,
                         .uid = v->job.uid,
                         .class = x->class,
                         .workload = x->workload,
                         .pod = v->pod};
    uint64_t totals[ACCT_SUMS_COUNT];
    r.begin_s = row_begin(x, r.end_s);
    if (r.end_s < r.begin_s) /* the clock was set back by seconds */
        r.end_s = r.begin_s;
    totals_of(a, slot, v, totals);
    /* Numbers that programs report may shrink. */
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        r.sums[i] = totals[i] - min_u64(x->base[i], totals[i]);
    for_each (g, v->counts.on, DEVICE_GPUS_MAX)
        r.gpus += g->ran_ns || g->exact_ns || g->sampled_ns;
    snprintf(r.name, sizeof(r.name), "%s", v->job.name);
    snprintf(r.account, sizeof(r.account), "%s", v->job.account);
    struct acct_day *day = acct_day_of(&a->days, v->job.principal, r.account, r.end_s / DAY_S);
    x->listed = x->listed || acct_day_takes(day);
    if (x->listed) {
        queue_put(a, &r);
    } else {
        acct_day_add(&a->days, day, &r, !x->summed);
        x->summed = true;
    }
    if (!next && x->listed)
        return;
    x->listed = false;
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        x->base[i] = max_u64(x->base[i], totals[i]);
    x->piece++;
    row_begins(x);
    x->class = v->job.class;
}

static void job_begins(struct acct *a, uint32_t slot, const struct job_view *v)
{
    struct acct_job *x = calloc(1, sizeof(*x));
    if (!x) {
        a->settings.dropped++;
        return;
    }
    a->njobs += !a->jobs[slot];
    free(a->jobs[slot]);
    a->jobs[slot] = x;
    x->number = v->number;
    row_begins(x);
    x->class = v->job.class;
    cgroup_workload(v->job.root.pid, false, &x->workload);
    unsigned long long slurm_job; /* for Slurm without control groups, or with version 1 */
    if (v->job.source == JOB_SLURM && sscanf(v->job.name, SLURM_JOB_NAME "%llu", &slurm_job) == 1)
        x->workload.slurm_job = slurm_job;
}

void acct_job_changed(void *arg, uint32_t job, const struct job_view *v, bool ends)
{
    struct acct *a = arg;
    if (!ends) {
        job_begins(a, job, v);
        return;
    }
    if (!a->jobs[job])
        return;
    feed_row(a, job, v, true, false);
    free(a->jobs[job]);
    a->jobs[job] = NULL;
    a->njobs--;
}

/* Makes rows of `most` living jobs, from the cursor on. Returns whether all are done. */
static bool feed_look(struct acct *a, const struct engine *e, uint32_t most)
{
    const int64_t hour = now_s() / HOUR_S;
    struct job_view v;
    for (; a->cursor < JOURNAL_JOBS && most; a->cursor++) {
        const struct acct_job *x = a->jobs[a->cursor];
        if (!x || !engine_view(e, a->cursor, &v) || v.number != x->number)
            continue;
        feed_row(a, a->cursor, &v, false, x->begin_s / HOUR_S != hour || x->class != v.job.class);
        most--;
    }
    const bool all = a->cursor == JOURNAL_JOBS;
    if (all)
        acct_days_put(&a->days);
    a->cursor = all ? 0 : a->cursor;
    return all;
}

/* Looks at living jobs; returns when to look again. */
static uint64_t feed_look_due(struct acct *a, const struct engine *e, uint64_t now)
{
    if (!a->cursor && a->n) /* earlier rows are not yet written */
        return now + LATER_NS;
    if (!feed_look(a, e, LOOK_JOBS))
        return now + STEP_NS;
    return now + min_u64(LOOK_NS, (uint64_t)(HOUR_S - now_s() % HOUR_S) * NSEC_PER_SEC);
}

uint64_t acct_tick(struct acct *a, struct engine *e, uint64_t now)
{
    uint64_t next = TIME_NEVER;
    if (a->hints && hints_unassigned(a->hints))
        hints_assign(a->hints, e, now);
    if ((a->njobs || a->days.changed) && !a->off) {
        if (now >= a->look_at)
            a->look_at = feed_look_due(a, e, now);
        next = a->look_at;
    }
    if (!a->recorder && !a->off) {
        int r = now >= a->start_at ? recorder_start(a, now) : 0;
        if (r < 0)
            log_say(LOG_WARNING, "cannot start cede-acct for accounting: %s", strerror(-r));
        next = a->recorder ? next : min_u64(next, a->start_at);
    }
    queue_send(a);
    if (a->settings.dropped != a->told_dropped && a->link >= 0)
        send_settings(a);
    return next;
}

/* ---- beginning and end ---- */

struct acct *acct_new(uv_loop_t *loop, const char *dir, const char *state, gid_t admin_gid,
                      uint32_t keep_days, struct error *err)
{
    char boot[37];
    if (!acct_db_built()) {
        error_set(err, -ENOSYS, "this cede was built without SQLite");
        return NULL;
    }
    if (cede_dir_make(state, err) < 0)
        return NULL;
    struct acct *a = calloc(1, sizeof(*a));
    if (!a || proc_boot_id(boot) < 0) {
        free(a);
        error_set(err, -ENOMEM, "no memory, or no /proc");
        return NULL;
    }
    snprintf(a->state, sizeof(a->state), "%s", state);
    snprintf(a->socket, sizeof(a->socket), "%s/" ACCT_SOCKET, dir);
    boot[8] = '\0'; /* 32 bits suffice to distinguish boots of one machine */
    a->boot = (int64_t)strtoll(boot, NULL, 16);
    a->settings = (struct acct_settings){.admin_gid = admin_gid,
                                         .keep_days = keep_days,
                                         .session = (int64_t)read_clock_ns(CLOCK_REALTIME)};
    a->days.put = queue_put;
    a->days.arg = a;
    a->loop = loop;
    a->link = -1;
    a->listen = server_listen(a->socket, err);
    if (a->listen < 0) {
        free(a);
        return NULL;
    }
    a->inode = server_inode(a->socket);
    return a;
}

void acct_use_hints(struct acct *a, struct hints *h)
{
    a->hints = h;
}

void acct_configure(struct acct *a, gid_t admin_gid, uint32_t keep_days)
{
    a->settings.admin_gid = admin_gid;
    a->settings.keep_days = keep_days;
    if (a->off)
        a->start_at = a->backoff_ns = 0;
    a->off = false;
    send_settings(a);
}

void acct_finish(struct acct *a, struct engine *e)
{
    engine_last_look(e, monotonic_ns());
    a->cursor = 0;
    feed_look(a, e, JOURNAL_JOBS);
    if (!a->recorder && !a->off && a->n)
        (void)recorder_start(a, monotonic_ns());
    queue_send(a);
}

void acct_free(struct acct *a)
{
    if (!a)
        return;
    const uint64_t until = monotonic_ns() + LAST_MS * NSEC_PER_MSEC;
    for (uint64_t now; a->link >= 0 && a->n && (now = monotonic_ns()) < until; queue_send(a)) {
        struct pollfd p = {.fd = a->link, .events = POLLIN};
        (void)poll(&p, 1, (int)((until - now) / NSEC_PER_MSEC) + 1);
        if (!take_answers(a))
            break;
    }
    recorder_unlink(a);
    while (a->recorder && waitpid(a->recorder, NULL, WNOHANG) == 0 && monotonic_ns() < until)
        usleep(1000);
    if (server_inode(a->socket) == a->inode) /* else it is a successor's socket */
        unlink(a->socket);
    close(a->listen);
    for (uint32_t i = 0; i < JOURNAL_JOBS; i++)
        free(a->jobs[i]);
    free(a->queue);
    free(a);
}
