/* The nvidia driver against a resource manager in memory: what it finds, how much it asks, what it
 * changes, and that it neither keeps a descriptor nor touches a program it should not. */
#include "rig.h"

RIG_TEST(one_context)
{
    struct fake_process *p = fake_process(&t->rm);
    assert_int_equal(scan(t, p), 0); /* no descriptor yet */
    uint32_t c = fake_client(&t->rm, p);
    assert_int_equal(scan(t, p), 0);
    uint32_t d = fake_device(&t->rm, c, 0);
    uint32_t g = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 4);
    const struct device_group *x = find(t, c, g);
    assert_int_equal(x->kind, GROUP_COMPUTE);
    assert_int_equal(x->nchannels, 8);
    assert_int_equal(x->timeslice_us, 2048);
    assert_int_equal(x->handles[1], d);
    assert_int_equal(x->handles[2], d + 1);
    assert_int_equal(x->proc.pid, p->id.pid);
    assert_int_equal(x->proc.start_ticks, p->id.start_ticks);
    for (size_t i = 0; i < t->l.n; i++) {
        assert_int_equal(t->l.v[i].gpu, 0);
        if (&t->l.v[i] == x)
            continue;
        assert_int_equal(t->l.v[i].kind, GROUP_COPY);
        assert_int_equal(t->l.v[i].nchannels, 4);
        assert_int_equal(t->l.v[i].timeslice_us, 1024);
    }
    assert_int_equal(scan(t, p), 4);
    assert_true(t->rm.ioctls <= 8);
}

/* The library makes a group, its channels, and sets the timeslice in the end. */
RIG_TEST(context_half_built)
{
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0);
    uint32_t first = fake_context(&t->rm, p, c, d);
    assert_int_equal(look(t, p), 4); /* one look is enough for `cede set` */
    assert_true(t->rm.ioctls < 1000);
    uint32_t g = fake_context(&t->rm, p, c, d);
    fake_object_at(&t->rm, c, g)->timeslice_us = 1024;
    for (int i = 0; i < 4; i++) { /* something changes within 200 ms */
        assert_int_equal(look(t, p), 4);
        find(t, c, first);
        t->rm.now_ns += 150 * NSEC_PER_MSEC;
        fake_object_at(&t->rm, c, g)->timeslice_us = i == 3 ? 2048 : 1000 + (unsigned)i;
    }
    assert_int_equal(look(t, p), 4);
    t->rm.now_ns += 190 * NSEC_PER_MSEC;
    assert_int_equal(look(t, p), 4);
    t->rm.now_ns += 20 * NSEC_PER_MSEC;
    assert_int_equal(look(t, p), 8);
    assert_int_equal(find(t, c, g)->timeslice_us, 2048);
    assert_int_equal(find(t, c, g)->timeslice_now_us, 2048);
    assert_int_equal(t->d->ops->set_timeslice(t->d, find(t, c, g), 1000000, &t->err), 0);
    fake_object_at(&t->rm, c, first)->timeslice_us = 3072; /* the program itself, late */
    assert_int_equal(look(t, p), 8);
    assert_true(t->rm.ioctls <= 12);
    assert_int_equal(find(t, c, g)->timeslice_us, 2048);
    assert_int_equal(find(t, c, g)->timeslice_now_us, 1000000);
    assert_int_equal(find(t, c, first)->timeslice_us, 2048);
    assert_int_equal(find(t, c, first)->timeslice_now_us, 3072);
}

