/* Automatic swapping. For each GPU it gathers facts for plan/swap_choice.h, which decides which job
 * leaves for a latency job and which comes back, and lets swap.c move it; and for
 * plan/memory_line.h, which decides which of the jobs that wait for memory may start. It costs
 * nothing while no latency job needs room, no job waits for it and no job is out for another one.
 */
#include "memory/autoswap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory/still_starting.h"
#include "plan/memory_line.h"

#define DECIDE_NS   NSEC_PER_SEC
#define QUIET_NS    (10 * NSEC_PER_SEC)  /* see plan/swap_choice.h */
#define STARTING_NS (60 * NSEC_PER_SEC)  /* for which reserve_bytes are kept for a latency job */
#define TAKING_NS   (600 * NSEC_PER_SEC) /* for which promised memory is kept for a job */
/* More than SWAP_GPU_MARGIN, so that a swapper that begins finds room. */
#define COME_MARGIN(bytes) (512ULL * 1024 * 1024 + (bytes) / 16)

bool autoswap_begins(const struct model *m, const struct job *j)
{
    return model_job_waits(j) || m->now < max_u64(j->added_ns, j->kept_ns) + TAKING_NS;
}

/* The memory that a job is going to take on a GPU in addition to what it has there. */
static uint64_t need_of(const struct autoswap *x, const struct model *m, const struct job *j,
                        unsigned gpu)
{
    uint64_t need = 0, has = j->on[gpu].memory_bytes;
    if (j->rec.class != CLASS_LATENCY && (j->rec.room == ROOM_NONE || !autoswap_begins(m, j)))
        return 0;
    if (j->rec.memory_bytes)
        need = j->rec.memory_gpu == gpu ? j->rec.memory_bytes : 0;
    /* Which of several GPUs a job will use is not known before it has memory there. */
    else if (j->rec.class == CLASS_LATENCY && m->now < j->added_ns + STARTING_NS &&
             (m->ngpus == 1 || has))
        need = j->rule_bytes ? min_u64(j->rule_bytes, m->gpus[gpu].memory_bytes)
                             : x->options.reserve_bytes;
    need = need > has ? need - has : 0;
    return j->rec.class == CLASS_LATENCY && m->now < j->room_until[gpu]
               ? max_u64(need, j->room_bytes[gpu])
               : need;
}

static void job_starts(struct model *m, struct job *j, enum job_room room)
{
    j->rec.room = (uint16_t)room;
    j->kept_ns = m->now;
    model_job_changed(m, j);
}

/* Whether a latency job needs room, a job waits for it, or one is out and may come back. */
static bool anybody(const struct autoswap *x, struct model *m)
{
    bool any = false;
    for_each_job (m, j) {
        if (model_job_waits(j) && j->rec.memory_gpu >= m->ngpus)
            job_starts(m, j, ROOM_NONE); /* an earlier daemon had that GPU */
        bool out = j->swap.phase >= SWAP_AWAY && !j->swap.by_user;
        if (out && j->swap.phase == SWAP_AWAY && x->options.mode != SWAP_AUTO)
            j->swap.phase = SWAP_STRANDED; /* automatic swapping was switched off meanwhile */
        any |= out || model_job_waits(j);
        for (unsigned g = 0; g < m->ngpus && j->rec.class == CLASS_LATENCY; g++)
            any |= need_of(x, m, j, g) > 0;
    }
    return any;
}

static bool memory_free(const struct model *m, unsigned gpu, uint64_t *bytes)
{
    const struct device_ops *ops = m->driver->ops;
    return ops->memory_free && ops->usage && ops->memory_free(m->driver, gpu, bytes, NULL) == 0;
}

/* Whether the job finds room, besides what others need, on all its GPUs. Only asked for the first
 * of them, with which it comes back or not; false for the others. */
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
            kept += model_job_waits(j) && j->rec.class != CLASS_LATENCY &&
                            j->rec.class >= job->rec.class
                        ? 0
                        : need_of(x, m, j, g);
        if (bytes[g] && (!memory_free(m, g, &spare) || kept > spare))
            return false;
    }
    return true;
}

/* The memory that it takes when it comes back, with what it was going to take before. */
static uint64_t back_of(const struct job *j, unsigned gpu)
{
    const uint64_t bytes = j->swap.bytes[gpu];
    const bool said = j->rec.memory_gpu == gpu && j->rec.room == ROOM_KEPT;
    return bytes ? max_u64(bytes + COME_MARGIN(bytes), said ? j->rec.memory_bytes : 0) : 0;
}

uint64_t autoswap_kept(const struct autoswap *x, const struct model *m, const struct job *j,
                       unsigned gpu)
{
    const struct job_swap *s = &j->swap;
    if (s->phase == SWAP_HERE)
        return need_of(x, m, j, gpu);
    return s->phase == SWAP_AWAY && (s->by_user || j->rec.paused) && !model_job_acquires(m, j)
               ? 0
               : back_of(j, gpu);
}

