/* cede-load on NVIDIA GPUs, and on AMD's but for what is in load_hip.c: an ordinary program on the
 * documented driver API, opened at run time so that nothing of the vendor is needed to build. It is
 * what cede schedules: it must not know of cede, nor touch its own scheduling. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/cuda.h"
#include "bench/load/kernels.h"

/* ---- pieces ---- */

static int cuda_copy_to(struct spin *s)
{
    struct cuda *g = (struct cuda *)s;
    return CUDA(g, "copy to the GPU", copy_in_async, g->copy, s->copy_in, s->copy_bytes, g->stream);
}

static int cuda_copy_from(struct spin *s)
{
    struct cuda *g = (struct cuda *)s;
    return CUDA(g, "copy from the GPU", copy_out_async, s->copy_out, g->copy, s->copy_bytes,
                g->stream);
}

static int cuda_launch_one(struct spin *s, bool last)
{
    struct cuda *g = (struct cuda *)s;
    if (g->work)
        return g->work->launch(g);
    s->steps += s->iterations;
    void *params[] = {&g->state, &s->iterations};
    return cuda_launch(g, g->function, g->blocks, SPIN_THREADS, params);
}

static int cuda_mark(struct spin *s, uint64_t slot)
{
    struct cuda *g = (struct cuda *)s;
    return g->spin ? 0 : CUDA(g, "record an event", event_record, g->events[slot], g->stream);
}

static int cuda_wait_piece(struct spin *s, uint64_t slot, uint64_t timeout_ns, uint64_t *end_ns)
{
    struct cuda *g = (struct cuda *)s;
    return cuda_wait(g, g->spin ? NULL : g->events[slot], timeout_ns, end_ns);
}

static int cuda_read_state(struct spin *s, uint32_t *out)
{
    struct cuda *g = (struct cuda *)s;
    return CUDA(g, "copy the state out", copy_out, out, g->state, s->threads * sizeof(*out));
}

static const struct spin_calls cuda_spin_calls = {
    .copy_to = cuda_copy_to,
    .copy_from = cuda_copy_from,
    .launch = cuda_launch_one,
    .mark = cuda_mark,
    .wait = cuda_wait_piece,
    .read_state = cuda_read_state,
};

/* ---- --memory ---- */

static int cuda_run_hold(struct cuda *g, const char *name)
{
    void *params[] = {&g->hold, &g->hold_words, &g->hold_wrong};
    cu_function f = cuda_find(g, hold_ptx, name);
    cuda_launch(g, f, g->blocks, SPIN_THREADS, params);
    return cuda_settle(g, "a kernel over --memory");
}

static void cuda_set_up_hold(struct cuda *g, uint64_t bytes)
{
    static const uint32_t zero = 0;
    g->hold_words = bytes / sizeof(uint32_t);
    CUDA(g, "allocate GPU memory for --memory", mem_alloc, &g->hold, bytes);
    CUDA(g, "allocate GPU memory for --memory", mem_alloc, &g->hold_wrong, sizeof(zero));
    cuda_copy_in(g, g->hold_wrong, &zero, sizeof(zero));
    cuda_run_hold(g, HOLD_FILL);
}

static int cuda_verify_hold(struct cuda *g)
{
    uint32_t wrong = 0;
    cuda_run_hold(g, HOLD_CHECK);
    CUDA(g, "copy a word out", copy_out, &wrong, g->hold_wrong, sizeof(wrong));
    if (!g->s.failed && wrong)
        return error_set(g->s.err, -EBADMSG,
                         "%u of %llu words of --memory are not as they were filled", wrong,
                         (unsigned long long)g->hold_words);
    return g->s.failed;
}

/* ---- set-up ---- */

void cuda_close(struct load_gpu *base)
{
    struct cuda *g = (struct cuda *)base;
    while (g->ncontexts)
        g->cu.ctx_destroy(g->contexts[--g->ncontexts]);
    free(g->contexts);
    free(g->s.submit_ns);
    free(g->events);
    free(g);
}

static void cuda_set_up_contexts(struct cuda *g, const struct load_options *o, cu_device *device)
{
    unsigned flags = g->spin ? CU_CTX_SCHED_SPIN : CU_CTX_SCHED_BLOCKING_SYNC;
    /* So that --gpu counts as nvidia-smi does; a user's own setting wins. */
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    g->kind->load_library(g);
    CUDA(g, g->kind->init, init, 0);
    CUDA(g, "find the GPU asked for with --gpu", device_get, device, (int)o->gpu);
    g->contexts = calloc(o->contexts, sizeof(cu_context));
    if (!g->contexts && !g->s.failed)
        g->s.failed = error_set(g->s.err, -ENOMEM, "no memory for the contexts");
    while (!g->s.failed && g->ncontexts < o->contexts)
        g->ncontexts +=
            !CUDA(g, "create a context", ctx_create, &g->contexts[g->ncontexts], flags, *device);
}