RIG_TEST(context_later_and_away)
{
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0);
    uint32_t first = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 4);
    assert_int_equal(t->d->ops->set_timeslice(t->d, find(t, c, first), 7, &t->err), 0);
    assert_int_equal(fake_object_at(&t->rm, c, first)->timeslice_us, 7);

    /* Far away in the library's names, and with live memory right behind the first. */
    fake_malloc(&t->rm, c, d, 3000, 300);
    fake_malloc(&t->rm, c, d, 1000000, 0);
    uint32_t second = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 8);
    assert_int_equal(find(t, c, first)->timeslice_us, 2048); /* as it was before us */
    assert_int_equal(find(t, c, second)->timeslice_us, 2048);
    assert_int_equal(find(t, c, second)->nchannels, 8);

    /* A second driver sees the same, with our 7 as what is set. */
    struct device_driver *mine = t->d;
    t->d = fake_driver(&t->rm, 1);
    t->l.n = 0;
    assert_int_equal(t->d->ops->scan(t->d, p->id, &t->l, NULL), 0);
    assert_int_equal(t->l.n, 8);
    assert_int_equal(find(t, c, first)->timeslice_us, 7);
    device_close(t->d);
    t->d = mine;

    fake_context_free(&t->rm, p, c, first);
    assert_int_equal(scan(t, p), 4);
    find(t, c, second);
    fake_context_free(&t->rm, p, c, second);
    assert_int_equal(scan(t, p), 0);
}

RIG_TEST(many_contexts_gone)
{
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0), g = 0;
    uint32_t keep = fake_context(&t->rm, p, c, d);
    for (int i = 0; i < 500; i++) {
        g = fake_context(&t->rm, p, c, d);
        if (i < 499)
            fake_context_free(&t->rm, p, c, g);
    }
    /* By a driver that was not there to see them go. */
    assert_int_equal(scan(t, p), 8);
    t->rm.now_ns += 100 * NSEC_PER_SEC; /* all is looked at anew */
    assert_int_equal(scan(t, p), 8);
    t->d->ops->forget(t->d, p->id.pid);
    assert_int_equal(scan(t, p), 8);
    find(t, c, keep);
    find(t, c, g);
}

RIG_TEST(unnamed_by_rm)
{
    t->rm.no_own_names = true;
    t->rm.old_kernel = true;
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0);
    assert_int_equal(scan(t, p), 0);
    uint32_t g = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 4);
    assert_int_equal(find(t, c, g)->nchannels, 8);
    t->rm.now_ns += 100 * NSEC_PER_SEC;
    assert_int_equal(scan(t, p), 4);
    fake_malloc(&t->rm, c, d, 500, 20);
    fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 8);
}

TEST(gpus_and_descriptors)
{
    _cleanup_(rig_down) struct rig t;
    rig_up(&t, 2);
    struct fake_process *p = fake_process(&t.rm);
    fake_client(&t.rm, p); /* the management library's: no objects */
    uint32_t a = fake_client(&t.rm, p), b = fake_client(&t.rm, p);
    uint32_t a0 = fake_device(&t.rm, a, 0), a1 = fake_device(&t.rm, a, 1);
    uint32_t b2 = fake_device(&t.rm, b, 2); /* one that was not shown to us */
    uint32_t g0 = fake_context(&t.rm, p, a, a0), g1 = fake_context(&t.rm, p, a, a1);
    uint32_t g2 = fake_context(&t.rm, p, b, b2);
    assert_int_equal(scan(&t, p), 12);
    assert_int_equal(find(&t, a, g0)->gpu, 0);
    assert_int_equal(find(&t, a, g1)->gpu, 1);
    assert_int_equal(find(&t, b, g2)->gpu, 2);
    assert_int_equal(t.d->ops->gpus(t.d), 3);
    struct gpu_info info;
    assert_int_equal(t.d->ops->info(t.d, 2, &info), 0);
    assert_string_equal(info.uuid, "GPU-00000002");
    assert_true(info.caps & GPU_CAP_TIMESLICE);
    assert_int_equal(t.d->ops->info(t.d, 3, &info), -EINVAL);

    /* 60 channels on three subdevices: a call each, every channel on its own. */
    assert_int_equal(disable(&t, true), 0);
    assert_int_equal(t.rm.disables, 3);
    assert_int_equal(disabled(&t), 60);
    assert_int_equal(disable(&t, false), 0);
    assert_int_equal(disabled(&t), 0);

    fake_close(&t.rm, p, p->fds[1].number); /* client a's */
    assert_int_equal(scan(&t, p), 4);
    find(&t, b, g2);
}

