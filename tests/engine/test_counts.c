/* Where the time of jobs went, in sums. */
#include "fixture.h"

#define MS(ns) ((ns) / NSEC_PER_MSEC)

/* The engine was made a moment of real time before the tests' time begins, on a busy machine a long
 * one, and jobs begin at its last tick. */
static void start_counting(struct fixture *f)
{
    start(f, "priority", NULL);
    tick(f);
}

static uint32_t counted_job(struct fixture *f, pid_t *p)
{
    *p = child(f);
    mock_context(&f->d, *p, 0, 3);
    start_counting(f);
    return add(f, *p, CLASS_BATCH);
}

/* Beside a latency job two batch jobs take turns of 200 ms, each with work for half of them, by
 * samples. */
ENGINE_TEST(test_turns)
{
    uint64_t ran = 0;
    f->d.has_usage = true;
    programs(f, p, 3, 1);
    start_counting(f);
    add(f, p[2], CLASS_LATENCY);
    for (int i = 0; i < 2; i++) {
        j[i] = add(f, p[i], CLASS_BATCH);
        on(f, p[i])->busy = 0.25;
    }
    ticks(f, 10000);
    for (int i = 0; i < 2; i++) {
        struct job_view v = view(f, j[i]);
        const struct gpu_totals *c = &v.counts.on[0];
        assert_in_range(MS(v.counts.where_ns[WHERE_HERE]), 9990, 10400);
        assert_in_range(MS(c->ran_ns + c->waited_ns), 9900, 10100);
        assert_in_range(MS(c->ran_ns), 4500, 5500);
        assert_in_range(c->turns, 20, 30);
        assert_in_range(c->preempted + 1, c->turns, c->turns + 1);
        assert_in_range(MS(v.counts.on[0].sampled_ns), 2200, 2550);
        assert_int_equal(v.counts.on[0].exact_ns, 0);
        assert_int_equal(v.counts.on[1].ran_ns + v.counts.on[1].waited_ns, 0);
        ran += c->ran_ns;
    }
    assert_in_range(MS(ran), 9500, 10100);
    uint64_t totals[3];
    engine_totals(f->m, totals);
    assert_true(totals[0] >= 50 && totals[1] >= 2 * totals[0] && totals[2] == 0);
}

/* What the record of switches tells is not told again by samples. */
ENGINE_TEST(test_exact)
{
    f->d.has_usage = f->d.has_activity = true;
    three_jobs(f);
    for (int i = 0; i < 3; i++)
        works(f, p[i], 5, 30, 1);
    ticks(f, 1000);
    struct job_view before = view(f, 0);
    ticks(f, 10000);
    struct job_view v = view(f, 0);
    assert_in_range(MS(v.counts.on[0].exact_ns - before.counts.on[0].exact_ns), 2800, 3100);
    assert_in_range(MS(v.counts.on[0].sampled_ns - before.counts.on[0].sampled_ns), 0, 300);
}

/* Nobody looks and nothing takes turns: samples are enough, and rare. */
ENGINE_TEST(test_alone)
{
    f->d.has_usage = f->d.has_activity = true;
    uint32_t job = counted_job(f, p);
    on(f, p[0])->busy = 0.25;
    ticks(f, 100);
    unsigned asked = f->d.usage_calls;
    ticks(f, 60000);
    struct job_view v = view(f, job);
    /* Every second for ten, then every five. */
    assert_in_range(f->d.usage_calls - asked, 19, 21);
    assert_int_equal(f->d.activity_calls, 0);
    assert_in_range(MS(v.counts.on[0].sampled_ns), 13500, 15100);
    assert_in_range(MS(v.counts.on[0].ran_ns), 59000, 60200);
    assert_int_equal(v.counts.on[0].turns, 1);
    assert_int_equal(v.counts.on[0].preempted, 0);
}

/* Somebody who looks each second: samples, but no record of switches; and it is known up to when
 * the sums are complete, so that their differences are right whenever one looks. */
ENGINE_TEST(test_looked_at)
{
    f->d.has_usage = f->d.has_activity = true;
    uint32_t job = one_job(f, CLASS_NORMAL, p);
    on(f, p[0])->busy = 0.5;
    assert_true(view(f, job).count_age_ns[0] == TIME_NEVER);
    ticks(f, 3000);
    struct job_view last = view(f, job);
    uint64_t last_ns = f->now;
    for (int i = 0; i < 20; i++) {
        engine_watch(f->m);
        ticks(f, 700);
        struct job_view v = view(f, job);
        assert_in_range(MS(v.count_age_ns[0]), 0, 1100);
        uint64_t span =
            (f->now - v.count_age_ns[0]) - (last_ns - min_u64(last.count_age_ns[0], last_ns));
        if (i > 1)
            assert_in_range(MS(2 * (v.counts.on[0].sampled_ns - last.counts.on[0].sampled_ns)) + 2,
                            MS(span), MS(span) + 4);
        last = v;
        last_ns = f->now;
    }
    assert_int_equal(f->d.activity_calls, 0);
}

