/* `cede advise`: which arrangement of programs on a GPU is best, by trying them. */
#include "cli/advise.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "cli/cells.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/targets.h"

#define WINDOW_US     2000000
#define WINDOW_MAX_US 60000000
#define VARIES        0.25 /* from here on it is said */
#define KEEPS         0.9  /* of its speed, of a job that is protected and has no --min-speed */

static const char help[] =
    "usage: cede advise [--aim AIM] [--window TIME] [--p99 TIME] [--json] [JOB...]\n"
    "       cede advise [...] -- COMMAND [ARG...] -- COMMAND [ARG...]\n"
    "\n"
    "Tries how jobs on one GPU go best: for some seconds each one alone and all as they run now,\n"
    "and if they are in a pool together and in turns. Says how fast each goes,\n"
    "relative to alone, and what to type for the best. Then all is as before, also after ^C.\n"
    "JOB: pid, job's number '#12' or %12, name or USER/name; without any, all jobs of the GPU.\n"
    "Programs after -- are started and ended several times: in turns, in a pool, and in a pool\n"
    "with a part of the multiprocessors each. ceded remembers the result for a week.\n"
    "\n"
    "      --aim AIM      sum (of speeds, the default), fair (the slowest one's speed), or\n"
    "                     protect:JOB: first that one's speed (the least it was given, or 90%),\n"
    "                     then the sum\n"
    "      --window TIME  length of a window (default 2s)\n"
    "      --p99 TIME     the limit for 99% of the requests, of jobs that report them by libcede\n"
    "      --json         one object, for programs: cede-json(5)\n"
    "  -h, --help         this text\n"
    "\n"
    "  cede advise train1 train2\n"
    "  cede advise -- python3 train1.py -- python3 train2.py\n";

/* ---- options ---- */

static int read_time(void *to, const char *name, const char *text, struct error *err)
{
    uint64_t us;
    if (parse_duration_us(text, WINDOW_MAX_US, &us) < 0 || us == 0)
        return error_set(err, -EINVAL, "%s: '%s' is no time from 1us to 60s, as in 2s", name, text);
    *(uint64_t *)to = us;
    return 0;
}

/* protect: its job's text, in *protect. */
static bool read_aim(const char *text, struct advice_aim *aim, const char **protect)
{
    *protect = strncmp(text, "protect:", 8) == 0 && text[8] ? text + 8 : NULL;
    aim->is = *protect ? AIM_PROTECT : strcmp(text, "fair") == 0 ? AIM_FAIR : AIM_SUM;
    return aim->is != AIM_SUM || strcmp(text, "sum") == 0;
}

/* ---- which jobs ---- */

/* The one GPU that a job computes on; < 0: none or several. */
static int gpu_of(const json_t *job)
{
    const json_t *gpus = json_object_get(job, "gpus");
    return json_array_size(gpus) == 1 ? (int)json_integer_value(json_array_get(gpus, 0)) : -1;
}

/* Keeps the jobs of the only GPU that has any. */
static int keep_gpu(json_t *jobs)
{
    int gpu = -1;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (gpu_of(job) < 0)
            json_array_remove(jobs, i--);
        else if (gpu >= 0 && gpu_of(job) != gpu)
            return cli_usage("advise", "advise: there are jobs on several GPUs: name those that "
                                       "are to share one");
        else
            gpu = gpu_of(job);
    }
    return CLI_OK;
}

/* Why a job cannot be tried; NULL: it can. */
static const char *unfit(const json_t *job, int gpu)
{
    return json_text_is(job, "state", "held")
               ? "it is tried by somebody else now: wait for some seconds"
           : !json_text_is(job, "state", "running") && !json_text_is(job, "state", "waiting") &&
                   !json_text_is(job, "state", "throttled")
               ? "it does not run now"
           : gpu_of(job) < 0    ? "it is on several GPUs, or on none yet"
           : gpu_of(job) != gpu ? "it is on another GPU than the first one"
                                : NULL;
}

