/* See job.h. */
#include "bench/job.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/earlier.h"

static int job_self_path(char *buf, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", buf, size - 1);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return 0;
}

int bench_find_scenarios(char *buf, size_t size, struct error *err)
{
    char exe[256] = "", beside[320];
    const char *env = getenv("CEDE_SCENARIOS");
    if (job_self_path(exe, sizeof(exe)) == 0 && strrchr(exe, '/'))
        *strrchr(exe, '/') = '\0';
    snprintf(beside, sizeof(beside), "%s/../share/cede/scenarios", exe);
    const char *const places[] = {env, beside, CEDE_DATADIR "/cede/scenarios", "bench/scenarios"};
    for (size_t i = env ? 0 : 1; i < ARRAY_SIZE(places); i++) {
        struct stat st;
        if (stat(places[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            snprintf(buf, size, "%s", places[i]);
            return 0;
        }
        if (i == 0)
            break;
    }
    return error_set(err, -ENOENT, "no scenario files in %s: set CEDE_SCENARIOS to their directory",
                     env ? env : "$PREFIX/share/cede/scenarios or bench/scenarios");
}

static int compare_items(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->s->name, ((const struct item *)b)->s->name);
}

static int load_one(struct job *j, const char *path, struct error *err)
{
    struct scenario_how how = {j->o->quick, j->b.soft};
    if (j->n == BENCH_SCENARIOS)
        return error_set(err, -E2BIG, "more than %d scenarios", BENCH_SCENARIOS);
    int r = scenario_load(path, how, &j->items[j->n].s, err);
    if (r == 0)
        j->items[j->n++].text = earlier_text(path);
    return r;
}

static int load_all(struct job *j, struct error *err)
{
    DIR *d = opendir(j->o->dir);
    if (!d)
        return error_set(err, -errno, "cannot read %s: %s", j->o->dir, strerror(errno));
    int r = 0;
    for (const struct dirent *e; r == 0 && (e = readdir(d));) {
        char path[600];
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".ini") != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", j->o->dir, e->d_name);
        r = load_one(j, path, err);
    }
    closedir(d);
    qsort(j->items, j->n, sizeof(j->items[0]), compare_items);
    return r;
}

int job_load(struct job *j, struct error *err)
{
    int r = 0;
    for (size_t i = 0; i < j->o->nnames && r == 0; i++) {
        const char *name = j->o->names[i];
        char path[600];
        if (strcmp(name, "all") == 0) {
            r = load_all(j, err);
            continue;
        }
        if (strchr(name, '/'))
            snprintf(path, sizeof(path), "%s", name);
        else
            snprintf(path, sizeof(path), "%s/%s.ini", j->o->dir, name);
        if (access(path, F_OK) < 0)
            return error_set(err, -ENOENT, "there is no scenario '%s': see `cede bench list`",
                             name);
        r = load_one(j, path, err);
    }
    return r;
}

void job_free(struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        free(j->items[i].s);
        json_decref(j->items[i].text);
        json_decref(j->items[i].kept);
        if (j->items[i].begun)
            result_free(&j->items[i].result);
    }
}