/* Gathers the facts for plan/swap_choice.h, by slots of jobs; a free slot has no memory. */
static void look_at(const struct autoswap *x, const struct model *m, unsigned gpu,
                    struct swap_job *v)
{
    memset(v, 0, m->jobs_end * sizeof(*v));
    for_each_job (m, j) {
        const struct job_swap *s = &j->swap;
        bool on = s->phase == SWAP_HERE;
        uint64_t back = back_of(j, gpu);
        v[model_job_slot(m, j)] = (struct swap_job){
            .class = (enum job_class)j->rec.class,
            .out = !on,
            .fixed = (!on && s->phase != SWAP_AWAY) || m->now < s->refused_until || j->is_client ||
                     (on && !j->ngroups) ||
                     (!on && (!back || s->by_user || j->rec.paused || !room_above(x, m, j, gpu))),
            .bytes = on ? j->on[gpu].memory_bytes : back,
            .need_bytes = on ? need_of(x, m, j, gpu) : 0,
            .waits = model_job_waits(j),
            .since_ns = s->since_ns,
        };
    }
}

/* Whether the job waits for more than would be free if all jobs ended (most), because programs
 * without a job, or the driver, have the rest. That has to last for QUIET_NS, because the driver
 * shows memory that programs allocate or free a moment earlier than the model does. */
static bool is_infeasible(const struct model *m, struct job *j, uint64_t most)
{
    if (j->rec.memory_bytes <= most)
        j->short_ns = 0;
    else if (!j->short_ns)
        j->short_ns = m->now;
    return j->infeasible = j->short_ns && m->now >= j->short_ns + QUIET_NS;
}

/* Gathers the facts for plan/memory_line.h, by slots of jobs. */
static void line_look(const struct autoswap *x, struct model *m, unsigned gpu, uint64_t free_bytes,
                      struct room_job *v)
{
    uint64_t most = free_bytes;
    for_each_job (m, j)
        most += j->on[gpu].memory_bytes;
    for_each_job (m, j) {
        const bool here = j->swap.phase == SWAP_HERE, waits = model_job_waits(j);
        const uint64_t kept = autoswap_kept(x, m, j, gpu);
        if (waits && j->rec.memory_gpu != gpu)
            continue;
        v[model_job_slot(m, j)] = (struct room_job){
            .class = (enum job_class)j->rec.class,
            .account = j->account,
            .waits = waits,
            .infeasible = waits && is_infeasible(m, j, most),
            .need_bytes = here ? kept : 0,
            .back_bytes = !here && kept <= most ? kept : 0, /* else it cannot come back now */
            .line_ns = j->line_ns,
            .first_ns = j->first_ns,
            .pass_ns = j->pass_ns,
            .number = j->rec.number,
        };
    }
}

/* Starts jobs that wait for this GPU, and sets the positions of the others. No job waits where the
 * free memory is not known. */
static void autoswap_line(const struct autoswap *x, struct model *m, unsigned gpu, bool known,
                          uint64_t free_bytes)
{
    struct room_job *v = calloc(m->jobs_end + 1, sizeof(*v));
    struct room_job **scratch = calloc(m->jobs_end + 1, sizeof(struct room_job *));
    for_each_job (m, j) {
        if (model_job_waits(j) && j->rec.memory_gpu == gpu &&
            (!known || j->ngroups || !v || !scratch)) /* it need not wait, or has started */
            job_starts(m, j, j->ngroups ? ROOM_NONE : ROOM_KEPT);
    }
    if (v && scratch) {
        line_look(x, m, gpu, free_bytes, v);
        room_decide(v, m->jobs_end, free_bytes, m->now);
        room_line(v, m->jobs_end, scratch);
    }
    for_each_job (m, j) {
        const struct room_job *r = v ? &v[model_job_slot(m, j)] : NULL;
        if (!r || !model_job_waits(j) || j->rec.memory_gpu != gpu)
            continue;
        j->line_ns = r->line_ns;
        j->first_ns = r->first_ns;
        j->pass_ns = r->pass_ns;
        j->position = r->position;
        if (!r->waits)
            job_starts(m, j, ROOM_KEPT);
    }
    free(scratch);
    free(v);
}

/* Whether the move has to wait, because a job is starting on one of the mover's GPUs; the jobs that
 * wait for the move are told so. A latency job that has started and still lacks memory that it said
 * it takes delays no job that would leave. */
