/* See products.h. The declarations are of cuBLASLt's ABI, as its reference has it; the same in
 * releases 12 and 13. In its words matrices are by columns: a row of ours is a column there, and
 * y = x W' is D = A' B with A = W and B = x. */
#include "products.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TYPE_FLOAT = 0, COMPUTE_FLOAT = 68, TRANSPOSED = 1, DESC_TRANSPOSE_A = 3, WORKSPACE = 1 };
#define WORKSPACE_BYTES ((size_t)32 << 20)
#define ALGORITHMS      8 /* that are tried */
#define KINDS           8 /* of products; a model has 5 */
#define ROUNDING        1e-4

struct algorithm {
    uint64_t opaque[8];
};

struct suggestion {
    struct algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};
_Static_assert(sizeof(struct suggestion) == 96, "as the library has it");

#define CALLS(X)                                                                                   \
    X(create, "cublasLtCreate", (void **))                                                         \
    X(destroy, "cublasLtDestroy", (void *))                                                        \
    X(desc, "cublasLtMatmulDescCreate", (void **, int compute, int scale))                         \
    X(desc_end, "cublasLtMatmulDescDestroy", (void *))                                             \
    X(desc_set, "cublasLtMatmulDescSetAttribute", (void *, int, const void *, size_t))             \
    X(layout, "cublasLtMatrixLayoutCreate", (void **, int type, uint64_t, uint64_t, int64_t))      \
    X(layout_end, "cublasLtMatrixLayoutDestroy", (void *))                                         \
    X(preference_make, "cublasLtMatmulPreferenceCreate", (void **))                                \
    X(preference_end, "cublasLtMatmulPreferenceDestroy", (void *))                                 \
    X(preference_set, "cublasLtMatmulPreferenceSetAttribute", (void *, int, const void *, size_t)) \
    X(suggest, "cublasLtMatmulAlgoGetHeuristic",                                                   \
      (void *, void *desc, void *a, void *b, void *c, void *d, void *preference, int,              \
       struct suggestion *, int *))                                                                \
    X(multiply, "cublasLtMatmul",                                                                  \
      (void *, void *desc, const void *alpha, const void *a, void *, const void *b, void *,        \
       const void *beta, const void *c, void *, void *d, void *, const struct algorithm *,         \
       void *workspace, size_t, void *stream))

/* Of one size. */
struct plan {
    void *desc, *a, *b, *d;
    struct suggestion by[ALGORITHMS];
    int n, chosen;
};

struct kind {
    int in, out;
    struct plan *plans; /* by rows */
};

struct products {
    struct model *m;
    bool fixed;
    void *lib, *handle, *preference;
    uint64_t workspace;
    struct kind kinds[KINDS];
    double difference;
#define X(field, symbol, args) int(*field) args;
    CALLS(X)
#undef X
};

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static int lt_checked(const struct products *p, int r, const char *call)
{
    const char *(*name)(int) = (const char *(*)(int))dlsym(p->lib, "cublasLtGetStatusName");
    if (r)
        fprintf(stderr, "decode: %s: %s (%d)\n", call, name ? name(r) : "status", r);
    return r;
}

/* ---- a product ------------------------------------------------------------------------------- */

static int make_plan(struct products *p, int in, int out, unsigned rows, struct plan *plan)
{
    const int transposed = TRANSPOSED;
    const uint64_t k = (uint64_t)in, m = (uint64_t)out;
    if (lt_checked(p, p->desc(&plan->desc, COMPUTE_FLOAT, TYPE_FLOAT), "MatmulDescCreate") ||
        lt_checked(p, p->desc_set(plan->desc, DESC_TRANSPOSE_A, &transposed, sizeof(transposed)),
                   "MatmulDescSetAttribute") ||
        lt_checked(p, p->layout(&plan->a, TYPE_FLOAT, k, m, in), "MatrixLayoutCreate") ||
        lt_checked(p, p->layout(&plan->b, TYPE_FLOAT, k, rows, in), "MatrixLayoutCreate") ||
        lt_checked(p, p->layout(&plan->d, TYPE_FLOAT, m, rows, out), "MatrixLayoutCreate") ||
        lt_checked(p,
                   p->suggest(p->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                              p->preference, ALGORITHMS, plan->by, &plan->n),
                   "MatmulAlgoGetHeuristic"))
        return -1;
    if (plan->n < 1) {
        fprintf(stderr, "decode: cuBLASLt knows no algorithm for %d by %d and %u rows\n", in, out,
                rows);
        return -1;
    }
    return 0;
}

