/* See verbs.h. */
#include "control/verbs.h"

#include <errno.h>
#include <string.h>

#include "control/rules.h"
#include "lib/hints_proto.h"
#include "lib/procfs.h"

/* What a request is about: a job, or a process in none. */
struct target {
    uint32_t slot; /* SLOT_NONE: no job yet */
    struct job_view view;
    struct proc_id proc; /* of a request that names a pid */
    uid_t proc_uid;
    char comm[32];
};

static bool view_of(struct manager *m, uint32_t slot, struct job_view *out)
{
    uint32_t cursor = slot;
    return manager_next_job(m, &cursor, out) && cursor == slot + 1;
}

/* Who owned exactly this process: the same start time before and after. */
static int identify(pid_t pid, struct target *t, struct error *err)
{
    struct proc_stat before, after;
    if (pid == 1)
        return error_set(err, -EINVAL, "process 1 is everybody's ancestor, and no job");
    int r = proc_stat_read(pid, &before);
    if (r == 0)
        r = proc_owner(pid, &t->proc_uid);
    if (r == 0)
        r = proc_stat_read(pid, &after);
    if (r == 0 && (before.id.start_ticks != after.id.start_ticks || proc_ended(&after)))
        r = -ESRCH;
    if (r < 0)
        return error_set(
            err, r, r == -ESRCH ? "there is no process %d" : "cannot look at process %d", (int)pid);
    t->proc = after.id;
    snprintf(t->comm, sizeof(t->comm), "%s", after.comm);
    return 0;
}

static int find_by_name(struct manager *m, const char *name, uint32_t *slot, struct error *err)
{
    struct job_view v;
    char numbers[128] = "";
    unsigned found = 0;
    for (uint32_t cursor = 0; manager_next_job(m, &cursor, &v);) {
        if (strcmp(v.job.name, name) != 0)
            continue;
        *slot = cursor - 1;
        size_t n = strlen(numbers);
        if (found++ < 5)
            snprintf(numbers + n, sizeof(numbers) - n, "%s#%llu", n ? ", " : "",
                     (unsigned long long)v.number);
    }
    if (found > 1)
        return error_set(err, -ENOTUNIQ, "%u jobs are named %s: name one by its number (%s%s)",
                         found, name, numbers, found > 5 ? ", ..." : "");
    if (!found)
        return error_set(err, -ESRCH, "there is no job named %s; `cede ps` lists them", name);
    return 0;
}

static int find_target(struct manager *m, const struct request *r, struct target *t,
                       struct error *err)
{
    *t = (struct target){.slot = SLOT_NONE};
    if (r->pid) {
        /* A job's own process needs no looking up, which takes a tenth of what a pause does. */
        t->slot = r->op == OP_ADD ? SLOT_NONE : manager_job_with(m, r->pid);
        int e = t->slot == SLOT_NONE ? identify(r->pid, t, err) : 0;
        if (e < 0)
            return e;
        if (t->slot == SLOT_NONE)
            t->slot = manager_job_of(m, r->pid);
    } else if (r->number) {
        t->slot = manager_job_by_number(m, r->number);
        if (t->slot == SLOT_NONE)
            return error_set(err, -ESRCH, "there is no job #%llu; `cede ps` lists them",
                             (unsigned long long)r->number);
    } else {
        int e = find_by_name(m, r->name, &t->slot, err);
        if (e < 0)
            return e;
    }
    if (t->slot != SLOT_NONE && !view_of(m, t->slot, &t->view))
        return error_set(err, -ESRCH, "the job has just ended");
    return 0;
}

static int adopt(struct manager *m, const struct request *r, const struct caller *who,
                 struct target *t, struct error *err)
{
    struct job_view v;
    unsigned own = 0, users = 0;
    for (uint32_t cursor = 0; !who->admin && manager_next_job(m, &cursor, &v);) {
        own += v.job.uid == who->uid;
        users += v.job.uid != 0;
    }
    if (own >= USER_JOBS_MAX)
        return error_set(err, -ENOSPC, "you have %u jobs, and a user may have %d", own,
                         USER_JOBS_MAX);
    if (users >= USERS_JOBS_MAX)
        return error_set(err, -ENOSPC, "users have %u jobs, which is all that there is room for",
                         users);
    struct job_spec spec = {
        .class = r->has_class ? r->class : CLASS_NORMAL,
        .weight = r->has_weight ? r->weight : WEIGHT_DEFAULT,
        .source = r->run ? JOB_RUN : JOB_PID,
        .uid = t->proc_uid,
    };
    int e = request_budget(r, spec.class, 0, &spec.budget_us, err);
    spec.deadline_us = r->deadline_us;
    spec.laxity_us = r->laxity_us;
    spec.may_rise = who->admin && r->deadline_us;
    if (e < 0)
        return e;
    if (r->op == OP_ADD && r->name[0])
        snprintf(spec.name, sizeof(spec.name), "%s", r->name);
    else
        rules_job_name(spec.name, t->comm, t->proc.pid);
    return manager_add(m, t->proc, &spec, &t->slot, err);
}

