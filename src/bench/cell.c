/* See cell.h. */
#include "bench/cell.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "bench/cell_impl.h"
#include "bench/stats.h"
#include "lib/json_text.h"

#define END_NS  (20 * NSEC_PER_SEC) /* a Python program with its libraries takes seconds */
#define GRACE_S 0.1 /* after a pause: what had ended before may be printed only now */

/* ---- measuring ---- */

static double cpu_seconds(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return NAN;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *role_metrics(struct run *run, const struct role *role, double a, double b)
{
    json_t *o = json_object();
    double *latencies = NULL, sum = 0, least = NAN, most = NAN, work = 0, cpu = 0;
    size_t nlatencies = 0, nlate = 0, count = 0;
    bool requests = false, done = false, covered = true, deadlines = false;
    if (run->b->gated && run->base == BASE_CEDE)
        cpu = NAN; /* the programs are children of `cede run` */
    for (size_t i = 0; i < run->n; i++) {
        if (run->v[i].role != role)
            continue;
        struct series *s = &run->v[i].child->series;
        double rate = 0, w = 0;
        count++;
        cpu += run->v[i].cpu;
        if (s->npoints) {
            done = true;
            covered &= series_hold(s, b) == 0 && series_rate(s, a, b, &rate) == 0;
            if (series_work_inside(s, a + GRACE_S, b, &w) == 0)
                work += w;
        } else {
            size_t before = nlatencies;
            requests = true;
            if (series_values(s, a, b, &latencies, &nlatencies) < 0)
                covered = false;
            double covered_s = series_covered(s, a, b);
            rate = covered_s > 0 ? (double)(nlatencies - before) / covered_s : 0;
            nlate += series_late(s, a, b);
            deadlines |= s->has_deadlines;
        }
        sum += rate;
        least = fmin(least, rate);
        most = fmax(most, rate);
    }
    json_object_set_new(o, "count", json_integer((json_int_t)count));
    json_object_set_new(o, "rate", covered ? number(sum) : json_null());
    json_object_set_new(o, "rate_min", covered ? number(least) : json_null());
    json_object_set_new(o, "rate_max", covered ? number(most) : json_null());
    json_object_set_new(o, "cpu", number(cpu / (b - a)));
    if (done)
        json_object_set_new(o, "work_us", number(work));
    if (deadlines && nlatencies)
        json_object_set_new(o, "late", json_real((double)nlate / (double)nlatencies));
    if (requests)
        stats_latencies(o, latencies, nlatencies);
    free(latencies);
    return o;
}

/* All programs work already. Lets them settle, then measures them. */
static int window(struct run *run, double seconds, json_t **roles, struct error *err)
{
    struct testbed *bed = &run->b->bed;
    struct child *v[SCENARIO_PROGRAMS];
    pid_t daemon = bed->daemon ? bed->daemon->pid : 0;
    double a = clock_s() + run->s->settle, b = a + seconds;
    int r = testbed_sleep(bed, clock_ns(a), err);
    for (size_t i = 0; i < run->n && r == 0; i++)
        run->v[i].cpu = cpu_seconds(run->v[i].child->pid);
    double cpu = daemon ? cpu_seconds(daemon) : 0;
    if (r == 0)
        r = testbed_sleep(bed, clock_ns(b), err);
    if (r < 0)
        return r;
    cpu = daemon ? (cpu_seconds(daemon) - cpu) / seconds : 0;
    for (size_t i = 0; i < run->n; i++) {
        v[i] = run->v[i].child;
        pid_t pid = v[i]->pid;
        run->v[i].cpu = pid ? cpu_seconds(pid) - run->v[i].cpu : NAN;
    }
    r = testbed_await_lines(bed, v, run->n, b, err);
    if (r < 0 && r != -ETIMEDOUT) /* a throttled program says nothing for seconds */
        return r;
    *roles = json_object();
    for (size_t i = 0; i < run->s->nroles; i++) {
        bool there = false;
        for (size_t k = 0; k < run->n; k++)
            there |= run->v[k].role == &run->s->roles[i];
        if (there)
            json_object_set_new(*roles, run->s->roles[i].name,
                                role_metrics(run, &run->s->roles[i], a, b));
    }
    if (daemon)
        json_object_set_new(*roles, "ceded", json_pack("{s:o}", "cpu", number(cpu)));
    if (json_object_size(run->verbs))
        json_object_set(*roles, "verb", run->verbs);
    return 0;
}

/* ---- a session ---- */

json_t *point_json(const struct scenario *s, size_t point)
{
    json_t *o = json_object();
    for (size_t i = 0; i < s->naxes; i++)
        json_object_set_new(o, s->axes[i].name, json_real(scenario_at(s, point, i)));
    return o;
}

const char *session_name(const struct session *x)
{
    return x->config ? x->config->name : x->alone ? "alone" : "phases";
}

char *session_key(const struct session *x, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    int r = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    fprintf(f, "%s", session_name(x));
    for (size_t i = 0; i < x->s->nroles && r == 0; i++) {
        const struct role *role = &x->s->roles[i];
        char buf[SCENARIO_TEXT] = "", set[SCENARIO_TEXT] = "";
        double count;
        if (x->alone && x->alone != role)
            continue;
        r = scenario_expand(x->s, x->point, role->program[0] ? role->program : role->load, buf,
                            sizeof(buf), err);
        if (r == 0)
            r = scenario_number(x->s, x->point, x->alone ? "" : role->count, 1, &count, err);
        if (r == 0 && x->config && x->config->base == BASE_CEDE)
            r = steer_set_text(x, role, set, sizeof(set), err);
        if (r == 0)
            fprintf(f, "|%s: %g %s %s", role->name, count, buf, set);
    }
    if (r == 0 && x->config && x->config->base == BASE_CEDE) {
        char conf[2 * SCENARIO_TEXT] = "";
        r = steer_conf_text(x, conf, sizeof(conf), err);
        fprintf(f, "|%s", conf);
    }
    const struct config *c = x->config;
    const char *texts[] = {c ? c->env : "", c ? c->wrap : "", c ? c->start : "", c ? c->run : "",
                           c ? c->stop : ""};
    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
        char buf[SCENARIO_TEXT] = "";
        r = (i < 2 ? scenario_expand : scenario_expand_shell)(x->s, x->point, texts[i], buf,
                                                              sizeof(buf), err);
        if (r == 0 && buf[0])
            fprintf(f, "|%s", buf);
    }
    if (fclose(f) != 0 || r < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void add_cell(const struct session *x, const char *name, const char *status, json_t *roles,
                     double seconds, const char *error, const char *words, json_t *cells)
{
    json_t *o = json_pack("{s:s, s:o, s:s, s:f}", "config", name, "point",
                          point_json(x->s, x->point), "status", status, "window_s", seconds);
    if (x->alone)
        json_object_set_new(o, "alone", json_string(x->alone->name));
    if (error)
        json_object_set_new(o, "error", json_text(error));
    if (words && words[0])
        json_object_set_new(o, "stderr", json_text(words));
    if (roles)
        json_object_set_new(o, "roles", roles);
    json_array_append_new(cells, o);
}

/* One for each phase, if it has any. */
static void add_cells(const struct session *x, const char *status, const char *error,
                      const char *words, json_t *cells)
{
    bool phases = !x->config && !x->alone;
    for (size_t i = 0; i < (phases ? x->s->nphases : 1); i++)
        add_cell(x, phases ? x->s->phases[i].name : session_name(x), status, NULL, 0, error, words,
                 cells);
}

static int begin(struct run *run, struct error *err)
{
    const struct config *c = run->x->config;
    char conf[2 * SCENARIO_TEXT] = "";
    int r = testbed_open(&run->b->bed, run->b->soft ? (unsigned)run->x->s->gpus : 0, err);
    run->b->bed.end_ns = END_NS;
    if (r == 0 && run->base == BASE_MPS)
        r = steer_start_mps(run, err);
    if (r == 0 && c && c->start[0])
        r = steer_shell(run, "start", c->start, err);
    char command[SCENARIO_TEXT] = "";
    if (r == 0 && c)
        r = scenario_expand_shell(run->s, run->x->point, c->run, command, sizeof(command), err);
    if (r == 0 && c && command[0]) {
        const char *argv[] = {"sh", "-c", command, NULL};
        r = testbed_program(&run->b->bed, CHILD_HELPER, "run", argv, NULL, &run->helper, err);
    }
    if (r == 0 && run->base == BASE_CEDE)
        r = steer_conf_text(run->x, conf, sizeof(conf), err);
    if (r == 0 && run->base == BASE_CEDE)
        r = testbed_daemon(&run->b->bed, run->b->driver, conf, err);
    for (size_t i = 0; i < run->s->nroles && r == 0; i++) {
        const struct role *role = &run->s->roles[i];
        if ((!run->x->alone || run->x->alone == role) && strcmp(role->start, "later") != 0)
            r = steer_start(run, role, err);
    }
    return r;
}

static int phases(struct run *run, json_t *cells, struct error *err)
{
    char line[SCENARIO_TEXT];
    int r = 0;
    for (size_t i = 0; i < run->s->nphases && r == 0; i++) {
        const struct phase *p = &run->s->phases[i];
        double seconds = scenario_window(run->s, p, run->x->point);
        json_t *roles = NULL;
        json_decref(run->verbs);
        run->verbs = json_object();
        for (const char *at = NULL;
             r == 0 && (at = scenario_line(p->steps, at, line, sizeof(line)));)
            r = steer_step(run, line, err);
        if (r == 0)
            r = window(run, seconds, &roles, err);
        if (r == 0)
            add_cell(run->x, p->name, "ok", roles, seconds, NULL, NULL, cells);
        else
            error_prefix(err, r, "phase %s", p->name);
    }
    return r;
}

/* The last lines of a program that ended with an error, else of the daemon. */
static void words_of_failed(struct run *run, char *buf, size_t size)
{
    const struct testbed *s = &run->b->bed;
    buf[0] = '\0';
    for (size_t i = 0; i < TESTBED_CHILDREN && !buf[0]; i++) {
        const struct child *c = s->children[i];
        if (c && c->pid == 0 && c->status && c->kind != CHILD_HELPER)
            testbed_words(s, c, buf, size);
    }
    if (!buf[0] && s->daemon)
        testbed_words(s, s->daemon, buf, size);
}

const char *session_unavailable(const struct bench *b, const struct session *x)
{
    double mib;
    if (x->config && x->config->base == BASE_MPS && !b->mps)
        return b->soft ? "there is no MPS on a software GPU"
                       : "nvidia-cuda-mps-control is not installed";
    if (b->memory_mib && scenario_number(x->s, x->point, x->s->memory_mib, 0, &mib, NULL) == 0 &&
        mib > (double)b->memory_mib)
        return "the GPU or the host has less memory";
    return NULL;
}

int session_run(struct bench *b, const struct session *x, json_t *cells, struct error *err)
{
    struct run run = {.b = b, .x = x, .s = x->s, .verbs = json_object()};
    struct error e = {""};
    char words[1500];
    run.base = x->config ? x->config->base : x->alone ? BASE_ALONE : BASE_CEDE;
    const char *why = session_unavailable(b, x);
    if (why) {
        add_cells(x, "unavailable", why, NULL, cells);
        json_decref(run.verbs);
        return 0;
    }
    json_t *roles = NULL, *fresh = json_array();
    double seconds = scenario_window(x->s, NULL, x->point);
    int r = begin(&run, &e);
    if (r == 0 && !x->config && !x->alone) {
        r = phases(&run, fresh, &e);
    } else {
        if (r == 0 && run.base == BASE_CEDE)
            r = steer_adopt(&run, &e);
        if (r == 0)
            r = window(&run, seconds, &roles, &e);
        if (r == 0)
            add_cell(x, session_name(x), "ok", roles, seconds, NULL, NULL, fresh);
    }
    /* The daemon first: a program that it has suspended could not end. */
    if (r == 0 && b->bed.daemon)
        r = testbed_stop(&b->bed, &b->bed.daemon, 1, &e);
    if (r == 0)
        r = steer_stop(&run, NULL, &e);
    words_of_failed(&run, words, sizeof(words));
    /* After an interruption too: what was begun outside is not ours to leave behind. */
    if (run.base == BASE_MPS)
        steer_stop_mps(&run);
    if (x->config && x->config->stop[0])
        steer_shell(&run, "stop", x->config->stop, NULL);
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    json_decref(run.verbs);
    if (r == -EINTR || r == -ENOMEM || b->signal) {
        json_decref(fresh);
        return error_set(err, r < 0 ? r : -EINTR, "%s", e.text[0] ? e.text : "interrupted");
    }
    if (r < 0) {
        /* What a program did before it failed proves nothing: none of it counts. */
        json_array_clear(fresh);
        add_cells(x, "failed", e.text, words, fresh);
    }
    json_array_extend(cells, fresh);
    json_decref(fresh);
    return 0;
}

bool bench_succeeds(struct bench *b, const char *const *argv)
{
    struct run run = {.b = b};
    int r = testbed_open(&b->bed, 0, NULL);
    if (r == 0)
        r = steer_helper(&run, "check", argv, NULL, 120 * NSEC_PER_SEC, NULL, NULL);
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    return r == 0;
}

int bench_calibrate(struct bench *b, struct error *err)
{
    if (b->soft)
        return 0;
    int r = testbed_open(&b->bed, 0, err);
    if (r == 0)
        r = testbed_calibrate(&b->bed, b->device, b->rate_option, sizeof(b->rate_option), err);
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    return r;
}
