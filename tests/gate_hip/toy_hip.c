/* A stand-in for libamdhip64: HIP's symbols and versions, streams that take virtual time, no GPU.
 *
 * The clock is the toy's own: a call takes 1 us, a query 20 us (somebody who polls makes time
 * pass), a synchronisation as long as it takes. A kernel's first two parameters are its number and
 * its duration in ns. What runs is written to the file in TOY_LOG at the end, one line each: WHAT
 * STREAM NUMBER | SUBMITTED START END INFLIGHT and "violation ..." for what no gate may do. Events
 * that were made by hipEventCreateWithFlags are taken for the gate's and not written; programs use
 * hipEventCreate. TOY_ERRORS=old: every call sets the last error, as HIP did before 6; else only
 * failures do. TOY_EVENT=fork|reenter|cancel|errno: what happens while the gate makes an event. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int hipError_t;
typedef struct {
    uint32_t x, y, z;
} dim3;

enum { OK = 0, INVALID = 1, NOT_READY = 600, CAPTURE_IMPLICIT = 906, UNSUPPORTED = 900 };
enum { MAX_STREAMS = 64, MAX_OPS = 100000, GRAPH_OPS = 64 };

struct op {
    const char *what;
    int stream;
    uint64_t number, ns, submitted, start, end, inflight;
};
struct ihipStream_t {
    int index;
    bool used, blocking, capturing;
    uint64_t busy_until;
    struct graph *graph;
};
struct ihipEvent_t {
    bool gates, recorded;
    uint64_t time;
};
struct graph {
    unsigned n;
    struct op ops[GRAPH_OPS];
};
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct ihipStream_t streams[MAX_STREAMS] = {{.used = true}}; /* 0: the default stream */
static struct op ops[MAX_OPS];
static unsigned nops, ngate_calls, violations;
static uint64_t now;
static int ncapturing;
static __thread hipError_t last_error;
static __thread struct ihipStream_t *thread_stream;

#define API __attribute__((visibility("default")))
#define FN(name, ...)                                                                              \
    API hipError_t name(__VA_ARGS__);                                                              \
    hipError_t name(__VA_ARGS__)

/* FN() of one expression, which takes 1 us. */
#define FN_IS(value, name, ...)                                                                    \
    FN(name, __VA_ARGS__)                                                                          \
    {                                                                                              \
        enter(1000);                                                                               \
        return done(value);                                                                        \
    }

static hipError_t done(hipError_t r)
{
    const char *e = getenv("TOY_ERRORS");
    if (r != OK || (e && strcmp(e, "old") == 0))
        last_error = r;
    pthread_mutex_unlock(&lock);
    return r;
}

static void enter(uint64_t ns)
{
    pthread_mutex_lock(&lock);
    now += ns;
}

static hipError_t put(struct op o)
{
    if (nops < MAX_OPS)
        ops[nops++] = o;
    return OK;
}

static void violation(const char *what)
{
    violations++;
    put((struct op){.what = what, .stream = -1});
}

static struct ihipStream_t *new_stream(bool blocking)
{
    for (int i = 1; i < MAX_STREAMS; i++) {
        if (!streams[i].used) {
            streams[i] = (struct ihipStream_t){.index = i, .used = true, .blocking = blocking};
            return &streams[i];
        }
    }
    return NULL;
}

static struct ihipStream_t *stream_of(hipStream_t s, bool spt)
{
    if (s == (hipStream_t)2 || (!s && spt)) {
        if (!thread_stream)
            thread_stream = new_stream(true);
        return thread_stream;
    }
    return s ? s : &streams[0];
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t inflight(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < MAX_STREAMS; i++)
        sum += streams[i].used && streams[i].busy_until > now ? streams[i].busy_until - now : 0;
    return sum;
}

static hipError_t submit(struct ihipStream_t *s, struct op o)
{
    if (s->capturing) {
        if (s->graph->n < GRAPH_OPS)
            s->graph->ops[s->graph->n++] = o;
        return OK;
    }
    o.stream = s->index;
    o.submitted = now;
    o.inflight = inflight();
    o.start = max(now, s->busy_until);
    for (int i = 0; i < MAX_STREAMS; i++) {
        struct ihipStream_t *x = &streams[i];
        bool legacy = (s == &streams[0] && x->blocking) || (x == &streams[0] && s->blocking);
        if (x->used && legacy)
            o.start = max(o.start, x->busy_until);
    }
    o.end = s->busy_until = o.start + o.ns;
    return put(o);
}

static hipError_t launch(hipStream_t s, bool spt, void **args)
{
    if (!args)
        return INVALID;
    return submit(
        stream_of(s, spt),
        (struct op){.what = "kernel", .number = *(uint64_t *)args[0], .ns = *(uint64_t *)args[1]});
}

FN_IS(launch(s, false, args), hipLaunchKernel, const void *f, dim3 g, dim3 b, void **args, size_t m,
      hipStream_t s)
FN_IS(launch(s, true, args), hipLaunchKernel_spt, const void *f, dim3 g, dim3 b, void **args,
      size_t m, hipStream_t s)
