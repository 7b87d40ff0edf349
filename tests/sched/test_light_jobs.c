/* What is told from the record of switches (switch_record.h, light_jobs.h, speed_floor.h): what a
 * review found, with records made by hand. */
#include "fixture.h"
#include "plan/sched_impl.h"

#include <math.h>

/* A job with as many groups, each in a process of its own. */
static void add(struct sched *c, uint32_t job, enum job_class class, uint32_t group, uint32_t n)
{
    EVENT(c, JOB_ADD, .job = job, .class = class, .weight = WEIGHT_DEFAULT);
    for (uint32_t g = group; g < group + n; g++)
        EVENT(c, GROUP_ADD, .job = job, .group = g, .process = g, .computes = true);
}

static void switched(struct sched *c, uint32_t group, uint64_t at_ns)
{
    EVENT(c, SWITCH, .group = group, .at_ns = at_ns);
}

/* A context that was light beside another, is alone beside a latency job since, and saturates the
 * GPU, has the shortest slice. */
TEST(light_is_forgotten)
{
    struct sched *c = scheduler(1, 8, 8);
    struct sched_plan plan;
    uint64_t now = SEC;
    add(c, 0, CLASS_LATENCY, 0, 1);
    add(c, 1, CLASS_BATCH, 1, 1);
    add(c, 2, CLASS_BATCH, 2, 1);
    for (uint32_t job = 1; job <= 2; job++) /* turns leave the GPU idle */
        EVENT(c, DEMAND, .job = job, .on = true, .busy = 0.2);
    for (int i = 0; i < 4000; i++, now += 4 * MS) {
        switched(c, 1, now);
        switched(c, 2, now + 200 * US);
        if (i % 12 == 0)
            sched_decide(c, now, &plan);
    }
    assert_true(c->groups[1].light);
    EVENT(c, JOB_REMOVE, .job = 2);
    for (int i = 0; i < 30000; i++, now += 2 * MS) { /* for a minute */
        switched(c, 1, now + 100 * US);
        switched(c, 0, now + 2 * MS);
        if (i % 25 == 0)
            sched_decide(c, now, &plan);
    }
    printf("slice %u us, in runs %.3f s, idle %.3f s\n", c->groups[1].slice_us,
           c->groups[1].use.run_s, c->groups[1].use.idle_s);
    assert_true(c->groups[1].slice_us == 1);
    sched_free(c);
}

/* The jobs 1 to n have the engine by turns, as they are on the run list, each until its slice or
 * its piece of work ends; there is more work at once. */
static uint64_t contend(struct sched *c, uint32_t n, double work_us, uint64_t now, uint64_t end)
{
    struct sched_plan plan;
    double left_us[8] = {0};
    for (unsigned i = 0; now < end; i++) {
        for (uint32_t g = 1; g <= n; g++) {
            const double slice_us = c->groups[g].slice_us;
            if (!c->groups[g].runs)
                continue;
            left_us[g] = left_us[g] > 0 ? left_us[g] : work_us;
            switched(c, g, now);
            now += (uint64_t)(1e3 * fmin(left_us[g], slice_us + 50) + 65e3);
            left_us[g] -= slice_us;
        }
        if (i % 20 == 0)
            sched_decide(c, now, &plan);
    }
    return now;
}

/* Jobs that were light beside each other and now contend are light no more: soon if their runs end
 * with their slices, and after a while if nothing shows whether they want the engine. */
