/* Several owners of one group, as the clients of an MPS server are: the engine's rules, one test
 * each, in virtual time. */
#include "device/soft/engine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define US 1000ULL
#define MS 1000000ULL

#define BASE    (100 * US)
#define SAVE    (20 * US)
#define RESTORE (10 * US)
#define SUSPEND (600 * US)
#define RESUME  (300 * US)

/* Round numbers, no host overhead: every time below can be worked out by hand. */
static const struct softgpu_params plain = {
    .switch_ns = BASE,
    .save_ns = SAVE,
    .restore_ns = RESTORE,
    .timeslice_us = 1000,
    .timeslice_call_idle_ns = 100 * US,
    .timeslice_call_busy_ns = 300 * US,
    .suspend_call_ns = SUSPEND,
    .resume_call_ns = RESUME,
};

/* Numbers: two owners of one group, and one with a group of its own. */
enum { A, B, OTHER, NUMBERS };

static struct softgpu *pool_and_other(void)
{
    struct softgpu *e = NULL;
    uint32_t n;
    assert_int_equal(softgpu_new(&plain, NUMBERS, 4096, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(n, A);
    assert_int_equal(softgpu_group_join(e, A, 0, &n), 0);
    assert_int_equal(n, B);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(n, OTHER);
    return e;
}

static void submit(struct softgpu *e, uint32_t owner, uint32_t stream, uint64_t duration_ns,
                   float fraction, uint64_t at_ns)
{
    struct softgpu_kernel k = {stream, duration_ns, fraction, 0, 0, 0, 0};
    assert_int_equal(softgpu_submit(e, owner, &k, at_ns), 0);
}

static uint64_t control(struct softgpu *e, uint32_t owner, enum softgpu_call call, uint32_t us,
                        uint64_t at_ns)
{
    uint64_t done;
    assert_int_equal(softgpu_control(e, owner, call, us, at_ns, &done), 0);
    return done;
}

static void expect(struct softgpu *e, uint32_t owner, uint64_t start_ns, uint64_t end_ns)
{
    struct softgpu_completion c;
    while (!softgpu_pop_completion(e, &c)) {
        uint64_t t = softgpu_next_event_ns(e);
        assert_true(t != SOFTGPU_NEVER);
        softgpu_advance(e, t);
    }
    assert_int_equal(c.group, owner);
    assert_int_equal(c.start_ns, start_ns);
    assert_int_equal(c.end_ns, end_ns);
}

static void expect_nothing_until(struct softgpu *e, uint64_t t)
{
    struct softgpu_completion c;
    softgpu_advance(e, t);
    assert_false(softgpu_pop_completion(e, &c));
}

static struct softgpu_group_info info_of(const struct softgpu *e, uint32_t owner)
{
    struct softgpu_group_info i;
    assert_int_equal(softgpu_group_info(e, owner, &i), 0);
    return i;
}

static void test_in_space(void **state)
{
    struct softgpu *e = pool_and_other();
    /* The same stream number of both: they do not wait for each other. */
    submit(e, A, 0, 400 * US, 0.5f, 0);
    submit(e, B, 0, 300 * US, 0.5f, 0);
    submit(e, B, 0, 300 * US, 0.75f, 0); /* fits when A's has ended */
    expect(e, B, 0, 300 * US);
    expect(e, A, 0, 400 * US);
    expect(e, B, 400 * US, 700 * US);
    assert_int_equal(info_of(e, A).busy_ns, 400 * US);
    assert_int_equal(info_of(e, B).busy_ns, 600 * US);

    /* A third one with a group of its own takes turns with both. */
    submit(e, A, 0, 3 * MS, 0.5f, 10 * MS);
    submit(e, B, 0, 3 * MS, 0.5f, 10 * MS);
    submit(e, OTHER, 0, 100 * US, 1, 10 * MS);
    uint64_t in = 11 * MS + BASE + SAVE, back = in + 100 * US + BASE + RESTORE;
    expect(e, OTHER, in, in + 100 * US);
    expect(e, A, 10 * MS, back + 2 * MS);
    expect(e, B, 10 * MS, back + 2 * MS);
    softgpu_free(e);
}

/* GPU time of each while it lasts, and how often it got the GPU. */
static void test_usage(void **state)
{
    struct softgpu *e = pool_and_other();
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, A, 1, 1 * MS, 0.25f, 1 * MS); /* beside the other: no time of its own */
    submit(e, B, 0, 1 * MS, 0.25f, 2 * MS);
    softgpu_advance(e, 2500 * US);
    assert_int_equal(info_of(e, A).busy_ns, 2500 * US);
    assert_int_equal(info_of(e, B).busy_ns, 500 * US);
    submit(e, B, 0, 1 * MS, 0.25f, 5 * MS);
    softgpu_advance(e, 7 * MS);
    assert_int_equal(info_of(e, B).busy_ns, 2 * MS);
    assert_int_equal(info_of(e, A).bursts, 1);
    assert_int_equal(info_of(e, B).bursts, 2); /* two requests */

    submit(e, OTHER, 0, 100 * US, 1, 7 * MS);
    softgpu_advance(e, 100 * MS);
    assert_int_equal(info_of(e, A).busy_ns, 10 * MS);
    assert_int_equal(info_of(e, A).bursts, 2);
    assert_int_equal(info_of(e, B).bursts, 2); /* it had nothing to do then */
    assert_int_equal(info_of(e, OTHER).bursts, 1);
    softgpu_free(e);
}

static void test_suspend_with_work(void **state)
{
    struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.5f, 0);
    uint64_t off = control(e, A, SOFTGPU_SUSPEND, 0, 0);
    submit(e, OTHER, 0, 100 * US, 1, 5 * MS);
    expect(e, OTHER, 5 * MS, 5 * MS + 100 * US);
    expect_nothing_until(e, 100 * MS);
    assert_int_equal(info_of(e, B).busy_ns, off);
    assert_true(info_of(e, A).suspended);
    assert_false(info_of(e, B).suspended);

