/* `cede acct`: the GPU time of jobs, with options and output as sacct has them. It asks the
 * recorder of accounting records; without a daemon it reads them itself, if it has the right. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "acct/database.h"
#include "acct/recorder.h"
#include "acct/times.h"
#include "api/client.h"
#include "base/job_terms.h"
#include "base/json_text.h"
#include "base/paths.h"
#include "cli/acct_fields.h"
#include "cli/cli.h"
#include "plan/sched.h"

#define AGAIN    3 /* times */
#define AGAIN_NS 300000000L
#define ANSWER_S 40 /* the recorder gives up an answer after 30 s */
#define ROWS_MAX (1U << 20)

static const char help[] =
    "usage: cede acct [OPTION...]\n"
    "\n"
    "Shows what jobs had of GPUs, as ceded has kept it: your own; for root and the\n"
    "administrators' group all. TIME: 2026-11-24, 2026-11-24T08:00, 08:00, today, now-7days.\n"
    "\n"
    "  -S, --starttime TIME  jobs that were there at TIME or later (default: today, from "
    "midnight)\n"
    "  -E, --endtime TIME    and before TIME (default: now)\n"
    "  -j, --job JOB         of this number; without -S since the records begin\n"
    "  -u, --user USER       of one user, by name or number\n"
    "  -n, --name NAME       of this name\n"
    "      --class CLASS     of this class: latency, normal, batch\n"
    "      --sum-by WHAT     one line for each user, name, class, unit, pod or slurmjob;\n"
    "                        none: the rows as they are kept, of an hour at most\n"
    "      --format FIELDS   these fields, with commas between; FIELD%N: N columns wide\n"
    "  -P, --parsable2       with | between fields\n"
    "      --json            {\"jobs\": [...]} or {\"sums\": [...]}, with all fields\n"
    "  -h, --help            this text\n"
    "\n"
    "State open: it runs, or the daemon ended before it did. Running jobs are counted once a "
    "minute;\n"
    "- is not counted yet.\n"
    "\n"
    "  cede acct -S now-7days --sum-by user\n"
    "  cede acct -S 08:00 -n train --format JobID,Start,GPUTime,Exact,Waited,Preempted\n";

struct answer {
    struct acct_row *v;
    size_t n, cap;
    uint64_t dropped;
};

static int take_row(void *arg, const struct acct_row *row)
{
    struct answer *a = arg;
    const int r = a->n < ROWS_MAX ? list_grow(&a->v, a->n, &a->cap, sizeof(*row)) : -ENOMEM;
    if (r == 0)
        a->v[a->n++] = *row;
    return r;
}

/* -ENOENT: no recorder listens there. */
static int connect_recorder(const char *path, bool given, struct error *err)
{
    static const struct timeval wait = {.tv_sec = ANSWER_S};
    struct client c;
    int r = client_connect(&c, path, given, 0, err);
    if (r == -EPERM)
        return error_set(err, r, "not trusting accounting records at %s: neither root's nor yours",
                         path);
    if (r < 0)
        return r == -ENAMETOOLONG ? -ENOENT : r;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    return c.fd;
}

static int ask_recorder(int fd, const struct acct_query *q, struct answer *out, struct error *err)
{
    struct acct_answer a;
    int r = 0;
    if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) != (ssize_t)sizeof(*q))
        return error_set(err, errno == EPIPE ? -ECONNRESET : -errno,
                         "cannot ask for accounting records: %s", strerror(errno));
    while (r == 0) {
        ssize_t n = recv(fd, &a, sizeof(a), 0);
        if (n != (ssize_t)sizeof(a)) {
            const bool ended = n == 0 || (n < 0 && errno == ECONNRESET);
            return error_set(err, ended && !out->n ? -ECONNRESET : -EIO,
                             n < 0 && errno == EAGAIN
                                 ? "no answer within %d s: does a cede-acct run?"
                                 : "the answer broke off: ask for a shorter time, or "
                                   "again (after %d s an answer is given up); or ceded is of "
                                   "another release",
                             n < 0 ? ANSWER_S : 30);
        }
        if (a.last)
            break;
        r = take_row(out, &a.row);
    }
    a.text[sizeof(a.text) - 1] = '\0';
    out->dropped = a.dropped;
    if (r < 0)
        return error_set(err, r, "too many rows: ask for a shorter time, or --sum-by");
    return a.code < 0 ? error_set(err, a.code, "%s", a.text) : 0;
}

static int read_file(const struct acct_query *q, struct answer *out, struct error *err)
{
    char dir[160];
    struct acct_db *db = NULL;
    int r = cede_state_dir(NULL, dir, sizeof(dir), err);
    if (r == 0)
        r = acct_db_open_readonly(dir, &db, err);
    if (r < 0 && r != -ENOSYS)
        return error_prefix(err, r, "no daemon that keeps accounting records is running");
    if (r == 0)
        r = acct_db_query(db, q, ACCT_ANYBODY, take_row, out, &out->dropped, err);
    acct_db_close(db);
    return r;
}

/* -ECONNRESET: the recorder ended before it answered. */
static int get_rows_once(const struct acct_query *q, struct answer *out, struct error *err)
{
    char path[512];
    for (unsigned i = 0; cede_socket_at(i, path, sizeof(path)); i++) {
        char *name = strrchr(path, '/') + 1;
        snprintf(name, sizeof(path) - (size_t)(name - path), ACCT_SOCKET);
        int fd = connect_recorder(path, i == 0, err);
        if (fd == -ENOENT)
            continue;
        if (fd < 0)
            return fd;
        int r = ask_recorder(fd, q, out, err);
        close(fd);
        return r;
    }
    return read_file(q, out, err);
}

