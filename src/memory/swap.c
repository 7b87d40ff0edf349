/* Moves jobs out of the GPU's memory and back, with a swapper for each move (swapper.h). There is
 * one at a time, because each checks for room first, and two would not see each other's needs. A
 * person (engine.h) or autoswap.c decides which job moves.
 *
 * A job that is not SWAP_HERE has no groups in the model and is not scanned; when it is back it is
 * scanned and scheduled again. If a swapper that moves out fails, one that brings in follows, which
 * works from every state, so that no job stays half-way. */
#include "memory/swap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/probe.h"
#include "core/apply.h"
#include "memory/still_starting.h"
#include "memory/swap_line.h"

#define RETRY_MIN_NS (500 * NSEC_PER_MSEC)
#define RETRY_MAX_NS (30 * NSEC_PER_SEC)
/* Time before automatic swapping tries a job again; the second if the driver cannot move it. */
#define SWAP_REFUSED_NS (60 * NSEC_PER_SEC)
#define SWAP_UNABLE_NS  (600 * NSEC_PER_SEC)
/* Time before a user may swap out the same job again: SWAP_AGAIN times the time for which it ran
 * unscheduled, SWAP_AGAIN_NS at most. */
#define SWAP_AGAIN    10
#define SWAP_AGAIN_NS (60 * NSEC_PER_SEC)
/* Time before an account's users may have another job swapped out after one that stayed: this many
 * times the length of the attempt, during which no other job could move. */
#define SWAP_STAYED 5
/* Time limit when a daemon ends, which a service manager kills after 90 s. Its restorer goes on. */
#define SWAP_LEAVE_MS 60000
#define OTHERS_NS     (100 * NSEC_PER_MSEC) /* between looks for jobs that are in the way */
#define STARTS_NS     NSEC_PER_SEC
/* Time limit of one move, after which its swapper is killed so that other jobs can move: the driver
 * waits for the process, which its user may have stopped. On an H200 memory is moved out at 1.8
 * GB/s and in at 6. */
#define SWAP_MOVE_NS(bytes) (30 * NSEC_PER_SEC + (bytes)*4)

/* The phases of a job's memory (enum swap_phase, swapper.h). MOVED, FAILED and KILLED are the ends
 * of a swapper. From any phase the job gets to SWAP_HERE when its last process has ended. Between
 * two ticks:
 *   - a job that is SWAP_HERE has no record in the journal; another has one for each process that
 *     was moved;
 *   - a job that is LEAVING or RECALLED has a swapper of ours, as no other job has then;
 *   - a job that is ASKED or STRANDED may have one, or gets one at retry_at. */
enum swap_event { ASKED_OUT, ASKED_IN, MOVED, FAILED, KILLED, SWAP_EVENTS };
static const enum swap_phase swap_next[][SWAP_EVENTS] = {
    [SWAP_HERE] = {SWAP_LEAVING, SWAP_HERE, SWAP_HERE, SWAP_HERE, SWAP_HERE},
    [SWAP_LEAVING] = {SWAP_LEAVING, SWAP_RECALLED, SWAP_AWAY, SWAP_STRANDED, SWAP_STRANDED},
    [SWAP_RECALLED] = {SWAP_LEAVING, SWAP_RECALLED, SWAP_ASKED, SWAP_STRANDED, SWAP_STRANDED},
    [SWAP_AWAY] = {SWAP_AWAY, SWAP_ASKED, SWAP_AWAY, SWAP_AWAY, SWAP_AWAY},
    [SWAP_ASKED] = {SWAP_ASKED, SWAP_ASKED, SWAP_HERE, SWAP_AWAY, SWAP_STRANDED},
    [SWAP_STRANDED] = {SWAP_STRANDED, SWAP_STRANDED, SWAP_HERE, SWAP_STRANDED, SWAP_STRANDED},
    [SWAP_MOVING] = {SWAP_MOVING, SWAP_MOVING, SWAP_STRANDED, SWAP_STRANDED, SWAP_STRANDED},
};

static void swap_enter(struct model *m, uint32_t job, enum swap_phase phase)
{
    const bool off = model_job_off(&m->jobs[job]);
    m->jobs[job].swap.phase = phase;
    if (model_job_off(&m->jobs[job]) != off) /* groups that are found meanwhile may not run */
        model_unit_changed(m, job);
    PROBE(swap, m->jobs[job].rec.number, phase);
}