static int change(struct manager *m, const struct request *r, const struct caller *who,
                  const struct target *t, struct error *err)
{
    const struct journal_job *job = &t->view.job;
    if (r->op == OP_SET) {
        enum job_class class = r->has_class ? r->class : (enum job_class)job->class;
        uint32_t budget_us;
        int e = request_budget(r, class, job->budget_us, &budget_us, err);
        if (e == 0)
            e = request_deadline(r, class, err);
        if (e == 0)
            e = manager_change(m, t->slot, class, r->has_weight ? r->weight : job->weight,
                               budget_us);
        if (e == 0 && r->has_deadline)
            e = manager_set_deadline(m, t->slot, r->deadline_us, r->laxity_us,
                                     who->admin && r->deadline_us);
        return e;
    }
    bool out = t->view.swap && t->view.swap[0];
    if (r->op == OP_SWAP_OUT) /* as with pausing, below */
        return out && !who->admin ? 0 : manager_swap_out(m, t->slot, who->uid, err);
    if (r->op == OP_SWAP_IN)
        return manager_swap_in(m, t->slot);
    /* Who paused it first keeps the say, so that pausing again does not become the right to resume;
     * an administrator takes it over. */
    if (r->op == OP_PAUSE && job->paused && !who->admin)
        return 0;
    return manager_pause(m, t->slot, r->op == OP_PAUSE, who->uid);
}

static json_t *job_reply(const struct job_view *v, const char *note)
{
    return json_pack("{s:i, s:b, s:o, s:s*}", "v", PROTO_VERSION, "ok", 1, "job", proto_job(v),
                     "note", note);
}

static void log_done(const struct verbs *v, const struct caller *who, const char *what,
                     const struct job_view *j)
{
    logger_say(v->log, LOG_INFO, "uid %u (pid %d): %s #%llu %s: class %s, weight %u%s", who->uid,
               (int)who->pid, what, (unsigned long long)j->number, j->job.name,
               job_class_name((enum job_class)j->job.class), j->job.weight,
               j->job.paused ? ", paused" : "");
}

static int steer(const struct verbs *v, const struct caller *who, const struct request *r,
                 json_t **reply, struct error *err)
{
    static const char *const done[] = {[OP_ADD] = "added",
                                       [OP_SET] = "set",
                                       [OP_PAUSE] = "paused",
                                       [OP_RESUME] = "resumed",
                                       [OP_SWAP_OUT] = "is to swap out",
                                       [OP_SWAP_IN] = "is to swap in"};
    struct manager *m = v->manager;
    struct target t;
    int e = find_target(m, r, &t, err);
    if (e < 0)
        return e;
    bool managed = t.slot != SLOT_NONE;
    struct subject s = {
        /* A process is added for its own sake, even out of somebody's job. */
        .owner = managed && r->op != OP_ADD ? t.view.job.uid : t.proc_uid,
        .managed = managed,
        .class = (enum job_class)t.view.job.class,
        .weight = t.view.job.weight,
        .budget_us = t.view.job.budget_us,
        .paused = t.view.job.paused,
        .paused_by = t.view.job.paused_by,
        .swapped = t.view.swap && t.view.swap[0],
        .swapped_by_user = t.view.swap_by_user,
        .swapped_by = t.view.swap_uid,
    };
    e = rights_check(who, r, &s, err);
    if (e < 0)
        return e;
    if (!managed && (r->op == OP_RESUME || r->op == OP_SWAP_IN || r->release))
        return error_set(err, -ESRCH, "process %d is in no job, so there is nothing to %s",
                         (int)r->pid,
                         r->release            ? "let go of"
                         : r->op == OP_SWAP_IN ? "swap in"
                                               : "resume");
    if (r->release && s.swapped)
        return error_set(err, -EBUSY, "job #%llu is swapped out: swap it in first",
                         (unsigned long long)t.view.number);
    if (r->release) {
        manager_release(m, t.slot);
        v->apply(v->arg);
        log_done(v, who, "released", &t.view);
        *reply = job_reply(&t.view, NULL);
        return 0;
    }

    if (r->op == OP_ADD || !managed) {
        e = adopt(m, r, who, &t, err);
        if (e < 0)
            return e;
        if (r->memory_bytes)
            e = manager_need(m, t.slot, r->memory_bytes, r->gpu, err);
        if (e < 0) {
            manager_release(m, t.slot);
            return e;
        }
        if (!view_of(m, t.slot, &t.view))
            return error_set(err, -ESRCH, "process %d has just ended", (int)r->pid);
    }
    if (r->op == OP_PAUSE || r->op == OP_SWAP_OUT || (r->op != OP_ADD && managed)) {
        struct error why = {""};
        e = change(m, r, who, &t, &why);
        if (e < 0)
            return error_set(err, e, "cannot change job #%llu: %s",
                             (unsigned long long)t.view.number,
                             why.text[0] ? why.text : strerror(-e));
    }

    uint64_t started = monotonic_ns();
    v->apply(v->arg); /* slots may have changed hands after this */
    uint64_t took_us = (monotonic_ns() - started) / NSEC_PER_USEC;
    uint32_t slot = manager_job_by_number(m, t.view.number);
    if (slot == SLOT_NONE || !view_of(m, slot, &t.view))
        return error_set(err, -ESRCH, "job #%llu has just ended",
                         (unsigned long long)t.view.number);
    struct error note = {""};
    int status = manager_job_status(m, slot, &note);
    if (status < 0 && !note.text[0])
        snprintf(note.text, sizeof(note.text), "%s", strerror(-status));
    log_done(v, who, done[r->op], &t.view);
    logger_say(v->log, LOG_DEBUG, "applied in %llu us", (unsigned long long)took_us);
    *reply = job_reply(&t.view, status < 0 ? note.text : NULL);
    return 0;
}

