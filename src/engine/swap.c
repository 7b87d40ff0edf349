/* Jobs that leave the GPU's memory and come back: a swapper for each move (swapper.h), one at a
 * time, because each looks for room first and would not see what the other is about to take. Which
 * job moves is a person's wish (engine.h), or autoswap.c's.
 *
 * A job that is not on the GPU has no groups here and is not scanned; once back it is scanned anew
 * and gets what its class says. Whatever a swapper that moves out answers but success is followed
 * by one that brings in, which works from every state: so no job stays half-way. */
#include "engine/swap.h"

#include <errno.h>
#include <string.h>

#define RETRY_MIN_NS    (500 * NSEC_PER_MSEC)
#define RETRY_MAX_NS    (30 * NSEC_PER_SEC)
#define SWAP_REFUSED_NS (60 * NSEC_PER_SEC) /* before automatic swapping tries a job again */
#define SWAP_AGAIN_NS   (60 * NSEC_PER_SEC) /* before a user may swap out the same job again */
/* Of a daemon that leaves; a service manager kills it after 90 s. Then its restorer goes on. */
#define SWAP_LEAVE_MS 60000
#define OTHERS_NS     (100 * NSEC_PER_MSEC) /* looks at who is in the way */

static uint32_t records_of(struct swaps *x, const struct model *m, uint32_t job,
                           uint32_t v[SWAP_PROCESSES_MAX])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < JOURNAL_SWAPS && n < SWAP_PROCESSES_MAX; i++) {
        const struct journal_swap *rec = journal_swap(x->apply.journal, i);
        if (rec && rec->job == job)
            v[n++] = i;
    }
    return n;
}

static void forget_records(struct swaps *x, struct model *m, uint32_t job)
{
    uint32_t v[SWAP_PROCESSES_MAX];
    for (uint32_t n; (n = records_of(x, m, job, v)) > 0;) {
        while (n-- > 0)
            journal_put_swap(x->apply.journal, v[n], NULL);
    }
}

static uint32_t record_slot(struct swaps *x, const struct model *m, struct proc_id id)
{
    uint32_t spare = SLOT_NONE;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *rec = journal_swap(x->apply.journal, i);
        if (rec && proc_same(rec->proc, id))
            return i;
        if (!rec && spare == SLOT_NONE)
            spare = i;
    }
    return spare;
}

static void swap_failed(struct model *m, uint32_t job, int code, const struct error *err)
{
    m->jobs[job].swap.code = code;
    m->jobs[job].swap.error = *err;
}

uint32_t swap_moving(const struct model *m)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].rec.root.pid && m->jobs[i].swap.child.pid)
            return i;
    }
    return SLOT_NONE;
}

static void swap_unwatch(struct job_swap *s)
{
    watch_stop(s->watch);
    s->watch = NULL;
    s->ended = false;
}

/* Starts a swapper for the processes in o->v; their records first. */
static int swapper_launch(struct swaps *x, struct model *m, uint32_t job, struct swap_order *o,
                          struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    struct proc_stat st;
    swapper_address(o, x->apply.journal);
    o->lock_ms = SWAP_LOCK_MS;
    int r = swapper_start(&s->child, err);
    if (r < 0)
        return r;
    r = proc_stat_read(s->child.pid, &st);
    s->ended = false;
    if (r == 0)
        r = watch_start(x->watches, s->child.pidfd, &s->ended, &s->watch);
    for (uint32_t i = 0; i < o->n && r == 0; i++) {
        uint32_t slot = record_slot(x, m, o->v[i].proc);
        o->v[i].swapper = st.id;
        o->v[i].arrived = 0;
        if (slot == SLOT_NONE)
            r = -ENOSPC;
        else
            journal_put_swap(x->apply.journal, slot, &o->v[i]);
    }
    if (r == 0)
        r = swapper_begin(&s->child, o, err);
    else
        error_set(err, r, "cannot start swapping: %s", strerror(-r));
    if (r < 0) { /* without an order it does nothing */
        swap_unwatch(s);
        swapper_end(&s->child, NULL);
    }
    return r;
}

