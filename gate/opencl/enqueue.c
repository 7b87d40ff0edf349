/* Commands: held until it is their turn, counted until they end, timed by their own events.
 *
 * A counted command has an event, the program's or the layer's; its end is a callback on it. Queues
 * measure time because queues.c asks for it. Markers and barriers are no work and pass. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate/clock.h"
#include "gate/estimate.h"
#include "gate/gate.h"
#include "gate/opencl/layer.h"

static pthread_mutex_t estimates = PTHREAD_MUTEX_INITIALIZER;

/* A counted command until its end. */
struct pending {
    int device;
    bool timed;
    uint64_t key, est_ns, begun_ns;
    double part;
};

void enqueue_in_child(void)
{
    pthread_mutex_init(&estimates, NULL);
}

uint64_t command_known(uint64_t key)
{
    pthread_mutex_lock(&estimates);
    uint64_t ns = estimate_of(key);
    pthread_mutex_unlock(&estimates);
    return ns;
}

void command_begin(struct command *c, cl_event **event)
{
    c->counted = gate_active() && queue_get(c->queue, &c->q) && c->q.device >= 0 &&
                 gate_device_active(c->q.device);
    c->own = NULL;
    if (!c->counted)
        return;
    uint64_t known = command_known(c->key);
    c->est_ns = (uint64_t)((double)(known ? known : c->est_ns) * c->part);
    gate_admit(c->q.device, c->est_ns, queues_flush, NULL);
    if (!*event)
        *event = &c->own;
}

/* Some implementations report a command as started while it waits for the one before: its time is
 * counted from that one's end. Commands that run at the same time each get a share. */
static uint64_t share_of(int device, uint64_t from, uint64_t to)
{
    static uint64_t last_end[GATE_DEVICES];
    pthread_mutex_lock(&estimates);
    uint64_t last = last_end[device];
    last_end[device] = to > last ? to : last;
    pthread_mutex_unlock(&estimates);
    from = from > last ? from : last;
    return to > from ? to - from : 1;
}

static void CL_CALLBACK command_ended(cl_event e, cl_int status, void *arg)
{
    struct pending *p = arg;
    cl_ulong from = 0, to = 0;
    uint64_t ns = 0;
    if (p->timed &&
        next->clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_START, sizeof(from), &from, NULL) ==
            CL_SUCCESS &&
        next->clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_END, sizeof(to), &to, NULL) ==
            CL_SUCCESS &&
        to > from)
        ns = share_of(p->device, from, to);
    else if (!p->timed)
        ns = gate_now_ns() - p->begun_ns;
    if (ns && status >= 0) {
        pthread_mutex_lock(&estimates);
        estimate_learn(p->key, (uint64_t)((double)ns / p->part));
        pthread_mutex_unlock(&estimates);
    }
    gate_done(p->device, p->est_ns, ns);
    free(p);
}

