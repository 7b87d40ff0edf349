/* The driver on a resource manager in memory, and what a test asks of it: each helper never leaves
 * a descriptor open. A copy in the test that uses it. */
#ifndef TESTS_DEVICE_NVIDIA_RIG_H
#define TESTS_DEVICE_NVIDIA_RIG_H

#include "../test.h"
#include "fake_rm.h"

#define HELPER static __attribute__((unused))

struct rig {
    struct fake_rm rm;
    struct device_driver *d;
    struct group_list l;
    struct pid_list pids;    /* of the last processes() or clients() */
    struct usage_list usage; /* of the last usage() */
    struct error err;
    unsigned all; /* questions of the looks of look_all() */
};

HELPER void rig_up(struct rig *t, unsigned gpus)
{
    memset(t, 0, sizeof(*t));
    fake_init(&t->rm, gpus);
    t->d = fake_driver(&t->rm, gpus);
}

HELPER void rig_down(struct rig *t)
{
    assert_int_equal(t->rm.nopen, 1); /* our own */
    device_close(t->d);
    assert_int_equal(t->rm.nopen, 0);
    group_list_free(&t->l);
    pid_list_free(&t->pids);
    usage_list_free(&t->usage);
    fake_free(&t->rm);
}

/* For tests of one GPU, which have the rig as their state. */
HELPER int rig_set_up(void **state)
{
    *state = malloc(sizeof(struct rig));
    rig_up(*state, 1);
    return 0;
}

HELPER int rig_tear_down(void **state)
{
    rig_down(*state);
    free(*state);
    return 0;
}
#define RIG_TEST(name) TEST_IN(name, struct rig *t, rig_set_up, rig_tear_down)

/* A new process with a context on GPU 0. */
HELPER struct fake_process *with_context(struct fake_rm *rm, uint32_t *client, uint32_t *group)
{
    struct fake_process *p = fake_process(rm);
    *client = fake_client(rm, p);
    *group = fake_context(rm, p, *client, fake_device(rm, *client, 0));
    return p;
}

/* Number of groups, or -errno. Never leaves a descriptor open. */
HELPER int look(struct rig *t, const struct fake_process *p)
{
    t->l.n = 0;
    t->rm.ioctls = 0;
    t->err.text[0] = '\0';
    int r = t->d->ops->scan(t->d, p->id, &t->l, &t->err);
    assert_int_equal(t->rm.nopen, 1);
    assert_true((r < 0) == (t->err.text[0] != '\0'));
    return r < 0 ? r : (int)t->l.n;
}

/* Until all descriptors were searched. */
HELPER int look_all(struct rig *t, const struct fake_process *p)
{
    int r = -EAGAIN;
    for (t->all = 0; r == -EAGAIN; t->all += t->rm.ioctls) {
        r = look(t, p);
        assert_in_range(t->rm.ioctls, 1, 5000);
        t->rm.now_ns += 20 * NSEC_PER_MSEC;
    }
    return r;
}

/* Looks until new groups have settled; what they are asked for is counted of the last look. */
HELPER int scan(struct rig *t, const struct fake_process *p)
{
    look(t, p);
    look(t, p);
    t->rm.now_ns += 250 * NSEC_PER_MSEC;
    return look(t, p);
}

/* How many it lists. */
HELPER size_t processes(struct rig *t)
{
    t->pids.n = 0;
    assert_int_equal(t->d->ops->processes(t->d, &t->pids, &t->err), 0);
    return t->pids.n;
}

HELPER size_t clients(struct rig *t)
{
    t->pids.n = 0;
    assert_int_equal(t->d->ops->clients(t->d, &t->pids, &t->err), 0);
    return t->pids.n;
}

HELPER size_t usage(struct rig *t)
{
    t->usage.n = 0;
    assert_int_equal(t->d->ops->usage(t->d, &t->usage, &t->err), 0);
    return t->usage.n;
}

HELPER const struct device_group *find(const struct rig *t, uint32_t client, uint32_t group)
{
    for (size_t i = 0; i < t->l.n; i++) {
        if (t->l.v[i].key == ((uint64_t)client << 32 | group))
            return &t->l.v[i];
    }
    fail_msg("group %x of client %x not found", group, client);
    return NULL;
}

HELPER int disable(struct rig *t, bool off)
{
    const struct device_group *v[256];
    assert_true(t->l.n <= ARRAY_SIZE(v));
    for (size_t i = 0; i < t->l.n; i++)
        v[i] = &t->l.v[i];
    t->rm.disables = t->rm.max_disabled = 0;
    int r = t->d->ops->set_running(t->d, v, t->l.n, !off, &t->err);
    assert_int_equal(t->rm.nopen, 1);
    return r;
}

HELPER unsigned disabled(struct rig *t)
{
    unsigned n = 0;
    for (size_t i = 0; i < t->rm.nclients; i++) {
        for (size_t k = 0; k < t->rm.clients[i].nobjects; k++)
            n += t->rm.clients[i].objects[k].disabled > 0;
    }
    return n;
}

/* Suspends all that was found, which has so many channels, and resumes it. */
HELPER void suspends(struct rig *t, unsigned channels)
{
    assert_int_equal(disable(t, true), 0);
    assert_int_equal(disabled(t), channels);
    assert_int_equal(disable(t, false), 0);
    assert_int_equal(disabled(t), 0);
}

#endif
