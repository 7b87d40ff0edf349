/* cede-load on NVIDIA GPUs: an ordinary program on the documented driver API, opened at run time so
 * that nothing of the vendor is needed to build. It is what cede schedules: it must not know of
 * cede, nor touch its own scheduling. */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/symbols.h"
#include "load/cuda.h"
#include "load/kernels.h"
#include "load/spin.h"

static const struct {
    cu_result code;
    const char *text;
} advice[] = {
    {CU_OUT_OF_MEMORY, "the GPU's memory is taken: see nvidia-smi for by whom"},
    {34, "this libcuda.so.1 is the toolkit's stub: take its folder out of LD_LIBRARY_PATH"},
    {46, "the GPU is taken: see the compute mode in nvidia-smi -q -d COMPUTE"},
    {100, "no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and, in a container, that it "
          "was given the GPU"},
    {101, "no such GPU: nvidia-smi -L lists them, --gpu counts the visible ones from 0"},
    {209, "the driver has no code generator for this GPU: update the driver"},
    {218, "the driver refused the kernel's PTX: update the driver"},
    {221, "install the driver's PTX compiler (libnvidia-ptxjitcompiler.so.1)"},
    {222, "the driver is too old for the kernel's PTX: update the driver"},
    {304, "the operating system refused a call: check rights on /dev/nvidia*, limits and dmesg"},
    {700, "a kernel touched bad memory: see dmesg | grep NVRM"},
    {719, "a kernel died, by itself or because its channel was stopped: see dmesg | grep NVRM"},
    {802, "the system is not ready: is nvidia-fabricmanager running?"},
    {803, "libcuda and the kernel module are of different versions: reboot, or install matching "
          "ones"},
    {805, "no connection to the MPS daemon: check it, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {807, "the MPS server is not ready: try again, or stop MPS"},
    {999, "check that /dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm exist and may be opened "
          "(nvidia-modprobe -u -c 0 makes them)"},
};

int cuda_check(const struct cuda *g, cu_result r, const char *what, struct error *err)
{
    if (r == 0)
        return 0;
    const char *name = NULL, *text = NULL, *hint = "see dmesg | grep NVRM";
    g->cu.error_name(r, &name);
    g->cu.error_text(r, &text);
    for (size_t i = 0; i < ARRAY_SIZE(advice); i++)
        if (advice[i].code == r)
            hint = advice[i].text;
    int code = r == CU_OUT_OF_MEMORY ? -ENOMEM : r == 100 || r == 101 ? -ENODEV : -EIO;
    return error_set(err, code, "cannot %s: %s, %d (%s): %s", what, name ? name : "unknown error",
                     r, text ? text : "no text", hint);
}

int cuda_load_library(struct cuda *g, struct error *err)
{
    /* Never closed: the library leaves threads and exit handlers behind. */
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        error_set(err, -ENODEV,
                  "cannot open the NVIDIA driver's library: %s: install the driver, or use "
                  "--device soft",
                  dlerror());
        return -ENODEV;
    }
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct cuda_calls, field)},
        CUDA_CALLS(X)
#undef X
    };
    const char *missing = symbols_find(lib, calls, ARRAY_SIZE(calls), &g->cu);
    if (missing) {
        dlclose(lib);
        error_set(err, -ENOTSUP, "libcuda.so.1 has no %s: the driver is too old", missing);
        return -ENOTSUP;
    }
    return 0;
}

int cuda_launch(const struct cuda *g, cu_stream stream, cu_pointer state, uint32_t iterations,
                struct error *err)
{
    void *params[] = {&state, &iterations};
    return cuda_check(
        g, g->cu.launch(g->function, g->blocks, 1, 1, SPIN_THREADS, 1, 1, 0, stream, params, NULL),
        "launch a kernel", err);
}

static int launch(struct cuda *g, uint32_t iterations, struct error *err)
{
    int r = cuda_launch(g, g->stream, g->state, iterations, err);
    if (!r)
        g->steps += iterations;
    return r;
}

int cuda_spin_until_idle(struct cuda *g, uint64_t limit_ns, uint64_t *end_ns, struct error *err)
{
    uint64_t deadline = monotonic_ns() + limit_ns;
    for (;;) {
        cu_result r = g->cu.stream_query(g->stream);
        *end_ns = monotonic_ns();
        if (r != CU_NOT_READY)
            return cuda_check(g, r, "wait for a kernel", err);
        if (*end_ns >= deadline)
            return -ETIMEDOUT;
    }
}

int cuda_timed(void *arg, uint32_t iterations, double *us, struct error *err)
{
    struct cuda *g = arg;
    uint64_t start = monotonic_ns(), end;
    int r = launch(g, iterations, err);
    if (!r)
        r = cuda_spin_until_idle(g, SETUP_NS, &end, err);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "a kernel of about 1 ms did not end in 30 s: " SETUP_HINT);
    if (!r)
        *us = (double)(end - start) / (double)NSEC_PER_USEC;
    return r;
}

size_t cuda_state_bytes(const struct cuda *g)
{
    return g->blocks * SPIN_THREADS * sizeof(uint32_t);
}

