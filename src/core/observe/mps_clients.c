/* See mps_clients.h. */
#include "core/observe/mps_clients.h"

#include "plan/space_sharing.h"

/* Whether the job takes turns with the jobs outside its server, on GPU *d. */
static bool makes_room(const struct model *m, const struct job *j, unsigned *d)
{
    if (!j->united || j->left_alone || model_job_off(j) || j->rec.class != CLASS_BATCH ||
        model_class(m, j) != CLASS_LATENCY)
        return false;
    const uint32_t gpus = model_job_computes(m, j);
    *d = gpus ? (unsigned)__builtin_ctz(gpus) : 0;
    return __builtin_popcount(gpus) == 1;
}

/* The jobs outside on one GPU. */
struct outside {
    bool any;
    uint32_t normal, batch; /* one of each that works, or SLOT_NONE */
    uint32_t weight;        /* of those of class batch */
};

/* Jobs of one unit count as one, with the largest of their weights. */
static struct outside find_outside(const struct model *m, unsigned d)
{
    struct outside out = {.normal = SLOT_NONE, .batch = SLOT_NONE};
    uint32_t weights[JOURNAL_JOBS] = {0};
    for_each_job (m, j) {
        const enum job_class class = model_class(m, j);
        if (class == CLASS_LATENCY || model_job_off(j) || !(model_job_computes(m, j) >> d & 1))
            continue;
        out.any = true;
        if (j->on[d].idle)
            continue;
        *(class == CLASS_NORMAL ? &out.normal : &out.batch) = model_job_slot(m, j);
        if (class == CLASS_BATCH && j->rec.weight > weights[j->unit]) {
            out.weight += j->rec.weight - weights[j->unit];
            weights[j->unit] = j->rec.weight;
        }
    }
    return out;
}

/* Whose turn it is between clients of that weight and the jobs outside. */
static struct clients_turn clients_decide(const struct model *m, uint32_t weight,
                                          const struct outside *out)
{
    const bool better = out->normal != SLOT_NONE;
    const double share =
        better ? sched_current_params(m->sched)->floor : (double)weight / (weight + out->weight);
    struct clients_turn t = {.better = better, .job = better ? out->normal : out->batch};
    t.outside = space_outside_turn(share, m->now, &t.until_ns);
    return t;
}

uint64_t clients_due(struct clients *c, struct model *m)
{
    uint32_t weights[DEVICE_GPUS_MAX] = {0};
    uint64_t next = TIME_NEVER;
    unsigned gpu;
    if (!m->nshared && !c->contend)
        return next;
    for_each_job (m, j) {
        if (makes_room(m, j, &gpu))
            weights[gpu] = (uint32_t)max_u64(weights[gpu], j->rec.weight);
    }
    c->contend = false;
    for (unsigned d = 0; d < m->ngpus; d++) {
        c->turns[d] = (struct clients_turn){.outside = false, .until_ns = TIME_NEVER};
        if (!weights[d] || !sched_rotates(m->sched))
            continue;
        const struct outside out = find_outside(m, d);
        c->contend |= out.any;
        /* Jobs outside that are throttled cannot run, so nothing is held for them. */
        if (out.any && !sched_throttled(m->sched, d))
            c->turns[d] = clients_decide(m, weights[d], &out);
        next = min_u64(next, c->turns[d].until_ns);
    }
    for_each_job (m, j) {
        const bool held = makes_room(m, j, &gpu) && c->turns[gpu].outside;
        m->dirty |= held != j->out_of_turn;
        j->out_of_turn = held;
    }
    return next;
}

struct sched_reason clients_explain(const struct clients *c, unsigned d)
{
    const struct clients_turn *t = &c->turns[d];
    return (struct sched_reason){.why = t->better ? WHY_CLASS : WHY_NEXT,
                                 .other = t->job,
                                 .device = SLOT_NONE,
                                 .until_ns = t->until_ns};
}
