/* Starting, steering and ending the programs of a cell: see cell_impl.h. Measures nothing but how
 * long a verb took. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench/cell_impl.h"

#define ENV_MAX   16
#define VERB_NS   (120 * NSEC_PER_SEC) /* swapping 64 GiB takes 24 s */
#define HELPER_NS (30 * NSEC_PER_SEC)
#define REPORT    "--report=50"

/* ---- argument lists ---- */

struct args {
    const char *v[TESTBED_ARGS];
    size_t n;
    char *text[TESTBED_ARGS]; /* owned */
    size_t ntext;
    bool full;
};

static void args_free(struct args *a)
{
    for (size_t i = 0; i < a->ntext; i++)
        free(a->text[i]);
}

/* Words of the formatted text, split at blanks. */
static void args_add(struct args *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void args_add(struct args *a, const char *fmt, ...)
{
    char *text = NULL, *save = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0 || a->ntext == TESTBED_ARGS) {
        a->full = true;
        if (n >= 0)
            free(text);
        return;
    }
    a->text[a->ntext++] = text;
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        a->full |= a->n + 1 >= TESTBED_ARGS;
        if (!a->full)
            a->v[a->n++] = w;
    }
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
    char text[SCENARIO_TEXT];
    const char *argv[] = {"sh", "-c", text, NULL};
    int r = scenario_expand_shell(run->s, run->x->point, command, text, sizeof(text), err);
    return r < 0 ? r : steer_helper(run, name, argv, NULL, HELPER_NS, NULL, err);
}

