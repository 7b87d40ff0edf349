/* One number of an array's bits that does not depend on the order of addition. Compiled to digest.ptx
 * by scripts/ptx. */
extern "C" __global__ void digest(const unsigned *words, unsigned long long n,
                                  unsigned long long *sum)
{
    unsigned long long a = 0, i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; i < n; i += gridDim.x * (unsigned long long)blockDim.x)
        a += (words[i] ^ (unsigned)i * 2654435761u) * 0x9e3779b97f4a7c15ull;
    atomicAdd(sum, a);
}
