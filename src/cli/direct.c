/* See direct.h. */
#include "cli/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "control/replies.h"
#include "control/verbs.h"
#include "device/registry.h"
#include "lib/paths.h"
#include "recovery/other.h"
#include "recovery/restorer.h"

#define JOURNAL_WAIT_MS 2000
#define QUIESCE_NS      (2 * NSEC_PER_SEC)
#define SEARCH_NS       (10 * NSEC_PER_SEC)

struct direct {
    uv_loop_t loop;
    bool loop_open;
    struct journal *journal;
    struct device_driver *driver;
    struct device_address address;
    struct engine *engine;
    struct verbs verbs;
    bool weights, limits;
};

static void free_all(struct direct *d)
{
    if (d->engine)
        engine_free(d->engine, false);
    device_close(d->driver);
    if (d->journal)
        journal_close(d->journal);
    if (d->loop_open) {
        uv_run(&d->loop, UV_RUN_DEFAULT);
        uv_loop_close(&d->loop);
    }
    free(d);
}

/* Observes and applies until nothing is due at once: a first scan may take several ticks. Nobody
 * else waits for us, so a long search need not be spread over time. */
static void quiesce(struct direct *d)
{
    const uint64_t start = monotonic_ns();
    uint64_t now = start, next;
    bool again;
    do {
        uv_run(&d->loop, UV_RUN_NOWAIT);
        now = max_u64(now + 1, monotonic_ns());
        next = engine_tick(d->engine, now);
        again = next <= now && now - start < QUIESCE_NS;
        if (engine_searching(d->engine) && monotonic_ns() - start < SEARCH_NS) {
            again = true;
            now = max_u64(now, next);
        }
    } while (again);
}

static int start_engine(struct direct *d, struct error *err)
{
    struct engine_options options = {.loop = &d->loop, .policy = "static", .once = true};
    params_default(&options.params);
    if (restorer_address(d->journal, d->driver, &d->address))
        cli_error("note: an earlier scheduler changed programs on devices that cannot be reached "
                  "any more");
    const struct journal_place own = journal_place(d->journal);
    int r = other_cedes_refuse(journal_shared(d->journal), &own, 0, err);
    if (r < 0)
        return r;
    r = engine_new(d->driver, d->journal, &options, &d->engine, err);
    d->verbs = (struct verbs){.engine = d->engine, .once = true};
    return r;
}

/* The GPUs of this machine; where there are none, those of the jobs on record: a daemon may have
 * been configured for a software GPU that this environment does not name. */
static int direct_open_device(struct direct *d, const char *dir, struct error *err)
{
    char path[300];
    struct error other;
    int r = device_open("auto", NULL, &d->driver, err);
    if (r == 0)
        device_default_address(d->driver, &d->address);
    if (r != -ENODEV)
        return r;
    snprintf(path, sizeof(path), "%s/journal", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct device_address *a = &d->address;
    if (fd >= 0 && journal_devices(fd, a->name, a->where) == 0 && a->name[0] &&
        device_open(a->name, a->where[0] ? a->where : NULL, &d->driver, &other) == 0)
        r = 0;
    if (fd >= 0)
        close(fd);
    return r;
}

int direct_open(struct direct **out, struct error *err)
{
    char dir[256];
    struct direct *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    int r = uv_loop_init(&d->loop);
    d->loop_open = r == 0;
    if (r < 0)
        error_set(err, r, "cannot start an event loop: %s", uv_strerror(r));
    if (r == 0)
        r = cede_dir(dir, sizeof(dir), err);
    if (r == 0)
        r = cede_dir_make(dir, err);
    if (r == 0)
        r = direct_open_device(d, dir, err);
    if (r == 0)
        r = journal_open(dir, JOURNAL_WAIT_MS, &d->journal, err);
    if (r == 0)
        r = start_engine(d, err);
    if (r < 0) {
        free_all(d);
        return r;
    }
    quiesce(d);
    engine_undo_orphans(d->engine);
    *out = d;
    return 0;
}

/* Not of a process that a person has paused. */
static bool is_abandoned(uint32_t slot, void *arg)
{
    const struct journal *j = arg;
    uint32_t flags;
    const struct device_group *g = journal_group(j, slot, &flags);
    for (uint32_t i = 0; g && i < journal_jobs_end(j); i++) {
        const struct journal_job *job = journal_job(j, i);
        if (job && job->paused && proc_in_tree(g->proc.pid, job->root.pid))
            return false;
    }
    return g != NULL;
}

bool direct_abandoned(const struct journal *j)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g && (flags & (JG_SUSPENDED | JG_STOPPED)) && proc_alive(g->proc) &&
            is_abandoned(i, (void *)j))
            return true;
    }
    return false;
}

