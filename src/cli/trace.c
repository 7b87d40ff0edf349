/* `cede trace`: writes events on the GPUs to a file for ui.perfetto.dev. This process writes the
 * file, with its user's rights; ceded only sends events. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "api/client.h"
#include "base/json_text.h"
#include "base/out_file.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/trace_tracks.h"

#define TIME_MAX_US  (24ULL * 3600 * 1000 * 1000)
#define MESSAGES_MAX 1024 /* between two looks at the clock */

static const char help[] =
    "usage: cede trace -o FILE [-t TIME] [JOB...]\n"
    "\n"
    "Writes what happens on the GPUs to FILE, for https://ui.perfetto.dev, until ^C: who had each\n"
    "GPU, as the driver records it; jobs' states, decisions and their reasons, memory, requests.\n"
    "JOB: pid, job's number '#12' or %12, name or USER/name; without any, all jobs are shown.\n"
    "\n"
    "  -o, --output FILE  the file; what it had is lost\n"
    "  -t, --time TIME    ends after so long, as 10s or 500ms\n"
    "  -h, --help         this text\n"
    "\n"
    "While somebody traces, a switch of an NVIDIA GPU takes some 2 us longer.\n";

static volatile sig_atomic_t interrupted;

static void on_trace_signal(int number)
{
    interrupted = 1;
}

static int read_time(void *to, const char *name, const char *text, struct error *err)
{
    int r = parse_duration_us(text, TIME_MAX_US, to);
    if (r == 0 && *(uint64_t *)to == 0)
        r = -ERANGE;
    return r == 0 ? 0
                  : error_set(err, -EINVAL, "%s: '%s' is no time from 1us to 86400s, as in 10s",
                              name, text);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = on_trace_signal};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &a, NULL);
    }
}

/* Takes a limited number of the messages that have come. 0, or as client_events(). */
static int take_messages(const struct client *c, struct tracks *t, uint64_t *events,
                         struct error *err)
{
    static struct trace_event v[TRACE_BATCH];
    for (int i = 0; i < MESSAGES_MAX; i++) {
        const int n = client_events(c, v, err);
        if (n == -EPIPE)
            return error_set(err, -EPIPE, "ceded has ended, and the trace with it");
        if (n < 0)
            return n;
        for (int k = 0; k < n; k++)
            tracks_take(t, &v[k]);
        *events += (uint64_t)n;
    }
    return 0;
}

/* Takes events until the time is over, a signal comes, ceded ends or the file cannot be written. */
static int trace_follow(const struct client *c, uint64_t until_ns, struct tracks *t,
                        struct perfetto *p, uint64_t *events, struct error *err)
{
    int r = 0;
    bool cut = false;
    while (r == 0 && !cut && !interrupted) {
        uint64_t now = monotonic_ns();
        if (now >= until_ns)
            break;
        struct pollfd f = {.fd = c->fd, .events = POLLIN};
        uint64_t ms = min_u64((until_ns - now) / NSEC_PER_MSEC + 1, 1000);
        (void)poll(&f, 1, (int)ms);
        r = take_messages(c, t, events, err);
        int written = perfetto_flush(p, r < 0 && r != -EAGAIN ? NULL : err);
        (void)tracks_lost(t, &cut);
        r = written < 0 ? written : r == -EAGAIN ? 0 : r;
    }
    return cut && r == -EPIPE ? 0 : r;
}

/* Writes the trace that client_trace() has begun, and prints the result. */
static int trace_to(const char *path, struct client *c, const json_t *jobs, uint64_t for_us,
                    struct perfetto *p)
{
    struct error err = {""};
    uint64_t start = monotonic_ns(), events = 0;
    uint64_t until = for_us ? start + for_us * NSEC_PER_USEC : UINT64_MAX;
    struct tracks *t = tracks_new(p, jobs);
    if (!t)
        return cli_error("out of memory");
    int r = trace_follow(c, until, t, p, &events, &err);
    uint64_t end = monotonic_ns();
    tracks_end(t, end);
    struct error last = {""};
    int flushed = perfetto_flush(p, &last);
    if (r >= 0 && flushed < 0)
        error_set(&err, r = flushed, "%s", last.text);
    bool cut;
    uint64_t lost = tracks_lost(t, &cut);
    if (tracks_note(t))
        cli_error("%s", tracks_note(t));
    tracks_free(t);
    if (r < 0)
        cli_error("%s%s", err.text,
                  flushed < 0 ? "; what was written before is a whole trace" : "");
    if (lost)
        cli_error("%llu events were lost: %s", (unsigned long long)lost,
                  cut ? "this program read nothing for seconds, and ceded has cut it off"
                      : "there were more than this program could take");
    if (flushed == 0)
        fprintf(out_file_is_output(path) ? stderr : stdout,
                "%s: %.1f s, %llu events; open it at https://ui.perfetto.dev\n", path,
                (double)(end - start) / 1e9, (unsigned long long)events);
    return r < 0 || cut ? CLI_FAILED : CLI_OK;
}

static int trace_jobs(const char *path, uint64_t for_us, char *const *targets, int n)
{
    struct error err = {""};
    _cleanup_client_ struct client c = {.fd = -1};
    _cleanup_json_ json_t *all = NULL;
    struct perfetto *p = NULL;
    int status = CLI_OK, r = client_open(&c, &err);
    if (r < 0)
        return cli_error("%s%s", err.text, r == -ENOENT ? ": there is nothing to trace" : "");
    r = n ? client_ps(&c, false, &all, &err) : 0;
    if (r == 0 && n)
        status = choose_jobs("trace", all, targets, n);
    if (r == 0 && status == CLI_OK)
        r = client_trace(&c, &err);
    if (r == 0 && status == CLI_OK)
        r = perfetto_open(path, &p, &err);
    if (r < 0)
        cli_error("%s", err.text);
    else if (status == CLI_OK)
        status = trace_to(path, &c, json_object_get(all, "jobs"), for_us, p);
    perfetto_close(p);
    return r < 0 ? CLI_FAILED : status;
}

int trace_main(int argc, char **argv)
{
    const char *path = NULL;
    uint64_t for_us = 0;
    const struct option_row options[] = {
        {"output", 'o', .text = &path},
        {"time", 't', .read = read_time, .to = &for_us},
    };
    const struct command_line line = {.program = "cede trace", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (!path || !path[0])
        return cli_usage("trace", "trace: no file given: -o FILE");
    catch_signals();
    return trace_jobs(path, for_us, argv + optind, argc - optind);
}
