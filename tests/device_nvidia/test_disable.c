/* Suspending and resuming, which RM does by lists of channels. */
#include "rig.h"

/* A process with seven contexts of 20 channels, which were found. */
static struct fake_process *with_140_channels(struct rig *t)
{
    struct fake_process *p = fake_process(&t->rm);
    uint32_t c = fake_client(&t->rm, p), d = fake_device(&t->rm, c, 0);
    for (int i = 0; i < 7; i++)
        fake_context(&t->rm, p, c, d);
    assert_int_equal(scan(t, p), 28);
    return p;
}

RIG_TEST(more_than_64_channels)
{
    with_140_channels(t);
    assert_int_equal(disable(t, true), 0);
    assert_int_equal(disabled(t), 140);
    assert_int_equal(t->rm.disables, 3);
    assert_int_equal(t->rm.max_disabled, 64);
    assert_int_equal(disable(t, false), 0);
    assert_int_equal(disabled(t), 0);
}

/* A channel is freed: the others are suspended, once, and resumed all the same, though RM had taken
 * a part of the list; and the list counts as gone when all are. */
RIG_TEST(channel_gone)
{
    uint32_t client, group;
    struct fake_process *p = with_context(&t->rm, &client, &group);
    assert_int_equal(scan(t, p), 4);
    suspends(t, 20);
    const struct device_group *g = &t->l.v[0];
    for (uint32_t i = 0; i < g->nchannels; i++) {
        struct fake_object *o = fake_object_at(&t->rm, client, g->channels[g->nchannels - 1 - i]);
        o->handle += 0x12340000;
        assert_int_equal(disable(t, true), 0);
        assert_int_equal(disabled(t), 19 - i);
        t->l.v[0].nchannels -= i + 1; /* as the next scan sees it */
        assert_int_equal(disable(t, false), 0);
        t->l.v[0].nchannels += i + 1;
        assert_int_equal(disabled(t), 0);
        assert_int_equal(t->d->ops->set_running(t->d, &g, 1, false, &t->err),
                         i + 1 < g->nchannels ? 0 : -ENOENT);
        assert_int_equal(disabled(t), g->nchannels - i - 1);
        assert_int_equal(t->d->ops->set_running(t->d, &g, 1, true, &t->err),
                         i + 1 < g->nchannels ? 0 : -ENOENT);
        assert_int_equal(disabled(t), 0);
    }
}

/* -EPERM says that nothing was changed, and whoever hears it forgets the suspension. So it is the
 * answer only if the first list was refused; after one that was taken it is another. */
RIG_TEST(right_is_lost_between_two_lists)
{
    struct fake_process *p = with_140_channels(t);
    t->rm.disables_max = 1;
    assert_int_equal(disable(t, true), -EIO);
    assert_int_equal(disabled(t), 64);
    assert_non_null(strstr(t->err.text, "DISABLE_CHANNELS"));
    t->rm.disables_max = 0;
    assert_int_equal(disable(t, false), 0);
    assert_int_equal(disabled(t), 0);

    /* The same over two clients, each of which has lists of its own. */
    uint32_t other = fake_client(&t->rm, p);
    fake_context(&t->rm, p, other, fake_device(&t->rm, other, 0));
    assert_int_equal(scan(t, p), 32);
    t->rm.disables_max = 3;
    assert_int_equal(disable(t, true), -EIO);
    assert_int_equal(disabled(t), 140);
    t->rm.disables_max = 0;
    assert_int_equal(disable(t, false), 0);

    p->forbidden = true;
    assert_int_equal(disable(t, true), -EPERM);
    assert_int_equal(disabled(t), 0);
}

/* Nor is the answer -EPERM after a list that was taken in part, and one resumption is enough. */
TEST(right_is_lost_after_a_part)
{
    for (unsigned calls = 1; calls < 30; calls++) {
        _cleanup_(rig_down) struct rig t;
        rig_up(&t, 1);
        uint32_t client, group;
        struct fake_process *p = with_context(&t.rm, &client, &group);
        assert_int_equal(scan(&t, p), 4);
        struct device_group *g = &t.l.v[0];
        fake_object_at(&t.rm, client, g->channels[g->nchannels - 1])->handle += 0x12340000;
        t.rm.disables_max = calls;
        int r = disable(&t, true);
        assert_true(r != -EPERM || disabled(&t) == 0);
        t.rm.disables_max = 0;
        g->nchannels--; /* as the next scan sees it */
        assert_int_equal(disable(&t, false), 0);
        assert_int_equal(disabled(&t), 0);
    }
}

