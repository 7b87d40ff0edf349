/* Decides which job leaves a GPU's memory, or comes back; pure, over one device. One job is moved
 * at a time, because each move changes the facts of the next decision.
 *
 * A job leaves only for a latency job that lacks memory, and only if that gets it so: batch jobs
 * before normal ones and the largest first; latency jobs never leave. It comes back when there is
 * room for it besides all that others still need, but not before no latency job has needed memory
 * for a while, so that jobs which begin and end often do not make the others thrash. It comes
 * before waiting jobs of its class and below. */
#ifndef CEDE_PLAN_SWAP_CHOICE_H
#define CEDE_PLAN_SWAP_CHOICE_H

#include "plan/sched.h"

struct swap_job {
    enum job_class class;
    bool out;            /* in host memory; else on the device */
    bool fixed;          /* it is being moved, was refused lately, or is out as a person said */
    uint64_t bytes;      /* that it has on this device, or will take there */
    uint64_t need_bytes; /* that it is going to take in addition */
    bool waits;          /* its program is not started before need_bytes are free: memory_line.h */
    uint64_t since_ns;   /* when it was last moved */
};

struct swap_device {
    uint64_t free_bytes;
    uint64_t need_ns;  /* when a latency job last needed memory; 0: never */
    uint64_t quiet_ns; /* time after that before a job comes back */
};

struct swap_move {
    uint32_t job; /* index; SLOT_NONE: none */
    bool out;
};

struct swap_move swap_decide(const struct swap_device *d, const struct swap_job *jobs, uint32_t n,
                             uint64_t now_ns);

#endif