static uint64_t swap_pause_ns(int r)
{
    return r == -ENOTSUP ? SWAP_UNABLE_NS : SWAP_REFUSED_NS;
}

static void swap_failed(struct model *m, uint32_t job, int code, const struct error *err)
{
    struct job *j = &m->jobs[job];
    if (code < 0 && !j->swap.by_user && strcmp(j->swap.error.text, err->text) != 0)
        log_say(LOG_WARNING, "job #%llu (%s): %s", (unsigned long long)j->rec.number, j->rec.name,
                err->text);
    j->swap.code = code;
    j->swap.error = *err;
}

uint32_t swap_moving(const struct model *m)
{
    for_each_job (m, j) {
        if (j->swap.child.id.pid)
            return model_job_slot(m, j);
    }
    return SLOT_NONE;
}

static void swap_unwatch(struct job_swap *s)
{
    watch_stop(s->watch);
    s->watch = NULL;
    s->ended = false;
}

/* Starts a swapper for the processes in o->v. */
static int swap_launch(struct model *m, uint32_t job, struct swap_order *o, struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    o->lock_ms = SWAP_LOCK_MS;
    int r = swapper_start(&s->child, err);
    if (r < 0)
        return r;
    s->ended = false;
    s->began_ns = m->now;
    r = watch_start(&m->watches, s->child.pidfd, &s->ended, &s->watch);
    if (r < 0)
        error_set(err, r, "cannot start swapping: %s", strerror(-r));
    else
        r = swapper_begin(&s->child, m->journal, o, err);
    if (r < 0) { /* a swapper without an order does nothing */
        swap_unwatch(s);
        swapper_end(&s->child, NULL);
    }
    return r;
}

/* ---- out ---- */

/* Frees the job's records, because nothing of it is out, and has its processes scanned again. */
static void swap_forget(struct model *m, uint32_t job)
{
    for (uint32_t i = 0; journal_swap_of(m->journal, job, &i); i++)
        journal_put_swap(m->journal, i, NULL);
    model_job_rescan(m, job);
}

/* Measures the memory of each process on each GPU. The swapper refuses processes whose memory is
 * not known. */
