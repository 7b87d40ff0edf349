/* `cede advise -- COMMAND -- COMMAND`: starts programs by `cede run`, and ends them. They get the
 * signal TERM when this process ends, however it ends. See advise.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cli_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/advise.h"
#include "cli/cells.h"
#include "cli/cli.h"
#include "cli/last_output.h"
#include "memory/pool/files.h"
#include "memory/pool/pool.h"

#define BEGINS_S 600                 /* until a program works on the GPU */
#define WORKED_S 3.0                 /* of engine time, after which its beginning is over, */
#define WORKS_NS (20 * NSEC_PER_SEC) /* or so long since it began to work */
#define ENDS_NS  (15 * NSEC_PER_SEC) /* `cede run` ends leftovers for 10 s */
#define WORDS    256
#define SHOWN    1000 /* bytes of what a program printed */

struct started {
    struct advise *a;
    char **words[ADVICE_JOBS]; /* each ends with NULL */
    pid_t pids[ADVICE_JOBS];   /* of `cede run`; 0: none */
    bool pooled;
    uint64_t started_ns;
    uint64_t works_ns[ADVICE_JOBS];  /* when each began to work on the GPU outside of a pool, */
    uint64_t begins_ns[ADVICE_JOBS]; /* and how long its beginning took */
    struct last_output outputs[ADVICE_JOBS];
};

/* "2:train.py" for "python3 train.py": a script says more than its interpreter. */
static void name_of(char *const *words, uint32_t i, char name[static 64])
{
    const char *word =
                   words[1] && strchr(words[1], '.') && words[1][0] != '-' ? words[1] : words[0],
               *slash = strrchr(word, '/');
    snprintf(name, 64, "%u:%s", i + 1, slash ? slash + 1 : word);
    text_show(name);
}

/* The commands, in place. */
static int read_commands(struct started *s, char **words, int n, struct error *err)
{
    struct advise *a = s->a;
    s->words[0] = words;
    for (int i = 0; i <= n; i++) {
        if (i < n && strcmp(words[i], "--") != 0)
            continue;
        if (a->n == ADVICE_JOBS || s->words[a->n] == words + i ||
            words + i - s->words[a->n] > WORDS)
            return error_set(err, -EINVAL,
                             "2 to %d commands of at most %d words are needed, each "
                             "after --",
                             ADVICE_JOBS, WORDS);
        words[i] = NULL;
        name_of(s->words[a->n], a->n, a->jobs[a->n].name);
        a->n++;
        if (i < n && a->n < ADVICE_JOBS)
            s->words[a->n] = words + i + 1;
    }
    if (a->aim.is == AIM_PROTECT && a->aim.protect >= a->n)
        return error_set(err, -EINVAL, "--aim protect:%u: there are only %u commands",
                         a->aim.protect + 1, a->n);
    if (a->n < 2)
        return error_set(err, -EINVAL,
                         "one command alone has nothing to share a GPU with: "
                         "give another one after --");
    a->parts_sm = 100 / a->n;
    return 0;
}

/* The end of what a program printed. */
static void show_last(struct last_output *o, const char *name)
{
    char text[SHOWN + 1];
    if (o->kept && last_output_text(o, text, sizeof(text))[0])
        fprintf(stderr, "%s printed last:\n%s\n", name, text);
}

static int start_one(struct started *s, uint32_t i, enum arrangement is, struct error *err)
{
    const char *argv[WORDS + 10] = {"cede", "run", "-c", "batch", "--kill-leftovers"};
    char sm[16];
    unsigned n = 5;
    if (is >= ARRANGE_TURNS) {
        argv[n++] = "--pool";
        argv[n++] = "--strict";
    }
    if (is == ARRANGE_PARTS) {
        snprintf(sm, sizeof(sm), "--sm=%u", s->a->parts_sm);
        argv[n++] = sm;
    }
    argv[n++] = "--";
    for (char **w = s->words[i]; *w; w++)
        argv[n++] = *w;
    int code = child_start(
        &(struct child_spec){.argv = argv,
                             .file = CHILD_SELF,
                             .fds = {{-1, 0}, {s->outputs[i].write, 1}, {s->outputs[i].write, 2}},
                             .group = true,
                             .death_signal = SIGTERM},
        &s->pids[i]);
    return code < 0 ? error_set(err, code, "cannot start %s: %s", s->words[i][0], strerror(-code))
                    : 0;
}

