/* See take_back.h. */
#include "api/take_back.h"

#include <stdio.h>
#include <string.h>

#include "api/proto.h"
#include "base/log.h"
#include "memory/yield.h"

void take_back_note(struct verb *v, const struct engine *e)
{
    const struct job_view *view = &v->target.view;
    v->before = (struct verb_before){.noted = true, .params = *engine_params(e)};
    snprintf(v->before.policy, sizeof(v->before.policy), "%s", engine_policy(e));
    if (v->target.slot == SLOT_NONE)
        return;
    v->before.job = view->job;
    v->before.out = view->swap && view->swap[0];
    v->before.swap_by_user = view->swap_by_user;
    v->before.swap_uid = view->swap_uid;
}

void take_back_mark(struct verb *v, const struct engine *e)
{
    struct job_view now;
    if (v->target.slot != SLOT_NONE && engine_view(e, v->target.slot, &now))
        v->before.after = now.job;
}

bool run_asks_again(struct verb *v, struct engine *e)
{
    struct target *t = &v->target;
    v->again = v->request.run && engine_view(e, t->slot, &t->view) && t->view.job.source == JOB_RUN;
    if (v->again)
        engine_told(e, t->slot);
    return v->again;
}

/* Whether the job is as the verb left it. */
static bool is_as_left(const struct verb *v, const struct engine *e, uint32_t slot)
{
    const struct journal_job *was = &v->before.job, *left = &v->before.after;
    struct job_view now;
    return engine_view(e, slot, &now) && now.job.paused == left->paused &&
           now.job.paused_by == left->paused_by && now.job.yielded == left->yielded &&
           memcmp(&now.job.terms, &left->terms, sizeof(left->terms)) == 0 &&
           !(was->yielded & ~now.job.yielded);
}

void take_back(struct verb *v, struct engine *e, const char *why)
{
    const uint32_t slot = v->target.view.number
                              ? model_job_by_number(engine_model(e), v->target.view.number)
                              : SLOT_NONE;
    struct job_view now;
    if (!v->before.noted || v->command.code < 0 || v->request.release)
        return;
    if (v->op->back && !v->op->change) {
        v->op->back(v, e, SLOT_NONE);
    } else if (slot != SLOT_NONE && (v->adopted || v->again) && engine_view(e, slot, &now) &&
               !(now.swap && now.swap[0])) { /* a released job would not be swapped in */
        engine_untold(e, slot);
    } else if (slot != SLOT_NONE && v->op->back && is_as_left(v, e, slot)) {
        v->op->back(v, e, slot);
        if (v->before.out)
            swap_set_author(engine_model(e), slot, v->before.swap_by_user, v->before.swap_uid);
    }
    engine_record(e); /* before the client gets an answer, as ceded may be killed then */
    log_user(v->who.principal, LOG_INFO, "uid %u (pid %d): %s: taken back, because %s", v->who.uid,
             (int)v->who.pid, proto_op_name(v->request.op), why);
}

int take_back_may_record(const struct verb *v, struct engine *e, struct error *err)
{
    return v->request.op == OP_RESUME ? engine_records(e, err)
                                      : engine_may_record(e, v->target.slot, err);
}

int take_back_if_vain(struct verb *v, struct engine *e, int status, const char *why)
{
    const struct request *r = &v->request;
    const struct job_view *j = &v->target.view;
    int code = 0;
    /* Without the right nothing is done, though groups may count as suspended after a loss of
     * records. */
    if (status < 0 && r->op == OP_PAUSE && j->groups && !j->signalled &&
        (j->runnable_groups == j->groups || status == -EPERM))
        code = error_set(&v->error, status, "cannot pause job #%llu: %s",
                         (unsigned long long)j->number, why);
    else if (v->before.noted && r->op != OP_ADD && !r->release)
        code = take_back_may_record(v, e, &v->error);
    if (code < 0) {
        struct error done = v->error, again;
        take_back(v, e, done.text);
        if (engine_records(e, &again) < 0) /* the file may still have a part of the change */
            error_set(&v->error, code,
                      "%s; should ceded be killed before that, the next one may find it done",
                      done.text);
    }
    return code;
}

void verb_vain(struct verb *v, const char *text)
{
    if (!v->note[0])
        snprintf(v->note, sizeof(v->note), "%s", text);
    v->vain = true;
}
