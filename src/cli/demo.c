/* `cede demo`: runs ordinary GPU programs without cede and with it, and shows the difference. It
 * measures from outside, through what the programs print, and steers through a private daemon,
 * as a user would: it must not touch the device itself. */
#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/demo.h"
#include "device/registry.h"
#include "testbed/machine.h"
#include "testbed/testbed.h"

#define SETTLE_S  0.3 /* of each phase, not counted */
#define WINDOW_S  0.5 /* measured at least, however little time there is */
#define GRACE_S   0.1 /* after a pause: what had ended before may be printed only now */
#define RECENT_S  1.0 /* what the live line shows */
#define ADOPT_NS  (3 * NSEC_PER_SEC)
#define READY_S   30.0 /* until a program works: opening a GPU can take seconds */
#define REPORT_MS "50"

/* When each phase ends, as part of the time asked for. */
enum phase { ALONE_LATENCY, ALONE_BATCH, NORMAL, CEDE, MULTI, SHARES, PAUSE, PHASES };
static const struct {
    const char *name;
    double end;
} phases[PHASES] = {
    [ALONE_LATENCY] = {"latency program alone", 0.11},
    [ALONE_BATCH] = {"batch program alone", 0.20},
    [NORMAL] = {"both, driver default", 0.37},
    [CEDE] = {"both, cede", 0.54},
    [MULTI] = {"cede, 3 batch jobs", 0.71},
    [SHARES] = {"cede, shares 75:25", 0.85},
    [PAUSE] = {"cede, pause and resume", 1.00},
};

struct demo {
    const char *device;
    bool json, live;
    double seconds, start;
    struct testbed bed;
    struct client client;
    struct child *latency, *batch[3];
    char rate_option[32], period_option[32], kernel_option[32];
    double alone_rate;
    enum phase phase;
    struct demo_result result;
};

/* ---- waiting, with a live line ---- */

static void show_live(const struct demo *d)
{
    double now = clock_s();
    struct percentiles p;
    char line[160];
    int n = snprintf(line, sizeof(line), "[%d/%d] %-22s %3.0f/%.0f s", d->phase + 1, PHASES,
                     phases[d->phase].name, fmin(now - d->start, d->seconds), d->seconds);
    if (d->latency && d->latency->pid &&
        series_percentiles(&d->latency->series, now - 2 * RECENT_S, now, &p) == 0)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "  p99 %5.0f us", p.p99_us);
    double sum = 0, rate;
    bool any = false;
    for (size_t i = 0; i < ARRAY_SIZE(d->batch); i++) {
        const struct child *c = d->batch[i];
        if (!c || !c->pid || d->alone_rate <= 0 ||
            series_rate(&c->series, c->series.last_t - RECENT_S, c->series.last_t, &rate) < 0)
            continue;
        sum += rate / d->alone_rate;
        any = true;
    }
    if (any)
        snprintf(line + n, sizeof(line) - (size_t)n, "  batch %.2f", sum);
    struct winsize w;
    int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
    printf("\r%.*s\033[K", columns - 1, line);
    fflush(stdout);
}

static int wait_until(struct demo *d, double t, struct error *err)
{
    int r = 0;
    while (r == 0 && clock_s() < t) {
        if (d->live)
            show_live(d);
        r = testbed_sleep(&d->bed, clock_ns(fmin(t, clock_s() + 0.2)), err);
    }
    return r;
}

static void begin(struct demo *d, enum phase phase)
{
    d->phase = phase;
    if (!d->live && !d->json)
        fprintf(stderr, "[%d/%d] %s\n", phase + 1, PHASES, phases[phase].name);
}

/* Lets the phase run to its end; *a..*b is what counts of it: all of v ran, from settled on. */
static int measure(struct demo *d, double end, struct child *const *v, size_t n, double *a,
                   double *b, struct error *err)
{
    *a = clock_s() + SETTLE_S;
    *b = fmax(end - 0.1, *a + WINDOW_S);
    int r = wait_until(d, *b, err);
    return r < 0 ? r : testbed_await_lines(&d->bed, v, n, *b, err);
}

/* ---- the programs ---- */

