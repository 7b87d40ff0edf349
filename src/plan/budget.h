/* The slice of a batch job while latency jobs run that tolerate some delay.
 *
 * Every time a latency job takes the GPU from a batch job two switches are lost. The batch job runs
 * for at least its slice S in between, or until the next request: with requests at rate r (Poisson)
 * for E(S) = S + exp(-r S) / r. Of the time that the latency jobs leave, switching takes
 *     loss(S) = 2 s / (E(S) + 2 s)        s: one switch
 * and a request waits for at most S + 2 s, if it comes while the batch job is being switched in.
 *
 * Observed are how often the batch job gets the GPU back, and for how long the latency jobs have
 * it. From both E follows for the slice that was set meanwhile, and from E the rate r. The slice is
 * the smallest that keeps the loss below a limit, within the budget. Where a longer one would save
 * next to nothing (at low rates E is 1 / r for any S) the slice is the smallest. */
#ifndef CEDE_PLAN_BUDGET_H
#define CEDE_PLAN_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/sched.h"

struct budget_seen {
    double returns_hz; /* how often per second a lower job got the GPU back from a latency job */
    double busy;       /* share of time that latency jobs had it, 0..1 */
    uint32_t slice_us; /* of the lower job meanwhile */
};

/* The slice, from timeslice_min_us to timeslice_max_us. budget_us: the most that a request may
 * wait. seen: NULL without observations; then it is the longest slice that the budget allows. */
uint32_t budget_slice_us(const struct sched_params *p, uint32_t budget_us,
                         const struct budget_seen *seen);

/* Observations of a device's latency jobs (EV_ACTIVITY), of which older ones count less. All
 * were made at the present slice. */
struct observed {
    double seconds, returns, busy_s;
};

void observed_add(struct observed *o, const struct sched_event *ev);

/* The budget of a device. Invariant: slice_us is 0 while a latency job there has no budget, and
 * else within the smallest of their budgets. */
struct budget {
    uint32_t slice_us; /* present slice of the lower jobs; 0: not chosen yet */
};

/* Decides the slice. least_us: the smallest budget of the device's latency jobs; 0: one of them has
 * none. */
uint32_t budget_decide(const struct sched_params *p, struct budget *b, struct observed *seen,
                       uint32_t least_us);

#endif