struct ended {
    struct job_view v;
    unsigned begun, ended;
};

static void on_job(void *arg, uint32_t job, const struct job_view *v, bool ends)
{
    struct ended *x = arg;
    x->begun += !ends;
    x->ended += ends;
    x->v = *v;
}

/* After the last sample it is taken to go on as before, as long as it could run. */
ENGINE_TEST(test_ended)
{
    struct ended x = {.begun = 0};
    f->d.has_usage = true;
    f->job_changed = on_job;
    f->job_arg = &x;
    uint32_t job = counted_job(f, p);
    on(f, p[0])->busy = 0.5;
    assert_int_equal(x.begun, 1);
    const uint64_t number = x.v.number;
    ticks(f, 2700);
    assert_in_range(MS(view(f, job).counts.on[0].sampled_ns), 900, 1100);
    end(f, p[0]);
    ticks(f, 100);
    assert_int_equal(x.begun, 1);
    assert_int_equal(x.ended, 1);
    assert_int_equal(x.v.number, number);
    assert_in_range(MS(x.v.counts.on[0].sampled_ns), 1250, 1450);
    assert_true(x.v.counts.on[0].sampled_ns <= x.v.counts.on[0].ran_ns);

    /* One that ends before its first sample: nothing is known of it. */
    mock_context(&f->d, p[0] = child(f), 0, 0);
    add(f, p[0], CLASS_BATCH);
    tick(f);
    end(f, p[0]);
    ticks(f, 100);
    assert_int_equal(x.ended, 2);
    assert_int_equal(x.v.counts.on[0].sampled_ns, 0);
}

ENGINE_TEST(test_where)
{
    uint32_t job = counted_job(f, p);
    ticks(f, 1000);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 2000);
    struct job_view v = view(f, job);
    assert_in_range(MS(v.counts.where_ns[WHERE_PAUSED]), 1980, 2010);
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    ticks(f, 3000);
    v = view(f, job);
    assert_in_range(MS(v.counts.where_ns[WHERE_PAUSED]), 1980, 2010);
    assert_in_range(MS(v.counts.where_ns[WHERE_HERE]), 3980, 4400);
    assert_in_range(MS(v.counts.on[0].ran_ns), 3900, 4100);
    assert_int_equal(v.counts.on[0].waited_ns, 0); /* paused is not waiting for others */
    assert_int_equal(v.counts.on[0].preempted, 0);
    assert_int_equal(v.counts.where_ns[WHERE_SWAPPED] + v.counts.where_ns[WHERE_QUEUED], 0);
}

static uint64_t idle_for(struct fixture *f, unsigned ms)
{
    uint64_t before, after;
    engine_gpu_idle(f->m, 0, &before);
    ticks(f, ms);
    assert_true(engine_gpu_idle(f->m, 0, &after));
    return MS(after - before);
}

/* One of two batch jobs waits for its turn all the time. */
ENGINE_TEST(test_idle_while_waiting)
{
    uint64_t ns;
    f->d.has_usage = true;
    programs(f, p, 3, 1);
    start_counting(f);
    assert_false(engine_gpu_idle(f->m, 0, &ns));
    add(f, p[2], CLASS_LATENCY);
    add(f, p[0], CLASS_BATCH);
    uint32_t job = add(f, p[1], CLASS_BATCH);
    on(f, p[0])->busy = 0.1;
    on(f, p[1])->busy = 0.15;
    on(f, p[2])->busy = 0.05;
    ticks(f, 3500); /* halfway between samples: as many fall within each time that is looked at */
    assert_in_range(idle_for(f, 10000), 6800, 7200);
    on(f, p[0])->busy = 0.8;
    ticks(f, 2000);
    assert_in_range(idle_for(f, 10000), 0, 5); /* all of the time is used */
    /* Samples of which one is missing say nothing. */
    on(f, p[0])->busy = -1;
    ticks(f, 2000);
    assert_int_equal(idle_for(f, 10000), 0);
    /* A paused job does not wait. */
    on(f, p[0])->busy = 0.1;
    ticks(f, 2000);
    assert_in_range(idle_for(f, 5000), 3300, 3700);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 4000); /* the window in which that was has ended */
    assert_int_equal(idle_for(f, 5000), 0);
}

ENGINE_TEST(test_ceiling_is_no_waiting)
{
    f->d.has_usage = true;
    uint32_t job = counted_job(f, p);
    change(f, job,
           (struct job_terms){.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .gpu_max = 30});
    on(f, p[0])->busy = 0.3;
    ticks(f, 3000);
    assert_in_range(idle_for(f, 10000), 0, 0);
    assert_true(view(f, job).counts.on[0].waited_ns > 6 * NSEC_PER_SEC);
}
