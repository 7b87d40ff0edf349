/* See metrics.h. One row of a table is one metric; its samples are printed together, as both
 * formats require. */
#include "agents/prometheus/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "base/util.h"
#include "base/version.h"
#include "who/users.h"

enum metric_kind { COUNTER, GAUGE, INFO };

/* name: without _total and _info; it ends with the unit, if there is one. */
struct metric {
    const char *name, *unit;
    enum metric_kind kind;
    const char *help;
};

/* object: the object of the job that has the key; NULL: the job itself. A value that is an object
 * has a sample for each of its members, whose name is the label "reason", or "state". */
struct job_metric {
    struct metric m;
    const char *object, *key;
    enum { AS_TOLD, ZERO_IS_UNKNOWN, ABSENT_IS_ZERO } zero;
    bool us; /* the key is in microseconds */
};

struct gpu_metric {
    struct metric m;
    const char *key;
};

struct metrics_out {
    FILE *f;
    enum metrics_format format;
    const struct metrics_choice *choice;
    const json_t *ps;
    char **labels; /* one for each job that has series: "{name=..." */
    size_t jobs;
    const struct metric *headed; /* whose head was written last */
    bool labelled;               /* the sample that is being written has a label */
};

#define M(name, unit, kind, help) .m = {name, unit, kind, help}
static const struct job_metric job_metrics[] = {
    {M("cede_job_states", NULL, GAUGE, "Jobs by state."), NULL, "states"},
    {M("cede_job_known_seconds", "seconds", COUNTER, "Time since ceded knows the job."), "counts",
     "known_s"},
    {M("cede_job_queued_seconds", "seconds", COUNTER, "Time waited for GPU memory."), "counts",
     "queued_s"},
    {M("cede_job_paused_seconds", "seconds", COUNTER, "Time paused."), "counts", "paused_s"},
    {M("cede_job_swapped_seconds", "seconds", COUNTER, "Time out of GPU memory or on the way."),
     "counts", "swapped_s"},
    {M("cede_job_swaps", NULL, COUNTER, "How often the job left GPU memory."), "counts", "swaps"},
    {M("cede_swap_bytes", "bytes", COUNTER, "GPU memory moved to host memory."), "counts",
     "swapped_out_bytes"},
    {M("cede_job_memory_bytes", "bytes", GAUGE, "GPU memory of the job."), NULL, "memory_bytes",
     ZERO_IS_UNKNOWN},
    {M("cede_job_swapped_bytes", "bytes", GAUGE, "GPU memory of the job that is in host memory."),
     NULL, "swapped_bytes", ABSENT_IS_ZERO},
    {M("cede_job_busy_ratio", "ratio", GAUGE, "GPU time lately; 1 is a whole GPU."), NULL, "busy"},
    {M("cede_job_speed_ratio", "ratio", GAUGE,
       "Speed beside the others in the MPS server; 1 is as alone."),
     "mps", "speed"},
    {M("cede_job_speed_error_ratio", "ratio", GAUGE,
       "Standard deviation of cede_job_speed_ratio; above 0.15 it says nothing."),
     "mps", "speed_error"},
    {M("cede_job_processes", NULL, GAUGE, "Processes of the job that use a GPU."), NULL,
     "processes"},
    {M("cede_job_requests", NULL, COUNTER, "Requests begun, as the job's programs reported."),
     "requests", "begun"},
    {M("cede_job_requests_ended", NULL, COUNTER, "Requests ended."), "requests", "ended"},
    {M("cede_job_requests_due", NULL, COUNTER, "Requests ended that had a deadline."), "requests",
     "due"},
    {M("cede_job_requests_met", NULL, COUNTER, "Requests ended that met their deadline."),
     "requests", "met"},
    {M("cede_job_requests_open", NULL, GAUGE, "Requests begun and not ended."), "requests", "open"},
    {M("cede_job_leases", NULL, COUNTER, "Leases of libcede, by what they waited for."), "leases",
     "count"},
    {M("cede_job_lease_wait_seconds", "seconds", COUNTER, "Time that leases of libcede waited."),
     "leases", "waited_s"},
    {M("cede_job_deadline_seconds", "seconds", GAUGE, "Time allowed for each burst of GPU work."),
     NULL, "deadline_us", .us = true},
    {M("cede_job_due_seconds", "seconds", GAUGE,
       "Time until the deadline of what the job does now; below 0 it has passed."),
     "due", "in_us", .us = true},
};

static const struct gpu_metric gpu_metrics[] = {
    {{"cede_job_allowed_seconds", "seconds", COUNTER, "Time in which the job could have the GPU."},
     "allowed_s"},
    {{"cede_job_wait_seconds", "seconds", COUNTER,
      "Time in which the job had work and waited for others."},
     "waited_s"},
    {{"cede_job_turns", NULL, COUNTER, "How often the job came to run."}, "turns"},
    {{"cede_job_preemptions", NULL, COUNTER,
      "How often the job had to make room while it had work."},
     "preempted"},
};

