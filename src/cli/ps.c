/* `cede ps`: the jobs, from the daemon or, if none runs, from the last one's journal. The only
 * change that it makes is to resume programs that a killed scheduler left suspended. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "api/client.h"
#include "base/json_text.h"
#include "cli/cells.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/ps_notes.h"
#include "cli/targets.h"
#include "cli/without_daemon.h"
#include "who/users.h"

static const char help[] =
    "usage: cede ps [-a] [-u USER] [--gpu N] [--json] [TARGET...]\n"
    "\n"
    "Shows the jobs, or those that TARGETs (pid, job's number '#12' or %12, name or\n"
    "USER/name) belong to.\n"
    "\n"
    "  -a, --all        also the processes that use a GPU and belong to no job\n"
    "  -u, --user USER  only those of this user, by name or number\n"
    "      --gpu N      only those that use this GPU\n"
    "      --json       one object: {\"jobs\": [...], \"daemon\": true, ...}\n"
    "  -h, --help       this text\n"
    "\n"
    "JOB     its number, which is not used again; PID is its first process\n"
    "CLASS, WEIGHT, BUDGET  as set by cede run or cede set, or by a rule\n"
    "LIMITS  the least and the most of each GPU's time (floor and ceiling)\n"
    "STATE   running\n"
    "        waiting    suspended until its turn\n"
    "        throttled  suspended for some seconds, as a latency job cannot keep its speed\n"
    "        held       for some seconds, while `cede advise` measures others\n"
    "        paused     by `cede pause`\n"
    "        stopped    by ^Z or a debugger (programs that hold their own work)\n"
    "        queued     waits, before it starts, for the GPU memory that it will take\n"
    "        starting   has not opened a GPU yet\n"
    "        swapped    in host memory; swapping-out and swapping-in on the way\n"
    "GPU     the GPUs that it uses\n"
    "LEVEL   where a job that has to wait is stopped: in its running work (hardware), at the next\n"
    "        piece of a kernel (piece) or at the next submission (gate)\n"
    "SLICE   its timeslice; - is the driver's default\n"
    "BUSY    part of its GPUs' time that it had lately; ? is not known\n"
    "SPEED   now, as a part of its speed alone: of a job in an MPS server with others, or of a\n"
    "        launch-bound latency job while lower jobs run; ... is being measured, ? is not known\n"
    "MEM     its GPU memory; after a / what was said at its start, while it waits for that or\n"
    "        has taken more\n"
    "USER    whose it is, where that is not you\n";

/* ---- table ----------------------------------------------------------------------------------- */

