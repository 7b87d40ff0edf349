/* A stand-in for libcublasLt that runs the products of examples/decode/products.c on the CPU, in
 * the order of the stream (tests/libcede/fake_gpu). It refuses shapes that do not fit together, and
 * sums in an order that depends on the shape, as the real one. Its first algorithm sums in another
 * order for the second half of the rows; its second does not.
 *
 * In the environment: CUBLASLT_FAIL=NAME: that call returns 15. CUBLASLT_WRONG: results are 1 %
 * too large. CUBLASLT_COARSE: sums for other than 5 rows differ so much that tokens do.
 * CUBLASLT_UNEVEN: there is only the first algorithm. CUBLASLT_ROWS=FILE: to which the rows of each
 * product are appended. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

#define FREES(name)                                                                                \
    CALL(name, void *made)                                                                         \
    {                                                                                              \
        free(made);                                                                                \
        return OK;                                                                                 \
    }

enum { OK = 0, INVALID = 7, NOT_SUPPORTED = 15, ALGORITHMS = 2 };

struct desc {
    int compute, scale, transposed;
};

struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};

struct suggestion {
    uint64_t algorithm[8]; /* which; for how many columns */
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

struct product {
    struct product *next;
    float alpha, beta;
    const float *a, *b;
    float *d;
    uint64_t m, n, k, algorithm;
    float wrong, coarse;
};
static struct product *all; /* to the end: a graph runs it again */

static __attribute__((destructor)) void free_products(void)
{
    for (struct product *p; (p = all);) {
        all = p->next;
        free(p);
    }
}

static bool fails(const char *name)
{
    const char *wanted = getenv("CUBLASLT_FAIL");
    return wanted && strcmp(wanted, name) == 0;
}

const char *cublasLtGetStatusName(int status);
const char *cublasLtGetStatusName(int status)
{
    return status == INVALID ? "INVALID_VALUE" : "NOT_SUPPORTED";
}

CALL(cublasLtCreate, void **handle)
{
    *handle = malloc(1);
    return fails("create") ? NOT_SUPPORTED : OK;
}

FREES(cublasLtDestroy)
FREES(cublasLtMatmulDescDestroy)
FREES(cublasLtMatrixLayoutDestroy)
FREES(cublasLtMatmulPreferenceDestroy)

CALL(cublasLtMatmulDescCreate, void **out, int compute, int scale)
{
    struct desc *d = calloc(1, sizeof(*d));
    *d = (struct desc){.compute = compute, .scale = scale};
    *out = d;
    return OK;
}

CALL(cublasLtMatmulDescSetAttribute, void *desc, int attribute, const void *value, size_t bytes)
{
    if (attribute != 3 || bytes != sizeof(int))
        return INVALID;
    memcpy(&((struct desc *)desc)->transposed, value, bytes);
    return OK;
}

CALL(cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = calloc(1, sizeof(*l));
    *l = (struct layout){type, rows, cols, ld};
    *out = l;
    return OK;
}

CALL(cublasLtMatmulPreferenceCreate, void **out)
{
    *out = malloc(1);
    return OK;
}

CALL(cublasLtMatmulPreferenceSetAttribute, void *preference, int attribute, const void *value,
     size_t bytes)
{
    size_t workspace = 0;
    memcpy(&workspace, value, bytes == sizeof(workspace) ? bytes : 0);
    return attribute == 1 && workspace ? OK : INVALID;
}

/* Whether d = a' b has these shapes. */
static bool fit(const struct desc *desc, const struct layout *a, const struct layout *b,
                const struct layout *c, const struct layout *d)
{
    return desc->compute == 68 && desc->scale == 0 && desc->transposed == 1 && c == d &&
           a->type == 0 && b->type == 0 && d->type == 0 && a->rows == b->rows &&
           a->cols == d->rows && b->cols == d->cols && a->ld == (int64_t)a->rows &&
           b->ld == (int64_t)b->rows && d->ld == (int64_t)d->rows;
}

CALL(cublasLtMatmulAlgoGetHeuristic, void *handle, void *desc, void *a, void *b, void *c, void *d,
     void *preference, int wanted, struct suggestion *out, int *n)
{
    if (!fit(desc, a, b, c, d))
        return INVALID;
    if (fails("heuristic"))
        return NOT_SUPPORTED;
    *n = getenv("CUBLASLT_UNEVEN") || wanted < ALGORITHMS ? 1 : ALGORITHMS;
    for (int i = 0; i < *n; i++)
        out[i] =
            (struct suggestion){.algorithm = {(uint64_t)i, ((const struct layout *)d)->cols, 4711}};
    return OK;
}

static float sum_of(const struct product *p, uint64_t i, uint64_t j)
{
    const uint64_t parts = 1 + p->n % 5 + (p->algorithm == 0 && 2 * j >= p->n);
    float sum = 0;
    for (uint64_t part = 0; part < parts; part++) {
        float of = 0;
        for (uint64_t t = part; t < p->k; t += parts)
            of += p->a[i * p->k + t] * p->b[j * p->k + t];
        sum += of;
    }
    return sum * (1 + p->wrong + p->coarse * (float)(i % 17));
}

static void run_product(void *arg)
{
    const struct product *p = arg;
    const char *rows = getenv("CUBLASLT_ROWS");
    FILE *f = rows ? fopen(rows, "a") : NULL;
    for (uint64_t j = 0; j < p->n; j++) {
        for (uint64_t i = 0; i < p->m; i++) {
            float *d = p->d + j * p->m + i;
            *d = p->alpha * sum_of(p, i, j) + (p->beta != 0 ? p->beta * *d : 0);
        }
    }
    if (f) {
        fprintf(f, "%u\n", (unsigned)p->n);
        fclose(f);
    }
}

CALL(cublasLtMatmul, void *handle, void *desc, const float *alpha, const float *a,
     const struct layout *of_a, const float *b, const struct layout *of_b, const float *beta,
     const float *c, const struct layout *of_c, float *d, const struct layout *of_d,
     const uint64_t *algorithm, void *workspace, size_t workspace_bytes, void *stream)
{
    if (!fit(desc, of_a, of_b, of_c, of_d) || c != d || !workspace || !workspace_bytes ||
        algorithm[0] >= ALGORITHMS || algorithm[1] != of_d->cols || algorithm[2] != 4711)
        return INVALID;
    if (fails("matmul"))
        return NOT_SUPPORTED;
    struct product *p = malloc(sizeof(*p));
    *p = (struct product){.next = all,
                          .alpha = *alpha,
                          .beta = *beta,
                          .a = a,
                          .b = b,
                          .d = d,
                          .m = of_d->rows,
                          .n = of_d->cols,
                          .k = of_a->rows,
                          .algorithm = algorithm[0],
                          .wrong = getenv("CUBLASLT_WRONG") ? 0.01f : 0};
    p->coarse = getenv("CUBLASLT_COARSE") && p->n % 5 ? 0.01f * (float)(p->n % 5) : 0;
    all = p;
    return cuLaunchHostFunc(stream, run_product, p);
}
