/* The table of operations, and what each does. See verbs.h. */
#include "api/verbs.h"

#include <errno.h>
#include <string.h>

#include "api/adopt.h"
#include "api/guest.h"
#include "api/job_terms.h"
#include "api/replies.h"
#include "api/rules/rules_reply.h"
#include "api/take_back.h"
#include "api/target_find.h"
#include "base/json_text.h"
#include "base/link_proto.h"
#include "base/log.h"
#include "base/trace_proto.h"
#include "memory/yield.h"
#include "who/pidns.h"
#include "who/procfs.h"
#include "who/schedulers.h"

/* ---- changes of a job, and how they are taken back ---- */

static bool is_out(const struct job_view *v)
{
    return v->swap && v->swap[0];
}

static int change_terms(struct verb *v, struct engine *e, struct error *err)
{
    const struct request *r = &v->request;
    const struct job_terms to = terms_after(r, &v->target.view.job.terms, v->who.admin);
    int code = terms_check(r, to.class, err);
    if (code == 0)
        code = terms_limits(&to, err);
    if (code == 0 && r->given)
        code = engine_change(e, v->target.slot, &to, err);
    if (code == 0 && r->rename[0])
        engine_rename(e, v->target.slot, r->rename);
    return code;
}

static void back_terms(const struct verb *v, struct engine *e, uint32_t job)
{
    struct error err;
    (void)engine_change(e, job, &v->before.job.terms, &err); /* these terms were valid before */
    engine_rename(e, job, v->before.job.name);
}

static int change_acquire(struct verb *v, struct engine *e, struct error *err)
{
    const uint32_t wait_us = v->request.has_wait ? v->request.wait_us : ACQUIRE_WAIT_US;
    if (!v->target.view.job.yielded)
        verb_vain(v, "it had yielded nothing");
    yield_acquire(engine_model(e), v->target.slot, wait_us * NSEC_PER_USEC);
    return 0;
}

static bool acquire_waits(const struct verb *v, const struct engine *e)
{
    return v->target.view.job.yielded;
}

static int change_yield(struct verb *v, struct engine *e, struct error *err)
{
    const struct request *r = &v->request;
    const unsigned what =
        YIELD_CLASS | (r->yields_pause ? YIELD_PAUSE : 0) | (r->yields_memory ? YIELD_MEMORY : 0);
    int code =
        r->look ? 0 : engine_yield(e, v->target.slot, what, guest_word(&v->who), v->who.admin, err);
    if (r->look && r->yields_memory)
        code = yield_outcome(engine_model(e), v->target.slot, err);
    return code == -EINPROGRESS ? 0 : code;
}

static void back_yield(const struct verb *v, struct engine *e, uint32_t job)
{
    if (v->before.job.yielded || v->request.look)
        return;
    yield_forget(engine_model(e), job, v->before.out ? YIELD_MEMORY : 0); /* it stays out */
    yield_acquire(engine_model(e), job, ACQUIRE_WAIT_US * NSEC_PER_USEC);
}

static bool yield_waits(const struct verb *v, const struct engine *e)
{
    struct error none;
    return v->request.yields_memory &&
           yield_outcome(engine_model(e), v->target.slot, &none) == -EINPROGRESS;
}

/* Pausing a paused job gives no right to resume it: only the user who paused it first has that,
 * unless an administrator pauses it as well. The same holds for swapping. */
static int change_pause(struct verb *v, struct engine *e, struct error *err)
{
    const struct target *t = &v->target;
    if (t->view.job.paused && !v->who.admin)
        return 0;
    int code = engine_may_pause(e, t->slot, err);
    return code < 0 ? code : engine_pause(e, t->slot, true, guest_word(&v->who));
}

static int change_resume(struct verb *v, struct engine *e, struct error *err)
{
    if (!v->target.view.job.paused)
        verb_vain(v, "it was not paused"); /* groups that lost their record are resumed anyway */
    return engine_pause(e, v->target.slot, false, guest_word(&v->who));
}