    /* Nor does it help to resume the one that is not suspended. */
    control(e, B, SOFTGPU_RESUME, 0, 100 * MS);
    expect_nothing_until(e, 200 * MS);
    uint64_t end = control(e, A, SOFTGPU_RESUME, 0, 200 * MS) + BASE + RESTORE + 2 * MS - off;
    expect(e, A, 0, end);
    expect(e, B, 0, end);
    softgpu_free(e);
}

static void test_suspend_both(void **state)
{
    struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.5f, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 0);
    control(e, B, SOFTGPU_SUSPEND, 0, 0);
    control(e, A, SOFTGPU_RESUME, 0, 10 * MS);
    expect_nothing_until(e, 100 * MS);
    uint64_t end = control(e, B, SOFTGPU_RESUME, 0, 100 * MS) + BASE + RESTORE + 2 * MS - SUSPEND;
    expect(e, A, 0, end);
    expect(e, B, 0, end);
    softgpu_free(e);
}

static void test_suspend_without_work(void **state)
{
    struct softgpu *e = pool_and_other();
    control(e, B, SOFTGPU_SUSPEND, 0, 0);
    submit(e, A, 0, 2 * MS, 0.5f, 1 * MS);
    expect(e, A, 1 * MS, 3 * MS);
    submit(e, A, 0, 2 * MS, 0.5f, 4 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 5 * MS); /* from here on nobody runs */
    expect_nothing_until(e, 100 * MS);
    uint64_t on = control(e, B, SOFTGPU_RESUME, 0, 100 * MS) + BASE + RESTORE / 2;
    expect(e, A, 4 * MS, on + 1 * MS);
    expect(e, B, on, on + 1 * MS);
    softgpu_free(e);
}

static void test_one_timeslice(void **state)
{
    struct softgpu *e = pool_and_other();
    uint32_t n;
    control(e, B, SOFTGPU_TIMESLICE, 40000, 0);
    softgpu_advance(e, 1 * MS);
    assert_int_equal(info_of(e, A).timeslice_us, 40000);
    assert_int_equal(info_of(e, B).timeslice_us, 40000);
    assert_int_equal(info_of(e, OTHER).timeslice_us, 1000);
    assert_int_equal(softgpu_reserve(e, 4, 1), 0);
    assert_int_equal(softgpu_group_join(e, B, 1 * MS, &n), 0);
    assert_int_equal(info_of(e, n).timeslice_us, 40000);

    submit(e, A, 0, 50 * MS, 1, 2 * MS);
    submit(e, OTHER, 0, 100 * US, 1, 2 * MS);
    expect(e, OTHER, 42 * MS + BASE + SAVE, 42 * MS + BASE + SAVE + 100 * US);
    softgpu_free(e);
}

