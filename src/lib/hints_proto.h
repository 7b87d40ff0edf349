/* The page on which a program reports its requests: the program writes it (libcede), the daemon
 * reads it (src/control/hints.c) and trusts nothing on it that could hurt another job. One word
 * goes the other way. It comes with the answer to {"op":"hints"}, which has HINTS_VERSION: a
 * program that knows another version writes nothing. */
#ifndef CEDE_LIB_HINTS_PROTO_H
#define CEDE_LIB_HINTS_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#define HINTS_VERSION 2
#define HINTS_PAGE    65536 /* bytes: a page on every architecture */

/* What a request took, for those who trace. Times are CLOCK_MONOTONIC; lead: that which libcede
 * launched for it, 0: none. */
struct hints_done {
    _Atomic uint64_t begun_ns, ended_ns, lead_ns, lead_end_ns;
};
#define HINTS_DONE 1024U

struct hints_page {
    _Atomic uint64_t begun, ended; /* requests of this program, ever */
    _Atomic uint64_t due, met;     /* of those that ended: with a deadline, and in time */
    /* The open request with the earliest deadline: that deadline (CLOCK_MONOTONIC; 0: none is
     * open), the GPU time that it needs (0: not known), its priority. */
    _Atomic uint64_t earliest_ns, need_us;
    _Atomic uint64_t deadline_us; /* default of requests; 0: none */
    _Atomic int32_t priority;
    _Atomic uint32_t looks; /* the program looks at: */
    /* 1: a job of a higher class waits for this one. The daemon writes it, into what was 0 in
     * earlier releases; the program alone is hurt if it writes it too. */
    _Alignas(64) _Atomic uint32_t wanted;
    /* Requests that ended: number i is at done[i % HINTS_DONE], and the next is number ndone. A
     * program of before has 0 there. */
    _Atomic uint64_t ndone;
    struct hints_done done[HINTS_DONE];
};
_Static_assert(sizeof(struct hints_page) <= HINTS_PAGE, "fits");

#endif
