/* A gated device in virtual time: whoever wants it says so at once, work of 0.1 ms is done for one
 * of those that may submit, round robin, and nothing takes time but work. */
#include "fixture.h"

#define STEP_NS 100000U
#define STEPS_S 10000U
#define JOBS    5U
struct job {
    bool there;
    enum job_class class;
    uint32_t weight;              /* 0: default */
    uint32_t period_steps, burst; /* wants `burst` steps of work each period; 0: always wants */
    uint32_t gap;                 /* steps without demand after each step of work */
    double max;                   /* ceiling; 0: none */
    double lo, hi;                /* share of the device */
    uint32_t slice_lo, slice_hi;  /* of its setting at the end, us */
};

#define LONGEST  .slice_lo = 1000000, .slice_hi = 1000000
#define SHORTEST .slice_lo = 1, .slice_hi = 1
#define QUEUE    .slice_lo = 1000, .slice_hi = 100000

/* clang-format off */
static const struct scenario {
    const char *name, *policy;
    unsigned seconds;
    struct job jobs[JOBS];
} scenarios[] = {
    {"a lone normal job is let be", "priority", 2, {{1, N, .lo = 1, .hi = 1}}},
    {"a lone batch job keeps its queue short", "priority", 2, {{1, B, .lo = 1, .hi = 1, QUEUE}}},
    {"latency before batch, which gets the rest", "priority", 4, {
        {1, L, .period_steps = 1000, .burst = 50, .lo = 0.05, .hi = 0.05, LONGEST},
        {1, B, .lo = 0.949, .hi = 0.95, SHORTEST}}},
    {"a saturating latency job leaves nothing", "priority", 2, {
        {1, L, .lo = 1, .hi = 1, LONGEST},
        {1, B, .lo = 0, .hi = 0, SHORTEST}}},
    {"but what is above its ceiling", "priority", 2, {
        {1, L, .max = 0.5, .lo = 0.49, .hi = 0.51, LONGEST},
        {1, B, .lo = 0.49, .hi = 0.51, SHORTEST}}},
    {"latency jobs have it together", "priority", 2, {
        {1, L, .lo = 0.49, .hi = 0.51},
        {1, L, .lo = 0.49, .hi = 0.51}}},
    {"batch jobs take turns by weight", "priority", 60, {
        {1, L, .period_steps = 1000, .burst = 100, .lo = 0.1, .hi = 0.1, LONGEST},
        {1, B, 300, .lo = 0.66, .hi = 0.69, SHORTEST},
        {1, B, 100, .lo = 0.21, .hi = 0.24, SHORTEST}}},
    {"normal before batch", "priority", 10, {
        {1, N, .period_steps = 500, .burst = 100, .lo = 0.2, .hi = 0.2, QUEUE},
        {1, B, .lo = 0.79, .hi = 0.8, SHORTEST}}},
    {"short gaps keep the turn, and are filled", "priority", 60, {
        {1, B, .gap = 5, .lo = 0.08, .hi = 0.09, QUEUE},
        {1, B, .lo = 0.91, .hi = 0.92, QUEUE}}},
    {"long gaps do not", "priority", 60, {
        {1, B, .gap = 100, .lo = 0.0001, .hi = 0.01, QUEUE},
        {1, B, .lo = 0.97, .hi = 1, QUEUE}}},
    {"shares: classes are ignored", "shares", 60, {
        {1, B, 300, .lo = 0.74, .hi = 0.76, .slice_lo = 1, .slice_hi = 100000},
        {1, L, 100, .lo = 0.24, .hi = 0.26, .slice_lo = 1, .slice_hi = 1000000}}},
};
/* clang-format on */

/* A gated device. */
static struct sched *gated(uint32_t jobs)
{
    struct sched *c = scheduler(1, jobs, jobs);
    EVENT(c, DEVICE, .on = true);
    return c;
}

static void add_wanting(struct sched *c, uint32_t job, enum job_class class)
{
    add_job(c, job, class);
    EVENT(c, DEMAND, .job = job, .on = true);
}

struct state {
    uint64_t left, quiet, served;
    bool wants, runs;
    uint32_t slice;
};