static int swap_send_in(struct swaps *x, struct model *m, uint32_t job, struct error *err)
{
    uint32_t v[SWAP_PROCESSES_MAX], n = records_of(x, m, job, v);
    _cleanup_free_ struct swap_order *o = calloc(1, sizeof(*o));
    if (!o)
        return error_set(err, -ENOMEM, "out of memory");
    for (; o->n < n; o->n++)
        o->v[o->n] = *journal_swap(x->apply.journal, v[o->n]);
    int r = swapper_launch(x, m, job, o, err);
    if (r == 0)
        m->jobs[job].swap.state = JOB_COMING;
    return r;
}

/* What each of its processes has on each GPU. */
static void swap_measure(struct swaps *x, struct model *m, struct swap_order *o)
{
    struct usage_list list = {0};
    x->apply.driver->ops->usage(x->apply.driver, &list,
                                NULL); /* what is not known the swapper refuses */
    for (size_t k = 0; k < list.n; k++) {
        for (uint32_t i = 0; i < o->n; i++) {
            if (o->v[i].proc.pid == list.v[k].pid && list.v[k].gpu < DEVICE_GPUS_MAX)
                o->v[i].bytes[list.v[k].gpu] += list.v[k].memory_bytes;
        }
    }
    usage_list_free(&list);
    for (uint32_t i = 0; i < o->n; i++)
        o->v[i].host_bytes = swapper_host_bytes(o->v[i].proc.pid);
}

/* Its GPU process into o. */
static int swap_choose(const struct model *m, uint32_t job, struct swap_order *o, struct error *err)
{
    unsigned n = 0;
    for (uint32_t p = 0; p < m->processes_end; p++) {
        if (!m->processes[p].id.pid || m->processes[p].job != job ||
            m->processes[p].first_group == SLOT_NONE || n++ >= SWAP_PROCESSES_MAX)
            continue;
        o->v[o->n++] = (struct journal_swap){.proc = m->processes[p].id, .job = job};
    }
    if (n == 0)
        return error_set(err, -ENODEV, "it has nothing on a GPU");
    /* Memory of another process (CUDA IPC) makes a process impossible to restore (docs/nvidia.md),
     * and it cannot be seen from outside; processes of one job are the ones that share. */
    if (n > 1)
        return error_set(err, -ENOTSUP,
                         "%u of its processes use a GPU and may share memory there, with which "
                         "they could not be brought back: not swapped, it runs on",
                         n);
    struct proc_stat st;
    if (proc_stat_read(o->v[0].proc.pid, &st) == 0 && (st.state == 'T' || st.state == 't'))
        return error_set(err, -EBUSY,
                         "process %d is stopped (SIGSTOP, or a debugger), and would not come to "
                         "rest: continue it first",
                         (int)o->v[0].proc.pid);
    return 0;
}

/* Its work has to come to an end before it is moved, so it has to run. */
static int swap_detach(struct swaps *x, struct model *m, uint32_t job, struct error *err)
{
    bool stays = false;
    for (uint32_t p = 0; p < m->processes_end; p++) {
        if (m->processes[p].id.pid && m->processes[p].job == job)
            stays |= !apply_detach(&x->apply, m, p);
    }
    return stays ? error_set(err, -EIO, "it is suspended and could not be resumed: not swapped")
                 : 0;
}

static int swap_send_out(struct swaps *x, struct model *m, uint32_t job, bool by_user, uid_t uid,
                         struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    struct swap_order *o = calloc(1, sizeof(*o));
    if (!o)
        return error_set(err, -ENOMEM, "out of memory");
    int r = swap_choose(m, job, o, err);
    if (r < 0) {
        free(o);
        return r;
    }
    swap_measure(x, m, o);
    memset(s->bytes, 0, sizeof(s->bytes));
    for (uint32_t i = 0; i < o->n; i++) {
        o->v[i].by_user = by_user;
        o->v[i].uid = uid;
        for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
            s->bytes[g] += o->v[i].bytes[g];
    }
    o->out = 1;
    r = swap_detach(x, m, job, err);
    if (r == 0)
        r = swapper_launch(x, m, job, o, err);
    if (r == 0) {
        s->state = JOB_LEAVING;
        s->by_user = by_user;
        s->uid = uid;
        s->back = BACK_NOT;
    } else {
        forget_records(x, m, job);
        model_job_rescan(m, job);
    }
    free(o);
    return r;
}

