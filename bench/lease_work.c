/* See lease_work.h. Without a GPU an operation is a nap, one at a time as on a GPU that one fills:
 * only to see that the program works. */
#include "bench/lease_work.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "bench/kernels.h"

enum { R_16F = 2, COMPUTE_32F = 68, ALGO_DEFAULT = -1 }; /* of cuBLAS's reference */
enum { WIDTH = 64, BUFFERS = 4 };

const char *const work_names[KINDS] = {"product", "copy", "attention", "urgent", "sliced"};

/* n: side of a product; heads, queries, keys of an attention; bytes of a copy. */
static const struct {
    unsigned n, heads, queries, keys;
    uint64_t bytes;
    unsigned nap_us;
} sizes[KINDS] = {[PRODUCT] = {.n = 1024, .nap_us = 150},
                  [COPY] = {.bytes = 64U << 20, .nap_us = 60},
                  [ATTENTION] = {.heads = 16, .queries = 1024, .keys = 1024, .nap_us = 200},
                  [URGENT] = {.n = 256, .heads = 4, .queries = 128, .keys = 256, .nap_us = 40},
                  [SLICED] = {.heads = 64, .queries = 1024, .keys = 1024, .nap_us = 20}};

struct work {
    enum work_kind kind;
    rig_pointer p[BUFFERS]; /* q or a or from, k or b or to, v, out or c */
    rig_pointer c;          /* of an urgent product: p[0], p[1] are its factors too */
    void *blas;
    bool ran;
};

static struct rig rig;
static bool naps;
static void *functions[4]; /* product, attention, copy, fill */
static const char *const function_names[] = {"lease_product", "lease_attention", "lease_copy",
                                             "lease_fill"};
static int (*stream_with_priority)(void **stream, unsigned flags, int priority);
static int (*blas_create)(void **handle);
static int (*blas_stream)(void *handle, void *stream);
static int (*blas_gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                        const void *a, int at, int lda, const void *b, int bt, int ldb,
                        const void *beta, void *c, int ct, int ldc, int compute, int algo);

static void blas_find(void)
{
    const char *names[] = {getenv("CEDE_CUBLAS"), "libcublas.so.13", "libcublas.so.12"};
    void *lib = NULL;
    for (unsigned i = 0; !lib && i < ARRAY_SIZE(names); i++)
        lib = names[i] && names[i][0] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib)
        return;
    *(void **)&blas_create = dlsym(lib, "cublasCreate_v2");
    *(void **)&blas_stream = dlsym(lib, "cublasSetStream_v2");
    *(void **)&blas_gemm = dlsym(lib, "cublasGemmEx");
    void *first = NULL; /* whether this cuBLAS and the driver go together */
    if (!blas_create || !blas_stream || blas_create(&first))
        blas_gemm = NULL;
}

const char *work_start(bool cpu, const char **products)
{
    void *module = NULL, *lib;
    naps = cpu;
    *products = "naps";
    if (cpu)
        return NULL;
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing)
        return missing;
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&stream_with_priority = dlsym(lib, "cuStreamCreateWithPriority");
    if (rig.cu.module_load(&module, lease_work_ptx))
        return "the kernels cannot be loaded";
    for (unsigned i = 0; i < ARRAY_SIZE(functions); i++) {
        if (rig.cu.module_function(&functions[i], module, function_names[i]))
            return "a kernel is missing";
    }
    blas_find();
    *products = blas_gemm ? "cublas" : "own";
    return NULL;
}

void work_describe(FILE *f)
{
    rig_describe(f, naps ? NULL : &rig, "none: naps");
}

void work_enter(void)
{
    if (!naps)
        rig.cu.push(rig.context);
}

void *work_stream(bool high)
{
    void *s = NULL;
    if (naps || stream_with_priority(&s, RIG_NON_BLOCKING, high ? -5 : 0))
        return NULL;
    return s;
}

