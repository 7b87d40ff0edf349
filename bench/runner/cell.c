/* See cell.h. */
#include "bench/runner/cell.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/gpu_parts.h"
#include "base/json_text.h"
#include "bench/load/load.h"
#include "bench/runner/cell_impl.h"
#include "bench/runner/stats.h"
#include "doctor/machine.h"

#define END_NS  (20 * NSEC_PER_SEC) /* a Python program with its libraries takes seconds */
#define WATCH_S 0.2
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

static json_t *cell_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* NULL where none of its programs runs. */
static json_t *role_metrics(struct run *run, const struct role *role, double a, double b)
{
    json_t *o = json_object();
    _cleanup_free_ double *latencies = NULL;
    double sum = 0, least = NAN, most = NAN, work = 0, cpu = 0;
    size_t n = 0, nlate = 0, count = 0;
    bool requests = false, works = false, covered = true, deadlines = false;
    if (steer_by_run(run, role))
        cpu = NAN; /* the programs are children of `cede run` */
    for (size_t i = 0; i < run->n; i++) {
        if (run->v[i].role != role)
            continue;
        struct series *s = &run->v[i].child->series;
        struct series_window w;
        double rate = 0;
        count++;
        cpu += run->v[i].cpu;
        if (s->works) {
            works = true;
            covered &= series_extend(s, b) == 0 && series_rate(s, a, b, &rate) == 0;
            series_window(s, a + GRACE_S, b, &w);
            work += w.work_us;
        } else if (series_window(s, a, b, &w) == 0) {
            double *more = reallocarray(latencies, n + w.n + 1, sizeof(*latencies));
            latencies = more ? more : latencies;
            covered &= more != NULL;
            if (more && w.n)
                memcpy(more + n, w.latencies, w.n * sizeof(*more));
            n += more ? w.n : 0;
            rate = (double)w.n / w.seconds;
            nlate += w.late;
        }
        requests |= !s->works;
        deadlines |= s->has_deadlines;
        sum += rate;
        least = fmin(least, rate);
        most = fmax(most, rate);
    }
    if (count == 0) {
        json_decref(o);
        return NULL;
    }
    json_object_set_new(o, "count", json_integer((json_int_t)count));
    json_object_set_new(o, "rate", covered ? cell_number(sum) : json_null());
    json_object_set_new(o, "rate_min", covered ? cell_number(least) : json_null());
    json_object_set_new(o, "rate_max", covered ? cell_number(most) : json_null());
    json_object_set_new(o, "cpu", cell_number(cpu / (b - a)));
    if (works)
        json_object_set_new(o, "work_us", cell_number(work));
    if (deadlines && n)
        json_object_set_new(o, "late", json_real((double)nlate / (double)n));
    if (requests)
        stats_latencies(o, latencies, n);
    return o;
}

static bool is_job_of(const json_t *job, const struct child *c)
{
    const char *name = json_string_value(json_object_get(job, "name"));
    return json_integer_value(json_object_get(job, "pid")) == c->pid ||
           (name && strcmp(name, c->name) == 0);
}

