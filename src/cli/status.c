/* `cede status`: the daemon, its GPUs, what is off, the jobs, and what is in no job, in one screen.
 * It asks the daemon as `cede ps` does, and changes nothing. */
#include <errno.h>

#include "api/client.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/ps_notes.h"
#include "cli/unmanaged.h"

static const char help[] =
    "usage: cede status [--json]\n"
    "\n"
    "Shows the daemon, its GPUs with their drivers, which controls are off and why, how many jobs\n"
    "there are and which of them wait, and the GPU programs in no job: those that nobody has put "
    "into\n"
    "one, other users', and those that were detached. The exit status is 1 if no daemon answers.\n"
    "\n"
    "      --json  one object: {\"daemon\": true, \"gpus\": [...], \"waiting\": [...], ...}\n"
    "  -h, --help  this text\n";

#define NAMED_MAX 8 /* of the jobs that wait */

/* How many jobs have this text in a field. */
static size_t count(const json_t *jobs, const char *key, const char *text)
{
    size_t n = 0;
    for_each_json (job, jobs)
        n += json_text_is(job, key, text);
    return n;
}

static json_t *counts_of(const json_t *jobs, const char *key)
{
    json_t *counts = json_object();
    for_each_json (job, jobs) {
        const char *is = json_get_text(job, key);
        if (is && !json_object_get(counts, is))
            json_object_set_new(counts, is, json_integer((json_int_t)count(jobs, key, is)));
    }
    return counts;
}

/* The jobs that would run if they could. */
static json_t *waiting_of(const json_t *jobs)
{
    static const char *const states[] = {"queued", "waiting", "throttled", "swapped"};
    json_t *waiting = json_array();
    for_each_json (job, (json_t *)jobs) {
        for (size_t k = 0; k < ARRAY_SIZE(states); k++) {
            if (json_text_is(job, "state", states[k]))
                json_array_append(waiting, job);
        }
    }
    return waiting;
}

static json_t *status_json(const json_t *all)
{
    const json_t *jobs = json_object_get(all, "jobs");
    return json_pack("{s:b, s:O*, s:O*, s:O*, s:s, s:O*, s:I, s:o, s:o, s:o, s:O*, s:O*}", "daemon",
                     all != NULL, "version", json_object_get(all, "version"), "pid",
                     json_object_get(all, "pid"), "policy", json_object_get(all, "policy"),
                     "client_version", build_version(), "gpus", json_object_get(all, "gpus"),
                     "jobs", (json_int_t)json_array_size(jobs), "classes", counts_of(jobs, "class"),
                     "states", counts_of(jobs, "state"), "waiting", waiting_of(jobs), "unmanaged",
                     json_object_get(all, "unmanaged"), "unmanaged_more",
                     json_object_get(all, "unmanaged_more"));
}

static void print_gpus(const json_t *gpus)
{
    for_each_json (gpu, gpus) {
        char off[96];
        const char *name = json_get_text(gpu, "name"), *driver = json_get_text(gpu, "driver"),
                   *level = json_get_text(gpu, "level_name"), *why = json_get_text(gpu, "off_why");
        printf("%-9s GPU %lld: %s, preempted by %s%s%s%s\n", gpu_i ? "" : "gpus",
               (long long)json_get_int(gpu, "index"), name ? name : "?", level ? level : "?",
               notes_no_slices(gpu) ? " without timeslices" : "", driver ? ", driver " : "",
               driver ? driver : "");
        if (notes_off_words(gpu, off, sizeof(off)))
            printf("%-9s off: %s (%s); `cede doctor` measures them\n", "", off,
                   why ? why : "no reason given");
    }
    if (!json_array_size(gpus))
        printf("%-9s none\n", "gpus");
}

/* ": 2 latency, 1 batch" */
static void print_counts(const json_t *counts, const char *before)
{
    const char *key, *between = before;
    json_t *n;
    json_object_foreach ((json_t *)counts, key, n) {
        printf("%s%lld %s", between, (long long)json_integer_value(n), key);
        between = ", ";
    }
}

static void print_waiting(const json_t *waiting)
{
    const size_t n = json_array_size(waiting);
    for_each_json (job, waiting) {
        const char *given = json_get_text(job, "name"), *state = json_get_text(job, "state");
        char name[64];
        snprintf(name, sizeof(name), "%s", given ? given : "?");
        text_printable(name);
        if (job_i < NAMED_MAX)
            printf("%-9s #%lld %s: %s\n", job_i ? "" : "waiting",
                   (long long)json_get_int(job, "number"), name, state ? state : "?");
    }
    if (n > NAMED_MAX)
        printf("%-9s and %zu more; `cede why JOB` says what for\n", "", n - NAMED_MAX);
}

/* The GPU programs in no job, and why each is in none. */
static void print_unmanaged(const json_t *all)
{
    char names[UNMANAGED_NAMES];
    struct unmanaged_words w;
    const bool free = unmanaged_words(all, NULL, &w);
    if (free)
        printf("in no job %s; type: %s\n", w.who, w.command);
    const bool others = unmanaged_left(all, false, names, sizeof(names));
    if (others)
        printf("%-9s %s: of other users, to be set by them or an administrator\n",
               free ? "" : "in no job", names);
    if (unmanaged_left(all, true, names, sizeof(names)))
        printf("%-9s %s: detached by hand (cede detach), so left alone\n",
               free || others ? "" : "in no job", names);
}

static void print_status(const json_t *all, const json_t *s)
{
    const char *version = json_get_text(s, "version"), *policy = json_get_text(s, "policy");
    const json_int_t jobs = json_get_int(s, "jobs");
    const bool same = json_text_is(s, "version", build_version());
    printf("%-9s %s, pid %lld, policy %s%s%s\n", "ceded", version ? version : "of an older release",
           (long long)json_get_int(s, "pid"), policy ? policy : "?", same ? "" : "; this cede is ",
           same ? "" : build_version());
    print_gpus(json_object_get(s, "gpus"));
    printf("%-9s %lld", "jobs", (long long)jobs);
    print_counts(json_object_get(s, "classes"), ": ");
    print_counts(json_object_get(s, "states"), "; ");
    putchar('\n');
    print_waiting(json_object_get(s, "waiting"));
    print_unmanaged(all);
}

int status_main(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {{"json", .flag = &json}};
    const struct command_line line = {.program = "cede status", .help = help, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    struct error err = {""};
    _cleanup_json_ json_t *all = NULL;
    const int r = client_ask_ps(true, &all, &err);
    _cleanup_json_ json_t *s = status_json(all);
    if (json)
        cli_print_json(s);
    else if (r == 0)
        print_status(all, s);
    if (r < 0)
        cli_error("%s%s", err.text, r == -ENOENT ? CLI_START : "");
    return r < 0 ? CLI_FAILED : CLI_OK;
}
