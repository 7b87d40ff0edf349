/* Two programs that each compute on both GPUs of one server, in kernels that wait for each other
 * (gangs), while a latency program runs on each GPU. What is asserted of speed is how much of its
 * GPU time a gang spent on work and not on waiting for its other half: that does not depend on how
 * busy this machine is. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/registry.h"
#include "fixture.h"
#include "recovery/journal.h"

#define KERNEL_NS   2000000.0 /* the fixture's batch programs */
#define ROTATION_MS 100

enum { G1, G2, GANGS, LAT0 = GANGS, LAT1, N };
static const char *const names[N] = {"g1", "g2", "lat0", "lat1"};
static pid_t pids[N], others[GANGS]; /* first ranks, and the second ones */

static void start_programs(void)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/gpu2", harness_dir());
    setenv("CEDE_SOFT_SOCKET", path, 1);
    SPAWN("softgpu2", "cede", "softgpu", "--gpus", "2");
    assert_true(EVENTUALLY(strstr(contents("softgpu2.out"), "listening")));
    pids[LAT0] = LOAD("lat0", "latency", "--period-us", "20000");
    pids[LAT1] = LOAD("lat1", "latency", "--period-us", "20000", "--gpu", "1");
    for (int g = G1; g < GANGS; g++)
        pids[g] = LOAD(names[g], "batch", "--gpus", "0,1", "--report", "20");
    for (int g = G1; g < GANGS; g++)
        assert_true(EVENTUALLY(children_of(pids[g], &others[g], 1) == 1));
    assert_true(EVENTUALLY(all_have_contexts(pids, N) && all_have_contexts(others, GANGS)));
}

static struct ceded schedule(void)
{
    set_device("soft");
    configure(ROTATION_MS, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i >= GANGS ? "latency" : "batch");
    for (int g = G1; g < GANGS; g++)
        assert_true(EVENTUALLY(job_int(names[g], "processes") == 2));
    return d;
}

static struct ceded begin(void)
{
    start_programs();
    return schedule();
}

/* One gang first, as without a scheduler the two hardly ever get to the end of what is queued. */
static void end_all(void)
{
    kill(pids[G1], SIGKILL);
    await_child(pids[G1]);
    for (int i = G2; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

static void assert_all_free(void)
{
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, N) && all_slices_default(others, GANGS));
    await_progress(pids, N);
    await_progress(others, GANGS);
}

/* Bit for each rank that the journal has as suspended at one moment: 1 and 2 of the first gang, 4
 * and 8 of the second. */
