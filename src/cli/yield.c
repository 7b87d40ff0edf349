/* `cede yield` and `cede acquire`: a job yields the GPU to others for a while, and takes it back.
 * The daemon does it; the verb waits, also over a restart of the daemon, and reports the outcome. A
 * daemon has to run already, because it must remember what was yielded. */
#include <errno.h>
#include <time.h>

#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/targets.h"

#define LOOK_MIN_NS (20 * NSEC_PER_MSEC) /* between looks at first; the interval grows */
#define LOOK_MAX_NS (200 * NSEC_PER_MSEC)
#define GONE_NS     (5 * NSEC_PER_SEC)  /* wait for another daemon when one has ended */
#define BUSY_NS     (60 * NSEC_PER_SEC) /* wait for another job's move before this one can yield */

static int read_timeout(void *to, const char *name, const char *text, struct error *err)
{
    return parse_duration_us(text, UINT32_MAX * 1000000ULL, to) == 0
               ? 0
               : error_set(err, -EINVAL, "%s: '%s' is not a time such as 500ms or 30s", name, text);
}

static int timed_out(const json_t *job, uint64_t timeout_us, struct error *err)
{
    const char *why = json_get_text(job, "error");
    char buf[64];
    json_int_t bytes = json_get_int(job, "swapped_bytes");
    snprintf(buf, sizeof(buf), "its %.1f GiB of GPU memory have no room yet",
             (double)bytes / (1U << 30));
    return error_set(err, -ETIMEDOUT, "not acquired within %g s: %s", (double)timeout_us / 1e6,
                     why     ? why
                     : bytes ? buf
                             : "it still waits");
}

/* Sends a request; if the daemon has ended, another one gets it anew, not as a look. */
static int ask(struct client *c, struct request *r, json_t **reply, struct error *err)
{
    const uint64_t until_ns = monotonic_ns() + GONE_NS;
    int code = client_call(c, r, reply, err);
    while (code == -EPIPE || code == -ENOENT) {
        client_close(c);
        code = client_open(c, err);
        if (code == 0) {
            r->look = false;
            code = client_call(c, r, reply, err);
        }
        if (code < 0 && monotonic_ns() >= until_ns)
            return code;
        if (code < 0)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MIN_NS}, NULL);
    }
    return code;
}

/* Repeats the request until it is done; timeout_us UINT64_MAX: without a limit. */
static int yield_wait(struct client *c, struct request *r, uint64_t timeout_us, json_t **reply,
                      struct error *err)
{
    const uint64_t began_ns = monotonic_ns();
    uint64_t sleep_ns = LOOK_MIN_NS;
    bool said = false;
    for (bool again = false;; again = true) {
        const uint64_t took_us = (monotonic_ns() - began_ns) / NSEC_PER_USEC;
        const uint64_t left_us = timeout_us - min_u64(took_us, timeout_us);
        r->has_wait = r->op == OP_ACQUIRE;
        r->wait_us = (uint32_t)min_u64(left_us, ACQUIRE_WAIT_US);
        int code = ask(c, r, reply, err);
        const bool busy = (code == -EAGAIN || (code == -EBUSY && !r->look)) &&
                          took_us < BUSY_NS / NSEC_PER_USEC && r->op == OP_YIELD;
        if (code < 0 && !busy)
            return code;
        if (busy && !said)
            cli_error("retrying for %d s: %s", (int)(BUSY_NS / NSEC_PER_SEC), err->text);
        said |= busy;
        if (code == 0 && again) /* an earlier request may have done it */
            json_object_del(*reply, "vain");
        if (code == 0 && !json_get_true(*reply, "waits"))
            return 0;
        r->look = r->op == OP_YIELD && code == 0;
        if (code == 0 && !left_us)
            code = timed_out(json_object_get(*reply, "job"), timeout_us, err);
        json_decref(*reply);
        *reply = NULL;
        if (code == -ETIMEDOUT)
            return code;
        nanosleep(&(struct timespec){.tv_nsec = (long)sleep_ns}, NULL);
        sleep_ns = min_u64(sleep_ns + sleep_ns / 4, LOOK_MAX_NS);
    }
}

