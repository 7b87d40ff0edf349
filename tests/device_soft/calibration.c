/* The engine with softgpu_params_h200() against what was measured on an H200 (one card, driver
 * 580.159.04): every row that the engine models has to come out within 15 %.
 *
 * Not modelled, so not here:
 * - MPS (space sharing by the vendor's server) and PyTorch rows (their kernels are not known).
 * - p50 beside default timeslices at several request rates: the latency program outlived the batch
 *   program there, and with most requests waiting 2.4 ms in the first part, most requests were
 * served in the second, alone. The p99 is of the first part and is compared. With the smallest
 * timeslice the program keeps to its schedule in both parts, so the p50 there stands for the shared
 * part.
 * - Timeslice 0, group preempt, schedule off: not offered by the software GPU. */
#include <math.h>

#include "../test.h"
#include "programs.h"

#define US        1000ULL
#define MS        1000000ULL
#define SEC       1000000000ULL
#define TOLERANCE 0.15

#define REQUESTS(per_s)     ((struct latency_program){SEC / (per_s), 100 * US, 0, 0})
#define LEAD(per_s, lo, hi) ((struct latency_program){SEC / (per_s), 100 * US, (lo)*US, (hi)*US})
/* 0.5 ms, but no whole part of a timeslice: kernels that always ended with the turn would never
 * have to be saved. */
#define BATCH(slice_us) ((struct batch_program){503 * US, 1, slice_us, false})

/* Values of 0 were not measured or are not modelled. */
static const struct row {
    const char *name;
    struct scenario s;
    struct outcome expected;
} rows[] = {
    {"latency program alone", {REQUESTS(100), {{0}}, 60 * SEC}, {125, 133, {0}}},
    {"default slices, batch 0.5 ms", {REQUESTS(100), {BATCH(0)}, 60 * SEC}, {1383, 2387, {0}}},
    {"batch at 1 us, kernels 0.5 ms", {REQUESTS(100), {BATCH(1)}, 60 * SEC}, {306, 331, {0}}},
    {"batch at 1 us, kernels 10 ms",
     {REQUESTS(100), {{10 * MS, 1, 1, false}}, 60 * SEC},
     {305, 321, {0}}},
    {"lead kernel 150 us ahead", {LEAD(100, 150, 150), {BATCH(1)}, 60 * SEC}, {137, 173, {0}}},
    {"lead kernel 200-300 us ahead", {LEAD(100, 200, 300), {BATCH(1)}, 60 * SEC}, {405, 450, {0}}},
    {"two batch at 1 us", {REQUESTS(100), {BATCH(1), BATCH(1)}, 60 * SEC}, {548, 795, {0}}},
    {"two batch at 500 us",
     {REQUESTS(100), {BATCH(500), BATCH(500)}, 60 * SEC},
     {1019, 1694, {0.34, 0.34}}},
    {"two batch, default slices",
     {REQUESTS(100), {BATCH(0), BATCH(0)}, 60 * SEC},
     {2520, 4759, {0.44, 0.44}}},
    {"batch at 1 us, a second one suspended",
     {REQUESTS(100), {BATCH(1), {500 * US, 1, 1, true}}, 60 * SEC},
     {0, 320, {0}}},
    {"10/s, default slices", {REQUESTS(10), {BATCH(0)}, 300 * SEC}, {0, 2438, {0.996}}},
    {"100/s, default slices", {REQUESTS(100), {BATCH(0)}, 60 * SEC}, {0, 2344, {0.955}}},
    {"500/s, default slices", {REQUESTS(500), {BATCH(0)}, 20 * SEC}, {0, 2528, {0.819}}},
    {"1000/s, default slices", {REQUESTS(1000), {BATCH(0)}, 20 * SEC}, {0, 2526, {0.819}}},
    {"2000/s, default slices", {REQUESTS(2000), {BATCH(0)}, 20 * SEC}, {0, 2524, {0.819}}},
    {"10/s, batch at 1 us", {REQUESTS(10), {BATCH(1)}, 300 * SEC}, {284, 348, {0.996}}},
    {"100/s, batch at 1 us", {REQUESTS(100), {BATCH(1)}, 60 * SEC}, {276, 318, {0.954}}},
    {"500/s, batch at 1 us", {REQUESTS(500), {BATCH(1)}, 20 * SEC}, {268, 313, {0.772}}},
    {"1000/s, batch at 1 us", {REQUESTS(1000), {BATCH(1)}, 20 * SEC}, {256, 301, {0.543}}},
    {"2000/s, batch at 1 us", {REQUESTS(2000), {BATCH(1)}, 20 * SEC}, {262, 298, {0.112}}},
    {"shares 15000:5000", {{0}, {BATCH(15000), BATCH(5000)}, 60 * SEC}, {0, 0, {0.738, 0.261}}},
    {"shares 30000:10000", {{0}, {BATCH(30000), BATCH(10000)}, 60 * SEC}, {0, 0, {0.745, 0.245}}},
    {"shares 7500:2500", {{0}, {BATCH(7500), BATCH(2500)}, 60 * SEC}, {0, 0, {0.720, 0.241}}},
    {"shares 3000:1000", {{0}, {BATCH(3000), BATCH(1000)}, 60 * SEC}, {0, 0, {0.679, 0.226}}},
    {"shares 60000:6000", {{0}, {BATCH(60000), BATCH(6000)}, 60 * SEC}, {0, 0, {0.904, 0.089}}},
};

