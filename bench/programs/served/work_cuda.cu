/* The models of work.h on an NVIDIA GPU: chains of matrix products by cuBLAS, as a user would write
 * them. Weights are shared; each thread has its handle and its activations. */
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

#include "work.h"

/* On an H100 or H200 a batch of 8 takes about 2 ms (small) or 7 ms (large), of kernels that take
 * 0.2 ms at most, and a piece of bulk 3 ms. */
static const int width = 4096, most_rows = 4096, weights = 8;
static const struct {
    int rows, products; /* rows: of one request */
} shapes[WORK_KINDS] = {{256, 16}, {512, 32}, {4096, 16}};

static __half *weight;

static void check(int result, const char *call)
{
    if (result)
        throw std::runtime_error(std::string(call) + " failed: " + std::to_string(result));
}

/* Such that products neither grow nor vanish. */
static __global__ void fill(__half *to, size_t n, float most)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned x = (unsigned)i * 2654435761u;
        x = (x ^ x >> 15) * 2246822519u;
        x ^= x >> 13;
        to[i] = __float2half(most * ((float)(x & 0xffff) / 32768 - 1));
    }
}

static __half *filled(size_t n, float most)
{
    void *to;
    check(cudaMalloc(&to, n * sizeof(__half)), "cudaMalloc");
    fill<<<1024, 256>>>(static_cast<__half *>(to), n, most);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return static_cast<__half *>(to);
}

/* A thread's. */
struct activations {
    cublasHandle_t blas = nullptr;
    __half *input, *rows[2];

    activations()
    {
        check(cudaSetDevice(0), "cudaSetDevice");
        check(cublasCreate(&blas), "cublasCreate");
        input = filled((size_t)most_rows * width, 1);
        for (__half *&r : rows)
            r = filled((size_t)most_rows * width, 1);
    }
    ~activations()
    {
        cublasDestroy(blas);
        cudaFree(input);
        cudaFree(rows[0]);
        cudaFree(rows[1]);
    }
};

void work_open()
{
    check(cudaSetDevice(0), "cudaSetDevice");
    weight = filled((size_t)weights * width * width, 0.027f); /* sqrt(3 / width) */
}

void *work_stream(int priority)
{
    cudaStream_t stream;
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
    return stream;
}

void work_run(enum work_kind kind, unsigned n, void *stream)
{
    static thread_local activations a;
    const float one = 1, none = 0;
    int rows = shapes[kind].rows * (int)n;
    check(cublasSetStream(a.blas, static_cast<cudaStream_t>(stream)), "cublasSetStream");
    for (int i = 0; i < shapes[kind].products; i++)
        check(cublasGemmEx(a.blas, CUBLAS_OP_N, CUBLAS_OP_N, width, rows, width, &one,
                           weight + (size_t)(i % weights) * width * width, CUDA_R_16F, width,
                           i ? a.rows[i % 2] : a.input, CUDA_R_16F, width, &none,
                           a.rows[(i + 1) % 2], CUDA_R_16F, width, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}
