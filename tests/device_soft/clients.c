/* Clients of an MPS server on the software GPU, from outside: what opens a context as one, what the
 * driver shows of it, and what one client's controls and death do to the others. */
#include "fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/soft/proto.h"

#define NOBODY 65534
#define GROUPS SOFT_CONTEXT_GROUPS

/* A context opened with that in the environment, or without (NULL). */
static struct soft_client *open_in(const struct fixture *f, const char *dir, unsigned gpu)
{
    if (dir)
        setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
    struct soft_client *c = client(f, gpu);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    return c;
}

static void submit_half(struct soft_client *c, uint32_t duration_ns, unsigned times)
{
    struct soft_kernel k = {.duration_ns = duration_ns, .sm_fraction = 0.5f, .cookie = 42};
    while (times-- > 0)
        assert_int_equal(soft_client_submit(c, &k), 0);
}

/* Suspends or resumes the groups of one context in the list. */
static void switch_context(struct device_driver *d, const struct group_list *l, size_t context,
                           bool suspend)
{
    struct group_list one = {.v = l->v + context * GROUPS, .n = GROUPS};
    assert_int_equal(switch_groups(d, &one, GROUPS, suspend), 0);
}

/* Nothing of theirs comes while another context has so much done that it would have. */
static void assert_stopped(struct soft_client *a, struct soft_client *b, struct soft_client *other)
{
    run(other, 1 * MS, 1); /* until the server has read, and answered, what came before */
    run(other, 1 * MS, 1);
    drain(a);
    drain(b);
    run(other, 4 * MS, 20);
    has_none(a);
    has_none(b);
}

END_TO_END(who_is_one)
{
    struct device_driver *d = driver(f);
    char made[80], link[80], none[80];
    struct pid_list pids = {0};
    snprintf(made, sizeof(made), "%s/made", f->dir);
    snprintf(link, sizeof(link), "%s/link", f->dir);
    snprintf(none, sizeof(none), "%s/none", f->dir);
    assert_int_equal(symlink(f->dir, link), 0);

    const char *own[] = {NULL, "", none, f->path};
    struct soft_client *c[8];
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        c[i] = open_in(f, own[i], 0);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, ARRAY_SIZE(own) * GROUPS);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(l.v[i].shared, 0);
    group_list_free(&l);
    assert_int_equal(d->ops->clients(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 0);

    /* The same directory, however it is named; another one; the same on another GPU. */
    c[4] = open_in(f, f->dir, 0);
    c[5] = open_in(f, link, 0);
    c[6] = open_in(f, made, 0);
    c[7] = open_in(f, f->dir, 1);
    l = scan(d, getpid());
    assert_int_equal(l.n, 8 * GROUPS);
    const struct device_group *g = &l.v[4 * GROUPS];
    for (size_t i = 0; i < 4 * GROUPS; i++) {
        assert_int_equal(g[i].kind, i % GROUPS ? GROUP_COPY : GROUP_COMPUTE);
        assert_int_equal(g[i].shared == 0, i % GROUPS != 0);
    }
    assert_int_equal(g[0].shared, g[GROUPS].shared);
    assert_int_not_equal(g[0].key, g[GROUPS].key);
    assert_int_not_equal(g[0].shared, g[2 * GROUPS].shared);
    assert_int_not_equal(g[0].shared, g[3 * GROUPS].shared);
    assert_int_equal(d->ops->clients(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 1);
    assert_int_equal(pids.v[0], getpid());
    pid_list_free(&pids);

    /* The group is there for as long as one of them, and then it is another. */
    uint32_t number = g[0].shared;
    for (int i = 0; i < 5; i++)
        soft_client_close(c[i]);
    c[0] = open_in(f, f->dir, 0);
    group_list_free(&l);
    l = scan(d, getpid());
    assert_int_equal(l.n, 4 * GROUPS);
    assert_int_equal(l.v[0].shared, number);
    assert_int_equal(l.v[3 * GROUPS].shared, number);
    soft_client_close(c[0]);
    soft_client_close(c[5]);
    c[0] = open_in(f, f->dir, 0);
    group_list_free(&l);
    l = scan(d, getpid());
    assert_int_equal(l.n, 3 * GROUPS);
    assert_int_not_equal(l.v[2 * GROUPS].shared, 0);
    assert_int_not_equal(l.v[2 * GROUPS].shared, number);
    group_list_free(&l);
    soft_client_close(c[0]);
    soft_client_close(c[6]);
    soft_client_close(c[7]);
    device_close(d);
    assert_int_equal(unlink(link), 0);
}

END_TO_END(suspend_one)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *a = open_in(f, f->dir, 0), *b = open_in(f, f->dir, 0);
    _cleanup_client_ struct soft_client *other = open_in(f, NULL, 0);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 3 * GROUPS);

    /* Without work it stops nobody, until it has some. */
    switch_context(d, &l, 1, true);
    submit_half(a, 1 * MS, 5);
    wait_for_all(a, 5);
    submit_half(b, 1 * MS, 1);
    run(other, 1 * MS, 1); /* b's kernel, submitted before, is there */
    submit_half(a, 1 * MS, 5);
    assert_stopped(a, b, other);
    switch_context(d, &l, 1, false);
    wait_for(b);
    wait_for_all(a, 5);

    /* With work it stops all. */
    submit_half(a, 10 * MS, 500);
    submit_half(b, 10 * MS, 500);
    wait_for(a);
    wait_for(b);
    switch_context(d, &l, 0, true);
    assert_stopped(a, b, other);
    switch_context(d, &l, 1, false); /* it is not the one that was suspended */
    assert_stopped(a, b, other);
    switch_context(d, &l, 0, false);
    wait_for(a);
    wait_for(b);
}

