/* Leases of a program are requests for the daemon: in `cede ps`, `cede metrics`, `cede acct` and
 * `cede trace`, with how many met their deadlines. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cede/lease.h"
#include "fixture.h"

enum { MET = 20, PLAIN = 5, MISSED = 3, TRIED = 4 };

static void take(struct cede_pool *p, uint64_t due_us, int64_t timeout_us, int expected,
                 struct cede_lease *out)
{
    const struct cede_shape shape = {.due_us = due_us};
    if (cede_acquire(p, 0, NULL, &shape, timeout_us, out) != expected)
        _exit(2);
}

/* The program: leases of one at a time. Those of 60 s meet their deadlines, those that time out
 * meet none, tries in vain are no requests. Then, for a trace, one after another for ever. */
static void serve(void)
{
    struct cede_pool_config config;
    struct cede_pool *p;
    struct cede_lease held, none;
    cede_pool_defaults(&config);
    config.flags = CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL;
    config.max_concurrent_streams = 1;
    if (cede_connect(&config.cede) || cede_pool_open(&config, &p))
        _exit(1);
    while (!cede_connected(config.cede))
        nap_ms(5);
    for (int i = 0; i < MET + PLAIN; i++) {
        take(p, i < MET ? 60000000 : 0, CEDE_NO_TIMEOUT, 0, &held);
        cede_release(&held);
    }
    take(p, 0, 0, 0, &held);
    for (int i = 0; i < MISSED + TRIED; i++)
        take(p, 60000000, i < MISSED ? 1000 : 0, i < MISSED ? -ETIMEDOUT : -EAGAIN, &none);
    if (kill(getpid(), SIGSTOP))
        _exit(3);
    cede_release(&held);
    for (;; nap_ms(5)) {
        take(p, 60000000, CEDE_NO_TIMEOUT, 0, &held);
        nap_ms(5);
        cede_release(&held);
    }
}

/* The job: this process, and a load that uses the GPU. */
static pid_t program_start(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        SPAWN("small", "cede", "load", "latency", "--device", "soft", "--name", "small",
              "--kernel-us", "1000", "--period-us", "10000");
        serve();
    }
    return pid;
}

/* Of the only job, as `cede ps --json` has it. */
static long long reported(const char *key)
{
    CEDE("ps", "--json");
    json_t *all = json_loads(result.out, 0, NULL);
    const json_t *job = json_array_get(json_object_get(all, "jobs"), 0);
    const json_t *v = json_object_get(json_object_get(job, "requests"), key);
    long long n = json_is_integer(v) ? json_integer_value(v) : -1;
    json_decref(all);
    return n;
}

static long long accounted(const char *key)
{
    CEDE("acct", "--json");
    json_t *all = json_loads(result.out, 0, NULL);
    long long n =
        json_integer_value(json_object_get(json_array_get(json_object_get(all, "jobs"), 0), key));
    json_decref(all);
    return n;
}

static void check_metric(const char *name, int value)
{
    char start[64];
    snprintf(start, sizeof(start), "\ncede_job_%s{", name);
    const char *line = strstr(result.out, start), *end = line ? strstr(line, "} ") : NULL;
    if (!end || atoi(end + 2) != value)
        fail_msg("%s is not %d: %.120s", name, value, line ? line : result.out);
}

static bool trace_shows_requests(void)
{
    static char text[1 << 20];
    char path[128];
    snprintf(path, sizeof(path), "%s/trace", harness_dir());
    CEDE("trace", "-o", path, "-t", "500ms");
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    return memmem(text, n, "requests", strlen("requests"));
}

static void leases_are_requests(void **state)
{
    set_accounts(true);
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t small[8], program = program_start();
    assert_true(EVENTUALLY(children_of(program, small, 8) > 0));
    CEDE("set", pid_text(program), "-c", "latency");
    assert_true(EVENTUALLY(reported("ended") == MET + PLAIN + MISSED));
    assert_int_equal(reported("begun"), MET + PLAIN + MISSED + 1); /* one is held */
    assert_int_equal(reported("open"), 1);
    assert_int_equal(reported("due"), MET + MISSED);
    assert_int_equal(reported("met"), MET);
    CEDE("metrics");
    check_metric("requests_total", MET + PLAIN + MISSED + 1);
    check_metric("requests_due_total", MET + MISSED);
    check_metric("requests_met_total", MET);
    check_metric("requests_open", 1);
    assert_false(trace_shows_requests());
    assert_int_equal(kill(program, SIGCONT), 0);
    assert_true(EVENTUALLY(trace_shows_requests()));
    for (size_t n = children_of(program, small, 8); n; n--)
        kill(small[n - 1], SIGKILL);
    kill(program, SIGKILL);
    await_child(program);
    assert_true(EVENTUALLY(accounted("requests") > MET + PLAIN + MISSED));
    assert_int_equal(accounted("requests") - accounted("due"), PLAIN + 1); /* the one held */
    assert_int_equal(accounted("due") - accounted("met"), MISSED);
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(leases_are_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