cl_int command_end(struct command *c, cl_event *event, cl_int r)
{
    if (!c->counted)
        return r;
    struct pending *p = r == CL_SUCCESS ? malloc(sizeof(*p)) : NULL;
    if (p) {
        *p = (struct pending){c->q.device, c->q.timed, c->key, c->est_ns, gate_now_ns(), c->part};
        queue_submitted(c->queue);
        if (next->clSetEventCallback(*event, CL_COMPLETE, command_ended, p) != CL_SUCCESS) {
            free(p);
            p = NULL;
        }
    }
    if (!p)
        gate_done(c->q.device, c->est_ns, 0);
    if (r == CL_SUCCESS && event == &c->own)
        next->clReleaseEvent(c->own);
    return r;
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Copies: bytes to the next power of two are one kind. 4 bytes a ns is what memory gives. */
static struct command copy(cl_command_queue q, uint64_t kind, size_t bytes)
{
    unsigned bits = bytes ? 64U - (unsigned)__builtin_clzll(bytes) : 0;
    return (struct command){
        .queue = q, .key = estimate_key(kind, bits, 1), .est_ns = 10000 + bytes / 4, .part = 1};
}

static size_t volume(const size_t r[3])
{
    return r ? r[0] * r[1] * r[2] : 0;
}

/* Every call that is work: name, bytes, parameters between the queue and the wait list, and the
 * same as arguments. */
#define P(...) __VA_ARGS__
#define RECT                                                                                       \
    const size_t *at, const size_t *host_at, const size_t *region, size_t row, size_t slice,       \
        size_t host_row, size_t host_slice
#define COPY_RECT                                                                                  \
    cl_mem a, cl_mem b, const size_t *from, const size_t *to, const size_t *region, size_t row,    \
        size_t slice, size_t to_row, size_t to_slice
#define IMAGE                                                                                      \
    cl_mem i, cl_bool block, const size_t *at, const size_t *region, size_t row, size_t slice
#define TEXELS 4 * volume(region)
#define NATIVE                                                                                     \
    void(CL_CALLBACK * f)(void *), void *args, size_t size, cl_uint n, const cl_mem *v,            \
        const void **at

/* clang-format off */
#define COMMANDS(X)                                                                                \
    X(clEnqueueReadBuffer, n, P(cl_mem b, cl_bool block, size_t at, size_t n, void *to),           \
      b, block, at, n, to)                                                                         \
    X(clEnqueueWriteBuffer, n, P(cl_mem b, cl_bool block, size_t at, size_t n, const void *from),  \
      b, block, at, n, from)                                                                       \
    X(clEnqueueReadBufferRect, volume(region), P(cl_mem b, cl_bool block, RECT, void *to),         \
      b, block, at, host_at, region, row, slice, host_row, host_slice, to)                         \
    X(clEnqueueWriteBufferRect, volume(region), P(cl_mem b, cl_bool block, RECT, const void *from),\
      b, block, at, host_at, region, row, slice, host_row, host_slice, from)                       \
    X(clEnqueueCopyBuffer, n, P(cl_mem a, cl_mem b, size_t from, size_t to, size_t n),             \
      a, b, from, to, n)                                                                           \
    X(clEnqueueCopyBufferRect, volume(region), P(COPY_RECT),                                       \
      a, b, from, to, region, row, slice, to_row, to_slice)                                        \
    X(clEnqueueFillBuffer, n, P(cl_mem b, const void *what, size_t size, size_t at, size_t n),     \
      b, what, size, at, n)                                                                        \
    X(clEnqueueReadImage, TEXELS, P(IMAGE, void *to), i, block, at, region, row, slice, to)        \
    X(clEnqueueWriteImage, TEXELS, P(IMAGE, const void *from),                                     \
      i, block, at, region, row, slice, from)                                                      \
    X(clEnqueueCopyImage, TEXELS,                                                                  \
      P(cl_mem a, cl_mem b, const size_t *from, const size_t *to, const size_t *region),           \
      a, b, from, to, region)                                                                      \
    X(clEnqueueFillImage, TEXELS,                                                                  \
      P(cl_mem i, const void *color, const size_t *at, const size_t *region),                      \
      i, color, at, region)                                                                        \
    X(clEnqueueCopyImageToBuffer, TEXELS,                                                          \
      P(cl_mem a, cl_mem b, const size_t *from, const size_t *region, size_t to),                  \
      a, b, from, region, to)                                                                      \
    X(clEnqueueCopyBufferToImage, TEXELS,                                                          \
      P(cl_mem a, cl_mem b, size_t from, const size_t *to, const size_t *region),                  \
      a, b, from, to, region)                                                                      \
    X(clEnqueueUnmapMemObject, 0, P(cl_mem b, void *p), b, p)                                      \
    X(clEnqueueMigrateMemObjects, 0, P(cl_uint n, const cl_mem *v, cl_mem_migration_flags flags),  \
      n, v, flags)                                                                                 \
    X(clEnqueueNativeKernel, GUESS_NS, P(NATIVE), f, args, size, n, v, at)                         \
    X(clEnqueueSVMMemcpy, n, P(cl_bool block, void *to, const void *from, size_t n),               \
      block, to, from, n)                                                                          \
    X(clEnqueueSVMMemFill, n, P(void *to, const void *what, size_t size, size_t n),                \
      to, what, size, n)                                                                           \
    X(clEnqueueSVMMap, n, P(cl_bool block, cl_map_flags flags, void *p, size_t n),                 \
      block, flags, p, n)                                                                          \
    X(clEnqueueSVMUnmap, 0, P(void *p), p)                                                         \
    X(clEnqueueSVMMigrateMem, 0,                                                                   \
      P(cl_uint n, const void **v, const size_t *sizes, cl_mem_migration_flags flags),             \
      n, v, sizes, flags)

/* The same for calls that return what they have mapped. */
#define MAPS(X)                                                                                    \
    X(clEnqueueMapBuffer, n, P(cl_mem b, cl_bool block, cl_map_flags flags, size_t at, size_t n),  \
      b, block, flags, at, n)                                                                      \
    X(clEnqueueMapImage, TEXELS,                                                                   \
      P(cl_mem i, cl_bool block, cl_map_flags flags, const size_t *at, const size_t *region,       \
        size_t *row, size_t *slice),                                                               \
      i, block, flags, at, region, row, slice)
/* clang-format on */

#define X(name, bytes, params, ...)                                                                \
    static cl_int CL_API_CALL my_##name(cl_command_queue q, params, cl_uint nwait,                 \
                                        const cl_event *wait, cl_event *event)                     \
    {                                                                                              \
        struct command c = copy(q, __COUNTER__, bytes);                                            \
        command_begin(&c, &event);                                                                 \
        return command_end(&c, event, next->name(q, __VA_ARGS__, nwait, wait, event));             \
    }
