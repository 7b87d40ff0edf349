/* See discovery.h. */
#include "core/observe/discovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Programs of a new job are looked for often, as they run with the driver's default until then. */
#define DISCOVER_FAST_NS (100 * NSEC_PER_MSEC)
#define DISCOVER_SLOW_NS NSEC_PER_SEC
#define DRIVER_NS        NSEC_PER_SEC         /* between looks at the driver's release */
#define DISCOVER_LEFT_NS (20 * NSEC_PER_MSEC) /* after a look that left something */
/* Where a program began or ended lately, others follow soon, and none is to run long without its
 * job's terms. All looks together take one DISCOVER_PART of the time at most, and the interval
 * grows with the number of jobs, as each makes a tick longer. */
#define DISCOVER_MOVED_NS (10 * NSEC_PER_MSEC)
#define DISCOVER_JOB_NS   (100 * NSEC_PER_USEC)
#define MOVED_NS          (5 * NSEC_PER_SEC)
#define DISCOVER_PART     50U
#define SOON_PART         10U /* where drivers report programs that begin */
#define DISCOVER_YOUNG_NS (60 * NSEC_PER_SEC)
#define CLIENTS_NS        (5 * NSEC_PER_MSEC) /* per look, for scans of unmanaged MPS clients */
#define RULES_NS          (5 * NSEC_PER_MSEC) /* per look, for rules */
#define CHECK_NS          NSEC_PER_SEC        /* between checks that a pid is the same program */

/* Limits of one look at unmanaged programs, which together take about 5 ms. */
#define READS_MAX   400U                  /* files read to find their jobs */
#define NEW_MAX     100U                  /* new programs */
#define CHECKS_MAX  100U                  /* known programs that are checked again */
#define READS_LEAST 8U                    /* of READS_MAX, for each user */
#define READS_GROUP 4U                    /* reads, about, that a control group takes */
#define READS_RULE  8U                    /* reads, about, that rules take */
#define ALL_NS      (200 * NSEC_PER_MSEC) /* for a person who waits until all is looked at */

/* The driver lists a process once it has a context, so it is scanned at once, however rare its
 * scans have become. */
static void known_is_listed(struct model *m, uint32_t slot)
{
    struct process *p = &m->processes[slot];
    if (p->first_group == SLOT_NONE && !p->listed && p->scan_at != TIME_NEVER) {
        p->scan_at = m->now;
        p->scan_every = 0;
    }
    p->listed = true;
}

static bool is_among(const struct pid_list *sorted, pid_t pid)
{
    return sorted->n && bsearch(&pid, sorted->v, sorted->n, sizeof(pid), compare_int32);
}

/* Adds listed processes that are in no table to the unmanaged programs, beginning with the pid at
 * which the last look has ended. 0, or why one could not be looked at. */
static int take_listed(struct discovery *d, struct model *m, const struct pid_list *listed,
                       const struct pid_list *known)
{
    size_t first = 0;
    unsigned n = 0;
    int unsure = 0;
    while (first < listed->n && listed->v[first] < d->next_pid)
        first++;
    d->next_pid = 0;
    for (size_t k = 0; k < listed->n; k++) {
        const pid_t pid = listed->v[(first + k) % listed->n];
        struct proc_stat st;
        if (is_among(known, pid) || model_process_find(m, pid) != SLOT_NONE)
            continue;
        if (n++ == NEW_MAX) {
            d->next_pid = pid;
            d->left = true;
            break;
        }
        int r = proc_stat_read(pid, &st);
        if (r == 0 && !model_unmanaged_add(m, st.id, false))
            r = proc_check(st.id) == -ESRCH ? 0 : -EAGAIN;
        unsure = proc_unsure(r) ? r : unsure;
    }
    return unsure;
}

/* Finds known programs that have ended while the driver lists another process with their pid. */
static void check_known(struct discovery *d, struct model *m)
{
    unsigned n = 0;
    for (size_t k = 0; k < m->nunmanaged && n < CHECKS_MAX; k++) {
        struct unmanaged *u = &m->unmanaged[(d->check + k) % m->nunmanaged];
        struct proc_stat st;
        if (!u->seen || m->now - u->read_ns < CHECK_NS)
            continue;
        n++;
        int r = proc_stat_read(u->id.pid, &st);
        if (proc_unsure(r))
            continue;
        u->seen = r == 0 && proc_same(st.id, u->id);
        u->read_ns = m->now;
        if (!u->seen)
            continue;
        snprintf(u->comm, sizeof(u->comm), "%s", st.comm);
        u->group = st.group;
        u->session = st.session;
    }
    d->check = m->nunmanaged ? (d->check + n) % m->nunmanaged : 0;
}

