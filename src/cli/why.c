/* `cede why`: why jobs run or wait, in words. */
#include <errno.h>

#include "api/client.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/cells.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/outcome.h"
#include "cli/targets.h"
#include "who/procfs.h"

static const char help[] =
    "usage: cede why [--json] TARGET...\n"
    "\n"
    "Says why a job runs or waits, by the scheduler's last decision, which jobs are before it,\n"
    "and where its time has gone so far; of a program in no job what rules say of it, and what to\n"
    "type to make it one. TARGET is a pid, a job's number ('#12' or %12), or a job's name (of\n"
    "another user: USER/name).\n"
    "\n"
    "      --json  as cede ps has it: {\"jobs\": [{..., \"why\": [...], \"counts\": {...}}],\n"
    "              \"in_no_job\": [{...}]}\n"
    "  -h, --help  this text\n";

/* "#3 (train)" */
static const char *named(const json_t *jobs, json_int_t number, char *buf, size_t size)
{
    snprintf(buf, size, "#%lld", (long long)number);
    for_each_json (job, jobs) {
        char name[64];
        const char *text = json_get_text(job, "name");
        if (json_get_int(job, "number") != number || !text || !text[0])
            continue;
        snprintf(name, sizeof(name), "%s", text);
        text_printable(name);
        snprintf(buf, size, "#%lld (%s)", (long long)number, name);
    }
    return buf;
}

static void print_yielded(const json_t *yielded)
{
    const char *class = json_get_text(yielded, "class");
    char what[64] = "";
    if (class)
        snprintf(what, sizeof(what), "class %s", class);
    if (json_get_true(yielded, "paused"))
        list_add(what, sizeof(what), "turns");
    if (json_get_true(yielded, "memory"))
        list_add(what, sizeof(what), "memory");
    if (what[0])
        printf("  it has yielded, until `cede acquire`: %s\n", what);
}