static void back_pause(const struct verb *v, struct engine *e, uint32_t job)
{
    (void)engine_pause(e, job, v->before.job.paused, v->before.job.paused_by);
}

static int change_swap_out(struct verb *v, struct engine *e, struct error *err)
{
    if (is_out(&v->target.view) && !v->who.admin)
        return 0;
    return engine_swap_out(e, v->target.slot, guest_word(&v->who), err);
}

static void back_swap_out(const struct verb *v, struct engine *e, uint32_t job)
{
    if (!v->before.out)
        (void)swap_in(engine_model(e), job);
}

static int change_swap_in(struct verb *v, struct engine *e, struct error *err)
{
    if (!is_out(&v->target.view))
        verb_vain(v, "it was not swapped out");
    return swap_in(engine_model(e), v->target.slot);
}

static void back_swap_in(const struct verb *v, struct engine *e, uint32_t job)
{
    struct error err;
    if (v->before.out)
        (void)engine_swap_out(e, job, v->before.swap_uid, &err);
}

/* It is not taken back, because it ends with the connection. */
static int change_try(struct verb *v, struct engine *e, struct error *err)
{
    const struct request *r = &v->request;
    const enum job_class class = r->first ? CLASS_LATENCY : CLASS_BATCH;
    if (class < v->target.view.job.class && r->first && !v->who.admin)
        return error_set(err, -EPERM,
                         "raising it to class latency requires root or the administrators' group");
    const bool ranked = r->first || r->last;
    const struct job_trial t = {0, v->who.connection, r->held, ranked, class};
    const uint64_t for_ns = r->for_us * NSEC_PER_USEC;
    int code = r->held ? engine_may_pause(e, v->target.slot, err) : 0;
    return code < 0 ? code : engine_try(e, v->target.slot, &t, for_ns, r->together, err);
}

/* ---- jobs ---- */

static int verb_check(struct verb *v, const struct engine *e, bool managed)
{
    const struct request *r = &v->request;
    const struct target *t = &v->target;
    struct subject s = {
        /* Adding a process requires rights to the process, even if it is in another user's job. */
        .owner = managed && r->op != OP_ADD ? t->view.job.uid : t->proc_uid,
        .managed = managed,
        .terms = t->view.job.terms,
        .default_speed = (uint32_t)(100 * engine_params(e)->latency_speed + 0.5),
        .paused = t->view.job.paused,
        .paused_by = guest_whose(&v->who, t->view.job.paused_by),
        .swapped = is_out(&t->view),
        .swapped_by_user = t->view.swap_by_user,
        .swapped_by = guest_whose(&v->who, t->view.swap_uid),
        .yielded = t->view.job.yielded,
        .yielded_by = guest_whose(&v->who, t->view.job.yielded_by),
    };
    int code =
        guest_reaches(&v->who, managed && r->op != OP_ADD ? t->view.member : t->proc)
            ? rights_check(&v->who, r, &s, &v->error)
            : error_set(&v->error, -EPERM, "it runs outside of this container: do this outside");
    /* Programs choose their names, so a request for what their users may not set names the user. */
    if (code == 0 && r->op == OP_SET && r->given && r->name[0] && !r->has_owner &&
        rights_check(&(struct caller){.uid = s.owner}, r, &s, &(struct error){""}) < 0 &&
        s.owner != v->who.uid)
        code = error_set(
            &v->error, -ENOTUNIQ,
            "no job of user %u is named %s, and one of user %u is: to raise that, name "
            "it as %u/%s (#%llu)",
            v->who.uid, r->name, s.owner, s.owner, r->name, (unsigned long long)t->view.number);
    if (code == 0 && !managed && r->release)
        code = error_set(&v->error, -ESRCH,
                         "process %d is in no job, so there is nothing to detach", (int)r->pid);
    if (code == 0 && r->release && !v->who.admin && t->view.job.account[0])
        code = error_set(&v->error, -EPERM,
                         "it counts for account %s: only root and the administrators' group may "
                         "detach it",
                         t->view.job.account);
    if (code == 0 && r->release && s.swapped)
        code = error_set(&v->error, -EBUSY, "job #%llu is swapped out: swap it in first",
                         (unsigned long long)t->view.number);
    return code;
}

