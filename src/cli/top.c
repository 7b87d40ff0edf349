/* `cede top`: the jobs live, on a terminal, or as text and JSON for programs. Asks as any
 * client does; what is looked at does not change by it. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/top_facts.h"
#include "cli/top_source.h"
#include "cli/top_text.h"
#ifdef CEDE_CURSES
#include "cli/top_ui.h"
#endif

#define ANSWER_NS (5 * NSEC_PER_SEC) /* of the daemon, for --once */

static const char help[] =
    "usage: cede top [-d SECONDS]\n"
    "       cede top --once | --json [-d SECONDS]\n"
    "\n"
    "Shows the jobs live, and the programs that use a GPU and are in no job.\n"
    "Keys: F1 or ? lists them; q quits.\n"
    "\n"
    "  -d, --delay SECONDS  between two looks, 0.1 to 3600 (default 1)\n"
    "      --once           prints one table as text, after two looks\n"
    "      --json           prints what it would show as one object; with -d one per line,\n"
    "                       until ended\n"
    "  -h, --help           this text\n"
    "\n"
    "SHARE   GPU time since the look before; 100% is a whole GPU\n"
    "MINUTE  the same in the last minute, the newest on the right\n"
    "WAIT    time in which the job had work and others had the GPU\n"
    "DUE     in: its work is due in so long; late: by so much; of: time allowed\n"
    "WHERE   container or unit\n"
    "Other columns are those of `cede ps`. NO_COLOR in the environment: no colours.\n";

/* Without a terminal. */
struct plain {
    struct top_model model;
    struct top_source source;
    uint64_t now_ns;
    unsigned replies;
    bool json, stream, ready;
    char said[600]; /* the last status */
};

static void plain_reply(void *ctx, json_t *reply)
{
    struct plain *p = ctx;
    if (top_model_update(&p->model, reply, p->now_ns) < 0)
        return;
    top_facts(&p->model, top_source_same_pids(&p->source, reply));
    top_model_arrange(&p->model);
    p->replies++;
    /* Shares are differences of two replies; no second one says more without a daemon. */
    p->ready = p->stream || p->replies > 1 || p->source.lost;
}

static void plain_done(void *ctx, const struct top_action *a, int code, const char *text)
{
    (void)ctx, (void)a, (void)code, (void)text; /* nothing is done to jobs */
}

static int plain_print(const struct plain *p)
{
    bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (!p->json) {
        top_print(stdout, &p->model, utf8);
        return CLI_OK;
    }
    json_t *o = top_json(&p->model);
    if (!o) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    if (json_dumpf(o, stdout, p->stream ? JSON_COMPACT : JSON_INDENT(2)) == 0)
        putchar('\n');
    json_decref(o);
    return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

static void plain_say(struct plain *p)
{
    if (p->source.status[0] && strcmp(p->source.status, p->said) != 0)
        cli_error("%s", p->source.status);
    snprintf(p->said, sizeof(p->said), "%s", p->source.status);
    if (p->source.message[0])
        cli_error("%s", p->source.message);
    p->source.message[0] = '\0';
}

static int plain_loop(struct plain *p, uint64_t interval_ns)
{
    uint64_t start = monotonic_ns(), due = start;
    int status = CLI_OK;
    do {
        struct pollfd fd = {.fd = p->source.client.fd, .events = POLLIN};
        uint64_t now = monotonic_ns();
        if (now < due && poll(&fd, 1, (int)((due - now) / NSEC_PER_MSEC) + 1) < 0 && errno != EINTR)
            return CLI_FAILED;
        p->now_ns = monotonic_ns();
        if (fd.revents)
            top_source_ready(&p->source, p->now_ns);
        if (p->now_ns >= due) {
            top_source_tick(&p->source, p->now_ns);
            due += interval_ns * (1 + (p->now_ns - due) / interval_ns);
        }
        plain_say(p);
        if (p->ready)
            status = plain_print(p);
        if (!p->stream && !p->ready && p->now_ns - start > ANSWER_NS + 2 * interval_ns) {
            cli_error("there was no answer");
            status = CLI_FAILED;
        }
        if (p->ready && !p->stream)
            return status;
        p->ready = false;
    } while (status == CLI_OK);
    return status;
}

static int top_plain(bool json, bool stream, uint64_t interval_ns)
{
    struct plain p = {.json = json, .stream = stream};
    setlocale(LC_CTYPE, "");
    top_model_init(&p.model);
    top_source_init(&p.source);
    p.source.ctx = &p;
    p.source.reply = plain_reply;
    p.source.done = plain_done;
    int status = plain_loop(&p, interval_ns);
    top_source_close(&p.source);
    top_model_free(&p.model);
    return status;
}

static int on_terminal(uint64_t interval_ns)
{
    if (!isatty(0) || !isatty(1))
        return cli_usage("top", "top: no terminal; try `cede top --once`");
#ifdef CEDE_CURSES
    return top_screen(interval_ns);
#else
    (void)interval_ns;
    cli_error("this cede was built without ncurses (libncurses-dev): `cede top --once` prints the "
              "same as text");
    return CLI_FAILED;
#endif
}

static int read_delay(void *to, const char *name, const char *text, struct error *err)
{
    double seconds;
    if (parse_double(text, 0.1, 3600, &seconds) < 0)
        return error_set(err, -EINVAL, "--%s: '%s' is not a number from 0.1 to 3600", name, text);
    *(uint64_t *)to = (uint64_t)(seconds * 1e9);
    return 0;
}

int top_main(int argc, char **argv)
{
    bool once = false, json = false;
    uint64_t delay_ns = 0;
    const struct option_row options[] = {{"delay", 'd', .read = read_delay, .to = &delay_ns},
                                         {"once", .flag = &once},
                                         {"json", .flag = &json}};
    const struct command_line line = {.program = "cede top", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind < argc)
        return cli_usage("top", "top: unexpected argument '%s'", argv[optind]);
    if (once && json)
        return cli_usage("top", "top: --once and --json exclude each other");
    uint64_t interval_ns = delay_ns ? delay_ns : NSEC_PER_SEC;
    if (once || json)
        return top_plain(json, json && delay_ns, interval_ns);
    return on_terminal(interval_ns);
}
