/* Jobs on several GPUs whose ranks wait for each other (gangs), in virtual time: what becomes of
 * them when each GPU decides by itself, and what they get under cede: their fair part, by weight
 * over GPU time, whatever is beside them. The fair part is worked out here, from capacities alone.
 */
#include "scenario.h"

/* A gang on these GPUs; a job of one GPU; a latency job. */
/* clang-format off */
#define GANG(map, ...) {.class = B, .kernel_ns = 2 * MS, .sync_ns = MS, .gpus = map, __VA_ARGS__}
#define ONE(gpu, ...)  {.class = B, .kernel_ns = 3 * MS, .gpus = 1U << (gpu), __VA_ARGS__}
#define LAT(gpu)       {.class = L, .kernel_ns = 100 * US, .period_ns = 10 * MS, .gpus = 1U << (gpu)}
/* clang-format on */

static struct sim_result simulate(struct sim_scenario s)
{
    s.policy = s.policy ? s.policy : "laxity";
    return simulate_for(s, 20 * SEC, SEC);
}

static uint32_t width(const struct sim_job *j)
{
    return (uint32_t)__builtin_popcount(j->gpus);
}

/* Whether it is there to the end and works: the others count for nothing. */
static bool stays(const struct sim_scenario *s, const struct sim_job *j)
{
    return j->class != L && !j->leave_ns && !(j->idle_ns && j->busy_ns > s->duration_ns);
}

/* The part of the time that each job below the latency class has its turn, if GPU time is shared
 * fairly by weight: all levels rise together, and a job stays where it is once one of its GPUs is
 * full (max-min fairness). Holds where gangs that do not overlap can always run at the same time:
 * GPUs in a row, each gang on neighbours. */
static void fair_parts(const struct sim_scenario *s, double *part)
{
    double left[SIM_GPUS_MAX];
    bool full[SIM_JOBS_MAX] = {false};
    for (uint32_t g = 0; g < SIM_GPUS_MAX; g++)
        left[g] = 1;
    for (bool rising = true; rising;) {
        double step = INFINITY, speed[SIM_GPUS_MAX] = {0};
        for (uint32_t j = 0; s->jobs[j].kernel_ns; j++) {
            const struct sim_job *x = &s->jobs[j];
            for (uint32_t g = 0; g < s->gpus && stays(s, x) && !full[j]; g++)
                speed[g] += x->gpus >> g & 1 ? (x->weight ? x->weight : 100.0) / width(x) : 0;
        }
        for (uint32_t g = 0; g < s->gpus; g++)
            step = speed[g] > 0 ? fmin(step, left[g] / speed[g]) : step;
        rising = isfinite(step);
        for (uint32_t g = 0; g < s->gpus && rising; g++)
            left[g] -= step * speed[g];
        for (uint32_t j = 0; s->jobs[j].kernel_ns && rising; j++) {
            const struct sim_job *x = &s->jobs[j];
            if (!stays(s, x) || full[j])
                continue;
            part[j] += step * (x->weight ? x->weight : 100.0) / width(x);
            for (uint32_t g = 0; g < s->gpus; g++)
                full[j] |= (x->gpus >> g & 1) && left[g] < 1e-9;
        }
    }
}

/* What a job gets done with nobody beside it but the latency jobs. */
static double alone(const struct sim_scenario *s, uint32_t job)
{
    struct sim_scenario t = {.gpus = s->gpus, .duration_ns = 4 * SEC};
    uint32_t n = 1;
    t.jobs[0] = s->jobs[job];
    t.jobs[0].come_ns = t.jobs[0].pause_ns = t.jobs[0].idle_ns = 0;
    for (uint32_t j = 0; s->jobs[j].kernel_ns; j++) {
        if (s->jobs[j].class == L)
            t.jobs[n++] = s->jobs[j];
    }
    return simulate(t).job[0].done;
}

static double latency_alone(void)
{
    return simulate((struct sim_scenario){.gpus = 1, .jobs = {LAT(0)}}).job[0].p99_us;
}

/* Each job has 0.9 of its fair part, each latency job its latency, and no GPU that a job of its own
 * is on idles. Says how many of these are not so. */
