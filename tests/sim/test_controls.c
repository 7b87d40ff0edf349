/* What a steady state costs ceded: the controls that it makes and how often it decides, in virtual
 * time, with the times that controls take on an H100 (docs/nvidia-measurements.md). */
#include "scenario.h"

/* On a busy GPU, in seconds. A program has a timeslice for each of its groups, three of which copy;
 * these follow the one that computes but beside windows (plan/limits.h). */
#define LIST_S    0.45e-3 /* a control that suspends or resumes, */
#define PROGRAM_S 0.23e-3 /* and for each program in it */
#define SLICE_S   0.45e-3
#define DECIDE_S  0.05e-3
#define GROUPS    4
#define CORE      0.03 /* the most of a core; where several jobs have limits, */
#define SEVERAL   0.035

/* All jobs saturate the GPU, but the latency job that is first where one is named. */
struct steady {
    const char *name;
    struct sim_job latency; /* kernel_ns 0: none */
    struct sim_job some, others;
    unsigned nsome, nothers;
    uint32_t gpus;
    double floor;
    double lo, hi, others_lo; /* of the GPU: each of some, each of the others */
};

#define SATURATES .kernel_ns = 500 * US
#define NORMAL    .class = CLASS_NORMAL, SATURATES
#define BATCH     .class = CLASS_BATCH, SATURATES
#define LATENCY   .class = CLASS_LATENCY, .kernel_ns = 100 * US, .period_ns = 10000 * US
#define GANG      BATCH, .gpus = 15, .sync_ns = 20 * US

/* clang-format off */
static const struct steady table[] = {
    {"floor of 60 %, 1 other", .some = {NORMAL, .gpu_min = 0.6}, .nsome = 1, .others = {NORMAL}, .nothers = 1, .lo = 0.59, .hi = 0.62, .others_lo = 0.38},
    {"floor of 60 %, 3 others", .some = {NORMAL, .gpu_min = 0.6}, .nsome = 1, .others = {NORMAL}, .nothers = 3, .lo = 0.59, .hi = 0.62, .others_lo = 0.12},
    {"floor of 60 %, 7 others", .some = {NORMAL, .gpu_min = 0.6}, .nsome = 1, .others = {NORMAL}, .nothers = 7, .lo = 0.59, .hi = 0.62, .others_lo = 0.05},
    {"floor of 60 %, 7 others, batch", .some = {BATCH, .gpu_min = 0.6}, .nsome = 1, .others = {BATCH}, .nothers = 7, .lo = 0.59, .hi = 0.62, .others_lo = 0.05},
    {"4 floors of 15 %, 4 others", .some = {NORMAL, .gpu_min = 0.15}, .nsome = 4, .others = {NORMAL}, .nothers = 4, .lo = 0.145, .hi = 0.16, .others_lo = 0.08},
    {"ceiling of 20 %, 7 others", .some = {NORMAL, .gpu_max = 0.2}, .nsome = 1, .others = {NORMAL}, .nothers = 7, .lo = 0.12, .hi = 0.2, .others_lo = 0.12},
    {"ceiling of 5 %, 7 others", .some = {NORMAL, .gpu_max = 0.05}, .nsome = 1, .others = {NORMAL}, .nothers = 7, .lo = 0.035, .hi = 0.05, .others_lo = 0.13},
    {"2 ceilings of 40 %", .some = {NORMAL, .gpu_max = 0.4}, .nsome = 2, .lo = 0.39, .hi = 0.405},
    {"4 ceilings of 20 %", .some = {NORMAL, .gpu_max = 0.2}, .nsome = 4, .lo = 0.19, .hi = 0.205},
    {"8 ceilings of 10 %", .some = {NORMAL, .gpu_max = 0.1}, .nsome = 8, .lo = 0.095, .hi = 0.102},
    {"8 ceilings of 50 %", .some = {NORMAL, .gpu_max = 0.5}, .nsome = 8, .lo = 0.12, .hi = 0.13},
    {"floor of 30 % for each of 2 gangs, 2 others", .some = {GANG, .gpu_min = 0.3}, .nsome = 2, .others = {BATCH}, .nothers = 2, .gpus = 4, .lo = 0.28, .hi = 0.31, .others_lo = 0.19},
    {"latency, floor of 60 %, 6 others", .some = {BATCH, .gpu_min = 0.6}, .nsome = 1, .others = {BATCH}, .nothers = 6, .latency = {LATENCY}, .lo = 0.57, .hi = 0.61, .others_lo = 0.055},
    {"latency, 4 ceilings of 20 %, 3 others", .some = {BATCH, .gpu_max = 0.2}, .nsome = 4, .others = {BATCH}, .nothers = 3, .latency = {LATENCY}, .lo = 0.13, .hi = 0.2, .others_lo = 0.12},
    {"latency with a ceiling of 50 %, 1 other", .some = {BATCH}, .nsome = 1, .latency = {LATENCY, .gpu_max = 0.5}, .lo = 0.94, .hi = 1},
    {"latency with a ceiling of 50 %, 7 others", .some = {BATCH}, .nsome = 7, .latency = {LATENCY, .gpu_max = 0.5}, .lo = 0.125, .hi = 0.145},
    {"latency that saturates, ceiling of 50 %, 7 others", .some = {NORMAL}, .nsome = 7, .latency = {.class = CLASS_LATENCY, SATURATES, .gpu_max = 0.5}, .lo = 0.065, .hi = 0.075},
    {"8 normal", .some = {NORMAL}, .nsome = 8, .lo = 0.12, .hi = 0.13},
    {"4 normal, 4 batch", .some = {NORMAL}, .nsome = 4, .others = {BATCH}, .nothers = 4, .lo = 0.24, .hi = 0.25},
    {"4 normal, 4 batch, a floor for batch", .some = {NORMAL}, .nsome = 4, .others = {BATCH}, .nothers = 4, .floor = 0.2, .lo = 0.18, .hi = 0.2, .others_lo = 0.04},
    {"latency, 4 normal, 4 batch, a floor for batch", .some = {NORMAL}, .nsome = 4, .others = {BATCH}, .nothers = 4, .latency = {LATENCY}, .floor = 0.2, .lo = 0.18, .hi = 0.2, .others_lo = 0.04},
    {"2 gangs, 2 others", .some = {GANG}, .nsome = 2, .others = {BATCH}, .nothers = 2, .gpus = 4, .lo = 0.09, .hi = 0.11, .others_lo = 0.35},
};
/* clang-format on */

