/* `cede ps`: the jobs, from the daemon or, where none runs, from what the last one wrote down.
 * Changes nothing, but that programs which a killed scheduler left suspended run again. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cli/cells.h"
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/direct.h"
#include "cli/notes.h"
#include "cli/targets.h"
#include "cli/users.h"
#include "control/replies.h"
#include "device/registry.h"
#include "lib/json_text.h"
#include "lib/paths.h"
#include "lib/procfs.h"
#include "lib/schedulers.h"
#include "lib/text.h"
#include "model/model.h"
#include "recovery/journal.h"

static const char help[] =
    "usage: cede ps [-a] [--json] [TARGET...]\n"
    "\n"
    "Shows the jobs, or those that TARGETs (pid, job's number '#12' or %12, name or\n"
    "USER/name) belong to.\n"
    "\n"
    "  -a, --all   also the processes that use a GPU and belong to no job\n"
    "      --json  one object: {\"jobs\": [...], \"daemon\": true, ...}\n"
    "  -h, --help  this text\n"
    "\n"
    "STATE   running\n"
    "        waiting    suspended until its turn\n"
    "        throttled  suspended for some seconds, as a latency job leaves only short gaps\n"
    "        paused     by `cede pause`\n"
    "        stopped    by ^Z or a debugger (programs that hold their own work)\n"
    "        queued     waits, before it starts, for the GPU memory that it will take\n"
    "        starting   has not opened a GPU yet\n"
    "        swapped    in host memory; swapping-out and swapping-in on the way\n"
    "LEVEL   where a job that has to wait is stopped: in its running work (hardware), at the next\n"
    "        piece of a kernel (slice) or at the next submission (gate)\n"
    "SLICE   its timeslice; - is the driver's default\n"
    "BUSY    GPU time lately; 100% is a whole GPU\n"
    "SPEED   beside others in its MPS server, of what it is alone; ... is being measured,\n"
    "        ? cannot be told\n"
    "MEM     GPU memory; after / what it said with cede run, while it waits for that or when it "
    "has\n"
    "        taken more\n";

/* ---- where the jobs come from ---------------------------------------------------------------- */

/* The journal holds only what was changed, so a group that it does not show runs as it always did.
 * A job counts as paused if something of it is still suspended or stopped: a restorer may have been
 * there. */
static json_t *from_journal_job(const struct journal *j, const struct journal_job *rec)
{
    struct job_view v = {.number = rec->number, .job = *rec, .busy = -1};
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (!g || !proc_alive(g->proc) || !proc_in_tree(g->proc.pid, rec->root.pid))
            continue;
        v.groups++;
        v.gpus |= g->gpu < 32 ? 1U << g->gpu : 0;
        job_view_level(&v, g);
        v.runnable_groups += !(flags & (JG_SUSPENDED | JG_STOPPED));
    }
    v.job.paused = v.groups > v.runnable_groups;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *s = journal_swap(j, i);
        if (s && proc_alive(s->proc) && proc_in_tree(s->proc.pid, rec->root.pid))
            v.swap = s->arrived ? "swapped" : "swapping-in";
    }
    json_t *job = job_json(&v);
    if (job && !v.job.paused && !v.swap)
        json_object_set_new(job, "state", json_string("running"));
    return job;
}

static void repair(const char *dir)
{
    struct error err = {""};
    int r = direct_repair(dir, &err);
    if (r == 0)
        cli_error("programs that a killed scheduler had left suspended run again now");
    else if (r != -EBUSY) /* else another process does it */
        cli_error(
            "programs that a killed scheduler had left suspended stay so: %s; start ceded, or "
            "`cede resume` them",
            err.text);
}