/* Columns of the terminal; 0: standard output is no terminal, and nothing is cut. */
static unsigned terminal_width(void)
{
    struct winsize w;
    return isatty(1) && ioctl(1, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

static void print_row(char cell[COLUMNS][CELL], const size_t width[COLUMNS], unsigned terminal)
{
    size_t used = 0;
    for (size_t c = 0; c < COLUMNS - 1; c++) {
        if (!width[c])
            continue;
        printf(ps_columns[c].right ? "%*s  " : "%-*s  ", (int)width[c], cell[c]);
        used += width[c] + 2;
    }
    size_t room = terminal == 0 ? CELL : terminal > used + 8 ? terminal - used : 8;
    printf("%.*s\n", cell_cut(cell[COLUMNS - 1], room), cell[COLUMNS - 1]);
}

/* Whether there are several kinds of devices. */
static bool mixed(const json_t *devices)
{
    const char *first = NULL;
    for_each_json (device, devices) {
        const char *label = json_get_text(device, "label");
        size_t n = label ? strcspn(label, "0123456789") : 0;
        if (first && n && (strncmp(first, label, n) != 0 || strcspn(first, "0123456789") != n))
            return true;
        first = first || !n ? first : label;
    }
    return false;
}

static int print_table(const json_t *rows, const json_t *devices)
{
    size_t n = json_array_size(rows), width[COLUMNS], k;
    char(*cells)[COLUMNS][CELL] = calloc(n + 1, sizeof(*cells));
    if (!cells)
        return cli_error("out of memory");
    struct shown row = {.devices = devices, .labels = mixed(devices)};
    for (size_t c = 0; c < COLUMNS; c++) {
        const struct column *column = &ps_columns[c];
        bool any = !column->needed;
        snprintf(cells[0][c], CELL, "%s", ps_columns[c].title);
        width[c] = strlen(ps_columns[c].title);
        for_each_json (job, rows) {
            char *cell = cells[job_i + 1][c];
            row.job = job;
            column->text(cell, column, &row);
            width[c] = max_u64(width[c], strlen(cell));
            any |= column->needed && column->needed(cell, row.job);
        }
        width[c] = any ? width[c] : 0;
    }
    unsigned terminal = terminal_width();
    for (k = 0; k <= n; k++)
        print_row(cells[k], width, terminal);
    free(cells);
    fflush(stdout);
    for_each_json (job, rows) {
        const char *e = json_get_text(job, "error");
        bool swap = json_equal(json_object_get(job, "error"), json_object_get(job, "swap_error"));
        if (e)
            cli_error("#%lld: %s%s", (long long)json_get_int(job, "number"),
                      swap ? "not swapped: " : "", e);
    }
    return CLI_OK;
}

/* ---- which rows ---- */

struct only {
    uid_t uid;    /* ONLY_ANY: all */
    uint64_t gpu; /* ONLY_ANY: all */
};
#define ONLY_ANY UINT32_MAX

static int read_gpu(void *to, const char *name, const char *text, struct error *err)
{
    return parse_u64(text, 0, DEVICE_GPUS_MAX - 1, to) == 0
               ? 0
               : error_set(err, -EINVAL, "%s: '%s' is not a GPU's index, 0 to %d", name, text,
                           DEVICE_GPUS_MAX - 1);
}

static bool is_wanted(const struct only *only, const json_t *row)
{
    const bool on =
        only->gpu == ONLY_ANY || json_has_int(json_object_get(row, "gpus"), (json_int_t)only->gpu);
    return on && (only->uid == ONLY_ANY || json_get_int(row, "uid") == (json_int_t)only->uid);
}

static void keep_only(const struct only *only, json_t *rows)
{
    for (size_t i = json_array_size(rows); i-- > 0;) {
        if (!is_wanted(only, json_array_get(rows, i)))
            json_array_remove(rows, i);
    }
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int get(bool brief, json_t **all, struct error *err)
{
    struct error left = {""};
    int r = client_ask_ps(brief, all, err);
    if (r != -ENOENT)
        return r;
    r = look_records(LOOK_REPAIR, all, &left, err);
    if (left.text[0])
        cli_error("%s", left.text);
    if (r == 0)
        cli_error("no daemon is running%s", json_array_size(json_object_get(*all, "jobs"))
                                                ? "; these are the jobs on record"
                                                : CLI_START);
    return r;
}

static int print(const json_t *all, bool json)
{
    if (json)
        return cli_print_json(all);
    _cleanup_json_ json_t *rows = json_copy(json_object_get(all, "jobs"));
    json_array_extend(rows, json_object_get(all, "others"));
    int status = CLI_OK;
    if (json_array_size(rows))
        status = print_table(rows, json_object_get(all, "gpus"));
    else
        puts(json_object_get(all, "others") ? "no jobs, and no GPU processes" : "no jobs");
    return status;
}

int ps_main(int argc, char **argv)
{
    bool json = false, others = false;
    struct only only = {ONLY_ANY, ONLY_ANY};
    const struct option_row options[] = {{"all", 'a', .flag = &others},
                                         {"json", .flag = &json},
                                         {"user", 'u', .read = cli_read_user, .to = &only.uid},
                                         {"gpu", .read = read_gpu, .to = &only.gpu}};
    const struct command_line line = {.program = "cede ps", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (others && optind < argc)
        return cli_usage("ps", "ps: -a takes no target");
    struct error err = {""};
    _cleanup_json_ json_t *all = NULL;
    if (get(!json, &all, &err) < 0)
        return cli_error("%s", err.text);
    status = optind < argc ? choose_jobs("ps", all, argv + optind, argc - optind) : CLI_OK;
    bool blind = others && look_others(all, &err) < 0; /* the jobs are shown anyway */
    if (blind)
        cli_error("cannot list the GPU processes that belong to no job: %s", err.text);
    keep_only(&only, json_object_get(all, "jobs"));
    keep_only(&only, json_object_get(all, "others"));
    /* Targets that were not found have been named already. */
    bool nothing = status == CLI_FAILED && !json && !json_array_size(json_object_get(all, "jobs"));
    if (status != CLI_USAGE && !nothing && print(all, json) != CLI_OK)
        status = CLI_FAILED;
    if (!json && optind == argc && only.uid == ONLY_ANY && only.gpu == ONLY_ANY)
        notes_unmanaged(all);
    if (!json) {
        notes_off(all);
        notes_slices(all);
        notes_jobs(json_object_get(all, "jobs"));
    }
    return blind ? CLI_FAILED : status;
}
