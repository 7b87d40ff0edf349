/* The model's kernels on the CPU, for machines without a GPU: slow, in the same order of sums. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define LANES 32 /* partial sums, as the lanes of a warp have them */

static float *floats(uint64_t address)
{
    return (float *)(uintptr_t)address;
}

static const int32_t *integers(uint64_t address)
{
    return (const int32_t *)(uintptr_t)address;
}

static float from_bfloat16(uint16_t value)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)value << 16};
    return v.f;
}

/* As by shuffles: halves are added to halves. */
static float sum_lanes(float lane[LANES])
{
    for (int half = LANES / 2; half; half /= 2) {
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    }
    return lane[0];
}

static void embed(const struct work *w, unsigned block, unsigned row)
{
    const uint16_t *from = (const uint16_t *)(uintptr_t)w->w;
    (void)block;
    from += (size_t)integers(w->token)[row] * (size_t)w->out;
    for (int i = 0; i < w->out; i++)
        floats(w->y)[(size_t)row * (size_t)w->out + (size_t)i] = from_bfloat16(from[i]);
}

static void norm(const struct work *w, unsigned block, unsigned row)
{
    const float *x = floats(w->x) + (size_t)row * (size_t)w->in;
    float lane[LANES] = {0};
    (void)block;
    for (int i = 0; i < w->in; i++)
        lane[i % LANES] += x[i] * x[i];
    const float scale = 1 / sqrtf(sum_lanes(lane) / (float)w->in + 1e-5f);
    for (int i = 0; i < w->in; i++)
        floats(w->y)[(size_t)row * (size_t)w->in + (size_t)i] = x[i] * scale;
}

static float to_gelu(float v)
{
    return v * (0.5f * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v))));
}

static void linear(const struct work *w, unsigned block, unsigned row)
{
    const float *x = floats(w->x) + (size_t)row * (size_t)w->in;
    for (int c = 0; c < 8 && (int)block * 8 + c < w->out; c++) {
        const int column = (int)block * 8 + c;
        const uint16_t *weights =
            (const uint16_t *)(uintptr_t)w->w + (size_t)column * (size_t)w->in;
        float *y = floats(w->y) + (size_t)row * (size_t)w->out + (size_t)column, lane[LANES] = {0};
        /* A head has 64 numbers or 128, and so `in` is a multiple of 2 * LANES. */
        for (int first = 0; first < w->in; first += 2 * LANES) {
            for (int l = 0, i = first; l < LANES; l++, i += 2) {
                lane[l] += x[i] * from_bfloat16(weights[i]);
                lane[l] += x[i + 1] * from_bfloat16(weights[i + 1]);
            }
        }
        float sum = sum_lanes(lane);
        if (w->gelu)
            sum = to_gelu(sum);
        *y = w->adds ? *y + sum : sum;
    }
}

/* Where the keys of a position are; its values are `width` floats behind. */
static float *cached(const struct work *w, unsigned row, int position)
{
    const int page =
        integers(w->pages)[(size_t)row * (size_t)w->pages_max + (size_t)(position / PAGE)];
    const size_t at = ((size_t)w->layer * (size_t)w->page_count + (size_t)page) * PAGE +
                      (size_t)(position % PAGE);
    return floats(w->cache) + at * 2 * (size_t)w->out;
}

/* Turns pairs of numbers by the position (RoPE). */
static void rotate(float *to, const float *from, int size, int position)
{
    for (int i = 0; i < size / 2; i++) {
        const float angle = (float)position * powf(10000, -2.0f * (float)i / (float)size);
        const float a = from[i], b = from[i + size / 2];
        to[i] = a * cosf(angle) - b * sinf(angle);
        to[i + size / 2] = a * sinf(angle) + b * cosf(angle);
    }
}

static void attend(const struct work *w, unsigned head, unsigned row)
{
    const int size = w->out / w->heads, last = integers(w->position)[row];
    const float *qkv = floats(w->x) + (size_t)row * (size_t)w->in + head * (size_t)size;
    float *y = floats(w->y) + (size_t)row * (size_t)w->out + head * (size_t)size;
    float *own = cached(w, row, last) + head * (size_t)size, query[HEAD_MAX] = {0};
    float most = -INFINITY, weight = 0;
    rotate(query, qkv, size, last);
    rotate(own, qkv + w->out, size, last);
    memcpy(own + w->out, qkv + 2 * w->out, (size_t)size * sizeof(*own));
    memset(y, 0, (size_t)size * sizeof(*y));
    for (int p = 0; p <= last; p++) {
        const float *key = cached(w, row, p) + head * (size_t)size, *value = key + w->out;
        float lane[LANES] = {0};
        for (int i = 0; i < size; i++)
            lane[i % LANES] += query[i] * key[i];
        const float score = sum_lanes(lane) / sqrtf((float)size);
        const float up = fmaxf(most, score), old = expf(most - up), new = expf(score - up);
        for (int i = 0; i < size; i++)
            y[i] = y[i] * old + value[i] * new;
        weight = weight * old + new;
        most = up;
    }
    for (int i = 0; i < size; i++)
        y[i] /= weight;
}

static void choose(const struct work *w, unsigned block, unsigned row)
{
    const float *x = floats(w->x) + (size_t)row * (size_t)w->in;
    int best = 0;
    (void)block;
    for (int i = 1; i < w->in; i++)
        best = x[i] > x[best] ? i : best;
    ((int32_t *)(uintptr_t)w->y)[row] = best;
}

static void gelu(const struct work *w, unsigned block, unsigned row)
{
    float *y = floats(w->y) + (size_t)row * (size_t)w->out;
    for (int i = (int)block * 256; i < w->out && i < ((int)block + 1) * 256; i++)
        y[i] = to_gelu(y[i]);
}

static void take(const struct work *w)
{
    memcpy((void *)(uintptr_t)w->y, integers(w->x), (size_t)w->out * sizeof(int32_t));
}

static int cpu_alloc(struct device *d, size_t bytes, uint64_t *out)
{
    (void)d;
    *out = (uint64_t)(uintptr_t)calloc(1, bytes);
    return *out ? 0 : -1;
}

static void cpu_release(struct device *d, uint64_t address)
{
    (void)d;
    free((void *)(uintptr_t)address);
}

static void *cpu_host(size_t bytes)
{
    return calloc(1, bytes);
}

static int cpu_write(void *stream, uint64_t to, const void *from, size_t bytes)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

static int cpu_read(void *stream, void *to, uint64_t from, size_t bytes)
{
    (void)stream;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

static int cpu_launch(void *stream, enum kernel k, unsigned blocks_x, unsigned blocks_y,
                      const struct work *w)
{
    static void (*const kernels[KERNELS])(const struct work *, unsigned,
                                          unsigned) = {embed, norm, linear, attend, choose, gelu};
    (void)stream;
    if (k == TAKE)
        take(w);
    for (unsigned row = 0; k != TAKE && row < blocks_y; row++) {
        for (unsigned block = 0; block < blocks_x && integers(w->position)[row] >= 0; block++)
            kernels[k](w, block, row);
    }
    return 0;
}

static int cpu_wait(void *stream)
{
    (void)stream;
    return 0;
}

static void cpu_close(struct device *d)
{
    (void)d;
}

int cpu_open(struct device *d)
{
    *d = (struct device){.name = "CPU",
                         .alloc = cpu_alloc,
                         .release = cpu_release,
                         .host = cpu_host,
                         .host_release = free,
                         .write = cpu_write,
                         .read = cpu_read,
                         .launch = cpu_launch,
                         .wait = cpu_wait,
                         .close = cpu_close};
    return 0;
}
