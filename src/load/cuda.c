/* See cuda.h: the driver's calls, for those that launch kernels. Knows no roles, no works and
 * nothing of what is in flight. */
#include "load/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/symbols.h"
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

int cuda_settle(struct cuda *g, const char *what, struct error *err)
{
    uint64_t end;
    int r = cuda_spin_until_idle(g, SETUP_NS, &end, err);
    return r == -ETIMEDOUT ? error_set(err, r,
                                       "%s did not end in 30 s: is this program suspended, or the "
                                       "GPU hung (nvidia-smi)?",
                                       what)
                           : r;
}

int cuda_find(struct cuda *g, const char *ptx, const char *name, cu_function *out,
              struct error *err)
{
    cu_module m;
    int r = cuda_check(g, g->cu.module_load(&m, ptx), "load a kernel", err);
    return r ? r : cuda_check(g, g->cu.module_function(out, m, name), "find a kernel", err);
}

int cuda_alloc(struct cuda *g, size_t bytes, const char *what, cu_pointer *out, struct error *err)
{
    int r = cuda_check(g, g->cu.mem_alloc(out, bytes), "allocate GPU memory", err);
    return r ? error_prefix(err, r, "%s", what) : 0;
}

int cuda_timed(void *arg, uint32_t iterations, double *us, struct error *err)
{
    struct cuda *g = arg;
    uint64_t start = monotonic_ns();
    int r = cuda_launch(g, g->stream, g->state, iterations, err);
    if (r)
        return r;
    g->steps += iterations;
    r = cuda_settle(g, "a kernel of about 1 ms", err);
    *us = (double)(monotonic_ns() - start) / (double)NSEC_PER_USEC;
    return r;
}

size_t cuda_state_bytes(const struct cuda *g)
{
    return g->blocks * SPIN_THREADS * sizeof(uint32_t);
}

int cuda_make_state(struct cuda *g, cu_pointer *out, struct error *err)
{
    uint32_t threads = g->blocks * SPIN_THREADS;
    uint32_t *seeds = malloc(cuda_state_bytes(g));
    if (!seeds)
        return error_set(err, -ENOMEM, "no memory for %u threads' state", threads);
    for (uint32_t i = 0; i < threads; i++)
        seeds[i] = spin_seed(i);
    int r = cuda_alloc(g, cuda_state_bytes(g), "the state", out, err);
    if (!r) /* on the kernels' stream: the plain copy may still be on its way when it returns */
        r = cuda_check(g, g->cu.copy_in_async(*out, seeds, cuda_state_bytes(g), g->stream),
                       "copy the state in", err);
    if (!r)
        r = cuda_settle(g, "a copy", err);
    free(seeds);
    return r;
}

int cuda_set_up_kernel(struct cuda *g, cu_device device, double sm_fraction, struct error *err)
{
    int sms = 0, per_sm = 0;
    int r = cuda_find(g, spin_ptx, SPIN_ENTRY, &g->function, err);
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