static void simulate(const struct scenario *s, struct state *v)
{
    struct sched *c = gated(JOBS);
    struct sched_plan plan = {.wake_ns = 0};
    assert_int_equal(sched_set_policy(c, s->policy), 0);
    for (uint32_t j = 0; j < JOBS && s->jobs[j].there; j++) {
        const struct job *x = &s->jobs[j];
        EVENT(c, JOB_ADD, .job = j, .gpu_max = x->max, .class = x->class,
              .weight = x->weight ? x->weight : WEIGHT_DEFAULT);
        EVENT(c, GROUP_ADD, .job = j, .group = j, .computes = true);
        EVENT(c, DEMAND, .job = j);
    }
    uint32_t next = 0;
    for (uint64_t step = 0; step < (uint64_t)s->seconds * STEPS_S; step++) {
        uint64_t now = step * STEP_NS;
        bool changed = now >= plan.wake_ns;
        for (uint32_t j = 0; j < JOBS && s->jobs[j].there; j++) {
            const struct job *x = &s->jobs[j];
            if (x->period_steps && step % x->period_steps == 0)
                v[j].left += x->burst;
            bool wants = x->period_steps ? v[j].left > 0 : v[j].quiet == 0;
            v[j].quiet -= v[j].quiet > 0;
            if (wants == v[j].wants)
                continue;
            v[j].wants = wants;
            changed = true;
            EVENT(c, DEMAND, .job = j, .on = wants);
        }
        if (changed) {
            sched_decide(c, now, &plan);
            for (size_t k = 0; k < plan.n; k++) {
                v[plan.settings[k].group].runs = plan.settings[k].runnable;
                v[plan.settings[k].group].slice = plan.settings[k].timeslice_us;
            }
        }
        /* Nobody below a latency job without a ceiling that wants the device, and one at a time. */
        uint32_t n = 0, at = SLOT_NONE;
        bool latency = false;
        for (uint32_t j = 0; j < JOBS && s->jobs[j].there; j++)
            latency |= v[j].wants && s->jobs[j].class == CLASS_LATENCY && s->jobs[j].max == 0 &&
                       s->policy[0] == 'p';
        for (uint32_t i = 0; i < JOBS; i++) {
            uint32_t j = (next + i) % JOBS;
            if (!v[j].wants || !v[j].runs)
                continue;
            n++;
            at = at == SLOT_NONE ? j : at;
            assert_true(!latency || s->jobs[j].class == CLASS_LATENCY);
        }
        assert_true(latency || n <= 1);
        if (at == SLOT_NONE)
            continue;
        v[at].served++;
        v[at].left -= v[at].left > 0;
        v[at].quiet = s->jobs[at].gap;
        next = at + 1;
    }
    sched_free(c);
}

TEST(behaviours)
{
    int bad = 0;
    for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
        const struct scenario *s = &scenarios[i];
        struct state v[JOBS] = {0};
        simulate(s, v);
        printf("%-45s", s->name);
        for (uint32_t j = 0; j < JOBS && s->jobs[j].there; j++) {
            double share = (double)v[j].served / (s->seconds * (double)STEPS_S);
            bool ok = share >= s->jobs[j].lo - 0.0005 && share <= s->jobs[j].hi + 0.0005 &&
                      v[j].slice >= s->jobs[j].slice_lo && v[j].slice <= s->jobs[j].slice_hi;
            printf("  %.4f/%u%s", share, v[j].slice, ok ? "" : " <-- WRONG");
            bad += !ok;
        }
        printf("\n");
    }
    assert_int_equal(bad, 0);
}

/* What is paused does not count, and nobody waits for it. */
TEST(paused)
{
    struct sched *c = gated(2);
    struct sched_plan plan;
    for (uint32_t j = 0; j < 2; j++)
        add_wanting(c, j, j ? B : L);
    for (int on = 0; on < 2; on++) {
        EVENT(c, JOB_PAUSE, .job = 0, .on = on);
        sched_decide(c, 1000, &plan);
        for (size_t k = 0; k < plan.n; k++)
            assert_int_equal(plan.settings[k].runnable, (plan.settings[k].group == 1) == on);
    }
    EVENT(c, JOB_PAUSE, .job = 1, .on = true);
    sched_decide(c, 2000, &plan);
    for (size_t k = 0; k < plan.n; k++)
        assert_false(plan.settings[k].runnable);
    assert_int_equal(sched_event(c, &(struct sched_event){.type = EV_DEVICE, .device = 1}), -22);
    sched_free(c);
}

/* Two normal jobs work for a while, a batch job waits from the start and another from near the end:
 * none of them has credit against the other. */
TEST(waiting_gives_no_credit)
{
    struct sched *c = gated(4);
    struct sched_plan plan;
    unsigned ran[4] = {0};
    for (uint64_t ms = 0, jobs = 0; ms < 70000; ms += 10) {
        while (jobs < (ms < 50000 ? 3 : 4)) {
            uint32_t j = (uint32_t)jobs++;
            add_wanting(c, j, j < 2 ? N : B);
        }
        for (uint32_t j = 0; j < 2 && ms == 55000; j++)
            EVENT(c, DEMAND, .job = j, .on = false);
        sched_decide(c, ms * MS, &plan);
        for (size_t k = 0; k < plan.n && ms >= 56000; k++)
            ran[plan.settings[k].group] += plan.settings[k].runnable;
    }
    assert_in_range(ran[2], 650, 750);
    assert_in_range(ran[3], 650, 750);
    sched_free(c);
}

/* Who is due has the device as long as it wants it, and then the turns go on. */
TEST(deadline)
{
    struct sched *c = gated(2);
    struct sched_plan plan;
    for (uint32_t j = 0; j < 2; j++)
        add_wanting(c, j, B);
    EVENT(c, DEADLINE, .job = 1, .deadline_ns = 3000000000, .left_ns = 2400000000, .on = true);
    unsigned ran[2] = {0}, late[2] = {0};
    for (uint64_t ms = 1; ms < 4000; ms++) {
        if (ms == 2000) /* done */
            EVENT(c, DEADLINE, .job = 1, .deadline_ns = TIME_NEVER, .on = true);
        sched_decide(c, ms * MS, &plan);
        for (size_t k = 0; k < plan.n; k++)
            (ms < 2000 ? ran : late)[plan.settings[k].group] += plan.settings[k].runnable;
    }
    /* Boosted from 0.1 s on. */
    assert_true(ran[1] >= 1890 && ran[0] <= 210);
    assert_true(late[0] > 800 && late[1] > 100);
    sched_free(c);
}
