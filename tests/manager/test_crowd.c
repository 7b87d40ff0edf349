/* More programs of one user than there is room for: others find room all the same. */
#include "fixture.h"

enum { CROWD = USER_JOBS_MAX + 20 };

static bool anybody(void *arg, pid_t pid, struct job_spec *spec)
{
    const pid_t *other = arg;
    *spec = (struct job_spec){.class = CLASS_BATCH,
                              .weight = 50,
                              .source = JOB_RULE,
                              .uid = pid == *other ? 1001 : 1000,
                              .name = "r"};
    return true;
}

static void test_rule_for_all(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    static pid_t pids[CROWD + 1];
    struct manager_options o = {.policy = "priority", .rule = anybody, .rule_arg = &pids[CROWD]};
    core_params_default(&o.params);
    for (size_t i = 0; i <= CROWD; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            wait_to_die();
        assert_true(pids[i] > 0);
    }
    f->d.idle = pids;
    f->d.nidle = CROWD + 1;
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), 0);
    assert_int_equal(manager_new(&f->d.base, f->j, &o, &f->m, &err), 0);
    f->now = monotonic_ns();
    for (int i = 0; i < 3; i++) {
        ticks(f, 1);
        f->now += 2 * NSEC_PER_SEC;
    }
    struct job_view v;
    unsigned jobs[2] = {0};
    for (uint32_t cursor = 0; manager_next_job(f->m, &cursor, &v);)
        jobs[v.job.uid == 1001]++;
    for (size_t i = 0; i <= CROWD; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    assert_int_equal(jobs[0], USER_JOBS_MAX);
    assert_int_equal(jobs[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_rule_for_all)};
    return cmocka_run_group_tests_name("crowd", tests, NULL, NULL);
}
