/* The HIP calls that the gate stands before: everything that gives the device work, and what shows
 * that work is done. One line per call: name, parameters, arguments, then what track.c gets.
 * Calls that are not here are the library's own, untouched: above all events, queries and waits of
 * one stream for another, which must never be held.
 *
 * Unversioned symbols of a preloaded library satisfy HIP's versioned references (hip_4.2, hip_5.2).
 */
#include <stdlib.h>
#include <string.h>

#include "gate/estimate.h"
#include "gate/hip/hip.h"

#define EXPORT __attribute__((visibility("default")))

#define BLOCKS(d)              ((uint64_t)(d).x * (d).y * (d).z)
#define KERNEL(f, grid, block) estimate_key((uintptr_t)(f), BLOCKS(grid), BLOCKS(block)), 200000ULL
/* 10 GB/s and 10 us, until it was measured; sizes within a factor of two count as the same. */
#define COPY(kind, bytes)                                                                          \
    estimate_key(kind, 0, 64 - (uint64_t)__builtin_clzll((uint64_t)(bytes) | 1)),                  \
        10000ULL + (uint64_t)(bytes) / 10
#define NONE      NULL
#define OWN       HIP_STREAM_PER_THREAD
#define OR_OWN(s) ((s) ? (s) : HIP_STREAM_PER_THREAD) /* what 0 means in the _spt calls */

#define P(...) (__VA_ARGS__)
#define STREAM hipStream_t stream

/* What copies and fills are made of: one line for each of a family's names. */
#define DSN       void *d, const void *s, size_t n
#define FILL8     hipDeviceptr_t d, unsigned char v, size_t n
#define FILL16    hipDeviceptr_t d, unsigned short v, size_t n
#define FILL32    hipDeviceptr_t d, int v, size_t n
#define TWO_D     void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k
#define FILL2D    void *d, size_t dp, int v, size_t w, size_t h
#define FILL3D    hipPitchedPtr p, int v, hipExtent e
#define EXTENT(e) ((e).width * (e).height * (e).depth)
#define LAUNCH    const void *f, dim3 g, dim3 b, void **a, size_t m
#define MODULE                                                                                     \
    void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,         \
        uint32_t m
#define MODULE_EXT                                                                                 \
    void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,         \
        size_t m, hipStream_t stream, void **a, void **x, hipEvent_t e0, hipEvent_t e1
#define MODULE_KEY  KERNEL(f, ((dim3){gx, gy, gz}), ((dim3){bx, by, bz}))
#define SYMBOL      const void *y, const void *s, size_t n, size_t o, int k
#define FROM_SYMBOL void *d, const void *y, size_t n, size_t o, int k

