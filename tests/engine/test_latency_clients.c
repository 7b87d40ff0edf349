/* A latency job and batch jobs that are clients of one MPS server, and jobs outside of it: the
 * latency job runs always, and the batch clients take turns with the jobs outside
 * (observe/clients.h). */
#include <math.h>

#include "clients.h"

#define EACH_MS 5

enum { SERVE, TRAIN, OUTSIDE, JOBS };

struct jobs {
    pid_t p[JOBS];
    uint32_t job[JOBS];
};

/* A latency and a batch client, and a job outside of that class. */
static struct jobs two_and_one(struct fixture *f, const char *policy, enum job_class outside)
{
    struct jobs j;
    programs(f, j.p, JOBS, 2);
    client_of(f, j.p[SERVE], SERVER);
    client_of(f, j.p[TRAIN], SERVER);
    start(f, policy, NULL);
    j.job[TRAIN] = add(f, j.p[TRAIN], CLASS_BATCH);
    j.job[SERVE] = add(f, j.p[SERVE], CLASS_LATENCY);
    j.job[OUTSIDE] = add(f, j.p[OUTSIDE], outside);
    ticks(f, 100);
    return j;
}

/* Which part of the time the batch client is held. The server is never suspended and the latency
 * job never stopped. */
static double held(struct fixture *f, const struct jobs *j, unsigned ms)
{
    unsigned n = 0;
    for (unsigned t = 0; t < ms; t += EACH_MS) {
        ticks(f, EACH_MS);
        assert_int_equal(suspended_of(f, j->p[SERVE]) + suspended_of(f, j->p[TRAIN]), 0);
        assert_true(on(f, j->p[SERVE])->timeslice_us > 1);
        assert_false(view(f, j->job[SERVE]).signalled);
        n += view(f, j->job[TRAIN]).signalled;
    }
    assert_int_not_equal(state_of(j->p[SERVE]), 'T');
    return n / (double)(ms / EACH_MS);
}

static void weigh(struct fixture *f, uint32_t job, uint32_t weight)
{
    const struct job_terms t = {.class = CLASS_BATCH, .weight = weight};
    assert_int_equal(engine_change(f->m, job, &t, NULL), 0);
}

static void test_turns_by_weight(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    assert_true(fabs(held(f, &j, 20000) - 0.5) < 0.06);
    assert_int_equal(on(f, j.p[OUTSIDE])->timeslice_us, 1);
    assert_int_equal(suspended_of(f, j.p[OUTSIDE]), 0);
    weigh(f, j.job[TRAIN], 300);
    assert_true(fabs(held(f, &j, 40000) - 0.25) < 0.06);
    weigh(f, j.job[OUTSIDE], 900);
    assert_true(fabs(held(f, &j, 40000) - 0.75) < 0.06);
    /* It is said why. */
    while (!view(f, j.job[TRAIN]).signalled)
        ticks(f, EACH_MS);
    struct job_view v = view(f, j.job[TRAIN]);
    assert_int_equal(v.why[0].why, WHY_NEXT);
    assert_int_equal(v.why[0].other, view(f, j.job[OUTSIDE]).number);
    assert_int_equal(v.runnable_groups, 0);
    assert_false(v.stopped);
    end(f, j.p[OUTSIDE]);
    ticks(f, 100);
    assert_true(held(f, &j, 3000) < 0.01);
    assert_true(reaches(j.p[TRAIN], false));
}

/* A normal job comes before the batch client as long as it works. */
static void test_normal_job_outside(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_NORMAL);
    assert_true(held(f, &j, 5000) > 0.99);
    assert_int_equal(view(f, j.job[TRAIN]).why[0].why, WHY_CLASS);
    pause_job(f, j.job[OUTSIDE], true);
    assert_true(held(f, &j, 5000) < 0.01);
    pause_job(f, j.job[OUTSIDE], false);
    ticks(f, 100);
    assert_true(held(f, &j, 5000) > 0.99);
}

/* What the batch client has had is not counted for the latency job's ceiling. */
static void test_ceilings(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    for (int i = SERVE; i <= TRAIN; i++) {
        const struct job_terms t = {.class = i == SERVE ? CLASS_LATENCY : CLASS_BATCH,
                                    .weight = WEIGHT_DEFAULT,
                                    .gpu_max = 50};
        assert_int_equal(engine_change(f->m, j.job[i], &t, NULL), 0);
    }
    ticks(f, 100);
    assert_true(fabs(held(f, &j, 20000) - 0.5) < 0.06);
}

/* Latency jobs outside share the GPU with the server by timeslices. */
static void test_latency_job_outside(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_LATENCY);
    assert_true(held(f, &j, 5000) < 0.01);
    assert_true(on(f, j.p[OUTSIDE])->timeslice_us > 1);
}

static void test_outside_does_nothing(void **state)
{
    struct fixture *f = *state;
    f->d.has_usage = true;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    on(f, j.p[SERVE])->busy = on(f, j.p[TRAIN])->busy = 0.4;
    on(f, j.p[OUTSIDE])->busy = 0;
    ticks(f, 10000);
    assert_true(held(f, &j, 10000) < 0.01);
    on(f, j.p[OUTSIDE])->busy = 0.4;
    ticks(f, 3000);
    assert_true(fabs(held(f, &j, 20000) - 0.5) < 0.06);
}

