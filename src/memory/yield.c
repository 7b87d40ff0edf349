/* A job may yield its class, its turns and its memory (enum job_yield), which are on record until
 * it acquires them. It gets back what it had, and never more; terms that a person sets in between
 * are not touched (yield_forget()).
 *
 * Acquiring is a request (acquire_ns) that the caller renews. Memory that was yielded is brought in
 * when there is room for it; once it is there, the job gets its class and its turns back. Requests
 * are served in the order in which they were first made. The restorer brings in memory that jobs
 * had yielded; a ceded that takes over moves it out again when a request needs the room. swap.c
 * moves the memory and has the result. */
#include "memory/yield.h"

#include <errno.h>

#include "memory/swap_line.h"

#define LOOK_NS  (50 * NSEC_PER_MSEC)
#define AGAIN_NS NSEC_PER_SEC        /* after there was no room, or memory could not be moved out */
#define LINE_NS  (60 * NSEC_PER_SEC) /* a request that waits longer delays no other user's */

static bool is_out(const struct job *j)
{
    return j->swap.phase == SWAP_LEAVING || j->swap.phase == SWAP_AWAY;
}

/* ---- giving ---- */

static void yield_class(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    struct job_terms terms = j->rec.terms;
    if (j->rec.yielded & YIELD_CLASS)
        return;
    j->rec.yielded |= YIELD_CLASS;
    j->rec.yielded_class = terms.class;
    j->rec.yielded_budget_us = terms.budget_us;
    terms.class = CLASS_BATCH;
    terms.budget_us = 0;
    model_job_change(m, job, &terms);
}

int yield_begin(struct swaps *x, struct model *m, uint32_t job, unsigned what, uid_t by, bool over,
                struct error *err)
{
    struct job *j = &m->jobs[job];
    const uint32_t before = j->rec.yielded;
    bool begun = false;
    j->acquire_ns = 0;
    /* What the caller has swapped out becomes yielded. A job that is out for a latency job stays
     * out for that one. Memory that comes in because an earlier ceded ended is moved out again when
     * another job needs the room. */
    const bool own = j->swap.by_user && j->swap.uid == by, known = j->rec.yielded & YIELD_MEMORY;
    const bool out = is_out(j) && (own ? known : !over);
    const bool moves = what & YIELD_MEMORY && !out && !(j->swap.phase > SWAP_AWAY && known);
    if (moves) {
        begun = j->swap.phase == SWAP_HERE;
        int r = swap_out(x, m, job, SWAP_BY_ITSELF, by, err);
        if (r < 0)
            return r;
        j->rec.yielded |= YIELD_MEMORY;
    }
    if (over || !before)
        j->rec.yielded_by = by;
    /* A user may undo that user's pause, but not an administrator's. */
    if (what & YIELD_PAUSE && (!j->rec.paused || (over && j->rec.paused_by != by))) {
        j->rec.yielded |= YIELD_PAUSE;
        model_job_pause(m, job, true, by);
    }
    yield_class(m, job);
    if (moves || over)
        j->yields_with = begun ? j->rec.yielded & ~before : 0;
    model_job_changed(m, j);
    return 0;
}

int yield_outcome(const struct model *m, uint32_t job, struct error *err)
{
    const struct job *j = &m->jobs[job];
    if (j->swap.phase == SWAP_AWAY)
        return 0;
    if (j->swap.stayed && j->swap.code < 0) /* it may have to come back first */
        return j->swap.phase == SWAP_HERE ? error_set(err, j->swap.code, "%s", j->swap.error.text)
                                          : -EINPROGRESS;
    if (!(j->rec.yielded & YIELD_MEMORY))
        return j->swap.phase == SWAP_HERE
                   ? error_set(err, -EIO, "it has been acquired again, or swapped in")
                   : -EINPROGRESS;
    return j->swap.phase == SWAP_HERE
               ? error_set(err, -EAGAIN, "an earlier ceded has ended meanwhile: ask again")
           : j->swap.phase < SWAP_AWAY ? -EINPROGRESS
                                       : 0;
}

void yield_forget(struct model *m, uint32_t job, unsigned what)
{
    struct job *j = &m->jobs[job];
    j->rec.yielded &= ~what;
    model_job_changed(m, j);
}

/* ---- taking back ---- */

static void yield_undo(const struct demand *d, struct model *m, uint32_t job, uint32_t what)
{
    struct job *j = &m->jobs[job];
    struct job_terms terms = j->rec.terms;
    if (what & YIELD_CLASS) {
        terms.class = (enum job_class)j->rec.yielded_class;
        terms.budget_us = terms.class == CLASS_LATENCY ? j->rec.yielded_budget_us : 0;
        if (terms.class != CLASS_BATCH) {
            terms.preempt = PREEMPT_INSTRUCTION;
            terms.min_speed = terms.class == CLASS_NORMAL ? 0 : terms.min_speed;
        }
        model_job_change(m, job, &terms);
    }
    if (what & YIELD_PAUSE) {
        model_job_pause(m, job, false, 0);
        demand_resumed(d, m, job);
    }
    j->rec.yielded &= ~what;
    j->acquire_ns = 0;
    model_job_changed(m, j);
}