static int load(struct demo *d, const char *name, const char *role, struct child **out,
                struct error *err)
{
    const char *args[TESTBED_ARGS] = {role,      "--device", d->device, "--report",
                                      REPORT_MS, "--verify", "--name",  name};
    size_t n = 8;
    char depth[32];
    if (d->rate_option[0])
        args[n++] = d->rate_option;
    if (strcmp(role, "latency") == 0) {
        args[n++] = d->period_option;
    } else {
        args[n++] = d->kernel_option;
        /* Its queue has to outlast any time that this machine's CPUs are busy with others. */
        snprintf(depth, sizeof(depth), "--depth=%llu",
                 (unsigned long long)clamp_u64(200000 / d->result.batch_kernel_us, 2, 1000));
        if (strcmp(d->device, "soft") == 0)
            args[n++] = depth;
    }
    int r = testbed_load(&d->bed, name, args, out, err);
    return r < 0 ? r : testbed_await_work(&d->bed, out, 1, READY_S, err);
}

static int stop(struct demo *d, struct child **v, size_t n, struct error *err)
{
    int r = testbed_stop(&d->bed, v, n, err);
    for (size_t i = 0; i < n && r == 0; i++) {
        d->result.verified &= v[i]->series.verified;
        if (v[i]->series.harmed)
            r = error_set(err, -EBADMSG, "a kernel of %s gave a wrong result", v[i]->name);
    }
    return r;
}

/* ---- steering ---- */

static int ask(struct demo *d, const struct request *q, double *us, struct error *err)
{
    json_t *reply;
    double t = clock_s();
    int r = client_call(&d->client, q, &reply, err);
    if (us)
        *us = (clock_s() - t) * 1e6;
    if (r < 0)
        return error_prefix(err, r, "ceded");
    const char *note = json_string_value(json_object_get(reply, "note"));
    if (note)
        r = error_set(err, -EAGAIN, "ceded: %s", note);
    json_decref(reply);
    return r;
}

/* The words of `cede set PID -c CLASS`, until there is nothing to remark on it. */
static int adopt(struct demo *d, const struct child *c, enum job_class class, struct error *err)
{
    struct request q = {.op = OP_SET, .pid = c->pid, .has_class = true, .class = class};
    uint64_t deadline = monotonic_ns() + ADOPT_NS;
    for (;;) {
        struct error e = {""};
        int r = ask(d, &q, NULL, &e);
        if (r != -EAGAIN || monotonic_ns() >= deadline)
            return r < 0 ? error_set(err, r, "%s: %s", c->name, e.text) : 0;
        r = testbed_sleep(&d->bed, monotonic_ns() + 100 * NSEC_PER_MSEC, err);
        if (r < 0)
            return r;
    }
}

static int weigh(struct demo *d, const struct child *c, uint32_t weight, struct error *err)
{
    struct request q = {.op = OP_SET, .pid = c->pid, .has_weight = true, .weight = weight};
    return ask(d, &q, NULL, err);
}

static int policy(struct demo *d, const char *name, struct error *err)
{
    struct request q = {.op = OP_POLICY};
    snprintf(q.name, sizeof(q.name), "%s", name);
    return ask(d, &q, NULL, err);
}

/* ---- phases ---- */

/* Latency and batch programs together, for the rest of the phase. */
static int together(struct demo *d, size_t batches, struct demo_row *row, struct error *err)
{
    struct child *v[1 + ARRAY_SIZE(d->batch)] = {d->latency};
    for (size_t i = 0; i < batches; i++)
        v[1 + i] = d->batch[i];
    double a, b;
    int r = measure(d, d->start + phases[d->phase].end * d->seconds, v, 1 + batches, &a, &b, err);
    row->batch_share = 0;
    if (r == 0)
        r = series_percentiles(&d->latency->series, a, b, &row->latency);
    for (size_t i = 0; i < batches && r == 0; i++) {
        double rate;
        r = series_rate(&d->batch[i]->series, a, b, &rate);
        row->batch_share += r == 0 ? rate / d->alone_rate : 0;
    }
    return r == -ENODATA ? error_set(err, r, "%s: too little was measured, give it more --seconds",
                                     phases[d->phase].name)
                         : r;
}

