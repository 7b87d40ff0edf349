/* Floors and ceilings: the least and the most of a GPU's time, after the latency class, that a job
 * or an account gets.
 *
 * Time is divided into frames of 500 ms. A *limited* job, one that has a floor or a ceiling or
 * whose account has, gets its part of each frame as a *window*. While a job has its window, the
 * others run only in the gaps that it leaves, and not at all if a latency job is present, below
 * which only one job may run. When all windows of a frame are over, a limited job may go on in the
 * gaps of jobs without limits, until it has had its ceiling; then it is suspended. So a ceiling
 * holds in each frame, and others get the time that a job leaves.
 *
 * The length of a frame is a trade-off. A limited job that works is away for a frame at most, less
 * its part, and a job that becomes limited, or begins to work, waits for the next frame. But each
 * window suspends the jobs that take turns beside it, all but one, resumes them afterwards, and
 * changes two timeslices: with seven of them that takes 6 ms of ceded's processor time
 * (nvidia-measurements.md), 1.3 % of a core with this frame. So a frame of 100 ms would cost 6 %.
 * tests/sim/test_controls.c bounds it. For the same reason one job has all gaps of a window, and
 * groups that only copy keep the driver's timeslice.
 *
 * A latency job with a ceiling has separate frames of 100 ms, because its requests wait while it is
 * suspended. It does not wait for other jobs' windows: it runs from the begin of each frame until
 * it has had its part. Nothing else changes while it is suspended, so that a frame costs two
 * controls.
 *
 * Parts are those of max-min fairness by share (account_shares.h) between the bounds: floors first,
 * then class by class. A part shorter than the shortest window is saved up for some frames. A gang
 * has its window on all its devices at once.
 *
 * An idle job has no window. It runs in the rest of the frame, as far as its ceiling allows, so
 * that it is seen when it begins to work. Where the rest may leave it nothing, as with latency jobs
 * or windows or for gangs, one idle job is probed in each frame, in a short window.
 *
 * No job starves: floors that exceed the whole are cut in all classes in proportion, each working
 * job has a little (batch jobs only while a floor is kept for lower classes), and turns in windows
 * do not count as turns in the rest.
 *
 * Not good for more than some ten limited working jobs on a device, because each window costs
 * controls. Pure arithmetic. */
#ifndef CEDE_PLAN_LIMITS_H
#define CEDE_PLAN_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"

struct machine;
struct member;
struct policy_device;

/* The limits of a job or an account, as shares of a GPU. */
struct limits {
    double min, max; /* 0: none */
};

/* Whether a limit lets a job run now. AWAY: a latency job has had its part; it is suspended, and
 * everything else is decided as if it ran. OUT: another job may not run, and does not count. */
enum limit_verdict { LIMIT_NONE, LIMIT_AWAY, LIMIT_OUT };

/* A member's limits; all but `part` are the same on all devices of a gang. */
struct member_limits {
    struct limits own;
    enum limit_verdict verdict;
    enum job_class class;      /* its class for now, by a window; CLASS_COUNT: its own */
    double part;               /* of a frame */
    double most;               /* its part with the gaps that others leave */
    double window_ns, gaps_ns; /* time left; window_ns < 0: it had too much */
    uint64_t looked;           /* number of the frame in which it was last probed */
    uint64_t served;           /* when its last window began */
    uint32_t next;             /* list of its account's members, while parts are computed */
    bool begun;                /* of a latency job: it has its window */
    bool in_gaps;              /* it goes on after its window */
};

/* One of several claims on an amount that is shared by weight. */
struct claim {
    double weight, lo, hi, got;
};

/* The frames of all devices. */
struct frames {
    uint64_t begun_ns;   /* begin of the present frame */
    uint64_t latency_ns; /* the same for latency jobs */
    uint64_t charged_ns;
    uint64_t number;      /* of the present frame; 0: there was none */
    struct claim *claims; /* scratch: as many as there are jobs or accounts */
};

/* Resets the verdicts and classes of the last decision. */
void limits_release(const struct machine *mc);
/* Sets each member's verdict, and the class of those that have a window or its gaps. */
void limits_decide(const struct machine *mc, struct frames *f);
/* Charges a limited job for time that it had out of turn. */
void limits_charge(const struct policy_device *dev, struct member *m, uint64_t ns);
/* Called instead of limits_decide() where there are no limits: ends windows. */
void limits_end(const struct machine *mc);
/* Called last: sets timeslices of limited jobs with several contexts. */
void limits_slices(struct policy_device *dev);
/* Shares an amount by weight between the bounds; floors that exceed it are cut in proportion. */
void limits_fill(struct claim *v, uint32_t n, double amount);

#endif
