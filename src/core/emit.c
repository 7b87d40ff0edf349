/* Passes events of the model to the scheduler. See model.h. */
#include "core/model.h"

/* A change of demand requires a decision only where jobs take turns or have deadlines, and on gated
 * devices. */
int model_emit(struct model *m, struct sched_event ev)
{
    m->dirty |= ev.type != EV_DEMAND || (m->gpus[ev.device].caps & GPU_CAP_GATE) ||
                (m->jobs[ev.job].on[ev.device].idle == ev.on &&
                 (m->wake != TIME_NEVER || m->jobs[ev.job].due));
    return sched_event(m->sched, &ev);
}

struct sched_event model_terms_event(enum sched_event_type type, uint32_t job,
                                     const struct job_terms *terms)
{
    return (struct sched_event){
        .type = type,
        .job = job,
        .terms = {.class = terms->class,
                  .weight = terms->weight,
                  .budget_us = terms->budget_us,
                  .min_speed = terms->class == CLASS_LATENCY ? terms->min_speed / 100.0 : 0,
                  .gpu_min = terms->gpu_min / 100.0,
                  .gpu_max = terms->gpu_max / 100.0}};
}
