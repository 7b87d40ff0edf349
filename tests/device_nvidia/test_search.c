/* Programs that make it long to find out what they have, on a resource manager in memory: how much
 * one look may ask. A question takes about 2 us (docs/nvidia.md). */
#include "rig.h"

/* Questions of one look. */
static unsigned questions(struct rig *t, const struct fake_process *p)
{
    look(t, p);
    t->rm.now_ns += 20 * NSEC_PER_MSEC;
    return t->rm.ioctls;
}

/* Descriptors that belong to no client, of a process that has a GPU open: whoever wants to keep the
 * daemon busy can have them, and new ones each time, so a look may take only so long. */
RIG_TEST(descriptors_of_nobody)
{
    struct fake_rm *rm = &t->rm;
    struct fake_process *p = fake_process(rm);
    rm->counter = 500000;
    rm->now_ns += 100 * NSEC_PER_SEC;
    p->ngpu = 1;
    for (int i = 0; i < RM_CTL_FDS_MAX - 1; i++)
        fake_fd(p, 3 + i, rm->next_file++);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++)
            assert_in_range(questions(t, p), 1, 5000);
        for (size_t i = 0; i < p->nfds; i++)
            p->fds[i].number += 100;
    }
}

/* As many clients as a process likes on one descriptor, and signs of contexts that are not there.
 */
RIG_TEST(crowd_of_clients)
{
    struct fake_rm *rm = &t->rm;
    struct fake_process *p = fake_process(rm);
    uint32_t first = fake_client(rm, p);
    int file = fake_client_at(rm, first)->file;
    fake_device(rm, first, 0);
    for (int i = 0; i < 500; i++) {
        uint32_t c = fake_client(rm, p);
        fake_client_at(rm, c)->file = file;
        fake_device(rm, c, 0);
        p->nfds--;
    }
    for (int i = 0; i < 10; i++) {
        p->ngpu = 5000 + (uint32_t)i;
        assert_in_range(questions(t, p), 1, 100000); /* 0.2 s */
    }
}

/* Half a million descriptors of other files: a second of listing, and the caller has others to
 * serve meanwhile. So many a look; the groups are found in the end, and are there while it is
 * listed again. */
RIG_TEST(very_many_descriptors)
{
    struct fake_rm *rm = &t->rm;
    uint32_t client, group;
    struct fake_process *p = with_context(rm, &client, &group);
    p->plain = 500000;
    for (int again = 0; again < 3; again++) {
        unsigned looks = 0;
        int r = -EAGAIN;
        for (; r == -EAGAIN && looks < 1000; looks++) {
            rm->listed = 0;
            r = look(t, p);
            assert_in_range(rm->listed, 0, 2048);
            assert_true(again == 0 || t->l.n == 4);
            rm->now_ns += 20 * NSEC_PER_MSEC;
        }
        assert_int_equal(r, 4);
        assert_in_range(looks, again == 2 ? 1 : 200, 400);
        if (again == 0)
            p->plain += 1000;
    }
}

/* Without NVML every process is looked at: so many steps a call, and no process takes them all. */
RIG_TEST(processes_take_turns)
{
    enum { CROWD = 60 };
    struct fake_rm *rm = &t->rm;
    for (int i = 0; i < CROWD; i++)
        fake_process(rm)->plain = 500000;
    struct fake_process *last = fake_process(rm);
    fake_client(rm, last);
    unsigned calls = 0;
    for (size_t found = 0; !found; calls++) {
        rm->listed = rm->counted = 0;
        found = processes(t);
        assert_in_range(rm->listed + rm->counted, 1, 20000);
        for (size_t i = 0; i < found; i++)
            assert_int_equal(t->pids.v[i], last->id.pid);
        assert_in_range(calls, 0, 20);
        /* Whoever wants to be looked at closely each time has its way. */
        for (int i = 0; i < CROWD; i++)
            rm->procs[i].plain++;
    }
    /* One that holds the device behind all the others is found too, and stays. */
    struct fake_process *first = &rm->procs[0];
    fake_client(rm, first);
    size_t found = 0;
    for (calls = 0; found < 2 && calls < 20000; calls++)
        found = processes(t);
    assert_int_equal(found, 2);
}
