/* See replies.h. */
#include "control/replies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control/guest.h"
#include "control/proto.h"
#include "lib/json_text.h"

const char *job_state(const struct job_view *v)
{
    if (v->swap && v->swap[0])
        return v->swap;
    /* What cannot be suspended, as on a driver whose suspension is off, runs. */
    if (v->job.paused &&
        (!v->groups || v->runnable_groups < v->groups || v->signalled || v->stopped))
        return "paused";
    if (v->groups == 0)
        return v->queued ? "queued" : "starting";
    if (v->stopped)
        return "stopped";
    if (v->runnable_groups)
        return "running";
    return v->throttled ? "throttled" : "waiting";
}

/* NULL: nothing is due. */
static json_t *due_json(const struct job_view *v)
{
    json_t *needs = v->due_needs_ns == TIME_NEVER
                        ? json_null()
                        : json_integer((json_int_t)(v->due_needs_ns / NSEC_PER_USEC));
    json_t *o = json_pack("{s:I, s:o, s:b, s:b}", "in_us",
                          (json_int_t)(v->due_in_ns / (int64_t)NSEC_PER_USEC), "needs_us", needs,
                          "first", v->due_first, "promoted", v->due_promoted);
    if (v->due)
        return o;
    json_decref(o);
    return NULL;
}

/* NULL: it chose its GPUs itself. */
static json_t *placed_json(const struct job_view *v)
{
    json_t *gpus = v->job.placed ? json_array() : NULL;
    for (uint32_t i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (v->job.placed >> i & 1)
            json_array_append_new(gpus, json_integer(i));
    }
    return gpus ? json_pack("{s:o, s:s}", "gpus", gpus, "why", place_reason_text(v->placed_why))
                : NULL;
}

/* NULL: no client of an MPS server. */
static json_t *mps_json(const struct job_view *v)
{
    if (!v->is_client)
        return NULL;
    return json_pack("{s:o*, s:s, s:b, s:b, s:b, s:b, s:o*, s:o*}", "unit",
                     v->unit ? json_integer((json_int_t)v->unit) : NULL, "class",
                     job_class_name(v->unit_class), "left_alone", v->left_alone, "stopped",
                     v->signalled, "profiling", v->speed_profiling, "turns", v->speed_turns,
                     "speed", v->speed_told ? json_real(v->speed) : NULL, "speed_error",
                     v->speed_told ? json_real(v->speed_error) : NULL);
}

/* NULL: nobody said how much it takes. */
static json_t *memory_json(const struct job_view *v)
{
    const struct journal_job *job = &v->job;
    if (!job->memory_bytes)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:o*, s:o*}", "said_bytes", (json_int_t)job->memory_bytes,
                     "gpu", (json_int_t)job->memory_gpu, "held_bytes", (json_int_t)v->memory_held,
                     "place", v->queued ? json_integer(v->place) : NULL, "infeasible",
                     v->infeasible ? json_true() : NULL);
}

static json_t *seconds_json(uint64_t ns)
{
    return json_real((double)ns / 1e9);
}

/* Sums since the daemon knows the job. brief: what cede top shows of them, and of GPUs that the job
 * has although it had nothing of them yet. */
static json_t *counts_json(const struct job_view *v, bool brief)
{
    const struct job_counts *c = &v->counts;
    uint64_t all = 0;
    json_t *gpus = json_array();
    for (int w = 0; w < WHERE_COUNT; w++)
        all += c->where_ns[w];
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        const struct gpu_counts *g = &c->on[d];
        if (g->waited_ns || v->exact_ns[d] || v->sampled_ns[d] ||
            (brief ? v->gpus >> d & 1 : g->ran_ns != 0))
            json_array_append_new(
                gpus, json_pack("{s:i, s:o, s:o*, s:o, s:o*, s:o, s:o*, s:o*}", "gpu", (int)d,
                                "gpu_s", seconds_json(v->exact_ns[d] + v->sampled_ns[d]), "exact_s",
                                brief ? NULL : seconds_json(v->exact_ns[d]), "counted_s",
                                seconds_json(all - min_u64(v->count_age_ns[d], all)), "allowed_s",
                                brief ? NULL : seconds_json(g->ran_ns), "waited_s",
                                seconds_json(g->waited_ns), "turns",
                                brief ? NULL : json_integer((json_int_t)g->turns), "preempted",
                                brief ? NULL : json_integer((json_int_t)g->preempted)));
    }
    if (brief)
        return json_pack("{s:o, s:o}", "known_s", seconds_json(all), "gpus", gpus);
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "known_s", seconds_json(all),
                     "queued_s", seconds_json(c->where_ns[WHERE_QUEUED]), "paused_s",
                     seconds_json(c->where_ns[WHERE_PAUSED]), "swapped_s",
                     seconds_json(c->where_ns[WHERE_SWAPPED]), "swaps", (json_int_t)c->swaps,
                     "swapped_out_bytes", (json_int_t)c->swapped_bytes, "gpus", gpus);
}

