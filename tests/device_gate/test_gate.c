/* The driver of programs that hold their own submissions, against programs that lie: what they
 * send, write and do hurts nobody but themselves. */
#include "../lingering.h"
#include "fixture.h"
#include "gpu/gate/gate.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

TEST(bad_messages)
{
    struct gate_msg hello = {.type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
    struct gate_msg other = hello, device = {.type = GATE_DEVICE, .name = "x"},
                    demand = {.type = GATE_DEMAND};
    other.version++;
    char big[4096] = {0};
    const struct {
        const void *data;
        size_t size;
        bool welcomed; /* sent after a good hello */
    } cases[] = {
        {&other, sizeof(other), false},
        {"", 1, false},
        {big, sizeof(big), false},
        {&hello, sizeof(hello) - 1, false},
        {&device, sizeof(device), false},
        {&demand, 8, false},
        {&hello, sizeof(hello), true},
        {&(struct gate_msg){.type = 99}, sizeof(hello), true},
        {&(struct gate_msg){.type = GATE_DEVICE, .device = GATE_DEVICES, .name = "x"},
         sizeof(hello), true},
        {&(struct gate_msg){.type = GATE_DEVICE}, sizeof(hello), true},
        {"abc", 3, true},
        {big, sizeof(big), true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pages p = {0};
        if (cases[i].welcomed)
            p = welcomed();
        else
            p.fd = connect_raw();
        assert_int_equal(send(p.fd, cases[i].data, cases[i].size, 0), cases[i].size);
        processes();
        assert_int_equal(processes(), 0);
        assert_true(closed(p.fd));
        if (cases[i].welcomed)
            leave(&p);
        else
            close(p.fd);
    }
    /* One that says nothing is not listed, and keeps nobody. */
    int silent = connect_raw();
    struct pages p = welcomed();
    assert_int_equal(processes(), 1);
    leave(&p);
    assert_int_equal(processes(), 0);
    close(silent);
    processes();
}

TEST(pages_are_guarded)
{
    _cleanup_(leave) struct pages p = welcomed();
    /* What the daemon writes the program cannot, by any way to it. */
    assert_ptr_equal(mmap(NULL, GATE_PAGE, PROT_WRITE, MAP_SHARED, p.control_fd, 0), MAP_FAILED);
    assert_int_equal(mprotect((void *)(uintptr_t)p.control, GATE_PAGE, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(write(p.control_fd, "x", 1), -1);
    /* And neither can be made too short for the daemon to read. */
    assert_int_equal(ftruncate(p.control_fd, 0), -1);
    assert_int_equal(ftruncate(p.slot_fd, 0), -1);
}

TEST(lies_are_bounded)
{
    struct pages p = welcomed();
    say_device(&p, 3, "a \x1b[31mdevice\n");
    _cleanup_(group_list_free) struct group_list l = scan(getpid());
    assert_int_equal(l.n, 1);
    struct gpu_info info;
    assert_int_equal(d->ops->info(d, l.v[0].gpu, &info), 0);
    assert_string_equal(info.name, "a ?[31mdevice?");
    _cleanup_(usage_list_free) struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    memset(p.slot, 0xff, GATE_PAGE);
    usleep(1000);
    u.n = 0;
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    assert_int_equal(u.n, 1);
    assert_true(u.v[0].busy >= 0 && u.v[0].busy <= 1);
    assert_int_equal(demand(), 1);
    /* Its gate closes whatever it wrote, and opens. */
    const struct device_group *g = &l.v[0];
    assert_int_equal(d->ops->set_running(d, &g, 1, false, NULL), 0);
    assert_int_equal(atomic_load(&p.control->device[3].state), GATE_ACTIVE | GATE_CLOSED);
    assert_int_equal(d->ops->set_timeslice(d, g, 70, NULL), 0);
    assert_int_equal(d->ops->set_running(d, &g, 1, true, NULL), 0);
    assert_int_equal(atomic_load(&p.control->device[3].state), GATE_ACTIVE);
    assert_int_equal(atomic_load(&p.control->device[3].limit_us), 70);
    assert_int_equal(d->ops->set_timeslice(d, g, 0, NULL), 0);
    assert_int_equal(atomic_load(&p.control->any), 0);
    leave(&p);
    assert_int_equal(d->ops->set_running(d, &g, 1, false, NULL), -ENOENT);
}

/* Devices of one name are one, in whichever program; more kinds than there is room for share. */
TEST(devices_are_told_apart)
{
    _cleanup_(leave) struct pages a = welcomed(), b = welcomed();
    say_device(&a, 0, "one");
    say_device(&a, 1, "two");
    say_device(&b, 0, "two");
    _cleanup_(group_list_free) struct group_list l = scan(getpid());
    assert_int_equal(l.n, 3);
    assert_int_not_equal(l.v[0].gpu, l.v[1].gpu);
    assert_int_equal(l.v[1].gpu, l.v[2].gpu);
    assert_int_not_equal(l.v[1].key, l.v[2].key);
    group_list_free(&l);
    for (unsigned i = 2; i < GATE_DEVICES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "more %u", i);
        say_device(&a, i, name);
    }
    l = scan(getpid());
    assert_int_equal(l.n, GATE_DEVICES + 1);
    for (size_t i = 0; i < l.n; i++)
        assert_true(l.v[i].gpu < d->ops->gpus(d));
}

TEST(crowds_are_refused)
{
    enum { CROWD = 300 };
    static int fds[CROWD];
    unsigned in = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = connect_raw();
        processes();
    }
    for (unsigned i = 0; i < CROWD; i++)
        in += !closed(fds[i]);
    assert_in_range(in, 16, 200); /* of one user */
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
    processes();
    processes();
    _cleanup_(leave) struct pages p = welcomed();
    assert_int_equal(processes(), 1);
}

/* A program that reports what it wants again and again is not listened to for a while, and then
 * again. */
TEST(floods_are_not_heard)
{
    _cleanup_(leave) struct pages p = welcomed();
    const struct gate_msg m = {.type = GATE_DEMAND};
    say_device(&p, 0, "one");
    loop_begin();
    bool quiet = false;
    for (int tries = 0; tries < 1000 && !quiet; tries++) {
        while (send(p.fd, &m, 8, MSG_DONTWAIT | MSG_NOSIGNAL) == 8)
            ;
        assert_int_equal(errno, EAGAIN);
        quiet = loop_turn() == 0;
    }
    assert_true(quiet);
    /* The driver says until when, and what the program wants is known all the same. */
    assert_true(d->ops->due_ns(d) < UINT64_MAX);
    atomic_store(&p.slot->device[0].wants, 0);
    demand();
    atomic_store(&p.slot->device[0].wants, 1);
    assert_int_equal(demand(), 1);
    unsigned more = 0;
    while (d->ops->due_ns(d) < UINT64_MAX || loop_turn()) {
        more++;
        usleep(1000);
        demand();
    }
    assert_true(more > 0); /* heard to the end */
    assert_false(closed(p.fd));
    loop_end();
}

/* What a loop watches: the listening socket and each program, until it goes; numbers that are not
 * the driver's are nobody's. */
TEST(descriptors_are_handed_over)
{
    loop_begin();
    assert_int_equal(loop_turn(), 0);
    struct pages p = welcomed(); /* processes() looks by itself, also beside a loop */
    int raw = connect_raw();
    assert_int_equal(loop_turn(), 1); /* accepts it */
    assert_int_equal(send(raw, "x", 1, 0), 1);
    assert_int_equal(loop_turn(), 1); /* and has heard enough */
    assert_true(closed(raw));
    assert_int_equal(loop_turn(), 0);
    close(raw);
    const struct gate_msg m = {.type = GATE_DEVICE, .name = "one", .level = 1};
    assert_int_equal(send(p.fd, &m, sizeof(m), 0), sizeof(m));
    assert_int_equal(demand(), -1); /* the loop has not told of it */
    assert_int_equal(loop_turn(), 1);
    assert_int_equal(demand(), 0);
    d->ops->ready(d, -1);
    d->ops->ready(d, p.fd);
    loop_end();
    leave(&p);
}

/* A device that another driver steers is not scheduled, and its submissions pass. */
TEST(left_out)
{
    _cleanup_(leave) struct pages p = welcomed();
    gate_leave_out(d, "id of two");
    say_device(&p, 0, "one");
    say_device(&p, 1, "two");
    _cleanup_(group_list_free) struct group_list l = scan(getpid());
    assert_int_equal(l.n, 1);
    assert_int_equal(p.control->device[0].state, GATE_ACTIVE);
    assert_int_equal(p.control->device[1].state, 0);
}

/* The restorer's: it has heard of nobody, and has nothing to undo. */
TEST(another_instance_undoes)
{
    _cleanup_(leave) struct pages p = welcomed();
    struct device_driver *other;
    say_device(&p, 0, "one");
    _cleanup_(group_list_free) struct group_list l = scan(getpid());
    const struct device_group *g = &l.v[0];
    assert_int_equal(d->ops->set_running(d, &g, 1, false, NULL), 0);
    assert_int_equal(device_gate.open(path, &other, NULL), 0);
    assert_int_equal(other->ops->set_running(other, &g, 1, true, NULL), 0);
    assert_int_equal(other->ops->set_timeslice(other, g, 0, NULL), 0);
    device_close(other);
    assert_int_equal(access(path, F_OK), 0); /* still ours */
}

/* The driver is not held up by what comes along with a message, wherever that waits. */
TEST(descriptors_unasked)
{
    const struct gate_msg hello = {.type = GATE_HELLO,
                                   .magic = GATE_MAGIC,
                                   .version = GATE_VERSION},
                          demand = {.type = GATE_DEMAND};
    struct lingering l = lingering_new();
    int fd = connect_raw();
    lingering_send(&l, fd, &hello, sizeof(hello));
    processes();
    assert_int_equal(processes(), 0);
    assert_true(closed(fd));
    close(fd);
    lingering_end(&l);

    l = lingering_new();
    struct pages p = welcomed();
    assert_int_equal(send(p.fd, &demand, 8, 0), 8);
    lingering_send(&l, p.fd, &demand, 8);
    leave(&p);
    processes();
    assert_int_equal(processes(), 0);
    lingering_end(&l);
}

int main(void)
{
    return test_run(begin, end);
}
