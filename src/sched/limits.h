/* Floors and ceilings: the least and the most of a GPU's time that a job or an account gets, of
 * what the latency class leaves.
 *
 * Time is cut into frames of 500 ms. A *limited* job, one that has a floor or a ceiling or whose
 * account has, gets its part of each frame as a *window*. While a job has its window, the others
 * run only in the gaps that it leaves; while a latency job is present, where two could not run,
 * they do not run at all. When all windows of a frame are over, a limited job may go on in the gaps
 * of those without limits. In gaps it runs until it has had what its ceiling allows; then it is
 * suspended. So a ceiling holds in each frame, and what one leaves below its ceiling others get.
 *
 * The length of a frame is a trade-off. A limited job that works is away for a frame at most, less
 * its part, and a job that becomes limited, or begins to work, waits for the next frame. But each
 * window suspends the jobs that take turns beside it, all but one, resumes them afterwards, and
 * changes two timeslices: with seven of them that takes 6 ms of ceded's processor time
 * (nvidia-measurements.md), 1.3 % of a core with this frame. So a frame of 100 ms would cost 6 %.
 * tests/sim/test_controls.c bounds it. For the same reason one job has all gaps of a window, and
 * groups that only copy keep the driver's timeslice.
 *
 * A latency job with a ceiling has frames of its own, of 100 ms, as its requests wait while it is
 * away. It waits for nobody's window: it runs from each frame's begin on until it has had its part.
 * While it is away the others go on as beside any latency job, so that is one control, and one when
 * it returns.
 *
 * Parts are those of max-min fairness by share (account.h) between the bounds: floors first, then
 * class by class. A part shorter than the shortest window is saved up for some frames. A gang has
 * its window on all its devices at once.
 *
 * A job that does nothing has no window. It runs in the frame's rest, as far as its ceiling allows,
 * so it is seen when it begins to work. Where the rest may leave it nothing, beside latency jobs or
 * windows, and of gangs, one such job is looked at in each frame, in a short window of its own.
 *
 * Nobody starves: floors that come to more than all are cut in all classes alike, everybody at work
 * has a little (batch jobs only while a floor is kept for lower classes), and turns in windows do
 * not count against those in the rest.
 *
 * Not good for more than some ten limited jobs at work on a device: each window costs controls.
 * Pure arithmetic. */
#ifndef CEDE_SCHED_LIMITS_H
#define CEDE_SCHED_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct machine;
struct member;
struct policy_device;

/* Of a job or an account, in shares of a GPU. */
struct limits {
    double min, max; /* 0: none */
};

/* A member's: the same on all devices of a gang but for the part. held: it is suspended for a
 * limit's sake, and then `paused` says so to the policies, but not of a latency job. */
struct member_limits {
    struct limits own;
    double part;               /* of a frame */
    double most;               /* the same with the gaps that others leave */
    double window_ns, gaps_ns; /* left of them; window_ns < 0: had too much */
    uint64_t looked;           /* the frame in which it last was, doing nothing */
    uint64_t served;           /* when its last window began */
    uint32_t next;             /* of its account's members, while parts are worked out */
    bool held;
    bool begun;   /* of the latency class: its window */
    bool in_gaps; /* goes on after its window */
};

/* One of those who share an amount by weight. */
struct claim {
    double weight, lo, hi, got;
};

/* Of all devices. */
struct frames {
    uint64_t begun_ns;   /* the last one */
    uint64_t latency_ns; /* the last one of latency jobs */
    uint64_t charged_ns;
    uint64_t number;      /* of it; 0: there was none */
    struct claim *claims; /* scratch: as many as there are jobs or accounts */
};

/* Undoes what the last decision held: before anything looks at a member. */
void limits_release(const struct machine *mc);
/* Holds those that may not run now, and raises above its peers who has a window. */
void limits_decide(const struct machine *mc, struct frames *f);
/* One with limits had so much of the device out of turn. */
void limits_charge(const struct policy_device *dev, struct member *m, uint64_t ns);
/* Instead, where nobody has limits: no window is left from before. */
void limits_end(const struct machine *mc);
/* After all others: timeslices of jobs with limits that have several contexts. */
void limits_slices(struct policy_device *dev);
/* Shares an amount by weight between the bounds; floors that exceed it are cut in proportion. */
void limits_fill(struct claim *v, uint32_t n, double amount);

#endif