/* It stays a zombie, so that its group's number is not used again. */
static bool ended_with(pid_t pid, siginfo_t *info)
{
    *info = (siginfo_t){.si_pid = 0};
    return waitid(P_PID, (id_t)pid, info, WEXITED | WNOHANG | WNOWAIT) != 0 || info->si_pid;
}

static bool has_ended(pid_t pid)
{
    siginfo_t info;
    return ended_with(pid, &info);
}

/* Ends all; those that do not end by TERM are killed, also what is left of their groups. */
static void end_all(struct started *s)
{
    const uint64_t until = monotonic_ns() + ENDS_NS;
    for (uint32_t i = 0; i < s->a->n; i++) {
        if (s->pids[i])
            kill(-s->pids[i], SIGTERM);
    }
    for (uint32_t i = 0; i < s->a->n; i++) {
        while (s->pids[i] && !has_ended(s->pids[i])) {
            if (monotonic_ns() > until)
                kill(-s->pids[i], SIGKILL);
            usleep(20000);
        }
        if (s->pids[i]) { /* the number is in use until then */
            kill(-s->pids[i], SIGKILL);
            waitpid(s->pids[i], NULL, 0);
        }
        s->pids[i] = 0;
    }
}

/* Of a job. */
static double worked_s(const json_t *job)
{
    double sum = 0;
    for_each_json (g, json_object_get(json_object_get(job, "counts"), "gpus"))
        sum += json_get_number(g, "gpu_s");
    return sum;
}

/* The job of `cede run`. NULL: not there yet. */
static const json_t *job_of(const json_t *all, pid_t runner)
{
    for_each_json (job, json_object_get(all, "jobs")) {
        if (json_get_int(job, "pid") == runner)
            return job;
    }
    return NULL;
}

/* Takes the number and GPU of a program's job. Whether its beginning is over. The engine time of
 * clients of an MPS server is the server's, so in a pool it takes as long as the first time. */
static bool take_begun(struct started *s, const json_t *all, uint32_t i)
{
    const uint64_t now = monotonic_ns();
    const json_t *job = job_of(all, s->pids[i]), *gpus = json_object_get(job, "gpus");
    if (!job || json_array_size(gpus) != 1)
        return false;
    const double worked = worked_s(job);
    s->a->jobs[i].number = (uint64_t)json_get_int(job, "number");
    s->a->jobs[i].memory_bytes = (uint64_t)json_get_int(job, "memory_bytes");
    s->a->trial.gpu = (unsigned)json_integer_value(json_array_get(gpus, 0));
    if (s->pooled)
        return now >= s->started_ns + s->begins_ns[i];
    if (!s->works_ns[i] && worked > 0)
        s->works_ns[i] = now;
    if (!s->works_ns[i] || (worked < WORKED_S && now < s->works_ns[i] + WORKS_NS))
        return false;
    s->begins_ns[i] = s->begins_ns[i] ? s->begins_ns[i] : now - s->started_ns;
    return true;
}

/* Waits until all work as they go on to. */
static int wait_begun(struct started *s, struct client *c, bool *pools, struct error *err)
{
    const uint64_t until = monotonic_ns() + BEGINS_S * NSEC_PER_SEC;
    siginfo_t info;
    for (bool begun = false; !begun;) {
        _cleanup_json_ json_t *all = NULL;
        usleep(200000);
        begun = true;
        for (uint32_t i = 0; i < s->a->n; i++) {
            if (ended_with(s->pids[i], &info))
                return error_set(err, -ESRCH,
                                 "%s has ended with %s %d after %.1f s: a command is needed that "
                                 "works on the GPU for some 20 s",
                                 s->a->jobs[i].name,
                                 info.si_code == CLD_EXITED ? "status" : "signal", info.si_status,
                                 (double)(monotonic_ns() - s->started_ns) / NSEC_PER_SEC);
        }
        int code = client_ps(c, false, &all, err);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < s->a->n; i++)
            begun &= take_begun(s, all, i);
        if (begun && !s->a->nrows && !s->a->others[0])
            advise_others(s->a, all);
        *pools = cell_has_cap(json_object_get(all, "gpus"), s->a->trial.gpu, "pool");
        if (monotonic_ns() > until)
            return error_set(err, -ETIMEDOUT, "not all have worked on one GPU within %d s",
                             BEGINS_S);
    }
    return 0;
}

