/* See discovery.h. */
#include "engine/observe/discovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"

/* A new job is looked for closely, because until it is found it runs with the driver's default. */
#define DISCOVER_FAST_NS  (100 * NSEC_PER_MSEC)
#define DRIVER_NS         NSEC_PER_SEC /* between looks at the driver's release */
#define DISCOVER_SLOW_NS  NSEC_PER_SEC
#define DISCOVER_YOUNG_NS (60 * NSEC_PER_SEC)
#define CLIENTS_NS        (5 * NSEC_PER_MSEC) /* for programs in no job, each time; */
#define RULES_NS          (5 * NSEC_PER_MSEC) /* and for what they shall be */

/* The driver lists a process once it has a context: time to look closely, however rare its scans
 * have become. */
static void known_is_listed(struct model *m, uint32_t slot)
{
    struct process *p = &m->processes[slot];
    if (p->first_group == SLOT_NONE && !p->listed && p->scan_at != TIME_NEVER) {
        p->scan_at = m->now;
        p->scan_every = 0;
    }
    p->listed = true;
}

/* What was known of it stays so. */
static void cannot_look(struct model *m, pid_t pid)
{
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].seen |= m->unmanaged[i].id.pid == pid;
}

/* 0, or why it is not known whether it is a job's. */
static int unknown_is_listed(struct model *m, pid_t pid)
{
    struct proc_stat st;
    uint32_t job;
    int r = proc_stat_read(pid, &st);
    if (proc_unsure(r))
        cannot_look(m, pid);
    if (r < 0)
        return r;
    struct unmanaged *u = model_unmanaged_find(m, st.id);
    if (u) {
        u->seen = true;
        snprintf(u->comm, sizeof(u->comm), "%s", st.comm);
    }
    if (u && (u->looked || u->pending) && !u->detached)
        return 0;
    r = model_job_of(m, pid, &job);
    const bool owned = job != SLOT_NONE;
    if (owned)
        r = model_process_add(m, st.id, job);
    else
        u = model_unmanaged_add(m, st.id, false);
    if (u && owned)
        u->seen = false; /* it is unmanaged no more */
    if (r == -ENOSPC)    /* its job says so */
        return 0;
    return r;
}