static unsigned check(const char *name, const struct sim_scenario *s, double p99)
{
    struct sim_result r = simulate(*s);
    double part[SIM_JOBS_MAX] = {0}, used[SIM_GPUS_MAX] = {0}, got[SIM_JOBS_MAX] = {0};
    bool single[SIM_GPUS_MAX] = {false};
    unsigned bad = 0;
    fair_parts(s, part);
    printf("%-46s", name);
    for (uint32_t j = 0; s->jobs[j].kernel_ns; j++) {
        const struct sim_job *x = &s->jobs[j];
        if (x->class == L) {
            bad += r.job[j].p99_us > p99 + 220 || r.job[j].requests < 100;
            printf(" L%.0f", r.job[j].p99_us);
        }
        if (!stays(s, x))
            continue;
        got[j] = r.job[j].done / alone(s, j);
        for (uint32_t g = 0; g < s->gpus; g++) {
            used[g] += x->gpus >> g & 1 ? got[j] : 0;
            single[g] |= x->gpus == 1U << g;
        }
    }
    for (uint32_t j = 0; s->jobs[j].kernel_ns; j++) {
        if (!stays(s, &s->jobs[j]))
            continue;
        bool ok = got[j] >= 0.9 * part[j];
        printf(" %x:%.3f/%.3f%s", s->jobs[j].gpus, got[j], part[j], ok ? "" : "<--");
        bad += !ok;
    }
    for (uint32_t g = 0; g < s->gpus; g++) {
        if (single[g] && used[g] < 0.92) {
            printf(" GPU %u idles: %.3f", g, used[g]);
            bad++;
        }
    }
    printf(" skew %.2f ms%s\n", (double)r.skew_ns / 1e6, bad ? "  <-- WRONG" : "");
    return bad + (r.skew_ns > (s->gpus > 4 ? 2500 * US : 2 * MS));
}

/* ---- what gangs are, without any scheduler ---- */

struct pair {
    struct fabric f;
    uint32_t group[2][2]; /* [gang][GPU] */
    uint64_t steps[2], submitted[2][2];
    uint64_t now;
};

static void pair_submit(struct pair *p, uint32_t gang, uint32_t g)
{
    struct softgpu_kernel k = {.duration_ns = MS,
                               .sm_fraction = 1,
                               .cookie = gang,
                               .ranks = 2,
                               .collective = (uint64_t)(gang + 1) << 40 | p->submitted[gang][g]++};
    assert_int_equal(softgpu_submit(p->f.engines[g], p->group[gang][g], &k, p->now), 0);
}

static void pair_run(struct pair *p, uint64_t until)
{
    struct softgpu_completion c;
    while (p->now < until) {
        uint64_t next = fabric_next_event_ns(&p->f);
        p->now = next < until ? next : until;
        fabric_advance(&p->f, p->now);
        for (uint32_t g = 0; g < 2; g++) {
            while (softgpu_pop_completion(p->f.engines[g], &c)) {
                p->steps[c.cookie] += g == 0;
                pair_submit(p, (uint32_t)c.cookie, g);
            }
        }
    }
}

/* Two gangs on two GPUs that give each its turn of 200 ms, the second GPU so much later than the
 * first. The part of the time in which either gets on. */
static double turns(uint64_t later_ns)
{
    struct softgpu_params params;
    struct pair p = {.f.n = 2};
    softgpu_params_h200(&params);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(softgpu_new(&params, 4, 64, &p.f.engines[g]), 0);
        for (uint32_t gang = 0; gang < 2; gang++) {
            assert_int_equal(softgpu_group_add(p.f.engines[g], 0, &p.group[gang][g]), 0);
            pair_submit(&p, gang, g);
            pair_submit(&p, gang, g);
        }
    }
    for (uint64_t i = 0; i < 50; i++) {
        for (uint32_t g = 0; g < 2; g++) {
            uint64_t done;
            pair_run(&p, i * 200 * MS + g * later_ns);
            softgpu_control(p.f.engines[g], p.group[(i + 1) % 2][g], SOFTGPU_SUSPEND, 0, p.now,
                            &done);
            softgpu_control(p.f.engines[g], p.group[i % 2][g], SOFTGPU_RESUME, 0, p.now, &done);
        }
    }
    pair_run(&p, 10 * SEC);
    for (uint32_t g = 0; g < 2; g++)
        softgpu_free(p.f.engines[g]);
    return (double)(p.steps[0] + p.steps[1]) / 1e4;
}

