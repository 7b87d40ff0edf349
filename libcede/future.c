/* libcede: the future map; see cede/future.h. Memory, launches and a lock around the bookkeeping of
 * slots (pure/future_slots.h). What the kernels do is in future_kernels.h, and runs here for maps
 * without a GPU. */
#include "libcede/future.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/clock.h"
#include "libcede/cuda.h"
#include "libcede/error.h"
#include "libcede/pure/future_slots.h"

#define THREADS 256U /* of a block */

enum future_kernel { FUTURE_PLACE, FUTURE_STORE, FUTURE_RESOLVE, FUTURE_KERNELS };

struct cede_futures {
    struct cuda cu; /* or the host's calls */
    bool gpu;
    void *module, *kernels[FUTURE_KERNELS];
    uint64_t ring, place, missing_at; /* addresses for kernels: slots, place, missing */
    volatile uint32_t *missing;
    uint32_t mask;
    pthread_mutex_t lock; /* what follows */
    struct future_slots *slots;
    struct gpu_error error;
};

CEDE_API void cede_future_defaults(struct cede_future_config *c)
{
    *c = (struct cede_future_config){.size = sizeof(*c), .slots = 4096};
}

static void future_free(struct cede_futures *f)
{
    if (f->ring)
        f->cu.dealloc(f->ring);
    if (f->missing)
        f->cu.host_free((void *)f->missing);
    if (f->module)
        f->cu.module_unload(f->module);
    free(f->slots);
    free(f);
}

/* The kernels on the host; their parameters are as cede_future.ptx has them. */
#define PARAMETER(i, type) (*(type *)params[i])

static void host_place(uint32_t i, void **params)
{
    if (i == 0)
        future_place(PARAMETER(0, uint32_t *), PARAMETER(1, uint32_t), PARAMETER(2, uint32_t));
}

static void host_store(uint32_t i, void **params)
{
    future_store(i, PARAMETER(0, struct future_slot *), PARAMETER(1, uint32_t),
                 PARAMETER(2, const uint32_t *), PARAMETER(3, uint32_t), PARAMETER(4, uint32_t),
                 PARAMETER(5, const char *), PARAMETER(6, int64_t), PARAMETER(7, uint32_t));
}

static void host_resolve(uint32_t i, void **params)
{
    future_resolve(i, PARAMETER(0, const struct future_slot *), PARAMETER(1, uint32_t),
                   PARAMETER(2, uint32_t *), PARAMETER(3, uint32_t), PARAMETER(4, char *),
                   PARAMETER(5, int64_t), PARAMETER(6, uint32_t));
}

static const struct {
    const char *name;
    host_kernel host;
} kernels[] = {[FUTURE_PLACE] = {"cede_future_place", host_place},
               [FUTURE_STORE] = {"cede_future_store", host_store},
               [FUTURE_RESOLVE] = {"cede_future_resolve", host_resolve}};

static int future_failed(struct cede_futures *f, int r, const char *what)
{
    return cede_cuda_failed(&f->cu, r, what, &f->error);
}

static int future_load(struct cede_futures *f)
{
    void *context;
    f->cu = cede_cuda_host;
    for (unsigned i = 0; i < FUTURE_KERNELS; i++)
        f->kernels[i] = (void *)kernels[i].host;
    if (!f->gpu)
        return 0;
    int r = cede_cuda_here(&f->cu, CUDA_STEPS, &context)
                ?: future_failed(f, f->cu.module_load(&f->module, cede_future_ptx),
                                 "load the future map's kernels");
    for (unsigned i = 0; r == 0 && i < FUTURE_KERNELS; i++)
        r = future_failed(f, f->cu.module_function(&f->kernels[i], f->module, kernels[i].name),
                          "find the future map's kernels");
    return r;
}

static int future_set_up(struct cede_futures *f, const struct cede_future_config *c)
{
    /* `place` is behind the slots */
    size_t slots = c->slots * sizeof(struct future_slot), bytes = slots + 2 * sizeof(uint32_t);
    f->gpu = !(c->flags & CEDE_FUTURE_NO_GPU);
    f->mask = c->slots - 1;
    /* The default stream clears the memory, for which non-blocking streams do not wait. */
    int r = cede_slots_new(c->slots, &f->slots) ?: future_load(f) ?:
            future_failed(f, f->cu.alloc(&f->ring, bytes), "allocate GPU memory") ?:
            future_failed(f, f->cu.clear(f->ring, 0, bytes), "clear GPU memory") ?:
            future_failed(f, f->cu.stream_sync(NULL), "clear GPU memory") ?:
            cede_cuda_pinned(&f->cu, sizeof(uint32_t), (void **)&f->missing, &f->missing_at,
                             &f->error);
    f->place = f->ring + slots;
    return r;
}

CEDE_API int cede_future_open(const struct cede_future_config *config, struct cede_futures **out)
{
    struct cede_future_config c;
    LONG_CALL(GIVEN(out));
    *out = NULL;
    cede_future_defaults(&c);
    c = config ? *config : c;
    if (!SIZED(c.size, c) ||
        !SETTINGS(FLAGS(&c, CEDE_FUTURE_NO_GPU), SETTING(&c, slots, 1, CEDE_FUTURE_SLOTS_MAX)) ||
        !IS(!(c.slots & (c.slots - 1)), "slots is %u: give a power of 2", c.slots))
        return -EINVAL;
    struct cede_futures *f = calloc(1, sizeof(*f));
    if (!f)
        return cede_no_memory();
    int r = future_set_up(f, &c);
    if (r) {
        SAY(r, {-EIO, f->error.text}, {-ENOSYS, NO_CUDA ", or set CEDE_FUTURE_NO_GPU"});
        future_free(f);
        return r;
    }
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return 0;
}

