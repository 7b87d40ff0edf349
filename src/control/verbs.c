/* See verbs.h. */
#include "control/verbs.h"

#include <errno.h>
#include <string.h>

#include "control/guest.h"
#include "control/replies.h"
#include "control/rules_reply.h"
#include "control/take_back.h"
#include "control/verbs_target.h"
#include "control/visible.h"
#include "lib/hints_proto.h"
#include "lib/json_text.h"
#include "lib/log.h"
#include "lib/pidns.h"
#include "lib/procfs.h"
#include "lib/schedulers.h"
#include "lib/trace_proto.h"

/* ---- what it changes ---- */

/* It has to end with the job's class, and in new contexts it has to be set. */
static int verb_preempt(const struct verb *v, enum job_class class, enum preempt_mode now,
                        enum preempt_mode *out, struct error *err)
{
    const struct request *r = &v->request;
    if (r->has_preempt && r->preempt == PREEMPT_BLOCK && v->verbs->once)
        return error_set(err, -ENOTSUP,
                         "a preemption mode requires a daemon: start ceded, or the program by "
                         "`cede run`");
    return request_preempt(r, class, now, out, err);
}

/* What a job, new or known, said that it will take. */
static int verb_need(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct job_view view;
    int code = 0;
    if (!r->memory_bytes || !engine_view(e, v->target.slot, &view))
        return 0;
    const bool known = view.job.memory_bytes > 0;
    if (!known && !v->who.admin && engine_user_waits_full(e, view.job.account_uid))
        return error_set(&v->error, -EDQUOT,
                         "too many jobs wait for GPU memory: a user may have %d that do, and all "
                         "users together %u; try again when some of them have started",
                         USER_WAITS_MAX, USERS_WAITS_MAX);
    /* A latency job swaps others out, and this one may be of that class by an administrator. */
    if (!known && (v->who.admin || view.job.class != CLASS_LATENCY))
        code = engine_need(e, v->target.slot, r->memory_bytes, r->gpu, &v->error);
    if (code == 0 && (r->started || (!r->run && view.job.class != CLASS_LATENCY)))
        engine_started(e, v->target.slot);
    return code;
}

/* Which GPU it needs memory on is known then. */
static int verb_place(struct verb *v, struct engine *e)
{
    struct request *r = &v->request;
    struct target *t = &v->target;
    struct visible visible;
    int code = visible_read(engine_driver(e), r->has_visible ? r->visible : NULL, r->gpus, &visible,
                            &v->error);
    if (code < 0)
        return code;
    const struct place_wish wish = {
        .ngpus = r->gpus, .candidates = visible_mask(&visible), .memory_bytes = r->memory_bytes};
    code = engine_place(e, t->slot, &wish, &v->error);
    if (code < 0)
        return code;
    if (!engine_view(e, t->slot, &t->view))
        return error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    visible_write(&visible, t->view.job.placed, v->visible, sizeof(v->visible));
    r->gpu = (uint32_t)__builtin_ctz(t->view.job.placed);
    return 0;
}

static int verb_adopt(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct target *t = &v->target;
    struct job_spec spec = request_spec(r, t->comm, t->proc.pid, v->who.admin);
    spec.source = r->slurm_job ? JOB_SLURM : r->run ? JOB_RUN : JOB_PID;
    spec.uid = t->proc_uid;
    spec.program = r->program;
    rules_account(v->verbs->rules, t->proc.pid, &spec);
    if (!v->who.admin && engine_user_full(e, spec.account_uid))
        return error_set(&v->error, -ENOSPC,
                         "too many jobs: a user may have %d, and all users together %u",
                         USER_JOBS_MAX, USERS_JOBS_MAX);
    /* A program that starts as a job is one as soon as there is room; a person's word is kept now.
     */
    int code = r->op == OP_ADD ? 0 : engine_may_record(e, SLOT_NONE, &v->error);
    if (code == 0)
        code = request_budget(r, spec.terms.class, 0, &spec.terms.budget_us, &v->error);
    if (code == 0)
        code =
            verb_preempt(v, spec.terms.class, PREEMPT_INSTRUCTION, &spec.terms.preempt, &v->error);
    if (code == 0)
        code = request_min_speed(r, spec.terms.class, 0, &spec.terms.min_speed, &v->error);
    if (code < 0)
        return code;
    code = engine_add(e, t->proc, &spec, &t->slot, &v->error);
    v->command.looks = code == 0;
    /* A task that joins the job of others is no job of its own. */
    v->adopted =
        code == 0 && engine_view(e, t->slot, &t->view) && proc_same(t->view.job.root, t->proc);
    if (code == -EEXIST && run_asks_again(v, e))
        code = 0;
    if (code == 0 && r->gpus)
        code = verb_place(v, e);
    if (code == 0)
        code = verb_need(v, e);
    if (code < 0 && v->adopted)
        engine_release(e, t->slot);
    if (code == 0 && !engine_view(e, t->slot, &t->view))
        code = error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    return code;
}

