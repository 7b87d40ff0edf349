/* `cede demo`: runs ordinary GPU programs without cede and with it, and shows the difference. It is
 * a session of `cede bench` (bench/runner/plan.h): it measures from outside, by the lines that the
 * programs print, and steers through a private daemon, as a user would. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

#include "api/client.h"
#include "base/json_text.h"
#include "bench/runner/cell.h"
#include "cli/cli.h"
#include "cli/demo.h"
#include "gpu/registry.h"

#define SETTLE_S 0.3 /* at the beginning of each phase, not counted */
#define START_S  0.3 /* about the time that a phase's steps take */
#define WINDOW_S 0.5 /* least time that a phase measures */
#define RECENT_S 1.0 /* time that the live line covers */
/* What a program that was resumed does at least of its work alone: one that is still suspended does
 * none, and how much more it does depends on how busy the machine is. */
#define RESUMED_LEAST 0.1

/* The steps of each phase, and its part of the time. */
enum phases { ALONE_LATENCY, ALONE_BATCH, NORMAL, CEDE, MULTI, SHARES, PAUSED, RESUMED, PHASES };
static const struct {
    const char *id, *name, *steps;
    double part;
} phases[PHASES] = {
    [ALONE_LATENCY] = {"alone_latency", "latency program alone", "start latency", 0.11},
    [ALONE_BATCH] = {"alone_batch", "batch program alone", "stop latency\nstart batch\n", 0.12},
    [NORMAL] = {"normal", "both, driver default", "start latency", 0.16},
    [CEDE] = {"cede", "both, cede", "set {latency} -c latency\nset {batch} -c batch\n", 0.16},
    [MULTI] = {"multi", "cede, 3 batch jobs",
               "start batch2\nstart batch3\n"
               "set {batch2} -c batch\nset {batch3} -c batch\n",
               0.16},
    [SHARES] = {"shares", "cede, shares 75:25",
                "stop latency\nstop batch3\npolicy shares\n"
                "set {batch} -w 300\nset {batch2} -w 100\n",
                0.14},
    [PAUSED] = {"paused", "cede, pause and resume", "stop batch2\npolicy priority\npause batch",
                0.07},
    [RESUMED] = {"resumed", "cede, pause and resume", "resume batch", 0.08},
};
static const char *const batches[] = {"batch", "batch2", "batch3"};

struct demo {
    const char *device;
    bool json, live;
    double seconds, start;
    size_t shown; /* phases whose beginning was printed */
    double since; /* of the live line's figures: a phase shows none of the one before it */
    struct demo_result result;
};

static json_t *load_json(const char *name, const char *what, uint64_t us)
{
    return json_pack("{s:s, s:o, s:b}", "name", name, "load",
                     json_sprintf("%s-us %llu", what, (unsigned long long)us), "later", 1);
}

/* The plan (bench/runner/plan.h), which the caller owns. */
static json_t *plan_json(const struct demo *d)
{
    json_t *roles = json_array(), *steps = json_array();
    json_array_append_new(
        roles, load_json("latency", "latency --period", 1000000 / max_u64(d->result.rate, 1)));
    for (size_t i = 0; i < ARRAY_SIZE(batches); i++)
        json_array_append_new(roles,
                              load_json(batches[i], "batch --kernel", d->result.batch_kernel_us));
    for (size_t i = 0; i < PHASES; i++)
        json_array_append_new(
            steps,
            json_pack("{s:s, s:s, s:f}", "name", phases[i].id, "steps", phases[i].steps, "seconds",
                      fmax(d->seconds * phases[i].part - SETTLE_S - START_S, WINDOW_S)));
    return json_pack("{s:s, s:s, s:f, s:o, s:o}", "base", "cede", "conf", "[policy]\n", "settle",
                     SETTLE_S, "roles", roles, "phases", steps);
}

/* ---- progress ---- */

