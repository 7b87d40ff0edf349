/* Who works, by what the driver tells of GPU time and of the engine, and who gets turns by that. */
#include "fixture.h"
#include "gaps.h"

/* The two batch jobs have equal turns. */
static void assert_turns(struct fixture *f)
{
    count_turns(f, 3, 4000);
    assert_in_range(f->ran[1], 180, 220);
}

ENGINE_TEST(test_idle_jobs_yield_turns)
{
    f->d.has_usage = true;
    three_jobs(f);
    on(f, p[1])->busy = 0;
    ticks(f, 5000);
    count_turns(f, 3, 20000);
    assert_true(f->ran[1] > 0); /* it is looked at */
    assert_true(f->ran[2] > 30 * f->ran[1]);
    on(f, p[1])->busy = 1;
    ticks(f, 5000);
    count_turns(f, 3, 20000);
    assert_in_range(f->ran[1], 900, 1100);
}

/* Three jobs of which usage() says that all work, as it does for seconds after one has stopped, and
 * the latency job needs little. */
static void three_active_jobs(struct fixture *f)
{
    f->d.has_usage = f->d.has_activity = true;
    three_jobs(f);
    for (int i = 0; i < 3; i++)
        works(f, f->p[i], 20, 10, i ? 1 : 0.1);
    ticks(f, 2000);
}

ENGINE_TEST(test_activity_tells_idle_jobs)
{
    three_active_jobs(f);
    assert_turns(f);
    works(f, p[1], 0, 0, 1);
    ticks(f, 850); /* two of its turns: more than 0.3 s */
    count_turns(f, 3, 10000);
    assert_true(f->ran[1] > 0); /* it is looked at */
    assert_true(f->ran[2] > 20 * f->ran[1]);
    /* It works again: seen when it is looked at. */
    on(f, p[1])->bursts = 1;
    ticks(f, 3000);
    assert_turns(f);
}

ENGINE_TEST(test_activity_that_says_nothing)
{
    three_active_jobs(f);
    works(f, p[1], 0, 10, 1); /* it has the engine, and may be working or not */
    ticks(f, 2000);
    assert_turns(f);
    /* Not everything was seen. */
    works(f, p[1], 0, 0, 1);
    f->d.incomplete = true;
    ticks(f, 2000);
    assert_turns(f);
    /* The latency job may keep it away. */
    works(f, p[0], 20, 95, 0.95);
    ticks(f, 1100); /* usage() has told */
    f->d.incomplete = false;
    ticks(f, 2000);
    assert_turns(f);
    /* Nothing from the driver: usage() is what counts, and activity() is not asked all the time. */
    on(f, p[0])->busy = 0.1;
    f->d.has_activity = false;
    f->d.activity_calls = 0;
    on(f, p[1])->busy = 0;
    ticks(f, 12000);
    assert_in_range(f->d.activity_calls, 1, 13); /* of 120 while it tells */
    count_turns(f, 3, 10000);
    assert_true(f->ran[2] > 20 * f->ran[1]);
    /* Nor that any more: a job of which nothing is known counts as one that works. */
    f->d.has_usage = false;
    ticks(f, 8000);
    assert_turns(f);
}

/* Paused while it had nothing to do, and then let run by somebody who waits for it. */
ENGINE_TEST(test_resumed_job_need_not_be_seen_first)
{
    three_active_jobs(f);
    works(f, p[1], 0, 0, 0);
    ticks(f, 12000);
    while (on(f, p[1])->suspended)
        ticks(f, 10);
    while (!on(f, p[1])->suspended) /* it was looked at, and would not be soon again */
        ticks(f, 10);
    ticks(f, 200);
    assert_int_equal(engine_pause(f->m, j[1], true, 0), 0);
    ticks(f, 500);
    on(f, p[1])->bursts = 20;
    assert_int_equal(engine_pause(f->m, j[1], false, 0), 0);
    count_turns(f, 3, 800);
    assert_in_range(f->ran[1], 30, 65);
    assert_true(f->ran[2] >= 15);
}

/* It ends, and is forgotten; then the driver is asked so often in 6 s. */
static void ends_and_asked(struct fixture *f, pid_t pid, unsigned usage_min, unsigned usage_max)
{
    end(f, pid);
    ticks(f, 1000);
    f->d.activity_calls = f->d.usage_calls = 0;
    ticks(f, 6000);
    assert_int_equal(f->d.activity_calls, 0);
    assert_in_range(f->d.usage_calls, usage_min, usage_max);
}

/* One batch job beside a latency job takes no turns: then nobody looks, but rarely whether the
 * latency job has most of the GPU. One class shares by slices. */
