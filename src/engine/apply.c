/* From the scheduler's plan to the device: applies the difference between what is wanted and what
 * is, and writes each change to the journal before it is made. The order is, over all devices:
 * suspend, set timeslices, resume, so that two batch jobs never run at once beside a better one,
 * and the halves of a job on several devices begin their turn within a few calls of each other. */
#include "engine/apply.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "lib/probe.h"

/* What one plan may do, so that programs with contexts by the thousand keep nobody waiting for an
 * answer: controls of timeslices, of 0.4 ms each, and groups that are suspended or resumed, some
 * dozens of which cost as much. Whatever they cost, there is an end to it after a while. */
#define TIMESLICES_MAX 64U
#define RUNS_MAX       512U
#define APPLY_NS       (20 * NSEC_PER_MSEC)
#define APPLY_BATCH    256U /* groups in one call */
#define RETRY_NS       NSEC_PER_SEC
#define ORPHANS_NS     (2 * NSEC_PER_SEC) /* between two attempts to undo them */
#define STOPS_NS       NSEC_PER_SEC       /* between looks whether what is to be stopped still is */

/* retry_at: the group's, of this control. */
static void apply_failed(struct model *m, struct channel_group *g, uint64_t *retry_at, int r,
                         const struct error *err)
{
    struct process *p = &m->processes[g->process];
    *retry_at = m->now + RETRY_NS;
    if (r == -ESRCH || r == -ENOENT || r == -EAGAIN)
        p->scan_at = m->now; /* process or group gone, or elsewhere: the scan finds out */
    else
        model_job_failed(m, p->job, r, err);
}

/* When to try again what failed for this group. */
static uint64_t retry_due(const struct model *m, uint32_t slot)
{
    const struct channel_group *g = &m->groups[slot];
    return min_u64(g->retry_at > m->now ? g->retry_at : TIME_NEVER,
                   g->settings_at > m->now ? g->settings_at : TIME_NEVER);
}

/* Whether it is to be suspended, or resumed, now. */
static bool is_due(const struct model *m, uint32_t slot, bool resume)
{
    const struct channel_group *g = &m->groups[slot];
    return g->want_runnable == resume && g->retry_at <= m->now &&
           (resume ? g->suspended : !g->suspended || g->suspend_unsure);
}

/* The hardware counts suspensions, and nobody may have two: who may be suspended already is resumed
 * first. */
static int apply_running(struct model *m, const uint32_t *slots, const struct device_group **list,
                         size_t n, bool on, struct error *err)
{
    const struct device_ops *ops = m->driver->ops;
    const struct device_group *unsure[APPLY_BATCH];
    size_t k = 0;
    for (size_t i = 0; i < n && !on; i++) {
        if (m->groups[slots[i]].suspend_unsure)
            unsure[k++] = list[i];
    }
    m->controls += k > 0;
    int r = k ? ops->set_running(m->driver, unsure, k, true, err) : 0;
    m->controls += r == 0;
    return r ? r : ops->set_running(m->driver, list, n, on, err);
}

/* What a call for several processes has done is not known after an error (ops.h), nor whose error
 * it is: all of them count as suspended, and each goes alone until a call for it has succeeded. */
static void joint_failed(struct model *m, const uint32_t *slots, size_t n, int r)
{
    for (size_t k = 0; k < n; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        if (r != -EPERM)
            g->suspended = g->suspend_unsure = true;
        m->processes[g->process].joins = false;
    }
}

/* What is left of what one plan may do. */
struct apply_left {
    uint32_t groups;
    uint64_t until_ns;
};

