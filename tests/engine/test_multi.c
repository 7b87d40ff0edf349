/* Several drivers behind one, on two drivers without devices: who is asked for what, and that one
 * that fails hurts nobody on the other; alone, and under the manager. */
#include "gpu/mux.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "fixture.h"
#include "gpu/ops.h"
#include "gpu/registry.h"
#include "journal/address.h"
#include "journal/restorer.h"

struct two {
    struct fixture f;     /* f.d: two GPUs, indices 0 and 1 */
    struct mock_driver b; /* one GPU, index 2 */
};

static int begin(void **state)
{
    struct two *t = calloc(1, sizeof(*t));
    setup_in(&t->f);
    mock_init(&t->b, 1);
    struct mux_part v[] = {{.ops = t->f.d.base.ops, .driver = &t->f.d.base, .gpus = 2},
                           {.ops = t->b.base.ops, .driver = &t->b.base, .gpus = 1}};
    if (mux_new(v, 2, &t->f.driver, &t->f.err) < 0)
        fail_msg("%s", t->f.err.text);
    *state = t;
    return 0;
}

static int finish(void **state)
{
    struct two *t = *state;
    clear(&t->f);
    device_close(t->f.driver);
    free(t);
    return 0;
}

#define TWO_TEST(name)                                                                             \
    static void name##_on(struct two *t, struct fixture *f, struct device_driver *m);              \
    TEST_WITH(name, begin, finish)                                                                 \
    {                                                                                              \
        struct two *t = *fixture;                                                                  \
        name##_on(t, &t->f, t->f.driver);                                                          \
    }                                                                                              \
    static void name##_on(struct two *t, struct fixture *f, struct device_driver *m)

TWO_TEST(test_indices)
{
    static const char *const uuids[] = {"MOCK-0", "MOCK-1", "MOCK-0"};
    static const char *const labels[] = {"mock0", "mock1", "mock2"};
    struct gpu_info g;
    assert_int_equal(m->ops->gpus(m), 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(m->ops->info(m, i, &g), 0);
        assert_string_equal(g.uuid, uuids[i]);
        assert_string_equal(g.label, labels[i]);
    }
    assert_int_equal(m->ops->info(m, 3, &g), -ENODEV);
    assert_string_equal(device_name(m), "mock");
}

TEST(test_too_many)
{
    struct mock_driver a, b;
    struct device_driver *d = NULL;
    struct error err = {""};
    mock_init(&a, 9);
    mock_init(&b, 8);
    struct mux_part v[] = {{.ops = a.base.ops, .driver = &a.base, .gpus = 9},
                           {.ops = b.base.ops, .driver = &b.base, .gpus = 8}};
    assert_int_equal(mux_new(v, 2, &d, &err), -E2BIG);
    assert_non_null(strstr(err.text, "2 drivers with 17 GPUs"));
    assert_null(d);
}

/* Groups of both drivers in one call, with the same keys. */
TWO_TEST(test_split)
{
    pid_t p = child(f);
    unsigned a = mock_context(&f->d, p, 1, 0), b = mock_context(&t->b, p, 0, 0);
    t->b.g[b].dg.key = f->d.g[a].dg.key;
    struct group_list l = {0};
    assert_int_equal(m->ops->scan(m, id_of(p), &l, &f->err), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.v[0].gpu, 1);
    assert_int_equal(l.v[1].gpu, 2);
    const struct device_group *both[] = {&l.v[1], &l.v[0]};

    assert_int_equal(m->ops->set_running(m, both, 2, false, &f->err), 0);
    assert_true(f->d.g[a].suspended && t->b.g[b].suspended);
    assert_int_equal(m->ops->set_running(m, &both[0], 1, true, &f->err), 0);
    assert_true(f->d.g[a].suspended && !t->b.g[b].suspended);
    assert_int_equal(m->ops->set_timeslice(m, &l.v[0], 7, &f->err), 0);
    assert_int_equal(f->d.g[a].timeslice_us, 7);
    assert_int_equal(t->b.g[b].timeslice_us, 2048);

    f->d.fail_resume = EIO; /* the other is resumed nevertheless */
    assert_int_equal(m->ops->set_running(m, both, 2, false, &f->err), 0);
    assert_int_equal(m->ops->set_running(m, both, 2, true, &f->err), -EIO);
    assert_string_equal(f->err.text, "mock resume");
    assert_true(f->d.g[a].suspended && !t->b.g[b].suspended);
    l.v[0].gpu = 3;
    assert_int_equal(m->ops->set_timeslice(m, &l.v[0], 7, &f->err), -ENODEV);
    assert_int_equal(m->ops->set_running(m, both, 2, false, &f->err), -ENODEV);
    assert_true(t->b.g[b].suspended);
    group_list_free(&l);
}

