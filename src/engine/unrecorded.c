/* See unrecorded.h. */
#include "engine/unrecorded.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "journal/other_cedes.h"

#define SCANS_MAX    1024U /* of one process; then what was found so far is used */
#define SUSPECTS_MAX 16384U
#define RESUMES      4U /* the hardware counts suspensions, and there may be several */
#define BUDGET_NS    (5 * NSEC_PER_MSEC)   /* per tick */
#define PART         2U                    /* scans take about one third of the time */
#define PASS_NS      (2 * NSEC_PER_MSEC)   /* least time between ticks that scan */
#define LEAVING_NS   NSEC_PER_SEC          /* for processes that are left when the engine ends */
#define ASKED_NS     (200 * NSEC_PER_MSEC) /* how long a person waits for one process */
/* After a failed list or search, which is doubled each time, up to 40 s. */
#define AGAIN_NS (5 * NSEC_PER_SEC)
#define DOUBLE   3U

/* The timeslice that the program or the driver gave the group, as far as it can be known: no
 * program or driver is known to set the shortest one, one above the default, or one of the
 * scheduler's. Any other, which a latency budget may have led to, is kept, as it is safer to leave
 * an unmanaged program alone. */
static uint64_t survey_timeslice(const struct survey *s, const struct model *m,
                                 const struct device_group *g)
{
    const struct gpu_info *gpu = &m->gpus[g->gpu];
    bool ours = g->timeslice_us <= gpu->timeslice_min_us ||
                g->timeslice_us > gpu->timeslice_default_us || g->timeslice_us == s->floor_us ||
                sched_has_slice(g->timeslice_us);
    return ours ? gpu->timeslice_default_us : g->timeslice_us;
}

static uint64_t again_at(const struct model *m, unsigned *failures)
{
    return m->now + (AGAIN_NS << min_u64((*failures)++, DOUBLE));
}

/* It is logged while the time doubles, because a program may be stopped for days. */
static void search_again(struct survey *s, const struct model *m, const char *what,
                         const struct error *err, int r)
{
    s->search_at = again_at(m, &s->searches);
    if (s->searches <= DOUBLE + 1)
        log_say(LOG_WARNING, "%s: %s", what, err->text[0] ? err->text : strerror(-r));
}

/* A process was not treated: all are listed again later. */
static void survey_lost(struct survey *s, const struct model *m)
{
    s->lost = true;
    if (s->list_at == TIME_NEVER)
        s->list_at = again_at(m, &s->failures);
}

/* Adds a process that is to be treated. */
static void survey_add(struct survey *s, const struct model *m, struct proc_id id)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (proc_same(s->v[i].id, id))
            return;
    }
    struct suspect *v = s->n < SUSPECTS_MAX ? reallocarray(s->v, s->n + 1, sizeof(*s->v)) : NULL;
    if (!v) {
        survey_lost(s, m);
        return;
    }
    s->v = v;
    s->v[s->n++] = (struct suspect){.id = id};
}

static void suspect_remove(struct survey *s, const struct model *m, uint32_t i)
{
    if (s->v[i].failed)
        survey_lost(s, m);
    s->v[i] = s->v[--s->n];
}

/* ---- one process ---- */

/* Whether a control that failed may succeed later. A process that this user may not steer was not
 * changed by a cede of this user either, so it is not tried again. */
static bool may_recover(int r)
{
    return r < 0 && r != -ESRCH && r != -EPERM && r != -EACCES && r != -ENOTSUP;
}

/* Resumes the groups and sets their timeslices. False: a call failed that may succeed later. */
static bool free_groups(const struct survey *s, const struct model *m,
                        const struct group_list *found)
{
    struct device_driver *d = m->driver;
    bool ok = true;
    for (size_t k = 0; k < found->n; k++) {
        const struct device_group *g = &found->v[k];
        if (g->gpu >= m->ngpus)
            continue;
        const bool may = !(m->withheld[g->gpu].caps & GPU_CAP_SUSPEND);
        for (unsigned n = 0; n < RESUMES && may; n++)
            ok &= !may_recover(d->ops->set_running(d, &g, 1, true, NULL));
        uint64_t us = survey_timeslice(s, m, g);
        if (us != g->timeslice_us && (m->gpus[g->gpu].caps & GPU_CAP_TIMESLICE))
            ok &= !may_recover(d->ops->set_timeslice(d, g, us, NULL));
    }
    return ok;
}

