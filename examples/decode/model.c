/* See model.h. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

const char *const kernel_names[KERNELS] = {"decode_embed",  "decode_norm",   "decode_linear",
                                           "decode_attend", "decode_choose", "decode_gelu",
                                           "decode_take"};

/* Of a layer, after each other, in widths squared. */
enum { QKV = 0, OUT = 3, UP = 4, DOWN = 8, LAYER = 12 };

#define WEIGHT_BYTES 2
#define WIDE_BYTES   4
#define COLUMNS      8 /* of y that a block of decode_linear computes */
#define THREADS      256

void busy_us(int us)
{
    struct timespec t;
    double until = 0, now;
    do {
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
        until = until > 0 ? until : now + us;
    } while (now < until);
}

static uint16_t to_bfloat16(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = value};
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static float from_bfloat16(uint16_t value)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)value << 16};
    return v.f;
}

/* Weights from the at-th on. Uniform, with the deviation that keeps the size of what they are
 * multiplied with. */
static int fill(struct model *m, size_t at, size_t n, uint64_t *seed)
{
    struct device *d = m->device;
    uint16_t *v = malloc(n * WEIGHT_BYTES);
    float *wide = m->wide ? malloc(n * WIDE_BYTES) : NULL;
    const float scale = sqrtf(12.0f / (float)m->s.width);
    int r = v && (wide || !m->wide) ? 0 : -1;
    for (size_t i = 0; r == 0 && i < n; i++) {
        v[i] = to_bfloat16(((float)(next_random(seed) >> 40) / (1 << 24) - 0.5f) * scale);
        if (wide)
            wide[i] = from_bfloat16(v[i]);
    }
    if (r == 0)
        r = d->write(d->stream, m->embedding + at * WEIGHT_BYTES, v, n * WEIGHT_BYTES);
    if (r == 0 && wide)
        r = d->write(d->stream, m->wide + at * WIDE_BYTES, wide, n * WIDE_BYTES);
    r = r ? r : d->wait(d->stream);
    free(v);
    free(wide);
    return r;
}

int model_open(struct model *m, struct device *d, const struct sizes *s, uint64_t seed)
{
    const size_t rows = (size_t)s->batch, width = (size_t)s->width, layers = (size_t)s->layers;
    const size_t vocabulary = (size_t)s->vocabulary, layer_size = LAYER * width * width;
    const size_t weights = vocabulary * width + layers * layer_size;
    const struct {
        uint64_t *to;
        size_t bytes;
    } arrays[] = {
        {&m->x, rows * width * 4},
        {&m->y, rows * width * 4},
        {&m->qkv, rows * width * 4 * 3},
        {&m->hidden, rows * width * 4 * 4},
        {&m->logits, rows * vocabulary * 4},
        {&m->cache, 2 * layers * (size_t)s->pages * PAGE * width * 4},
        {&m->embedding, weights * WEIGHT_BYTES},
        {&m->token, rows * (2 + (size_t)s->pages_max) * 4},
        {&m->chosen, rows * 4},
        {&m->wide, s->wide ? weights * WIDE_BYTES : 0},
    };
    int r = 0;
    *m = (struct model){.s = *s, .device = d};
    for (size_t i = 0; r == 0 && i < sizeof(arrays) / sizeof(*arrays); i++)
        r = arrays[i].bytes ? d->alloc(d, arrays[i].bytes, arrays[i].to) : 0;
    m->layers = m->embedding + vocabulary * width * WEIGHT_BYTES;
    m->position = m->token + rows * 4;
    m->row_pages = m->position + rows * 4;
    r = r ? r : fill(m, 0, vocabulary * width, &seed);
    for (size_t i = 0; r == 0 && i < layers; i++)
        r = fill(m, vocabulary * width + i * layer_size, layer_size, &seed);
    return r;
}

void model_close(struct model *m)
{
    const uint64_t all[] = {m->x,     m->y,     m->qkv,       m->hidden, m->logits,
                            m->cache, m->token, m->embedding, m->chosen, m->wide};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        m->device->release(m->device, all[i]);
}

