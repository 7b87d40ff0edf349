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
 * (runs.h; it followed what the programs said of themselves within 2 % on an H100). How fast a
 * program goes changes by itself, by tens of percent from one half second to the next. So the two
 * are *compared* side by side: lower jobs have the slice for a tenth of a second and the shortest
 * for another, by turns, until both were seen for long enough; when they come, and for a moment
 * every REFERENCE_NS. What a slice costs is taken as proportional to it, and what was seen of that
 * lately counts together. The speed alone follows: the shortest slice costs what a slice of a
 * switch's length would.
 *
 * From that the slice follows. Where even the first step costs more than the floor leaves, lower
 * jobs are rationed: they have it for a part of the time, and the shortest for the rest, which
 * goes on comparing the two. A slice that takes more from the latency jobs than it gives to lower
 * ones is *barred* for a while, twice as long each time. Where even the shortest slice costs too
 * much, lower jobs are *throttled*: they run only part of the time, with a slice that is worth the
 * switches.
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
    SPEED_COMPARE,   /* by turns with a longer one; for good if lower jobs are rationed */
    SPEED_STAYS,     /* a slice has come to stay */
    SPEED_THROTTLED, /* lower jobs wait */
    SPEED_BURST,     /* and run for a moment */
};

/* What was seen with one of the two slices that are compared. */
struct speed_arm {
    double seconds;
    double work, lower; /* in them: of the latency jobs, and of those below */
};

/* A device's. Invariants: step is 0 but in SPEED_COMPARE and SPEED_STAYS; until_ns counts in
 * SPEED_THROTTLED and SPEED_BURST alone. */
struct speed_floor {
    enum speed_phase phase;
    uint32_t step; /* index of the slice */
    bool longer;   /* of those that are compared, the slice of the step has its turn */
    struct speed_arm arms[2];
    double compare_s; /* so long in each arm until it is judged */
    double part;      /* of the time that lower jobs have the slice; 1: always */
    uint64_t until_ns;
    uint64_t changed_ns;        /* when the slice was last set */
    uint64_t pauses_until_ns;   /* until then they count as jobs that pause */
    uint64_t told_ns;           /* when the record last showed anything, */
    double told_s;              /* of so much time */
    uint64_t reference_ns;      /* when the next comparison is due; */
    uint64_t again_ns, odd_ns;  /* and no sooner than then, and so long, because the speed is odd */
    uint64_t barred_ns, bar_ns; /* slices are worthless until then; for how long they were last */
    double alone,
        shortest;    /* GPU time that latency jobs work per second alone, at the shortest slice */
    double busy;     /* as EV_DEMAND says of the latency jobs; 1: nothing does */
    double us_costs; /* of their time at the shortest slice: what 1 us of slice adds, */
    double costs_us, squares_us; /* from these sums: of costs times slices, and of squares, */
    double compared_s;           /* of so much time, or what counts as such */
    double rate, lower;          /* the same with this slice, and the share that lower jobs have */
    double may_lose;             /* of their speed, as asked for last; 0: no matter */
    uint32_t odd;                /* looks in a row at which the speed did not fit */
    bool launch_bound;           /* as seen last at the shortest slice */
    double bursts_hz;            /* then */
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