TEST(light_is_revised)
{
    static const struct {
        const char *what;
        uint32_t jobs;
        double work_us;
        uint32_t within_s;
    } v[] = {
        {"two that saturate the GPU", 2, 1e12, 2},
        {"three that saturate the GPU", 3, 1e12, 3},
        {"two with work for nearly a slice", 2, 1000, 40},
    };
    unsigned wrong = 0;
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        struct sched *c = scheduler(1, 8, 8);
        struct sched_plan plan;
        uint64_t now = SEC;
        uint32_t light = 0, revised = 0;
        add(c, 0, CLASS_LATENCY, 0, 1);
        for (uint32_t job = 1; job <= v[i].jobs; job++) {
            add(c, job, CLASS_BATCH, job, 1);
            EVENT(c, DEMAND, .job = job, .on = true, .busy = 0.2);
        }
        for (uint32_t k = 0; k < 4000; k++, now += 7 * MS) {
            switched(c, 1 + k % v[i].jobs, now); /* which has it until another wants it */
            if (k % 12 == 0)
                sched_decide(c, now, &plan);
        }
        for (uint32_t g = 1; g <= v[i].jobs; g++)
            light += c->groups[g].light && c->groups[g].slice_us == LIGHT_MOST_US;
        for (uint32_t job = 1; job <= v[i].jobs; job++)
            EVENT(c, DEMAND, .job = job, .on = true, .busy = 0.9 / v[i].jobs);
        contend(c, v[i].jobs, v[i].work_us, now, now + v[i].within_s * SEC);
        for (uint32_t g = 1; g <= v[i].jobs; g++)
            revised += !c->groups[g].light;
        printf("%s: %u were light, %u are no more\n", v[i].what, light, revised);
        wrong += light != v[i].jobs || revised != v[i].jobs;
        sched_free(c);
    }
    assert_int_equal(wrong, 0);
}

/* What a context does while it is alone is not counted: only time beside others is. */
TEST(counts_beside_only)
{
    struct sched_params p;
    struct runs r = {.known = true, .group = 1};
    struct context_use u = {0};
    double before = 0;
    params_default(&p);
    runs_company(&u, true, SEC);
    for (uint64_t ns = SEC + 10 * MS; ns < 3 * SEC; ns += MS) {
        if (ns == SEC + 20 * MS)
            runs_company(&u, false, ns);
        runs_begin(&r, 1, &u, ns);
        runs_end(&p, &r, &(struct run){.slice_us = 500}, &u, ns + 500 * US);
        before = ns < SEC + 20 * MS ? u.run_s : before;
    }
    printf("%.4f s, then %.4f s\n", before, u.run_s);
    assert_true(before > 0.004 && u.run_s - before < 0.001);
}

/* The most contexts of one job of so many that are tried at once, in 20 s in which turns leave the
 * GPU idle. */
static uint32_t tried_at_once(uint32_t contexts)
{
    struct sched *c = scheduler(1, 8, 1024);
    uint32_t most = 0;
    add(c, 0, CLASS_LATENCY, 0, 1);
    add(c, 1, CLASS_BATCH, 1, contexts);
    EVENT(c, DEMAND, .job = 1, .on = true, .busy = 0.2);
    for (uint32_t i = 0; i < 2000; i++) {
        struct sched_plan plan;
        uint32_t n = 0;
        switched(c, i % 2, SEC + i * 10 * MS);
        sched_decide(c, SEC + i * 10 * MS + MS, &plan);
        for (size_t k = 0; k < plan.n; k++)
            n += plan.settings[k].runnable && plan.settings[k].timeslice_us == TRY_SLICE_US;
        most = n > most ? n : most;
    }
    sched_free(c);
    return most;
}

/* So many contexts of one job do not all run beside a latency job at once. */
TEST(try_is_bounded)
{
    uint32_t few = tried_at_once(4), many = tried_at_once(1000);
    printf("of 4 contexts %u are tried at once, of 1000 %u\n", few, many);
    assert_int_equal(few, 4);
    assert_true(many <= 64);
}

/* Beside a job that is tried one context of another runs, with the shortest slice; each of the two
 * is tried. */
