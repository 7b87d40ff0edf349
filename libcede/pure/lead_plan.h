/* When a lead (lead.h) is launched and how long it may wait for a request's work, learned from
 * earlier requests. No clock, no system call. */
#ifndef CEDE_LIBCEDE_PURE_LEAD_PLAN_H
#define CEDE_LIBCEDE_PURE_LEAD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* From launch to expected work: a switch takes 180 us, at times 280 (H200, driver 580.159.04). */
#define LEAD_AHEAD_NS   350000U
#define LEAD_SLACK_NS   100000U  /* a lead waits this much past the latest work learned of */
#define LEAD_UNKNOWN_NS 300000U  /* and this much past the expected work while little is learned */
#define LEAD_WAIT_MAX   1000000U /* no lead waits longer, in ns */
#define LEAD_SPREAD_MAX 600000   /* ns from the first to the last eighth: no lead beyond that */
#define LEAD_SAMPLES    128U     /* requests remembered */
#define LEAD_KNOWN      8U       /* requests before anything is learned, and between two updates */

/* By how much the work of earlier requests was queued before (< 0) or after it was expected. */
struct lead_timing {
    int64_t error_ns[LEAD_SAMPLES];
    uint32_t n;                  /* samples so far */
    int64_t early, late, spread; /* one sample in 32 is earlier, and one later */
};

struct lead_plan {
    uint64_t launch_ns;
    uint64_t wait_ns; /* from the launch on, while no work is queued */
};

void cede_lead_learn(struct lead_timing *t, int64_t error_ns);

/* For work expected at expected_ns; 0: not known, which is now until something is learned. False:
 * work comes too irregularly for a lead, or should have come by now. */
bool cede_lead_plan(const struct lead_timing *t, uint64_t now_ns, uint64_t expected_ns,
                    struct lead_plan *out);

#endif