/* By any channel of the group; those that are gone say nothing. */
RIG_TEST(preemption_mode)
{
    struct gpu_info info;
    uint32_t c, g;
    struct fake_process *p = with_context(&t->rm, &c, &g);
    assert_int_equal(t->d->ops->info(t->d, 0, &info), 0);
    assert_true(info.caps & GPU_CAP_PREEMPT && info.caps & GPU_CAP_PLACE);
    assert_int_equal(scan(t, p), 4);
    struct device_group found = *find(t, c, g);
    assert_int_equal(t->d->ops->set_preempt(t->d, &found, true, &t->err), 0);
    assert_string_equal(t->err.text, ""); /* which the doctor shows as a failure */
    assert_true(fake_object_at(&t->rm, c, g)->block_ends);
    assert_int_equal(t->rm.preempts, 1);
    fake_object_at(&t->rm, c, found.channels[0])->class = 0x3E;
    assert_int_equal(t->d->ops->set_preempt(t->d, &found, false, &t->err), 0);
    assert_false(fake_object_at(&t->rm, c, g)->block_ends);
    assert_int_equal(t->rm.preempts, 4); /* the first twice: the descriptor might be another */
    for (uint32_t i = 0; i < found.nchannels; i++)
        fake_object_at(&t->rm, c, found.channels[i])->class = 0x3E;
    assert_int_equal(t->d->ops->set_preempt(t->d, &found, true, &t->err), -ENOENT);
    t->rm.fail_cmd = 0x20801210;
    t->rm.fail_status = 0x56;
    assert_int_equal(t->d->ops->set_preempt(t->d, &found, true, &t->err), -EIO);
    assert_non_null(strstr(t->err.text, "SET_PREEMPTION_MODE"));
    fake_exit(&t->rm, p);
    assert_int_equal(t->d->ops->set_preempt(t->d, &found, true, &t->err), -ESRCH);
}

RIG_TEST(client_counter)
{
    struct fake_process *old = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, old);
    fake_context(&t->rm, old, c, fake_device(&t->rm, c, 0));
    fake_client(&t->rm, old);
    t->rm.counter = 300000;
    t->rm.now_ns += 100 * NSEC_PER_SEC;
    /* From before our time: the whole range, once; the second descriptor's client is near. */
    assert_int_equal(look_all(t, old), 4);
    assert_in_range(t->all, 300000, 306000);
    assert_int_equal(look(t, old), 4);
    assert_true(t->rm.ioctls <= 8);

    /* Born after we looked at the counter: few are possible. */
    t->rm.now_ns += NSEC_PER_SEC;
    struct fake_process *young = fake_process(&t->rm);
    uint32_t y = fake_client(&t->rm, young);
    t->rm.counter += 500;
    assert_int_equal(look(t, young), 0);
    assert_true(t->rm.ioctls < 1500);
    fake_context(&t->rm, young, y, fake_device(&t->rm, y, 0));
    assert_int_equal(look(t, young), 0);
    assert_true(t->rm.ioctls < 2000);
    assert_int_equal(scan(t, young), 4);

    /* The counter starts over; what is older than that is still found, by a fresh driver too. */
    t->rm.counter = RM_CLIENT_RANGE + 10;
    t->rm.now_ns += NSEC_PER_SEC;
    struct fake_process *newest = fake_process(&t->rm);
    uint32_t n = fake_client(&t->rm, newest);
    assert_int_equal(n, RM_CLIENT_BASE + 10);
    fake_context(&t->rm, newest, n, fake_device(&t->rm, n, 0));
    assert_int_equal(look(t, newest), 4);
    device_close(t->d);
    t->d = fake_driver(&t->rm, 1);
    assert_int_equal(look_all(t, old), 4);
    assert_int_equal(look_all(t, young), 4);
    assert_int_equal(look_all(t, newest), 4);
}

