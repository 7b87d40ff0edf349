/* Who leaves a GPU's memory and who comes back: a table of situations, and that a sequence of
 * decisions comes to rest. */
#include "sched/swap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define L      CLASS_LATENCY
#define N      CLASS_NORMAL
#define B      CLASS_BATCH
#define NOBODY SLOT_NONE

enum { OUT = 1, FIXED = 2 };

struct row {
    const char *what;
    uint64_t free, margin;
    struct {
        enum job_class class;
        unsigned flags;
        uint64_t bytes, need, since;
    } jobs[5];
    uint32_t n, job;
    bool out;
};

static const struct row rows[] = {
    {"nobody needs anything", 10, 0, {{L, 0, 50, 0, 0}, {B, 0, 40, 0, 0}}, 2, NOBODY, false},
    {"there is room already", 10, 0, {{L, 0, 0, 10, 0}, {B, 0, 90, 0, 0}}, 2, NOBODY, false},
    {"the batch job makes room", 10, 0, {{L, 0, 0, 50, 0}, {B, 0, 90, 0, 0}}, 2, 1, true},
    {"batch before normal, though smaller",
     0,
     0,
     {{L, 0, 0, 20, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}},
     3,
     2,
     true},
    {"the largest first", 0, 0, {{L, 0, 0, 50, 0}, {B, 0, 30, 0, 0}, {B, 0, 60, 0, 0}}, 3, 2, true},
    {"normal too, where batch is not enough; then batch may stay",
     0,
     0,
     {{L, 0, 0, 60, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}},
     3,
     1,
     true},
    {"both are needed: batch first",
     0,
     0,
     {{L, 0, 0, 90, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}},
     3,
     2,
     true},
    {"no help even if all leave",
     0,
     0,
     {{L, 0, 0, 99, 0}, {N, 0, 60, 0, 0}, {B, 0, 30, 0, 0}},
     3,
     NOBODY,
     true},
    {"latency jobs never leave", 0, 0, {{L, 0, 0, 50, 0}, {L, 0, 90, 0, 0}}, 2, NOBODY, true},
    {"a refused job is left alone",
     0,
     0,
     {{L, 0, 0, 50, 0}, {B, FIXED, 60, 0, 0}, {B, 0, 55, 0, 0}},
     3,
     2,
     true},
    {"what batch jobs need pushes nobody out",
     0,
     0,
     {{B, 0, 0, 50, 0}, {B, 0, 90, 0, 0}},
     2,
     NOBODY,
     false},
    {"comes back into free room", 50, 5, {{L, 0, 50, 0, 0}, {B, OUT, 40, 0, 0}}, 2, 1, false},
    {"not into the margin", 50, 5, {{L, 0, 50, 0, 0}, {B, OUT, 46, 0, 0}}, 2, NOBODY, false},
    {"not into what a latency job still needs",
     50,
     0,
     {{L, 0, 10, 20, 0}, {B, OUT, 40, 0, 0}},
     2,
     NOBODY,
     false},
    {"not into what a batch job waits for",
     50,
     0,
     {{B, 0, 10, 20, 0}, {B, OUT, 40, 0, 0}},
     2,
     NOBODY,
     false},
    {"normal comes back before batch",
     50,
     0,
     {{B, OUT, 40, 0, 1}, {N, OUT, 40, 0, 2}},
     2,
     1,
     false},
    {"whoever is out longest comes first",
     50,
     0,
     {{B, OUT, 40, 0, 7}, {B, OUT, 45, 0, 3}},
     2,
     1,
     false},
    {"a smaller one does not wait for one that does not fit",
     50,
     0,
     {{B, OUT, 90, 0, 1}, {B, OUT, 20, 0, 2}},
     2,
     1,
     false},
    {"out because a person wants so", 50, 0, {{B, OUT | FIXED, 20, 0, 0}}, 1, NOBODY, false},
};

