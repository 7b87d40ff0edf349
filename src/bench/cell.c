/* See cell.h. */
#include "bench/cell.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "bench/cell_impl.h"
#include "bench/stats.h"
#include "lib/gpu_parts.h"
#include "lib/json_text.h"
#include "load/load.h"
#include "testbed/machine.h"

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
            covered &= series_hold(s, b) == 0 && series_rate(s, a, b, &rate) == 0;
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

static void add_speeds(struct run *run, json_t *roles)
{
    json_t *all = NULL;
    double us;
    int r = testbed_request(&run->b->bed, "{\"v\":1,\"op\":\"ps\"}", &us, &all, NULL);
    for (size_t i = 0; i < run->x->s->nroles && r == 0; i++) {
        const struct role *role = &run->x->s->roles[i];
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
    struct child *v[SCENARIO_PROGRAMS];
    pid_t daemon = bed->daemon ? bed->daemon->pid : 0;
    double a = clock_s() + run->x->s->settle, b = a + seconds;
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
    for (size_t i = 0; i < run->x->s->nroles; i++) {
        const struct role *role = &run->x->s->roles[i];
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

json_t *point_json(const struct scenario *s)
{
    json_t *o = json_object();
    for (size_t i = 0; i < s->naxes; i++)
        json_object_set_new(o, s->axes[i].name, json_real(s->axes[i].at));
    return o;
}

static bool session_phases(const struct session *x)
{
    return !x->config && !x->alone;
}

const char *session_name(const struct session *x)
{
    return x->config ? x->config->name : x->alone ? "alone" : "phases";
}

char *session_key(const struct session *x)
{
    char *text = NULL;
    size_t size = 0;
    const struct config *c = x->config;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    bool cede = c && c->base == BASE_CEDE;
    fprintf(f, "%s", session_name(x));
    for (size_t i = 0; i < x->s->nroles; i++) {
        const struct role *role = &x->s->roles[i];
        if (x->alone && x->alone != role)
            continue;
        fprintf(f, "|%s: %g %s", role->name, x->alone ? 1 : role->count.v,
                role->program[0] ? role->program : role->load);
        if (cede)
            steer_put_set(f, c, role);
    }
    if (cede)
        steer_put_conf(f, c);
    if (c)
        fprintf(f, "|%s|%s|%s|%s|%s", c->env, c->wrap, c->start, c->run, c->stop);
    if (c && c->options[0])
        fprintf(f, "|%s", c->options);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static void add_cell(const struct session *x, const char *name, const char *status, json_t *roles,
                     double seconds, const char *error, const char *words, json_t *cells)
{
    json_t *o = json_pack("{s:s, s:o, s:s, s:f}", "config", name, "point", point_json(x->s),
                          "status", status, "window_s", seconds);
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
    bool phases = session_phases(x);
    for (size_t i = 0; i < (phases ? x->s->nphases : 1); i++)
        add_cell(x, phases ? x->s->phases[i].name : session_name(x), status, NULL, 0, error, words,
                 cells);
}

static int cell_begin(struct run *run, struct error *err)
{
    const struct config *c = run->x->config;
    struct bench *b = run->b;
    int r = testbed_open(&b->bed, b->soft ? (unsigned)run->x->s->gpus : 0, err);
    b->bed.end_ns = END_NS;
    if (r == 0 && run->base == BASE_MPS)
        r = steer_start_mps(run, err);
    if (r == 0 && c && c->start[0])
        r = steer_shell(run, "start", c->start, err);
    if (r == 0 && c && c->run[0]) {
        const char *argv[] = {"sh", "-c", c->run, NULL};
        r = testbed_program(&b->bed, CHILD_HELPER, "run", argv, NULL, &run->helper, err);
    }
    if (r == 0 && run->base == BASE_CEDE && !b->daemon_on_demand)
        r = steer_daemon(run, err);
    for (size_t i = 0; i < run->x->s->nroles && r == 0; i++) {
        const struct role *role = &run->x->s->roles[i];
        if ((!run->x->alone || run->x->alone == role) && strcmp(role->start, "later") != 0)
            r = steer_start(run, role, err);
    }
    return r;
}

static int run_phase(struct run *run, const struct phase *p, struct error *err)
{
    char line[SCENARIO_TEXT];
    double seconds = scenario_window(run->x->s, p);
    json_t *roles = NULL;
    int r = 0;
    json_decref(run->verbs); /* the cell of the phase before has it */
    run->verbs = json_object();
    if (run->b->watch)
        run->b->watch(run->b->watcher, run->b, run->cells);
    for (const char *at = NULL; r == 0 && (at = scenario_line(p->steps, at, line, sizeof(line)));)
        r = steer_step(run, line, err);
    if (r == 0)
        r = cell_window(run, seconds, &roles, err);
    if (r < 0)
        return error_prefix(err, r, "phase %s", p->name);
    add_cell(run->x, p->name, "ok", roles, seconds, NULL, NULL, run->cells);
    return 0;
}

static int run_all(struct run *run, struct error *err)
{
    const struct session *x = run->x;
    double seconds = scenario_window(x->s, NULL);
    json_t *roles = NULL;
    int r = cell_begin(run, err);
    for (size_t i = 0; i < run->x->s->nphases && r == 0 && !run->x->alone; i++)
        r = run_phase(run, &run->x->s->phases[i], err);
    if (r == 0 && !session_phases(x)) {
        if (run->base == BASE_CEDE)
            r = steer_adopt(run, err);
        if (r == 0)
            r = cell_window(run, seconds, &roles, err);
        if (r == 0)
            add_cell(x, session_name(x), "ok", roles, seconds, NULL, NULL, run->cells);
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

const char *session_unavailable(const struct bench *b, const struct session *x)
{
    if (x->config && x->config->base == BASE_MPS && !b->mps)
        return b->soft ? "there is no MPS on a software GPU"
                       : "nvidia-cuda-mps-control is not installed";
    if (b->memory_mib && x->s->memory_mib.v > (double)b->memory_mib)
        return "the GPU or the host has less memory";
    return NULL;
}

int session_run(struct bench *b, const struct session *x, json_t *cells, struct error *err)
{
    struct run run = {.b = b, .x = x, .base = BASE_CEDE};
    struct error e = {""};
    char words[1500];
    const char *why = session_unavailable(b, x);
    if (why) {
        add_cells(x, "unavailable", why, NULL, cells);
        return 0;
    }
    run.verbs = json_object();
    run.cells = json_array();
    if (!session_phases(x))
        run.base = x->config ? x->config->base : BASE_ALONE;
    b->verified = true;
    int r = run_all(&run, &e);
    words_of_failed(&run, words, sizeof(words));
    /* After an interruption too: what was begun outside is not ours to leave behind. */
    if (run.base == BASE_MPS)
        steer_stop_mps(&run);
    if (x->config && x->config->stop[0])
        steer_shell(&run, "stop", x->config->stop, NULL);
    b->signal = b->bed.signal;
    testbed_close(&b->bed);
    if (b->signal && r == 0)
        r = error_set(&e, -EINTR, "interrupted");
    if (r < 0) {
        /* What a program did before it failed proves nothing: none of it counts. */
        json_array_clear(run.cells);
        add_cells(x, "failed", e.text, words, run.cells);
    }
    bool given_up = r == -EINTR || r == -ENOMEM || b->signal;
    if (!given_up)
        json_array_extend(cells, run.cells);
    json_decref(run.cells);
    json_decref(run.verbs);
    return given_up ? error_set(err, r, "%s", e.text) : 0;
}

/* ---- what sessions run on ---- */

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

int bench_init(struct bench *b, const char *device, const char *scenarios)
{
    bool soft = strcmp(device, "soft") == 0, gated = strcmp(device, "opencl") == 0;
    *b = (struct bench){
        .device = device,
        .driver = gated ? "gate" : device,
        .soft = soft,
        .gated = gated,
        .mps = !soft && !gated && on_path("nvidia-cuda-mps-control"),
    };
    snprintf(b->programs, sizeof(b->programs), "%s/../programs", scenarios);
    if (gated && setenv("CEDE_GATE_CPU", "1", 1) < 0) /* a processor will do */
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

bool bench_succeeds(struct bench *b, const char *const *argv)
{
    struct run run = {.b = b};
    int r = testbed_open(&b->bed, 0, NULL);
    if (r == 0)
        r = steer_helper(&run, "check", argv, NULL, 120 * NSEC_PER_SEC, NULL, NULL);
    return close_bed(b, r) == 0;
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