/* Suspends or resumes these groups of one device in one call. */
static void apply_call(struct model *m, uint32_t *slots, size_t count, bool resume)
{
    const struct device_group *list[APPLY_BATCH];
    size_t n = 0;
    bool several = false;
    struct error err = {""};

    for (size_t k = 0; k < count; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        if (!resume) {
            int r = journal_put_group(m->journal, slots[k], model_journal_flags(g) | JG_SUSPENDED,
                                      &g->dg);
            if (r < 0) {
                error_set(&err, r, "cannot write the journal (%s): left running", strerror(-r));
                apply_failed(m, g, &g->retry_at, r, &err);
                continue;
            }
        }
        slots[n] = slots[k];
        list[n++] = &g->dg;
        several |= g->process != m->groups[slots[0]].process;
    }
    if (!n)
        return;
    const struct channel_group *first = &m->groups[slots[0]];
    const uint64_t number = m->jobs[m->processes[first->process].job].rec.number;
    if (resume)
        PROBE(resume, number, first->dg.proc.pid, first->dg.gpu, n);
    else
        PROBE(suspend, number, first->dg.proc.pid, first->dg.gpu, n);
    int r = apply_running(m, slots, list, n, resume, &err);
    m->controls_failed += r < 0;
    for (size_t k = 0; k < n; k++) {
        const struct channel_group *g = &m->groups[slots[k]];
        const uint64_t job = m->jobs[m->processes[g->process].job].rec.number;
        if (k && g->process == m->groups[slots[k - 1]].process)
            continue;
        if (resume)
            PROBE(resume_done, job, g->dg.proc.pid, g->dg.gpu, r);
        else
            PROBE(suspend_done, job, g->dg.proc.pid, g->dg.gpu, r);
    }
    if (r < 0 && several) {
        joint_failed(m, slots, n, r);
        return;
    }
    /* After an error some may be suspended: they count as such until a resume says otherwise. Only
     * -EPERM says that none is (ops.h); what may never be steered must not stay on record. */
    bool nothing_done = r == -EPERM || (r < 0 && !proc_alive(first->dg.proc));
    for (size_t k = 0; k < n; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        g->suspended = resume ? r < 0 : !nothing_done || (r == -EPERM && g->suspended);
        g->suspend_unsure = r < 0;
        m->processes[g->process].joins = r == 0;
        if (r < 0)
            apply_failed(m, g, &g->retry_at, r, &err);
        journal_put_group(m->journal, slots[k], model_journal_flags(g), &g->dg);
    }
}

/* All groups of one process on one device that want it, as many as go in one call. Returns how many
 * these are. */
static uint32_t apply_process(struct model *m, uint32_t slot)
{
    uint32_t slots[APPLY_BATCH];
    uint32_t n = 0;
    const struct channel_group *first = &m->groups[slot];
    for_each_group_of (m, &m->processes[first->process], i) {
        if (n < APPLY_BATCH && m->groups[i].dg.gpu == first->dg.gpu &&
            is_due(m, i, first->want_runnable))
            slots[n++] = i;
    }
    apply_call(m, slots, n, first->want_runnable);
    return n;
}

static bool applies_latency(const struct model *m, uint32_t slot)
{
    return model_class(m, &m->jobs[m->processes[m->groups[slot].process].job]) == CLASS_LATENCY;
}

/* All groups of the plan, from this setting on, that want it on one device: of processes for which
 * the last call succeeded, so that one that cannot be steered hinders no other. As
 * apply_process(). */
static uint32_t apply_joint(struct model *m, const struct sched_plan *plan, size_t from,
                            unsigned gpu, bool resume, bool latency)
{
    uint32_t slots[APPLY_BATCH];
    uint32_t n = 0;
    for (size_t i = from; i < plan->n && n < APPLY_BATCH; i++) {
        for_each_twin(m, plan->settings[i].group, g)
        {
            if (n < APPLY_BATCH && m->groups[g].dg.gpu == gpu && is_due(m, g, resume) &&
                m->processes[m->groups[g].process].joins && applies_latency(m, g) == latency)
                slots[n++] = g;
        }
    }
    apply_call(m, slots, n, resume);
    return n;
}

/* Suspends, or resumes, what the plan has so, of latency jobs or of the others. What is left is the
 * next tick's. Whether nothing is. */