END_TO_END(one_timeslice)
{
    _cleanup_driver_ struct device_driver *d = driver(f), *later = NULL;
    struct soft_client *a = open_in(f, f->dir, 0), *b = open_in(f, f->dir, 0);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(d->ops->set_timeslice(d, &l.v[GROUPS], 5, NULL), 0);
    _cleanup_client_ struct soft_client *c = open_in(f, f->dir, 0);
    group_list_free(&l);
    l = scan(d, getpid());
    for (size_t i = 0; i < l.n; i++) {
        assert_int_equal(l.v[i].timeslice_now_us, i % GROUPS ? 2048 : 5);
        assert_int_equal(l.v[i].timeslice_us, 2048); /* also of the one that came later */
    }
    group_list_free(&l);
    soft_client_close(a);
    later = driver(f);
    l = scan(later, getpid());
    assert_int_equal(l.v[0].timeslice_us, 5);
    assert_int_equal(l.v[GROUPS].timeslice_us, 5);
    soft_client_close(b);
}

END_TO_END(not_swapped)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *own = open_in(f, NULL, 0);
    struct soft_client *a = open_in(f, f->dir, 0);
    struct proc_id me = id_of(getpid());
    enum swap_state s = SWAP_FAILED;
    struct error err = {""};
    assert_int_equal(swap_away(d, me, 1000, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "client of an MPS server"));
    assert_int_equal(d->ops->swap_state(d, me, &s, NULL), 0);
    assert_int_equal(s, SWAP_RUNNING);
    assert_int_equal(swap_back(d, me), 0);
    run(own, 1 * MS, 1);
    run(a, 1 * MS, 1);
    soft_client_close(a);
    assert_int_equal(swap_away(d, me, 1000, NULL), 0);
    assert_int_equal(swap_back(d, me), 0);
}

/* ---- several processes ---- */

END_TO_END(killed)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *mine = open_in(f, f->dir, 0), *other = open_in(f, NULL, 0);
    pid_t pid = start_client(f, f->dir, geteuid(), 100);
    submit(mine, 1 * MS, 1); /* with the whole GPU: behind the kernel that runs */
    end_client(d, pid);
    wait_for(mine);
    const struct soft_completion c = run(mine, 1 * MS, 1);
    assert_true(c.end_ns - c.submit_ns < 1 * MS + 100 * US);

    /* Nor does a suspension outlive the client that it was of. */
    pid = start_client(f, f->dir, geteuid(), 1);
    _cleanup_(group_list_free) struct group_list l = scan(d, pid);
    switch_context(d, &l, 0, true);
    submit_half(mine, 1 * MS, 1);
    assert_stopped(mine, mine, other);
    end_client(d, pid);
    wait_for(mine);
}

END_TO_END(usage_of_each)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *mine = open_in(f, f->dir, 0);
    pid_t busy = start_client(f, f->dir, geteuid(), 100),
          idle = start_client(f, f->dir, geteuid(), 0);
    _cleanup_(usage_list_free) struct usage_list u = {0};
    _cleanup_(activity_list_free) struct activity_list a = {0};
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    assert_int_equal(d->ops->clients(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 3);
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    usage_list_free(&u);
    do { /* again, if it took so long that the record was given up */
        activity_list_free(&a);
        assert_int_equal(d->ops->activity(d, &a, NULL), 0);
        activity_list_free(&a);
        submit_half(mine, 5 * MS, 1);
        wait_for(mine);
        submit_half(mine, 5 * MS, 1);
        wait_for(mine);
        a.incomplete = 0;
        assert_int_equal(d->ops->activity(d, &a, NULL), 0);
    } while (a.incomplete);
    assert_int_equal(a.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_not_equal(a.v[i].pid, idle);
        if (a.v[i].pid != busy) {
            assert_int_equal(a.v[i].busy_ns, 10 * MS);
            assert_int_equal(a.v[i].bursts, 2);
        }
    }
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    assert_int_equal(u.n, 3);
    for (size_t i = 0; i < u.n; i++) {
        assert_true(u.v[i].busy <= 1);
        assert_int_equal(u.v[i].busy > 0, u.v[i].pid != idle);
    }
    end_client(d, busy);
    end_client(d, idle);
}

/* An MPS server is one user's: the same directory makes no client of another user's. */
END_TO_END(users_apart)
{
    if (geteuid() != 0)
        skip();
    open_to_all(f);
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *mine = open_in(f, f->dir, 0);
    pid_t same = start_client(f, f->dir, 0, 0), theirs = start_client(f, f->dir, NOBODY, 0),
          also = start_client(f, f->dir, NOBODY, 0);
    const pid_t pids[] = {getpid(), same, theirs, also};
    uint32_t shared[4];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        _cleanup_(group_list_free) struct group_list l = scan(d, pids[i]);
        assert_int_equal(l.n, GROUPS);
        shared[i] = l.v[0].shared;
        assert_int_not_equal(shared[i], 0);
    }
    assert_int_equal(shared[0], shared[1]);
    assert_int_equal(shared[2], shared[3]);
    assert_int_not_equal(shared[0], shared[2]);
    for (size_t i = 1; i < ARRAY_SIZE(pids); i++)
        end_client(d, pids[i]);
}
