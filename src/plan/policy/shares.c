/* Policy "shares": every job gets GPU time in proportion to its weight, classes are ignored: as
 * "priority" with all jobs in one class.
 *
 * All groups stay runnable; the hardware's round-robin over timeslices does the sharing, and gives
 * what a job leaves unused to the others at once. Only gangs that would wait for each other take
 * turns (gang.c). Not good for latency: a request waits for the slices of all the others. */
#include "plan/policy.h"

const struct policy policy_shares = {
    .name = "shares",
    .summary = "GPU time in proportion to weight; classes are ignored",
    .decide = policy_priority_decide,
};
