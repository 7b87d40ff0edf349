/* Why a job may run or not (sched_explain()): scenes and what is said of them. That it is never
 * against what was decided, tests/sched/mock_gpu.c looks at in all scenarios. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#define L    CLASS_LATENCY
#define N    CLASS_NORMAL
#define B    CLASS_BATCH
#define JOBS 4
#define MS   1000000ULL

#define JOB(c, on)                                                                                 \
    {                                                                                              \
        .class = (c), .devices = (on)                                                              \
    }
#define IDLE(c, on)                                                                                \
    {                                                                                              \
        .class = (c), .devices = (on), .idle = true                                                \
    }
#define PAUSED(c, on)                                                                              \
    {                                                                                              \
        .class = (c), .devices = (on), .paused = true                                              \
    }
#define AT_MOST(part, c, on)                                                                       \
    {                                                                                              \
        .class = (c), .devices = (on), .max = (part)                                               \
    }

static const struct scene {
    const char *name, *policy;
    struct {
        enum job_class class;
        unsigned devices; /* bit map; 0: there is no such job */
        bool idle, paused;
        double max;
    } jobs[JOBS];
    bool gated;
    uint64_t at_ms;        /* decided at 0, and again then */
    uint32_t job, device;  /* of whom it is asked; */
    enum sched_why why;    /* and what is said */
    uint32_t other, ahead; /* SLOT_NONE: nobody */
    uint64_t until_ms;     /* 0: not known */
    bool outranked;        /* it waits, or would, for a job of a higher class */
} scenes[] = {
    {"nothing there", "priority", {JOB(B, 1)}, .device = 1, .why = WHY_ABSENT, .other = SLOT_NONE},
    {"no such job", "priority", {JOB(B, 1)}, .job = 3, .why = WHY_ABSENT, .other = SLOT_NONE},
    {"alone", "priority", {JOB(B, 1)}, .why = WHY_ALONE, .other = SLOT_NONE},
    {"a paused one is nobody",
     "priority",
     {JOB(B, 1), PAUSED(B, 1)},
     .why = WHY_ALONE,
     .other = SLOT_NONE},
    {"paused",
     "priority",
     {JOB(B, 1), PAUSED(B, 1)},
     .job = 1,
     .why = WHY_PAUSED,
     .other = SLOT_NONE},
    {"above a batch job", "priority", {JOB(L, 1), JOB(B, 1)}, .why = WHY_FIRST, .other = SLOT_NONE},
    {"below a latency job",
     "priority",
     {JOB(L, 1), JOB(B, 1)},
     .job = 1,
     .why = WHY_TURN,
     .other = SLOT_NONE},
    {"two of a class", "priority", {JOB(B, 1), JOB(B, 1)}, .why = WHY_SLICES, .other = SLOT_NONE},
    {"classes do not count",
     "shares",
     {JOB(L, 1), JOB(B, 1)},
     .why = WHY_SLICES,
     .other = SLOT_NONE},
    {"nobody takes turns",
     "static",
     {JOB(L, 1), JOB(B, 1), JOB(B, 1)},
     .job = 2,
     .why = WHY_SLICES,
     .other = SLOT_NONE},
    {"has the turn",
     "priority",
     {JOB(L, 1), JOB(B, 1), JOB(B, 1)},
     .job = 1,
     .why = WHY_TURN,
     .other = SLOT_NONE,
     .until_ms = 200},
    {"is next",
     "priority",
     {JOB(L, 1), JOB(B, 1), JOB(B, 1)},
     .job = 2,
     .why = WHY_NEXT,
     .other = 1,
     .until_ms = 200},
    {"is next but one",
     "priority",
     {JOB(L, 1), JOB(B, 1), JOB(B, 1), JOB(B, 1)},
     .at_ms = 201,
     .job = 1,
     .why = WHY_NEXT,
     .other = 2,
     .ahead = 1,
     .until_ms = 400},
    {"a better class works",
     "priority",
     {JOB(L, 1), JOB(N, 1), JOB(B, 1)},
     .job = 2,
     .why = WHY_CLASS,
     .other = 1,
     .outranked = true},
    {"a better class is there and idle",
     "priority",
     {JOB(L, 1), IDLE(N, 1), JOB(B, 1)},
     .job = 2,
     .at_ms = 50,
     .why = WHY_TURN,
     .other = SLOT_NONE,
     .until_ms = 220},
    {"a gang waits for one of its GPUs",
     "priority",
     {JOB(L, 3), JOB(B, 3), JOB(B, 2)},
     .at_ms = 201,
     .job = 1,
     .why = WHY_GANG,
     .other = 2},
    {"has had what it may have",
     "priority",
     {AT_MOST(0.2, B, 1), JOB(B, 1)},
     .at_ms = 300,
     .why = WHY_CEILING,
     .other = SLOT_NONE},
    {"so has a latency job",
     "priority",
     {AT_MOST(0.2, L, 1), JOB(B, 1)},
     .at_ms = 60,
     .why = WHY_CEILING,
     .other = SLOT_NONE},
    {"whose lower jobs keep their turns",
     "priority",
     {AT_MOST(0.2, L, 1), JOB(B, 1), JOB(B, 1)},
     .at_ms = 60,
     .job = 1,
     .why = WHY_TURN,
     .other = SLOT_NONE,
     .until_ms = 200},
    {"does not want a gated device",
     "priority",
     {IDLE(B, 1), JOB(B, 1)},
     .gated = true,
     .why = WHY_IDLE,
     .other = SLOT_NONE},
    {"waits for a gated device",
     "priority",
     {JOB(L, 1), JOB(B, 1)},
     .gated = true,
     .job = 1,
     .why = WHY_CLASS,
     .outranked = true},
    {"would wait for a gated device",
     "priority",
     {JOB(L, 1), IDLE(B, 1)},
     .gated = true,
     .job = 1,
     .why = WHY_IDLE,
     .other = SLOT_NONE,
     .outranked = true},
    {"nobody wants a gated device",
     "priority",
     {IDLE(L, 1), JOB(B, 1)},
     .gated = true,
     .job = 1,
     .why = WHY_TURN,
     .other = SLOT_NONE},
    {"nothing is held on a gated device",
     "static",
     {JOB(L, 1), JOB(B, 1)},
     .gated = true,
     .job = 1,
     .why = WHY_SLICES,
     .other = SLOT_NONE},
};

