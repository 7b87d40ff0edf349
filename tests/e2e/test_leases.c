/* Leases of a program are requests for the daemon: in `cede ps`, `cede metrics`, `cede acct` and
 * `cede trace`, with how many met their deadlines; and what they waited for is there, too. */
#include "cede/lease.h"
#include "fixture.h"

enum { MET = 20, PLAIN = 5, MISSED = 3, TRIED = 4 };

static void take(struct cede_pool *p, uint64_t due_us, int64_t timeout_us, int expected,
                 struct cede_lease *out)
{
    const struct cede_shape shape = {.due_us = due_us};
    if (cede_acquire(p, 0, "attention", &shape, timeout_us, out) != expected)
        _exit(2);
}

/* The job: this process, and a load that uses the GPU. Leases of one at a time. Those of 60 s meet
 * their deadlines, those that time out meet none, tries in vain are no requests. Then, for a trace,
 * one after another for ever. */
static void serve(void)
{
    struct cede_pool_config config;
    struct cede_pool *p, *unreported;
    struct cede_lease held, other, none;
    SPAWN("small", "cede", "load", "latency", "--device", "soft", "--name", "small", "--kernel-us",
          "1000", "--period-us", "10000");
    cede_pool_defaults(&config);
    config.flags = CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL;
    config.max_concurrent_streams = 1;
    if (cede_connect(&config.client) || cede_pool_open(&config, &p) ||
        cede_pool_occupancy(p, "attention", 0.5))
        _exit(1);
    config.flags = CEDE_POOL_NO_GPU;
    if (cede_pool_open(&config, &unreported) || cede_pool_occupancy(unreported, "attention", 0.5))
        _exit(1);
    while (!cede_connected(config.client))
        nap_ms(5);
    for (int i = 0; i < MET + PLAIN; i++) {
        take(p, i < MET ? 60000000 : 0, CEDE_TIMEOUT_FOREVER, 0, &held);
        cede_release(&held);
    }
    take(p, 0, 0, 0, &held);
    for (int i = 0; i < MISSED + TRIED; i++)
        take(p, 60000000, i < MISSED ? 1000 : 0, i < MISSED ? -ETIMEDOUT : -EAGAIN, &none);
    if (kill(getpid(), SIGSTOP))
        _exit(3);
    cede_release(&held);
    for (;; nap_ms(5)) {
        take(p, 60000000, CEDE_TIMEOUT_FOREVER, 0, &held);
        take(unreported, 0, 0, 0, &other);
        take(unreported, 0, 5000, -ETIMEDOUT, &none); /* no request, as it is not due */
        cede_release(&other);
        cede_release(&held);
    }
}

/* Of the only job, as a verb has it; -1: it has no such number. */
static long long said_by(const char *verb, const char *path)
{
    CEDE(verb, "--json");
    json_t *all = json_loads(result.out, 0, NULL), *v = value_at(all, path);
    long long n = json_is_integer(v) ? json_integer_value(v) : -1;
    json_decref(all);
    return n;
}
#define REPORTED(key)  said_by("ps", "jobs.0.requests." key)
#define ACCOUNTED(key) said_by("acct", "jobs.0." key)

static void check_metric(const char *name, int value)
{
    char start[64];
    snprintf(start, sizeof(start), "\ncede_job_%s{", name);
    const char *line = strstr(result.out, start), *end = line ? strstr(line, "} ") : NULL;
    if (!end || atoi(end + 2) != value)
        fail_msg("%s is not %d: %.120s", name, value, line ? line : result.out);
}

static bool trace_shows(const char *words)
{
    static char text[1 << 20];
    CEDE("trace", "-o", in_dir("trace"), "-t", "500ms");
    FILE *f = fopen(in_dir("trace"), "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    return memmem(text, n, words, strlen(words));
}

E2E(leases_are_requests)
{
    set_accounts(true);
    configure(200, "");
    ceded_start();
    pid_t small[8], program = in_a_child(serve);
    AWAIT(children_of(program, small, 8) > 0);
    CEDE("set", pid_text(program), "-c", "latency");
    AWAIT(REPORTED("ended") == MET + PLAIN + MISSED);
    assert_int_equal(REPORTED("begun"), MET + PLAIN + MISSED + 1); /* one is held */
    assert_int_equal(REPORTED("open"), 1);
    assert_int_equal(REPORTED("due"), MET + MISSED);
    assert_int_equal(REPORTED("met"), MET);
    CEDE("metrics");
    check_metric("requests_total", MET + PLAIN + MISSED + 1);
    check_metric("requests_due_total", MET + MISSED);
    check_metric("requests_met_total", MET);
    check_metric("requests_open", 1);
    assert_int_equal(said_by("ps", "jobs.0.leases.count.none"), MET + PLAIN + 1);
    assert_int_equal(said_by("ps", "jobs.0.leases.count.limit"), MISSED);
    CEDE("metrics");
    assert_non_null(strstr(result.out, ",reason=\"limit\"} 3\n"));
    assert_non_null(strstr(result.out, "\ncede_job_lease_wait_seconds_total{"));
    assert_false(trace_shows("requests"));
    assert_false(trace_shows("attention"));
    assert_int_equal(kill(program, SIGCONT), 0);
    AWAIT(trace_shows("requests"));
    AWAIT(trace_shows("attention"));
    assert_true(trace_shows("lease waits") && trace_shows("no lease") && trace_shows("limit"));
    for (size_t n = children_of(program, small, 8); n; n--)
        kill(small[n - 1], SIGKILL);
    slay_child(program);
    AWAIT(ACCOUNTED("requests") > MET + PLAIN + MISSED);
    assert_int_equal(ACCOUNTED("requests") - ACCOUNTED("due"), PLAIN + 1); /* the one held */
    assert_int_equal(ACCOUNTED("due") - ACCOUNTED("met"), MISSED);
}