static int run_alone(struct demo *d, struct error *err)
{
    double a, b;
    begin(d, ALONE_LATENCY);
    int r = load(d, "latency", "latency", &d->latency, err);
    if (r == 0)
        r = together(d, 0, &d->result.alone, err);
    if (r == 0)
        r = stop(d, &d->latency, 1, err);
    if (r < 0)
        return r;

    begin(d, ALONE_BATCH);
    r = load(d, "batch-1", "batch", &d->batch[0], err);
    if (r == 0)
        r = measure(d, d->start + phases[ALONE_BATCH].end * d->seconds, d->batch, 1, &a, &b, err);
    if (r == 0)
        r = series_rate(&d->batch[0]->series, a, b, &d->alone_rate);
    if (r == -ENODATA || (r == 0 && d->alone_rate <= 0))
        return error_set(err, -ENODATA, "the batch program did nothing although it was alone");
    d->result.alone.batch_share = 1;
    return r;
}

static int run_together(struct demo *d, struct error *err)
{
    begin(d, NORMAL);
    int r = load(d, "latency-2", "latency", &d->latency, err);
    if (r == 0)
        r = together(d, 1, &d->result.normal, err);
    if (r < 0)
        return r;

    begin(d, CEDE);
    r = testbed_daemon(&d->bed, d->device, "", err);
    if (r == 0)
        r = client_open(&d->client, err);
    if (r == 0)
        r = adopt(d, d->latency, CLASS_LATENCY, err);
    if (r == 0)
        r = adopt(d, d->batch[0], CLASS_BATCH, err);
    if (r == 0)
        r = together(d, 1, &d->result.cede, err);
    if (r < 0)
        return r;

    begin(d, MULTI);
    r = load(d, "batch-2", "batch", &d->batch[1], err);
    if (r == 0)
        r = load(d, "batch-3", "batch", &d->batch[2], err);
    for (size_t i = 1; i < 3 && r == 0; i++)
        r = adopt(d, d->batch[i], CLASS_BATCH, err);
    return r < 0 ? r : together(d, 3, &d->result.multi, err);
}

static int run_shares(struct demo *d, struct error *err)
{
    struct child *over[] = {d->latency, d->batch[2]};
    double a, b;
    begin(d, SHARES);
    int r = stop(d, over, 2, err);
    if (r == 0)
        r = policy(d, "shares", err);
    if (r == 0)
        r = weigh(d, d->batch[0], 300, err);
    if (r == 0)
        r = weigh(d, d->batch[1], 100, err);
    if (r == 0)
        r = measure(d, d->start + phases[SHARES].end * d->seconds, d->batch, 2, &a, &b, err);
    for (size_t i = 0; i < 2 && r == 0; i++) {
        double rate;
        r = series_rate(&d->batch[i]->series, a, b, &rate);
        if (r < 0)
            return error_set(err, r, "%s printed too little to work out its share",
                             d->batch[i]->name);
        d->result.got[i] = rate / d->alone_rate;
    }
    return r;
}

static int run_pause(struct demo *d, struct error *err)
{
    struct request q = {.op = OP_PAUSE, .pid = d->batch[0]->pid};
    double a, b, work = 0, rate = 0;
    begin(d, PAUSE);
    int r = stop(d, &d->batch[1], 1, err);
    if (r == 0)
        r = policy(d, "priority", err);
    if (r == 0)
        r = ask(d, &q, &d->result.suspend_us, err);
    if (r < 0)
        return r;
    double left = d->start + d->seconds - clock_s();
    a = clock_s() + GRACE_S;
    b = a + fmax(left * 0.4, WINDOW_S);
    r = wait_until(d, b, err);
    if (r == 0)
        r = testbed_await_lines(&d->bed, d->batch, 1, b, err);
    if (r == 0)
        r = series_work_inside(&d->batch[0]->series, a, b, &work);
    if (r < 0)
        return r;
    d->result.stopped = work == 0;

    q.op = OP_RESUME;
    r = ask(d, &q, &d->result.resume_us, err);
    if (r < 0)
        return r;
    r = measure(d, d->start + d->seconds, d->batch, 1, &a, &b, err);
    if (r == 0)
        r = series_rate(&d->batch[0]->series, a, b, &rate);
    d->result.resumed = rate >= 0.9 * d->alone_rate;
    if (r == 0)
        r = stop(d, &d->batch[0], 1, err);
    /* Last: its end shows whether it left everything as it was. */
    return r < 0 ? r : testbed_stop(&d->bed, &d->bed.daemon, 1, err);
}

