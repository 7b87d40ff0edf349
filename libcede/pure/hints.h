/* What a program has reported through one handle: deadlines of its streams, open requests, and how
 * those that ended went; and the page on which the daemon reads it (base/hints_proto.h). No lock,
 * no clock, no system call: cede.c has all three. */
#ifndef CEDE_LIBCEDE_PURE_HINTS_H
#define CEDE_LIBCEDE_PURE_HINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hints_proto.h"
#include "base/job_terms.h"
#include "cede/cede.h"
#include "libcede/pure/leases.h"

/* The class that programs and the daemon know by another number; CLASS_COUNT: there is none such.
 */
static inline enum job_class cede_class_of(enum cede_class c)
{
    return (int)c >= CEDE_LATENCY && (int)c <= CEDE_BATCH ? (enum job_class)((int)c - CEDE_LATENCY)
                                                          : CLASS_COUNT;
}

#define HINTS_OPEN_MAX 256 /* open requests with a deadline that are listed; more only count */

/* Histogram of durations: 16 buckets per octave, up to 2^40 ns or 18 minutes. */
#define HINTS_BITS    4U
#define HINTS_BUCKETS ((40U - HINTS_BITS + 1) << HINTS_BITS)

/* Set for one stream, or for the job. */
struct stream_hint {
    cede_stream stream;
    uint64_t deadline_us, laxity_us; /* 0: not set */
    int priority;
    bool priority_set;
};

/* An open request that has a deadline. */
struct due_request {
    uint64_t deadline_ns; /* 0: this entry is free */
    uint64_t need_us;     /* GPU time; 0: not known */
    int priority;
};

struct cede_hints {
    struct hints_page *page; /* NULL: no daemon reads */
    uint64_t generation; /* one more in a forked child: requests of the parent are not its own */
    uint32_t looks;      /* HINTS_LOOKS_...: the program has called cede_wanted(), cede_share() */
    uint32_t nstreams;
    struct stream_hint job, streams[CEDE_STREAMS_MAX];
    struct cede_statistics s; /* but for times. From here on: what cede_hints_reset() forgets */
    uint64_t max_ns;
    struct cede_lease_waits waits[CEDE_WAITS];
    struct due_request open[HINTS_OPEN_MAX];
    uint32_t open_end; /* all entries from here on are free */
    uint64_t histogram[HINTS_BUCKETS];
};

/* The part of a request that hints keep in the caller's memory. */
struct hint_request {
    uint64_t generation, begun_ns;
    uint64_t deadline_ns;                /* 0: none */
    uint64_t index;                      /* in `open`; UINT64_MAX: not listed */
    uint32_t lead_after_ns, lead_for_ns; /* its lead, since begun_ns; for 0: it had none */
};

/* Forgets requests and statistics; what was set for streams stays. A new handle begins with it. */
void cede_hints_reset(struct cede_hints *h);

/* Publishes on this page from now on; NULL: nowhere. Returns the page before. */
struct hints_page *cede_hints_set_page(struct cede_hints *h, struct hints_page *page);

/* Sets those values that are not NULL. -ENOSPC: values are set for CEDE_STREAMS_MAX streams. */
int cede_hints_set(struct cede_hints *h, cede_stream stream, const uint64_t *deadline_us,
                   const uint64_t *laxity_us, const int *priority);

/* deadline_us: from now on; 0: the stream's, or else the job's. */
void cede_hints_begin(struct cede_hints *h, cede_stream stream, uint64_t now_ns,
                      uint64_t deadline_us, struct hint_request *out);
/* Its lead was launched at that time, and its work is queued now. */
void cede_hints_led(struct hint_request *r, uint64_t launched_ns, uint64_t now_ns);
/* served: false: it met no deadline, whatever the time. False: it began in another generation, and
 * is not counted. */
bool cede_hints_end(struct cede_hints *h, const struct hint_request *r, bool served,
                    uint64_t now_ns);

/* What was decided on a lease of this kernel (NULL: not known); result: 0, or why there is none. */
void cede_hints_lease(struct cede_hints *h, const struct lease_event *e, const char *kernel,
                      int result, uint64_t now_ns);

/* What the daemon says on the page. */
bool cede_hints_wanted(struct cede_hints *h);
uint32_t cede_hints_share(struct cede_hints *h, uint64_t now_ns);

struct cede_statistics cede_hints_statistics(const struct cede_hints *h);

#endif