int direct_repair(const char *dir, struct error *err)
{
    struct journal *j;
    struct device_driver *driver;
    int r = journal_open(dir, 0, &j, err);
    if (r < 0)
        return r;
    const struct journal_shared *s = journal_shared(j);
    r = device_open(s->driver[0] ? s->driver : "auto", s->where[0] ? s->where : NULL, &driver, err);
    if (r == 0) {
        unsigned failed = journal_undo(j, driver, is_abandoned, j);
        if (failed)
            r = error_set(err, -EIO, "%u channel groups could not be restored", failed);
        device_close(driver);
    }
    journal_close(j);
    return r;
}

/* The reply is composed below, when scans have shown what there is. */
static void on_done(struct verb *v, char *reply)
{
    free(reply);
}

/* By the real user, so that a cede with file capabilities is no way into others' programs. */
static struct caller direct_caller(void)
{
    return (struct caller){
        .uid = getuid(), .account = getuid(), .pid = getpid(), .admin = getuid() == 0};
}

void direct_unmanaged(struct direct *d, json_t *reply)
{
    const struct caller who = direct_caller();
    reply_add_unmanaged(reply, d->engine, &who);
}

int direct_do(struct direct *d, const struct request *r, json_t **reply, struct error *err)
{
    struct verb v;
    const struct caller who = direct_caller();
    struct error note = {""};
    verb_init(&v, &d->verbs, &who, r);
    v.done = on_done;
    engine_submit(d->engine, &v.command);
    quiesce(d);
    int code = v.command.code;
    if (code < 0)
        return error_set(err, code, "%s", v.error.text);
    uint32_t job = engine_job_by_number(d->engine, v.target.view.number);
    if (!r->release && !engine_view(d->engine, job, &v.target.view))
        return error_set(err, -ESRCH, "the process has ended");
    if (!r->release)
        code = engine_job_status(d->engine, job, &note);
    if (code == -ENODEV && v.adopted)
        error_set(
            err, code,
            "uses no GPU yet, and without a daemon its start would go unnoticed: start ceded");
    else if (code == -ENODEV)
        code = 0; /* noted for when it has a context */
    else if (code < 0)
        error_set(err, code, "%s", note.text);
    if (code == 0) {
        *reply = reply_job(&v.target.view, note.text[0] ? note.text : v.note[0] ? v.note : NULL);
        code = *reply ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    /* A resumed process that was no job is only freed from what an earlier cede left behind. */
    if (v.adopted && (code < 0 || r->op == OP_RESUME)) {
        engine_release(d->engine, job);
        quiesce(d);
    }
    d->weights |= code == 0 && r->has_weight;
    d->limits |= code == 0 && (r->has_gpu_min || r->has_gpu_max);
    return code;
}

void direct_close(struct direct *d)
{
    unsigned batch = 0;
    struct job_view v;
    for (uint32_t cursor = 0; engine_next_job(d->engine, &cursor, &v);)
        batch += v.job.class == CLASS_BATCH && !v.job.paused && v.groups;
    if (batch > 1)
        cli_error("note: %u batch jobs keep the driver's timeslices: taking turns needs a daemon "
                  "(start ceded)",
                  batch);
    if (d->weights || d->limits)
        cli_error("note: weights and limits are recorded, but have no effect without a daemon "
                  "(start ceded)");
    free_all(d);
}
