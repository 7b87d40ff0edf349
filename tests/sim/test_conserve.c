/* A GPU is not idle while a job waits, and order still holds, in virtual time: latency jobs that
 * are launch-bound beside batch jobs, and jobs that wait for their hosts. Random mixes of such
 * jobs: test_mixes.c. */
#include "scenario.h"

/* Servers that always have a request: tokens of a language model computed kernel by kernel, a
 * picture network of one picture, a model whose steps are graphs. Where hosts wander, figures are
 * means of RUNS runs. */
#define RUNS 3
#define GENERATE(w)                                                                                \
    .kernel_ns = 9500, .step_kernels = 400, .launch_ns = 48 * US, .host_ns = 500 * US, .wander = w
#define RESNET(w)                                                                                  \
    .kernel_ns = 6600, .step_kernels = 160, .launch_ns = 26 * US, .host_ns = 200 * US, .wander = w
#define GRAPH(us, gap)                                                                             \
    .kernel_ns = (us)*US, .step_kernels = 1, .launch_ns = 10 * US, .host_ns = (gap)*US
/* clang-format off */
#define TRAINING {.class = B, .kernel_ns = 500 * US}
#define RARE     {.class = L, .kernel_ns = 100 * US, .period_ns = 10 * MS}
/* clang-format on */

static struct sim_result simulate(struct sim_scenario s)
{
    s.demand = true;
    return simulate_for(s, 15 * SEC, 5 * SEC);
}

static struct sim_result with_policy(struct sim_scenario s, const char *policy)
{
    s.policy = policy;
    return simulate(s);
}

static const struct server {
    const char *name;
    struct sim_job job;
    double speed, batch; /* that they have at least */
} servers[] = {
    {"generate", {.class = L, GENERATE(0.1)}, 0.95, 0.51},
    {"generate, its host uneven", {.class = L, GENERATE(0.3)}, 0.95, 0.48},
    {"resnet", {.class = L, RESNET(0.1)}, 0.90, 0.46},
    {"resnet, its host uneven", {.class = L, RESNET(0.3)}, 0.87, 0.43},
    {"graph of 1.12 ms", {.class = L, GRAPH(1120, 60)}, 0.87, 0.07},
    {"graph of 2.1 ms", {.class = L, GRAPH(2100, 90)}, 0.87, 0.07},
};

/* A server keeps its floor, batch has what is left, and neither has less than by the driver's
 * default at both. A server that is to keep all has it, and batch then nothing. */
TEST(test_servers)
{
    for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
        const unsigned runs = servers[i].job.wander > 0 ? RUNS : 1;
        double speed = 0, batch = 0, def = 0, def_batch = 0, all = 0, all_batch = 0;
        for (unsigned k = 1; k <= runs; k++) {
            struct sim_scenario s = {.jobs = {servers[i].job}};
            s.jobs[0].seed = 7919 * k;
            double alone = with_policy(s, "laxity").job[0].done * runs;
            s.jobs[1] = (struct sim_job)TRAINING;
            struct sim_result r = with_policy(s, "laxity"), d = with_policy(s, NULL);
            s.jobs[0].min_speed = 1;
            struct sim_result a = with_policy(s, "laxity");
            speed += r.job[0].done / alone;
            batch += r.job[1].done / runs;
            def += d.job[0].done / alone;
            def_batch += d.job[1].done / runs;
            all += a.job[0].done / alone;
            all_batch += a.job[1].done / runs;
        }
        printf("%-26s: %.3f + %.3f (default %.3f + %.3f; all: %.3f + %.3f)\n", servers[i].name,
               speed, batch, def, def_batch, all, all_batch);
        assert_true(speed >= servers[i].speed && batch >= servers[i].batch);
        assert_true(speed >= def || batch >= def_batch);
        assert_true(all >= 0.975 && all_batch < 0.02);
    }
}

/* Such a server between whose requests there are pauses of tenths of a second. Its steps take
 * little longer, and batch has what the pauses leave, however busy the server was before. One that
 * is to keep all has it, and batch still a part of the pauses. */
