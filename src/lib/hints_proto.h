/* The page by which a program tells the daemon of its requests: the program writes it (libcede,
 * libcede), the daemon reads it (src/control/hints.c) and believes nothing of it that hurts
 * anyone else. It is handed over with the answer to {"op":"hints"}, which tells HINTS_VERSION: a
 * program that knows another one writes nothing. */
#ifndef CEDE_LIB_HINTS_PROTO_H
#define CEDE_LIB_HINTS_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#define HINTS_VERSION 2
#define HINTS_PAGE    65536 /* bytes: a page on every architecture */

struct hints_page {
    _Atomic uint64_t begun, ended; /* requests of this program, ever */
    _Atomic uint64_t due, met;     /* of those that ended: had a deadline, and kept it */
    /* The open request that is due first: its deadline, CLOCK_MONOTONIC, 0: there is none; the GPU
     * time that it is said to need, 0: not said; how much it matters. */
    _Atomic uint64_t earliest_ns, need_us;
    _Atomic uint64_t deadline_us; /* of requests that do not say so; 0: none */
    _Atomic int32_t priority;
};

#endif
