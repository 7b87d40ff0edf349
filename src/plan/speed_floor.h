/* The slice of lower jobs while latency jobs leave only short gaps.
 *
 * A program that is launch-bound (eager PyTorch, a server that computes token by token) leaves the
 * GPU idle most of the time, in gaps that are shorter than a switch. With the shortest slice lower
 * jobs get nothing of that: they lose the GPU before they have begun. With a longer one the latency
 * job's host runs ahead meanwhile and queues kernels, which then run back to back, so that it loses
 * little. So lower jobs get the longest slice with which the latency job keeps its *floor*, the
 * least speed that it is to have, as a share of its speed alone.
 *
 * Speed is the GPU time that the latency jobs work per second, by the record of switches
 * (switch_record.h; on an H100 it agreed with the programs' own figures within 2 %). A program's
 * speed varies by itself, by tens of percent from one half second to the next. So two slices are
 * *compared* side by side: lower jobs have the longer one for a tenth of a second and the shortest
 * for another, by turns, until there is enough of both; this is done at first, and for a moment
 * every REFERENCE_NS. The cost of a slice is taken as proportional to its length, and recent
 * observations of all slices count together. From that the speed alone follows, because the
 * shortest slice costs as much as a slice of a switch's length.
 *
 * Where even the first step costs more than the floor allows, lower jobs are rationed: they have it
 * for a part of the time and the shortest for the rest, which goes on comparing the two. A slice
 * that takes more from the latency jobs than it gives to lower ones is *barred* for a while, twice
 * as long each time. Where even the shortest slice costs too much, lower jobs are *throttled*: they
 * run only part of the time, with a slice that is worth the switches.
 *
 * Latency jobs with pauses between requests that are longer than a switch are not affected: there
 * the shortest slice gives lower jobs most of the time that is left, and each request waits for one
 * switch. Beside latency jobs that pause for milliseconds now and then, such as a server without
 * requests, lower jobs are throttled for short times only, at the shortest slice, because
 * throttling hides the pauses. Pure arithmetic. */
#ifndef CEDE_PLAN_SPEED_FLOOR_H
#define CEDE_PLAN_SPEED_FLOOR_H

#include "plan/switch_record.h"

struct sched_params;

#define SPEED_STEPS 7    /* number of slices, the shortest first */
#define SPEED_BUSY  0.04 /* load below which latency jobs are not launch-bound */

enum speed_phase {
    SPEED_SHORTEST,  /* the shortest slice, to find whether there is anything to gain */
    SPEED_COMPARE,   /* the shortest and a longer one by turns; for good if jobs are rationed */
    SPEED_STAYS,     /* one slice, until the speed changes */
    SPEED_THROTTLED, /* lower jobs wait */
    SPEED_BURST,     /* throttled jobs run for a moment */
};

/* Observations with one of the two slices that are compared. */
struct speed_arm {
    double seconds;
    double work, lower; /* engine time of the latency jobs, and of lower jobs */
};

/* A device's state. Invariants: step is 0 except in SPEED_COMPARE and SPEED_STAYS; until_ns counts
 * only in SPEED_THROTTLED and SPEED_BURST. */
struct speed_floor {
    enum speed_phase phase;
    uint32_t step; /* index of the slice */
    bool longer;   /* in SPEED_COMPARE: the longer slice has its turn */
    struct speed_arm arms[2];
    double compare_s; /* time in each arm after which they are judged */
    double part;      /* part of the time for which lower jobs have the slice */
    uint64_t until_ns;
    uint64_t changed_ns;       /* when the slice was last set */
    uint64_t pauses_until_ns;  /* until when latency jobs count as jobs that pause */
    uint64_t told_ns;          /* when the tally last grew */
    double told_s;             /* its length then */
    uint64_t reference_ns;     /* when the next comparison is due */
    uint64_t again_ns, odd_ns; /* earliest comparison because the speed is odd; time between such */
    uint64_t barred_ns, bar_ns; /* until when longer slices are barred; length of the last bar */
    double alone, shortest;     /* speed of latency jobs alone, and at the shortest slice */
    double busy;     /* load by latency jobs, of EV_DEMAND, relative to all jobs; 1: not known */
    double us_costs; /* cost of 1 us of slice, as a part of the time at the shortest slice */
    double costs_us, squares_us; /* us_costs is the quotient of these sums */
    double compared_s;           /* time over which they were summed */
    double rate, lower;          /* speed with the present slice, and the share of lower jobs */
    double may_lose;             /* part of their speed that latency jobs may lose; 0: not asked */
    uint32_t odd;                /* number of looks in a row at which the speed did not fit */
    bool launch_bound;           /* as last seen at the shortest slice */
    bool pausing;                /* when this phase began latency jobs were such that pause */
    double bursts_hz;            /* the same */
};

/* The slice of lower jobs, and whether they may run at all. */
struct speed_slice {
    uint32_t slice_us;
    bool blocked;
    uint64_t wake_ns; /* when to decide again */
};

/* least: the floor of the latency jobs, 0.01 to 1. */
struct speed_slice speed_floor_decide(const struct sched_params *p, struct speed_floor *s,
                                      struct runs *seen, double least, uint64_t now_ns);
/* The longest slice of light contexts that run together (light_jobs.h); 0: none do, because their
 * cost to latency jobs is not known, or too high. */
uint32_t speed_floor_beside_us(const struct sched_params *p, const struct speed_floor *s);
/* The part of their speed that latency jobs which are not launch-bound lose if each of their bursts
 * waits for contexts of this duty. */
double speed_floor_lost(const struct sched_params *p, const struct speed_floor *s, double duty,
                        uint32_t slice_us);
/* Whether it is one of the slices used here, except the shortest. */
bool speed_floor_has_slice(uint64_t us);
/* Forgets everything, because the latency jobs are others, or there are none. */
void speed_floor_reset(struct speed_floor *s);

#endif