/* clang-format off */
#define WORK(X)                                                                                    \
    /* kernels and graphs */                                                                       \
    X(hipLaunchKernel, P(LAUNCH, STREAM), P(f, g, b, a, m, stream), stream, KERNEL(f, g, b))       \
    X(hipLaunchKernel_spt, P(LAUNCH, STREAM), P(f, g, b, a, m, stream), OR_OWN(stream),            \
      KERNEL(f, g, b))                                                                             \
    X(hipExtLaunchKernel, P(LAUNCH, STREAM, hipEvent_t e0, hipEvent_t e1, int l),                  \
      P(f, g, b, a, m, stream, e0, e1, l), stream, KERNEL(f, g, b))                                \
    X(hipLaunchCooperativeKernel,                                                                  \
      P(const void *f, dim3 g, dim3 b, void **a, unsigned m, STREAM),                              \
      P(f, g, b, a, m, stream), stream, KERNEL(f, g, b))                                           \
    X(hipLaunchCooperativeKernel_spt,                                                              \
      P(const void *f, dim3 g, dim3 b, void **a, uint32_t m, STREAM),                              \
      P(f, g, b, a, m, stream), OR_OWN(stream), KERNEL(f, g, b))                                   \
    X(hipModuleLaunchKernel, P(MODULE, STREAM, void **a, void **x),                                \
      P(f, gx, gy, gz, bx, by, bz, m, stream, a, x), stream, MODULE_KEY)                           \
    X(hipModuleLaunchCooperativeKernel, P(MODULE, STREAM, void **a),                               \
      P(f, gx, gy, gz, bx, by, bz, m, stream, a), stream, MODULE_KEY)                              \
    X(hipGraphLaunch, P(void *f, STREAM), P(f, stream), stream,                                    \
      estimate_key((uintptr_t)f, 0, 1), 1000000ULL)                                                   \
    X(hipGraphLaunch_spt, P(void *f, STREAM), P(f, stream), OR_OWN(stream),                        \
      estimate_key((uintptr_t)f, 0, 1), 1000000ULL)                                                   \
    /* copies */                                                                                   \
    X(hipMemcpy, P(DSN, int k), P(d, s, n, k), NONE, COPY(1, n))                                   \
    X(hipMemcpy_spt, P(DSN, int k), P(d, s, n, k), OWN, COPY(1, n))                                \
    X(hipMemcpyAsync, P(DSN, int k, STREAM), P(d, s, n, k, stream), stream, COPY(1, n))            \
    X(hipMemcpyAsync_spt, P(DSN, int k, STREAM), P(d, s, n, k, stream), OR_OWN(stream),            \
      COPY(1, n))                                                                                  \
    X(hipMemcpyWithStream, P(DSN, int k, STREAM), P(d, s, n, k, stream), stream, COPY(1, n))       \
    X(hipMemcpyHtoD, P(hipDeviceptr_t d, void *s, size_t n), P(d, s, n), NONE, COPY(2, n))         \
    X(hipMemcpyHtoDAsync, P(hipDeviceptr_t d, void *s, size_t n, STREAM), P(d, s, n, stream),      \
      stream, COPY(2, n))                                                                          \
    X(hipMemcpyDtoH, P(void *d, hipDeviceptr_t s, size_t n), P(d, s, n), NONE, COPY(3, n))         \
    X(hipMemcpyDtoHAsync, P(void *d, hipDeviceptr_t s, size_t n, STREAM), P(d, s, n, stream),      \
      stream, COPY(3, n))                                                                          \
    X(hipMemcpyDtoD, P(hipDeviceptr_t d, hipDeviceptr_t s, size_t n), P(d, s, n), NONE,            \
      COPY(4, n))                                                                                  \
    X(hipMemcpyDtoDAsync, P(hipDeviceptr_t d, hipDeviceptr_t s, size_t n, STREAM),                 \
      P(d, s, n, stream), stream, COPY(4, n))                                                      \
    X(hipMemcpyPeer, P(void *d, int di, const void *s, int si, size_t n), P(d, di, s, si, n),      \
      NONE, COPY(5, n))                                                                            \
    X(hipMemcpyPeerAsync, P(void *d, int di, const void *s, int si, size_t n, STREAM),             \
      P(d, di, s, si, n, stream), stream, COPY(5, n))                                              \
    X(hipMemcpy2D, P(TWO_D), P(d, dp, s, sp, w, h, k), NONE, COPY(6, w * h))                       \
    X(hipMemcpy2D_spt, P(TWO_D), P(d, dp, s, sp, w, h, k), OWN, COPY(6, w * h))                    \
    X(hipMemcpy2DAsync, P(TWO_D, STREAM), P(d, dp, s, sp, w, h, k, stream), stream,                \
      COPY(6, w * h))                                                                              \
    X(hipMemcpy2DAsync_spt, P(TWO_D, STREAM), P(d, dp, s, sp, w, h, k, stream), OR_OWN(stream),    \
      COPY(6, w * h))                                                                              \
    X(hipMemcpyParam2D, P(const void *p), P(p), NONE, COPY(7, 1 << 20))                            \
    X(hipMemcpyParam2DAsync, P(const void *p, STREAM), P(p, stream), stream, COPY(7, 1 << 20))     \
    X(hipMemcpy3D, P(const void *p), P(p), NONE, COPY(8, 1 << 20))                                 \
    X(hipMemcpy3D_spt, P(const void *p), P(p), OWN, COPY(8, 1 << 20))                              \
    X(hipMemcpy3DAsync, P(const void *p, STREAM), P(p, stream), stream, COPY(8, 1 << 20))          \
    X(hipMemcpy3DAsync_spt, P(const void *p, STREAM), P(p, stream), OR_OWN(stream),                \
      COPY(8, 1 << 20))                                                                            \
    X(hipDrvMemcpy3D, P(const void *p), P(p), NONE, COPY(9, 1 << 20))                              \
    X(hipDrvMemcpy3DAsync, P(const void *p, STREAM), P(p, stream), stream, COPY(9, 1 << 20))       \
    X(hipDrvMemcpy2DUnaligned, P(const void *p), P(p), NONE, COPY(7, 1 << 20))                     \
    X(hipMemcpyToSymbol, P(SYMBOL), P(y, s, n, o, k), NONE, COPY(10, n))                           \
    X(hipMemcpyToSymbol_spt, P(SYMBOL), P(y, s, n, o, k), OWN, COPY(10, n))                        \
    X(hipMemcpyToSymbolAsync, P(SYMBOL, STREAM), P(y, s, n, o, k, stream), stream, COPY(10, n))    \
    X(hipMemcpyFromSymbol, P(FROM_SYMBOL), P(d, y, n, o, k), NONE, COPY(11, n))                    \
    X(hipMemcpyFromSymbol_spt, P(FROM_SYMBOL), P(d, y, n, o, k), OWN, COPY(11, n))                 \
    X(hipMemcpyFromSymbolAsync, P(FROM_SYMBOL, STREAM), P(d, y, n, o, k, stream), stream,          \
      COPY(11, n))                                                                                 \
    X(hipMemcpyToArray, P(void *d, size_t x, size_t y, const void *s, size_t n, int k),            \
      P(d, x, y, s, n, k), NONE, COPY(12, n))                                                      \
    X(hipMemcpyFromArray, P(void *d, const void *s, size_t x, size_t y, size_t n, int k),          \
      P(d, s, x, y, n, k), NONE, COPY(12, n))                                                      \
    X(hipMemcpyAtoH, P(void *d, void *s, size_t o, size_t n), P(d, s, o, n), NONE, COPY(12, n))    \
    X(hipMemcpyHtoA, P(void *d, size_t o, const void *s, size_t n), P(d, o, s, n), NONE,           \
      COPY(12, n))                                                                                 \
    X(hipMemcpy2DToArray,                                                                          \
      P(void *d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h, int k),         \
      P(d, x, y, s, sp, w, h, k), NONE, COPY(13, w * h))                                           \
    X(hipMemcpy2DToArray_spt,                                                                      \
      P(void *d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h, int k),         \
      P(d, x, y, s, sp, w, h, k), OWN, COPY(13, w * h))                                            \
    X(hipMemcpy2DToArrayAsync,                                                                     \
      P(void *d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h, int k, STREAM), \
      P(d, x, y, s, sp, w, h, k, stream), stream, COPY(13, w * h))                                 \
    X(hipMemcpy2DFromArray,                                                                        \
      P(void *d, size_t dp, const void *s, size_t x, size_t y, size_t w, size_t h, int k),         \
      P(d, dp, s, x, y, w, h, k), NONE, COPY(14, w * h))                                           \
    X(hipMemcpy2DFromArray_spt,                                                                    \
      P(void *d, size_t dp, const void *s, size_t x, size_t y, size_t w, size_t h, int k),         \
      P(d, dp, s, x, y, w, h, k), OWN, COPY(14, w * h))                                            \
    X(hipMemcpy2DFromArrayAsync,                                                                   \
      P(void *d, size_t dp, const void *s, size_t x, size_t y, size_t w, size_t h, int k, STREAM), \
      P(d, dp, s, x, y, w, h, k, stream), stream, COPY(14, w * h))                                 \
    /* fills */                                                                                    \
    X(hipMemset, P(void *d, int v, size_t n), P(d, v, n), NONE, COPY(15, n))                       \
    X(hipMemset_spt, P(void *d, int v, size_t n), P(d, v, n), OWN, COPY(15, n))                    \
    X(hipMemsetAsync, P(void *d, int v, size_t n, STREAM), P(d, v, n, stream), stream,             \
      COPY(15, n))                                                                                 \
    X(hipMemsetAsync_spt, P(void *d, int v, size_t n, STREAM), P(d, v, n, stream),                 \
      OR_OWN(stream), COPY(15, n))                                                                 \
    X(hipMemsetD8, P(FILL8), P(d, v, n), NONE, COPY(15, n))                                        \
    X(hipMemsetD8Async, P(FILL8, STREAM), P(d, v, n, stream), stream, COPY(15, n))                 \
    X(hipMemsetD16, P(FILL16), P(d, v, n), NONE, COPY(15, 2 * n))                                  \
    X(hipMemsetD16Async, P(FILL16, STREAM), P(d, v, n, stream), stream, COPY(15, 2 * n))           \
    X(hipMemsetD32, P(FILL32), P(d, v, n), NONE, COPY(15, 4 * n))                                  \
    X(hipMemsetD32Async, P(FILL32, STREAM), P(d, v, n, stream), stream, COPY(15, 4 * n))           \
    X(hipMemset2D, P(FILL2D), P(d, dp, v, w, h), NONE, COPY(15, w * h))                            \
    X(hipMemset2D_spt, P(FILL2D), P(d, dp, v, w, h), OWN, COPY(15, w * h))                         \
    X(hipMemset2DAsync, P(FILL2D, STREAM), P(d, dp, v, w, h, stream), stream, COPY(15, w * h))     \
    X(hipMemset3D, P(FILL3D), P(p, v, e), NONE, COPY(15, EXTENT(e)))                               \
    X(hipMemset3D_spt, P(FILL3D), P(p, v, e), OWN, COPY(15, EXTENT(e)))                            \
    X(hipMemset3DAsync, P(FILL3D, STREAM), P(p, v, e, stream), stream, COPY(15, EXTENT(e)))

