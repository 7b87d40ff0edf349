/* `cede kill`: sends a signal to all processes of jobs, also to those that left their parents and
 * sessions. The daemon says which processes are a job's; this process signals them with its own
 * rights, so ceded, which is root, kills nothing for anybody. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "api/client.h"
#include "base/json_text.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/targets.h"

#define PASSES 20 /* what a job starts meanwhile gets the signal, too */

struct killed {
    struct client *client;
    json_int_t number;
    pid_t root;
    bool runner; /* its root is `cede run`, which ends with its command */
    bool rooted; /* the root's turn has come */
    int code;    /* the daemon does not answer */
    struct error error;
};

/* Whether the daemon counts the process as the job's. A foreign process is not asked about, since
 * the kernel would refuse the signal. */
static bool is_of_job(const struct proc_stat *st, void *arg)
{
    struct killed *k = arg;
    uid_t uid;
    if (k->code < 0 || (st->id.pid == k->root && k->runner && !k->rooted))
        return false;
    if (proc_in_tree(st->id.pid, k->root))
        return true;
    if (geteuid() != 0 && (proc_owner(st->id.pid, &uid) < 0 || uid != getuid()))
        return false;
    _cleanup_json_ json_t *reply = NULL;
    const struct request ask = {.op = OP_PS, .pid = st->id.pid, .number = INT64_MAX, .brief = true};
    k->code = client_call(k->client, &ask, &reply, &k->error);
    return k->code == 0 && json_get_int(reply, "job_of") == k->number;
}

static int kill_job(struct client *c, const json_t *job, int sig)
{
    _cleanup_(signalled_free) struct signalled s = {NULL, 0, 0, 0};
    const char *source = json_get_text(job, "source");
    char who[TARGET_TEXT], name[16];
    struct killed k = {.client = c,
                       .number = json_get_int(job, "number"),
                       .root = (pid_t)json_get_int(job, "pid"),
                       .runner = source && strcmp(source, "run") == 0};
    int fresh = 1;
    target_text(who, job);
    for (int i = 0; i < PASSES && fresh > 0; i++)
        fresh = signals_send(&s, sig, is_of_job, &k);
    /* `cede run` would pass a signal on to the command, which has it already. */
    k.rooted = !s.n || sig == SIGKILL;
    if (k.rooted && fresh >= 0)
        fresh = signals_send(&s, sig, is_of_job, &k);
    if (s.sent)
        printf("%s: %s sent to %u process%s\n", who, signals_name(sig, name), s.sent,
               s.sent == 1 ? "" : "es");
    if (s.refused)
        cli_error("%s: %u process%s of another user: not signalled", who, s.refused,
                  s.refused == 1 ? " is" : "es are");
    if (k.code < 0 || fresh < 0)
        cli_error("%s: some of its processes may not have been found: %s", who,
                  k.code < 0 ? k.error.text : strerror(-fresh));
    else if (!s.n)
        cli_error("%s: it has no process any more", who);
    const bool done = s.sent && !s.refused && k.code == 0 && fresh >= 0;
    return done ? CLI_OK : CLI_FAILED;
}

static int kill_all(char *const *targets, int n, int sig)
{
    _cleanup_client_ struct client c = {.fd = -1};
    struct error err = {""};
    _cleanup_json_ json_t *all = NULL;
    int r = client_open(&c, &err);
    if (r == 0)
        r = client_ps(&c, true, &all, &err);
    if (r < 0)
        return cli_error("%s%s", err.text,
                         r == -ENOENT ? ": nothing is known of jobs; see kill(1)" : "");
    int status = choose_jobs("kill", all, targets, n);
    for_each_json (job, json_object_get(all, "jobs")) {
        if (status != CLI_USAGE && kill_job(&c, job, sig) != CLI_OK)
            status = CLI_FAILED;
    }
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