static int verb_set(struct verb *v, struct engine *e, struct error *err)
{
    const struct request *r = &v->request;
    const struct target *t = &v->target;
    const struct journal_job *job = &t->view.job;
    struct job_terms to = {
        .class = r->has_class ? r->class : (enum job_class)job->class,
        .weight = r->has_weight ? r->weight : job->weight,
        .gpu_min = r->has_gpu_min ? r->gpu_min : job->gpu_min,
        .gpu_max = r->has_gpu_max ? r->gpu_max : job->gpu_max,
    };
    int code = engine_may_record(e, t->slot, err);
    if (code == 0)
        code = request_budget(r, to.class, job->budget_us, &to.budget_us, err);
    if (code == 0)
        code = verb_preempt(v, to.class, (enum preempt_mode)job->preempt, &to.preempt, err);
    if (code == 0)
        code = request_min_speed(r, to.class, to.class == job->class ? job->min_speed : 0,
                                 &to.min_speed, err);
    if (code == 0)
        code = request_deadline(r, to.class, err);
    if (code == 0)
        code = request_limits(to.gpu_min, to.gpu_max, err);
    if (code == 0 && r->has_deadline && v->verbs->once)
        code = error_set(err, -ENOTSUP,
                         "a deadline requires a daemon: start ceded, or the program by `cede run`");
    if (code == 0)
        code = engine_change(e, t->slot, &to, err);
    if (code == 0 && r->has_deadline)
        code = engine_set_deadline(e, t->slot, r->deadline_us, r->laxity_us,
                                   v->who.admin && r->deadline_us);
    return code;
}

static int yield_or_acquire(struct verb *v, struct engine *e, struct error *err)
{
    const struct request *r = &v->request;
    const uint32_t job = v->target.slot;
    int code;
    if (r->op == OP_ACQUIRE) {
        engine_acquire(e, job, r->has_wait ? r->wait_us : ACQUIRE_WAIT_US);
        return 0;
    }
    if (r->look)
        code = r->yields_memory ? engine_yielded(e, job, err) : 0;
    else if ((code = engine_may_record(e, job, err)) == 0)
        code = engine_yield(e, job,
                            YIELD_CLASS | (r->yields_pause ? YIELD_PAUSE : 0) |
                                (r->yields_memory ? YIELD_MEMORY : 0),
                            guest_word(&v->who), v->who.admin, err);
    return code == -EINPROGRESS ? 0 : code;
}

static bool is_fleeting(struct device_driver *d)
{
    struct gpu_info g;
    return d->ops->info(d, 0, &g) == 0 && (g.caps & GPU_CAP_FLEETING);
}

/* Pausing again does not give the right to resume: that stays with the user who paused the job
 * first, unless an administrator pauses it too. The same holds for swapping. */
static int change(struct verb *v, struct engine *e, struct error *err)
{
    const struct target *t = &v->target;
    bool out = t->view.swap && t->view.swap[0], admin = v->who.admin;
    int code;
    switch (v->request.op) {
    case OP_YIELD:
    case OP_ACQUIRE:
        return yield_or_acquire(v, e, err);
    case OP_PAUSE:
        if (v->verbs->once && is_fleeting(engine_driver(e)))
            return error_set(err, -ENOTSUP,
                             "on this GPU a pause ends with the process that asked for it: start "
                             "ceded, which stays");
        if (t->view.job.paused && !admin)
            return 0;
        code = engine_may_pause(e, t->slot, err);
        code = code < 0 ? code : engine_may_record(e, t->slot, err);
        return code < 0 ? code : engine_pause(e, t->slot, true, guest_word(&v->who));
    case OP_RESUME:
        return engine_pause(e, t->slot, false, guest_word(&v->who));
    case OP_SWAP_OUT:
        code = out ? 0 : engine_may_record(e, t->slot, err);
        if (code < 0 || (out && !admin))
            return code;
        return engine_swap_out(e, t->slot, guest_word(&v->who), err);
    case OP_SWAP_IN:
        return engine_swap_in(e, t->slot);
    default:
        return verb_set(v, e, err);
    }
}