/* Continues a client that is stopped without a record, as a pause ends when its record is lost. */
static void continue_client(struct proc_id id)
{
    if (proc_stopped(id) && proc_signal(id, SIGCONT) == 0)
        log_say(LOG_WARNING, "process %d, a client of an MPS server, was stopped: it goes on",
                (int)id.pid);
}

/* One scan of an unmanaged process; true if it was the last one, with x->failed set or not. */
static bool free_step(const struct survey *s, const struct model *m, struct suspect *x)
{
    struct device_driver *d = m->driver;
    _cleanup_(group_list_free) struct group_list found = {0};
    int r = d->ops->scan(d, x->id, &found, NULL);
    bool end = r != -EAGAIN || ++x->scans >= SCANS_MAX;
    for (size_t i = 0; i < found.n; i++)
        x->client |= found.v[i].shared > 0;
    if (end) {
        x->failed = !free_groups(s, m, &found) || (r != -EAGAIN && may_recover(r));
        x->groups = (uint32_t)found.n;
        if (x->client)
            continue_client(x->id);
        d->ops->forget(d, x->id.pid); /* the driver's cached timeslices were changed here */
    }
    return end;
}

void survey_distrust(struct model *m, uint32_t job)
{
    for_each_process_of (m, &m->jobs[job], p) {
        for_each_group_of (m, &m->processes[p], g) {
            m->groups[g].suspended.have = m->groups[g].suspended.unsure = true;
            model_group_changed(m, &m->groups[g]);
            m->dirty = true;
        }
    }
}

/* Treats a job's process; true when done. After its first complete scan its groups, which count as
 * suspended since they were found, are set by the plan. A process that is swapped out needs
 * nothing, as it returns with new groups; one that is detached for a move is treated when that is
 * decided. */
static bool take_managed(const struct survey *s, struct model *m, struct process *p)
{
    const enum swap_phase phase = m->jobs[p->job].swap.phase;
    if (p->scan_at == TIME_NEVER)
        return phase == SWAP_AWAY || phase == SWAP_ASKED;
    if (!p->scan_every || p->searching)
        return false;
    if (m->jobs[p->job].is_client) { /* mps_stops() stops it again if need be, with a record */
        continue_client(p->id);
        p->stops_at = 0;
    }
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        g->dg.timeslice_us = survey_timeslice(s, m, &g->dg);
        g->timeslice_us.unsure = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
        model_group_changed(m, g);
    }
    m->dirty = true;
    return true;
}

static bool survey_step(const struct survey *s, struct model *m, struct suspect *x)
{
    uint32_t p = model_process_find(m, x->id.pid);
    if (p != SLOT_NONE && proc_same(m->processes[p].id, x->id))
        return take_managed(s, m, &m->processes[p]);
    return free_step(s, m, x);
}

int survey_free(struct survey *s, struct model *m, struct proc_id id, struct error *err)
{
    const uint64_t started = monotonic_ns();
    struct suspect x = {.id = id};
    if (m->quiesced)
        return error_set(
            err, -EAGAIN,
            "process %d is not resumed while the GPU's driver is checked: try again in "
            "some seconds",
            (int)id.pid);
    while (!free_step(s, m, &x)) {
        if (monotonic_ns() - started > ASKED_NS) {
            survey_add(s, m, id);
            return 0;
        }
    }
    if (x.failed) {
        survey_add(s, m, id);
        return error_set(err, -EIO, "process %d cannot be resumed now; it is tried again",
                         (int)id.pid);
    }
    if (!x.groups)
        return error_set(err, -ENODEV,
                         "process %d is in no job, and nothing of it was found on a GPU",
                         (int)id.pid);
    return 0;
}

/* ---- all ---- */

static void list_processes(struct survey *s, struct model *m)
{
    struct device_driver *d = m->driver;
    struct pid_list pids = {0};
    struct other_cedes others;
    const struct journal_shared *j = journal_shared(m->journal);
    const struct journal_lock_id own = journal_lock_id(m->journal);
    other_cedes_find(&others, j->driver, j->where, &own);
    s->list_at = TIME_NEVER;
    s->listed = true;
    s->lost = d->ops->processes(d, &pids, NULL) < 0;
    for (size_t i = 0; i < pids.n; i++) {
        struct proc_stat st;
        int r = proc_stat_read(pids.v[i], &st);
        s->lost |= r < 0 && r != -ESRCH;
        if (r == 0 && !other_cedes_have(&others, pids.v[i]))
            survey_add(s, m, st.id);
    }
    pid_list_free(&pids);
    s->lost |= others.unsure;
    if (s->lost)
        survey_lost(s, m);
}

