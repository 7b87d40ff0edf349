/* `cede swap out` and `cede swap in`: move a job's GPU memory to host memory and back. The daemon,
 * which the verb starts if none runs, moves it and stays to bring the job back; the verb waits and
 * reports the outcome. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/targets.h"

#define LOOK_NS 20000000L /* between looks; a move takes a quarter of a second at least */

/* Waits until the job has been moved, or the move has failed, and prints the outcome. */
static int swap_finish(struct client *c, const struct request *r, const json_t *reply,
                       struct error *err)
{
    _cleanup_json_ json_t *job = json_incref(json_object_get(reply, "job"));
    json_int_t number = json_get_int(job, "number");
    if (say_vain(job, reply))
        return 0;
    while (number > 0 && (json_text_is(job, "state", "swapping-out") ||
                          json_text_is(job, "state", "swapping-in"))) {
        json_decref(job);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        int code = client_job(c, number, &job, err);
        if (code < 0)
            return code == -ESRCH ? code : error_prefix(err, -ESRCH, "its outcome is not known");
    }
    const char *why = json_get_text(job, "swap_error");
    char who[TARGET_TEXT];
    json_int_t bytes = json_get_int(job, "swapped_bytes");
    /* A process that was not known to be swapped has no size; an error is then this request's. */
    const bool out = json_text_is(job, "state", "swapped");
    bool done = r->op == OP_SWAP_OUT ? out : !out && (bytes || !why);
    if (!done)
        return error_set(err, -EIO, "%s", why ? why : "another request has moved it again");
    printf("%s: %s", target_text(who, job), r->op == OP_SWAP_OUT ? "swapped out" : "swapped in");
    if (bytes > 0)
        printf(", %.1f GiB", (double)bytes / (1U << 30));
    putchar('\n');
    fflush(stdout);
    return 0;
}

static const char help[] =
    "usage: cede swap out TARGET...\n"
    "       cede swap in TARGET...\n"
    "\n"
    "Moves jobs' GPU memory to host memory, so that other programs can use it, and back. A\n"
    "swapped job waits where it next uses the GPU, until it is swapped in; nothing in it is\n"
    "lost. TARGET is a pid, a job's number ('#12' or %12) or a job's name. The verb waits for\n"
    "the move, which takes about 0.5 s per GiB. The exit status is 1 if a job cannot be swapped\n"
    "out, and runs on, or finds no room on the GPU, and stays in host memory.\n"
    "\n"
    "  -h, --help  this text\n"
    "\n"
    "  cede swap out train\n"
    "  cede swap in train\n";

int swap_out_main(int argc, char **argv)
{
    return targets_verb(argc, argv, "swap out", help, &(struct request){.op = OP_SWAP_OUT},
                        swap_finish);
}

int swap_in_main(int argc, char **argv)
{
    return targets_verb(argc, argv, "swap in", help, &(struct request){.op = OP_SWAP_IN},
                        swap_finish);
}

int swap_either_main(int argc, char **argv)
{
    const struct command_line line = {.program = "cede swap", .help = help, .own = true};
    int status = options_read(argc, argv, &line, NULL, 0);
    if (status != OPTIONS_GO_ON)
        return status;
    const char *way = optind < argc ? argv[optind] : "";
    const bool out = strcmp(way, "out") == 0;
    if (!out && strcmp(way, "in") != 0)
        return cli_usage("swap", "swap: out or in? as in `cede swap out %s`",
                         optind + 1 < argc ? argv[optind + 1]
                         : way[0]          ? way
                                           : "TARGET");
    argv[optind] = argv[0];
    return (out ? swap_out_main : swap_in_main)(argc - optind, argv + optind);
}
