/* A transformer that decodes: the next token of each row, by greedy choice. Weights come from a
 * seed, so it says nothing sensible; but it does the work of a model of its size.
 *
 * What a row's result depends on is the row alone, never the batch that it is in: each sum is taken
 * in one order, whatever the number of rows. So the tokens of a request are the same in any
 * company. That costs speed against a library's matrix products, which choose the order by size.
 *
 * The keys and values of earlier tokens are in pages of PAGE tokens; a row brings the numbers of
 * its pages. */
#ifndef DECODE_MODEL_H
#define DECODE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE     16
#define HEAD_MAX 128 /* numbers in a head; at least 64 on a GPU, a multiple of 64 */

/* A kernel's arguments. Addresses are of the device. What a kernel does not use is 0. */
struct work {
    uint64_t y, x, w;          /* result, input: rows of floats; weights: bfloat16 */
    uint64_t token, position;  /* of each row: int32_t; position < 0: the row is empty */
    uint64_t pages, cache;     /* of each row: its pages, int32_t; all keys and values */
    int32_t in, out;           /* numbers in a row of x, of y */
    int32_t heads, pages_max;  /* attend: heads; pages that a row may have */
    int32_t layer, page_count; /* attend: in the cache */
    int32_t adds, gelu;        /* linear: to y; and then */
    /* take: x is memory of the host; out: integers in all */
};

enum kernel { EMBED, NORM, LINEAR, ATTEND, CHOOSE, GELU, TAKE, KERNELS };
extern const char *const kernel_names[KERNELS];

/* Where it runs: cuda.c or cpu.c. Functions return 0, or an error of the device. */
struct device {
    char name[64];
    void *stream;  /* NULL: there is no GPU */
    int launch_us; /* of the CPU before each kernel, as an interpreter needs */
    int (*alloc)(struct device *d, size_t bytes, uint64_t *out); /* zeros */
    void (*release)(struct device *d, uint64_t address);         /* 0 is allowed */
    void *(*host)(size_t bytes);   /* memory to write from; kernels can read it at this address */
    void (*host_release)(void *p); /* NULL is allowed */
    int (*write)(void *stream, uint64_t to, const void *from, size_t bytes);
    int (*read)(void *stream, void *to, uint64_t from, size_t bytes);
    int (*launch)(void *stream, enum kernel k, unsigned blocks_x, unsigned blocks_y,
                  const struct work *w);
    int (*wait)(void *stream);
    void (*close)(struct device *d);
};

struct sizes {
    int layers, width, heads, vocabulary, batch, pages, pages_max;
    bool wide; /* weights as floats, too: for products.c */
};

struct model {
    struct sizes s;
    struct device *device;
    uint64_t embedding, layers;         /* weights, one array */
    uint64_t wide;                      /* the same as floats; 0: there are none */
    uint64_t x, y, qkv, hidden, logits; /* activations of a batch */
    uint64_t cache;
    /* Inputs of a batch, one array: of each row its token, or a symbol; then the positions; then
     * the pages. */
    uint64_t token, position, row_pages;
    uint64_t chosen; /* result of a batch: int32_t */
    /* Rows of a step may be of one request: all keys and values are stored before any row reads. */
    bool chunks;
    /* NULL: the own kernel. Else y = x W', or y + x W', for n rows; weights are floats. */
    int (*product)(void *arg, void *stream, unsigned n, const struct work *w);
    void *product_arg;
};

/* 0, or an error of the device: mostly, that there is not so much memory. */
int model_open(struct model *m, struct device *d, const struct sizes *s, uint64_t seed);
/* Also of a model that failed to open. */
void model_close(struct model *m);
/* Queues one step for n rows. */
int model_step(struct model *m, void *stream, unsigned n);
int model_kernels(const struct model *m); /* of a step */
/* The inputs of a batch, from memory of the host that kernels can read. */
int model_take(struct model *m, void *stream, const int32_t *from);
/* The matrix product of the own kernel; weights: bfloat16. */
int model_linear(struct model *m, void *stream, unsigned n, const struct work *w);

void busy_us(int us);

int cpu_open(struct device *d);
int cuda_open(struct device *d); /* -1: there is no NVIDIA GPU, or it is said what failed */

#endif