static unsigned suspended_ranks(void)
{
    struct journal *j;
    unsigned map = 0;
    if (journal_open_readonly(cede_home(), &j, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags = 0;
        const struct device_group *d = journal_group(j, i, &flags);
        for (unsigned g = G1; d && (flags & JG_SUSPENDED) && g < GANGS; g++) {
            map |= d->proc.pid == pids[g] ? 1U << 2 * g : 0;
            map |= d->proc.pid == others[g] ? 2U << 2 * g : 0;
        }
    }
    journal_close(j);
    return map;
}

/* ---- turns ---- */

static double kernels_done(const char *name)
{
    char file[16];
    snprintf(file, sizeof(file), "%s.out", name);
    const char *text = contents(file), *at = NULL;
    for (const char *p = text; (p = strstr(p, "\"kernels\":")); p++)
        at = strchr(p, '\n') ? p : at;
    return at ? strtod(at + strlen("\"kernels\":"), NULL) : 0;
}

static struct device_driver *open_driver(void)
{
    struct device_driver *d = NULL;
    struct error err = {""};
    if (device_open("soft", NULL, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

/* Adds the GPU time of each gang's ranks since the last call. */
static void add_busy(struct device_driver *d, double *ns)
{
    struct activity_list l = {0};
    assert_int_equal(d->ops->activity(d, &l, NULL), 0);
    for (size_t i = 0; i < l.n; i++) {
        for (int g = G1; g < GANGS; g++) {
            if (l.v[i].pid == pids[g] || l.v[i].pid == others[g])
                ns[g] += (double)l.v[i].busy_ns;
        }
    }
    activity_list_free(&l);
}

/* What part of its GPU time each gang spends on kernels that end, until each has done `kernels`. */
static void measure_gangs(double kernels, double part[GANGS])
{
    double busy[GANGS] = {0}, first[GANGS], ignored[GANGS] = {0};
    struct device_driver *d = open_driver();
    add_busy(d, ignored);
    for (int g = G1; g < GANGS; g++)
        first[g] = kernels_done(names[g]);
    if (!EVENTUALLY(({
            nap_ms(50);
            add_busy(d, busy);
            kernels_done("g1") - first[G1] >= kernels &&kernels_done("g2") - first[G2] >= kernels;
        })))
        fail_msg("a gang does not get on: %.0f and %.0f kernels", kernels_done("g1") - first[G1],
                 kernels_done("g2") - first[G2]);
    for (int g = G1; g < GANGS; g++)
        part[g] = (kernels_done(names[g]) - first[g]) * 2 * KERNEL_NS / busy[g];
    device_close(d);
}

static void turns_coincide(void **state)
{
    (void)state;
    double part[GANGS];
    start_programs();
    struct ceded d = schedule();
    assert_true(EVENTUALLY(suspended_ranks() == 3));
    assert_true(EVENTUALLY(suspended_ranks() == 12));
    measure_gangs(500, part); /* ten turns of each */
    print_message("work in GPU time: %.2f and %.2f\n", part[G1], part[G2]);
    for (int g = G1; g < GANGS; g++)
        assert_true(part[g] > 0.6);
    /* Whole gangs wait, and never both. A change takes a moment on each GPU. */
    unsigned whole = 0, torn = 0;
    for (int i = 0; i < 400; i++) {
        unsigned map = suspended_ranks();
        whole += map == 3 || map == 12;
        torn += map != 3 && map != 12;
        nap_ms(3);
    }
    assert_true(whole > 4 * torn);
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
}

/* ---- one job ---- */

static void one_job(void **state)
{
    (void)state;
    struct ceded d = begin();
    json_t *job = job_named("g1"), *gpus = json_object_get(job, "gpus");
    assert_int_equal(json_array_size(gpus), 2);
    json_decref(job);

    CEDE("pause", "g1");
    assert_int_equal(suspended_ranks() & 3, 3);
    assert_true(EVENTUALLY(suspended_ranks() == 3)); /* nobody for the other to take turns with */
    assert_true(job_is("g1", "state", "paused"));
    await_progress(&pids[G2], 1);
    await_progress(&others[G2], 1);
    assert_int_equal(suspended_ranks(), 3);
    CEDE("resume", pid_text(others[G1])); /* by any of its processes */
    assert_true(EVENTUALLY(suspended_ranks() == 12));

    /* A job of a higher class has both GPUs, without turns. */
    CEDE("set", "g1", "-c", "normal");
    assert_true(EVENTUALLY(suspended_ranks() == 12));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(suspended_ranks(), 12);
        nap_ms(5);
    }
    CEDE("set", "g1", "-c", "batch");
    assert_true(EVENTUALLY(suspended_ranks() == 3));
    ceded_stop(&d);
    assert_all_free();
    end_all();
}

/* ---- kill -9 ---- */

static void rank_killed(bool first)
{
    struct ceded d = begin();
    CEDE("pause", "g1");
    assert_int_equal(suspended_ranks() & 3, 3);
    kill(first ? pids[G1] : others[G1], SIGKILL);
    assert_int_equal(await_child(pids[G1]), first ? 1000 + SIGKILL : 1);
    if (first)
        assert_int_equal(await_child(others[G1]), 1000 + SIGKILL); /* an orphan of ours now */
    else
        assert_non_null(strstr(contents("g1.err"), "another rank of this gang, has ended"));
    assert_true(EVENTUALLY(job_gone("g1")));
    assert_true(EVENTUALLY(suspended_ranks() == 0)); /* nobody left to take turns with */
    await_progress(pids + G2, N - G2);
    await_progress(&others[G2], 1);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
    for (int i = G2; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

static void first_rank_killed(void **state)
{
    (void)state;
    rank_killed(true);
}

static void second_rank_killed(void **state)
{
    (void)state;
    rank_killed(false);
}

static void daemon_killed(void **state)
{
    (void)state;
    struct ceded d = begin();
    assert_true(EVENTUALLY(suspended_ranks() == 3));
    ceded_kill(&d);
    assert_all_free();
    d = ceded_start();
    assert_true(EVENTUALLY(suspended_ranks() == 12));
    CEDE("pause", "g2");
    ceded_kill(&d);
    assert_all_free();
    end_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(turns_coincide),     e2e(one_job),       e2e(first_rank_killed),
        e2e(second_rank_killed), e2e(daemon_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