/* ---- several processes ---- */

#define MANY 10

struct many {
    struct rig t;
    struct fake_process *p[MANY];
    struct group_list all;
    const struct device_group *v[MANY * 4];
};

/* Processes with a context of 20 channels each. */
static void many_up(struct many *x)
{
    rig_up(&x->t, 1);
    x->all = (struct group_list){0};
    for (unsigned i = 0; i < MANY; i++) {
        uint32_t client, group;
        x->p[i] = with_context(&x->t.rm, &client, &group);
        assert_int_equal(scan(&x->t, x->p[i]), 4);
        for (size_t k = 0; k < x->t.l.n; k++)
            assert_int_equal(group_list_push(&x->all, &x->t.l.v[k]), 0);
    }
    for (size_t i = 0; i < x->all.n; i++)
        x->v[i] = &x->all.v[i];
}

static void many_down(struct many *x)
{
    group_list_free(&x->all);
    rig_down(&x->t);
}

static int many_set_up(void **state)
{
    *state = malloc(sizeof(struct many));
    many_up(*state);
    return 0;
}

static int many_tear_down(void **state)
{
    many_down(*state);
    free(*state);
    return 0;
}
#define MANY_TEST(name) TEST_IN(name, struct many *x, many_set_up, many_tear_down)

static int many_run(struct many *x, bool on)
{
    x->t.rm.disables = x->t.rm.max_disabled = 0;
    int r = x->t.d->ops->set_running(x->t.d, x->v, x->all.n, on, &x->t.err);
    assert_int_equal(x->t.rm.nopen, 1);
    return r;
}

/* As ops.h asks after an error: each process alone, resumed before it is suspended. Returns how
 * many took it. */
static unsigned each_run(struct many *x, bool on)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MANY; i++) {
        const struct device_group *const *v = x->v + (size_t)i * 4;
        int r = on ? 0 : x->t.d->ops->set_running(x->t.d, v, 4, true, NULL);
        n += r == 0 && x->t.d->ops->set_running(x->t.d, v, 4, on, NULL) == 0;
    }
    return n;
}

/* Channels that are disabled, none of them twice. */
static unsigned disabled_once(struct rig *t)
{
    for (size_t i = 0; i < t->rm.nclients; i++) {
        for (size_t k = 0; k < t->rm.clients[i].nobjects; k++)
            assert_in_range(t->rm.clients[i].objects[k].disabled, 0, 1);
    }
    return disabled(t);
}

/* 200 channels of ten processes: four controls each way. */
MANY_TEST(many_processes)
{
    assert_int_equal(many_run(x, false), 0);
    assert_int_equal(disabled_once(&x->t), MANY * 20);
    assert_int_equal(x->t.rm.disables, 4);
    assert_int_equal(x->t.rm.max_disabled, 64);
    assert_int_equal(many_run(x, true), 0);
    assert_int_equal(disabled(&x->t), 0);
    assert_int_equal(x->t.rm.disables, 4);
}

/* An RM that takes no channels of other clients is asked once: from then on each process has lists
 * of its own. */
MANY_TEST(mixed_lists_refused)
{
    x->t.rm.own_lists = true;
    /* The first one's channels were taken. */
    assert_int_equal(x->t.d->ops->set_running(x->t.d, x->v, 8, false, NULL), -EIO);
    assert_int_equal(disabled_once(&x->t), 20);
    assert_int_equal(each_run(x, false), MANY);
    assert_int_equal(disabled_once(&x->t), MANY * 20);
    for (int on = 1; on >= 0; on--) {
        assert_int_equal(many_run(x, on), 0);
        assert_int_equal(disabled_once(&x->t), on ? 0 : MANY * 20);
        assert_int_equal(x->t.rm.disables, MANY);
    }
}

