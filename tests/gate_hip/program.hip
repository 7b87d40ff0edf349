// A program as hipcc makes it: launch syntax, streams, copies. The stand-in reads a kernel's first
// two parameters as its number and its duration in ns.
#include <hip/hip_runtime.h>

#include <cstdint>

__global__ void work(uint64_t number, uint64_t ns, float *data)
{
    data[threadIdx.x] += (float)number;
}

int main()
{
    float host[64] = {}, *device;
    hipStream_t stream;
    if (hipMalloc((void **)&device, sizeof(host)) != hipSuccess)
        return 1;
    if (hipStreamCreate(&stream) != hipSuccess)
        return 2;
    for (uint64_t i = 0; i < 200; i++) {
        work<<<dim3(4), dim3(64), 0, i % 3 ? stream : 0>>>(i, 100000, device);
        if (hipGetLastError() != hipSuccess)
            return 3;
    }
    if (hipMemcpyAsync(host, device, sizeof(host), hipMemcpyDeviceToHost, stream) != hipSuccess)
        return 4;
    if (hipDeviceSynchronize() != hipSuccess)
        return 5;
    return hipFree(device) == hipSuccess ? 0 : 6;
}
