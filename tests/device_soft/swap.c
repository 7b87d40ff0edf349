/* Swapping on the software GPU, through the driver: memory is freed and taken again, a swapped
 * program's work waits and is done afterwards, and every half-way state leads back. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
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

static void test_out_and_in(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 0);
    struct proc_id me = id_of(getpid());
    struct soft_completion k;
    uint64_t before = room(d);
    assert_int_equal(soft_client_alloc(c, 64 * MIB), 0);
    assert_int_equal(room(d), before - 64 * MIB);

    assert_int_equal(swap_away(d, me, 1000, NULL), 0);
    assert_int_equal(state_of(d), SWAP_OUT);
    assert_int_equal(room(d), before);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 0); /* it has nothing on the GPU */
    group_list_free(&l);
    submit(c, 1 * MS, 1);
    assert_int_equal(soft_client_wait(c, 50, &k), -ETIMEDOUT);

    assert_int_equal(swap_back(d, me), 0);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    assert_int_equal(room(d), before - 64 * MIB);
    wait_for(c);
    l = scan(d, getpid());
    assert_true(l.n > 0);
    group_list_free(&l);
    assert_int_equal(swap_back(d, me), 0); /* is there already */
    soft_client_close(c);
    device_close(d);
}

/* Who brings it in is killed in the middle: the step goes on, and the next one finds it changed. */
static void test_another_began(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 0);
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
    submit(c, 1 * MS, 1);
    wait_for(c);
    soft_client_close(c);
    device_close(d);
}

static void test_suspended_is_refused_and_runs_on(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 0);
    struct proc_id me = id_of(getpid());
    struct group_list l = scan(d, getpid());
    assert_int_equal(switch_groups(d, &l, 1, true), 0);
    submit(c, 1 * MS, 1);
    assert_int_equal(swap_away(d, me, 20, NULL), -ETIMEDOUT);
    assert_int_equal(state_of(d), SWAP_RUNNING);
    assert_int_equal(switch_groups(d, &l, 1, false), 0);
    wait_for(c);
    group_list_free(&l);
    soft_client_close(c);
    device_close(d);
}

/* What the driver cannot move: it says so before, half-way, or when it is too late. */
static void test_cannot_move(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
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
    device_close(d);
}

static void test_no_room(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 0);
    int64_t all = (int64_t)room(d);
    assert_int_equal(soft_client_alloc(c, all + 1), -ENOMEM);
    assert_int_equal(soft_client_alloc(c, all), 0);
    assert_int_equal(room(d), 0);
    assert_int_equal(soft_client_alloc(c, -all), 0);
    assert_int_equal(room(d), all);
    assert_int_equal(soft_client_alloc(c, -1), -EINVAL);
    soft_client_close(c);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        end_to_end(test_out_and_in),
        end_to_end(test_another_began),
        end_to_end(test_suspended_is_refused_and_runs_on),
        end_to_end(test_no_room),
        end_to_end(test_cannot_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
