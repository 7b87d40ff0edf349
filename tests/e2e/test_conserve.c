/* The GPU is not idle while a job waits: what batch jobs get while a latency job runs, compared
 * with what the same programs get without cede, measured just before in the same run. Programs that
 * often wait for their hosts, or for each other, are the hard case: a launch-bound latency job, the
 * ranks of one job, several jobs with host work between their bursts. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define PROGRAMS 4
#define JOB_NAME "ranks"

/* The programs of one test; the parts of the GPU's time that the latency program and the others
 * together had. */
struct conserve {
    pid_t latency, job[PROGRAMS], programs[PROGRAMS]; /* jobs' first processes; GPU programs */
    size_t jobs, n;
    double latency_alone, latency_default, default_rate, latency_cede, cede_rate;
    double speed; /* of the latency job, as shown */
};

static double rates(const struct conserve *c, unsigned ms, double *latency)
{
    pid_t v[PROGRAMS + 1] = {c->latency};
    double busy[PROGRAMS + 1] = {0}, sum = 0;
    memcpy(v + 1, c->programs, c->n * sizeof(*v));
    measure(v, c->n + 1, ms, busy);
    for (size_t i = 1; i <= c->n; i++)
        sum += busy[i];
    *latency = busy[0];
    return sum;
}

/* All programs work: without cede first, then with. */
static void compare(struct conserve *c)
{
    assert_true(EVENTUALLY(all_have_contexts(c->programs, c->n)));
    await_progress(c->programs, c->n);
    c->default_rate = rates(c, 2000, &c->latency_default);
    configure(200, ""); /* turns are as long as without a configuration */
    struct ceded d = ceded_start();
    CEDE("set", pid_text(c->latency), "-c", "latency");
    for (size_t i = 0; i < c->jobs; i++)
        CEDE("set", pid_text(c->job[i]), "-c", "batch");
    nap_ms(6000); /* until a controller has found its slice, or a throttle its job */
    c->cede_rate = rates(c, 4000, &c->latency_cede);
    json_t *server = job_named("server");
    c->speed = json_number_value(json_object_get(server, "speed"));
    json_decref(server);
    ceded_stop(&d);
    printf("latency alone %.3f, by default %.3f, with cede %.3f; batch %.3f and %.3f: %.2f\n",
           c->latency_alone, c->latency_default, c->latency_cede, c->default_rate, c->cede_rate,
           c->cede_rate / c->default_rate);
    printf("speed of the latency job: shown %.2f, seen %.2f\n", c->speed,
           c->latency_cede / c->latency_alone);
}

/* A machine that is too busy to run the programs in time can make a measurement too low, and never
 * turns the collapse into a good one: it is repeated. */
#define ATTEMPTS 3
static void in_some_attempt(bool (*conserves)(void))
{
    bool good = false;
    for (int i = 0; i < ATTEMPTS && !good; i++)
        good = conserves();
    assert_true(good);
}

/* A step is 160 kernels of 6 us behind 40 us of host work each: a server of eager PyTorch, which
 * computes for 15 % of the time, beside a batch job that always has work. */
static bool launch_bound(void)
{
    struct conserve c = {.jobs = 1, .n = 1};
    c.latency = LOAD("server", "latency", "--period-us", "0", "--kernels", "160", "--kernel-us",
                     "6", "--launch-us", "40");
    assert_true(EVENTUALLY(all_have_contexts(&c.latency, 1)));
    await_progress(&c.latency, 1);
    measure(&c.latency, 1, 1500, &c.latency_alone);
    c.programs[0] = c.job[0] = LOAD("train", "batch", "--kernel-us", "500");
    compare(&c);
    json_decref(load_end("train", c.job[0]));
    json_decref(load_end("server", c.latency));
    return c.cede_rate >= 0.4 * c.default_rate && c.latency_cede >= 0.8 * c.latency_alone &&
           fabs(c.speed - c.latency_cede / c.latency_alone) < 0.2;
}

static void beside_a_launch_bound_server(void **state)
{
    (void)state;
    in_some_attempt(launch_bound);
}

/* 1 % of the GPU. */
static pid_t light_server(void)
{
    return LOAD("server", "latency", "--kernel-us", "100", "--period-us", "10000");
}

/* One job of four programs: bursts of 0.3 ms, and host work after each. */
static bool one_job(const char *host_us, const char *barrier)
{
    struct conserve c = {.latency = light_server(), .jobs = 1};
    char script[512];
    snprintf(script, sizeof(script),
             "for i in 1 2 3 4; do '%s' load batch --device soft --burst 3 --kernel-us 100 "
             "--host-us %s %s --verify & done; wait",
             harness_exe(), host_us, barrier);
    c.job[0] = SPAWN(JOB_NAME, "sh", "-c", script);
    assert_true(EVENTUALLY((c.n = children_of(c.job[0], c.programs, PROGRAMS)) == PROGRAMS &&
                           all_have_contexts(c.programs, PROGRAMS)));
    compare(&c);
    for (size_t i = 0; i < c.n; i++)
        kill(c.programs[i], SIGTERM);
    assert_int_equal(await_child(c.job[0]), 0);
    assert_string_equal(contents(JOB_NAME ".err"), "");
    json_decref(load_end("server", c.latency));
    return c.cede_rate >= 0.6 * c.default_rate;
}

static bool lockstep(void)
{
    char barrier[128];
    snprintf(barrier, sizeof(barrier), "--barrier conserve-%d --ranks 4", (int)getpid());
    return one_job("2000", barrier);
}

static void ranks_in_lockstep(void **state)
{
    (void)state;
    in_some_attempt(lockstep);
}

static bool no_lockstep(void)
{
    return one_job("5000", "");
}

static void programs_of_one_job(void **state)
{
    (void)state;
    in_some_attempt(no_lockstep);
}

/* Four jobs: bursts of 2 ms, and 5 ms of host work after each. */
static bool four_jobs(void)
{
    static const char *const names[PROGRAMS] = {"a", "b", "c", "d"};
    struct conserve c = {.latency = light_server(), .jobs = PROGRAMS, .n = PROGRAMS};
    for (size_t i = 0; i < PROGRAMS; i++)
        c.programs[i] = c.job[i] =
            LOAD(names[i], "batch", "--burst", "4", "--kernel-us", "500", "--host-us", "5000");
    compare(&c);
    for (size_t i = 0; i < PROGRAMS; i++)
        json_decref(load_end(names[i], c.job[i]));
    json_decref(load_end("server", c.latency));
    return c.cede_rate >= 0.6 * c.default_rate;
}

static void jobs_with_host_work(void **state)
{
    (void)state;
    in_some_attempt(four_jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(beside_a_launch_bound_server), e2e(ranks_in_lockstep),
                                       e2e(programs_of_one_job), e2e(jobs_with_host_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
