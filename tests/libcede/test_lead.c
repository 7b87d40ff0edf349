/* When leads are launched, in virtual time; and what is launched, on a stand-in for libcuda. */
#include <time.h>

#include "fake_gpu.h"
#include "fixture.h"
#include "libcede/clock.h"
#include "libcede/lead.h"
#include "libcede/pure/lead_plan.h"

#define US    1000LL
#define MS    (1000 * US)
#define AHEAD ((int64_t)LEAD_AHEAD_NS / US)

TEST(test_plan)
{
    static const struct {
        int64_t errors_us[4]; /* learned, over and over */
        unsigned times;
        int64_t expected_us; /* from now; 0: now */
        bool lead;
        int64_t launch_us, wait_us;
    } cases[] = {
        /* nothing is known */
        {{0}, 0, 0, true, 0, 300},
        {{0}, 0, 200, true, 0, 500},
        {{0}, 0, AHEAD, true, 0, AHEAD + 300},
        {{0}, 0, 2000, true, 2000 - AHEAD, AHEAD + 300},
        /* as expected */
        {{0}, 2, 2000, true, 2000 - AHEAD, AHEAD + 100},
        {{0}, 2, 200, true, 0, 300},
        /* always 500 us later than said; 500 us sooner */
        {{500, 500, 500, 500}, 2, 200, true, 700 - AHEAD, AHEAD + 100},
        {{-500, -500, -500, -500}, 2, 2000, true, 1500 - AHEAD, AHEAD + 100},
        /* said nothing, and always comes after 1000 us */
        {{1000, 1000, 1000, 1000}, 2, 0, true, 1000 - AHEAD, AHEAD + 100},
        /* somewhere within 400 us */
        {{0, 100, 200, 400}, 8, 1000, true, 1000 - AHEAD, AHEAD + 500},
        /* within 4 ms: too irregular */
        {{0, 1000, 2000, 4000}, 8, 1000, false, 0, 0},
        /* it must have come already */
        {{-900, -900, -900, -900}, 2, 500, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct lead_timing t = {.n = 0};
        struct lead_plan p = {0, 0};
        uint64_t now = 5000 * (uint64_t)MS;
        for (unsigned k = 0; k < 4 * cases[i].times; k++)
            cede_lead_learn(&t, cases[i].errors_us[k % 4] * US);
        bool lead = cede_lead_plan(&t, now, now + (uint64_t)(cases[i].expected_us * US), &p);
        print_message("case %zu\n", i);
        assert_int_equal(lead, cases[i].lead);
        if (lead) {
            assert_int_equal((int64_t)(p.launch_ns - now), cases[i].launch_us * US);
            assert_int_equal(p.wait_ns, cases[i].wait_us * US);
        }
    }
}

/* One late request in 32 is not waited for; more are, for 1 ms at most, and are forgotten later. */
TEST(test_outliers)
{
    static const struct {
        unsigned outliers; /* of 64 */
        int64_t late_us, wait_us;
    } cases[] = {{2, 400, 100}, {3, 400, 500}, {3, 9000, 1000 - AHEAD}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct lead_timing t = {.n = 0};
        struct lead_plan p;
        for (unsigned k = 0; k < 64; k++)
            cede_lead_learn(&t, k < cases[i].outliers ? cases[i].late_us * US : 0);
        assert_true(cede_lead_plan(&t, MS, 2 * MS, &p));
        HAS(p, (launch_ns, (2000 - AHEAD) * US), (wait_ns, (AHEAD + cases[i].wait_us) * US));
        for (unsigned k = 0; k < 1000; k++)
            cede_lead_learn(&t, 0);
        assert_true(cede_lead_plan(&t, MS, 2 * MS, &p));
        assert_int_equal(p.wait_ns, (AHEAD + 100) * US);
    }
}

static struct fake_cuda *const gpu = &fake_cuda;
static char context[2];

static int begin_test(void **state)
{
    gpu->n = 0;
    gpu->fail_launch = gpu->busy = gpu->bad = 0;
    gpu->current = &context[0];
    return cede_lead_open(100 * US, (struct lead **)state);
}

/* All is given back, and no context is left on a thread that had none. */
static int end_test(void **state)
{
    cede_lead_close(*state, false);
    return gpu->streams || gpu->modules || gpu->pinned || gpu->pushed || gpu->bad;
}

static void wait_launches(unsigned n)
{
    for (unsigned i = 0; i < 10000 && __atomic_load_n(&gpu->n, __ATOMIC_ACQUIRE) < n; i++)
        nanosleep(&(struct timespec){0, MS}, NULL);
    assert_int_equal(gpu->n, n);
}

/* A lead and, on the same stream, its tail. */
TEST_IN(test_launch, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    uint32_t a = cede_lead_begin(l, now, now + 200 * US);
    assert_int_not_equal(a, 0);
    assert_int_equal(gpu->n, 2);
    const struct fake_launch *f = gpu->launch;
    assert_string_equal(f[0].kernel, "cede_lead");
    assert_string_equal(f[1].kernel, "cede_tail");
    assert_ptr_equal(f[0].context, context);
    assert_ptr_equal(f[0].stream, f[1].stream);
    assert_int_equal(gpu->last_priority, -5); /* the highest */
    HAS(f[0], (number, a), (limit_ns, 500 * US), (keep_ns, 100 * US));
    assert_true((int32_t)(f[0].words[0] - a) < 0 && (int32_t)(f[0].words[1] - a) < 0);

    assert_in_range(cede_lead_queued(l, a, now + 200 * US, now + 200 * US), now,
                    cede_clock_now_ns()); /* when it was launched */
    assert_int_equal(f[0].words[1], a);
    assert_true((int32_t)(f[0].words[0] - a) < 0);
    cede_lead_end(l, a, true);
    assert_int_equal(f[0].words[0], a);
}

/* Of overlapping requests the first has the lead, which ends when none waits for work any more. */
TEST_IN(test_overlap, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    uint32_t a = cede_lead_begin(l, now, now), b = cede_lead_begin(l, now, now);
    assert_int_not_equal(a, 0);
    assert_int_equal(b, 0);
    cede_lead_queued(l, a, now, now);
    cede_lead_end(l, a, true);
    assert_int_not_equal(gpu->launch[0].words[0], a); /* b's work is to come */
    OK(cede_lead_queued(l, b, now, now));             /* it had none */
    OK(cede_lead_begin(l, now, now));                 /* b runs: the GPU is here */
    cede_lead_end(l, 0, false);
    cede_lead_end(l, b, true);
    now += 10 * (uint64_t)MS; /* a's lead is long gone */
    assert_int_not_equal(cede_lead_begin(l, now, now), 0);
    assert_int_equal(gpu->n, 4);
}

/* From a thread that has another context current, or none. */
TEST_IN(test_context, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    gpu->current = &context[1];
    assert_int_not_equal(cede_lead_begin(l, now, now), 0);
    assert_ptr_equal(gpu->launch[0].context, &context[0]);
    assert_int_equal(gpu->pushed, 0);
}

/* Far ahead: the thread launches it in time, unless the request came sooner, or never will. */
TEST_IN(test_later, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    uint32_t a = cede_lead_begin(l, now, now + 20 * (uint64_t)MS);
    assert_int_not_equal(a, 0);
    wait_launches(2);
    assert_true(gpu->launch[0].at_ns >= now + 20 * (uint64_t)MS - LEAD_AHEAD_NS);
    assert_int_equal(gpu->launch[0].limit_ns, LEAD_AHEAD_NS + LEAD_UNKNOWN_NS);
    cede_lead_end(l, a, false);

    now = cede_clock_now_ns();
    a = cede_lead_begin(l, now, now + 1000 * (uint64_t)MS);
    cede_lead_queued(l, a, now, now);
    cede_lead_end(l, a, true);
    uint32_t b = cede_lead_begin(l, now, now + 1000 * (uint64_t)MS);
    cede_lead_end(l, b, false);
    uint32_t c = cede_lead_begin(l, now, now + 20 * (uint64_t)MS);
    wait_launches(4);
    assert_int_equal(gpu->launch[2].number, c);
    cede_lead_end(l, c, false);
}

/* In a suspended program a lead does not end: no other is launched until it has. */
TEST_IN(test_suspended, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    gpu->busy = 1;
    cede_lead_end(l, cede_lead_begin(l, now, now), false);
    for (unsigned i = 0; i < 1000; i++) {
        now += 10 * (uint64_t)MS;
        cede_lead_end(l, cede_lead_begin(l, now, now), false);
    }
    assert_int_equal(gpu->n, 2);
    gpu->busy = 0;
    gpu->launch[0].words[2] = gpu->launch[0].number; /* they ended */
    now += 10 * (uint64_t)MS;
    assert_int_not_equal(cede_lead_begin(l, now, now), 0);
    assert_int_equal(gpu->n, 4);
}

/* A program that lost its context is left alone from then on. */
TEST_IN(test_broken, struct lead *l, begin_test, end_test)
{
    uint64_t now = cede_clock_now_ns();
    gpu->fail_launch = 2;
    uint32_t a = cede_lead_begin(l, now, now);
    cede_lead_end(l, a, false);
    now += 10 * (uint64_t)MS;
    OK(cede_lead_begin(l, now, now));
    assert_int_equal(gpu->n, 1);
}

TEST(test_no_context)
{
    struct lead *l = NULL;
    gpu->current = NULL;
    assert_int_equal(cede_lead_open(0, &l), -ENOSYS);
    assert_null(l);
}
