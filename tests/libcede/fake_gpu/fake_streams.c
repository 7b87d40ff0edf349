/* The part of the stand-in for libcuda that runs something: events, copies, host functions and, by
 * fake_ptx.c, the kernels of the future map. All streams are one queue, which runs in order and
 * only when a test lets it, or as far as a wait needs: a program that relies on luck gets wrong
 * results. Time is the number of things that have run, in microseconds. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"

enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, NOT_READY = 600, FAILED = 719 };

struct event {
    unsigned flags;
    uint64_t recorded, done; /* how often */
    uint64_t at;
};

enum kind { KERNEL, COPY, RECORD, HOST };

struct op {
    struct op *next;
    enum kind kind;
    char kernel[24];
    unsigned blocks, threads;
    uint64_t a[8];
    void (*call)(void *);
};

struct fake_graph {
    struct op *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_graph queue = {NULL, &queue.first};
static struct fake_graph *capturing;
static uint64_t now;
static bool clearing; /* cuMemset, which other streams do not wait for */

static void put(const struct op *o)
{
    struct op *copy = malloc(sizeof(*copy));
    *copy = *o;
    copy->next = NULL;
    pthread_mutex_lock(&lock);
    struct fake_graph *to = capturing ? capturing : &queue;
    *to->last = copy;
    to->last = &copy->next;
    pthread_mutex_unlock(&lock);
}

static void execute(const struct op *o)
{
    struct event *e = (struct event *)(uintptr_t)o->a[0];
    switch (o->kind) {
    case KERNEL:
        fake_ptx_run(o->kernel, o->a, o->blocks, o->threads);
        break;
    case COPY:
        memcpy((void *)(uintptr_t)o->a[0], (const void *)(uintptr_t)o->a[1], o->a[2]);
        break;
    case RECORD:
        e->done++;
        e->at = now;
        break;
    case HOST:
        o->call((void *)(uintptr_t)o->a[0]);
        break;
    }
}

static bool run_one(void)
{
    pthread_mutex_lock(&lock);
    struct op *o = queue.first;
    if (o) {
        queue.first = o->next;
        if (!queue.first)
            queue.last = &queue.first;
        now++;
        execute(o);
    }
    pthread_mutex_unlock(&lock);
    free(o);
    return o != NULL;
}

void fake_run(unsigned n)
{
    while (n-- > 0 && run_one())
        ;
}

void fake_drain(void)
{
    clearing = false;
    while (run_one())
        ;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

struct fake_graph *fake_capture(void)
{
    capturing = malloc(sizeof(*capturing));
    capturing->first = NULL;
    capturing->last = &capturing->first;
    return capturing;
}

void fake_capture_end(void)
{
    capturing = NULL;
}

void fake_replay(const struct fake_graph *g)
{
    for (const struct op *o = g->first; o; o = o->next)
        put(o);
}

void fake_graph_free(struct fake_graph *g)
{
    while (g->first) {
        struct op *o = g->first;
        g->first = o->next;
        free(o);
    }
    free(g);
}

/* ---- the driver's calls ---------------------------------------------------------------------- */

int fake_launch_future(const char *text, unsigned blocks, unsigned threads, void **params)
{
    struct op o = {.kind = KERNEL, .blocks = blocks, .threads = threads};
    if (strncmp(text, "cede_future_", 12) != 0 && strncmp(text, "slice_", 6) != 0)
        return 0;
    snprintf(o.kernel, sizeof(o.kernel), "%.*s", (int)strcspn(text, "("), text);
    fake_cuda.bad += fake_ptx_params(text, params, o.a) > 8;
    fake_cuda.bad += clearing;
    put(&o);
    return 1;
}

int fake_fails_to_make(void)
{
    return fake_cuda.fail_make && --fake_cuda.fail_make == 0;
}

DOES(cuStreamSynchronize, (void *s), fake_drain())

CALL(cuEventCreate, void **e, unsigned flags)
{
    if (fake_fails_to_make())
        return NO_MEMORY;
    struct event *made = calloc(1, sizeof(*made));
    made->flags = flags;
    *e = made;
    fake_cuda.events++;
    return OK;
}

CALL(cuEventDestroy_v2, void *e)
{
    struct event *event = e;
    fake_cuda.bad += event->done != event->recorded;
    fake_cuda.events--;
    free(e);
    return OK;
}

CALL(cuEventRecord, void *e, void *stream)
{
    fake_cuda.bad += capturing != NULL;
    ((struct event *)e)->recorded++;
    put(&(struct op){.kind = RECORD, .a = {(uint64_t)(uintptr_t)e}});
    return OK;
}

static int result_of_work(void)
{
    return fake_cuda.fail_work && --fake_cuda.fail_work == 0 ? FAILED : OK;
}

CALL(cuEventQuery, void *e)
{
    const struct event *event = e;
    run_one();
    return event->done == event->recorded ? result_of_work() : NOT_READY;
}

/* Only events that are made for it may be waited for asleep. */
CALL(cuEventSynchronize, void *e)
{
    const struct event *event = e;
    fake_cuda.bad += !(event->flags & 1);
    while (event->done != event->recorded && run_one())
        ;
    return result_of_work();
}

CALL(cuEventElapsedTime, float *ms, void *from, void *to)
{
    const struct event *a = from, *b = to;
    if (a->done != a->recorded || b->done != b->recorded || !a->done || !b->done)
        return NOT_READY;
    *ms = (float)((double)b->at - (double)a->at) / 1000;
    return OK;
}

CALL(cuMemAlloc_v2, uint64_t *address, size_t bytes)
{
    if (fake_fails_to_make())
        return NO_MEMORY;
    *address = (uint64_t)(uintptr_t)malloc(bytes);
    fake_cuda.memory++;
    return OK;
}

CALL(cuMemFree_v2, uint64_t address)
{
    fake_drain(); /* as the real one */
    free((void *)(uintptr_t)address);
    fake_cuda.memory--;
    return OK;
}

CALL(cuMemsetD8_v2, uint64_t address, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)address, value, bytes);
    clearing = true;
    return OK;
}

DOES(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream),
     put(&(struct op){.kind = COPY, .a = {(uint64_t)(uintptr_t)to, from, bytes}}))

DOES(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream),
     put(&(struct op){.kind = COPY, .a = {to, (uint64_t)(uintptr_t)from, bytes}}))

DOES(cuLaunchHostFunc, (void *stream, void (*call)(void *), void *arg),
     put(&(struct op){.kind = HOST, .call = call, .a = {(uint64_t)(uintptr_t)arg}}))