/* What is told of a process when one of the drivers fails. */
TWO_TEST(test_failing_scan)
{
    static const struct {
        bool on_a, on_b;
        int fail_a, fail_b;
        bool seen_before;
        int r;
        size_t n;
    } rows[] = {
        {true, true, 0, 0, false, 0, 2},
        {false, false, 0, 0, false, 0, 0},
        {true, false, 0, EIO, false, 0, 1},  /* nothing of it is there */
        {true, false, 0, EIO, true, 0, 1},   /* nor was */
        {true, true, EIO, 0, true, -EIO, 1}, /* something was */
        {true, true, 0, EIO, true, -EIO, 1},
        {true, true, 0, EIO, false, 0, 1},          /* not known to anybody */
        {false, false, EIO, 0, false, -EIO, 0},     /* what it waits for may be there */
        {true, true, EIO, EPERM, true, -EIO, 0},    /* the first one */
        {false, true, EPERM, EIO, true, -EIO, 0},   /* the one that matters */
        {true, true, 0, EAGAIN, false, -EAGAIN, 1}, /* it has not said all */
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct group_list l = {0};
        struct error err = {""};
        pid_t p = child(f);
        if (rows[i].on_a)
            mock_context(&f->d, p, 0, 0);
        if (rows[i].on_b)
            mock_context(&t->b, p, 0, 0);
        if (rows[i].seen_before)
            assert_int_equal(m->ops->scan(m, id_of(p), &l, &err), 0);
        l.n = 0;
        f->d.fail_scan = rows[i].fail_a;
        t->b.fail_scan = rows[i].fail_b;
        int r = m->ops->scan(m, id_of(p), &l, &err);
        if (r != rows[i].r || l.n != rows[i].n || (r < 0) != (err.text[0] != '\0'))
            fail_msg("row %zu: %d, %zu groups, '%s'", i, r, l.n, err.text);
        /* What it has stays known for as long as it cannot be asked. */
        if (rows[i].seen_before)
            assert_int_equal(m->ops->scan(m, id_of(p), &l, NULL), r);
        f->d.fail_scan = t->b.fail_scan = 0;
        group_list_free(&l);
        mock_exit(&t->b, p);
        end(f, p);
        m->ops->forget(m, p);
    }
}

TWO_TEST(test_processes)
{
    pid_t a = child(f), b = child(f), both = child(f);
    mock_context(&f->d, a, 0, 1);
    mock_context(&f->d, both, 0, 1);
    mock_context(&t->b, both, 0, 1);
    mock_context(&t->b, b, 0, 1);
    struct pid_list l = {0};
    assert_int_equal(m->ops->processes(m, &l, &f->err), 0);
    assert_int_equal(l.n, 3);
    l.n = 0;
    f->d.fail_processes = ENODEV;
    assert_int_equal(m->ops->processes(m, &l, &f->err), -ENODEV);
    assert_int_equal(l.n, 2);
    assert_true(l.v[0] == both && l.v[1] == b);
    pid_list_free(&l);
}

/* What one does not tell is not known; it is no error, unless it is all. */
TWO_TEST(test_time)
{
    pid_t p = child(f);
    mock_context(&f->d, p, 1, 0);
    mock_context(&t->b, p, 0, 0);
    mock_compute(&f->d, p, 1)->bursts = mock_compute(&t->b, p, 0)->bursts = 3;
    struct usage_list u = {0};
    struct activity_list a = {0};
    assert_int_equal(m->ops->usage(m, &u, &f->err), -ENOTSUP);
    assert_int_equal(m->ops->activity(m, &a, &f->err), -ENOTSUP);
    t->b.has_usage = t->b.has_activity = true;
    a.incomplete = 0;
    assert_int_equal(m->ops->usage(m, &u, &f->err), 0);
    assert_int_equal(u.n, 1);
    assert_int_equal(u.v[0].gpu, 2);
    assert_int_equal(m->ops->activity(m, &a, &f->err), 0);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.v[0].gpu, 2);
    assert_int_equal(a.incomplete, 3);
    f->d.has_activity = t->b.incomplete = true;
    a.n = a.incomplete = 0;
    assert_int_equal(m->ops->activity(m, &a, &f->err), 0);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.incomplete, 4);
    assert_int_equal(m->ops->demand(m, &(struct demand_list){0}, &f->err), -ENOTSUP);
    assert_true(m->ops->due_ns(m) == UINT64_MAX);
    usage_list_free(&u);
    activity_list_free(&a);
}