static void end_plan(struct products *p, struct plan *plan)
{
    void *const layouts[] = {plan->a, plan->b, plan->d};
    for (int i = 0; i < 3; i++) {
        if (layouts[i])
            p->layout_end(layouts[i]);
    }
    if (plan->desc)
        p->desc_end(plan->desc);
}

static struct plan *plan_of(struct products *p, int in, int out, unsigned rows)
{
    int i = 0;
    while (i < KINDS && p->kinds[i].plans && (p->kinds[i].in != in || p->kinds[i].out != out))
        i++;
    if (i == KINDS)
        return NULL;
    struct kind *kind = &p->kinds[i];
    if (!kind->plans) {
        kind->plans = calloc((size_t)p->m->s.batch + 1, sizeof(*kind->plans));
        kind->in = in;
        kind->out = out;
    }
    if (!kind->plans)
        return NULL;
    struct plan *plan = &kind->plans[rows];
    return plan->n || make_plan(p, in, out, rows, plan) == 0 ? plan : NULL;
}

static int multiply(void *arg, void *stream, unsigned n, const struct work *w)
{
    struct products *p = arg;
    const float one = 1, beta = w->adds ? 1 : 0;
    struct plan *plan = plan_of(p, w->in, w->out, p->fixed ? (unsigned)p->m->s.batch : n);
    if (!plan)
        return -1;
    return lt_checked(p,
                      p->multiply(p->handle, plan->desc, &one, pointer(w->w), plan->a,
                                  pointer(w->x), plan->b, &beta, pointer(w->y), plan->d,
                                  pointer(w->y), plan->d, &plan->by[plan->chosen].algorithm,
                                  pointer(p->workspace), WORKSPACE_BYTES, stream),
                      "Matmul");
}

/* ---- compared with the own kernel ------------------------------------------------------------ */

/* Results of both. All rows of x are equal if so wanted. */
struct compared {
    float *x, *own, *other;
};

static int run_both(struct products *p, const struct work *w, bool equal, struct compared *c)
{
    struct model *m = p->m;
    struct device *d = m->device;
    const size_t rows = (size_t)m->s.batch, in = (size_t)w->in;
    const size_t bytes = rows * (size_t)w->out * sizeof(float);
    struct work wide = *w;
    wide.w = m->wide + (w->w - m->embedding) * 2;
    for (size_t i = 0; i < rows * in; i++) {
        const size_t at = equal ? i % in : i;
        c->x[i] = (float)(at * 2654435761 % 65536) / 32768 - 1;
    }
    if (d->write(d->stream, w->x, c->x, rows * in * sizeof(float)) ||
        model_linear(m, d->stream, (unsigned)rows, w) || d->read(d->stream, c->own, w->y, bytes) ||
        multiply(p, d->stream, (unsigned)rows, &wide) ||
        d->read(d->stream, c->other, w->y, bytes) || d->wait(d->stream))
        return -1;
    return 0;
}

static bool rows_are_equal(const float *y, size_t rows, size_t out)
{
    for (size_t i = out; i < rows * out; i++) {
        if (y[i] != y[i % out])
            return false;
    }
    return true;
}

/* In parts of the own numbers' root mean square. */
static double difference(const struct compared *c, size_t n)
{
    double most = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        const double by = fabs((double)c->own[i] - (double)c->other[i]);
        if (!(by <= most))
            most = isnan(by) ? INFINITY : by;
        squares += (double)c->own[i] * (double)c->own[i];
    }
    return most / sqrt(squares / (double)n);
}

/* Chooses the first algorithm that does what it has to. */
static int check_product(struct products *p, const struct work *w, struct compared *c)
{
    const size_t rows = (size_t)p->m->s.batch, out = (size_t)w->out;
    struct plan *plan = plan_of(p, w->in, w->out, (unsigned)rows);
    bool found = false;
    for (int i = 0; plan && i < plan->n && !found; i++) {
        plan->chosen = i;
        if (plan->by[i].status == 0 && run_both(p, w, true, c) == 0)
            found = !p->fixed || rows_are_equal(c->other, rows, out);
    }
    if (!found) {
        fprintf(stderr,
                "decode: cuBLASLt has no algorithm for %d by %d and %zu rows that gives each row "
                "the same: --products plain or own\n",
                w->in, w->out, rows);
        return -1;
    }
    if (run_both(p, w, false, c))
        return -1;
    const double by = difference(c, rows * out);
    if (!(by < ROUNDING)) {
        fprintf(stderr,
                "decode: cuBLASLt's product of %d by %d differs from the own kernel's by %.2g of "
                "its size, which is not rounding: --products own\n",
                w->in, w->out, by);
        return -1;
    }
    p->difference = by > p->difference ? by : p->difference;
    return 0;
}