TEST(servers_pause)
{
    static const struct {
        uint64_t us, gap_us, request_ms;
        uint32_t steps;
    } of[] = {{2050, 140, 400, 128}, {2050, 140, 200, 128}, {2150, 30, 400, 128},
              {2150, 30, 200, 128},  {1600, 600, 200, 128}, {4000, 200, 200, 64}};
    for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
        struct sim_scenario s = {.jobs = {{.class = L,
                                           GRAPH(of[i].us, of[i].gap_us),
                                           .request_ns = of[i].request_ms * MS,
                                           .request_steps = of[i].steps,
                                           .seed = 5}},
                                 .duration_ns = 65 * SEC};
        struct sim_result alone = with_policy(s, "laxity");
        s.jobs[1] = (struct sim_job)TRAINING;
        struct sim_result r = with_policy(s, "laxity");
        s.jobs[0].min_speed = 1;
        struct sim_result all = with_policy(s, "laxity");
        double step = r.job[0].p50_us / alone.job[0].p50_us, left = 1 - alone.job[0].done;
        double kept = all.job[0].p50_us / alone.job[0].p50_us;
        printf("steps of %.2f ms, busy for %.2f: %.2f times as long, batch %.3f; all: %.2f, %.3f\n",
               alone.job[0].p50_us / 1e3, alone.job[0].done, step, r.job[1].done, kept,
               all.job[1].done);
        assert_true(step <= 1.15 && r.job[1].done >= 0.66 * left);
        assert_true(kept <= 1.02 || of[i].gap_us >= 600);
        assert_true(all.job[1].done >= 0.2 * left);
    }
}

/* For requests with pauses nothing changes. */
TEST(test_requests)
{
    static const double hz[] = {100, 500, 2000};
    for (size_t i = 0; i < ARRAY_SIZE(hz); i++) {
        struct sim_scenario s = {.policy = "laxity",
                                 .jobs = {{.class = L,
                                           .kernel_ns = 100 * US,
                                           .period_ns = (uint64_t)(1e9 / hz[i]),
                                           .open_loop = true,
                                           .seed = 1},
                                          TRAINING}};
        struct sim_result r = simulate(s);
        s.jobs[0].min_speed = 1;
        struct sim_result all = simulate(s);
        s.blind = true;
        struct sim_result blind = simulate(s);
        printf("%4.0f requests/s: p99 %.0f us, batch %.3f; without a record %.0f us, %.3f\n", hz[i],
               r.job[0].p99_us, r.job[1].done, blind.job[0].p99_us, blind.job[1].done);
        assert_true(r.job[0].p99_us <= blind.job[0].p99_us + 180);
        assert_true(r.job[1].done >= blind.job[1].done - 0.01);
        assert_true(fabs(all.job[1].done - blind.job[1].done) < 0.01);
    }
}

/* Many jobs that saturate the GPU beside many requests, which leave a quarter of the time to
 * switches: nobody is tried beside another, so a request waits for one switch. */
TEST(many_saturate)
{
    struct sim_scenario s = {.policy = "laxity",
                             .demand = true,
                             .unseen = 0.15,
                             .duration_ns = 40 * SEC,
                             .jobs = {{.class = L, .kernel_ns = 100 * US, .period_ns = 2 * MS}}};
    for (unsigned j = 1; j <= 10; j++)
        s.jobs[j] = (struct sim_job)TRAINING;
    struct sim_result r = simulate(s);
    printf("10 jobs: p99 %.0f us, longest %.0f us\n", r.job[0].p99_us, r.job[0].max_us);
    assert_true(r.job[0].p99_us <= 350);
}

/* A server whose gaps are too short for the shortest slice, as cheap to simulate as one can be. */
#define SHORT_GAPS                                                                                 \
    .class = L, .kernel_ns = 40 * US, .step_kernels = 20, .launch_ns = 200 * US, .host_ns = 500 * US

/* Ten minutes: slices change for references alone, two times each 45 s, once one is found,
 * and for a slice that was barred, each time after twice as long. */
TEST(stable)
{
    static const struct sim_job t[] = {{SHORT_GAPS}, {.class = L, GRAPH(2100, 90)}};
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct sim_scenario s = {.policy = "laxity",
                                 .duration_ns = 600 * SEC,
                                 .jobs = {t[i], {.class = B, .kernel_ns = 20 * MS}}};
        struct sim_result r = simulate(s);
        printf("ten minutes: %u changes of the slice, batch %.3f\n", r.job[1].slices,
               r.job[1].done);
        assert_true(r.job[1].slices >= 2 && r.job[1].slices <= 2 * 600 / 45 + 24);
    }
}

