/* Who of the jobs that share a GPU in space runs now. They run together as long as that gains: for
 * TRIAL windows it is looked at how fast each goes (speeds.h). Where all of them together do less
 * than they would in turns, or one is left with less than two thirds of its turns, they take turns,
 * by weight, and try again from time to time, more and more rarely.
 *
 * A job may have a speed that it is to keep. Then the others, those without one, run only for a
 * part of each PERIOD, as long as leaves it that.
 *
 * Who does nothing while it has the GPU for itself is *idle*: nobody waits for it, nor it for
 * anybody, until it works again.
 *
 * A turn here is long: who is held (SIGSTOP) ends first what it has queued. Pure arithmetic. */
#ifndef CEDE_SCHED_SPACE_H
#define CEDE_SCHED_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/speeds.h"

struct space_job {
    uint32_t weight;
    double min_speed;   /* that it is to keep; 0: none */
    bool unknown;       /* it did nothing alone: its speed is not known, and it counts as idle */
    struct speed speed; /* in the last window, if it ran */
};

/* All zero at the start, and when other jobs share the GPU. */
struct space {
    bool turns;
    uint32_t idle;            /* bit map by index */
    uint32_t windows;         /* of this trial */
    double sum[SPEED_JOBS];   /* of their speeds in it, */
    double all;               /* of all of them, */
    uint32_t alike;           /* and windows in which they could not be told apart: if most */
    uint64_t retry_ns, until; /* when turns end; 0: they have not begun */
    uint32_t holder;          /* index of whose turn it is, and until when */
    uint64_t turn_until;
    double had[SPEED_JOBS]; /* turns by weight */
    double less;            /* what those without min_speed run less, of the time */
};

/* They are known to do less together. */
void space_begin_turns(struct space *s, uint64_t now_ns);
/* A window has passed in which all ran, or in turns only the holder and those who are idle; all:
 * the sum of their speeds in it. Above 0: a trial has shown that they gain, below: that they do
 * not. */
int space_told(struct space *s, const struct space_job *v, uint32_t n, struct speed all,
               uint64_t now_ns);
/* The jobs that are held now, bit map by index; *wake_ns: until when at most. */
uint32_t space_decide(struct space *s, const struct space_job *v, uint32_t n, uint64_t now_ns,
                      uint64_t *wake_ns);

/* Whether jobs within a unit are held now, that have this share of the time, so that jobs outside
 * have the rest: each in a turn of TURN_NS, and the one with more in a longer one. */
bool space_outside_turn(double share, uint64_t now_ns, uint64_t *until_ns);

#endif
