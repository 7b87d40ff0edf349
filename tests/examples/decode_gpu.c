/* A stand-in for libcuda.so.1 that runs examples/decode: with tests/libcede/fake_gpu, where what is
 * put into a stream runs later, what is missing there: its kernels, by those of cpu.c, and graphs.
 */
#include <stdlib.h>
#include <string.h>

#include "../../examples/decode/model.h"
#include "fake_gpu.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

#define DOES_NOTHING(name, ...)                                                                    \
    CALL(name, __VA_ARGS__)                                                                        \
    {                                                                                              \
        return OK;                                                                                 \
    }

enum { OK = 0, BAD_VALUE = 1 };

/* ---- kernels --------------------------------------------------------------------------------- */

struct queued {
    struct queued *next;
    struct work work;
    enum kernel kernel;
    unsigned blocks, rows;
};
static struct queued *all; /* to the end: a graph runs it again */

static __attribute__((destructor)) void free_all(void)
{
    for (struct queued *q; (q = all);) {
        all = q->next;
        free(q);
    }
}

static void run_queued(void *arg)
{
    const struct queued *q = arg;
    struct device cpu;
    cpu_open(&cpu);
    cpu.launch(NULL, q->kernel, q->blocks, q->rows, &q->work);
}

static int launch(enum kernel k, unsigned gx, unsigned gy, unsigned bx, void *stream, void **params)
{
    static const unsigned threads[KERNELS] = {128, 32, 256, 256, 256, 256, 256};
    struct queued *q = malloc(sizeof(*q));
    *q = (struct queued){
        .next = all, .work = *(struct work *)params[0], .kernel = k, .blocks = gx, .rows = gy};
    all = q;
    if (k == LINEAR) {
        q->rows = *(unsigned *)params[1];
        fake_cuda.bad += gy != (q->rows + 7) / 8;
    }
    fake_cuda.bad += bx != threads[k];
    return fake_cuda.bad ? BAD_VALUE : cuLaunchHostFunc(stream, run_queued, q);
}

/* fake_cuda.c's, which is compiled under this name. */
int fake_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, void *stream, void **params, void **extra);

CALL(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    for (int k = 0; k < KERNELS; k++) {
        if (strncmp(f, kernel_names[k], strlen(kernel_names[k])) == 0)
            return launch((enum kernel)k, gx, gy, bx, stream, params);
    }
    return fake_launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CALL(cuCtxSetCurrent, void *context)
{
    fake_cuda.current = context;
    return OK;
}

CALL(cuMemsetD8Async, uint64_t address, unsigned char value, size_t bytes, void *stream)
{
    memset((void *)(uintptr_t)address, value, bytes);
    return OK;
}

/* ---- graphs: of what is launched between begin and end --------------------------------------- */

static struct fake_graph *captured;

CALL(cuStreamBeginCapture_v2, void *stream, int mode)
{
    captured = fake_capture();
    return OK;
}

CALL(cuStreamEndCapture, void *stream, void **graph)
{
    fake_capture_end();
    *graph = captured;
    return OK;
}

CALL(cuGraphInstantiateWithFlags, void **exec, void *graph, unsigned long long flags)
{
    *exec = graph;
    return OK;
}

CALL(cuGraphLaunch, void *exec, void *stream)
{
    fake_replay(exec);
    return OK;
}

CALL(cuGraphExecDestroy, void *exec)
{
    fake_graph_free(exec);
    return OK;
}

DOES_NOTHING(cuGraphDestroy, void *graph) /* its executable one is the same here */

CALL(cuGraphGetNodes, void *graph, void **nodes, size_t *n)
{
    *n = 1;
    return OK;
}

CALL(cuStreamIsCapturing, void *stream, int *status)
{
    *status = 0;
    return OK;
}

DOES_NOTHING(cuGraphUpload, void *exec, void *stream)

CALL(cuGraphExecUpdate_v2, void *exec, void *graph, int *result)
{
    return BAD_VALUE;
}

DOES_NOTHING(cuDeviceGraphMemTrim, int device)

CALL(cuMemGetInfo_v2, size_t *available, size_t *of)
{
    *available = *of = 1 << 20;
    return OK;
}

DOES_NOTHING(cuThreadExchangeStreamCaptureMode, int *mode)
