/* See run_memory.h. This process is the job that waits, so the daemon drops it as soon as it ends,
 * and it is on record when another daemon takes over. It asks the daemon repeatedly, each time by a
 * new connection, since a user may have more waiting jobs than connections. */
#include "cli/run_memory.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/json_text.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/transient.h"

#define LOOK_NS        (100 * NSEC_PER_MSEC)
#define LOOK_LATER_NS  NSEC_PER_SEC /* after SOON_NS: as often as the daemon looks */
#define SOON_NS        (5 * NSEC_PER_SEC)
#define RESTART_NS     (5 * NSEC_PER_SEC)  /* in which a service manager starts the daemon again */
#define UNREACHABLE_NS (20 * NSEC_PER_SEC) /* without an answer, after which it stops waiting */
#define OWN_SHOWN      4                   /* jobs that are named */

struct waiting {
    const struct room_wait *w;
    struct client *peer;
    json_int_t number, gpu;
    pid_t daemon; /* the daemon that gave the number */
    uint64_t since_ns, answered_ns, report_ns;
    bool detached; /* by a person, so it is no job any more */
};

bool room_awaited(const json_t *job)
{
    return json_is_false(json_object_get(job, "room"));
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1U << 30);
}

static const char *duration(uint64_t ns, char buf[static 32])
{
    const unsigned long long s = ns / NSEC_PER_SEC;
    if (s <= 120)
        snprintf(buf, 32, "%llu s", s);
    else if (s < 7200)
        snprintf(buf, 32, "%llu min", s / 60);
    else
        snprintf(buf, 32, "%llu h", s / 3600);
    return buf;
}

/* ---- jobs before it ---- */

/* A list of jobs: the user's own by name, others as a count. */
struct crowd {
    char names[OWN_SHOWN * 96];
    unsigned own, others;
};

static void crowd_add(struct crowd *c, const json_t *job, json_int_t uid)
{
    char text[96];
    const char *name = json_get_text(job, "name");
    if (json_get_int(job, "uid") != uid || c->own == OWN_SHOWN) {
        c->others++;
        return;
    }
    c->own++;
    snprintf(text, sizeof(text), "#%lld %.64s", (long long)json_get_int(job, "number"),
             name ? name : "?");
    list_add(c->names, sizeof(c->names), text);
}

static void crowd_text(struct crowd *c, const char *before, char *buf, size_t size)
{
    const size_t n = strlen(buf);
    char text[32];
    snprintf(text, sizeof(text), "%u other job%s", c->others, c->others == 1 ? "" : "s");
    if (c->others)
        list_add(c->names, sizeof(c->names), text);
    if (c->names[0])
        snprintf(buf + n, size - n, "; %s%s", before, c->names);
}

/* Lists the jobs before this one and those that use its GPU's memory. all: as client_ps(). */
static void room_crowds(const json_t *all, json_int_t number, char *buf, size_t size)
{
    const json_t *jobs = json_object_get(all, "jobs"), *own = NULL, *stays = NULL;
    struct crowd before = {.own = 0}, users = {.own = 0};
    unsigned programs = 0;
    for_each_json (job, jobs)
        own = json_get_int(job, "number") == number ? job : own;
    const json_t *mine = json_object_get(own, "memory");
    const json_int_t gpu = json_get_int(mine, "gpu"), position = json_get_int(mine, "place");
    for_each_json (job, jobs) {
        const json_t *m = json_object_get(job, "memory"), *at = json_object_get(m, "place");
        bool same = m && json_get_int(m, "gpu") == gpu;
        if (at && same && json_integer_value(at) < position)
            crowd_add(&before, job, json_get_int(own, "uid"));
        else if (!at && ((same && json_is_true(json_object_get(job, "room"))) ||
                         (json_has_int(json_object_get(job, "gpus"), gpu) &&
                          json_get_int(job, "memory_bytes") > 0))) {
            crowd_add(&users, job, json_get_int(own, "uid"));
            stays = json_get_text(job, "swap_error") ? job : stays;
        }
    }
    for_each_json (program, json_object_get(all, "unmanaged"))
        programs += json_has_int(json_object_get(program, "gpus"), gpu);
    crowd_text(&before, "before it: ", buf, size);
    crowd_text(&users, "memory is held or reserved by: ", buf, size);
    size_t n = strlen(buf);
    if (stays)
        snprintf(buf + n, size - n, "; #%lld: %s", (long long)json_get_int(stays, "number"),
                 json_get_text(stays, "swap_error"));
    n = strlen(buf);
    if (json_get_true(mine, "infeasible"))
        snprintf(buf + n, size - n,
                 "; that is more than there is if all jobs end, so others go first");
    n = strlen(buf);
    if (programs)
        snprintf(buf + n, size - n, "; %u program%s of no job use%s that GPU", programs,
                 programs == 1 ? "" : "s", programs == 1 ? "s" : "");
}