/* Resumes or swaps in a process that an earlier cede may have left suspended or swapped out without
 * a record. 1: done; 0: it is no such process; or -errno. */
static int free_left_behind(struct verb *v, struct engine *e, bool managed)
{
    const struct request *r = &v->request;
    struct target *t = &v->target, process = {.slot = SLOT_NONE};
    int code;
    if (r->op == OP_RESUME && !managed) {
        v->in_none = true;
        code = engine_resume_unmanaged(e, t->proc, &v->error);
        return code < 0 ? code : 1;
    }
    if (r->op != OP_SWAP_IN || !r->pid || (managed && is_out(&t->view)))
        return 0;
    code = target_identify(r->pid, &process, &v->error);
    if (code == 0)
        code = swap_adopt(engine_model(e), process.proc, false, &t->slot, &v->error);
    if (code == 0 && !engine_view(e, t->slot, &t->view))
        code = error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    return code == -EEXIST ? 0 : code < 0 ? code : 1;
}

/* Finds the job of the request's process; to be in none is no error. */
static int find_asked(struct verb *v, const struct engine *e)
{
    struct target *t = &v->target;
    int code = target_translate(v);
    t->slot = code == 0 ? engine_job_of(e, v->request.pid) : SLOT_NONE;
    if (t->slot != SLOT_NONE)
        engine_view(e, t->slot, &t->view);
    return code == -ESRCH ? 0 : code;
}

static int change(struct verb *v, struct engine *e)
{
    const unsigned decided = v->request.given & TERM(class) ? YIELD_CLASS : v->op->decides;
    struct error why = {""};
    int code = take_back_may_record(v, e, &why);
    if (code == 0)
        code = v->op->change(v, e, &why);
    if (code < 0)
        error_set(&v->error, code, "cannot change job #%llu: %s",
                  (unsigned long long)v->target.view.number,
                  why.text[0] ? why.text : strerror(-code));
    else if (decided)
        yield_forget(engine_model(e), v->target.slot, decided);
    take_back_mark(v, e);
    return code;
}

static int steer(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct target *t = &v->target;
    int code = target_find(v, e);
    bool managed = code == 0 && t->slot != SLOT_NONE;
    if (code == 0)
        code = verb_check(v, e, managed);
    if (code < 0)
        return code;
    take_back_note(v, e);
    if (r->release) {
        engine_release(e, t->slot);
        return 0;
    }
    code = free_left_behind(v, e, managed);
    if (code)
        return code < 0 ? code : 0;
    if (!managed && (r->op == OP_ACQUIRE || r->op == OP_TRY || r->look))
        return error_set(&v->error, -ESRCH, "process %d is in no job%s", (int)r->pid,
                         r->op == OP_TRY ? ": `cede set` makes it one"
                                         : ", so it has yielded nothing");
    if (r->op == OP_ADD || !managed)
        code = verb_adopt(v, e);
    if (code == 0 && v->op->change && (managed || v->op->of_new))
        code = change(v, e);
    if (code < 0 && v->adopted) /* refused: the process is in no job, as before */
        engine_untold(e, t->slot);
    return code;
}

/* Sets policy and parameters, both or neither. */
static int set_policy(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct sched_params params = *engine_params(e);
    const struct param *what;
    char range[PARAM_RANGE];
    int code = rights_check(&v->who, r, NULL, &v->error);
    if (code < 0 || (!r->name[0] && !r->params))
        return code;
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (r->params & 1U << i)
            param_set(&params, param_at(i), r->param[i]);
    }
    if (params_check(&params, &what) < 0)
        return error_set(&v->error, -EINVAL, "%s would be %.10g: %s is allowed", what->name,
                         param_get(&params, what), param_range(what, range));
    take_back_note(v, e);
    if (r->name[0] && engine_set_policy(e, r->name) < 0) {
        char known[128];
        return error_set(&v->error, -EINVAL, "there is no policy %s; there are %s", r->name,
                         reply_policy_names(known, sizeof(known)));
    }
    return r->params ? engine_set_params(e, &params) : 0;
}