/* Where there are no turns nobody is held for them. */
static void test_policies_without_turns(void **state)
{
    static const char *const policies[] = {"shares", "static"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *f = *state;
        struct jobs j = two_and_one(f, policies[i], CLASS_BATCH);
        for (unsigned t = 0; t < 5000; t += EACH_MS) {
            ticks(f, EACH_MS);
            assert_false(view(f, j.job[TRAIN]).signalled);
        }
        stop(f, true);
        for (int k = 0; k < JOBS; k++)
            end(f, j.p[k]);
    }
}

/* While the latency job is paused the server is batch, and is treated as one batch job. */
static void test_pause_of_the_latency_job(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    pause_job(f, j.job[SERVE], true);
    assert_true(reaches(j.p[SERVE], true));
    for (int i = 0; i < 100; i++) {
        ticks(f, 100);
        assert_false(view(f, j.job[TRAIN]).signalled);
    }
    assert_int_equal(view(f, j.job[TRAIN]).unit_class, CLASS_BATCH);
    pause_job(f, j.job[SERVE], false);
    assert_true(reaches(j.p[SERVE], false));
    assert_true(fabs(held(f, &j, 20000) - 0.5) < 0.06);
}

/* It ends while the batch client is held. */
static void test_latency_job_ends(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    while (!view(f, j.job[TRAIN]).signalled)
        ticks(f, EACH_MS);
    assert_true(reaches(j.p[TRAIN], true));
    end(f, j.p[SERVE]);
    ticks(f, 100);
    assert_true(reaches(j.p[TRAIN], false));
    ticks(f, 3000);
    assert_false(view(f, j.job[TRAIN]).signalled);
}

/* ceded is killed while the batch client is held, by itself and with its restorer. */
static void test_killed(void **state)
{
    struct fixture *f = *state;
    struct jobs j = two_and_one(f, "laxity", CLASS_BATCH);
    while (!view(f, j.job[TRAIN]).signalled)
        ticks(f, EACH_MS);
    assert_true(reaches(j.p[TRAIN], true));
    crash(f);
    start(f, "laxity", NULL); /* takes all over */
    ticks(f, 100);
    assert_true(fabs(held(f, &j, 20000) - 0.5) < 0.06);
    while (!view(f, j.job[TRAIN]).signalled)
        ticks(f, EACH_MS);
    assert_true(reaches(j.p[TRAIN], true));
    crash_and_undo(f);
    assert_true(reaches(j.p[TRAIN], false));
    assert_int_equal(changed_groups(f), 0);
}

/* The ranks of a job on two GPUs wait for each other. */
static void test_on_two_gpus(void **state)
{
    struct fixture *f = *state;
    struct jobs j;
    programs(f, j.p, JOBS, 2);
    mock_context(&f->d, j.p[TRAIN], 1, 2);
    client_of(f, j.p[SERVE], SERVER);
    client_of(f, j.p[TRAIN], SERVER);
    start(f, "laxity", NULL);
    j.job[TRAIN] = add(f, j.p[TRAIN], CLASS_BATCH);
    j.job[SERVE] = add(f, j.p[SERVE], CLASS_LATENCY);
    j.job[OUTSIDE] = add(f, j.p[OUTSIDE], CLASS_BATCH);
    ticks(f, 100);
    assert_true(held(f, &j, 5000) < 0.01);
}

/* Batch clients that do less together than in turns: with a latency job among them they run
 * together all the same, and it is held for no measurement. */
static void test_no_turns_within(void **state)
{
    struct fixture *f = *state;
    struct jobs j;
    f->d.has_counters = true;
    programs(f, j.p + TRAIN, JOBS - 1, 2);
    for (int i = TRAIN; i < JOBS; i++) {
        client_of(f, j.p[i], SERVER);
        on(f, j.p[i])->uses[i] = 0.5;
        on(f, j.p[i])->uses[PART_DRAM] += 0.1;
        on(f, j.p[i])->together = 0.2;
    }
    start(f, "laxity", NULL);
    j.job[TRAIN] = add(f, j.p[TRAIN], CLASS_BATCH);
    j.job[OUTSIDE] = add(f, j.p[OUTSIDE], CLASS_BATCH);
    ticks(f, 15000);
    assert_true(view(f, j.job[TRAIN]).speed_turns);
    programs(f, j.p + SERVE, 1, 2);
    client_of(f, j.p[SERVE], SERVER);
    j.job[SERVE] = add(f, j.p[SERVE], CLASS_LATENCY);
    ticks(f, 100);
    for (unsigned t = 0; t < 20000; t += EACH_MS) {
        ticks(f, EACH_MS);
        for (int i = 0; i < JOBS; i++)
            assert_false(view(f, j.job[i]).signalled);
    }
    assert_int_equal(suspended_groups(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_turns_by_weight),
        T(test_normal_job_outside),
        T(test_ceilings),
        T(test_latency_job_outside),
        T(test_outside_does_nothing),
        T(test_policies_without_turns),
        T(test_pause_of_the_latency_job),
        T(test_latency_job_ends),
        T(test_killed),
        T(test_on_two_gpus),
        T(test_no_turns_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