int cuda_make_state(struct cuda *g, cu_pointer *out, struct error *err)
{
    uint32_t threads = g->blocks * SPIN_THREADS;
    uint64_t end;
    uint32_t *seeds = malloc(cuda_state_bytes(g));
    if (!seeds)
        return error_set(err, -ENOMEM, "no memory for %u threads' state", threads);
    for (uint32_t i = 0; i < threads; i++)
        seeds[i] = spin_seed(i);
    int r = cuda_check(g, g->cu.mem_alloc(out, cuda_state_bytes(g)),
                       "allocate GPU memory for the state", err);
    if (!r) /* on the kernels' stream: the plain copy may still be on its way when it returns */
        r = cuda_check(g, g->cu.copy_in_async(*out, seeds, cuda_state_bytes(g), g->stream),
                       "copy the state in", err);
    if (!r)
        r = cuda_spin_until_idle(g, SETUP_NS, &end, err);
    free(seeds);
    return r == -ETIMEDOUT ? error_set(err, r, "a copy did not end in 30 s: " SETUP_HINT) : r;
}

int cuda_set_up_kernel(struct cuda *g, cu_device device, double sm_fraction, struct error *err)
{
    cu_module module;
    int sms = 0, per_sm = 0;
    int r = cuda_check(g, g->cu.module_load(&module, spin_ptx), "load the kernel", err);
    if (!r)
        r = cuda_check(g, g->cu.module_function(&g->function, module, SPIN_ENTRY),
                       "find the kernel", err);
    if (!r)
        r = cuda_check(g, g->cu.device_attribute(&sms, CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
                       "ask for the number of SMs", err);
    if (!r)
        r = cuda_check(g, g->cu.occupancy(&per_sm, g->function, (int)SPIN_THREADS, 0),
                       "ask for the kernel's occupancy", err);
    if (!r && (sms < 1 || per_sm < 1))
        r = error_set(err, -EIO, "the driver reports %d SMs and %d blocks each", sms, per_sm);
    if (!r)
        r = cuda_check(g, g->cu.stream_create(&g->stream, CU_STREAM_NON_BLOCKING),
                       "create a stream", err);
    if (r)
        return r;
    g->blocks = (unsigned)fmax(1, round(sm_fraction * sms * per_sm));
    return cuda_make_state(g, &g->state, err);
}

static int set_up_copies(struct cuda *g, size_t bytes, struct error *err)
{
    void *in = NULL, *out = NULL;
    int r = cuda_check(g, g->cu.mem_alloc(&g->copy, bytes), "allocate GPU memory for --copy-bytes",
                       err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc_host(&in, bytes), "pin host memory for --copy-bytes",
                       err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc_host(&out, bytes), "pin host memory for --copy-bytes",
                       err);
    if (r)
        return r;
    g->copy_in = in;
    g->copy_out = out;
    g->copy_bytes = bytes;
    return 0;
}

/* On the kernels' stream, and waited for. */
static int run_hold(struct cuda *g, cu_function f, struct error *err)
{
    void *params[] = {&g->hold, &g->hold_words, &g->hold_wrong};
    uint64_t end;
    int r = cuda_check(
        g, g->cu.launch(f, g->blocks, 1, 1, SPIN_THREADS, 1, 1, 0, g->stream, params, NULL),
        "launch a kernel over --memory", err);
    if (!r)
        r = cuda_spin_until_idle(g, SETUP_NS, &end, err);
    return r == -ETIMEDOUT
               ? error_set(err, r, "a kernel over --memory did not end in 30 s: " SETUP_HINT)
               : r;
}

static int set_up_hold(struct cuda *g, uint64_t bytes, struct error *err)
{
    static const uint32_t zero = 0;
    cu_module module;
    uint64_t end;
    g->hold_words = bytes / sizeof(uint32_t);
    int r =
        cuda_check(g, g->cu.module_load(&module, hold_ptx), "load the kernels of --memory", err);
    if (!r)
        r = cuda_check(g, g->cu.module_function(&g->hold_fill, module, HOLD_FILL), "find a kernel",
                       err);
    if (!r)
        r = cuda_check(g, g->cu.module_function(&g->hold_check, module, HOLD_CHECK),
                       "find a kernel", err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc(&g->hold, bytes), "allocate GPU memory for --memory",
                       err);
    if (!r)
        r = cuda_check(g, g->cu.mem_alloc(&g->hold_wrong, sizeof(zero)),
                       "allocate GPU memory for --memory", err);
    if (!r)
        r = cuda_check(g, g->cu.copy_in_async(g->hold_wrong, &zero, sizeof(zero), g->stream),
                       "copy a word to the GPU", err);
    if (!r)
        r = cuda_spin_until_idle(g, SETUP_NS, &end, err);
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
        r = cuda_check(
            g, g->cu.event_create(&g->events[i], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "create an event", err);
        if (r)
            return r;
    }
    /* Often enough that the queue never runs dry, seldom enough to cost no CPU. */
    double queue_ns = o->kernel_us * (double)g->slots * (double)NSEC_PER_USEC;
    if (o->role == LOAD_BATCH) /* who measures latency does not sleep while something runs */
        g->poll_ns = clamp_u64((uint64_t)(queue_ns / 8), 20 * NSEC_PER_USEC, 500 * NSEC_PER_USEC);
    return 0;
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
    for (uint32_t i = 0; !r && i < p->kernels; i++)
        r = g->work ? g->work->launch(g, err) : launch(g, g->iterations, err);
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
