/* See take_back.h. */
#include "control/take_back.h"

#include <stdio.h>
#include <string.h>

#include "control/proto.h"
#include "lib/log.h"

void take_back_note(struct verb *v, const struct engine *e)
{
    const struct job_view *view = &v->target.view;
    v->before = (struct verb_before){.noted = true};
    if (v->request.op == OP_POLICY) {
        snprintf(v->before.policy, sizeof(v->before.policy), "%s", engine_policy(e));
        v->before.params = *engine_params(e);
    }
    if (v->target.slot == SLOT_NONE)
        return;
    v->before.job = view->job;
    v->before.out = view->swap && view->swap[0];
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

/* What verbs change. */
static bool same_words(const struct journal_job *a, const struct journal_job *b)
{
    const struct job_terms x = job_terms(a), y = job_terms(b);
    return a->paused == b->paused && a->paused_by == b->paused_by && a->yielded == b->yielded &&
           a->deadline_us == b->deadline_us && a->laxity_us == b->laxity_us &&
           memcmp(&x, &y, sizeof(x)) == 0;
}

static void terms_back(struct engine *e, uint32_t slot, const struct journal_job *was)
{
    const struct job_terms terms = job_terms(was);
    struct error err;
    (void)engine_change(e, slot, &terms, &err); /* they were fit before */
    (void)engine_set_deadline(e, slot, was->deadline_us, was->laxity_us, was->may_promote);
}

static void job_back(struct verb *v, struct engine *e, uint32_t slot)
{
    const struct journal_job *was = &v->before.job;
    struct job_view now;
    struct error err;
    if (was->yielded || !engine_view(e, slot, &now) || !same_words(&now.job, &v->before.after))
        return;
    switch (v->request.op) {
    case OP_PAUSE:
    case OP_RESUME:
        (void)engine_pause(e, slot, was->paused, was->paused_by);
        return;
    case OP_SWAP_OUT:
        if (!v->before.out)
            (void)engine_swap_in(e, slot);
        return;
    case OP_SWAP_IN:
        if (v->before.out)
            (void)engine_swap_out(e, slot, v->who.uid, &err);
        return;
    case OP_YIELD:
        if (!was->yielded && !v->request.look)
            engine_acquire(e, slot, ACQUIRE_WAIT_US);
        return;
    case OP_SET:
        terms_back(e, slot, was);
        return;
    default:
        return;
    }
}

void take_back(struct verb *v, struct engine *e, const char *why)
{
    const uint32_t slot =
        v->target.view.number ? engine_job_by_number(e, v->target.view.number) : SLOT_NONE;
    struct job_view now;
    if (!v->before.noted || v->command.code < 0 || v->request.release)
        return;
    if (v->request.op == OP_POLICY) {
        (void)engine_set_policy(e, v->before.policy);
        (void)engine_set_params(e, &v->before.params);
    } else if (slot != SLOT_NONE && (v->adopted || v->again) && engine_view(e, slot, &now) &&
               !(now.swap && now.swap[0])) { /* else nobody would bring it in */
        engine_untold(e, slot);
    } else if (slot != SLOT_NONE) {
        job_back(v, e, slot);
    }
    engine_record(e); /* before the one who asked learns anything: ceded may be killed then */
    log_user(v->who.account, LOG_INFO, "uid %u (pid %d): %s: taken back, because %s", v->who.uid,
             (int)v->who.pid, proto_op_name(v->request.op), why);
}

int take_back_if_vain(struct verb *v, struct engine *e, int status, const char *why)
{
    const struct request *r = &v->request;
    const struct job_view *j = &v->target.view;
    int code = 0;
    if (status < 0 && r->op == OP_PAUSE && j->groups && j->runnable_groups == j->groups &&
        !j->signalled)
        code = error_set(&v->error, status, "cannot pause job #%llu: %s",
                         (unsigned long long)j->number, why);
    else if (v->before.noted && r->op != OP_ADD && r->op != OP_RESUME && !r->release)
        code = engine_may_record(e, v->target.slot, &v->error);
    if (code < 0)
        take_back(v, e, v->error.text);
    return code;
}
