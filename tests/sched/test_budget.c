/* budget_slice_us() against the model in budget.h: what it promises for any rate, load and budget,
 * and that it finds the rate again from what would be observed at any slice. */
#include "fixture.h"
#include "plan/budget.h"

#include <math.h>

static const double rates[] = {0.1, 1, 10, 50, 100, 200, 500, 1000, 2000, 5000, 20000};
static const double loads[] = {0, 0.01, 0.1, 0.5, 0.9};
static const uint32_t budgets[] = {0,    1,    300,   361,    600,    1000,
                                   2200, 5000, 20000, 100000, 999999, BUDGET_MAX_US};
static const uint32_t slices[] = {1, 50, 640, 2048, 20000};

static struct sched_params defaults(void)
{
    struct sched_params p;
    params_default(&p);
    return p;
}

static double run_s(double slice_us, double hz)
{
    return slice_us * 1e-6 + exp(-hz * slice_us * 1e-6) / hz;
}

static double loss(const struct sched_params *p, double slice_us, double hz)
{
    double two = 2e-6 * p->switch_us;
    return two / (run_s(slice_us, hz) + two);
}

static struct budget_seen seen(const struct sched_params *p, double hz, double busy, uint32_t us)
{
    return (struct budget_seen){.returns_hz = (1 - busy) / (run_s(us, hz) + 2e-6 * p->switch_us),
                                .busy = busy,
                                .slice_us = us};
}

TEST(test_bounds)
{
    struct sched_params p = defaults();
    for (size_t b = 0; b < ARRAY_SIZE(budgets); b++) {
        uint32_t most = budget_slice_us(&p, budgets[b], NULL);
        assert_true(most >= p.timeslice_min_us && most <= p.timeslice_max_us);
        assert_true(most == p.timeslice_min_us || most + 2 * p.switch_us <= budgets[b]);
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
            for (size_t k = 0; k < ARRAY_SIZE(loads); k++) {
                for (size_t s = 0; s < ARRAY_SIZE(slices); s++) {
                    struct budget_seen o = seen(&p, rates[i], loads[k], slices[s]);
                    uint32_t us = budget_slice_us(&p, budgets[b], &o);
                    assert_true(us >= p.timeslice_min_us && us <= most);
                    /* More budget never makes it shorter. */
                    assert_true(b == 0 || us >= budget_slice_us(&p, budgets[b - 1], &o));
                }
            }
        }
    }
    /* What cannot be, or is all there is: still within the bounds. */
    static const struct budget_seen odd[] = {{0, 0, 1},         {0, 1, 1},          {1e9, 0, 1},
                                             {1e9, 1, 1000000}, {3000, 0.99, 2000}, {1, 2, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        uint32_t us = budget_slice_us(&p, 5000, &odd[i]);
        assert_true(us >= p.timeslice_min_us && us <= 5000 - 2 * p.switch_us);
    }
}

TEST(smallest_that_will_do)
{
    struct sched_params p = defaults();
    unsigned grown = 0;
    for (size_t b = 0; b < ARRAY_SIZE(budgets); b++) {
        uint32_t most = budget_slice_us(&p, budgets[b], NULL);
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
            struct budget_seen o = seen(&p, rates[i], 0.1, 1);
            uint32_t us = budget_slice_us(&p, budgets[b], &o);
            double least_loss = loss(&p, p.timeslice_min_us, rates[i]);
            if (us == p.timeslice_min_us) {
                /* Little is lost, or little can be saved. */
                double saved = 1 - loss(&p, most, rates[i]) / least_loss;
                assert_true(least_loss <= p.switch_loss * 1.001 || saved <= 0.101);
                continue;
            }
            grown++;
            assert_true(us == most || loss(&p, us, rates[i]) <= p.switch_loss * 1.01);
            assert_true(loss(&p, us * 0.98, rates[i]) > p.switch_loss);
        }
    }
    assert_true(grown > 20);
}

/* The same rate seen at another slice gives the same answer, or the slice would wander. */
TEST(steady)
{
    struct sched_params p = defaults();
    for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
        struct budget_seen first = seen(&p, rates[i], 0.1, 1);
        uint32_t us = budget_slice_us(&p, 3000, &first);
        /* A slice far above the time between requests hides the rate. */
        for (size_t s = 0; s < ARRAY_SIZE(slices); s++) {
            if (rates[i] * slices[s] > 5e6)
                continue;
            struct budget_seen o = seen(&p, rates[i], 0.1, slices[s]);
            uint32_t again = budget_slice_us(&p, 3000, &o);
            if (fabs((double)again - us) > 0.05 * us + 1) {
                printf("%g/s: %u us as seen at 1 us, %u us as seen at %u us\n", rates[i], us, again,
                       slices[s]);
                fail();
            }
        }
    }
}