RIG_TEST(test_fork)
{
    uint32_t c, g;
    struct fake_process *p = with_context(&t->rm, &c, &g);
    t->rm.now_ns += 50 * NSEC_PER_SEC;
    assert_int_equal(scan(t, p), 4);
    struct fake_process *child = fake_fork(&t->rm, p);
    t->rm.counter = 100000;
    assert_int_equal(scan(t, child), 0); /* told once, with the parent */
    assert_true(t->rm.ioctls < 100);
    assert_int_equal(scan(t, child), 0);
    assert_int_equal(scan(t, p), 4);

    fake_exit(&t->rm, p);
    assert_int_equal(scan(t, p), -ESRCH);
    assert_non_null(strstr(t->err.text, "is gone"));
    assert_int_equal(scan(t, child), 4);
    assert_int_equal(find(t, c, g)->proc.pid, child->id.pid);
    suspends(t, 20);
    fake_exit(&t->rm, child);
    t->d->ops->forget(t->d, child->id.pid);
}

RIG_TEST(descriptor_reused)
{
    uint32_t c, g;
    struct fake_process *p = with_context(&t->rm, &c, &g);
    assert_int_equal(scan(t, p), 4);
    struct device_group stale = *find(t, c, g);

    /* Closed, and the number is another file's: nothing may be asked of it. */
    int number = p->fds[0].number;
    fake_close(&t->rm, p, number);
    fake_fd(p, number, -1);
    p->ngpu = 20;
    t->rm.ioctls = 0;
    assert_int_equal(t->d->ops->set_timeslice(t->d, &stale, 5, &t->err), -ENOENT);
    assert_int_equal(t->rm.ioctls, 0);
    assert_int_equal(scan(t, p), 0);

    /* The number is a new client's. */
    p->nfds = 0;
    uint32_t c2 = fake_client(&t->rm, p);
    assert_int_equal(p->fds[0].number, number);
    p->ngpu = 0;
    uint32_t g2 = fake_context(&t->rm, p, c2, fake_device(&t->rm, c2, 0));
    assert_int_equal(t->d->ops->set_timeslice(t->d, &stale, 5, &t->err), -ENOENT);
    assert_int_equal(scan(t, p), 4);
    assert_int_equal(fake_object_at(&t->rm, c2, g2)->timeslice_us, 2048);
    assert_int_equal(t->d->ops->set_timeslice(t->d, find(t, c2, g2), 5, &t->err), 0);

    /* Moved to another number: found again, also for what was seen before. */
    struct device_group moved = *find(t, c2, g2);
    p->fds[0].number = 40;
    assert_int_equal(t->d->ops->set_timeslice(t->d, &moved, 6, &t->err), 0);
    assert_int_equal(fake_object_at(&t->rm, c2, g2)->timeslice_us, 6);

    /* Where it cannot be looked for it is not gone. */
    p->fds[0].number = p->full_at = 50;
    assert_int_equal(t->d->ops->set_timeslice(t->d, &moved, 7, &t->err), -EMFILE);
    p->full_at = 0;
    p->plain = 100000;
    assert_int_equal(t->d->ops->set_timeslice(t->d, &moved, 7, &t->err), -EAGAIN);
    p->plain = 0;
    assert_int_equal(t->d->ops->set_timeslice(t->d, &moved, 7, &t->err), 0);
}

/* The same number of descriptors as before, and yet other contexts. */
RIG_TEST(unnoticed_by_count)
{
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0);
    uint32_t g = fake_context(&t->rm, p, c, d);
    for (int i = 0; i < 16; i++) /* a server's connections */
        fake_fd(p, 20 + i, -1);
    assert_int_equal(scan(t, p), 4);
    fake_context_free(&t->rm, p, c, g);
    uint32_t g2 = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 4);
    find(t, c, g2);
    p->nfds -= 16; /* they hang up */
    uint32_t g3 = fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 8);
    find(t, c, g3);

    /* Closed and opened anew under the same number. */
    fake_close(&t->rm, p, p->fds[0].number);
    uint32_t c2 = fake_client(&t->rm, p);
    fake_device(&t->rm, c2, 0);
    assert_int_equal(scan(t, p), 0);
    assert_int_equal(fake_client_at(&t->rm, c2)->nobjects, 4);
    uint32_t g4 = fake_context(&t->rm, p, c2, RM_LIBRARY_BASE + 2);
    assert_int_equal(scan(t, p), 4);
    find(t, c2, g4);
}