static const struct gpu_metric policy_metrics[] = {
    {{"cede_decisions", NULL, COUNTER, "Decisions of the scheduler."}, "decisions"},
    {{"cede_controls", NULL, COUNTER, "Driver controls issued."}, "controls"},
    {{"cede_controls_failed", NULL, COUNTER, "Driver controls that failed."}, "controls_failed"},
};

const char *metrics_content_type(enum metrics_format format)
{
    return format == METRICS_OPEN ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                  : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *suffix(enum metric_kind kind)
{
    return kind == COUNTER ? "_total" : kind == INFO ? "_info" : "";
}

/* The head has the family's name in OpenMetrics, and the samples' name in the older format. */
static void put_head(const struct metrics_out *o, const struct metric *m)
{
    static const char *const open_kinds[] = {"counter", "gauge", "info"};
    static const char *const plain_kinds[] = {"counter", "gauge", "gauge"};
    bool open = o->format == METRICS_OPEN;
    const char *end = open ? "" : suffix(m->kind);
    fprintf(o->f, "# HELP %s%s %s\n", m->name, end, m->help);
    fprintf(o->f, "# TYPE %s%s %s\n", m->name, end,
            open ? open_kinds[m->kind] : plain_kinds[m->kind]);
    if (open && m->unit)
        fprintf(o->f, "# UNIT %s %s\n", m->name, m->unit);
}

/* Begins a sample, after the metric's head if it is the first. labels: of its job, or "". */
static void put_sample(struct metrics_out *o, const struct metric *m, const char *labels)
{
    if (o->headed != m)
        put_head(o, m);
    o->headed = m;
    o->labelled = labels[0];
    fprintf(o->f, "%s%s%s", m->name, suffix(m->kind), labels);
}

/* key="value", escaped. Control characters become ?, because some readers end at them. */
static void put_label(struct metrics_out *o, const char *key, const char *value)
{
    _cleanup_free_ char *text = strdup(value ? value : "");
    fprintf(o->f, "%c%s=\"", o->labelled ? ',' : '{', key);
    o->labelled = true;
    if (text)
        text_show(text);
    for (const char *c = text; c && *c; c++) {
        if (*c == '\n')
            fputs("\\n", o->f);
        else if (*c == '"' || *c == '\\')
            fprintf(o->f, "\\%c", *c);
        else
            fputc(*c, o->f);
    }
    fputc('"', o->f);
}

static void put_number_label(struct metrics_out *o, const char *key, json_int_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    put_label(o, key, text);
}

static void put_value(const struct metrics_out *o, double value)
{
    fprintf(o->f, "%s %.15g\n", o->labelled ? "}" : "", value);
}

static void put_single(struct metrics_out *o, const struct metric *m, double value)
{
    put_sample(o, m, "");
    put_value(o, value);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static char *job_labels(const struct metrics_out *all, const json_t *job)
{
    static const char *const pod[] = {"namespace", "pod", "container"}; /* as of dcgm-exporter */
    char *text = NULL, user[USER_TEXT];
    size_t n;
    struct metrics_out o = {.f = open_memstream(&text, &n)};
    if (!o.f)
        return NULL;
    if (all->choice->per_job)
        put_number_label(&o, "number", json_get_int(job, "number"));
    put_label(&o, "name", json_get_text(job, "name"));
    put_label(&o, "class", json_get_text(job, "class"));
    put_label(&o, "user", user_text(user, (uid_t)json_get_int(job, "uid")));
    for (size_t i = 0; i < ARRAY_SIZE(pod); i++) {
        if (json_get_text(job, pod[i]))
            put_label(&o, pod[i], json_get_text(job, pod[i]));
    }
    if (fclose(o.f) == 0)
        return text;
    free(text);
    return NULL;
}

static const json_t *metrics_job(const struct metrics_out *o, size_t i)
{
    return json_array_get(json_object_get(o->ps, "jobs"), i);
}

static void put_job_sample(struct metrics_out *o, const struct job_metric *m, size_t job,
                           const char *part, const json_t *v)
{
    put_sample(o, &m->m, o->labels[job]);
    if (part)
        put_label(o, m->object ? "reason" : "state", part);
    put_value(o, json_number_value(v) * (m->us ? 1e-6 : 1));
}

static void put_job_metric(struct metrics_out *o, const struct job_metric *m)
{
    for (size_t i = 0; i < o->jobs; i++) {
        const json_t *job = metrics_job(o, i);
        json_t *v = json_object_get(m->object ? json_object_get(job, m->object) : job, m->key);
        const char *part;
        json_t *of;
        if (json_is_number(v) ? m->zero == ZERO_IS_UNKNOWN && json_number_value(v) <= 0
                              : !json_is_object(v) && m->zero != ABSENT_IS_ZERO)
            continue; /* it is not known */
        if (!json_is_object(v))
            put_job_sample(o, m, i, NULL, v);
        json_object_foreach (v, part, of) {
            put_job_sample(o, m, i, part, of);
        }
    }
}

static const char *metrics_uuid(const struct metrics_out *o, json_int_t gpu)
{
    for_each_json (g, json_object_get(o->ps, "gpus")) {
        if (json_get_int(g, "index") == gpu)
            return json_get_text(g, "uuid");
    }
    return "";
}

static void put_on_gpu(struct metrics_out *o, const struct metric *m, size_t job, const json_t *on,
                       const char *exact, double value)
{
    json_int_t gpu = json_get_int(on, "gpu");
    put_sample(o, m, o->labels[job]);
    put_number_label(o, "gpu", gpu);
    put_label(o, "UUID", metrics_uuid(o, gpu));
    if (exact)
        put_label(o, "exact", exact);
    put_value(o, value);
}

static const json_t *gpus_of_job(const struct metrics_out *o, size_t job)
{
    return json_object_get(json_object_get(metrics_job(o, job), "counts"), "gpus");
}

static void put_gpu_metric(struct metrics_out *o, const struct gpu_metric *m)
{
    for (size_t i = 0; i < o->jobs; i++) {
        for_each_json (on, gpus_of_job(o, i))
            put_on_gpu(o, &m->m, i, on, NULL, json_get_number(on, m->key));
    }
}

/* Each job has two series per GPU, whose sum is the GPU time. */
static void put_gpu_seconds(struct metrics_out *o)
{
    static const struct metric m = {
        "cede_job_gpu_seconds", "seconds", COUNTER,
        "Engine time; exact: from the driver's record of switches, else from samples."};
    for (size_t i = 0; i < o->jobs; i++) {
        for_each_json (on, gpus_of_job(o, i)) {
            double all = json_get_number(on, "gpu_s");
            double exact = json_get_number(on, "exact_s");
            put_on_gpu(o, &m, i, on, "true", exact);
            put_on_gpu(o, &m, i, on, "false", all > exact ? all - exact : 0);
        }
    }
}

static void put_job_info(struct metrics_out *o)
{
    static const struct metric m = {"cede_job", NULL, INFO, "What the job is, and its state."};
    for (size_t i = 0; i < o->jobs; i++) {
        const json_t *job = metrics_job(o, i), *mps = json_object_get(job, "mps");
        json_int_t unit = json_get_int(mps, "unit");
        put_sample(o, &m, o->labels[i]);
        put_number_label(o, "weight", json_get_int(job, "weight"));
        put_label(o, "state", json_get_text(job, "state"));
        put_label(o, "source", json_get_text(job, "source"));
        put_label(o, "account", json_get_text(job, "account"));
        if (mps)
            put_number_label(o, "pool", unit ? unit : json_get_int(job, "number"));
        else
            put_label(o, "pool", "");
        if (o->choice->pids)
            put_number_label(o, "pid", json_get_int(job, "pid"));
        put_value(o, 1);
    }
}

/* {CLASS:{STATE:N}} of all jobs, also of those without series; the caller's. */
static json_t *jobs_by_state(const struct metrics_out *o)
{
    json_t *tally = json_object(), *states;
    for_each_json (job, json_object_get(o->ps, "jobs")) {
        const char *c = json_get_text(job, "class"), *s = json_get_text(job, "state");
        c = c ? c : "";
        s = s ? s : "";
        if (!json_object_get(tally, c))
            json_object_set_new(tally, c, json_object());
        states = json_object_get(tally, c);
        json_object_set_new(states, s, json_integer(json_get_int(states, s) + 1));
    }
    return tally;
}

static void put_jobs_by_state(struct metrics_out *o)
{
    static const struct metric m = {"cede_jobs", NULL, GAUGE, "Jobs by class and state."};
    json_t *told = json_object_get(o->ps, "states"), *states;
    _cleanup_json_ json_t *tally = o->choice->per_job ? jobs_by_state(o) : json_incref(told);
    const json_t *n;
    const char *class, *state;
    json_object_foreach (tally, class, states) {
        json_object_foreach (states, state, n) {
            put_sample(o, &m, "");
            put_label(o, "class", class);
            put_label(o, "state", state);
            put_value(o, json_number_value(n));
        }
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void put_gpus(struct metrics_out *o)
{
    static const struct metric info = {"cede_gpu", NULL, INFO, "A GPU that ceded schedules."};
    static const struct metric waiting = {
        "cede_gpu_idle_while_waiting_seconds", "seconds", COUNTER,
        "Time in which the GPU was idle while a job had work and was suspended."};
    for_each_json (g, json_object_get(o->ps, "gpus")) {
        put_sample(o, &info, "");
        put_label(o, "UUID", json_get_text(g, "uuid"));
        put_number_label(o, "gpu", json_get_int(g, "index"));
        put_label(o, "device", json_get_text(g, "label"));
        put_label(o, "model_name", json_get_text(g, "name"));
        put_label(o, "level", json_get_text(g, "level_name"));
        put_value(o, 1);
    }
    for_each_json (g, json_object_get(o->ps, "gpus")) {
        const json_t *idle = json_object_get(g, "idle_while_waiting_s");
        if (!idle)
            continue;
        put_sample(o, &waiting, "");
        put_label(o, "UUID", json_get_text(g, "uuid"));
        put_number_label(o, "gpu", json_get_int(g, "index"));
        put_value(o, json_number_value(idle));
    }
}

static void put_build_info(struct metrics_out *o)
{
    static const struct metric m = {"cede_build", NULL, INFO, "This exporter and ceded's setting."};
    put_sample(o, &m, "");
    put_label(o, "version", build_version());
    put_label(o, "policy", json_get_text(o->ps, "policy"));
    put_label(o, "driver", json_get_text(o->ps, "device"));
    put_value(o, 1);
}

static json_int_t jobs_omitted(const struct metrics_out *o)
{
    json_int_t n = json_get_int(o->ps, "omitted");
    for (size_t i = o->jobs; i < json_array_size(json_object_get(o->ps, "jobs")); i++)
        n += o->choice->per_job ? 1 : json_get_int(metrics_job(o, i), "jobs");
    return n;
}

static void put_daemon(struct metrics_out *o, const json_t *policy)
{
    static const struct metric omitted = {"cede_jobs_omitted", NULL, GAUGE,
                                          "Jobs without series (--max-jobs)."};
    static const struct metric unmanaged = {"cede_unmanaged_programs", NULL, GAUGE,
                                            "Programs that use a GPU and belong to no job."};
    put_build_info(o);
    put_gpus(o);
    for (size_t i = 0; i < ARRAY_SIZE(policy_metrics); i++) {
        const json_t *v = json_object_get(policy, policy_metrics[i].key);
        if (v)
            put_single(o, &policy_metrics[i].m, json_number_value(v));
    }
    put_jobs_by_state(o);
    put_single(o, &omitted, (double)jobs_omitted(o));
    put_single(o, &unmanaged,
               (double)json_array_size(json_object_get(o->ps, "unmanaged")) +
                   (double)json_get_int(o->ps, "unmanaged_more"));
}

static bool put_jobs(struct metrics_out *o)
{
    size_t n = json_array_size(json_object_get(o->ps, "jobs"));
    n = n < o->choice->max_jobs ? n : o->choice->max_jobs;
    o->labels = calloc(n + 1, sizeof(*o->labels));
    bool ok = o->labels;
    for (o->jobs = 0; ok && o->jobs < n; o->jobs += ok) {
        o->labels[o->jobs] = job_labels(o, metrics_job(o, o->jobs));
        ok = o->labels[o->jobs];
    }
    if (!ok)
        return false;
    if (o->choice->per_job)
        put_job_info(o);
    for (size_t i = 0; i < ARRAY_SIZE(job_metrics); i++)
        put_job_metric(o, &job_metrics[i]);
    put_gpu_seconds(o);
    for (size_t i = 0; i < ARRAY_SIZE(gpu_metrics); i++)
        put_gpu_metric(o, &gpu_metrics[i]);
    return true;
}

char *metrics_text(const json_t *ps, const json_t *policy, const struct metrics_choice *choice,
                   enum metrics_format format)
{
    static const struct metric up = {"cede_up", NULL, GAUGE, "Whether ceded answers."};
    char *text = NULL;
    size_t n;
    struct metrics_out o = {
        .f = open_memstream(&text, &n), .format = format, .choice = choice, .ps = ps};
    if (!o.f)
        return NULL;
    put_single(&o, &up, ps ? 1 : 0);
    bool ok = !ps || put_jobs(&o);
    if (ok && ps)
        put_daemon(&o, policy);
    if (format == METRICS_OPEN)
        fputs("# EOF\n", o.f);
    ok = fclose(o.f) == 0 && ok;
    for (size_t i = 0; i < o.jobs; i++)
        free(o.labels[i]);
    free(o.labels);
    if (ok)
        return text;
    free(text);
    return NULL;
}