static double demo_metric(const json_t *cell, const char *role, const char *name)
{
    const json_t *v = cell_metric(cell, role, name);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Work of all batch programs of a cell, as a part of the work of one alone. */
static double batch_share(const json_t *cell, const json_t *alone)
{
    double sum = 0;
    for (size_t i = 0; i < ARRAY_SIZE(batches); i++)
        sum += cell_metric(cell, batches[i], "rate") ? demo_metric(cell, batches[i], "rate") : 0;
    return sum / demo_metric(alone, "batch", "rate");
}

static void show_live(struct demo *d, const struct bench *b, size_t phase, const json_t *cells)
{
    double now = clock_s(), batch = 0, rate, p99 = NAN;
    double alone = demo_metric(json_array_get(cells, ALONE_BATCH), "batch", "rate");
    bool any = false;
    char line[160];
    if (phase == d->shown) {
        d->shown++;
        d->since = now + START_S + SETTLE_S;
    }
    for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
        const struct child *c = b->bed.children[i];
        struct percentiles p;
        if (!c || !c->pid || c->kind != CHILD_LOAD)
            continue;
        const struct series *s = &c->series;
        if (s->works &&
            series_rate(s, fmax(s->last_t - RECENT_S, d->since), s->last_t, &rate) == 0) {
            batch += rate;
            any = true;
        } else if (series_percentiles(s, fmax(now - 2 * RECENT_S, d->since), now, &p) == 0) {
            p99 = p.p99_us;
        }
    }
    int n = snprintf(line, sizeof(line), "[%zu/%d] %-22s %3.0f/%.0f s", phase + 1, RESUMED,
                     phases[phase].name, fmin(now - d->start, d->seconds), d->seconds);
    if (!isnan(p99))
        n += snprintf(line + n, sizeof(line) - (size_t)n, "  p99 %5.0f us", p99);
    if (any && alone > 0)
        snprintf(line + n, sizeof(line) - (size_t)n, "  batch %.2f", batch / alone);
    struct winsize w;
    int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
    printf("\r%.*s\033[K", columns - 1, line);
    fflush(stdout);
}

/* Shows the progress, in which pause and resume count as one phase. */
static void demo_watch(void *watcher, const struct bench *b, const json_t *cells)
{
    struct demo *d = watcher;
    size_t phase = json_array_size(cells);
    phase -= phase == RESUMED;
    if (d->live)
        show_live(d, b, phase, cells);
    else if (!d->json && phase == d->shown)
        fprintf(stderr, "[%zu/%d] %s\n", ++d->shown, RESUMED, phases[phase].name);
}

/* ---- results ---- */

static struct demo_row result_row(const json_t *cell, const json_t *alone)
{
    return (struct demo_row){
        .latency = {demo_metric(cell, "latency", "p50"), demo_metric(cell, "latency", "p99"),
                    (size_t)json_integer_value(cell_metric(cell, "latency", "requests"))},
        .batch_share = batch_share(cell, alone),
    };
}

static int take_cells(struct demo *d, const json_t *cells, struct error *err)
{
    struct demo_result *r = &d->result;
    const json_t *v[PHASES], *alone;
    double all = 0;
    for (size_t i = 0; i < PHASES; i++) {
        v[i] = json_array_get(cells, i);
        const char *error = json_string_value(json_object_get(v[i], "error"));
        if (error || !v[i])
            return error_set(err, -EIO, "%s", error ? error : "nothing was measured");
    }
    alone = v[ALONE_BATCH];
    if (!(demo_metric(alone, "batch", "rate") > 0))
        return error_set(err, -ENODATA, "the batch program did nothing although it was alone");
    r->alone = result_row(v[ALONE_LATENCY], alone);
    r->alone.batch_share = 1;
    r->normal = result_row(v[NORMAL], alone);
    r->cede = result_row(v[CEDE], alone);
    r->multi = result_row(v[MULTI], alone);
    for (size_t i = 0; i < 2; i++)
        all += r->got[i] =
            demo_metric(v[SHARES], batches[i], "rate") / demo_metric(alone, "batch", "rate");
    all += r->alone.latency.p99_us + r->normal.latency.p99_us + r->cede.latency.p99_us +
           r->multi.latency.p99_us + r->normal.batch_share + r->cede.batch_share +
           r->multi.batch_share;
    if (isnan(all))
        return error_set(err, -ENODATA, "too little was measured, give it more --seconds");
    r->stopped = demo_metric(v[PAUSED], "batch", "work") == 0;
    r->again = batch_share(v[RESUMED], alone);
    r->resumed = r->again >= RESUMED_LEAST;
    r->suspend_us = demo_metric(v[PAUSED], "verb", "pause");
    r->resume_us = demo_metric(v[RESUMED], "verb", "resume");
    return 0;
}

static int run_demo(struct demo *d, struct bench *b, struct error *err)
{
    struct session x;
    _cleanup_json_ json_t *cells = json_array();
    _cleanup_json_ json_t *plan = plan_json(d);
    int r = plan_read(plan, &x, err);
    if (r == 0)
        r = bench_describe(b, err);
    if (r == 0)
        r = bench_calibrate(b, err);
    if (r == 0)
        r = session_run(b, &x, cells, err);
    if (r == 0)
        r = take_cells(d, cells, err);
    snprintf(d->result.gpu, sizeof(d->result.gpu), "%s", b->gpu);
    snprintf(d->result.driver, sizeof(d->result.driver), "%s", b->version);
    d->result.verified = b->verified;
    d->result.seconds = clock_s() - d->start;
    return r;
}

/* ---- the command ---- */

static const char *demo_device(void)
{
    struct device_driver *driver;
    struct error err = {""};
    int r = device_open("nvidia", NULL, &driver, &err);
    if (r == 0) {
        device_close(driver);
        return "nvidia";
    }
    if (r != -ENODEV)
        cli_error("demo: using the software GPU, as the NVIDIA one cannot be used: %s", err.text);
    return "soft";
}

