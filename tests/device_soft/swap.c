/* Swapping on the software GPU, through the driver: memory is freed and taken again, a swapped
 * program's work waits and is done afterwards, and every half-way state leads back. */
#include "fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

static uint64_t room(struct device_driver *d)
{
    uint64_t bytes = 0;
    assert_int_equal(d->ops->memory_free(d, 0, &bytes, NULL), 0);
    return bytes;
}

static enum swap_state state_of(struct device_driver *d)
{
    enum swap_state s = SWAP_FAILED;
    assert_int_equal(d->ops->swap_state(d, id_of(getpid()), &s, NULL), 0);
    return s;
}

END_TO_END(out_and_in)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct proc_id me = id_of(getpid());
    struct soft_completion k;
    uint64_t before = room(d);
    assert_int_equal(soft_client_alloc(c, 64 * MIB), 0);
    assert_int_equal(room(d), before - 64 * MIB);

    assert_int_equal(swap_away(d, me, 1000, NULL), 0);
    assert_int_equal(state_of(d), SWAP_OUT);
    assert_int_equal(room(d), before);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 0); /* it has nothing on the GPU */
    submit(c, 1 * MS, 1);
    assert_int_equal(soft_client_wait(c, 50, &k), -ETIMEDOUT);

    assert_int_equal(swap_back(d, me), 0);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    assert_int_equal(room(d), before - 64 * MIB);
    wait_for(c);
    l = scan(d, getpid());
    assert_true(l.n > 0);
    assert_int_equal(swap_back(d, me), 0); /* is there already */
}

/* Who brings it in is killed in the middle: the step goes on, and the next one finds it changed. */
END_TO_END(another_began)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct proc_id me = id_of(getpid());
    assert_int_equal(soft_client_alloc(c, 64 * MIB), 0);
    assert_int_equal(swap_away(d, me, 1000, NULL), 0);
    uint64_t before = room(d);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct device_driver *own = driver(f);
        swap_back(own, me);
        _exit(0);
    }
    while (room(d) == before)
        usleep(1000);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(state_of(d), SWAP_LOCKED); /* which was waited for */
    assert_int_equal(swap_back(d, me), 0);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    run(c, 1 * MS, 1);
}

END_TO_END(suspended_is_refused_and_runs_on)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct proc_id me = id_of(getpid());
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(switch_groups(d, &l, 1, true), 0);
    submit(c, 1 * MS, 1);
    assert_int_equal(swap_away(d, me, 20, NULL), -ETIMEDOUT);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    assert_int_equal(switch_groups(d, &l, 1, false), 0);
    wait_for(c);
}

/* What the driver cannot move: it says so before, half-way, or when it is too late. */
END_TO_END(cannot_move)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    struct proc_id me = id_of(getpid());
    struct error err = {""};
    setenv("CEDE_SOFT_MEMORY", "managed", 1);
    struct soft_client *c = client(f, 0);
    assert_int_equal(d->ops->swap_shares(d, me, false, &err), 0);
    assert_int_equal(swap_away(d, me, 1000, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "managed memory"));
    assert_int_equal(state_of(d), SWAP_LOCKED);
    assert_int_equal(swap_back(d, me), 0);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    soft_client_close(c);

    setenv("CEDE_SOFT_MEMORY", "shared", 1);
    c = client(f, 0);
    unsetenv("CEDE_SOFT_MEMORY");
    assert_int_equal(d->ops->swap_shares(d, me, false, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "of another process"));
    assert_int_equal(swap_away(d, me, 1000, &err), 0);
    assert_int_equal(swap_back(d, me), -EIO);
    assert_int_equal(swap_back(d, me), -EIO);
    assert_int_equal(state_of(d), SWAP_OUT);
    soft_client_close(c);
}

END_TO_END(no_room)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    int64_t all = (int64_t)room(d);
    assert_int_equal(soft_client_alloc(c, all + 1), -ENOMEM);
    assert_int_equal(soft_client_alloc(c, all), 0);
    assert_int_equal(room(d), 0);
    assert_int_equal(soft_client_alloc(c, -all), 0);
    assert_int_equal(room(d), all);
    assert_int_equal(soft_client_alloc(c, -1), -EINVAL);
}
