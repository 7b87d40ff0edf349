/* See rights.h. No system calls, no state. */
#include "control/rights.h"

#include <errno.h>

bool rights_admin(uid_t uid, uid_t daemon_uid, gid_t admin_gid, gid_t gid, const gid_t *groups,
                  size_t ngroups)
{
    if (uid == 0 || uid == daemon_uid)
        return true;
    if (admin_gid == ADMIN_NO_GROUP)
        return false;
    for (size_t i = 0; i < ngroups; i++) {
        if (groups[i] == admin_gid)
            return true;
    }
    return gid == admin_gid;
}

/* For what only those may undo who did it. */
static int rights_undo(const struct caller *who, uid_t by, const char *did, const char *undo,
                       struct error *err)
{
    if (by == UID_OUTSIDE && who->guest) /* root in a container may take this uid */
        return error_set(err, -EPERM, "it was %s from outside of this container: %s it there", did,
                         undo);
    if (by == who->uid)
        return 0;
    return error_set(err, -EPERM,
                     "uid %u %s it: only that user, root and the administrators' group may %s it",
                     by, did, undo);
}

/* Of a job that is swapped out and the caller's. */
static int rights_check_swap_in(const struct caller *who, const struct subject *subject,
                                struct error *err)
{
    if (!subject->swapped_by_user)
        return error_set(err, -EPERM,
                         "it was swapped out for a latency job and comes back when there is room; "
                         "only root and the administrators' group may swap it in before");
    return rights_undo(who, subject->swapped_by, "swapped out", "swap in", err);
}

static int rights_check_acquire(const struct caller *who, const struct request *want,
                                const struct subject *subject, struct error *err)
{
    return want->op == OP_ACQUIRE && subject->yielded
               ? rights_undo(who, subject->yielded_by, "yielded", "acquire", err)
               : 0;
}

/* A floor takes from others, and a ceiling may only be lowered. */
static int check_limits(const struct request *want, const struct subject *subject, bool fresh,
                        struct error *err)
{
    uint32_t min = want->has_gpu_min ? want->gpu_min : fresh ? 0 : subject->gpu_min;
    uint32_t max = want->has_gpu_max ? want->gpu_max : fresh ? 0 : subject->gpu_max;
    if (min > subject->gpu_min)
        return error_set(err, -EPERM,
                         "gpu-min: a floor is taken from others, which requires root or the "
                         "administrators' group");
    if (subject->gpu_max && (!max || max > subject->gpu_max))
        return error_set(err, -EPERM,
                         "its gpu-max is %u%% now, and you may only lower it; more requires root "
                         "or the administrators' group",
                         subject->gpu_max);
    return 0;
}

/* Not about class and shares. */
static bool is_about_turns(enum proto_op op)
{
    return op == OP_PAUSE || op == OP_RESUME || op == OP_SWAP_OUT || op == OP_SWAP_IN ||
           op == OP_YIELD || op == OP_ACQUIRE;
}

/* What only shows something, or is about the asking process itself. */
static bool anybody_may(const struct request *want)
{
    return want->op == OP_PS || want->op == OP_HINTS || want->op == OP_ROOM ||
           want->op == OP_TRACE || want->op == OP_RULES ||
           (want->op == OP_POLICY && !want->name[0] && !want->params);
}

/* What a latency job asks of the others. */
static int check_latency(const struct request *want, const struct subject *subject,
                         enum job_class to_class, bool fresh, struct error *err)
{
    /* A part taken out of a latency job has no budget unless the request says so. */
    bool budget = fresh ? to_class == CLASS_LATENCY : want->has_budget;
    if (budget && want->budget_us < subject->budget_us)
        return error_set(
            err, -EPERM,
            "its latency budget is %u us now, and you may only raise it; a smaller one "
            "requires root or the administrators' group",
            subject->budget_us);
    uint32_t to_speed = want->min_speed ? want->min_speed : subject->default_speed;
    if (to_class == CLASS_LATENCY && (fresh || want->has_min_speed) &&
        to_speed > subject->min_speed)
        return error_set(
            err, -EPERM,
            "it is to keep %u%% of its speed now, and you may only lower that; a higher speed "
            "requires root or the administrators' group",
            subject->min_speed);
    return 0;
}

int rights_check(const struct caller *who, const struct request *want,
                 const struct subject *subject, struct error *err)
{
    if (who->admin || anybody_may(want))
        return 0;
    if (want->op == OP_POLICY)
        return error_set(err, -EPERM,
                         "only root and the administrators' group may change the policy; you may "
                         "look at it");
    if (want->op == OP_IDENTITY || want->slurm_job)
        return error_set(err, -EPERM,
                         "only root and the administrators' group may say what a control group is, "
                         "or belongs to a Slurm job");
    if (subject->owner != who->uid)
        return error_set(err, -EPERM,
                         "this belongs to uid %u: you may steer only your own programs (uid %u)",
                         subject->owner, who->uid);

    /* Splitting a paused job, or detaching it, makes it run as resuming does; so does swapping it
     * out, until its work has ended. */
    bool resumes = want->op == OP_RESUME || want->op == OP_ADD || want->release ||
                   ((want->op == OP_SWAP_OUT || (want->op == OP_YIELD && want->yields_memory)) &&
                    !subject->swapped);
    int code = resumes && subject->managed && subject->paused
                   ? rights_undo(who, subject->paused_by, "paused", "resume", err)
                   : 0;
    if (code < 0)
        return code;
    if (want->op == OP_SWAP_IN && subject->managed && subject->swapped)
        return rights_check_swap_in(who, subject, err);
    if (is_about_turns(want->op))
        return rights_check_acquire(who, want, subject, err);

    if (want->memory_bytes && want->has_class && want->class == CLASS_LATENCY)
        return error_set(err, -EPERM,
                         "making room swaps other jobs out, which requires root or the "
                         "administrators' group");

    /* Outside of a job a program is what a new job would be. */
    enum job_class class = subject->managed ? subject->class : CLASS_NORMAL;
    uint32_t weight = subject->managed ? subject->weight : WEIGHT_DEFAULT;
    /* A new job, and a detached program, is normal with the usual weight unless the request says
     * so. */
    bool fresh = want->op == OP_ADD || want->release;
    enum job_class to_class = want->has_class ? want->class : fresh ? CLASS_NORMAL : class;
    uint32_t to_weight = want->has_weight ? want->weight : fresh ? WEIGHT_DEFAULT : weight;
    if (to_class < class)
        return error_set(
            err, -EPERM,
            "it is in class %s now, and you may only lower it; raising it to %s requires "
            "root or the administrators' group",
            job_class_name(class), job_class_name(to_class));
    if (to_weight > weight)
        return error_set(
            err, -EPERM,
            "its weight is %u now, and you may only lower it; raising it to %u requires "
            "root or the administrators' group",
            weight, to_weight);
    int limits = check_limits(want, subject, fresh, err);
    if (limits < 0)
        return limits;
    return check_latency(want, subject, to_class, fresh, err);
}
