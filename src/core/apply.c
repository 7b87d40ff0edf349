/* Applies the difference between the scheduler's plan and the devices' state, and writes each
 * change to the journal before it is made. The order over all devices is suspend, set timeslices,
 * resume, so that two batch jobs never run at once beside a job of a higher class, and the halves
 * of a job on several devices begin their turn within a few calls of each other. */
#include "core/apply.h"

#include <errno.h>
#include <string.h>

#include "base/probe.h"
#include "core/mps_stop.h"

/* Limits of one plan, so that programs with thousands of contexts do not delay answers. Beside
 * these, APPLY_CONTROLS_MAX limits the controls that set timeslices. */
#define RUNS_MAX    512U                 /* groups that are suspended or resumed */
#define APPLY_NS    (20 * NSEC_PER_MSEC) /* for each of the two kinds, whatever a call costs */
#define APPLY_BATCH 256U                 /* groups in one call */
#define RETRY_NS    NSEC_PER_SEC
#define ORPHANS_NS  (2 * NSEC_PER_SEC) /* between two attempts to undo orphans */

/* retry_at: the field of the group that stands for this kind of control. */
static void apply_failed(struct model *m, struct channel_group *g, uint64_t *retry_at, int r,
                         const struct error *err)
{
    struct process *p = &m->processes[g->process];
    *retry_at = m->now + RETRY_NS;
    if (r == -ESRCH || r == -ENOENT || r == -EAGAIN)
        p->scan_at = m->now; /* the scan finds out whether process or group ended or moved */
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

/* Whether the group is to be suspended (or resumed) now. */
static bool is_due(const struct model *m, uint32_t slot, bool resume)
{
    const struct channel_group *g = &m->groups[slot];
    return !g->suspended.wanted == resume && g->retry_at <= m->now &&
           (resume ? g->suspended.have : !g->suspended.have || g->suspended.unsure);
}

/* The hardware counts suspensions and no group may have two, so a group that may be suspended
 * already is resumed first. */
static int apply_running(struct model *m, const uint32_t *slots, const struct device_group **list,
                         size_t n, bool on, struct error *err)
{
    const struct device_ops *ops = m->driver->ops;
    const struct device_group *unsure[APPLY_BATCH];
    size_t k = 0;
    for (size_t i = 0; i < n && !on; i++) {
        if (m->groups[slots[i]].suspended.unsure)
            unsure[k++] = list[i];
    }
    m->controls += k > 0;
    int r = k ? ops->set_running(m->driver, unsure, k, true, err) : 0;
    m->controls += r == 0;
    return r ? r : ops->set_running(m->driver, list, n, on, err);
}

/* After an error, neither the effect of a call for several processes nor the failing process is
 * known (ops.h). So all groups count as suspended, and each process has calls of its own until one
 * has succeeded. */
static void joint_failed(struct model *m, const uint32_t *slots, size_t n, int r)
{
    for (size_t k = 0; k < n; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        if (r != -EPERM)
            g->suspended.have = g->suspended.unsure = true;
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
    /* After an error some groups may be suspended, so all count as suspended until a resume
     * succeeds. Only -EPERM means that none is (ops.h): such groups must not stay on record. */
    bool nothing_done = r == -EPERM || (r < 0 && !proc_alive(first->dg.proc));
    for (size_t k = 0; k < n; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        g->suspended.have = resume ? r < 0 : !nothing_done || (r == -EPERM && g->suspended.have);
        g->suspended.unsure = r < 0;
        m->processes[g->process].joins = r == 0;
        if (r < 0)
            apply_failed(m, g, &g->retry_at, r, &err);
        journal_put_group(m->journal, slots[k], model_journal_flags(g), &g->dg);
    }
}

/* Suspends or resumes all groups of one process on one device for which that is due, up to one
 * call's worth. Returns their number. */
static uint32_t apply_process(struct model *m, uint32_t slot)
{
    uint32_t slots[APPLY_BATCH];
    uint32_t n = 0;
    const struct channel_group *first = &m->groups[slot];
    const bool resume = !first->suspended.wanted;
    for_each_group_of (m, &m->processes[first->process], i) {
        if (n < APPLY_BATCH && m->groups[i].dg.gpu == first->dg.gpu && is_due(m, i, resume))
            slots[n++] = i;
    }
    apply_call(m, slots, n, resume);
    return n;
}

static bool applies_latency(const struct model *m, uint32_t slot)
{
    return model_class(m, &m->jobs[m->processes[m->groups[slot].process].job]) == CLASS_LATENCY;
}

/* The same for all groups of the plan, from setting `from` on, on one device. Only processes whose
 * last call succeeded take part, so that one that cannot be steered hinders no other. */
static uint32_t apply_joint(struct model *m, const struct sched_plan *plan, size_t from,
                            unsigned gpu, bool resume, bool latency)
{
    uint32_t slots[APPLY_BATCH];
    uint32_t n = 0;
    for (size_t i = from; i < plan->n && n < APPLY_BATCH; i++) {
        for_each_twin (m, plan->settings[i].group, g) {
            if (n < APPLY_BATCH && m->groups[g].dg.gpu == gpu && is_due(m, g, resume) &&
                m->processes[m->groups[g].process].joins && applies_latency(m, g) == latency)
                slots[n++] = g;
        }
    }
    apply_call(m, slots, n, resume);
    return n;
}

/* Suspends or resumes, as planned, groups of latency jobs or of the others. False: the limit is
 * reached, and the next tick does the rest. */
static bool apply_runnable(struct model *m, const struct sched_plan *plan, bool resume,
                           bool latency, struct apply_left *left)
{
    for (size_t i = 0; i < plan->n; i++) {
        for_each_twin (m, plan->settings[i].group, g) {
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

static struct setting *setting_of(struct channel_group *g, uint32_t flag)
{
    return flag == JG_PREEMPT ? &g->block_ends : &g->timeslice_us;
}

static int set_on_device(struct model *m, const struct channel_group *g, uint32_t flag,
                         struct error *err)
{
    const struct device_ops *ops = m->driver->ops;
    return flag == JG_PREEMPT ? ops->set_preempt(m->driver, &g->dg, g->block_ends.wanted, err)
                              : ops->set_timeslice(m->driver, &g->dg, g->timeslice_us.wanted, err);
}

/* Records a setting before it is made. The program's own value needs no record. 0 or -errno. */
static int record_setting(struct model *m, uint32_t slot, uint32_t flag, struct error *err)
{
    const struct channel_group *g = &m->groups[slot];
    int r = 0;
    if (flag == JG_PREEMPT ? !g->block_ends.wanted : g->timeslice_us.wanted == g->dg.timeslice_us)
        return 0;
    for_each_twin (m, slot, i) {
        const struct channel_group *t = &m->groups[i];
        int put = journal_put_group(m->journal, i, model_journal_flags(t) | flag, &t->dg);
        r = r ? r : put;
    }
    return r < 0 ? error_set(err, r, "cannot write the journal (%s): left as it is", strerror(-r))
                 : 0;
}

/* Sets the timeslice (JG_TIMESLICE) or the preemption mode (JG_PREEMPT) that is wanted, if the
 * group has another one. Twins share one hardware group, so the change counts for all of them. */
static void apply_setting(struct model *m, uint32_t slot, uint32_t flag)
{
    struct channel_group *g = &m->groups[slot];
    const struct setting *s = setting_of(g, flag);
    const uint32_t cap = flag == JG_PREEMPT ? GPU_CAP_PREEMPT : GPU_CAP_TIMESLICE;
    struct error err = {""};
    if (g->settings_at > m->now || (s->have == s->wanted && !s->unsure) ||
        !(m->gpus[g->dg.gpu].caps & cap))
        return;
    int r = record_setting(m, slot, flag, &err);
    if (r < 0) {
        apply_failed(m, g, &g->settings_at, r, &err);
        return;
    }
    r = set_on_device(m, g, flag, &err);
    m->controls++;
    m->controls_failed += r < 0;
    for_each_twin (m, slot, i) {
        struct channel_group *t = &m->groups[i];
        struct setting *had = setting_of(t, flag);
        had->unsure =
            r < 0 && (r != -EPERM || had->unsure); /* a control that failed may have done it */
        had->have = r < 0 ? had->have : s->wanted;
        journal_put_group(m->journal, i, model_journal_flags(t), &t->dg);
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
                struct channel_group *g = &m->groups[i];
                g->block_ends.wanted = on && g->dg.kind == GROUP_COMPUTE;
                apply_setting(m, i, JG_PREEMPT);
                m->preempts |= g->block_ends.have || g->block_ends.unsure;
                next = min_u64(next, retry_due(m, i));
            }
        }
    }
    return next;
}

/* ---- a plan ---- */

static void want(struct model *m, uint32_t slot, uint64_t us, bool runnable)
{
    struct channel_group *g = &m->groups[slot];
    const struct gpu_info *gpu = &m->gpus[g->dg.gpu];
    g->timeslice_us.wanted =
        us ? clamp_u64(us, gpu->timeslice_min_us, gpu->timeslice_max_us) : g->dg.timeslice_us;
    g->suspended.wanted = !runnable && !(m->withheld[g->dg.gpu].caps & GPU_CAP_SUSPEND);
}

/* Undoes all changes in units that contain an unmanaged program. Returns when to try again. */
static uint64_t leave_alone(struct model *m)
{
    uint64_t retry_at = TIME_NEVER;
    for (uint32_t i = 0; m->nalone && i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        if (!group_live(g) || !m->jobs[m->processes[g->process].job].left_alone)
            continue;
        want(m, i, 0, true);
        if (g->suspended.have)
            apply_process(m, i);
        apply_setting(m, i, JG_TIMESLICE);
        retry_at = min_u64(retry_at, retry_due(m, i));
    }
    return retry_at;
}

/* Such a group gets its timeslice when it is resumed, as the plan may change until then. */
static bool stays_suspended(const struct channel_group *g)
{
    return g->suspended.wanted && g->suspended.have && !g->suspended.unsure;
}

/* Sets timeslices of groups that compute before those that copy, and of latency jobs first, so that
 * a new program takes effect soon. False: the limit is reached, and the next tick does the rest. */
static bool apply_timeslices(struct model *m, const struct sched_plan *plan)
{
    const uint64_t until = m->controls + APPLY_CONTROLS_MAX, until_ns = monotonic_ns() + APPLY_NS;
    for (unsigned turn = 0; turn < 4; turn++) {
        for (size_t i = 0; i < plan->n; i++) {
            const uint32_t g = plan->settings[i].group;
            const uint64_t before = m->controls;
            if ((m->groups[g].dg.kind != GROUP_COMPUTE) != (turn >> 1) ||
                applies_latency(m, g) == (turn & 1) || stays_suspended(&m->groups[g]))
                continue;
            if (before >= until ||
                (before > until - APPLY_CONTROLS_MAX && monotonic_ns() >= until_ns))
                return false;
            apply_setting(m, g, JG_TIMESLICE);
        }
    }
    return true;
}

/* Suspends, sets and resumes as much as one tick may. While a suspension is pending only latency
 * jobs are resumed, because nothing else may run beside the job that is still to be suspended.
 * Returns whether all is done. */
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
    for_each (s, plan->settings, plan->n) {
        for_each_twin (m, s->group, g)
            want(m, g, s->timeslice_us, s->runnable);
    }
    uint64_t retry_at = leave_alone(m);
    if (!apply_settings(m, plan))
        retry_at = m->now;
    for (size_t i = 0; i < plan->n; i++) {
        for_each_twin (m, plan->settings[i].group, g)
            retry_at = min_u64(retry_at, retry_due(m, g));
    }
    return retry_at;
}

bool apply_detach(struct model *m, uint32_t process, uint64_t controls)
{
    struct process *p = &m->processes[process];
    bool runs = true;
    if (p->stopped)
        mps_continue(m, p);
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        want(m, i, 0, true);
        g->retry_at = g->settings_at = 0;
        if (g->suspended.have)
            apply_process(m, i);
        g->block_ends.wanted = 0;
        if (m->controls < controls)
            apply_setting(m, i, JG_TIMESLICE);
        if (m->controls < controls)
            apply_setting(m, i, JG_PREEMPT);
        runs &= !g->suspended.have;
    }
    model_process_detach(m, process); /* records that remain become orphans */
    return runs;
}

/* ---- records of an earlier holder of the journal ---- */

struct some_orphans {
    const struct model *m;
    uint32_t from, end; /* slots that this tick looks at */
};

static bool is_orphan(uint32_t slot, void *arg)
{
    const struct some_orphans *x = arg;
    return slot >= x->from && slot < x->end && x->m->groups[slot].orphan;
}

void undo_orphans(struct model *m)
{
    struct some_orphans some = {.m = m, .from = m->orphans_from, .end = m->orphans_from};
    uint32_t flags;
    for (unsigned n = 0; some.end < m->groups_end && n < APPLY_CONTROLS_MAX; some.end++)
        n += m->groups[some.end].orphan;
    journal_undo(m->journal, m->driver, is_orphan, &some);
    for (uint32_t i = some.from; i < some.end; i++) {
        if (m->groups[i].orphan && !journal_group(m->journal, i, &flags))
            model_orphan_remove(m, i);
    }
    const bool all = some.end == m->groups_end;
    m->orphans_from = all ? 0 : some.end;
    m->orphans_until = all ? m->now + ORPHANS_NS : m->now;
}

void undo_by_restorer(struct model *m)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        uint32_t flags = 0;
        if (!group_live(g))
            continue;
        journal_group(m->journal, i, &flags);
        g->suspended.have = !!(flags & JG_SUSPENDED); /* still on record: it could not be undone */
        g->suspended.unsure = true;
        g->timeslice_us.unsure = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
        g->stopped = flags & JG_STOPPED;
        /* A call of ceded may have taken effect after the restorer's undo. */
        g->block_ends.unsure |= g->block_ends.have || flags & JG_PREEMPT;
        m->preempts |= g->block_ends.unsure;
        m->processes[g->process].stopped &= g->stopped;
    }
}