/* 1 if it is off by more than the tolerance. */
static int compare(const char *row, const char *what, double expected, double got)
{
    if (expected <= 0)
        return 0;
    double off = got / expected - 1;
    int bad = !(fabs(off) <= TOLERANCE);
    printf("%-38s %-7s %9.3f %9.3f %+6.1f %%%s\n", row, what, expected, got, off * 100,
           bad ? "  OFF" : "");
    return bad;
}

TEST(test_rows)
{
    struct softgpu_params p;
    int bad = 0;
    softgpu_params_h200(&p);
    printf("%-38s %-7s %9s %9s\n", "", "", "measured", "engine");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        struct outcome o;
        scenario_run(&p, &r->s, &o);
        bad += compare(r->name, "p50 us", r->expected.p50_us, o.p50_us);
        bad += compare(r->name, "p99 us", r->expected.p99_us, o.p99_us);
        bad += compare(r->name, "share A", r->expected.share[0], o.share[0]);
        bad += compare(r->name, "share B", r->expected.share[1], o.share[1]);
    }
    assert_int_equal(bad, 0);
}

/* "Neither makes progress": two batch programs at 1 us. */
TEST(thrashing)
{
    struct softgpu_params p;
    struct outcome o;
    struct scenario s = {REQUESTS(100), {BATCH(1), BATCH(1)}, 10 * SEC};
    softgpu_params_h200(&p);
    scenario_run(&p, &s, &o);
    assert_true(o.share[0] < 0.02 && o.share[1] < 0.02);
}

/* Switching in costs 155 us with 33 of 264 blocks and 178 us with all of them; ending a batch
 * kernel's turn and going back to it, 180 us. */
TEST(switch_cost)
{
    static const struct {
        const char *name;
        float fraction;
        double expected_us;
    } in[] = {{"switch in, 33 of 264 blocks", 33.0f / 264, 155},
              {"switch in, 264 of 264 blocks", 1, 178}};
    struct softgpu_params p;
    struct outcome alone, o;
    struct scenario s = {REQUESTS(100), {{0}}, 10 * SEC};
    int bad = 0;
    softgpu_params_h200(&p);
    scenario_run(&p, &s, &alone);
    for (int i = 0; i < 2; i++) {
        s.batch[0] = (struct batch_program){10 * MS, in[i].fraction, 1, false};
        scenario_run(&p, &s, &o);
        bad += compare(in[i].name, "us", in[i].expected_us, o.p50_us - alone.p50_us);
    }
    bad += compare("switch latency -> batch", "us", 180, (p.switch_ns + p.restore_ns) / 1e3);
    bad +=
        compare("switch batch -> batch", "us", 205, (p.switch_ns + p.save_ns + p.restore_ns) / 1e3);
    assert_int_equal(bad, 0);
}

TEST(calls)
{
    struct softgpu_params p;
    struct softgpu *e;
    uint32_t g;
    uint64_t done;
    int bad = 0;
    struct softgpu_kernel k = {.duration_ns = 50 * MS, .sm_fraction = 1};
    softgpu_params_h200(&p);
    assert_int_equal(softgpu_new(&p, 1, 1, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &g), 0);

    assert_int_equal(softgpu_control(e, g, SOFTGPU_TIMESLICE, 1, 1 * MS, &done), 0);
    bad += compare("set timeslice, idle GPU", "us", 155, (double)(done - 1 * MS) / 1e3);
    assert_int_equal(softgpu_submit(e, g, &k, 2 * MS), 0);
    assert_int_equal(softgpu_control(e, g, SOFTGPU_TIMESLICE, 1, 3 * MS, &done), 0);
    bad += compare("set timeslice, busy GPU (300-390)", "us", 345, (double)(done - 3 * MS) / 1e3);
    assert_int_equal(softgpu_control(e, g, SOFTGPU_SUSPEND, 0, 4 * MS, &done), 0);
    bad += compare("suspend", "us", 600, (double)(done - 4 * MS) / 1e3);
    assert_int_equal(softgpu_control(e, g, SOFTGPU_RESUME, 0, 5 * MS, &done), 0);
    bad += compare("resume", "us", 320, (double)(done - 5 * MS) / 1e3);
    softgpu_free(e);
    assert_int_equal(bad, 0);
}
