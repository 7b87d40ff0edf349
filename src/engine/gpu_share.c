/* The share of a GPU that a job can expect, from what jobs used in the last second; programs admit
 * requests by it. Decides nothing. See engine_job_share(). */
#include <math.h>

#include "engine/engine_impl.h"

#define ACTIVE 0.01 /* share of time below which a job counts as idle */

/* The GPUs of a process, or of the whole job if the process has none. */
static uint32_t share_gpus(const struct model *m, const struct job *j, pid_t pid)
{
    const uint32_t p = model_process_find(m, pid);
    const bool within = p != SLOT_NONE && &m->jobs[m->processes[p].job] == j;
    const uint32_t own = within ? model_process_gpus(m, &m->processes[p]) : 0;
    return own ? own : model_job_gpus(m, j);
}

static double share_weight(const struct model_account *a)
{
    return a->weight ? a->weight : WEIGHT_DEFAULT;
}

/* The jobs that compete with a job for a GPU. */
struct rivals {
    double higher, peers;         /* share of time that higher classes and peers use */
    double jobs, accounts;        /* sums of weights: of jobs in its account, and of accounts */
    bool counted[MODEL_ACCOUNTS]; /* accounts that are in the sum */
};

static void rivals_of(const struct engine *e, const struct job *j, unsigned d, struct rivals *r)
{
    const struct model *m = &e->model;
    enum job_class class = model_class(m, j);
    *r = (struct rivals){.jobs = j->rec.weight, .accounts = share_weight(&m->accounts[j->account])};
    r->counted[j->account] = true;
    for_each_job (m, o) {
        double busy = fmax(o->on[d].busy, 0);
        if (o == j || busy < ACTIVE || model_class(m, o) > class)
            continue;
        if (model_class(m, o) < class) {
            r->higher += busy;
            continue;
        }
        r->peers += busy;
        r->jobs += o->account == j->account ? o->rec.weight : 0;
        r->accounts += r->counted[o->account] ? 0 : share_weight(&m->accounts[o->account]);
        r->counted[o->account] = true;
    }
    /* Unmanaged programs run by the driver's default and count as one more peer. */
    if (e->demand.unmanaged_busy[d] >= ACTIVE) {
        r->peers += e->demand.unmanaged_busy[d];
        r->accounts += WEIGHT_DEFAULT;
    }
}

static double share_on(const struct engine *e, const struct job *j, unsigned d)
{
    struct rivals r;
    const struct model_account *a = &e->model.accounts[j->account];
    rivals_of(e, j, d, &r);
    double left = fmax(1 - r.higher, r.higher > 0 ? engine_params(e)->floor : 0);
    double part = share_weight(a) / r.accounts * (j->rec.weight / r.jobs);
    double share = fmax(fmax(left - r.peers, left * part), j->rec.gpu_min / 100.0);
    if (j->rec.gpu_max)
        share = fmin(share, j->rec.gpu_max / 100.0);
    return a->gpu_max ? fmin(share, a->gpu_max / 100.0) : share;
}

uint32_t engine_job_share(const struct engine *e, uint32_t job, pid_t pid)
{
    const struct model *m = &e->model;
    const struct job *j = &m->jobs[job];
    double least = 1;
    if (job >= m->jobs_end || !j->rec.root.pid || !e->demand.has_window)
        return 0;
    uint32_t gpus = share_gpus(m, j, pid);
    for (unsigned d = 0; d < m->ngpus; d++)
        least = gpus & 1U << d ? fmin(least, share_on(e, j, d)) : least;
    return (uint32_t)fmax(1, least * 1000 + 0.5);
}
