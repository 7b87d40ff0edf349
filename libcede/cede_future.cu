// The future map's kernels; see future_kernels.h. scripts/ptx makes cede_future.ptx of it.
#include "future_kernels.h"

extern "C" __global__ void cede_future_place(unsigned *place, unsigned tag, unsigned n)
{
    future_place(place, tag, n);
}

extern "C" __global__ void cede_future_store(future_slot *slots, unsigned mask,
                                             const unsigned *place, unsigned tag, unsigned n,
                                             const char *values, long long stride, unsigned bytes)
{
    future_store(blockIdx.x * blockDim.x + threadIdx.x, slots, mask, place, tag, n, values, stride,
                 bytes);
}

extern "C" __global__ void cede_future_resolve(const future_slot *slots, unsigned mask,
                                               unsigned *missing, unsigned n, char *inputs,
                                               long long stride, unsigned bytes)
{
    future_resolve(blockIdx.x * blockDim.x + threadIdx.x, slots, mask, missing, n, inputs, stride,
                   bytes);
}
