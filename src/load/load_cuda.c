/* cede-load on NVIDIA GPUs: an ordinary program on the documented driver API, opened at run time so
 * that nothing of the vendor is needed to build. It is what cede schedules: it must not know of
 * cede, nor touch its own scheduling. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load/cuda.h"
#include "load/kernels.h"
#include "load/spin.h"

static int set_up_copies(struct cuda *g, size_t bytes, struct error *err)
{
    int r = cuda_alloc(g, bytes, "--copy-bytes", &g->copy, err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc_host((void **)&g->copy_in, bytes),
                       "pin host memory for --copy-bytes", err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc_host((void **)&g->copy_out, bytes),
                       "pin host memory for --copy-bytes", err);
    g->copy_bytes = bytes;
    return r;
}

/* On the kernels' stream, and waited for. */
static int run_hold(struct cuda *g, cu_function f, struct error *err)
{
    void *params[] = {&g->hold, &g->hold_words, &g->hold_wrong};
    int r = cuda_check(
        g, g->cu.launch(f, g->blocks, 1, 1, SPIN_THREADS, 1, 1, 0, g->stream, params, NULL),
        "launch a kernel over --memory", err);
    return r ? r : cuda_settle(g, "a kernel over --memory", err);
}

static int set_up_hold(struct cuda *g, uint64_t bytes, struct error *err)
{
    static const uint32_t zero = 0;
    g->hold_words = bytes / sizeof(uint32_t);
    int r = cuda_find(g, hold_ptx, HOLD_FILL, &g->hold_fill, err);
    if (!r)
        r = cuda_find(g, hold_ptx, HOLD_CHECK, &g->hold_check, err);
    if (!r)
        r = cuda_alloc(g, bytes, "--memory", &g->hold, err);
    if (!r)
        r = cuda_alloc(g, sizeof(zero), "--memory", &g->hold_wrong, err);
    if (!r)
        r = cuda_check(g, g->cu.copy_in_async(g->hold_wrong, &zero, sizeof(zero), g->stream),
                       "copy a word to the GPU", err);
    if (!r)
        r = cuda_settle(g, "a copy", err);
    return r ? r : run_hold(g, g->hold_fill, err);
}

static int verify_hold(struct cuda *g, struct error *err)
{
    uint32_t wrong = 0;
    int r = run_hold(g, g->hold_check, err);
    if (!r)
        r = cuda_check(g, g->cu.copy_out(&wrong, g->hold_wrong, sizeof(wrong)), "copy a word out",
                       err);
    if (!r && wrong)
        r = error_set(err, -EBADMSG, "%u of %llu words of --memory are not as they were filled",
                      wrong, (unsigned long long)g->hold_words);
    return r;
}

static void cuda_close(struct load_gpu *base)
{
    struct cuda *g = (struct cuda *)base;
    while (g->ncontexts)
        g->cu.ctx_destroy(g->contexts[--g->ncontexts]);
    free(g->contexts);
    free(g->submit_ns);
    free(g->events);
    free(g);
}