static void swap_measure(struct model *m, struct swap_order *o)
{
    struct usage_list list = {0};
    m->driver->ops->usage(m->driver, &list, NULL);
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

/* -EBUSY: one of them is stopped. */
static int swap_stopped(const struct swap_order *o, struct error *err)
{
    for (uint32_t i = 0; i < o->n; i++) {
        if (proc_stopped(o->v[i].proc))
            return error_set(err, -EBUSY,
                             "process %d is stopped (SIGSTOP, or a debugger), and would not come "
                             "to rest: continue it first",
                             (int)o->v[i].proc.pid);
    }
    return 0;
}

/* Puts the job's GPU processes into o. The swapper refuses those that the driver cannot move. */
static int swap_choose(const struct model *m, uint32_t job, struct swap_order *o, struct error *err)
{
    unsigned n = 0;
    for_each_process_of (m, &m->jobs[job], p) {
        if (m->processes[p].first_group != SLOT_NONE && n++ < SWAP_PROCESSES_MAX)
            o->v[o->n++] = (struct journal_swap){.proc = m->processes[p].id, .job = job};
    }
    if (n == 0)
        return error_set(err, -ENODEV, "it has nothing on a GPU");
    if (n > SWAP_PROCESSES_MAX)
        return error_set(err, -ENOTSUP,
                         "%u of its processes use a GPU, and at most %d can be swapped together: "
                         "not swapped, it runs on",
                         n, SWAP_PROCESSES_MAX);
    return swap_stopped(o, err);
}

/* Lets the job run unscheduled, because its GPU work has to end before it is moved. */
static int swap_detach(struct model *m, uint32_t job, struct error *err)
{
    const uint64_t controls = m->controls + APPLY_CONTROLS_MAX;
    bool stays = false;
    for_each_process_of (m, &m->jobs[job], p)
        stays |= !apply_detach(m, p, controls);
    return stays ? error_set(err, -EIO, "it is suspended and could not be resumed: not swapped")
                 : 0;
}

static int swap_send_out(struct model *m, uint32_t job, bool by_user, uid_t uid, struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    struct swap_order o = {.out = 1};
    int r = swap_choose(m, job, &o, err);
    if (r < 0)
        return r;
    swap_measure(m, &o);
    memset(s->bytes, 0, sizeof(s->bytes));
    for (uint32_t i = 0; i < o.n; i++) {
        o.v[i].by_user = by_user;
        o.v[i].uid = uid;
        for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
            s->bytes[g] += o.v[i].bytes[g];
    }
    r = swap_detach(m, job, err);
    if (r == 0)
        r = swap_launch(m, job, &o, err);
    if (r < 0) {
        swap_forget(m, job);
        return r;
    }
    swap_enter(m, job, swap_next[s->phase][ASKED_OUT]);
    s->by_user = by_user;
    s->uid = uid;
    s->stayed = false;
    return 0;
}

void swap_set_author(struct model *m, uint32_t job, bool by_user, uid_t uid)
{
    const struct journal_swap *known;
    m->jobs[job].swap.by_user = by_user;
    m->jobs[job].swap.uid = uid;
    for (uint32_t i = 0; (known = journal_swap_of(m->journal, job, &i)); i++) {
        struct journal_swap rec = *known;
        rec.by_user = by_user;
        rec.uid = uid;
        journal_put_swap(m->journal, i, &rec);
    }
}

/* Whether a GPU of the job can swap, or it is not known which GPUs the job uses. */
static bool may_swap(const struct model *m, uint32_t job)
{
    bool any = false;
    for_each (y, m->groups, m->groups_end) {
        if (!group_live(y) || m->processes[y->process].job != job)
            continue;
        any = true;
        if (m->gpus[y->dg.gpu].caps & GPU_CAP_SWAP)
            return true;
    }
    return !any;
}

int swap_out(struct swaps *x, struct model *m, uint32_t job, enum swap_why why, uid_t uid,
             struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    const struct device_ops *ops = m->driver->ops;
    struct error e = {""};
    uint32_t other = swap_moving(m), starts;
    const bool by_user = why != SWAP_AUTOMATIC, limited = by_user && uid != 0 && uid != geteuid();
    const uint64_t account_at = m->accounts[m->jobs[job].account].swap_again_at;
    unsigned gpu;
    if (x->mode == SWAP_OFF)
        return error_set(err, -EPERM, "swapping is switched off in the configuration (swap = off)");
    if (!ops->swap_step || !ops->usage || !may_swap(m, job))
        return error_set(err, -ENOTSUP, "what it has on its GPUs cannot be swapped (driver %s)",
                         device_name(m->driver));
    if (m->jobs[job].is_client)
        return error_set(err, -ENOTSUP,
                         "it is a client of an MPS server, and such are not swapped");
    if (s->phase > SWAP_AWAY)
        return error_set(err, -EBUSY, "it is being swapped in just now: try again later");
    if (s->phase != SWAP_HERE) {
        swap_enter(m, job, swap_next[s->phase][ASKED_OUT]);
        if (by_user)
            swap_set_author(m, job, true, uid);
        return 0;
    }
    if (other != SLOT_NONE)
        return error_set(err, -EBUSY, "job #%llu is being swapped just now: try again later",
                         (unsigned long long)m->jobs[other].rec.number);
    if (limited && m->now < s->user_again_at)
        return error_set(err, -EBUSY,
                         "it ran as if it were in no class until its work had ended, so a user may "
                         "have that again in %llu s",
                         (unsigned long long)((s->user_again_at - m->now) / NSEC_PER_SEC + 1));
    if (limited && m->now < account_at)
        return error_set(err, -EBUSY,
                         "another job of this user did not leave the GPU, so a user may try again "
                         "in %llu s",
                         (unsigned long long)((account_at - m->now) / NSEC_PER_SEC + 1));
    if (limited && swapper_users(m->journal) >= USERS_PART(JOURNAL_SWAPS))
        return error_set(err, -ENOSPC, "users may have %u processes swapped out together",
                         USERS_PART(JOURNAL_SWAPS));
    starts = by_user ? starting_in_way(m, x->start_ns, job, true, why == SWAP_BY_ITSELF, &gpu)
                     : SLOT_NONE;
    if (starts != SLOT_NONE)
        return starting_error(m, x->start_ns, starts, gpu, err);
    int r = swap_send_out(m, job, by_user, uid, &e);
    swap_failed(m, job, r, &e);
    if (r == 0 && by_user)
        s->user_again_at = m->now + SWAP_AGAIN_NS;
    s->refused_until = r < 0 ? m->now + swap_pause_ns(r) : 0;
    return r < 0 ? error_set(err, r, "%s", e.text) : 0;
}

/* ---- in ---- */

int swap_in(struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    if (s->phase == SWAP_AWAY || s->phase == SWAP_LEAVING) {
        /* A job that finds no room and is asked in again goes to the end of the line. */
        s->asked_ns = model_job_acquires(m, &m->jobs[job]) ? m->jobs[job].acquire_ns : m->now;
        s->retry_at = 0;
    }
    swap_enter(m, job, swap_next[s->phase][ASKED_IN]);
    s->code = 0; /* later errors belong to this request */
    return 0;
}

static void swap_is_here(struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    swap_forget(m, job);
    swap_enter(m, job, SWAP_HERE);
    for (unsigned g = 0; g < m->ngpus; g++) /* more memory than it had is no start */
        m->jobs[job].on[g].start = (struct starting){0};
    s->by_user = s->guessed = false;
    s->retry_every = 0;
    s->since_ns = m->now;
}

/* Updates the records of a job that is not here after a swapper's end. arrived: it is out for
 * certain. */
static void swap_is_out(struct model *m, uint32_t job, bool arrived)
{
    const struct journal_swap *known;
    struct job *j = &m->jobs[job];
    for (uint32_t i = 0; (known = journal_swap_of(m->journal, job, &i)); i++) {
        struct journal_swap rec = *known;
        rec.arrived = arrived;
        rec.swapper.pid = 0;
        journal_put_swap(m->journal, i, &rec);
    }
    j->swap.since_ns = m->now;
    model_job_usage_clear(j);
}

/* Takes a swapper's answer, or the error that kept one from being started. */
static void swap_answered(struct model *m, uint32_t job, int r, const struct error *err)
{
    struct job_swap *s = &m->jobs[job].swap;
    const bool leaving = s->phase == SWAP_LEAVING || s->phase == SWAP_RECALLED;
    /* For lack of memory it was not found out whether a job that may be out is there. */
    const bool unknown = r == -EINTR || (s->guessed && r == -ENOMEM);
    const bool no_room = !leaving && r == -ENOMEM && !unknown; /* nothing was begun */
    enum swap_phase next = swap_next[s->phase][r == 0 ? MOVED : unknown ? KILLED : FAILED];
    if (s->guessed && r < 0 && !unknown)
        next = SWAP_HERE; /* it never was out, or cannot be brought in */
    uint32_t first = 0;
    if (!journal_swap_of(m->journal, job, &first)) { /* its processes have ended */
        swap_is_here(m, job);
        return;
    }
    /* The reason why a job did not leave is kept, rather than why it cannot come back yet. */
    if (r < 0 && (!s->code || s->phase != SWAP_STRANDED))
        swap_failed(m, job, r, err);
    if (next == SWAP_HERE) {
        swap_is_here(m, job);
        return;
    }
    swap_enter(m, job, next);
    swap_is_out(m, job, next != SWAP_STRANDED && (r == 0 || no_room));
    s->retry_at = m->now;
    s->stayed |= leaving && r < 0;
    if (leaving && r < 0)
        s->refused_until = m->now + swap_pause_ns(r);
    if (no_room)
        m->swap_pressure_ns = m->now; /* there was less room than it seemed: others wait, too */
    if (leaving)
        return;
    s->retry_every = clamp_u64(s->retry_every * 2, RETRY_MIN_NS, RETRY_MAX_NS);
    s->retry_at = m->now + s->retry_every;
}

static void swapper_ended(struct swaps *x, struct model *m, uint32_t job)
{
    struct error err = {""};
    struct job_swap *s = &m->jobs[job].swap;
    swap_unwatch(s);
    int r = swapper_end(&s->child, &err);
    const uint64_t locked_ns = s->child.locked_ns;
    if (locked_ns > s->began_ns)
        s->user_again_at =
            min_u64(s->user_again_at, locked_ns + SWAP_AGAIN * (locked_ns - s->began_ns));
    if (r < 0 && s->by_user && (s->phase == SWAP_LEAVING || s->phase == SWAP_RECALLED))
        m->accounts[m->jobs[job].account].swap_again_at =
            m->now + SWAP_STAYED * (m->now - s->began_ns);
    x->moved = true;
    swap_answered(m, job, r, &err);
}

void swap_process_gone(struct model *m, struct proc_id id)
{
    uint32_t slot = journal_swap_slot(m->journal, id), first = 0;
    const struct journal_swap *rec = journal_swap(m->journal, slot);
    if (!rec)
        return;
    uint32_t job = rec->job;
    journal_put_swap(m->journal, slot, NULL);
    if (job < m->jobs_end && !journal_swap_of(m->journal, job, &first) &&
        !m->jobs[job].swap.child.id.pid)
        swap_is_here(m, job);
}

/* Whether an earlier holder's swapper still moves the job. */
static bool moves_still(const struct model *m, uint32_t job)
{
    const struct journal_swap *rec;
    uint32_t i = 0;
    while ((rec = journal_swap_of(m->journal, job, &i)) && swapper_phase(rec) != SWAP_MOVING)
        i++;
    return rec;
}

/* Brings in a job that is to come in; returns when to look again. */
static uint64_t swap_retry_in(const struct swaps *x, struct model *m, uint32_t job)
{
    struct job_swap *s = &m->jobs[job].swap;
    unsigned gpu;
    struct swap_order o = {.out = 0};
    struct error err = {""};
    const struct journal_swap *rec;
    if (s->phase <= SWAP_AWAY || s->child.id.pid)
        return TIME_NEVER;
    if (m->now < s->retry_at)
        return s->retry_at;
    if (s->phase == SWAP_MOVING && !moves_still(m, job))
        swap_enter(m, job, swap_next[s->phase][KILLED]);
    if (s->phase == SWAP_MOVING || swap_moving(m) != SLOT_NONE)
        return s->retry_at = m->now + OTHERS_NS;
    /* A job that may be half-way does not wait, nor does any for others' starts without end. */
    const bool in_line = s->phase == SWAP_ASKED && !s->guessed;
    for_each_job (m, k) {
        if (in_line && line_asked_before(m, k, &m->jobs[job], s->asked_ns))
            return s->retry_at = m->now + OTHERS_NS;
    }
    uint32_t starts = in_line && m->now < s->asked_ns + x->start_ns
                          ? starting_in_way(m, x->start_ns, job, false, false, &gpu)
                          : SLOT_NONE;
    if (starts != SLOT_NONE) {
        model_job_failed(m, job, starting_error(m, x->start_ns, starts, gpu, &err), &err);
        return s->retry_at = m->now + STARTS_NS;
    }
    for (uint32_t i = 0; o.n < SWAP_PROCESSES_MAX && (rec = journal_swap_of(m->journal, job, &i));
         i++)
        o.v[o.n++] = *rec;
    if (swap_stopped(&o, &err) < 0) { /* other jobs come in meanwhile */
        swap_failed(m, job, -EBUSY, &err);
        s->refused_until = m->now + STARTS_NS;
        if (in_line)
            swap_enter(m, job, SWAP_AWAY);
        return s->retry_at = m->now + STARTS_NS;
    }
    o.must = s->phase == SWAP_STRANDED;
    int r = swap_launch(m, job, &o, &err);
    if (r == 0)
        return TIME_NEVER;
    swap_answered(m, job, s->guessed ? -EINTR : r, &err); /* a job that may be out was not asked */
    s->retry_at = m->now + STARTS_NS;                     /* a start that fails holds up nobody */
    return s->phase > SWAP_AWAY ? s->retry_at : TIME_NEVER;
}

void swap_reap(struct swaps *x, struct model *m)
{
    for_each_job (m, j) {
        if (j->swap.ended)
            swapper_ended(x, m, model_job_slot(m, j));
    }
}

/* Kills a swapper that has exceeded its time limit; returns that time. */
static uint64_t swap_limit(const struct model *m, const struct job_swap *s)
{
    uint64_t bytes = 0;
    for (unsigned g = 0; s->child.id.pid && g < DEVICE_GPUS_MAX; g++)
        bytes += s->bytes[g];
    const uint64_t until = s->began_ns + SWAP_MOVE_NS(bytes);
    if (!s->child.id.pid || m->now < until)
        return s->child.id.pid ? until : TIME_NEVER;
    kill(s->child.id.pid, SIGKILL);
    return m->now + STARTS_NS;
}

uint64_t swap_due(struct swaps *x, struct model *m)
{
    uint64_t next = TIME_NEVER;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].rec.root.pid)
            next = min_u64(next, swap_retry_in(x, m, i));
        next = min_u64(next, swap_limit(m, &m->jobs[i].swap));
        model_job_drop_if_over(m, i); /* a scan may have found that its last process has ended */
    }
    return next;
}