/* C++ names without C linkage; rocBLAS launches through the first. */
#define WORK_CXX(X)                                                                                \
    X(hipExtModuleLaunchKernel,                                                                    \
      "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_"              \
      "P11ihipEvent_tS6_j",                                                                        \
      P(MODULE_EXT, uint32_t l), P(f, gx, gy, gz, bx, by, bz, m, stream, a, x, e0, e1, l),         \
      stream, MODULE_KEY)                                                                          \
    X(hipHccModuleLaunchKernel,                                                                    \
      "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_"              \
      "P11ihipEvent_tS6_",                                                                         \
      P(MODULE_EXT), P(f, gx, gy, gz, bx, by, bz, m, stream, a, x, e0, e1), stream, MODULE_KEY)

/* Several streams at once: held before all of them or not at all, and not measured. */
#define WORK_MANY(X)                                                                               \
    X(hipLaunchCooperativeKernelMultiDevice, P(void *l, int n, unsigned g), P(l, n, g))            \
    X(hipExtLaunchMultiKernelMultiDevice, P(void *l, int n, unsigned g), P(l, n, g))               \
    X(hipLaunchByPtr, P(const void *f), P(f))

/* The host waits; never held. Then: which stream is empty, all of them? */
#define WAITS(X)                                                                                   \
    X(hipStreamSynchronize, P(STREAM), P(stream), stream, false)                                   \
    X(hipStreamSynchronize_spt, P(STREAM), P(stream), OR_OWN(stream), false)                       \
    X(hipStreamQuery, P(STREAM), P(stream), stream, false)                                         \
    X(hipStreamQuery_spt, P(STREAM), P(stream), OR_OWN(stream), false)                             \
    X(hipDeviceSynchronize, P(void), P(), NULL, true)                                              \
    X(hipCtxSynchronize, P(void), P(), NULL, true)
