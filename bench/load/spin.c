/* See spin.h. */
#include "bench/load/spin.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench/load/kernels.h"

#define WARM_UP       3    /* the first launches load or compile code */
#define WARM_UP_STEPS 1000 /* iterations of each */
#define TRIES         8    /* of a calibration that another program's turns upset */

/* ---- pieces in flight ---- */

int spin_ring(struct spin *s, const struct load_options *o, double bridge_us, uint64_t least)
{
    s->base.depth = clamp_u64((uint64_t)ceil(bridge_us / o->kernel_us), least, 256);
    s->slots = o->role == LOAD_LATENCY ? LOAD_QUEUE_MAX : o->depth ? o->depth : s->base.depth;
    s->submit_ns = calloc(s->slots, sizeof(*s->submit_ns));
    if (!s->submit_ns)
        s->failed = error_set(s->err, -ENOMEM, "no memory for %llu kernels in flight",
                              (unsigned long long)s->slots);
    return s->failed;
}

/* The host's work before a launch: an eager program's interpreter keeps a processor busy. */
static void spin_host(uint64_t ns)
{
    uint64_t end_ns = monotonic_ns() + ns;
    while (ns && monotonic_ns() < end_ns)
        ;
}

int spin_submit(struct load_gpu *base, const struct load_piece *p, struct error *err)
{
    struct spin *s = (struct spin *)base;
    uint64_t slot = s->tail % s->slots;
    if (s->failed)
        return s->failed;
    if (s->tail - s->head >= s->slots)
        return error_set(err, -EAGAIN, "%llu pieces are in flight already",
                         (unsigned long long)s->slots);
    if (p->copy_in && s->verify) /* other bytes each time, before the clock starts */
        memset(s->copy_in, ++s->pattern, s->copy_bytes);
    s->copying_out = p->copy_out;
    s->submit_ns[slot] = monotonic_ns();
    if (p->copy_in)
        s->calls->copy_to(s);
    for (uint32_t i = 0; !s->failed && i < p->kernels; i++) {
        spin_host(p->launch_ns);
        s->calls->launch(s, i + 1 == p->kernels && !p->copy_out);
    }
    if (!s->failed && p->copy_out)
        s->calls->copy_from(s);
    if (!s->failed)
        s->calls->mark(s, slot);
    s->tail += !s->failed;
    return s->failed;
}

int spin_wait(struct load_gpu *base, uint64_t timeout_ns, struct load_done *out, struct error *err)
{
    struct spin *s = (struct spin *)base;
    uint64_t slot = s->head % s->slots;
    int r = s->calls->wait(s, slot, timeout_ns, &out->end_ns);
    if (r)
        return r;
    out->submit_ns = s->submit_ns[slot];
    s->head++;
    if (s->copying_out && s->verify)
        s->copy_wrong |= memcmp(s->copy_in, s->copy_out, s->copy_bytes) != 0;
    return 0;
}

/* ---- the state ---- */

/* Scattered, so that no two threads look alike. */
static uint32_t spin_seed(uint32_t thread)
{
    return thread * 2654435761U + 1;
}

static uint32_t *spin_words(struct spin *s)
{
    uint32_t *v = malloc(s->threads * sizeof(*v));
    if (!v)
        s->failed = error_set(s->err, -ENOMEM, "no memory for %u threads' state", s->threads);
    return v;
}

uint32_t *spin_seeds(struct spin *s)
{
    uint32_t *v = s->failed ? NULL : spin_words(s);
    for (uint32_t i = 0; v && i < s->threads; i++)
        v[i] = spin_seed(i);
    return v;
}

uint32_t *spin_state(struct spin *s)
{
    uint32_t *v = s->failed ? NULL : spin_words(s);
    if (v && s->calls->read_state(s, v)) {
        free(v);
        v = NULL;
    }
    return v;
}

int spin_check(const uint32_t *state, uint32_t threads, uint64_t steps, struct error *err)
{
    struct load_map m = load_chain(steps);
    uint32_t wrong = 0, first = 0;
    for (uint32_t i = threads; i-- > 0;) {
        if (state[i] != spin_seed(i) * m.mul + m.add) {
            wrong++;
            first = i;
        }
    }
    return wrong ? error_set(err, -EBADMSG,
                             "%u of %u threads did not do exactly their work (thread %u has %08x "
                             "instead of %08x)",
                             wrong, threads, first, state[first], spin_seed(first) * m.mul + m.add)
                 : 0;
}

