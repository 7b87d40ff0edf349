/* A latency job and batch jobs that are clients of one MPS server, and jobs outside of it: the
 * latency job runs always, and the batch clients take turns with the jobs outside
 * (observe/mps_clients.h). */
#include "clients.h"

#define EACH_MS 5

enum { SERVE, TRAIN, OUTSIDE, JOBS };

/* A latency and a batch client, and a job outside of that class. */
static void two_and_one(struct fixture *f, const char *policy, enum job_class outside)
{
    programs(f, f->p, JOBS, 2);
    client_of(f, f->p[SERVE], SERVER);
    client_of(f, f->p[TRAIN], SERVER);
    start(f, policy, NULL);
    f->job[TRAIN] = add(f, f->p[TRAIN], CLASS_BATCH);
    f->job[SERVE] = add(f, f->p[SERVE], CLASS_LATENCY);
    f->job[OUTSIDE] = add(f, f->p[OUTSIDE], outside);
    ticks(f, 100);
}

static bool train_is_held(struct fixture *f)
{
    return view(f, f->job[TRAIN]).signalled;
}

/* Which part of the time the batch client is held. The server is never suspended and the latency
 * job never stopped. */
static double held(struct fixture *f, unsigned ms)
{
    unsigned n = 0;
    for (unsigned t = 0; t < ms; t += EACH_MS) {
        ticks(f, EACH_MS);
        assert_int_equal(suspended_of(f, f->p[SERVE]) + suspended_of(f, f->p[TRAIN]), 0);
        assert_true(on(f, f->p[SERVE])->timeslice_us > 1);
        assert_false(view(f, f->job[SERVE]).signalled);
        n += train_is_held(f);
    }
    assert_int_not_equal(state_of(f->p[SERVE]), 'T');
    return n / (double)(ms / EACH_MS);
}

static void assert_held(struct fixture *f, unsigned ms, double part)
{
    assert_float_equal(held(f, ms), part, 0.06);
}

static void until_held(struct fixture *f)
{
    while (!train_is_held(f))
        ticks(f, EACH_MS);
}

static void weigh(struct fixture *f, uint32_t job, uint32_t weight)
{
    change(f, job, (struct job_terms){.class = CLASS_BATCH, .weight = weight});
}

ENGINE_TEST(test_turns_by_weight)
{
    two_and_one(f, "laxity", CLASS_BATCH);
    assert_held(f, 20000, 0.5);
    assert_int_equal(on(f, p[OUTSIDE])->timeslice_us, 1);
    assert_int_equal(suspended_of(f, p[OUTSIDE]), 0);
    weigh(f, j[TRAIN], 300);
    assert_held(f, 40000, 0.25);
    weigh(f, j[OUTSIDE], 900);
    assert_held(f, 40000, 0.75);
    /* It is said why. */
    until_held(f);
    struct job_view v = view(f, j[TRAIN]);
    assert_int_equal(v.why[0].why, WHY_NEXT);
    assert_int_equal(v.why[0].other, view(f, j[OUTSIDE]).number);
    assert_int_equal(v.runnable_groups, 0);
    assert_false(v.stopped);
    end(f, p[OUTSIDE]);
    ticks(f, 100);
    assert_true(held(f, 3000) < 0.01);
    assert_true(reaches(p[TRAIN], false));
}

/* A normal job comes before the batch client as long as it works. */
ENGINE_TEST(test_normal_job_outside)
{
    two_and_one(f, "laxity", CLASS_NORMAL);
    assert_true(held(f, 5000) > 0.99);
    assert_int_equal(view(f, j[TRAIN]).why[0].why, WHY_CLASS);
    pause_job(f, j[OUTSIDE], true);
    assert_true(held(f, 5000) < 0.01);
    pause_job(f, j[OUTSIDE], false);
    ticks(f, 100);
    assert_true(held(f, 5000) > 0.99);
}

/* What the batch client has had is not counted for the latency job's ceiling. */
ENGINE_TEST(test_ceilings)
{
    two_and_one(f, "laxity", CLASS_BATCH);
    for (int i = SERVE; i <= TRAIN; i++) {
        change(f, j[i],
               (struct job_terms){.class = i == SERVE ? CLASS_LATENCY : CLASS_BATCH,
                                  .weight = WEIGHT_DEFAULT,
                                  .gpu_max = 50});
    }
    ticks(f, 100);
    assert_held(f, 20000, 0.5);
}

/* Latency jobs outside share the GPU with the server by timeslices. */
ENGINE_TEST(test_latency_job_outside)
{
    two_and_one(f, "laxity", CLASS_LATENCY);
    assert_true(held(f, 5000) < 0.01);
    assert_true(on(f, p[OUTSIDE])->timeslice_us > 1);
}

