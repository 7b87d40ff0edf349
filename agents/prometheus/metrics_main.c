/* `cede metrics`: ceded's counts for Prometheus. It asks as any client does and changes nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/prometheus/metrics.h"
#include "agents/prometheus/metrics_http.h"
#include "agents/prometheus/metrics_main.h"
#include "api/client.h"
#include "base/cli_error.h"
#include "base/json_text.h"
#include "base/out_file.h"

#define JOBS_DEFAULT 500
#define JOBS_MOST    1000000
#define ANSWER_NS    (3 * NSEC_PER_SEC) /* for both of ceded's answers; scrapers wait 10 s */

static const char help[] =
    "usage: cede metrics [-o FILE | --listen ADDR:PORT] [--per-job [--pids]] [--max-jobs N]\n"
    "\n"
    "Prints what ceded counts as text for Prometheus (OpenMetrics), once.\n"
    "\n"
    "  -o, --output FILE       write it to FILE at once and whole, as node-exporter's textfile\n"
    "                          collector reads it (format 0.0.4); a device or pipe is written\n"
    "                          in place, - is standard output\n"
    "      --listen ADDR:PORT  serve it over HTTP at /metrics until ended; a socket handed over\n"
    "                          by systemd is served without this option\n"
    "      --per-job           series for each job, with its number, not for all jobs of the same\n"
    "                          name, class, user and pod together\n"
    "      --max-jobs N        series for at most N of these, the oldest first (default 500)\n"
    "      --pids              label pid in cede_job_info, which is there with --per-job\n"
    "  -h, --help              this text\n"
    "\n"
    "  cede metrics -o /var/lib/prometheus/node-exporter/cede.prom\n"
    "  cede metrics --listen 127.0.0.1:9479\n";

/* 0: the caller owns both references. */
static int metrics_ask(const struct metrics_choice *choice, json_t **ps, json_t **policy,
                       struct error *err)
{
    _cleanup_client_ struct client c = {.fd = -1};
    _cleanup_json_ json_t *jobs = NULL;
    *ps = *policy = NULL;
    int r = client_open_until(&c, monotonic_ns() + ANSWER_NS, err);
    if (r == 0)
        r = choice->per_job ? client_ps(&c, false, &jobs, err) : client_sums(&c, &jobs, err);
    if (r == 0)
        r = client_call(&c, &(struct request){.op = OP_POLICY}, policy, err);
    *ps = r == 0 ? json_incref(jobs) : NULL;
    return r;
}

/* The source of metrics_serve(). An error of ceded is printed once, not with each scrape. */
struct metrics_state {
    struct metrics_choice choice;
    bool failed;
};

static void metrics_make(void *ctx, char *texts[METRICS_FORMATS])
{
    struct metrics_state *s = ctx;
    struct error err = {""};
    _cleanup_json_ json_t *ps = NULL;
    _cleanup_json_ json_t *policy = NULL;
    bool failed = metrics_ask(&s->choice, &ps, &policy, &err) < 0;
    if (failed && !s->failed)
        cli_error("%s", err.text);
    s->failed = failed;
    for (int f = 0; f < METRICS_FORMATS; f++)
        texts[f] = metrics_text(ps, policy, &s->choice, (enum metrics_format)f);
}

static int metrics_once(const char *output, const struct metrics_choice *choice)
{
    struct error err = {""};
    _cleanup_json_ json_t *ps = NULL;
    _cleanup_json_ json_t *policy = NULL;
    int status = CLI_OK;
    if (metrics_ask(choice, &ps, &policy, &err) < 0)
        status = cli_error("%s", err.text);
    _cleanup_free_ char *text =
        metrics_text(ps, policy, choice, output ? METRICS_PLAIN : METRICS_OPEN);
    int r = text ? 0 : error_set(&err, -ENOMEM, "out of memory");
    if (r == 0 && output)
        r = out_file_put(output, 0644, text, strlen(text), &err);
    else if (r == 0)
        fputs(text, stdout);
    if (r == 0)
        return status;
    return cli_error("%s", err.text);
}

static int metrics_serve_on(const char *where, const struct metrics_choice *choice)
{
    struct error err = {""};
    struct metrics_state state = {.choice = *choice};
    int fd = where ? metrics_listen(where, &err) : metrics_handed_over();
    if (fd == -EINVAL)
        return cli_usage("metrics", "%s", err.text);
    if (fd >= 0)
        fd = metrics_serve(fd, metrics_make, &state, &err);
    if (fd == 0)
        return CLI_OK;
    return cli_error("%s", err.text);
}

static int read_max_jobs(void *to, const char *name, const char *text, struct error *err)
{
    struct metrics_choice *choice = to;
    uint64_t n;
    if (parse_u64(text, 0, JOBS_MOST, &n) < 0)
        return error_set(err, -EINVAL, "--%s: '%s' is not a number from 0 to %d", name, text,
                         JOBS_MOST);
    choice->max_jobs = (unsigned)n;
    return 0;
}

int metrics_main(int argc, char **argv)
{
    const char *output = NULL, *where = NULL;
    struct metrics_choice choice = {.max_jobs = JOBS_DEFAULT};
    const struct option_row options[] = {{"output", 'o', .text = &output},
                                         {"listen", .text = &where},
                                         {"max-jobs", .read = read_max_jobs, .to = &choice},
                                         {"per-job", .flag = &choice.per_job},
                                         {"pids", .flag = &choice.pids}};
    const struct command_line line = {.program = "cede metrics", .help = help, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (output && where)
        return cli_usage("metrics", "metrics: -o and --listen exclude each other");
    if (choice.pids && !choice.per_job)
        return cli_usage("metrics", "metrics: --pids needs --per-job");
    bool handed_over = !output && metrics_handed_over() >= 0;
    return where || handed_over ? metrics_serve_on(handed_over ? NULL : where, &choice)
                                : metrics_once(output, &choice);
}
