/* See ps_notes.h. */
#include "cli/ps_notes.h"

#include "base/json_text.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/unmanaged.h"
#include "gpu/ops.h"

void notes_unmanaged(const json_t *all)
{
    struct unmanaged_words w;
    const json_t *jobs = json_object_get(all, "jobs");
    if (json_array_size(jobs) && unmanaged_words(all, jobs, &w))
        cli_error("note: %s: %s no job until you type: %s", w.who,
                  w.several ? "they yield to" : "it yields to", w.command);
}

static void add_number(char *list, size_t size, const json_t *job)
{
    char text[32];
    snprintf(text, sizeof(text), "#%lld", (long long)json_get_int(job, "number"));
    list_add(list, size, text);
}

static void notes_mps(const json_t *jobs)
{
    for_each_json (job, jobs) {
        const json_t *mps = json_object_get(job, "mps");
        char list[160] = "";
        if (!mps || json_get_int(mps, "unit") != json_get_int(job, "number"))
            continue;
        for_each_json (other, jobs) {
            if (json_get_int(json_object_get(other, "mps"), "unit") == json_get_int(mps, "unit"))
                add_number(list, sizeof(list), other);
        }
        cli_error("note: %s are clients of one MPS server: %s", list,
                  json_is_true(json_object_get(mps, "left_alone"))
                      ? "another one is in no job, so they are left as they are"
                  : json_is_true(json_object_get(mps, "turns"))
                      ? "they take turns, because together they do less"
                      : "they run at the same time, by the best class among them");
    }
}

/* Lists jobs with --preempt block for which the mode is, or is not, in effect. */
static void preempt_list(const json_t *jobs, bool active, char *list, size_t size)
{
    for_each_json (job, jobs) {
        const json_t *is = json_object_get(job, "preempt_active");
        if (is && json_is_true(is) == active)
            add_number(list, size, job);
    }
}

static void notes_yielded(const json_t *jobs)
{
    char list[160] = "";
    for_each_json (job, jobs) {
        if (json_object_get(job, "yielded"))
            add_number(list, sizeof(list), job);
    }
    if (list[0])
        cli_error("note: yielded until `cede acquire`: %s", list);
}

void notes_jobs(const json_t *jobs)
{
    char active[160] = "", other[160] = "";
    notes_mps(jobs);
    notes_yielded(jobs);
    preempt_list(jobs, true, active, sizeof(active));
    preempt_list(jobs, false, other, sizeof(other));
    if (active[0])
        cli_error("note: preempted at block ends: %s; the driver kills a program whose block runs "
                  "for seconds while another waits",
                  active);
    if (other[0])
        cli_error("note: --preempt block has no effect now: %s; only a program with work of its "
                  "own on one GPU, outside MPS, can be preempted at block ends",
                  other);
}

bool notes_no_slices(const json_t *gpu)
{
    const json_t *caps = json_object_get(gpu, "caps");
    return json_text_is(gpu, "level_name", device_level_name(LEVEL_QUEUE)) &&
           json_has_text(caps, "suspend") && !json_has_text(caps, "timeslice") &&
           !json_has_text(json_object_get(gpu, "off"), "timeslice");
}

static bool latency_job_on(const json_t *jobs, json_int_t gpu)
{
    for_each_json (job, jobs) {
        if (json_text_is(job, "class", "latency") &&
            json_has_int(json_object_get(job, "gpus"), gpu))
            return true;
    }
    return false;
}

void notes_slices(const json_t *all)
{
    char which[96] = "";
    for_each_json (gpu, json_object_get(all, "gpus")) {
        char number[24];
        json_int_t index = json_get_int(gpu, "index");
        snprintf(number, sizeof(number), "%lld", (long long)index);
        if (notes_no_slices(gpu) && latency_job_on(json_object_get(all, "jobs"), index))
            list_add(which, sizeof(which), number);
    }
    if (which[0])
        cli_error("note: no timeslices on GPU %s: a latency job there gains nothing over one batch "
                  "job, and only keeps a second one suspended; docs/amd.md says what helps",
                  which);
}

bool notes_off_words(const json_t *gpu, char *buf, size_t size)
{
    buf[0] = '\0';
    for_each_json (name, json_object_get(gpu, "off")) {
        if (json_is_string(name))
            list_add(buf, size, json_string_value(name));
    }
    return buf[0];
}

static bool off_the_same(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "off"), json_object_get(b, "off")) &&
           json_equal(json_object_get(a, "off_why"), json_object_get(b, "off_why"));
}

void notes_off(const json_t *all)
{
    const json_t *gpus = json_object_get(all, "gpus");
    const size_t n = json_array_size(gpus);
    for_each_json (gpu, gpus) {
        char off[96], which[96] = "";
        const char *why = json_get_text(gpu, "off_why");
        if (!notes_off_words(gpu, off, sizeof(off)) ||
            (gpu_i && off_the_same(gpu, json_array_get(gpus, gpu_i - 1))))
            continue;
        for (size_t k = gpu_i; k < n && off_the_same(gpu, json_array_get(gpus, k)); k++) {
            char number[24];
            snprintf(number, sizeof(number), "%lld",
                     (long long)json_get_int(json_array_get(gpus, k), "index"));
            list_add(which, sizeof(which), number);
        }
        cli_error("note: off on GPU %s: %s (%s); `cede doctor` measures them", which, off,
                  why ? why : "no reason given");
    }
}
