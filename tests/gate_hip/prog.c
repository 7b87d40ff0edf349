/* An ordinary HIP program, linked with libamdhip64 (the stand-in), that knows nothing of any gate.
 *     prog mix SEED     everything at once, in an order that the seed gives; prints what it sees
 *     prog threads      four threads, each on its own stream and on its default stream
 *     prog each         every call that gives work, one after another; a byte on fd 4 after each,
 *                       the next when a byte comes on fd 3
 *     prog cancelled    a thread that is cancelled while it submits, and then another
 *     prog never        calls that must never be held; a byte on fd 4
 *     prog lookup       like each, for functions found by dlsym() in a library it opened itself */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct {
    uint32_t x, y, z;
} dim3;

#ifndef NO_LINK
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipLaunchKernel_spt(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipMemcpy(void *, const void *, size_t, int);
hipError_t hipMemcpyAsync(void *, const void *, size_t, int, hipStream_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipDeviceSynchronize(void);
hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventQuery(hipEvent_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned);
hipError_t hipStreamBeginCapture(hipStream_t, int);
hipError_t hipStreamEndCapture(hipStream_t, void **);
hipError_t hipGraphInstantiate(void **, void *, void *, char *, size_t);
hipError_t hipGraphLaunch(void *, hipStream_t);
hipError_t hipStreamAddCallback(hipStream_t, void (*)(hipStream_t, hipError_t, void *), void *,
                                unsigned);
hipError_t hipStreamAddCallback_spt(hipStream_t, void (*)(hipStream_t, hipError_t, void *), void *,
                                    unsigned);
hipError_t hipLaunchHostFunc(hipStream_t, void (*)(void *), void *);
hipError_t hipLaunchHostFunc_spt(hipStream_t, void (*)(void *), void *);
hipError_t hipPeekAtLastError(void);
hipError_t hipGetLastError(void);

static const dim3 one = {1, 1, 1};
static char kernel_a, kernel_b;

static hipError_t launch(hipStream_t s, uint64_t number, uint64_t ns)
{
    void *args[] = {&number, &ns};
    return hipLaunchKernel(number % 2 ? &kernel_a : &kernel_b, one, one, args, 0, s);
}

/* On the thread's default stream. */
static hipError_t launch_spt(uint64_t number, uint64_t ns)
{
    void *args[] = {&number, &ns};
    return hipLaunchKernel_spt(&kernel_a, one, one, args, 0, NULL);
}

static void callback(hipStream_t s, hipError_t status, void *data)
{
    launch(s, *(uint64_t *)data, 1000);
}

static uint64_t state;
static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % n;
}

static void capture(hipStream_t s, hipStream_t other, uint64_t number)
{
    void *graph = NULL, *exec = NULL;
    if (hipStreamBeginCapture(s, 0) != 0)
        return;
    for (uint64_t i = 0; i < 5; i++)
        launch(s, number * 100 + i, 30000);
    if (other != s)
        launch(other, number * 100 + 50, 20000); /* another stream goes on working */
    hipStreamEndCapture(s, &graph);
    hipGraphInstantiate(&exec, graph, NULL, NULL, 0);
    hipGraphLaunch(exec, s);
    hipGraphLaunch(exec, s);
}

static int mix(uint64_t seed)
{
    hipStream_t s[5] = {NULL, (hipStream_t)2};
    hipEvent_t e[4];
    char buf[64];
    state = seed;
    for (int i = 2; i < 5; i++)
        hipStreamCreateWithFlags(&s[i], (unsigned)i % 2);
    for (int i = 0; i < 4; i++)
        hipEventCreate(&e[i]);
    for (uint64_t i = 1; i < 2000; i++) {
        hipStream_t x = s[draw(5)], y = s[draw(5)];
        switch (draw(24)) {
        default:
            launch(x, i, 50000 + draw(200000));
            break;
        case 0:
            launch_spt(i, 70000);
            break;
        case 1:
            hipMemcpyAsync(buf, buf, 1 << draw(24), 1, x);
            break;
        case 2:
            hipMemcpy(buf, buf, 4096, 1);
            break;
        case 3:
            hipMemsetAsync(buf, 0, 1 << 20, x);
            break;
        case 4:
            hipEventRecord(e[i % 4], x);
            hipStreamWaitEvent(y, e[i % 4], 0);
            break;
        case 5:
            printf("query %d\n", hipStreamSynchronize(x) == 0);
            break;
        case 6:
            hipStreamAddCallback(x, callback, &i, 0);
            break;
        case 7:
            if (x && x != (hipStream_t)2 && y)
                capture(x, y, i);
            break;
        case 8:
            if (draw(8) == 0)
                hipDeviceSynchronize();
            break;
        case 9: /* fails, and must be seen to have failed */
            hipGetLastError();
            hipLaunchKernel(&kernel_a, one, one, NULL, 0, x);
            printf("error %d", hipPeekAtLastError());
            printf(" %d\n", hipGetLastError());
            break;
        case 10: /* a failure that nobody asked after yet, as far as the library keeps it */
            hipLaunchKernel(&kernel_a, one, one, NULL, 0, x);
            launch(y, i, 10000);
            printf("pending %d\n", hipGetLastError());
            break;
        case 11:
            launch(x, i, 10000);
            printf("none %d\n", hipGetLastError());
            break;
        case 12:
            hipStreamDestroy(s[4]);
            hipStreamCreateWithFlags(&s[4], i % 2);
            break;
        }
    }
    hipDeviceSynchronize();
    return 0;
}

enum { THREADS = 4, LAUNCHES = 300 };

static void *one_thread(void *arg)
{
    uint64_t base = (uintptr_t)arg * 100000;
    hipStream_t own;
    hipStreamCreateWithFlags(&own, 1);
    for (uint64_t i = 0; i < LAUNCHES; i++) {
        if (i % 3)
            launch(own, base + i, 20000);
        else
            launch_spt(base + i, 20000);
        if (i % 50 == 49)
            hipStreamSynchronize(own);
    }
    return NULL;
}

static int threads(void)
{
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, one_thread, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    hipDeviceSynchronize();
    return 0;
}

static void *captures(void *unused)
{
    hipStream_t own;
    hipStreamCreateWithFlags(&own, 1);
    for (uint64_t i = 0; i < LAUNCHES; i++)
        capture(own, own, 900000 + i * 100);
    return NULL;
}

/* One of the threads captures, the others work on. */
static int capturing_thread(void)
{
    pthread_t t;
    pthread_create(&t, NULL, captures, NULL);
    int r = threads();
    pthread_join(t, NULL);
    return r;
}

static void *cancelled_thread(void *unused)
{
    pthread_cancel(pthread_self());
    launch((hipStream_t)2, 1, 1000);
    pthread_testcancel();
    return NULL;
}

static int cancelled(void)
{
    pthread_t t;
    errno = 0;
    launch(NULL, 0, 1000);
    int r = errno;
    pthread_create(&t, NULL, cancelled_thread, NULL);
    pthread_join(t, NULL);
    launch(NULL, 2, 1000);
    hipDeviceSynchronize();
    return r;
}

static void host_callback(void *data)
{
    callback(NULL, 0, data);
}

static int never(void)
{
    hipStream_t s;
    hipEvent_t e;
    void *graph = NULL;
    hipStreamCreateWithFlags(&s, 0);
    hipEventCreate(&e);
    hipEventRecord(e, s);
    hipEventQuery(e);
    hipEventSynchronize(e);
    hipStreamWaitEvent(s, e, 0);
    hipStreamQuery(s);
    hipStreamSynchronize(s);
    hipDeviceSynchronize();
    hipStreamBeginCapture(s, 0);
    for (uint64_t i = 0; i < 3; i++)
        launch(s, i, 1000);
    hipStreamEndCapture(s, &graph);
    uint64_t number = 7;
    hipStreamAddCallback(s, callback, &number, 0);
    hipStreamAddCallback_spt(s, callback, &number, 0);
    hipLaunchHostFunc(s, host_callback, &number);
    hipLaunchHostFunc_spt(s, host_callback, &number);
    hipStreamDestroy(s);
    return write(4, "n", 1) == 1 ? 0 : 1;
}
#endif

/* Called with zeros for whatever it takes: the stand-in refuses or notes it. */
typedef long any(long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                 long, long);

static int each(void *handle)
{
    static const char *const names[] = {
#define CALL(name) #name,
#define STUB(name) CALL(name)
#include "held_calls.h"
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        any *f = (any *)dlsym(handle, names[i]);
        char c;
        if (!f) {
            fprintf(stderr, "%s is not there\n", names[i]);
            return 1;
        }
        /* Where large structures are passed by address, as on aarch64, it has to be one. */
        static const char zeros[64];
        long by_value = strncmp(names[i], "hipMemset3D", 11) == 0 ? (long)zeros : 0;
        f(by_value, 0, by_value, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        if (write(4, "e", 1) != 1 || read(3, &c, 1) != 1)
            return 1;
    }
    return 0;
}

/* What else dlsym() is used for has to be as ever. */
static int other_lookups(void)
{
    dlerror();
    if (dlsym(RTLD_DEFAULT, "no_such_function") || !dlerror())
        return 2;
    if (dlsym(RTLD_NEXT, "malloc") != dlsym(RTLD_DEFAULT, "malloc"))
        return 3;
    if (dlsym(RTLD_NEXT, "main")) /* not after this program */
        return 4;
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    return libc && dlsym(libc, "write") == (void *)write ? 0 : 5;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "lookup") == 0) {
        void *handle = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int r = other_lookups();
        return r ? r : each(handle);
    }
#ifndef NO_LINK
    if (strcmp(what, "mix") == 0)
        return mix(strtoull(argv[2], NULL, 10));
    if (strcmp(what, "threads") == 0)
        return threads();
    if (strcmp(what, "captures") == 0)
        return capturing_thread();
    if (strcmp(what, "cancelled") == 0)
        return cancelled();
    if (strcmp(what, "each") == 0)
        return each(RTLD_DEFAULT);
    if (strcmp(what, "never") == 0)
        return never();
#endif
    return 64;
}