/* Each kind that the model has, with the first of its weights. The own kernel skips empty rows. */
static int check_all(struct products *p)
{
    struct model *m = p->m;
    const int width = m->s.width, vocabulary = m->s.vocabulary;
    const struct work all[] = {
        {m->qkv, m->y, m->layers, .in = width, .out = 3 * width},
        {m->x, m->y, m->layers, .in = width, .out = width},
        {m->hidden, m->y, m->layers, .in = width, .out = 4 * width},
        {m->x, m->hidden, m->layers, .in = 4 * width, .out = width},
        {m->logits, m->y, m->embedding, .in = width, .out = vocabulary},
    };
    const size_t rows = (size_t)m->s.batch;
    const size_t most = (size_t)(4 * width > vocabulary ? 4 * width : vocabulary);
    float *memory = malloc(3 * rows * most * sizeof(float));
    int32_t *positions = calloc(rows, sizeof(*positions));
    struct compared c = {memory, memory + rows * most, memory + 2 * rows * most};
    struct device *d = m->device;
    int r = memory && positions ? 0 : -1;
    r = r ? r : d->write(d->stream, m->position, positions, rows * sizeof(*positions));
    for (size_t i = 0; r == 0 && i < sizeof(all) / sizeof(*all); i++) {
        struct work w = all[i];
        w.position = m->position;
        r = check_product(p, &w, &c);
    }
    d->wait(d->stream);
    free(memory);
    free(positions);
    return r;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int lt_load(struct products *p, const char *file)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    for (int i = 0; !p->lib && i < (file ? 1 : 2); i++)
        p->lib = dlopen(file ? file : names[i], RTLD_NOW | RTLD_LOCAL);
    if (!p->lib) {
        fprintf(stderr,
                "decode: cuBLASLt cannot be opened: %s: name its file by --cublaslt (it comes with "
                "CUDA, and with PyTorch), or use --products own\n",
                dlerror());
        return -1;
    }
#define X(field, symbol, args)                                                                     \
    p->field = (int(*) args)dlsym(p->lib, symbol);                                                 \
    if (!p->field) {                                                                               \
        fprintf(stderr, "decode: cuBLASLt has no %s\n", symbol);                                   \
        return -1;                                                                                 \
    }
    CALLS(X)
#undef X
    return 0;
}

struct products *products_open(struct model *m, const char *file, bool fixed)
{
    const size_t bytes = WORKSPACE_BYTES;
    struct products *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->m = m;
    p->fixed = fixed;
    if (!m->device->stream)
        fprintf(stderr, "decode: cuBLASLt needs a GPU: --products own\n");
    else if (lt_load(p, file) == 0 && lt_checked(p, p->create(&p->handle), "cublasLtCreate") == 0 &&
             lt_checked(p, p->preference_make(&p->preference), "MatmulPreferenceCreate") == 0 &&
             lt_checked(p, p->preference_set(p->preference, WORKSPACE, &bytes, sizeof(bytes)),
                        "MatmulPreferenceSetAttribute") == 0 &&
             m->device->alloc(m->device, bytes, &p->workspace) == 0 && check_all(p) == 0) {
        m->product = multiply;
        m->product_arg = p;
        return p;
    }
    products_close(p);
    return NULL;
}

void products_close(struct products *p)
{
    if (!p)
        return;
    for (int i = 0; i < KINDS && p->kinds[i].plans; i++) {
        for (int rows = 0; rows <= p->m->s.batch; rows++)
            end_plan(p, &p->kinds[i].plans[rows]);
        free(p->kinds[i].plans);
    }
    if (p->preference)
        p->preference_end(p->preference);
    if (p->handle)
        p->destroy(p->handle);
    p->m->device->release(p->m->device, p->workspace);
    p->m->product = NULL;
    free(p); /* the library stays: it is not made to be unloaded */
}

double products_difference(const struct products *p)
{
    return p->difference;
}
