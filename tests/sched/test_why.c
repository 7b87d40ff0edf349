/* Why a job may run or not (sched_explain()): scenes and what is said of them. That it is never
 * against what was decided, tests/sched/mock_gpu.c looks at in all scenarios. */
#include "fixture.h"

#include <time.h>

#define JOBS 4

/* clang-format off */
#define JOB(c, on)           {.class = (c), .devices = (on)}
#define IDLE(c, on)          {.class = (c), .devices = (on), .idle = true}
#define PAUSED(c, on)        {.class = (c), .devices = (on), .paused = true}
#define AT_MOST(part, c, on) {.class = (c), .devices = (on), .max = (part)}
#define DUE(ms, c, on)       {.class = (c), .devices = (on), .due_ms = (ms)}

static const struct scene {
    const char *name;
    struct {
        enum job_class class;
        unsigned devices; /* bit map; 0: there is no such job */
        bool idle, paused;
        double max;
        uint64_t due_ms; /* 0: it has no deadline */
    } jobs[JOBS];
    const char *policy; /* NULL: "priority" */
    bool gated;
    uint64_t at_ms;        /* decided at 0, and again then */
    uint32_t job, device;  /* of whom it is asked; */
    enum sched_why why;    /* and what is said */
    uint32_t other, ahead; /* other: never job 0, which is nobody */
    uint64_t until_ms;     /* 0: not known */
    bool outranked;        /* it waits, or would, for a job of a higher class */
} scenes[] = {
    {"nothing there", {JOB(B, 1)}, .device = 1, .why = WHY_ABSENT},
    {"no such job", {JOB(B, 1)}, .job = 3, .why = WHY_ABSENT},
    {"alone", {JOB(B, 1)}, .why = WHY_ALONE},
    {"a paused one is nobody", {JOB(B, 1), PAUSED(B, 1)}, .why = WHY_ALONE},
    {"paused", {JOB(B, 1), PAUSED(B, 1)}, .job = 1, .why = WHY_PAUSED},
    {"above a batch job", {JOB(L, 1), JOB(B, 1)}, .why = WHY_FIRST},
    {"below a latency job", {JOB(L, 1), JOB(B, 1)}, .job = 1, .why = WHY_TURN},
    {"two of a class", {JOB(B, 1), JOB(B, 1)}, .why = WHY_SLICES},
    {"classes do not count", {JOB(L, 1), JOB(B, 1)}, "shares", .why = WHY_SLICES},
    {"has the turn", {JOB(L, 1), JOB(B, 1), JOB(B, 1)}, .job = 1, .why = WHY_TURN, .until_ms = 200},
    {"is next", {JOB(L, 1), JOB(B, 1), JOB(B, 1)},
     .job = 2, .why = WHY_NEXT, .other = 1, .until_ms = 200},
    {"is next but one", {JOB(L, 1), JOB(B, 1), JOB(B, 1), JOB(B, 1)},
     .at_ms = 201, .job = 1, .why = WHY_NEXT, .other = 2, .ahead = 1, .until_ms = 400},
    {"is next after one with a deadline", {JOB(L, 1), JOB(B, 1), DUE(900, B, 1)},
     "laxity", .at_ms = 10, .job = 1, .why = WHY_BOOSTED, .other = 2},
    {"has the turn for its deadline", {JOB(L, 1), JOB(B, 1), DUE(900, B, 1)},
     "laxity", .at_ms = 10, .job = 2, .why = WHY_TURN, .until_ms = 200},
    {"a better class works", {JOB(L, 1), JOB(N, 1), JOB(B, 1)},
     .job = 2, .why = WHY_CLASS, .other = 1, .outranked = true},
    {"a better class is there and idle", {JOB(L, 1), IDLE(N, 1), JOB(B, 1)},
     .job = 2, .at_ms = 50, .why = WHY_TURN, .until_ms = 220},
    {"a gang waits for one of its GPUs", {JOB(L, 3), JOB(B, 3), JOB(B, 2)},
     .at_ms = 201, .job = 1, .why = WHY_GANG, .other = 2},
    {"has had what it may have", {AT_MOST(0.2, B, 1), JOB(B, 1)}, .at_ms = 300, .why = WHY_CEILING},
    {"so has a latency job", {AT_MOST(0.2, L, 1), JOB(B, 1)}, .at_ms = 60, .why = WHY_CEILING},
    {"whose lower jobs keep their turns", {AT_MOST(0.2, L, 1), JOB(B, 1), JOB(B, 1)},
     .at_ms = 60, .job = 1, .why = WHY_TURN, .until_ms = 200},
    {"does not want a gated device", {IDLE(B, 1), JOB(B, 1)}, .gated = true, .why = WHY_IDLE},
    {"waits for a gated device", {JOB(B, 1), JOB(L, 1)},
     .gated = true, .why = WHY_CLASS, .other = 1, .outranked = true},
    {"would wait for a gated device", {JOB(L, 1), IDLE(B, 1)},
     .gated = true, .job = 1, .why = WHY_IDLE, .outranked = true},
    {"nobody wants a gated device", {IDLE(L, 1), JOB(B, 1)},
     .gated = true, .job = 1, .why = WHY_TURN},
};
/* clang-format on */

