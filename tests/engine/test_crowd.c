/* More programs of one user than there is room for: others find room all the same. */
#include "fixture.h"

#include <sys/resource.h>

enum { CROWD = USER_JOBS_MAX + 20 };

static int anybody(void *arg, pid_t pid, struct job_spec *spec)
{
    const pid_t *other = arg;
    const bool is_other = pid == *other; /* a person has many uids */
    *spec = (struct job_spec){.terms = {.class = CLASS_BATCH, .weight = 50},
                              .source = JOB_RULE,
                              .uid = is_other ? 1001 : 100000 + (uid_t)pid % 65536,
                              .account_uid = is_other ? 1001 : 1000,
                              .name = "r"};
    return true;
}

/* Programs, one of them (other) another user's, and an engine that makes jobs of all. */
static void crowd_begin(struct fixture *f, pid_t *pids, size_t n, pid_t *other)
{
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork_to_wait();
        assert_true(pids[i] > 0);
    }
    f->d.idle = pids;
    f->d.nidle = n;
    f->rule = anybody;
    start(f, "priority", other);
    ticks(f, 6000);
}

static void crowd_end(const pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static void test_rule_for_all(void **state)
{
    struct fixture *f = *state;
    static pid_t pids[CROWD + 1];
    crowd_begin(f, pids, CROWD + 1, &pids[CROWD]);
    struct job_view v;
    unsigned jobs[2] = {0};
    for (uint32_t cursor = 0; engine_next_job(f->m, &cursor, &v);)
        jobs[v.job.uid == 1001]++;
    crowd_end(pids, CROWD + 1);
    assert_int_equal(jobs[0], USER_JOBS_MAX);
    assert_int_equal(jobs[1], 1);
}

/* One user's programs take all descriptors that users may have; root's job has one all the same. */
static void test_descriptors_for_root(void **state)
{
    enum { LIMIT = 512, MANY = 200 };
    struct fixture *f = *state;
    struct rlimit before, few;
    struct error err = {""};
    static pid_t pids[MANY];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){LIMIT, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    crowd_begin(f, pids, MANY, &pids[0]);
    struct job_view v;
    unsigned jobs = 0;
    for (uint32_t cursor = 0; engine_next_job(f->m, &cursor, &v);)
        jobs++;
    assert_in_range(jobs, LIMIT / 8, LIMIT / 4);
    f->d.idle = NULL;
    f->d.nidle = 0;
    pid_t root = child(f);
    mock_context(&f->d, root, 0, 3);
    uint32_t job = add(f, root, CLASS_LATENCY);
    ticks(f, 1000);
    assert_int_equal(engine_job_status(f->m, job, &err), 0);
    assert_int_equal(on(f, root)->timeslice_us, 1000000);
    crowd_end(pids, MANY);
    crash(f);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Programs that take long to look at and are different each time: another that is behind them is
 * found all the same. */
static void test_programs_that_change_all_the_time(void **state)
{
    enum { OTHERS = 8 };
    struct fixture *f = *state;
    pid_t p[OTHERS + 1];
    programs(f, p, OTHERS + 1, 0);
    start(f, "priority", NULL);
    for (int i = 0; i < OTHERS; i++)
        add(f, p[i], CLASS_BATCH);
    ticks(f, 1000);
    f->d.scan_ns = 4 * NSEC_PER_MSEC;
    add(f, p[OTHERS], CLASS_LATENCY);
    int turn = 0;
    for (; turn < 100 && on(f, p[OTHERS])->timeslice_us != 1000000; turn++) {
        for (int i = 0; i < OTHERS; i++)
            on(f, p[i])->timeslice_us = 3000 + 1000 * (uint64_t)(turn % 2);
        f->now += NSEC_PER_SEC; /* all are due */
        tick(f);
    }
    assert_in_range(turn, 1, 2 * OTHERS);
}

/* A program with contexts by the hundred: one tick makes a bounded number of controls, those of
 * groups that compute first, and in the end all are made. */
static void test_many_contexts(void **state)
{
    enum { CONTEXTS = 100 };
    struct fixture *f = *state;
    pid_t many = child(f), latency = child(f);
    mock_context(&f->d, latency, 0, 1);
    for (int i = 0; i < CONTEXTS; i++)
        mock_context(&f->d, many, 0, 3);
    start(f, "priority", NULL);
    add(f, latency, CLASS_LATENCY);
    add(f, many, CLASS_BATCH);
    unsigned left = CONTEXTS, most = 0, turn = 0;
    for (; turn < 100 && left; turn++, f->now += NSEC_PER_MSEC) {
        const unsigned before = f->d.timeslice_calls;
        tick(f);
        most = f->d.timeslice_calls - before > most ? f->d.timeslice_calls - before : most;
        left = 0;
        for (size_t i = 0; i < MOCK_GROUPS; i++) {
            const struct mock_group *g = &f->d.g[i];
            const bool unset = g->dg.proc.pid == many && !g->suspended && g->timeslice_us != 1;
            left += unset;
            assert_false(unset && g->dg.kind == GROUP_COMPUTE);
        }
    }
    assert_int_equal(left, 0);
    assert_in_range(most, 1, 2 * 64);
    assert_in_range(turn, 3, 20);
}

/* The same of groups that are suspended: of so many contexts of one job only one may run. */
static void test_many_suspensions(void **state)
{
    enum { CONTEXTS = 1500 };
    struct fixture *f = *state;
    pid_t many = child(f), latency = child(f);
    mock_context(&f->d, latency, 0, 1);
    for (int i = 0; i < CONTEXTS; i++)
        mock_context(&f->d, many, 0, 0);
    start(f, "priority", NULL);
    add(f, latency, CLASS_LATENCY);
    add(f, many, CLASS_BATCH);
    unsigned most = 0;
    for (int turn = 0; turn < 100; turn++, f->now += NSEC_PER_MSEC) {
        const unsigned before = f->d.run_groups;
        tick(f);
        most = f->d.run_groups - before > most ? f->d.run_groups - before : most;
        if (turn == 1)
            assert_int_equal(on(f, latency)->timeslice_us, 1000000);
    }
    assert_int_equal(suspended_groups(f), CONTEXTS - 1);
    /* Two plans a tick, and each group is resumed first: an earlier scheduler may have it. */
    assert_in_range(most, 1, 2 * 2 * 512);
}

/* A driver whose controls take long: a tick ends after a while however few were made. */
static void test_slow_controls(void **state)
{
    enum { CONTEXTS = 100 };
    struct fixture *f = *state;
    pid_t many = child(f), latency = child(f);
    mock_context(&f->d, latency, 0, 1);
    for (int i = 0; i < CONTEXTS; i++)
        mock_context(&f->d, many, 0, 0);
    f->d.control_ns = 5 * NSEC_PER_MSEC;
    start(f, "static", NULL);
    add(f, latency, CLASS_LATENCY);
    add(f, many, CLASS_BATCH);
    unsigned most = 0;
    for (int turn = 0; turn < 100; turn++, f->now += NSEC_PER_MSEC) {
        const unsigned before = f->d.timeslice_calls;
        tick(f);
        most = f->d.timeslice_calls - before > most ? f->d.timeslice_calls - before : most;
    }
    assert_in_range(f->d.timeslice_calls, CONTEXTS + 1, 4 * CONTEXTS);
    assert_in_range(most, 1, 2 * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_rule_for_all),
                                       T(test_descriptors_for_root),
                                       T(test_programs_that_change_all_the_time),
                                       T(test_many_contexts),
                                       T(test_many_suspensions),
                                       T(test_slow_controls)};
    return cmocka_run_group_tests_name("crowd", tests, NULL, NULL);
}
