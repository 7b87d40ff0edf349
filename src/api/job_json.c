/* A job in JSON: see replies.h, and cede-json(5) for the fields. */
#include <math.h>
#include <string.h>

#include "api/job_terms.h"
#include "api/proto.h"
#include "api/replies.h"
#include "base/json_text.h"

const char *job_state(const struct job_view *v)
{
    if (v->swap && v->swap[0])
        return v->swap;
    /* A paused job whose groups cannot be suspended, as on a driver without suspension, runs. */
    if (v->job.paused &&
        (!v->groups || v->runnable_groups < v->groups || v->signalled || v->stopped))
        return "paused";
    if (v->held && v->groups)
        return "held";
    if (v->groups == 0)
        return v->queued ? "queued" : "starting";
    if (v->stopped)
        return "stopped";
    if (v->runnable_groups)
        return "running";
    return v->throttled ? "throttled" : "waiting";
}

json_t *bits_json(uint32_t bits)
{
    json_t *a = json_array();
    for (int i = 0; i < 32; i++) {
        if (bits >> i & 1)
            json_array_append_new(a, json_integer(i));
    }
    return a;
}

/* NULL: nothing is due. */
static json_t *due_json(const struct job_view *v, enum job_detail detail)
{
    if (!v->due)
        return NULL;
    json_t *needs = v->due_needs_ns == TIME_NEVER
                        ? json_null()
                        : json_integer((json_int_t)(v->due_needs_ns / NSEC_PER_USEC));
    return json_pack("{s:I, s:o, s:b, s:b}", "in_us",
                     (json_int_t)(v->due_in_ns / (int64_t)NSEC_PER_USEC), "needs_us", needs,
                     "first", v->due_first, "promoted", v->due_promoted);
}

/* NULL: the program chose its GPUs itself. */
static json_t *placed_json(const struct job_view *v, enum job_detail detail)
{
    return v->job.placed ? json_pack("{s:o, s:s}", "gpus", bits_json(v->job.placed), "why",
                                     place_reason_text(v->placed_why))
                         : NULL;
}

/* NULL: no client of an MPS server. */
static json_t *mps_json(const struct job_view *v, enum job_detail detail)
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

/* NULL: no need of memory was stated. */
static json_t *memory_json(const struct job_view *v, enum job_detail detail)
{
    const struct journal_job *job = &v->job;
    if (!job->memory_bytes)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:o*, s:o*}", "said_bytes", (json_int_t)job->memory_bytes,
                     "gpu", (json_int_t)job->memory_gpu, "held_bytes", (json_int_t)v->memory_held,
                     "place", v->queued ? json_integer(v->position) : NULL, "infeasible",
                     v->infeasible ? json_true() : NULL);
}

static json_t *seconds_json(uint64_t ns)
{
    return json_real((double)ns / 1e9);
}

/* Sums since the daemon knows the job. JOB_SUMS: only the fields that cede top shows, but also for
 * GPUs of which the job had nothing yet. */
static json_t *counts_json(const struct job_view *v, enum job_detail detail)
{
    const struct job_totals *c = &v->counts;
    const bool sums = detail == JOB_SUMS;
    uint64_t all = 0;
    json_t *gpus = detail == JOB_BRIEF ? NULL : json_array();
    for (int w = 0; w < WHERE_COUNT; w++)
        all += c->where_ns[w];
    for (unsigned d = 0; d < DEVICE_GPUS_MAX && gpus; d++) {
        const struct gpu_totals *g = &c->on[d];
        if (g->waited_ns || g->exact_ns || g->sampled_ns ||
            (sums ? v->gpus >> d & 1 : g->ran_ns != 0))
            json_array_append_new(
                gpus, json_pack("{s:i, s:o, s:o*, s:o, s:o*, s:o, s:o*, s:o*}", "gpu", (int)d,
                                "gpu_s", seconds_json(g->exact_ns + g->sampled_ns), "exact_s",
                                sums ? NULL : seconds_json(g->exact_ns), "counted_s",
                                seconds_json(all - min_u64(v->count_age_ns[d], all)), "allowed_s",
                                sums ? NULL : seconds_json(g->ran_ns), "waited_s",
                                seconds_json(g->waited_ns), "turns",
                                sums ? NULL : json_integer((json_int_t)g->turns), "preempted",
                                sums ? NULL : json_integer((json_int_t)g->preempted)));
    }
    if (!gpus || sums)
        return !gpus ? NULL : json_pack("{s:o, s:o}", "known_s", seconds_json(all), "gpus", gpus);
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "known_s", seconds_json(all),
                     "queued_s", seconds_json(c->where_ns[WHERE_QUEUED]), "paused_s",
                     seconds_json(c->where_ns[WHERE_PAUSED]), "swapped_s",
                     seconds_json(c->where_ns[WHERE_SWAPPED]), "swaps", (json_int_t)c->swaps,
                     "swapped_out_bytes", (json_int_t)c->swapped_bytes, "gpus", gpus);
}

