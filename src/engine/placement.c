/* See placement.h. Changes only the job's record. */
#include "engine/placement.h"

#include <string.h>

_Static_assert(PLACE_GPUS == DEVICE_GPUS_MAX, "a bit map of GPUs means the same everywhere");

/* The usage of a younger job does not count, as it may still load its data. */
#define NEW_NS (60 * NSEC_PER_SEC)
/* Without this limit a GPU that was added later, or was away, would get all jobs for hours. */
#define USED_MAX_S 3600

/* The GPUs that a job uses, those that it will be swapped in to, and those that it may still open.
 */
static uint32_t place_gpus_of(const struct model *m, const struct job *j)
{
    uint32_t gpus = model_job_gpus(m, j) | (autoswap_begins(m, j) ? j->rec.placed : 0);
    for (unsigned d = 0; d < m->ngpus; d++)
        gpus |= j->swap.bytes[d] && j->swap.phase != SWAP_HERE ? 1U << d : 0;
    return gpus;
}

/* Memory that is kept for a job counts on all GPUs, as the job may have chosen some itself. */
static void place_add_jobs(struct place *p, const struct autoswap *s, const struct model *m)
{
    for_each_job (m, j) {
        struct place_job x = {.gpus = place_gpus_of(m, j),
                              .class = (enum job_class)j->rec.class,
                              .weight = j->rec.weight};
        for (unsigned d = 0; d < m->ngpus; d++) {
            p->gpus[d].promised_bytes += autoswap_kept(s, m, j, d);
            x.busy[d] = m->now < j->added_ns + NEW_NS ? -1 : j->on[d].busy;
        }
        place_add(p, &x);
    }
}

/* Unmanaged programs count as normal jobs, since with the driver's default they overtake batch. */
static void place_add_unmanaged(struct place *p, const struct demand *x, const struct model *m)
{
    unsigned n[DEVICE_GPUS_MAX] = {0};
    for (size_t i = 0; i < m->nunmanaged; i++) {
        for (unsigned d = 0; d < m->ngpus; d++)
            n[d] += m->unmanaged[i].gpus >> d & 1;
    }
    for_each (u, m->unmanaged, m->nunmanaged) {
        struct place_job job = {.gpus = u->gpus, .class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT};
        for (unsigned d = 0; d < m->ngpus; d++)
            job.busy[d] = x->has_window && n[d] ? x->unmanaged_busy[d] / n[d] : -1;
        if (u->seen && !u->scheduler && !u->serves)
            place_add(p, &job);
    }
}

static void place_add_gpus(struct place *p, const struct demand *x, const struct model *m,
                           uint32_t candidates)
{
    const struct device_ops *ops = m->driver->ops;
    uint64_t least = UINT64_MAX;
    uint32_t sms = 0;
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (candidates >> d & 1) {
            least = min_u64(least, x->used_ns[d]);
            sms = m->gpus[d].sms > sms ? m->gpus[d].sms : sms;
        }
    }
    for (unsigned d = 0; d < m->ngpus; d++) {
        struct place_gpu *g = &p->gpus[d];
        if (!(candidates >> d & 1))
            continue;
        g->speed = m->gpus[d].sms ? (double)m->gpus[d].sms / sms : 1;
        g->used_s = min_u64((x->used_ns[d] - least) / NSEC_PER_SEC, USED_MAX_S);
        if (!ops->memory_free || ops->memory_free(m->driver, d, &g->free_bytes, NULL) < 0)
            g->free_bytes = UINT64_MAX;
    }
}

/* The candidates whose memory is large enough; if they are too few, all candidates, and
 * autoswap_need() reports the error. */
static uint32_t place_large_enough(const struct model *m, const struct place_need *need)
{
    uint32_t gpus = need->candidates;
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (m->gpus[d].memory_bytes && need->memory_bytes > m->gpus[d].memory_bytes)
            gpus &= ~(1U << d);
    }
    return (unsigned)__builtin_popcount(gpus) < need->ngpus ? need->candidates : gpus;
}

int place_job(struct place_names *names, const struct demand *x, const struct autoswap *s,
              const struct speeds *speeds, struct model *m, uint32_t job,
              const struct place_need *asked, struct error *err)
{
    struct job *j = &m->jobs[job];
    struct place p = {.ngangs = 0};
    struct place_need need = *asked;
    j->candidates = need.ngpus == 1 ? need.candidates : 0;
    if (j->rec.placed)
        return 0;
    need.candidates = place_large_enough(m, asked);
    need.class = (enum job_class)j->rec.class;
    need.weight = j->rec.weight;
    need.before = place_recall(names, j->rec.uid, j->rec.name);
    place_add_gpus(&p, x, m, need.candidates);
    place_add_jobs(&p, s, m);
    place_add_unmanaged(&p, x, m);
    for (unsigned d = 0; d < m->ngpus; d++)
        p.gpus[d].together = speeds_together(speeds, m, job, d, true);
    j->rec.placed = place_choose(&p, &need, &j->placed_why);
    if (!j->rec.placed)
        return error_set(err, -EINVAL, "there are no %u GPUs to choose from", need.ngpus);
    place_remember(names, j->rec.uid, j->rec.name, j->rec.placed);
    model_job_changed(m, j);
    return 0;
}

/* Free memory of a GPU beyond what is kept for jobs, including those that wait there. */
static uint64_t place_spare(const struct autoswap *s, const struct model *m, unsigned gpu)
{
    const struct device_ops *ops = m->driver->ops;
    uint64_t free_bytes, kept = 0;
    if (!ops->memory_free || ops->memory_free(m->driver, gpu, &free_bytes, NULL) < 0)
        return 0;
    for_each_job (m, j)
        kept += autoswap_kept(s, m, j, gpu);
    return free_bytes > kept ? free_bytes - kept : 0;
}

/* A latency job does not move, because others were swapped out for it where it is. */
static bool place_may_move(const struct job *j)
{
    return model_job_waits(j) && j->candidates && j->rec.class != CLASS_LATENCY;
}

static bool place_goes_first(const struct job *a, const struct job *b)
{
    if (a->rec.class != b->rec.class)
        return a->rec.class < b->rec.class;
    return a->position != b->position ? a->position < b->position : a->rec.number < b->rec.number;
}

void place_moves(struct place_names *names, const struct autoswap *s, struct model *m)
{
    uint64_t spare[DEVICE_GPUS_MAX] = {0};
    struct job *first = NULL;
    unsigned to = 0;
    bool any = false;
    for_each_job (m, j)
        any |= place_may_move(j);
    for (unsigned d = 0; any && d < m->ngpus; d++)
        spare[d] = place_spare(s, m, d);
    for_each_job (m, j) {
        for (unsigned d = 0; place_may_move(j) && d < m->ngpus; d++) {
            if (j->candidates >> d & 1 && d != j->rec.memory_gpu &&
                j->rec.memory_bytes <= spare[d] && (!first || place_goes_first(j, first))) {
                first = j;
                to = d;
            }
        }
    }
    if (!first)
        return;
    first->rec.placed = 1U << to;
    first->rec.memory_gpu = to;
    first->placed_why = PLACE_MEMORY;
    first->first_ns = 0;
    place_remember(names, first->rec.uid, first->rec.name, first->rec.placed);
    model_job_changed(m, first);
}