static bool terminal_has_utf8(void)
{
    locale_t l = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!l)
        return false;
    bool utf8 = strcmp(nl_langinfo_l(CODESET, l), "UTF-8") == 0;
    freelocale(l);
    return utf8;
}

static void print_result(const struct demo *d)
{
    if (!d->json) {
        demo_print(stdout, &d->result, terminal_has_utf8());
        return;
    }
    _cleanup_json_ json_t *o = demo_json(&d->result);
    if (!o || json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) < 0)
        cli_error("demo: cannot print the result");
    putchar('\n');
}

static const char *const usage =
    "usage: cede demo [OPTION...]\n"
    "\n"
    "Runs a latency program and batch programs on a GPU: alone, together as the driver does it,\n"
    "and together under cede; then shares by weight, then pause and resume. Shows what each got.\n"
    "Everything it starts is its own, and is gone when it ends.\n"
    "\n"
    "  --device DEVICE        auto (default), nvidia, or soft: a software GPU, for any machine\n"
    "  --seconds N            in all, 10 to 600 (default 40)\n"
    "  --batch-kernel-us N    one kernel of a batch program alone (default 500)\n"
    "  --rate N               requests a second of the latency program (default 100)\n"
    "  --json                 one object with all results, and nothing else\n"
    "\n"
    "Exit status: 0, or 1 if something failed.\n";

struct number {
    uint64_t lo, hi, v;
};

static int read_number(void *to, const char *name, const char *text, struct error *err)
{
    struct number *n = to;
    if (parse_u64(text, n->lo, n->hi, &n->v) < 0)
        return error_set(err, -EINVAL, "bad --%s '%s': a number from %llu to %llu", name, text,
                         (unsigned long long)n->lo, (unsigned long long)n->hi);
    return 0;
}

/* OPTIONS_GO_ON, or the exit status. */
static int demo_parse(int argc, char **argv, struct demo *d)
{
    struct number seconds = {10, 600, 40}, kernel_us = {10, 100000, 500}, rate = {10, 2000, 100};
    const struct option_row options[] = {
        {"device", .text = &d->device},
        {"seconds", .read = read_number, .to = &seconds},
        {"batch-kernel-us", .read = read_number, .to = &kernel_us},
        {"rate", .read = read_number, .to = &rate},
        {"json", .flag = &d->json},
    };
    const struct command_line line = {.program = "cede demo", .help = usage, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (strcmp(d->device, "auto") != 0 && strcmp(d->device, "soft") != 0 &&
        strcmp(d->device, "nvidia") != 0)
        return cli_usage("demo", "unknown device '%s': use auto, nvidia or soft", d->device);
    d->seconds = (double)seconds.v;
    d->result.batch_kernel_us = kernel_us.v;
    d->result.rate = rate.v;
    return OPTIONS_GO_ON;
}

/* Warns that a daemon of the machine steers its GPUs meanwhile. */
static void remark_daemon(void)
{
    struct client other;
    if (client_open(&other, NULL) < 0)
        return;
    cli_error("demo: a daemon (pid %d) steers this machine's GPUs too: what its jobs do there "
              "is in the numbers",
              (int)other.daemon_pid);
    client_close(&other);
}

int demo_main(int argc, char **argv)
{
    struct demo d = {.device = "auto", .result.asked = {0.75, 0.25}};
    struct error err = {""};
    struct bench b;
    int status = demo_parse(argc, argv, &d);
    if (status != OPTIONS_GO_ON)
        return status;
    if (strcmp(d.device, "auto") == 0)
        d.device = demo_device();
    d.result.device = d.device;
    d.live = !d.json && isatty(STDOUT_FILENO);
    if (strcmp(d.device, "soft") != 0)
        remark_daemon();
    d.start = clock_s();
    int r = bench_init(&b, d.device, "");
    b.daemon_on_demand = true;
    b.watch = demo_watch;
    b.watcher = &d;
    if (r == 0)
        r = run_demo(&d, &b, &err);
    if (d.live) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
    if (r < 0) {
        cli_error("demo: %s", err.text);
        return b.signal ? 128 + b.signal : CLI_FAILED;
    }
    print_result(&d);
    if (!d.json)
        puts("\nSee your own programs: `cede top` shows jobs live, `cede why` why one waits.");
    char why[80];
    if (demo_busy(&d.result, why, sizeof(why))) {
        cli_error("demo: the machine was too busy to compare (%s): run it again when less runs",
                  why);
        return CLI_FAILED;
    }
    if (d.result.stopped && d.result.resumed)
        return CLI_OK;
    return cli_error("demo: a pause had no effect on this device: run `cede doctor`");
}