/* What was measured of the latency jobs of a GPU. NULL: nothing. */
static json_t *why_measured_json(const struct job_view *v, unsigned d)
{
    const struct sched_speed *s = &v->why[d].speed;
    if (v->unit_class != CLASS_LATENCY || !s->slice_us || s->busy <= 0)
        return NULL;
    return json_pack("{s:b, s:o*, s:f, s:o*}", "launch_bound", s->launch_bound, "busy",
                     v->why[d].busy >= 0 ? json_real(v->why[d].busy) : NULL, "bursts_hz",
                     s->bursts_hz, "speed", s->speed > 0 ? json_real(s->speed) : NULL);
}

/* The least on its GPUs. NULL: not known of any. */
static json_t *speed_json(const struct job_view *v)
{
    double least = INFINITY;
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        const struct sched_speed *s = &v->why[d].speed;
        if (v->why[d].why != WHY_ABSENT && v->unit_class == CLASS_LATENCY && s->slice_us &&
            s->speed > 0)
            least = fmin(least, fmin(s->speed, 1));
    }
    return isfinite(least) ? json_real(least) : NULL;
}

static json_t *why_json(const struct job_view *v)
{
    json_t *all = json_array();
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        const struct job_why *w = &v->why[d];
        if (w->why == WHY_ABSENT)
            continue;
        json_array_append_new(
            all, json_pack("{s:i, s:s, s:s, s:o*, s:o*, s:I, s:o*, s:o*, s:o*, s:o*}", "gpu",
                           (int)d, "reason", sched_why_name(w->why), "text", sched_why_text(w->why),
                           "job", w->other ? json_integer((json_int_t)w->other) : NULL, "on_gpu",
                           w->gpu < DEVICE_GPUS_MAX ? json_integer(w->gpu) : NULL, "ahead",
                           (json_int_t)w->ahead, "for_us",
                           w->for_ns == TIME_NEVER
                               ? NULL
                               : json_integer((json_int_t)(w->for_ns / NSEC_PER_USEC)),
                           "slice_us", w->slice_us ? json_integer(w->slice_us) : NULL, "throttled",
                           w->speed.slice_us ? json_boolean(w->throttled) : NULL, "measured",
                           why_measured_json(v, d)));
    }
    return all;
}

/* NULL: it has all that it had. */
static json_t *yielded_json(const struct job_view *v)
{
    const uint32_t what = v->job.yielded;
    return !what
               ? NULL
               : json_pack("{s:s*, s:b, s:b}", "class",
                           what & YIELD_CLASS ? job_class_name((enum job_class)v->job.yielded_class)
                                              : NULL,
                           "paused", (what & YIELD_PAUSE) != 0, "memory",
                           (what & YIELD_MEMORY) != 0);
}

