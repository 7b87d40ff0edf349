/* How many jobs may wait in line for memory. */
#include "swapping.h"

/* No user has more jobs in line than users may have, and those that left it do not count. */
static void waiters_are_bounded(struct fixture *f, uid_t user)
{
    static pid_t pids[USER_WAITS_MAX];
    uint32_t job = SLOT_NONE;
    struct error err = {""};
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        pids[i] = fork_to_wait();
        assert_true(pids[i] > 0);
    }
    swap_start(f);
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        struct proc_stat st;
        const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = 100},
                                      .source = JOB_RUN,
                                      .uid = user,
                                      .account_uid = user};
        assert_false(engine_user_waits_full(f->m, user));
        assert_int_equal(proc_stat_read(pids[i], &st), 0);
        assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), 0);
        need(f, job, 1);
    }
    ticks(f, 1);
    assert_true(engine_user_waits_full(f->m, user));
    assert_false(engine_user_waits_full(f->m, 8));
    assert_int_equal(view(f, job).place, USER_WAITS_MAX - 1);
    engine_started(f->m, job);
    assert_false(engine_user_waits_full(f->m, user));
    stop(f, true);
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static void test_waiters_are_bounded(void **state)
{
    waiters_are_bounded(*state, 7);
}

/* Administrators are not asked about: it is root in a container. */
static void test_waiters_of_root_are_bounded(void **state)
{
    waiters_are_bounded(*state, 0);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {
        T(test_waiters_are_bounded),
        T(test_waiters_of_root_are_bounded),
    };
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