/* A channel of one process is freed: RM refuses the list in its middle. Each process alone has the
 * others suspended once; the next call is one for all again. */
TEST(many_and_a_channel_gone)
{
    for (size_t i = 0; i < (size_t)MANY * 4; i += 7) {
        struct many x;
        many_up(&x);
        struct device_group *g = &x.all.v[i];
        fake_object_at(&x.t.rm, g->handles[0], g->channels[g->nchannels - 1])->handle += 0x12340000;
        assert_int_equal(many_run(&x, false), -ENOENT);
        assert_int_equal(each_run(&x, false), MANY);
        assert_int_equal(disabled_once(&x.t), MANY * 20 - 1);
        assert_int_equal(many_run(&x, true), -ENOENT);
        assert_int_equal(each_run(&x, true), MANY);
        assert_int_equal(disabled(&x.t), 0);
        g->nchannels--; /* as the next scan sees it */
        assert_int_equal(many_run(&x, false), 0);
        assert_int_equal(disabled_once(&x.t), MANY * 20 - 1);
        assert_int_equal(x.t.rm.disables, 4);
        many_down(&x);
    }
}

/* Those that have ended, whichever, fail no other; it is an error that all have. */
MANY_TEST(many_and_some_gone)
{
    fake_exit(&x->t.rm, x->p[0]);
    fake_exit(&x->t.rm, x->p[4]);
    assert_int_equal(many_run(x, false), 0);
    assert_int_equal(disabled_once(&x->t), (MANY - 2) * 20);
    fake_exit(&x->t.rm, x->p[9]);
    assert_int_equal(many_run(x, true), 0);
    assert_int_equal(disabled(&x->t), 0);
    for (unsigned i = 0; i < MANY; i++) {
        if (x->p[i]->alive)
            fake_exit(&x->t.rm, x->p[i]);
    }
    assert_int_equal(many_run(x, false), -ESRCH);
}

/* One ends at any moment of the call, or the right to one is lost: what has happened to the others
 * can be mended. */
TEST(one_ends_in_mid_call)
{
    for (unsigned who = 0; who < MANY; who += 3) {
        for (int when = 1; when < 2 * MANY; when++) {
            struct many x;
            many_up(&x);
            x.t.rm.die_after = when;
            x.t.rm.die_who = who;
            int r = many_run(&x, false);
            x.t.rm.die_after = 0;
            assert_int_not_equal(r, -EPERM);
            if (r < 0)
                assert_int_equal(each_run(&x, false), x.p[who]->alive ? MANY : MANY - 1);
            assert_int_equal(disabled_once(&x.t), (x.p[who]->alive ? MANY : MANY - 1) * 20);
            many_down(&x);
        }
    }
}

MANY_TEST(no_right_to_one)
{
    x->p[3]->forbidden = true;
    assert_int_equal(many_run(x, false), -EIO);
    assert_int_equal(each_run(x, false), MANY - 1);
    assert_int_equal(disabled_once(&x->t), (MANY - 1) * 20);
    assert_int_equal(each_run(x, true), MANY - 1);
    for (unsigned i = 0; i < MANY; i++)
        x->p[i]->forbidden = true;
    assert_int_equal(many_run(x, false), -EPERM);
    assert_int_equal(disabled(&x->t), 0);
}

/* The number of a client that was closed is another program's now, with channels of the same
 * numbers: that program goes on. */
MANY_TEST(client_is_another_program_s)
{
    const uint32_t number = x->all.v[8].handles[0];
    fake_close(&x->t.rm, x->p[2], x->p[2]->fds[0].number);
    struct fake_process *other = fake_process(&x->t.rm);
    x->t.rm.counter = number - RM_CLIENT_BASE;
    assert_int_equal(fake_client(&x->t.rm, other), number);
    fake_context(&x->t.rm, other, number, fake_device(&x->t.rm, number, 0));
    assert_non_null(fake_object_at(&x->t.rm, number, x->all.v[8].channels[0]));
    assert_int_equal(many_run(x, false), 0);
    assert_int_equal(disabled_once(&x->t), (MANY - 1) * 20);
    assert_int_equal(fake_object_at(&x->t.rm, number, x->all.v[8].channels[0])->disabled, 0);
}