json_t *job_json(const struct job_view *v, bool brief)
{
    static const char *const sources[] = {[JOB_RUN] = "run",
                                          [JOB_PID] = "pid",
                                          [JOB_RULE] = "rule",
                                          [JOB_ENVIRONMENT] = "environment",
                                          [JOB_SLURM] = "slurm"};
    json_t *gpus = json_array(), *levels = json_array();
    unsigned least = 0;
    for (uint32_t i = 0; i < 32; i++) {
        unsigned level = i < DEVICE_GPUS_MAX ? v->level[i] : 0;
        if (!(v->gpus & (1U << i)))
            continue;
        json_array_append_new(gpus, json_integer(i));
        json_array_append_new(levels, json_integer(level));
        least = level && (!least || level < least) ? level : least;
    }
    const char *level = device_level_name(least);
    const bool blocks = v->job.preempt == PREEMPT_BLOCK;
    /* o steals; a NULL among the values makes the whole NULL. */
    return json_pack(
        "{s:I, s:o, s:s, s:I, s:I, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:I, s:I, s:s, s:s, s:I, "
        "s:o, "
        "s:I, s:o, s:I, s:o, s:o*, s:o*, "
        "s:o*, s:o*, s:o*, "
        "s:o*, s:o*, s:o*, s:o*, s:o*, s:o, s:o, s:o, s:s*, s:o*, s:o*}",
        "number", (json_int_t)v->number, "name", json_text(v->job.name), "class",
        job_class_name((enum job_class)v->job.class), "weight", (json_int_t)v->job.weight,
        "budget_us", (json_int_t)v->job.budget_us, "gpu_min",
        v->job.gpu_min ? json_integer(v->job.gpu_min) : NULL, "gpu_max",
        v->job.gpu_max ? json_integer(v->job.gpu_max) : NULL, "min_speed",
        v->job.min_speed ? json_integer(v->job.min_speed) : NULL, "account",
        v->job.account[0] ? json_text(v->job.account) : NULL, "deadline_us",
        v->job.deadline_us ? json_integer(v->job.deadline_us) : NULL, "laxity_us",
        v->job.laxity_us ? json_integer(v->job.laxity_us) : NULL, "pid",
        (json_int_t)v->job.root.pid, "uid", (json_int_t)v->job.uid, "source",
        v->job.source < ARRAY_SIZE(sources) ? sources[v->job.source] : "?", "state", job_state(v),
        "processes", (json_int_t)v->processes, "gpus", gpus, "timeslice_us",
        (json_int_t)v->timeslice_us, "busy", v->busy >= 0 ? json_real(v->busy) : json_null(),
        "memory_bytes", (json_int_t)v->memory_bytes, "counts", counts_json(v, brief), "why",
        brief ? NULL : why_json(v), "error",
        v->error[0]        ? json_text(v->error)
        : v->swap_error[0] ? json_text(v->swap_error)
                           : NULL,
        "swap_error", v->swap_error[0] ? json_text(v->swap_error) : NULL, "swapped_bytes",
        v->swapped_bytes ? json_integer((json_int_t)v->swapped_bytes) : NULL, "room",
        v->job.memory_bytes ? json_boolean(v->job.room == ROOM_KEPT) : NULL, "memory",
        memory_json(v), "placed", placed_json(v), "due", due_json(v), "mps", mps_json(v), "speed",
        speed_json(v), "level", level ? json_integer(least) : json_null(), "level_name",
        level ? json_string(level) : json_null(), "levels", levels, "preempt",
        blocks ? "block" : NULL, "preempt_active", blocks ? json_boolean(v->preempt_active) : NULL,
        "yielded", yielded_json(v));
}

/* What one who steers a client of an MPS server has to know. */
static const char *mps_note(const struct job_view *v, char buf[static 256])
{
    if (v->is_client && v->job.paused)
        return "a client of an MPS server: its processes are stopped (SIGSTOP), and what they had "
               "queued on the GPU ends first";
    if (v->left_alone)
        return "its MPS server has a client that is in no job: cede changes nothing for any of "
               "them until that is a job, too (cede ps -a shows it)";
    if (!v->unit)
        return NULL;
    snprintf(buf, 256,
             "a client of the same MPS server as %s: they run at the same time, all as %s, the "
             "best class among them",
             v->unit == v->number ? "others" : "an older job", job_class_name(v->unit_class));
    return buf;
}

json_t *reply_job(const struct job_view *v, const char *note)
{
    char buf[256];
    note = note ? note : mps_note(v, buf);
    return json_pack("{s:i, s:b, s:o, s:s*}", "v", PROTO_VERSION, "ok", 1, "job",
                     job_json(v, false), "note", note);
}

static json_t *caps_of(uint32_t caps)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = {{GPU_CAP_TIMESLICE, "timeslice"}, {GPU_CAP_SUSPEND, "suspend"},
               {GPU_CAP_USAGE, "usage"},         {GPU_CAP_ACTIVITY, "activity"},
               {GPU_CAP_SWAP, "swap"},           {GPU_CAP_GATE, "gate"},
               {GPU_CAP_POOL, "pool"},           {GPU_CAP_PREEMPT, "preempt"},
               {GPU_CAP_COUNTERS, "counters"},   {GPU_CAP_PLACE, "place"}};
    json_t *a = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (caps & all[i].bit)
            json_array_append_new(a, json_string(all[i].name));
    }
    return a;
}

