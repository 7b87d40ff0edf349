/* What programs' threads run on a GPU, for bench/lease_load.c: products of matrices, attention,
 * copies. Plain kernels of the usual shape: tiles in shared memory, results in registers. */

#define TILE 64
#define DEEP 16

/* c = a b, square, n a multiple of 64. A block of 256 threads has a tile of 64 x 64. */
extern "C" __global__ void __launch_bounds__(256)
    lease_product(const float *a, const float *b, float *c, unsigned n)
{
    __shared__ float left[DEEP][TILE], right[DEEP][TILE];
    const unsigned t = threadIdx.x, x = t % 16 * 4, y = t / 16 * 4;
    const unsigned row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[4][4] = {};
    for (unsigned k = 0; k < n; k += DEEP) {
        for (unsigned i = t; i < DEEP * TILE; i += 256) {
            left[i % DEEP][i / DEEP] = a[(size_t)(row + i / DEEP) * n + k + i % DEEP];
            right[i / TILE][i % TILE] = b[(size_t)(k + i / TILE) * n + column + i % TILE];
        }
        __syncthreads();
#pragma unroll
        for (unsigned d = 0; d < DEEP; d++) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
#pragma unroll
                for (unsigned j = 0; j < 4; j++)
                    sum[i][j] += left[d][y + i] * right[d][x + j];
            }
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 4; j++)
            c[(size_t)(row + y + i) * n + column + x + j] = sum[i][j];
    }
}

#define WIDTH 64
#define KEYS  32

/* out = softmax(q k / 8) v for each head, with heads in blockIdx.y. A thread has a query; a block
 * of 128 threads reads 32 keys at a time. `keys` is a multiple of 32. */
extern "C" __global__ void __launch_bounds__(128)
    lease_attention(const float *q, const float *k, const float *v, float *out, unsigned queries,
                    unsigned keys)
{
    __shared__ float key[KEYS][WIDTH], value[KEYS][WIDTH];
    const unsigned t = threadIdx.x;
    const size_t row = ((size_t)blockIdx.y * queries + blockIdx.x * 128 + t) * WIDTH;
    const size_t head = (size_t)blockIdx.y * keys * WIDTH;
    float mine[WIDTH], sum[WIDTH], most = -1e30f, all = 0;
#pragma unroll
    for (unsigned d = 0; d < WIDTH; d++) {
        mine[d] = q[row + d] * 0.125f;
        sum[d] = 0;
    }
    for (unsigned from = 0; from < keys; from += KEYS) {
        for (unsigned i = t; i < KEYS * WIDTH; i += 128) {
            key[i / WIDTH][i % WIDTH] = k[head + (size_t)from * WIDTH + i];
            value[i / WIDTH][i % WIDTH] = v[head + (size_t)from * WIDTH + i];
        }
        __syncthreads();
        for (unsigned j = 0; j < KEYS; j++) {
            float s = 0;
#pragma unroll
            for (unsigned d = 0; d < WIDTH; d++)
                s += mine[d] * key[j][d];
            const float top = fmaxf(most, s), old = __expf(most - top), now = __expf(s - top);
            all = all * old + now;
            most = top;
#pragma unroll
            for (unsigned d = 0; d < WIDTH; d++)
                sum[d] = sum[d] * old + now * value[j][d];
        }
        __syncthreads();
    }
#pragma unroll
    for (unsigned d = 0; d < WIDTH; d++)
        out[row + d] = sum[d] / all;
}

/* words: of 16 bytes */
extern "C" __global__ void __launch_bounds__(256)
    lease_copy(const uint4 *from, uint4 *to, unsigned words)
{
    for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < words; i += gridDim.x * 256)
        to[i] = from[i];
}

/* Numbers from 0 to 1 that the host can compute too. */
extern "C" __global__ void lease_fill(float *p, unsigned n, unsigned seed)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        p[i] = (float)((i + seed) * 2654435761u >> 8) * (1.0f / 16777216.0f);
}
