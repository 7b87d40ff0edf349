/* See job.h. */
#include "bench/job.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/earlier.h"

int bench_find_scenarios(char *buf, size_t size, struct error *err)
{
    char exe[256] = "", beside[320];
    const char *env = getenv("CEDE_SCENARIOS");
    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0 && strrchr(exe, '/'))
        *strrchr(exe, '/') = '\0';
    snprintf(beside, sizeof(beside), "%s/../share/cede/scenarios", exe);
    const char *const places[] = {env, beside, CEDE_DATADIR "/cede/scenarios", "bench/scenarios"};
    for (size_t i = env ? 0 : 1; i < (env ? 1 : ARRAY_SIZE(places)); i++) {
        struct stat st;
        if (stat(places[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            snprintf(buf, size, "%s", places[i]);
            return 0;
        }
    }
    return error_set(err, -ENOENT, "no scenario files in %s: give their directory by --scenarios",
                     env ? env : CEDE_DATADIR "/cede/scenarios or bench/scenarios");
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
    for (size_t i = 0; j && i < j->n; i++) {
        free(j->items[i].s);
        json_decref(j->items[i].text);
        json_decref(j->items[i].kept);
        for (size_t k = 0; k < j->items[i].nplan; k++)
            free(j->items[i].plan[k].key);
        free(j->items[i].plan);
        if (j->items[i].begun)
            result_free(&j->items[i].result);
    }
    free(j);
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

/* What a session takes in addition to its windows, in seconds: the difference between took_s and
 * the windows in the results of bench/results/h200-2026-11-21. Starting and ending MPS and ceded is
 * less than those differ by. */
#define SESSION_S   0.1
#define PROGRAM_S   0.3 /* 0.27 to 0.37 each, 51 at once too: contexts are made one by one */
#define PYTHON_S    0.5 /* without PyTorch */
#define TORCH_S     7.0 /* 4.7 (decode), 6.4 (serving), 6.8 (harvest), 7.1 (priority_resnet) */
#define SOFT_S      0.2 /* the software GPU's server */
#define SOFT_LOAD_S 0.05

static bool has_word(const char *list, const char *word)
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
        return has_word(s->needs, "torch") ? TORCH_S : PYTHON_S;
    return j->b.soft ? SOFT_LOAD_S : PROGRAM_S;
}

static double estimate(const struct job *j, const struct session *x)
{
    const struct scenario *s = x->s;
    double t = j->b.soft ? SOFT_S : SESSION_S;
    if (session_unavailable(&j->b, x))
        return 0;
    for (size_t i = 0; i < s->nroles; i++) {
        const struct role *role = &s->roles[i];
        if (!x->alone || x->alone == role)
            t += (x->alone ? 1 : role->count.v) * start_seconds(j, s, role);
    }
    for (size_t i = 0; i < s->nphases; i++) {
        const struct phase *p = &s->phases[i];
        t += (j->b.soft ? 0 : p->takes.v) + s->settle + scenario_window(s, p);
    }
    return s->nphases ? t : t + s->settle + scenario_window(s, NULL);
}

static int plan_session(struct job *j, struct item *it, struct session x, size_t slot)
{
    struct planned *n = &it->plan[it->nplan], *before = it->plan;
    *n = (struct planned){x, slot, x.s->point, estimate(j, &x), session_key(&x)};
    it->nplan += n->key != NULL;
    while (n->key && before < n && (before->slot != slot || strcmp(before->key, n->key) != 0))
        before++;
    /* Phases come after one another: no two runs of them are the same. */
    if (before < n && x.s->nphases == 0) {
        n->same = before->x.s->point;
        it->nsame++;
    } else {
        j->sessions += job_repeats(j, it);
        j->planned += n->seconds * (double)job_repeats(j, it);
    }
    return n->key ? 0 : -ENOMEM;
}

int job_plan(struct job *j, struct item *it, struct error *err)
{
    size_t points = scenario_points(it->s), nroles = it->s->nroles, nconfigs = it->s->nconfigs;
    int r = 0;
    it->plan = calloc(points * (nroles + nconfigs + 1), sizeof(*it->plan));
    for (size_t p = 0; p < points && it->plan; p++) {
        const struct scenario *s = &it->s[p];
        if (s->nphases)
            r = plan_session(j, it, (struct session){.s = s}, 0);
        for (size_t i = 0; i < nroles && r == 0 && !s->nphases; i++) {
            if (strcmp(s->roles[i].alone, "no") != 0)
                r = plan_session(j, it, (struct session){.s = s, .alone = &s->roles[i]},
                                 nconfigs + i);
        }
        for (size_t i = 0; i < nconfigs && r == 0; i++) {
            if (job_wants(j, s->configs[i].name))
                r = plan_session(j, it, (struct session){.s = s, .config = &s->configs[i]}, i);
        }
    }
    return r < 0 || !it->plan ? error_set(err, -ENOMEM, "out of memory") : 0;
}

const char *job_other_device(const struct job *j, const struct scenario *s)
{
    if (has_word(s->needs, "nvidia") && (j->b.soft || j->b.gated))
        return "needs an NVIDIA GPU";
    if (has_word(s->needs, "softgpu") && !j->b.soft)
        return "needs --device soft";
    return has_word(s->needs, "opencl") && !j->b.gated ? "needs --device opencl" : NULL;
}