static bool steady_holds(const struct steady *t)
{
    static struct sim_result r;
    struct sim_scenario s = {.policy = "laxity",
                             .demand = true,
                             .floor = t->floor,
                             .gpus = t->gpus,
                             .duration_ns = 42 * SEC,
                             .settle_ns = 12 * SEC};
    bool latency = t->latency.kernel_ns > 0;
    bool limits = t->some.gpu_min > 0 || t->some.gpu_max > 0;
    unsigned n = 0;
    if (latency)
        s.jobs[n++] = t->latency;
    for (unsigned i = 0; i < t->nsome + t->nothers; i++)
        s.jobs[n++] = i < t->nsome ? t->some : t->others;
    r = simulate_for(s, 0, 0);
    double per_s = 1e9 / (double)(s.duration_ns - s.settle_ns);
    double lists = (double)r.lists * per_s, decisions = (double)r.decisions * per_s;
    double slices = (double)r.slices * per_s * (limits && !latency ? 1 : GROUPS);
    double core = lists * LIST_S + (double)r.listed * per_s * PROGRAM_S + slices * SLICE_S +
                  decisions * DECIDE_S;
    double lo = 1, hi = 0, others = 1;
    for (unsigned i = 0; i < t->nsome + t->nothers; i++) {
        double share = r.job[latency + i].share;
        if (i < t->nsome) {
            lo = fmin(lo, share);
            hi = fmax(hi, share);
        } else {
            others = fmin(others, share);
        }
    }
    bool ok = core < (limits && t->nsome > 1 ? SEVERAL : CORE) && lo >= t->lo && hi <= t->hi &&
              others >= t->others_lo;
    /* With a ceiling it waits for its next frame. */
    ok &= !latency || t->latency.gpu_max > 0 || t->floor > 0 || r.job[0].p99_us < 350;
    printf(
        "%-50s per second %3.0f lists %3.0f slices %3.0f decisions: %.3f of a core; %.3f to %.3f, "
        "others %.3f%s\n",
        t->name, lists, slices, decisions, core, lo, hi, t->nothers ? others : 0,
        ok ? "" : "  <-- WRONG");
    return ok;
}

TEST(test_steady)
{
    int bad = 0;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        bad += !steady_holds(&table[i]);
    assert_int_equal(bad, 0);
}
