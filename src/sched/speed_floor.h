/* The slice of lower jobs beside latency jobs that leave only short gaps.
 *
 * A program that is launch-bound (eager PyTorch, a server that computes token by token) leaves the
 * GPU idle most of the time, in gaps that are shorter than a switch. With the shortest slice lower
 * jobs get nothing of that: they lose the GPU before they have begun. With a longer one the latency
 * job's host runs ahead meanwhile and queues kernels, which then run back to back, so that it loses
 * little. So lower jobs get the longest slice with which the latency job keeps its *floor*, the
 * least speed that it is to have, as a share of its speed alone.
 *
 * Speed is the GPU time that the latency jobs work per second, as the record of switches shows it
 * (runs.h; it followed what the programs said of themselves within 2 % on an H100). What it is
 * alone is measured at the shortest slice, in a short *reference* every REFERENCE_NS, and corrected
 * by what the shortest slice itself costs: the loss per microsecond of slice, seen at all steps,
 * times a switch.
 *
 * The slice goes up and down in steps. A step that takes the latency job below its floor, or takes
 * more from it than it gives to lower jobs, is *barred* for a while, twice as long each time: so
 * the slice settles. Where even the shortest slice costs too much, lower jobs are
 * *throttled*: they run only part of the time, with a slice that is worth the switches.
 *
 * Requests with pauses that are longer than a switch are left alone: there the shortest slice gives
 * lower jobs most of what is left, and each request waits for one switch. So are latency jobs that
 * pause for milliseconds now and then, a server without requests: while lower jobs wait, nothing
 * shows that it pauses. Pure arithmetic. */
#ifndef CEDE_SCHED_SPEED_FLOOR_H
#define CEDE_SCHED_SPEED_FLOOR_H

#include "sched/runs.h"

struct sched_params;

#define SPEED_STEPS 7 /* slices there are, the shortest first */
#define SPEED_BUSY                                                                                 \
    0.04 /* share of the time that latency jobs work; with less none is launch-bound */

enum speed_phase {
    SPEED_SHORTEST,  /* the shortest slice: whether there is anything to gain */
    SPEED_STEP,      /* a slice is new, and is measured */
    SPEED_STAYS,     /* and has come to stay */
    SPEED_REFERENCE, /* the shortest slice for a moment, to know the speed alone */
    SPEED_THROTTLED, /* lower jobs wait */
    SPEED_BURST,     /* and run for a moment */
};

/* A device's. Invariants: step is 0 in SPEED_SHORTEST; until_ns counts in SPEED_THROTTLED and
 * SPEED_BURST alone. */
struct speed_floor {
    enum speed_phase phase;
    uint32_t step; /* index of the slice, while it is not a reference */
    uint64_t until_ns;
    uint64_t changed_ns;      /* when the slice was last set */
    uint64_t pauses_until_ns; /* until then they count as jobs that pause */
    uint64_t told_ns;         /* when the record last showed anything, */
    double told_s;            /* of so much time */
    uint64_t reference_ns;    /* when the next reference is due */
    uint64_t barred_ns[SPEED_STEPS];
    uint64_t bar_ns[SPEED_STEPS]; /* for how long it was barred last */
    double alone,
        shortest;    /* GPU time that latency jobs work per second alone, at the shortest slice */
    double busy;     /* as EV_DEMAND says of the latency jobs; 1: nothing does */
    double us_costs; /* of their time at the shortest slice: what 1 us of slice adds, */
    double costs_us, squares_us; /* from these sums: of costs times slices, and of squares */
    double rate, lower;          /* the same with this slice, and the share that lower jobs have */
    double rate_before, lower_before; /* with the step below */
    double may_lose;                  /* of their speed, as asked for last; 0: no matter */
    uint32_t odd;                     /* looks in a row at which the speed did not fit */
    bool doubted;                     /* in a reference: the step goes if that shows no cause */
    bool launch_bound;                /* as seen last at the shortest slice */
    double bursts_hz;                 /* then */
};

/* For how long lower jobs run, and whether at all. */
struct speed_slice {
    uint32_t slice_us;
    bool blocked;
    uint64_t wake_ns; /* decide again then */
};

/* least: the floor of the latency jobs, 0.01 to 1. */
struct speed_slice speed_floor_decide(const struct sched_params *p, struct speed_floor *s,
                                      struct runs *seen, double least, uint64_t now_ns);
/* The longest slice that light contexts may have beside the latency jobs (company.h); 0: none runs
 * beside another, for what they cost is not known, or is too much. */
uint32_t speed_floor_beside_us(const struct sched_params *p, const struct speed_floor *s);
/* What latency jobs that are not launch-bound lose of their speed, if each of their bursts waits
 * for a context of this duty when it has work. */
double speed_floor_lost(const struct sched_params *p, const struct speed_floor *s, double duty,
                        uint32_t slice_us);
/* Whether it is one of its slices, but for the shortest. */
bool speed_floor_has_slice(uint64_t us);
/* Nothing is known any more, for the latency jobs are others, or there are none. */
void speed_floor_reset(struct speed_floor *s);

#endif
