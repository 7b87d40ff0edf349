/* The page on which a program reports its requests. The program (libcede) writes it; the daemon
 * (src/api/hints.c) reads it, trusts nothing on it that could hurt another job, and writes two of
 * its words. The page comes with the answer to LINK_HINTS (base/link_proto.h), whose LINK_MAGIC
 * changes with what is here: programs and daemons of other releases do not understand each other.
 */
#ifndef CEDE_BASE_HINTS_PROTO_H
#define CEDE_BASE_HINTS_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#define HINTS_PAGE 65536 /* bytes: a multiple of every architecture's page */

/* Times of a request, for traces, in CLOCK_MONOTONIC; lead: that of the kernel which libcede
 * launched ahead of it, 0: none. */
struct hints_done {
    _Atomic uint64_t begun_ns, ended_ns, lead_ns, lead_end_ns;
};
#define HINTS_DONE 1024U

/* A lease that waited: from when to when, in CLOCK_MONOTONIC; for what, and with what result; and
 * the beginning of its kernel's name. */
#define HINTS_KERNEL 5U
struct hints_lease {
    _Atomic uint64_t asked_ns, ended_ns, what, kernel[HINTS_KERNEL];
};
#define HINTS_LEASES 256U

/* What leases wait for, as enum cede_lease_wait of cede/lease.h. */
#define HINTS_WAITS 7U
static const char *const hints_wait_names[HINTS_WAITS] = {
    "none", "class", "limit", "occupancy", "memory", "utilization", "stream"};

/* failed: it did not start. device: of the pool. occupancy: in millionths. */
#define hints_lease_what(why, failed, device, occupancy)                                           \
    ((uint64_t)(occupancy) << 32 | (uint64_t)(device) << 16 | (failed) << 8 | (why))
#define hints_lease_why(what)       ((what)&0xff)
#define hints_lease_failed(what)    ((what) >> 8 & 1)
#define hints_lease_device(what)    ((what) >> 16 & 0xffff)
#define hints_lease_occupancy(what) ((what) >> 32)

struct hints_page {
    _Atomic uint64_t begun, ended; /* numbers of requests since the program began */
    _Atomic uint64_t due, met;     /* ended requests that had a deadline, and those in time */
    /* The open request with the earliest deadline: that deadline (CLOCK_MONOTONIC; 0: none is
     * open), the GPU time that it needs (0: not known), its priority. */
    _Atomic uint64_t earliest_ns, need_us;
    _Atomic uint64_t deadline_us; /* default of requests; 0: none */
    _Atomic int32_t priority;
    _Atomic uint32_t looks; /* HINTS_LOOKS_...: which of the daemon's words the program reads */
    /* 1: a job of a higher class waits for this one. The daemon writes this word, which was 0 in
     * earlier releases; a program that writes it too hurts itself alone. */
    _Alignas(64) _Atomic uint32_t wanted;
    /* Requests that ended: number i is at done[i % HINTS_DONE], and the next is number ndone. With
     * programs of earlier releases it is 0. */
    _Atomic uint64_t ndone;
    struct hints_done done[HINTS_DONE];
    /* The share of the GPU that the program can expect, and when the daemon wrote that, as
     * hints_share_word() puts them together; 0: not known. The daemon never reads this word. */
    _Atomic uint64_t share;
    /* Leases by what they waited for, and the latest that waited, as requests above. */
    struct {
        _Atomic uint64_t leases, total_us;
    } waits[HINTS_WAITS];
    _Atomic uint64_t nleases;
    struct hints_lease leases[HINTS_LEASES];
};
_Static_assert(sizeof(struct hints_page) <= HINTS_PAGE, "fits");

#define HINTS_LOOKS_WANTED 1U
#define HINTS_LOOKS_SHARE  2U

#define HINTS_SHARE_WHOLE 1000U         /* shares are thousandths */
#define HINTS_SHARE_NS    3000000000ULL /* an older word does not count */

/* Milliseconds of CLOCK_MONOTONIC, then the share in the last 16 bits. */
static inline uint64_t hints_share_word(uint64_t now_ns, uint32_t share)
{
    return (now_ns / 1000000 + 1) << 16 | share;
}

/* The share; HINTS_SHARE_WHOLE where the word is old or out of range. */
static inline uint32_t hints_share_of(uint64_t word, uint64_t now_ns)
{
    uint64_t share = word & 0xffff, since_ms = now_ns / 1000000 + 1 - (word >> 16);
    return since_ms <= HINTS_SHARE_NS / 1000000 && share >= 1 && share <= HINTS_SHARE_WHOLE
               ? (uint32_t)share
               : HINTS_SHARE_WHOLE;
}

#endif