static json_t *caps_of(uint32_t caps)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = {{GPU_CAP_TIMESLICE, "timeslice"}, {GPU_CAP_SUSPEND, "suspend"},
               {GPU_CAP_USAGE, "usage"},         {GPU_CAP_ACTIVITY, "activity"},
               {GPU_CAP_SWAP, "swap"},           {GPU_CAP_GATE, "gate"}};
    json_t *a = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (caps & all[i].bit)
            json_array_append_new(a, json_string(all[i].name));
    }
    return a;
}

/* The names of some come from the programs that use them: asked each time. */
static json_t *gpus_of(struct device_driver *d)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        if (d->ops->info(d, i, &g) < 0 || !g.name[0])
            continue;
        unsigned level = g.caps & GPU_CAP_GATE ? LEVEL_GATE : LEVEL_QUEUE;
        if (!g.label[0])
            snprintf(g.label, sizeof(g.label), "%.12s%u", d->ops->name, i);
        json_array_append_new(a, json_pack("{s:i, s:s, s:s, s:s, s:i, s:s, s:o}", "index", (int)i,
                                           "label", g.label, "name", g.name, "uuid", g.uuid,
                                           "level", (int)level, "level_name",
                                           device_level_name(level), "caps", caps_of(g.caps)));
    }
    return a;
}

struct numbered {
    uint64_t number;
    uint32_t slot;
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct numbered *)a)->number, y = ((const struct numbered *)b)->number;
    return x < y ? -1 : x > y;
}

/* Slots are reused and numbers are not, so pages go by number: a job that comes or goes between two
 * pages neither hides another nor shows it twice. */
static int ps(const struct verbs *v, const struct request *r, json_t **reply, struct error *err)
{
    struct manager *m = v->manager;
    struct device_driver *d = manager_driver(m);
    struct numbered *all = calloc(JOURNAL_JOBS, sizeof(*all));
    json_t *jobs = json_array();
    json_t *o = json_pack("{s:i, s:b, s:b, s:s, s:s, s:o, s:i, s:O}", "v", PROTO_VERSION, "ok", 1,
                          "more", 0, "policy", manager_policy(m), "device", device_name(d), "gpus",
                          gpus_of(d), "pid", (int)getpid(), "jobs", jobs);
    json_decref(jobs); /* o holds it */
    if (!all || !o) {
        json_decref(o);
        free(all);
        return error_set(err, -ENOMEM, "no memory for the list of jobs");
    }
    size_t n = 0;
    struct job_view view;
    manager_watch(m);
    uint64_t now = monotonic_ns();
    if (v->hints)
        hints_assign(v->hints, m, now);
    for (uint32_t cursor = 0; n < JOURNAL_JOBS && manager_next_job(m, &cursor, &view);) {
        if (view.number > r->number)
            all[n++] = (struct numbered){view.number, cursor - 1};
    }
    qsort(all, n, sizeof(*all), by_number);

    size_t used = json_dumpb(o, NULL, 0, JSON_COMPACT) + 1; /* "more":true is shorter than false */
    for (size_t i = 0; i < n; i++) {
        if (!view_of(m, all[i].slot, &view))
            continue;
        json_t *job = proto_job(&view);
        json_t *requests = v->hints ? hints_of(v->hints, view.number, now) : NULL;
        if (requests)
            json_object_set_new(job, "requests", requests);
        size_t size = json_dumpb(job, NULL, 0, JSON_COMPACT) + 1; /* comma */
        if (used + size > PROTO_MESSAGE_MAX) {
            json_decref(job);
            json_object_set_new(o, "more", json_true());
            break;
        }
        used += size;
        json_array_append_new(jobs, job);
    }
    free(all);
    *reply = o;
    return 0;
}

