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
    double scale;
    enum { AS_TOLD, ZERO_IS_UNKNOWN, ABSENT_IS_ZERO } zero;
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
    char **labels; /* one for each job that has series */
    size_t jobs;
};

#define M(name, unit, kind, help)                                                                  \
    {                                                                                              \
        name, unit, kind, help                                                                     \
    }
static const struct job_metric job_metrics[] = {
    {M("cede_job_states", NULL, GAUGE, "Jobs by state."), NULL, "states", 1, AS_TOLD},
    {M("cede_job_known_seconds", "seconds", COUNTER, "Time since ceded knows the job."), "counts",
     "known_s", 1, AS_TOLD},
    {M("cede_job_queued_seconds", "seconds", COUNTER, "Time waited for GPU memory."), "counts",
     "queued_s", 1, AS_TOLD},
    {M("cede_job_paused_seconds", "seconds", COUNTER, "Time paused."), "counts", "paused_s", 1,
     AS_TOLD},
    {M("cede_job_swapped_seconds", "seconds", COUNTER, "Time out of GPU memory or on the way."),
     "counts", "swapped_s", 1, AS_TOLD},
    {M("cede_job_swaps", NULL, COUNTER, "How often the job left GPU memory."), "counts", "swaps", 1,
     AS_TOLD},
    {M("cede_swap_bytes", "bytes", COUNTER, "GPU memory moved to host memory."), "counts",
     "swapped_out_bytes", 1, AS_TOLD},
    {M("cede_job_memory_bytes", "bytes", GAUGE, "GPU memory of the job."), NULL, "memory_bytes", 1,
     ZERO_IS_UNKNOWN},
    {M("cede_job_swapped_bytes", "bytes", GAUGE, "GPU memory of the job that is in host memory."),
     NULL, "swapped_bytes", 1, ABSENT_IS_ZERO},
    {M("cede_job_busy_ratio", "ratio", GAUGE, "GPU time lately; 1 is a whole GPU."), NULL, "busy",
     1, AS_TOLD},
    {M("cede_job_speed_ratio", "ratio", GAUGE,
       "Speed beside the others in the MPS server; 1 is as alone."),
     "mps", "speed", 1, AS_TOLD},
    {M("cede_job_speed_error_ratio", "ratio", GAUGE,
       "Standard deviation of cede_job_speed_ratio; above 0.15 it says nothing."),
     "mps", "speed_error", 1, AS_TOLD},
    {M("cede_job_processes", NULL, GAUGE, "Processes of the job that use a GPU."), NULL,
     "processes", 1, AS_TOLD},
    {M("cede_job_requests", NULL, COUNTER, "Requests begun, as the job's programs reported."),
     "requests", "begun", 1, AS_TOLD},
    {M("cede_job_requests_ended", NULL, COUNTER, "Requests ended."), "requests", "ended", 1,
     AS_TOLD},
    {M("cede_job_requests_due", NULL, COUNTER, "Requests ended that had a deadline."), "requests",
     "due", 1, AS_TOLD},
    {M("cede_job_requests_met", NULL, COUNTER, "Requests ended that met their deadline."),
     "requests", "met", 1, AS_TOLD},
    {M("cede_job_requests_open", NULL, GAUGE, "Requests begun and not ended."), "requests", "open",
     1, AS_TOLD},
    {M("cede_job_leases", NULL, COUNTER, "Leases of libcede, by what they waited for."), "leases",
     "count", 1, AS_TOLD},
    {M("cede_job_lease_wait_seconds", "seconds", COUNTER, "Time that leases of libcede waited."),
     "leases", "waited_s", 1, AS_TOLD},
    {M("cede_job_deadline_seconds", "seconds", GAUGE, "Time allowed for each burst of GPU work."),
     NULL, "deadline_us", 1e-6, AS_TOLD},
    {M("cede_job_due_seconds", "seconds", GAUGE,
       "Time until the deadline of what the job does now; below 0 it has passed."),
     "due", "in_us", 1e-6, AS_TOLD},
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

static void put_sample_name(const struct metrics_out *o, const struct metric *m)
{
    fprintf(o->f, "%s%s", m->name, suffix(m->kind));
}

static void put_value(const struct metrics_out *o, double value)
{
    fprintf(o->f, " %.15g\n", value);
}

/* key="value", escaped. Control characters become ?, because some readers end at them. */
static void put_label(FILE *f, const char *key, const char *value)
{
    _cleanup_free_ char *text = strdup(value ? value : "");
    fprintf(f, "%s=\"", key);
    if (text)
        text_show(text);
    for (const char *c = text; c && *c; c++) {
        if (*c == '\n')
            fputs("\\n", f);
        else if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else
            fputc(*c, f);
    }
    fputc('"', f);
}

static void put_next_label(FILE *f, const char *key, const char *value)
{
    fputc(',', f);
    put_label(f, key, value);
}

static void put_number_label(FILE *f, const char *key, json_int_t value)
{
    fprintf(f, ",%s=\"%lld\"", key, (long long)value);
}

static void put_single(const struct metrics_out *o, const struct metric *m, double value)
{
    put_head(o, m);
    put_sample_name(o, m);
    put_value(o, value);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static char *job_labels(const struct metrics_out *o, const json_t *job)
{
    static const char *const pod[] = {"namespace", "pod", "container"}; /* as of dcgm-exporter */
    char *text = NULL, user[USER_TEXT];
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    if (o->choice->per_job)
        fprintf(f, "number=\"%lld\",", (long long)json_get_int(job, "number"));
    put_label(f, "name", json_get_text(job, "name"));
    put_next_label(f, "class", json_get_text(job, "class"));
    put_next_label(f, "user", user_text(user, (uid_t)json_get_int(job, "uid")));
    for (size_t i = 0; i < ARRAY_SIZE(pod); i++) {
        if (json_get_text(job, pod[i]))
            put_next_label(f, pod[i], json_get_text(job, pod[i]));
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static const json_t *metrics_job(const struct metrics_out *o, size_t i)
{
    return json_array_get(json_object_get(o->ps, "jobs"), i);
}

static void put_job_sample(const struct metrics_out *o, const struct job_metric *m, size_t job,
                           const char *part, const json_t *v)
{
    put_sample_name(o, &m->m);
    fprintf(o->f, "{%s", o->labels[job]);
    if (part)
        put_next_label(o->f, m->object ? "reason" : "state", part);
    fputc('}', o->f);
    put_value(o, json_number_value(v) * m->scale);
}

static void put_job_metric(const struct metrics_out *o, const struct job_metric *m)
{
    bool head = false;
    for (size_t i = 0; i < o->jobs; i++) {
        const json_t *job = metrics_job(o, i);
        const json_t *v =
            json_object_get(m->object ? json_object_get(job, m->object) : job, m->key);
        if (json_is_number(v) ? m->zero == ZERO_IS_UNKNOWN && json_number_value(v) <= 0
                              : !json_is_object(v) && m->zero != ABSENT_IS_ZERO)
            continue; /* it is not known */
        if (!head)
            put_head(o, &m->m);
        head = true;
        if (!json_is_object(v))
            put_job_sample(o, m, i, NULL, v);
        for (void *at = json_object_iter((json_t *)v); at;
             at = json_object_iter_next((json_t *)v, at)) {
            put_job_sample(o, m, i, json_object_iter_key(at), json_object_iter_value(at));
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

static void put_on_gpu(const struct metrics_out *o, const struct metric *m, size_t job,
                       const json_t *on, const char *exact, double value)
{
    json_int_t gpu = json_get_int(on, "gpu");
    put_sample_name(o, m);
    fprintf(o->f, "{%s", o->labels[job]);
    put_number_label(o->f, "gpu", gpu);
    put_next_label(o->f, "UUID", metrics_uuid(o, gpu));
    if (exact)
        put_next_label(o->f, "exact", exact);
    fputc('}', o->f);
    put_value(o, value);
}

static const json_t *gpus_of_job(const struct metrics_out *o, size_t job)
{
    return json_object_get(json_object_get(metrics_job(o, job), "counts"), "gpus");
}

static bool any_on_gpus(const struct metrics_out *o)
{
    for (size_t i = 0; i < o->jobs; i++) {
        if (json_array_size(gpus_of_job(o, i)))
            return true;
    }
    return false;
}

static void put_gpu_metric(const struct metrics_out *o, const struct gpu_metric *m)
{
    put_head(o, &m->m);
    for (size_t i = 0; i < o->jobs; i++) {
        for_each_json (on, gpus_of_job(o, i))
            put_on_gpu(o, &m->m, i, on, NULL, json_get_number(on, m->key));
    }
}

/* Each job has two series per GPU, whose sum is the GPU time. */
static void put_gpu_seconds(const struct metrics_out *o)
{
    static const struct metric m = {
        "cede_job_gpu_seconds", "seconds", COUNTER,
        "Engine time; exact: from the driver's record of switches, else from samples."};
    put_head(o, &m);
    for (size_t i = 0; i < o->jobs; i++) {
        for_each_json (on, gpus_of_job(o, i)) {
            double all = json_get_number(on, "gpu_s");
            double exact = json_get_number(on, "exact_s");
            put_on_gpu(o, &m, i, on, "true", exact);
            put_on_gpu(o, &m, i, on, "false", all > exact ? all - exact : 0);
        }
    }
}

static void put_job_info(const struct metrics_out *o)
{
    static const struct metric m = {"cede_job", NULL, INFO, "What the job is, and its state."};
    if (o->jobs)
        put_head(o, &m);
    for (size_t i = 0; i < o->jobs; i++) {
        const json_t *job = metrics_job(o, i), *mps = json_object_get(job, "mps");
        json_int_t unit = json_get_int(mps, "unit");
        put_sample_name(o, &m);
        fprintf(o->f, "{%s", o->labels[i]);
        put_number_label(o->f, "weight", json_get_int(job, "weight"));
        put_next_label(o->f, "state", json_get_text(job, "state"));
        put_next_label(o->f, "source", json_get_text(job, "source"));
        put_next_label(o->f, "account", json_get_text(job, "account"));
        if (mps)
            put_number_label(o->f, "pool", unit ? unit : json_get_int(job, "number"));
        else
            put_next_label(o->f, "pool", "");
        if (o->choice->pids)
            put_number_label(o->f, "pid", json_get_int(job, "pid"));
        fputc('}', o->f);
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

static void put_jobs_by_state(const struct metrics_out *o)
{
    static const struct metric m = {"cede_jobs", NULL, GAUGE, "Jobs by class and state."};
    json_t *told = json_object_get(o->ps, "states"), *states;
    _cleanup_json_ json_t *tally = o->choice->per_job ? jobs_by_state(o) : json_incref(told);
    const json_t *n;
    const char *class, *state;
    if (json_object_size(tally))
        put_head(o, &m);
    json_object_foreach (tally, class, states) {
        json_object_foreach (states, state, n) {
            put_sample_name(o, &m);
            fputc('{', o->f);
            put_label(o->f, "class", class);
            put_next_label(o->f, "state", state);
            fputc('}', o->f);
            put_value(o, json_number_value(n));
        }
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void put_gpu_info(const struct metrics_out *o)
{
    static const struct metric m = {"cede_gpu", NULL, INFO, "A GPU that ceded schedules."};
    for_each_json (g, json_object_get(o->ps, "gpus")) {
        if (!g_i)
            put_head(o, &m);
        put_sample_name(o, &m);
        fputc('{', o->f);
        put_label(o->f, "UUID", json_get_text(g, "uuid"));
        put_number_label(o->f, "gpu", json_get_int(g, "index"));
        put_next_label(o->f, "device", json_get_text(g, "label"));
        put_next_label(o->f, "model_name", json_get_text(g, "name"));
        put_next_label(o->f, "level", json_get_text(g, "level_name"));
        fputc('}', o->f);
        put_value(o, 1);
    }
}

static void put_gpu_idle(const struct metrics_out *o)
{
    static const struct metric m = {
        "cede_gpu_idle_while_waiting_seconds", "seconds", COUNTER,
        "Time in which the GPU was idle while a job had work and was suspended."};
    const json_t *idle;
    bool head = false;
    for_each_json (g, json_object_get(o->ps, "gpus")) {
        if (!(idle = json_object_get(g, "idle_while_waiting_s")))
            continue;
        if (!head)
            put_head(o, &m);
        head = true;
        put_sample_name(o, &m);
        fputc('{', o->f);
        put_label(o->f, "UUID", json_get_text(g, "uuid"));
        put_number_label(o->f, "gpu", json_get_int(g, "index"));
        fputc('}', o->f);
        put_value(o, json_number_value(idle));
    }
}

static void put_build_info(const struct metrics_out *o)
{
    static const struct metric m = {"cede_build", NULL, INFO, "This exporter and ceded's setting."};
    put_head(o, &m);
    put_sample_name(o, &m);
    fputc('{', o->f);
    put_label(o->f, "version", build_version());
    put_next_label(o->f, "policy", json_get_text(o->ps, "policy"));
    put_next_label(o->f, "driver", json_get_text(o->ps, "device"));
    fputc('}', o->f);
    put_value(o, 1);
}

static json_int_t jobs_omitted(const struct metrics_out *o)
{
    json_int_t n = json_get_int(o->ps, "omitted");
    for (size_t i = o->jobs; i < json_array_size(json_object_get(o->ps, "jobs")); i++)
        n += o->choice->per_job ? 1 : json_get_int(metrics_job(o, i), "jobs");
    return n;
}

static void put_daemon(const struct metrics_out *o, const json_t *policy)
{
    static const struct metric omitted = {"cede_jobs_omitted", NULL, GAUGE,
                                          "Jobs without series (--max-jobs)."};
    static const struct metric unmanaged = {"cede_unmanaged_programs", NULL, GAUGE,
                                            "Programs that use a GPU and belong to no job."};
    put_build_info(o);
    put_gpu_info(o);
    put_gpu_idle(o);
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
    if (any_on_gpus(o)) {
        put_gpu_seconds(o);
        for (size_t i = 0; i < ARRAY_SIZE(gpu_metrics); i++)
            put_gpu_metric(o, &gpu_metrics[i]);
    }
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