static uint32_t slice_at(struct sim_scenario s, uint64_t at_ns)
{
    s.duration_ns = at_ns;
    return simulate(s).job[1].timeslice_us;
}

/* Slices are compared at first, the shortest by turns with a longer one. */
static bool is_longer_about(struct sim_scenario s, uint64_t until_ns)
{
    return slice_at(s, until_ns) > 1 || slice_at(s, until_ns - 300 * MS) > 1;
}

/* From launch-bound to requests with long pauses and back, each within 2 s. Without a record, or
 * when it ends, the slice is the shortest; gaps in it do no harm. */
TEST(follows)
{
    struct sim_scenario s = {
        .policy = "laxity", .settle_ns = SEC, .jobs = {{SHORT_GAPS}, TRAINING}};
    uint32_t found = slice_at(s, 8 * SEC);
    assert_true(found >= 500);
    struct sim_job *server = &s.jobs[0];
    server->change_ns = 8 * SEC;
    server->then_kernels = 1;
    server->then_host_ns = 20 * MS;
    assert_int_equal(slice_at(s, 10100 * MS), 1);
    server->change_ns = 200 * SEC;
    assert_int_equal(slice_at(s, 202100 * MS), 1);
    server->change_ns = 8 * SEC;
    server->then_kernels = server->step_kernels;
    server->then_host_ns = server->host_ns;
    server->step_kernels = 1;
    server->host_ns = 20 * MS;
    assert_int_equal(slice_at(s, 8 * SEC), 1);
    assert_true(is_longer_about(s, 10 * SEC));
    *server = (struct sim_job){SHORT_GAPS};
    s.lossy = true;
    assert_true(slice_at(s, 8 * SEC) >= 500);
    s.lossy = false;
    s.deaf_ns = 8 * SEC;
    assert_int_equal(slice_at(s, 10500 * MS), 1);
    s.deaf_ns = 1;
    assert_int_equal(slice_at(s, 8 * SEC), 1);
}

#define BURSTS(n, us, host) .class = B, STEPS(n, us, host)
#define STEPS(n, us, host)                                                                         \
    .kernel_ns = (us)*US, .step_kernels = n, .launch_ns = 5 * US, .host_ns = (host)*MS

/* Batch jobs beside a latency job: together they have as much as by the driver's default, or of
 * those that saturate as much as one alone, each the same. */
TEST(batch_jobs)
{
    static const struct {
        const char *name;
        struct sim_job job;
        unsigned n;
        double least;  /* of what the default gives */
        double slices; /* that a request waits for at most */
    } t[] = {
        {"4 ranks in lockstep", {BURSTS(1, 200, 2), .ranks = 4, .lockstep = true}, 1, 0.97, 4},
        {"2 ranks in lockstep", {BURSTS(1, 200, 2), .ranks = 2, .lockstep = true}, 1, 0.95, 2},
        {"4 ranks", {BURSTS(10, 200, 5), .ranks = 4}, 1, 0.9, 4},
        {"4 jobs", {BURSTS(10, 200, 5)}, 4, 0.9, 4},
        {"4 jobs, more than the driver's slice", {BURSTS(10, 210, 5)}, 4, 1.3, 4},
        {"2 that saturate", TRAINING, 2, 1, 1},
        {"4 that saturate", TRAINING, 4, 1, 1},
        {"8 that saturate", TRAINING, 8, 1, 1},
#define LOCKSTEP(n) .ranks = (n), .lockstep = true
        {"4 in lockstep that saturate", {BURSTS(10, 200, 2), LOCKSTEP(4)}, 1, 0.8, 4},
        {"2 in lockstep that saturate", {BURSTS(10, 200, 2), LOCKSTEP(2)}, 1, 0.8, 2},
    };
    struct sim_scenario one = {.jobs = {RARE, TRAINING}};
    double most = with_policy(one, "laxity").job[1].done;
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct sim_scenario s = one;
        double all = 0, all_default = 0, low = 1, high = 0;
        for (unsigned k = 1; k <= t[i].n; k++)
            s.jobs[k] = t[i].job;
        struct sim_result r = with_policy(s, "laxity"), def = with_policy(s, NULL);
        for (unsigned k = 1; k <= t[i].n; k++) {
            all += r.job[k].done;
            all_default += def.job[k].done;
            low = fmin(low, r.job[k].done);
            high = fmax(high, r.job[k].done);
        }
        printf("%-34s: %.3f (default %.3f), each %.3f to %.3f; p50 %.0f us, p99 %.0f us; wasted "
               "%.3f\n",
               t[i].name, all, all_default, low, high, r.job[0].p50_us, r.job[0].p99_us,
               r.gpu_wasted[0]);
        assert_true(all >= t[i].least * all_default);
        assert_true(r.job[0].p99_us <= 152 + t[i].slices * 1302);
        assert_true(high - low <= 0.025 && r.job[0].beyond_us <= 34);
        assert_true(r.gpu_wasted[0] < 0.03);
        assert_true(t[i].job.step_kernels || all >= most - 0.01);
    }
}

