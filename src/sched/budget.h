/* The slice of a batch job beside latency jobs that can bear some delay.
 *
 * Every time a latency job takes the GPU from a batch job two switches are lost. The batch job runs
 * for at least its slice S in between, or until the next request: with requests at rate r (Poisson)
 * for E(S) = S + exp(-r S) / r. Of the time that the latency jobs leave, switching takes
 *     loss(S) = 2 s / (E(S) + 2 s)        s: one switch
 * and what one request waits for at most is S + 2 s: it came as the batch job was being switched
 * in.
 *
 * What is observed is how often the batch job gets the GPU back, and for how long the latency jobs
 * have it; both tell E at the slice that was set meanwhile, and so r. The slice is the smallest
 * that keeps the loss below a limit, and never longer than the budget allows. Where a longer
 * one would save next to nothing (at low rates E is 1 / r, whatever S) it stays the smallest. */
#ifndef CEDE_SCHED_BUDGET_H
#define CEDE_SCHED_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

struct budget_seen {
    double returns_hz; /* how often per second a lower job got the GPU back from a latency job */
    double busy;       /* share of time that latency jobs had it, 0..1 */
    uint32_t slice_us; /* the lower job's while this was seen */
};

/* budget_us: what requests may wait, in all. seen: NULL if nothing was observed yet; then the
 * longest slice that the budget allows. In timeslice_min_us .. timeslice_max_us. */
uint32_t budget_slice_us(const struct sched_params *p, uint32_t budget_us,
                         const struct budget_seen *seen);

/* What latency jobs were seen doing on a device lately (EV_ACTIVITY), older observations counting
 * less. Invariant: all of it was seen at the present slice; whoever changes that calls
 * observed_forget(). */
struct observed {
    double seconds, returns, busy_s;
};

void observed_add(struct observed *o, const struct sched_event *ev);
void observed_forget(struct observed *o);
/* Enough to judge the present slice by. */
bool observed_enough(const struct observed *o);

/* The budget of a device. Invariant: slice_us is 0 while no latency job there has a budget, and
 * otherwise within what the smallest of their budgets allows. */
struct budget {
    uint32_t slice_us; /* of the lower jobs, now; 0: not chosen yet */
};

/* The slice from now on. least_us: the smallest budget of the device's latency jobs; 0: one of them
 * has none. */
uint32_t budget_decide(const struct sched_params *p, struct budget *b, struct observed *seen,
                       uint32_t least_us);

#endif