/* Now it stays out until it is asked back by who may: as with pausing, the last who asked. */
static void keep_out(struct swaps *x, struct model *m, uint32_t job, uid_t uid)
{
    uint32_t v[SWAP_PROCESSES_MAX], n = records_of(x, m, job, v);
    m->jobs[job].swap.by_user = true;
    m->jobs[job].swap.uid = uid;
    while (n-- > 0) {
        struct journal_swap rec = *journal_swap(x->apply.journal, v[n]);
        rec.by_user = true;
        rec.uid = uid;
        journal_put_swap(x->apply.journal, v[n], &rec);
    }
}

/* False only if it is known that none of its GPUs can. */
static bool may_swap(const struct model *m, uint32_t job)
{
    bool any = false;
    for (uint32_t g = 0; g < m->groups_end; g++) {
        const struct channel_group *y = &m->groups[g];
        if (!group_live(y) || m->processes[y->process].job != job)
            continue;
        any = true;
        if (m->gpus[y->dg.gpu].caps & GPU_CAP_SWAP)
            return true;
    }
    return !any;
}

int swap_out(struct swaps *x, struct model *m, uint32_t job, bool by_user, uid_t uid,
             struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    const struct device_ops *ops = x->apply.driver->ops;
    struct error e = {""};
    uint32_t other = swap_moving(m);
    if (x->mode == SWAP_OFF)
        return error_set(err, -EPERM, "swapping is switched off in the configuration (swap = off)");
    if (!ops->swap_out || !ops->usage || !may_swap(m, job))
        return error_set(err, -ENOTSUP, "what it has on its GPUs cannot be swapped (driver %s)",
                         device_name(x->apply.driver));
    if (s->state == JOB_COMING || (s->state == JOB_OUT && s->back != BACK_NOT))
        return error_set(err, -EBUSY, "it is being swapped in just now: try again later");
    if (s->state != JOB_ON_GPU) {
        s->back = BACK_NOT;
        if (by_user)
            keep_out(x, m, job, uid);
        return 0;
    }
    if (other != SLOT_NONE)
        return error_set(err, -EBUSY, "job #%llu is being swapped just now: try again later",
                         (unsigned long long)m->jobs[other].rec.number);
    if (by_user && uid != 0 && uid != geteuid() && m->now < s->user_again_at)
        return error_set(err, -EBUSY,
                         "it runs as if it were in no class until its work has come to rest, so a "
                         "user may have that once a minute: try again later");
    int r = swap_send_out(x, m, job, by_user, uid, &e);
    swap_failed(m, job, r, &e);
    if (r == 0 && by_user)
        s->user_again_at = m->now + SWAP_AGAIN_NS;
    s->refused_until = r < 0 ? m->now + SWAP_REFUSED_NS : 0;
    return r < 0 ? error_set(err, r, "%s", e.text) : 0;
}

int swap_in(struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    s->code = 0; /* what is told from now on is of this */
    if (s->state == JOB_COMING || s->state == JOB_ON_GPU || s->back != BACK_NOT)
        return 0;
    s->back = BACK_ASKED; /* the next turn sees to it */
    s->retry_at = 0;
    return 0;
}

/* ---- what swappers answer ---- */

static void is_back(struct swaps *x, struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    forget_records(x, m, job);
    s->state = JOB_ON_GPU;
    s->by_user = s->guessed = false;
    s->back = BACK_NOT;
    s->retry_every = 0;
    s->since_ns = m->now;
    model_job_rescan(m, job);
}

static void is_out(struct swaps *x, struct model *m, uint32_t job, bool certain)
{
    uint32_t v[SWAP_PROCESSES_MAX], n = records_of(x, m, job, v);
    while (n-- > 0) {
        struct journal_swap rec = *journal_swap(x->apply.journal, v[n]);
        rec.arrived = certain;
        rec.swapper.pid = 0;
        journal_put_swap(x->apply.journal, v[n], &rec);
    }
    m->jobs[job].swap.state = JOB_OUT;
    m->jobs[job].swap.since_ns = m->now;
    m->jobs[job].busy = -1;
    m->jobs[job].memory_bytes = 0;
    for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
        m->jobs[job].on[g].memory_bytes = 0;
}