static uint32_t fill(const struct row *r, struct swap_job *jobs)
{
    for (uint32_t i = 0; i < r->n; i++)
        jobs[i] = (struct swap_job){.class = r->jobs[i].class,
                                    .out = r->jobs[i].flags & OUT,
                                    .fixed = r->jobs[i].flags & FIXED,
                                    .bytes = r->jobs[i].bytes,
                                    .need_bytes = r->jobs[i].need,
                                    .since_ns = r->jobs[i].since};
    return r->n;
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        struct swap_job jobs[5];
        struct swap_device d = {.free_bytes = r->free, .margin_bytes = r->margin};
        struct swap_move m = swap_decide(&d, jobs, fill(r, jobs), 1000);
        if (m.job != r->job || (m.job != NOBODY && m.out != r->out))
            fail_msg("%s: job %d %s", r->what, (int)m.job, m.out ? "out" : "in");
    }
}

static void test_quiet_before_coming_back(void **state)
{
    (void)state;
    struct swap_job job = {.class = B, .out = true, .bytes = 10};
    struct swap_device d = {.free_bytes = 20, .need_ns = 1000, .quiet_ns = 500};
    struct swap_move m = swap_decide(&d, &job, 1, 1499);
    assert_int_equal(m.job, NOBODY);
    assert_int_equal(m.wake_ns, 1500);
    m = swap_decide(&d, &job, 1, 1500);
    assert_int_equal(m.job, 0);
    assert_false(m.out);
}

static void test_room_goes_by_class_and_order(void **state)
{
    (void)state;
    struct swap_job jobs[] = {{.class = B, .need_bytes = 30},
                              {.class = L, .need_bytes = 30},
                              {.class = L, .need_bytes = 30}};
    struct swap_device d = {.free_bytes = 60};
    assert_false(swap_room(&d, jobs, 3, 0));
    assert_true(swap_room(&d, jobs, 3, 1));
    assert_true(swap_room(&d, jobs, 3, 2));
    d.free_bytes = 59;
    assert_false(swap_room(&d, jobs, 3, 2));
    jobs[1].need_bytes = 0;
    assert_false(swap_room(&d, jobs, 3, 0));
    assert_true(swap_room(&d, jobs, 3, 2));
}

/* Whatever the jobs, moves end: nobody is sent out and back for the same need, and what was moved
 * out for a latency job made it possible. */
static void test_comes_to_rest(void **state)
{
    (void)state;
    unsigned seed = 20, helped = 0;
    for (int round = 0; round < 20000; round++) {
        struct swap_job jobs[6];
        struct swap_device d = {.free_bytes = (uint64_t)rand_r(&seed) % 50, .margin_bytes = 2};
        for (uint32_t i = 0; i < 6; i++) {
            jobs[i] = (struct swap_job){.class = (enum job_class)((unsigned)rand_r(&seed) % 3),
                                        .fixed = rand_r(&seed) % 4 == 0,
                                        .bytes = (uint64_t)rand_r(&seed) % 40,
                                        .since_ns = i};
            jobs[i].out = jobs[i].class != L && rand_r(&seed) % 2;
            if (jobs[i].class == L)
                jobs[i].need_bytes = (uint64_t)rand_r(&seed) % 60;
        }
        bool left = false;
        unsigned moves = 0;
        for (;; moves++) {
            struct swap_move m = swap_decide(&d, jobs, 6, 1000);
            if (m.job == NOBODY)
                break;
            assert_true(moves < 6);
            assert_true(m.job < 6 && !jobs[m.job].fixed && jobs[m.job].class != L);
            assert_true(jobs[m.job].out != m.out);
            left |= m.out;
            assert_true(m.out || jobs[m.job].bytes <= d.free_bytes);
            d.free_bytes += m.out ? jobs[m.job].bytes : -jobs[m.job].bytes;
            jobs[m.job].out = m.out;
            if (m.out)
                jobs[m.job].fixed = true; /* as the manager does until the need is met */
        }
        uint64_t need = 0;
        for (uint32_t i = 0; i < 6; i++)
            need += jobs[i].need_bytes;
        if (left) {
            assert_true(need <= d.free_bytes);
            helped++;
        }
    }
    assert_true(helped > 1000); /* or the test shows nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_quiet_before_coming_back),
        cmocka_unit_test(test_room_goes_by_class_and_order),
        cmocka_unit_test(test_comes_to_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