/* Whether a is before b in line, and wants room on the same GPU. */
static bool is_before(const struct model *m, const struct job *a, const struct job *b)
{
    if (a->swap.phase == SWAP_ASKED)
        return line_asked_before(m, a, b, b->acquire_ns);
    return line_same_gpu(m, a, b) && a != b && model_job_acquires(m, a) &&
           a->swap.phase == SWAP_AWAY && a->rec.yielded & YIELD_MEMORY &&
           (a->acquire_ns < b->acquire_ns || (a->acquire_ns == b->acquire_ns && a < b)) &&
           (a->rec.principal == b->rec.principal || m->now < a->acquire_ns + LINE_NS);
}

/* The memory that latency jobs still lack there; 0 for a job that was one itself. */
static uint64_t kept_from(const struct autoswap *a, const struct model *m, const struct job *job,
                          unsigned gpu)
{
    uint64_t kept = 0;
    for_each_job (m, j) {
        if (j != job && j->rec.class == CLASS_LATENCY && j->swap.phase == SWAP_HERE &&
            job->rec.yielded_class != CLASS_LATENCY)
            kept += autoswap_kept(a, m, j, gpu);
    }
    return kept;
}

/* The first GPU without room for the job; ngpus: there is none, as far as is known. */
static unsigned lacks_room_on(const struct autoswap *a, const struct model *m, const struct job *j)
{
    const struct device_ops *ops = m->driver->ops;
    unsigned g = 0;
    for (; g < m->ngpus; g++) {
        const uint64_t bytes = j->swap.bytes[g];
        uint64_t spare = 0;
        if (bytes && ops->memory_free && ops->memory_free(m->driver, g, &spare, NULL) == 0 &&
            bytes + SWAP_GPU_MARGIN(bytes) + kept_from(a, m, j, g) > spare)
            break;
    }
    return g;
}

/* Moves out a job again that had yielded its memory and is in because an earlier ceded ended. */
static void send_out_again(struct swaps *x, struct model *m, struct job *j, unsigned gpu)
{
    struct error err = {""};
    for_each_job (m, k) {
        if (!(k->rec.yielded & YIELD_MEMORY) || k->swap.phase != SWAP_HERE || k->swap.stayed ||
            model_job_acquires(m, k) || !k->on[gpu].memory_bytes)
            continue;
        int r = swap_out(x, m, model_job_slot(m, k), SWAP_BY_ITSELF, k->rec.yielded_by, &err);
        if (r == 0)
            return;
        model_job_failed(m, model_job_slot(m, k), r, &err);
        j->acquire_at = m->now + AGAIN_NS;
    }
}

/* Whether there is room for the job and none before it in line; else tries to make room. */
static bool finds_room(struct swaps *x, const struct autoswap *a, struct model *m, struct job *j)
{
    if (m->now < j->acquire_at ||
        swap_moving(m) != SLOT_NONE) /* that one has not taken its room yet */
        return false;
    j->acquire_at = m->now + LOOK_NS;
    for_each_job (m, k) {
        if (is_before(m, k, j))
            return false;
    }
    const unsigned gpu = lacks_room_on(a, m, j);
    if (gpu < m->ngpus)
        send_out_again(x, m, j, gpu);
    else
        j->acquire_at = m->now + AGAIN_NS;
    return gpu == m->ngpus;
}

static void acquire_advance(struct swaps *x, const struct autoswap *a, const struct demand *d,
                            struct model *m, struct job *j)
{
    if (j->swap.phase == SWAP_HERE || !(j->rec.yielded & YIELD_MEMORY)) {
        yield_undo(d, m, model_job_slot(m, j), j->rec.yielded);
        return;
    }
    switch (j->swap.phase) {
    case SWAP_LEAVING:
        swap_in(m, model_job_slot(m, j));
        break;
    case SWAP_AWAY:
        if (finds_room(x, a, m, j))
            swap_in(m, model_job_slot(m, j));
        break;
    case SWAP_STRANDED: /* it is brought in by swap_due(); now may be the time */
        if (finds_room(x, a, m, j))
            j->swap.retry_at = m->now;
        break;
    default:
        break;
    }
}

void yield_acquire(struct model *m, uint32_t job, uint64_t wait_ns)
{
    struct job *j = &m->jobs[job];
    if (!model_job_acquires(m, j)) {
        j->acquire_ns = m->now;
        j->acquire_at = 0;
    }
    j->acquire_until = m->now + wait_ns + 1;
}

uint64_t yield_due(struct swaps *x, const struct autoswap *a, const struct demand *d,
                   struct model *m)
{
    bool any = false;
    for_each_job (m, j) {
        if (model_job_acquires(m, j))
            acquire_advance(x, a, d, m, j);
        else if (j->rec.yielded & YIELD_MEMORY && j->swap.phase == SWAP_HERE && j->swap.stayed)
            yield_undo(d, m, model_job_slot(m, j), /* its memory was not moved out */
                       j->rec.yielded & (j->yields_with | YIELD_MEMORY));
        any |= model_job_acquires(m, j);
    }
    return any ? m->now + LOOK_NS : TIME_NEVER;
}