/* clang-format on */

#define REAL(symbol, params)                                                                       \
    static void *slot;                                                                             \
    hipError_t(*real) params = (hipError_t(*) params)hip_real(symbol, &slot);                      \
    if (!real)                                                                                     \
    return HIP_NOT_SUPPORTED

#define BODY(symbol, params, args, stream, key)                                                    \
    {                                                                                              \
        REAL(symbol, params);                                                                      \
        struct ticket t;                                                                           \
        track_enter(&t, stream, key);                                                              \
        hipError_t r = real args;                                                                  \
        track_leave(&t, r);                                                                        \
        return r;                                                                                  \
    }

#define X(name, params, args, stream, ...)                                                         \
    EXPORT hipError_t name params;                                                                 \
    hipError_t name params BODY(#name, params, args, stream, P2(__VA_ARGS__))
#define P2(...) __VA_ARGS__
WORK(X)
#undef X

#define X(name, symbol, params, args, stream, ...)                                                 \
    EXPORT hipError_t name params __asm__(symbol);                                                 \
    hipError_t name params BODY(symbol, params, args, stream, P2(__VA_ARGS__))
WORK_CXX(X)
#undef X

#define X(name, params, args)                                                                      \
    EXPORT hipError_t name params;                                                                 \
    hipError_t name params                                                                         \
    {                                                                                              \
        REAL(#name, params);                                                                       \
        struct ticket t;                                                                           \
        track_enter_only(&t);                                                                      \
        return real args;                                                                          \
    }
static void track_enter_only(struct ticket *t)
{
    track_enter(t, NULL, estimate_key(99, 0, 0), 1000000);
}
WORK_MANY(X)
#undef X

#define X(name, params, args, stream, all)                                                         \
    EXPORT hipError_t name params;                                                                 \
    hipError_t name params                                                                         \
    {                                                                                              \
        REAL(#name, params);                                                                       \
        hipError_t r = real args;                                                                  \
        if (r == HIP_OK)                                                                           \
            track_drained(stream, all);                                                            \
        return r;                                                                                  \
    }
WAITS(X)
#undef X

/* ---- what changes how the above is to be seen ---- */

/* Counted before it begins, so that no call of the gate comes in between. An end that fails ends an
 * invalidated capture. */
#define CAPTURE(suffix)                                                                            \
    EXPORT hipError_t hipStreamBeginCapture##suffix(hipStream_t stream, int mode);                 \
    hipError_t hipStreamBeginCapture##suffix(hipStream_t stream, int mode)                         \
    {                                                                                              \
        REAL("hipStreamBeginCapture" #suffix, (hipStream_t, int));                                 \
        track_capture(1);                                                                          \
        hipError_t r = real(stream, mode);                                                         \
        if (r != HIP_OK)                                                                           \
            track_capture(-1);                                                                     \
        return r;                                                                                  \
    }                                                                                              \
    EXPORT hipError_t hipStreamEndCapture##suffix(hipStream_t stream, void **graph);               \
    hipError_t hipStreamEndCapture##suffix(hipStream_t stream, void **graph)                       \
    {                                                                                              \
        REAL("hipStreamEndCapture" #suffix, (hipStream_t, void **));                               \
        hipError_t r = real(stream, graph);                                                        \
        track_capture(-1);                                                                         \
        return r;                                                                                  \
    }
CAPTURE()
CAPTURE(_spt)

EXPORT hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamDestroy(hipStream_t stream)
{
    REAL("hipStreamDestroy", (hipStream_t));
    track_forget(stream);
    return real(stream);
}

struct callback {
    union {
        void (*stream)(hipStream_t, hipError_t, void *);
        void (*host)(void *);
    };
    void *data;
};

/* A captured one runs at every launch of the graph, so nothing could free what it is given. */
static bool runs_once(hipStream_t stream)
{
    int status = HIP_CAPTURE_NONE;
    const struct hip_calls *c = hip_calls();
    return c && c->is_capturing(stream, &status) == HIP_OK && status == HIP_CAPTURE_NONE;
}

static void run_stream_callback(hipStream_t stream, hipError_t status, void *data)
{
    struct callback c = *(struct callback *)data;
    free(data);
    track_callback(true);
    c.stream(stream, status, c.data);
    track_callback(false);
}

EXPORT hipError_t hipStreamAddCallback(hipStream_t stream,
                                       void (*f)(hipStream_t, hipError_t, void *), void *data,
                                       unsigned flags);
hipError_t hipStreamAddCallback(hipStream_t stream, void (*f)(hipStream_t, hipError_t, void *),
                                void *data, unsigned flags)
{
    REAL("hipStreamAddCallback",
         (hipStream_t, void (*)(hipStream_t, hipError_t, void *), void *, unsigned));
    struct callback *c = runs_once(stream) && f ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return real(stream, f, data, flags);
    *c = (struct callback){.stream = f, .data = data};
    hipError_t r = real(stream, run_stream_callback, c, flags);
    if (r != HIP_OK)
        free(c);
    return r;
}

static void run_host_callback(void *data)
{
    struct callback c = *(struct callback *)data;
    free(data);
    track_callback(true);
    c.host(c.data);
    track_callback(false);
}

EXPORT hipError_t hipLaunchHostFunc(hipStream_t stream, void (*f)(void *), void *data);
hipError_t hipLaunchHostFunc(hipStream_t stream, void (*f)(void *), void *data)
{
    REAL("hipLaunchHostFunc", (hipStream_t, void (*)(void *), void *));
    struct callback *c = runs_once(stream) && f ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return real(stream, f, data);
    *c = (struct callback){.host = f, .data = data};
    hipError_t r = real(stream, run_host_callback, c);
    if (r != HIP_OK)
        free(c);
    return r;
}

/* ---- look-ups ---- */

void *hip_wrapper(const char *name)
{
    static const struct {
        const char *name;
        void *f;
    } wrappers[] = {
#define X(name, ...) {#name, (void *)name},
        WORK(X) WORK_MANY(X) WAITS(X)
#undef X
#define X(name, symbol, ...) {symbol, (void *)name},
            WORK_CXX(X)
#undef X
                {"hipStreamBeginCapture", (void *)hipStreamBeginCapture},
        {"hipStreamBeginCapture_spt", (void *)hipStreamBeginCapture_spt},
        {"hipStreamEndCapture_spt", (void *)hipStreamEndCapture_spt},
        {"hipLaunchHostFunc", (void *)hipLaunchHostFunc},
        {"hipStreamEndCapture", (void *)hipStreamEndCapture},
        {"hipStreamDestroy", (void *)hipStreamDestroy},
        {"hipStreamAddCallback", (void *)hipStreamAddCallback},
    };
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (strcmp(wrappers[i].name, name) == 0)
            return wrappers[i].f;
    }
    return NULL;
}

/* HIP 6: look-up by name without dlsym(). */
EXPORT hipError_t hipGetProcAddress(const char *name, void **f, int version, uint64_t flags,
                                    void *status);
hipError_t hipGetProcAddress(const char *name, void **f, int version, uint64_t flags, void *status)
{
    REAL("hipGetProcAddress", (const char *, void **, int, uint64_t, void *));
    hipError_t r = real(name, f, version, flags, status);
    void *wrapper = r == HIP_OK && name && f && *f ? hip_wrapper(name) : NULL;
    if (wrapper)
        *f = wrapper;
    return r;
}