static bool on_path(const char *program)
{
    char list[4096], path[4200], *save = NULL;
    snprintf(list, sizeof(list), "%s", getenv("PATH") ? getenv("PATH") : "");
    for (char *d = strtok_r(list, ":", &save); d; d = strtok_r(NULL, ":", &save)) {
        snprintf(path, sizeof(path), "%s/%s", d, program);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

int job_init(struct job *j, const struct bench_options *o)
{
    memset(j, 0, sizeof(*j));
    j->o = o;
    j->b.device = o->device;
    j->b.soft = strcmp(o->device, "soft") == 0;
    j->b.gated = strcmp(o->device, "opencl") == 0;
    j->b.driver = j->b.gated ? "gate" : o->device;
    j->b.mps = !j->b.soft && !j->b.gated && on_path("nvidia-cuda-mps-control");
    snprintf(j->b.programs, sizeof(j->b.programs), "%s/../programs", o->dir);
    return job_self_path(j->b.exe, sizeof(j->b.exe));
}

bool job_wants(const struct job *j, const char *config)
{
    return !j->o->only || strcmp(j->o->only, config) == 0;
}

size_t job_repeats(const struct job *j, const struct item *it)
{
    size_t n = j->o->repeat ? j->o->repeat : (size_t)it->s->repeat;
    return n < RESULT_REPEATS ? n : RESULT_REPEATS;
}

int job_each_session(struct job *j, struct item *it, session_fn f, struct error *err)
{
    const struct scenario *s = it->s;
    size_t points = scenario_points(s), alone = s->nphases ? s->nphases : s->nconfigs;
    int r = 0;
    for (size_t k = 0; k < job_repeats(j, it); k++) {
        for (size_t p = 0; p < points && r == 0; p++) {
            struct session x = {.s = s, .point = p};
            if (s->nphases) {
                r = f(j, it, &x, k, 0, err);
                continue;
            }
            for (size_t i = 0; i < s->nroles && r == 0; i++) {
                x.alone = &s->roles[i];
                if (strcmp(s->roles[i].alone, "no") != 0)
                    r = f(j, it, &x, k, alone + i, err);
            }
            x.alone = NULL;
            for (size_t i = 0; i < s->nconfigs && r == 0; i++) {
                x.config = &s->configs[i];
                if (job_wants(j, x.config->name))
                    r = f(j, it, &x, k, i, err);
            }
        }
    }
    return r;
}

/* What a session takes in addition to its windows, in seconds: the difference between took_s and
 * the windows in the results of bench/results/h200-2026-11-21. Starting and ending MPS and ceded is
 * less than those differ by. */
#define SESSION_S   0.1
#define PROGRAM_S   0.3 /* 0.27 to 0.37 each, 51 at once too: contexts are made one by one */
#define PYTHON_S    0.5 /* without PyTorch */
#define TORCH_S     7.0 /* 4.7 (decode), 6.4 (serving), 6.8 (harvest), 7.1 (priority_resnet) */
#define SOFT_S      0.2 /* the software GPU's server */
#define SOFT_LOAD_S 0.05

bool job_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n) {
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    }
    return false;
}

static double start_seconds(const struct job *j, const struct scenario *s, const struct role *role)
{
    if (role->program[0])
        return job_has_word(s->needs, "torch") ? TORCH_S : PYTHON_S;
    return j->b.soft ? SOFT_LOAD_S : PROGRAM_S;
}

double job_estimate(const struct job *j, const struct session *x)
{
    const struct scenario *s = x->s;
    double t = j->b.soft ? SOFT_S : SESSION_S, count, takes;
    if (session_unavailable(&j->b, x))
        return 0;
    for (size_t i = 0; i < s->nroles; i++) {
        const struct role *role = &s->roles[i];
        if (x->alone && x->alone != role)
            continue;
        if (x->alone || scenario_number(s, x->point, role->count, 1, &count, NULL) < 0)
            count = 1;
        t += count * start_seconds(j, s, role);
    }
    for (size_t i = 0; i < s->nphases; i++) {
        if (j->b.soft || scenario_number(s, x->point, s->phases[i].takes, 0, &takes, NULL) < 0)
            takes = 0;
        t += takes + s->settle + scenario_window(s, &s->phases[i], x->point);
    }
    return s->nphases ? t : t + s->settle + scenario_window(s, NULL, x->point);
}

size_t job_same_point(const struct session *x)
{
    struct session other = *x;
    _cleanup_free_ char *key = session_key(x, NULL);
    for (other.point = 0; key && other.point < x->point; other.point++) {
        _cleanup_free_ char *k = session_key(&other, NULL);
        if (k && strcmp(k, key) == 0)
            break;
    }
    return other.point;
}

int job_plan(struct job *j, struct item *it, const struct session *x, size_t repeat, size_t slot,
             struct error *err)
{
    _cleanup_free_ char *key = session_key(x, err);
    if (!key)
        return error_prefix(err, -EINVAL, "%s", x->s->name);
    if (x->s->nphases == 0 && job_same_point(x) != x->point)
        return 0;
    j->sessions++;
    j->planned += job_estimate(j, x);
    return 0;
}

const char *job_other_device(const struct job *j, const struct scenario *s)
{
    if (job_has_word(s->needs, "nvidia") && (j->b.soft || j->b.gated))
        return "needs an NVIDIA GPU";
    if (job_has_word(s->needs, "softgpu") && !j->b.soft)
        return "needs --device soft";
    return job_has_word(s->needs, "opencl") && !j->b.gated ? "needs --device opencl" : NULL;
}
