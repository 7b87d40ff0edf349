/* See bench.h. The order of things: all files are read and checked, then repeat by repeat and point
 * by point the roles alone and every configuration, so that what is compared was measured close
 * together. */
#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "bench/earlier.h"
#include "bench/job.h"
#include "lib/out_file.h"
#include "lib/version.h"
#include "load/load.h"

/* The head of a result file: where it comes from. */
static json_t *head_json(const struct job *j, const struct item *it)
{
    char date[32] = "";
    struct utsname u;
    struct tm tm;
    time_t t = time(NULL);
    uname(&u);
    if (localtime_r(&t, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    const struct scenario *s = it->s;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "test_id",
                          s->id, "test_name", s->title, "scenario", s->name, "reference",
                          s->reference, "date", date, "hardware", j->b.gpu, "driver_version",
                          j->b.version, "kernel", u.release, "cede_version", build_version(),
                          "device", j->o->device, "command", j->o->command, "quick", j->o->quick);
    if (it->text)
        json_object_set(o, "scenario_file", it->text);
    return o;
}

static void result_path(const struct job *j, const struct item *it, char *buf, size_t size)
{
    snprintf(buf, size, "%s/%s.json", j->o->out, it->s->name);
}

/* Keeps what is in --out of a scenario if a run would measure nothing more. All of it or nothing:
 * sessions are interleaved so that what is compared was measured close together. */
static void look_back(const struct job *j, struct item *it)
{
    char path[600], why[64] = "";
    result_path(j, it, path, sizeof(path));
    if (access(path, F_OK) < 0)
        return;
    it->kept = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *now = head_json(j, it);
    const char *differs = it->kept ? earlier_differs(it->kept, now) : "cannot be read";
    size_t repeats = job_repeats(j, it), all = repeats * (it->nplan - it->nsame), there = 0;
    for (size_t i = 0; i < repeats * it->nplan && !differs; i++) {
        const struct planned *n = &it->plan[i % it->nplan];
        there += n->same == n->x.s->point && earlier_has(it->kept, &j->b, &n->x, i / it->nplan);
    }
    if (differs)
        snprintf(why, sizeof(why), "%s", differs);
    else if (json_integer_value(json_object_get(it->kept, "failed_cells")))
        snprintf(why, sizeof(why), "has cells that failed");
    else if (there < all)
        snprintf(why, sizeof(why), "has %zu of %zu sessions", there, all);
    if (why[0]) {
        json_decref(it->kept);
        it->kept = NULL;
    }
    if (j->o->resume && j->o->progress)
        fprintf(stderr, "%s: %s: %s %s\n", it->s->name, it->kept ? "kept" : "measured anew", path,
                it->kept ? "has all of it" : why);
    json_decref(now);
}

static int open_job(const struct bench_options *o, struct job **out, struct error *err)
{
    struct job *j = *out = calloc(1, sizeof(*j));
    if (!j)
        return error_set(err, -ENOMEM, "out of memory");
    j->o = o;
    int r = bench_init(&j->b, o->device, o->dir);
    return r < 0 ? error_set(err, r, "cannot find this program: %s", strerror(-r))
                 : job_load(j, err);
}

int bench_list(const struct bench_options *o, json_t **out, struct error *err)
{
    struct job *j;
    int r = open_job(o, &j, err);
    if (r == 0 && o->out && !j->b.soft && !j->b.gated)
        j->b.memory_mib = machine_memory_mib(o->device);
    *out = json_array();
    for (size_t i = 0; j && i < j->n && r == 0; i++) {
        const struct scenario *s = j->items[i].s;
        j->sessions = 0;
        j->planned = 0;
        r = job_plan(j, &j->items[i], err);
        if (r == 0 && o->out)
            look_back(j, &j->items[i]);
        json_array_append_new(
            *out, json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:s?, s:b}", "name", s->name, "id",
                            s->id, "title", s->title, "needs", s->needs, "sessions",
                            (json_int_t)j->sessions, "seconds", j->planned, "left_out",
                            job_other_device(j, s), "done", j->items[i].kept != NULL));
    }
    job_free(j);
    return r;
}

/* ---- running ---- */

