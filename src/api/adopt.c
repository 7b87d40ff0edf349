/* See adopt.h. */
#include "api/adopt.h"

#include <errno.h>
#include <string.h>

#include "api/job_terms.h"
#include "api/rules/job_spec.h"
#include "api/take_back.h"
#include "api/visible_devices.h"
#include "memory/autoswap.h"

/* States the memory that a job, new or known, is going to take. */
static int verb_need(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct job_view view;
    int code = 0;
    if (!r->memory_bytes || !engine_view(e, v->target.slot, &view))
        return 0;
    const bool known = view.job.memory_bytes > 0;
    if (!known && !v->who.admin && model_user_waits_full(engine_model(e), view.job.principal))
        return error_set(&v->error, -EDQUOT,
                         "too many jobs wait for GPU memory: a user may have %d that do, and all "
                         "users together %u; try again when some of them have started",
                         USER_WAITS_MAX, USERS_WAITS_MAX);
    /* Only an administrator may state a need for a latency job, because others are swapped out for
     * it, whoever gave it that class. */
    if (!known && (v->who.admin || view.job.class != CLASS_LATENCY))
        code = engine_need(e, v->target.slot, r->memory_bytes, r->gpu, &v->error);
    if (code == 0 && (r->started || (!r->run && view.job.class != CLASS_LATENCY)))
        autoswap_started(engine_model(e), v->target.slot);
    return code;
}

/* Chooses the job's GPUs, and with them the GPU on which it needs memory (request.gpu). */
static int verb_place(struct verb *v, struct engine *e)
{
    struct request *r = &v->request;
    struct target *t = &v->target;
    struct visible visible;
    int code = visible_read(engine_driver(e), r->has_visible ? r->visible : NULL, r->gpus, &visible,
                            &v->error);
    if (code < 0)
        return code;
    const struct place_need need = {
        .ngpus = r->gpus, .candidates = visible_mask(&visible), .memory_bytes = r->memory_bytes};
    code = engine_place(e, t->slot, &need, &v->error);
    if (code < 0)
        return code;
    if (!engine_view(e, t->slot, &t->view))
        return error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    visible_write(&visible, t->view.job.placed, v->visible, sizeof(v->visible));
    r->gpu = (uint32_t)__builtin_ctz(t->view.job.placed);
    return 0;
}

int verb_adopt(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct target *t = &v->target;
    struct job_spec spec = request_spec(r, t->comm, t->proc.pid, v->who.admin);
    spec.source = r->slurm_job ? JOB_SLURM : r->run ? JOB_RUN : JOB_PID;
    spec.uid = t->proc_uid;
    spec.program = r->program;
    rules_account(v->verbs->rules, t->proc.pid, &spec);
    if (!v->who.admin && model_user_full(engine_model(e), spec.principal))
        return error_set(&v->error, -ENOSPC,
                         "too many jobs: a user may have %d, and all users together %u",
                         USER_JOBS_MAX, USERS_JOBS_MAX);
    /* With OP_ADD a program starts as a job even if the journal has no room yet; a person's command
     * about a running program fails instead. */
    int code = r->op == OP_ADD ? 0 : engine_may_record(e, SLOT_NONE, &v->error);
    if (code == 0)
        code = terms_check(r, spec.terms.class, &v->error);
    if (code < 0)
        return code;
    code = engine_add(e, t->proc, &spec, &t->slot, &v->error);
    v->command.looks = code == 0;
    /* A Slurm step that joined the job of others is not undone as a job of its own. */
    v->adopted =
        code == 0 && engine_view(e, t->slot, &t->view) && proc_same(t->view.job.root, t->proc);
    if (code == -EEXIST && run_asks_again(v, e))
        code = 0;
    if (code == 0 && r->gpus)
        code = verb_place(v, e);
    if (code == 0)
        code = verb_need(v, e);
    if (code == 0 && !engine_view(e, t->slot, &t->view))
        code = error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    return code;
}