static void did_not_come(struct swaps *x, struct model *m, uint32_t job, int r,
                         const struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    if (s->guessed && r != -ENOMEM && r != -EINTR) { /* it is not out, or nothing helps it */
        swap_failed(m, job, r, err);
        is_back(x, m, job);
        return;
    }
    /* Without room nothing was begun: it is as it was, and who asked may ask again. */
    is_out(x, m, job, r == -ENOMEM && s->back != BACK_MUST);
    if (!s->code || s->back != BACK_MUST) /* else why it did not leave says more */
        swap_failed(m, job, r, err);
    if (r == -ENOMEM)
        m->swap_pressure_ns = m->now; /* room was not what it seemed: automatic swapping waits */
    if (r == -EINTR && s->back == BACK_NOT)
        s->back = BACK_MUST; /* killed: where it is now nobody knows */
    else if (s->back == BACK_ASKED && r != -EINTR)
        s->back = BACK_NOT;
    s->retry_every = clamp_u64(s->retry_every * 2, RETRY_MIN_NS, RETRY_MAX_NS);
    s->retry_at = m->now + s->retry_every;
}

static void swapper_ended(struct swaps *x, struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    uint32_t v[SWAP_PROCESSES_MAX];
    struct error err = {""};
    swap_unwatch(s);
    int r = swapper_end(&s->child, &err);
    bool left = s->state == JOB_LEAVING;
    x->moved = true;
    if (!records_of(x, m, job, v)) { /* its processes have ended */
        is_back(x, m, job);
        model_job_drop_if_over(m, job);
    } else if (left && r == 0) {
        is_out(x, m, job, true);
        s->retry_at = 0;
    } else if (left) { /* half-way, or not at all: bringing in finds out */
        swap_failed(m, job, r, &err);
        is_out(x, m, job, false);
        s->refused_until = m->now + SWAP_REFUSED_NS;
        s->back = BACK_MUST;
        s->retry_at = 0;
    } else if (r == 0) {
        is_back(x, m, job);
    } else {
        did_not_come(x, m, job, r, &err);
    }
}

void swap_process_gone(struct swaps *x, struct model *m, struct proc_id id)
{
    uint32_t v[SWAP_PROCESSES_MAX];
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *rec = journal_swap(x->apply.journal, i);
        if (!rec || !proc_same(rec->proc, id))
            continue;
        uint32_t job = rec->job;
        journal_put_swap(x->apply.journal, i, NULL);
        if (job < m->jobs_end && !records_of(x, m, job, v) && !m->jobs[job].swap.child.pid)
            is_back(x, m, job);
    }
}

/* Brings in what is to come in anyhow; returns when to look again. */
static uint64_t swap_retry_in(struct swaps *x, struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    uint32_t v[SWAP_PROCESSES_MAX], n;
    if (s->state != JOB_OUT || s->back == BACK_NOT)
        return TIME_NEVER;
    if (m->now < s->retry_at)
        return s->retry_at;
    if (swap_moving(m) != SLOT_NONE)
        return s->retry_at = m->now + OTHERS_NS;
    n = records_of(x, m, job, v);
    for (uint32_t i = 0; i < n; i++) { /* an earlier holder's swapper may be at it still */
        if (swapper_phase(journal_swap(x->apply.journal, v[i])) == SWAP_MOVING)
            return s->retry_at = m->now + OTHERS_NS;
    }
    struct error err = {""};
    int r = swap_send_in(x, m, job, &err);
    if (r < 0)
        did_not_come(x, m, job, r, &err);
    return r < 0 && s->back != BACK_NOT ? s->retry_at : TIME_NEVER;
}

uint64_t swap_due(struct swaps *x, struct model *m)
{
    uint64_t next = TIME_NEVER;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].rec.root.pid && m->jobs[i].swap.ended)
            swapper_ended(x, m, i);
        if (m->jobs[i].rec.root.pid)
            next = min_u64(next, swap_retry_in(x, m, i));
        model_job_drop_if_over(m, i); /* a scan out of turn may have found its last process gone */
    }
    return next;
}

/* ---- taking over, leaving ---- */

