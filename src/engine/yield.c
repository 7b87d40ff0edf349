/* A job yields: its class, its turns, its memory (enum job_yield), on record until it acquires them
 * again. Acquiring gives back what it had, and never more than that; what a person sets in
 * between is forgotten here (yield_forget()).
 *
 * Acquiring is a wish that its caller renews: the memory is asked in when there is room for it, and
 * when it has come the job has the rest as well. Wishes have their places in line by when they were
 * first made. A ceded that takes over finds jobs here whose memory the restorer brought in, though
 * they yielded it: it goes again when a wish lacks that room. swap.c moves the memory, and says
 * what has become of that. */
#include "engine/yield.h"

#include <errno.h>

#include "engine/line.h"

#define LOOK_NS  (50 * NSEC_PER_MSEC)
#define AGAIN_NS NSEC_PER_SEC        /* after memory found no room, or could not leave */
#define LINE_NS  (60 * NSEC_PER_SEC) /* a wish that waits longer holds up no other user's */

static bool is_out(const struct job *j)
{
    return j->swap.phase == SWAP_LEAVING || j->swap.phase == SWAP_AWAY;
}

/* ---- giving ---- */

static void yield_class(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    struct job_terms terms = job_terms(&j->rec);
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
    j->wish_ns = 0;
    /* What left for a latency job stays for that one to decide. What an earlier ceded's end brings
     * in leaves again when another job needs the room. */
    const bool out = is_out(j) && (!over || (j->swap.by_user && j->swap.uid == by));
    const bool comes = j->swap.phase > SWAP_AWAY && j->rec.yielded & YIELD_MEMORY;
    if (what & YIELD_MEMORY && !out && !comes) {
        begun = j->swap.phase == SWAP_HERE;
        int r = swap_out(x, m, job, SWAP_BY_ITSELF, by, err);
        if (r < 0)
            return r;
        j->rec.yielded |= YIELD_MEMORY;
    }
    if (over || !before)
        j->rec.yielded_by = by;
    /* A user may undo a pause of that user's, which an administrator's is not. */
    if (what & YIELD_PAUSE && (!j->rec.paused || (over && j->rec.paused_by != by))) {
        j->rec.yielded |= YIELD_PAUSE;
        model_job_pause(m, job, true, by);
    }
    yield_class(m, job);
    if (begun || over)
        j->yields_with = begun ? j->rec.yielded & ~before : 0;
    model_job_changed(m, j);
    return 0;
}

int yield_outcome(const struct model *m, uint32_t job, struct error *err)
{
    const struct job *j = &m->jobs[job];
    if (j->swap.phase == SWAP_AWAY)
        return 0;
    if (j->swap.stayed && j->swap.code < 0) /* and may have to come back first */
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
    struct job_terms terms = job_terms(&j->rec);
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
    j->wish_ns = 0;
    model_job_changed(m, j);
}

/* a is before b in line, and wants room where b does. */
static bool is_before(const struct model *m, const struct job *a, const struct job *b)
{
    if (a->swap.phase == SWAP_ASKED)
        return line_asked_before(m, a, b, b->wish_ns);
    return line_same_gpu(m, a, b) && a != b && model_job_wished(m, a) &&
           a->swap.phase == SWAP_AWAY && a->rec.yielded & YIELD_MEMORY &&
           (a->wish_ns < b->wish_ns || (a->wish_ns == b->wish_ns && a < b)) &&
           (a->rec.account_uid == b->rec.account_uid || m->now < a->wish_ns + LINE_NS);
}

/* What latency jobs still lack there, unless it was one itself. */
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

/* The first GPU without room for it; ngpus: there is room, or it is not known of any. */
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

/* Memory that was yielded, and is there because an earlier ceded ended, leaves once more for the
 * job that wants its room. */
static void send_out_again(struct swaps *x, struct model *m, struct job *j, unsigned gpu)
{
    struct error err = {""};
    for_each_job (m, k) {
        if (!(k->rec.yielded & YIELD_MEMORY) || k->swap.phase != SWAP_HERE || k->swap.stayed ||
            model_job_wished(m, k) || !k->on[gpu].memory_bytes)
            continue;
        int r = swap_out(x, m, model_job_slot(m, k), SWAP_BY_ITSELF, k->rec.yielded_by, &err);
        if (r == 0)
            return;
        model_job_failed(m, model_job_slot(m, k), r, &err);
        j->wish_at = m->now + AGAIN_NS;
    }
}

/* Whether there is room for it, and no job before it in line; else makes room, as far as it can. */
static bool finds_room(struct swaps *x, const struct autoswap *a, struct model *m, struct job *j)
{
    if (m->now < j->wish_at || swap_moving(m) != SLOT_NONE) /* which has yet to take its room */
        return false;
    j->wish_at = m->now + LOOK_NS;
    for_each_job (m, k) {
        if (is_before(m, k, j))
            return false;
    }
    const unsigned gpu = lacks_room_on(a, m, j);
    if (gpu < m->ngpus)
        send_out_again(x, m, j, gpu);
    else
        j->wish_at = m->now + AGAIN_NS;
    return gpu == m->ngpus;
}

static void wish_advance(struct swaps *x, const struct autoswap *a, const struct demand *d,
                         struct model *m, struct job *j)
{
    switch (j->swap.phase) {
    case SWAP_HERE:
        yield_undo(d, m, model_job_slot(m, j), j->rec.yielded);
        break;
    case SWAP_LEAVING:
        if (j->rec.yielded & YIELD_MEMORY)
            swap_in(m, model_job_slot(m, j));
        break;
    case SWAP_AWAY:
        if (j->rec.yielded & YIELD_MEMORY && finds_room(x, a, m, j))
            swap_in(m, model_job_slot(m, j));
        break;
    case SWAP_STRANDED: /* it comes in anyhow, when there is room */
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
    if (!model_job_wished(m, j)) {
        j->wish_ns = m->now;
        j->wish_at = 0;
    }
    j->wish_until = m->now + wait_ns + 1;
}

uint64_t yield_due(struct swaps *x, const struct autoswap *a, const struct demand *d,
                   struct model *m)
{
    bool any = false;
    for_each_job (m, j) {
        if (model_job_wished(m, j))
            wish_advance(x, a, d, m, j);
        else if (j->rec.yielded & YIELD_MEMORY && j->swap.phase == SWAP_HERE && j->swap.stayed)
            yield_undo(d, m, model_job_slot(m, j), /* it did not leave */
                       j->rec.yielded & (j->yields_with | YIELD_MEMORY));
        any |= model_job_wished(m, j);
    }
    return any ? m->now + LOOK_NS : TIME_NEVER;
}