/* One owner ends: what is its own goes, in mid-kernel, and what is the others' runs on. */
static void test_remove(void **state)
{
    struct softgpu *e = pool_and_other();
    struct softgpu_completion c;
    uint32_t n;
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, B, 0, 3 * MS, 0.5f, 0);
    submit(e, B, 1, 1 * MS, 1, 0); /* behind A's kernel, for want of room */
    submit(e, A, 2, 5 * MS, 1, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 2 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 2 * MS + 100 * US), 0);
    assert_int_equal(softgpu_group_info(e, A, &(struct softgpu_group_info){0}), -EINVAL);
    assert_int_equal(softgpu_group_join(e, A, 0, &n), -EINVAL);
    expect(e, B, 0, 3 * MS);
    expect(e, B, 3 * MS, 4 * MS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);

    /* The one that made the group is gone, its number is another's, and the group goes on. */
    assert_int_equal(softgpu_group_join(e, B, 5 * MS, &n), 0);
    assert_int_equal(n, A);
    submit(e, A, 0, 1 * MS, 0.5f, 5 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 5 * MS);
    expect(e, A, 5 * MS, 6 * MS);
    expect(e, B, 5 * MS, 6 * MS);

    /* Completions that nobody took go with their owner. */
    submit(e, A, 0, 1 * MS, 0.5f, 7 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 7 * MS);
    softgpu_advance(e, 9 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 9 * MS), 0);
    expect(e, B, 7 * MS, 8 * MS);
    assert_int_equal(softgpu_group_remove(e, B, 9 * MS), 0);
    assert_false(softgpu_pop_completion(e, &c));

    /* With the last one the group is gone: a new one has nothing of it. */
    assert_int_equal(softgpu_group_add(e, 9 * MS, &n), 0);
    assert_int_equal(info_of(e, n).busy_ns, 0);
    assert_int_equal(info_of(e, n).timeslice_us, 1000);
    softgpu_free(e);
}

/* The one that keeps the group from running is gone. */
static void test_remove_suspended(void **state)
{
    struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.25f, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 0);
    expect_nothing_until(e, 50 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 50 * MS), 0);
    /* Restored is what is left. */
    expect(e, B, 0, 50 * MS + BASE + RESTORE / 4 + 2 * MS - SUSPEND);

    /* What was preempted is all gone: there is nothing to restore. */
    uint32_t n;
    assert_int_equal(softgpu_group_join(e, B, 60 * MS, &n), 0);
    submit(e, n, 0, 2 * MS, 0.5f, 60 * MS);
    control(e, n, SOFTGPU_SUSPEND, 0, 60 * MS);
    expect_nothing_until(e, 70 * MS);
    assert_int_equal(softgpu_group_remove(e, n, 70 * MS), 0);
    submit(e, B, 0, 1 * MS, 1, 70 * MS);
    expect(e, B, 70 * MS, 71 * MS);
    softgpu_free(e);
}

/* More streams than the group has: some are shared, and each owner's keep their order. */
static void test_many_streams(void **state)
{
    struct softgpu *e = pool_and_other();
    uint64_t cookies[2][SOFTGPU_STREAMS] = {{0}};
    struct softgpu_completion c;
    unsigned completed = 0;
    for (unsigned i = 0; i < 3 * 2 * SOFTGPU_STREAMS; i++) {
        struct softgpu_kernel k = {i / 2 % SOFTGPU_STREAMS, 100 * US, 0.01f, 0, 0, 0, 0};
        k.cookie = i / (2 * SOFTGPU_STREAMS);
        assert_int_equal(softgpu_submit(e, i % 2 ? B : A, &k, 0), 0);
    }
    softgpu_advance(e, 600 * US); /* two owners a stream, three kernels each */
    for (; softgpu_pop_completion(e, &c); completed++)
        assert_int_equal(c.cookie, cookies[c.group][c.stream]++);
    assert_int_equal(completed, 3 * 2 * SOFTGPU_STREAMS);

    /* A stream that is shared loses one owner's kernels alone. */
    for (unsigned i = 0; i < SOFTGPU_STREAMS; i++) {
        submit(e, A, i, 1 * MS, 0.01f, 1 * MS);
        submit(e, B, i, 1 * MS, 0.01f, 1 * MS);
    }
    assert_int_equal(softgpu_group_remove(e, A, 1500 * US), 0);
    softgpu_advance(e, 3 * MS);
    for (completed = 0; softgpu_pop_completion(e, &c); completed++)
        assert_int_equal(c.group, B);
    assert_int_equal(completed, SOFTGPU_STREAMS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);
    softgpu_free(e);
}

/* ---- random operation against what must hold always ---- */

#define OWNERS 40

struct account {
    bool present;
    uint64_t submitted, completed, work_ns;
    uint64_t next_cookie[4], seen_cookie[4];
};

static uint64_t rnd(uint64_t *s)
{
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return *s >> 33;
}

static void collect(struct softgpu *e, struct account *acc)
{
    struct softgpu_completion c;
    while (softgpu_pop_completion(e, &c)) {
        struct account *a = &acc[c.group];
        assert_true(a->present);
        assert_int_equal(c.cookie, a->seen_cookie[c.stream]++);
        assert_true(c.submit_ns <= c.start_ns && c.start_ns < c.end_ns);
        a->completed++;
    }
}

