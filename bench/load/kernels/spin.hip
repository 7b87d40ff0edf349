extern "C" __global__ void cede_spin(unsigned *state, unsigned iterations)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = state[i];
    for (unsigned n = 0; n < iterations; n++)
        x = x * 1664525U + 1013904223U;
    state[i] = x;
}
