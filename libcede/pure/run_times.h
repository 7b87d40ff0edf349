/* How long batches run, learned by model, shape and size of the batch (base/estimate.h). No clock,
 * no system call, no allocation after cede_run_times_new(). Not thread-safe. */
#ifndef CEDE_LIBCEDE_PURE_RUN_TIMES_H
#define CEDE_LIBCEDE_PURE_RUN_TIMES_H

#include <stdint.h>

struct run_times;

/* A batch of n as a rule runs for run_ns + (n - 1) each_ns, with each_ns <= run_ns, and longer by
 * `margin` thousandths of that at most. */
struct run_time {
    uint64_t run_ns, each_ns;
    uint32_t margin;
};

/* quantile: of the times seen, within which a batch is to end with its margin. Requests need less
 * of it, as few meet a long batch at their last moment: while none is late the margin shrinks by up
 * to three quarters, and each batch with a late one brings a quarter of that back. For free().
 * NULL: no memory. */
struct run_times *cede_run_times_new(double quantile);

uint64_t cede_run_times_key(uint32_t model, uint64_t shape);

/* expected_ns: one request alone, while nothing was learned. */
struct run_time cede_run_times_get(struct run_times *t, uint64_t key, uint64_t expected_ns);
/* With this share of the device, up to 1. */
struct run_time cede_run_time_shared(struct run_time t, double share);
/* A batch of n, up to 128, ran for ran_ns, and `late` of its requests were late. */
void cede_run_times_learn(struct run_times *t, uint64_t key, uint32_t n, uint64_t ran_ns,
                          uint32_t late);

/* A request was refused as no batch of one is fast enough for it. What was learned of a kind is
 * forgotten when that has happened CEDE_RUN_TIMES_REFUSED times and nothing of the kind has run
 * meanwhile: if it runs no more, nothing else corrects a time that was too long once. */
void cede_run_times_refused(struct run_times *t, uint64_t key, uint64_t expected_ns);
#define CEDE_RUN_TIMES_REFUSED 32

#endif