COMMANDS(X)
#undef X

#define X(name, bytes, params, ...)                                                                \
    static void *CL_API_CALL my_##name(cl_command_queue q, params, cl_uint nwait,                  \
                                       const cl_event *wait, cl_event *event, cl_int *ret)         \
    {                                                                                              \
        cl_int r = CL_SUCCESS;                                                                     \
        struct command c = copy(q, __COUNTER__, bytes);                                            \
        command_begin(&c, &event);                                                                 \
        void *p = next->name(q, __VA_ARGS__, nwait, wait, event, &r);                              \
        command_end(&c, event, r);                                                                 \
        if (ret)                                                                                   \
            *ret = r;                                                                              \
        return p;                                                                                  \
    }
MAPS(X)
#undef X

/* ---- command buffers (cl_khr_command_buffer): recorded freely, held when they are submitted ----
 */

typedef cl_int(CL_API_CALL *enqueue_buffer_fn)(cl_uint n, cl_command_queue *queues, void *buffer,
                                               cl_uint nwait, const cl_event *wait,
                                               cl_event *event);
typedef cl_int(CL_API_CALL *buffer_info_fn)(void *buffer, cl_uint what, size_t size, void *value,
                                            size_t *size_ret);
#define BUFFER_QUEUES     0x1294 /* CL_COMMAND_BUFFER_QUEUES_KHR */
#define BUFFER_QUEUES_MAX 8

/* A program calls its platform's function, without saying which platform that is: there is one
 * wrapper for each of so many. */
static struct buffer_platform {
    enqueue_buffer_fn enqueue;
    buffer_info_fn info;
} buffer_platforms[4];

static cl_int enqueue_buffer(const struct buffer_platform *p, cl_uint n, cl_command_queue *queues,
                             void *buffer, cl_uint nwait, const cl_event *wait, cl_event *event)
{
    cl_command_queue own[BUFFER_QUEUES_MAX] = {NULL};
    if (!n && p->info && gate_active())
        p->info(buffer, BUFFER_QUEUES, sizeof(own), own, NULL);
    struct command c = {.queue = n && queues ? queues[0] : own[0],
                        .key = estimate_key((uintptr_t)buffer, n, 2),
                        .est_ns = GUESS_NS,
                        .part = 1};
    command_begin(&c, &event);
    return command_end(&c, event, p->enqueue(n, queues, buffer, nwait, wait, event));
}

#define BUFFER(i)                                                                                  \
    static cl_int CL_API_CALL enqueue_buffer_##i(cl_uint n, cl_command_queue *queues,              \
                                                 void *buffer, cl_uint nwait,                      \
                                                 const cl_event *wait, cl_event *event)            \
    {                                                                                              \
        return enqueue_buffer(&buffer_platforms[i], n, queues, buffer, nwait, wait, event);        \
    }
BUFFER(0)
BUFFER(1)
BUFFER(2)
BUFFER(3)

/* Platforms beyond those pass. */
void *enqueue_command_buffer(void *real, void *info)
{
    static const enqueue_buffer_fn wrappers[] = {enqueue_buffer_0, enqueue_buffer_1,
                                                 enqueue_buffer_2, enqueue_buffer_3};
    void *answer = real;
    pthread_mutex_lock(&estimates);
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]) && answer == real; i++) {
        struct buffer_platform *p = &buffer_platforms[i];
        if (!p->enqueue)
            *p = (struct buffer_platform){(enqueue_buffer_fn)real, (buffer_info_fn)info};
        if ((void *)p->enqueue == real)
            answer = (void *)wrappers[i];
    }
    pthread_mutex_unlock(&estimates);
    return answer;
}

void enqueue_fill(cl_icd_dispatch *d)
{
#define X(name, ...) TAKE(name)
    COMMANDS(X)
    MAPS(X)
#undef X
}
