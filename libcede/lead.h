/* Pre-preemption: the GPU's switch to this program is made to overlap with what a request does
 * before its first work is queued. A lead is a kernel of one thread on a stream of its own that
 * waits for the request; see lead.c. Of a handle, one at a time. */
#ifndef CEDE_LIBCEDE_LEAD_H
#define CEDE_LIBCEDE_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* ---- when, pure ------------------------------------------------------------------------------ */

#define LEAD_AHEAD_NS   350000U /* before the work is expected: a switch takes 180 us, seldom 280 */
#define LEAD_SLACK_NS   100000U /* after it */
#define LEAD_UNKNOWN_NS 300000U /* the same, while little is known */
#define LEAD_HOLD_MAX   1000000U /* no lead waits longer */
#define LEAD_SPREAD_MAX                                                                            \
    600000                /* between the eighths: no lead for work that comes so irregularly       \
                           */
#define LEAD_SAMPLES 128U /* requests remembered */
#define LEAD_KNOWN   8U   /* so many say something, and are looked at again after so many */

#define LEAD_KEEP_US     100U
#define LEAD_KEEP_MAX_US 10000U

/* How much earlier (< 0) or later than expected the work of former requests was queued. */
struct lead_timing {
    int64_t error_ns[LEAD_SAMPLES];
    uint32_t n;                  /* ever */
    int64_t early, late, spread; /* one in 32 is beyond, on each side */
};

/* hold_ns: from its launch on, if nothing is queued. */
struct lead_plan {
    uint64_t launch_ns, hold_ns;
};

void cede_lead_learn(struct lead_timing *t, int64_t error_ns);
/* For work expected at expected_ns, or now where that is not known and nothing was learned. False:
 * it comes too irregularly for a lead to pay. */
bool cede_lead_plan(const struct lead_timing *t, uint64_t now_ns, uint64_t expected_ns,
                    struct lead_plan *out);

/* ---- on the GPU ------------------------------------------------------------------------------ */

struct lead;

/* In the calling thread's CUDA context. 0, -ENOSYS: no CUDA, or no context is current; -ENOMEM;
 * -EIO: the driver refused. */
int cede_lead_open(uint64_t keep_ns, struct lead **out);
/* forked: in a child, which has neither the thread nor the GPU. */
void cede_lead_close(struct lead *l, bool forked);

/* A number for the lead of this request, or 0. May launch a kernel, or wake the thread that will.
 */
uint32_t cede_lead_begin(struct lead *l, uint64_t now_ns, uint64_t expected_ns);
/* The request's work is queued. */
void cede_lead_queued(struct lead *l, uint32_t number, uint64_t now_ns, uint64_t expected_ns);
/* queued: cede_lead_queued() was called for it. */
void cede_lead_end(struct lead *l, uint32_t number, bool queued);

#endif