/* Of what a job may have yielded, that which a person decides by this request: acquiring does not
 * touch it any more. */
static unsigned decided_by(const struct request *r)
{
    static const unsigned decided[] = {[OP_PAUSE] = YIELD_PAUSE,
                                       [OP_RESUME] = YIELD_PAUSE,
                                       [OP_SWAP_OUT] = YIELD_MEMORY,
                                       [OP_SWAP_IN] = YIELD_MEMORY};
    return r->has_class ? YIELD_CLASS : r->op < ARRAY_SIZE(decided) ? decided[r->op] : 0;
}

static int verb_check(struct verb *v, const struct engine *e, bool managed)
{
    const struct request *r = &v->request;
    const struct target *t = &v->target;
    const uint32_t default_speed = (uint32_t)(100 * engine_params(e)->latency_speed + 0.5);
    struct subject s = {
        /* A process is added for its own sake, even out of another user's job. */
        .owner = managed && r->op != OP_ADD ? t->view.job.uid : t->proc_uid,
        .managed = managed,
        .class = (enum job_class)t->view.job.class,
        .weight = t->view.job.weight,
        .gpu_min = t->view.job.gpu_min,
        .gpu_max = t->view.job.gpu_max,
        .budget_us = t->view.job.budget_us,
        .min_speed = t->view.job.min_speed ? t->view.job.min_speed : default_speed,
        .default_speed = default_speed,
        .paused = t->view.job.paused,
        .paused_by = guest_whose(&v->who, t->view.job.paused_by),
        .swapped = t->view.swap && t->view.swap[0],
        .swapped_by_user = t->view.swap_by_user,
        .swapped_by = guest_whose(&v->who, t->view.swap_uid),
        .yielded = t->view.job.yielded,
        .yielded_by = guest_whose(&v->who, t->view.job.yielded_by),
    };
    int code =
        guest_reaches(&v->who, managed && r->op != OP_ADD ? t->view.job.root : t->proc)
            ? rights_check(&v->who, r, &s, &v->error)
            : error_set(&v->error, -EPERM, "it runs outside of this container: do this outside");
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

/* An earlier scheduler may have left a process off the GPU, or suspended, and nothing on record of
 * it. -EEXIST: that is not so, or it is known. */
static int free_left_behind(struct verb *v, struct engine *e, bool managed)
{
    const struct request *r = &v->request;
    struct target *t = &v->target, process = {.slot = SLOT_NONE};
    if (r->op == OP_RESUME && !managed && v->verbs->once)
        engine_distrust(e, t->proc); /* it becomes a job for the time it takes */
    if (r->op == OP_RESUME && !managed && !v->verbs->once) {
        v->in_none = true;
        return engine_resume_unmanaged(e, t->proc, &v->error);
    }
    if (r->op != OP_SWAP_IN || !r->pid || v->verbs->once || (managed && t->view.swap[0]))
        return -EEXIST;
    int code = target_identify(r->pid, &process, &v->error);
    if (code == 0)
        code = engine_swap_in_process(e, process.proc, &t->slot, &v->error);
    if (code == 0 && !engine_view(e, t->slot, &t->view))
        code = error_set(&v->error, -ESRCH, "process %d has just ended", (int)r->pid);
    return code;
}

/* The number is the asker's: in a container another than here. */
static int translate(struct verb *v)
{
    const pid_t asked = v->request.pid;
    const struct request *r = &v->request;
    struct proc_stat st;
    const bool own =
        (r->op == OP_YIELD || r->op == OP_ACQUIRE) && !asked && !r->number && !r->name[0];
    if (own) {
        v->request.pid = v->who.pid;
        return v->who.pid > 0 && proc_stat_read(v->who.pid, &st) == 0 &&
                       st.id.start_ticks <= v->who.since_ticks
                   ? 0
                   : error_set(&v->error, -ESRCH, "cannot see the process that asks (pid %d)",
                               (int)v->who.pid);
    }
    int code = asked ? pidns_translate(v->who.pid, asked, &v->request.pid) : 0;
    return code == 0 ? 0
           : code == -ESRCH
               ? error_set(&v->error, code, "there is no process %d in your pid namespace", asked)
               : error_set(&v->error, code,
                           "cannot tell which process is %d in your pid namespace (%s): name the "
                           "job by its number",
                           asked, strerror(-code));
}

/* Whose job a process is in; none is no fault. */
static int find_asked(struct verb *v, const struct engine *e)
{
    struct target *t = &v->target;
    int code = translate(v);
    t->slot = code == 0 ? engine_job_of(e, v->request.pid) : SLOT_NONE;
    if (t->slot != SLOT_NONE)
        engine_view(e, t->slot, &t->view);
    return code == -ESRCH ? 0 : code;
}

static int steer(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    struct target *t = &v->target;
    int code = translate(v);
    if (code == 0)
        code = target_find(v, e);
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
    if (code != -EEXIST)
        return code;
    code = 0;
    if (!managed && (r->op == OP_ACQUIRE || r->look))
        return error_set(&v->error, -ESRCH, "process %d is in no job, so it has yielded nothing",
                         (int)r->pid);
    if (r->op == OP_ADD || !managed)
        code = verb_adopt(v, e);
    bool changes = r->op == OP_YIELD || r->op == OP_PAUSE || r->op == OP_RESUME ||
                   r->op == OP_SWAP_OUT || (r->op != OP_ADD && managed);
    if (code < 0 || !changes)
        return code;
    struct error why = {""};
    code = change(v, e, &why);
    if (code < 0)
        error_set(&v->error, code, "cannot change job #%llu: %s",
                  (unsigned long long)t->view.number, why.text[0] ? why.text : strerror(-code));
    else if (decided_by(r))
        engine_yield_forget(e, t->slot, decided_by(r));
    take_back_mark(v, e);
    return code;
}

/* Both or neither: a policy that is there with parameters that are fit. */
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

/* ---- commands ---- */

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
        log_user(v->who.account, LOG_INFO,
                 "uid %u (pid %d): %s: dropped, because the one who asked waits no longer",
                 v->who.uid, (int)v->who.pid, proto_op_name(v->request.op));
        return error_set(&v->error, -ECANCELED, "nobody waits for the answer");
    }
    /* For pids in the reply. */
    if (!v->who.ns.level && (v->request.op == OP_PS || v->request.op == OP_HINTS || v->request.run))
        (void)pidns_of(v->who.pid, &v->who.ns);
    switch (v->request.op) {
    case OP_PS:
    case OP_RULES:
        return v->request.pid ? find_asked(v, e) : 0;
    case OP_POLICY:
        return set_policy(v, e);
    case OP_IDENTITY:
        return rules_identify(verbs->rules, e, &v->who, &v->request, &v->error);
    case OP_HINTS:
        return verbs->hints ? hints_open(verbs->hints, &v->who, &v->fd, &v->error)
                            : error_set(&v->error, -ENOTSUP, "this daemon accepts no hints");
    case OP_ROOM:
        return verbs->hints ? hints_room(verbs->hints, e, &v->who, v->request.name,
                                         v->request.memory_bytes, &v->error)
                            : error_set(&v->error, -ENOTSUP, "this daemon accepts no hints");
    case OP_TRACE:
        if (v->who.guest)
            return error_set(&v->error, -EPERM,
                             "a trace shows all jobs of the machine: run it outside of this "
                             "container");
        return verbs->traces ? traces_open(verbs->traces, &v->who, &v->error)
                             : error_set(&v->error, -ENOTSUP, "this daemon cannot be traced");
    default:
        return steer(v, e);
    }
}