/* Takes the jobs of the reply. CLI_OK, or another status after a message. */
static int take_jobs(struct advise *a, const json_t *all)
{
    const json_t *jobs = json_object_get(all, "jobs");
    const int gpu = gpu_of(json_array_get(jobs, 0));
    char text[TARGET_TEXT];
    json_int_t pool = 0;
    if (json_array_size(jobs) < 2 || json_array_size(jobs) > ADVICE_JOBS)
        return cli_usage("advise", "advise: 2 to %d jobs are needed, and here %s %zu", ADVICE_JOBS,
                         json_array_size(jobs) == 1 ? "is" : "are", json_array_size(jobs));
    for_each_json (job, jobs) {
        const char *class = json_get_text(job, "class"), *why = unfit(job, gpu);
        if (why)
            return cli_error("%s: %s", target_text(text, job), why);
        struct advised_job *j = &a->jobs[a->n++];
        const json_int_t unit = json_get_int(json_object_get(job, "mps"), "unit");
        *j = (struct advised_job){.number = (uint64_t)json_get_int(job, "number"),
                                  .memory_bytes = (uint64_t)json_get_int(job, "memory_bytes"),
                                  .class = class ? class : "",
                                  .latency = json_text_is(job, "class", "latency")};
        snprintf(j->name, sizeof(j->name), "%s", json_get_text(job, "name"));
        text_show(j->name);
        pool = job_i ? pool : unit;
        j->pooled = unit && unit == pool;
    }
    if (!cell_has_cap(json_object_get(all, "gpus"), gpu, "counters"))
        return cli_error(
            "GPU %d has no counters that say what its parts do, as NVIDIA GPUs from Hopper on "
            "have: " ADVISE_INSTEAD,
            gpu);
    a->trial.gpu = (unsigned)gpu;
    return CLI_OK;
}

/* Sets the job that the aim protects, and the speed that it is to keep. */
static int take_protected(struct advise *a, const json_t *all, const char *text)
{
    _cleanup_json_ json_t *chosen = json_copy((json_t *)all);
    char *target = (char *)text;
    json_object_set_new(chosen, "jobs", json_copy(json_object_get(all, "jobs")));
    int status = choose_jobs("advise", chosen, &target, 1);
    if (status != CLI_OK && strchr(text, '='))
        cli_error("--aim protect: has a job only; its least speed is set by `cede set JOB "
                  "--min-speed PERCENT`");
    const json_t *job = json_array_get(json_object_get(chosen, "jobs"), 0);
    const double least = json_get_number(job, "min_speed");
    for (uint32_t i = 0; i < a->n && status == CLI_OK; i++) {
        if (a->jobs[i].number == (uint64_t)json_get_int(job, "number"))
            a->aim.protect = i;
    }
    a->aim.keeps = least > 0 ? least / 100 : KEEPS;
    return status;
}

/* ---- measuring ---- */

/* -EAGAIN: somebody has changed a job since it was taken, so that nothing can be said of it. */
static int unchanged(struct advise *a, struct error *err)
{
    int code = 0;
    for (uint32_t i = 0; i < a->n && code == 0; i++) {
        _cleanup_json_ json_t *job = NULL;
        code = client_job(&a->trial.client, (json_int_t)a->jobs[i].number, &job, err);
        const char *state = json_get_text(job, "state");
        if (code == 0 && (!json_text_is(job, "class", a->jobs[i].class) || !state ||
                          strcmp(state, "paused") == 0 || strncmp(state, "swap", 4) == 0))
            code = error_set(err, -EAGAIN, "somebody has changed %s meanwhile: repeat",
                             a->jobs[i].name);
    }
    return code;
}

static int measure(struct advise *a, struct error *err)
{
    uint64_t jobs[ADVICE_JOBS];
    bool pooled = true, latency = false;
    for (uint32_t i = 0; i < a->n; i++) {
        jobs[i] = a->jobs[i].number;
        pooled &= a->jobs[i].pooled;
        latency |= a->jobs[i].latency;
    }
    // cppcheck-suppress uninitvar ; the first n are
    int code = trial_open(&a->trial, a->trial.gpu, jobs, a->n, err);
    code = code == 0 ? advise_alone(a, false, err) : code;
    if (pooled) {
        code = code == 0 ? advise_row(a, ARRANGE_TOGETHER, 0, err) : code;
        code = code == 0 && !latency ? advise_row(a, ARRANGE_TURNS, 0, err) : code;
    } else {
        code = code == 0 ? advise_row(a, ARRANGE_AS_IS, 0, err) : code;
        code = code == 0 ? advise_first(a, err) : code;
    }
    code = code == 0 ? advise_alone(a, true, err) : code;
    code = code == 0 ? unchanged(a, err) : code;
    code = code == 0 ? advise_speeds(a, err) : code;
    if (code == 0 && pooled)
        code = advise_remember(a, &a->rows[0], err);
    trial_close(&a->trial);
    return code;
}

/* ---- the result ---- */

/* What to type for a row. */
static void how_to(const struct advise *a, const struct advice_row *row, char *buf, size_t size)
{
    char sm[16] = "";
    if (row->is == ARRANGE_PARTS)
        snprintf(sm, sizeof(sm), " --sm %u", a->parts_sm);
    if (row->is == ARRANGE_FIRST)
        snprintf(buf, size, "cede set %%%" PRIu64 " -c latency, and the others -c batch",
                 a->jobs[row->first].number); /* names are users', and a shell may read this */
    else if (row->is == ARRANGE_TOGETHER && !a->starts)
        snprintf(buf, size, "nothing: they are in a pool, where cede lets them run together");
    else if (row->is == ARRANGE_TURNS)
        snprintf(buf, size, "start them without --pool; in the pool cede lets them take turns");
    else if (row->is == ARRANGE_TOGETHER || row->is == ARRANGE_PARTS)
        snprintf(buf, size, "cede run -c batch --pool%s -- COMMAND, for each", sm);
    else if (a->starts)
        snprintf(buf, size, "cede run -c batch -- COMMAND, for each");
    else
        snprintf(buf, size, "nothing: leave them as they are");
}