/* The mean of what `cede ps` says of a role's programs; NAN where it says nothing of one. */
static double told_speed(const struct run *run, const struct role *role, const json_t *jobs)
{
    double sum = 0;
    size_t n = 0, i;
    const json_t *job;
    for (size_t k = 0; k < run->n; k++) {
        double v = NAN;
        if (run->v[k].role != role)
            continue;
        json_array_foreach(jobs, i, job)
        {
            const json_t *mps = json_object_get(job, "mps");
            const json_t *error = json_object_get(mps, "speed_error");
            if (is_job_of(job, run->v[k].child) && json_is_number(error) &&
                json_number_value(error) <= SPEED_ERROR_MAX)
                v = json_number_value(json_object_get(mps, "speed"));
        }
        sum += v;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

const json_t *cell_metric(const json_t *cell, const char *role, const char *name)
{
    char with_unit[64];
    const json_t *m = json_object_get(json_object_get(cell, "roles"), role);
    const json_t *v = json_object_get(m, name);
    snprintf(with_unit, sizeof(with_unit), "%s_us", name);
    return v ? v : json_object_get(m, with_unit);
}

static void add_speeds(struct run *run, json_t *roles)
{
    json_t *all = NULL;
    double us;
    int r = testbed_request(&run->b->bed, "{\"v\":1,\"op\":\"ps\"}", &us, &all, NULL);
    for (size_t i = 0; i < run->x->nroles && r == 0; i++) {
        const struct role *role = &run->x->roles[i];
        double v = told_speed(run, role, json_object_get(all, "jobs"));
        if (!isnan(v))
            json_object_set_new(json_object_get(roles, role->name), "speed", json_real(v));
    }
    json_decref(all);
}

/* Until that time, for what looks on too. */
static int sleep_until(struct run *run, double t, struct error *err)
{
    const struct bench *b = run->b;
    int r = 0;
    while (r == 0 && clock_s() < t) {
        if (b->watch)
            b->watch(b->watcher, b, run->cells);
        double next = b->watch ? fmin(t, clock_s() + WATCH_S) : t;
        r = testbed_sleep(&run->b->bed, clock_ns(next), err);
    }
    return r;
}

/* All programs work already. Lets them settle, then measures them. */
static int cell_window(struct run *run, double seconds, json_t **roles, struct error *err)
{
    struct testbed *bed = &run->b->bed;
    struct child *v[PLAN_PROGRAMS];
    pid_t daemon = bed->daemon ? bed->daemon->pid : 0;
    double a = clock_s() + run->x->settle, b = a + seconds;
    int r = sleep_until(run, a, err);
    for (size_t i = 0; i < run->n && r == 0; i++)
        run->v[i].cpu = cpu_seconds(run->v[i].child->pid);
    double cpu = daemon ? cpu_seconds(daemon) : 0;
    if (r == 0)
        r = sleep_until(run, b, err);
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
    for (size_t i = 0; i < run->x->nroles; i++) {
        const struct role *role = &run->x->roles[i];
        json_object_set_new(*roles, role->name, role_metrics(run, role, a, b));
    }
    if (daemon) {
        add_speeds(run, *roles);
        json_object_set_new(*roles, "ceded", json_pack("{s:o}", "cpu", cell_number(cpu)));
    }
    if (json_object_size(run->verbs))
        json_object_set(*roles, "verb", run->verbs);
    return 0;
}

/* ---- a session ---- */

static void add_cell(const char *status, json_t *roles, double seconds, const char *error,
                     const char *words, json_t *cells)
{
    json_t *o = json_pack("{s:s, s:f}", "status", status, "window_s", seconds);
    if (error)
        json_object_set_new(o, "error", json_text(error));
    if (words && words[0])
        json_object_set_new(o, "stderr", json_text(words));
    if (roles)
        json_object_set_new(o, "roles", roles);
    json_array_append_new(cells, o);
}

static int cell_begin(struct run *run, struct error *err)
{
    const struct session *x = run->x;
    struct bench *b = run->b;
    int r = testbed_open(&b->bed, b->soft ? (unsigned)x->gpus : 0, err);
    b->bed.end_ns = END_NS;
    if (r == 0 && run->mps)
        r = steer_start_mps(run, err);
    if (r == 0 && x->start[0])
        r = steer_shell(run, "start", x->start, err);
    if (r == 0 && x->run[0]) {
        const char *argv[] = {"sh", "-c", x->run, NULL};
        r = testbed_program(&b->bed, CHILD_HELPER, "run", argv, NULL, &run->helper, err);
    }
    if (r == 0 && run->cede && !b->daemon_on_demand)
        r = steer_daemon(run, err);
    for (size_t i = 0; i < x->nroles && r == 0; i++) {
        if (!x->roles[i].later)
            r = steer_start(run, &x->roles[i], err);
    }
    return r;
}

static int run_phase(struct run *run, const struct phase *p, struct error *err)
{
    char line[PLAN_TEXT];
    json_t *roles = NULL;
    int r = 0;
    json_decref(run->verbs); /* the cell of the phase before has it */
    run->verbs = json_object();
    if (run->b->watch)
        run->b->watch(run->b->watcher, run->b, run->cells);
    for (const char *at = NULL; r == 0 && (at = plan_line(p->steps, at, line, sizeof(line)));)
        r = steer_step(run, line, err);
    if (r == 0)
        r = cell_window(run, p->seconds, &roles, err);
    if (r < 0)
        return error_prefix(err, r, "phase %s", p->name);
    add_cell("ok", roles, p->seconds, NULL, NULL, run->cells);
    return 0;
}

static int run_all(struct run *run, struct error *err)
{
    const struct session *x = run->x;
    json_t *roles = NULL;
    int r = cell_begin(run, err);
    for (size_t i = 0; i < x->nphases && r == 0; i++)
        r = run_phase(run, &x->phases[i], err);
    if (r == 0 && x->nphases == 0) {
        if (run->cede)
            r = steer_adopt(run, err);
        if (r == 0)
            r = cell_window(run, x->seconds, &roles, err);
        if (r == 0)
            add_cell("ok", roles, x->seconds, NULL, NULL, run->cells);
    }
    /* The daemon first: a program that it has suspended could not end. */
    if (r == 0 && run->b->bed.daemon)
        r = testbed_stop(&run->b->bed, &run->b->bed.daemon, 1, err);
    return r < 0 ? r : steer_stop(run, NULL, err);
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

int session_run(struct bench *b, const struct session *x, json_t *cells, struct error *err)
{
    struct run run = {
        .b = b,
        .x = x,
        .mps = strcmp(x->base, "mps") == 0,
        .cede = strcmp(x->base, "cede") == 0,
    };
    struct error e = {""};
    char words[1500];
    run.verbs = json_object();
    run.cells = json_array();
    b->verified = true;
    int r = run_all(&run, &e);
    words_of_failed(&run, words, sizeof(words));
    /* After an interruption too: what was begun outside is not ours to leave behind. */
    if (run.mps)
        steer_stop_mps(&run);
    if (x->stop[0])
        steer_shell(&run, "stop", x->stop, NULL);
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    if (b->signal && r == 0)
        r = error_set(&e, -EINTR, "interrupted");
    if (r < 0) {
        /* What a program did before it failed proves nothing: none of it counts. */
        json_array_clear(run.cells);
        for (size_t i = 0; i < (x->nphases ? x->nphases : 1); i++)
            add_cell("failed", NULL, 0, e.text, words, run.cells);
    }
    bool given_up = r == -EINTR || r == -ENOMEM || b->signal;
    if (!given_up)
        json_array_extend(cells, run.cells);
    json_decref(run.cells);
    json_decref(run.verbs);
    return given_up ? error_set(err, r, "%s", e.text) : 0;
}

/* ---- what sessions run on ---- */

int bench_init(struct bench *b, const char *device, const char *programs)
{
    bool soft = strcmp(device, "soft") == 0, gated = strcmp(device, "opencl") == 0;
    *b = (struct bench){
        .device = device,
        .driver = gated ? "gate" : device,
        .soft = soft,
        .gated = gated,
        .programs = programs,
    };
    /* A processor will do, and an NVIDIA GPU's hardware is not to help. */
    if (gated && (setenv("CEDE_GATE_CPU", "1", 1) < 0 || setenv("CEDE_GATE_NVIDIA", "1", 1) < 0))
        return -ENOMEM;
    return readlink("/proc/self/exe", b->exe, sizeof(b->exe) - 1) < 0 ? -errno : 0;
}

static int close_bed(struct bench *b, int r)
{
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    return r;
}

int bench_describe(struct bench *b, struct error *err)
{
    int r = testbed_open(&b->bed, b->soft, err);
    if (r == 0 && b->gated) /* such a device is known to cede once a program uses it */
        r = load_opencl_name(b->gpu, sizeof(b->gpu), b->version, sizeof(b->version), err);
    else if (r == 0)
        r = machine_describe(b->device, b->gpu, sizeof(b->gpu), b->version, sizeof(b->version),
                             err);
    if (r == 0 && !b->gated)
        b->memory_mib = machine_memory_mib(b->device);
    return close_bed(b, r);
}

int bench_calibrate(struct bench *b, struct error *err)
{
    if (b->soft)
        return 0;
    int r = testbed_open(&b->bed, 0, err);
    if (r == 0)
        r = testbed_calibrate(&b->bed, b->device, b->rate_option, sizeof(b->rate_option), err);
    return close_bed(b, r);
}