TEST(turns_out_of_step)
{
    double in_step = turns(0), half = turns(100 * MS), out = turns(198 * MS);
    printf("two gangs, turns in step %.3f, 100 ms late %.3f, 198 ms late %.3f\n", in_step, half,
           out);
    assert_true(in_step > 0.97);
    assert_true(half > 0.4 && half < 0.55);
    assert_true(out < 0.05);
}

/* The same by cede's own decisions: a third job on one of the GPUs ends, and from then on each GPU
 * for itself is out of step with the other for ever. */
TEST(each_gpu_by_itself)
{
    struct sim_scenario s = {
        .gpus = 2,
        .apart = true,
        .settle_ns = 3 * SEC,
        .jobs = {GANG(3), GANG(3), LAT(0), LAT(1), ONE(1, .leave_ns = 2220 * MS)}};
    struct sim_result r = simulate(s);
    s.apart = false;
    struct sim_result t = simulate(s);
    double one = alone(&s, 0);
    printf("each GPU by itself: %.3f + %.3f of one gang alone; all at once: %.3f + %.3f\n",
           r.job[0].done / one, r.job[1].done / one, t.job[0].done / one, t.job[1].done / one);
    assert_true(r.job[0].done + r.job[1].done < t.job[0].done + t.job[1].done);
    assert_true(t.job[0].done + t.job[1].done > 0.9 * one);
    assert_true(t.job[2].p99_us <= r.job[2].p99_us + 20 && t.job[3].p99_us <= r.job[3].p99_us + 20);
}

/* ---- fair parts ---- */

/* clang-format off */
static const struct {
    const char *name;
    struct sim_scenario s;
} table[] = {
    {"two gangs, latency on both", {.gpus = 2, .jobs = {GANG(3), GANG(3), LAT(0), LAT(1)}}},
    {"three gangs", {.gpus = 2, .jobs = {GANG(3), GANG(3), GANG(3), LAT(0), LAT(1)}}},
    {"latency on one GPU only", {.gpus = 2, .jobs = {GANG(3), GANG(3), LAT(1)}}},
    {"no latency job", {.gpus = 2, .jobs = {GANG(3), GANG(3)}}},
    {"no latency job, shares", {.gpus = 2, .policy = "shares", .jobs = {GANG(3), GANG(3), ONE(0)}}},
    {"one gang alone", {.gpus = 2, .jobs = {GANG(3), LAT(0), LAT(1)}}},
    {"by weight 3:1", {.gpus = 2, .duration_ns = 40 * SEC, .jobs = {GANG(3, .weight = 300), GANG(3), LAT(0), LAT(1)}}},
    {"a gang and a job on each GPU", {.gpus = 2, .jobs = {GANG(3), ONE(0), ONE(1), LAT(0), LAT(1)}}},
    {"the same without a latency job", {.gpus = 2, .jobs = {GANG(3), ONE(0), ONE(1)}}},
    {"and with one on one GPU", {.gpus = 2, .jobs = {GANG(3), ONE(0), ONE(1), LAT(0)}}},
    {"a heavy job beside a gang", {.gpus = 2, .duration_ns = 40 * SEC, .jobs = {GANG(3), ONE(0, .weight = 400), LAT(0), LAT(1)}}},
    {"two pairs on four GPUs", {.gpus = 4, .jobs = {GANG(3), GANG(3), GANG(12), GANG(12), LAT(0), LAT(2)}}},
    {"a gang of four and two of two", {.gpus = 4, .jobs = {GANG(15), GANG(3), GANG(12), LAT(0), LAT(3)}}},
    {"overlapping gangs in a row", {.gpus = 4, .jobs = {GANG(3), GANG(6), GANG(12), LAT(1)}}},
    {"overlapping gangs, and one over all of them", {.gpus = 4, .duration_ns = 40 * SEC, .jobs = {GANG(3, .weight = 200), GANG(6), GANG(12, .weight = 200), GANG(15), ONE(0), ONE(3, .weight = 300), LAT(1)}}},
    {"overlapping gangs and a job on each GPU", {.gpus = 4, .duration_ns = 40 * SEC, .jobs = {GANG(3), GANG(6), GANG(12), ONE(0), ONE(1), ONE(2), ONE(3), LAT(1)}}},
    {"a large gang among small jobs", {.gpus = 8, .duration_ns = 40 * SEC, .jobs = {GANG(255), ONE(0), ONE(1), ONE(2), ONE(3), ONE(4), ONE(5), ONE(6), ONE(7), LAT(0)}}},
    {"gangs of 8, 4, 2 and 1", {.gpus = 8, .duration_ns = 40 * SEC, .jobs = {GANG(255), GANG(15), GANG(0x30), ONE(6), ONE(7), LAT(0), LAT(7)}}},
    {"three jobs on one GPU of a gang", {.gpus = 2, .duration_ns = 40 * SEC, .jobs = {GANG(3), ONE(0), ONE(0), ONE(0), ONE(1), LAT(0)}}},
    {"two gangs on eight, weights 1:2", {.gpus = 8, .duration_ns = 40 * SEC, .jobs = {GANG(255), GANG(255, .weight = 200), LAT(3)}}},
    {"a gang with a stray context", {.gpus = 3, .demand = true, .settle_ns = 3 * SEC, .jobs = {GANG(3, .strays = 4), GANG(3), ONE(2), ONE(2), LAT(0), LAT(2)}}},
    {"a job with a stray context", {.gpus = 2, .demand = true, .settle_ns = 3 * SEC, .jobs = {ONE(0, .strays = 2), ONE(0), ONE(1), ONE(1), LAT(0), LAT(1)}}},
    {"a stray context where there is no latency job", {.gpus = 3, .demand = true, .settle_ns = 3 * SEC, .jobs = {GANG(3, .strays = 4), GANG(3), ONE(2), ONE(2), LAT(0)}}},
    {"gangs that meet a job on one GPU", {.gpus = 4, .jobs = {GANG(3), GANG(12), ONE(0), ONE(3), LAT(0)}}},
};
/* clang-format on */