RIG_TEST(errors)
{
    uint32_t c, g;
    struct fake_process *p = with_context(&t->rm, &c, &g);
    assert_int_equal(scan(t, p), 4);
    struct device_group x = *find(t, c, g);
    const struct device_ops *ops = t->d->ops;

    assert_int_equal(ops->set_timeslice(t->d, &x, 0, &t->err), -EINVAL);
    assert_int_equal(ops->set_timeslice(t->d, &x, 1000001, &t->err), -EINVAL);
    assert_int_equal(ops->set_timeslice(t->d, &x, 1000000, NULL), 0);

    p->forbidden = true;
    assert_int_equal(ops->set_timeslice(t->d, &x, 5, &t->err), -EPERM);
    assert_non_null(strstr(t->err.text, "CAP_SYS_PTRACE"));
    assert_int_equal(scan(t, p), -EPERM);
    assert_int_equal(disable(t, true), 0); /* no groups: nothing to do */
    p->forbidden = false;
    assert_int_equal(scan(t, p), 4);

    t->rm.fail_cmd = 0xA06C0103;
    t->rm.fail_status = 0x65;
    assert_int_equal(ops->set_timeslice(t->d, &x, 5, &t->err), -EIO);
    assert_non_null(strstr(t->err.text, "SET_TIMESLICE"));
    assert_non_null(strstr(t->err.text, "0x65 (timed out)"));
    t->rm.fail_cmd = 0x2080110B;
    t->rm.fail_status = RM_STATUS_INSUFFICIENT_PERMISSIONS;
    assert_int_equal(disable(t, true), -EPERM);
    assert_non_null(strstr(t->err.text, "DISABLE_CHANNELS"));
    t->rm.fail_cmd = 0;

    /* One of two contexts is gone: the rest is done, the error is told. */
    x = *find(t, c, g);
    x.handles[3] = 0x5C999999;
    assert_int_equal(ops->set_timeslice(t->d, &x, 5, &t->err), -ENOENT);
    x = *find(t, c, g);
    x.handles[2] = 0;
    const struct device_group *two[] = {&x, find(t, c, g)};
    assert_int_equal(ops->set_running(t->d, two, 2, false, &t->err), -ENOTSUP);
    assert_int_equal(disabled(t), 8);
    assert_int_equal(scan(t, p), 4);

    x = *find(t, c, g);
    x.proc.start_ticks++; /* the pid was reused */
    assert_int_equal(ops->set_timeslice(t->d, &x, 5, &t->err), -ESRCH);
}

/* The process goes away at every possible moment of each call. */
TEST(dies_between)
{
    for (int what = 0; what < 3; what++) {
        for (int at = 1; at < 1000; at++) {
            struct rig t;
            rig_up(&t, 1);
            uint32_t c, g;
            struct fake_process *p = with_context(&t.rm, &c, &g);
            if (what)
                assert_int_equal(scan(&t, p), 4);
            t.rm.die_after = at;
            int r = what == 0   ? look(&t, p)
                    : what == 1 ? t.d->ops->set_timeslice(t.d, &t.l.v[0], 5, &t.err)
                                : disable(&t, true);
            bool died = t.rm.die_after == 0;
            t.rm.die_after = 0;
            assert_int_equal(t.rm.nopen, 1);
            if (died && what)
                assert_true(r == -ESRCH || r == -ENOENT);
            if (died)
                assert_int_equal(scan(&t, p), -ESRCH);
            rig_down(&t);
            if (!died) {
                assert_true(r >= 0);
                break;
            }
            assert_true(at < 999);
        }
    }
}

