/* Who works, by what the driver tells of GPU time and of the engine, and who gets turns by that. */
#include "fixture.h"
#include "gaps.h"

static void test_idle_jobs_yield_turns(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    f->d.has_usage = true;
    three_jobs(f, p);
    on(f, p[1])->busy = 0;
    ticks(f, 5000);
    unsigned ran[3] = {0};
    for (int t = 0; t < 2000; t++) {
        ticks(f, 10);
        ran[1] += !on(f, p[1])->suspended;
        ran[2] += !on(f, p[2])->suspended;
    }
    assert_true(ran[1] > 0); /* it is looked at */
    assert_true(ran[2] > 30 * ran[1]);
    on(f, p[1])->busy = 1;
    ticks(f, 5000);
    ran[1] = ran[2] = 0;
    for (int t = 0; t < 2000; t++) {
        ticks(f, 10);
        ran[1] += !on(f, p[1])->suspended;
        ran[2] += !on(f, p[2])->suspended;
    }
    assert_in_range(ran[1], 900, 1100);
}

static void count_turns(struct fixture *f, const pid_t p[3], unsigned ms, unsigned ran[3])
{
    memset(ran, 0, 3 * sizeof(ran[0]));
    for (unsigned t = 0; t < ms; t += 10) {
        ticks(f, 10);
        for (int i = 0; i < 3; i++)
            ran[i] += !on(f, p[i])->suspended;
    }
}

/* Three jobs of which usage() says that all work, as it does for seconds after one has stopped, and
 * the latency job needs little. */
static void three_active_jobs(struct fixture *f, pid_t p[3])
{
    f->d.has_usage = f->d.has_activity = true;
    three_jobs(f, p);
    for (int i = 0; i < 3; i++)
        on(f, p[i])->bursts = 20, on(f, p[i])->busy_ns = 10 * NSEC_PER_MSEC;
    on(f, p[0])->busy = 0.1;
    on(f, p[0])->busy_ns = 10 * NSEC_PER_MSEC;
    ticks(f, 2000);
}

static void test_activity_tells_idle_jobs(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    three_active_jobs(f, p);
    count_turns(f, p, 4000, ran);
    assert_in_range(ran[1], 180, 220);
    on(f, p[1])->bursts = 0;
    on(f, p[1])->busy_ns = 0;
    ticks(f, 850); /* two of its turns: more than 0.3 s */
    count_turns(f, p, 10000, ran);
    assert_true(ran[1] > 0); /* it is looked at */
    assert_true(ran[2] > 20 * ran[1]);
    /* It works again: seen when it is looked at. */
    on(f, p[1])->bursts = 1;
    ticks(f, 3000);
    count_turns(f, p, 4000, ran);
    assert_in_range(ran[1], 180, 220);
}

static void test_activity_that_says_nothing(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    three_active_jobs(f, p);
    on(f, p[1])->bursts = 0;
    /* It has the engine, and may be working or not. */
    ticks(f, 2000);
    count_turns(f, p, 4000, ran);
    assert_in_range(ran[1], 180, 220);
    /* Not everything was seen. */
    on(f, p[1])->busy_ns = 0;
    f->d.incomplete = true;
    ticks(f, 2000);
    count_turns(f, p, 4000, ran);
    assert_in_range(ran[1], 180, 220);
    /* The latency job may keep it away. */
    on(f, p[0])->busy = 0.95;
    on(f, p[0])->busy_ns = 95 * NSEC_PER_MSEC;
    ticks(f, 1100); /* usage() has told */
    f->d.incomplete = false;
    ticks(f, 2000);
    count_turns(f, p, 4000, ran);
    assert_in_range(ran[1], 180, 220);
    /* Nothing from the driver: usage() is what counts, and activity() is not asked all the time. */
    on(f, p[0])->busy = 0.1;
    f->d.has_activity = false;
    f->d.activity_calls = 0;
    on(f, p[1])->busy = 0;
    ticks(f, 12000);
    assert_in_range(f->d.activity_calls, 1, 13); /* of 120 while it tells */
    count_turns(f, p, 10000, ran);
    assert_true(ran[2] > 20 * ran[1]);
}

/* Paused while it had nothing to do, and then let run by somebody who waits for it. */
static void test_resumed_job_need_not_be_seen_first(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    three_active_jobs(f, p);
    uint32_t job = engine_job_of(f->m, p[1]);
    on(f, p[1])->bursts = 0;
    on(f, p[1])->busy_ns = 0;
    on(f, p[1])->busy = 0;
    ticks(f, 12000);
    while (on(f, p[1])->suspended)
        ticks(f, 10);
    while (!on(f, p[1])->suspended) /* it was looked at, and would not be soon again */
        ticks(f, 10);
    ticks(f, 200);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 500);
    on(f, p[1])->bursts = 20;
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    count_turns(f, p, 800, ran);
    assert_in_range(ran[1], 30, 65);
    assert_true(ran[2] >= 15);
}

/* One batch job beside a latency job takes no turns: then nobody looks, but rarely whether the
 * latency job has most of the GPU. */
