/* What accounts keep apart (plan/account_shares.h), on the mock GPU: nobody's part grows with how
 * many jobs he has, how often they come and go, or what deadlines they state. */
#include "mock_gpu.h"

/* Always due: what is missed is due again. */
#define DUE .work_s = 0.1, .every_s = 0.001, .due_s = 0.2, .late = 9999

/* clang-format off */
static const struct mock_scenario table[] = {
    {"turns: one job of one user, three of another", "priority", .seconds = 60, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.44, .hi = 0.46},
        {.class = B, .need = 1, .account = 2, .lo = 0.14, .hi = 0.16, .times = 3}}},
    {"timeslices: the same", "priority", .seconds = 20, .saturated = true, .jobs = {
        {.class = B, .need = 1, .account = 1, .lo = 0.49, .hi = 0.51},
        {.class = B, .need = 1, .account = 2, .lo = 0.16, .hi = 0.17, .times = 3}}},
    {"shares: the same, whatever the classes", "shares", .seconds = 20, .saturated = true, .jobs = {
        {.class = B, .need = 1, .account = 1, .lo = 0.49, .hi = 0.51},
        {.class = N, .need = 1, .account = 2, .lo = 0.24, .hi = 0.26},
        {.class = L, .need = 1, .account = 2, .lo = 0.24, .hi = 0.26}}},
    {"weights within an account move time within it", "priority", .seconds = 100, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.44, .hi = 0.46},
        {.class = B, .need = 1, .account = 2, .lo = 0.35, .hi = 0.37},
        {.class = B, .weight = 25, .need = 1, .account = 2, .lo = 0.08, .hi = 0.12}}},
    {"a user's only job keeps its weight against others", "priority", .seconds = 60, .saturated = true, .jobs = {LIGHT,
        {.class = B, .weight = 300, .need = 1, .account = 1, .lo = 0.66, .hi = 0.69},
        {.class = B, .need = 1, .account = 2, .lo = 0.21, .hi = 0.24}}},
    {"weights of accounts", "priority", .seconds = 100, .account = {[1] = {.weight = 300}}, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.66, .hi = 0.69},
        {.class = B, .need = 1, .account = 2, .lo = 0.10, .hi = 0.13, .times = 2}}},
    {"and in timeslices", "priority", .seconds = 20, .account = {[1] = {.weight = 300}}, .saturated = true, .jobs = {
        {.class = N, .need = 1, .account = 1, .lo = 0.74, .hi = 0.76},
        {.class = N, .need = 1, .account = 2, .lo = 0.12, .hi = 0.13, .times = 2}}},
    {"what a floor keeps for batch jobs is not used up by normal ones of the same account", "priority", .floor = 0.2, .seconds = 60, .usage = true, .jobs = {
        {.class = L, .need = 0.02, .account = 3, .lo = 0.019, .hi = 0.021},
        {.class = N, .need = 1, .account = 2, .lo = 0.38, .hi = 0.4},
        {.class = N, .need = 1, .account = 3, .lo = 0.38, .hi = 0.4},
        {.class = B, .need = 1, .account = 3, .lo = 0.07, .hi = 0.1},
        {.class = B, .need = 0.005, .lo = 0.004, .hi = 0.006}}},
    {"and an account that comes later has no more of it", "priority", .floor = 0.2, .seconds = 60, .usage = true, .jobs = {
        {.class = L, .need = 0.02, .account = 3, .lo = 0.019, .hi = 0.021},
        {.class = N, .need = 1, .account = 2, .lo = 0.76, .hi = 0.8},
        {.class = B, .need = 1, .account = 2, .lo = 0.15, .hi = 0.17},
        {.class = B, .need = 1, .account = 3, .works_from_s = 40, .lo = 0.026, .hi = 0.034}}},
    {"jobs that come and go bring no credit", "priority", .seconds = 30, .account = {[1] = {.weight = 300}}, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.64, .hi = 0.69},
        {.class = B, .need = 1, .account = 2, .to_s = 5, .lo = 0, .hi = 1},
        {.class = B, .need = 1, .account = 2, .from_s = 5, .to_s = 10, .lo = 0, .hi = 1},
        {.class = B, .need = 1, .account = 2, .from_s = 10, .to_s = 15, .lo = 0, .hi = 1},
        {.class = B, .need = 1, .account = 2, .from_s = 15, .to_s = 20, .lo = 0, .hi = 1},
        {.class = B, .need = 1, .account = 2, .from_s = 20, .to_s = 25, .lo = 0, .hi = 1},
        {.class = B, .need = 1, .account = 2, .from_s = 25, .lo = 0, .hi = 1}}},
    {"a deadline does not undo a lowered weight", "laxity", .seconds = 100, .saturated = true, .jobs = {
        {.class = B, .need = 1, .account = 1, .lo = 0.98, .hi = 1},
        {.class = B, .weight = 1, .need = 1, .account = 2, DUE, .lo = 0, .hi = 0.02}}},
    {"nor in turns", "laxity", .seconds = 200, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.88, .hi = 0.9},
        {.class = B, .weight = 1, .need = 1, .account = 2, DUE, .lo = 0, .hi = 0.02}}},
    {"a deadline moves time within its account", "laxity", .seconds = 100, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.43, .hi = 0.47},
        {.class = B, .need = 1, .account = 2, .lo = 0.05, .hi = 0.20},
        {.class = B, .need = 1, .account = 2, DUE, .lo = 0.26, .hi = 0.40}}},
    {"and in timeslices", "laxity", .seconds = 100, .saturated = true, .jobs = {
        {.class = B, .need = 1, .account = 1, .lo = 0.48, .hi = 0.52},
        {.class = B, .need = 1, .account = 2, .lo = 0.05, .hi = 0.24},
        {.class = B, .need = 1, .account = 2, DUE, .lo = 0.26, .hi = 0.45}}},
    {"a request that is within its user's part is in time", "laxity", .seconds = 100, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.5, .hi = 0.66},
        {.class = B, .need = 1, .account = 2, .work_s = 0.6, .every_s = 2, .due_s = 1.4, .lo = 0.29, .hi = 0.31}}},
    {"who does nothing costs its account's others next to nothing", "priority", .seconds = 60, .measure_from_s = 10, .usage = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.42, .hi = 0.46},
        {.class = B, .need = 1, .account = 2, .lo = 0.42, .hi = 0.46},
        {.class = B, .need = 1, .account = 2, .works_from_s = 99, .lo = 0, .hi = 0}}},
    {"nor those of other accounts", "priority", .seconds = 60, .measure_from_s = 10, .usage = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .account = 1, .lo = 0.86, .hi = 0.9},
        {.class = B, .need = 1, .account = 2, .works_from_s = 99, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .account = 3, .works_from_s = 99, .lo = 0, .hi = 0}}},
    {"the same with a floor, and a latency job that works", "priority", .floor = 0.2, .seconds = 60, .measure_from_s = 10, .usage = true, .jobs = {
        {.class = L, .need = 0.02, .account = 3, .lo = 0.019, .hi = 0.021},
        {.class = B, .need = 1, .account = 2, .lo = 0.94, .hi = 0.98},
        {.class = B, .need = 1, .account = 3, .works_from_s = 99, .lo = 0, .hi = 0}}},
};
/* clang-format on */

TEST(behaviours)
{
    mock_table(table, ARRAY_SIZE(table), 5e-3);
}
