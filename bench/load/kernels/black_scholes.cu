/* Prices of European options by Black and Scholes' formula: many independent evaluations, bound by
 * memory. Compiled to black_scholes.ptx by scripts/ptx; works.c has the same on the host. */
#define RATE       0.03f
#define VOLATILITY 0.25f

/* Inputs from the index alone: spot 10..110, strike 10..110, 0.1..2.1 years. */
static __device__ unsigned scatter(unsigned x)
{
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x ^= x >> 4;
    x *= 0x27d4eb2d;
    return x ^ (x >> 15);
}

extern "C" __global__ void bs_fill(float *spot, float *strike, float *years, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    spot[i] = 10.0f + (float)(scatter(3 * i) >> 8) * (100.0f / 16777216.0f);
    strike[i] = 10.0f + (float)(scatter(3 * i + 1) >> 8) * (100.0f / 16777216.0f);
    years[i] = 0.1f + (float)(scatter(3 * i + 2) >> 8) * (2.0f / 16777216.0f);
}

extern "C" __global__ void bs_price(const float *spot, const float *strike, const float *years,
                                    float *call, float *put, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float s = spot[i], k = strike[i], t = years[i], width = VOLATILITY * sqrtf(t);
    float d1 = (logf(s / k) + (RATE + 0.5f * VOLATILITY * VOLATILITY) * t) / width;
    float d2 = d1 - width, later = k * expf(-RATE * t);
    float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f);
    call[i] = s * n1 - later * n2;
    put[i] = later * (1.0f - n2) - s * (1.0f - n1);
}