static void test_activity_not_asked(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_active_jobs(f, p);
    assert_true(f->d.activity_calls >= 20);
    end(f, p[2]);
    ticks(f, 1000);
    f->d.activity_calls = f->d.usage_calls = 0;
    ticks(f, 6000);
    assert_int_equal(f->d.activity_calls, 0);
    assert_int_equal(f->d.usage_calls, 2);
    /* One class shares by slices. */
    end(f, p[0]);
    ticks(f, 1000);
    f->d.activity_calls = f->d.usage_calls = 0;
    ticks(f, 6000);
    assert_int_equal(f->d.activity_calls, 0);
    assert_in_range(f->d.usage_calls, 1, 2); /* for the count */
}

/* Returns for how many milliseconds the batch job was not suspended. */
static unsigned ticks_recorded(struct fixture *f, struct gaps *g, unsigned ms)
{
    unsigned ran = 0;
    for (unsigned t = 0; t < ms; t += 10) {
        record_until(f, g, f->now + 10 * NSEC_PER_MSEC);
        ticks(f, 10);
        assert_int_equal(on(f, g->latency)->suspended, 0);
        ran += on(f, g->batch)->suspended ? 0 : 10;
    }
    return ran;
}

static struct gaps gaps_begin(struct fixture *f, pid_t p[3])
{
    f->d.has_switches = true;
    three_active_jobs(f, p);
    assert_int_equal(engine_pause(f->m, engine_job_of(f->m, p[2]), true, 0), 0);
    return (struct gaps){.latency = p[0], .batch = p[1], .share = 0.2};
}

/* Its host runs ahead during a longer slice, so that it loses nothing: batch gets long slices. When
 * the record ends, the shortest. */