static void back_policy(const struct verb *v, struct engine *e, uint32_t job)
{
    (void)engine_set_policy(e, v->before.policy);
    (void)engine_set_params(e, &v->before.params);
}

/* ---- operations on no job ---- */

static int ask_ps(struct verb *v, struct engine *e)
{
    return v->request.pid ? find_asked(v, e) : 0;
}

static int ask_pids(struct verb *v, struct engine *e)
{
    const struct target *t = &v->target;
    int code = target_find(v, e);
    const bool any = code == 0 && t->slot != SLOT_NONE && guest_reaches(&v->who, t->view.member);
    return code < 0 || any ? code
                           : error_set(&v->error, -ESRCH, "it is in no job%s",
                                       v->who.guest ? " of this container" : "");
}

static int no_hints(struct verb *v)
{
    return error_set(&v->error, -ENOTSUP, "this daemon accepts no hints");
}

static int open_hints(struct verb *v, struct engine *e)
{
    return v->verbs->hints ? hints_open(v->verbs->hints, &v->who, &v->fd, &v->error) : no_hints(v);
}

static int make_room(struct verb *v, struct engine *e)
{
    take_back_note(v, e);
    return v->verbs->hints ? hints_room(v->verbs->hints, e, &v->who, v->request.page,
                                        v->request.name, v->request.memory_bytes, &v->error)
                           : no_hints(v);
}

static void back_room(const struct verb *v, struct engine *e, uint32_t job)
{
    struct error none;
    (void)hints_room(v->verbs->hints, e, &v->who, v->request.page, "", 0, &none);
}

static int open_trace(struct verb *v, struct engine *e)
{
    if (v->who.guest)
        return error_set(&v->error, -EPERM,
                         "a trace shows all jobs of the machine: run it outside of this "
                         "container");
    return v->verbs->traces ? traces_open(v->verbs->traces, &v->who, &v->error)
                            : error_set(&v->error, -ENOTSUP, "this daemon cannot be traced");
}

static int take_identity(struct verb *v, struct engine *e)
{
    return rules_identify(v->verbs->rules, e, &v->who, &v->request, &v->error);
}

/* ---- replies ---- */

/* Takes the reference. NULL: no memory. */
static char *text_of(json_t *reply)
{
    char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
    json_decref(reply);
    return text;
}

static char *reply_done(struct verb *v, struct engine *e)
{
    return text_of(json_pack("{s:i, s:b}", "v", PROTO_VERSION, "ok", 1));
}

static char *reply_jobs(struct verb *v, struct engine *e)
{
    if (v->request.summed && !v->verbs->sums) {
        v->command.code = error_set(&v->error, -ENOTSUP, "this daemon does not sum up jobs");
        return NULL;
    }
    return reply_ps(e, v->verbs->hints, v->request.summed ? v->verbs->sums : NULL, &v->who,
                    v->request.number, v->target.view.number,
                    !v->request.brief ? JOB_WHOLE
                    : v->request.sums ? JOB_SUMS
                                      : JOB_BRIEF);
}

static char *reply_of_pids(struct verb *v, struct engine *e)
{
    return text_of(
        reply_pids(e, &v->who, &v->target.view, v->request.from, v->note, &v->command.code));
}

static char *reply_rules(struct verb *v, struct engine *e)
{
    return text_of(
        rules_reply(v->verbs->rules, e, &v->who, &v->request, &v->command.code, &v->error));
}

static char *reply_trace(struct verb *v, struct engine *e)
{
    log_user(v->who.principal, LOG_INFO, "uid %u (pid %d): traces", v->who.uid, (int)v->who.pid);
    return text_of(
        json_pack("{s:i, s:b, s:i}", "v", PROTO_VERSION, "ok", 1, "trace", TRACE_VERSION));
}

static char *reply_of_policy(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    if (r->name[0] || r->params)
        log_user(v->who.principal, LOG_INFO, "uid %u (pid %d): policy %s%s", v->who.uid,
                 (int)v->who.pid, engine_policy(e), r->params ? ", other parameters" : "");
    return text_of(reply_policy(e));
}

