/* The kernels of model.c. No sum depends on the number of rows. Compiled to kernels.ptx by
 * scripts/ptx; also C, so that a test can run them without a GPU. */
#include "model.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#endif
#define WARP    32
#define WARPS   8 /* of a block */
#define ROWS    8 /* of x at a time in decode_linear: so often weights are used again */
#define EMPTY(row) (((const int *)w.position)[row] < 0)

typedef unsigned short bfloat16;

static __device__ float wide(unsigned value)
{
    return __uint_as_float(value << 16);
}

static __device__ float sum_lanes(float v)
{
    for (int half = WARP / 2; half; half /= 2)
        v += __shfl_down_sync(0xffffffff, v, half);
    return __shfl_sync(0xffffffff, v, 0);
}

static __device__ float gelu(float v)
{
    return v * (0.5f * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v))));
}

KERNEL decode_embed(struct work w)
{
    const int row = blockIdx.y;
    if (EMPTY(row))
        return;
    const bfloat16 *from = (const bfloat16 *)w.w + (size_t)((const int *)w.token)[row] * w.out;
    for (int i = threadIdx.x; i < w.out; i += blockDim.x)
        ((float *)w.y)[(size_t)row * w.out + i] = wide(from[i]);
}

/* One warp a row. */
KERNEL decode_norm(struct work w)
{
    const int row = blockIdx.y, lane = threadIdx.x;
    if (EMPTY(row))
        return;
    const float *x = (const float *)w.x + (size_t)row * w.in;
    float sum = 0;
    for (int i = lane; i < w.in; i += WARP)
        sum += x[i] * x[i];
    const float scale = rsqrtf(sum_lanes(sum) / w.in + 1e-5f);
    for (int i = lane; i < w.in; i += WARP)
        ((float *)w.y)[(size_t)row * w.in + i] = x[i] * scale;
}

/* One warp a column, for ROWS rows at a time. Each lane takes two numbers, 64 apart from its next,
 * of every row alike. */
KERNEL decode_linear(struct work w, int rows)
{
    const int column = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first = blockIdx.y * ROWS;
    int n = 0; /* rows: behind an empty one are only empty ones */
    while (n < ROWS && first + n < rows && !EMPTY(first + n))
        n++;
    if (column >= w.out || n == 0)
        return;
    const unsigned *weights = (const unsigned *)((const bfloat16 *)w.w + (size_t)column * w.in);
    const float *x = (const float *)w.x + (size_t)first * w.in;
    float sum[ROWS] = {};
    for (int i = lane; i < w.in / 2; i += WARP) {
        const unsigned two = weights[i];
        const float a = wide(two & 0xffff), b = wide(two >> 16);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r < n) {
                const float2 v = ((const float2 *)(x + (size_t)r * w.in))[i];
                sum[r] += v.x * a;
                sum[r] += v.y * b;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float s = sum_lanes(sum[r]);
        if (lane || r >= n)
            continue;
        if (w.gelu)
            s = gelu(s);
        float *y = (float *)w.y + (size_t)(first + r) * w.out + column;
        *y = w.adds ? *y + s : s;
    }
}

static __device__ float *cached(const struct work *w, int row, int position)
{
    const int page = ((const int *)w->pages)[(size_t)row * w->pages_max + position / PAGE];
    const size_t at = ((size_t)w->layer * w->page_count + page) * PAGE + position % PAGE;
    return (float *)w->cache + at * 2 * w->out;
}

static __device__ float rotated(const float *from, int i, int size, int position)
{
    const int pair = i % (size / 2);
    const float angle = position * powf(10000, -2.0f * pair / size);
    const float a = from[pair], b = from[pair + size / 2];
    return i < size / 2 ? a * cosf(angle) - b * sinf(angle) : a * sinf(angle) + b * cosf(angle);
}

/* A block a head of a row; each warp takes every WARPS-th position, and then they are put together
 * in order. */
KERNEL decode_attend(struct work w)
{
    const int head = blockIdx.x, row = blockIdx.y, size = w.out / w.heads;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __shared__ float query[HEAD_MAX], values[WARPS][HEAD_MAX], most[WARPS], weight[WARPS];
    if (EMPTY(row))
        return;
    const int last = ((const int *)w.position)[row];
    const float *qkv = (const float *)w.x + (size_t)row * w.in + head * size;
    float *own = cached(&w, row, last) + head * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        query[i] = rotated(qkv, i, size, last);
        own[i] = rotated(qkv + w.out, i, size, last);
        own[w.out + i] = qkv[2 * w.out + i];
    }
    __syncthreads();
    float got[HEAD_MAX / WARP] = {}, top = -INFINITY, sum = 0;
    for (int p = warp; p <= last; p += WARPS) {
        const float *key = cached(&w, row, p) + head * size;
        float score = 0;
        for (int i = lane; i < size; i += WARP)
            score += query[i] * key[i];
        score = sum_lanes(score) * rsqrtf((float)size);
        const float up = fmaxf(top, score), before = __expf(top - up), now = __expf(score - up);
#pragma unroll
        for (int k = 0; k < HEAD_MAX / WARP; k++) {
            if (lane + k * WARP < size)
                got[k] = got[k] * before + key[w.out + lane + k * WARP] * now;
        }
        sum = sum * before + now;
        top = up;
    }
#pragma unroll
    for (int k = 0; k < HEAD_MAX / WARP; k++)
        values[warp][lane + k * WARP] = got[k];
    most[warp] = top;
    weight[warp] = sum;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        float all = -INFINITY, total = 0, y = 0;
        for (int k = 0; k < WARPS; k++)
            all = fmaxf(all, most[k]);
        for (int k = 0; k < WARPS; k++) {
            const float part = weight[k] > 0 ? __expf(most[k] - all) : 0;
            total += weight[k] * part;
            y += values[k][i] * part;
        }
        ((float *)w.y)[(size_t)row * w.out + head * size + i] = y / total;
    }
}

/* After a product that a library computes. */
KERNEL decode_gelu(struct work w)
{
    const int row = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (EMPTY(row) || i >= w.out)
        return;
    float *y = (float *)w.y + (size_t)row * w.out + i;
    *y = gelu(*y);
}

/* Integers from memory of the host. */
KERNEL decode_take(struct work w)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < w.out)
        ((int *)w.y)[i] = ((const int *)w.x)[i];
}

/* The first of the largest. */
KERNEL decode_choose(struct work w)
{
    __shared__ float value[WARP * WARPS];
    __shared__ int index[WARP * WARPS];
    const int row = blockIdx.y, t = threadIdx.x;
    if (EMPTY(row))
        return;
    const float *x = (const float *)w.x + (size_t)row * w.in;
    value[t] = -INFINITY;
    index[t] = w.in;
    for (int i = t; i < w.in; i += blockDim.x) {
        if (x[i] > value[t]) {
            value[t] = x[i];
            index[t] = i;
        }
    }
    for (int half = WARP * WARPS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half && (value[t + half] > value[t] ||
                         (value[t + half] == value[t] && index[t + half] < index[t]))) {
            value[t] = value[t + half];
            index[t] = index[t + half];
        }
    }
    if (t == 0)
        ((int *)w.y)[row] = index[0];
}