/* The job of a record, or a new one if that has gone. */
static uint32_t job_of_record(struct swaps *x, struct model *m, const struct journal_swap *rec)
{
    struct job_spec spec = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .source = JOB_PID};
    uint32_t job = model_job_of(m, rec->proc.pid);
    if (job != SLOT_NONE || proc_owner(rec->proc.pid, &spec.uid) < 0)
        return job;
    snprintf(spec.name, sizeof(spec.name), "swapped");
    return model_job_add(m, rec->proc, &spec, &job, NULL) < 0 ? SLOT_NONE : job;
}

/* Its job is out, with that process: on record in `slot`. False: it has ended just now. */
static bool enter_record(struct swaps *x, struct model *m, uint32_t slot, struct journal_swap rec)
{
    uint32_t job = job_of_record(x, m, &rec);
    if (job != SLOT_NONE && model_process_find(m, rec.proc.pid) == SLOT_NONE &&
        model_process_add(m, rec.proc, job) < 0)
        job = SLOT_NONE;
    if (job == SLOT_NONE)
        return false;
    rec.job = job;
    journal_put_swap(x->apply.journal, slot, &rec);
    m->processes[model_process_find(m, rec.proc.pid)].scan_at = TIME_NEVER;
    struct job_swap *s = &m->jobs[job].swap;
    s->state = JOB_OUT;
    s->since_ns = m->now;
    s->by_user = rec.by_user;
    s->uid = rec.uid;
    for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
        s->bytes[g] += rec.bytes[g];
    if (!rec.arrived)
        s->back = BACK_MUST;
    return true;
}

void swap_take_back(struct swaps *x, struct model *m)
{
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *found = journal_swap(x->apply.journal, i);
        if (found && (!proc_alive(found->proc) || !enter_record(x, m, i, *found)))
            journal_put_swap(x->apply.journal, i, NULL);
    }
}

int swap_adopt(struct swaps *x, struct model *m, struct proc_id id, bool must, uint32_t *job,
               struct error *err)
{
    uint32_t slot = record_slot(x, m, id), p = model_process_find(m, id.pid);
    const struct journal_swap *rec =
        slot == SLOT_NONE ? NULL : journal_swap(x->apply.journal, slot);
    *job = model_job_of(m, id.pid);
    if (!x->apply.driver->ops->swap_in)
        return error_set(err, -ENOTSUP, "the driver for %s GPUs cannot swap",
                         x->apply.driver->ops->name);
    if (rec || (p != SLOT_NONE && m->processes[p].first_group != SLOT_NONE))
        return error_set(err, -EEXIST, "where process %d is, is known", (int)id.pid);
    if (*job != SLOT_NONE && m->jobs[*job].swap.state != JOB_ON_GPU)
        return error_set(err, -EBUSY, "job #%llu, which it is part of, is swapped out",
                         (unsigned long long)m->jobs[*job].rec.number);
    if (slot == SLOT_NONE)
        return error_set(err, -ENOSPC, "too many processes are swapped out (%u)", JOURNAL_SWAPS);
    if (!enter_record(x, m, slot, (struct journal_swap){.proc = id}))
        return error_set(err, -ESRCH, "process %d has just ended", (int)id.pid);
    *job = journal_swap(x->apply.journal, slot)->job;
    struct job_swap *s = &m->jobs[*job].swap;
    s->retry_at = 0;
    s->code = 0;
    s->guessed = true;
    s->back = must ? BACK_MUST : BACK_ASKED;
    return 0;
}

/* One that is moving goes on to its end, and is waited for below. */
void swap_leave(struct swaps *x, struct model *m, bool restore)
{
    struct error err = {""};
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (!m->jobs[i].swap.child.pid)
            continue;
        swap_unwatch(&m->jobs[i].swap);
        swapper_detach(&m->jobs[i].swap.child);
    }
    if (restore && swapper_undo(x->apply.journal, SWAP_LEAVE_MS, false, &err) > 0)
        fprintf(stderr, "cede: a job stays in host memory for now: %s\n", err.text);
}

const char *swap_state_name(const struct job_swap *s)
{
    static const char *const names[] = {[JOB_ON_GPU] = "",
                                        [JOB_LEAVING] = "swapping-out",
                                        [JOB_OUT] = "swapped",
                                        [JOB_COMING] = "swapping-in"};
    bool coming = s->state == JOB_OUT && s->back != BACK_NOT;
    return names[coming ? JOB_COMING : s->state];
}
