/* Automatic swapping: looks at each GPU for sched/swap.h, which decides who leaves for a latency
 * job and who comes back, and has swap.c do it. Costs nothing while no job needs room and none is
 * out for another's sake. */
#include "engine/autoswap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/swap.h"

#define DECIDE_NS   NSEC_PER_SEC
#define QUIET_NS    (10 * NSEC_PER_SEC) /* see sched/swap.h */
#define STARTING_NS (60 * NSEC_PER_SEC) /* how long reserve_bytes are kept for a latency job */
/* Above what the swapper wants to be free, so that it does not go in vain. */
#define COME_MARGIN(bytes) (512ULL * 1024 * 1024 + (bytes) / 16)

/* What a latency job is going to take of a GPU, beyond what it has there. */
static uint64_t need_of(const struct autoswap *x, const struct model *m, const struct job *j,
                        unsigned gpu)
{
    uint64_t need = 0, has = j->on[gpu].memory_bytes;
    if (j->rec.class != CLASS_LATENCY)
        return 0;
    if (j->need_bytes)
        need = j->need_gpu == gpu ? j->need_bytes : 0;
    /* Of several GPUs nobody knows which it will use before it does. */
    else if (m->now < j->added_ns + STARTING_NS && (m->ngpus == 1 || has))
        need = x->options.reserve_bytes;
    return need > has ? need - has : 0;
}

/* Whether anybody needs room, or is out and may come back. */
static bool anybody(const struct autoswap *x, struct model *m)
{
    bool any = false;
    for_each_job (m, j) {
        bool out = j->swap.phase >= SWAP_AWAY && !j->swap.by_user;
        if (out && j->swap.phase == SWAP_AWAY && x->options.mode != SWAP_AUTO)
            j->swap.phase = SWAP_STRANDED; /* automatic swapping was switched off meanwhile */
        any |= out;
        for (unsigned g = 0; g < m->ngpus; g++)
            any |= need_of(x, m, j, g) > 0;
    }
    return any;
}

static bool memory_free(const struct model *m, unsigned gpu, uint64_t *bytes)
{
    const struct device_ops *ops = m->driver->ops;
    return ops->memory_free && ops->memory_free(m->driver, gpu, bytes, NULL) == 0;
}

/* Whether it finds room, beside what others need, on its GPUs above this one: of several, the first
 * is asked whether it comes. */
static bool room_above(const struct autoswap *x, const struct model *m, const struct job *job,
                       unsigned gpu)
{
    const uint64_t *bytes = job->swap.bytes;
    for (unsigned g = 0; g < gpu; g++) {
        if (bytes[g])
            return false;
    }
    for (unsigned g = gpu + 1; g < m->ngpus; g++) {
        uint64_t spare, kept = bytes[g] + COME_MARGIN(bytes[g]);
        for_each_job (m, j)
            kept += need_of(x, m, j, g);
        if (bytes[g] && (!memory_free(m, g, &spare) || kept > spare))
            return false;
    }
    return true;
}

/* The GPU as sched/swap.h sees it, by slots of jobs; a free slot has nothing there. */
static void look_at(const struct autoswap *x, const struct model *m, unsigned gpu,
                    struct swap_job *v)
{
    memset(v, 0, m->jobs_end * sizeof(*v));
    for_each_job (m, j) {
        const struct job_swap *s = &j->swap;
        bool on = s->phase == SWAP_HERE;
        uint64_t back = s->bytes[gpu] ? s->bytes[gpu] + COME_MARGIN(s->bytes[gpu]) : 0;
        v[model_job_slot(m, j)] = (struct swap_job){
            .class = (enum job_class)j->rec.class,
            .out = !on,
            .fixed = (!on && s->phase != SWAP_AWAY) || m->now < s->refused_until || j->is_client ||
                     (on && !j->ngroups) ||
                     (!on && (!back || s->by_user || j->rec.paused || !room_above(x, m, j, gpu))),
            .bytes = on ? j->on[gpu].memory_bytes : back,
            .need_bytes = on ? need_of(x, m, j, gpu) : 0,
            .since_ns = s->since_ns,
        };
    }
}

/* False: what was chosen has to be done first. */
static bool autoswap_look(const struct autoswap *x, struct model *m, unsigned gpu,
                          struct swap_job *v, struct autoswap_move *move)
{
    struct swap_device d = {.quiet_ns = QUIET_NS};
    look_at(x, m, gpu, v);
    bool known = memory_free(m, gpu, &d.free_bytes);
    for_each_job (m, j) {
        uint32_t i = model_job_slot(m, j);
        if (known && v[i].need_bytes > d.free_bytes)
            m->swap_pressure_ns = m->now;
        /* Once said it stays so; and who cannot be told need not wait. */
        if (j->need_bytes && j->need_gpu == gpu)
            j->room |= !known || swap_room(&d, v, m->jobs_end, i);
    }
    d.need_ns = m->swap_pressure_ns;
    if (!known || x->options.mode != SWAP_AUTO)
        return true;
    struct swap_move what = swap_decide(&d, v, m->jobs_end, m->now);
    if (what.job == SLOT_NONE)
        return true;
    *move = (struct autoswap_move){what.job, what.out};
    return false;
}

uint64_t autoswap_due(struct autoswap *x, struct model *m, struct autoswap_move *move)
{
    *move = (struct autoswap_move){.job = SLOT_NONE};
    if (!anybody(x, m))
        return TIME_NEVER;
    m->memory_until = m->now + 2 * DECIDE_NS;
    if (m->now < x->at || swap_moving(m) != SLOT_NONE)
        return max_u64(x->at, m->now + DECIDE_NS);
    struct swap_job *v = calloc(m->jobs_end + 1, sizeof(*v));
    x->at = m->now + DECIDE_NS;
    for (unsigned g = 0; v && g < m->ngpus; g++) {
        if (!autoswap_look(x, m, g, v, move))
            break;
    }
    free(v);
    return x->at;
}

int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err)
{
    if (gpu >= m->ngpus)
        return error_set(err, -EINVAL, "there is no GPU %u: they are 0 to %u", gpu, m->ngpus - 1);
    if (m->gpus[gpu].memory_bytes && bytes > m->gpus[gpu].memory_bytes)
        return error_set(err, -EINVAL, "GPU %u has %.1f GiB of memory, not %.1f", gpu,
                         (double)m->gpus[gpu].memory_bytes / (1U << 30),
                         (double)bytes / (1U << 30));
    m->jobs[job].need_bytes = bytes;
    m->jobs[job].need_gpu = gpu;
    m->jobs[job].room = false;
    m->memory_until = m->now + 2 * DECIDE_NS;
    x->at = 0;
    return 0;
}
