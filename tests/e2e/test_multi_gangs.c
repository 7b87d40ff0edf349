/* Two programs that each compute on both GPUs of one server, in kernels that wait for each other
 * (gangs), while a latency program runs on each GPU. What turns that coincide gain: sim_gangs. */
#include "fixture.h"
#include "journal/journal.h"

enum { G1, G2, GANGS, LAT0 = GANGS, LAT1, N };
static const char *const names[N] = {"g1", "g2", "lat0", "lat1"};
static pid_t pids[N], others[GANGS]; /* first ranks, and the second ones */

static void start_programs(void)
{
    REPLACE_GPU("--gpus", "2");
    pids[LAT0] = LOAD("lat0", "latency", "--period-us", "20000");
    pids[LAT1] = LOAD("lat1", "latency", "--period-us", "20000", "--gpu", "1");
    for (int g = G1; g < GANGS; g++)
        pids[g] = LOAD(names[g], "batch", "--gpus", "0,1");
    for (int g = G1; g < GANGS; g++)
        AWAIT(children_of(pids[g], &others[g], 1) == 1);
    AWAIT(all_have_contexts(pids, N) && all_have_contexts(others, GANGS));
}

static struct ceded begin(void)
{
    start_programs();
    configure(100, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i >= GANGS ? "latency" : "batch");
    for (int g = G1; g < GANGS; g++)
        AWAIT(job_int(names[g], "processes") == 2);
    return d;
}

/* One gang first, as without a scheduler the two hardly ever get to the end of what is queued. */
static void end_all(void)
{
    slay_child(pids[G1]);
    loads_end(N - G2, names + G2, pids + G2);
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

E2E(turns_coincide)
{
    struct ceded d = begin();
    AWAIT(suspended_ranks() == 3);
    AWAIT(suspended_ranks() == 12);
    /* Whole gangs wait, and never both. A change takes a moment on each GPU. */
    unsigned whole = 0, torn = 0;
    for (int i = 0; i < 400; i++) {
        unsigned map = suspended_ranks();
        whole += map == 3 || map == 12;
        torn += map != 3 && map != 12;
        nap_ms(3);
    }
    assert_true(whole > 4 * torn);
    loads_end(N, names, pids);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
}

E2E(one_job)
{
    struct ceded d = begin();
    assert_int_equal(job_count("g1", "gpus"), 2);
    CEDE("pause", "g1");
    assert_int_equal(suspended_ranks() & 3, 3);
    AWAIT(suspended_ranks() == 3); /* nobody for the other to take turns with */
    assert_true(job_is("g1", "state", "paused"));
    await_progress(&pids[G2], 1);
    await_progress(&others[G2], 1);
    assert_int_equal(suspended_ranks(), 3);
    CEDE("resume", pid_text(others[G1])); /* by any of its processes */
    AWAIT(suspended_ranks() == 12);

    /* A job of a higher class has both GPUs, without turns. */
    CEDE("set", "g1", "-c", "normal");
    AWAIT(suspended_ranks() == 12);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(suspended_ranks(), 12);
        nap_ms(5);
    }
    CEDE("set", "g1", "-c", "batch");
    AWAIT(suspended_ranks() == 3);
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
    AWAIT(job_gone("g1"));
    AWAIT(suspended_ranks() == 0); /* nobody left to take turns with */
    await_progress(pids + G2, N - G2);
    await_progress(&others[G2], 1);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
    loads_end(N - G2, names + G2, pids + G2);
}

E2E(first_rank_killed)
{
    rank_killed(true);
}

E2E(second_rank_killed)
{
    rank_killed(false);
}

E2E(daemon_killed)
{
    struct ceded d = begin();
    AWAIT(suspended_ranks() == 3);
    ceded_kill(&d);
    assert_all_free();
    d = ceded_start();
    AWAIT(suspended_ranks() == 12);
    CEDE("pause", "g2");
    ceded_kill(&d);
    assert_all_free();
    end_all();
}