static void random_step(struct softgpu *e, struct account *acc, uint64_t *s, uint64_t now)
{
    uint32_t g = (uint32_t)(rnd(s) % OWNERS), n, stream = (uint32_t)(rnd(s) % 4);
    struct account *a = &acc[g];
    uint64_t done;
    switch (rnd(s) % 16) {
    case 0:
    case 1:
        if ((rnd(s) % 4 == 0 ? softgpu_group_add(e, now, &n) : softgpu_group_join(e, g, now, &n)) ==
            0) {
            assert_false(acc[n].present);
            acc[n] = (struct account){.present = true};
        }
        return;
    case 2:
        softgpu_advance(e, now);
        collect(e, acc);
        if (rnd(s) % 4 == 0)
            a->present = softgpu_group_remove(e, g, now) == -EINVAL && a->present;
        return;
    case 3:
        softgpu_control(e, g, SOFTGPU_SUSPEND, 0, now, &done);
        return;
    case 4:
    case 5:
        softgpu_control(e, g, SOFTGPU_RESUME, 0, now, &done);
        return;
    case 6:
        softgpu_control(e, g, SOFTGPU_TIMESLICE, (uint32_t)(1 + rnd(s) % 3000), now, &done);
        return;
    default:;
    }
    struct softgpu_kernel k = {stream,
                               1 + rnd(s) % (400 * US),
                               (float)(1 + rnd(s) % 100) / 100,
                               a->next_cookie[stream],
                               0,
                               0,
                               0};
    if (softgpu_submit(e, g, &k, now) == 0) {
        a->next_cookie[stream]++;
        a->submitted++;
        a->work_ns += k.duration_ns;
    }
}

static void test_random(void **state)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        static struct account acc[OWNERS];
        struct softgpu *e;
        struct softgpu_params p;
        uint64_t s = seed, now = 0, done, completed = 0;
        softgpu_params_h200(&p);
        p.seed = seed;
        assert_int_equal(softgpu_new(&p, OWNERS, 20000, &e), 0);
        for (uint32_t g = 0; g < OWNERS; g++)
            acc[g].present = false;
        for (int i = 0; i < 5000; i++) {
            now += rnd(&s) % (300 * US);
            random_step(e, acc, &s, now);
            collect(e, acc);
        }
        struct softgpu_group_info info;
        for (uint32_t g = 0; g < OWNERS; g++) {
            for (; softgpu_group_info(e, g, &info) == 0 && info.suspended; now = done) {
                softgpu_control(e, g, SOFTGPU_RESUME, 0, now, &done);
                softgpu_advance(e, done);
            }
        }
        while (softgpu_next_event_ns(e) != SOFTGPU_NEVER) {
            softgpu_advance(e, softgpu_next_event_ns(e));
            collect(e, acc);
        }
        for (uint32_t g = 0; g < OWNERS; g++) {
            if (!acc[g].present)
                continue;
            assert_int_equal(acc[g].submitted, acc[g].completed);
            assert_int_equal(info_of(e, g).kernels, 0);
            assert_true(info_of(e, g).busy_ns <= acc[g].work_ns);
            completed += acc[g].completed;
        }
        assert_true(completed > 0);
        softgpu_free(e);
    }
}

/* Of what waits the higher priority's begins first; what runs is not interrupted. */
static void test_priority(void **state)
{
    struct softgpu *e = pool_and_other();
    assert_int_equal(softgpu_client(e, B, 0, true), 0);
    for (uint32_t s = 0; s < 3; s++)
        submit(e, B, s, 300 * US, 1, 0);
    submit(e, A, 0, 50 * US, 1, 100 * US);
    expect(e, B, 0, 300 * US);
    expect(e, A, 300 * US, 350 * US);
    expect(e, B, 350 * US, 650 * US);
    expect(e, B, 650 * US, 950 * US);
    softgpu_free(e);
}

/* Half of the SMs: a kernel takes twice as long, one at a time, and leaves room for others. */
static void test_limit(void **state)
{
    struct softgpu *e = pool_and_other();
    assert_int_equal(softgpu_client(e, B, 101, false), -EINVAL);
    assert_int_equal(softgpu_client(e, NUMBERS, 50, false), -EINVAL);
    assert_int_equal(softgpu_client(e, B, 50, false), 0);
    submit(e, B, 0, 300 * US, 1, 0);
    submit(e, B, 1, 100 * US, 0.5f, 0);
    submit(e, A, 0, 50 * US, 0.5f, 100 * US);
    submit(e, A, 0, 50 * US, 1, 100 * US);
    expect(e, A, 100 * US, 150 * US);
    expect(e, B, 0, 600 * US);
    expect(e, B, 600 * US, 700 * US); /* the older */
    expect(e, A, 700 * US, 750 * US);
    softgpu_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_space),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_suspend_with_work),
        cmocka_unit_test(test_suspend_both),
        cmocka_unit_test(test_suspend_without_work),
        cmocka_unit_test(test_one_timeslice),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_remove_suspended),
        cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
