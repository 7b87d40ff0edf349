/* The compressible Euler equations in two dimensions, finite volumes, Rusanov's fluxes, periodic: one
 * kernel a step, from one array of cells to the other. Compiled to euler.ptx by scripts/ptx; works.c
 * has the same on the host. A cell is density, momentum in x and in y, and energy. */
#define GAMMA 1.4f
#define STEP  0.1f /* time step over cell size; the fastest wave has a speed of about 2 */

static __device__ float pressure(float4 q)
{
    return (GAMMA - 1.0f) * (q.w - 0.5f * (q.y * q.y + q.z * q.z) / q.x);
}

/* Two layers that slide along each other, and a ripple across them. */
extern "C" __global__ void euler_fill(float4 *cells, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n)
        return;
    float x = ((float)(i % n) + 0.5f) / (float)n, y = ((float)(i / n) + 0.5f) / (float)n;
    float inner = y > 0.25f && y < 0.75f ? 1.0f : 0.0f;
    float rho = 1.0f + inner, u = 0.5f - inner, v = 0.05f * sinf(12.566371f * x);
    cells[i] = make_float4(rho, rho * u, rho * v,
                           2.5f / (GAMMA - 1.0f) + 0.5f * rho * (u * u + v * v));
}

/* Through the face from a to b; `turn`: along y. */
static __device__ float4 flux(float4 a, float4 b, bool turn)
{
    float pa = pressure(a), pb = pressure(b);
    float ua = (turn ? a.z : a.y) / a.x, ub = (turn ? b.z : b.y) / b.x;
    float fastest = fmaxf(fabsf(ua) + sqrtf(GAMMA * pa / a.x), fabsf(ub) + sqrtf(GAMMA * pb / b.x));
    float4 f;
    f.x = 0.5f * (a.x * ua + b.x * ub - fastest * (b.x - a.x));
    f.y = 0.5f * (a.y * ua + b.y * ub - fastest * (b.y - a.y) + (turn ? 0.0f : pa + pb));
    f.z = 0.5f * (a.z * ua + b.z * ub - fastest * (b.z - a.z) + (turn ? pa + pb : 0.0f));
    f.w = 0.5f * ((a.w + pa) * ua + (b.w + pb) * ub - fastest * (b.w - a.w));
    return f;
}

extern "C" __global__ void euler_step(const float4 *from, float4 *to, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n)
        return;
    unsigned x = i % n, y = i / n;
    float4 q = from[i];
    float4 west = from[y * n + (x ? x - 1 : n - 1)], east = from[y * n + (x + 1 < n ? x + 1 : 0)];
    float4 south = from[(y ? y - 1 : n - 1) * n + x], north = from[(y + 1 < n ? y + 1 : 0) * n + x];
    float4 w = flux(west, q, false), e = flux(q, east, false);
    float4 s = flux(south, q, true), t = flux(q, north, true);
    q.x -= STEP * (e.x - w.x + t.x - s.x);
    q.y -= STEP * (e.y - w.y + t.y - s.y);
    q.z -= STEP * (e.z - w.z + t.z - s.z);
    q.w -= STEP * (e.w - w.w + t.w - s.w);
    to[i] = q;
}

/* Adds up mass, momentum and energy (sums[0..3]) of all cells. */
extern "C" __global__ void euler_sums(const float4 *cells, double *sums, unsigned n)
{
    double a = 0, b = 0, c = 0, d = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n * n; i += gridDim.x * blockDim.x) {
        float4 q = cells[i];
        a += q.x, b += q.y, c += q.z, d += q.w;
    }
    atomicAdd(sums, a);
    atomicAdd(sums + 1, b);
    atomicAdd(sums + 2, c);
    atomicAdd(sums + 3, d);
}