int spin_verify(struct load_gpu *base, struct error *err)
{
    struct spin *s = (struct spin *)base;
    _cleanup_free_ uint32_t *state = spin_state(s);
    int r = state ? spin_check(state, s->threads, s->steps, err) : s->failed;
    if (!r && s->copy_wrong)
        r = error_set(err, -EBADMSG, "a copy came back with other bytes than went in");
    return r;
}

/* ---- the speed ---- */

/* One kernel from launch to end, in ns, for the host; 0: it failed. */
static int64_t spin_timed(struct spin *s, uint32_t iterations)
{
    struct load_done done;
    s->iterations = iterations;
    int r = spin_submit(&s->base, &(struct load_piece){.kernels = 1}, s->err);
    if (!r)
        r = spin_wait(&s->base, SPIN_SETUP_NS, &done, s->err);
    if (r == -ETIMEDOUT)
        s->failed = error_set(s->err, r,
                              "a kernel of some ms did not end in 60 s: is this program suspended, "
                              "or the GPU hung?");
    return r ? 0 : (int64_t)(done.end_ns - done.submit_ns);
}

static double spin_ranked_us(int64_t v[SPIN_RUNS], unsigned rank)
{
    qsort(v, SPIN_RUNS, sizeof(*v), load_compare);
    return load_us(v[rank]);
}

/* The loop's speed is the slope between a short and a long kernel, which leaves out what launching
 * and synchronising cost; that is the intercept. */
static int spin_calibrate(struct spin *s, unsigned rank)
{
    double rough = 1;
    uint64_t warm_ns = monotonic_ns() + 250 * NSEC_PER_MSEC; /* clocks ramp up from idle */
    for (uint32_t n = 20000; !s->failed && monotonic_ns() < warm_ns;) {
        double us = load_us(spin_timed(s, n));
        rough = (double)n / us;
        if (us < 500 && n < UINT32_MAX / 2) /* long compared with the overhead */
            n *= 2;
    }
    uint32_t n1 = (uint32_t)fmin(fmax(rough * 200, 100), 1e9);
    uint32_t n2 = (uint32_t)fmin(fmax(rough * 1200, 1000), 4e9);
    int64_t shorts[SPIN_RUNS], longs[SPIN_RUNS];
    double t1 = 0, t2 = 0;
    for (int tries = 0; tries < TRIES && !s->failed && t2 <= t1; tries++) {
        for (int i = 0; i < SPIN_RUNS; i++) {
            shorts[i] = spin_timed(s, n1);
            longs[i] = spin_timed(s, n2);
        }
        t1 = spin_ranked_us(shorts, rank);
        t2 = spin_ranked_us(longs, rank);
    }
    if (!s->failed && t2 <= t1)
        s->failed = error_set(s->err, -EIO,
                              "calibration failed: %u iterations took %.1f us, %u took %.1f us: "
                              "keep other work off the GPU meanwhile, or give --iterations-per-us",
                              n1, t1, n2, t2);
    s->base.iterations_per_us = (double)(n2 - n1) / (t2 - t1);
    s->base.host_overhead_us = fmax(0, t1 - (double)n1 / s->base.iterations_per_us);
    return s->failed;
}

int spin_start(struct spin *s, const struct load_options *o, unsigned rank)
{
    for (int i = 0; i < WARM_UP && !s->failed; i++)
        spin_timed(s, WARM_UP_STEPS);
    s->base.iterations_per_us = o->work ? 1 : o->iterations_per_us;
    s->base.host_overhead_us = -1;
    if (!s->failed && s->base.iterations_per_us <= 0)
        spin_calibrate(s, rank);
    if (s->failed)
        return s->failed;
    double n = fmax(1, round(o->kernel_us * s->base.iterations_per_us));
    if (n > UINT32_MAX)
        return s->failed = error_set(
                   s->err, -ERANGE,
                   "a kernel of %g us would be %g iterations, more than 2^32: ask for less",
                   o->kernel_us, n);
    s->iterations = (uint32_t)n;
    return 0;
}
