/* `cede kill`: sends a signal to all processes of jobs, also to those that left their parents and
 * sessions. The daemon says which processes are a job's; this process signals them with its own
 * rights, so ceded, which is root, kills nothing for anybody. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "api/client.h"
#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/targets.h"

#define PASSES 20 /* what a job starts meanwhile gets the signal, too */

struct killed {
    struct client *client;
    struct request ask;
    pid_t skip;         /* not to be signalled now; 0: none */
    struct error error; /* why the daemon does not answer */
};

/* The processes that the daemon counts as the job's. */
static int list_job(struct pid_list *out, void *arg)
{
    struct killed *k = arg;
    int r;
    k->ask.from = 0;
    do {
        _cleanup_json_ json_t *reply = NULL;
        r = client_call(k->client, &k->ask, &reply, &k->error);
        if (r == -ESRCH) /* it has ended meanwhile */
            r = 0;
        for_each_json (pid, json_object_get(reply, "pids")) {
            if (json_integer_value(pid) != k->skip && r == 0)
                r = pid_list_push(out, (pid_t)json_integer_value(pid));
        }
        k->ask.from = (pid_t)json_get_int(reply, "next");
    } while (r == 0 && k->ask.from);
    return r;
}

static int kill_job(struct client *c, const json_t *job, int sig)
{
    _cleanup_(signalled_free) struct signalled s = {NULL, 0, 0, 0, 0};
    const bool runner = json_text_is(job, "source", "run");
    char who[TARGET_TEXT], name[16];
    /* `cede run` would pass a signal on to the command, which has it already. */
    struct killed k = {.client = c,
                       .ask = {.op = OP_PIDS, .number = (uint64_t)json_get_int(job, "number")},
                       .skip = runner ? (pid_t)json_get_int(job, "pid") : 0};
    int fresh = 1;
    target_text(who, job);
    for (int i = 0; i < PASSES && fresh > 0; i++)
        fresh = signals_send(&s, sig, list_job, &k);
    if (k.skip && (!s.found || sig == SIGKILL) && fresh >= 0) {
        k.skip = 0;
        fresh = signals_send(&s, sig, list_job, &k);
    }
    if (s.sent)
        printf("%s: %s sent to %u process%s\n", who, signals_name(sig, name), s.sent,
               s.sent == 1 ? "" : "es");
    if (s.refused)
        cli_error("%s: %u process%s of another user: not signalled", who, s.refused,
                  s.refused == 1 ? " is" : "es are");
    if (fresh < 0)
        cli_error("%s: some of its processes may not have been found: %s", who,
                  k.error.text[0] ? k.error.text : strerror(-fresh));
    else if (!s.found)
        cli_error("%s: it has no process any more", who);
    return s.sent && !s.refused && fresh >= 0 ? CLI_OK : CLI_FAILED;
}

static int kill_target(struct client *c, const struct request *r, const char *target, int sig)
{
    struct error err = {""};
    char who[TARGET_TEXT];
    _cleanup_json_ json_t *reply = NULL;
    if (client_call(c, r, &reply, &err) < 0)
        return cli_error("%s: %s", target, err.text);
    const json_t *job = json_object_get(reply, "job");
    const char *note = json_get_text(reply, "note");
    if (note)
        cli_error("%s: %s", target_text(who, job), note);
    return kill_job(c, job, sig);
}

static int kill_all(char *const *targets, int n, int sig)
{
    _cleanup_client_ struct client c = {.fd = -1};
    struct request *all = calloc((size_t)n, sizeof(*all));
    struct error err = {""};
    int status = CLI_OK;
    if (!all)
        return cli_error("out of memory");
    for (int i = 0; i < n && status == CLI_OK; i++) {
        all[i].op = OP_PIDS;
        status = target_parse("kill", targets[i], &all[i]);
    }
    const int r = status == CLI_OK ? client_open(&c, &err) : 0;
    if (r < 0)
        status = cli_error("%s%s", err.text,
                           r == -ENOENT ? ": nothing is known of jobs; see kill(1)" : "");
    for (int i = 0; i < n && c.fd >= 0; i++) {
        if (kill_target(&c, &all[i], targets[i], sig) != CLI_OK)
            status = CLI_FAILED;
    }
    free(all);
    return status;
}

int kill_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede kill [-s SIGNAL | -SIGNAL] TARGET...\n"
        "\n"
        "Sends a signal to all processes of jobs, also to those that their command has left\n"
        "behind in other sessions (but for what cede(1) names under kill). TARGET is a job's "
        "number\n"
        "('#12' or %12), a job's name, or the pid of one of its processes. Your own programs "
        "only,\n"
        "as kill(1). All targets are tried; the exit status is 1 if any failed.\n"
        "\n"
        "  -s, --signal SIGNAL  TERM (default), KILL, INT, 15, ...\n"
        "  -h, --help           this text\n"
        "\n"
        "  cede kill train\n"
        "  cede kill -9 %12\n";
    int sig = SIGTERM;
    static char text[32]; /* -9 and -KILL, as kill(1) has them */
    for (int i = 1; i < argc; i++) {
        const unsigned char c = argv[i][0] == '-' ? (unsigned char)argv[i][1] : 0;
        if (isdigit(c) || isupper(c)) {
            snprintf(text, sizeof(text), "--signal=%s", argv[i] + 1);
            argv[i] = text;
        }
    }
    const struct option_row options[] = {{"signal", 's', .read = signals_read, .to = &sig}};
    const struct command_line line = {.program = "cede kill", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    return optind == argc ? targets_none("kill") : kill_all(argv + optind, argc - optind, sig);
}