/* Reports at the start, after 10 s, after a minute, and then every ten minutes. */
static void room_report(struct waiting *x)
{
    const struct room_wait *w = x->w;
    const uint64_t now = monotonic_ns(), so_far = now - x->since_ns;
    char crowds[1200] = "", time[32], most[48] = "", spent[48] = "";
    _cleanup_json_ json_t *all = NULL;
    if (w->quiet || now < x->report_ns)
        return;
    x->report_ns = x->since_ns + (so_far < 10 * NSEC_PER_SEC   ? 10 * NSEC_PER_SEC
                                  : so_far < 60 * NSEC_PER_SEC ? 60 * NSEC_PER_SEC
                                                               : so_far + 600 * NSEC_PER_SEC);
    if (client_ask_ps(false, &all, NULL) == 0)
        room_crowds(all, x->number, crowds, sizeof(crowds));
    if (so_far >= NSEC_PER_SEC)
        snprintf(spent, sizeof(spent), ", for %s so far", duration(so_far, time));
    if (w->wait_us != ROOM_NO_LIMIT)
        snprintf(most, sizeof(most), ", at most %s", duration(w->wait_us * NSEC_PER_USEC, time));
    cli_error("waiting for %.1f GiB on GPU %d%s%s%s", gib(w->request->memory_bytes), (int)x->gpu,
              spent, most, crowds);
}

/* ---- asking ---- */

/* Notes the job's GPU, which with `cede run --gpus` the daemon may change while the job waits. */
static void room_take_gpu(struct waiting *x, const json_t *job)
{
    const json_t *gpu = json_object_get(json_object_get(job, "memory"), "gpu");
    x->gpu = gpu ? json_integer_value(gpu) : x->gpu;
}

/* Makes this process a job, unless it is one. */
static int room_enroll(struct waiting *x, bool started, json_t **job, struct error *err)
{
    struct request r = *x->w->request;
    _cleanup_json_ json_t *reply = NULL;
    r.started = started;
    int code = client_call(x->peer, &r, &reply, err);
    if (code < 0)
        return code;
    *job = json_incref(json_object_get(reply, "job"));
    room_take_gpu(x, *job);
    x->number = json_get_int(*job, "number");
    x->daemon = x->peer->daemon_pid;
    return 0;
}

static int room_connect(const struct waiting *x, struct error *err)
{
    _cleanup_(transient_close) struct transient t = TRANSIENT_NONE;
    if (monotonic_ns() < x->answered_ns + RESTART_NS)
        return client_open(x->peer, err);
    return transient_connect(&t, x->w->device, x->peer, 0, err);
}

/* 1: the job still waits; 0: it does not. A daemon that took over may not know the job. */
static int room_look(struct waiting *x, struct error *err)
{
    _cleanup_json_ json_t *job = NULL;
    int r = room_connect(x, err);
    const bool same = x->peer->daemon_pid == x->daemon;
    if (r == 0)
        r = same ? client_job(x->peer, x->number, &job, err) : room_enroll(x, false, &job, err);
    client_close(x->peer);
    x->detached = r == -ESRCH && same;
    if (x->detached)
        return 0;
    bool waits = r == 0 && room_awaited(job);
    room_take_gpu(x, job);
    return r < 0 ? r : waits;
}

/* Ends the wait: the daemon is told that the job starts, so that the jobs behind it move up. */
static int room_give_up(struct waiting *x, struct error *err)
{
    const struct room_wait *w = x->w;
    char time[32];
    _cleanup_json_ json_t *job = NULL;
    if (client_open(x->peer, NULL) == 0)
        (void)room_enroll(x, true, &job, NULL);
    client_close(x->peer);
    return error_set(err, -ETIMEDOUT,
                     "%.1f GiB were not free on GPU %d within %s; `cede ps` shows which jobs hold "
                     "memory, and --wait waits longer",
                     gib(w->request->memory_bytes), (int)x->gpu,
                     duration(w->wait_us * NSEC_PER_USEC, time));
}

int room_wait(const struct room_wait *w, struct client *peer, const json_t *reply,
              struct error *err)
{
    const json_t *job = json_object_get(reply, "job");
    const uint64_t now = monotonic_ns();
    struct waiting x = {.w = w,
                        .peer = peer,
                        .number = json_get_int(job, "number"),
                        .gpu = w->request->gpu,
                        .daemon = peer->daemon_pid,
                        .since_ns = now,
                        .answered_ns = now,
                        .report_ns = now};
    if (!room_awaited(job) || x.number <= 0)
        return 0;
    room_take_gpu(&x, job);
    for (;;) {
        struct error why = {""};
        const uint64_t so_far = monotonic_ns() - x.since_ns;
        if (w->wait_us != ROOM_NO_LIMIT && so_far >= w->wait_us * NSEC_PER_USEC)
            return room_give_up(&x, err);
        room_report(&x);
        const uint64_t nap = so_far < SOON_NS ? LOOK_NS : LOOK_LATER_NS;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(nap / NSEC_PER_SEC),
                                     .tv_nsec = (long)(nap % NSEC_PER_SEC)},
                  NULL);
        int r = room_look(&x, &why);
        if (r == 0)
            return x.detached;
        if (r > 0)
            x.answered_ns = monotonic_ns();
        else if (r == -EPERM || r == -EACCES || r == -EINVAL || r == -EDQUOT ||
                 monotonic_ns() > x.answered_ns + UNREACHABLE_NS)
            return error_set(err, r, "it waits for GPU memory no longer: %s", why.text);
    }
}

void room_killed(const char *program)
{
    _cleanup_json_ json_t *reply = NULL;
    uint64_t number;
    struct error err;
    if (choose_job_of(getpid(), &number, &err) < 0 || number == UINT64_MAX)
        return;
    const struct request ask = {.op = OP_PS, .number = number - 1}; /* those after it */
    if (client_ask(&ask, &reply, &err) < 0)
        return;
    for_each_json (job, json_object_get(reply, "jobs")) {
        const char *why = json_get_text(job, "error");
        if ((uint64_t)json_get_int(job, "number") == number && why &&
            json_text_is(job, "memory_exceeded", "kill"))
            cli_error("'%s': %s", program, why);
    }
}