void *work_function(enum work_kind k)
{
    if (naps || (k == PRODUCT && blas_gemm))
        return NULL;
    return functions[k == PRODUCT || k == URGENT ? 0 : k == COPY ? 2 : 1];
}

void work_shape(enum work_kind k, unsigned *blocks, unsigned *threads)
{
    unsigned tiles = sizes[k].n / 64;
    *threads = k == PRODUCT || k == COPY || k == URGENT ? 256 : 128;
    *blocks = k == COPY                     ? 528
              : k == PRODUCT || k == URGENT ? tiles * tiles
                                            : sizes[k].heads * sizes[k].queries / 128;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int work_launch(unsigned which, unsigned x, unsigned y, unsigned threads, void *stream,
                       void **params)
{
    return rig.cu.launch(functions[which], x, y, 1, threads, 1, 1, 0, stream, params, NULL) ? -EIO
                                                                                            : 0;
}

/* In half precision where it is cuBLAS's. */
static int work_product(struct work *w, rig_pointer c, unsigned n, void *stream)
{
    static const float one = 1, zero = 0;
    void *params[] = {&w->p[0], &w->p[1], &c, &n};
    int m = (int)n;
    if (!w->blas)
        return work_launch(0, n / 64, n / 64, 256, stream, params);
    return blas_stream(w->blas, stream) ||
                   blas_gemm(w->blas, 0, 0, m, m, m, &one, (void *)(uintptr_t)w->p[0], R_16F, m,
                             (void *)(uintptr_t)w->p[1], R_16F, m, &zero, (void *)(uintptr_t)c,
                             R_16F, m, COMPUTE_32F, ALGO_DEFAULT)
               ? -EIO
               : 0;
}

static int work_attention(struct work *w, unsigned heads, void *stream)
{
    unsigned queries = sizes[w->kind].queries, keys = sizes[w->kind].keys;
    void *params[] = {&w->p[0], &w->p[1], &w->p[2], &w->p[3], &queries, &keys};
    return work_launch(1, queries / 128, heads, 128, stream, params);
}

static int work_copy(struct work *w, void *stream)
{
    unsigned words = (unsigned)(sizes[COPY].bytes / 16);
    void *params[] = {&w->p[0], &w->p[1], &words};
    return work_launch(2, 528, 1, 256, stream, params);
}

/* On one GPU that each operation fills. */
static int work_nap(enum work_kind k, uint64_t count)
{
    static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&gpu);
    nanosleep(&(struct timespec){.tv_nsec = (long)(sizes[k].nap_us * count * 1000 % 1000000000)},
              NULL);
    pthread_mutex_unlock(&gpu);
    return 0;
}

int work_put(struct work *w, void *stream, uint64_t count)
{
    w->ran = true;
    if (naps)
        return work_nap(w->kind, w->kind == SLICED ? count : 1);
    switch (w->kind) {
    case PRODUCT:
        return work_product(w, w->p[3], sizes[PRODUCT].n, stream);
    case COPY:
        return work_copy(w, stream);
    case URGENT:
        if (work_product(w, w->c, sizes[URGENT].n, stream))
            return -EIO;
        return work_attention(w, sizes[URGENT].heads, stream);
    case SLICED: /* buffers are of 64 heads, which are taken again */
        for (uint64_t n; count; count -= n) {
            n = min_u64(count, sizes[SLICED].heads);
            if (work_attention(w, (unsigned)n, stream))
                return -EIO;
        }
        return 0;
    default:
        return work_attention(w, sizes[ATTENTION].heads, stream);
    }
}

