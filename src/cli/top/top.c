/* `cede top`: the jobs live, on a terminal, or as text and JSON for programs. It asks as any client
 * does, and changes jobs only at a key. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/top/source.h"
#include "cli/top/text.h"
#ifdef CEDE_CURSES
#include "cli/top/ui.h"
#endif

#define ANSWER_NS (5 * NSEC_PER_SEC) /* how long --once waits for the daemon */

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
    "WAIT    time in which the job had work and others had the GPU\n"
    "DUE     in: its work is due in so long; late: by so much; of: time allowed\n"
    "WHERE   pod, container or unit\n"
    "Other columns are those of `cede ps`. NO_COLOR in the environment: no colours.\n";

static int plain_print(const struct top_model *m, bool json, bool stream)
{
    if (!json) {
        top_print(stdout, m);
        return CLI_OK;
    }
    _cleanup_json_ json_t *o = top_json(m);
    if (!o)
        return cli_error("out of memory");
    if (json_dumpf(o, stdout, stream ? JSON_COMPACT : JSON_INDENT(2)) == 0)
        putchar('\n');
    return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

/* Prints the status if it differs from the last one, `said`, and the message. */
static void plain_say(struct top_source *s, char said[static sizeof(s->status)])
{
    if (s->status[0] && strcmp(s->status, said) != 0)
        cli_error("%s", s->status);
    memcpy(said, s->status, sizeof(s->status));
    if (s->message[0])
        cli_error("%s", s->message);
    s->message[0] = '\0';
}

static int plain_loop(struct top_source *s, bool json, bool stream, uint64_t interval_ns)
{
    const uint64_t start = monotonic_ns();
    uint64_t due = start;
    unsigned shown = 0;
    char said[sizeof(s->status)] = "";
    for (int status = CLI_OK; status == CLI_OK;) {
        struct pollfd fd = {.fd = s->client.fd, .events = POLLIN};
        uint64_t now = monotonic_ns();
        if (now < due && poll(&fd, 1, (int)((due - now) / NSEC_PER_MSEC) + 1) < 0 && errno != EINTR)
            return CLI_FAILED;
        now = monotonic_ns();
        if (fd.revents)
            top_source_ready(s, now);
        if (now >= due) {
            top_source_tick(s, now);
            due += interval_ns * (1 + (now - due) / interval_ns);
        }
        plain_say(s, said);
        /* Shares are differences of two replies; without a daemon there are none. */
        if (s->replies > (stream || s->lost ? shown : 1)) {
            shown = s->replies;
            status = plain_print(s->model, json, stream);
            if (!stream)
                return status;
        } else if (!stream && now - start > ANSWER_NS + 2 * interval_ns)
            return cli_error("there was no answer");
    }
    return CLI_FAILED;
}

static int top_plain(bool json, bool stream, uint64_t interval_ns)
{
    struct top_model model;
    struct top_source source;
    setlocale(LC_CTYPE, "");
    top_model_init(&model);
    top_source_init(&source, &model);
    int status = plain_loop(&source, json, stream, interval_ns);
    top_source_close(&source);
    top_model_free(&model);
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
    return cli_error(
        "this cede was built without ncurses (libncurses-dev): `cede top --once` prints the "
        "same as text");
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
    const struct command_line line = {.program = "cede top", .help = help, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (once && json)
        return cli_usage("top", "top: --once and --json exclude each other");
    uint64_t interval_ns = delay_ns ? delay_ns : NSEC_PER_SEC;
    if (once || json)
        return top_plain(json, json && delay_ns, interval_ns);
    return on_terminal(interval_ns);
}
