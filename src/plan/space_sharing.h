/* Decides which of the jobs that share a GPU in space run now. They run together as long as that
 * gains: in a trial of TRIAL windows the speed of each is found (speeds.h). If all together do less
 * than they would in turns, or one has less than two thirds of its turns, they take turns by
 * weight, and try again from time to time, ever more rarely.
 *
 * A job may have a least speed. Then those without one run only for a part of each PERIOD, so that
 * it keeps that speed.
 *
 * A job that does nothing while it has the GPU alone is *idle*: it and the others do not wait for
 * each other until it works again.
 *
 * A turn here is long, because a job that is held (SIGSTOP) first ends its queued work. Pure
 * arithmetic. */
#ifndef CEDE_PLAN_SPACE_SHARING_H
#define CEDE_PLAN_SPACE_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/speeds.h"

#define SPACE_GAIN 0.97 /* least sum of speeds; with turns it is 0.93 to 1.0 */
#define SPACE_FAIR 0.66 /* least speed, relative to that with turns */

struct space_job {
    uint32_t weight;
    double min_speed;   /* the least speed, relative to alone; 0: none */
    bool unknown;       /* it did nothing when alone, so that its speed is not known: it is idle */
    struct speed speed; /* in the last window, if it ran */
};

/* All zero at the start, and when other jobs share the GPU. */
struct space {
    bool turns;
    uint32_t idle;            /* bit map by index */
    uint32_t windows;         /* number of windows of this trial */
    double sum[SPEED_JOBS];   /* sum of each job's speeds in them */
    double all;               /* sum of all speeds in them */
    uint32_t alike;           /* number of windows in which the jobs could not be told apart */
    uint64_t retry_ns, until; /* length of the turns, 0: there were none; their end */
    uint32_t current;         /* index of the job that has its turn */
    uint64_t turn_until;      /* end of that turn */
    double had[SPEED_JOBS];   /* turns by weight */
    double less;              /* part of the time for which jobs without min_speed are held */
};

/* Called if the jobs are known to do less together. */
void space_begin_turns(struct space *s, uint64_t now_ns);
/* Called after a window in which all ran or, in turns, only the current and idle jobs; all: the sum
 * of their speeds. Returns above 0 if a trial has shown that they gain, below 0 if not, else 0. */
int space_told(struct space *s, const struct space_job *v, uint32_t n, struct speed all,
               uint64_t now_ns);
/* The jobs that are held now, as a bit map by index; *wake_ns: until when at most. */
uint32_t space_decide(struct space *s, const struct space_job *v, uint32_t n, uint64_t now_ns,
                      uint64_t *wake_ns);

/* Whether the jobs within a unit, which have this share of the time, are held now so that jobs
 * outside have the rest. The side with less has turns of TURN_NS. */
bool space_outside_turn(double share, uint64_t now_ns, uint64_t *until_ns);

#endif
