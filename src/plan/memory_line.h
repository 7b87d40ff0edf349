/* Decides which jobs may start when a GPU's memory is short; pure, over one device, as
 * swap_choice.h. A job that says how much memory it will take waits, before its program is started,
 * until that much is free, besides the memory that started jobs will still take, and that swapped
 * jobs will take when they come back.
 *
 * Higher classes come first, within a class accounts in turn, and within an account first come,
 * first served. No job overtakes the first one if that does not fit, so that small jobs cannot
 * starve a large one, at the cost of memory that they could use meanwhile. So that it does not
 * starve the others, after it has been first for ROOM_PASS_NS those behind it that fit start past
 * it, once; then it is first for twice as long. A job that would not fit even if all jobs ended
 * delays none. */
#ifndef CEDE_PLAN_MEMORY_LINE_H
#define CEDE_PLAN_MEMORY_LINE_H

#include "plan/sched.h"

#define ROOM_PASS_NS     (600 * 1000000000ULL)
#define ROOM_PASS_MAX_NS (86400 * 1000000000ULL)

struct room_job {
    enum job_class class;
    uint32_t account;
    bool waits;          /* it waits for need_bytes; else it has started and may still take them */
    uint64_t need_bytes; /* on this device, in addition to what it has there */
    uint64_t back_bytes; /* memory that a swapped job takes; it comes before waiting jobs of its
                            class */
    uint64_t line_ns;    /* since when it is in line, or its account last had its turn */
    uint64_t number;     /* decides ties */
    bool infeasible;     /* it would not fit even if all jobs ended */
    uint64_t first_ns;   /* since when it is first, or others started past it; 0: never */
    uint64_t pass_ns;    /* time after which they may */
    uint32_t position;   /* in line, by room_line(); 0 is the first */
};

/* Clears `waits` of jobs that may start now. Others of their account and class go behind other
 * accounts. */
void room_decide(struct room_job *jobs, uint32_t n, uint64_t free_bytes, uint64_t now_ns);

/* Sets the positions of jobs that wait, as their turns will come if no job is added. scratch: n
 * pointers. */
void room_line(struct room_job *jobs, uint32_t n, struct room_job **scratch);

#endif
