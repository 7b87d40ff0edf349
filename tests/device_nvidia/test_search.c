/* Programs that make it long to find out what they have, on a resource manager in memory: how much
 * one look may ask. A question takes about 2 us (docs/nvidia.md). */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_of_nobody),
        cmocka_unit_test(test_crowd_of_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