static void test_launch_bound_latency_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    struct gaps g = gaps_begin(f, p);
    assert_int_equal(ticks_recorded(f, &g, 5000), 5000);
    assert_true(f->d.recording);
    assert_in_range(on(f, p[1])->timeslice_us, 500, 750);
    ticks_recorded(f, &g, 10000);
    assert_in_range(on(f, p[1])->timeslice_us, 500, 750);
    g.lost = true;
    ticks_recorded(f, &g, 3000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    g.lost = false;
    ticks_recorded(f, &g, 5000);
    assert_in_range(on(f, p[1])->timeslice_us, 500, 750);
    /* The driver refuses it from now on. */
    f->d.has_switches = false;
    ticks_recorded(f, &g, 3000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    f->d.switches_calls = 0;
    ticks_recorded(f, &g, 30000);
    assert_in_range(f->d.switches_calls, 1, 4);
    assert_int_equal(on(f, p[1])->suspended, 0);
}

/* Each piece of its work has to wait for the slice before: it keeps its speed, for batch is
 * throttled. */
static void test_gaps_that_cost_more_than_they_give(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    struct gaps g = gaps_begin(f, p);
    g.share = 0;
    g.piece_us = 500;
    on(f, p[0])->busy = 0.8;
    on(f, p[0])->busy_ns = 80 * NSEC_PER_MSEC;
    ticks_recorded(f, &g, 5000);
    assert_in_range(ticks_recorded(f, &g, 20000), 1000, 10000);
    uint32_t cursor = engine_job_of(f->m, p[1]);
    struct job_view v;
    while (!on(f, p[1])->suspended)
        ticks_recorded(f, &g, 10);
    assert_true(engine_next_job(f->m, &cursor, &v) && v.throttled && !v.runnable_groups);
    /* Nobody knows what it costs. */
    f->d.has_switches = false;
    ticks_recorded(f, &g, 6000);
    assert_int_equal(ticks_recorded(f, &g, 5000), 5000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

static void test_record_not_asked(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    f->d.has_switches = true;
    three_active_jobs(f, p);
    on(f, p[0])->busy = 0.01;
    ticks(f, 5000);
    assert_true(f->d.recording); /* two batch jobs take turns */
    /* The latency job does next to nothing, and there is one batch context. */
    end(f, p[2]);
    ticks(f, 5000);
    f->d.switches_calls = 0;
    ticks(f, 10000);
    assert_int_equal(f->d.switches_calls, 0);
    assert_false(f->d.recording);
    on(f, p[0])->busy = 0.1;
    ticks(f, 5000);
    assert_true(f->d.recording);
    /* There is none. */
    end(f, p[0]);
    ticks(f, 5000);
    f->d.switches_calls = 0;
    ticks(f, 10000);
    assert_int_equal(f->d.switches_calls, 0);
    assert_false(f->d.recording);
}

/* Bursts are told ten times a second. */
static void test_budget_by_activity(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_active_jobs(f, p);
    end(f, p[2]);
    uint32_t job = engine_job_of(f->m, p[0]);
    assert_int_equal(engine_change(f->m, job,
                                   &(struct job_terms){.class = CLASS_LATENCY,
                                                       .weight = WEIGHT_DEFAULT,
                                                       .budget_us = 2500},
                                   NULL),
                     0);
    on(f, p[0])->bursts = on(f, p[1])->bursts = 100; /* 1000 requests/s */
    f->d.activity_calls = 0;
    ticks(f, 3000);
    assert_in_range(f->d.activity_calls, 25, 35);
    assert_in_range(on(f, p[1])->timeslice_us, 1000, 2140);
    /* Few requests, and a batch job with gaps of its own; then the other way round. */
    on(f, p[0])->bursts = 1;
    ticks(f, 3000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    on(f, p[0])->bursts = 100;
    on(f, p[1])->bursts = 1;
    ticks(f, 3000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    /* The driver does not see everything: what it had stays. */
    on(f, p[1])->bursts = 100;
    f->d.incomplete = true;
    ticks(f, 3000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    f->d.incomplete = false;
    ticks(f, 3000);
    assert_in_range(on(f, p[1])->timeslice_us, 1000, 2140);
    assert_int_equal(
        engine_change(f->m, job,
                      &(struct job_terms){.class = CLASS_LATENCY, .weight = WEIGHT_DEFAULT}, NULL),
        0);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

/* A normal job beside a latency job keeps batch jobs waiting only while it works: that it does not
 * has to be found although nobody takes turns. With and without a budget, which makes usage()
 * unnecessary for all else; and after its context ended and another came. */
static void test_idle_normal_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    f->d.has_usage = f->d.has_activity = true;
    programs(f, p, 3, 3);
    start(f, "laxity", NULL);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_NORMAL);
    add(f, p[2], CLASS_BATCH);
    for (int i = 0; i < 3; i++) {
        on(f, p[i])->bursts = 20;
        on(f, p[i])->busy_ns = 10 * NSEC_PER_MSEC;
        on(f, p[i])->busy = 0.1;
    }
    for (uint32_t budget_us = 0; budget_us <= 2500; budget_us += 2500) {
        assert_int_equal(engine_change(f->m, latency,
                                       &(struct job_terms){.class = CLASS_LATENCY,
                                                           .weight = WEIGHT_DEFAULT,
                                                           .budget_us = budget_us},
                                       NULL),
                         0);
        on(f, p[1])->bursts = 20;
        on(f, p[1])->busy_ns = 10 * NSEC_PER_MSEC;
        on(f, p[1])->busy = 0.1;
        ticks(f, 10000);
        count_turns(f, p, 10000, ran);
        assert_int_equal(ran[1], 1000);
        assert_int_equal(ran[2], 0);
        for (int again = 0; again < 2; again++) {
            on(f, p[1])->bursts = 0;
            on(f, p[1])->busy_ns = 0;
            on(f, p[1])->busy = 0;
            ticks(f, 10000);
            count_turns(f, p, 10000, ran);
            assert_true(ran[2] > 900);
            mock_exit(&f->d, p[1]);
            ticks(f, 5000);
            mock_context(&f->d, p[1], 0, 3);
        }
    }
}

#define TOLD 8

static double told_busy[TOLD]; /* of jobs, as the scheduler was told it last */

int __real_sched_event(struct sched *c, const struct sched_event *ev);
int __wrap_sched_event(struct sched *c, const struct sched_event *ev);

int __wrap_sched_event(struct sched *c, const struct sched_event *ev)
{
    if (ev->type == EV_DEMAND && ev->job < TOLD)
        told_busy[ev->job] = ev->busy;
    return __real_sched_event(c, ev);
}

/* Of jobs with turns some have none between two samples: together they keep the GPU busy all the
 * same. */
static void test_busy_of_one_time(void **state)
{
    struct fixture *f = *state;
    pid_t p[TOLD];
    bool ran[TOLD][100] = {0}; /* in the last second */
    f->d.has_usage = f->d.has_activity = true;
    memset(told_busy, 0, sizeof(told_busy));
    programs(f, p, TOLD, 1);
    start(f, "priority", NULL);
    for (int i = 0; i < TOLD; i++) {
        add(f, p[i], i ? CLASS_BATCH : CLASS_LATENCY);
        on(f, p[i])->bursts = 20;
        on(f, p[i])->busy_ns = i ? 100 * NSEC_PER_MSEC : NSEC_PER_MSEC;
    }
    for (unsigned t = 0; t < 2000; t++) {
        double told = 0;
        for (int i = 1; i < TOLD; i++) {
            ran[i][t % 100] = !on(f, p[i])->suspended;
            on(f, p[i])->busy = 0;
            for (int k = 0; k < 100; k++)
                on(f, p[i])->busy += ran[i][k] * 0.01;
            told += told_busy[i];
        }
        if (t > 500)
            assert_float_equal(told, 1, 0.1);
        ticks(f, 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_idle_jobs_yield_turns),      T(test_activity_tells_idle_jobs),
        T(test_activity_that_says_nothing), T(test_activity_not_asked),
        T(test_budget_by_activity),         T(test_resumed_job_need_not_be_seen_first),
        T(test_launch_bound_latency_job),   T(test_gaps_that_cost_more_than_they_give),
        T(test_record_not_asked),           T(test_idle_normal_job),
        T(test_busy_of_one_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