/* clang-format off */
#define TIMES(from, to)  .policy = "laxity", .settle_ns = (from) * SEC, .duration_ns = (to) * SEC
#define BATCH_OF(a, ...) {.class = B, .kernel_ns = 500 * US, .account = (a), __VA_ARGS__}

static const struct sim_row lower_jobs[] = {
    {"a light normal job, alone in its class, lets batch jobs run, in turns",
     {TIMES(8, 40), .jobs = {RARE, {.class = N, STEPS(1, 300, 10)}, BATCH_OF(1), BATCH_OF(2)}},
     .job = {[1].lo = 0.9 * 0.3 / 10.3, [2] = {.lo = 0.43, .hi = 0.46}, [3] = {.lo = 0.43, .hi = 0.46}},
     .wasted = 0.03},
    {"one that saturates does not",
     {TIMES(8, 40), .jobs = {RARE, {.class = N, .kernel_ns = 300 * US}, BATCH_OF(1), {BURSTS(3, 610, 3)}}},
     .job = {[1].lo = 0.9, [2].hi = 0.01, [3].hi = 0.01}},
    /* Longer than a slice of a trial, and seldom. */
    {"one with bursts of 3 ms in 50 does",
     {TIMES(8, 40), .jobs = {RARE, {.class = N, STEPS(3, 980, 48)}, BATCH_OF(1), BATCH_OF(2)}},
     .job = {[2].lo = 0.35, [3].lo = 0.35}, .wasted = 0.03},
    {"light batch jobs, also in lockstep, share what it leaves; it keeps most of its speed",
     {TIMES(8, 40), .jobs = {RARE, {.class = N, STEPS(1, 600, 4), .ranks = 2},
                             {BURSTS(2, 400, 6), .ranks = 2, .lockstep = true},
                             {BURSTS(1, 500, 8), .account = 2}}},
     .job = {[1].lo = 0.8 * 1.2 / 4.6, [2].lo = 0.7 * 1.6 / 6.8, [3].lo = 0.7 * 0.5 / 8.5}, .wasted = 0.03},
    {"weights of 300 and 100 beside a light job",
     {TIMES(6, 30), .jobs = {RARE, BATCH_OF(0, .weight = 300), BATCH_OF(0, .weight = 100), {BURSTS(1, 200, 5)}}},
     .job = {[1] = {.lo = 0.62, .hi = 0.66}, [2] = {.lo = 0.2, .hi = 0.23}, [3].lo = 0.8 * 0.2 / 5.2}},
    {"two jobs of an account and one of another",
     {TIMES(6, 30), .jobs = {RARE, BATCH_OF(0), BATCH_OF(0), BATCH_OF(1)}},
     .job = {[1] = {.lo = 0.23, .hi = 0.27}, [2] = {.lo = 0.23, .hi = 0.27}, [3] = {.lo = 0.45, .hi = 0.52}}},
};
/* clang-format on */

TEST(lower_jobs_share)
{
    sim_table(lower_jobs, ARRAY_SIZE(lower_jobs), simulate);
}
