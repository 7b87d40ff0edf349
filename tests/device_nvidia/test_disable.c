/* Suspending and resuming, which RM does by lists of channels. */
#include "rig.h"

static void test_more_than_64_channels(void **state)
{
    struct rig t;
    rig_up(&t, 1);
    struct fake_process *p = fake_process(&t.rm);
    uint32_t c = fake_client(&t.rm, p), d = fake_device(&t.rm, c, 0);
    for (int i = 0; i < 7; i++)
        fake_context(&t.rm, p, c, d);
    assert_int_equal(scan(&t, p), 28);
    assert_int_equal(disable(&t, true), 0);
    assert_int_equal(disabled(&t), 140);
    assert_int_equal(t.rm.disables, 3);
    assert_int_equal(t.rm.max_disabled, 64);
    assert_int_equal(disable(&t, false), 0);
    assert_int_equal(disabled(&t), 0);
    rig_down(&t);
}

/* A channel is freed: the others are suspended, once, and resumed all the same, though RM had taken
 * a part of the list; and the list counts as gone when all are. */
static void test_channel_gone(void **state)
{
    (void)state;
    struct rig t;
    rig_up(&t, 1);
    struct fake_process *p = fake_process(&t.rm);
    uint32_t client = fake_client(&t.rm, p);
    fake_context(&t.rm, p, client, fake_device(&t.rm, client, 0));
    assert_int_equal(scan(&t, p), 4);
    assert_int_equal(disable(&t, true), 0);
    assert_int_equal(disabled(&t), 20);
    assert_int_equal(disable(&t, false), 0);
    const struct device_group *g = &t.l.v[0];
    for (uint32_t i = 0; i < g->nchannels; i++) {
        struct fake_object *o = fake_object_at(&t.rm, client, g->channels[g->nchannels - 1 - i]);
        o->handle += 0x12340000;
        assert_int_equal(disable(&t, true), 0);
        assert_int_equal(disabled(&t), 19 - i);
        t.l.v[0].nchannels -= i + 1; /* as the next scan sees it */
        assert_int_equal(disable(&t, false), 0);
        t.l.v[0].nchannels += i + 1;
        assert_int_equal(disabled(&t), 0);
        assert_int_equal(t.d->ops->set_running(t.d, &g, 1, false, &t.err),
                         i + 1 < g->nchannels ? 0 : -ENOENT);
        assert_int_equal(disabled(&t), g->nchannels - i - 1);
        assert_int_equal(t.d->ops->set_running(t.d, &g, 1, true, &t.err),
                         i + 1 < g->nchannels ? 0 : -ENOENT);
        assert_int_equal(disabled(&t), 0);
    }
    rig_down(&t);
}

/* -EPERM says that nothing was changed, and whoever hears it forgets the suspension. So it is the
 * answer only if the first list was refused; after one that was taken it is another. */
static void test_right_is_lost_between_two_lists(void **state)
{
    (void)state;
    struct rig t;
    rig_up(&t, 1);
    struct fake_process *p = fake_process(&t.rm);
    uint32_t c = fake_client(&t.rm, p), d = fake_device(&t.rm, c, 0);
    for (int i = 0; i < 7; i++)
        fake_context(&t.rm, p, c, d);
    assert_int_equal(scan(&t, p), 28);
    t.rm.disables_max = 1;
    assert_int_equal(disable(&t, true), -EIO);
    assert_int_equal(disabled(&t), 64);
    assert_non_null(strstr(t.err.text, "DISABLE_CHANNELS"));
    t.rm.disables_max = 0;
    assert_int_equal(disable(&t, false), 0);
    assert_int_equal(disabled(&t), 0);

    /* The same over two clients, each of which has lists of its own. */
    uint32_t other = fake_client(&t.rm, p);
    fake_context(&t.rm, p, other, fake_device(&t.rm, other, 0));
    assert_int_equal(scan(&t, p), 32);
    t.rm.disables_max = 3;
    assert_int_equal(disable(&t, true), -EIO);
    assert_int_equal(disabled(&t), 140);
    t.rm.disables_max = 0;
    assert_int_equal(disable(&t, false), 0);

    p->forbidden = true;
    assert_int_equal(disable(&t, true), -EPERM);
    assert_int_equal(disabled(&t), 0);
    rig_down(&t);
}

/* Nor is the answer -EPERM after a list that was taken in part, and one resumption is enough. */
static void test_right_is_lost_after_a_part(void **state)
{
    (void)state;
    for (unsigned calls = 1; calls < 30; calls++) {
        struct rig t;
        rig_up(&t, 1);
        struct fake_process *p = fake_process(&t.rm);
        uint32_t client = fake_client(&t.rm, p);
        fake_context(&t.rm, p, client, fake_device(&t.rm, client, 0));
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
        rig_down(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_64_channels),
        cmocka_unit_test(test_right_is_lost_between_two_lists),
        cmocka_unit_test(test_channel_gone),
        cmocka_unit_test(test_right_is_lost_after_a_part),
    };
    return cmocka_run_group_tests_name("disable", tests, NULL, NULL);
}