TEST(test_fair_parts)
{
    double p99 = latency_alone();
    unsigned bad = 0;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        bad += check(table[i].name, &table[i].s, p99);
    assert_int_equal(bad, 0);
}

/* Whatever happened in the middle of turns before, and nobody has credit for having been away. */
TEST(changes)
{
    static const struct sim_job before[] = {
        GANG(3),
        GANG(6),
        GANG(15),
        ONE(0),
        ONE(3),
        LAT(1),
        GANG(12, .come_ns = 3050 * MS),
        GANG(3, .leave_ns = 5130 * MS),
        GANG(15, .leave_ns = 7270 * MS),
    };
    double p99 = latency_alone();
    unsigned bad = 0;
    for (uint32_t j = 0; j < 5; j++) {
        struct sim_scenario s = {
            .gpus = 4, .demand = true, .settle_ns = 16 * SEC, .duration_ns = 56 * SEC};
        memcpy(s.jobs, before, sizeof(before));
        bad += check("came and left", &s, p99);
        s.jobs[j].pause_ns = 4010 * MS;
        s.jobs[j].resume_ns = 11 * SEC;
        bad += check("paused in mid-turn, and resumed", &s, p99);
        /* What runs when it is paused is suspended first, other calls may be on their way. */
        assert_true(simulate(s).job[j].paused_share < 1e-3);
        s.jobs[j].pause_ns = 0;
        s.jobs[j].idle_ns = 4010 * MS;
        s.jobs[j].busy_ns = 11 * SEC;
        bad += check("idle from mid-turn on, and at work again", &s, p99);
        s.jobs[j].busy_ns = 99 * SEC;
        bad += check("idle for good", &s, p99);
        s.jobs[j].idle_ns = s.jobs[j].busy_ns = 0;
        for (uint32_t k = 0; k < 5; k++)
            s.jobs[k].class = N;
        s.jobs[j].class = B; /* gets what the normal ones cannot use */
        for (uint32_t k = 6; k < 9; k++)
            s.jobs[k] = (struct sim_job){0};
        struct sim_result mixed = simulate(s);
        s.jobs[j].pause_ns = 1;
        s.jobs[j].resume_ns = s.duration_ns + 1;
        struct sim_result without = simulate(s);
        double with = 0, alone_s = 0; /* GPU time of the normal ones */
        for (uint32_t k = 0; k < 5; k++) {
            with += k == j ? 0 : mixed.job[k].done * width(&s.jobs[k]);
            alone_s += k == j ? 0 : without.job[k].done * width(&s.jobs[k]);
        }
        bad += with < 0.97 * alone_s;
        printf("beside normal jobs %x has %.3f\n", s.jobs[j].gpus, mixed.job[j].done);
    }
    assert_int_equal(bad, 0);
}