static int by_age(const void *a, const void *b)
{
    const struct proc_id *x = a, *y = b;
    if (x->start_ticks != y->start_ticks)
        return x->start_ticks < y->start_ticks ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Programs that rules are to look at, oldest first. */
struct candidates {
    struct proc_id *v;
    bool *decided; /* it is a job's, or no rule takes it */
    size_t n;
    uint64_t rules_ns; /* that rules took */
};

/* Of a program and its descendants the program becomes the job: these wait for what it shall be. */
static bool waits_for_older(const struct candidates *c, size_t i)
{
    struct proc_stat st;
    int r = proc_stat_read(c->v[i].pid, &st);
    for (int depth = 0; r == 0 && st.ppid > 1 && depth < PROC_LEVELS_MAX; depth++) {
        for (size_t k = 0; k < i; k++) {
            if (c->v[k].pid == st.ppid && !c->decided[k])
                return true;
        }
        r = proc_stat_parent(&st);
    }
    return false;
}

/* As d->rule(). */
static int ask_rule(struct discovery *d, struct unmanaged *u, struct candidates *c,
                    struct job_spec *spec)
{
    const uint64_t started = monotonic_ns();
    *spec = (struct job_spec){
        .terms.weight = WEIGHT_DEFAULT, .again = u->looked && u->facts_came, .facts = u->facts};
    int r = u->scheduler || !d->rule ? 0 : d->rule(d->rule_arg, u->id.pid, spec);
    c->rules_ns += monotonic_ns() - started;
    u->pending = r < 0;
    u->facts_came &= r < 0;
    u->facts = spec->facts;
    return r;
}

/* Of what the rule says, r and spec: whether it became a job. */
static bool taken_by_rule(struct model *m, struct unmanaged *u, struct candidates *c, size_t i,
                          int r, const struct job_spec *spec)
{
    struct error err;
    uint32_t job;
    u->looked = false;
    if (r > 0 && waits_for_older(c, i))
        return false;
    job = r > 0 ? model_job_of_launch(m, spec->launch, u->id) : SLOT_NONE;
    if (job != SLOT_NONE)
        return model_job_join(m, job, u->id, &err) == 0;
    u->looked = r == 0 || (r > 0 && ((spec->account_uid && model_user_full(m, spec->account_uid)) ||
                                     !model_may_watch(m, spec->uid)));
    c->decided[i] = u->looked;
    if (r < 0 || u->looked)
        return false;
    if (model_job_add(m, u->id, spec, &job, &err) == 0)
        return true;
    log_user(spec->uid, LOG_WARNING, "%s", err.text);
    return false;
}

/* A program of which it could not be told what it shall be, or that is asked about again, is looked
 * at only when it can: looking whose it is costs more than asking. */
static void look_at_candidate(struct discovery *d, struct model *m, struct candidates *c, size_t i)
{
    struct unmanaged *u = model_unmanaged_find(m, c->v[i]);
    const bool pending = u && (u->pending || u->facts_came);
    struct job_spec spec;
    uint32_t job;
    int r = pending ? ask_rule(d, u, c, &spec) : 0;
    c->decided[i] = u && u->looked && r == 0;
    if (c->decided[i])
        return;
    if (!u || r < 0 || model_job_of(m, c->v[i].pid, &job) < 0)
        return;
    bool owned;
    if (job != SLOT_NONE) {
        owned = model_process_add(m, c->v[i], job) == 0;
    } else {
        r = pending ? r : ask_rule(d, u, c, &spec);
        owned = taken_by_rule(m, u, c, i, r, &spec);
    }
    if (owned) {
        u->seen = false;
        c->decided[i] = true;
    }
}

static void look_at_rules(struct discovery *d, struct model *m)
{
    struct candidates c = {calloc(m->nunmanaged + 1, sizeof(*c.v)),
                           calloc(m->nunmanaged + 1, sizeof(*c.decided)), 0, 0};
    const size_t first = d->left ? d->first : 0;
    d->left = false;
    for (size_t i = 0; c.v && c.decided && i < m->nunmanaged; i++) {
        const struct unmanaged *u = &m->unmanaged[i];
        if (u->seen && (!u->looked || u->facts_came) && !u->detached)
            c.v[c.n++] = u->id;
    }
    if (c.n)
        qsort(c.v, c.n, sizeof(*c.v), by_age);
    for (size_t k = 0; k < c.n && !d->left; k++) {
        const size_t i = (first + k) % c.n;
        look_at_candidate(d, m, &c, i);
        d->left = k + 1 < c.n && c.rules_ns >= RULES_NS;
        d->first = i + 1;
    }
    free(c.v);
    free(c.decided);
}

/* Clients of MPS servers that are in no job, where there are some in jobs: what is set for these is
 * set for them. */
static void look_for_clients(struct discovery *d, struct model *m)
{
    struct pid_list pids = {0};
    const uint64_t started = monotonic_ns();
    const size_t n = m->nunmanaged, first = d->from;
    if (!m->driver->ops->clients || !m->nshared ||
        m->driver->ops->clients(m->driver, &pids, NULL) < 0) {
        pid_list_free(&pids);
        return; /* what was known stays so */
    }
    for (size_t k = 0; k < n; k++) {
        struct unmanaged *u = &m->unmanaged[(first + k) % n];
        struct group_list groups = {0};
        bool is = false;
        for (size_t i = 0; i < pids.n && !is; i++)
            is = pids.v[i] == u->id.pid;
        if (!u->seen || u->serves || !is) {
            model_unmanaged_share(m, u, NULL);
        } else if (monotonic_ns() - started < CLIENTS_NS) {
            d->from = (first + k + 1) % n; /* who did not have its turn is the next time's first */
            if (m->driver->ops->scan(m->driver, u->id, &groups, NULL) == 0)
                model_unmanaged_share(m, u, &groups);
        }
        group_list_free(&groups);
    }
    pid_list_free(&pids);
}

/* True: it is the first look that finds it so. */
static bool driver_changes(struct discovery *d, const struct model *m)
{
    struct gpu_info now;
    bool other = false;
    if (d->driver_changed || m->now < d->driver_at)
        return false;
    d->driver_at = m->now + DRIVER_NS;
    for (unsigned i = 0; i < m->ngpus; i++) {
        const char *was = m->gpus[i].driver;
        other |= was[0] && m->driver->ops->info(m->driver, i, &now) == 0 && now.driver[0] &&
                 strcmp(now.driver, was) != 0;
    }
    return other;
}

int discovery_run(struct discovery *d, struct model *m)
{
    struct pid_list pids = {0};
    struct error gone = {""};
    int r = m->driver->ops->processes(m->driver, &pids, &gone);
    if ((r < 0) != d->device_lost)
        log_say(LOG_WARNING, "%s", r < 0 ? gone.text : "the GPU is there again");
    if (r < 0)
        d->driver_at = 0; /* it may come back as another */
    d->device_lost = r < 0;
    if (r == 0 && driver_changes(d, m))
        d->driver_changed = m->held = true;
    m->discover_now = false;
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].seen = r < 0; /* after an error what is listed is not all */
    for (size_t i = 0; i < pids.n; i++) {
        uint32_t known = model_process_find(m, pids.v[i]);
        int code = 0;
        if (known != SLOT_NONE)
            known_is_listed(m, known);
        else
            code = unknown_is_listed(m, pids.v[i]);
        r = r == 0 && proc_unsure(code) ? code : r;
    }
    look_at_rules(d, m);
    model_unmanaged_sweep(m);
    look_for_clients(d, m);
    pid_list_free(&pids);
    bool young = false;
    for_each_job (m, j) {
        if (j->group_lives && j->root_pidfd < 0 && !j->nprocesses)
            model_job_group_look(m, model_job_slot(m, j));
        young |= !j->ngroups && m->now - j->added_ns < DISCOVER_YOUNG_NS;
    }
    d->at = m->now + (young || d->left ? DISCOVER_FAST_NS : DISCOVER_SLOW_NS);
    return r;
}

uint64_t discovery_due(struct discovery *d, struct model *m)
{
    if (m->discover_now || m->now >= d->at)
        discovery_run(d, m);
    return m->discover_now ? m->now : d->at;
}
