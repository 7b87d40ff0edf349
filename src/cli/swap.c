/* `cede swap-out` and `cede swap-in`: a job's GPU memory to host memory and back. The daemon moves
 * it; the verb waits and reports the outcome. Never without a daemon: something has to stay that
 * brings the job back. */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/targets.h"

#define LOOK_NS 20000000L /* between looks; a move takes a quarter of a second at least */

/* The job of that number as it is now, the caller's reference. NULL: it has ended, or err says what
 * went wrong. */
static json_t *look(struct client *c, json_int_t number, struct error *err)
{
    const struct request r = {.op = OP_PS, .number = (uint64_t)number - 1};
    json_t *page, *job = NULL;
    err->text[0] = '\0';
    if (client_call(c, &r, &page, err) < 0)
        return NULL;
    json_t *first = json_array_get(json_object_get(page, "jobs"), 0);
    if (json_integer_value(json_object_get(first, "number")) == number)
        job = json_incref(first);
    json_decref(page);
    return job;
}

static bool is(const json_t *job, const char *state)
{
    const char *s = json_string_value(json_object_get(job, "state"));
    return s && strcmp(s, state) == 0;
}

/* Waits until the job has come to where it is to be, or stays where it was. Takes job. */
static int wait_for(struct client *c, enum proto_op op, json_t *job, struct error *err)
{
    json_int_t number = json_integer_value(json_object_get(job, "number"));
    while (job && number > 0 && (is(job, "swapping-out") || is(job, "swapping-in"))) {
        json_decref(job);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        job = look(c, number, err);
    }
    if (!job)
        return error_set(err, -ESRCH, "%s", err->text[0] ? err->text : "the job has ended");
    const char *why = json_string_value(json_object_get(job, "swap_error"));
    const char *name = json_string_value(json_object_get(job, "name"));
    json_int_t bytes = json_integer_value(json_object_get(job, "swapped_bytes"));
    /* Of a process that nobody knew to be out there is no size, and an error is this one's. */
    bool done = op == OP_SWAP_OUT ? is(job, "swapped") : !is(job, "swapped") && (bytes || !why);
    if (done)
        printf("#%lld %s: %s", (long long)number, name ? name : "",
               op == OP_SWAP_OUT ? "swapped out" : "swapped in");
    if (done && bytes > 0)
        printf(", %.1f GiB", (double)bytes / (1U << 30));
    if (done) {
        putchar('\n');
        fflush(stdout);
    } else {
        error_set(err, -EIO, "%s", why ? why : "another request has moved it again");
    }
    json_decref(job);
    return done ? 0 : -EIO;
}

static int move(const char *verb, enum proto_op op, char *const *targets, int n)
{
    struct request r = {.op = op};
    struct error err = {""};
    struct client c;
    int status = CLI_OK;
    for (int i = 0; i < n; i++) {
        if (target_parse(verb, targets[i], &r) != CLI_OK)
            return CLI_USAGE;
    }
    int code = client_open(&c, &err);
    if (code == -ENOENT)
        cli_error("no daemon is running, and swapping requires one: start ceded, which also finds "
                  "what an "
                  "earlier one has swapped out");
    else if (code < 0)
        cli_error("%s", err.text);
    if (code < 0)
        return CLI_FAILED;
    for (int i = 0; i < n; i++) {
        json_t *reply;
        target_parse(verb, targets[i], &r);
        code = client_call(&c, &r, &reply, &err);
        if (code == 0) {
            json_t *job = json_incref(json_object_get(reply, "job"));
            json_decref(reply);
            code = wait_for(&c, op, job, &err);
        }
        if (code == 0)
            continue;
        target_error(targets[i], &err);
        status = CLI_FAILED;
        if (code == -EPIPE || code == -ETIMEDOUT)
            break; /* no daemon is there for the other targets */
    }
    client_close(&c);
    return status;
}

static int parse(int argc, char **argv, const char *verb, const char *help, enum proto_op op)
{
    int status;
    return targets_given(argc, argv, verb, help, &status)
               ? move(verb, op, argv + optind, argc - optind)
               : status;
}

int swap_out_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede swap-out TARGET...\n"
        "\n"
        "Moves jobs' GPU memory to host memory, so that other programs can use it. A swapped job\n"
        "waits where it next uses the GPU, until it is swapped in; nothing in it is lost. TARGET\n"
        "is a pid, a job's number ('#12' or %12) or a job's name. The verb waits for the move,\n"
        "which takes about 0.5 s per GiB. A job that cannot be swapped runs on, and the exit\n"
        "status is 1.\n"
        "\n"
        "  -h, --help  this text\n"
        "\n"
        "  sudo cede swap-out train\n"
        "  sudo cede swap-in train\n";
    return parse(argc, argv, "swap-out", help, OP_SWAP_OUT);
}

int swap_in_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede swap-in TARGET...\n"
        "\n"
        "Moves swapped jobs' memory back to the GPU, where they go on. A job for which there is\n"
        "no room stays in host memory, and the exit status is 1. TARGET is a pid, a job's number\n"
        "('#12' or %12) or a job's name.\n"
        "\n"
        "  -h, --help  this text\n";
    return parse(argc, argv, "swap-in", help, OP_SWAP_IN);
}
