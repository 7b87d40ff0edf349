/* Which job leaves a GPU's memory, or comes back: a pure decision over one device, as in sched.h.
 * Moves one job at a time: each move changes what the next decision sees.
 *
 * A job leaves only for a latency job that needs memory which is not there, only if that becomes
 * possible by it, batch before normal and the largest first; latency jobs never leave. It comes
 * back when there is room for it beside all that others still need, not before a while has passed
 * in which no latency job needed any: so jobs that begin and end often do not make the others
 * thrash. Jobs of its class and below that wait for room to start come after it. */
#ifndef CEDE_SCHED_SWAP_H
#define CEDE_SCHED_SWAP_H

#include "sched/sched.h"

struct swap_job {
    enum job_class class;
    bool out;            /* in host memory; else on the device */
    bool fixed;          /* on its way, refused lately, or out because a person wants so */
    uint64_t bytes;      /* on this device, or what it will take there */
    uint64_t need_bytes; /* what it is going to take beyond that */
    bool waits;          /* until that is free, before its program is started: room.h */
    uint64_t since_ns;   /* when it last left or came */
};

struct swap_device {
    uint64_t free_bytes;
    uint64_t need_ns;  /* when a latency job last needed memory; 0: never */
    uint64_t quiet_ns; /* to pass after that before anybody comes back */
};

struct swap_move {
    uint32_t job; /* index; SLOT_NONE: nobody moves */
    bool out;
};

struct swap_move swap_decide(const struct swap_device *d, const struct swap_job *jobs, uint32_t n,
                             uint64_t now_ns);

#endif