/* NAN: not known. */
static double told(struct speed s)
{
    return speed_known(s) ? s.value : NAN;
}

static double least_told(const struct advise *a, const struct advice_row *row)
{
    return advice_all_known(row, a->n) ? row->least : NAN;
}

static void print_speed(int width, double value)
{
    char text[16] = "?";
    if (isfinite(value))
        snprintf(text, sizeof(text), "%.2f", value);
    printf(" %*s", width, text);
}

static void print_row(const struct advise *a, const struct advice_row *row, bool best)
{
    char name[64];
    snprintf(name, sizeof(name), row->is == ARRANGE_FIRST ? "%s first" : "%s",
             row->is == ARRANGE_FIRST ? a->jobs[row->first].name : advise_name(a, row->is));
    printf("%c ", best ? '>' : ' ');
    cell_print(name, 18, false);
    for (uint32_t i = 0; i < a->n; i++)
        print_speed(12, told(row->speed[i]));
    print_speed(6, told(row->sum));
    print_speed(6, least_told(a, row));
    printf(" %5.0f%%", row->window.idle * 100);
    for (uint32_t i = 0; i < a->n; i++) {
        if (row->window.p99_us[i] > 0)
            printf("  %s p99 %.2f ms", a->jobs[i].name, row->window.p99_us[i] / 1e3);
    }
    putchar('\n');
}

static void print_all(const struct advise *a, uint32_t best)
{
    char how[200] = "not known";
    bool unsure = false, pooled = a->starts;
    printf("  %-18s", "SPEED");
    for (uint32_t i = 0; i < a->n; i++) {
        putchar(' ');
        cell_print(a->jobs[i].name, 12, true);
    }
    printf(" %6s %6s %6s\n", "SUM", "LEAST", "IDLE");
    for (uint32_t r = 0; r < a->nrows; r++) {
        print_row(a, &a->rows[r], r == best && a->nrows > 1);
        unsure |= !advice_all_known(&a->rows[r], a->n);
    }
    printf("  %-18s", "GPU memory, GiB");
    for (uint32_t i = 0; i < a->n; i++)
        printf(" %12.1f", (double)a->jobs[i].memory_bytes / (1 << 30));
    putchar('\n');
    for (uint32_t i = 0; i < a->n; i++) {
        pooled |= a->jobs[i].pooled;
        if (a->alone[i].varies > VARIES)
            printf("%s's work varies by %.0f%%: repeat, or give a longer --window\n",
                   a->jobs[i].name, a->alone[i].varies * 100);
    }
    if (unsure)
        printf(
            "?: not known, as their work is too much alike, or too little, for the GPU's counters "
            "and time to tell\n");
    if (!pooled)
        printf(
            "Not tried: a pool, into which no running program can be put. cede advise -- COMMAND "
            "-- COMMAND\ntries it, or start them with cede run -c batch --pool, and ask again.\n");
    if (best < a->nrows)
        how_to(a, &a->rows[best], how, sizeof(how));
    printf("%s: %s\n",
           a->nrows == 1 ? "Only this one was tried. For it"
           : unsure      ? "Best, as far as the counters tell"
                         : "Best",
           how);
}

/* Of a window, by CLOCK_MONOTONIC. */
static json_t *times_json(uint64_t from_ns, uint64_t to_ns)
{
    return json_pack("[f, f]", (double)from_ns / 1e9, (double)to_ns / 1e9);
}

static json_t *numbers_json(const double *v, uint32_t n)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(array, json_finite(v[i]));
    return array;
}

static json_t *row_json(const struct advise *a, const struct advice_row *row)
{
    json_t *speeds = json_array(), *errors = json_array(), *p99 = json_array();
    char how[200];
    how_to(a, row, how, sizeof(how));
    for (uint32_t i = 0; i < a->n; i++) {
        json_array_append_new(speeds, json_finite(told(row->speed[i])));
        json_array_append_new(errors, json_finite(row->speed[i].error));
        json_array_append_new(p99, row->window.p99_us[i] > 0 ? json_real(row->window.p99_us[i])
                                                             : json_null());
    }
    return json_pack(
        "{s:s, s:o*, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:s}", "arrangement",
        arrangement_name(row->is), "first",
        row->is == ARRANGE_FIRST ? json_integer(row->first) : NULL, "speeds", speeds, "errors",
        errors, "sum", json_finite(told(row->sum)), "least", json_finite(least_told(a, row)),
        "idle", row->window.idle, "had", numbers_json(row->window.had, a->n), "busy",
        numbers_json(row->window.busy, a->n), "parts", numbers_json(row->window.parts, GPU_PARTS),
        "p99_us", p99, "window_s", times_json(row->window.from_ns, row->window.to_ns), "how", how);
}