/* Jobs that have begun since the last look. */
struct begun {
    pid_t roots[64];
    unsigned n;
    bool all; /* any program may be theirs: there are too many, or a job of Slurm */
};

static void begun_list(struct begun *b, const struct discovery *d, const struct model *m)
{
    for_each_job (m, j) {
        if (j->rec.number < d->next_number)
            continue;
        /* Only a control group of Slurm may contain others than the root's descendants. */
        b->all |= j->rec.source == JOB_SLURM || b->n == ARRAY_SIZE(b->roots);
        if (!b->all)
            b->roots[b->n++] = j->rec.root.pid;
    }
}

/* Whether an unmanaged program may belong to one of them. */
static bool may_be_taken(const struct begun *b, struct discovery *d, const struct model *m,
                         const struct unmanaged *u)
{
    for (unsigned i = 0; i < b->n; i++) {
        if (u->group == b->roots[i] || u->session == b->roots[i])
            return true;
    }
    return b->all || ancestors_may_have_job(&d->ancestors, m, u->id);
}

static void look_again_at(struct discovery *d, struct model *m)
{
    const unsigned njobs = model_jobs(m);
    const bool begun = m->next_number != d->next_number, room = njobs < d->njobs;
    struct begun b = {.n = 0};
    if (begun)
        begun_list(&b, d, m);
    for (size_t i = 0; (begun || room) && i < m->nunmanaged; i++) {
        struct unmanaged *u = &m->unmanaged[i];
        if (u->looked && ((room && u->crowded) || (begun && may_be_taken(&b, d, m, u))))
            u->looked = u->crowded = false;
    }
    d->next_number = m->next_number;
    d->njobs = njobs;
}