FN_IS(launch(s, false, args), hipExtLaunchKernel, const void *f, dim3 g, dim3 b, void **args,
      size_t m, hipStream_t s, hipEvent_t e0, hipEvent_t e1, int flags)
FN_IS(launch(s, false, args), hipModuleLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz,
      unsigned bx, unsigned by, unsigned bz, unsigned m, hipStream_t s, void **args, void **extra)

static hipError_t copy(hipStream_t s, bool spt, const char *what, size_t n, bool wait)
{
    struct ihipStream_t *x = stream_of(s, spt);
    hipError_t r = submit(x, (struct op){.what = what, .number = n, .ns = 5000 + n / 50});
    if (wait)
        now = max(now, x->busy_until);
    return r;
}
FN_IS(copy(NULL, false, "copy", n, true), hipMemcpy, void *d, const void *s, size_t n, int k)
FN_IS(copy(NULL, true, "copy", n, true), hipMemcpy_spt, void *d, const void *s, size_t n, int k)
FN_IS(copy(t, false, "copy", n, false), hipMemcpyAsync, void *d, const void *s, size_t n, int k,
      hipStream_t t)
FN_IS(copy(t, false, "fill", n, false), hipMemsetAsync, void *d, int v, size_t n, hipStream_t t)

/* What is only looked at for being held. */
#define STUB(name) FN_IS(put((struct op){.what = #name}), name, void)
#define CALL(name)
#include "held_calls.h"
STUB(hipCtxSynchronize)
STUB(hipStreamQuery_spt)

/* ---- streams ---- */

FN(hipStreamCreateWithFlags, hipStream_t *s, unsigned flags)
{
    enter(1000);
    *s = new_stream(!(flags & 1));
    return done(*s ? OK : INVALID);
}
FN_IS((*s = new_stream(true)) ? OK : INVALID, hipStreamCreate, hipStream_t *s)

FN(hipStreamDestroy, hipStream_t s)
{
    enter(1000);
    now = max(now, s->busy_until);
    s->used = false;
    return done(OK);
}

static hipError_t synchronize(const struct ihipStream_t *x)
{
    if (x->capturing)
        return UNSUPPORTED;
    now = max(now, x->busy_until);
    return OK;
}
FN_IS(synchronize(stream_of(s, false)), hipStreamSynchronize, hipStream_t s)
FN_IS(synchronize(stream_of(s, true)), hipStreamSynchronize_spt, hipStream_t s)

FN(hipStreamQuery, hipStream_t s)
{
    enter(20000);
    return done(stream_of(s, false)->busy_until <= now ? OK : NOT_READY);
}

FN(hipDeviceSynchronize, void)
{
    enter(1000);
    for (int i = 0; i < MAX_STREAMS; i++)
        now = streams[i].used ? max(now, streams[i].busy_until) : now;
    return done(OK);
}

#define CALLBACK(name, type, ...)                                                                  \
    FN(name, hipStream_t s, type, void *data, unsigned flags)                                      \
    {                                                                                              \
        enter(1000);                                                                               \
        struct ihipStream_t *x = stream_of(s, false);                                              \
        now = max(now, x->busy_until);                                                             \
        put((struct op){.what = "callback", .stream = x->index});                                  \
        pthread_mutex_unlock(&lock);                                                               \
        f(__VA_ARGS__);                                                                            \
        pthread_mutex_lock(&lock);                                                                 \
        return done(OK);                                                                           \
    }
CALLBACK(hipStreamAddCallback, void (*f)(hipStream_t, hipError_t, void *), s, OK, data)
CALLBACK(hipStreamAddCallback_spt, void (*f)(hipStream_t, hipError_t, void *), s, OK, data)
CALLBACK(hipLaunchHostFunc, void (*f)(void *), data)
CALLBACK(hipLaunchHostFunc_spt, void (*f)(void *), data)

/* ---- events ---- */

static hipError_t event_new(hipEvent_t *e, bool gates)
{
    *e = calloc(1, sizeof(**e));
    (*e)->gates = gates;
    ngate_calls += gates;
    return OK;
}
FN_IS(event_new(e, false), hipEventCreate, hipEvent_t *e)

static void *forks(void *unused)
{
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        alarm(5);
        hipStreamSynchronize(NULL);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (status != 0)
        violation("a child that never ends");
    return NULL;
}

static void fork_once(void)
{
    pthread_t t;
    pthread_create(&t, NULL, forks, NULL);
    pthread_join(t, NULL);
}

/* A program's thread may fork, or be cancelled, at any moment, and a library may call itself. */
static void interrupted(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *what = getenv("TOY_EVENT");
    if (!what)
        return;
    if (strcmp(what, "errno") == 0)
        errno = EIO;
    if (strcmp(what, "cancel") == 0)
        pthread_testcancel();
    if (strcmp(what, "reenter") == 0)
        hipStreamQuery(NULL);
    if (strcmp(what, "fork") == 0)
        pthread_once(&once, fork_once);
}