static void log_done(const struct verb *v)
{
    static const char *const done[] = {[OP_ADD] = "added",          [OP_SET] = "set",
                                       [OP_PAUSE] = "paused",       [OP_RESUME] = "resumed",
                                       [OP_SWAP_OUT] = "swaps out", [OP_SWAP_IN] = "swaps in",
                                       [OP_YIELD] = "yields",       [OP_ACQUIRE] = "acquires"};
    const struct job_view *j = &v->target.view;
    log_user(v->who.account, LOG_INFO,
             "uid %u (pid %d): %s #%llu %s of uid %u: class %s, weight %u%s", v->who.uid,
             (int)v->who.pid, v->request.release ? "released" : done[v->request.op],
             (unsigned long long)j->number, j->job.name, j->job.uid,
             job_class_name((enum job_class)j->job.class), j->job.weight,
             j->job.paused ? ", paused" : "");
}

/* The outcome of yielding or acquiring is to be asked for again. */
static bool is_under_way(const struct verb *v, const struct engine *e)
{
    const struct job_view *j = &v->target.view;
    struct error none;
    if (v->request.op == OP_ACQUIRE)
        return j->job.yielded || (j->swap && j->swap[0]);
    return v->request.op == OP_YIELD && v->request.yields_memory &&
           engine_yielded(e, v->target.slot, &none) == -EINPROGRESS;
}