static bool apply_runnable(struct model *m, const struct sched_plan *plan, bool resume,
                           bool latency, struct apply_left *left)
{
    for (size_t i = 0; i < plan->n; i++) {
        for_each_twin(m, plan->settings[i].group, g)
        {
            if (!is_due(m, g, resume) || applies_latency(m, g) != latency)
                continue;
            if (!left->groups || monotonic_ns() >= left->until_ns)
                return false;
            uint32_t n = 0;
            if (m->processes[m->groups[g].process].joins)
                n = apply_joint(m, plan, i, m->groups[g].dg.gpu, resume, latency);
            if (is_due(m, g, resume))
                n += apply_process(m, g);
            left->groups -= (uint32_t)min_u64(n, left->groups);
        }
    }
    return true;
}

/* One that is the same in the hardware as others has its timeslice for all of them. One that stays
 * suspended gets it when it is resumed: until then it may have changed again. */
static void apply_timeslice(struct model *m, uint32_t slot)
{
    struct channel_group *g = &m->groups[slot];
    struct error err = {""};
    if (g->settings_at > m->now || (g->timeslice_us == g->want_us && !g->timeslice_unknown) ||
        (g->suspended && !g->suspend_unsure && !g->want_runnable) ||
        !(m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE))
        return;
    int r = 0;
    for_each_twin(m, slot, i)
    {
        struct channel_group *t = &m->groups[i];
        int put = journal_put_group(m->journal, i, model_journal_flags(t) | JG_TIMESLICE, &t->dg);
        r = r ? r : put;
    }
    if (r < 0)
        error_set(&err, r, "cannot write the journal (%s): left as it is", strerror(-r));
    const bool written = r == 0;
    if (written)
        r = m->driver->ops->set_timeslice(m->driver, &g->dg, g->want_us, &err);
    m->controls += written;
    m->controls_failed += written && r < 0;
    for_each_twin(m, slot, i)
    {
        struct channel_group *t = &m->groups[i];
        /* A control that failed may have done it. */
        if (written)
            t->timeslice_unknown = r < 0 && (r != -EPERM || t->timeslice_unknown);
        if (r == 0)
            t->timeslice_us = g->want_us;
        if (i == slot)
            journal_put_group(m->journal, i, model_journal_flags(t), &t->dg);
    }
    if (r < 0)
        apply_failed(m, g, &g->settings_at, r, &err);
}

/* ---- preemption at block ends ---- */

static void apply_block_ends(struct model *m, uint32_t slot, bool on)
{
    struct channel_group *g = &m->groups[slot];
    struct error err = {""};
    int r = 0;
    if (g->settings_at > m->now || (g->block_ends == on && !g->block_ends_unsure) ||
        !(m->gpus[g->dg.gpu].caps & GPU_CAP_PREEMPT))
        return;
    if (on)
        r = journal_put_group(m->journal, slot, model_journal_flags(g) | JG_PREEMPT, &g->dg);
    if (r < 0) {
        error_set(&err, r, "cannot write the journal (%s): left as it is", strerror(-r));
    } else {
        r = m->driver->ops->set_preempt(m->driver, &g->dg, on, &err);
        m->controls++;
        m->controls_failed += r < 0;
        if (r != -EPERM) { /* a control that failed may have done it */
            g->block_ends = on || r < 0;
            g->block_ends_unsure = r < 0;
        }
        journal_put_group(m->journal, slot, model_journal_flags(g), &g->dg);
    }
    if (r < 0)
        apply_failed(m, g, &g->settings_at, r, &err);
}

uint64_t apply_preempt(struct model *m)
{
    uint64_t next = TIME_NEVER;
    if (!m->preempts)
        return next;
    m->preempts = false;
    for_each_job (m, j) {
        const bool on = j->rec.preempt == PREEMPT_BLOCK && j->rec.class == CLASS_BATCH &&
                        !model_job_preempt_refused(m, j);
        m->preempts |= j->rec.preempt;
        for_each_process_of (m, j, p) {
            for_each_group_of (m, &m->processes[p], i) {
                apply_block_ends(m, i, on && m->groups[i].dg.kind == GROUP_COMPUTE);
                m->preempts |= m->groups[i].block_ends;
                next = min_u64(next, retry_due(m, i));
            }
        }
    }
    return next;
}

