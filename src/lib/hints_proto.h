/* The page on which a program reports its requests: the program writes it (libcede), the daemon
 * reads it (src/control/hints.c) and trusts nothing on it that could hurt another job. Two words
 * go the other way. It comes with the answer to {"op":"hints"}, which has HINTS_VERSION: a
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
    _Atomic uint32_t looks; /* HINTS_LOOKS_...: which of the daemon's words the program looks at */
    /* 1: a job of a higher class waits for this one. The daemon writes it, into what was 0 in
     * earlier releases; the program alone is hurt if it writes it too. */
    _Alignas(64) _Atomic uint32_t wanted;
    /* Requests that ended: number i is at done[i % HINTS_DONE], and the next is number ndone. A
     * program of before has 0 there. */
    _Atomic uint64_t ndone;
    struct hints_done done[HINTS_DONE];
    /* The share of the GPU that the program can expect, and when the daemon wrote that:
     * hints_share_word(); 0: not known, as in earlier releases. The daemon only writes it. */
    _Atomic uint64_t share;
};
_Static_assert(sizeof(struct hints_page) <= HINTS_PAGE, "fits");

#define HINTS_LOOKS_WANTED 1U
#define HINTS_LOOKS_SHARE  2U

#define HINTS_SHARE_WHOLE 1000U         /* shares are thousandths */
#define HINTS_SHARE_NS    3000000000ULL /* an older one does not count */

/* Milliseconds of CLOCK_MONOTONIC, and the share in the last 16 bits. */
static inline uint64_t hints_share_word(uint64_t now_ns, uint32_t share)
{
    return (now_ns / 1000000 + 1) << 16 | share;
}

/* HINTS_SHARE_WHOLE where the word is old, or makes no sense. */
static inline uint32_t hints_share_of(uint64_t word, uint64_t now_ns)
{
    uint64_t share = word & 0xffff, since_ms = now_ns / 1000000 + 1 - (word >> 16);
    return since_ms <= HINTS_SHARE_NS / 1000000 && share >= 1 && share <= HINTS_SHARE_WHOLE
               ? (uint32_t)share
               : HINTS_SHARE_WHOLE;
}

#endif
