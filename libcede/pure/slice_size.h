/* How many elements the next slice has, so that it takes the target time. Deterministic: the caller
 * measures. Not thread-safe.
 *
 * The time of an element is the mean of the middle three of the latest SLICE_SAMPLES slices: two in
 * which another program had the GPU, or the clock jumped, change nothing; elements of which some
 * take longer than others are averaged. A slice is at most twice as large as the largest of these,
 * so that a wrong figure costs little: from one element to a thousand million are 30 steps of next
 * to no time.
 */
#ifndef CEDE_LIBCEDE_PURE_SLICE_SIZE_H
#define CEDE_LIBCEDE_PURE_SLICE_SIZE_H

#include <stdint.h>

#define SLICE_SAMPLES 7U

struct slice_size {
    uint64_t target_ns, multiple; /* > 0 */
    uint64_t next;                /* elements; a multiple of `multiple` */
    uint64_t n;                   /* samples, ever */
    uint64_t counts[SLICE_SAMPLES];
    double ns[SLICE_SAMPLES]; /* of an element */
};

/* next: as was found before; 0: nothing is known. */
void cede_slice_size_begin(struct slice_size *s, uint64_t target_ns, uint64_t multiple,
                           uint64_t next);

/* So many slices, one or more, of `count` elements in all took so long together. */
void cede_slice_size_add(struct slice_size *s, uint64_t count, uint64_t slices, uint64_t took_ns);

/* Of `left` elements, > 0: how many the next slice has. */
uint64_t cede_slice_size_next(const struct slice_size *s, uint64_t left);

#endif
