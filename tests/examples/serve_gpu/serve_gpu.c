/* A stand-in for libcuda.so.1 that runs examples/serve_model.c's kernel, also in graphs: what
 * tests/libcede/fake_gpu does not know. Says at the end what ran. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../examples/serve_model.h"
#include "fake_gpu.h"

static __attribute__((constructor)) void begin(void)
{
    fake_cuda.free_bytes = 1 << 30;
    fake_cuda.fail_graph_launch = getenv("CEDE_FAKE_FAIL") ? 719 : 0;
}

static __attribute__((destructor)) void end(void)
{
    fprintf(stderr, "%d graphs of %d were launched, and %d kernels without one; %d bad calls\n",
            fake_cuda.graph_launches, fake_cuda.instantiated, fake_cuda.added, fake_cuda.bad);
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *f, int threads, size_t shared)
{
    *blocks = 1024 / threads;
    return 0;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int d)
{
    *bytes = 1 << 30;
    return 0;
}

void fake_graph_run(uint32_t *words, uint32_t steps)
{
    struct model_row *rows = (struct model_row *)words;
    uint32_t factor = 1, summand = 0; /* of all steps together */
    for (; steps; steps--) {
        factor *= 1664525;
        summand = summand * 1664525 + 1013904223;
    }
    for (int i = 0; i < MODEL_BATCH; i++)
        rows[i].output = factor * rows[i].input + summand;
}
