/* Starting, steering and ending the programs of a cell: see cell_impl.h. Measures nothing but how
 * long a verb took. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench/runner/cell_impl.h"

#define ENV_MAX   16
#define VERB_NS   (120 * NSEC_PER_SEC) /* swapping 64 GiB takes 24 s */
#define HELPER_NS (30 * NSEC_PER_SEC)

/* ---- command lines ---- */

/* A command line that is written to `f`, and then its words. */
struct args {
    FILE *f;
    char *text;
    size_t size;
    const char *v[TESTBED_ARGS];
    char *paths[TESTBED_ARGS]; /* those of v that were written as "@/..." */
};

static int args_begin(struct args *a, struct error *err)
{
    *a = (struct args){.f = NULL};
    a->f = open_memstream(&a->text, &a->size);
    return a->f ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* The text is complete: into words, at blanks. */
static int args_split(struct args *a, const struct bench *b, struct error *err)
{
    char *save = NULL;
    size_t n = 0;
    int failed = fclose(a->f);
    a->f = NULL;
    for (char *w = strtok_r(a->text, " ", &save); w && !failed; w = strtok_r(NULL, " ", &save)) {
        if (n + 1 == TESTBED_ARGS)
            return error_set(err, -E2BIG, "too many arguments");
        bool ours = strncmp(w, "@/", 2) == 0;
        failed = ours && asprintf(&a->paths[n], "%s/%s", b->programs, w + 2) < 0;
        a->v[n] = ours && !failed ? a->paths[n] : w;
        n++;
    }
    return failed ? error_set(err, -ENOMEM, "out of memory") : 0;
}

static void args_free(struct args *a)
{
    if (a->f)
        fclose(a->f);
    for (size_t i = 0; i < TESTBED_ARGS; i++)
        free(a->paths[i]);
    free(a->text);
}

/* ---- programs that serve: verbs, shell commands, MPS ---- */

/* A status other than 0 is -ECHILD, with the program's last words. */
int steer_helper(struct run *run, const char *name, const char *const *argv, const char *const *env,
                 uint64_t limit_ns, double *us, struct error *err)
{
    struct child *c = NULL;
    double start = clock_s();
    int r = testbed_program(&run->b->bed, CHILD_HELPER, name, argv, env, &c, err);
    if (r == 0)
        r = testbed_await_end(&run->b->bed, c, limit_ns, err);
    if (r < 0)
        return r;
    if (us)
        *us = (clock_s() - start) * 1e6;
    if (c->status) {
        char words[300];
        testbed_words(&run->b->bed, c, words, sizeof(words));
        words[strcspn(words, "\n")] = '\0';
        r = error_set(err, -ECHILD, "%s: status %d: %s", name,
                      WIFEXITED(c->status) ? WEXITSTATUS(c->status) : 128 + WTERMSIG(c->status),
                      words);
    }
    testbed_forget(&run->b->bed, c);
    return r;
}

int steer_shell(struct run *run, const char *name, const char *command, struct error *err)
{
    const char *argv[] = {"sh", "-c", command, NULL};
    return steer_helper(run, name, argv, NULL, HELPER_NS, NULL, err);
}

int steer_start_mps(struct run *run, struct error *err)
{
    char path[128];
    snprintf(run->pipe_dir, sizeof(run->pipe_dir), "%s/mps", run->b->bed.dir);
    if (mkdir(run->pipe_dir, 0700) < 0)
        return error_set(err, -errno, "cannot make %s: %s", run->pipe_dir, strerror(errno));
    const char *argv[] = {"nvidia-cuda-mps-control", "-f", NULL};
    const char *env[] = {"CUDA_MPS_PIPE_DIRECTORY", run->pipe_dir, "CUDA_MPS_LOG_DIRECTORY",
                         run->b->bed.dir, NULL};
    int r = testbed_program(&run->b->bed, CHILD_HELPER, "mps", argv, env, &run->helper, err);
    uint64_t deadline = monotonic_ns() + 10 * NSEC_PER_SEC;
    snprintf(path, sizeof(path), "%s/control", run->pipe_dir);
    while (r == 0 && access(path, F_OK) < 0) {
        char words[300];
        testbed_words(&run->b->bed, run->helper, words, sizeof(words));
        if (!run->helper->pid || monotonic_ns() >= deadline)
            return error_set(err, -EIO, "nvidia-cuda-mps-control does not start: %s", words);
        r = testbed_sleep(&run->b->bed, monotonic_ns() + 20 * NSEC_PER_MSEC, err);
    }
    return r;
}

void steer_stop_mps(struct run *run)
{
    const char *argv[] = {"sh", "-c", "echo quit -t 2 | nvidia-cuda-mps-control", NULL};
    const char *env[] = {"CUDA_MPS_PIPE_DIRECTORY", run->pipe_dir, NULL};
    if (run->helper && run->helper->pid)
        steer_helper(run, "mps-quit", argv, env, 10 * NSEC_PER_SEC, NULL, NULL);
}

/* ---- starting and steering roles ---- */

bool steer_by_run(const struct run *run, const struct role *role)
{
    return run->cede && (run->b->gated || role->options);
}

/* The software GPU's programs need queues that outlast any time this machine's CPUs are busy. */
static unsigned soft_depth(const char *load)
{
    const char *at = strstr(load, "--kernel-us");
    double us = at ? strtod(at + strlen("--kernel-us "), NULL) : 500;
    return us > 0 ? (unsigned)fmin(fmax(200000 / us, 2), 1000) : 2;
}

/* One of cede-load's roles. */
static void put_load(FILE *f, const struct run *run, const struct role *role, const char *name,
                     bool wrapped)
{
    const struct bench *b = run->b;
    const char *text = role->load;
    bool latency = strncmp(text, "latency", 7) == 0, batch = strncmp(text, "batch", 5) == 0;
    fprintf(f, wrapped ? "%s load" : "cede-load", b->exe);
    fprintf(f, " %s --device=%s --verify --name=%s --report=50", text, b->device, name);
    /* The software GPU's times are the device's own, whatever this host does. */
    if (latency && !b->soft && !strstr(text, "--period-us 0"))
        fputs(" --open", f);
    if ((latency || batch) && !strstr(text, "--iterations-per-us"))
        fprintf(f, " %s", b->rate_option);
    if (batch && b->soft && !strstr(text, "--depth") && !strstr(text, "--burst"))
        fprintf(f, " --depth=%u", soft_depth(text));
}

static int start_program(struct run *run, const struct role *role, const char *name,
                         const char *const *env, struct child **out, struct error *err)
{
    const char *wrap = run->x->wrap;
    bool by_run = steer_by_run(run, role);
    _cleanup_(args_free) struct args a;
    int r = args_begin(&a, err);
    if (r < 0)
        return r;
    if (by_run) {
        fprintf(a.f, "cede run --strict -n %s%s%s -- ", name, role->terms,
                role->options ? role->options : "");
    }
    fprintf(a.f, "%s ", wrap);
    if (role->program[0])
        fputs(role->program, a.f);
    else
        put_load(a.f, run, role, name, by_run || wrap[0]);
    r = args_split(&a, run->b, err);
    return r < 0 ? r : testbed_program(&run->b->bed, CHILD_LOAD, name, a.v, env, out, err);
}

/* Pairs of name and value, out of `lines`. */
static int program_env(const struct run *run, const struct role *role, char lines[PLAN_TEXT],
                       const char *env[2 * ENV_MAX + 1], struct error *err)
{
    size_t n = 0;
    char *save = NULL;
    if (run->mps) {
        env[n++] = "CUDA_MPS_PIPE_DIRECTORY";
        env[n++] = run->pipe_dir;
    }
    snprintf(lines, PLAN_TEXT, "%s", role->env);
    for (char *l = strtok_r(lines, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(l, '=');
        if (!eq || eq == l)
            return error_set(err, -EINVAL, "env: '%s' is not NAME=VALUE", l);
        if (n == 2 * (size_t)ENV_MAX)
            return error_set(err, -E2BIG, "env: more than %d variables", ENV_MAX);
        *eq = '\0';
        env[n++] = l;
        env[n++] = eq + 1;
    }
    env[n] = NULL;
    return 0;
}

int steer_start(struct run *run, const struct role *role, struct error *err)
{
    const char *env[2 * ENV_MAX + 1];
    char lines[PLAN_TEXT];
    struct child *started[PLAN_PROGRAMS];
    size_t count = (size_t)role->count;
    int r = program_env(run, role, lines, env, err);
    for (size_t i = 0; i < count && r == 0; i++) {
        char name[24];
        if (run->n == PLAN_PROGRAMS)
            return error_set(err, -E2BIG, "more than %d programs at once", PLAN_PROGRAMS);
        snprintf(name, sizeof(name), i ? "%.16s-%zu" : "%.16s", role->name, i + 1);
        r = start_program(run, role, name, env, &started[i], err);
        if (r == 0)
            run->v[run->n++] = (struct instance){.role = role, .child = started[i]};
    }
    return r < 0 ? r : testbed_await_work(&run->b->bed, started, count, role->ready, err);
}

int steer_daemon(struct run *run, struct error *err)
{
    char *conf = NULL;
    size_t size;
    FILE *f = open_memstream(&conf, &size);
    if (f) { /* programs of a bench do not size themselves by the memory that is free, and it
                measures what the driver's check would */
        fputs("[daemon]\nswap_start = 0\naccounts = no\ndriver_check = never\n", f);
        fputs(run->x->conf, f);
    }
    int r = !f || fclose(f) != 0 ? error_set(err, -ENOMEM, "out of memory")
                                 : testbed_daemon(&run->b->bed, run->b->driver, conf, err);
    free(conf);
    return r;
}

/* Runs a verb; its words are written. */
static int run_verb(struct run *run, struct args *a, struct error *err)
{
    double us = 0;
    int r = args_split(a, run->b, err);
    if (r == 0)
        r = steer_helper(run, "verb", a->v, NULL, VERB_NS, &us, err);
    json_object_set_new(run->verbs, "us", json_real(us));
    return r;
}

int steer_adopt(struct run *run, struct error *err)
{
    int r = 0;
    for (size_t i = 0; i < run->n && r == 0; i++) {
        if (steer_by_run(run, run->v[i].role))
            continue;
        _cleanup_(args_free) struct args a;
        r = args_begin(&a, err);
        if (r < 0)
            break;
        fprintf(a.f, "cede set %d%s", (int)run->v[i].child->pid, run->v[i].role->terms);
        r = run_verb(run, &a, err);
    }
    json_object_clear(run->verbs); /* one for each program: no figure */
    return r;
}

/* ---- steps of a phase ---- */

static int steer_pause_or_resume(struct run *run, const char *op, const struct role *role,
                                 struct error *err)
{
    double sum = 0;
    unsigned n = 0;
    int r = 0;
    for (size_t i = 0; i < run->n && r == 0; i++) {
        char text[96];
        double us = 0;
        if (run->v[i].role != role)
            continue;
        snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"%s\",\"target\":\"%d\"}", op,
                 (int)run->v[i].child->pid);
        r = testbed_request(&run->b->bed, text, &us, NULL, err);
        sum += us;
        n++;
    }
    char key[32];
    snprintf(key, sizeof(key), "%.20s_us", op);
    if (n)
        json_object_set_new(run->verbs, key, json_real(sum / n));
    return r;
}

int steer_stop(struct run *run, const struct role *role, struct error *err)
{
    struct child *v[PLAN_PROGRAMS] = {NULL};
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < run->n; i++) {
        if (role && run->v[i].role != role)
            run->v[kept++] = run->v[i];
        else
            v[n++] = run->v[i].child;
    }
    run->n = kept;
    int r = testbed_stop(&run->b->bed, v, n, err);
    for (size_t i = 0; i < n && r == 0; i++) {
        run->b->verified &= v[i]->series.verified;
        if (v[i]->series.harmed)
            r = error_set(err, -EBADMSG, "%s: a result was wrong", v[i]->name);
    }
    return r;
}