/* Measurements of the latency jobs on a GPU. NULL: there are none. */
static json_t *why_measured_json(const struct job_view *v, unsigned d)
{
    const struct sched_speed *s = &v->why[d].speed;
    if (v->unit_class != CLASS_LATENCY || !s->slice_us || s->busy <= 0)
        return NULL;
    return json_pack("{s:b, s:o*, s:f, s:o*}", "launch_bound", s->launch_bound, "busy",
                     v->why[d].busy >= 0 ? json_real(v->why[d].busy) : NULL, "bursts_hz",
                     s->bursts_hz, "speed", s->speed > 0 ? json_real(s->speed) : NULL);
}

/* The lowest speed on the job's GPUs. NULL: none is known. */
static json_t *speed_json(const struct job_view *v, enum job_detail detail)
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

/* NULL: not known. */
static json_t *together_json(const struct job_view *v, enum job_detail detail)
{
    return !v->together || detail != JOB_WHOLE ? NULL
           : v->together == 1                  ? json_integer(0)
                                               : json_real(v->together / 1e3);
}

static json_t *why_json(const struct job_view *v, enum job_detail detail)
{
    json_t *all = detail == JOB_WHOLE ? json_array() : NULL;
    for (unsigned d = 0; d < DEVICE_GPUS_MAX && all; d++) {
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

/* NULL: it has yielded nothing. */
static json_t *yielded_json(const struct job_view *v, enum job_detail detail)
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

static json_t *source_json(const struct job_view *v, enum job_detail detail)
{
    static const char *const sources[] = {[JOB_RUN] = "run",
                                          [JOB_PID] = "pid",
                                          [JOB_RULE] = "rule",
                                          [JOB_ENVIRONMENT] = "environment",
                                          [JOB_SLURM] = "slurm"};
    return json_string(v->job.source < ARRAY_SIZE(sources) ? sources[v->job.source] : "?");
}

static json_t *pid_json(const struct job_view *v, enum job_detail detail)
{
    return json_integer(v->rootless ? 0 : v->job.root.pid);
}

static json_t *state_json(const struct job_view *v, enum job_detail detail)
{
    return json_string(job_state(v));
}

static json_t *job_gpus_json(const struct job_view *v, enum job_detail detail)
{
    return bits_json(v->gpus);
}

static json_t *levels_json(const struct job_view *v, enum job_detail detail)
{
    json_t *levels = json_array();
    for (uint32_t i = 0; i < 32; i++) {
        if (v->gpus >> i & 1)
            json_array_append_new(levels, json_integer(i < DEVICE_GPUS_MAX ? v->level[i] : 0));
    }
    return levels;
}

/* The lowest level on the job's GPUs; 0: none is known. */
static unsigned level_of(const struct job_view *v)
{
    unsigned least = 0;
    for (uint32_t i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (v->gpus >> i & 1 && v->level[i] && (!least || v->level[i] < least))
            least = v->level[i];
    }
    return least;
}

static json_t *level_json(const struct job_view *v, enum job_detail detail)
{
    return device_level_name(level_of(v)) ? json_integer(level_of(v)) : json_null();
}

static json_t *level_name_json(const struct job_view *v, enum job_detail detail)
{
    const char *name = device_level_name(level_of(v));
    return name ? json_string(name) : json_null();
}

static json_t *busy_json(const struct job_view *v, enum job_detail detail)
{
    return v->busy >= 0 ? json_real(v->busy) : json_null();
}

/* NULL: it is not swapped out. */
static json_t *swap_by_user_json(const struct job_view *v, enum job_detail detail)
{
    return v->swap && v->swap[0] ? json_boolean(v->swap_by_user) : NULL;
}

static json_t *error_json(const struct job_view *v, enum job_detail detail)
{
    const char *text = v->error[0] ? v->error : v->swap_error;
    return *text ? json_text(text) : NULL;
}

/* What happened to a job with more memory than its memory-max. NULL: `error` is another one. */
static json_t *memory_exceeded_json(const struct job_view *v, enum job_detail detail)
{
    return v->memory_exceeded ? term_json(term_of_key("memory_over"), v->job.memory_over) : NULL;
}

static json_t *room_json(const struct job_view *v, enum job_detail detail)
{
    return v->job.memory_bytes ? json_boolean(v->job.room == ROOM_KEPT) : NULL;
}

static json_t *preempt_active_json(const struct job_view *v, enum job_detail detail)
{
    return v->job.preempt == PREEMPT_BLOCK ? json_boolean(v->preempt_active) : NULL;
}

/* The fields of a job; _OR_NONE: omitted if 0 or "". TERMS stands for all terms of job_terms.c. */
static const struct job_field {
    const char *key;
    enum field_type { NUMBER, NUMBER_OR_NONE, TEXT, TEXT_OR_NONE, MADE, TERMS } type;
    size_t at, size; /* in struct job_view */
    json_t *(*make)(const struct job_view *v,
                    enum job_detail detail); /* its result NULL: omitted */
} job_fields[] = {
#define AT(member)                                                                                 \
    .at = offsetof(struct job_view, member), .size = sizeof(((struct job_view *)0)->member)
    {"number", NUMBER, AT(number)},
    {"name", TEXT, AT(job.name)},
    {"", TERMS, .make = NULL},
    {"account", TEXT_OR_NONE, AT(job.account)},
    {"pid", MADE, .make = pid_json},
    {"uid", NUMBER, AT(job.uid)},
    {"source", MADE, .make = source_json},
    {"namespace", TEXT_OR_NONE, AT(pod.namespace)},
    {"pod", TEXT_OR_NONE, AT(pod.pod)},
    {"container", TEXT_OR_NONE, AT(pod.container)},
    {"state", MADE, .make = state_json},
    {"processes", NUMBER, AT(processes)},
    {"gpus", MADE, .make = job_gpus_json},
    {"timeslice_us", NUMBER, AT(timeslice_us)},
    {"busy", MADE, .make = busy_json},
    {"memory_bytes", NUMBER, AT(memory_bytes)},
    {"counts", MADE, .make = counts_json},
    {"why", MADE, .make = why_json},
    {"error", MADE, .make = error_json},
    {"memory_exceeded", MADE, .make = memory_exceeded_json},
    {"swap_error", TEXT_OR_NONE, AT(swap_error)},
    {"swapped_bytes", NUMBER_OR_NONE, AT(swapped_bytes)},
    {"swap_by_user", MADE, .make = swap_by_user_json},
    {"room", MADE, .make = room_json},
    {"memory", MADE, .make = memory_json},
    {"placed", MADE, .make = placed_json},
    {"due", MADE, .make = due_json},
    {"mps", MADE, .make = mps_json},
    {"speed", MADE, .make = speed_json},
    {"together", MADE, .make = together_json},
    {"level", MADE, .make = level_json},
    {"level_name", MADE, .make = level_name_json},
    {"levels", MADE, .make = levels_json},
    {"preempt_active", MADE, .make = preempt_active_json},
    {"yielded", MADE, .make = yielded_json},
#undef AT
};

/* NULL: the field is omitted. */
static json_t *field_json(const struct job_field *f, const struct job_view *v,
                          enum job_detail detail)
{
    const char *at = (const char *)v + f->at;
    uint64_t number = 0;
    switch (f->type) {
    case NUMBER:
    case NUMBER_OR_NONE: /* short numbers fit because cede is built for little-endian machines */
        memcpy(&number, at, f->size);
        return number || f->type == NUMBER ? json_integer((json_int_t)number) : NULL;
    case TEXT:
    case TEXT_OR_NONE:
        return *at || f->type == TEXT ? json_text(at) : NULL;
    default:
        return f->make(v, detail);
    }
}

static void add_terms(json_t *o, const struct job_terms *terms)
{
    const struct term *t;
    for (unsigned i = 0; (t = term_at(i)); i++) {
        const uint32_t value = term_get(terms, t);
        if (value || t->always)
            json_object_set_new(o, t->key, term_json(t, value));
    }
}

json_t *job_json(const struct job_view *v, enum job_detail detail)
{
    json_t *o = json_object();
    for_each (f, job_fields, ARRAY_SIZE(job_fields)) {
        json_t *x = f->type == TERMS ? NULL : field_json(f, v, detail);
        if (f->type == TERMS)
            add_terms(o, &v->job.terms);
        else if (x)
            json_object_set_new(o, f->key, x);
    }
    return o;
}