static void log_done(const struct verb *v)
{
    const struct job_view *j = &v->target.view;
    log_user(v->who.principal, LOG_INFO,
             "uid %u (pid %d): %s #%llu %s of uid %u: class %s, weight %u%s", v->who.uid,
             (int)v->who.pid, v->request.release ? "released" : proto_op_done(v->request.op),
             (unsigned long long)j->number, j->job.name, j->job.uid, job_class_name(j->job.class),
             j->job.weight, j->job.paused ? ", paused" : "");
}

/* Replies with the job as it is now, found by number, as its slot may have another job since run().
 */
static char *reply_steered(struct verb *v, struct engine *e)
{
    struct target *t = &v->target;
    struct error note = {""};
    int status = 0;
    if (v->in_none) {
        log_user(v->who.principal, LOG_INFO,
                 "uid %u (pid %d): resumed process %d, which is in no job", v->who.uid,
                 (int)v->who.pid, (int)v->target.proc.pid);
        return reply_done(v, e);
    }
    if (!v->request.release) {
        t->slot = model_job_by_number(engine_model(e), t->view.number);
        if (t->slot == SLOT_NONE || !engine_view(e, t->slot, &t->view)) {
            v->command.code = error_set(&v->error, -ESRCH, "job #%llu has just ended",
                                        (unsigned long long)t->view.number);
            return NULL;
        }
        status = engine_job_status(e, t->slot, &note);
        if (status < 0 && !note.text[0])
            snprintf(note.text, sizeof(note.text), "%s", strerror(-status));
    }
    v->command.code = take_back_if_vain(v, e, status, note.text);
    if (v->command.code < 0)
        return NULL;
    v->waits = v->op->waits && v->op->waits(v, e);
    if (!v->waits && !v->request.look && v->request.op != OP_TRY)
        log_done(v);
    if (v->request.link)
        return NULL; /* answer_link() */
    t->view.job.root.pid = guest_number(&v->who, t->view.job.root);
    json_t *reply = reply_job(&t->view, status < 0 ? note.text : v->note[0] ? v->note : NULL);
    if (reply && v->waits)
        json_object_set_new(reply, "waits", json_true());
    if (reply && (v->vain || (status < 0 && status != -EDQUOT && t->view.error[0])))
        json_object_set_new(reply, v->vain ? "vain" : "failed", json_true());
    if (reply && v->visible[0])
        json_object_set_new(reply, "visible", json_text(v->visible));
    if (reply && v->request.run) {
        if (engine_may_record(e, SLOT_NONE, &note) < 0)
            json_object_set_new(reply, "warning", json_text(note.text));
        if (v->verbs->no_gpu)
            json_object_set_new(reply, "no_gpu", json_true());
        reply_add_unmanaged(reply, e, &v->who);
        reply_add_pool(reply, engine_driver(e), v->verbs->rules, t->view.job.class == CLASS_BATCH,
                       engine_loses_in_space(e, t->slot));
    }
    return text_of(reply);
}

/* ---- commands ---- */

/* Names, fields and rights of each are in a row of proto.c. */
static const struct operation operations[] = {
#define STEER .run = steer, .reply = reply_steered
    [OP_ADD] = {STEER},
    [OP_SET] = {STEER, .change = change_terms, .back = back_terms},
    [OP_PAUSE] = {STEER, .change = change_pause, .of_new = true, .back = back_pause,
                  .decides = YIELD_PAUSE},
    [OP_RESUME] = {STEER, .change = change_resume, .of_new = true, .back = back_pause,
                   .decides = YIELD_PAUSE},
    [OP_SWAP_OUT] = {STEER, .change = change_swap_out, .of_new = true, .back = back_swap_out,
                     .decides = YIELD_MEMORY},
    [OP_SWAP_IN] = {STEER, .change = change_swap_in, .back = back_swap_in, .decides = YIELD_MEMORY},
    [OP_YIELD] = {STEER, .change = change_yield, .of_new = true, .back = back_yield,
                  .waits = yield_waits},
    [OP_ACQUIRE] = {STEER, .change = change_acquire, .waits = acquire_waits},
    [OP_TRY] = {STEER, .change = change_try},
    [OP_PS] = {.run = ask_ps, .reply = reply_jobs},
    [OP_PIDS] = {.run = ask_pids, .reply = reply_of_pids},
    [OP_RULES] = {.run = ask_ps, .reply = reply_rules},
    [OP_POLICY] = {.run = set_policy, .reply = reply_of_policy, .back = back_policy},
    [OP_HINTS] = {.run = open_hints},
    [OP_ROOM] = {.run = make_room, .back = back_room},
    [OP_TRACE] = {.run = open_trace, .reply = reply_trace},
    [OP_IDENTITY] = {.run = take_identity, .reply = reply_done},
#undef STEER
};

