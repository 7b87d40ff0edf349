/* What the fields of a request may be together, and for which class; proto.c checks each by itself.
 * For messages, options and the configuration. No I/O. */
#include <errno.h>

#include "control/proto.h"

int request_budget(const struct request *r, enum job_class class, uint32_t now_us, uint32_t *out,
                   struct error *err)
{
    if (r->has_budget && r->budget_us && class != CLASS_LATENCY)
        return error_set(
            err, -EINVAL,
            "only a latency job has a budget, and this is a %s job: give it class latency "
            "too",
            job_class_name(class));
    *out = r->has_budget ? r->budget_us : class == CLASS_LATENCY ? now_us : 0;
    return 0;
}

int request_preempt(const struct request *r, enum job_class class, enum preempt_mode now,
                    enum preempt_mode *out, struct error *err)
{
    if (r->has_preempt && r->preempt == PREEMPT_BLOCK && class != CLASS_BATCH)
        return error_set(err, -EINVAL,
                         "only a batch job is preempted at block ends, and this is a %s job: give "
                         "it class batch too",
                         job_class_name(class));
    *out = class != CLASS_BATCH ? PREEMPT_INSTRUCTION : r->has_preempt ? r->preempt : now;
    return 0;
}

int request_deadline(const struct request *r, enum job_class class, struct error *err)
{
    if (r->deadline_us && class == CLASS_LATENCY)
        return error_set(
            err, -EINVAL,
            "a deadline lifts a normal or batch job, and this is a latency job, which runs "
            "before them anyway");
    if (r->has_laxity && !r->has_deadline)
        return error_set(err, -EINVAL, "a laxity is a part of a deadline: give the deadline too");
    if (r->laxity_us && r->laxity_us >= r->deadline_us)
        return error_set(
            err, -EINVAL,
            "the laxity, which is the slack in the deadline, has to be shorter than it");
    return 0;
}

int request_min_speed(const struct request *r, enum job_class class, uint32_t now, uint32_t *out,
                      struct error *err)
{
    if (r->has_min_speed && r->min_speed && class == CLASS_NORMAL)
        return error_set(
            err, -EINVAL,
            "a latency job keeps a speed beside lower jobs, and a batch job in a pool; "
            "this is a normal job: give it one of these classes too");
    if (r->has_min_speed && r->min_speed > 99 && class == CLASS_BATCH)
        return error_set(
            err, -EINVAL,
            "a batch job of a pool keeps 99%% of its speed at most: give --min-speed 99%%");
    *out = class == CLASS_NORMAL ? 0 : r->has_min_speed ? r->min_speed : now;
    return 0;
}

int request_place(const struct request *r, struct error *err)
{
    if (r->has_visible && !r->gpus)
        return error_set(err, -EINVAL, "visible needs gpus");
    if (r->gpus && r->has_gpu)
        return error_set(err, -EINVAL,
                         "gpus chooses the GPU on which the memory is taken: leave out its number");
    if (r->gpus > 1 && r->memory_bytes)
        return error_set(err, -EINVAL,
                         "memory is waited for on one GPU only: leave it out, or give gpus 1");
    return 0;
}

int request_limits(uint32_t gpu_min, uint32_t gpu_max, struct error *err)
{
    return gpu_max && gpu_min > gpu_max
               ? error_set(err, -EINVAL, "gpu-min is %u%%, more than gpu-max, which is %u%%",
                           gpu_min, gpu_max)
               : 0;
}