/* ---- taking over, leaving ---- */

/* Finds the job of a record, or adds a new one. */
static int job_of_record(struct model *m, const struct journal_swap *rec, uint32_t *job)
{
    struct job_spec spec = {.terms = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT},
                            .source = JOB_PID,
                            .name = "swapped"};
    int r = model_job_of(m, rec->proc.pid, job);
    if (r < 0 || *job != SLOT_NONE)
        return r;
    r = proc_owner(rec->proc.pid, &spec.uid);
    spec.principal = spec.uid;
    return r < 0 ? r : model_job_add(m, rec->proc, &spec, job, NULL);
}

/* Enters a record, in `slot`, of a process that is out with its job. -ESRCH: it has just ended. */
static int enter_record(struct model *m, uint32_t slot, struct journal_swap rec)
{
    uint32_t job;
    int r = job_of_record(m, &rec, &job);
    if (r == 0 && model_process_find(m, rec.proc.pid) == SLOT_NONE)
        r = model_process_add(m, rec.proc, job);
    if (r < 0)
        return r;
    rec.job = job;
    journal_put_swap(m->journal, slot, &rec);
    m->processes[model_process_find(m, rec.proc.pid)].scan_at = TIME_NEVER;
    struct job_swap *s = &m->jobs[job].swap;
    if (s->phase < swapper_phase(&rec)) /* of several processes the latest phase counts */
        swap_enter(m, job, swapper_phase(&rec));
    s->since_ns = m->now;
    s->by_user = rec.by_user;
    s->uid = rec.uid;
    for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
        s->bytes[g] += rec.bytes[g];
    return 0;
}

