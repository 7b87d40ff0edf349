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
#include "gate/gate.h"
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

#define P(...)  (__VA_ARGS__)
#define P2(...) __VA_ARGS__
#define STREAM  hipStream_t stream

/* Parameters that several calls have. */
#define DSN    void *d, const void *s, size_t n
#define TWO_D  void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k
#define LAUNCH const void *f, dim3 g, dim3 b, void **a
#define MODULE                                                                                     \
    void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,         \
        uint32_t m
#define MODULE_EXT                                                                                 \
    void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,         \
        size_t m, hipStream_t stream, void **a, void **x, hipEvent_t e0, hipEvent_t e1
#define MODULE_KEY  KERNEL(f, ((dim3){gx, gy, gz}), ((dim3){bx, by, bz}))
#define SYMBOL      const void *y, const void *s, size_t n, size_t o, int k
#define FROM_SYMBOL void *d, const void *y, size_t n, size_t o, int k
#define FROM_ARRAY  void *d, const void *s, size_t x, size_t y, size_t n, int k

/* A call and its variant of HIP_API_PER_THREAD_DEFAULT_STREAM, for which 0 is the thread's stream.
 */
#define SPT(X, name, params, args, ...)                                                            \
    X(name, params, args, stream, __VA_ARGS__)                                                     \
    X(name##_spt, params, args, OR_OWN(stream), __VA_ARGS__)
/* A call without a stream, and the one with the same parameters and a stream. */
#define PAIR(X, name, params, args, ...)                                                           \
    X(name, params, args, NONE, __VA_ARGS__)                                                       \
    X(name##Async, P(P2 params, STREAM), P(P2 args, stream), stream, __VA_ARGS__)
/* And both variants of both. */
#define FOUR(X, name, params, args, ...)                                                           \
    PAIR(X, name, params, args, __VA_ARGS__)                                                       \
    X(name##_spt, params, args, OWN, __VA_ARGS__)                                                  \
    X(name##Async_spt, P(P2 params, STREAM), P(P2 args, stream), OR_OWN(stream), __VA_ARGS__)

/* clang-format off */
#define WORK(X)                                                                                    \
    /* kernels and graphs */                                                                       \
    SPT(X, hipLaunchKernel, P(LAUNCH, size_t m, STREAM), P(f, g, b, a, m, stream), KERNEL(f, g, b)) \
    SPT(X, hipLaunchCooperativeKernel, P(LAUNCH, unsigned m, STREAM), P(f, g, b, a, m, stream),    \
        KERNEL(f, g, b))                                                                           \
    X(hipExtLaunchKernel, P(LAUNCH, size_t m, STREAM, hipEvent_t e0, hipEvent_t e1, int l),        \
      P(f, g, b, a, m, stream, e0, e1, l), stream, KERNEL(f, g, b))                                \
    X(hipModuleLaunchKernel, P(MODULE, STREAM, void **a, void **x),                                \
      P(f, gx, gy, gz, bx, by, bz, m, stream, a, x), stream, MODULE_KEY)                           \
    X(hipModuleLaunchCooperativeKernel, P(MODULE, STREAM, void **a),                               \
      P(f, gx, gy, gz, bx, by, bz, m, stream, a), stream, MODULE_KEY)                              \
    SPT(X, hipGraphLaunch, P(void *f, STREAM), P(f, stream),                                       \
        estimate_key((uintptr_t)f, 0, 1), 1000000ULL)                                              \
    /* copies */                                                                                   \
    FOUR(X, hipMemcpy, P(DSN, int k), P(d, s, n, k), COPY(1, n))                                   \
    X(hipMemcpyWithStream, P(DSN, int k, STREAM), P(d, s, n, k, stream), stream, COPY(1, n))       \
    PAIR(X, hipMemcpyHtoD, P(hipDeviceptr_t d, void *s, size_t n), P(d, s, n), COPY(2, n))         \
    PAIR(X, hipMemcpyDtoH, P(void *d, hipDeviceptr_t s, size_t n), P(d, s, n), COPY(3, n))         \
    PAIR(X, hipMemcpyDtoD, P(hipDeviceptr_t d, hipDeviceptr_t s, size_t n), P(d, s, n),            \
         COPY(4, n))                                                                               \
    PAIR(X, hipMemcpyPeer, P(void *d, int di, const void *s, int si, size_t n), P(d, di, s, si, n), \
         COPY(5, n))                                                                               \
    FOUR(X, hipMemcpy2D, P(TWO_D), P(d, dp, s, sp, w, h, k), COPY(6, w * h))                       \
    PAIR(X, hipMemcpyParam2D, P(const void *p), P(p), COPY(7, 1 << 20))                            \
    FOUR(X, hipMemcpy3D, P(const void *p), P(p), COPY(8, 1 << 20))                                 \
    PAIR(X, hipDrvMemcpy3D, P(const void *p), P(p), COPY(9, 1 << 20))                              \
    X(hipDrvMemcpy2DUnaligned, P(const void *p), P(p), NONE, COPY(7, 1 << 20))                     \
    FOUR(X, hipMemcpyToSymbol, P(SYMBOL), P(y, s, n, o, k), COPY(10, n))                           \
    FOUR(X, hipMemcpyFromSymbol, P(FROM_SYMBOL), P(d, y, n, o, k), COPY(11, n))                    \
    X(hipMemcpyToArray, P(void *d, size_t x, size_t y, const void *s, size_t n, int k),            \
      P(d, x, y, s, n, k), NONE, COPY(12, n))                                                      \
    X(hipMemcpyFromArray, P(FROM_ARRAY), P(d, s, x, y, n, k), NONE, COPY(12, n))                   \
    X(hipMemcpyFromArray_spt, P(FROM_ARRAY), P(d, s, x, y, n, k), OWN, COPY(12, n))                \
    X(hipMemcpyAtoH, P(void *d, void *s, size_t o, size_t n), P(d, s, o, n), NONE, COPY(12, n))    \
    X(hipMemcpyHtoA, P(void *d, size_t o, const void *s, size_t n), P(d, o, s, n), NONE,           \
      COPY(12, n))                                                                                 \
    FOUR(X, hipMemcpy2DToArray,                                                                    \
         P(void *d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h, int k),      \
         P(d, x, y, s, sp, w, h, k), COPY(13, w * h))                                              \
    FOUR(X, hipMemcpy2DFromArray,                                                                  \
         P(void *d, size_t dp, const void *s, size_t x, size_t y, size_t w, size_t h, int k),      \
         P(d, dp, s, x, y, w, h, k), COPY(14, w * h))                                              \
    /* fills */                                                                                    \
    FOUR(X, hipMemset, P(void *d, int v, size_t n), P(d, v, n), COPY(15, n))                       \
    PAIR(X, hipMemsetD8, P(hipDeviceptr_t d, unsigned char v, size_t n), P(d, v, n), COPY(15, n))  \
    PAIR(X, hipMemsetD16, P(hipDeviceptr_t d, unsigned short v, size_t n), P(d, v, n),             \
         COPY(15, 2 * n))                                                                          \
    PAIR(X, hipMemsetD32, P(hipDeviceptr_t d, int v, size_t n), P(d, v, n), COPY(15, 4 * n))       \
    FOUR(X, hipMemset2D, P(void *d, size_t dp, int v, size_t w, size_t h), P(d, dp, v, w, h),      \
         COPY(15, w * h))                                                                          \
    FOUR(X, hipMemset3D, P(hipPitchedPtr p, int v, hipExtent e), P(p, v, e),                       \
         COPY(15, e.width * e.height * e.depth))

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
    SPT(X, hipStreamSynchronize, P(STREAM), P(stream), false)                                      \
    SPT(X, hipStreamQuery, P(STREAM), P(stream), false)                                            \
    X(hipDeviceSynchronize, P(void), P(), NULL, true)                                              \
    X(hipCtxSynchronize, P(void), P(), NULL, true)
/* clang-format on */

/* A function of the library's name, and the library's own, as real(). */
#define WRAP(name, params)                                                                         \
    EXPORT hipError_t name params;                                                                 \
    hipError_t name params
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
    WRAP(name, params) BODY(#name, params, args, stream, P2(__VA_ARGS__))
WORK(X)
#undef X

#define X(name, symbol, params, args, stream, ...)                                                 \
    EXPORT hipError_t name params __asm__(symbol);                                                 \
    hipError_t name params BODY(symbol, params, args, stream, P2(__VA_ARGS__))
WORK_CXX(X)
#undef X

#define X(name, params, args)                                                                      \
    WRAP(name, params)                                                                             \
    {                                                                                              \
        REAL(#name, params);                                                                       \
        struct ticket t;                                                                           \
        track_enter(&t, NULL, estimate_key(99, 0, 0), 1000000);                                    \
        return real args;                                                                          \
    }
WORK_MANY(X)
#undef X

#define X(name, params, args, stream, all)                                                         \
    WRAP(name, params)                                                                             \
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

/* A callback of the program, which runs inside one of the gate's. */
struct callback {
    union {
        void (*stream)(hipStream_t, hipError_t, void *);
        void (*host)(void *);
    };
    void *data;
};

/* NULL: it is to be passed on as it is. A captured one is: it runs at every launch of the graph, so
 * nothing could free this. */
static struct callback *callback_new(hipStream_t stream, struct callback c)
{
    int status = HIP_CAPTURE_NONE;
    const struct hip_calls *calls = hip_calls();
    bool once =
        calls && calls->is_capturing(stream, &status) == HIP_OK && status == HIP_CAPTURE_NONE;
    struct callback *p = once && c.host ? malloc(sizeof(*p)) : NULL;
    if (p)
        *p = c;
    return p;
}

static void run_stream_callback(hipStream_t stream, hipError_t status, void *data)
{
    struct callback c = *(struct callback *)data;
    free(data);
    gate_callback(1);
    c.stream(stream, status, c.data);
    gate_callback(-1);
}

static void run_host_callback(void *data)
{
    struct callback c = *(struct callback *)data;
    free(data);
    gate_callback(1);
    c.host(c.data);
    gate_callback(-1);
}

static hipError_t callback_added(struct callback *c, hipError_t r)
{
    if (r != HIP_OK)
        free(c);
    return r;
}

/* Of streams; both variants. A capture is counted before it begins, so that no call of the gate
 * comes in between. An end that fails ends an invalidated capture. */
#define STREAMS(suffix)                                                                            \
    WRAP(hipStreamBeginCapture##suffix, (hipStream_t stream, int mode))                            \
    {                                                                                              \
        REAL("hipStreamBeginCapture" #suffix, (hipStream_t, int));                                 \
        track_capture(1);                                                                          \
        hipError_t r = real(stream, mode);                                                         \
        if (r != HIP_OK)                                                                           \
            track_capture(-1);                                                                     \
        return r;                                                                                  \
    }                                                                                              \
    WRAP(hipStreamEndCapture##suffix, (hipStream_t stream, void **graph))                          \
    {                                                                                              \
        REAL("hipStreamEndCapture" #suffix, (hipStream_t, void **));                               \
        hipError_t r = real(stream, graph);                                                        \
        track_capture(-1);                                                                         \
        return r;                                                                                  \
    }                                                                                              \
    WRAP(hipStreamAddCallback##suffix, (STREAM_CALLBACK))                                          \
    {                                                                                              \
        REAL("hipStreamAddCallback" #suffix, (STREAM_CALLBACK));                                   \
        struct callback *c = callback_new(stream, (struct callback){.stream = f, .data = data});   \
        return c ? callback_added(c, real(stream, run_stream_callback, c, flags))                  \
                 : real(stream, f, data, flags);                                                   \
    }                                                                                              \
    WRAP(hipLaunchHostFunc##suffix, (hipStream_t stream, void (*f)(void *), void *data))           \
    {                                                                                              \
        REAL("hipLaunchHostFunc" #suffix, (hipStream_t, void (*)(void *), void *));                \
        struct callback *c = callback_new(stream, (struct callback){.host = f, .data = data});     \
        return c ? callback_added(c, real(stream, run_host_callback, c)) : real(stream, f, data);  \
    }
#define STREAM_CALLBACK                                                                            \
    hipStream_t stream, void (*f)(hipStream_t, hipError_t, void *), void *data, unsigned flags
STREAMS()
STREAMS(_spt)

WRAP(hipStreamDestroy, (hipStream_t stream))
{
    REAL("hipStreamDestroy", (hipStream_t));
    track_forget(stream);
    return real(stream);
}

/* ---- look-ups ---- */

void *hip_wrapper(const char *name)
{
    static const struct {
        const char *name;
        void *f;
    } wrappers[] = {
#define X(name, ...) {#name, (void *)name},
#define S(suffix)                                                                                  \
    X(hipStreamBeginCapture##suffix)                                                               \
    X(hipStreamEndCapture##suffix)                                                                 \
    X(hipStreamAddCallback##suffix)                                                                \
    X(hipLaunchHostFunc##suffix)
        WORK(X) WORK_MANY(X) WAITS(X) S() S(_spt) X(hipStreamDestroy)
#undef X
#define X(name, symbol, ...) {symbol, (void *)name},
            WORK_CXX(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (strcmp(wrappers[i].name, name) == 0)
            return wrappers[i].f;
    }
    return NULL;
}

/* HIP 6: look-up by name without dlsym(). */
WRAP(hipGetProcAddress, (const char *name, void **f, int version, uint64_t flags, void *status))
{
    REAL("hipGetProcAddress", (const char *, void **, int, uint64_t, void *));
    hipError_t r = real(name, f, version, flags, status);
    void *wrapper = r == HIP_OK && name && f && *f ? hip_wrapper(name) : NULL;
    if (wrapper)
        *f = wrapper;
    return r;
}