int model_kernels(const struct model *m)
{
    return 4 + (m->product ? 8 : 7) * m->s.layers;
}

static int queue(struct model *m, void *stream, enum kernel k, int blocks, unsigned rows,
                 const struct work *w)
{
    if (m->device->launch_us)
        busy_us(m->device->launch_us);
    return m->device->launch(stream, k, (unsigned)blocks, rows, w);
}

int model_linear(struct model *m, void *stream, unsigned n, const struct work *w)
{
    return queue(m, stream, LINEAR, (w->out + COLUMNS - 1) / COLUMNS, n, w);
}

static int linear(struct model *m, void *stream, unsigned n, struct work w)
{
    w.position = m->position;
    if (!m->product)
        return model_linear(m, stream, n, &w);
    if (m->device->launch_us)
        busy_us(m->device->launch_us);
    w.w = m->wide + (w.w - m->embedding) / WEIGHT_BYTES * WIDE_BYTES;
    int r = m->product(m->product_arg, stream, n, &w);
    return r || !w.gelu ? r : queue(m, stream, GELU, (w.out + THREADS - 1) / THREADS, n, &w);
}

int model_take(struct model *m, void *stream, const int32_t *from)
{
    const int n = m->s.batch * (2 + m->s.pages_max);
    const struct work w = {.y = m->token, .x = (uint64_t)(uintptr_t)from, .out = n};
    return m->device->launch(stream, TAKE, (unsigned)((n + THREADS - 1) / THREADS), 1, &w);
}

static int norm(struct model *m, void *stream, unsigned n)
{
    const struct work w = {.y = m->y, .x = m->x, .position = m->position, .in = m->s.width};
    return queue(m, stream, NORM, 1, n, &w);
}

static int layer(struct model *m, void *stream, unsigned n, int i)
{
    const int width = m->s.width;
    const uint64_t part = (uint64_t)width * (uint64_t)width * WEIGHT_BYTES;
    const uint64_t w = m->layers + (uint64_t)i * LAYER * part;
    const struct work attend = {.y = m->y,
                                .x = m->qkv,
                                .position = m->position,
                                .pages = m->row_pages,
                                .cache = m->cache,
                                .in = 3 * width,
                                .out = width,
                                .heads = m->s.heads,
                                .pages_max = m->s.pages_max,
                                .layer = i,
                                .page_count = m->s.pages};
    int r = norm(m, stream, n);
    if (!r)
        r = linear(m, stream, n,
                   (struct work){m->qkv, m->y, w + QKV * part, .in = width, .out = 3 * width});
    for (int pass = 0; r == 0 && pass <= m->chunks; pass++) /* the first of two only stores */
        r = queue(m, stream, ATTEND, m->s.heads, n, &attend);
    if (!r)
        r = linear(m, stream, n,
                   (struct work){m->x, m->y, w + OUT * part, .in = width, .out = width, .adds = 1});
    r = r ? r : norm(m, stream, n);
    if (!r)
        r = linear(m, stream, n,
                   (struct work){m->hidden, m->y, w + UP * part, .in = width, .out = 4 * width,
                                 .gelu = 1});
    if (!r)
        r = linear(m, stream, n,
                   (struct work){m->x, m->hidden, w + DOWN * part, .in = 4 * width, .out = width,
                                 .adds = 1});
    return r;
}

int model_step(struct model *m, void *stream, unsigned n)
{
    const struct work embed = {.y = m->x,
                               .w = m->embedding,
                               .token = m->token,
                               .position = m->position,
                               .out = m->s.width};
    const struct work choose = {
        .y = m->chosen, .x = m->logits, .position = m->position, .in = m->s.vocabulary};
    int r = queue(m, stream, EMBED, 1, n, &embed);
    for (int i = 0; r == 0 && i < m->s.layers; i++)
        r = layer(m, stream, n, i);
    r = r ? r : norm(m, stream, n);
    if (!r)
        r = linear(
            m, stream, n,
            (struct work){m->logits, m->y, m->embedding, .in = m->s.width, .out = m->s.vocabulary});
    return r ? r : queue(m, stream, CHOOSE, 1, n, &choose);
}