/* The names of some come from the programs that use them: asked each time. */
static json_t *gpus_of(const struct engine *e)
{
    struct device_driver *d = engine_driver(e);
    json_t *a = json_array();
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        if (d->ops->info(d, i, &g) < 0 || !g.name[0])
            continue;
        unsigned level = g.caps & GPU_CAP_GATE ? LEVEL_GATE : LEVEL_QUEUE;
        if (!g.label[0])
            snprintf(g.label, sizeof(g.label), "%.12s%u", d->ops->name, i);
        uint32_t off;
        const char *why;
        engine_gpu_caps(e, i, &off, &why);
        json_t *gpu =
            json_pack("{s:i, s:s, s:s, s:s, s:i, s:s, s:o}", "index", (int)i, "label", g.label,
                      "name", g.name, "uuid", g.uuid, "level", (int)level, "level_name",
                      device_level_name(level), "caps", caps_of(g.caps & ~off));
        uint64_t idle_ns;
        if (engine_gpu_idle(e, i, &idle_ns))
            json_object_set_new(gpu, "idle_while_waiting_s", seconds_json(idle_ns));
        if (off) {
            json_object_set_new(gpu, "off", caps_of(off));
            json_object_set_new(gpu, "off_why", json_string(why));
        }
        json_array_append_new(a, gpu);
    }
    return a;
}

struct numbered {
    uint64_t number;
    uint32_t slot;
};

static int jobs_by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct numbered *)a)->number, y = ((const struct numbered *)b)->number;
    return x < y ? -1 : x > y;
}

/* The jobs with numbers above `after`, lowest first. */
static size_t numbered_jobs(const struct engine *e, uint64_t after, struct numbered *all)
{
    const struct journal_job *rec;
    size_t n = 0;
    for (uint32_t cursor = 0; n < JOURNAL_JOBS && (rec = engine_next_record(e, &cursor));) {
        if (rec->number > after)
            all[n++] = (struct numbered){rec->number, cursor - 1};
    }
    qsort(all, n, sizeof(*all), jobs_by_number);
    return n;
}

static json_t *job_and_requests(const struct job_view *view, const struct hints *hints,
                                uint64_t now_ns)
{
    json_t *job = job_json(view, false);
    json_t *requests = hints ? hints_of(hints, view->number, now_ns) : NULL;
    if (requests)
        json_object_set_new(job, "requests", requests);
    return job;
}

/* A user's own daemon has no rights to the programs of others. */
static bool may_set(const struct unmanaged *u, const struct caller *who)
{
    return u->uid == who->uid || (who->admin && geteuid() == 0);
}

static json_t *unmanaged_json(const struct unmanaged *u, pid_t number, bool may)
{
    char name[JOB_NAME_MAX];
    rules_job_name(name, u->comm, u->id.pid);
    json_t *gpus = json_array();
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (u->gpus & 1U << i)
            json_array_append_new(gpus, json_integer(i));
    }
    return json_pack("{s:i, s:o, s:I, s:o, s:b, s:b}", "pid", (int)number, "name", json_text(name),
                     "uid", (json_int_t)u->uid, "gpus", gpus, "detached", u->detached, "may_set",
                     may);
}

void reply_add_unmanaged(json_t *reply, const struct engine *e, const struct caller *who)
{
    json_t *all = json_array();
    json_int_t more = 0;
    for (int rank = 0; rank < 3; rank++) {
        struct unmanaged u;
        for (uint32_t cursor = 0; engine_next_unmanaged(e, &cursor, &u);) {
            bool may = may_set(&u, who);
            const pid_t number = guest_number(who, u.id); /* 0: it cannot be named there */
            if (!number || (u.detached ? 2 : may ? 0 : 1) != rank)
                continue;
            if (json_array_size(all) < UNMANAGED_MAX)
                json_array_append_new(all, unmanaged_json(&u, number, may));
            else
                more++;
        }
    }
    json_object_set_new(reply, "unmanaged", all);
    if (more)
        json_object_set_new(reply, "unmanaged_more", json_integer(more));
}

void reply_add_pool(json_t *reply, struct device_driver *d, const struct rule_list *l, bool batch,
                    bool loses)
{
    bool possible = false;
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        possible |= d->ops->info(d, i, &g) == 0 && (g.caps & GPU_CAP_POOL);
    }
    json_object_set_new(reply, "pool",
                        json_pack("{s:b, s:b, s:b, s:b, s:I}", "wanted",
                                  l && l->pool_batch && batch, "latency", l && l->pool_latency,
                                  "possible", possible, "loses", batch && loses, "latency_sm",
                                  l ? (json_int_t)l->pool_latency_sm : 100));
}

/* The texts of jobs, with commas between. */
struct job_texts {
    char *text;
    size_t n, room;
};