static int from_journal(json_t **out, struct error *err)
{
    json_t *jobs = json_array();
    char dir[512];
    for (unsigned i = 0; cede_socket_at(i, dir, sizeof(dir)); i++) {
        char *slash = strrchr(dir, '/');
        if (slash)
            *slash = '\0';
        struct journal *j;
        int r = journal_open_readonly(dir, &j, err);
        if (r == 0 && direct_abandoned(j)) {
            journal_close(j);
            repair(dir);
            r = journal_open_readonly(dir, &j, err);
        }
        if (r == -ENOENT)
            continue;
        if (r < 0) {
            json_decref(jobs);
            return r;
        }
        for (uint32_t k = 0; k < journal_jobs_end(j); k++) {
            const struct journal_job *rec = journal_job(j, k);
            if (rec && proc_alive(rec->root))
                json_array_append_new(jobs, from_journal_job(j, rec));
        }
        journal_close(j);
    }
    *out = json_pack("{s:o, s:b}", "jobs", jobs, "daemon", 0);
    return *out ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* ---- GPU processes that belong to no job: what a person could adopt ----------------------------
 */

static bool in_a_job(const json_t *jobs, pid_t pid)
{
    const json_t *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        if (proc_in_tree(pid, (pid_t)json_get_int(job, "pid")))
            return true;
    }
    return false;
}

static json_t *other(pid_t pid, const struct usage_list *usage)
{
    struct proc_stat st;
    uid_t uid;
    if (proc_stat_read(pid, &st) < 0 || proc_owner(pid, &uid) < 0)
        return NULL;
    /* Scheduling is no use of the GPU. */
    if (pid == getpid() || proc_is_scheduler(&st, uid))
        return NULL;
    text_printable(st.comm);
    json_t *gpus = json_array();
    uint64_t memory = 0;
    for (size_t i = 0; i < usage->n; i++) {
        if (usage->v[i].pid != pid)
            continue;
        json_array_append_new(gpus, json_integer(usage->v[i].gpu));
        memory += usage->v[i].memory_bytes;
    }
    return json_pack("{s:i, s:s, s:I, s:o, s:I}", "pid", (int)pid, "name", st.comm, "uid",
                     (json_int_t)uid, "gpus", gpus, "memory_bytes", (json_int_t)memory);
}

/* Adds "others" to an object with "jobs". Opens the GPU's driver; processes that the caller may not
 * look into may be missing. */
static int others_add(json_t *all, struct error *err)
{
    struct device_driver *d;
    int r = device_open("auto", NULL, &d, err);
    if (r < 0)
        return r;
    struct pid_list pids = {0};
    struct usage_list usage = {0};
    json_t *others = json_array();
    r = d->ops->processes(d, &pids, err);
    if (r == 0 && d->ops->usage)
        d->ops->usage(d, &usage, NULL);
    for (size_t i = 0; r == 0 && i < pids.n; i++) {
        json_t *o = NULL;
        if (!in_a_job(json_object_get(all, "jobs"), pids.v[i]))
            o = other(pids.v[i], &usage);
        if (o)
            json_array_append_new(others, o);
    }
    json_object_set_new(all, "others", others);
    pid_list_free(&pids);
    usage_list_free(&usage);
    device_close(d);
    return r;
}

/* ---- table ----------------------------------------------------------------------------------- */

static const struct {
    const char *title;
    bool right;
} columns[COLUMNS] = {
    [JOB] = {"JOB", true},       [PID] = {"PID", true},        [CLASS] = {"CLASS", false},
    [WEIGHT] = {"WEIGHT", true}, [LIMITS] = {"LIMITS", false}, [BUDGET] = {"BUDGET", true},
    [STATE] = {"STATE", false},  [GPU] = {"GPU", false},       [LEVEL] = {"LEVEL", false},
    [SLICE] = {"SLICE", true},   [BUSY] = {"BUSY", true},      [SPEED] = {"SPEED", true},
    [MEM] = {"MEM", true},       [USER] = {"USER", false},     [NAME] = {"NAME", false},
};