cu_pointer cuda_make_state(struct cuda *g)
{
    cu_pointer state = 0;
    _cleanup_free_ uint32_t *seeds = spin_seeds(&g->s);
    size_t bytes = g->s.threads * sizeof(*seeds);
    CUDA(g, "allocate GPU memory for the state", mem_alloc, &state, bytes);
    cuda_copy_in(g, state, seeds, bytes);
    return state;
}

static void cuda_find_kernel(struct cuda *g, cu_device device, double sm_fraction)
{
    int sms = 0, per_sm = 0;
    g->function = cuda_find(g, g->kind->spin, SPIN_ENTRY);
    CUDA(g, "ask for the number of SMs", device_attribute, &sms, g->kind->sms_attribute, device);
    CUDA(g, "ask for the kernel's occupancy", occupancy, &per_sm, g->function, (int)SPIN_THREADS,
         0);
    if (!g->s.failed && (sms < 1 || per_sm < 1))
        g->s.failed =
            error_set(g->s.err, -EIO, "the driver reports %d SMs and %d blocks each", sms, per_sm);
    g->blocks = (unsigned)fmax(1, round(sm_fraction * sms * per_sm));
    g->s.threads = g->blocks * SPIN_THREADS;
}

static void cuda_set_up_events(struct cuda *g)
{
    g->events = calloc(g->s.slots, sizeof(cu_event));
    if (!g->events && !g->s.failed)
        g->s.failed = error_set(g->s.err, -ENOMEM, "no memory for events");
    for (uint64_t i = 0; !g->s.failed && i < g->s.slots; i++)
        CUDA(g, "create an event", event_create, &g->events[i],
             CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
}

int cuda_set_up(struct cuda *g, const struct load_options *o, cu_device device)
{
    g->s.calls = &cuda_spin_calls;
    cuda_find_kernel(g, device, o->sm_fraction);
    CUDA(g, "create a stream", stream_create, &g->stream, CU_STREAM_NON_BLOCKING);
    g->state = cuda_make_state(g);
    /* 2 ms of work bridge the host's delays, 256 launches never fill a channel's ring. */
    spin_ring(&g->s, o, 2000, 8);
    if (!g->spin)
        cuda_set_up_events(g);
    return spin_start(&g->s, o, SPIN_RUNS / 4);
}

static void cuda_set_up_copies(struct cuda *g, size_t bytes)
{
    CUDA(g, "allocate GPU memory for --copy-bytes", mem_alloc, &g->copy, bytes);
    CUDA(g, "pin host memory for --copy-bytes", mem_alloc_host, (void **)&g->s.copy_in, bytes);
    CUDA(g, "pin host memory for --copy-bytes", mem_alloc_host, (void **)&g->s.copy_out, bytes);
    g->s.copy_bytes = bytes;
}

int cuda_open(const struct cuda_kind *kind, const struct load_ops *ops,
              const struct load_options *o, struct load_gpu **out, struct error *err)
{
    cu_device device = 0;
    struct cuda *g = calloc(1, kind->size);
    if (!g)
        return error_set(err, -ENOMEM, "no memory");
    g->kind = kind;
    g->s = (struct spin){.base.ops = ops, .err = err, .verify = o->verify};
    g->spin = o->role != LOAD_BATCH && !load_queues(o);
    cuda_set_up_contexts(g, o, &device);
    cuda_set_up(g, o, device);
    if (o->copy_bytes)
        cuda_set_up_copies(g, o->copy_bytes);
    if (o->memory)
        cuda_set_up_hold(g, o->memory);
    if (o->work && !g->s.failed) {
        g->work = load_work(o->work);
        g->work->set_up(g);
    }
    int r = g->s.failed;
    if (r) {
        cuda_close(&g->s.base);
        return r;
    }
    /* Often enough that the queue never runs dry, seldom enough to cost no CPU. */
    double queue_ns = o->kernel_us * (double)g->s.slots * (double)NSEC_PER_USEC;
    if (o->role == LOAD_BATCH && !o->burst) /* a latency is not measured asleep, nor a burst */
        g->poll_ns = clamp_u64((uint64_t)(queue_ns / 8), 20 * NSEC_PER_USEC, 500 * NSEC_PER_USEC);
    if (o->role == LOAD_LATENCY) /* a sleep was seen to end up to 0.3 ms late */
        g->s.base.wake_ns = 400 * NSEC_PER_USEC;
    *out = &g->s.base;
    return 0;
}

static int nvidia_open(const struct load_options *o, struct load_gpu **out, struct error *err)
{
    return cuda_open(&cuda_nvidia, &load_cuda, o, out, err);
}

static int cuda_verify(struct load_gpu *base, struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    int r = spin_verify(base, err);
    if (!r && g->work)
        r = g->work->verify(g);
    return !r && g->hold_words ? cuda_verify_hold(g) : r;
}

static int cuda_digest(struct load_gpu *base, uint64_t *out, struct error *err)
{
    struct cuda *g = (struct cuda *)base;
    return g->work ? g->work->digest(g, out) : -ENODATA;
}

const struct load_ops load_cuda = {
    .name = "nvidia",
    .open = nvidia_open,
    .close = cuda_close,
    .submit = spin_submit,
    .wait = spin_wait,
    .verify = cuda_verify,
    .digest = cuda_digest,
};