static int run_phases(struct demo *d, struct error *err)
{
    int r = machine_describe(d->device, d->result.gpu, sizeof(d->result.gpu), d->result.driver,
                             sizeof(d->result.driver), err);
    if (r == 0)
        r = testbed_calibrate(&d->bed, d->device, d->rate_option, sizeof(d->rate_option), err);
    if (r == 0)
        r = run_alone(d, err);
    if (r == 0)
        r = run_together(d, err);
    if (r == 0)
        r = run_shares(d, err);
    if (r == 0)
        r = run_pause(d, err);
    d->result.seconds = clock_s() - d->start;
    return r;
}

/* ---- the command ---- */

static const char *choose(void)
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
    json_t *o = demo_json(&d->result);
    if (!o || json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) < 0)
        cli_error("demo: cannot print the result");
    putchar('\n');
    json_decref(o);
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

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct demo *d)
{
    enum { DEVICE = 1, SECONDS, KERNEL, RATE, JSON, HELP };
    static const struct option options[] = {
        {"device", required_argument, NULL, DEVICE},
        {"seconds", required_argument, NULL, SECONDS},
        {"batch-kernel-us", required_argument, NULL, KERNEL},
        {"rate", required_argument, NULL, RATE},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    uint64_t seconds = 40, kernel_us = 500, rate = 100;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == HELP) {
            fputs(usage, stdout);
            return CLI_OK;
        }
        if (c == DEVICE)
            d->device = optarg;
        else if (c == JSON)
            d->json = true;
        else if (c == SECONDS && parse_u64(optarg, 10, 600, &seconds) < 0)
            return cli_usage("demo", "bad --seconds '%s': a number from 10 to 600", optarg);
        else if (c == KERNEL && parse_u64(optarg, 10, 100000, &kernel_us) < 0)
            return cli_usage("demo", "bad --batch-kernel-us '%s': a number from 10 to 100000",
                             optarg);
        else if (c == RATE && parse_u64(optarg, 10, 2000, &rate) < 0)
            return cli_usage("demo", "bad --rate '%s': a number from 10 to 2000", optarg);
        else if (c == '?')
            return cli_usage("demo", NULL);
    }
    if (optind < argc)
        return cli_usage("demo", "unexpected argument '%s'", argv[optind]);
    if (strcmp(d->device, "auto") != 0 && strcmp(d->device, "soft") != 0 &&
        strcmp(d->device, "nvidia") != 0)
        return cli_usage("demo", "unknown device '%s': use auto, nvidia or soft", d->device);
    d->seconds = (double)seconds;
    d->result.batch_kernel_us = kernel_us;
    d->result.rate = rate;
    snprintf(d->kernel_option, sizeof(d->kernel_option), "--kernel-us=%llu",
             (unsigned long long)kernel_us);
    snprintf(d->period_option, sizeof(d->period_option), "--period-us=%llu", 1000000ULL / rate);
    return -1;
}

int demo_main(int argc, char **argv)
{
    struct demo d = {
        .device = "auto",
        .client.fd = -1,
        .result = {.asked = {0.75, 0.25}, .verified = true},
    };
    int status = parse(argc, argv, &d);
    if (status >= 0)
        return status;
    if (strcmp(d.device, "auto") == 0)
        d.device = choose();
    d.result.device = d.device;
    d.live = !d.json && isatty(STDOUT_FILENO);

    struct error err = {""};
    bool soft = strcmp(d.device, "soft") == 0;
    struct client other;
    if (!soft && client_open(&other, NULL) == 0) {
        cli_error("demo: a daemon (pid %d) steers this machine's GPUs too: what its jobs do there "
                  "is in the numbers",
                  (int)other.daemon_pid);
        client_close(&other);
    }
    d.start = clock_s();
    int r = testbed_open(&d.bed, soft, &err);
    if (r == 0)
        r = run_phases(&d, &err);
    client_close(&d.client);
    testbed_close(&d.bed);
    if (d.live) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
    if (r < 0) {
        cli_error("demo: %s", err.text);
        return d.bed.signal ? 128 + d.bed.signal : CLI_FAILED;
    }
    print_result(&d);
    if (d.result.stopped && d.result.resumed)
        return CLI_OK;
    cli_error("demo: a pause had no effect on this device: run `cede doctor`");
    return CLI_FAILED;
}