static struct sched *build(const struct scene *s)
{
    struct sched *c = scheduler(2, JOBS, 2 * JOBS);
    uint32_t group = 0;
    assert_int_equal(sched_set_policy(c, s->policy ? s->policy : "priority"), 0);
    if (s->gated)
        EVENT(c, DEVICE, .device = 0, .on = true);
    for (uint32_t j = 0; j < JOBS; j++) {
        if (!s->jobs[j].devices)
            continue;
        EVENT(c, JOB_ADD, .job = j, .class = s->jobs[j].class, .weight = WEIGHT_DEFAULT,
              .gpu_max = s->jobs[j].max);
        for (uint32_t d = 0; d < 2; d++) {
            if (!(s->jobs[j].devices >> d & 1))
                continue;
            EVENT(c, GROUP_ADD, .group = group++, .job = j, .device = d, .computes = true);
            EVENT(c, DEMAND, .job = j, .device = d, .on = !s->jobs[j].idle);
        }
        if (s->jobs[j].due_ms)
            EVENT(c, DEADLINE, .job = j, .deadline_ns = (1000 + s->jobs[j].due_ms) * MS,
                  .left_ns = s->jobs[j].due_ms * MS);
        if (s->jobs[j].paused)
            EVENT(c, JOB_PAUSE, .job = j, .on = true);
    }
    return c;
}

TEST(test_scenes)
{
    const uint64_t begin = 1000 * MS;
    int wrong = 0;
    for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
        const struct scene *s = &scenes[i];
        struct sched *c = build(s);
        struct sched_plan plan;
        uint64_t now = begin;
        sched_decide(c, now, &plan);
        while (plan.wake_ns < begin + s->at_ms * MS)
            sched_decide(c, now = plan.wake_ns, &plan);
        struct sched_reason r = sched_explain(c, s->job, s->device);
        uint64_t until = r.until_ns == TIME_NEVER ? 0 : (r.until_ns - begin) / MS;
        bool right = r.why == s->why && r.other == (s->other ? s->other : SLOT_NONE) &&
                     r.ahead == s->ahead && until == s->until_ms &&
                     sched_member_outranked(c, s->job, s->device) == s->outranked &&
                     *sched_why_text(r.why);
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
TEST(crowd)
{
    enum { CROWD = 16384, TURNS = 20 };
    static uint32_t ahead[CROWD];
    struct sched *c = scheduler(1, CROWD, CROWD);
    struct sched_plan plan = {.wake_ns = 1000 * MS};
    for (uint32_t j = 0; j < CROWD; j++) {
        add_job(c, j, j ? B : L);
        EVENT(c, DEMAND, .job = j, .on = true);
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