static void event(struct sched *c, struct sched_event e)
{
    assert_int_equal(sched_event(c, &e), 0);
}

static struct sched *build(const struct scene *s)
{
    struct sched_params p;
    struct sched *c;
    uint32_t group = 0;
    params_default(&p);
    p.floor = 0;
    assert_int_equal(sched_new(&(struct sched_limits){2, JOBS, 2 * JOBS, JOBS}, &p, &c), 0);
    assert_int_equal(sched_set_policy(c, s->policy), 0);
    if (s->gated)
        event(c, (struct sched_event){.type = EV_DEVICE, .device = 0, .on = true});
    for (uint32_t j = 0; j < JOBS; j++) {
        if (!s->jobs[j].devices)
            continue;
        event(c, (struct sched_event){.type = EV_JOB_ADD,
                                      .job = j,
                                      .class = s->jobs[j].class,
                                      .weight = WEIGHT_DEFAULT,
                                      .gpu_max = s->jobs[j].max});
        for (uint32_t d = 0; d < 2; d++) {
            if (!(s->jobs[j].devices >> d & 1))
                continue;
            event(c, (struct sched_event){.type = EV_GROUP_ADD,
                                          .group = group++,
                                          .job = j,
                                          .device = d,
                                          .computes = true});
            event(c, (struct sched_event){
                         .type = EV_DEMAND, .job = j, .device = d, .on = !s->jobs[j].idle});
        }
        if (s->jobs[j].paused)
            event(c, (struct sched_event){.type = EV_JOB_PAUSE, .job = j, .on = true});
    }
    return c;
}

static void test_scenes(void **state)
{
    (void)state;
    const uint64_t begin = 1000 * MS;
    int wrong = 0;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++) {
        const struct scene *s = &scenes[i];
        struct sched *c = build(s);
        struct sched_plan plan;
        uint64_t now = begin;
        sched_decide(c, now, &plan);
        while (plan.wake_ns < begin + s->at_ms * MS)
            sched_decide(c, now = plan.wake_ns, &plan);
        struct sched_reason r = sched_explain(c, s->job, s->device);
        uint64_t until = r.until_ns == TIME_NEVER ? 0 : (r.until_ns - begin) / MS;
        bool right =
            r.why == s->why && r.other == s->other && r.ahead == s->ahead && until == s->until_ms &&
            sched_member_outranked(c, s->job, s->device) == s->outranked && *sched_why_text(r.why);
        if (!right)
            printf("%s: %s, %u, %u ahead, until %llu\n", s->name, sched_why_text(r.why), r.other,
                   r.ahead, (unsigned long long)until);
        wrong += !right;
        sched_free(c);
    }
    assert_int_equal(wrong, 0);
}

/* What is asked of all members for each of them is worked out once for all: else this takes half a
 * minute of processor time instead of some hundredths of a second. Who is said to be next is. */
static void test_crowd(void **state)
{
    (void)state;
    enum { CROWD = 16384, TURNS = 20 };
    static uint32_t ahead[CROWD];
    struct sched_params p;
    struct sched *c;
    struct sched_plan plan = {.wake_ns = 1000 * MS};
    params_default(&p);
    assert_int_equal(sched_new(&(struct sched_limits){1, CROWD, CROWD, 1}, &p, &c), 0);
    for (uint32_t j = 0; j < CROWD; j++) {
        event(c, (struct sched_event){
                     .type = EV_JOB_ADD, .job = j, .class = j ? B : L, .weight = WEIGHT_DEFAULT});
        event(c,
              (struct sched_event){.type = EV_GROUP_ADD, .group = j, .job = j, .computes = true});
        event(c, (struct sched_event){.type = EV_DEMAND, .job = j, .on = true});
    }
    clock_t spent = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        sched_decide(c, plan.wake_ns, &plan);
        const clock_t begin = clock();
        for (uint32_t j = 1; j < CROWD; j++) {
            struct sched_reason r = sched_explain(c, j, 0);
            assert_true(r.why == WHY_NEXT || r.why == WHY_TURN);
            assert_false(r.why == WHY_TURN && turn && ahead[j]);
            ahead[j] = r.ahead;
        }
        spent += clock() - begin;
    }
    assert_in_range(spent, 0, 3 * CLOCKS_PER_SEC);
    sched_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenes), cmocka_unit_test(test_crowd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