/* Before anything is started: -ENOTSUP if no GPU has counters; says which jobs are in the way. */
static int look_first(struct advise *a, struct client *c, struct error *err)
{
    _cleanup_json_ json_t *all = NULL;
    const int code = client_ps(c, false, &all, err);
    const json_t *gpus = json_object_get(all, "gpus");
    if (json_array_size(gpus) == 1)
        advise_others(a, all);
    for_each_json (gpu, gpus) {
        if (cell_has_cap(gpus, json_get_int(gpu, "index"), "counters"))
            return 0;
    }
    return code ? code
                : error_set(err, -ENOTSUP,
                            "no GPU here has counters that say what its parts do, as NVIDIA GPUs "
                            "from Hopper on have: " ADVISE_INSTEAD);
}

/* Starts all for an arrangement, and measures it. */
static int measure_started(struct started *s, struct client *c, enum arrangement is, bool *pools,
                           struct error *err)
{
    struct advise *a = s->a;
    uint64_t jobs[ADVICE_JOBS];
    int code = 0;
    advise_progress("starting for: %s", advise_name(a, is));
    s->pooled = is >= ARRANGE_TURNS;
    s->started_ns = monotonic_ns();
    for (uint32_t i = 0; i < a->n && code == 0; i++)
        code = start_one(s, i, is, err);
    code = code == 0 ? wait_begun(s, c, pools, err) : code;
    for (uint32_t i = 0; i < a->n; i++)
        jobs[i] = a->jobs[i].number;
    if (code == 0) {
        code = trial_open(&a->trial, a->trial.gpu, jobs, a->n, err);
        code = code == 0 && is == ARRANGE_AS_IS ? advise_alone(a, false, err) : code;
        code = code == 0 ? advise_row(a, is, 0, err) : code;
        if (code == 0 && is == ARRANGE_AS_IS) {
            code = advise_first(a, err);
            code = code == 0 ? advise_alone(a, true, err) : code;
        }
        code = code == 0 ? advise_speeds(a, err) : code;
        if (code == 0 && is == ARRANGE_TOGETHER) {
            code = code == 0 ? advise_remember(a, &a->rows[a->nrows - 1], err) : code;
        }
        trial_close(&a->trial);
    }
    advise_progress("ending the programs");
    end_all(s);
    return code;
}

/* Why no program can be in a pool; NULL: one can. */
static const char *no_pool(void)
{
    const char *other = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[PATH_MAX];
    return other && *other                                ? "CUDA_MPS_PIPE_DIRECTORY is set"
           : !pool_find_control(control, sizeof(control)) ? "there is no " POOL_CONTROL " in $PATH"
                                                          : NULL;
}

int advise_started(struct advise *a, char **commands, int n, struct error *err)
{
    static const enum arrangement all[] = {ARRANGE_AS_IS, ARRANGE_TOGETHER, ARRANGE_PARTS};
    struct started s = {.a = a};
    struct client c = {.fd = -1};
    bool pools = false;
    int code = read_commands(&s, commands, n, err);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < a->n && code == 0; i++)
        code = last_output_open(&s.outputs[i], err);
    a->starts = true;
    code = code == 0 ? client_open(&c, err) : code;
    if (code == -ENOENT)
        error_set(err, code,
                  "no daemon is running; `systemctl start ceded`, or `ceded &` for your "
                  "own programs");
    code = code == 0 ? look_first(a, &c, err) : code;
    const char *why = code == 0 ? no_pool() : NULL;
    if (why)
        cli_error("not tried: a pool: %s", why);
    for (size_t i = 0; i < ARRAY_SIZE(all) && code == 0 && (i == 0 || (pools && !why)); i++)
        code = measure_started(&s, &c, all[i], &pools, err);
    if (code == 0 && !pools && !why)
        cli_error("not tried: a pool: MPS does not work on GPU %u in its mode (MIG, compute mode)",
                  a->trial.gpu);
    end_all(&s);
    client_close(&c);
    for (uint32_t i = 0; i < a->n; i++) {
        if (code < 0 && code != -ENODATA)
            show_last(&s.outputs[i], a->jobs[i].name);
        last_output_close(&s.outputs[i]);
    }
    if (code < 0 && code != -ENODATA && a->nrows) { /* what was measured before counts */
        cli_error("%s", err->text);
        code = 0;
    }
    return code == 0 ? advise_speeds(a, err) : code;
}