/* A line with the pids of a role's programs in place of {role}. */
static int put_pids(FILE *f, const struct run *run, const char *line, struct error *err)
{
    while (*line) {
        size_t plain = strcspn(line, "{"), inner = strcspn(line + plain, "}");
        char name[24];
        fprintf(f, "%.*s", (int)plain, line);
        line += plain;
        if (!*line)
            break;
        snprintf(name, sizeof(name), "%.*s", (int)inner - 1, line + 1);
        const struct role *role = plan_role(run->x, name);
        if (!role || !line[inner])
            return error_set(err, -EINVAL, "neither a role nor an expression over the axes: '%s'",
                             line);
        for (size_t i = 0; i < run->n; i++) {
            if (run->v[i].role == role)
                fprintf(f, "%d ", (int)run->v[i].child->pid);
        }
        line += inner + 1;
    }
    return 0;
}

int steer_step(struct run *run, const char *line, struct error *err)
{
    char word[24] = "", name[24] = "";
    sscanf(line, "%23s %23s", word, name);
    const struct role *role = plan_role(run->x, name);
    if (strcmp(word, "wait") == 0)
        return 0;
    if (role && strcmp(word, "start") == 0)
        return steer_start(run, role, err);
    if (role && strcmp(word, "stop") == 0)
        return steer_stop(run, role, err);
    int r = run->b->bed.daemon ? 0 : steer_daemon(run, err);
    if (r < 0)
        return r;
    if (role && (strcmp(word, "pause") == 0 || strcmp(word, "resume") == 0))
        return steer_pause_or_resume(run, word, role, err);
    _cleanup_(args_free) struct args a;
    r = args_begin(&a, err);
    if (r < 0)
        return r;
    fputs("cede ", a.f);
    r = put_pids(a.f, run, line, err);
    return r < 0 ? r : run_verb(run, &a, err);
}
