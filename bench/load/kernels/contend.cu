/* Kernels that use one part of a GPU each, for bench/interference. Every block reports when it ran
 * and where; what a thread computed is kept, so that it can be looked at, and is not left out by a
 * compiler. Compiled to contend.ptx by scripts/ptx. */
struct contend_report {
    unsigned long long start_ns, end_ns, cycles;
    unsigned sm, sink;
};

static __device__ unsigned long long now_ns()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __device__ void begins(contend_report *all)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) {
        all[blockIdx.x].start_ns = now_ns();
        all[blockIdx.x].cycles = clock64();
        all[blockIdx.x].sm = sm;
    }
}

static __device__ void ends(contend_report *all)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        all[blockIdx.x].cycles = clock64() - all[blockIdx.x].cycles;
        all[blockIdx.x].end_ns = now_ns();
    }
}

/* Room for blocks and nothing else. */
extern "C" __global__ void contend_sleep(contend_report *all, unsigned long long steps, float *in,
                                         float *out, unsigned long long words)
{
    begins(all);
    for (unsigned long long i = 0; i < steps; i++)
        __nanosleep(1000);
    ends(all);
}

/* Each block its own part of the arrays, again and again. words: a multiple of four times the
 * threads of a block. */
extern "C" __global__ void contend_copy(contend_report *all, unsigned long long steps, float *in,
                                        float *out, unsigned long long words)
{
    const float *from = in + blockIdx.x * words;
    float *to = out + blockIdx.x * words;
    const unsigned n = blockDim.x;
    begins(all);
    for (unsigned long long s = 0; s < steps; s++) {
        for (unsigned long long i = threadIdx.x; i < words; i += 4 * n) {
            float a = from[i], b = from[i + n], c = from[i + 2 * n], d = from[i + 3 * n];
            to[i] = a;
            to[i + n] = b;
            to[i + 2 * n] = c;
            to[i + 3 * n] = d;
        }
    }
    ends(all);
}

/* Products that wait for the one before: WAYS at a time. A step is 32 of each. */
template <typename T, int WAYS>
static __device__ void multiply(contend_report *all, unsigned long long steps, T factor)
{
    T x[WAYS];
    for (int w = 0; w < WAYS; w++)
        x[w] = 1 + (T)threadIdx.x / 65536 + (T)w / 8;
    begins(all);
    for (unsigned long long s = 0; s < steps; s++) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
#pragma unroll
            for (int w = 0; w < WAYS; w++)
                x[w] = x[w] * factor;
        }
    }
    T sum = 0;
    for (int w = 0; w < WAYS; w++)
        sum += x[w];
    if (sum == (T)12345) /* never */
        all[blockIdx.x].sink = 1;
    ends(all);
}

#define MULTIPLY(name, type, ways)                                                                 \
    extern "C" __global__ void name(contend_report *all, unsigned long long steps, float *in,      \
                                    float *out, unsigned long long words)                          \
    {                                                                                              \
        multiply<type, ways>(all, steps, (type)in[0]);                                             \
    }
MULTIPLY(contend_mul1, float, 1)
MULTIPLY(contend_mul2, float, 2)
MULTIPLY(contend_mul3, float, 3)
MULTIPLY(contend_mul4, float, 4)
MULTIPLY(contend_double1, double, 1)
MULTIPLY(contend_double2, double, 2)
MULTIPLY(contend_double3, double, 3)
MULTIPLY(contend_double4, double, 4)

#define N    1024 /* of the matrices: 4 MB each */
#define ROWS 64   /* of a block's part of the product, and its columns */
#define COLS 128
#define DEEP 8

/* out = in * in; 128 blocks of 128 threads, 8 x 8 numbers a thread. There is one warp for each
 * scheduler, and none to issue from while it waits for memory, which is most of the time. */
extern "C" __global__ void contend_product(contend_report *all, unsigned long long steps, float *in,
                                           float *out, unsigned long long words)
{
    __shared__ float a[DEEP][ROWS], b[DEEP][COLS];
    const int row = blockIdx.x / (N / COLS) * ROWS, col = blockIdx.x % (N / COLS) * COLS;
    const int ty = threadIdx.x / 16 * 8, tx = threadIdx.x % 16 * 8;
    begins(all);
    for (unsigned long long s = 0; s < steps; s++) {
        float sum[8][8] = {};
        for (int k = 0; k < N; k += DEEP) {
            for (int i = threadIdx.x; i < DEEP * ROWS; i += 128)
                a[i % DEEP][i / DEEP] = in[(row + i / DEEP) * N + k + i % DEEP];
            for (int i = threadIdx.x; i < DEEP * COLS; i += 128)
                b[i / COLS][i % COLS] = in[(k + i / COLS) * N + col + i % COLS];
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                float p[8], q[8];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    p[i] = a[d][ty + i];
                    q[i] = b[d][tx + i];
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        sum[i][j] += p[i] * q[j];
                }
            }
            __syncthreads();
        }
        for (int i = 0; i < 8; i++) {
            for (int j = 0; j < 8; j++)
                out[(row + ty + i) * N + col + tx + j] = sum[i][j];
        }
    }
    ends(all);
}

static __device__ float4 *four(const float *p)
{
    return (float4 *)p;
}

/* The same product, as libraries compute it: the next part of the matrices is loaded while this one
 * is multiplied, and shared memory is read four numbers at a time. */
extern "C" __global__ void contend_prefetch(contend_report *all, unsigned long long steps,
                                            float *in, float *out, unsigned long long words)
{
    __shared__ __align__(16) float a[2][DEEP][ROWS + 4], b[2][DEEP][COLS];
    const int row = blockIdx.x / (N / COLS) * ROWS, col = blockIdx.x % (N / COLS) * COLS;
    const int t = threadIdx.x, ty = t / 16 * 4, tx = t % 16 * 4;
    const float *from_a = in + (row + t / 2) * N + t % 2 * 4,
                *from_b = in + t / 32 * N + col + t % 32 * 4;
    begins(all);
    for (unsigned long long s = 0; s < steps; s++) {
        float sum[8][8] = {};
        float4 next = *four(from_a), lower = *four(from_b), upper = *four(from_b + 4 * N);
        for (int k = 0; k < N; k += DEEP) {
            const int now = k / DEEP % 2;
            a[now][t % 2 * 4][t / 2] = next.x;
            a[now][t % 2 * 4 + 1][t / 2] = next.y;
            a[now][t % 2 * 4 + 2][t / 2] = next.z;
            a[now][t % 2 * 4 + 3][t / 2] = next.w;
            *four(&b[now][t / 32][t % 32 * 4]) = lower;
            *four(&b[now][t / 32 + 4][t % 32 * 4]) = upper;
            __syncthreads();
            const int after = (k + DEEP) % N;
            next = *four(from_a + after);
            lower = *four(from_b + after * N);
            upper = *four(from_b + (after + 4) * N);
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                float p[8], q[8];
                *four(p) = *four(&a[now][d][ty]);
                *four(p + 4) = *four(&a[now][d][ty + ROWS / 2]);
                *four(q) = *four(&b[now][d][tx]);
                *four(q + 4) = *four(&b[now][d][tx + COLS / 2]);
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        sum[i][j] += p[i] * q[j];
                }
            }
        }
        for (int i = 0; i < 8; i++) {
            for (int j = 0; j < 8; j++)
                out[(row + ty + i % 4 + i / 4 * (ROWS / 2)) * N + col + tx + j % 4 +
                    j / 4 * (COLS / 2)] = sum[i][j];
        }
    }
    ends(all);
}