CEDE_API void cede_future_close(struct cede_futures *f)
{
    WHOLE_CALL;
    if (!f)
        return;
    pthread_mutex_destroy(&f->lock);
    future_free(f);
}

/* ---- slots ----------------------------------------------------------------------------------- */

CEDE_API int cede_future_reserve(struct cede_futures *f, unsigned n, int64_t *symbol)
{
    uint32_t position = 0;
    CALL(GIVEN(f) && GIVEN(symbol) && SETTINGS(cede_setting("n", n, 1, f->mask + 1)));
    int r = HOLDING(&f->lock, cede_slots_reserve(f->slots, n, &position));
    if (r == 0)
        *symbol = -(int64_t)position - 1;
    return SAY(r, {-EAGAIN, "fewer than n slots are free: release some first"});
}

static bool future_is_symbol(int64_t symbol)
{
    return IS(symbol < 0 && symbol >= -CEDE_FUTURE_POSITIONS,
              "%lld is no symbol: give one of cede_future_reserve()", (long long)symbol);
}

CEDE_API int cede_future_release(struct cede_futures *f, int64_t symbol)
{
    CALL(GIVEN(f));
    HOLD(&f->lock);
    int r =
        future_is_symbol(symbol) ? cede_slots_release(f->slots, (uint32_t)(-symbol - 1)) : -ENOENT;
    return SAY(r, {-ENOENT, "no reservation has this symbol: release each once"});
}

CEDE_API int cede_future_get_statistics(struct cede_futures *f, struct cede_future_statistics *out,
                                        size_t size)
{
    CALL(GIVEN(f) && GIVEN(out) && SIZED(size, *out));
    uint32_t tag = *f->missing;
    HOLD(&f->lock);
    *out =
        (struct cede_future_statistics){.slots = f->slots->slots,
                                        .free = slots_free(f->slots),
                                        .missing = tag == UINT32_MAX ? INT64_MIN : -(int64_t)tag};
    memcpy(out->error, f->error.text, sizeof(out->error));
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int future_launch(struct cede_futures *f, enum future_kernel k, unsigned n, void **params,
                         void *stream)
{
    struct gpu_error e;
    unsigned threads = n < THREADS ? n : THREADS;
    WHOLE_CALL;
    int r = cede_cuda_failed(&f->cu,
                             f->cu.launch(f->kernels[k], (n + THREADS - 1) / THREADS, 1, 1, threads,
                                          1, 1, 0, stream, params, NULL),
                             "launch a kernel of the future map", &e);
    if (r) {
        HOLDING(&f->lock, f->error = e);
        cede_fail(r, "%s", e.text);
    }
    return r;
}

static bool future_is_array(const struct cede_future_array *a)
{
    return IS(a && a->address && a->n && (a->bytes == 4 || a->bytes == 8),
              "no array: give an address and n integers of 4 or 8 bytes");
}

static int future_put_store(struct cede_futures *f, void *stream, const struct cede_future_array *a,
                            uint64_t place, uint32_t tag)
{
    struct cede_future_array v = *a;
    v.stride = v.stride ? v.stride : 1;
    void *params[] = {&f->ring, &f->mask, &place, &tag, &v.n, &v.address, &v.stride, &v.bytes};
    return future_launch(f, FUTURE_STORE, v.n, params, stream);
}

CEDE_API int cede_future_store(struct cede_futures *f, void *stream,
                               const struct cede_future_array *values, int64_t symbol)
{
    CALL(GIVEN(f) && future_is_array(values) && future_is_symbol(symbol) &&
         SETTINGS(SETTING(values, n, 1, f->mask + 1)));
    return future_put_store(f, stream, values, 0, (uint32_t)-symbol);
}

CEDE_API int cede_future_store_placed(struct cede_futures *f, void *stream,
                                      const struct cede_future_array *values)
{
    CALL(GIVEN(f) && future_is_array(values));
    return future_put_store(f, stream, values, f->place, 0);
}

CEDE_API int cede_future_place(struct cede_futures *f, void *stream, int64_t symbol, unsigned n)
{
    CALL(GIVEN(f) && future_is_symbol(symbol) && SETTINGS(cede_setting("n", n, 0, f->mask + 1)));
    uint32_t tag = (uint32_t)-symbol;
    void *params[] = {&f->place, &tag, &n};
    return future_launch(f, FUTURE_PLACE, 1, params, stream);
}

CEDE_API int cede_future_resolve(struct cede_futures *f, void *stream,
                                 const struct cede_future_array *inputs)
{
    CALL(GIVEN(f) && future_is_array(inputs));
    struct cede_future_array v = *inputs;
    v.stride = v.stride ? v.stride : 1;
    void *params[] = {&f->ring, &f->mask, &f->missing_at, &v.n, &v.address, &v.stride, &v.bytes};
    return future_launch(f, FUTURE_RESOLVE, v.n, params, stream);
}

/* ---- for the overlap loop -------------------------------------------------------------------- */

bool cede_future_on_gpu(const struct cede_futures *f)
{
    return f->gpu;
}

int cede_future_copy_out(struct cede_futures *f, void *stream, int64_t symbol, unsigned n,
                         struct future_slot *to, struct gpu_error *e)
{
    int r = 0;
    uint32_t at = (uint32_t)(-symbol - 1) & f->mask;
    for (unsigned done = 0, part; r == 0 && done < n; done += part, at = 0) {
        part = n - done < f->mask + 1 - at ? n - done : f->mask + 1 - at;
        r = cede_cuda_failed(
            &f->cu,
            f->cu.copy_out(to + done, f->ring + at * sizeof(*to), part * sizeof(*to), stream),
            "copy a step's results", e);
    }
    return r;
}