int steer_start_mps(struct run *run, struct error *err)
{
    char path[128];
    snprintf(run->pipe_dir, sizeof(run->pipe_dir), "%s/mps", run->b->bed.dir);
    snprintf(run->log_dir, sizeof(run->log_dir), "%s", run->b->bed.dir);
    if (mkdir(run->pipe_dir, 0700) < 0)
        return error_set(err, -errno, "cannot make %s: %s", run->pipe_dir, strerror(errno));
    const char *argv[] = {"nvidia-cuda-mps-control", "-f", NULL};
    const char *env[] = {"CUDA_MPS_PIPE_DIRECTORY", run->pipe_dir, "CUDA_MPS_LOG_DIRECTORY",
                         run->log_dir, NULL};
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

static const char *load_text(const struct bench *b, const struct role *role)
{
    return b->soft && role->soft[0] ? role->soft : role->load;
}

/* The software GPU's programs need queues that outlast any time this machine's CPUs are busy. */
static unsigned soft_depth(const char *load)
{
    const char *at = strstr(load, "--kernel-us");
    double us = at ? strtod(at + strlen("--kernel-us "), NULL) : 500;
    return us > 0 ? (unsigned)fmin(fmax(200000 / us, 2), 1000) : 2;
}

static int program_args(struct run *run, const struct role *role, const char *name,
                        struct args *out, struct error *err)
{
    const struct bench *b = run->b;
    const struct config *c = run->x->config;
    char text[SCENARIO_TEXT];
    int r = scenario_expand(run->s, run->x->point,
                            role->program[0] ? role->program : load_text(b, role), text,
                            sizeof(text), err);
    if (r < 0)
        return r;
    bool gated = b->gated && run->base == BASE_CEDE;
    if (gated) {
        char set[SCENARIO_TEXT];
        r = steer_set_text(run->x, role, set, sizeof(set), err);
        if (r < 0)
            return r;
        args_add(out, "cede run --strict %s --", set);
    }
    if (c && c->wrap[0]) {
        char wrap[SCENARIO_TEXT];
        r = scenario_expand(run->s, run->x->point, c->wrap, wrap, sizeof(wrap), err);
        if (r < 0)
            return r;
        args_add(out, "%s", wrap);
    }
    if (role->program[0]) {
        args_add(out, "%s", text);
        for (size_t i = 0; i < out->n && out->ntext < TESTBED_ARGS; i++) {
            char *path = NULL;
            if (strncmp(out->v[i], "@/", 2) == 0 &&
                asprintf(&path, "%s/%s", b->programs, out->v[i] + 2) >= 0)
                out->v[i] = out->text[out->ntext++] = path;
        }
    } else {
        bool latency = strncmp(text, "latency", 7) == 0, batch = strncmp(text, "batch", 5) == 0;
        args_add(out, gated || (c && c->wrap[0]) ? "%s load" : "cede-load", b->exe);
        args_add(out, "%s --device=%s --verify --name=%s " REPORT, text, b->device, name);
        if (latency && !b->soft) /* its times are the device's own, whatever this host does */
            args_add(out, "--open");
        if ((latency || batch) && b->rate_option[0] && !strstr(text, "--iterations-per-us"))
            args_add(out, "%s", b->rate_option);
        if (batch && b->soft && !strstr(text, "--depth"))
            args_add(out, "--depth=%u", soft_depth(text));
    }
    return out->full ? error_set(err, -E2BIG, "too many arguments for %s", name) : 0;
}

int steer_start(struct run *run, const struct role *role, struct error *err)
{
    const struct config *c = run->x->config;
    double count;
    int r =
        scenario_number(run->s, run->x->point, run->x->alone ? "" : role->count, 1, &count, err);
    if (r < 0)
        return r;
    struct child *started[SCENARIO_PROGRAMS];
    size_t first = run->n;
    for (unsigned i = 0; i < (unsigned)count && r == 0; i++) {
        struct args args = {.n = 0};
        scenario_name name;
        const char *env[2 * ENV_MAX + 1] = {NULL};
        size_t nenv = 0;
        if (run->n == SCENARIO_PROGRAMS)
            return error_set(err, -E2BIG, "more than %d programs at once", SCENARIO_PROGRAMS);
        snprintf(name, sizeof(name), i ? "%.16s-%u" : "%.16s", role->name, i + 1);
        if (run->base == BASE_MPS) {
            env[nenv++] = "CUDA_MPS_PIPE_DIRECTORY";
            env[nenv++] = run->pipe_dir;
            /* 0 is the normal, and highest, priority of a client */
            env[nenv++] = "CUDA_MPS_CLIENT_PRIORITY";
            env[nenv++] = strcmp(role->class, "batch") == 0 ? "1" : "0";
        }
        char lines[SCENARIO_TEXT], *save = NULL;
        r = scenario_expand(run->s, run->x->point, c ? c->env : "", lines, sizeof(lines), err);
        if (r < 0)
            return r;
        for (char *l = strtok_r(lines, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
            char *eq = strchr(l, '=');
            if (!eq || eq == l)
                return error_set(err, -EINVAL, "env: '%s' is not NAME=VALUE", l);
            if (nenv + 2 >= ARRAY_SIZE(env))
                return error_set(err, -E2BIG, "env: more than %d variables", ENV_MAX);
            *eq = '\0';
            env[nenv++] = l;
            env[nenv++] = eq + 1;
        }
        r = program_args(run, role, name, &args, err);
        struct child *child = NULL;
        if (r == 0)
            r = testbed_program(&run->b->bed, CHILD_LOAD, name, args.v, env, &child, err);
        if (r == 0)
            started[run->n - first] = child;
        if (r == 0)
            run->v[run->n++] = (struct instance){.role = role, .child = child};
        args_free(&args);
    }
    return r < 0 ? r : testbed_await_work(&run->b->bed, started, run->n - first, role->ready, err);
}

static int verb(struct run *run, struct args *a, struct error *err)
{
    double us = 0;
    int r = a->full ? error_set(err, -E2BIG, "too many arguments for a verb") : 0;
    if (r == 0)
        r = steer_helper(run, "verb", a->v, NULL, VERB_NS, &us, err);
    json_object_set_new(run->verbs, "us", json_real(us));
    return r;
}

/* A role's class and weight, and the configuration's options for it. */
int steer_set_text(const struct session *x, const struct role *role, char *buf, size_t size,
                   struct error *err)
{
    char line[SCENARIO_TEXT], extra[SCENARIO_TEXT] = "";
    double weight;
    int r = scenario_number(x->s, x->point, role->weight, 0, &weight, err);
    size_t n = (size_t)snprintf(buf, size, "-c %s", role->class[0] ? role->class : "normal");
    if (weight > 0)
        n += (size_t)snprintf(buf + n, size - n, " -w %.0f", weight);
    const char *lists[] = {role->set, x->config ? x->config->set : ""};
    for (size_t i = 0; i < 2 && r == 0; i++) {
        for (const char *at = NULL; (at = scenario_line(lists[i], at, line, sizeof(line)));) {
            size_t length = strcspn(line, " ");
            const char *words = line;
            if (i == 1) { /* "ROLE words" */
                if (strncmp(line, role->name, length) != 0 || role->name[length])
                    continue;
                words += length;
            }
            r = scenario_expand(x->s, x->point, words, extra, sizeof(extra), err);
            if (r == 0 && n < size)
                n += (size_t)snprintf(buf + n, size - n, " %s", extra);
        }
    }
    return r == 0 && n >= size ? error_set(err, -E2BIG, "too long: '%.60s'", buf) : r;
}

int steer_adopt(struct run *run, struct error *err)
{
    int r = 0;
    for (size_t i = 0; i < run->n && r == 0 && !run->b->gated; i++) {
        char text[SCENARIO_TEXT];
        struct args a = {.n = 0};
        r = steer_set_text(run->x, run->v[i].role, text, sizeof(text), err);
        args_add(&a, "cede set %d %s", (int)run->v[i].child->pid, text);
        if (r == 0)
            r = verb(run, &a, err);
        args_free(&a);
    }
    json_object_clear(run->verbs); /* one for each program: no figure */
    return r;
}

int steer_conf_text(const struct session *x, char *buf, size_t size, struct error *err)
{
    char line[SCENARIO_TEXT], expanded[SCENARIO_TEXT];
    const struct config *c = x->config;
    size_t n = (size_t)snprintf(buf, size, "[policy]\n");
    if (!c)
        return 0;
    if (c->policy[0])
        n += (size_t)snprintf(buf + n, size - n, "name = %s\n", c->policy);
    for (const char *at = NULL; (at = scenario_line(c->conf, at, line, sizeof(line)));) {
        int r = scenario_expand(x->s, x->point, line, expanded, sizeof(expanded), err);
        if (r < 0)
            return r;
        if (n < size)
            n += (size_t)snprintf(buf + n, size - n, "%s\n", expanded);
    }
    return n < size ? 0 : error_set(err, -E2BIG, "too much of a configuration");
}

/* ---- steps of a phase ---- */

static int pause_or_resume(struct run *run, const char *op, const struct role *role,
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
        r = testbed_request(&run->b->bed, text, &us, err);
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
    struct child *v[SCENARIO_PROGRAMS] = {NULL};
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
        if (v[i]->series.harmed)
            r = error_set(err, -EBADMSG, "%s: a result was wrong", v[i]->name);
    }
    return r;
}

/* The pids of a role's programs, in place of {role}. */
static int put_pids(const struct run *run, const char *text, char *buf, size_t size)
{
    size_t n = 0;
    while (*text && n + 16 < size) {
        const char *end = *text == '{' ? strchr(text, '}') : NULL;
        scenario_name name = "";
        if (end)
            snprintf(name, sizeof(name), "%.*s", (int)(end - text - 1), text + 1);
        const struct role *role = end ? scenario_role(run->s, name) : NULL;
        if (!role) {
            buf[n++] = *text++;
            continue;
        }
        for (size_t i = 0; i < run->n && n + 16 < size; i++) {
            if (run->v[i].role == role)
                n += (size_t)snprintf(buf + n, size - n, "%d ", (int)run->v[i].child->pid);
        }
        text = end + 1;
    }
    buf[n] = '\0';
    return *text ? -E2BIG : 0;
}

int steer_step(struct run *run, const char *line, struct error *err)
{
    char with_pids[2 * SCENARIO_TEXT], text[2 * SCENARIO_TEXT], word[24] = "", name[24] = "";
    sscanf(line, "%23s %23s", word, name);
    const struct role *role = scenario_role(run->s, name);
    if (strcmp(word, "wait") == 0)
        return 0;
    if (role && strcmp(word, "start") == 0)
        return steer_start(run, role, err);
    if (role && strcmp(word, "stop") == 0)
        return steer_stop(run, role, err);
    if (role && (strcmp(word, "pause") == 0 || strcmp(word, "resume") == 0))
        return pause_or_resume(run, word, role, err);
    if (put_pids(run, line, with_pids, sizeof(with_pids)) < 0)
        return error_set(err, -E2BIG, "too long a step: %s", line);
    int r = scenario_expand(run->s, run->x->point, with_pids, text, sizeof(text), err);
    if (r < 0)
        return r;
    struct args a = {.n = 0};
    args_add(&a, "cede %s", text);
    r = verb(run, &a, err);
    args_free(&a);
    return r;
}