/* ---- clients of MPS servers, which are paused, or held for a moment, by a signal ---- */

static bool wants_stop(const struct model *m, const struct process *p)
{
    const struct job *j = &m->jobs[p->job];
    return (model_job_off(j) || j->speed.held || j->out_of_turn) && j->is_client &&
           p->first_group != SLOT_NONE;
}

/* 0, or why the journal does not have it. */
static int record_stop(struct model *m, struct process *p, bool stopped)
{
    int r = 0;
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        g->stopped = stopped;
        int put = journal_put_group(m->journal, i, model_journal_flags(g), &g->dg);
        r = r ? r : put;
    }
    return r;
}

/* Whoever may pause a user's job may not signal all in it: a descendant may be another user's. */
static bool may_stop(const struct model *m, const struct process *p)
{
    const struct journal_job *rec = &m->jobs[p->job].rec;
    uid_t owner;
    return rec->uid == 0 || (rec->paused && rec->paused_by == 0) ||
           (proc_owner(p->id.pid, &owner) == 0 && owner == rec->uid);
}

/* What somebody else has stopped is that one's to continue, and is not on record. */
static void apply_stop(struct model *m, struct process *p)
{
    struct error err = {""};
    if (m->now < p->stops_at)
        return;
    p->stops_at = m->now + STOPS_NS;
    if (proc_stopped(p->id))
        return;
    if (!may_stop(m, p)) {
        error_set(&err, -EPERM, "process %d is another user's: not stopped, it runs on", p->id.pid);
        model_job_failed(m, p->job, -EPERM, &err);
        return;
    }
    int r = record_stop(m, p, true);
    r = r < 0 ? r : proc_signal(p->id, SIGSTOP);
    p->stopped = r == 0;
    if (r == 0 || r == -ESRCH)
        return;
    record_stop(m, p, false);
    error_set(&err, r, "cannot stop process %d: %s", p->id.pid, strerror(-r));
    model_job_failed(m, p->job, r, &err);
}

static void apply_continue(struct model *m, struct process *p)
{
    int r = proc_signal(p->id, SIGCONT);
    if (r < 0 && r != -ESRCH && r != -EPERM)
        return; /* at the next turn */
    p->stopped = false;
    record_stop(m, p, false);
}

void apply_continues(struct model *m)
{
    for (uint32_t i = 0; i < m->processes_end; i++) {
        struct process *p = &m->processes[i];
        if (p->id.pid && p->stopped && p->first_group == SLOT_NONE)
            apply_continue(m, p);
    }
}

uint64_t apply_stops(struct model *m)
{
    uint64_t next = TIME_NEVER;
    for (uint32_t i = 0; i < m->processes_end; i++) {
        struct process *p = &m->processes[i];
        if (!p->id.pid)
            continue;
        if (wants_stop(m, p)) {
            apply_stop(m, p);
            next = min_u64(next, p->stops_at);
            continue;
        }
        p->stops_at = 0;
        if (p->stopped)
            apply_continue(m, p);
        if (p->stopped)
            next = min_u64(next, m->now + STOPS_NS);
    }
    return next;
}

/* ---- a plan ---- */

static void want(struct model *m, uint32_t slot, uint64_t us, bool runnable)
{
    struct channel_group *g = &m->groups[slot];
    const struct gpu_info *gpu = &m->gpus[g->dg.gpu];
    g->want_us =
        us ? clamp_u64(us, gpu->timeslice_min_us, gpu->timeslice_max_us) : g->dg.timeslice_us;
    g->want_runnable = runnable || (m->withheld[g->dg.gpu].caps & GPU_CAP_SUSPEND) != 0;
}

/* Of units with a program that is in no job all is as it was. Returns when to try again. */
static uint64_t leave_alone(struct model *m)
{
    uint64_t retry_at = TIME_NEVER;
    for (uint32_t i = 0; m->nalone && i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        if (!group_live(g) || !m->jobs[m->processes[g->process].job].left_alone)
            continue;
        want(m, i, 0, true);
        if (g->suspended)
            apply_process(m, i);
        apply_timeslice(m, i);
        retry_at = min_u64(retry_at, retry_due(m, i));
    }
    return retry_at;
}

