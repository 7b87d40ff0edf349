/* Latency jobs that report deadlines, ordered by slack (plan/latency_order.h) and by weight, in
 * virtual time with the price of switches and control calls, and with reports that the daemon reads
 * every 2 ms. Random mixes, from fixed seeds. */
#include "scenario.h"

static struct sim_result simulate(struct sim_scenario s, const char *policy)
{
    s.policy = policy;
    s.report_ns = 2 * MS;
    return simulate_for(s, 20 * SEC, SEC / 2);
}

static struct sim_job server(double ms, double load, double due_ms, uint64_t seed)
{
    return (struct sim_job){.class = L,
                            .kernel_ns = (uint64_t)(ms * 1e6),
                            .period_ns = (uint64_t)(ms / load * 1e6),
                            .due_ns = (uint64_t)(due_ms * 1e6),
                            .open_loop = true,
                            .seed = seed};
}

static void show(const char *name, const struct sim_scenario *s, const struct sim_result *a,
                 const struct sim_result *b)
{
    printf("%s\n", name);
    for (unsigned j = 0; s->jobs[j].kernel_ns; j++)
        printf(
            "  %7.2f ms: by weight p50 %8.0f p99 %8.0f us, late %5u of %5u, share %.3f; by slack "
            "p50 %8.0f p99 %8.0f us, late %5u of %5u, share %.3f\n",
            (double)s->jobs[j].kernel_ns / 1e6, a->job[j].p50_us, a->job[j].p99_us, a->job[j].late,
            a->job[j].requests, a->job[j].share, b->job[j].p50_us, b->job[j].p99_us, b->job[j].late,
            b->job[j].requests, b->job[j].share);
    printf("  calls per second: %.1f, %.1f\n", (double)a->calls * 1e9 / (double)s->duration_ns,
           (double)b->calls * 1e9 / (double)s->duration_ns);
}

/* A heavier and a lighter model, and training that has what they leave. */
TEST(two_servers)
{
    unsigned late_by_weight = 0, late = 0;
    for (int load = 1; load <= 5; load++) {
        struct sim_scenario s = {.duration_ns = 60 * SEC,
                                 .jobs = {server(40, 0.1 * load, 120, 1),
                                          server(8, 0.06 * load, 24, 2),
                                          {.class = CLASS_BATCH, .kernel_ns = MS}}};
        struct sim_result a = simulate(s, "priority"), b = simulate(s, "laxity");
        show("two servers", &s, &a, &b);
        for (unsigned j = 0; j < 2; j++) {
            assert_true(b.job[j].late <= a.job[j].late);
            assert_true(fabs(b.job[j].share - a.job[j].share) < 0.002);
            late_by_weight += a.job[j].late;
            late += b.job[j].late;
        }
        /* From 80 % on the training is throttled in either case (sched/throttle.h). */
        assert_true(load == 5 || b.job[2].share > a.job[2].share - 0.001);
        assert_true(b.calls < 10 * 60);
    }
    printf("late: %u by weight, %u by slack\n", late_by_weight, late);
    assert_true(late * 2 < late_by_weight);
}

/* Requests that are over within a timeslice: no control calls are made for them. */
TEST(test_short)
{
    struct sim_scenario s = {.jobs = {server(0.1, 0.3, 1, 1), server(3, 0.5, 5, 2)}};
    struct sim_result a = simulate(s, "priority"), b = simulate(s, "laxity");
    show("short requests", &s, &a, &b);
    assert_int_equal(a.calls, b.calls);
    assert_int_equal(a.job[0].late, b.job[0].late);
    assert_int_equal(a.job[1].late, b.job[1].late);
}

static double uniform(uint64_t *x)
{
    *x = *x * 6364136223846793005U + 1442695040888963407U;
    return (double)(*x >> 11) / 9007199254740992.0;
}

TEST(test_mixes)
{
    unsigned fewer = 0, more = 0, same = 0, weight = 0, slack = 0, requests = 0;
    double most = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t x = seed;
        struct sim_scenario s = {.jobs = {{0}}};
        unsigned n = 2 + (unsigned)(uniform(&x) * 3);
        double load = 0.4 + 0.5 * uniform(&x);
        for (unsigned j = 0; j < n; j++) {
            double ms = 2 * (1 + 24 * uniform(&x) * uniform(&x));
            s.jobs[j] = server(ms, load / n, ms * (2 + 4 * uniform(&x)), seed * 100 + j);
        }
        struct sim_result a = simulate(s, "priority"), b = simulate(s, "laxity");
        unsigned la = 0, lb = 0, q = 0;
        for (unsigned j = 0; j < n; j++) {
            double loses = (double)b.job[j].late / b.job[j].requests -
                           (double)a.job[j].late / a.job[j].requests;
            most = loses > most ? loses : most;
            la += a.job[j].late;
            lb += b.job[j].late;
            q += b.job[j].requests;
        }
        fewer += lb < la;
        more += lb > la;
        same += la == lb;
        weight += la;
        slack += lb;
        requests += q;
        if (lb > la)
            show("more are late", &s, &a, &b);
    }
    printf("%u fewer, %u more, %u same; late of %u: %u by weight, %u by slack; of a job at most "
           "%.3f more\n",
           fewer, more, same, requests, weight, slack, most);
    assert_true(fewer >= 95 && more <= 1);
    assert_true(slack < 0.55 * weight);
}
