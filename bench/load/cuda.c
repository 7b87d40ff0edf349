/* See cuda.h: NVIDIA's driver and its calls, for those that launch kernels. Knows no roles, no
 * works and nothing of what is in flight. */
#include "bench/load/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <time.h>

#include "base/symbols.h"
#include "bench/load/kernels.h"

static const struct cuda_advice advice[] = {
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
    {0, "see dmesg | grep NVRM"},
};

int cuda_check(struct cuda *g, cu_result r, const char *what)
{
    if (r == 0 || g->s.failed)
        return g->s.failed;
    const char *name = NULL, *text = NULL;
    const struct cuda_advice *hint = g->kind->advice;
    g->kind->error_words(g, r, &name, &text);
    while (hint->code && hint->code != r)
        hint++;
    int code = r == CU_OUT_OF_MEMORY ? -ENOMEM : r == 100 || r == 101 ? -ENODEV : -EIO;
    return g->s.failed =
               error_set(g->s.err, code, "cannot %s: %s, %d (%s): %s", what,
                         name ? name : "unknown error", r, text ? text : "no text", hint->text);
}

static void nvidia_words(struct cuda *g, cu_result r, const char **name, const char **text)
{
    g->error_name(r, name);
    g->error_text(r, text);
}

static int nvidia_load_library(struct cuda *g)
{
    /* Never closed: the library leaves threads and exit handlers behind. */
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static const struct symbol calls[] = {
#define X(field, nvidia, amd, args) {nvidia, offsetof(struct cuda, cu.field)},
        CUDA_CALLS(X)
#undef X
            {"cuGetErrorName", offsetof(struct cuda, error_name)},
        {"cuGetErrorString", offsetof(struct cuda, error_text)},
    };
    const char *missing = lib ? symbols_find(lib, calls, ARRAY_SIZE(calls), g) : NULL;
    if (!lib)
        g->s.failed = error_set(g->s.err, -ENODEV,
                                "cannot open the NVIDIA driver's library: %s: install the driver, "
                                "or use --device soft",
                                dlerror());
    else if (missing)
        g->s.failed =
            error_set(g->s.err, -ENOTSUP, "libcuda.so.1 has no %s: the driver is too old", missing);
    return g->s.failed;
}

const struct cuda_kind cuda_nvidia = {
    .size = sizeof(struct cuda),
    .init = "initialise the NVIDIA driver (cuInit)",
    .sms_attribute = 16,
    .advice = advice,
    .load_library = nvidia_load_library,
    .error_words = nvidia_words,
    .spin = spin_ptx,
};

cu_function cuda_find(struct cuda *g, const char *text, const char *name)
{
    cu_module m = NULL;
    cu_function f = NULL;
    _cleanup_free_ void *image = g->kind->compile ? g->kind->compile(g, text) : NULL;
    CUDA(g, "load a kernel", module_load, &m, image ? image : text);
    CUDA(g, "find a kernel", module_function, &f, m, name);
    return f;
}

int cuda_launch(struct cuda *g, cu_function f, unsigned blocks, unsigned threads, void **params)
{
    return CUDA(g, "launch a kernel", launch, f, blocks, 1, 1, threads, 1, 1, 0, g->stream, params,
                NULL);
}

int cuda_copy_in(struct cuda *g, cu_pointer to, const void *from, size_t bytes)
{
    CUDA(g, "copy to the GPU", copy_in_async, to, from, bytes, g->stream);
    return cuda_settle(g, "a copy");
}

/* By asking: the driver's own waits cannot be given up when the program is suspended. */
int cuda_wait(struct cuda *g, cu_event e, uint64_t limit_ns, uint64_t *end_ns)
{
    uint64_t deadline = monotonic_ns() + limit_ns;
    for (;;) {
        cu_result r = e ? g->cu.event_query(e) : g->cu.stream_query(g->stream);
        *end_ns = monotonic_ns();
        if (r != CU_NOT_READY)
            return cuda_check(g, r, "wait for a kernel");
        if (*end_ns >= deadline)
            return -ETIMEDOUT;
        if (g->poll_ns)
            nanosleep(&(struct timespec){.tv_nsec = (long)g->poll_ns}, NULL);
    }
}

int cuda_settle(struct cuda *g, const char *what)
{
    uint64_t end;
    if (!g->s.failed && cuda_wait(g, NULL, SPIN_SETUP_NS, &end) == -ETIMEDOUT)
        g->s.failed = error_set(g->s.err, -ETIMEDOUT,
                                "%s did not end in 60 s: is this program suspended, or the GPU "
                                "hung?",
                                what);
    return g->s.failed;
}