ENGINE_TEST(test_activity_not_asked)
{
    three_active_jobs(f);
    assert_true(f->d.activity_calls >= 20);
    ends_and_asked(f, p[2], 2, 2);
    ends_and_asked(f, p[0], 1, 2); /* for the count */
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

static struct gaps gaps_begin(struct fixture *f)
{
    f->d.has_switches = true;
    three_active_jobs(f);
    assert_int_equal(engine_pause(f->m, f->job[2], true, 0), 0);
    return (struct gaps){.latency = f->p[0], .batch = f->p[1], .share = 0.2};
}

/* Its host runs ahead during a longer slice, so that it loses nothing: batch gets long slices. When
 * the record ends, the shortest. */
ENGINE_TEST(test_launch_bound_latency_job)
{
    struct gaps g = gaps_begin(f);
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
ENGINE_TEST(test_gaps_that_cost_more_than_they_give)
{
    struct gaps g = gaps_begin(f);
    g.share = 0;
    g.piece_us = 500;
    works(f, p[0], 20, 80, 0.8);
    ticks_recorded(f, &g, 5000);
    assert_in_range(ticks_recorded(f, &g, 20000), 1000, 10000);
    while (!on(f, p[1])->suspended)
        ticks_recorded(f, &g, 10);
    const struct job_view v = view(f, j[1]);
    assert_true(v.throttled && !v.runnable_groups);
    /* Nobody knows what it costs. */
    f->d.has_switches = false;
    ticks_recorded(f, &g, 6000);
    assert_int_equal(ticks_recorded(f, &g, 5000), 5000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

static void assert_no_record_asked(struct fixture *f)
{
    ticks(f, 5000);
    f->d.switches_calls = 0;
    ticks(f, 10000);
    assert_int_equal(f->d.switches_calls, 0);
    assert_false(f->d.recording);
}

ENGINE_TEST(test_record_not_asked)
{
    f->d.has_switches = true;
    three_active_jobs(f);
    on(f, p[0])->busy = 0.01;
    ticks(f, 5000);
    assert_true(f->d.recording); /* two batch jobs take turns */
    /* The latency job does next to nothing, and there is one batch context. */
    end(f, p[2]);
    assert_no_record_asked(f);
    on(f, p[0])->busy = 0.1;
    ticks(f, 5000);
    assert_true(f->d.recording);
    /* There is none. */
    end(f, p[0]);
    assert_no_record_asked(f);
}

/* The slice of the batch job after 3 s. */
static void assert_slice(struct fixture *f, bool by_budget)
{
    ticks(f, 3000);
    assert_in_range(on(f, f->p[1])->timeslice_us, by_budget ? 1000 : 1, by_budget ? 2140 : 1);
}

static void set_budget(struct fixture *f, uint32_t budget_us)
{
    change(f, f->job[0],
           (struct job_terms){
               .class = CLASS_LATENCY, .weight = WEIGHT_DEFAULT, .budget_us = budget_us});
}

/* Bursts are told ten times a second. */
ENGINE_TEST(test_budget_by_activity)
{
    three_active_jobs(f);
    end(f, p[2]);
    set_budget(f, 2500);
    on(f, p[0])->bursts = on(f, p[1])->bursts = 100; /* 1000 requests/s */
    f->d.activity_calls = 0;
    assert_slice(f, true);
    assert_in_range(f->d.activity_calls, 25, 35);
    /* Few requests, and a batch job with gaps of its own; then the other way round. */
    on(f, p[0])->bursts = 1;
    assert_slice(f, false);
    on(f, p[0])->bursts = 100;
    on(f, p[1])->bursts = 1;
    assert_slice(f, false);
    /* The driver does not see everything: what it had stays. */
    on(f, p[1])->bursts = 100;
    f->d.incomplete = true;
    assert_slice(f, false);
    f->d.incomplete = false;
    assert_slice(f, true);
    set_budget(f, 0);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

/* A normal job beside a latency job keeps batch jobs waiting only while it works: that it does not
 * has to be found although nobody takes turns. With and without a budget, which makes usage()
 * unnecessary for all else; and after its context ended and another came. */
ENGINE_TEST(test_idle_normal_job)
{
    f->d.has_usage = f->d.has_activity = true;
    jobs_of(f, "laxity", 3, "L N B");
    for (uint32_t budget_us = 0; budget_us <= 2500; budget_us += 2500) {
        set_budget(f, budget_us);
        for (int i = 0; i < 3; i++)
            works(f, p[i], 20, 10, 0.1);
        ticks(f, 10000);
        count_turns(f, 3, 10000);
        assert_int_equal(f->ran[1], 1000);
        assert_int_equal(f->ran[2], 0);
        for (int again = 0; again < 2; again++) {
            works(f, p[1], 0, 0, 0);
            ticks(f, 10000);
            count_turns(f, 3, 10000);
            assert_true(f->ran[2] > 900);
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
ENGINE_TEST(test_busy_of_one_time)
{
    bool runs[TOLD][100] = {0}; /* in the last second */
    f->d.has_usage = f->d.has_activity = true;
    jobs_of(f, "priority", 1, "L B B B B B B B");
    for (int i = 0; i < TOLD; i++)
        works(f, p[i], 20, i ? 100 : 1, 1);
    for (unsigned t = 0; t < 2000; t++) {
        double told = 0;
        for (int i = 1; i < TOLD; i++) {
            runs[i][t % 100] = !on(f, p[i])->suspended;
            on(f, p[i])->busy = 0;
            for (int k = 0; k < 100; k++)
                on(f, p[i])->busy += runs[i][k] * 0.01;
            told += told_busy[i];
        }
        if (t > 500)
            assert_float_equal(told, 1, 0.1);
        ticks(f, 10);
    }
}
