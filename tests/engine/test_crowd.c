/* More programs of one user than there is room for: others find room all the same. */
#include "fixture.h"

enum { CROWD = USER_JOBS_MAX + 20 };

static int anybody(void *arg, pid_t pid, struct job_spec *spec)
{
    const pid_t *other = arg;
    const bool is_other = pid == *other; /* a person has many uids */
    *spec = (struct job_spec){.terms = {.class = CLASS_BATCH, .weight = 50},
                              .source = JOB_RULE,
                              .uid = is_other ? 1001 : 100000 + (uid_t)pid % 65536,
                              .principal = is_other ? 1001 : 1000,
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

ENGINE_TEST(test_rule_for_all)
{
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
ENGINE_TEST(test_descriptors_for_root)
{
    enum { LIMIT = 512, MANY = 200 };
    static pid_t pids[MANY];
    const rlim_t before = limit(RLIMIT_NOFILE, LIMIT);
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
    assert_int_equal(engine_job_status(f->m, job, &f->err), 0);
    assert_int_equal(on(f, root)->timeslice_us, 1000000);
    crowd_end(pids, MANY);
    crash(f);
    limit(RLIMIT_NOFILE, before);
}

/* Programs that take long to look at and are different each time: another that is behind them is
 * found all the same. */
ENGINE_TEST(test_programs_that_change_all_the_time)
{
    enum { OTHERS = 8 };
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
    crash(f); /* in order it would leave what they have set last */
}

/* A latency job, and a batch job of a program with so many contexts of one compute group and ncopy
 * copy groups. */
static void many_contexts(struct fixture *f, const char *policy, int contexts, unsigned ncopy)
{
    programs(f, f->p, 1, 1);
    f->p[1] = child(f);
    for (int i = 0; i < contexts; i++)
        mock_context(&f->d, f->p[1], 0, ncopy);
    start(f, policy, NULL);
    f->job[0] = add(f, f->p[0], CLASS_LATENCY);
    f->job[1] = add(f, f->p[1], CLASS_BATCH);
}

/* A tick, 1 ms later the next; *most: what the counter rose in one of them at most. */
static void tick_and_count(struct fixture *f, const unsigned *counter, unsigned *most)
{
    const unsigned before = *counter;
    tick(f);
    *most = (unsigned)max_u64(*most, *counter - before);
    f->now += NSEC_PER_MSEC;
}

/* One tick makes a bounded number of controls, those of groups that compute first, and in the end
 * all are made. */
ENGINE_TEST(test_many_contexts)
{
    unsigned left = 1, most = 0, turn = 0;
    many_contexts(f, "priority", 100, 3);
    for (; turn < 100 && left; turn++) {
        tick_and_count(f, &f->d.timeslice_calls, &most);
        left = 0;
        for (size_t i = 0; i < MOCK_GROUPS; i++) {
            const struct mock_group *g = &f->d.g[i];
            const bool unset = g->dg.proc.pid == p[1] && !g->suspended && g->timeslice_us != 1;
            left += unset;
            assert_false(unset && g->dg.kind == GROUP_COMPUTE);
        }
    }
    assert_int_equal(left, 0);
    assert_in_range(most, 1, 2 * 64);
    assert_in_range(turn, 3, 20);
}

/* Ticks until no group differs from what its program gave it. */
static void undone_bit_by_bit(struct fixture *f)
{
    unsigned most = 0;
    for (int turn = 0; turn < 3000 && changed_groups(f); turn++)
        tick_and_count(f, &f->d.timeslice_calls, &most);
    assert_int_equal(changed_groups(f), 0);
    assert_in_range(most, 1, 64);
}

/* The program leaves its job, and later the jobs of a ceded that is gone are no more: what they had
 * is given back, and no tick takes long. */
ENGINE_TEST(test_many_contexts_are_given_back)
{
    enum { CONTEXTS = 200 };
    many_contexts(f, "shares", CONTEXTS, 0);
    ticks(f, 300);
    assert_in_range(changed_groups(f), CONTEXTS, CONTEXTS + 2);
    const unsigned before = f->d.timeslice_calls;
    engine_release(f->m, j[1]);
    engine_release(f->m, j[0]);
    assert_in_range(f->d.timeslice_calls - before, 1, 64 + 2);
    undone_bit_by_bit(f);
    add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    ticks(f, 300);
    assert_in_range(changed_groups(f), CONTEXTS, CONTEXTS + 2);
    crash(f);
    forget_jobs(f);
    start(f, "shares", NULL);
    undone_bit_by_bit(f);
}

/* The same of groups that are suspended: of so many contexts of one job only one may run. */
ENGINE_TEST(test_many_suspensions)
{
    enum { CONTEXTS = 1500 };
    unsigned most = 0;
    many_contexts(f, "priority", CONTEXTS, 0);
    for (int turn = 0; turn < 100; turn++) {
        tick_and_count(f, &f->d.run_groups, &most);
        if (turn == 1)
            assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
    }
    assert_int_equal(suspended_groups(f), CONTEXTS - 1);
    /* Two plans a tick, and each group is resumed first: an earlier scheduler may have it. */
    assert_in_range(most, 1, 2 * 2 * 512);
}

/* A driver whose controls take long: a tick ends after a while however few were made. */
ENGINE_TEST(test_slow_controls)
{
    enum { CONTEXTS = 100 };
    unsigned most = 0;
    f->d.control_ns = 5 * NSEC_PER_MSEC;
    many_contexts(f, "shares", CONTEXTS, 0);
    for (int turn = 0; turn < 100; turn++)
        tick_and_count(f, &f->d.timeslice_calls, &most);
    assert_in_range(f->d.timeslice_calls, CONTEXTS + 1, 4 * CONTEXTS);
    assert_in_range(most, 1, 2 * 5);
}