/* Slots are reused and numbers are not, so pages go by number: a job that comes or goes between two
 * pages neither hides another nor shows it twice. all: room for JOURNAL_JOBS. Whether there are
 * more than there is room for. */
static bool add_jobs(struct job_texts *to, const struct engine *e, const struct hints *hints,
                     const struct caller *who, uint64_t after, bool brief, struct numbered *all)
{
    uint64_t now = monotonic_ns();
    size_t n = numbered_jobs(e, after, all);
    for (size_t i = 0; i < n; i++) {
        struct job_view view;
        if (!engine_view(e, all[i].slot, &view) || !guest_reaches(who, view.job.root))
            continue;
        view.job.root.pid = guest_number(who, view.job.root);
        json_t *job = brief ? job_json(&view, true) : job_and_requests(&view, hints, now);
        if (!job) /* no memory */
            continue;
        size_t from = to->n + (to->n > 0);
        size_t size = from < to->room
                          ? json_dumpb(job, to->text + from, to->room - from, JSON_COMPACT)
                          : to->room;
        json_decref(job);
        if (from + size > to->room)
            return true;
        if (from)
            to->text[to->n] = ',';
        to->n = from + size;
    }
    return false;
}

/* Jobs are formatted once, in their place at the end of the reply: with a thousand that is most of
 * what a list takes. */
char *reply_ps(struct engine *e, struct hints *hints, const struct caller *who, uint64_t after,
               uint64_t job_of, bool brief)
{
    static const char end[] = "],\"more\":false}";
    struct device_driver *d = engine_driver(e);
    struct numbered *all = calloc(JOURNAL_JOBS, sizeof(*all));
    char *text = malloc(PROTO_MESSAGE_MAX);
    json_t *o = json_pack("{s:i, s:b, s:s, s:s, s:o, s:i}", "v", PROTO_VERSION, "ok", 1, "policy",
                          engine_policy(e), "device", device_name(d), "gpus", gpus_of(e), "pid",
                          who->ns.level > 1 ? 0 : (int)getpid());
    if (all && text && o) {
        engine_watch(e);
        if (hints)
            hints_assign(hints, e, monotonic_ns());
        if (who->guest)
            json_object_set_new(o, "guest", json_true());
        if (job_of)
            json_object_set_new(o, "job_of", json_integer((json_int_t)job_of));
        if (!after)
            reply_add_unmanaged(o, e, who);
        json_object_set_new(o, "jobs", json_array());
    }
    const size_t head = o && text ? json_dumpb(o, text, PROTO_MESSAGE_MAX, JSON_COMPACT) : 0;
    json_decref(o);
    if (!all || !head || head + sizeof(end) > PROTO_MESSAGE_MAX) {
        free(text);
        text = NULL;
    } else {
        struct job_texts jobs = {text + head - strlen("]}"), 0,
                                 PROTO_MESSAGE_MAX - head - sizeof(end)};
        const bool more = add_jobs(&jobs, e, hints, who, after, brief, all);
        snprintf(jobs.text + jobs.n, sizeof(end), "],\"more\":%s}", more ? "true" : "false");
    }
    free(all);
    return text;
}

const char *reply_policy_names(char *buf, size_t size)
{
    const char *name, *summary;
    buf[0] = '\0';
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++)
        list_add(buf, size, name);
    return buf;
}

static json_t *params_of(const struct sched_params *p)
{
    json_t *o = json_object();
    const struct param *f;
    for (unsigned i = 0; (f = param_at(i)); i++)
        json_object_set_new(o, f->name, proto_param(f, param_get(p, f)));
    return o;
}

json_t *policies_json(void)
{
    json_t *list = json_array();
    const char *name, *summary;
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "summary", summary));
    return list;
}

json_t *reply_policy(const struct engine *e)
{
    uint64_t totals[3];
    engine_totals(e, totals);
    return json_pack("{s:i, s:b, s:s, s:o, s:o, s:I, s:I, s:I}", "v", PROTO_VERSION, "ok", 1,
                     "policy", engine_policy(e), "policies", policies_json(), "params",
                     params_of(engine_params(e)), "decisions", (json_int_t)totals[0], "controls",
                     (json_int_t)totals[1], "controls_failed", (json_int_t)totals[2]);
}

char *reply_refusal(int code, const struct error *err)
{
    json_t *o = json_pack("{s:i, s:b, s:i, s:o}", "v", PROTO_VERSION, "ok", 0, "errno", -code,
                          "error", json_text(err->text[0] ? err->text : strerror(-code)));
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}