static bool waits_for_start(const struct autoswap *x, struct model *m, unsigned gpu,
                            struct swap_move what)
{
    const uint64_t max_ns = x->options.start_us * NSEC_PER_USEC;
    const struct job *mover = &m->jobs[what.job];
    struct error err = {""};
    uint32_t starts = SLOT_NONE;
    unsigned g = 0;
    for (; g < m->ngpus; g++) {
        if (!(what.out ? mover->on[g].memory_bytes : mover->swap.bytes[g]))
            continue;
        starts = starting_next(m, g, max_ns, 0);
        while (starts != SLOT_NONE && what.out && m->jobs[starts].rec.class == CLASS_LATENCY &&
               need_of(x, m, &m->jobs[starts], g) > 0)
            starts = starting_next(m, g, max_ns, starts + 1);
        if (starts != SLOT_NONE)
            break;
    }
    if (starts == SLOT_NONE)
        return false;
    int r = starting_error(m, max_ns, starts, g, &err);
    if (!what.out)
        model_job_failed(m, what.job, r, &err);
    for_each_job (m, j) {
        if (what.out && j->rec.class == CLASS_LATENCY && need_of(x, m, j, gpu) > 0)
            model_job_failed(m, model_job_slot(m, j), r, &err);
    }
    return true;
}

/* Looks at one GPU. False: *move was chosen, and has to be made before another look. */
static bool autoswap_look(const struct autoswap *x, struct model *m, unsigned gpu,
                          struct swap_job *v, struct swap_move *move)
{
    struct swap_device d = {.quiet_ns = QUIET_NS};
    look_at(x, m, gpu, v);
    bool known = memory_free(m, gpu, &d.free_bytes);
    for_each_job (m, j) {
        uint32_t i = model_job_slot(m, j);
        if (known && j->rec.class == CLASS_LATENCY && v[i].need_bytes > d.free_bytes)
            m->swap_pressure_ns = m->now;
    }
    autoswap_line(x, m, gpu, known, d.free_bytes);
    d.need_ns = m->swap_pressure_ns;
    if (!known || x->options.mode != SWAP_AUTO)
        return true;
    struct swap_move what = swap_decide(&d, v, m->jobs_end, m->now);
    if (what.job == SLOT_NONE || waits_for_start(x, m, gpu, what))
        return true;
    *move = what;
    return false;
}

bool autoswap_looks(const struct autoswap *x, const struct model *m)
{
    bool any = false;
    for_each_job (m, j)
        any |= m->now >= x->at && model_job_waits(j);
    return any;
}

uint64_t autoswap_due(struct autoswap *x, struct model *m, struct swap_move *move)
{
    *move = (struct swap_move){.job = SLOT_NONE};
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

/* A bit map of the GPUs; those of a gate, whose memory is not known, count if there are no others.
 */
static uint32_t gpus_with_memory(const struct model *m)
{
    uint32_t all = 0, gpus = 0;
    for (unsigned d = 0; d < m->ngpus; d++) {
        all |= 1U << d;
        gpus |= m->gpus[d].caps & GPU_CAP_GATE ? 0 : 1U << d;
    }
    return gpus ? gpus : all;
}

static int no_such_gpu(uint32_t gpu, uint32_t gpus, struct error *err)
{
    char list[80] = "", number[8];
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        snprintf(number, sizeof(number), "%u", d);
        if (gpus >> d & 1)
            list_add(list, sizeof(list), number);
    }
    return error_set(err, -EINVAL, "there is no GPU %u: %s %s", gpu,
                     gpus & (gpus - 1) ? "they are" : "the only one is", list);
}

int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err)
{
    const uint32_t gpus = gpus_with_memory(m);
    if (gpu >= m->ngpus || !(gpus >> gpu & 1))
        return no_such_gpu(gpu, gpus, err);
    if (m->gpus[gpu].memory_bytes && bytes > m->gpus[gpu].memory_bytes)
        return error_set(
            err, -EINVAL, "GPU %u has %.1f GiB of memory in all: %.1f GiB are %.1f GiB too many",
            gpu, (double)m->gpus[gpu].memory_bytes / (1U << 30), (double)bytes / (1U << 30),
            (double)(bytes - m->gpus[gpu].memory_bytes) / (1U << 30));
    struct job *j = &m->jobs[job];
    j->rec.memory_bytes = bytes;
    j->rec.memory_gpu = gpu;
    j->rec.room = ROOM_AWAITED;
    j->line_ns = m->now;
    model_job_changed(m, j);
    m->memory_until = m->now + 2 * DECIDE_NS;
    x->at = 0;
    return 0;
}

void autoswap_room(struct autoswap *x, struct model *m, uint32_t job, unsigned gpu, uint64_t bytes,
                   uint64_t until_ns)
{
    struct job *j = &m->jobs[job];
    if (gpu >= m->ngpus)
        return;
    if (bytes && (!j->room_bytes[gpu] || m->now >= j->room_until[gpu]))
        x->at = 0;
    j->room_bytes[gpu] = bytes;
    j->room_until[gpu] = until_ns;
    m->memory_until = m->now + 2 * DECIDE_NS;
}

void autoswap_started(struct model *m, uint32_t job)
{
    if (model_job_waits(&m->jobs[job]))
        job_starts(m, &m->jobs[job], ROOM_NONE);
}