/* Asks again if the recorder ended meanwhile: another follows at once, or the file is read. */
static int get_rows(const struct acct_query *q, struct answer *out, struct error *err)
{
    int r = get_rows_once(q, out, err);
    for (int tries = 0; r == -ECONNRESET && tries < AGAIN; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
        r = get_rows_once(q, out, err);
    }
    return r;
}

/* ---- options ---- */

static int read_moment(void *to, const char *name, const char *text, struct error *err)
{
    return acct_time(text, time(NULL), to, err);
}

static int read_class(void *to, const char *name, const char *text, struct error *err)
{
    enum job_class class;
    if (job_class_parse(text, &class) < 0)
        return error_set(err, -EINVAL, "'%.40s' is no class: latency, normal, batch", text);
    *(uint32_t *)to = class;
    return 0;
}

static int read_name(void *to, const char *name, const char *text, struct error *err)
{
    if (strlen(text) >= ACCT_NAME_MAX)
        return error_set(err, -EINVAL, "no name has more than %d bytes", ACCT_NAME_MAX - 1);
    snprintf(to, ACCT_NAME_MAX, "%s", text);
    return 0;
}

static int read_job(void *to, const char *name, const char *text, struct error *err)
{
    const char *number = text[0] == '#' || text[0] == '%' ? text + 1 : text;
    return parse_u64(number, 1, INT64_MAX, to) == 0
               ? 0
               : error_set(err, -EINVAL, "'%.40s' is no job's number, such as %%12", text);
}

static int read_by(void *to, const char *name, const char *text, struct error *err)
{
    const enum acct_by by = acct_by_named(text);
    if (by == ACCT_BY_COUNT || by == ACCT_BY_JOB)
        return error_set(err, -EINVAL,
                         "'%.40s' is none of user, name, class, unit, pod, slurmjob and none",
                         text);
    *(uint32_t *)to = by;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct acct_row *x = a, *y = b;
    const int begin = (x->begin_s > y->begin_s) - (x->begin_s < y->begin_s);
    return begin ? begin : (x->number > y->number) - (x->number < y->number);
}

static int by_gpu_time(const void *a, const void *b)
{
    const uint64_t x = ((const struct acct_row *)a)->sums[ACCT_GPU_NS],
                   y = ((const struct acct_row *)b)->sums[ACCT_GPU_NS];
    return (x < y) - (x > y);
}

static void acct_print_json(const struct answer *a, enum acct_by by)
{
    json_t *all = json_array();
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(all, acct_json(&a->v[i], by));
    _cleanup_json_ json_t *o = json_pack("{s:o, s:I}",
                                         by == ACCT_BY_JOB   ? "jobs"
                                         : by == ACCT_BY_ROW ? "rows"
                                                             : "sums",
                                         all, "lost", (json_int_t)a->dropped);
    cli_print_json(o);
}

int acct_main(int argc, char **argv)
{
    struct acct_query q = {
        .proto = ACCT_PROTO, .end_s = INT64_MAX / 2, .uid = ACCT_ANYBODY, .class = CLASS_COUNT};
    struct acct_format format;
    struct answer answer = {.v = NULL};
    const char *fields = NULL;
    bool json = false, parsable = false;
    struct error err = {""};
    const struct option_row options[] = {
        {"starttime", 'S', .read = read_moment, .to = &q.start_s},
        {"endtime", 'E', .read = read_moment, .to = &q.end_s},
        {"job", 'j', .read = read_job, .to = &q.number},
        {"user", 'u', .read = cli_read_user, .to = &q.uid},
        {"name", 'n', .read = read_name, .to = q.name},
        {"class", .read = read_class, .to = &q.class},
        {"sum-by", .read = read_by, .to = &q.by},
        {"format", .text = &fields},
        {"parsable2", 'P', .flag = &parsable},
        {"json", .flag = &json},
    };
    const struct command_line line = {.program = "cede acct", .help = help, .no_operands = true};
    q.start_s = INT64_MIN;
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (q.start_s == INT64_MIN && q.number) /* as sacct: all of the job */
        q.start_s = 0;
    else if (q.start_s == INT64_MIN)
        acct_time("today", time(NULL), &q.start_s, NULL);
    if (q.start_s >= q.end_s)
        return cli_usage("acct", "acct: the end is not after the start");
    const enum acct_by by = (enum acct_by)q.by;
    if (acct_format_read(fields, by, &format, &err) < 0)
        return cli_usage("acct", "acct: %s", err.text);
    int r = get_rows(&q, &answer, &err);
    if (r < 0) {
        cli_error("%s", err.text);
        free(answer.v);
        return CLI_FAILED;
    }
    if (answer.n)
        qsort(answer.v, answer.n, sizeof(*answer.v),
              by == ACCT_BY_JOB || by == ACCT_BY_ROW ? by_time : by_gpu_time);
    if (json)
        acct_print_json(&answer, by);
    else
        acct_print(&format, answer.v, answer.n, parsable);
    if (answer.dropped && !json)
        cli_error("%llu rows were lost, as they could not be written; their time is in none of "
                  "these sums",
                  (unsigned long long)answer.dropped);
    free(answer.v);
    return CLI_OK;
}
