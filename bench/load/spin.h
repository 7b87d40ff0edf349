/* Inside cede-load: what the back ends on real devices share: the spinning kernel (kernels.h has
 * its arithmetic) and its speed, the pieces in flight, copies, the first error. Knows no device:
 * what is particular to one is in struct spin_calls. */
#ifndef CEDE_BENCH_LOAD_SPIN_H
#define CEDE_BENCH_LOAD_SPIN_H

#include "bench/load/ops.h"

/* A calibration or warm-up kernel takes ms; this long means suspended or hung. */
#define SPIN_SETUP_NS (60 * NSEC_PER_SEC)

struct spin;

/* Return 0, or -errno with s->err filled. Only wait() and read_state() wait for the device. */
struct spin_calls {
    int (*copy_to)(struct spin *s);             /* copy_in to the device */
    int (*copy_from)(struct spin *s);           /* what was copied to it, to copy_out */
    int (*launch)(struct spin *s, bool last);   /* last: of its piece, with no copy behind it */
    int (*mark)(struct spin *s, uint64_t slot); /* the end of a piece */
    /* -ETIMEDOUT (err untouched) if it does not end in time. */
    int (*wait)(struct spin *s, uint64_t slot, uint64_t timeout_ns, uint64_t *end_ns);
    int (*read_state)(struct spin *s, uint32_t *out);
};

/* Each of these back ends' own struct starts with this. */
struct spin {
    struct load_gpu base;
    const struct spin_calls *calls;
    struct error *err; /* of open(); the other calls get the same */
    int failed;        /* the first error: the device is asked for nothing more */

    uint32_t threads, iterations; /* of one kernel */
    uint64_t steps;               /* of the generator that the state must have made */

    unsigned char *copy_in, *copy_out;
    size_t copy_bytes;
    unsigned char pattern;
    bool verify, copying_out, copy_wrong;

    uint64_t head, tail, slots; /* pieces in flight, as counters into the ring */
    uint64_t *submit_ns;
};

/* Room for the pieces in flight. By default, `bridge_us` of work are in flight, and `least` kernels
 * or more. */
int spin_ring(struct spin *s, const struct load_options *o, double bridge_us, uint64_t least);
/* Warms up, measures the speed if it is not given, and sets the iterations of a kernel. Of
 * SPIN_RUNS runs, from the fastest, the time of number `rank` counts: a stray interruption only
 * ever makes a run longer. */
enum { SPIN_RUNS = 24 };
int spin_start(struct spin *s, const struct load_options *o, unsigned rank);

/* The state before the first kernel: a word a thread, malloc'd. NULL: no memory, which is s->err.
 */
uint32_t *spin_seeds(struct spin *s);
/* The state as it is; likewise. */
uint32_t *spin_state(struct spin *s);
/* state[i] has to be what `steps` steps make of thread i's seed. -EBADMSG with the first wrong. */
int spin_check(const uint32_t *state, uint32_t threads, uint64_t steps, struct error *err);

/* For struct load_ops. */
int spin_submit(struct load_gpu *base, const struct load_piece *p, struct error *err);
int spin_wait(struct load_gpu *base, uint64_t timeout_ns, struct load_done *out, struct error *err);
int spin_verify(struct load_gpu *base, struct error *err);

#endif
