/* How many of the waiting requests to run as one batch, and when: a pure decision for one model on
 * one free device. It keeps nothing between calls.
 *
 * A batch starts when it is full, when the most urgent request that can still meet its deadline has
 * no slack left, or when a request has waited for wait_ns. It is the largest batch that meets that
 * deadline. A more urgent arrival overtakes the waiting requests and may make one of them late.
 * Requests that are late whatever happens fill the rest of a batch and delay no other. */
#ifndef CEDE_LIBCEDE_PURE_BATCHER_H
#define CEDE_LIBCEDE_PURE_BATCHER_H

#include <stdint.h>

struct batch_params {
    uint32_t max;             /* requests in a batch; at least 1 */
    uint64_t run_ns, each_ns; /* a batch of n runs for run_ns + (n - 1) each_ns */
    uint64_t wait_ns;         /* a request waits no longer, whatever its slack */
};

struct batch_request {
    uint64_t arrival_ns, deadline_ns; /* TIME_NEVER: none */
};

struct batch_choice {
    uint32_t n;       /* requests that start now; 0: wait */
    uint64_t wake_ns; /* n is 0: when to ask again if nothing arrives */
};

/* reqs: in order of deadline. pick: room for p->max indices into reqs; the first n are set. */
struct batch_choice cede_batch_decide(const struct batch_params *p,
                                      const struct batch_request *reqs, uint32_t n, uint64_t now_ns,
                                      uint32_t *pick);

/* n: at least 1. */
uint64_t cede_batch_run_ns(uint64_t run_ns, uint64_t each_ns, uint32_t n);

#endif