FN(hipEventCreateWithFlags, hipEvent_t *e, unsigned flags)
{
    interrupted();
    enter(1000);
    return done(event_new(e, true));
}

FN(hipEventRecord, hipEvent_t e, hipStream_t s)
{
    enter(1000);
    struct ihipStream_t *x = stream_of(s, false);
    if (x->capturing && e->gates)
        violation("event recorded in a capture");
    ngate_calls += e->gates;
    e->recorded = true;
    e->time = x->busy_until;
    if (!e->gates && !x->capturing)
        put((struct op){.what = "record", .stream = x->index});
    return done(OK);
}
FN(hipEventQuery, hipEvent_t e)
{
    enter(20000);
    ngate_calls += e->gates;
    if (ncapturing && e->gates)
        violation("event queried while a stream captures");
    return done(e->time <= now ? OK : NOT_READY);
}
FN(hipEventSynchronize, hipEvent_t e)
{
    enter(1000);
    now = max(now, e->time);
    return done(OK);
}
FN(hipEventElapsedTime, float *ms, hipEvent_t a, hipEvent_t b)
{
    enter(1000);
    if (b->time > now)
        return done(NOT_READY);
    *ms = (float)((double)(b->time - a->time) / 1e6);
    return done(OK);
}
FN_IS((free(e), OK), hipEventDestroy, hipEvent_t e)
FN(hipStreamWaitEvent, hipStream_t s, hipEvent_t e, unsigned flags)
{
    enter(1000);
    struct ihipStream_t *x = stream_of(s, false);
    put((struct op){.what = "wait", .stream = x->index});
    x->busy_until = max(x->busy_until, e->time);
    return done(OK);
}

/* ---- graphs ---- */

FN(hipStreamBeginCapture, hipStream_t s, int mode)
{
    enter(1000);
    if (!s || s->capturing)
        return done(UNSUPPORTED);
    s->capturing = true;
    s->graph = calloc(1, sizeof(*s->graph));
    ncapturing++;
    return done(OK);
}
FN(hipStreamEndCapture, hipStream_t s, void **graph)
{
    enter(1000);
    if (!s || !s->capturing)
        return done(UNSUPPORTED);
    s->capturing = false;
    ncapturing--;
    *graph = s->graph;
    return done(OK);
}
FN(hipStreamIsCapturing, hipStream_t s, int *status)
{
    enter(0);
    if (!s && ncapturing)
        return done(CAPTURE_IMPLICIT);
    *status = stream_of(s, false)->capturing;
    return done(OK);
}
FN_IS((*exec = graph, OK), hipGraphInstantiate, void **exec, void *graph, void *node, char *text,
      size_t size)
FN(hipGraphLaunch, void *exec, hipStream_t s)
{
    enter(1000);
    struct graph *g = exec;
    for (unsigned i = 0; g && i < g->n; i++)
        submit(stream_of(s, false), g->ops[i]);
    return done(OK);
}

/* ---- errors, devices, memory ---- */

FN(hipPeekAtLastError, void)
{
    return last_error;
}
FN(hipGetLastError, void)
{
    hipError_t r = last_error;
    last_error = OK;
    return r;
}
FN(hipGetDevice, int *d)
{
    enter(0);
    *d = 0;
    return done(OK);
}
FN_IS((*p = malloc(n), OK), hipMalloc, void **p, size_t n)
FN_IS((free(p), OK), hipFree, void *p)

/* ---- what the compiler's start-up code and launch syntax call ---- */

static __thread struct {
    dim3 g, b;
    size_t m;
    hipStream_t s;
} configuration;

API void **__hipRegisterFatBinary(const void *data);
API void __hipRegisterFunction(void);
API void __hipRegisterVar(void);
API void __hipUnregisterFatBinary(void **modules);
void **__hipRegisterFatBinary(const void *data)
{
    static void *module;
    return &module;
}
void __hipRegisterFunction(void)
{
}
void __hipRegisterVar(void)
{
}
void __hipUnregisterFatBinary(void **modules)
{
}
FN(__hipPushCallConfiguration, dim3 g, dim3 b, size_t m, hipStream_t s)
{
    configuration = (__typeof__(configuration)){g, b, m, s};
    return OK;
}
FN(__hipPopCallConfiguration, dim3 *g, dim3 *b, size_t *m, hipStream_t *s)
{
    *g = configuration.g;
    *b = configuration.b;
    *m = configuration.m;
    *s = configuration.s;
    return OK;
}

__attribute__((destructor)) static void write_log(void)
{
    const char *path = getenv("TOY_LOG");
    FILE *f = path ? fopen(path, "we") : NULL;
    if (!f)
        return;
    for (const struct op *o = ops; o < ops + nops; o++)
        fprintf(f, "%s %d %ju | %ju %ju %ju %ju\n", o->what, o->stream, (uintmax_t)o->number,
                (uintmax_t)o->submitted, (uintmax_t)o->start, (uintmax_t)o->end,
                (uintmax_t)o->inflight);
    fprintf(f, "end %u %u | %ju 0 0 0\n", ngate_calls, violations, (uintmax_t)now);
    fclose(f);
}
