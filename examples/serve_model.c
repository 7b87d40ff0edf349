/* See serve_model.h. CUDA's driver is opened at run time; kernel and arithmetic do the same steps
 * of a linear congruential generator. */
#include "serve_model.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CUDA(name, ...) ((int (*)(__VA_ARGS__))dlsym(cuda, #name))

const struct cede_shape model_row_shape = {16 /* blocks */, 256 /* threads */, 0, 0, 1 << 20, 0};
void *model_stream;
static void *cuda, *context, *kernel;
static unsigned steps = 1000000; /* of a row */
static const char ptx[] =
    ".version 6.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry model(.param .u64 p_rows, .param .u32 p_steps)\n{\n"
    ".reg .b32 %x, %left, %row;\n.reg .b64 %at, %offset;\n.reg .pred %more;\n"
    "ld.param.u64 %at, [p_rows];\nld.param.u32 %left, [p_steps];\n"
    "cvta.to.global.u64 %at, %at;\nmov.u32 %row, %ctaid.y;\n"
    "mul.wide.u32 %offset, %row, 8;\nadd.u64 %at, %at, %offset;\nld.global.u32 %x, [%at];\n"
    "again:\nmad.lo.u32 %x, %x, 1664525, 1013904223;\nsub.u32 %left, %left, 1;\n"
    "setp.ne.u32 %more, %left, 0;\n@%more bra again;\nst.global.u32 [%at+4], %x;\nret;\n}\n";

int model_open(struct cede_pool *pool)
{
    void *module;
    int d;
    if (!(cuda = dlopen("libcuda.so.1", RTLD_NOW)) || CUDA(cuInit, unsigned)(0) ||
        CUDA(cuDeviceGet, int *, int)(&d, 0))
        return cede_pool_occupancy(pool, "model", 0.3); /* a sleep stands for the GPU */
    if (CUDA(cuDevicePrimaryCtxRetain, void **, int)(&context, d) || model_thread() ||
        CUDA(cuStreamCreate, void **, unsigned)(&model_stream, 1 /* non-blocking */) ||
        CUDA(cuModuleLoadData, void **, const void *)(&module, ptx) ||
        CUDA(cuModuleGetFunction, void **, void *, const char *)(&kernel, module, "model"))
        return fputs("serve: CUDA's driver failed\n", stderr), -EIO;
    return cede_pool_kernel(pool, "model", kernel);
}

int model_thread(void)
{
    return context ? CUDA(cuCtxPushCurrent_v2, void *)(context) : 0;
}

struct model_row *model_rows(void)
{
    void *rows = NULL;
    if (!kernel)
        return (struct model_row *)calloc(MODEL_BATCH, sizeof(struct model_row));
    CUDA(cuMemHostAlloc, void **, size_t, unsigned)
    (&rows, MODEL_BATCH * sizeof(struct model_row), 0);
    return (struct model_row *)rows;
}

unsigned model_input(const char *text)
{
    unsigned hash = 0;
    while (*text)
        hash = hash * 31 + (unsigned char)*text++;
    return hash;
}

int model_step(void *rows, void *stream, unsigned n)
{
    void *params[] = {&rows, &steps};
    if (kernel)
        return CUDA(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                    unsigned, unsigned, void *, void **,
                    void **)(kernel, model_row_shape.blocks, n, 1, model_row_shape.threads, 1, 1, 0,
                             stream, params, NULL);
    usleep(10000 + 1000 * n);
    for (struct model_row *r = (struct model_row *)rows; n--; r++) {
        r->output = r->input; /* 1, 2, 4, ... steps at once */
        for (unsigned s = steps, a = 1664525, c = 1013904223; s; s /= 2, c *= a + 1, a *= a)
            r->output = s % 2 ? a * r->output + c : r->output;
    }
    return 0;
}

int model_wait(void *stream)
{
    return kernel ? CUDA(cuStreamSynchronize, void *)(stream) : 0;
}
