/* Clients of an MPS server on the software GPU, from outside: what opens a context as one, what the
 * driver shows of it, and what one client's controls and death do to the others. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/soft/proto.h"

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
    struct soft_completion c;
    for (int i = 0; i < 2; i++) { /* until the server has read, and answered, what came before */
        submit(other, 1 * MS, 1);
        wait_for(other);
    }
    while (soft_client_wait(a, 0, &c) == 0)
        ;
    while (soft_client_wait(b, 0, &c) == 0)
        ;
    submit(other, 4 * MS, 20);
    for (int i = 0; i < 20; i++)
        wait_for(other);
    assert_int_equal(soft_client_wait(a, 0, &c), -ETIMEDOUT);
    assert_int_equal(soft_client_wait(b, 0, &c), -ETIMEDOUT);
}

static void test_who_is_one(void **state)
{
    struct fixture *f = *state;
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

static void test_in_space(void **state)
{
    struct fixture *f = *state;
    struct soft_client *a = open_in(f, f->dir, 0), *b = open_in(f, f->dir, 0);
    struct device_driver *d = driver(f);
    struct group_list l = scan(d, getpid());
    switch_context(d, &l, 0, true);
    switch_context(d, &l, 1, true);
    submit_half(a, 2 * MS, 1);
    submit_half(b, 2 * MS, 1);
    switch_context(d, &l, 1, true); /* when it answers, both kernels are there */
    switch_context(d, &l, 0, false);
    switch_context(d, &l, 1, false);
    switch_context(d, &l, 1, false);
    struct soft_completion ca = wait_for(a), cb = wait_for(b);
    assert_int_equal(ca.start_ns, cb.start_ns);
    assert_int_equal(ca.end_ns, cb.end_ns);
    group_list_free(&l);
    soft_client_close(a);
    soft_client_close(b);
    device_close(d);
}

static void test_suspend_one(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *a = open_in(f, f->dir, 0), *b = open_in(f, f->dir, 0);
    struct soft_client *other = open_in(f, NULL, 0);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 3 * GROUPS);

    /* Without work it stops nobody, until it has some. */
    switch_context(d, &l, 1, true);
    submit_half(a, 1 * MS, 5);
    for (int i = 0; i < 5; i++)
        wait_for(a);
    submit_half(b, 1 * MS, 1);
    submit(other, 1 * MS, 1);
    wait_for(other); /* b's kernel, submitted before, is there */
    submit_half(a, 1 * MS, 5);
    assert_stopped(a, b, other);
    switch_context(d, &l, 1, false);
    wait_for(b);
    for (int i = 0; i < 5; i++)
        wait_for(a);

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
    group_list_free(&l);
    soft_client_close(a);
    soft_client_close(b);
    soft_client_close(other);
    device_close(d);
}

static void test_one_timeslice(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f), *later;
    struct soft_client *a = open_in(f, f->dir, 0), *b = open_in(f, f->dir, 0);
    struct group_list l = scan(d, getpid());
    assert_int_equal(d->ops->set_timeslice(d, &l.v[GROUPS], 5, NULL), 0);
    struct soft_client *c = open_in(f, f->dir, 0);
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
    group_list_free(&l);
    soft_client_close(b);
    soft_client_close(c);
    device_close(later);
    device_close(d);
}

static void test_not_swapped(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *own = open_in(f, NULL, 0), *a = open_in(f, f->dir, 0);
    struct proc_id me = id_of(getpid());
    enum swap_state s = SWAP_FAILED;
    struct error err = {""};
    assert_int_equal(swap_away(d, me, 1000, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "client of an MPS server"));
    assert_int_equal(d->ops->swap_state(d, me, &s, NULL), 0);
    assert_int_equal(s, SWAP_RUNNING);
    assert_int_equal(swap_back(d, me), 0);
    submit(own, 1 * MS, 1);
    submit(a, 1 * MS, 1);
    wait_for(own);
    wait_for(a);
    soft_client_close(a);
    assert_int_equal(swap_away(d, me, 1000, NULL), 0);
    assert_int_equal(swap_back(d, me), 0);
    soft_client_close(own);
    device_close(d);
}

/* ---- several processes ---- */