TEST(test_lists)
{
    static const struct {
        const char *list, *says; /* "": it is a list */
    } rows[] = {
        {"auto", ""},
        {"nvidia", ""},
        {"nvidia,amd,soft,gate", ""},
        {"soft@/a/b,soft@/a/c,soft,gate", ""},
        {"", "unknown device ''"},
        {"soft,", "unknown device ''"},
        {"soft,auto", "unknown device 'auto'"},
        {"multi", "unknown device 'multi'"},
        {"soft*1", "unknown device 'soft*1'"},
        {"soft@", "absolute path"},
        {"soft@here", "absolute path"},
        {"nvidia@/dev", "takes no @PATH"},
        {"soft@/a,soft@/a", "named twice"},
        {"gate,gate", "named twice"},
        {"soft@/1,soft@/2,soft@/3,soft@/4,soft@/5,soft@/6,soft@/7,soft@/8,gate", "more than 8"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = {""};
        int r = device_list_check(rows[i].list, &err);
        if (r != (rows[i].says[0] ? -EINVAL : 0) || !strstr(err.text, rows[i].says))
            fail_msg("'%s': %d, %s", rows[i].list, r, err.text);
    }
}

/* The gate needs nothing, so it is there on any machine; and by its address elsewhere. */
TWO_TEST(test_addresses)
{
    struct device_driver *d = NULL;
    struct device_address a;
    char gate[96];
    snprintf(gate, sizeof(gate), "%s/gate", f->dir);
    assert_int_equal(device_open_list("gate", NULL, gate, &d, &a, &f->err), 0);
    assert_string_equal(device_name(d), "gate");
    assert_string_equal(a.name, "gate");
    assert_string_equal(a.where, ""); /* not where programs look for a scheduler */
    unsigned slots = d->ops->gpus(d);
    device_close(d);
    assert_int_equal(device_open_list("soft@/nowhere,gate", NULL, gate, &d, &a, &f->err), -ENODEV);

    /* Whoever undoes goes on without what is gone, at the same indices. */
    assert_int_equal(device_open("multi", "soft*2@/nowhere,gate*4", &d, &f->err), 0);
    assert_int_equal(d->ops->gpus(d), 2 + slots);
    assert_string_equal(device_name(d), "soft,gate");
    const struct device_group on_soft = {.gpu = 1, .proc = {getpid(), 1}},
                              on_gate = {.gpu = 2, .proc = {getpid(), 1}},
                              *both[] = {&on_soft, &on_gate};
    assert_int_equal(d->ops->set_running(d, &both[1], 1, true, &f->err), 0);
    assert_int_equal(d->ops->set_running(d, both, 2, true, &f->err), -ENODEV);
    assert_non_null(strstr(f->err.text, "/nowhere"));
    char where[64], little[16];
    assert_int_equal(mux_where(d, where, sizeof(where)), 0);
    assert_string_equal(where, "soft*2@/nowhere,gate*4");
    assert_int_equal(mux_where(d, little, sizeof(little)), -E2BIG);
    device_close(d);
    assert_int_equal(device_open("multi", "soft*2@/nowhere", &d, &f->err), -ENODEV);
    assert_int_equal(device_open("multi", "soft*x@/nowhere", &d, &f->err), -EINVAL);
    assert_int_equal(device_open("multi", NULL, &d, &f->err), -EINVAL);
}

static void loop_add(void *arg, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    assert_int_equal(epoll_ctl(*(int *)arg, EPOLL_CTL_ADD, fd, &e), 0);
}

static void loop_remove(void *arg, int fd)
{
    assert_int_equal(epoll_ctl(*(int *)arg, EPOLL_CTL_DEL, fd, NULL), 0);
}

/* Two drivers with descriptors: both hand theirs over, and each gets its own back. */
TWO_TEST(test_events)
{
    struct mux_part v[2] = {{.ops = &device_gate}, {.ops = &device_gate}};
    struct device_driver *d;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(a.sun_path, sizeof(a.sun_path), "%s/gate%u", f->dir, i);
        if (i == 0) /* the second is opened when it is needed */
            assert_int_equal(device_open("gate", a.sun_path, &v[i].driver, &f->err), 0);
        snprintf(v[i].where, sizeof(v[i].where), "%s", a.sun_path);
        v[i].gpus = 4;
    }
    assert_int_equal(mux_new(v, 2, &d, &f->err), 0);
    struct pid_list pids = {0};
    struct epoll_event e;
    int loop = epoll_create1(EPOLL_CLOEXEC);
    d->ops->watch(d, &(struct device_watcher){loop_add, loop_remove, &loop});
    assert_int_equal(d->ops->processes(d, &pids, &f->err), 0); /* now they listen */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(epoll_wait(loop, &e, 1, 0), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        snprintf(a.sun_path, sizeof(a.sun_path), "%s/gate%u", f->dir, i);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        for (int turn = 0; turn < 2; turn++) { /* a program comes and goes */
            assert_int_equal(epoll_wait(loop, &e, 1, 1000), 1);
            d->ops->ready(d, e.data.fd);
            assert_int_equal(epoll_wait(loop, &e, 1, 0), 0);
            if (turn == 0)
                close(fd);
        }
    }
    assert_true(d->ops->due_ns(d) == UINT64_MAX);
    d->ops->watch(d, NULL);
    close(loop);
    pid_list_free(&pids);
    device_close(d);
}