/* Why the job is on no GPU now; NULL: the reasons on each GPU say more. */
static const char *whole_reason(const json_t *job)
{
    static const struct {
        const char *state, *text;
    } reasons[] = {
        {"paused", "it is paused: `cede resume` lets it go on"},
        {"swapping-out", "its memory is on the way to host memory"},
        {"swapping-in", "its memory is on the way back from host memory"},
        {"held", "somebody tries what others do without it, for some seconds (cede advise)"},
        {"stopped", "its processes are stopped by a signal or a debugger"},
        {"starting", "it has not opened a GPU yet"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        if (json_text_is(job, "state", reasons[i].state))
            return reasons[i].text;
    }
    return memory_away(job);
}

static void print_queued(const json_t *job)
{
    const json_t *memory = json_object_get(job, "memory");
    json_int_t ahead = json_get_int(memory, "place");
    printf("  it waits for %.1f GiB on GPU %lld: ",
           (double)json_get_int(memory, "said_bytes") / (1 << 30),
           (long long)json_get_int(memory, "gpu"));
    if (ahead)
        printf("%lld %s before it in line\n", (long long)ahead, ahead == 1 ? "job is" : "jobs are");
    else
        printf("it is the first in line\n");
}

/* Shortest and longest slice of the jobs below the latency class on the GPU. False: none runs. */
static bool lower_slices(const json_t *jobs, json_int_t gpu, json_int_t *least, json_int_t *most)
{
    *least = *most = 0;
    for_each_json (job, jobs) {
        for_each_json (w, json_object_get(job, "why")) {
            const json_int_t us = json_get_int(w, "slice_us");
            if (json_get_int(w, "gpu") != gpu || us <= 0 ||
                !(json_text_is(w, "reason", "turn") || json_text_is(w, "reason", "beside")))
                continue;
            *least = !*least || us < *least ? us : *least;
            *most = us > *most ? us : *most;
        }
    }
    return *most > 0;
}

/* Prints the measurements of a latency job, and the slices of the jobs below it. */
static void print_latency(const json_t *jobs, const json_t *gpus, const json_t *job,
                          const json_t *w)
{
    const json_t *m = json_object_get(w, "measured"), *busy = json_object_get(m, "busy");
    const json_t *speed = json_object_get(m, "speed");
    const bool bound = json_get_true(m, "launch_bound");
    json_int_t least, most;
    char from[CELL], to[CELL];
    if (m)
        printf("    %s", bound ? "launch-bound: " : "");
    if (json_is_number(busy))
        printf("works %.0f%% of the GPU, ", json_number_value(busy) * 100);
    if (bound)
        printf("in %.0f bursts per second, ", json_get_number(m, "bursts_hz"));
    if (m)
        printf("with gaps %s\n", bound ? "shorter than a switch" : "long enough for a switch");
    if (json_is_number(speed))
        printf("    keeps %.0f%% of its speed alone\n", json_number_value(speed) * 100);
    if (json_get_true(w, "throttled")) {
        printf("    lower jobs are throttled: suspended for some seconds at a time\n");
    } else if (lower_slices(jobs, json_get_int(w, "gpu"), &least, &most)) {
        cell_time(from, least);
        cell_time(to, most);
        printf("    lower jobs have slices of %s%s%s\n", from, least < most ? " to " : "",
               least < most ? to : "");
    }
    if (bound && !json_object_get(job, "mps") && cell_has_cap(gpus, json_get_int(w, "gpu"), "pool"))
        printf("    in a pool it would share the GPU in space: start it with --pool "
               "(docs/space.md)\n");
}

/* Prints the slices of a job below a latency job, for which the reply has `throttled`. */
static void print_lower(const json_t *w)
{
    char slice[CELL];
    cell_time(slice, json_get_int(w, "slice_us"));
    if (json_is_false(json_object_get(w, "throttled")) && json_get_int(w, "slice_us"))
        printf("    its slices are %s, as there is a latency job\n", slice);
}

static void print_gpu(const json_t *jobs, const json_t *w)
{
    char other[100];
    const char *text = json_get_text(w, "text");
    json_int_t ahead = json_get_int(w, "ahead");
    const json_t *on = json_object_get(w, "on_gpu"), *us = json_object_get(w, "for_us");
    printf("  GPU %lld: %s", (long long)json_get_int(w, "gpu"), text ? text : "?");
    if (json_get_int(w, "job"))
        printf(": %s", named(jobs, json_get_int(w, "job"), other, sizeof(other)));
    if (on)
        printf(", on GPU %lld", (long long)json_integer_value(on));
    if (us)
        printf(", for %.0f ms at most", json_number_value(us) / 1e3);
    if (ahead)
        printf("; %lld more before it", (long long)ahead);
    putchar('\n');
}

static void print_counts(const json_t *counts)
{
    static const struct {
        const char *key, *text;
    } parts[] = {
        {"queued_s", "waited for GPU memory"}, {"paused_s", "paused"}, {"swapped_s", "swapped"}};
    printf("  so far, in %.0f s:", json_get_number(counts, "known_s"));
    for (size_t k = 0; k < ARRAY_SIZE(parts); k++) {
        if (json_get_number(counts, parts[k].key) >= 0.5)
            printf(" %.0f s %s,", json_get_number(counts, parts[k].key), parts[k].text);
    }
    for_each_json (g, json_object_get(counts, "gpus")) {
        const long long turns = json_get_int(g, "turns");
        printf("%s GPU %lld: computed %.1f s, was allowed %.1f s in %lld turn%s, waited %.1f s for "
               "others",
               g_i ? ";" : "", (long long)json_get_int(g, "gpu"), json_get_number(g, "gpu_s"),
               json_get_number(g, "allowed_s"), turns, turns == 1 ? "" : "s",
               json_get_number(g, "waited_s"));
    }
    printf(json_array_size(json_object_get(counts, "gpus")) ? "\n" : " nothing on a GPU\n");
}

static void print_together(const json_t *job)
{
    const json_t *sum = json_object_get(job, "together");
    const double v = json_number_value(sum);
    if (v > 0)
        printf("  in a pool with your batch jobs on its GPU: %.2f of one alone in all, as measured "
               "before\n",
               v);
    else if (sum)
        printf("  in a pool with your batch jobs on its GPU: less than in turns, as measured "
               "before\n");
}

static void print_job(const json_t *jobs, const json_t *gpus, const json_t *job)
{
    char name[100];
    const char *state = json_get_text(job, "state"), *class = json_get_text(job, "class");
    const char *whole = whole_reason(job), *error = json_get_text(job, "error");
    const json_t *unit = json_object_get(json_object_get(job, "mps"), "unit");
    printf("%s, %s: %s\n", named(jobs, json_get_int(job, "number"), name, sizeof(name)),
           class ? class : "?", state ? state : "?");
    if (error)
        printf("  %s\n", error);
    if (json_text_is(job, "state", "queued"))
        print_queued(job);
    else if (whole && !json_text_is(job, "memory_exceeded", "pause")) /* the error has said it */
        printf("  %s\n", whole);
    print_yielded(json_object_get(job, "yielded"));
    if (unit && json_integer_value(unit) != json_get_int(job, "number"))
        printf("  it is a client of the same MPS server as %s, and scheduled as one with it\n",
               named(jobs, json_integer_value(unit), name, sizeof(name)));
    for_each_json (w, json_object_get(job, "why")) {
        if (whole)
            continue;
        print_gpu(jobs, w);
        if (json_text_is(job, "class", "latency"))
            print_latency(jobs, gpus, job, w);
        else
            print_lower(w);
    }
    print_together(job);
    print_counts(json_object_get(job, "counts"));
}

/* Why a process is in no job: also what `cede rules test` says, and what to type. NULL: it is in a
 * job, or gone. */
static json_t *in_none(struct client *c, const json_t *all, pid_t pid)
{
    struct request r = {.op = OP_RULES, .pid = pid};
    struct error err = {""};
    struct proc_stat st;
    _cleanup_json_ json_t *rules = NULL;
    const json_t *found = NULL;
    uint64_t number;
    char command[64];
    for_each_json (u, json_object_get(all, "unmanaged"))
        found = json_get_int(u, "pid") == pid ? u : found;
    if (proc_stat_read(pid, &st) < 0 || proc_ended(&st) || choose_job_of(pid, &number, &err) < 0 ||
        number != UINT64_MAX || rules_ask(c, &r, &rules, &err) < 0)
        return NULL;
    snprintf(command, sizeof(command), "cede set %d -c batch", (int)pid);
    return json_pack("{s:i, s:o, s:b, s:b, s:O*, s:O*, s:O*, s:s}", "pid", (int)pid, "name",
                     json_text(st.comm), "on_gpu", found != NULL, "detached",
                     (int)json_get_true(found, "detached"), "outcome",
                     json_object_get(rules, "outcome"), "environment_overwritten",
                     json_object_get(rules, "environment_overwritten"), "words_of",
                     json_object_get(rules, "words_of"), "command", command);
}

static void print_in_none(const json_t *o)
{
    char name[64];
    snprintf(name, sizeof(name), "%s", json_get_text(o, "name"));
    text_printable(name);
    printf("%s (pid %lld): in no job, %s\n", name, (long long)json_get_int(o, "pid"),
           json_get_true(o, "on_gpu") ? "it runs on the GPU by the driver's default"
                                      : "and not seen on a GPU");
    if (json_get_true(o, "detached"))
        printf("  it was detached by hand (cede detach), so rules leave it alone\n");
    printf("  ");
    outcome_print(o);
    printf("  to make it a job: %s\n", json_get_text(o, "command"));
}

/* Takes the targets that are processes in no job out, and lists them in `in_no_job` of the reply.
 * Returns how many. */
static int why_none(struct client *c, json_t *all, char **targets, int n)
{
    json_t *list = json_array();
    int left = 0;
    for (int i = 0; i < n; i++) {
        uint64_t pid;
        json_t *o =
            parse_u64(targets[i], 1, INT32_MAX, &pid) == 0 ? in_none(c, all, (pid_t)pid) : NULL;
        if (o)
            json_array_append_new(list, o);
        else
            targets[left++] = targets[i];
    }
    if (left < n)
        json_object_set(all, "in_no_job", list);
    json_decref(list);
    return n - left;
}

int why_main(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {{"json", .flag = &json}};
    const struct command_line line = {.program = "cede why", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind == argc)
        return cli_usage("why", "why: which job? `cede ps` lists them");
    struct error err = {""};
    _cleanup_client_ struct client c = {.fd = -1};
    _cleanup_json_ json_t *all = NULL;
    int r = client_open(&c, &err);
    if (r == 0)
        r = client_ps(&c, false, &all, &err);
    if (r == 0)
        argc -= why_none(&c, all, argv + optind, argc - optind);
    if (r < 0)
        return cli_error(
            "%s%s", err.text,
            r == -ENOENT ? ": nothing is decided for any job, all run as they always do" : "");
    _cleanup_json_ json_t *jobs = json_incref(json_object_get(all, "jobs"));
    const json_t *none = json_object_get(all, "in_no_job");
    status = choose_jobs("why", all, argv + optind, argc - optind);
    if (json && status != CLI_USAGE && (none || json_array_size(json_object_get(all, "jobs"))))
        cli_print_json(all);
    for_each_json (o, none) {
        if (!json)
            print_in_none(o);
    }
    for_each_json (job, json_object_get(all, "jobs")) {
        if (!json && status != CLI_USAGE)
            print_job(jobs, json_object_get(all, "gpus"), job);
    }
    return status;
}