int work_wait(void *stream)
{
    return !naps && rig.cu.stream_synchronize(stream) ? -EIO : 0;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static uint64_t work_floats(enum work_kind k, unsigned buffer)
{
    uint64_t square = (uint64_t)sizes[k].n * sizes[k].n;
    uint64_t rows = buffer == 1 || buffer == 2 ? sizes[k].keys : sizes[k].queries;
    uint64_t attention = rows * sizes[k].heads * WIDTH;
    uint64_t copy = buffer < 2 ? sizes[k].bytes / 4 : 0;
    return square > attention + copy ? square : attention + copy;
}

static int work_fill(rig_pointer p, uint64_t floats, unsigned seed)
{
    unsigned n = (unsigned)floats;
    void *params[] = {&p, &n, &seed};
    return work_launch(3, 256, 1, 256, NULL, params);
}

struct work *work_new(enum work_kind k)
{
    struct work *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->kind = k;
    bool ok = true;
    for (unsigned i = 0; !naps && ok && i < BUFFERS; i++) {
        uint64_t n = work_floats(k, i);
        ok = !n || (!rig.cu.mem_alloc(&w->p[i], n * 4) && !work_fill(w->p[i], n, i));
    }
    if (ok && k == URGENT && !naps)
        ok = !rig.cu.mem_alloc(&w->c, (size_t)sizes[k].n * sizes[k].n * 4);
    if (ok && k == PRODUCT && blas_gemm && !naps) /* small halves: bits of the numbers above */
        ok = !blas_create(&w->blas) && !work_fill(w->p[0], work_floats(k, 0), 1) &&
             !work_fill(w->p[1], work_floats(k, 1), 2);
    if (ok && !naps)
        ok = !rig.cu.ctx_synchronize();
    if (ok)
        return w;
    free(w);
    return NULL;
}

/* ---- what the host computes ------------------------------------------------------------------ */

static double work_number(uint64_t i, unsigned seed)
{
    return (double)((uint32_t)((uint32_t)i + seed) * 2654435761U >> 8) / 16777216;
}

static double work_dot(unsigned n, uint64_t row, uint64_t column)
{
    double sum = 0;
    for (unsigned k = 0; k < n; k++)
        sum += work_number(row * n + k, 0) * work_number((uint64_t)k * n + column, 1);
    return sum;
}

/* Element d of the output for a query of a head. */
static double work_attended(enum work_kind k, uint64_t head, uint64_t query, unsigned d)
{
    uint64_t keys = sizes[k].keys, at = (head * sizes[k].queries + query) * WIDTH;
    double all = 0, sum = 0;
    for (uint64_t j = 0; j < keys; j++) {
        double s = 0;
        for (unsigned i = 0; i < WIDTH; i++)
            s += work_number(at + i, 0) / 8 * work_number((head * keys + j) * WIDTH + i, 1);
        all += exp(s);
        sum += exp(s) * work_number((head * keys + j) * WIDTH + d, 2);
    }
    return sum / all;
}

static bool work_near(rig_pointer p, uint64_t at, double expected, double *worst)
{
    float v = NAN;
    if (rig.cu.copy_out(&v, p + at * sizeof(v), sizeof(v)))
        return false;
    double error = fabs(v - expected) / (fabs(expected) + 1e-6);
    *worst = error > *worst || isnan(error) ? error : *worst;
    return error < 1e-3;
}

/* Some elements; cuBLAS's products, of halves that are any bits, are not looked at. */
bool work_right(struct work *w, double *worst)
{
    enum work_kind k = w->kind;
    bool right = true;
    if (naps || !w->ran || w->blas)
        return true;
    for (unsigned i = 0; i < 8; i++) {
        if (k == COPY)
            right &= work_near(w->p[1], i * 1999999ULL, work_number(i * 1999999ULL, 0), worst);
        if (k == PRODUCT || k == URGENT) {
            uint64_t row = i * 31 % sizes[k].n, column = i * 77 % sizes[k].n;
            right &= work_near(k == URGENT ? w->c : w->p[3], row * sizes[k].n + column,
                               work_dot(sizes[k].n, row, column), worst);
        }
        if (sizes[k].heads) {
            uint64_t query = i * 53 % sizes[k].queries, head = i % (k == SLICED ? 1 : 4);
            right &= work_near(w->p[3], (head * sizes[k].queries + query) * WIDTH + i * 7,
                               work_attended(k, head, query, i * 7), worst);
        }
    }
    return right;
}
