/* What share of a GPU a job is told it can expect, from what others used. */
#include "fixture.h"

static uint32_t share(const struct fixture *f, pid_t pid)
{
    return engine_job_share(f->m, engine_job_of(f->m, pid), pid);
}

/* Their programs report so much of the GPU in the next second. */
static void use(struct fixture *f, const pid_t *p, unsigned n, const double *busy)
{
    for (unsigned i = 0; i < n; i++)
        on(f, p[i])->busy = busy[i];
    engine_watch(f->m);
    ticks(f, 2100);
}

ENGINE_TEST(test_classes_and_weights)
{
    enum { LATENCY, A, B, BATCH, N };
    f->d.has_usage = true;
    programs(f, p, N, 0);
    start(f, "priority", NULL);
    add(f, p[LATENCY], CLASS_LATENCY);
    uint32_t a = add(f, p[A], CLASS_NORMAL);
    add(f, p[B], CLASS_NORMAL);
    add(f, p[BATCH], CLASS_BATCH);
    assert_int_equal(engine_job_share(f->m, SLOT_NONE, p[A]), 0);
    /* Idle peers take nothing, and nothing of a lower class counts. */
    use(f, p, N, (double[]){0, 0, 0, 0.9});
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(share(f, p[i]), 1000);
    /* A higher class comes off; peers leave what they do not use, and half at least. */
    use(f, p, N, (double[]){0.2, 0.3, 0.1, 0});
    assert_int_equal(share(f, p[LATENCY]), 1000);
    assert_int_equal(share(f, p[A]), 700);
    assert_int_equal(share(f, p[B]), 500);
    assert_int_equal(share(f, p[BATCH]), 400);
    use(f, p, N, (double[]){0.2, 0, 0.8, 0});
    assert_int_equal(share(f, p[A]), 400);
    assert_int_equal(share(f, p[BATCH]), 1); /* never 0 */
    struct job_terms t = {.class = CLASS_NORMAL, .weight = 3 * WEIGHT_DEFAULT};
    change(f, a, t);
    assert_int_equal(share(f, p[A]), 600);
    t.gpu_max = 30;
    change(f, a, t);
    assert_int_equal(share(f, p[A]), 300);
    t = (struct job_terms){.class = CLASS_NORMAL, .weight = 1, .gpu_min = 25};
    change(f, a, t);
    assert_int_equal(share(f, p[A]), 250);
}

/* Users share first, then the jobs of each. */
ENGINE_TEST(test_accounts)
{
    f->d.has_usage = true;
    programs(f, p, 4, 0);
    start(f, "priority", NULL);
    for (unsigned i = 0; i < 4; i++)
        add_as(f, p[i], CLASS_LATENCY, i == 0 ? 1 : 2);
    use(f, p, 4, (double[]){0.5, 0.2, 0.2, 0.1});
    assert_int_equal(share(f, p[0]), 500);
    assert_int_equal(share(f, p[1]), 200); /* what the others leave: more than its sixth */
    assert_int_equal(share(f, p[3]), 167);
}