int swap_take_back(struct model *m)
{
    const struct journal_swap *found;
    for (uint32_t i = 0; (found = journal_swap_of(m->journal, SLOT_NONE, &i)); i++) {
        struct journal_swap rec = *found; /* which may not know that it was brought in */
        rec.arrived &= !(journal_incomplete(m->journal) & JOURNAL_SWAPS_MISSING);
        int r = proc_alive(rec.proc) ? enter_record(m, i, rec) : -ESRCH;
        if (r == -ESRCH)
            journal_put_swap(m->journal, i, NULL);
        else if (r < 0)
            return r;
    }
    return 0;
}

int swap_adopt(struct model *m, struct proc_id id, bool must, uint32_t *job, struct error *err)
{
    uint32_t slot = journal_swap_slot(m->journal, id), p = model_process_find(m, id.pid);
    int r = model_job_of(m, id.pid, job);
    if (!m->driver->ops->swap_step)
        return error_set(err, -ENOTSUP, "the driver for %s GPUs cannot swap", m->driver->ops->name);
    const bool has_groups = p != SLOT_NONE && m->processes[p].first_group != SLOT_NONE;
    if (journal_swap(m->journal, slot) || (has_groups && !must))
        return error_set(err, -EEXIST, "where process %d is, is known", (int)id.pid);
    if (*job != SLOT_NONE && m->jobs[*job].swap.phase != SWAP_HERE)
        return error_set(err, -EBUSY, "job #%llu, which it is part of, is swapped out",
                         (unsigned long long)m->jobs[*job].rec.number);
    if (slot == SLOT_NONE)
        return error_set(err, -ENOSPC, "too many processes are swapped out (%u)", JOURNAL_SWAPS);
    if (r == 0)
        r = enter_record(m, slot, (struct journal_swap){.proc = id});
    if (r == -ESRCH)
        return error_set(err, r, "process %d has just ended", (int)id.pid);
    if (r < 0)
        return error_set(err, r, "process %d cannot be looked at now: %s", (int)id.pid,
                         strerror(-r));
    if (has_groups) /* from before it went out, or because it is only locked */
        apply_detach(m, p, m->controls + APPLY_CONTROLS_MAX);
    *job = journal_swap(m->journal, slot)->job;
    struct job_swap *s = &m->jobs[*job].swap;
    s->retry_at = 0;
    s->code = 0;
    s->guessed = true;
    swap_enter(m, *job, must ? SWAP_STRANDED : SWAP_ASKED);
    return 0;
}

/* A swapper that is at work goes on to its end, for which swapper_undo() waits. */
void swap_leave(struct model *m, bool restore)
{
    struct error err = {""};
    for_each_job (m, j) {
        if (!j->swap.child.id.pid)
            continue;
        swap_unwatch(&j->swap);
        swapper_detach(&j->swap.child);
    }
    if (restore && swapper_undo(m->journal, SWAP_LEAVE_MS, false, &err) > 0)
        log_say(LOG_WARNING, "a job stays in host memory for now: %s", err.text);
}