/* Columns of a terminal; 0: not one, so nothing is cut. */
static unsigned terminal_width(void)
{
    struct winsize w;
    return isatty(1) && ioctl(1, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

/* Bytes of s that fill at most `width` columns, one for a character. */
static int cut(const char *s, size_t width)
{
    size_t n = 0;
    for (size_t w = 0; s[n]; n++) {
        if (((unsigned char)s[n] & 0xc0) != 0x80 && w++ == width)
            break;
    }
    return (int)n;
}

static void print_row(char cell[COLUMNS][CELL], const size_t width[COLUMNS], unsigned terminal)
{
    size_t used = 0;
    for (size_t c = 0; c < NAME; c++) {
        if (!width[c])
            continue;
        printf(columns[c].right ? "%*s  " : "%-*s  ", (int)width[c], cell[c]);
        used += width[c] + 2;
    }
    size_t room = terminal == 0 ? CELL : terminal > used + 8 ? terminal - used : 8;
    printf("%.*s\n", cut(cell[NAME], room), cell[NAME]);
}

/* Whether there are several kinds of devices. */
static bool mixed(const json_t *devices)
{
    const char *first = NULL;
    const json_t *device;
    size_t i;
    json_array_foreach(devices, i, device)
    {
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
    if (!cells) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        snprintf(cells[0][c], CELL, "%s", columns[c].title);
        width[c] = strlen(columns[c].title);
    }
    const json_t *job;
    bool labels = mixed(devices);
    bool budgets = false, limits = false, speeds = false, users = false;
    json_array_foreach(rows, k, job)
    {
        cells_of(job, devices, labels, cells[k + 1]);
        budgets |= json_get_int(job, "budget_us") > 0;
        limits |= json_get_int(job, "gpu_min") > 0 || json_get_int(job, "gpu_max") > 0;
        speeds |= strcmp(cells[k + 1][SPEED], "-") != 0;
        users |= user_is_other(job);
        for (size_t c = 0; c < COLUMNS; c++)
            width[c] = max_u64(width[c], strlen(cells[k + 1][c]));
    }
    if (!budgets)
        width[BUDGET] = 0; /* most have none: no column */
    if (!limits)
        width[LIMITS] = 0;
    if (!speeds)
        width[SPEED] = 0;
    if (!users)
        width[USER] = 0;
    unsigned terminal = terminal_width();
    for (k = 0; k <= n; k++)
        print_row(cells[k], width, terminal);
    free(cells);
    fflush(stdout);
    json_array_foreach(rows, k, job)
    {
        const char *e = json_get_text(job, "error");
        bool swap = json_equal(json_object_get(job, "error"), json_object_get(job, "swap_error"));
        if (e)
            cli_error("#%lld: %s%s", (long long)json_get_int(job, "number"),
                      swap ? "not swapped: " : "", e);
    }
    return CLI_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int get(json_t **all, struct error *err)
{
    struct client c;
    int r = client_open(&c, err);
    if (r == 0) {
        r = client_ps(&c, all, err);
        client_close(&c);
    } else if (r == -ENOENT) {
        r = from_journal(all, err);
        if (r == 0)
            cli_error("no daemon is running%s", json_array_size(json_object_get(*all, "jobs"))
                                                    ? "; these are the jobs on record"
                                                    : "");
    }
    return r;
}

static int print(const json_t *all, bool json)
{
    if (json)
        return cli_print_json(all);
    json_t *rows = json_copy(json_object_get(all, "jobs"));
    json_array_extend(rows, json_object_get(all, "others"));
    int status = CLI_OK;
    if (json_array_size(rows))
        status = print_table(rows, json_object_get(all, "gpus"));
    else
        puts(json_object_get(all, "others") ? "no jobs, and no GPU processes" : "no jobs");
    json_decref(rows);
    return status;
}

int ps_main(int argc, char **argv)
{
    bool json = false, others = false;
    const struct option_row options[] = {{"all", 'a', .flag = &others}, {"json", .flag = &json}};
    const struct command_line line = {.program = "cede ps", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (others && optind < argc)
        return cli_usage("ps", "ps: -a takes no target");
    struct error err = {""};
    json_t *all = NULL;
    if (get(&all, &err) < 0) {
        cli_error("%s", err.text);
        json_decref(all);
        return CLI_FAILED;
    }
    status = optind < argc ? choose_jobs("ps", all, argv + optind, argc - optind) : CLI_OK;
    bool blind = others && others_add(all, &err) < 0; /* the jobs are shown anyway */
    if (blind)
        cli_error("cannot list the GPU processes that belong to no job: %s", err.text);
    /* Targets that were not found have been named already. */
    bool nothing = status == CLI_FAILED && !json && !json_array_size(json_object_get(all, "jobs"));
    if (status != CLI_USAGE && !nothing && print(all, json) != CLI_OK)
        status = CLI_FAILED;
    if (!json && optind == argc)
        notes_unmanaged(all);
    if (!json)
        notes_jobs(json_object_get(all, "jobs"));
    status = blind ? CLI_FAILED : status;
    json_decref(all);
    return status;
}
