/* How much of a GPU a job can expect, for programs that admit requests by it: from what jobs used
 * in the last second. Decides nothing. See engine_job_share(). */
#include <math.h>

#include "engine/engine_impl.h"

#define ACTIVE 0.01 /* share of time below which a job counts as idle */

/* The GPUs of a process; of the whole job, if it has none. */
static uint32_t share_gpus(const struct model *m, const struct job *j, pid_t pid)
{
    uint32_t own = 0, all = 0;
    for_each_process_of (m, j, p) {
        uint32_t gpus = 0;
        for_each_group_of (m, &m->processes[p], g)
            gpus |= 1U << m->groups[g].dg.gpu;
        all |= gpus;
        own |= m->processes[p].id.pid == pid ? gpus : 0;
    }
    return own ? own : all;
}

static double share_weight(const struct model_account *a)
{
    return a->weight ? a->weight : WEIGHT_DEFAULT;
}

/* What of a GPU those use who come into it for a job. */
struct rivals {
    double higher, peers;         /* share of time */
    double jobs, accounts;        /* sums of weights: in the job's account; of accounts */
    bool counted[MODEL_ACCOUNTS]; /* that account is in the sum */
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
    /* Programs in no job run as the driver has them: as one more of its class. */
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
