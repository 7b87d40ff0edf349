/* Programs that make it long to find out what they have, on a resource manager in memory: how much
 * one look may ask. A question takes about 2 us (docs/nvidia.md). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
// cmocka wants these above it
#include <cmocka.h>

#include "fake_rm.h"

/* Questions of one look. */
static unsigned look(struct fake_rm *rm, struct device_driver *d, const struct fake_process *p)
{
    struct group_list l = {0};
    rm->ioctls = 0;
    d->ops->scan(d, p->id, &l, NULL);
    assert_int_equal(rm->nopen, 1); /* our own */
    group_list_free(&l);
    rm->now_ns += 20 * NSEC_PER_MSEC;
    return rm->ioctls;
}

/* Descriptors that belong to no client, of a process that has a GPU open: whoever wants to keep the
 * daemon busy can have them, and new ones each time, so a look may take only so long. */
static void test_descriptors_of_nobody(void **state)
{
    struct fake_rm rm;
    fake_init(&rm, 1);
    struct device_driver *d = fake_driver(&rm, 1);
    struct fake_process *p = fake_process(&rm);
    rm.counter = 500000;
    rm.now_ns += 100 * NSEC_PER_SEC;
    p->ngpu = 1;
    for (int i = 0; i < RM_CTL_FDS_MAX - 1; i++) {
        p->fds[p->nfds].number = 3 + (int)p->nfds;
        p->fds[p->nfds++].file = rm.next_file++;
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            assert_in_range(look(&rm, d, p), 1, 5000);
        }
        for (size_t i = 0; i < p->nfds; i++)
            p->fds[i].number += 100;
    }
    device_close(d);
    fake_free(&rm);
}

/* As many clients as a process likes on one descriptor, and signs of contexts that are not there.
 */
static void test_crowd_of_clients(void **state)
{
    struct fake_rm rm;
    fake_init(&rm, 1);
    struct device_driver *d = fake_driver(&rm, 1);
    struct fake_process *p = fake_process(&rm);
    uint32_t first = fake_client(&rm, p);
    int file = fake_client_at(&rm, first)->file;
    fake_device(&rm, first, 0);
    for (int i = 0; i < 500; i++) {
        uint32_t c = fake_client(&rm, p);
        fake_client_at(&rm, c)->file = file;
        fake_device(&rm, c, 0);
        p->nfds--;
    }
    for (int i = 0; i < 10; i++) {
        p->ngpu = 5000 + (uint32_t)i;
        assert_in_range(look(&rm, d, p), 1, 100000); /* 0.2 s */
    }
    device_close(d);
    fake_free(&rm);
}

/* Half a million descriptors of other files: a second of listing, and the caller has others to
 * serve meanwhile. So many a look; the groups are found in the end, and are there while it is
 * listed again. */
static void test_very_many_descriptors(void **state)
{
    struct fake_rm rm;
    fake_init(&rm, 1);
    struct device_driver *d = fake_driver(&rm, 1);
    struct fake_process *p = fake_process(&rm);
    uint32_t client = fake_client(&rm, p);
    fake_context(&rm, p, client, fake_device(&rm, client, 0));
    p->plain = 500000;
    for (int again = 0; again < 3; again++) {
        size_t groups = 0;
        unsigned looks = 0;
        int r = -EAGAIN;
        for (; r == -EAGAIN && looks < 1000; looks++) {
            struct group_list l = {0};
            rm.listed = 0;
            r = d->ops->scan(d, p->id, &l, NULL);
            assert_in_range(rm.listed, 0, 2048);
            groups = l.n;
            assert_true(again == 0 || groups == 4);
            group_list_free(&l);
            rm.now_ns += 20 * NSEC_PER_MSEC;
        }
        assert_int_equal(r, 0);
        assert_in_range(looks, again == 2 ? 1 : 200, 400);
        assert_int_equal(groups, 4);
        if (again == 0)
            p->plain += 1000;
    }
    device_close(d);
    fake_free(&rm);
}

/* Without NVML every process is looked at: so many steps a call, and no process takes them all. */
static void test_processes_take_turns(void **state)
{
    enum { CROWD = 60 };
    struct fake_rm rm;
    fake_init(&rm, 1);
    struct device_driver *d = fake_driver(&rm, 1);
    for (int i = 0; i < CROWD; i++)
        fake_process(&rm)->plain = 500000;
    struct fake_process *last = fake_process(&rm);
    fake_client(&rm, last);
    unsigned calls = 0;
    for (size_t found = 0; !found; calls++) {
        struct pid_list l = {0};
        rm.listed = rm.counted = 0;
        assert_int_equal(d->ops->processes(d, &l, NULL), 0);
        assert_in_range(rm.listed + rm.counted, 1, 20000);
        found = l.n;
        for (size_t i = 0; i < l.n; i++)
            assert_int_equal(l.v[i], last->id.pid);
        pid_list_free(&l);
        assert_in_range(calls, 0, 20);
        /* Whoever wants to be looked at closely each time has its way. */
        for (int i = 0; i < CROWD; i++)
            rm.procs[i].plain++;
    }
    /* One that holds the device behind all the others is found too, and stays. */
    struct fake_process *first = &rm.procs[0];
    fake_client(&rm, first);
    size_t found = 0;
    for (calls = 0; found < 2 && calls < 20000; calls++) {
        struct pid_list l = {0};
        assert_int_equal(d->ops->processes(d, &l, NULL), 0);
        found = l.n;
        pid_list_free(&l);
    }
    assert_int_equal(found, 2);
    device_close(d);
    fake_free(&rm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_of_nobody),
        cmocka_unit_test(test_crowd_of_clients),
        cmocka_unit_test(test_very_many_descriptors),
        cmocka_unit_test(test_processes_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