static void progress(const struct job *j, const struct session *x, size_t repeat, size_t of)
{
    char point[128] = "", left[32] = "";
    if (!j->o->progress)
        return;
    for (size_t i = 0; i < x->s->naxes; i++) {
        size_t n = strlen(point);
        snprintf(point + n, sizeof(point) - n, " %s=%.6g", x->s->axes[i].name, x->s->axes[i].at);
    }
    double elapsed = clock_s() - j->start, speed = j->done > 5 ? elapsed / j->done : 1;
    double seconds = (j->planned - j->done) * speed;
    if (seconds >= 90)
        snprintf(left, sizeof(left), "%.0f min left", seconds / 60);
    else
        snprintf(left, sizeof(left), "%.0f s left", fmax(seconds, 0));
    fprintf(stderr, "%s[%zu/%zu] %s%s %s%s%s, repeat %zu/%zu, %s%s", j->terminal ? "\r" : "",
            j->session, j->sessions, x->s->name, point, session_name(x), x->alone ? " " : "",
            x->alone ? x->alone->name : "", repeat + 1, of, left, j->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

static json_t *item_json(const struct job *j, const struct item *it)
{
    const struct scenario *s = it->s;
    const struct machine_clocks *c = &it->clocks;
    json_t *o = head_json(j, it);
    json_object_set_new(o, "shows", json_string(s->shows));
    json_object_set_new(o, "figures", json_string(s->figures));
    json_object_set_new(o, "took_s", json_real(it->took));
    if (c->known)
        json_object_set_new(o, "clocks",
                            json_pack("{s:i, s:i, s:i, s:i}", "sm_mhz", c->sm_mhz, "sm_max_mhz",
                                      c->sm_max_mhz, "memory_mhz", c->memory_mhz, "memory_max_mhz",
                                      c->memory_max_mhz));
    if (it->skipped) {
        json_object_set_new(o, "skipped", json_string(it->skipped));
        json_object_set_new(o, "pass", json_null());
        json_object_set_new(o, "notes", json_sprintf("Skipped: it %s. %s", it->skipped, s->note));
        return o;
    }
    json_t *r = result_json(&it->result);
    json_object_update(o, r);
    json_decref(r);
    json_object_set_new(
        o, "notes",
        json_sprintf("%lld cells failed, %lld targets missed.%s%s",
                     (long long)json_integer_value(json_object_get(o, "failed_cells")),
                     (long long)json_integer_value(json_object_get(o, "missed")),
                     s->note[0] ? " " : "", s->note));
    json_object_set(o, "cells", it->result.cells);
    return o;
}

static int write_item(const struct job *j, const struct item *it, struct error *err)
{
    char path[600];
    if (!j->o->out)
        return 0;
    result_path(j, it, path, sizeof(path));
    json_t *o = item_json(j, it);
    _cleanup_free_ char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(o);
    return text ? out_file_put(path, 0, text, strlen(text), err)
                : error_set(err, -EIO, "cannot write %s: not JSON", path);
}

static int run_one(struct job *j, struct item *it, const struct planned *n, size_t repeat,
                   struct error *err)
{
    const struct session *x = &n->x;
    if (n->same < x->s->point) {
        result_put(&it->result, repeat, n->slot, x->s->point,
                   result_at(&it->result, repeat, n->slot, n->same));
        return 0;
    }
    json_t *cells = json_array(), *c;
    size_t i;
    j->session++;
    progress(j, x, repeat, it->result.repeats);
    int r = session_run(&j->b, x, cells, err);
    if (!j->b.soft && !j->b.gated)
        machine_ask_clocks(&it->clocks);
    j->done += n->seconds;
    it->took = clock_s() - it->started;
    json_array_foreach(cells, i, c) /* one, or one for each phase */
    {
        json_object_set_new(c, "repeat", json_integer((json_int_t)repeat + 1));
        result_put(&it->result, repeat, n->slot + i, x->s->point, c);
        json_array_append(it->result.cells, c);
    }
    json_decref(cells);
    return r == 0 ? write_item(j, it, err) : r;
}

#define SWAP_DRIVER 570 /* the first whose libcuda.so.1 has the checkpoint calls */

/* Modules of Python that programs need: words of `needs`. */
static const struct module {
    const char *word, *script, *lacks;
} modules[] = {
    {"torch", "import torch, torchvision", "needs python3 with PyTorch and torchvision"},
    {"transformers", "import transformers", "needs python3 with transformers"},
    {"jax", "import jax", "needs python3 with JAX"},
};
#define MODULES ARRAY_SIZE(modules)

/* found: by module, whether it is there; -1: not known yet, as looking takes seconds. */
static const char *lacking_module(struct job *j, const char *word, int found[MODULES])
{
    for (size_t i = 0; i < MODULES; i++) {
        const char *const argv[] = {"python3", "-c", modules[i].script, NULL};
        if (strcmp(word, modules[i].word) != 0)
            continue;
        found[i] = found[i] < 0 ? bench_succeeds(&j->b, argv) : found[i];
        return found[i] ? NULL : modules[i].lacks;
    }
    return NULL;
}

/* What is missing for a scenario, or NULL. "set:--budget=1ms" needs an option of a verb. */
static const char *lacking(struct job *j, const struct scenario *s, int found[MODULES])
{
    char list[SCENARIO_TEXT], *save = NULL;
    const char *other = job_other_device(j, s);
    if (other)
        return other;
    if (s->gpus > 1 && !j->b.soft) {
        struct machine_nvml nvml;
        machine_ask_nvml(&nvml);
        if (nvml.gpus < (unsigned)s->gpus)
            return "needs more GPUs";
    }
    snprintf(list, sizeof(list), "%s", s->needs);
    for (char *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *option = strchr(w, ':');
        if (strcmp(w, "libcede") == 0) {
            char script[PATH_MAX];
            snprintf(script, sizeof(script), "%s/serving.py", j->b.programs);
            const char *const argv[] = {"python3", script, "--check", NULL};
            if (!bench_succeeds(&j->b, argv))
                return "needs libcede and its Python modules: install them, or set CEDE_LIBRARY";
        }
        if (strcmp(w, "swap") == 0 && !j->b.soft &&
            (j->b.gated || atoi(j->b.version) < SWAP_DRIVER))
            return j->b.gated ? "needs a device whose jobs can be swapped"
                              : "needs an NVIDIA driver of version 570 or later";
        const char *module = lacking_module(j, w, found);
        if (module)
            return module;
        if (option) {
            *option++ = '\0';
            const char *const argv[] = {"cede", w, *option ? option : "--help", "--help", NULL};
            if (!bench_succeeds(&j->b, argv))
                return "needs an option that this cede does not have";
        }
    }
    return NULL;
}

static json_t *summary(const struct job *j, size_t upto)
{
    json_t *list = json_array();
    json_int_t failed = 0, missed = 0;
    bool any = false; /* not all were left out */
    for (size_t i = 0; i < upto; i++) {
        const struct item *it = &j->items[i];
        any |= !it->skipped;
        json_t *o = it->kept ? json_copy(it->kept) : item_json(j, it);
        static const char *const unwanted[] = {"cells", "rows", "shows", "figures",
                                               "scenario_file"};
        json_object_set_new(o, "kept", json_boolean(it->kept));
        for (size_t k = 0; k < ARRAY_SIZE(unwanted); k++)
            json_object_del(o, unwanted[k]);
        failed += json_integer_value(json_object_get(o, "failed_cells"));
        missed += json_integer_value(json_object_get(o, "missed"));
        json_array_append_new(list, o);
    }
    return json_pack("{s:s, s:s, s:o, s:I, s:I, s:b, s:f}", "hardware", j->b.gpu, "driver_version",
                     j->b.version, "scenarios", list, "failed_cells", failed, "missed", missed,
                     "pass", any && failed == 0 && missed == 0, "took_s", clock_s() - j->start);
}

static int run_items(struct job *j, size_t *upto, struct error *err)
{
    int r = 0;
    for (*upto = 0; *upto < j->n && r == 0; (*upto)++) {
        struct item *it = &j->items[*upto];
        it->started = clock_s();
        if (it->kept)
            continue;
        for (size_t i = 0; i < it->nplan * it->result.repeats && r == 0 && !it->skipped; i++)
            r = run_one(j, it, &it->plan[i % it->nplan], i / it->nplan, err);
        if (r == 0)
            r = write_item(j, it, err);
    }
    return r;
}

/* That --only names a configuration of one of the scenarios. */
static int check_only(const struct job *j, struct error *err)
{
    const struct config *some = NULL;
    for (size_t i = 0; i < j->n; i++) {
        for (size_t c = 0; c < j->items[i].s->nconfigs; c++) {
            some = &j->items[i].s->configs[c];
            if (job_wants(j, some->name))
                return 0;
        }
    }
    return !some ? 0
                 : error_set(err, -EINVAL,
                             "--only %s: none of these scenarios has that configuration; one that "
                             "they have is %s",
                             j->o->only, some->name);
}

static int prepare_item(struct job *j, struct item *it, int found[MODULES], struct error *err)
{
    double planned = j->planned;
    size_t sessions = j->sessions;
    int r = result_init(&it->result, it->s, job_repeats(j, it), j->b.soft);
    it->begun = true;
    if (r == 0)
        r = job_plan(j, it, err);
    if (r == 0 && j->o->resume)
        look_back(j, it);
    if (r == 0 && !it->kept)
        it->skipped = lacking(j, it->s, found);
    if (it->kept || it->skipped) {
        j->planned = planned;
        j->sessions = sessions;
    }
    return r == 0 && j->b.signal ? error_set(err, -EINTR, "interrupted") : r;
}

static int prepare(struct job *j, struct error *err)
{
    int found[MODULES] = {-1, -1, -1}, r = check_only(j, err);
    if (r == 0)
        r = bench_describe(&j->b, err);
    if (r == 0 && j->o->out && mkdir(j->o->out, 0777) < 0 && errno != EEXIST)
        r = error_set(err, -EIO, "cannot make %s: %s", j->o->out, strerror(errno));
    for (size_t i = 0; i < j->n && r == 0; i++)
        r = prepare_item(j, &j->items[i], found, err);
    return r;
}

int bench_run(const struct bench_options *o, json_t **out, int *signal, struct error *err)
{
    size_t upto = 0;
    struct job *j;
    int r = open_job(o, &j, err);
    *out = NULL;
    /* Between two sessions, too, they are for the next. */
    sigset_t set, before;
    testbed_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    if (r == 0) {
        j->terminal = isatty(STDERR_FILENO);
        r = prepare(j, err);
        j->start = clock_s();
    }
    if (r == 0 && j->sessions)
        r = bench_calibrate(&j->b, err);
    if (r == 0)
        r = run_items(j, &upto, err);
    if (j && j->terminal && o->progress)
        fputs("\r\033[K", stderr);
    *signal = j ? j->b.signal : 0;
    if (r == 0 || (r == -EINTR && upto))
        *out = summary(j, upto);
    if (r < 0)
        json_object_set_new(*out, "pass", json_false());
    job_free(j);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return r;
}