/* Both or neither: a policy that is there with parameters that are fit. */
static int set_policy(struct manager *m, const struct request *r, const char *known,
                      struct error *err)
{
    struct sched_params params = *manager_params(m);
    const struct param *what;
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (r->params & 1U << i)
            param_set(&params, param_at(i), r->param[i]);
    }
    if (params_check(&params, &what) < 0)
        return error_set(err, -EINVAL, "%s would be %.10g: %s", what->name,
                         param_get(&params, what), what->allowed);
    if (r->name[0] && manager_set_policy(m, r->name) < 0)
        return error_set(err, -EINVAL, "there is no policy %s; there are %s", r->name, known);
    return r->params ? manager_set_params(m, &params) : 0;
}

static int policy(const struct verbs *v, const struct caller *who, const struct request *r,
                  json_t **reply, struct error *err)
{
    int e = rights_check(who, r, NULL, err);
    if (e < 0)
        return e;
    json_t *list = json_array();
    char known[128] = "";
    const char *name, *summary;
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++) {
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "summary", summary));
        size_t n = strlen(known);
        snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", name);
    }
    if (r->name[0] || r->params) {
        e = set_policy(v->manager, r, known, err);
        if (e < 0) {
            json_decref(list);
            return e;
        }
        v->apply(v->arg);
        logger_say(v->log, LOG_INFO, "uid %u (pid %d): policy %s%s", who->uid, (int)who->pid,
                   manager_policy(v->manager), r->params ? ", other parameters" : "");
    }
    *reply = json_pack("{s:i, s:b, s:s, s:o, s:o}", "v", PROTO_VERSION, "ok", 1, "policy",
                       manager_policy(v->manager), "policies", list, "params",
                       proto_params(manager_params(v->manager)));
    return 0;
}

static int hints(const struct verbs *v, const struct caller *who, json_t **reply, int *fd,
                 struct error *err)
{
    if (!v->hints)
        return error_set(err, -ENOTSUP, "this daemon does not listen to hints");
    int e = hints_open(v->hints, who, fd, err);
    if (e == 0)
        *reply = json_pack("{s:i, s:b, s:i, s:i}", "v", PROTO_VERSION, "ok", 1, "hints",
                           HINTS_VERSION, "pid", (int)who->pid);
    return e;
}

char *verbs_refusal(int code, const struct error *err)
{
    json_t *o = proto_error(code, err);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

char *verbs_answer(const struct verbs *v, const struct caller *who, const char *text, size_t n,
                   int *fd)
{
    struct request r;
    struct error err = {""};
    json_t *reply = NULL;
    *fd = -1;
    int e = proto_parse(text, n, &r, &err);
    if (e == 0) {
        switch (r.op) {
        case OP_ADD:
        case OP_SET:
        case OP_PAUSE:
        case OP_RESUME:
        case OP_SWAP_OUT:
        case OP_SWAP_IN:
            e = steer(v, who, &r, &reply, &err);
            break;
        case OP_PS:
            e = ps(v, &r, &reply, &err);
            break;
        case OP_HINTS:
            e = hints(v, who, &reply, fd, &err);
            break;
        case OP_POLICY:
            e = policy(v, who, &r, &reply, &err);
            break;
        }
    }
    if (e < 0) {
        logger_say(v->log, LOG_DEBUG, "uid %u (pid %d): refused: %s", who->uid, (int)who->pid,
                   err.text);
        return verbs_refusal(e, &err);
    }
    char *out = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
    json_decref(reply);
    return out;
}