static void driver_fails(struct mock_driver *d, int code)
{
    d->fail_scan = d->fail_processes = d->fail_suspend = d->fail_resume = d->fail_timeslice = code;
}

/* Each GPU by itself: a latency job on one does not hold back a job on the other. And what one
 * driver does to its own stays there while it cannot be reached. */
TWO_TEST(test_manager)
{
    pid_t lat = child(f), a1 = child(f), a2 = child(f), b1 = child(f), b2 = child(f);
    mock_context(&f->d, lat, 0, 1);
    mock_context(&f->d, a1, 0, 1);
    mock_context(&f->d, a2, 0, 1);
    mock_context(&t->b, a2, 0, 1);
    mock_context(&t->b, b1, 0, 1);
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    uint32_t job1 = add(f, a1, CLASS_BATCH), job2 = add(f, a2, CLASS_BATCH),
             job3 = add(f, b1, CLASS_NORMAL);
    ticks(f, 100);
    assert_int_equal(on(f, lat)->timeslice_us, 1000000);
    assert_int_equal(suspended_of(f, a1) + suspended_of(f, a2), 2);
    assert_int_equal(suspended_on(&t->b, b1), 0);
    assert_int_equal(suspended_on(&t->b, a2), suspended_of(f, a2)); /* a gang: one turn for both */
    assert_int_equal(mock_compute(&t->b, b1, 0)->timeslice_us, 1000000); /* above a batch job */

    struct job_view v;
    for (uint32_t c = 0; engine_next_job(f->m, &c, &v);) {
        if (c == job2 + 1)
            assert_int_equal(v.gpus, 5);
        if (c == job3 + 1)
            assert_int_equal(v.gpus, 4);
    }

    /* The first driver is lost; on the second one things go on, also with newcomers. */
    driver_fails(&f->d, ENODEV);
    mock_context(&t->b, b2, 0, 1);
    uint32_t job4 = add(f, b2, CLASS_LATENCY);
    ticks(f, 3000);
    assert_int_equal(mock_compute(&t->b, b2, 0)->timeslice_us, 1000000);
    assert_int_equal(mock_compute(&t->b, a2, 0)->timeslice_us, 1);
    assert_int_equal(engine_job_status(f->m, job1, NULL), -ENODEV);
    assert_int_equal(engine_job_status(f->m, job2, NULL), -ENODEV);
    assert_int_equal(engine_job_status(f->m, job3, NULL), 0);
    assert_int_equal(engine_job_status(f->m, job4, NULL), 0);
    unsigned on_record = 0;
    for (uint32_t i = 0; i < journal_groups_end(f->j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(f->j, i, &flags);
        on_record += g && g->gpu == 0;
    }
    assert_int_equal(on_record, 6);

    /* It is there again: undone on both. */
    driver_fails(&f->d, 0);
    ticks(f, 3000);
    assert_int_equal(suspended_of(f, a1) + suspended_of(f, a2), 2);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
    f->d = t->b;
    assert_int_equal(changed_groups(f), 0);
}

/* Whether two cedes in directories of their own may have a device in common. */
TEST(test_devices_in_common)
{
    static const struct {
        struct device_address a, b;
        bool common;
    } rows[] = {
        {{"soft", "/a"}, {"soft", "/a"}, true},
        {{"soft", "/a"}, {"soft", "/b"}, false},
        {{"nvidia", ""}, {"nvidia", ""}, true},
        {{"nvidia", ""}, {"soft", "/a"}, false},
        {{"gate", ""}, {"gate", ""}, false}, /* of its directory */
        {{"multi", "soft*1@/a,gate*4"}, {"soft", "/a"}, true},
        {{"multi", "soft*1@/a,gate*4"}, {"multi", "soft*2@/b,gate*4"}, false},
        {{"multi", "nvidia*8,gate*4"}, {"multi", "soft*2@/b,nvidia*8"}, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (address_overlap(rows[i].a.name, rows[i].a.where, rows[i].b.name, rows[i].b.where) !=
                rows[i].common ||
            address_overlap(rows[i].b.name, rows[i].b.where, rows[i].a.name, rows[i].a.where) !=
                rows[i].common)
            fail_msg("row %zu", i);
    }
}

/* What is on record is of use only to whoever counts the devices in the same way. */
TWO_TEST(test_other_devices)
{
    static const struct {
        struct device_address before, now;
        uint32_t gpu;
        bool kept;
        unsigned left;
    } rows[] = {
        {{"soft", "/a"}, {"soft", "/a"}, 0, true, 0},
        {{"soft", "/a"}, {"multi", "soft*1@/a,gate*4"}, 0, true, 0},
        {{"multi", "soft*1@/a,gate*4"}, {"soft", "/a"}, 1, true, 0},
        {{"multi", "soft*1@/a,gate*4"}, {"soft", "/a"}, 2, false, 0}, /* by the gate */
        {{"soft", "/a"}, {"soft", "/b"}, 0, false, 1},
        {{"soft", ""}, {"soft", "/a"}, 0, false, 1},
        {{"multi", "soft*1@/a,soft*1@/b"}, {"multi", "soft*1@/b,gate*4"}, 0, false, 1},
        {{"gate", ""}, {"soft", "/a"}, 0, false, 0},
        {{"", ""}, {"soft", "/a"}, 0, true, 0},
    };
    setenv("CEDE_SOFT_SOCKET", "/nowhere", 1);
    f->j = journal_of(f);
    struct journal_shared *s = journal_shared(f->j);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct device_group g = {
            .key = 1, .proc = id_of(child(f)), .gpu = rows[i].gpu, .timeslice_us = 7};
        uint32_t flags;
        snprintf(s->driver, sizeof(s->driver), "%s", rows[i].before.name);
        snprintf(s->where, sizeof(s->where), "%s", rows[i].before.where);
        assert_int_equal(journal_put_group(f->j, 0, JG_SUSPENDED | JG_TIMESLICE, &g), 0);
        unsigned left = restorer_address(f->j, &f->d.base, &rows[i].now); /* two GPUs */
        bool kept = journal_group(f->j, 0, &flags) != NULL;
        if (kept != rows[i].kept || left != rows[i].left)
            fail_msg("row %zu: %s, %u left", i, kept ? "kept" : "undone", left);
        assert_string_equal(s->driver, rows[i].now.name);
        assert_string_equal(s->where, rows[i].now.where);
        journal_put_group(f->j, 0, 0, NULL);
    }
    journal_close(f->j);
}

TWO_TEST(test_swapping)
{
    t->b.no_swap = true;
    pid_t b = child(f);
    mock_context(&t->b, b, 0, 0);
    start(f, "priority", NULL);
    uint32_t job = add(f, b, CLASS_BATCH);
    ticks(f, 100);
    FAILS(-ENOTSUP, "cannot be swapped", engine_swap_out(f->m, job, 0, &f->err));
}