static int by_age(const void *a, const void *b)
{
    const struct proc_id *x = a, *y = b; /* the first field of struct candidate */
    if (x->start_ticks != y->start_ticks)
        return x->start_ticks < y->start_ticks ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Programs that are to be looked at, oldest first, and their users, each with a part of the reads.
 */
struct candidates {
    struct candidate {
        struct proc_id id;
        size_t at; /* index in model.unmanaged, which does not change meanwhile */
    } * v;
    enum { CANDIDATE_NEW, CANDIDATE_CUT, CANDIDATE_LATER, CANDIDATE_DECIDED } * state;
    size_t n;
    struct payer {
        uid_t uid;
        uint32_t left;     /* reads that are left for this user */
        uint64_t rules_ns; /* time that rules took for this user */
    } * payers;
    size_t npayers;
    uint32_t left;     /* reads that are left for all */
    uint64_t rules_ns; /* time that rules took for all */
    int unsure;        /* error of a program that could not be looked at, or 0 */
};

static void candidates_free(struct candidates *c)
{
    free(c->v);
    free(c->state);
    free(c->payers);
}

/* Of a program and its descendants the program becomes the job, so these wait until its rule is
 * known. */
static bool waits_for_older(const struct discovery *d, const struct candidates *c, size_t i)
{
    struct proc_id id = c->v[i].id;
    for (int depth = 0; depth < PROC_LEVELS_MAX && ancestors_up(&d->ancestors, &id); depth++) {
        const struct candidate *older =
            bsearch(&(struct candidate){.id = id}, c->v, c->n, sizeof(*older), by_age);
        if (older && c->state[older - c->v] != CANDIDATE_DECIDED)
            return true;
    }
    return false;
}

/* Asks d->rule(), and notes time and result. */
static int ask_rule(struct discovery *d, struct unmanaged *u, struct candidates *c,
                    struct job_spec *spec)
{
    const uint64_t started = monotonic_ns();
    *spec = (struct job_spec){
        .terms.weight = WEIGHT_DEFAULT, .again = u->looked && u->facts_came, .facts = u->facts};
    int r = u->scheduler || u->detached || !d->rule ? 0 : d->rule(d->rule_arg, u->id.pid, spec);
    c->rules_ns += monotonic_ns() - started;
    u->pending = r < 0;
    u->facts_came &= r < 0;
    u->facts = spec->facts;
    return r;
}

/* Makes a job of the program, or joins it to one, as the rule's answer (r, spec) says. False: it is
 * in no job yet. */
static bool taken_by_rule(struct discovery *d, struct model *m, struct unmanaged *u,
                          struct candidates *c, size_t i, int r, const struct job_spec *spec)
{
    struct error err;
    uint32_t job = SLOT_NONE;
    u->looked = false;
    if (r > 0 && waits_for_older(d, c, i))
        return false;
    if (r > 0 && model_job_of_launch(m, spec->launch, u->id, &job) < 0)
        return false;
    if (job != SLOT_NONE && model_job_join(m, job, u->id, &err) < 0)
        return false;
    if (job != SLOT_NONE) {
        ancestors_set_job(&d->ancestors, u->id, job);
        return true;
    }
    u->crowded = r > 0 && ((spec->principal && model_user_full(m, spec->principal)) ||
                           !model_may_watch(m, spec->uid));
    u->looked = r == 0 || u->crowded;
    if (r < 0 || u->looked)
        return false;
    if (model_job_add(m, u->id, spec, &job, &err) < 0) {
        log_user(spec->uid, LOG_WARNING, "%s", err.text);
        return false;
    }
    ancestors_set_job(&d->ancestors, u->id, job);
    return true;
}

/* *job: the job of the process, or SLOT_NONE. -EAGAIN: too few reads were left; or another error.
 */
static int job_of_candidate(struct discovery *d, const struct model *m, struct proc_id id,
                            uint32_t *left, uint32_t *job)
{
    struct proc_stat st;
    uint32_t near;
    *job = SLOT_NONE;
    int r = proc_stat_read(id.pid, &st);
    *left -= *left ? 1 : 0;
    if (r == 0 && !proc_same(st.id, id))
        r = -ESRCH;
    if (r == 0)
        r = ancestors_job(&d->ancestors, m, &st, left, &near);
    if (r == 0)
        r = model_job_near(m, &st, near, job);
    *left -= (uint32_t)min_u64(*left, READS_GROUP);
    return r;
}

/* Rules that were asked before are asked first, as finding a job costs more than asking. */
static void look_at_candidate(struct discovery *d, struct model *m, struct candidates *c, size_t i,
                              uint32_t *left)
{
    struct unmanaged *u = &m->unmanaged[c->v[i].at];
    const bool pending = u->pending || u->facts_came;
    struct job_spec spec;
    uint32_t job;
    int r = pending ? ask_rule(d, u, c, &spec) : 0;
    c->state[i] = u->looked && r == 0 ? CANDIDATE_DECIDED : CANDIDATE_LATER;
    if (c->state[i] == CANDIDATE_DECIDED || r < 0)
        return;
    int code = job_of_candidate(d, m, u->id, left, &job);
    if (code == -EAGAIN)
        c->state[i] = CANDIDATE_CUT;
    c->unsure = proc_unsure(code) && code != -EAGAIN ? code : c->unsure;
    if (code < 0)
        return;
    bool owned;
    if (job != SLOT_NONE) {
        code = model_process_add(m, u->id, job);
        owned = code == 0;
        c->unsure = proc_unsure(code) && code != -ENOSPC ? code : c->unsure; /* its job shows it */
    } else {
        *left -= (uint32_t)min_u64(*left, READS_RULE);
        r = pending ? r : ask_rule(d, u, c, &spec);
        owned = taken_by_rule(d, m, u, c, i, r, &spec);
    }
    u->seen &= !owned; /* the sweep removes it from the unmanaged programs */
    if (owned || u->looked)
        c->state[i] = CANDIDATE_DECIDED;
}

static int by_uid(const void *a, const void *b)
{
    const struct payer *x = a, *y = b;
    return (x->uid > y->uid) - (x->uid < y->uid);
}

static void candidates_list(struct candidates *c, const struct model *m)
{
    const size_t n = m->nunmanaged + 1;
    *c = (struct candidates){.v = calloc(n, sizeof(*c->v)),
                             .state = calloc(n, sizeof(*c->state)),
                             .payers = calloc(n, sizeof(*c->payers)),
                             .left = READS_MAX};
    for (size_t i = 0; c->v && c->state && c->payers && i < m->nunmanaged; i++) {
        const struct unmanaged *u = &m->unmanaged[i];
        if (!u->seen || (u->looked && !u->facts_came))
            continue;
        c->v[c->n] = (struct candidate){u->id, i};
        c->payers[c->n++].uid = u->uid;
    }
    if (!c->n)
        return;
    qsort(c->v, c->n, sizeof(*c->v), by_age);
    qsort(c->payers, c->n, sizeof(*c->payers), by_uid);
    for (size_t i = 0; i < c->n; i++) {
        if (!c->npayers || c->payers[c->npayers - 1].uid != c->payers[i].uid)
            c->payers[c->npayers++] = c->payers[i];
    }
    for (size_t i = 0; i < c->npayers; i++)
        c->payers[i].left = (uint32_t)max_u64(READS_MAX / c->npayers, READS_LEAST);
}

/* With `parts`, each user's programs are looked at within that user's part of the reads; without,
 * within what is left of all. The next look begins behind the last program. */
static void look_at_candidates(struct discovery *d, struct model *m, struct candidates *c,
                               bool parts)
{
    const size_t first = d->first;
    for (size_t k = 0; k < c->n && c->left && (parts || c->rules_ns < RULES_NS); k++) {
        const size_t i = (first + k) % c->n;
        const struct unmanaged *u = &m->unmanaged[c->v[i].at];
        if (c->state[i] > CANDIDATE_CUT)
            continue;
        struct payer *p =
            bsearch(&(struct payer){.uid = u->uid}, c->payers, c->npayers, sizeof(*p), by_uid);
        const uint32_t may = parts ? (uint32_t)min_u64(p->left, c->left) : c->left;
        uint32_t left = may;
        if (!may || (parts && p->rules_ns >= RULES_NS / c->npayers))
            continue;
        const uint64_t before_ns = c->rules_ns;
        look_at_candidate(d, m, c, i, &left);
        p->rules_ns += c->rules_ns - before_ns;
        p->left -= (uint32_t)min_u64(p->left, may - left);
        c->left -= may - left;
        d->first = i + 1;
    }
}

/* 0, or why the job of a program could not be determined. */
static int look_at_programs(struct discovery *d, struct model *m)
{
    struct candidates c;
    candidates_list(&c, m);
    look_at_candidates(d, m, &c, true);
    look_at_candidates(d, m, &c, false);
    for (size_t i = 0; i < c.n; i++)
        d->left |= c.state[i] <= CANDIDATE_CUT;
    candidates_free(&c);
    return c.unsure;
}

/* Finds unmanaged clients of MPS servers while jobs have clients, as what is set for a job's client
 * is set for them as well. */
static void look_for_clients(struct discovery *d, struct model *m)
{
    struct pid_list pids = {0};
    const uint64_t started = monotonic_ns();
    const size_t n = m->nunmanaged, first = d->from;
    if (!m->driver->ops->clients || !m->nshared ||
        m->driver->ops->clients(m->driver, &pids, NULL) < 0) {
        pid_list_free(&pids);
        return; /* what is known is kept */
    }
    if (pids.n)
        qsort(pids.v, pids.n, sizeof(*pids.v), compare_int32);
    for (size_t k = 0; k < n; k++) {
        struct unmanaged *u = &m->unmanaged[(first + k) % n];
        struct group_list groups = {0};
        if (!u->seen || u->serves || !is_among(&pids, u->id.pid)) {
            model_unmanaged_share(m, u, NULL);
        } else if (monotonic_ns() - started < CLIENTS_NS) {
            d->from = (first + k + 1) % n; /* the next look begins with the first one left out */
            if (m->driver->ops->scan(m->driver, u->id, &groups, NULL) == 0)
                model_unmanaged_share(m, u, &groups);
        }
        group_list_free(&groups);
    }
    pid_list_free(&pids);
}

/* Whether the driver's release has changed; true once. */
static bool driver_changes(struct discovery *d, const struct model *m)
{
    struct gpu_info now;
    bool other = false;
    if (d->driver_changed || m->now < d->driver_at)
        return false;
    d->driver_at = m->now + DRIVER_NS;
    for (unsigned i = 0; i < m->ngpus; i++) {
        other |= m->driver->ops->info(m->driver, i, &now) == 0 && now.driver[0] &&
                 strcmp(now.driver, m->gpus[i].driver) != 0; /* or was unknown at the start */
    }
    return other;
}

/* Compares the driver's list (all: it is complete) with the tables. 0, or why one may be missed. */
static int look_at_listed(struct discovery *d, struct model *m, struct pid_list *listed, bool all)
{
    struct pid_list known = {.v = calloc(m->nunmanaged + 1, sizeof(*known.v))};
    if (!known.v)
        return -ENOMEM;
    if (listed->n)
        qsort(listed->v, listed->n, sizeof(*listed->v), compare_int32);
    for_each (u, m->unmanaged, m->nunmanaged) {
        u->seen =
            (!all || is_among(listed, u->id.pid)) && model_process_find(m, u->id.pid) == SLOT_NONE;
        known.v[known.n++] = u->id.pid;
    }
    if (known.n)
        qsort(known.v, known.n, sizeof(*known.v), compare_int32);
    for (size_t i = 0; i < listed->n; i++) {
        const uint32_t slot = model_process_find(m, listed->v[i]);
        if (slot != SLOT_NONE)
            known_is_listed(m, slot);
    }
    int r = take_listed(d, m, listed, &known);
    pid_list_free(&known);
    check_known(d, m);
    return r;
}

/* Time until the next look, after one that took took_ns. */
static uint64_t until_next(const struct discovery *d, struct model *m, uint64_t took_ns)
{
    bool young = false, moved = false;
    for_each_job (m, j) {
        young |= !j->ngroups && m->now - j->added_ns < DISCOVER_YOUNG_NS;
        moved |= m->now - j->moved_ns < MOVED_NS;
    }
    const uint64_t ns = moved     ? DISCOVER_MOVED_NS + d->njobs * DISCOVER_JOB_NS
                        : d->left ? DISCOVER_LEFT_NS
                        : young   ? DISCOVER_FAST_NS
                                  : DISCOVER_SLOW_NS;
    return clamp_u64(took_ns * DISCOVER_PART, ns, DISCOVER_SLOW_NS);
}

/* One look, which takes a bounded time; what is left is done by the next. 0, or why a process may
 * have been missed; the next look will find it. */
static int discovery_run(struct discovery *d, struct model *m)
{
    const uint64_t started = monotonic_ns();
    struct pid_list pids = {0};
    struct error gone = {""};
    int r = m->driver->ops->processes(m->driver, &pids, &gone);
    if ((r < 0) != d->device_lost)
        log_say(LOG_WARNING, "%s", r < 0 ? gone.text : "the GPU is there again");
    if (r < 0)
        d->driver_at = 0; /* it may come back as another release */
    d->device_lost = r < 0;
    if (r == 0 && driver_changes(d, m))
        d->driver_changed = m->quiesced = true;
    d->left = m->discover_now = m->discover_soon = false;
    int code = look_at_listed(d, m, &pids, r == 0); /* after an error the list is incomplete */
    r = r < 0 ? r : code;
    ancestors_begin(&d->ancestors, m);
    look_again_at(d, m);
    code = look_at_programs(d, m);
    r = r < 0 ? r : code;
    model_unmanaged_sweep(m);
    look_for_clients(d, m);
    if (!pids.n)
        d->driver_at = 0; /* a driver that is not in use may be replaced */
    pid_list_free(&pids);
    for_each_job (m, j) {
        if (j->group_lives && j->root_pidfd < 0 && !j->nprocesses)
            model_job_group_look(m, model_job_slot(m, j));
    }
    m->looked_ns = r == 0 ? m->now : m->looked_ns;
    d->took_ns = monotonic_ns() - started;
    d->at = m->now + until_next(d, m, d->took_ns);
    return r;
}

int discovery_all(struct discovery *d, struct model *m)
{
    const uint64_t started = monotonic_ns();
    int r;
    do
        r = discovery_run(d, m);
    while (d->left && monotonic_ns() - started < ALL_NS);
    return r < 0 || !d->left ? r : -EAGAIN;
}

uint64_t discovery_due(struct discovery *d, struct model *m)
{
    const bool soon = m->discover_soon && m->now >= d->soon_at;
    if (m->discover_now || m->now >= d->at || soon)
        discovery_run(d, m);
    if (soon)
        d->soon_at = m->now + d->took_ns * SOON_PART;
    return m->discover_now ? m->now : m->discover_soon ? min_u64(d->soon_at, d->at) : d->at;
}