/* Of latency jobs first, and of groups that compute before those that copy: a new program is to
 * have its order soon. What one tick leaves, where programs have contexts by the thousand, is the
 * next one's. Whether all are set. */
static bool apply_timeslices(struct model *m, const struct sched_plan *plan)
{
    const uint64_t until = m->controls + TIMESLICES_MAX, until_ns = monotonic_ns() + APPLY_NS;
    for (unsigned turn = 0; turn < 4; turn++) {
        for (size_t i = 0; i < plan->n; i++) {
            const uint32_t g = plan->settings[i].group;
            const uint64_t before = m->controls;
            if ((m->groups[g].dg.kind != GROUP_COMPUTE) != (turn >> 1) ||
                applies_latency(m, g) == (turn & 1))
                continue;
            if (before >= until || (before > until - TIMESLICES_MAX && monotonic_ns() >= until_ns))
                return false;
            apply_timeslice(m, g);
        }
    }
    return true;
}

/* Suspends, sets and resumes as much as one tick may. While something is still to be suspended only
 * latency jobs are resumed: nothing else may run beside that. Whether all is done. */
static bool apply_settings(struct model *m, const struct sched_plan *plan)
{
    struct apply_left left = {RUNS_MAX, monotonic_ns() + APPLY_NS};
    const bool stopped =
        apply_runnable(m, plan, false, false, &left) && apply_runnable(m, plan, false, true, &left);
    const bool set = apply_timeslices(m, plan);
    left = (struct apply_left){RUNS_MAX, monotonic_ns() + APPLY_NS};
    return apply_runnable(m, plan, true, true, &left) && stopped &&
           apply_runnable(m, plan, true, false, &left) && set;
}

uint64_t apply_plan(struct model *m, const struct sched_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct sched_setting *s = &plan->settings[i];
        for_each_twin(m, s->group, g) want(m, g, s->timeslice_us, s->runnable);
    }
    uint64_t retry_at = leave_alone(m);
    if (!apply_settings(m, plan))
        retry_at = m->now;
    for (size_t i = 0; i < plan->n; i++) {
        for_each_twin(m, plan->settings[i].group, g) retry_at = min_u64(retry_at, retry_due(m, g));
    }
    return retry_at;
}

bool apply_detach(struct model *m, uint32_t process)
{
    struct process *p = &m->processes[process];
    bool runs = true;
    if (p->stopped)
        apply_continue(m, p);
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        want(m, i, 0, true);
        g->retry_at = g->settings_at = 0;
        if (g->suspended)
            apply_process(m, i);
        apply_timeslice(m, i);
        apply_block_ends(m, i, false);
        runs &= !g->suspended;
    }
    model_process_detach(m, process); /* what could not be undone is tried again */
    return runs;
}

/* ---- what an earlier holder left ---- */

static bool is_orphan(uint32_t slot, void *arg)
{
    const struct model *m = arg;
    return m->groups[slot].orphan;
}

void undo_orphans(struct model *m)
{
    uint32_t flags;
    journal_undo(m->journal, m->driver, is_orphan, m);
    for (uint32_t i = 0; i < m->groups_end; i++) {
        if (m->groups[i].orphan && !journal_group(m->journal, i, &flags))
            model_orphan_remove(m, i);
    }
    m->orphans_until = m->now + ORPHANS_NS;
}

void undo_by_restorer(struct model *m)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        uint32_t flags = 0;
        if (!group_live(g))
            continue;
        journal_group(m->journal, i, &flags);
        g->suspended = flags & JG_SUSPENDED; /* what it could not undo it left there */
        g->suspend_unsure = true;
        g->timeslice_unknown = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
        g->stopped = flags & JG_STOPPED;
        g->block_ends |= flags & JG_PREEMPT; /* a call of ours may have ended after it undid that */
        g->block_ends_unsure = g->block_ends;
        m->preempts |= g->block_ends;
        m->processes[g->process].stopped &= g->stopped;
    }
}
