/* Estimates how long a request will run from those before it: one estimator per kernel, shape or
 * model; fixed memory, deterministic, no clock.
 *
 * An estimator is a histogram with eight buckets per octave (HdrHistogram's layout), halved
 * whenever it is full, so that a sample counts half at most after EST_KEEP others. P2 (Jain and
 * Chlamtac, CACM 28(10), 1985) takes less memory, but never forgets, is bound to one quantile, and
 * errs to either side; a bucket's upper edge is never below the sample, and at most 1/8 above.
 *
 * libcede contains this file too, hence the prefix: a program that is linked with libcede.a may
 * define any function whose name does not begin with cede_. */
#ifndef CEDE_BASE_ESTIMATE_H
#define CEDE_BASE_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EST_BUCKETS 496U /* all of uint64_t */
#define EST_KEEP    512U

struct estimate {
    uint32_t n;
    uint16_t count[EST_BUCKETS];
};

void cede_estimate_add(struct estimate *e, uint64_t run_ns);
/* The time within which the next request ends with probability q (0 < q < 1, else 0.99) or more, if
 * it is like those before: the ceil(q (n + 1))-th smallest of n, or the longest where that is past
 * the end. Without a sample: `unknown_ns`. */
uint64_t cede_estimate_get(const struct estimate *e, double q, uint64_t unknown_ns);

/* The same of runs like most of them: up to a sixteenth of all, and one, are left out if they took
 * more than four times the median. What held up one run, such as the loading of a kernel or another
 * program, says nothing about the next; a quantile near 1 of few runs would be that one run. */
uint64_t cede_estimate_typical(const struct estimate *e, double q, uint64_t unknown_ns);

/* Of n structs of so many bytes, kept by key, which begin with this: the one of a key, or of the
 * few that it may be in the one used least recently, which is to be taken for it. */
struct keyed {
    uint64_t key, used; /* used: a tick that rises with each use; 0: the struct is free */
};
struct keyed *cede_keyed_find(void *all, uint32_t n, size_t bytes, uint64_t key, bool *found);

/* Estimators by key. A new key replaces, of the few keys whose slots it may use, the one that got a
 * sample least recently. */
struct estimates;
/* keys: the number of slots, 1 to 65536. 0, -EINVAL or -ENOMEM. */
int cede_estimates_new(uint32_t keys, struct estimates **out);
void cede_estimates_free(struct estimates *s);
void cede_estimates_add(struct estimates *s, uint64_t key, uint64_t run_ns);
uint64_t cede_estimates_get(const struct estimates *s, uint64_t key, double q, uint64_t unknown_ns);

#endif