static void begin_search(struct survey *s, struct model *m)
{
    struct error err = {""};
    int r = swapper_search(&s->search, m->journal, &err);
    if (r == 0) {
        r = watch_start(&m->watches, s->search.pidfd, &s->search_ended, &s->watch);
        if (r < 0)
            swapper_detach(&s->search);
    }
    s->search_at = TIME_NEVER;
    if (r < 0)
        search_again(s, m, "what is swapped out cannot be searched for now, and will be again",
                     &err, r);
}

void survey_begin(struct survey *s, struct model *m, bool stays)
{
    const uint32_t missing = journal_incomplete(m->journal);
    s->list_at = s->search_at = TIME_NEVER;
    if ((missing & JOURNAL_SWAPS_MISSING) && stays && m->driver->ops->swap_state)
        begin_search(s, m);
}

uint64_t survey_due(struct survey *s, struct model *m)
{
    const uint64_t started = monotonic_ns();
    if (m->now >= s->search_at)
        begin_search(s, m);
    const bool missing = journal_incomplete(m->journal) & JOURNAL_GROUPS_MISSING;
    if (m->now >= s->list_at || (missing && !s->listed))
        list_processes(s, m);
    uint64_t again = min_u64(s->search_at, s->list_at);
    if (m->quiesced)
        return again;
    if (!s->n && (s->lost || !missing))
        return again;
    if (m->now < s->at)
        return min_u64(s->at, again);
    for (uint32_t n = s->n; n > 0 && monotonic_ns() - started < BUDGET_NS; n--) {
        s->next = s->next < s->n ? s->next : 0;
        if (survey_step(s, m, &s->v[s->next]))
            suspect_remove(s, m, s->next);
        else
            s->next++;
    }
    s->at = m->now + max_u64(PASS_NS, (monotonic_ns() - started) * PART);
    if (s->n || m->records_changed) /* the journal is complete only with the groups found here */
        return min_u64(s->at, again);
    if (!s->lost) {
        journal_complete(m->journal, JOURNAL_GROUPS_MISSING);
        s->listed = false;
        s->failures = 0;
    }
    return again;
}

void survey_take(struct survey *s, struct model *m)
{
    struct proc_id found[SWAPS_FOUND_MAX];
    uint32_t n = 0, job;
    struct error err = {""};
    if (!s->search_ended)
        return;
    s->search_ended = false;
    watch_stop(s->watch);
    s->watch = NULL;
    int r = swapper_found(&s->search, found, &n, &err);
    for (uint32_t i = 0; i < n; i++) {
        struct error e = {""};
        int code = swap_adopt(m, found[i], true, &job, &e);
        if (code == 0)
            log_say(LOG_WARNING, "process %d was off the GPU, and no journal says so: it comes in",
                    (int)found[i].pid);
        if (r == 0 && code < 0 && code != -EEXIST && code != -ESRCH) {
            r = code;
            err = e;
        }
    }
    if (r == 0) {
        journal_complete(m->journal, JOURNAL_SWAPS_MISSING);
        return;
    }
    search_again(s, m,
                 r == -EINTR ? "the search for what is swapped out was cut short, perhaps by a "
                               "stopped program, which gives no answer; it is repeated"
                             : "not all that is swapped out may have been found; a search follows",
                 &err, r);
}

void survey_end(struct survey *s, struct model *m, bool restore)
{
    const uint64_t started = monotonic_ns();
    restore &= !m->quiesced;
    while (restore && s->n && monotonic_ns() - started < LEAVING_NS) {
        if (free_step(s, m, &s->v[0]))
            suspect_remove(s, m, 0);
    }
    if (restore && s->listed && !s->n && !s->lost)
        journal_complete(m->journal, JOURNAL_GROUPS_MISSING);
    if (s->search.id.pid) {
        watch_stop(s->watch);
        swapper_detach(&s->search);
    }
    free(s->v);
}