ENGINE_TEST(test_outside_does_nothing)
{
    f->d.has_usage = true;
    two_and_one(f, "laxity", CLASS_BATCH);
    on(f, p[SERVE])->busy = on(f, p[TRAIN])->busy = 0.4;
    on(f, p[OUTSIDE])->busy = 0;
    ticks(f, 10000);
    assert_true(held(f, 10000) < 0.01);
    on(f, p[OUTSIDE])->busy = 0.4;
    ticks(f, 3000);
    assert_held(f, 20000, 0.5);
}

/* Where there are no turns nobody is held for them. */
ENGINE_TEST(test_policies_without_turns)
{
    two_and_one(f, "shares", CLASS_BATCH);
    for (unsigned t = 0; t < 5000; t += EACH_MS) {
        ticks(f, EACH_MS);
        assert_false(train_is_held(f));
    }
}

/* While the latency job is paused the server is batch, and is treated as one batch job. */
ENGINE_TEST(test_pause_of_the_latency_job)
{
    two_and_one(f, "laxity", CLASS_BATCH);
    pause_job(f, j[SERVE], true);
    assert_true(reaches(p[SERVE], true));
    for (int i = 0; i < 100; i++) {
        ticks(f, 100);
        assert_false(train_is_held(f));
    }
    assert_int_equal(view(f, j[TRAIN]).unit_class, CLASS_BATCH);
    pause_job(f, j[SERVE], false);
    assert_true(reaches(p[SERVE], false));
    assert_held(f, 20000, 0.5);
}

/* It ends while the batch client is held. */
ENGINE_TEST(test_latency_job_ends)
{
    two_and_one(f, "laxity", CLASS_BATCH);
    until_held(f);
    assert_true(reaches(p[TRAIN], true));
    end(f, p[SERVE]);
    ticks(f, 100);
    assert_true(reaches(p[TRAIN], false));
    ticks(f, 3000);
    assert_false(train_is_held(f));
}

/* ceded is killed while the batch client is held, by itself and with its restorer. */
ENGINE_TEST(test_killed)
{
    two_and_one(f, "laxity", CLASS_BATCH);
    until_held(f);
    assert_true(reaches(p[TRAIN], true));
    restart(f, "laxity"); /* takes all over */
    ticks(f, 100);
    assert_held(f, 20000, 0.5);
    until_held(f);
    assert_true(reaches(p[TRAIN], true));
    crash_and_undo(f);
    assert_true(reaches(p[TRAIN], false));
}

/* The ranks of a job on two GPUs wait for each other. */
ENGINE_TEST(test_on_two_gpus)
{
    programs(f, p, JOBS, 2);
    mock_context(&f->d, p[TRAIN], 1, 2);
    client_of(f, p[SERVE], SERVER);
    client_of(f, p[TRAIN], SERVER);
    start(f, "laxity", NULL);
    j[TRAIN] = add(f, p[TRAIN], CLASS_BATCH);
    j[SERVE] = add(f, p[SERVE], CLASS_LATENCY);
    j[OUTSIDE] = add(f, p[OUTSIDE], CLASS_BATCH);
    ticks(f, 100);
    assert_true(held(f, 5000) < 0.01);
}

/* Batch clients that do less together than in turns: with a latency job among them they run
 * together all the same, and it is held for no measurement. */
ENGINE_TEST(test_no_turns_within)
{
    f->d.has_counters = true;
    programs(f, p + TRAIN, JOBS - 1, 2);
    for (int i = TRAIN; i < JOBS; i++) {
        client_of(f, p[i], SERVER);
        on(f, p[i])->uses[i] = 0.5;
        on(f, p[i])->uses[PART_DRAM] += 0.1;
        on(f, p[i])->together = 0.2;
    }
    start(f, "laxity", NULL);
    j[TRAIN] = add(f, p[TRAIN], CLASS_BATCH);
    j[OUTSIDE] = add(f, p[OUTSIDE], CLASS_BATCH);
    ticks(f, 15000);
    assert_true(view(f, j[TRAIN]).speed_turns);
    programs(f, p + SERVE, 1, 2);
    client_of(f, p[SERVE], SERVER);
    j[SERVE] = add(f, p[SERVE], CLASS_LATENCY);
    ticks(f, 100);
    for (unsigned t = 0; t < 20000; t += EACH_MS) {
        ticks(f, EACH_MS);
        for (int i = 0; i < JOBS; i++)
            assert_false(view(f, j[i]).signalled);
    }
    assert_int_equal(suspended_groups(f), 0);
}
