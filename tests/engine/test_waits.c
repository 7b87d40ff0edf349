/* How many jobs may wait in line for memory. */
#include "swapping.h"

/* No user has more jobs in line than users may have, and those that left it do not count. */
static void waiters_are_bounded(struct fixture *f, uid_t user)
{
    static pid_t pids[USER_WAITS_MAX];
    uint32_t job = SLOT_NONE;
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        pids[i] = fork_to_wait();
        assert_true(pids[i] > 0);
    }
    swap_start(f);
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        assert_false(model_user_waits_full(engine_model(f->m), user));
        job = add_as(f, pids[i], CLASS_BATCH, user);
        need(f, job, 1);
    }
    ticks(f, 1);
    assert_true(model_user_waits_full(engine_model(f->m), user));
    assert_false(model_user_waits_full(engine_model(f->m), 8));
    assert_int_equal(view(f, job).position, USER_WAITS_MAX - 1);
    autoswap_started(engine_model(f->m), job);
    assert_false(model_user_waits_full(engine_model(f->m), user));
    stop(f, true);
    for (int i = 0; i < USER_WAITS_MAX; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

ENGINE_TEST(test_waiters_are_bounded)
{
    waiters_are_bounded(f, 7);
}

/* Administrators are not asked about: it is root in a container. */
ENGINE_TEST(test_waiters_of_root_are_bounded)
{
    waiters_are_bounded(f, 0);
}