uint64_t verbs_cpu_ns(const struct verbs *verbs)
{
    return verbs->cpu_ns ? verbs->cpu_ns() : thread_cpu_ns();
}

static int verb_run(struct command *c, struct engine *e)
{
    struct verb *v = (struct verb *)c;
    struct verbs *verbs = v->verbs;
    if (verbs->batch == verbs->answered) {
        verbs->batch = verbs->answered = 0;
        verbs->batch_ns = verbs_cpu_ns(verbs);
    }
    verbs->batch++;
    if (v->parsed < 0)
        return v->parsed;
    if (v->awaited && !v->awaited(v)) {
        log_user(v->who.principal, LOG_INFO,
                 "uid %u (pid %d): %s: dropped, because the one who asked waits no longer",
                 v->who.uid, (int)v->who.pid, proto_op_name(v->request.op));
        return error_set(&v->error, -ECANCELED, "nobody waits for the answer");
    }
    /* The reply has pids of the caller's namespace. */
    if (!v->who.ns.level && (v->request.op == OP_PS || v->request.op == OP_PIDS || v->request.run))
        (void)pidns_of(v->who.pid, &v->who.ns);
    return v->op->run(v, e);
}

static char *answer_link(struct verb *v)
{
    struct link_answer *a = malloc(sizeof(*a));
    if (a)
        *a = (struct link_answer){LINK_MAGIC, v->command.code, v->waits, 0, v->who.connection};
    v->reply_bytes = sizeof(*a);
    return (char *)a;
}

static void verb_answer(struct command *c, struct engine *e, int code)
{
    struct verb *v = (struct verb *)c;
    struct verbs *verbs = v->verbs;
    char *text = code < 0 || !v->op->reply ? NULL : v->op->reply(v, e);
    code = v->command.code = code < 0 ? code : v->command.code;
    if (code < 0) {
        if (!v->error.text[0])
            error_set(&v->error, code, "%s", strerror(-code));
        log_user(v->who.principal, LOG_DEBUG, "uid %u (pid %d): refused: %s", v->who.uid,
                 (int)v->who.pid, v->error.text);
        free(text);
        text = v->request.link ? NULL : reply_refusal(code, &v->error, v->who.admin_gid);
    }
    if (v->request.link)
        text = answer_link(v);
    if (verbs->batch) {
        v->took_ns = (verbs_cpu_ns(verbs) - verbs->batch_ns) / verbs->batch;
        verbs->answered++;
    }
    v->done(v, text);
}

void verb_init(struct verb *v, struct verbs *verbs, const struct caller *who,
               const struct request *r)
{
    *v = (struct verb){.command = {.run = verb_run, .answer = verb_answer},
                       .verbs = verbs,
                       .who = *who,
                       .target = {.slot = SLOT_NONE},
                       .fd = -1};
    if (r) {
        v->request = *r;
        v->op = &operations[r->op];
    }
}

void verb_parse(struct verb *v, struct verbs *verbs, const struct caller *who, const char *text,
                size_t n)
{
    verb_init(v, verbs, who, NULL);
    v->parsed = proto_parse(text, n, &v->request, &v->error);
    v->op = v->parsed < 0 ? NULL : &operations[v->request.op];
}