/* For the pieces in flight. */
static int set_up_ring(struct cuda *g, const struct load_options *o, struct error *err)
{
    /* 2 ms of work bridge the host's delays, 256 launches never fill a channel's ring. */
    g->base.depth = clamp_u64((uint64_t)ceil(2000 / o->kernel_us), 8, 256);
    g->slots = g->spin ? 1 : o->depth ? o->depth : g->base.depth;
    if (o->role == LOAD_LATENCY) {
        g->slots = g->spin ? 1 : LOAD_QUEUE_MAX;
        g->base.wake_ns = 400 * NSEC_PER_USEC; /* a sleep was seen to end up to 0.3 ms late */
    }
    g->submit_ns = calloc(g->slots, sizeof(*g->submit_ns));
    g->events = calloc(g->slots, sizeof(cu_event));
    if (!g->submit_ns || !g->events)
        return error_set(err, -ENOMEM, "no memory for %llu kernels in flight",
                         (unsigned long long)g->slots);
    for (uint64_t i = 0; !g->spin && i < g->slots; i++) {
        int r = cuda_check(
            g, g->cu.event_create(&g->events[i], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "create an event", err);
        if (r)
            return r;
    }
    /* Often enough that the queue never runs dry, seldom enough to cost no CPU. */
    double queue_ns = o->kernel_us * (double)g->slots * (double)NSEC_PER_USEC;
    if (o->role == LOAD_BATCH) /* a latency is not measured asleep */
        g->poll_ns = clamp_u64((uint64_t)(queue_ns / 8), 20 * NSEC_PER_USEC, 500 * NSEC_PER_USEC);
    return 0;
}

static int set_up(struct cuda *g, const struct load_options *o, struct error *err)
{
    /* So that --gpu counts as nvidia-smi does; a user's own setting wins. */
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    int r = cuda_load_library(g, err);
    if (r)
        return r;
    cu_device device;
    r = cuda_check(g, g->cu.init(0), "initialise the NVIDIA driver (cuInit)", err);
    if (!r)
        r = cuda_check(g, g->cu.device_get(&device, (int)o->gpu),
                       "find the GPU asked for with --gpu", err);
    if (r)
        return r;

    g->contexts = calloc(o->contexts, sizeof(cu_context));
    if (!g->contexts)
        return error_set(err, -ENOMEM, "no memory for the contexts");
    unsigned flags = g->spin ? CU_CTX_SCHED_SPIN : CU_CTX_SCHED_BLOCKING_SYNC;
    for (; g->ncontexts < o->contexts; g->ncontexts++) {
        r = cuda_check(g, g->cu.ctx_create(&g->contexts[g->ncontexts], flags, device),
                       "create a context", err);
        if (r)
            return r;
    }
    r = cuda_set_up_kernel(g, device, o->sm_fraction, err);
    if (!r && o->copy_bytes)
        r = set_up_copies(g, o->copy_bytes, err);
    if (!r && o->memory)
        r = set_up_hold(g, o->memory, err);
    if (!r && o->work) {
        g->work = load_work(o->work);
        r = g->work->set_up(g, err);
    }
    if (r)
        return r;

    if (o->iterations_per_us > 0 || o->work) {
        double us;
        g->base.iterations_per_us = o->work ? 1 : o->iterations_per_us;
        g->base.host_overhead_us = -1;
        for (int i = 0; !r && i < 3; i++) /* the first launches load code */
            r = cuda_timed(g, 1000, &us, err);
    } else {
        r = spin_calibrate(&g->base, cuda_timed, g, SPIN_RUNS / 4, err);
    }
    if (!r)
        r = spin_iterations(&g->base, o->kernel_us, &g->iterations, err);
    if (r)
        return r;

    return set_up_ring(g, o, err);
}

static int cuda_open(const struct load_options *o, struct load_gpu **out, struct error *err)
{
    struct cuda *g = calloc(1, sizeof(*g));
    if (!g)
        return error_set(err, -ENOMEM, "no memory");
    g->base.ops = &load_cuda;
    g->spin = o->role != LOAD_BATCH && !load_queues(o);
    g->verify = o->verify;
    int r = set_up(g, o, err);
    if (r) {
        cuda_close(&g->base);
        return r;
    }
    *out = &g->base;
    return 0;
}

static int cuda_submit(struct load_gpu *base, const struct load_piece *p, struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    uint64_t slot = g->tail % g->slots;
    int r = 0;
    if (g->tail - g->head >= g->slots)
        return error_set(err, -EAGAIN, "%llu pieces are in flight already",
                         (unsigned long long)g->slots);
    if (p->copy_in && g->verify) /* other bytes each time, before the clock starts */
        memset(g->copy_in, ++g->pattern, g->copy_bytes);
    g->copying_out = p->copy_out;

    g->submit_ns[slot] = monotonic_ns();
    if (p->copy_in)
        r = cuda_check(g, g->cu.copy_in_async(g->copy, g->copy_in, g->copy_bytes, g->stream),
                       "copy to the GPU", err);
    for (uint32_t i = 0; !r && i < p->kernels; i++) {
        r = g->work ? g->work->launch(g, err)
                    : cuda_launch(g, g->stream, g->state, g->iterations, err);
        g->steps += r || g->work ? 0 : g->iterations;
    }
    if (!r && p->copy_out)
        r = cuda_check(g, g->cu.copy_out_async(g->copy_out, g->copy, g->copy_bytes, g->stream),
                       "copy from the GPU", err);
    if (!r && !g->spin)
        r = cuda_check(g, g->cu.event_record(g->events[slot], g->stream), "record an event", err);
    g->tail += !r;
    return r;
}

static int cuda_wait(struct load_gpu *base, uint64_t timeout_ns, struct load_done *out,
                     struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    uint64_t slot = g->head % g->slots;
    int r;
    if (g->spin) {
        r = cuda_spin_until_idle(g, timeout_ns, &out->end_ns, err);
        if (r)
            return r;
        if (g->copying_out && g->verify)
            g->copy_wrong |= memcmp(g->copy_in, g->copy_out, g->copy_bytes) != 0;
    } else {
        /* Not cuEventSynchronize: that cannot be given up when the program is suspended. */
        uint64_t deadline = monotonic_ns() + timeout_ns;
        cu_result q;
        while ((q = g->cu.event_query(g->events[slot])) == CU_NOT_READY) {
            if (monotonic_ns() >= deadline)
                return -ETIMEDOUT;
            if (g->poll_ns)
                nanosleep(&(struct timespec){.tv_nsec = (long)g->poll_ns}, NULL);
        }
        out->end_ns = monotonic_ns();
        r = cuda_check(g, q, "wait for a kernel", err);
        if (r)
            return r;
    }
    out->submit_ns = g->submit_ns[slot];
    g->head++;
    return 0;
}

static int cuda_verify(struct load_gpu *base, struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    uint32_t threads = g->blocks * SPIN_THREADS;
    size_t bytes = threads * sizeof(uint32_t);
    _cleanup_free_ uint32_t *state = malloc(bytes);
    if (!state)
        return error_set(err, -ENOMEM, "no memory for %u threads' state", threads);
    int r = cuda_check(g, g->cu.copy_out(state, g->state, bytes), "copy the state out", err);
    if (r)
        return r;
    r = spin_check(state, threads, g->steps, err);
    if (r)
        return r;
    if (g->copy_wrong)
        return error_set(err, -EBADMSG, "a copy came back with other bytes than went in");
    if (g->work)
        r = g->work->verify(g, err);
    return !r && g->hold_words ? verify_hold(g, err) : r;
}

static int cuda_digest(struct load_gpu *base, uint64_t *out, struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    return g->work ? g->work->digest(g, out, err) : -ENODATA;
}

const struct load_ops load_cuda = {
    .name = "nvidia",
    .open = cuda_open,
    .close = cuda_close,
    .submit = cuda_submit,
    .wait = cuda_wait,
    .verify = cuda_verify,
    .digest = cuda_digest,
};