RIG_TEST(test_processes)
{
    struct fake_process *a = fake_process(&t->rm), *b = fake_process(&t->rm);
    struct fake_process *c = fake_process(&t->rm);
    fake_client(&t->rm, c);
    fake_client(&t->rm, a);
    for (int i = 0; i < 40; i++) {
        processes(t);
        if (i == 20)
            fake_client(&t->rm, b);
        if (i == 30)
            fake_exit(&t->rm, a);
        assert_int_equal(t->pids.n, i <= 20 ? 2 : i <= 30 ? 3 : 2);
        assert_int_equal(t->pids.v[t->pids.n - 1], c->id.pid);
    }
}

static uint64_t random_next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* Programs that start, fork, allocate, make and destroy contexts on two GPUs and exit at random;
 * each scan must tell exactly the groups that are there, each once, with all their channels. */
TEST(test_random)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        _cleanup_(rig_down) struct rig t;
        rig_up(&t, 2);
        uint64_t s = seed * 0x9E3779B97F4A7C15ULL;
        struct {
            struct fake_process *p; /* who scans should tell it of */
            uint32_t client, device[2], group[12];
            size_t n;
        } w[16] = {0};
        size_t n = 0;
        for (int step = 0; step < 150; step++) {
            size_t i = n ? (size_t)(random_next(&s) % n) : 0;
            unsigned what = (unsigned)(random_next(&s) % 10);
            t.rm.now_ns += random_next(&s) % (step % 10 ? 3 * NSEC_PER_SEC : 90 * NSEC_PER_SEC);
            t.rm.counter += (uint32_t)(random_next(&s) % 100);
            t.rm.old_kernel = seed % 4 == 0;
            if (what == 0 && n < ARRAY_SIZE(w)) {
                w[n].p = fake_process(&t.rm);
                w[n].client = fake_client(&t.rm, w[n].p);
                for (unsigned k = 0; k < 2; k++)
                    w[n].device[k] = fake_device(&t.rm, w[n].client, k);
                n++;
            } else if (n && w[i].p && what <= 3 && w[i].n < ARRAY_SIZE(w[i].group)) {
                w[i].group[w[i].n++] =
                    fake_context(&t.rm, w[i].p, w[i].client, w[i].device[random_next(&s) % 2]);
            } else if (n && w[i].p && what == 4 && w[i].n) {
                size_t k = (size_t)(random_next(&s) % w[i].n);
                fake_context_free(&t.rm, w[i].p, w[i].client, w[i].group[k]);
                w[i].group[k] = w[i].group[--w[i].n];
            } else if (n && w[i].p && what == 5) {
                unsigned mallocs = (unsigned)(random_next(&s) % 5000);
                fake_malloc(&t.rm, w[i].client, w[i].device[0], mallocs, mallocs % 50);
            } else if (n && w[i].p && what == 6 && step % 3 == 0) {
                fake_exit(&t.rm, w[i].p);
                t.d->ops->forget(t.d, w[i].p->id.pid);
                w[i].p = NULL;
                w[i].n = 0;
            } else if (n && w[i].p && what == 7 && t.rm.nprocs < 40) {
                assert_int_equal(scan(&t, w[i].p), w[i].n * 4);
                struct fake_process *child = fake_fork(&t.rm, w[i].p);
                assert_int_equal(scan(&t, child), 0);
                fake_exit(&t.rm, child);
            }
            for (size_t k = 0; k < n; k++) {
                if (!w[k].p || (k != i && random_next(&s) % 4))
                    continue;
                assert_int_equal(scan(&t, w[k].p), w[k].n * 4);
                for (size_t j = 0; j < w[k].n; j++) {
                    const struct device_group *g = find(&t, w[k].client, w[k].group[j]);
                    assert_int_equal(g->nchannels, 8);
                    assert_int_equal(g->kind, GROUP_COMPUTE);
                    const struct fake_object *o = fake_object_at(&t.rm, w[k].client, g->handles[2]);
                    assert_int_equal(g->gpu, o->gpu);
                }
                suspends(&t, (unsigned)(w[k].n * 20));
            }
        }
    }
}
