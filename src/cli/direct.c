/* See direct.h. */
#include "cli/direct.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/others.h"
#include "control/rules.h"
#include "device/registry.h"
#include "engine/manager.h"
#include "lib/paths.h"
#include "recovery/journal.h"
#include "recovery/restorer.h"

#define JOURNAL_WAIT_MS 2000
#define SETTLE_NS       (2 * NSEC_PER_SEC)
#define SEARCH_NS       (10 * NSEC_PER_SEC)

struct direct {
    struct journal *journal;
    struct device_driver *driver;
    struct manager *manager;
    bool weights;
};

static void free_all(struct direct *d)
{
    if (d->manager)
        manager_free(d->manager, false);
    device_close(d->driver);
    if (d->journal)
        journal_close(d->journal);
    free(d);
}

/* Scans and decides until nothing is due at once: a first scan may take several turns. Nobody else
 * waits for us, so a long search need not be spread over time. */
static void settle(struct manager *m)
{
    const uint64_t start = monotonic_ns();
    uint64_t now = start, next;
    bool again;
    do {
        now = max_u64(now + 1, monotonic_ns());
        next = manager_tick(m, now);
        again = next <= now && now - start < SETTLE_NS;
        if (manager_searching(m) && monotonic_ns() - start < SEARCH_NS) {
            again = true;
            now = max_u64(now, next);
        }
    } while (again);
}

int direct_open(struct direct **out, struct error *err)
{
    char dir[256];
    struct direct *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    int r = cede_dir(dir, sizeof(dir), err);
    if (r == 0)
        r = cede_dir_make(dir, err);
    if (r == 0)
        r = device_open("auto", NULL, &d->driver, err);
    if (r == 0)
        r = journal_open(dir, JOURNAL_WAIT_MS, &d->journal, err);
    if (r == 0) {
        struct manager_options options = {.policy = "static"};
        params_default(&options.params);
        struct device_address address = {.where = ""};
        snprintf(address.name, sizeof(address.name), "%s", d->driver->ops->name);
        if (restorer_address(d->journal, d->driver, &address))
            cli_error("note: some of what an earlier scheduler changed is on devices that cannot "
                      "be reached any more");
        r = manager_new(d->driver, d->journal, &options, &d->manager, err);
    }
    if (r < 0) {
        free_all(d);
        return r;
    }
    settle(d->manager);
    manager_undo_leftovers(d->manager);
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
        if (job && job->paused && is_descendant(g->proc.pid, job->root.pid))
            return false;
    }
    return g != NULL;
}

bool direct_abandoned(const struct journal *j)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g && (flags & JG_SUSPENDED) && proc_alive(g->proc) && is_abandoned(i, (void *)j))
            return true;
    }
    return false;
}

int direct_mend(const char *dir, struct error *err)
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
            r = error_set(err, -EIO, "%u channel groups could not be given back what they had",
                          failed);
        device_close(driver);
    }
    journal_close(j);
    return r;
}

static bool view(struct direct *d, uint32_t job, struct job_view *out)
{
    uint32_t cursor = job;
    return manager_next_job(d->manager, &cursor, out) && cursor == job + 1;
}

static int find_name(struct direct *d, const char *name, uint32_t *job, struct error *err)
{
    struct job_view v;
    *job = SLOT_NONE;
    for (uint32_t cursor = 0; manager_next_job(d->manager, &cursor, &v);) {
        if (strcmp(v.job.name, name) != 0)
            continue;
        if (*job != SLOT_NONE)
            return error_set(err, -EINVAL, "several jobs have this name: use a job's number");
        *job = cursor - 1;
    }
    return *job == SLOT_NONE ? error_set(err, -ESRCH, "no such job") : 0;
}

