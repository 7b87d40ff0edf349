/* Who may start when a GPU's memory is short: a pure decision over one device, as in swap.h. A job
 * that says how much memory it will take waits, before its program is started, until so much is
 * free: not held, not said by those that have started and not taken by them yet, and not what a
 * job that was swapped out comes back to.
 *
 * One after the other: higher classes first, within a class accounts in turn, and within an account
 * first come, first served. Nobody overtakes the first one that does not fit, so that small jobs
 * cannot starve a large one; that costs memory which they could use meanwhile. It is not to starve
 * the others either, if what it waits for never ends: when it has been first for ROOM_PASS_NS,
 * those behind it that fit start past it, once; then it is first for twice as long before that
 * happens again. A job for which there would be too little if all jobs ended holds up nobody. */
#ifndef CEDE_SCHED_ROOM_H
#define CEDE_SCHED_ROOM_H

#include "sched/sched.h"

#define ROOM_PASS_NS     (600 * 1000000000ULL)
#define ROOM_PASS_MAX_NS (86400 * 1000000000ULL)

struct room_job {
    enum job_class class;
    uint32_t account;
    bool waits;          /* for need_bytes; else it has started and may still take them */
    uint64_t need_bytes; /* on this device, beyond what it holds there */
    uint64_t back_bytes; /* it is out and comes back by itself, before its class's that wait */
    uint64_t line_ns;    /* since when it is in line, or since its account last had its turn */
    uint64_t number;     /* ties */
    bool infeasible;     /* there is too little for it even if all jobs end */
    uint64_t first_ns; /* since when it has been first, or since others started past it; 0: never */
    uint64_t pass_ns;  /* how long after that they may */
    uint32_t place;    /* room_line(): 0 is the first in line */
};

/* Who may start now waits no more. Its account's others of that class go behind other accounts. */
void room_decide(struct room_job *jobs, uint32_t n, uint64_t free_bytes, uint64_t now_ns);

/* Fills in the places of those that wait, as their turns will come if nobody else does.
 * scratch: n pointers. */
void room_line(struct room_job *jobs, uint32_t n, struct room_job **scratch);

#endif