TEST(try_has_a_witness)
{
    struct sched *c = scheduler(1, 8, 8);
    uint32_t tries[3] = {0};
    add(c, 0, CLASS_LATENCY, 0, 1);
    add(c, 1, CLASS_BATCH, 1, 1);
    add(c, 2, CLASS_BATCH, 2, 3);
    for (uint32_t job = 1; job <= 2; job++)
        EVENT(c, DEMAND, .job = job, .on = true, .busy = 0.35);
    for (uint32_t i = 0; i < 2000; i++) {
        struct sched_plan plan;
        uint32_t tried = 0, shortest = 0;
        switched(c, i % 2, SEC + i * 10 * MS);
        sched_decide(c, SEC + i * 10 * MS + MS, &plan);
        for (uint32_t g = 1; g < 5; g++) {
            tried += c->groups[g].runs && c->groups[g].slice_us == TRY_SLICE_US;
            shortest += c->groups[g].runs && c->groups[g].slice_us == 1;
        }
        if (!tried)
            continue;
        assert_int_equal(shortest, 1);
        assert_true(tried == 1 || tried == 3);
        tries[tried == 1 ? 1 : 2]++;
    }
    printf("tried in %u and %u of 2000 plans\n", tries[1], tries[2]);
    assert_true(tries[1] && tries[2]);
    sched_free(c);
}

/* Contexts in turn, each for its slice of 0.5 ms: what that shows of the first, which comes back as
 * soon as it can. */
static struct context_use in_turn(uint32_t contexts)
{
    struct sched_params p;
    struct runs r = {.known = true};
    struct context_use u = {0}, other = {0};
    uint64_t ns = SEC + 10 * MS;
    params_default(&p);
    runs_company(&u, true, SEC);
    for (uint32_t i = 0; i < 100; i++, ns += 500 * US) {
        struct context_use *use = i % contexts ? &other : &u;
        runs_begin(&r, i % contexts, use, ns);
        runs_end(&p, &r, &(struct run){.slice_us = 500}, use, ns + 500 * US);
    }
    return u;
}

/* Where two others have had the engine meanwhile, a pause of a context tells nothing. */
TEST(unclear_is_not_counted)
{
    struct context_use two = in_turn(2), three = in_turn(3);
    assert_true(two.runs > 40 && two.idle_s == 0 && two.run_s > 0.02);
    assert_int_equal(three.runs, 0);
}

static double between(double a, double b)
{
    return a + (b - a) * rand() / RAND_MAX;
}

/* Which lower jobs' runs are as short as can be because the latency job waits for each to end, by
 * lengths as seen on an H100. */
TEST(who_waits)
{
    static const struct {
        const char *what;
        double given[2], taken[2]; /* lengths of runs, between these, in us */
        double period_us;          /* of requests; 0: the latency job always waits */
        bool saturated;
    } v[] = {
        {"generate()", {150, 168}, {67, 220}, 0, true},
        {"ResNet-50", {116, 124}, {150, 250}, 0, true},
        {"ResNet-50, kernels of 0.2 ms", {157, 169}, {150, 250}, 0, true},
        {"equal kernels", {96, 99}, {100, 101}, 0, true},
        {"2000 requests per second", {0, 0}, {163, 165}, 500, false},
        {"2000 requests of several lengths", {0, 0}, {140, 190}, 500, false},
        {"1500 requests per second", {0, 0}, {160, 168}, 667, false},
    };
    struct sched_params p;
    params_default(&p);
    srand(1);
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        struct runs r = {.known = true, .since_ns = SEC};
        uint64_t at = SEC;
        double due_us = 0, now_us = 0;
        for (unsigned k = 0; k < 2000; k++) {
            double taken = between(v[i].taken[0], v[i].taken[1]);
            double given = between(v[i].given[0], v[i].given[1]);
            if (k == 1000) /* the lower job has nothing for a moment */
                taken += 166000;
            if (v[i].period_us > 0) { /* the host wakes some microseconds late */
                due_us = fmax(due_us + v[i].period_us, now_us);
                given = fmax(due_us + between(0, 10) - now_us - 166, 100);
            }
            now_us += given + taken + 166;
            const struct run lower = {false, 1}, latency = {true, 1000000};
            runs_end(&p, &r, &lower, NULL, at += (uint64_t)(1000 * given));
            runs_end(&p, &r, NULL, NULL, at += 83000);
            runs_end(&p, &r, &latency, NULL, at += (uint64_t)(1000 * taken));
            runs_end(&p, &r, NULL, NULL, at += 83000);
        }
        double work = (v[i].taken[0] + v[i].taken[1]) / 2 - 64.8;
        double cycle = work + 64.8 + 166 + (v[i].given[0] + v[i].given[1]) / 2;
        double rate = work / (v[i].period_us > 0 ? v[i].period_us : cycle);
        printf("%s: %d, %.3f of the time, %.3f\n", v[i].what, tally_is_saturated(&r.tally),
               tally_rate(&r.tally), rate);
        assert_int_equal(tally_is_saturated(&r.tally), v[i].saturated);
        assert_true(fabs(tally_rate(&r.tally) - rate) < 0.03 * rate);
    }
}