/* The job of a target; a process in no job becomes one, *adopted, unless it is to be let go. */
static int find(struct direct *d, const struct request *r, uint32_t *job, bool *adopted,
                struct error *err)
{
    *adopted = false;
    *job = SLOT_NONE;
    if (!r->pid && !r->number)
        return find_name(d, r->name, job, err);
    if (r->number) {
        *job = manager_job_by_number(d->manager, r->number);
        return *job == SLOT_NONE ? error_set(err, -ESRCH, "no such job") : 0;
    }
    struct proc_stat st;
    struct job_spec spec = {
        .class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .source = JOB_PID, .uid = getuid()};
    if (proc_stat_read(r->pid, &st) < 0 || proc_owner(r->pid, &spec.uid) < 0)
        return error_set(err, -ESRCH, "no such process");
    /* By the real user, so that a cede with file capabilities is no way into others' programs. */
    if (getuid() != 0 && spec.uid != getuid())
        return error_set(err, -EPERM, "belongs to another user (uid %u); only root may steer it",
                         spec.uid);
    *job = manager_job_of(d->manager, r->pid);
    if (*job != SLOT_NONE)
        return 0;
    if (r->release)
        return error_set(err, -ESRCH, "belongs to no job");
    rules_job_name(spec.name, st.comm, r->pid);
    *adopted = true;
    return manager_add(d->manager, st.id, &spec, job, err);
}

static bool fleeting(struct device_driver *d)
{
    struct gpu_info g;
    return d->ops->info(d, 0, &g) == 0 && (g.caps & GPU_CAP_FLEETING);
}

static int change(struct direct *d, const struct request *r, uint32_t job, struct error *err)
{
    struct job_view v;
    int code = 0;
    if (!view(d, job, &v))
        return error_set(err, -ESRCH, "no such process");
    if (r->op == OP_PAUSE && fleeting(d->driver))
        return error_set(err, -ENOTSUP,
                         "on this GPU a pause lasts as long as the process that makes it, and this "
                         "one ends now: start ceded");
    if (r->op == OP_SET && r->has_deadline)
        return error_set(err, -ENOTSUP,
                         "a deadline has to be watched: start ceded, or the program by `cede run`");
    if (r->op == OP_SET) {
        enum job_class class = r->has_class ? r->class : (enum job_class)v.job.class;
        uint32_t budget_us;
        code = request_budget(r, class, v.job.budget_us, &budget_us, err);
        if (code < 0)
            return code;
        code = manager_change(d->manager, job, class, r->has_weight ? r->weight : v.job.weight,
                              budget_us);
    } else {
        code = manager_pause(d->manager, job, r->op == OP_PAUSE, getuid());
    }
    return code < 0 ? error_set(err, code, "cannot be changed: %s", strerror(-code)) : 0;
}

int direct_do(struct direct *d, const struct request *r, json_t **reply, struct error *err)
{
    uint32_t job;
    bool adopted;
    struct job_view v;
    int code = find(d, r, &job, &adopted, err);
    if (code < 0)
        return code;
    if (r->release) {
        bool known = view(d, job, &v);
        manager_release(d->manager, job);
        settle(d->manager);
        *reply = json_pack("{s:o}", "job", known ? proto_job(&v) : json_null());
        return *reply ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    code = change(d, r, job, err);
    struct error note = {""};
    if (code == 0) {
        settle(d->manager);
        if (!view(d, job, &v))
            return error_set(err, -ESRCH, "no such process any more");
        code = manager_job_status(d->manager, job, &note);
        if (code == -ENODEV && adopted)
            error_set(err, code, "uses no GPU yet, and without a daemon nobody would see it begin");
        else if (code < 0)
            error_set(err, code, "%s", note.text);
    }
    if (code == -ENODEV && !adopted)
        code = 0; /* noted for when it has a context */
    /* A resumed process that was no job is only freed from what an earlier cede left behind. */
    bool keep = code == 0 && !(adopted && r->op == OP_RESUME);
    if (code == 0) {
        *reply =
            json_pack("{s:o, s:s*}", "job", proto_job(&v), "note", note.text[0] ? note.text : NULL);
        if (!*reply)
            code = error_set(err, -ENOMEM, "out of memory");
    }
    if (!keep && adopted) {
        manager_release(d->manager, job);
        settle(d->manager);
    }
    d->weights |= code == 0 && r->has_weight;
    return code;
}

void direct_close(struct direct *d)
{
    unsigned batch = 0;
    struct job_view v;
    for (uint32_t cursor = 0; manager_next_job(d->manager, &cursor, &v);)
        batch += v.job.class == CLASS_BATCH && !v.job.paused && v.groups;
    if (batch > 1)
        cli_error("note: %u batch jobs keep the driver's timeslices: taking turns needs a daemon "
                  "(start ceded)",
                  batch);
    if (d->weights)
        cli_error("note: weights are noted but have no effect without a daemon (start ceded)");
    free_all(d);
}
