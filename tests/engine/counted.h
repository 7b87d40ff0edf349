/* Programs that are clients of one MPS server on a GPU with counters: how fast each goes, and for
 * how long each is held. */
#ifndef CEDE_TESTS_ENGINE_COUNTED_H
#define CEDE_TESTS_ENGINE_COUNTED_H

#include "clients.h"
#include "plan/speeds.h"

#define EACH_MS 5

static int count;        /* of programs */
static unsigned held[3]; /* for how many ms each was while watch() looked last */

/* Programs as of jobs_of(), each of which uses most another part of the GPU, and their speeds
 * beside others; 0: there is none. */
HELPER void begin(struct fixture *f, const char *letters, double a, double b, double c)
{
    static const enum gpu_part parts[] = {PART_FP32, PART_TENSOR_FP16, PART_FP64};
    const double together[] = {a, b, c};
    f->d.has_counters = true;
    jobs_of(f, "priority", 2, letters);
    for (count = 0; count < 3 && together[count] > 0; count++) {
        struct mock_group *g = on(f, f->p[count]);
        g->uses[parts[count]] = 0.5;
        g->uses[PART_DRAM] += 0.1;
        g->together = together[count];
    }
}

HELPER void begin_three(struct fixture *f)
{
    begin(f, "B* B* L", 0.7, 0.4, 1);
}

HELPER void watch(struct fixture *f, unsigned ms)
{
    memset(held, 0, sizeof(held));
    for (unsigned t = 0; t < ms; t += EACH_MS) {
        ticks(f, EACH_MS);
        for (int i = 0; i < count; i++)
            held[i] += view(f, f->job[i]).signalled ? EACH_MS : 0;
    }
}

HELPER void until_held(struct fixture *f, uint32_t job)
{
    while (!view(f, job).signalled)
        ticks(f, EACH_MS);
}

HELPER void assert_told(struct fixture *f, uint32_t job, double speed)
{
    struct job_view v = view(f, job);
    assert_true(v.speed_told);
    assert_false(v.speed_profiling);
    assert_float_equal(v.speed, speed, 0.02);
    assert_true(v.speed_error < SPEED_ERROR_MAX);
}

HELPER void assert_all_told(struct fixture *f)
{
    for (int i = 0; i < count; i++)
        assert_told(f, f->job[i], on(f, f->p[i])->together);
}

HELPER void assert_nobody_held(struct fixture *f)
{
    for (int i = 0; i < count; i++)
        assert_true(reaches(f->p[i], false));
}

/* In order, with its programs: so that another scene can begin. */
HELPER void finish(struct fixture *f)
{
    stop(f, true);
    assert_nobody_held(f);
    for (int i = 0; i < count; i++)
        end(f, f->p[i]);
}

HELPER bool take_turns_within(struct fixture *f, unsigned ms)
{
    for (unsigned t = 0; t < ms && !view(f, f->job[0]).speed_turns; t += EACH_MS)
        ticks(f, EACH_MS);
    return view(f, f->job[0]).speed_turns;
}

#endif