/* The job as it is now; slots may have changed hands since run(). */
static json_t *steered(struct verb *v, struct engine *e)
{
    struct target *t = &v->target;
    struct error note = {""};
    int status = 0;
    if (v->in_none) {
        log_user(v->who.account, LOG_INFO,
                 "uid %u (pid %d): resumed process %d, which is in no job", v->who.uid,
                 (int)v->who.pid, (int)v->target.proc.pid);
        return json_pack("{s:i, s:b}", "v", PROTO_VERSION, "ok", 1);
    }
    if (!v->request.release) {
        t->slot = engine_job_by_number(e, t->view.number);
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
    const bool waits = is_under_way(v, e);
    if (!waits && !v->request.look)
        log_done(v);
    t->view.job.root.pid = guest_number(&v->who, t->view.job.root);
    json_t *reply = reply_job(&t->view, status < 0 ? note.text : v->note[0] ? v->note : NULL);
    if (reply && waits)
        json_object_set_new(reply, "waits", json_true());
    if (reply && v->visible[0])
        json_object_set_new(reply, "visible", json_text(v->visible));
    if (reply && v->request.run) {
        if (engine_may_record(e, SLOT_NONE, &note) < 0)
            json_object_set_new(reply, "warning", json_text(note.text));
        reply_add_unmanaged(reply, e, &v->who);
        reply_add_pool(reply, engine_driver(e), v->verbs->rules, t->view.job.class == CLASS_BATCH,
                       engine_loses_in_space(e, t->slot));
    }
    return reply;
}

static json_t *reply_of(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    switch (r->op) {
    case OP_HINTS:
        return json_pack("{s:i, s:b, s:i, s:i}", "v", PROTO_VERSION, "ok", 1, "hints",
                         HINTS_VERSION, "pid", (int)pidns_number(v->who.ns, v->who.pid));
    case OP_ROOM:
        return json_pack("{s:i, s:b}", "v", PROTO_VERSION, "ok", 1);
    case OP_RULES:
    case OP_IDENTITY:
        return rules_reply(v->verbs->rules, e, &v->who, r, &v->command.code, &v->error);
    case OP_TRACE:
        log_user(v->who.account, LOG_INFO, "uid %u (pid %d): traces", v->who.uid, (int)v->who.pid);
        return json_pack("{s:i, s:b, s:i}", "v", PROTO_VERSION, "ok", 1, "trace", TRACE_VERSION);
    case OP_POLICY:
        if (r->name[0] || r->params)
            log_user(v->who.account, LOG_INFO, "uid %u (pid %d): policy %s%s", v->who.uid,
                     (int)v->who.pid, engine_policy(e), r->params ? ", other parameters" : "");
        return reply_policy(e);
    default:
        return steered(v, e);
    }
}

static char *verb_text(struct verb *v, struct engine *e)
{
    const struct request *r = &v->request;
    if (r->op == OP_PS)
        return reply_ps(e, v->verbs->hints, &v->who, r->number, v->target.view.number, r->brief);
    json_t *reply = reply_of(v, e);
    char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
    json_decref(reply);
    return text;
}

static void verb_answer(struct command *c, struct engine *e, int code)
{
    struct verb *v = (struct verb *)c;
    struct verbs *verbs = v->verbs;
    char *text = code < 0 ? NULL : verb_text(v, e);
    code = v->command.code = code < 0 ? code : v->command.code;
    if (code < 0) {
        if (!v->error.text[0])
            error_set(&v->error, code, "%s", strerror(-code));
        log_user(v->who.account, LOG_DEBUG, "uid %u (pid %d): refused: %s", v->who.uid,
                 (int)v->who.pid, v->error.text);
        free(text);
        text = reply_refusal(code, &v->error);
    }
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
    if (r)
        v->request = *r;
}

void verb_parse(struct verb *v, struct verbs *verbs, const struct caller *who, const char *text,
                size_t n)
{
    verb_init(v, verbs, who, NULL);
    v->parsed = proto_parse(text, n, &v->request, &v->error);
}