/* References and refused steps cost lower jobs little, also where the load of the latency job goes
 * up and down. */
TEST(references_are_rare)
{
    struct sched_params p;
    struct speed_floor s = {0};
    struct runs r = {.known = true};
    unsigned changes = 0, shortest = 0, was = 0;
    const unsigned n = 12000; /* looks, one each 50 ms */
    double load = 1;
    params_default(&p);
    srand(1);
    for (unsigned i = 0; i < n; i++) {
        uint64_t now = SEC + i * 50 * MS;
        if (i % 10 == 0)
            load = 1 + 0.3 * (2.0 * rand() / RAND_MAX - 1);
        struct speed_slice d = speed_floor_decide(&p, &s, &r, 0.9, now);
        changes += d.slice_us != was;
        was = d.slice_us;
        shortest += d.slice_us == 1;
        if (r.from_ns == TIME_NEVER || now < r.from_ns)
            continue;
        struct tally *t = &r.tally;
        t->seconds += 0.05;
        t->parts[t->nparts++ % TALLY_PARTS] = (float)(0.3 * load * (1 - 3e-5 * d.slice_us));
        t->returns += 40;
        t->cut += d.slice_us == 1 ? 40 : 20;
        t->lower += 40;
        t->lower_s += 0.05 * (d.slice_us == 1 ? 0.12 : 0.2 + 3e-4 * d.slice_us);
    }
    printf("%.1f changes a minute, %.3f of the time at the shortest slice\n", changes / 10.0,
           shortest / (double)n);
    assert_true(shortest < n / 8);
}

/* A burst that costs latency jobs no more than they may lose is followed by no moment in which
 * lower jobs are suspended. */
TEST(throttled_for_a_while)
{
    struct sched_params p;
    struct runs r = {.known = true,
                     .tally = {.seconds = 0.2, .lower_s = 0.04, .parts = {0.8F}, .nparts = 1}};
    struct speed_floor s = {
        .phase = SPEED_BURST, .launch_bound = true, .alone = 0.8, .reference_ns = TIME_NEVER};
    params_default(&p);
    s.changed_ns = s.told_ns = SEC;
    struct speed_slice d = speed_floor_decide(&p, &s, &r, 0.9, SEC + 200 * MS);
    assert_true(d.wake_ns > SEC + 200 * MS);
    assert_false(d.blocked);
}

/* Once latency jobs are to keep all of their speed, lower jobs have the shortest slice at once. */
TEST(all_of_the_speed)
{
    struct sched_params p;
    struct runs r = {.known = true};
    params_default(&p);
    for (uint32_t k = 0; k < 2; k++) {
        struct speed_floor s = {.phase = k ? SPEED_COMPARE : SPEED_STAYS,
                                .step = 3,
                                .longer = true,
                                .launch_bound = true,
                                .part = 1,
                                .reference_ns = TIME_NEVER,
                                .told_ns = SEC};
        assert_true(speed_floor_decide(&p, &s, &r, 0.9, SEC).slice_us > 1);
        assert_int_equal(speed_floor_decide(&p, &s, &r, 1, SEC).slice_us, 1);
    }
}