/* A client process with so many kernels of a second, waiting to be killed. */
static pid_t start_client(const struct fixture *f, uid_t uid, unsigned kernels)
{
    struct soft_kernel k = {.duration_ns = 1000 * MS, .sm_fraction = 0.5f};
    struct soft_client *c;
    int p[2];
    char ok = 0;
    assert_int_equal(pipe(p), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("CUDA_MPS_PIPE_DIRECTORY", f->dir, 1);
        bool well =
            (uid == geteuid() || setuid(uid) == 0) && soft_client_open(f->path, 0, NULL, &c) == 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing the user would clear it */
        while (well && kernels-- > 0)
            well = soft_client_submit(c, &k) == 0;
        if (!well || write(p[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(p[1]);
    assert_int_equal(read(p[0], &ok, 1), 1);
    close(p[0]);
    return pid;
}

/* Returns when the server knows too. */
static void end_client(struct device_driver *d, pid_t pid)
{
    struct proc_id id = id_of(pid);
    struct group_list gone = {0};
    int r = 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; (r = d->ops->scan(d, id, &gone, NULL)) == 0 && i < PATIENCE / 10; i++)
        usleep(10000);
    group_list_free(&gone);
    assert_int_equal(r, -ESRCH);
}

static void test_killed(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *mine = open_in(f, f->dir, 0), *other = open_in(f, NULL, 0);
    struct soft_completion c;
    pid_t pid = start_client(f, geteuid(), 100);
    submit(mine, 1 * MS, 1); /* with the whole GPU: behind the kernel that runs */
    end_client(d, pid);
    wait_for(mine);
    submit(mine, 1 * MS, 1);
    c = wait_for(mine);
    assert_true(c.end_ns - c.submit_ns < 1 * MS + 100 * US);

    /* Nor does a suspension outlive the client that it was of. */
    pid = start_client(f, geteuid(), 1);
    struct group_list l = scan(d, pid);
    switch_context(d, &l, 0, true);
    submit_half(mine, 1 * MS, 1);
    assert_stopped(mine, mine, other);
    end_client(d, pid);
    wait_for(mine);
    group_list_free(&l);
    soft_client_close(mine);
    soft_client_close(other);
    device_close(d);
}

static void test_usage_of_each(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *mine = open_in(f, f->dir, 0);
    pid_t busy = start_client(f, geteuid(), 100), idle = start_client(f, geteuid(), 0);
    struct usage_list u = {0};
    struct activity_list a = {0};
    struct pid_list pids = {0};
    assert_int_equal(d->ops->clients(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 3);
    pid_list_free(&pids);
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
    activity_list_free(&a);
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    assert_int_equal(u.n, 3);
    for (size_t i = 0; i < u.n; i++) {
        assert_true(u.v[i].busy <= 1);
        assert_int_equal(u.v[i].busy > 0, u.v[i].pid != idle);
    }
    usage_list_free(&u);
    end_client(d, busy);
    end_client(d, idle);
    soft_client_close(mine);
    device_close(d);
}

/* An MPS server is one user's: the same directory makes no client of another user's. */
static void test_users_apart(void **state)
{
    struct fixture *f = *state;
    char made[80];
    if (geteuid() != 0)
        skip();
    snprintf(made, sizeof(made), "%s/made", f->dir);
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(chmod(made, 0755), 0);
    assert_int_equal(chmod(f->path, 0666), 0);
    struct device_driver *d = driver(f);
    struct soft_client *mine = open_in(f, f->dir, 0);
    pid_t same = start_client(f, 0, 0), theirs = start_client(f, NOBODY, 0),
          also = start_client(f, NOBODY, 0);
    const pid_t pids[] = {getpid(), same, theirs, also};
    uint32_t shared[4];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        struct group_list l = scan(d, pids[i]);
        assert_int_equal(l.n, GROUPS);
        shared[i] = l.v[0].shared;
        assert_int_not_equal(shared[i], 0);
        group_list_free(&l);
    }
    assert_int_equal(shared[0], shared[1]);
    assert_int_equal(shared[2], shared[3]);
    assert_int_not_equal(shared[0], shared[2]);
    for (size_t i = 1; i < ARRAY_SIZE(pids); i++)
        end_client(d, pids[i]);
    soft_client_close(mine);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        end_to_end(test_who_is_one),    end_to_end(test_in_space),    end_to_end(test_suspend_one),
        end_to_end(test_one_timeslice), end_to_end(test_not_swapped), end_to_end(test_killed),
        end_to_end(test_usage_of_each), end_to_end(test_users_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
