/* See rights.h. No system calls, no state. */
#include "api/rights.h"

#include <errno.h>

#include "api/job_terms.h"

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

/* Whether the caller may undo an action, which only the user who did it may. */
static int rights_undo(const struct caller *who, uid_t by, const char *did, const char *undo,
                       struct error *err)
{
    if (by == UID_OUTSIDE && who->guest) /* a guest's own uid may have this value */
        return error_set(err, -EPERM, "it was %s from outside of this container: %s it there", did,
                         undo);
    if (by == who->uid)
        return 0;
    return error_set(err, -EPERM,
                     "uid %u %s it: only that user, root and the administrators' group may %s it",
                     by, did, undo);
}

/* For a job that is swapped out and belongs to the caller. */
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

static uint32_t counts_as(const struct term *t, const struct job_terms *of, uint32_t default_speed)
{
    const uint32_t v = term_get(of, t);
    return v || t->none == NONE_IS_LEAST ? v : t->none == NONE_IS_MOST ? UINT32_MAX : default_speed;
}

/* Whether a user who is no administrator may change the terms `now` so. fresh: terms that are not
 * given become those of a new job. 0 or -EPERM. */
static int rights_terms(const struct request *want, const struct job_terms *now,
                        uint32_t default_speed, bool fresh, struct error *err)
{
    const struct term *t;
    const struct job_terms after = terms_after(want, fresh ? &terms_default : now, false);
    if (after.class < now->class)
        return error_set(err, -EPERM,
                         "it is in class %s now, and you may only lower it; raising it to %s "
                         "requires root or the administrators' group",
                         job_class_name(now->class), job_class_name(after.class));
    for (unsigned i = 0; (t = term_at(i)); i++) {
        const uint32_t is = counts_as(t, now, default_speed);
        const uint32_t to = counts_as(t, &after, default_speed);
        if (t->guarded >> after.class & 1 && (t->rises ? to < is : to > is))
            return error_set(err, -EPERM, t->refusal, is, to);
    }
    return 0;
}

int rights_check(const struct caller *who, const struct request *want,
                 const struct subject *subject, struct error *err)
{
    const enum op_rights rights = proto_op_rights(want->op);
    const bool looks = want->op == OP_POLICY && !want->name[0] && !want->params;
    if (who->admin || rights == RIGHTS_ANYBODY || looks)
        return 0;
    if (want->op == OP_POLICY)
        return error_set(err, -EPERM,
                         "only root and the administrators' group may change the policy; you may "
                         "look at it");
    if (rights == RIGHTS_ADMIN || want->slurm_job)
        return error_set(err, -EPERM,
                         "only root and the administrators' group may say what a control group is, "
                         "or belongs to a Slurm job");
    if (subject->owner != who->uid)
        return error_set(err, -EPERM,
                         "this belongs to uid %u: you may steer only your own programs (uid %u)",
                         subject->owner, who->uid);

    /* Adding a part of a paused job, or detaching it, lets it run, as resuming does. So does
     * swapping it out, until its work has ended. */
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
    if (rights == RIGHTS_TURNS)
        return rights_check_acquire(who, want, subject, err);

    if (want->memory_bytes && want->given & TERM(class) && want->class == CLASS_LATENCY)
        return error_set(err, -EPERM,
                         "making room swaps other jobs out, which requires root or the "
                         "administrators' group");

    /* The terms of an unmanaged or detached program count as those of a new job. */
    return rights_terms(want, subject->managed ? &subject->terms : &terms_default,
                        subject->default_speed, want->op == OP_ADD || want->release, err);
}
