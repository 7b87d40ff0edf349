/* How long a request will run, learned from those before it. One estimator per kernel, shape or
 * model; fixed memory, deterministic, no clock; it knows nothing of what it measures.
 *
 * A histogram with eight buckets an octave (the layout is HdrHistogram's), halved whenever it is
 * full, so that what was seen EST_KEEP samples ago counts half at most. P2 (Jain and Chlamtac,
 * CACM 28(10), 1985) takes less memory, but never forgets, is bound to one quantile, and errs to
 * either side; a bucket's upper edge is never below the sample: at most 1/8 too long.
 *
 * Compiled into libcede as well, hence the prefix: a program that is linked with libcede.a may have
 * any function of its own that does not begin with cede_. */
#ifndef CEDE_LIB_ESTIMATE_H
#define CEDE_LIB_ESTIMATE_H

#include <stdint.h>

#define EST_BUCKETS 496U /* all of uint64_t */
#define EST_KEEP    512U

struct estimate {
    uint32_t n;
    uint16_t count[EST_BUCKETS];
};

void cede_estimate_add(struct estimate *e, uint64_t run_ns);
/* The time that the next request stays within with probability q (0 < q < 1, else 0.99) or more,
 * if it is like those seen: the ceil(q (n + 1))-th smallest of n, or the longest where that is past
 * the end. `unknown_ns` when nothing was seen. */
uint64_t cede_estimate_get(const struct estimate *e, double q, uint64_t unknown_ns);

/* Estimators by key. A new key takes the place of the least recently added-to of the few that it
 * shares a place with. */
struct estimates;
/* keys: how many to hold, 1..65536. 0, -EINVAL or -ENOMEM. */
int cede_estimates_new(uint32_t keys, struct estimates **out);
void cede_estimates_free(struct estimates *s);
void cede_estimates_add(struct estimates *s, uint64_t key, uint64_t run_ns);
uint64_t cede_estimates_get(const struct estimates *s, uint64_t key, double q, uint64_t unknown_ns);

#endif