static json_t *result_json(const struct advise *a, uint32_t best)
{
    json_t *jobs = json_array(), *rows = json_array();
    for (uint32_t i = 0; i < a->n; i++) {
        const struct advised_job *j = &a->jobs[i];
        json_t *alone = json_array();
        for (size_t k = 0; k < 2 && j->alone_ns[k][1]; k++)
            json_array_append_new(alone, times_json(j->alone_ns[k][0], j->alone_ns[k][1]));
        json_array_append_new(
            jobs, json_pack("{s:I, s:o, s:I, s:f, s:f, s:o, s:o}", "number", (json_int_t)j->number,
                            "name", json_text(j->name), "memory_bytes", (json_int_t)j->memory_bytes,
                            "varies", a->alone[i].varies, "busy", a->alone[i].busy, "parts",
                            numbers_json(a->alone[i].parts, GPU_PARTS), "alone_s", alone));
    }
    for (uint32_t r = 0; r < a->nrows; r++)
        json_array_append_new(rows, row_json(a, &a->rows[r]));
    return json_pack("{s:i, s:f, s:o, s:o, s:o}", "gpu", (int)a->trial.gpu, "window_s",
                     (double)a->window_ms / 1e3, "jobs", jobs, "rows", rows, "best",
                     best < a->nrows ? json_integer(best) : json_null());
}

static int show(const struct advise *a, bool json)
{
    const uint32_t best = advice_best(a->rows, a->nrows, a->n, &a->aim);
    if (!json) {
        print_all(a, best);
        return CLI_OK;
    }
    _cleanup_json_ json_t *o = result_json(a, best);
    return cli_print_json(o);
}

/* ---- the verb ---- */

static int advise_jobs(struct advise *a, const char *protect, char *const *targets, int n,
                       bool json)
{
    struct error err = {""};
    _cleanup_json_ json_t *all = NULL;
    int r = client_ask_ps(false, &all, &err);
    _cleanup_json_ json_t *before = json_pack("{s:O?}", "jobs", json_object_get(all, "jobs"));
    int status = r < 0 ? CLI_FAILED
                 : n   ? choose_jobs("advise", all, targets, n)
                       : keep_gpu(json_object_get(all, "jobs"));
    status = status == CLI_OK ? take_jobs(a, all) : status;
    status = status == CLI_OK && protect ? take_protected(a, all, protect) : status;
    if (status == CLI_OK)
        advise_others(a, before);
    r = status == CLI_OK ? measure(a, &err) : r;
    advise_progress(" ");
    if (r < 0)
        cli_error("%s%s", err.text, r == -ENOENT ? ": there are no jobs" : "");
    else if (status == CLI_OK)
        status = show(a, json);
    return r < 0 ? CLI_FAILED : status;
}

int advise_main(int argc, char **argv)
{
    static struct advise a;
    bool json = false;
    const char *aim = "sum", *protect;
    uint64_t window_us = WINDOW_US, p99_us = 0;
    const struct option_row options[] = {
        {"aim", .text = &aim},
        {"window", .read = read_time, .to = &window_us},
        {"p99", .read = read_time, .to = &p99_us},
        {"json", .flag = &json},
    };
    const struct command_line line = {.program = "cede advise", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (!read_aim(aim, &a.aim, &protect))
        return cli_usage("advise", "advise: --aim is sum, fair or protect:JOB");
    if (window_us < 500000)
        return cli_usage("advise", "advise: --window is less than 500ms, in which counters tell "
                                   "too little");
    a.window_ms = window_us / 1000;
    a.aim.p99_us = (double)p99_us;
    if (strcmp(argv[optind - 1], "--") != 0)
        return advise_jobs(&a, protect, argv + optind, argc - optind, json);
    struct error err = {""};
    char *end = NULL;
    if (protect) { /* a command has no job yet, so its number names it */
        a.aim.protect = (uint32_t)strtoul(protect, &end, 10) - 1;
        a.aim.keeps = KEEPS;
    }
    if (protect && (*end || a.aim.protect >= ADVICE_JOBS))
        return cli_usage("advise", "advise: --aim protect:%s: give the number of a command, from 1",
                         protect);
    int r = advise_started(&a, argv + optind, argc - optind, &err);
    advise_progress(" ");
    if (r < 0)
        cli_error("%s", err.text);
    return r < 0 ? (r == -EINVAL ? CLI_USAGE : CLI_FAILED) : show(&a, json);
}