static void yield_say(const struct request *r, const json_t *reply)
{
    char who[TARGET_TEXT];
    const json_t *job = json_object_get(reply, "job");
    const char *class = json_get_text(job, "class");
    json_int_t bytes = json_get_int(job, "swapped_bytes");
    if (say_vain(job, reply))
        return;
    printf("%s: %s, %s", target_text(who, job), r->op == OP_YIELD ? "yielded" : "acquired",
           class ? class : "?");
    if (r->op == OP_YIELD && r->yields_pause)
        printf(", paused");
    if (bytes && json_text_is(job, "state", "swapped"))
        printf(", %.1f GiB in host memory", (double)bytes / (1U << 30));
    putchar('\n');
    fflush(stdout);
    if (r->op == OP_ACQUIRE)
        say_memory_away(job);
}

/* 0 if this process is in a job, else an error: a job of this verb alone would be useless. */
static int yield_in_a_job(struct client *c, struct error *err)
{
    struct request look = {.op = OP_YIELD, .look = true};
    _cleanup_json_ json_t *reply = NULL;
    int code = ask(c, &look, &reply, err);
    return code != -ESRCH ? code
                          : error_set(err, code,
                                      "it is in no job: name a job, or yield from a program that "
                                      "`cede run` has started");
}

/* target NULL: the job that this process is in. */
static int yield_one(struct client *c, const struct request *what, const char *target,
                     uint64_t timeout_us)
{
    struct request r = *what;
    struct error err = {""};
    _cleanup_json_ json_t *reply = NULL;
    if (target && target_parse(r.op == OP_YIELD ? "yield" : "acquire", target, &r) != CLI_OK)
        return CLI_USAGE;
    int code = target || r.op != OP_YIELD ? 0 : yield_in_a_job(c, &err);
    if (code == 0)
        code = yield_wait(c, &r, timeout_us, &reply, &err);
    if (code < 0)
        cli_error("%s: %s", target ? target : "this process", err.text);
    else
        yield_say(&r, reply);
    return code < 0 ? CLI_FAILED : CLI_OK;
}

static int yield_all(const struct request *r, char *const *targets, int n, uint64_t timeout_us)
{
    _cleanup_client_ struct client c = {.fd = -1};
    struct error err = {""};
    int status = CLI_OK;
    if (client_open(&c, &err) < 0)
        return cli_error("%s, and only a daemon knows what jobs have yielded: start ceded",
                         err.text);
    for (int i = 0; status != CLI_USAGE && i < (n ? n : 1); i++) {
        int one = yield_one(&c, r, n ? targets[i] : NULL, timeout_us);
        status = one ? one : status;
    }
    return status;
}

int yield_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede yield [--pause] [--memory] [TARGET...]\n"
        "\n"
        "Makes jobs leave the GPU to others until `cede acquire`: they are of class batch until\n"
        "then. TARGET is a pid, a job's number ('#12' or %12) or a job's name; without one, the\n"
        "job that this command is part of. All targets are tried; the exit status is 1 if any\n"
        "failed.\n"
        "\n"
        "      --pause   pauses them as well, as `cede pause` does\n"
        "      --memory  moves their GPU memory to host memory as well, as `cede swap out` does, "
        "and\n"
        "                waits for that; if it cannot move, nothing changes\n"
        "  -h, --help    this text\n"
        "\n"
        "  cede yield --memory trainer\n"
        "  cede acquire trainer\n";
    struct request r = {.op = OP_YIELD};
    const struct option_row options[] = {
        {"pause", .flag = &r.yields_pause},
        {"memory", .flag = &r.yields_memory},
    };
    const struct command_line line = {.program = "cede yield", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    return status != OPTIONS_GO_ON ? status
                                   : yield_all(&r, argv + optind, argc - optind, UINT64_MAX);
}

int acquire_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede acquire [--timeout TIME] [TARGET...]\n"
        "\n"
        "Gives jobs back what they had before `cede yield`: their GPU memory, when there is room,\n"
        "and then their class; and lets them run. Waits for that. TARGET is a pid, a job's number\n"
        "('#12' or %12) or a job's name; without one, the job that this command is part of.\n"
        "All targets are tried; the exit status is 1 if any failed.\n"
        "\n"
        "      --timeout TIME  waits no longer for each, such as 30s (default: without limit)\n"
        "  -h, --help          this text\n"
        "\n"
        "  cede acquire --timeout 60s sampler\n";
    uint64_t timeout_us = UINT64_MAX;
    const struct request r = {.op = OP_ACQUIRE};
    const struct option_row options[] = {{"timeout", .read = read_timeout, .to = &timeout_us}};
    const struct command_line line = {.program = "cede acquire", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    return status != OPTIONS_GO_ON ? status
                                   : yield_all(&r, argv + optind, argc - optind, timeout_us);
}
